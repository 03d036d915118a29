"""Kernels of boosted trees: codes of feature values, histograms of gradients, splits, and sums over trees.

A feature value is coded by one byte: 0 if it is missing (NaN), otherwise 1 + the number of bin edges below it, < 64.

Gradients and Hessians are 15-bit integers with a common scale, rounded at random so that sums are unbiased. One 64-bit
integer holds gradient, Hessian and count of a row: one addition per row and feature. Sums of integers are exact, hence
trees do not depend on the number of threads, and the histogram of a node is that of its parent minus its sibling's.

A tree is a sequence of splits. Split i divides a leaf of the tree so far, `leaf` ≤ i: rows that pass to the left stay
in it, the others form leaf i + 1. Any such sequence is a valid tree.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped
from numba.extending import intrinsic
from numpy.typing import NDArray

from xmtc.core.jit import inlined, kernel

CODES = 64
"""Codes of a feature, including that of missing values."""
EDGES = CODES - 1
"""Bin edges of a feature; unused ones are infinite, and the last one is unused."""
LEAVES = 32
"""Leaves of a tree at most: the set of leaves that a row can still reach is a 32-bit integer."""
LANES = 8
"""Trees that prediction handles at a time."""
UNROLLED = 4
"""Features that prediction handles at a time."""
STEP = 32767
"""The integer that stands for the largest gradient and the largest Hessian."""

_ROWS = 2047  # rows whose sums fit into 64 bits: 27 bits for gradients, 26 for Hessians, 11 for the count
_BLOCK = 512  # rows that prediction handles at a time
_AHEAD = 8  # rows between loading a row into the cache and using it

_WIDE = ir.IntType(64)

cgutils: Any = untyped  # numba's code generation is untyped


def _prefetching(_: Any, array: Any, at: Any) -> Any:
    """Load the cache line of an element without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(call, [place, word(0), word(3), word(1)])  # to read, into all caches, data
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


