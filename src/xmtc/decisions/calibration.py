"""Calibration: a non-decreasing map from a model's scores to probabilities, fitted on (document, label) pairs.

Two methods:

- `isotonic` fits any non-decreasing shape. Pairs are pooled until the observed precision increases from block to block
  (pool adjacent violators). Each block is smoothed by one additional pair with the overall precision, and blocks are
  pooled again: no probability is exactly 0 or 1, and small blocks are pulled to the mean. Within a block the map
  increases slightly, so that labels with different scores rarely get the same probability: by one standard error of
  the block's precision to each side, but at most halfway to the neighbouring blocks. Between blocks the map is linear,
  beyond the outermost blocks constant.
- `platt` fits a sigmoid of a linear function with a non-negative slope. It needs fewer pairs, but is accurate only if
  the miscalibration has this shape. If all scores are within [0, 1], their logits are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.errors import ConfigError, DataError, shown

Method = Literal["isotonic", "platt"]
FloatArray: TypeAlias = NDArray[np.float64]

LEAST_PAIRS = 10
"""Minimum number of pairs."""

_EDGE = 1e-7  # scores are clipped to [_EDGE, 1 − _EDGE] before taking logits
_STEPS = 100  # maximum steps of Newton's method, which needs about ten
_SHRINKS = 40  # maximum halvings of one step
_LAST_DECREASE = 1e-13  # a step that lowers the loss by less is the last one: its error is beyond float64


def _none() -> FloatArray:
    return np.zeros(0)


@dataclass(frozen=True)
class Calibration:
    """A non-decreasing map from score to probability: piecewise linear, or a sigmoid."""

    method: Method
    points: FloatArray = field(default_factory=_none)  # (b,) isotonic: ascending scores
    chances: FloatArray = field(default_factory=_none)  # (b,) isotonic: probabilities at these scores
    slope: float = 0.0  # platt
    offset: float = 0.0  # platt
    logits: bool = False  # platt: whether scores are converted to logits

    def apply(self, scores: ArrayLike) -> NDArray[np.float32]:
        """Convert scores of any shape to probabilities; −∞, the score of padding, is unchanged."""
        given = np.asarray(scores, dtype=np.float64)
        if np.isnan(given).any():
            raise DataError("a score to calibrate is NaN. Pass numbers, and −∞ for padding.")
        real = given > -np.inf
        chances = np.full(given.shape, -np.inf, dtype=np.float32)
        chances[real] = self._lines(given[real]) if self.method == "isotonic" else self._sigmoid(given[real])
        return chances

    def _lines(self, scores: FloatArray) -> FloatArray:
        """Interpolate such that rounding never decreases the result for a higher score, unlike `np.interp`."""
        last = len(self.points) - 1
        left = np.clip(np.searchsorted(self.points, scores, side="right") - 1, 0, last)  # (m,)
        right = np.minimum(left + 1, last)
        width = np.where(right > left, self.points[right] - self.points[left], 1.0)
        share = np.clip((scores - self.points[left]) / width, 0.0, 1.0)
        chances = self.chances[left] + share * (self.chances[right] - self.chances[left])
        return np.minimum(chances, self.chances[right])

    def _sigmoid(self, scores: FloatArray) -> FloatArray:
        inputs = logit(scores, _EDGE) if self.logits else np.minimum(scores, np.finfo(np.float32).max)
        return sigmoid(self.slope * inputs + self.offset)

    def values(self) -> dict[str, Any]:
        """Return the values to save as JSON."""
        if self.method == "isotonic":
            return {"method": self.method}
        return {"method": self.method, "slope": self.slope, "offset": self.offset, "logits": self.logits}

    def arrays(self) -> dict[str, FloatArray]:
        """Return the arrays to save."""
        return {"points": self.points, "chances": self.chances} if self.method == "isotonic" else {}

    @classmethod
    def restored(cls, values: Mapping[str, Any], state: SavedState) -> Calibration:
        """Restore a saved calibration; raise ValueError, KeyError or TypeError if it is inconsistent."""
        method = values["method"]
        if method == "isotonic":
            points = state.array("points", np.float64, (None,))
            chances = state.array("chances", np.float64, points.shape)
            if not len(points) or not (np.diff(points) > 0).all() or not (np.diff(chances) >= 0).all():
                raise ValueError("points and probabilities of a calibration are not ascending")
            if not (chances[0] >= 0 and chances[-1] <= 1):
                raise ValueError("probabilities of a calibration are outside [0, 1]")
            return cls("isotonic", points, chances)
        if method != "platt":
            raise ValueError(f"unknown calibration method '{shown(method)}'")
        slope, offset, logits = float(values["slope"]), float(values["offset"]), values["logits"]
        if not (math.isfinite(slope) and math.isfinite(offset) and slope >= 0) or not isinstance(logits, bool):
            raise ValueError("slope, offset or logits of a calibration are invalid")
        return cls("platt", slope=slope, offset=offset, logits=logits)


def fit_calibration(method: Method, scores: ArrayLike, hits: ArrayLike) -> Calibration:
    """Fit a calibration to (document, label) pairs: their scores (m,), and whether each label is true (m,)."""
    if method not in get_args(Method):
        raise ConfigError(f"calibration must be one of {', '.join(get_args(Method))}. Got '{shown(method)}'.")
    given, true = np.asarray(scores, dtype=np.float64), np.asarray(hits, dtype=bool)  # (m,) each
    if given.ndim != 1 or given.shape != true.shape:
        raise DataError(f"scores and hits must be (m,) arrays. Got the shapes {given.shape} and {true.shape}.")
    if not (np.abs(given) <= np.finfo(np.float32).max).all():
        raise DataError("a score to calibrate on is infinite or NaN. Remove padding and labels with such scores.")
    if len(given) < LEAST_PAIRS:
        raise DataError(
            f"{len(given)} scored labels are too few to calibrate; the minimum is {LEAST_PAIRS}. "
            f"Provide more validation documents."
        )
    if not true.any() or true.all():
        which = "all" if true.all() else "none"
        raise DataError(
            f"{which} of the {len(given):,} scored labels are true, so probabilities cannot be estimated. "
            f"Provide more validation documents, or a larger k."
        )
    return _isotonic(given, true) if method == "isotonic" else _platt(given, true)


def _isotonic(scores: FloatArray, true: NDArray[np.bool_]) -> Calibration:
    blocks = isotonic_blocks(scores, true)
    rate = blocks.hits.sum() / blocks.pairs.sum()
    starts = _pooled(blocks.hits + rate, blocks.pairs + 1)  # (b,)
    ends = np.append(starts[1:], len(blocks.hits)) - 1
    pairs = np.add.reduceat(blocks.pairs + 1, starts)
    shares = np.maximum.accumulate(np.add.reduceat(blocks.hits + rate, starts) / pairs)  # ascending despite rounding
    halfway = np.diff(shares, prepend=0.0, append=1.0) / 2  # (b + 1,)
    unsure = np.sqrt(shares * (1 - shares) / pairs)
    edges = np.stack([blocks.lowest[starts], blocks.highest[ends]], axis=1)  # (b, 2)
    chances = np.stack(
        [shares - np.minimum(unsure, halfway[:-1]), shares + np.minimum(unsure, halfway[1:])], axis=1
    )  # (b, 2)
    single = edges[:, 0] == edges[:, 1]
    chances[single, 0] = shares[single]
    used = np.stack([np.ones(len(edges), dtype=bool), ~single], axis=1)
    return Calibration("isotonic", edges[used], np.maximum.accumulate(chances[used]))


class Blocks(NamedTuple):
    """Blocks of pairs with increasing observed precision, (b,) each."""

    lowest: FloatArray  # scores
    highest: FloatArray
    hits: FloatArray
    pairs: FloatArray


def isotonic_blocks(scores: FloatArray, true: NDArray[np.bool_]) -> Blocks:
    """Pool pairs until the observed precision increases from block to block.

    Pairs with the same score start in one block. Counts are integers in float64, so that fractions are compared
    exactly.
    """
    distinct, place = np.unique(scores, return_inverse=True)  # (u,), (m,)
    counts = np.bincount(place).astype(np.float64)  # (u,)
    hits = np.bincount(place, weights=true).astype(np.float64)  # (u,)
    starts = _pooled(hits, counts)  # (b,)
    ends = np.append(starts[1:], len(distinct)) - 1
    return Blocks(distinct[starts], distinct[ends], np.add.reduceat(hits, starts), np.add.reduceat(counts, starts))


def _pooled(hits: FloatArray, counts: FloatArray) -> NDArray[np.int64]:
    """Pool adjacent blocks whose observed precision does not increase; return the start of each block."""
    from scipy.optimize import isotonic_regression  # takes 0.4 s to import, and is not needed to apply a calibration

    starts: NDArray[np.int64] = isotonic_regression(hits / counts, weights=counts).blocks[:-1]  # (b,)
    hits, counts = np.add.reduceat(hits, starts), np.add.reduceat(counts, starts)
    rises = hits[1:] * counts[:-1] > hits[:-1] * counts[1:]  # exact, unlike a comparison of quotients
    kept: NDArray[np.int64] = starts[np.append(True, rises)]
    return kept


def _platt(scores: FloatArray, true: NDArray[np.bool_]) -> Calibration:
    """Minimise the cross-entropy, which is convex, by Newton's method; a negative slope is replaced by 0.

    Platt's targets, slightly inside 0 and 1, keep the slope finite if scores separate hits from misses perfectly.
    """
    logits = bool(scores.min() >= 0 and scores.max() <= 1)
    inputs = logit(scores, _EDGE) if logits else scores  # (m,)
    positive, negative = int(true.sum()), int((~true).sum())
    targets = np.where(true, (positive + 1) / (positive + 2), 1 / (negative + 2))  # (m,)
    centre, spread = float(inputs.mean()), float(inputs.std())
    flat = float(logit(targets.mean(), _EDGE))
    slope = 0.0
    if spread > 1e-12 * max(1.0, abs(centre)):
        columns = np.stack([(inputs - centre) / spread, np.ones(len(inputs))], axis=1)  # (m, 2)
        slope, offset = fit_logistic(columns, targets, np.array([0.0, flat])).tolist()
    if slope <= 0:
        return Calibration("platt", offset=flat, logits=logits)
    return Calibration("platt", slope=slope / spread, offset=offset - slope * centre / spread, logits=logits)


# ---- logistic regression with a few features


def sigmoid(logits: FloatArray) -> FloatArray:
    """Compute 1 / (1 + e^−x) without overflow."""
    small = np.exp(-np.abs(logits))  # in (0, 1]; np.exp is vectorised, unlike np.logaddexp
    chances: FloatArray = np.where(logits >= 0, 1.0, small) / (1.0 + small)
    return chances


def logit(chances: Any, edge: float) -> FloatArray:
    """Compute ln(p / (1 − p)) of probabilities clipped to [edge, 1 − edge]."""
    inner = np.clip(np.asarray(chances, dtype=np.float64), edge, 1 - edge)
    logits: FloatArray = np.log(inner) - np.log1p(-inner)
    return logits


def fit_logistic(
    columns: FloatArray, targets: FloatArray, start: FloatArray, ridge: float | FloatArray = 0.0
) -> FloatArray:
    """Fit weights (f,) of columns (m, f) to targets (m,) within [0, 1]: minimal cross-entropy, by Newton's method.

    Each step is halved until the loss decreases. `ridge`, one number or (f,), keeps the weights of collinear columns
    finite.
    """
    weights, margins = start, columns @ start  # (f,), (m,)
    loss = _loss(margins, targets, weights, ridge)
    for _ in range(_STEPS):
        chances = sigmoid(margins)  # (m,)
        gradient = (columns.T @ (chances - targets) + ridge * weights) / len(targets)  # (f,)
        curvature = (columns * (chances * (1 - chances))[:, None]).T @ columns / len(targets)  # (f, f)
        step = np.linalg.solve(curvature + (ridge / len(targets) + 1e-12) * np.eye(len(weights)), gradient)
        if gradient @ step < _LAST_DECREASE:
            return np.asarray(weights - step)
        change = columns @ step
        for halved in range(_SHRINKS):
            tried, moved = weights - step * 0.5**halved, margins - change * 0.5**halved
            new = _loss(moved, targets, tried, ridge)
            if new < loss:
                break
        else:
            break  # converged up to rounding
        weights, margins, loss = tried, moved, new
    return weights


def _loss(margins: FloatArray, targets: FloatArray, weights: FloatArray, ridge: float | FloatArray) -> float:
    cost = np.maximum(margins, 0.0) + np.log(1.0 + np.exp(-np.abs(margins))) - targets * margins
    return float(cost.mean() + (ridge * weights) @ weights / 2 / len(targets))
