"""Planted binary problems, a reference call of the solver, and a bound on how far a solution is from the optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.data.dataset import Csr
from xmtc.linear.simd import LANES
from xmtc.linear.solver import row_squares, solve

Floats = NDArray[Any]


Signs = NDArray[np.int8]


CLOSE = {"tolerance": 1e-3, "passes": 5000}


def planted_signs(rows: Csr, labels: int, seed: int, noise: float = 0.1) -> Signs:
    """(n, labels) 1 or −1: half-spaces of all sizes, and some of the signs turned round."""
    chance = np.random.default_rng(seed)
    margins = rows @ chance.normal(size=(rows.shape[1], labels)) - chance.uniform(-0.5, 2.0, labels)
    signs = np.where(margins > 0, 1, -1)
    return np.where(chance.random(signs.shape) < noise, -signs, signs).astype(np.int8)


def solved(rows: Csr, signs: Signs, loss: str, cost: float, seed: int = 0, **more: Any) -> Floats:
    """(D + 1, labels) weights, block after block; the bias is the last of a label."""
    indptr, features = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    squares = row_squares(indptr, rows.data)
    blocks = []
    for first in range(0, signs.shape[1], LANES):
        block = np.full((len(signs), LANES), -1, dtype=np.int8)
        part = signs[:, first : first + LANES]
        block[:, : part.shape[1]] = part
        weights, bias = solve(
            indptr,
            features,
            rows.data,
            rows.shape[1],
            squares,
            block,
            loss=loss,
            cost=cost,
            seed=seed,
            **{**CLOSE, **more},
        )
        assert weights.shape == (rows.shape[1], LANES)
        blocks.append(np.vstack([weights, bias])[:, : part.shape[1]])
    return np.hstack(blocks).astype(np.float64)


def with_ones(rows: Csr) -> Csr:
    return sp.csr_array(sp.hstack([rows, np.ones((rows.shape[0], 1))], format="csr"), dtype=np.float64)


def objective(rows: Csr, signs: Signs, weights: Floats, loss: str, cost: float) -> Floats:
    """(labels,) what the solver minimises, the bias being a weight like any other."""
    margins = signs * (with_ones(rows) @ weights)
    losses = np.maximum(0, 1 - margins) ** 2 if loss == "squared_hinge" else np.logaddexp(0, -margins)
    return np.asarray(0.5 * (weights**2).sum(axis=0) + cost * losses.sum(axis=0))


def above_the_optimum(rows: Csr, signs: Signs, weights: Floats, loss: str, cost: float) -> Floats:
    """(labels,) the objective is at most this share above its minimum: f − min f ≤ ½‖∇f‖², for f is ½‖w‖² and more."""
    inputs = with_ones(rows)
    margins = signs * (inputs @ weights)
    slopes = -2 * np.maximum(0, 1 - margins) if loss == "squared_hinge" else -1 / (1 + np.exp(margins))
    gradient = weights + cost * (inputs.T @ (signs * slopes))
    return np.asarray(0.5 * (gradient**2).sum(axis=0) / objective(rows, signs, weights, loss, cost))
