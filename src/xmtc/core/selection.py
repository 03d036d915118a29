"""Selection of the largest values in kernels: the n-th largest value, and a sorted row of the top few.

numba's own selection takes ten times as long to compile.
"""

from __future__ import annotations

from typing import Any

from xmtc.core.jit import inlined


@inlined
def nth_largest(values: Any, rank: Any) -> Any:
    """Return the value at `rank` (from 1) in descending order without changing `values`; quickselect, middle pivot."""
    scratch = values.copy()
    low, high, target = 0, len(scratch) - 1, rank - 1
    while low < high:
        pivot = scratch[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while scratch[left] > pivot:
                left += 1
            while scratch[right] < pivot:
                right -= 1
            if left <= right:
                scratch[left], scratch[right] = scratch[right], scratch[left]
                left += 1
                right -= 1
        if target <= right:
            high = right
        elif target >= left:
            low = left
        else:
            break
    return scratch[target]


@inlined
def insert(found: Any, scores: Any, held: int, number: int, score: float) -> int:
    """Insert a number into a row of the top `held`, sorted by score; on ties, earlier entries stay first."""
    most = len(found)
    if held == most and score <= scores[most - 1]:
        return held
    at = held if held < most else most - 1
    while at > 0 and scores[at - 1] < score:
        scores[at] = scores[at - 1]
        found[at] = found[at - 1]
        at -= 1
    scores[at] = score
    found[at] = number
    return min(held + 1, most)
