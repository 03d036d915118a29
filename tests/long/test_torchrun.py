"""The command line under torchrun: several processes train, one writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import planted_split

pytest.importorskip("torch")
pytest.importorskip("lightning")

pytestmark = pytest.mark.long

SETTINGS = ("encoder.units=8", "head.hidden=[8]", "vectors=random", "corpus.width=8", "training.epochs=2")


def test_one_model_comes_out(tmp_path: Path) -> None:
    import xmtc

    train, test, _ = planted_split(200, 20, labels=20, seed=3)
    xmtc.write(train, tmp_path / "train.jsonl")
    launched = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launched += ["--master-port", str(29_500 + os.getpid() % 1000), "-m", "xmtc.cli.main"]
    command = [*launched, "train", "train.jsonl", "--model", "attention_xml", "--out", "model", "--threads", "1"]
    for setting in SETTINGS:
        command += ["--set", setting]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("saved attention_xml in model: 200 documents, 20 labels") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.log.jsonl", "train.jsonl"]
    assert len((tmp_path / "model.log.jsonl").read_text().splitlines()) == 2
    assert xmtc.load(tmp_path / "model").predict(test, 3).labels.shape == (20, 3)
