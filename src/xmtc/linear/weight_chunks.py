"""Weights of sibling classifiers in chunks: one look-up of a document's feature serves all children of a node.

Each node has one chunk: a hash table from feature to row, and the rows. A row with many weights is dense, its width a
multiple of sixteen; a row with few weights is a short list of (column, weight). Chunks are independent, so that a
single node can be retrained and replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import frozen, inlined, kernel
from xmtc.linear.simd import LANES, add_dot, add_narrow_dot, add_wide_dot, widened

EMPTY = -1
"""Marks a free slot of the hash table."""
ABSENT = -(1 << 31)
"""Row of a feature that is not in the chunk. Dense rows are ≥ 0, sparse row r is −1 − r."""
DENSE_SHARE = 8
"""A row is dense if at least one in this many of its columns has a weight."""

Triplets = tuple[NDArray[np.int32], NDArray[np.uint16], NDArray[np.float32]]
"""Local feature, column and value of each remaining weight, by feature."""
NO_WEIGHTS: Triplets = (np.empty(0, np.int32), np.empty(0, np.uint16), np.empty(0, np.float32))


class Chunks(NamedTuple):
    """The chunks of all nodes of a tree, level by level from the root; `*_start` has (nodes + 1) entries."""

    table_start: NDArray[np.int64]  # in slots of the hash table, whose number is a power of two
    table: NDArray[np.int32]  # feature, row, feature, row, …
    dense_start: NDArray[np.int64]
    dense: NDArray[Any]  # float32, or float16 as uint16; row after row
    sparse_start: NDArray[np.int64]  # in entries
    sparse_row_start: NDArray[np.int64]
    sparse_ends: NDArray[np.int32]  # end of each sparse row, relative to the start of its chunk
    sparse_columns: NDArray[np.uint16]
    sparse_weights: NDArray[Any]
    bias_start: NDArray[np.int64]  # multiples of LANES; the difference is the width of a dense row
    bias: NDArray[np.float32]  # −∞ in columns beyond the last child

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.table_start) - 1

    @classmethod
    def joined(cls, parts: Sequence[Chunks]) -> Chunks:
        """Concatenate the chunks of several groups of nodes."""
        fields = {}
        for name in cls._fields:
            arrays = [getattr(part, name) for part in parts]
            fields[name] = _joined_starts(arrays) if name.endswith("_start") else np.concatenate(arrays)
        return cls(**{name: frozen(array) for name, array in fields.items()})

    @classmethod
    def certain(cls, children: int, half: bool) -> Chunks:
        """A single node whose children all have probability 1."""
        bias = np.full(-(-children // LANES) * LANES, np.inf, np.float32)
        return packed(np.empty(0, np.int32), [NO_WEIGHTS], bias, children, half)

    def taken(self, nodes: range) -> Chunks:
        """The chunks of consecutive nodes."""

        def cut(array: NDArray[Any], starts: NDArray[np.int64], each: int = 1) -> NDArray[Any]:
            return array[each * starts[nodes.start] : each * starts[nodes.stop]]

        def moved(starts: NDArray[np.int64]) -> NDArray[np.int64]:
            moved: NDArray[np.int64] = starts[nodes.start : nodes.stop + 1] - starts[nodes.start]
            return moved

        return Chunks(
            moved(self.table_start),
            cut(self.table, self.table_start, 2),
            moved(self.dense_start),
            cut(self.dense, self.dense_start),
            moved(self.sparse_start),
            moved(self.sparse_row_start),
            cut(self.sparse_ends, self.sparse_row_start),
            cut(self.sparse_columns, self.sparse_start),
            cut(self.sparse_weights, self.sparse_start),
            moved(self.bias_start),
            cut(self.bias, self.bias_start),
        )

    def column(self, node: int, column: int) -> dict[int, float]:
        """Feature → weight of one child."""
        one = self.taken(range(node, node + 1))
        table = one.table.reshape(-1, 2)
        width = int(one.bias_start[1])
        weights = {}
        for feature, row in table[table[:, 0] != EMPTY].tolist():
            if row >= 0:
                weights[feature] = float(_as_floats(one.dense[row * width + column : row * width + column + 1])[0])
                continue
            entries = slice(one.sparse_ends[-2 - row] if row < -1 else 0, one.sparse_ends[-1 - row])
            here = np.flatnonzero(one.sparse_columns[entries] == column)
            if len(here):
                weights[feature] = float(_as_floats(one.sparse_weights[entries][here])[0])
        return {feature: weight for feature, weight in weights.items() if weight}

    def triplets(self, node: int) -> Triplets:
        """Feature, column and value of each weight of a node."""
        one = self.taken(range(node, node + 1))
        parts = _as_floats(one.dense), one.sparse_ends, one.sparse_columns, _as_floats(one.sparse_weights)
        return _unpack(one.table, *parts, int(one.bias_start[1]), EMPTY)


def _joined_starts(arrays: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(array) for array in arrays]))]).astype(np.int64)


def _as_floats(weights: NDArray[Any]) -> NDArray[np.float32]:
    return (weights.view(np.float16) if weights.dtype == np.uint16 else weights).astype(np.float32)


def packed(
    features: NDArray[np.int32],
    blocks: Sequence[Triplets],
    bias: NDArray[np.float32],
    children: int,
    half: bool,
) -> Chunks:
    """Build the chunk of one node from the pruned weights of its blocks.

    `features` has the global numbers of the local features; the length of `bias` is a multiple of LANES.
    """
    rows, columns, weights = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    least = max(2, children // DENSE_SHARE)
    table, dense, ends, sparse_columns, sparse_weights = _pack(
        features, rows, columns, weights, len(bias), least, EMPTY
    )
    bias = bias.copy()
    bias[children:] = -np.inf

    def span(count: int) -> NDArray[np.int64]:
        return np.array([0, count], dtype=np.int64)

    def kept(values: NDArray[np.float32]) -> NDArray[Any]:
        return values.astype(np.float16).view(np.uint16) if half else values

    return Chunks(
        span(len(table) // 2),
        table,
        span(len(dense)),
        kept(dense),
        span(len(sparse_columns)),
        span(len(ends)),
        ends,
        sparse_columns,
        kept(sparse_weights),
        span(len(bias)),
        bias,
    )


@kernel()
def pruned(weights: NDArray[np.float32], least: float, children: int, first_column: int) -> Triplets:
    """Drop the weights of a block with an absolute value below `least`."""
    bound = max(np.float32(least), np.float32(1e-45))  # zeros are always dropped
    counts = np.zeros(len(weights), np.uint8)
    for row in range(len(weights)):
        held = np.uint8(0)
        for lane in range(children):
            held += np.uint8(abs(weights[row, lane]) >= bound)
        counts[row] = held
    count = 0
    for row in range(len(weights)):
        count += counts[row]
    rows, columns = np.empty(count, np.int32), np.empty(count, np.uint16)
    kept = np.empty(count, np.float32)
    at = 0
    for row in range(len(weights)):
        if counts[row] == 0:
            continue
        for lane in range(children):
            if abs(weights[row, lane]) >= bound:
                rows[at], columns[at], kept[at] = row, first_column + lane, weights[row, lane]
                at += 1
    return rows, columns, kept


@inlined
def _place(feature: Any, bits: Any) -> Any:
    """First slot to probe for a feature in a table of 2^bits slots."""
    return np.int64((np.uint64(feature) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits))


@kernel()
def _pack(
    features: NDArray[np.int32],
    rows: NDArray[np.int32],
    columns: NDArray[np.uint16],
    weights: NDArray[np.float32],
    width: int,
    least: int,
    empty: int,
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32], NDArray[np.uint16], NDArray[np.float32]]:
    counts = np.zeros(len(features), np.int32)
    for row in rows:
        counts[row] += 1
    used = np.count_nonzero(counts)
    dense_rows = int(np.count_nonzero(counts >= least))
    sparse_rows = int(used - dense_rows)
    entries = int(counts[counts < least].sum())
    bits = 1
    while 3 * (1 << bits) < 4 * used + 4:  # at most three quarters full
        bits += 1
    table = np.full(2 << bits, np.int32(empty))
    dense = np.zeros(dense_rows * width, np.float32)
    ends = np.empty(sparse_rows, np.int32)
    sparse_columns, sparse_weights = np.empty(entries, np.uint16), np.empty(entries, np.float32)
    at = np.empty(len(features), np.int64)  # where the next weight of a feature is written
    dense_rows, sparse_rows, entries = 0, 0, 0
    for local in range(len(features)):
        count = counts[local]
        if count == 0:
            continue
        if count >= least:
            row = dense_rows
            at[local] = np.int64(dense_rows) * width
            dense_rows += 1
        else:
            row = -1 - sparse_rows
            at[local] = entries
            entries += count
            ends[sparse_rows] = entries
            sparse_rows += 1
        place = _place(features[local], bits)
        while table[2 * place] != empty:
            place = (place + 1) & ((1 << bits) - 1)
        table[2 * place], table[2 * place + 1] = features[local], row
    for i in range(len(rows)):
        local = rows[i]
        if counts[local] >= least:
            dense[at[local] + columns[i]] = weights[i]
        else:
            sparse_columns[at[local]], sparse_weights[at[local]] = columns[i], weights[i]
            at[local] += 1
    return table, dense, ends, sparse_columns, sparse_weights


@kernel()
def _unpack(
    table: NDArray[np.int32],
    dense: NDArray[np.float32],
    ends: NDArray[np.int32],
    columns: NDArray[np.uint16],
    weights: NDArray[np.float32],
    width: int,
    empty: int,
) -> tuple[NDArray[np.int32], NDArray[np.uint16], NDArray[np.float32]]:
    count = len(weights) + np.count_nonzero(dense)
    features, where, out = np.empty(count, np.int32), np.empty(count, np.uint16), np.empty(count, np.float32)
    at = 0
    for place in range(len(table) // 2):
        feature, row = table[2 * place], table[2 * place + 1]
        if feature == empty:
            continue
        if row >= 0:
            for column in range(width):
                weight = dense[row * width + column]
                if weight != 0.0:
                    features[at], where[at], out[at] = feature, column, weight
                    at += 1
            continue
        for i in range(ends[-2 - row] if row < -1 else 0, ends[-1 - row]):
            features[at], where[at], out[at] = feature, columns[i], weights[i]
            at += 1
    return features[:at], where[:at], out[:at]


# ---- scoring; inlined into other kernels


@inlined
def table_bits(chunks: Any, node: Any) -> Any:
    """Binary logarithm of the number of slots of a node's hash table."""
    places = chunks.table_start[node + 1] - chunks.table_start[node]
    bits = 0
    while (1 << bits) < places:
        bits += 1
    return bits


