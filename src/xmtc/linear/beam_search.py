"""Beam search down a label tree of linear classifiers, and the scores of given labels.

The score of a label is the log-probability of the last edge of its path plus a weight times those of the edges above.
These are never positive, so a node whose own score is below the k-th best score found so far cannot contribute:
skipping it does not change the result. Documents are grouped by node, so that a chunk of weights stays in the cache for
all documents that need it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import frozen, inlined, kernel
from xmtc.core.selection import keep_best, sort_best
from xmtc.labels.tree import LabelTree
from xmtc.linear.weight_chunks import (
    Chunks,
    add_dense,
    add_dense_block,
    gather_rows,
    longest_row,
    scratch_for,
    table_bits,
    write_lookup,
)

SIGMOID = 0
"""Link with ln σ(margin) as the log-probability of an edge; 2 and 3 use −max(0, 1 − margin)^link."""
FIRST_ROUND = 1
"""Beam nodes scored before any is skipped; the number doubles each round."""


class SearchTree(NamedTuple):
    """A label tree laid out for the kernels: the nodes of all levels in one numbering, root first."""

    first: NDArray[np.int64]  # (nodes,) first child: a node, or on the last level a position
    children: NDArray[np.int64]  # (nodes,) number of children
    levels: NDArray[np.int64]  # (depth + 1,) first node of each level
    parent: NDArray[np.int64]  # (nodes,) −1 for the root
    leaf: NDArray[np.int64]  # (L,) the leaf above each position
    order: NDArray[np.int64]  # (L,) the label at each position
    place: NDArray[np.int64]  # (L,) the position of each label
    chunks: Chunks

    @classmethod
    def build(cls, tree: LabelTree, weights: Chunks) -> SearchTree:
        """Lay out a label tree and the weights of its nodes for the kernels."""
        sizes = [len(starts) - 1 for starts in tree.starts]
        levels = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        first = np.concatenate(
            [
                starts[:-1] + (levels[level + 1] if level + 1 < len(sizes) else 0)
                for level, starts in enumerate(tree.starts)
            ]
        )
        count = np.concatenate([np.diff(starts) for starts in tree.starts])
        inner = levels[-2]
        parent = np.concatenate([[-1], np.repeat(np.arange(inner), count[:inner])])
        leaf = np.repeat(np.arange(inner, levels[-1]), count[inner:])
        arrays = (first, count, levels, parent, leaf, tree.order, tree.place_of())
        first, count, levels, parent, leaf, order, place = (frozen(a.astype(np.int64, copy=False)) for a in arrays)
        return cls(first, count, levels, parent, leaf, order, place, weights)

    def allowed_nodes(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(nodes,) whether there is an allowed label below each node."""
        marked = np.zeros(len(self.first), dtype=bool)
        marked[self.leaf[allowed[self.order]]] = True
        for node in range(len(self.first) - 1, 0, -1):
            if marked[node]:
                marked[self.parent[node]] = True
        return marked


@inlined
def _link(margin: Any, link: Any) -> Any:
    """Log-probability of an edge, ≤ 0."""
    if link == 0:
        return np.float32(min(margin, np.float32(0.0)) - np.log1p(np.exp(-abs(margin))))
    lack = max(np.float32(1.0) - margin, np.float32(0.0))
    return -(lack * lack) if link == 2 else -(lack * lack * lack)


@inlined
def _least_margin(base: Any, lowest: Any, weight: Any, link: Any) -> Any:
    """A margin below which a child of a node with score `base` scores less than `lowest`.

    It is slightly too low and never too high, and saves the link function for nearly all children.
    """
    room = (1.00001 * np.float64(base - lowest) + 2e-6 * (1.0 + abs(lowest))) / weight
    if not abs(room) < 1e30:
        return np.float32(-np.inf)
    if link == 0:
        least = -np.log(np.expm1(room)) if room < 80.0 else -room
    else:
        least = 1.0 - (np.sqrt(room) if link == 2 else np.cbrt(room))
    return np.float32(least - 1e-5 * (1.0 + abs(least)))


@inlined
def _add_children(
    tree: Any,
    node: Any,
    base: Any,
    weight: Any,
    link: Any,
    is_last: Any,
    allowed_nodes: Any,
    allowed_labels: Any,
    lanes: Any,
    margins: Any,
    found: Any,
    given: Any,
    held: Any,
) -> Any:
    """Insert the children of a node into the best candidates of a document; returns the new number of candidates.

    `weight` is that of the edges to the children. Blocks of children whose margins are all too low are passed over.
    """
    first, children, k = tree.first[node], tree.children[node], len(found)
    least = _least_margin(base, given[k - 1], weight, link) if held == k else np.float32(-np.inf)
    for start in range(0, children, lanes):
        enough = 0
        for lane in range(lanes):
            enough |= margins[start + lane] >= least
        if not enough:
            continue
        for child in range(start, min(start + lanes, children)):
            if margins[child] < least:
                continue
            score = base + weight * _link(margins[child], link)
            if held == k and score < given[k - 1]:
                continue
            key = tree.order[first + child] if is_last else first + child
            if len(allowed_nodes) and not (allowed_labels[key] if is_last else allowed_nodes[key]):
                continue
            held = keep_best(found, given, held, key, score)
            if held == k:
                least = _least_margin(base, given[k - 1], weight, link)
    return held


