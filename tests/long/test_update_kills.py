"""`xmtc update` killed at any moment: the folder holds the old or the new model, and the same command goes on."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from xmtc import load
from xmtc.artifact.store import read_manifest, verify_folder
from xmtc.artifact.workspace import Workspace
from xmtc.data.planted_corpus import PlantedCorpus

pytestmark = pytest.mark.long

SETTINGS = {"parabel": ["trees=2", "leaf_size=16", "fan_out=4", "keep_replay=400"], "knn": []}
KILLS = {"parabel": 30, "knn": 10}
RANDOM, PART, SAVING = "at random", "when a part is finished", "while saving"
TURNS = {"parabel": [RANDOM, RANDOM, PART, SAVING], "knn": [RANDOM, RANDOM, RANDOM, SAVING]}
"""Moments of the kills of one update before it may end; knn has no parts."""


def xmtc(place: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "xmtc", *map(str, arguments), "--threads", "1"]
    return subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def start(place: Path, folder: str, new: str = "new.jsonl") -> subprocess.Popen[str]:
    return xmtc(place, "update", folder, new, "--valid", "valid.jsonl")


def done(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files to learn from and to judge by; each model trained, and as `NAME-after` updated without interruption."""
    folder = tmp_path_factory.mktemp("update-kills")
    corpus = PlantedCorpus(documents=5000, labels=600, seed=6)
    hidden = {corpus.label_name(label) for label in range(0, 600, 10)}
    for name, first, last in (("train", 0, 3000), ("new", 3000, 4500), ("other", 4500, 4700), ("valid", 4700, 5000)):
        path = folder / f"{name}.jsonl"
        with path.open("w") as handle:
            corpus.write_jsonl(handle, first, last)
        if name == "train":  # some labels are new in the update
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            kept = [row for row in rows if not hidden & set(row["labels"])]
            path.write_text("".join(json.dumps(row) + "\n" for row in kept))
    for model, settings in SETTINGS.items():
        more = [part for setting in settings for part in ("--set", setting)]
        done(xmtc(folder, "train", "train.jsonl", "--model", model, "--out", model, *more))
        shutil.copytree(folder / model, folder / f"{model}-after")
        done(start(folder, f"{model}-after"))
    return folder


def answers(folder: Path, place: Path) -> list[list[tuple[str, float]]]:
    verify_folder(folder)
    texts = [json.loads(line)["text"] for line in (place / "valid.jsonl").read_text().splitlines()]
    return load(folder).predict(texts[:100], 5).pairs()


def stopped(process: subprocess.Popen[str], how: signal.Signals, when: Callable[[], bool]) -> str:
    """Send the signal as soon as `when` holds; what the process said."""
    until = time.monotonic() + 60
    while not when() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.001)
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    return said


def assert_complete(place: Path, name: str, model: str) -> None:
    assert read_manifest(place / name)["files"] == read_manifest(place / f"{model}-after")["files"]
    assert len(read_manifest(place / name)["history"]) == 1
    assert not Workspace.beside(place / name, ".update").exists()
    assert len(list((place / name).iterdir())) == 1 + len(read_manifest(place / name)["files"])


@pytest.mark.parametrize("model", SETTINGS)
def test_killed_at_any_moment(place: Path, model: str) -> None:
    before, after = answers(place / model, place), answers(place / f"{model}-after", place)
    assert before != after
    shutil.copytree(place / model, place / f"{model}-timed")
    began = time.monotonic()
    done(start(place, f"{model}-timed"))
    whole, chance = time.monotonic() - began, random.Random(len(model))
    kills = number = saved = with_parts = 0
    while kills < KILLS[model]:
        name, number = f"{model}-{number}", number + 1
        folder = Path(shutil.copytree(place / model, place / name))
        work = Workspace.beside(folder, ".update")
        for turn in TURNS[model]:
            process, first = start(place, name), set(folder.iterdir())
            until = time.monotonic() + chance.uniform(0.1, 1.0) * whole
            parts = len(list(work.glob("*.safetensors")))
            moments: dict[str, Callable[[], bool]] = {
                RANDOM: lambda until=until: time.monotonic() >= until,  # type: ignore[misc]
                PART: lambda work=work, parts=parts: len(list(work.glob("*.safetensors"))) > parts,  # type: ignore[misc]
                SAVING: lambda folder=folder, first=first: set(folder.iterdir()) != first,  # type: ignore[misc]
            }
            stopped(process, signal.SIGKILL, moments[turn])
            if process.returncode == 0:
                break
            assert process.returncode == -signal.SIGKILL
            kills += 1
            with_parts += len(list(work.glob("*.safetensors"))) > 0
            found = answers(folder, place)
            assert found in (before, after)
            if found == after:  # saved, and perhaps not swept up yet
                saved += 1
                break
        if answers(folder, place) == before:
            done(start(place, name))
            assert_complete(place, name, model)
        assert answers(folder, place) == after
        shutil.rmtree(folder)
        shutil.rmtree(work, ignore_errors=True)
    assert model == "knn" or with_parts >= 8, f"{with_parts} of {kills} kills came when there was something to keep"
    assert saved < kills / 2, f"{saved} of {kills} kills came after the model was saved"


def test_what_a_kill_after_saving_leaves_is_in_nobody_s_way(place: Path) -> None:
    """The model is that of after; another update starts over and sweeps up."""
    shutil.copytree(place / "parabel", place / "left")
    work = Workspace.beside(place / "left", ".update")
    process = start(place, "left")
    stopped(process, signal.SIGKILL, lambda: len(list(work.glob("tree-*.safetensors"))) >= 3)
    shutil.rmtree(place / "left")
    shutil.copytree(place / "parabel-after", place / "left")
    assert list(work.glob("*.safetensors"))
    shutil.copytree(place / "parabel-after", place / "twice")
    for name in ("left", "twice"):
        done(start(place, name, "other.jsonl"))
    assert read_manifest(place / "left")["files"] == read_manifest(place / "twice")["files"]
    assert not work.exists()


def test_interrupted_and_at_the_same_time(place: Path) -> None:
    shutil.copytree(place / "parabel", place / "stopped")
    work = Workspace.beside(place / "stopped", ".update")
    process = start(place, "stopped")
    until = time.monotonic() + 60
    while not list(work.glob("*.safetensors")) and time.monotonic() < until:
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)  # it is there, and takes its time
    second = start(place, "stopped")
    _, said = second.communicate(timeout=60)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    _, first = process.communicate(timeout=60)
    assert second.returncode == 2
    assert said.startswith("xmtc: stopped.update: in use by another process. Wait")
    assert said.count("\n") == 1
    assert process.returncode == 130
    assert first.splitlines()[-1] == (
        "xmtc: interrupted. stopped is unchanged; finished parts are in stopped.update. To resume, repeat the command."
    )
    assert "Traceback" not in first
    assert answers(place / "stopped", place) == answers(place / "parabel", place)
    assert list(work.glob("*.safetensors"))
    done(start(place, "stopped"))
    assert_complete(place, "stopped", "parabel")