@inlined
def _row_of(chunks: Any, node: Any, bits: Any, feature: Any, absent: Any) -> Any:
    """The row of a feature in a node's chunk, found through its hash table."""
    start = chunks.table_start[node]
    place = _place(feature, bits)
    while True:
        known = chunks.table[2 * (start + place)]
        if known == feature:
            return chunks.table[2 * (start + place) + 1]
        if known < 0:
            return absent
        place = (place + 1) & ((1 << bits) - 1)


class Scratch(NamedTuple):
    """Buffers for a document's rows in a chunk, dense and sparse rows separate, and for its margins."""

    dense_rows: NDArray[np.int32]
    dense_values: NDArray[np.float32]
    sparse_rows: NDArray[np.int32]
    sparse_values: NDArray[np.float32]
    margins: NDArray[np.float32]


@inlined
def longest_row(indptr: Any) -> Any:
    """The largest number of entries in a row."""
    most = 0
    for row in range(len(indptr) - 1):
        most = max(most, indptr[row + 1] - indptr[row])
    return most


@inlined
def scratch_for(words: Any, chunks: Any) -> Any:
    """Buffers for documents of up to `words` features."""
    widest = 1
    for node in range(len(chunks.bias_start) - 1):
        widest = max(widest, chunks.bias_start[node + 1] - chunks.bias_start[node])
    return Scratch(
        np.empty(words + 1, np.int32),
        np.empty(words + 1, np.float32),
        np.empty(words + 1, np.int32),
        np.empty(words + 1, np.float32),
        np.empty(widest, np.float32),
    )


