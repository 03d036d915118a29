"""Selection and sorting in kernels: the n-th largest value, the best few of a row, and ascending order.

numba's own selection and sorting take ten times as long to compile.
"""

from __future__ import annotations

from typing import Any

from xmtc.core.jit import called, inlined

SORTED = 64
"""Rows up to this length are sorted while they are filled; in longer ones, insertion would take quadratic time."""


@inlined
def nth_largest(values: Any, rank: Any) -> Any:
    """Return the value at `rank` (from 1) in descending order without changing `values`; quickselect, middle pivot."""
    return nth_largest_moved(values.copy(), rank)


@inlined
def nth_largest_moved(scratch: Any, rank: Any) -> Any:
    """`nth_largest` that changes the order of the values."""
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


@called
def sort_ascending(values: Any, count: Any) -> None:
    """Sort the first `count` values of an array; heap sort, which is never quadratic."""
    start, end = count // 2, count
    while end > 1:
        if start > 0:  # build the heap
            start -= 1
            value = values[start]
        else:  # move its largest value behind it
            end -= 1
            value = values[end]
            values[end] = values[0]
        hole = start
        child = 2 * hole + 1
        while child < end:
            if child + 1 < end and values[child + 1] > values[child]:
                child += 1
            if values[child] <= value:
                break
            values[hole] = values[child]
            hole = child
            child = 2 * hole + 1
        values[hole] = value


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


@inlined
def heap_insert(found: Any, scores: Any, held: Any, number: Any, score: Any) -> Any:
    """`insert` for rows of more than SORTED entries, in logarithmic time; ties go to the lower number.

    The row is not sorted: once full, its last entry is the worst, the root of a heap that runs backwards. `heap_sort`
    sorts it at the end. The result does not depend on the order of the calls.
    """
    most = len(found)
    last = most - 1
    if held == most and (score < scores[last] or (score == scores[last] and number > found[last])):
        return held
    at = held if held < most else last
    scores[at] = score
    found[at] = number
    if held < last:
        return held + 1
    for start in range(most // 2 if held == last else 0, -1, -1):  # the whole heap when it is full, then its root
        _sink(found, scores, start, most, True)
    return most


@inlined
def heap_sort(found: Any, scores: Any, held: Any) -> None:
    """Sort the first `held` entries of a row that `heap_insert` filled, best first."""
    half = held // 2
    for step in range(half + held):
        start, size = half - 1 - step, held
        if step >= half:
            start, size = 0, held - 1 - (step - half)
            scores[0], scores[size] = scores[size], scores[0]
            found[0], found[size] = found[size], found[0]
        _sink(found, scores, start, size, False)


@inlined
def _sink(found: Any, scores: Any, start: Any, size: Any, backwards: Any) -> None:
    """Move an entry of a heap down to its place; its root, the worst entry, is the first or, backwards, the last."""
    here = start
    while 2 * here + 1 < size:
        child = 2 * here + 1
        at, below, other = here, child, min(child + 1, size - 1)
        if backwards:
            at, below, other = size - 1 - at, size - 1 - below, size - 1 - other
        if scores[other] < scores[below] or (scores[other] == scores[below] and found[other] > found[below]):
            below = other
            child += 1
        if scores[at] < scores[below] or (scores[at] == scores[below] and found[at] > found[below]):
            break
        scores[at], scores[below] = scores[below], scores[at]
        found[at], found[below] = found[below], found[at]
        here = child


@called
def keep_best(found: Any, given: Any, held: Any, key: Any, score: Any) -> Any:
    """Insert a number into the best of a row; ties are broken by the lower number.

    Long rows are heaps, whose last entry is the worst once they are full: `sort_best` sorts them.
    """
    k = len(found)
    if k > SORTED:
        return heap_insert(found, given, held, key, score)
    at = held if held < k else k - 1
    if held == k and (score < given[at] or (score == given[at] and key > found[at])):
        return held
    while at > 0 and (given[at - 1] < score or (given[at - 1] == score and found[at - 1] > key)):
        given[at] = given[at - 1]
        found[at] = found[at - 1]
        at -= 1
    given[at] = score
    found[at] = key
    return min(held + 1, k)


@called
def sort_best(found: Any, given: Any, held: Any) -> None:
    """Sort the best of a row, best first."""
    if len(found) > SORTED:
        heap_sort(found, given, held)
