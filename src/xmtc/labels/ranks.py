"""The n-th largest of many values, for kernels: numba's own selection takes ten times as long to compile."""

from __future__ import annotations

from typing import Any

from xmtc.jit import inlined


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
