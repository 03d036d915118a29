"""L2-regularised linear classifiers by dual coordinate descent, sixteen labels at once.

Squared hinge: min_w ½‖w‖² + Σ C max(0, 1 − y w·x)²; logistic: min_w ½‖w‖² + Σ C ln(1 + e^(−y w·x)). Each document may
have its own C. A constant feature of value 1 is the bias, regularised with the rest.

The sixteen labels share the pass over a document's features. A document whose gradients are all within the tolerance
is not updated, and with the squared hinge it is skipped in the next passes, longer each time. Almost all documents are
far from almost all labels, so most of the visits would find nothing to update. A pass without an update is followed by
one over all documents, and training ends if that finds nothing to update either. Memory per thread is one block of
weights and one of dual variables.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import inlined, kernel
from xmtc.linear.simd import LANES, add_dot, add_rows, aligned_zeros

MOST_PATIENCE = 4
"""Largest factor by which the time between two visits of a document grows while it needs no update."""


def solve(
    indptr: NDArray[np.int64],
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    width: int,
    squares: NDArray[np.float32],
    signs: NDArray[np.int8],
    *,
    loss: str,
    cost: float,
    tolerance: float,
    passes: int,
    seed: int,
    start: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None,
    known: NDArray[np.bool_] | None = None,
    importance: NDArray[np.float32] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(width, LANES) weights and (LANES,) biases.

    `start` has flat weights and biases learnt from other rows; they are modified in place. The dual variables of those
    rows stay fixed, and the result is optimal given them. `known` (n,) marks rows that were among them; their dual
    variables follow from the start.

    `squares` has ‖x‖² + 1 of each row; `signs` (n, LANES) is 1 if a row has the label, −1 if it has not, and 0 if this
    is unknown: the row then has no influence on the label, and its dual variable starts at its optimum. The tolerance
    bounds the gradients of the dual problem; 0.1 ranks as well as smaller values. `importance` (n,) > 0 multiplies the
    cost of each row: a row of importance 2 counts as two equal rows.
    """
    weights, bias = (aligned_zeros(width), np.zeros(LANES, np.float32)) if start is None else start
    if known is None:
        known = np.zeros(len(squares), dtype=np.bool_)
    costs = np.full(len(squares), cost) if importance is None else cost * importance.astype(np.float64)
    problem = indptr, features, values, squares, signs, known, weights, bias, costs, tolerance, passes, seed, LANES
    if loss == "squared_hinge":
        # A document that never needs an update is visited in the first pass and in the one numbered √passes.
        _squared_hinge(*problem, min(max(math.isqrt(passes), 2), MOST_PATIENCE))
    else:
        _logistic(*problem)
    return weights.reshape(width, LANES), bias


