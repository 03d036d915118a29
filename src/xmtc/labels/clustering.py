"""Clustering of labels by their vectors: balanced halves, and spherical k-means.

The features of a group of labels are renumbered, so that a pass costs its entries and not D. Every group has its own
random numbers, so results do not depend on the number of threads.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import inlined, kernel
from xmtc.core.parallel import run_parallel
from xmtc.core.selection import nth_largest
from xmtc.data.dataset import Csr
from xmtc.labels.features import csr_parts, even_ranges

DIRECT = 4
"""Groups with at least this many times more entries than features are not renumbered."""

MEMBERS = 4096
"""Labels that a thread assigns to clusters at a time."""


def node_seeds(seed: int, level: int, nodes: int) -> NDArray[np.uint64]:
    """Return random seeds (nodes,) that depend only on seed, level and node."""
    given: NDArray[np.uint64] = np.array([seed & (1 << 64) - 1, level], dtype=np.uint64)
    numbers: NDArray[np.uint64] = np.arange(nodes).astype(np.uint64)
    return _scrambled(_scrambled(_scrambled(given[:1]) + given[1:]) + numbers)


def _scrambled(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply splitmix64, which maps consecutive numbers to unrelated ones."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def left_sizes(counts: NDArray[np.int64], align: int = 1, least: int = 1) -> NDArray[np.int64]:
    """Return the size of the left half of each count: ⌈n/2⌉, rounded up to a multiple of `align` if n > 4·align.

    The right half keeps at least `least` labels (n ≥ 2·least).
    """
    halves = (counts + 1) // 2
    aligned = np.where(counts > 4 * align, -(-halves // align) * align, halves)
    return np.minimum(aligned, np.maximum(counts - least, halves))


def balanced_halves(
    features: Csr,
    order: NDArray[np.int64],
    bounds: NDArray[np.int64],
    *,
    align: int = 1,
    least: int = 1,
    passes: int = 20,
    tolerance: float = 1e-4,
    seed: int = 0,
    level: int = 0,
    threads: int = 1,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split every group order[bounds[g]:bounds[g + 1]] by balanced spherical 2-means; return new order and bounds.

    Two random labels are the initial centres. The labels closest to the first relative to the second go left, earlier
    ones on ties; the order within a half is preserved. Stop when the mean similarity to the centres gains less than
    `tolerance`. See `left_sizes` for `align` and `least`. `advance` is called with the number of labels processed.
    """
    indptr, indices, values = csr_parts(features)
    order = order.copy()
    groups = len(bounds) - 1
    sizes = left_sizes(np.diff(bounds), align, least)
    seeds = node_seeds(seed, level, groups)
    work = np.diff(np.concatenate([[0], np.cumsum(np.diff(indptr)[order] + 1)])[bounds])

    def halve(part: range) -> int:
        inside = slice(part.start, part.stop)
        place = np.zeros(features.shape[1], dtype=np.int32)
        own = bounds[part.start : part.stop + 1]
        limits = (max(passes, 1), tolerance, DIRECT)
        _halve_groups(indptr, indices, values, own, seeds[inside], sizes[inside], *limits, order, place)
        return int(own[-1] - own[0])

    share = max(int(work.sum()) // (8 * threads), 1 << 16)
    for count in run_parallel(halve, even_ranges(work, share), threads, ahead=8):
        advance(count)
    cut = np.empty(2 * groups + 1, dtype=np.int64)
    cut[::2] = bounds
    cut[1::2] = bounds[:-1] + sizes
    return order, cut


@inlined
def _draw(first: Any, last: Any, indices: Any, values: Any, seed: Any, direction: Any) -> None:
    """Set `direction` to the difference of two random non-empty rows."""
    filled = np.flatnonzero(last > first)
    if len(filled) > 1:
        one = np.int64((seed >> np.uint64(32)) % np.uint64(len(filled)))
        other = np.int64((seed & np.uint64(0xFFFFFFFF)) % np.uint64(len(filled) - 1))
        other += other >= one
        for i in range(first[filled[one]], last[filled[one]]):
            direction[indices[i]] += values[i]
        for i in range(first[filled[other]], last[filled[other]]):
            direction[indices[i]] -= values[i]


@inlined
def _take_sides(first: Any, last: Any, indices: Any, values: Any, scores: Any, size: int, left: Any, sums: Any) -> None:
    """Assign the `size` rows with the largest scores to the left, earlier ones on ties; update their `sums`."""
    threshold = nth_largest(scores, size)
    spare = size - np.sum(scores > threshold)  # remaining slots for rows at the threshold
    for row in range(len(scores)):
        chosen = scores[row] > threshold
        if scores[row] == threshold and spare > 0:
            chosen = True
            spare -= 1
        if chosen != left[row]:
            left[row] = chosen
            sign = 1.0 if chosen else -1.0
            for i in range(first[row], last[row]):
                sums[indices[i]] += sign * values[i]


@inlined
def _bisect(
    first: Any,
    last: Any,
    indices: Any,
    values: Any,
    width: int,
    seed: Any,
    size: int,
    passes: int,
    tolerance: float,
    left: Any,  # out: (n,) False before
) -> None:
    """Determine which of n rows, with entries first … last − 1, are in the left half.

    The similarities of a half to its centre sum to the length of its vector sum, so the stopping criterion follows from
    the sums, which are updated for rows that change sides.
    """
    total = np.zeros(width, np.float64)
    sums = np.zeros(width, np.float64)  # of the left half
    direction = np.zeros(width, np.float32)  # left centre − right centre
    scores = np.empty(len(first), np.float32)
    for row in range(len(first)):
        for i in range(first[row], last[row]):
            total[indices[i]] += values[i]
    _draw(first, last, indices, values, seed, direction)
    reached = -1.0
    for _ in range(passes):
        for row in range(len(first)):
            score = np.float32(0.0)
            for i in range(first[row], last[row]):
                score += values[i] * direction[indices[i]]
            scores[row] = score
        _take_sides(first, last, indices, values, scores, size, left, sums)
        left_square = 0.0
        right_square = 0.0
        for i in range(width):
            left_square += sums[i] * sums[i]
            right_square += (total[i] - sums[i]) * (total[i] - sums[i])
        similarity = (np.sqrt(left_square) + np.sqrt(right_square)) / len(first)
        if similarity - reached < tolerance:
            break
        reached = similarity
        left_scale = 1.0 / np.sqrt(left_square) if left_square > 0.0 else 0.0
        right_scale = 1.0 / np.sqrt(right_square) if right_square > 0.0 else 0.0
        for i in range(width):
            direction[i] = sums[i] * left_scale - (total[i] - sums[i]) * right_scale


@inlined
def _renumber(first: Any, last: Any, indices: Any, values: Any, place: Any, entries: int) -> Any:
    """Renumber columns by first occurrence and copy the entries contiguously; update `first` and `last`."""
    touched = np.empty(min(entries, len(place)), np.int32)
    columns = np.empty(entries, np.int32)
    copied = np.empty(entries, np.float32)
    end = 0
    width = 0
    for row in range(len(first)):
        start = end
        for i in range(first[row], last[row]):
            if place[indices[i]] == 0:
                touched[width] = indices[i]
                width += 1
                place[indices[i]] = width
            columns[end] = place[indices[i]] - 1
            copied[end] = values[i]
            end += 1
        first[row] = start
        last[row] = end
    for i in range(width):
        place[touched[i]] = 0
    return columns, copied, width


@kernel(outputs=("order", "place"), fastmath={"reassoc", "contract", "nsz"})
def _halve_groups(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    bounds: NDArray[np.int64],  # (m + 1,)
    seeds: NDArray[np.uint64],  # (m,)
    sizes: NDArray[np.int64],  # (m,) of left halves
    passes: int,
    tolerance: float,
    direct: int,
    order: NDArray[np.int64],  # out: the groups' part of it
    place: NDArray[np.int32],  # (D,) zeros, reset to zeros at the end
) -> None:
    for group in range(len(sizes)):
        members = order[bounds[group] : bounds[group + 1]].copy()
        if len(members) < 2:
            continue
        first = np.empty(len(members), np.int64)
        last = np.empty(len(members), np.int64)
        entries = 0
        for row in range(len(members)):
            first[row] = indptr[members[row]]
            last[row] = indptr[members[row] + 1]
            entries += last[row] - first[row]
        left = np.zeros(len(members), np.bool_)
        size = sizes[group]
        if entries >= direct * len(place):
            _bisect(first, last, indices, values, len(place), seeds[group], size, passes, tolerance, left)
        else:
            columns, copied, width = _renumber(first, last, indices, values, place, entries)
            _bisect(first, last, columns, copied, width, seeds[group], size, passes, tolerance, left)
        at_left = bounds[group]
        at_right = at_left + size
        for row in range(len(members)):
            if left[row]:
                order[at_left] = members[row]
                at_left += 1
            else:
                order[at_right] = members[row]
                at_right += 1


def spherical_kmeans(
    features: Csr,
    members: NDArray[np.int64],
    clusters: int,
    passes: int = 20,
    seed: int = 0,
    *,
    tolerance: float = 1e-4,
    threads: int = 1,
) -> NDArray[np.int64]:
    """Cluster members by k-means with cosine similarity; return the cluster (n,) of each. Empty clusters are dropped.

    Random distinct members are the initial centres. Stop when the mean similarity gains less than `tolerance`.
    Members without features are assigned one by one to the smallest cluster. Memory: 4 bytes × `clusters` for each
    feature of the members.
    """
    starts, columns, values, width = _own_features(features, members)
    count = len(members)
    filled = np.flatnonzero(np.diff(starts))
    wanted = min(clusters, len(filled))
    cluster = np.full(count, -1, dtype=np.int64)
    sums = np.zeros((width, wanted), dtype=np.float32)
    chosen = filled[_distinct(node_seeds(seed, 0, 1)[0], len(filled), wanted)]
    _move(starts, columns, values, chosen, cluster[chosen], np.arange(wanted), sums)

    def nearest(start: int) -> NDArray[np.int64]:
        stop = min(start + MEMBERS, count)
        return _nearest(starts[start : stop + 1], columns, values, sums, scales, cluster[start:stop], start)

    everyone = np.arange(count)
    reached = -1.0
    scales = _scales(sums)
    for number in range(max(passes, 1) if wanted else 0):
        found = np.concatenate(list(run_parallel(nearest, range(0, count, MEMBERS), threads)))
        if number == 0:
            sums[:] = 0.0
        moved = everyone[found != cluster]
        _move(starts, columns, values, moved, cluster[moved], found[moved], sums)
        cluster = found
        held = np.bincount(cluster[filled], minlength=wanted) > 0
        scales = np.where(held, _scales(sums), np.float32(0.0))
        similarity = float((1.0 / scales[scales > 0].astype(np.float64)).sum()) / count
        if similarity - reached < tolerance:
            break
        reached = similarity
    _level(cluster, np.flatnonzero(np.diff(starts) == 0), min(clusters, count))
    return np.unique(cluster, return_inverse=True)[1].astype(np.int64)


def _own_features(
    features: Csr, members: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], int]:
    """Return the members' rows restricted to the features that occur, and the number of these."""
    starts, columns, values = csr_parts(features[members])
    held = np.zeros(features.shape[1], dtype=bool)
    held[columns] = True
    kept = np.flatnonzero(held)
    number = np.empty(features.shape[1], dtype=np.int32)
    number[kept] = np.arange(len(kept))
    return starts, number[columns], values, len(kept)


