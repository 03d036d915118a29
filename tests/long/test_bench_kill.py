"""`xmtc bench` killed at any moment: the same command goes on, repeats nothing, and ends with the same numbers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import call
from xmtc.experiments.records import cell_names, read_results

pytestmark = pytest.mark.long

SUITE = """
seeds = [0, 1]

[datasets.made]
planted = { documents = 3000, test = 300, labels = 500 }
hold_out = 0.15

[models.parabel]
settings = { trees = 4, leaf_size = 20 }
calibrate = true

[models.knn]

[models.both]
model = "consensus"
members = ["parabel", "knn"]
calibrate = true
"""
CELLS = 6
SAME = ("metrics", "made_of", "groups", "tail", "reliability", "threshold", "files", "settings", "documents")
"""Of cell.json; the others tell of time and place."""


def start(place: Path, out: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "xmtc", "bench", "suite.toml", "--out", out, "--threads", "1"]
    return subprocess.Popen(
        command,
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XMTC_CACHE": "off"},
    )


def finish(place: Path, out: str) -> str:
    process = start(place, out)
    said, wrong = process.communicate(timeout=300)
    assert process.returncode == 0, wrong
    assert "Traceback" not in wrong
    return said


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """suite.toml, and `reference`, what an uninterrupted run of it leaves."""
    folder = tmp_path_factory.mktemp("kill")
    (folder / "suite.toml").write_text(SUITE)
    assert f"reference: {CELLS} runs completed, 0 already complete, 0 failed" in finish(folder, "reference")
    return folder


def complete(out: Path) -> dict[str, bytes]:
    return {str(name): (name.within(out) / "cell.json").read_bytes() for name in cell_names(out)}


def children(process: subprocess.Popen[str]) -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    except OSError:
        return []


def runs(pid: int) -> bool:
    """Whether a process is at work; one that has ended may wait for somebody to ask how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(what: Callable[[], bool], seconds: float = 30) -> bool:
    until = time.monotonic() + seconds
    while not what() and time.monotonic() < until:
        time.sleep(0.02)
    return what()


def assert_equals_reference(place: Path, out: str) -> None:
    found, expected = (complete(place / name) for name in (out, "reference"))
    assert found.keys() == expected.keys()
    assert len(found) == CELLS
    for name, content in found.items():
        mine, theirs = json.loads(content), json.loads(expected[name])
        assert {key: mine[key] for key in SAME} == {key: theirs[key] for key in SAME}, name
    assert read_results(place / out).datasets == read_results(place / "reference").datasets
    tables = []
    for name in (out, "reference"):
        call("report", place / name, "--out", place / f"{name}.html")
        lines = (place / f"{name}.md").read_text().splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("| model | P@1 |"))
        tables.append(lines[first : first + 5])
    assert tables[0] == tables[1]
    files = {str(path.relative_to(place / out)) for path in (place / out).rglob("*")}
    left = {path for path in files if path.endswith((".part", ".work")) or "/model" in path}
    assert left == set(), "nothing is left of what was killed"


@pytest.mark.parametrize("together", [False, True], ids=["parent", "both"])
def test_killed_at_random_moments(place: Path, together: bool) -> None:
    """The parent alone, whose child has to end by itself, or both at once."""
    out, chance = f"killed-{together}", random.Random(int(together))
    before: dict[str, bytes] = {}
    orphans: set[int] = set()
    kills = 0
    for _ in range(9):
        process = start(place, out)
        time.sleep(chance.uniform(0.6, 6.5))
        mine = children(process)
        for pid in [process.pid, *(mine if together else [])]:
            if process.poll() is None or pid != process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        _, said = process.communicate(timeout=60)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, said
        assert "Traceback" not in said
        kills += 1
        orphans |= set(mine)
        now = complete(place / out) if (place / out).is_dir() else {}
        assert before.items() <= now.items(), "a complete cell was run again"
        before = now
    assert kills >= 4, "it was over before it could be killed"
    finish(place, out)  # at once, whatever is still ending
    assert before.items() <= complete(place / out).items(), "a complete cell was run again"
    assert wait_for(lambda: not any(map(runs, orphans))), "a child works on for nobody"
    assert_equals_reference(place, out)


def test_killed_between_steps(place: Path) -> None:
    """As soon as some file appears: when a training begins, has a part, is complete, has answered."""
    out = "steps"
    cell = place / out / "cells" / "made" / "parabel" / "0"
    moments: list[Callable[[], Any]] = [
        lambda: (cell / "begun.json").exists(),
        lambda: (cell / "model.work").exists(),
        lambda: any((cell / "model.work").glob("*.safetensors")),
        lambda: (cell / "model" / "model.json").exists(),
        lambda: (cell / "usage.json").exists(),
        lambda: (cell / "predictions.parquet").exists(),
        lambda: (cell / "valid.parquet").exists(),
        lambda: (cell / "cell.json").exists(),
    ]
    for moment in moments:
        process = start(place, out)
        assert wait_for(lambda: bool(moment()) or process.poll() is not None, 120)  # noqa: B023 (called at once)
        mine = children(process)
        process.kill()
        process.communicate(timeout=60)
        assert wait_for(lambda: not any(map(runs, mine))), "a child works on for nobody"  # noqa: B023
    before = complete(place / out)
    assert "made/parabel/0" in before
    finish(place, out)
    assert before.items() <= complete(place / out).items()
    assert json.loads(before["made/parabel/0"])["resumed"]
    assert_equals_reference(place, out)


def test_a_child_that_is_killed_fails_alone(place: Path) -> None:
    out = "child"
    process = start(place, out)
    work = place / out / "cells" / "made" / "parabel" / "0" / "model.work"
    assert wait_for(lambda: any(work.glob("*.safetensors")), 120)
    for pid in children(process):
        os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "made/parabel/0: failed: the process was killed by SIGKILL. It may have run out of memory." in said
    assert said.splitlines()[-1].startswith("xmtc: made/parabel/0: the process was killed by SIGKILL.")
    before = complete(place / out)
    assert sorted(before) == ["made/both/1", "made/knn/0", "made/knn/1", "made/parabel/1"], "one needs what failed"
    assert "child: 2 runs completed, 4 already complete, 0 failed" in finish(place, out)
    assert before.items() <= complete(place / out).items()
    assert_equals_reference(place, out)


def test_a_training_that_cannot_go_on_starts_over_when_forced(place: Path) -> None:
    out = "other"
    process = start(place, out)
    work = place / out / "cells" / "made" / "parabel" / "0" / "model.work"
    assert wait_for(lambda: any(work.glob("*.safetensors")), 120)
    process.kill()
    process.communicate(timeout=60)
    before = {path.name for path in work.glob("*.safetensors")}
    command = ["bench", place / "suite.toml", "--out", place / out, "--threads", 1, "--only", "made/parabel/0"]
    done = call(*command, "--precision", "float32", ok=False)
    assert done.status == 2
    assert f"{work}: was started with different precision." in done.err
    assert before <= {path.name for path in work.glob("*.safetensors")}, "nothing is lost"
    assert "1 run completed" in call(*command, "--precision", "float32", "--force").out
    mine, theirs = (json.loads(complete(place / name)["made/parabel/0"]) for name in (out, "reference"))
    assert {key: mine[key] for key in SAME} == {key: theirs[key] for key in SAME}
