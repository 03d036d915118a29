"""Logistic regression of a few numbers, and the functions it is made of."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

_STEPS = 100  # of Newton's method, which needs about ten
_SHRINKS = 40  # halvings of one step


def sigmoid(logits: FloatArray) -> FloatArray:
    chances: FloatArray = np.exp(-np.logaddexp(0.0, -logits))
    return chances


def logit(chances: Any, edge: float) -> FloatArray:
    """ln(p / (1 − p)), of chances that are kept `edge` away from 0 and 1."""
    inner = np.clip(np.asarray(chances, dtype=np.float64), edge, 1 - edge)
    logits: FloatArray = np.log(inner) - np.log1p(-inner)
    return logits


def fit_logistic(columns: FloatArray, targets: FloatArray, start: FloatArray, ridge: float = 0.0) -> FloatArray:
    """(f,) weights of columns (m, f) with the least cross-entropy to targets (m,) within [0, 1], by Newton's method.

    Each step is halved until it helps. `ridge` keeps the weights of columns that say the same finite.
    """
    weights, loss = start, _loss(columns, targets, start, ridge)
    for _ in range(_STEPS):
        chances = sigmoid(columns @ weights)  # (m,)
        gradient = (columns.T @ (chances - targets) + ridge * weights) / len(targets)  # (f,)
        if np.abs(gradient).max() < 1e-12:
            break
        curvature = (columns * (chances * (1 - chances))[:, None]).T @ columns / len(targets)  # (f, f)
        step = np.linalg.solve(curvature + (ridge / len(targets) + 1e-12) * np.eye(len(weights)), gradient)
        for halved in range(_SHRINKS):
            tried = weights - step * 0.5**halved
            new = _loss(columns, targets, tried, ridge)
            if new < loss:
                break
        else:
            break  # no lower within rounding
        weights, loss = tried, new
    return weights


def _loss(columns: FloatArray, targets: FloatArray, weights: FloatArray, ridge: float) -> float:
    margins = columns @ weights  # (m,)
    cost = np.logaddexp(0.0, margins) - targets * margins
    return float(cost.mean() + ridge / 2 * (weights @ weights) / len(targets))