def _intersecting(_: Any, masks: Any, offset: Any, codes: Any, first: Any, last: Any, bits: Any) -> Any:
    """bits[:LANES] = the intersection of masks[offset + code of the feature] of all features, codes[first:last].

    Written as LLVM vectors, so that the bits stay in registers. The number of features is a multiple of UNROLLED.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mask_data, code_data, bit_data = (
            context.make_array(signature.args[place])(context, builder, arguments[place]).data for place in (0, 2, 5)
        )
        offset, first, last = (arguments[place] for place in (1, 3, 4))
        kind = ir.VectorType(ir.IntType(32), LANES)
        admitted = cgutils.alloca_once(builder, kind)
        builder.store(ir.Constant(kind, [0xFFFFFFFF] * LANES), admitted)

        def load(feature: Any) -> Any:
            code = builder.zext(builder.load(builder.gep(code_data, [builder.add(first, feature)])), _WIDE)
            row = builder.add(builder.mul(feature, _WIDE(CODES)), code)
            place = builder.gep(mask_data, [builder.add(offset, builder.mul(row, _WIDE(LANES)))])
            loaded = builder.load(builder.bitcast(place, kind.as_pointer()))
            loaded.align = 4
            return loaded

        with cgutils.for_range(builder, builder.udiv(builder.sub(last, first), _WIDE(UNROLLED))) as loop:
            bits = builder.load(admitted)
            for i in range(UNROLLED):
                bits = builder.and_(bits, load(builder.add(builder.mul(loop.index, _WIDE(UNROLLED)), _WIDE(i))))
            builder.store(bits, admitted)
        stored = builder.store(builder.load(admitted), builder.bitcast(bit_data, kind.as_pointer()))
        stored.align = 4
        return context.get_dummy_value()

    return types.void(masks, types.int64, codes, types.int64, types.int64, bits), generate


_prefetch: Any = intrinsic(_prefetching)
_intersect: Any = intrinsic(_intersecting)


def _checked_intersect(intersect: Any) -> Any:
    def call(masks: Any, offset: Any, codes: Any, first: Any, last: Any, bits: Any) -> None:
        for place in range(first, last):
            end = offset + ((place - first) * CODES + codes[place] + 1) * LANES
            if codes[place] >= CODES or offset < 0 or end > masks.size:
                raise IndexError("vector code beyond the masks")
        intersect(masks, offset, codes, first, last, bits)

    return numba.njit(call)


if getattr(numba.config, "BOUNDSCHECK", None):  # numba's own checks do not cover vector code
    _intersect = _checked_intersect(_intersect)


@inlined
def _code(value: Any, edges: Any, feature: Any) -> Any:
    """The code of a feature value, by binary search without branches."""
    place = 0
    step = 32  # (EDGES + 1) / 2
    while step > 0:
        place += step if edges[feature, place + step - 1] < value else 0
        step >>= 1
    return np.uint8(place + 1 if value == value else 0)


@inlined
def _is_right(code: Any, threshold: Any, missing_right: Any) -> Any:
    """Whether a row with this code passes to the right of a split."""
    return np.uint8(code - missing_right) > np.uint8(threshold - missing_right)  # 0 − 1 is 255


@kernel(outputs=("codes",))
def encode(
    rows: NDArray[np.float32], edges: NDArray[np.float32], first: int, last: int, codes: NDArray[np.uint8]
) -> None:
    """Set the codes (n, f) of the rows from `first` to `last`."""
    for row in range(first, last):
        for feature in range(rows.shape[1]):
            codes[row, feature] = _code(rows[row, feature], edges, feature)


@kernel(outputs=("histogram",))
def add_histogram(
    codes: NDArray[np.uint8],
    packed: NDArray[np.int64],
    order: NDArray[np.int32],
    first: int,
    last: int,
    histogram: NDArray[np.int64],
) -> None:
    """Add gradient, Hessian and count of order[first:last] to a histogram (f, CODES, 3)."""
    features = codes.shape[1]
    flat = codes.reshape(-1)
    width = np.uint64(features)
    part = np.zeros((features, CODES), np.int64)
    for start in range(first, last, _ROWS):
        for i in range(start, min(start + _ROWS, last)):
            coming = np.uint64(order[min(i + _AHEAD, last - 1)])
            _prefetch(flat, coming * width)
            _prefetch(flat, coming * width + width - np.uint64(1))
            _prefetch(packed, coming)
            row = np.uint64(order[i])
            value, at = packed[row], row * width
            for feature in range(features):
                part[feature, flat[at + np.uint64(feature)]] += value
        for feature in range(features):
            for code in range(CODES):
                value = part[feature, code]
                histogram[feature, code, 0] += value >> 37
                histogram[feature, code, 1] += (value >> 11) & 0x3FFFFFF
                histogram[feature, code, 2] += value & 0x7FF
                part[feature, code] = 0


@kernel()
def best_split(
    histogram: NDArray[np.int64],
    allowed: NDArray[np.bool_],
    gradient_step: float,
    hessian_step: float,
    l2: float,
    min_rows: int,
    min_hessian: float,
) -> tuple[float, int, int, int, float, float, float, float]:
    """Gain, feature, threshold, whether missing values pass to the right; gradient and Hessian left and right.

    The gain is 0 if no split leaves enough on both sides. The first of equal splits wins.
    """
    gain = 0.0
    best: Any = (0, 0, 0)
    sums = (0.0, 0.0, 0.0, 0.0)
    whole = histogram[0].sum(axis=0)
    for feature in range(histogram.shape[0]):
        if not allowed[feature]:
            continue
        missing = histogram[feature, 0, 2]
        for missing_right in range(1 if missing == 0 else 0, 2):
            gradient, hessian, count = 0, 0, 0
            for code in range(missing_right, CODES):
                gradient += histogram[feature, code, 0]
                hessian += histogram[feature, code, 1]
                count += histogram[feature, code, 2]
                rest = whole[2] - count
                if rest < min_rows:
                    break
                if code == 0 or count < min_rows or histogram[feature, code, 2] == 0:
                    continue
                gl, gr = gradient * gradient_step, (whole[0] - gradient) * gradient_step
                hl, hr = hessian * hessian_step, (whole[1] - hessian) * hessian_step
                if hl < min_hessian or hr < min_hessian:
                    continue
                value = gl * gl / (hl + l2) + gr * gr / (hr + l2) - (gl + gr) * (gl + gr) / (hl + hr + l2)
                if value > gain:
                    side = missing_right if missing else np.int64(rest > count)  # unseen: as most rows
                    gain, best, sums = value, (feature, code, side), (gl, hl, gr, hr)
    return gain, best[0], best[1], best[2], sums[0], sums[1], sums[2], sums[3]


@kernel(outputs=("left", "right"))
def partition(
    codes: NDArray[np.uint8],
    order: NDArray[np.int32],
    first: int,
    last: int,
    threshold: int,
    missing_right: int,
    left: NDArray[np.int32],
    right: NDArray[np.int32],
) -> int:
    """Copy the rows order[first:last] that pass to the left and to the right; returns the number of the former.

    `codes` (n,) are those of the feature. Both outputs start at `first` and keep the order.
    """
    at, other = np.uint64(first), np.uint64(first)
    for i in range(first, last):
        row = order[i]
        is_right = _is_right(codes[np.uint64(row)], threshold, missing_right)
        left[at] = right[other] = row
        at += np.uint64(not is_right)
        other += np.uint64(is_right)
    return np.int64(at) - first  # type: ignore[return-value]


@kernel(outputs=("leaf_of",))
def mark_leaves(
    order: NDArray[np.int32], stops: NDArray[np.int64], leaves: NDArray[np.uint8], leaf_of: NDArray[np.uint8]
) -> None:
    """Set the leaf of each row: leaves[i] for those from stops[i − 1] to stops[i] in `order`."""
    first = 0
    for i in range(len(stops)):
        for place in range(first, stops[i]):
            leaf_of[np.uint64(order[place])] = leaves[i]
        first = stops[i]


@kernel(outputs=("margins", "packed"))
def update_gradients(
    leaf_of: NDArray[np.uint8],
    values: NDArray[np.float32],
    first: int,
    last: int,
    targets: NDArray[np.float32],
    weights: NDArray[np.float32],
    gradient_step: float,
    hessian_step: float,
    seed: int,
    margins: NDArray[np.float32],
    packed: NDArray[np.int64],
) -> None:
    """Add the value of its leaf to the margin of each row from `first` to `last`; set its gradient and Hessian.

    A step is the number that the integer 1 stands for.
    """
    one, unit = np.float32(1.0), np.float32(0.5**24)
    per_gradient, per_hessian = np.float32(1.0 / gradient_step), np.float32(1.0 / hessian_step)
    shift = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    for row in range(first, last):
        margins[row] += values[leaf_of[row]]
        share = one / (one + np.exp(-margins[row]))
        noise = (np.uint64(row) + shift) * np.uint64(0xD6E8FEB86659FD93)
        noise ^= noise >> np.uint64(32)
        noise *= np.uint64(0xD6E8FEB86659FD93)
        low = np.float32(noise >> np.uint64(40)) * unit
        high = np.float32((noise >> np.uint64(16)) & np.uint64(0xFFFFFF)) * unit
        gradient = np.int64(np.floor((share - targets[row]) * weights[row] * per_gradient + high))
        hessian = np.int64(np.floor(share * (one - share) * weights[row] * per_hessian + low))
        packed[row] = (gradient << 37) + (hessian << 11) + 1


@kernel(outputs=("margins",))
def add_tree(
    codes: NDArray[np.uint8],
    leaf: NDArray[np.uint8],
    feature: NDArray[np.int32],
    threshold: NDArray[np.uint8],
    missing_right: NDArray[np.uint8],
    values: NDArray[np.float32],
    first: int,
    last: int,
    margins: NDArray[np.float32],
) -> None:
    """Add the value of its leaf to the margin of each row from `first` to `last`."""
    for row in range(first, last):
        here = 0
        for split in range(len(leaf)):
            is_right = _is_right(codes[row, feature[split]], threshold[split], missing_right[split])
            here = split + 1 if is_right and leaf[split] == here else here
        margins[row] += values[here]


@kernel()
def path_changes(
    row: NDArray[np.float32],
    edges: NDArray[np.float32],
    tree_start: NDArray[np.int64],
    leaf: NDArray[np.uint8],
    feature: NDArray[np.int32],
    threshold: NDArray[np.uint8],
    missing_right: NDArray[np.uint8],
    root: NDArray[np.float32],
    left: NDArray[np.float32],
    right: NDArray[np.float32],
) -> NDArray[np.float64]:
    """(f,) sums of the changes of node values along the paths of a row, at the feature of each split."""
    out = np.zeros(len(row))
    for tree in range(len(tree_start) - 1):
        here, value = 0, np.float64(root[tree])
        for i in range(tree_start[tree], tree_start[tree + 1]):
            if leaf[i] != here:
                continue
            code = _code(row[feature[i]], edges, feature[i])
            is_right = _is_right(code, threshold[i], missing_right[i])
            changed = np.float64(right[i] if is_right else left[i])
            here = i - tree_start[tree] + 1 if is_right else here
            out[feature[i]] += changed - value
            value = changed
    return out


@kernel(outputs=("masks", "values"))
def fill_tables(
    tree_start: NDArray[np.int64],
    leaf: NDArray[np.uint8],
    feature: NDArray[np.int32],
    threshold: NDArray[np.uint8],
    missing_right: NDArray[np.uint8],
    leaf_values: NDArray[np.float32],
    masks: NDArray[np.uint32],
    values: NDArray[np.float32],
) -> None:
    """Prepare `sum_trees`: leaves (blocks, f, CODES, LANES) that a code admits, and values (blocks · LANES, LEAVES).

    `masks` starts with all bits set. The leaf values of tree t start at tree_start[t] + t.
    """
    under = np.empty(LEAVES, np.uint32)
    for tree in range(len(tree_start) - 1):
        first, last = tree_start[tree], tree_start[tree + 1]
        block, lane = tree // LANES, tree % LANES
        for i in range(last - first + 1):
            under[i] = np.uint32(1) << np.uint32(i)
            values[tree, _place(under[i])] = leaf_values[first + tree + i]
        for i in range(last - 1, first - 1, -1):
            for code in range(CODES):
                is_right = _is_right(np.uint8(code), threshold[i], missing_right[i])
                masks[block, feature[i], code, lane] &= ~under[leaf[i] if is_right else i - first + 1]
            under[leaf[i]] |= under[i - first + 1]
        for code in range(CODES):
            masks[block, 0, code, lane] &= under[0]  # the leaves of this tree


@inlined
def _place(bit: Any) -> Any:
    """A number below 32 that identifies a single bit of 32 (a de Bruijn sequence)."""
    return np.uint64(np.uint32(bit * np.uint32(0x077CB531)) >> np.uint32(27))


@kernel(outputs=("out",))
def sum_trees(
    rows: NDArray[np.float32],
    edges: NDArray[np.float32],
    masks: NDArray[np.uint32],
    values: NDArray[np.float32],
    base: float,
    first: int,
    last: int,
    out: NDArray[np.float32],
) -> None:
    """Set the margins of the rows from `first` to `last`.

    For each tree, the leaves that each feature's code admits are intersected: one remains. The number of features in
    `masks` is a multiple of UNROLLED; those beyond the features of the rows admit all leaves.
    """
    features, wide = rows.shape[1], masks.shape[1]
    codes = np.zeros(_BLOCK * wide, np.uint8)
    bits = np.empty(LANES, np.uint32)
    flat, leaf_values = masks.reshape(-1), values.reshape(-1)
    for start in range(first, last, _BLOCK):
        size = min(_BLOCK, last - start)
        for i in range(size):
            out[start + i] = base
            for feature in range(features):
                codes[i * wide + feature] = _code(rows[start + i, feature], edges, feature)
        for block in range(masks.shape[0]):
            for i in range(size):
                _intersect(flat, block * wide * CODES * LANES, codes, i * wide, (i + 1) * wide, bits)
                total, other = np.float32(0.0), np.float32(0.0)
                for lane in range(0, LANES, 2):
                    at = np.uint64((block * LANES + lane) * LEAVES)
                    total += leaf_values[at + _place(bits[lane])]
                    other += leaf_values[at + np.uint64(LEAVES) + _place(bits[lane + 1])]
                out[start + i] += total + other
