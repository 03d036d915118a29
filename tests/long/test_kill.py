"""Processes killed at any moment: a model folder is the old or the new one, and a training can go on."""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.support.models import planted_split
from xmtc import load
from xmtc.artifact.store import read_manifest, verify_folder
from xmtc.artifact.workspace import Workspace
from xmtc.data.planted_corpus import PlantedCorpus
from xmtc.models.knn import Knn
from xmtc.models.popularity import Popularity

pytestmark = pytest.mark.long

TEXTS = ["The years of the orchards", "Their canals near the harbours"]
PARTS = {"one_vs_all": 16, "parabel": 12}
"""Of 256 labels each; two trees of five levels each, and what the levels look like."""
SETTINGS: dict[str, dict[str, object]] = {
    "one_vs_all": {},
    "parabel": {"trees": 2, "leaf_size": 16, "fan_out": 4},
    "attention_xml": {
        "vectors": "random",
        "corpus.width": 8,
        "encoder.units": 4,
        "head.hidden": [4],
        "head.tree.height": 2,
        "head.tree.arity": 16,
        "head.tree.cluster_size": 16,
        "head.tree.beam_width": 16,
        "training.epochs": 1,
        "training.validate_every": 40,
        "training.validation_size": 50,
        "training.checkpoint_minutes": 0,
    },
}
"""The last has levels of 16, 256 and 4,096 nodes, and a checkpoint every 40 of some 200 steps."""


# ---- saving


def save_again_and_again(ready: Connection, sources: list[Path], target: Path) -> None:
    """Two models take turns in one folder until the process is killed."""
    models = [load(source) for source in sources]
    ready.send("ready")
    while True:
        for model in models:
            model.save(target, overwrite=True)


def test_killed_while_saving(tmp_path: Path) -> None:
    train, _, _ = planted_split(400, 0, labels=40, seed=2)
    sources = [tmp_path / "knn", tmp_path / "popularity"]
    for model, source in zip((Knn(neighbours=5, power=1), Popularity()), sources, strict=True):
        model.fit(train).save(source)
    answers = [load(source).predict(TEXTS, 3).pairs() for source in sources]
    target = tmp_path / "target"
    began = time.monotonic()
    for source in (*sources, *sources, sources[0]):
        load(source).save(target, overwrite=True)
    both, chance = (time.monotonic() - began) / 2.5, random.Random(0)  # seconds that a turn takes on this machine
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["tests.long.test_kill"])
    seen = []
    for _ in range(40):
        here, there = server.Pipe()
        process = server.Process(target=save_again_and_again, args=(there, sources, target))
        process.start()
        assert here.recv() == "ready"
        time.sleep(chance.uniform(0, 3 * both))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        verify_folder(target)
        found = load(target).predict(TEXTS, 3).pairs()
        assert found in answers
        seen.append(answers.index(found))
    assert 5 <= sum(seen) <= 35, f"the kills did not fall on both models: {seen}"
    load(sources[1]).save(target, overwrite=True)  # and the next save sweeps up what the killed ones left
    assert len(list(target.iterdir())) == 1 + len(read_manifest(target)["files"])


