"""Vectorised kernels for sixteen classifiers at a time: their weights for one feature fill one cache line.

They are written as LLVM vectors because loops over sixteen values compile to code that is several times slower. Weights
are passed as flat arrays; row r of a block starts at `offset + r · stride`. Sums are fused multiply-adds in the order
of the rows, so that the same rows always give bit-identical sums. Weights may be 16-bit floats, passed as uint16.
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

LANES = 16
"""Classifiers per vector."""

cgutils: Any = untyped  # numba's code generation is untyped

_FLOAT, _HALF, _WORD, _WIDE = ir.FloatType(), ir.HalfType(), ir.IntType(32), ir.IntType(64)


def aligned_zeros(rows: int) -> NDArray[np.float32]:
    """(rows · LANES,) zeros aligned to a cache line."""
    buffer = np.zeros(rows * LANES + LANES, np.float32)
    first = (-buffer.ctypes.data) % 64 // 4
    return buffer[first : first + rows * LANES]


def _data(context: Any, builder: Any, signature: Any, arguments: Any, place: int) -> Any:
    return context.make_array(signature.args[place])(context, builder, arguments[place]).data


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    kind = ir.VectorType(_FLOAT, lanes)
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_WORD, 0))
    every = ir.Constant(ir.VectorType(_WORD, lanes), [0] * lanes)
    return builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), every)


def _load(builder: Any, pointer: Any, lanes: int) -> Any:
    """Load a vector of floats from a pointer to floats, or to 16-bit floats stored as integers."""
    is_half = pointer.type.pointee == ir.IntType(16)
    kind = ir.VectorType(_HALF if is_half else _FLOAT, lanes)
    loaded = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    loaded.align = 2 if is_half else 4
    return builder.fpext(loaded, ir.VectorType(_FLOAT, lanes)) if is_half else loaded


def _store(builder: Any, vector: Any, pointer: Any) -> None:
    stored = builder.store(vector, builder.bitcast(pointer, vector.type.as_pointer()))
    stored.align = 4


def _fused(builder: Any, lanes: int) -> Any:
    kind = ir.VectorType(_FLOAT, lanes)
    return cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind, kind, kind]), f"llvm.fma.v{lanes}f32"
    )


def _row(builder: Any, rows: Any, at: Any, offset: Any, stride: Any) -> Any:
    row = builder.sext(builder.load(builder.gep(rows, [at])), _WIDE)
    return builder.add(offset, builder.mul(row, stride))


def _dot(lanes: int, chains: int) -> Any:
    """sums[at : at + lanes] += Σ values[p] · weights[row of rows[p]], first ≤ p < last.

    With two chains, even and odd places are summed separately, so that additions do not wait for each other.
    """

    def dot(
        _: Any,
        rows: Any,
        values: Any,
        first: Any,
        last: Any,
        weights: Any,
        offset: Any,
        stride: Any,
        sums: Any,
        at: Any,
    ) -> Any:
        signature = types.void(
            rows, values, types.int64, types.int64, weights, types.int64, types.int64, sums, types.int64
        )

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            row_data, value_data, weight_data, sum_data = (
                _data(context, builder, signature, arguments, place) for place in (0, 1, 4, 7)
            )
            first, last, offset, stride, at = (arguments[place] for place in (2, 3, 5, 6, 8))
            kind, fused = ir.VectorType(_FLOAT, lanes), _fused(builder, lanes)
            target = builder.gep(sum_data, [at])
            totals = [cgutils.alloca_once(builder, kind) for _ in range(chains)]
            builder.store(_load(builder, target, lanes), totals[0])
            for total in totals[1:]:
                builder.store(ir.Constant(kind, [0.0] * lanes), total)

            def step(place: Any, total: Any) -> None:
                weight = _load(
                    builder, builder.gep(weight_data, [_row(builder, row_data, place, offset, stride)]), lanes
                )
                value = _splat(builder, builder.load(builder.gep(value_data, [place])), lanes)
                builder.store(builder.call(fused, [value, weight, builder.load(total)]), total)

            count = builder.sub(last, first)
            rounds = builder.udiv(count, ir.Constant(_WIDE, chains))
            with cgutils.for_range(builder, rounds) as loop:
                place = builder.add(first, builder.mul(loop.index, ir.Constant(_WIDE, chains)))
                for chain, total in enumerate(totals):
                    step(builder.add(place, ir.Constant(_WIDE, chain)), total)
            rest = builder.add(first, builder.mul(rounds, ir.Constant(_WIDE, chains)))
            with cgutils.for_range(builder, builder.sub(last, rest)) as loop:
                step(builder.add(rest, loop.index), totals[0])
            whole = builder.load(totals[0])
            for total in totals[1:]:
                whole = builder.fadd(whole, builder.load(total))
            _store(builder, whole, target)
            return context.get_dummy_value()

        return signature, generate

    return intrinsic(dot)


add_dot = _dot(LANES, chains=2)
add_wide_dot = _dot(4 * LANES, chains=1)
add_narrow_dot = _dot(LANES, chains=1)  # a quarter of the wide one, bit-identical


def _add_rows(_: Any, rows: Any, values: Any, first: Any, last: Any, steps: Any, weights: Any) -> Any:
    """weights[rows[p]] += values[p] · steps for one block of LANES, first ≤ p < last."""
    signature = types.void(rows, values, types.int64, types.int64, steps, weights)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row_data, value_data, step_data, weight_data = (
            _data(context, builder, signature, arguments, place) for place in (0, 1, 4, 5)
        )
        first, last = arguments[2], arguments[3]
        zero, stride = ir.Constant(_WIDE, 0), ir.Constant(_WIDE, LANES)
        fused, steps = _fused(builder, LANES), _load(builder, step_data, LANES)
        with cgutils.for_range(builder, builder.sub(last, first)) as loop:
            place = builder.add(first, loop.index)
            pointer = builder.gep(weight_data, [_row(builder, row_data, place, zero, stride)])
            value = _splat(builder, builder.load(builder.gep(value_data, [place])), LANES)
            _store(builder, builder.call(fused, [value, steps, _load(builder, pointer, LANES)]), pointer)
        return context.get_dummy_value()

    return signature, generate


add_rows: Any = intrinsic(_add_rows)


def _widened(_: Any, value: Any) -> Any:
    """A weight as float32: unchanged, or converted from the 16-bit float stored in a uint16."""
    signature = types.float32(value)

    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if signature.args[0] == types.uint16:
            return builder.fpext(builder.bitcast(arguments[0], _HALF), _FLOAT)
        return arguments[0]

    return signature, generate


widened: Any = intrinsic(_widened)


def _checked_dot(dot: Any, lanes: int) -> Any:
    def call(
        rows: Any, values: Any, first: Any, last: Any, weights: Any, offset: Any, stride: Any, sums: Any, at: Any
    ) -> None:
        if first < 0 or last > len(rows) or last > len(values) or at < 0 or at + lanes > sums.size:
            raise IndexError("vector code beyond an array")
        for place in range(first, last):
            start = offset + rows[place] * stride
            if start < 0 or start + lanes > weights.size:
                raise IndexError("vector code beyond the weights")
        dot(rows, values, first, last, weights, offset, stride, sums, at)

    return numba.njit(call)


def _checked_rows(add: Any) -> Any:
    def call(rows: Any, values: Any, first: Any, last: Any, steps: Any, weights: Any) -> None:
        if first < 0 or last > len(rows) or last > len(values) or steps.size < LANES:
            raise IndexError("vector code beyond an array")
        for place in range(first, last):
            if rows[place] < 0 or (rows[place] + 1) * LANES > weights.size:
                raise IndexError("vector code beyond the weights")
        add(rows, values, first, last, steps, weights)

    return numba.njit(call)


if getattr(numba.config, "BOUNDSCHECK", None):  # numba's own checks do not cover vector code
    add_dot, add_narrow_dot = _checked_dot(add_dot, LANES), _checked_dot(add_narrow_dot, LANES)
    add_wide_dot, add_rows = _checked_dot(add_wide_dot, 4 * LANES), _checked_rows(add_rows)
