"""A search killed at any moment: the output folder is absent, or a model that predicts; resumed, it ends as well."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.models import planted_split
from xmtc import load
from xmtc.artifact.workspace import Workspace
from xmtc.data.dataset import Dataset, align_labels
from xmtc.data.formats import write
from xmtc.metrics import ndcg
from xmtc.presets.leaderboard import Leaderboard
from xmtc.workflows.auto import leaderboard_file

pytestmark = pytest.mark.long

KILLS = 20
MINUTES = "0.6"
"""Enough for most candidates; further seeds take what is left."""
TEXTS = ["The years of the orchards", "Their canals near the harbours"]


def command(train: Path, out: Path, *more: str) -> list[str]:
    given = ["train", str(train), "--out", str(out), "--preset", "good", "--minutes", MINUTES, "--quiet", *more]
    return [sys.executable, "-m", "xmtc", *given]


def quality(out: Path, test: Dataset) -> float:
    model = load(out)
    truth, _ = align_labels(test, model.labels)
    return float(ndcg(model.predict(test, 5).labels, truth, 5))


def test_kills(tmp_path: Path) -> None:
    documents, test, _ = planted_split(700, 300, labels=60, words_per_document=12, seed=7)
    train = tmp_path / "train.jsonl"
    write(documents, train)
    whole = tmp_path / "whole"
    started = time.monotonic()
    subprocess.run(command(train, whole), check=True)
    seconds = time.monotonic() - started
    assert Leaderboard.load(leaderboard_file(whole)).seconds <= 1.1 * 60 * float(MINUTES)
    expected = quality(whole, test)
    assert expected > 0.5

    out, generator = tmp_path / "killed", random.Random(4)
    kills = usable = 0
    while kills < KILLS:
        more = ["--resume"] if Workspace.beside(out).exists() else ["--force"]
        process = subprocess.Popen(command(train, out, *more))
        try:
            status = process.wait(timeout=generator.uniform(0.2, 0.6 * seconds))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        else:
            assert status == 0
        if (out / "model.json").exists():
            usable += 1
            assert (load(out).predict(TEXTS, 2).labels >= 0).any()
        else:
            assert not out.exists() or not any(path.suffix == ".json" for path in out.iterdir())
    assert usable > 3
    if Workspace.beside(out).exists():
        subprocess.run(command(train, out, "--resume"), check=True)
    assert leaderboard_file(out).exists()
    assert quality(out, test) > 0.95 * expected
