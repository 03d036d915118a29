"""Failures of the machine: each gets one line that names the right cause."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from unittest import mock

import pyarrow as pa
import pytest

from tests.support.command_line import mistake
from xmtc.cli.failures import failure_line

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "out of memory. "),
        (pa.ArrowMemoryError("malloc of size 64 failed"), "out of memory. "),
        (RuntimeError("std::bad_alloc"), "out of memory. "),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory. "),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory. "),
        (ImportError("/x/libarrow.so: failed to map segment from shared object"), "out of memory. "),
        (RuntimeError("can't start new thread"), "no more threads can be started. "),
        (
            ImportError("libgomp.so.1: cannot open shared object file", name="scipy.sparse"),
            "scipy cannot be loaded (lib",
        ),
        (OSError("libcudart.so.12: cannot open shared object file: No such file"), "a shared library cannot be loaded"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"), "no folder for temporary"),
        (PermissionError(errno.EACCES, "Permission denied", "some/file"), "some/file: Permission denied. "),
        (FULL, "no space left on a disk. Free disk space, or set TMPDIR"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_lines(error: Exception, words: str) -> None:
    line = failure_line(error)
    assert line is not None
    assert line.startswith(words)
    assert "standard output" not in line
    with mock.patch("xmtc.cli.main.check_memory_limit", side_effect=error):
        assert mistake("models") == line


def test_a_full_temporary_folder_is_named() -> None:
    with mock.patch("shutil.disk_usage", return_value=mock.Mock(free=0)):
        line = failure_line(FULL)
    assert line is not None
    assert line.startswith(f"{tempfile.gettempdir()}: no space left for temporary files. ")


def test_a_bug_is_no_failure_of_the_machine() -> None:
    assert failure_line(RuntimeError("something else")) is None
    assert failure_line(KeyError("x")) is None


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_only_standard_output_is_blamed_for_itself(unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "xmtc", "models"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 2
    assert done.stderr.startswith("xmtc: standard output: No space left on device. ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs ulimit -v")
def test_too_low_a_memory_limit() -> None:
    command = f"ulimit -v 500000; exec {sys.executable} -m xmtc models"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == ("xmtc: the memory limit of 488 MiB (ulimit -v) is too low. Raise it to at least 1 GiB.\n")
