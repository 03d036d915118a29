"""Calibration: a non-decreasing map from a model's scores to probabilities, fitted on pairs of document and label.

Two ways:

- `isotonic` takes any rising shape. Pairs are pooled until the share of hits rises from block to block (pool adjacent
  violators). Each block then gets one more pair that is a hit at the rate of all pairs, and blocks are pooled again: no
  probability is exactly 0 or 1, and a block of few pairs says less than one of many. Within a block the map rises a
  little, so that labels with different scores rarely get the same probability, as they would with steps: by as much as
  the block's share of hits is uncertain, one standard error to each side, but no further than half the way to the next
  block's. Between blocks it is a straight line, beyond the outermost it is constant.
- `platt` is a sigmoid of a line, with a slope that is never negative. It needs fewer pairs, and is right only where
  the scores err in that shape. Scores that all lie within [0, 1] enter as their logits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import ConfigError, DataError, shown

Method = Literal["isotonic", "platt"]
FloatArray: TypeAlias = NDArray[np.float64]

LEAST_PAIRS = 10
"""Pairs without which nothing is fitted."""

_EDGE = 1e-7  # scores closer to 0 or 1 than this have the logit of this
_STEPS = 100  # of Newton's method, which needs about ten
_SHRINKS = 40  # halvings of one step


def _none() -> FloatArray:
    return np.zeros(0)


@dataclass(frozen=True)
class Calibration:
    """A non-decreasing map from score to probability: straight lines between points, or a sigmoid."""

    method: Method
    points: FloatArray = field(default_factory=_none)  # (b,) isotonic: rising scores
    chances: FloatArray = field(default_factory=_none)  # (b,) isotonic: the probabilities there
    slope: float = 0.0  # platt
    offset: float = 0.0  # platt
    logits: bool = False  # platt: whether scores within [0, 1] enter as their logits

    def apply(self, scores: ArrayLike) -> NDArray[np.float32]:
        """Probabilities of scores of any shape; −∞, the score of a pad, stays."""
        given = np.asarray(scores, dtype=np.float64)
        if np.isnan(given).any():
            raise DataError("a score to calibrate is not a number. Give numbers, and −∞ at pads.")
        real = given > -np.inf
        chances = np.full(given.shape, -np.inf, dtype=np.float32)
        chances[real] = self._lines(given[real]) if self.method == "isotonic" else self._sigmoid(given[real])
        return chances

    def _lines(self, scores: FloatArray) -> FloatArray:
        """Rounded so that a higher score never gets less, which `np.interp` does not promise."""
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
        """What to keep in JSON."""
        if self.method == "isotonic":
            return {"method": self.method}
        return {"method": self.method, "slope": self.slope, "offset": self.offset, "logits": self.logits}

    def arrays(self) -> dict[str, FloatArray]:
        """What to keep as arrays."""
        return {"points": self.points, "chances": self.chances} if self.method == "isotonic" else {}

    @classmethod
    def restored(cls, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Calibration:
        """The calibration that was kept; ValueError, KeyError or TypeError where the parts do not fit."""
        method = values["method"]
        if method == "isotonic":
            points, chances = (np.asarray(arrays[name], dtype=np.float64) for name in ("points", "chances"))
            rising = points.ndim == 1 and len(points) > 0 and (np.diff(points) > 0).all() and np.isfinite(points).all()
            if not rising or chances.shape != points.shape or not (np.diff(chances) >= 0).all():
                raise ValueError("points and chances of a calibration do not rise together")
            if not (chances[0] >= 0 and chances[-1] <= 1):
                raise ValueError("chances of a calibration lie outside [0, 1]")
            return cls("isotonic", points, chances)
        if method != "platt":
            raise ValueError(f"there is no calibration '{shown(method)}'")
        slope, offset, logits = float(values["slope"]), float(values["offset"]), values["logits"]
        if not (math.isfinite(slope) and math.isfinite(offset) and slope >= 0) or not isinstance(logits, bool):
            raise ValueError("slope, offset and logits of a calibration are damaged")
        return cls("platt", slope=slope, offset=offset, logits=logits)


def fit_calibration(method: Method, scores: ArrayLike, hits: ArrayLike) -> Calibration:
    """The calibration that these pairs of document and label ask for: their scores (m,), and which are true (m,)."""
    if method not in get_args(Method):
        raise ConfigError(f"calibration must be one of {', '.join(get_args(Method))}. Got '{shown(method)}'.")
    given, true = np.asarray(scores, dtype=np.float64), np.asarray(hits, dtype=bool)  # (m,) each
    if given.ndim != 1 or given.shape != true.shape:
        raise DataError(f"scores and hits must be two (m,) arrays. Got {given.shape} and {true.shape}.")
    if not (np.abs(given) <= np.finfo(np.float32).max).all():
        raise DataError("a score to calibrate on is infinite or not a number. Leave pads and such labels out.")
    if len(given) < LEAST_PAIRS:
        raise DataError(
            f"{len(given)} scored labels are too few to calibrate on, {LEAST_PAIRS} the least. "
            f"Give more validation documents."
        )
    if not true.any() or true.all():
        which = "all" if true.all() else "none"
        raise DataError(
            f"{which} of the {len(given):,} scored labels are true, which says nothing of probabilities. "
            f"Give more validation documents, or look at more labels of each (k)."
        )
    return _isotonic(given, true) if method == "isotonic" else _platt(given, true)


def _isotonic(scores: FloatArray, true: NDArray[np.bool_]) -> Calibration:
    blocks = isotonic_blocks(scores, true)
    rate = blocks.hits.sum() / blocks.pairs.sum()
    starts = _pooled(blocks.hits + rate, blocks.pairs + 1)  # (b,)
    ends = np.append(starts[1:], len(blocks.hits)) - 1
    pairs = np.add.reduceat(blocks.pairs + 1, starts)
    shares = np.maximum.accumulate(np.add.reduceat(blocks.hits + rate, starts) / pairs)  # rising to the last digit
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
    """Blocks of pairs in which the share of hits rises, (b,) each."""

    lowest: FloatArray  # scores
    highest: FloatArray
    hits: FloatArray
    pairs: FloatArray


def isotonic_blocks(scores: FloatArray, true: NDArray[np.bool_]) -> Blocks:
    """Pairs pooled until the share of hits rises from block to block.

    Pairs of the same score stand together from the start. Counts are whole numbers in float64, so that shares are
    compared exactly.
    """
    distinct, place = np.unique(scores, return_inverse=True)  # (u,), (m,)
    counts = np.bincount(place).astype(np.float64)  # (u,)
    hits = np.bincount(place, weights=true).astype(np.float64)  # (u,)
    starts = _pooled(hits, counts)  # (b,)
    ends = np.append(starts[1:], len(distinct)) - 1
    return Blocks(distinct[starts], distinct[ends], np.add.reduceat(hits, starts), np.add.reduceat(counts, starts))


def _pooled(hits: FloatArray, counts: FloatArray) -> NDArray[np.int64]:
    """Where each block starts once neighbours whose share of hits does not rise are pooled."""
    from scipy.optimize import isotonic_regression  # takes 0.4 s, which those who only apply a calibration save

    starts: NDArray[np.int64] = isotonic_regression(hits / counts, weights=counts).blocks[:-1]  # (b,)
    hits, counts = np.add.reduceat(hits, starts), np.add.reduceat(counts, starts)
    rises = hits[1:] * counts[:-1] > hits[:-1] * counts[1:]  # exact; the quotients of equal shares may differ
    kept: NDArray[np.int64] = starts[np.append(True, rises)]
    return kept


def _platt(scores: FloatArray, true: NDArray[np.bool_]) -> Calibration:
    """Newton's method on the cross-entropy, which is convex; where the best slope is negative, it is 0.

    Targets are Platt's, a little within 0 and 1, so that the slope stays finite where scores part hits from misses.
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


# ---- logistic regression of a few numbers


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