def _level(cluster: NDArray[np.int64], empty: NDArray[np.int64], clusters: int) -> None:
    """Assign each member without features to the currently smallest cluster."""
    cluster[empty] = clusters
    sizes = np.bincount(cluster, minlength=clusters + 1)[:clusters]
    heap = [(size, number) for number, size in enumerate(sizes.tolist())]
    heapq.heapify(heap)
    for row in empty.tolist():
        size, number = heap[0]
        cluster[row] = number
        heapq.heapreplace(heap, (size + 1, number))


@kernel()
def _distinct(seed: np.uint64, count: int, wanted: int) -> NDArray[np.int64]:
    """Draw distinct numbers (wanted,) below `count` by a partial shuffle with xorshift."""
    numbers = np.arange(count)
    state = np.uint64(seed) | np.uint64(1)
    for i in range(wanted):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = i + np.int64((state >> np.uint64(33)) % np.uint64(count - i))
        numbers[i], numbers[j] = numbers[j], numbers[i]
    return numbers[:wanted].copy()


@kernel(outputs=("sums",))
def _move(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[np.float32],
    members: NDArray[np.int64],
    before: NDArray[np.int64],  # old cluster of each, −1 for none
    after: NDArray[np.int64],  # new cluster of each
    sums: NDArray[np.float32],  # (width, clusters)
) -> None:
    for at in range(len(members)):
        for i in range(starts[members[at]], starts[members[at] + 1]):
            sums[columns[i], after[at]] += values[i]
            if before[at] >= 0:
                sums[columns[i], before[at]] -= values[i]