@kernel()
def row_squares(indptr: NDArray[np.int64], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """‖x‖² + 1 of each row; the 1 is the bias feature."""
    out = np.ones(len(indptr) - 1, np.float32)
    for row in range(len(out)):
        for i in range(indptr[row], indptr[row + 1]):
            out[row] += values[i] * values[i]
    return out


@inlined
def _shuffle(order: Any, count: int, state: Any) -> Any:
    """Shuffle the first `count` entries by xorshift; returns the new state."""
    for i in range(count - 1, 0, -1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = np.int64((state >> np.uint64(33)) % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return state


@kernel(outputs=("weights", "bias"), fastmath={"reassoc", "contract", "arcp", "nsz"})
def _squared_hinge(
    indptr: NDArray[np.int64],
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    squares: NDArray[np.float32],
    signs: NDArray[np.int8],
    known: NDArray[np.bool_],
    weights: NDArray[np.float32],
    bias: NDArray[np.float32],
    costs: NDArray[np.float64],
    tolerance: float,
    passes: int,
    seed: int,
    width: int,
    patience: int,
) -> None:
    rows = len(indptr) - 1
    alpha = np.zeros((rows, width), np.float32)
    margins, steps = np.empty(width, np.float32), np.empty(width, np.float32)
    diagonals = (0.5 / costs).astype(np.float32)
    near = np.float32(tolerance)
    zero, one = np.float32(0.0), np.float32(1.0)
    order = np.empty(rows, np.int64)
    due, wait = np.zeros(rows, np.int32), np.ones(rows, np.int32)
    for row in range(rows):
        diagonal = diagonals[row]
        for lane in range(width):
            if signs[row, lane] == 0:
                alpha[row, lane] = one / diagonal
        if known[row]:  # at the optimum, α = 2C max(0, 1 − y w·x), until other rows have moved
            due[row] = 1
            for lane in range(width):
                margins[lane] = bias[lane]
            add_dot(features, values, indptr[row], indptr[row + 1], weights, 0, width, margins, 0)
            for lane in range(width):
                alpha[row, lane] = max(one - np.float32(signs[row, lane]) * margins[lane], zero) / diagonal
    state = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    is_done = False
    for turn in range(passes):
        active, is_last = 0, is_done
        for row in range(rows):
            order[active] = row
            active += is_last or due[row] <= turn
        state = _shuffle(order, active, state)
        is_done = True
        for at in range(active):
            row = order[at]
            first, last = indptr[row], indptr[row + 1]
            for lane in range(width):
                margins[lane] = bias[lane]
            add_dot(features, values, first, last, weights, 0, width, margins, 0)
            diagonal = diagonals[row]
            inverse = one / (squares[row] + diagonal)
            worst = zero
            for lane in range(width):
                before = alpha[row, lane]
                gradient = np.float32(signs[row, lane]) * margins[lane] - one + before * diagonal
                worst = max(worst, abs(min(gradient, zero) if before == zero else gradient))
                steps[lane] = max(before - gradient * inverse, zero) - before
            if worst > near:
                is_done = False
                wait[row] = 1
                for lane in range(width):
                    alpha[row, lane] += steps[lane]
                    steps[lane] *= np.float32(signs[row, lane])
                    bias[lane] += steps[lane]
                add_rows(features, values, first, last, steps, weights)
            else:
                wait[row] = min(wait[row] * patience, patience * patience)
            due[row] = turn + wait[row]
        if is_done and is_last:
            break


@inlined
def _logistic_point(point: Any, margin: Any, square: Any, cost: Any, rounds: Any) -> Any:
    """Solve square · (C σ(t) − C σ(point)) + margin + t = 0 for t, slope ≥ 1, by bracketed Newton iteration."""
    held = cost / (1.0 + np.exp(-point))
    low, high = -margin - square * (cost - held), -margin + square * held
    t = min(max(point, low), high)
    for _ in range(rounds):
        share = 1.0 / (1.0 + np.exp(-t))
        value = square * (cost * share - held) + margin + t
        if value > 0.0:
            high = t
        else:
            low = t
        following = t - value / (1.0 + square * cost * share * (1.0 - share))
        following = following if low <= following <= high else 0.5 * (low + high)
        if abs(following - t) < 1e-6:
            t = following
            break
        t = following
    return t


@kernel(outputs=("weights", "bias"))
def _logistic(
    indptr: NDArray[np.int64],
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    squares: NDArray[np.float32],
    signs: NDArray[np.int8],
    known: NDArray[np.bool_],
    weights: NDArray[np.float32],
    bias: NDArray[np.float32],
    costs: NDArray[np.float64],
    tolerance: float,
    passes: int,
    seed: int,
    width: int,
) -> None:
    """The dual variable of a document is C σ(point), strictly between 0 and C; it starts close to 0."""
    rows = len(indptr) - 1
    points = np.full((rows, width), np.float32(-20.0))
    margins, steps = np.empty(width, np.float32), np.empty(width, np.float32)
    order = np.arange(rows)
    for row in range(rows):
        for lane in range(width):
            if signs[row, lane] == 0:
                points[row, lane] = np.float32(0.0)
        if known[row]:  # at the optimum, t = −y w·x
            for lane in range(width):
                margins[lane] = bias[lane]
            add_dot(features, values, indptr[row], indptr[row + 1], weights, 0, width, margins, 0)
            for lane in range(width):
                points[row, lane] = -np.float32(signs[row, lane]) * margins[lane]
    state = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    for _ in range(passes):
        state = _shuffle(order, rows, state)
        is_done = True
        for at in range(rows):
            row = order[at]
            first, last = indptr[row], indptr[row + 1]
            for lane in range(width):
                margins[lane] = bias[lane]
            add_dot(features, values, first, last, weights, 0, width, margins, 0)
            worst = np.float32(0.0)
            for lane in range(width):
                margins[lane] *= signs[row, lane]
                worst = max(worst, abs(margins[lane] + points[row, lane]))
            if worst <= tolerance:
                continue
            is_done = False
            cost = costs[row]
            for lane in range(width):
                before = points[row, lane]
                point = _logistic_point(before, margins[lane], squares[row], cost, 20)
                change = cost / (1.0 + np.exp(-point)) - cost / (1.0 + np.exp(-np.float64(before)))
                points[row, lane] = point
                steps[lane] = signs[row, lane] * change
                bias[lane] += steps[lane]
            add_rows(features, values, first, last, steps, weights)
        if is_done:
            break
