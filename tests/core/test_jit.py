"""The cache of compiled kernels: kept while the code of a kernel stays the same, wherever it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from xmtc.core.jit import frozen, kernel

HELPERS = """
from xmtc.core.jit import inlined

FACTOR = {factor}

@inlined
def changed(value):
    return value * FACTOR + 1

def unrelated(value):
    return {unrelated}
"""
KERNELS = """
import helpers
from xmtc.core.jit import kernel

@kernel()
def apply(values):
    total = 0.0
    for value in values:
        total += helpers.changed(value)
    return total
"""
ASK = """
import importlib, sys
import numpy as np
from xmtc.core.kernel_cache import on_compilation, uses
sys.path.insert(0, sys.argv[1])
module = importlib.import_module("kernels")
told = []
on_compilation(lambda: told.append("compiled"))
total = module.apply(np.arange(4.0))
(use,) = uses()
assert (use.seconds > 0) == bool(told)
print(total, *told)
"""


def write_modules(folder: Path, factor: int = 1, unrelated: str = "value") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "helpers.py").write_text(HELPERS.format(factor=factor, unrelated=unrelated))
    (folder / "kernels.py").write_text(KERNELS)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_modules(tmp_path / "package")


def start(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder.parent / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", ASK, str(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ask(folder: Path) -> str:
    """What a new process finds, and whether it had to compile."""
    process = start(folder)
    out, error = process.communicate()
    assert process.returncode == 0, error
    return out.strip()


def test_a_change_of_a_called_function_is_seen(folder: Path) -> None:
    assert ask(folder) == "10.0 compiled"
    assert ask(folder) == "10.0"
    text = (folder / "helpers.py").read_text()
    (folder / "helpers.py").write_text(text.replace("+ 1", "+ 2"))
    assert ask(folder) == "14.0 compiled"


def test_a_change_of_a_constant_is_seen(folder: Path) -> None:
    assert ask(folder) == "10.0 compiled"
    write_modules(folder, factor=2)
    assert ask(folder) == "16.0 compiled"


def test_a_change_of_the_kernel_itself_is_seen(folder: Path) -> None:
    assert ask(folder) == "10.0 compiled"
    (folder / "kernels.py").write_text(KERNELS.replace("total = 0.0", "total = 100.0"))
    assert ask(folder) == "110.0 compiled"


def test_changes_of_other_code_and_copies_need_no_compilation(folder: Path) -> None:
    assert ask(folder) == "10.0 compiled"
    write_modules(folder, unrelated="value + 7")
    (folder / "kernels.py").write_text("# A comment, which moves every line.\n" + KERNELS)
    assert ask(folder) == "10.0"
    assert ask(write_modules(folder.parent / "copy")) == "10.0"


def test_damaged_files_are_compiled_again(folder: Path) -> None:
    assert ask(folder) == "10.0 compiled"
    (compiled,) = (folder.parent / "cache").glob("*.nbc")
    content = bytearray(compiled.read_bytes())
    content[len(content) // 2] ^= 1
    compiled.write_bytes(content)
    assert ask(folder) == "10.0 compiled"
    (index,) = (folder.parent / "cache").glob("*.nbi")
    index.write_bytes(index.read_bytes()[:60] + b"cno.such.module\nThing\n.")
    assert ask(folder) == "10.0 compiled"
    assert ask(folder) == "10.0"


def test_processes_that_start_together_share_their_files(folder: Path) -> None:
    processes = [start(folder) for _ in range(3)]
    for process in processes:
        out, error = process.communicate()
        assert out.split()[0] == "10.0", error
    assert len(list((folder.parent / "cache").iterdir())) == 2  # the index and one compilation, no locks
    assert ask(folder) == "10.0"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs permissions of POSIX systems")
def test_a_folder_that_everyone_may_write_to_is_not_used(folder: Path) -> None:
    cache = folder.parent / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    assert ask(folder) == "10.0 compiled"
    assert ask(folder) == "10.0 compiled"
    assert not list(cache.iterdir())


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


def test_a_kernel_runs_if_no_cache_folder_is_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))

    @kernel()
    def total(values: NDArray[np.float64]) -> float:
        return values.sum()

    assert total(np.array([1.0, 2.5])) == 3.5


@pytest.mark.parametrize("depth", [1, 2])
def test_ctrl_c_in_a_kernel_is_an_interrupt(depth: int) -> None:
    """Compiled code returns its result with the exception set, which Python reports as a SystemError, or as two."""

    @kernel(cache=False)
    def idle(rounds: int) -> int:
        return rounds

    def run(rounds: int) -> int:
        cause: BaseException = KeyboardInterrupt()
        for _ in range(depth):
            error = SystemError("returned a result with an exception set")
            error.__cause__, cause = cause, error
        raise cause

    idle.compiled.run = run  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        idle(1)