@kernel()
def _scales(sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the factors (clusters,) that scale columns to unit length; 0 for zero columns."""
    squares = np.zeros(sums.shape[1], np.float64)
    for row in range(sums.shape[0]):
        for cluster in range(sums.shape[1]):
            squares[cluster] += np.float64(sums[row, cluster]) * sums[row, cluster]
    return np.where(squares > 0.0, 1.0 / np.sqrt(np.maximum(squares, 1e-30)), 0.0).astype(np.float32)


@kernel(fastmath={"reassoc", "contract", "nsz"})
def _nearest(
    starts: NDArray[np.int64],  # (m + 1,)
    columns: NDArray[np.int32],
    values: NDArray[np.float32],
    sums: NDArray[np.float32],  # (width, clusters)
    scales: NDArray[np.float32],  # (clusters,)
    cluster: NDArray[np.int64],  # (m,)
    offset: int,
) -> NDArray[np.int64]:
    """Return the most similar cluster (m,); members similar to none stay, or initially get number mod clusters."""
    clusters = len(scales)
    found = cluster.copy()
    scores = np.empty(clusters, np.float32)
    for member in range(len(cluster)):
        scores[:] = 0.0
        for i in range(starts[member], starts[member + 1]):
            value = values[i]
            centre = sums[columns[i]]
            for k in range(clusters):
                scores[k] += value * centre[k]
        best = np.float32(0.0)
        at = cluster[member] if cluster[member] >= 0 else (offset + member) % clusters
        for k in range(clusters):
            if scores[k] * scales[k] > best:
                best = scores[k] * scales[k]
                at = k
        found[member] = at
    return found
