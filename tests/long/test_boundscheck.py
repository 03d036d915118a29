"""The kernels of text and linear models with bounds checks: no access beyond an array.

Cached kernels ignore NUMBA_BOUNDSCHECK, so the cache is empty.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
TESTS = ("tests/linear", "tests/lexical", "tests/text")
FAULTS = """
import numpy as np
from xmtc.core.jit import kernel
from xmtc.linear import simd

@kernel()
def beyond(array):
    return array[len(array)]

@kernel(outputs=("sums",))
def dot(rows, values, weights, sums):
    simd.add_dot(rows, values, 0, len(rows), weights, 0, simd.LANES, sums, 0)

ones = np.ones(simd.LANES, np.float32)
for rows in ([0], [1], [-1]):
    try:
        dot(np.array(rows, np.int32), np.ones(1, np.float32), ones, ones.copy())
        print("whole")
    except IndexError:
        print("caught")
try:
    beyond(np.zeros(3))
except IndexError:
    print("caught")
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path_factory.mktemp("kernels"))}


def test_planted_faults_are_caught(environment: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "faults.py"
    script.write_text(FAULTS)
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["whole", "caught", "caught", "caught"], done.stderr


def test_text_and_linear_kernels(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    kernels = {path.name.split("-")[0] for path in Path(environment["NUMBA_CACHE_DIR"]).rglob("*.nbc")}
    assert any("token_kernels" in name for name in kernels)
    assert any("solver" in name for name in kernels)
