"""A batch prediction killed at any moment: whole parts only, which stay as they are when it goes on."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from xmtc import load
from xmtc.data.planted_corpus import PlantedCorpus
from xmtc.data.topk import ANSWERS, TopK, part_name
from xmtc.models.knn import Knn
from xmtc.workflows.batch_predict import finished_parts

pytestmark = pytest.mark.long

DOCUMENTS, SIZE = 20_010, 50
PARTS = 401  # the last with ten documents


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """in.jsonl, a model, and `reference`, the parts of an unbroken run."""
    folder = tmp_path_factory.mktemp("bulk")
    corpus = PlantedCorpus(documents=DOCUMENTS, labels=200, words_per_document=30, seed=4)
    with (folder / "in.jsonl").open("w") as handle:
        corpus.write_jsonl(handle)
    lines = (folder / "in.jsonl").read_text().splitlines()[:2000]
    rows = [json.loads(line) for line in lines]
    Knn(neighbours=20, power=2).fit([row["text"] for row in rows], [row["labels"] for row in rows]).save(folder / "m")
    process = start(folder, "reference")
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return folder


def start(place: Path, out: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "xmtc", "predict", "m", "in.jsonl", "--output", out, "--parts", str(SIZE)]
    return subprocess.Popen([*command, *more], cwd=place, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def times(folder: Path) -> dict[str, int]:
    """When each part was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*.parquet")}


def answers(folder: Path) -> list[dict[str, object]]:
    return [row for number in range(PARTS) for row in pq.read_table(folder / part_name(number)).to_pylist()]


@pytest.mark.parametrize("seed", [0, 1])
def test_killed_and_resumed_until_done(place: Path, seed: int) -> None:
    """The kill falls some moment after another part is there, so that each run gets on."""
    out, chance = place / f"killed-{seed}", random.Random(seed)
    kills, resume, before = 0, [], times(place / "nowhere")
    while True:
        process = start(place, out.name, *resume)
        wanted, until = finished_parts(out) + chance.randint(1, 60), time.monotonic() + 300
        while finished_parts(out) < wanted and process.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.03))
        process.kill()
        _, said = process.communicate(timeout=60)
        after = times(out)
        assert {name: after.get(name) for name in before} == before, "a whole part was touched"
        before = after
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, said
        if json.loads((out / ANSWERS).read_text())["complete"]:  # killed when all was written, before it could exit
            break
        kills += 1
        resume = ["--resume"]
        done = sorted(after)
        assert done == [part_name(number) for number in range(len(done))]
        rows = [pq.read_metadata(out / name).num_rows for name in done]
        assert rows == [min(SIZE, DOCUMENTS - number * SIZE) for number in range(len(done))], "a part is not whole"
    assert kills >= 6, "the predictions were over before they could be killed"
    assert sorted(path.name for path in out.iterdir()) == sorted([ANSWERS, *map(part_name, range(PARTS))])
    assert (out / ANSWERS).read_bytes() == (place / "reference" / ANSWERS).read_bytes()
    assert answers(out) == answers(place / "reference")
    found = TopK.read(out, load(place / "m").labels)
    assert len(found) == DOCUMENTS
    assert len(set(found.ids)) == DOCUMENTS


def test_killed_before_anything_is_finished(place: Path) -> None:
    """From the start of the process to its first part: the folder is absent, or can be resumed."""
    chance, states = random.Random(2), set()
    for turn in range(12):
        out = place / f"early-{turn}"
        process = start(place, out.name)
        until = time.monotonic() + 60
        while turn % 2 and not out.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02 if turn % 2 else 1.0))
        process.kill()
        process.communicate(timeout=60)
        begun = (out / ANSWERS).is_file()
        states.add(begun)
        assert begun or not finished_parts(out)
        if turn > 9:
            again = start(place, out.name, *(["--resume"] if begun else []))
            _, said = again.communicate(timeout=600)
            assert again.returncode == 0, said
            assert answers(out) == answers(place / "reference")
    assert True in states