@kernel(outputs=("found", "given"))
def search_row(
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    tree: Any,
    beam: int,
    link: int,
    path_weight: float,
    allowed_nodes: NDArray[np.bool_],
    allowed_labels: NDArray[np.bool_],
    absent: int,
    lanes: int,
    found: NDArray[np.int64],
    given: NDArray[np.float32],
) -> None:
    """`search_rows` for one document: descend the beam, best node first."""
    depth = len(tree.levels) - 1
    scratch = scratch_for(len(features), tree.chunks)
    lookup = np.empty(0, np.int32)
    nodes, scores, held = np.zeros(1, np.int64), np.zeros(1, np.float32), 1
    for level in range(depth):
        is_last = level == depth - 1
        if is_last:
            next_nodes, next_scores = found, given
        else:
            room = min(beam, tree.levels[level + 2] - tree.levels[level + 1])
            next_nodes, next_scores = np.empty(room, np.int64), np.empty(room, np.float32)
        next_held = 0
        for at in range(held):
            if next_held == len(next_nodes) and scores[at] < next_scores[-1]:
                break
            node = nodes[at]
            bits = table_bits(tree.chunks, node)
            dense = gather_rows(
                tree.chunks, node, lookup, False, bits, features, values, 0, len(features), scratch, absent
            )
            add_dense(tree.chunks, node, dense, scratch, lanes)
            next_held = _add_children(
                tree,
                node,
                scores[at],
                np.float32(1.0) if is_last else np.float32(path_weight),
                link,
                is_last,
                allowed_nodes,
                allowed_labels,
                lanes,
                scratch.margins,
                next_nodes,
                next_scores,
                next_held,
            )
        sort_best(next_nodes, next_scores, next_held)
        nodes, scores, held = next_nodes, next_scores, next_held
    found[held:] = -1
    given[held:] = -np.inf


@kernel(outputs=("found", "given"))
def search_rows(
    indptr: NDArray[np.int64],
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    tree: Any,
    beam: int,
    link: int,
    path_weight: float,
    allowed_nodes: NDArray[np.bool_],
    allowed_labels: NDArray[np.bool_],
    width: int,
    first_round: int,
    absent: int,
    lanes: int,
    found: NDArray[np.int64],
    given: NDArray[np.float32],
) -> None:
    """Write the k best labels of each row and their log-probabilities; empty `allowed_*` arrays allow everything."""
    rows, depth = len(indptr) - 1, len(tree.levels) - 1
    scratch = scratch_for(longest_row(indptr), tree.chunks)
    lookup = np.empty(0, np.int32)
    beam_nodes, beam_scores = np.zeros((rows, 1), np.int64), np.zeros((rows, 1), np.float32)
    beam_held = np.ones(rows, np.int64)
    for level in range(depth):
        is_last = level == depth - 1
        start, stop = tree.levels[level], tree.levels[level + 1]
        if is_last:
            next_nodes, next_scores = found, given
        else:
            room = min(beam, tree.levels[level + 2] - stop)
            next_nodes, next_scores = np.empty((rows, room), np.int64), np.empty((rows, room), np.float32)
        next_held = np.zeros(rows, np.int64)
        done = 0
        while done < beam_nodes.shape[1]:
            upto = min(max(first_round, 2 * done), beam_nodes.shape[1])  # twice as many each round
            starts, pairs = _grouped(
                beam_nodes, beam_scores, beam_held, next_scores, next_held, done, upto, start, stop
            )
            done = upto
            for node in range(start, stop):
                group = pairs[starts[node - start] : starts[node - start + 1]]
                if len(group) == 0:
                    continue
                words = 0
                for pair in group:
                    row = pair // beam_nodes.shape[1]
                    words += indptr[row + 1] - indptr[row]
                has_lookup = words > 2 * (tree.chunks.table_start[node + 1] - tree.chunks.table_start[node])
                if has_lookup:
                    if len(lookup) == 0:
                        lookup = np.full(width, np.int32(absent))
                    write_lookup(tree.chunks, node, lookup, absent, False)
                bits = table_bits(tree.chunks, node)
                for pair in group:
                    row = pair // beam_nodes.shape[1]
                    dense = gather_rows(
                        tree.chunks,
                        node,
                        lookup,
                        has_lookup,
                        bits,
                        features,
                        values,
                        indptr[row],
                        indptr[row + 1],
                        scratch,
                        absent,
                    )
                    add_dense(tree.chunks, node, dense, scratch, lanes)
                    next_held[row] = _add_children(
                        tree,
                        node,
                        beam_scores[row, pair % beam_nodes.shape[1]],
                        np.float32(1.0) if is_last else np.float32(path_weight),
                        link,
                        is_last,
                        allowed_nodes,
                        allowed_labels,
                        lanes,
                        scratch.margins,
                        next_nodes[row],
                        next_scores[row],
                        next_held[row],
                    )
                if has_lookup:
                    write_lookup(tree.chunks, node, lookup, absent, True)
        for row in range(rows):
            sort_best(next_nodes[row], next_scores[row], next_held[row])
        beam_nodes, beam_scores, beam_held = next_nodes, next_scores, next_held
    for row in range(rows):
        found[row, beam_held[row] :] = -1
        given[row, beam_held[row] :] = -np.inf


