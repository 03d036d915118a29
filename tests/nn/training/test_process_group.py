"""Two processes that train together against one that trains alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.models import free_port

pytest.importorskip("torch")

PROGRAM = """
import sys
import numpy as np
import torch
from tests.support.models import (planted_split)
from xmtc.models.attention_xml import AttentionXml
from xmtc.core.runtime import Runtime

rank, size, out, made = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "made"
if made and size > 1:  # the caller's own process group
    torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
train, test, _ = planted_split(160, 20, labels=20, seed=3)
settings = {
    "encoder": {"units": 8, "word_dropout": 0.0, "dropout": 0.0},
    "head": {"hidden": [8]},
    "vectors": "random",
    "corpus": {"width": 8},
    "training": {"epochs": 2, "batch_size": 16, "validation_size": 20, "learning_rate": 0.01},
}
runtime = Runtime(threads=1, device="cpu", rank=rank, world_size=size, seed=1)
model = AttentionXml(**settings).fit(train, runtime=runtime)
scores = model.score_labels(test, np.tile(np.arange(20), (20, 1)))
np.save(f"{out}/{size}-{rank}.npy", scores)
if made and size > 1:
    torch.distributed.destroy_process_group()  # still there: who makes a group ends it
"""


def run(folder: Path, size: int, made: str, port: int) -> list[np.ndarray]:
    root = Path(__file__).parents[3]
    paths = os.pathsep.join([str(root), str(root / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    arguments = [sys.executable, "-c", PROGRAM]
    started = [
        subprocess.Popen(
            [*arguments, str(rank), str(size), str(folder), made],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, json.dumps(errors[-2000:])
    return [np.load(folder / f"{size}-{rank}.npy") for rank in range(size)]


@pytest.mark.long
@pytest.mark.parametrize("made", ["made", "not made"])
def test_two_processes_learn_what_one_learns(tmp_path: Path, made: str) -> None:
    (alone,) = run(tmp_path, 1, made, 0)
    first, second = run(tmp_path, 2, made, free_port())
    np.testing.assert_array_equal(first, second)  # all hold the same weights
    np.testing.assert_allclose(first, alone, atol=1e-4)
    assert np.abs(first - first.mean()).max() > 1e-3
