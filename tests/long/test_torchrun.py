"""The command line under torchrun: several processes train, one writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.models import free_port, planted_split

pytest.importorskip("torch")

pytestmark = pytest.mark.long

SETTINGS = ("encoder.units=8", "head.hidden=[8]", "vectors=random", "corpus.width=8", "training.epochs=2")
TREE = ("head.tree.height=1", "head.tree.cluster_size=4", "head.tree.beam_width=4")


def trained(folder: Path, out: str, launched: list[str], settings: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [*launched, "-m", "xmtc", "train", "train.jsonl", "--model", "attention_xml", "--out", out]
    command += ["--threads", "1"]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def two_processes() -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]


@pytest.mark.parametrize(("tree", "lines"), [((), 2), (TREE, 4)])
def test_one_model_comes_out(tmp_path: Path, tree: tuple[str, ...], lines: int) -> None:
    import xmtc

    train, test, _ = planted_split(200, 20, labels=20, seed=3)
    xmtc.write(train, tmp_path / "train.jsonl")
    done = trained(tmp_path, "model", two_processes(), (*SETTINGS, *tree))
    assert done.stdout.count("saved attention_xml in model: 200 documents, 20 labels") == 1
    assert (done.stdout + done.stderr).count("plan for ") == bool(tree)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.log.jsonl", "train.jsonl"]
    assert len((tmp_path / "model.log.jsonl").read_text().splitlines()) == lines
    assert xmtc.load(tmp_path / "model").predict(test, 3).labels.shape == (20, 3)


def test_two_processes_learn_what_one_learns(tmp_path: Path) -> None:
    """Each has its half of every batch; without dropout, the mean of their gradients is that of the whole."""
    import xmtc

    train, test, _ = planted_split(200, 20, labels=20, seed=3)
    xmtc.write(train, tmp_path / "train.jsonl")
    settings = (*SETTINGS, "encoder.dropout=0", "encoder.word_dropout=0", "training.learning_rate=0.03", *TREE)
    trained(tmp_path, "together", two_processes(), settings)
    trained(tmp_path, "alone", [sys.executable], settings)
    everything = np.tile(np.arange(20), (20, 1))
    together, alone = (xmtc.load(tmp_path / name).score_labels(test, everything) for name in ("together", "alone"))
    assert alone.max() > 2 * alone.min()
    np.testing.assert_allclose(together, alone, rtol=1e-3)


def test_the_group_is_left_before_the_interpreter_goes(tmp_path: Path) -> None:
    """Threads that still talk to others while the interpreter closes down abort the process, now and then."""
    script = tmp_path / "joins.py"
    script.write_text(  # each process has a file of its own: what both print comes mixed
        "import atexit, os, torch\n"
        "from pathlib import Path\n"
        "out, joined = Path(f'rank-{os.environ[\"RANK\"]}.txt'), torch.distributed.is_initialized\n"
        "atexit.register(lambda: out.write_text(f'{out.read_text()}, {joined()} at the end'))\n"
        "from xmtc.nn.training.process_group import Group\n"
        "from xmtc.core.runtime import Runtime\n"
        "Group(Runtime(rank=int(os.environ['RANK']), world_size=2), torch.device('cpu')).wait()\n"
        "out.write_text(f'{joined()} after joining')\n"
    )
    done = subprocess.run([*two_processes(), str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(2):
        assert (tmp_path / f"rank-{rank}.txt").read_text() == "True after joining, False at the end"
