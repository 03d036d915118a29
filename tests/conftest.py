"""Shared corpora and helpers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Read when torch is loaded. Its threads wait for each other in a busy loop, which on a machine with other work to do
# makes a training of seconds one of minutes.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:  # so do those of OpenBLAS, and each core has a worker already
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Compiled modules are kept, as they are for users: without them every command that a test starts compiles xmtc again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

from tests.support.models import SHARED, Xmtc, planted_split
from xmtc.core.kernel_cache import kernel_folder
from xmtc.data.dataset import Dataset
from xmtc.data.planted_corpus import PlantedCorpus

# Kernels are compiled once, also for tests that have a cache folder of their own.
if (kernels := kernel_folder()) is not None:
    os.environ.setdefault("NUMBA_CACHE_DIR", str(kernels))

# How long an example takes says more about the other processes of the machine than about the code.
settings.register_profile("xmtc", deadline=None)
settings.load_profile("xmtc")

# A shell that starts the tests in the background has them ignore Ctrl-C, and all they start too: some press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data sets; the test is skipped where they are not at hand."""
    if not SHARED.is_dir():
        pytest.skip("real data sets are not in ../shared/data")
    return SHARED


@pytest.fixture(scope="session")
def planted() -> tuple[Dataset, Dataset, PlantedCorpus]:
    """800 + 200 short texts with 60 labels, the same for the whole session."""
    return planted_split(800, 200, labels=60, seed=7)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For networks so small that more threads would only wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def xmtc(tmp_path: Path) -> Xmtc:
    """Runs the command line as a user would, in an empty folder."""

    def run(*arguments: object, stdin: str | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "xmtc", *map(str, arguments)],
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