# ---- training


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.jsonl with 4,000 labels, and `reference` and `reference-parabel`, the models of uninterrupted runs."""
    folder = tmp_path_factory.mktemp("kill")
    corpus = PlantedCorpus(documents=8000, labels=PARTS["one_vs_all"] * 256, seed=5)
    with (folder / "train.jsonl").open("w") as handle:
        corpus.write_jsonl(handle)
    for model in PARTS:
        _, said = start(folder, reference(model), model=model).communicate(timeout=600)
        assert (folder / reference(model) / "model.json").exists(), said
    return folder


def reference(model: str) -> str:
    return "reference" if model == "one_vs_all" else f"reference-{model}"


def start(place: Path, out: str, *more: str, model: str = "one_vs_all") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "xmtc", "train", "train.jsonl", "--model", model, "--out", out]
    command += ["--threads", "1"] if model == "attention_xml" else []  # sums of two threads follow the machine's load
    for name, value in SETTINGS[model].items():
        command += ["--set", f"{name}={value}"]
    return subprocess.Popen([*command, *more], cwd=place, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def stop(process: subprocess.Popen[str], how: signal.Signals, when: Callable[[], bool]) -> str:
    """Send the signal as soon as `when` holds; what the process said."""
    until = time.monotonic() + 300
    while not when() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(how)
    _, said = process.communicate(timeout=120)
    return said


def finished(work: Path) -> int:
    return len([*work.glob("labels-*.safetensors"), *work.glob("tree-*.safetensors")])


def assert_equals_reference(place: Path, out: str, model: str = "one_vs_all") -> None:
    assert read_manifest(place / out)["files"] == read_manifest(place / reference(model))["files"]
    assert verify_folder(place / out)
    assert not Workspace.beside(place / out).exists()
    assert len(list((place / out).iterdir())) == 1 + len(read_manifest(place / out)["files"])


@pytest.mark.parametrize("model", PARTS)
def test_killed_while_training(place: Path, model: str) -> None:
    out, parts = f"killed-{model}", PARTS[model]
    work, chance = Workspace.beside(place / out), random.Random(1)
    moments: list[Callable[[], bool]] = [
        work.exists,  # reading
        lambda: (work / "training.json").exists(),  # weighing words
        *(lambda count=count: finished(work) >= count for count in (1, 3, 4, 9, parts - 2)),
        lambda: finished(work) == parts,  # assembling
        (place / out).exists,  # saving
    ]
    resume: list[str] = []
    done_before = kills = 0
    for moment in moments:
        process = start(place, out, *resume, model=model)
        said = stop(process, signal.SIGKILL, moment)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, said
        assert finished(work) >= done_before, "a finished part was lost"
        done_before = finished(work)
        kills += 1
        resume = ["--resume"]
        time.sleep(chance.uniform(0, 0.05))
    else:
        last = start(place, out, "--resume", model=model)
        _, said = last.communicate(timeout=600)
        assert last.returncode == 0, said
    assert kills >= 6, "training was over before it could be killed"
    assert_equals_reference(place, out, model)
    answers = [load(place / name).predict(TEXTS, 5).pairs() for name in (out, reference(model))]
    assert answers[0] == answers[1]


def test_killed_while_training_a_tree_of_networks(place: Path) -> None:
    pytest.importorskip("torch")
    model, out = "attention_xml", "killed-attention_xml"
    _, said = start(place, reference(model), model=model).communicate(timeout=600)
    assert (place / reference(model) / "model.json").exists(), said
    work = Workspace.beside(place / out)
    parts = ["vectors", "tree-0"]
    for level in range(3):
        parts += [f"checkpoint-0-level-{level}", f"member-0-level-{level}"]
        parts += [f"parents-0-level-{level + 1}"] if level < 2 else []
    kills: list[str] = []
    for part in parts:
        process = start(place, out, *(["--resume"] if kills else []), model=model)
        said = stop(process, signal.SIGKILL, (work / f"{part}.safetensors").exists)
        assert process.returncode == -signal.SIGKILL, said
        lasting = [name for name in kills if not name.startswith("checkpoint")]
        assert all((work / f"{name}.safetensors").exists() for name in lasting), "a finished part was lost"
        kills.append(part)
    last = start(place, out, "--resume", model=model)
    _, said = last.communicate(timeout=600)
    assert last.returncode == 0, said
    assert_equals_reference(place, out, model)
    answers = [load(place / name).predict(TEXTS, 5).pairs() for name in (out, reference(model))]
    assert answers[0] == answers[1]


def test_killed_at_random_moments(place: Path) -> None:
    """Whatever parabel is at, it gets on from there and ends up with the same model."""
    times = []
    for name in ("timed", "timed-again"):  # one of them may be slowed down by other work
        began = time.monotonic()
        start(place, name, model="parabel").communicate(timeout=600)
        times.append(time.monotonic() - began)
    whole, chance, kills = min(times), random.Random(2), 0
    for attempt in range(4):
        out = f"at-random-{attempt}"
        work = Workspace.beside(place / out)
        for _ in range(4):
            process = start(place, out, *(["--resume"] if work.exists() else []), model="parabel")
            until = time.monotonic() + chance.uniform(0.25, 0.75) * whole
            stop(process, signal.SIGKILL, lambda until=until: time.monotonic() >= until)  # type: ignore[misc]
            kills += process.returncode == -signal.SIGKILL
            if (place / out).exists() and not work.exists():
                break
        else:
            _, said = start(place, out, *(["--resume"] if work.exists() else []), model="parabel").communicate(
                timeout=600
            )
            assert (place / out).exists(), said
        assert_equals_reference(place, out, "parabel")
    assert kills >= 3, "training was over before it could be killed"


def test_a_kill_between_saving_and_sweeping_up(place: Path) -> None:
    """The model is whole, its workspace still there: --resume ends what was begun, no --force needed."""
    shutil.copytree(place / "reference", place / "swept")
    work = Workspace.beside(place / "swept")
    assert stop(start(place, "other"), signal.SIGKILL, lambda: finished(Workspace.beside(place / "other")) >= 2) != ""
    Workspace.beside(place / "other").rename(work)
    process = start(place, "swept", "--resume")
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert_equals_reference(place, "swept")


def test_interrupted_refused_and_resumed(place: Path) -> None:
    work = Workspace.beside(place / "interrupted")
    for count, resume in ((2, []), (5, ["--resume"])):
        process = start(place, "interrupted", *resume)
        said = stop(process, signal.SIGINT, lambda count=count: finished(work) >= count)  # type: ignore[misc]
        assert process.returncode == 130, said
        last = said.splitlines()[-1]
        assert last.startswith("xmtc: interrupted. Finished parts are in interrupted.work.")
        assert said.count("interrupted. ") == 1
        assert "Traceback" not in said

    before = {path.name: path.read_bytes() for path in work.iterdir()}
    lines = (place / "train.jsonl").read_text().splitlines()
    first = {**json.loads(lines[0]), "text": "changed"}
    others = {
        "settings": ["--set", "cost=2"],
        "seed": ["--seed", "1"],
    }
    for what, more in others.items():
        process = start(place, "interrupted", "--resume", *more)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 2
        assert said == (
            f"xmtc: interrupted.work: was started with different {what}. "
            "Use the same files and settings, or start over with --force.\n"
        )
    original = (place / "train.jsonl").read_bytes()
    try:
        (place / "train.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
        process = start(place, "interrupted", "--resume")
        _, said = process.communicate(timeout=120)
    finally:
        (place / "train.jsonl").write_bytes(original)
    assert process.returncode == 2
    assert said.startswith("xmtc: interrupted.work: was started with different training data.")
    assert said.count("\n") == 1
    assert {path.name: path.read_bytes() for path in work.iterdir()} == before

    process = start(place, "interrupted")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said.startswith("xmtc: interrupted.work: contains an unfinished training run.")

    process = start(place, "interrupted", "--resume")
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert_equals_reference(place, "interrupted")
