"""The best of many values, for kernels: the n-th largest, as numba's own selection takes ten times as long to compile,
and a row of the best few that grows."""

from __future__ import annotations

from typing import Any

from xmtc.core.jit import inlined


@inlined
def nth_largest(values: Any, rank: Any) -> Any:
    """The value at place `rank` (from 1) in falling order; `values` are left as they are. Quickselect, middle pivot."""
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
    """Put a number among the best of a row that holds so many; of equal scores the one that came first stays ahead."""
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