@inlined
def gather_rows(
    chunks: Any,
    node: Any,
    lookup: Any,
    has_lookup: Any,
    bits: Any,
    features: Any,
    values: Any,
    first: Any,
    last: Any,
    scratch: Any,
    absent: Any,
) -> Any:
    """Collect a document's rows in a chunk, by `lookup` or by the hash table.

    Sparse rows are added to the biases at once; returns the number of dense rows still to add.
    """
    dense, sparse = 0, 0
    for p in range(first, last):  # branch-free: every row is written to both lists, and counted in at most one
        row = lookup[features[p]] if has_lookup else _row_of(chunks, node, bits, features[p], absent)
        scratch.dense_rows[dense] = row
        scratch.dense_values[dense] = values[p]
        dense += row >= 0
        scratch.sparse_rows[sparse] = -1 - row
        scratch.sparse_values[sparse] = values[p]
        sparse += (row < 0) & (row != absent)
    first_bias = chunks.bias_start[node]
    for column in range(chunks.bias_start[node + 1] - first_bias):
        scratch.margins[column] = chunks.bias[first_bias + column]
    first_row, first_entry = chunks.sparse_row_start[node], chunks.sparse_start[node]
    for p in range(sparse):
        row, value = scratch.sparse_rows[p], scratch.sparse_values[p]
        start = chunks.sparse_ends[first_row + row - 1] if row > 0 else 0
        for i in range(first_entry + start, first_entry + chunks.sparse_ends[first_row + row]):
            scratch.margins[chunks.sparse_columns[i]] += value * widened(chunks.sparse_weights[i])
    return dense


