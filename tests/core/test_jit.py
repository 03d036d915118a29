"""The cache of compiled kernels: kept while nothing changes, lapsed when a file that a kernel uses does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import caching
from numpy.typing import NDArray

from xmtc.core import jit
from xmtc.core.jit import frozen, kernel

HELPERS = """
from xmtc.core.jit import inlined

@inlined
def changed(value):
    return value {}
"""
KERNELS = """
import helpers
from xmtc.core.jit import kernel

@kernel(uses=(helpers,))
def apply(values):
    total = 0.0
    for value in values:
        total += helpers.changed(value)
    return total
"""
ASK = """
import importlib, sys
import numpy as np
from xmtc.core.jit import on_first_compilation
sys.path.insert(0, sys.argv[1])
module = importlib.import_module("kernels")
told = []
on_first_compilation(lambda: told.append("compiled"))
print(module.apply(np.arange(4.0)), *told)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helpers.py").write_text(HELPERS.format("+ 1"))
    (tmp_path / "kernels.py").write_text(KERNELS)
    return tmp_path


def ask(folder: Path) -> str:
    """What a new process finds, and whether it had to compile."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_change_in_a_used_module_is_seen(folder: Path) -> None:
    assert ask(folder) == "10.0 compiled"
    assert ask(folder) == "10.0"
    (folder / "helpers.py").write_text(HELPERS.format("* 2 + 1"))
    assert ask(folder) == "16.0 compiled"
    before = (folder / "helpers.py").stat()
    (folder / "helpers.py").write_text(HELPERS.format("* 3 + 1"))  # as many bytes
    os.utime(folder / "helpers.py", ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
    assert ask(folder) == "22.0 compiled"


def test_a_change_in_its_own_module_is_seen(folder: Path) -> None:
    assert ask(folder) == "10.0 compiled"
    (folder / "kernels.py").write_text(KERNELS.replace("total = 0.0", "total = 100.0"))
    assert ask(folder) == "110.0 compiled"


def test_arguments_go_in_contiguous_and_read_only() -> None:
    everything = np.arange(12.0).reshape(3, 4)
    for array in (everything, everything.T, everything[:, ::2]):
        given = frozen(array)
        assert given.flags.c_contiguous
        assert not given.flags.writeable
        assert (given == array).all()
        assert array.flags.writeable
    assert np.shares_memory(frozen(everything), everything)
    assert frozen("text") == "text"


def test_outputs_are_written() -> None:
    @kernel(outputs=("target",), cache=False)
    def doubled(source: NDArray[np.float64], target: NDArray[np.float64]) -> None:
        for i in range(len(source)):
            target[i] = 2 * source[i]

    target = np.zeros(3)
    doubled(np.arange(6.0)[::2], target)
    assert target.tolist() == [0, 4, 8]


def test_a_kernel_runs_if_no_cache_folder_is_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(lambda values: values.sum())

    @kernel(uses=(jit,))
    def total(values: np.ndarray) -> float:
        return values.sum()

    assert total(np.array([1.0, 2.5])) == 3.5


def test_an_unreadable_cache_is_made_again(folder: Path) -> None:
    assert ask(folder) == "10.0 compiled"
    (index,) = (folder / "cache").rglob("*.nbi")
    content = index.read_bytes()
    index.write_bytes(content[:60] + b"cno.such.module\nThing\n.")
    assert ask(folder) == "10.0 compiled"
    assert ask(folder) == "10.0"
