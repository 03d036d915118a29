"""Clustering of labels by their vectors: balanced halves, and spherical k-means.

The features of a group of labels are renumbered, so that a pass costs its entries and not D. Every group has its own
random numbers, so results do not depend on the number of threads.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import inlined, kernel
from xmtc.core.parallel import run_parallel
from xmtc.core.selection import nth_largest_moved
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
        own = bounds[part.start : part.stop + 1]
        chosen = (seeds[part.start : part.stop], sizes[part.start : part.stop])
        _halve_part((indptr, indices, values), features.shape[1], own, *chosen, max(passes, 1), tolerance, order)
        return int(own[-1] - own[0])

    share = max(int(work.sum()) // (8 * threads), 1 << 16)
    for count in run_parallel(halve, even_ranges(work, share), threads, ahead=8):
        advance(count)
    cut = np.empty(2 * groups + 1, dtype=np.int64)
    cut[::2] = bounds
    cut[1::2] = bounds[:-1] + sizes
    return order, cut


def _halve_part(
    features: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]],
    width: int,
    bounds: NDArray[np.int64],
    seeds: NDArray[np.uint64],
    sizes: NDArray[np.int64],
    passes: int,
    tolerance: float,
    order: NDArray[np.int64],  # out: the groups' part of it
) -> None:
    """Halve consecutive groups: those with many entries as they are, others with their features renumbered."""
    indptr, indices, values = features
    members = order[bounds[0] : bounds[-1]].copy()
    first, last = indptr[members], indptr[members + 1]
    starts = bounds - bounds[0]  # of the groups among the members
    entries = np.diff(np.concatenate([[0], np.cumsum(last - first)])[starts])
    widths = np.full(len(sizes), width, dtype=np.int64)
    is_direct = entries >= DIRECT * width
    place = np.zeros(width, dtype=np.int32)
    touched = np.empty(width, dtype=np.int32)
    work = np.empty((2, width), dtype=np.float64), np.empty(width, dtype=np.float32)
    edges = [0, *(np.flatnonzero(np.diff(is_direct)) + 1).tolist(), len(sizes)]
    for start, stop in itertools.pairwise(edges):
        groups, rows = slice(start, stop), slice(int(starts[start]), int(starts[stop]))
        own, columns, copied = starts[start : stop + 1] - starts[start], indices, values
        if not is_direct[start]:
            total = int(entries[groups].sum())
            columns, copied = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.float32)
            _renumber(indices, values, own, first[rows], last[rows], place, touched, columns, copied, widths[groups])
        scores = np.empty((2, int(np.diff(own).max())), dtype=np.float32)
        _halve_groups(
            *(first[rows], last[rows], columns, copied, own, seeds[groups], sizes[groups], widths[groups]),
            *(passes, tolerance, members[rows], *work, scores, np.zeros(len(members[rows]), dtype=np.bool_)),
            order[bounds[0] + rows.start : bounds[0] + rows.stop],
        )


@kernel(outputs=("first", "last", "place", "touched", "columns", "copied", "widths"))
def _renumber(
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    bounds: NDArray[np.int64],  # (m + 1,) rows of each group
    first: NDArray[np.int64],  # in and out: first entry of each row
    last: NDArray[np.int64],  # in and out: end of each row
    place: NDArray[np.int32],  # (D,) zeros, reset to zeros at the end
    touched: NDArray[np.int32],  # (D,)
    columns: NDArray[np.int32],  # out
    copied: NDArray[np.float32],  # out
    widths: NDArray[np.int64],  # (m,) out: number of features of each group
) -> None:
    """Renumber the columns of each group by first occurrence and copy its entries contiguously."""
    end = 0
    for group in range(len(widths)):
        width = 0
        for row in range(bounds[group], bounds[group + 1]):
            start = end
            for i in range(first[row], last[row]):
                feature = indices[i]
                if place[feature] == 0:
                    touched[width] = feature
                    width += 1
                    place[feature] = width
                columns[end] = place[feature] - 1
                copied[end] = values[i]
                end += 1
            first[row] = start
            last[row] = end
        for i in range(width):
            place[touched[i]] = 0
        widths[group] = width


@inlined
def _draw(first: Any, last: Any, indices: Any, values: Any, start: Any, stop: Any, seed: Any, direction: Any) -> None:
    """Set `direction` to the difference of two random non-empty rows."""
    count = 0
    for row in range(start, stop):
        count += last[row] > first[row]
    if count > 1:
        one = np.int64((seed >> np.uint64(32)) % np.uint64(count))
        other = np.int64((seed & np.uint64(0xFFFFFFFF)) % np.uint64(count - 1))
        other += other >= one
        number = 0
        for row in range(start, stop):
            if last[row] > first[row]:
                if number in (one, other):
                    sign = np.float32(1.0 if number == one else -1.0)
                    for i in range(first[row], last[row]):
                        direction[indices[i]] += sign * values[i]
                number += 1


@inlined
def _take_sides(
    first: Any,
    last: Any,
    indices: Any,
    values: Any,
    start: Any,
    stop: Any,
    scores: Any,
    size: int,
    left: Any,
    sums: Any,
) -> None:
    """Assign the `size` rows with the largest scores to the left, earlier ones on ties; update their `sums`."""
    count = stop - start
    for row in range(count):
        scores[1, row] = scores[0, row]
    threshold = nth_largest_moved(scores[1, :count], size)
    spare = size  # remaining slots for rows at the threshold
    for row in range(count):
        if scores[0, row] > threshold:
            spare -= 1
    for row in range(count):
        chosen = scores[0, row] > threshold
        if scores[0, row] == threshold and spare > 0:
            chosen = True
            spare -= 1
        if chosen != left[start + row]:
            left[start + row] = chosen
            sign = 1.0 if chosen else -1.0
            for i in range(first[start + row], last[start + row]):
                sums[indices[i]] += sign * values[i]


@kernel(
    outputs=("sums", "direction", "scores", "left", "order"),
    fastmath={"reassoc", "contract", "nsz"},
)
def _halve_groups(
    first: NDArray[np.int64],  # first entry of each row
    last: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    bounds: NDArray[np.int64],  # (m + 1,) rows of each group
    seeds: NDArray[np.uint64],  # (m,)
    sizes: NDArray[np.int64],  # (m,) of left halves
    widths: NDArray[np.int64],  # (m,) number of features
    passes: int,
    tolerance: float,
    members: NDArray[np.int64],  # labels, by row
    sums: NDArray[np.float64],  # (2, D) of all rows and of the left half
    direction: NDArray[np.float32],  # (D,) left centre − right centre
    scores: NDArray[np.float32],  # (2, rows of the largest group)
    left: NDArray[np.bool_],  # out: which rows are in the left half; False before
    order: NDArray[np.int64],  # out: the members of each group, those of the left half first
) -> None:
    """Bisect groups of rows.

    The similarities of a half to its centre sum to the length of its vector sum, so the stopping criterion follows from
    the sums, which are updated for rows that change sides.
    """
    total, part = sums[0], sums[1]
    for group in range(len(sizes)):
        start, stop, width = bounds[group], bounds[group + 1], widths[group]
        if stop - start < 2:
            continue
        for i in range(width):
            total[i] = 0.0
            part[i] = 0.0
            direction[i] = 0.0
        for row in range(start, stop):
            for i in range(first[row], last[row]):
                total[indices[i]] += values[i]
        _draw(first, last, indices, values, start, stop, seeds[group], direction)
        reached = -1.0
        for _ in range(passes):
            for row in range(start, stop):
                score = np.float32(0.0)
                for i in range(first[row], last[row]):
                    score += values[i] * direction[indices[i]]
                scores[0, row - start] = score
            _take_sides(first, last, indices, values, start, stop, scores, sizes[group], left, part)
            left_square = 0.0
            right_square = 0.0
            for i in range(width):
                left_square += part[i] * part[i]
                right_square += (total[i] - part[i]) * (total[i] - part[i])
            similarity = (np.sqrt(left_square) + np.sqrt(right_square)) / (stop - start)
            if similarity - reached < tolerance:
                break
            reached = similarity
            left_scale = 1.0 / np.sqrt(left_square) if left_square > 0.0 else 0.0
            right_scale = 1.0 / np.sqrt(right_square) if right_square > 0.0 else 0.0
            for i in range(width):
                direction[i] = part[i] * left_scale - (total[i] - part[i]) * right_scale
        at_left = start
        at_right = start + sizes[group]
        for row in range(start, stop):
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


def _distinct(seed: np.uint64, count: int, wanted: int) -> NDArray[np.int64]:
    """Draw distinct numbers (wanted,) below `count` by a partial shuffle with xorshift."""
    moved: dict[int, int] = {}  # numbers that are not at their own place
    found, state, mask = [], int(seed) | 1, (1 << 64) - 1
    for i in range(wanted):
        state ^= state << 13 & mask
        state ^= state >> 7
        state ^= state << 17 & mask
        j = i + (state >> 33) % (count - i)
        found.append(moved.get(j, j))
        moved[j] = moved.get(i, i)
    return np.array(found, dtype=np.int64)


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


def _scales(sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the factors (clusters,) that scale columns to unit length; 0 for zero columns."""
    squares = np.zeros(sums.shape[1])
    _add_squares(sums, squares)
    return np.where(squares > 0.0, 1.0 / np.sqrt(np.maximum(squares, 1e-30)), 0.0).astype(np.float32)


@kernel(outputs=("squares",))
def _add_squares(sums: NDArray[np.float32], squares: NDArray[np.float64]) -> None:
    for row in range(sums.shape[0]):
        for cluster in range(sums.shape[1]):
            squares[cluster] += np.float64(sums[row, cluster]) * sums[row, cluster]


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
