"""How time and memory grow with a size: CPU time and traced memory of the same work at two sizes."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

SPAN = 8
"""Ratio of the two sizes."""
MOST_TIME = 1.45
"""Largest exponent of time: quadratic work has 2, sorting and look-ups a little over 1."""
MOST_MEMORY = 1.25
LEAST_SECONDS = 0.012
"""Time at the larger size below which constant costs dominate."""
FREE_MEMORY = 4 << 20
"""Bytes that do not count: buffers of a fixed size."""
ATTEMPTS = 3

Work = Callable[[], object]
Prepare = Callable[[int, Path], Work]
"""Prepare the work of a size in a folder; only the work itself counts."""


def cpu_seconds(work: Work) -> float:
    """CPU time of all threads."""
    started = time.process_time()
    work()
    return time.process_time() - started


def traced_bytes(work: Work) -> int:
    """Peak of the memory of Python, NumPy and Arrow during the work."""
    before = pa.default_memory_pool().max_memory()
    tracemalloc.start()
    try:
        work()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return peak + max(0, pa.default_memory_pool().max_memory() - before)


def growth(prepare: Prepare, size: int, folder: Path) -> tuple[float, float, float]:
    """Exponents of time and memory between `size` and SPAN × `size`, and the seconds at the larger size.

    Time is the minimum of several runs, more of them if the exponent is too large: only noise gets smaller.
    """
    small, large = prepare(size, _made(folder / "small")), prepare(SPAN * size, _made(folder / "large"))
    memory = traced_bytes(small), traced_bytes(large)  # also the first call, which compiles kernels
    low = min(cpu_seconds(small) for _ in range(3))
    high = cpu_seconds(large)
    for _ in range(ATTEMPTS):
        if high < LEAST_SECONDS or _exponent(low, high) <= MOST_TIME:
            break
        high = min(high, cpu_seconds(large))
    time_exponent = _exponent(max(low, LEAST_SECONDS / SPAN), high)
    return time_exponent, _exponent(memory[0] + FREE_MEMORY, memory[1] + FREE_MEMORY), high


def _exponent(low: float, high: float) -> float:
    return math.log(max(high, 1e-9) / max(low, 1e-9), SPAN)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