@inlined
def add_dense(chunks: Any, node: Any, dense: Any, scratch: Any, lanes: Any) -> None:
    """Add the dense rows, which completes the margins of all children."""
    width, column = chunks.bias_start[node + 1] - chunks.bias_start[node], 0
    rows, values, margins, start = scratch.dense_rows, scratch.dense_values, scratch.margins, chunks.dense_start[node]
    while column + 4 * lanes <= width:
        add_wide_dot(rows, values, 0, dense, chunks.dense, start + column, width, margins, column)
        column += 4 * lanes
    while column < width:
        add_dot(rows, values, 0, dense, chunks.dense, start + column, width, margins, column)
        column += lanes


@inlined
def add_dense_block(chunks: Any, node: Any, dense: Any, column: Any, scratch: Any, lanes: Any) -> None:
    """`add_dense`, bit-identical, for the sixteen columns around one."""
    width, column = chunks.bias_start[node + 1] - chunks.bias_start[node], column // lanes * lanes
    rows, values, margins, start = scratch.dense_rows, scratch.dense_values, scratch.margins, chunks.dense_start[node]
    if column < width // (4 * lanes) * (4 * lanes):
        add_narrow_dot(rows, values, 0, dense, chunks.dense, start + column, width, margins, column)
    else:
        add_dot(rows, values, 0, dense, chunks.dense, start + column, width, margins, column)


@inlined
def write_lookup(chunks: Any, node: Any, lookup: Any, absent: Any, clear: Any) -> None:
    """Write a chunk's hash table to an array indexed by feature, or clear it again."""
    for place in range(chunks.table_start[node], chunks.table_start[node + 1]):
        feature = chunks.table[2 * place]
        if feature >= 0:
            lookup[feature] = absent if clear else chunks.table[2 * place + 1]