@inlined
def _grouped(
    beam_nodes: Any,
    beam_scores: Any,
    beam_held: Any,
    next_scores: Any,
    next_held: Any,
    first: Any,
    last: Any,
    start: Any,
    stop: Any,
) -> Any:
    """The (row, position in the beam) pairs still worth scoring, grouped by node: group starts and pairs."""
    ends = np.zeros(stop - start + 1, np.int64)
    rows, beam, k = beam_nodes.shape[0], beam_nodes.shape[1], next_scores.shape[1]
    total = 0
    for row in range(rows):
        for at in range(first, min(last, beam_held[row])):
            if next_held[row] < k or beam_scores[row, at] >= next_scores[row, k - 1]:
                ends[beam_nodes[row, at] - start + 1] += 1
                total += 1
    for node in range(stop - start):
        ends[node + 1] += ends[node]
    pairs = np.empty(total, np.int64)
    at_node = ends[:-1].copy()
    for row in range(rows):
        for at in range(first, min(last, beam_held[row])):
            if next_held[row] < k or beam_scores[row, at] >= next_scores[row, k - 1]:
                node = beam_nodes[row, at] - start
                pairs[at_node[node]] = row * beam + at
                at_node[node] += 1
    return ends, pairs


@kernel()
def score_rows(
    indptr: NDArray[np.int64],
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    tree: Any,
    link: int,
    path_weight: float,
    candidates: NDArray[np.int64],
    order: NDArray[np.int64],
    levels: int,
    absent: int,
    lanes: int,
) -> NDArray[np.float32]:
    """(n, c) log-probabilities of given labels, as `search_rows` would find them; −∞ for pads.

    `order` (n, c) sorts the candidates of each row by their position in the tree, pads first, which groups those of a
    node on every level. If `levels` is less than the depth of the tree, scores are those of the ancestors that many
    steps below the root.
    """
    rows, depth = candidates.shape[0], len(tree.levels) - 1
    out = np.full(candidates.shape, np.float32(-np.inf))
    scratch = scratch_for(longest_row(indptr), tree.chunks)
    lookup = np.empty(0, np.int32)
    places = np.empty(candidates.shape[1], np.int64)
    above = np.empty((depth, candidates.shape[1]), np.int64)  # the ancestor of each candidate, by level
    for row in range(rows):
        for column in range(candidates.shape[1]):
            label = candidates[row, column]
            places[column] = tree.place[label] if label >= 0 else -1
            if label >= 0:
                out[row, column] = 0.0
                node = tree.leaf[places[column]]
                for level in range(depth - 1, -1, -1):
                    above[level, column] = node
                    node = tree.parent[node]
        for level in range(levels):
            weight = np.float32(1.0) if level == depth - 1 else np.float32(path_weight)
            node, block, dense = -1, -1, 0
            for column in order[row]:
                if places[column] < 0:
                    continue
                if above[level, column] != node:
                    node, block = above[level, column], -1
                    dense = gather_rows(
                        tree.chunks,
                        node,
                        lookup,
                        False,
                        table_bits(tree.chunks, node),
                        features,
                        values,
                        indptr[row],
                        indptr[row + 1],
                        scratch,
                        absent,
                    )
                child = places[column] if level == depth - 1 else above[level + 1, column]
                child -= tree.first[node]
                if child // lanes != block:  # children ascend, so each block is added once
                    block = child // lanes
                    add_dense_block(tree.chunks, node, dense, child, scratch, lanes)
                out[row, column] += weight * _link(scratch.margins[child], link)
    return out
