"""Several answers to the same documents made one: noisy-or, average, or weights learnt on validation documents.

Answers are combined over the union of their labels. A label that an answer lacks has chance 0 there, and learnt
weights know of each such gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.errors import DataError
from xmtc.jit import kernel

Labels = NDArray[np.int64]
Chances = NDArray[np.float64]
Answer = tuple[Labels, NDArray[np.float32]]
"""(n, k) labels, −1 as pads, and their chances."""

EDGE = 1e-4
"""Chances count as at least this much, and as at most 1 less this much, where their logits are taken."""
FIRST = 10
"""Labels of each answer that weights are learnt from."""
_RIDGE = 1e-3  # keeps the weights of a feature that never varies finite
_STEPS = 100


@dataclass(frozen=True)
class Gathered:
    """What several answers say of the same labels."""

    labels: Labels  # (n, u) −1 as pads
    chances: Chances  # (m, n, u) 0 where an answer lacks the label
    held: NDArray[np.bool_]  # (m, n, u) whether it has it


def union(answers: Sequence[Answer]) -> Labels:
    """(n, u) the labels of all answers, each once, in rising order, −1 as pads."""
    return _union(np.concatenate([labels for labels, _ in answers], axis=1))


@kernel()
def _union(labels: Labels) -> Labels:
    found = np.full(labels.shape, -1, np.int64)
    widest = 0
    for row in range(labels.shape[0]):
        ordered = np.sort(labels[row])
        count = 0
        for i in range(len(ordered)):
            if ordered[i] >= 0 and (i == 0 or ordered[i] != ordered[i - 1]):
                found[row, count] = ordered[i]
                count += 1
        widest = max(widest, count)
    return found[:, :widest].copy()


def gather(answers: Sequence[Answer], labels: Labels) -> Gathered:
    """What each answer says of given labels (n, u)."""
    shape = (len(answers), *labels.shape)
    chances, held = np.zeros(shape), np.zeros(shape, dtype=bool)
    for place, (found, given) in enumerate(answers):
        order = np.argsort(found, axis=1, kind="stable")
        ranks = _places(np.take_along_axis(found, order, axis=1), labels)
        held[place] = ranks >= 0
        sorted_chances = np.take_along_axis(given, order, axis=1).astype(np.float64)
        if sorted_chances.shape[1]:
            chances[place] = np.where(held[place], np.take_along_axis(sorted_chances, np.maximum(ranks, 0), axis=1), 0)
    return Gathered(labels, chances, held)


@kernel()
def _places(found: Labels, wanted: Labels) -> Labels:
    """(n, u) where each wanted label stands in its row of rising labels; −1 where it does not, and for pads."""
    places = np.full(wanted.shape, -1, np.int64)
    for row in range(wanted.shape[0]):
        for column in range(wanted.shape[1]):
            label = wanted[row, column]
            at = np.searchsorted(found[row], label)
            if label >= 0 and at < found.shape[1] and found[row, at] == label:
                places[row, column] = at
    return places


def noisy_or(chances: Chances) -> Chances:
    """(n, u) the chance that one answer at least is right, were each right or wrong by itself: 1 − Π(1 − p)."""
    combined: Chances = 1 - np.prod(1 - chances, axis=0)
    return combined


def average(chances: Chances, weights: Sequence[float] = ()) -> Chances:
    """(n, u) the mean of the answers' chances, or the weighted one."""
    given = np.array(weights or np.ones(len(chances)))
    combined: Chances = (np.reshape(given / given.sum(), (-1, 1, 1)) * chances).sum(axis=0)
    return combined


def shares(chances: Chances, combine: str, weights: Sequence[float] = ()) -> Chances:
    """(m, n, u) how much each answer has to do with the noisy-or or the average."""
    if combine == "average":
        told: Chances = chances * np.reshape(weights or np.ones(len(chances)), (-1, 1, 1))
        return told
    return -np.log1p(-np.minimum(chances, 1 - 1e-12))  # the logarithms add up to that of 1 less the noisy-or


@dataclass(frozen=True)
class Learnt:
    """Logistic regression on what the answers say: the logits of their chances, and which of them lack the label.

    The frequency of a label in training has a weight too: answers of different kinds are too sure of frequent labels,
    or of rare ones, to different degrees.
    """

    weights: NDArray[np.float64]  # (2 + 2m,): of one, of the frequency, of each logit, of each gap

    def __call__(self, gathered: Gathered, frequency: NDArray[np.float64]) -> Chances:
        """(n, u) chances; `frequency` (n, u) is the logarithm of one more than the documents of each label."""
        margins = np.zeros(gathered.labels.shape)
        for weight, column in zip(self.weights, _columns(gathered, frequency), strict=True):
            margins += weight * column
        chances: Chances = np.exp(-np.logaddexp(0.0, -margins))
        return chances

    def shares(self, gathered: Gathered) -> Chances:
        """(m, n, u) what each answer adds to the margin, beyond what it would add if it lacked the label."""
        slopes, gaps = self.weights[2:].reshape(2, -1, 1, 1)
        return np.where(gathered.held, slopes * _logit(gathered.chances) - gaps, 0.0)

    def values(self) -> dict[str, Any]:
        """What to keep in JSON."""
        return {"weights": self.weights.tolist()}

    @classmethod
    def restored(cls, values: Mapping[str, Any], answers: int) -> Learnt:
        """What was kept; ValueError, KeyError or TypeError where it does not fit so many answers."""
        weights = np.array(values["weights"], dtype=np.float64)
        if weights.shape != (2 + 2 * answers,) or not np.isfinite(weights).all():
            raise ValueError("learnt weights are damaged")
        return cls(weights)


def learn(answers: Sequence[Answer], gathered: Gathered, frequency: Chances, hits: NDArray[np.bool_]) -> Learnt:
    """The weights that give the hits (n, u) among the gathered labels the best likelihood.

    Only labels among the first few of an answer count: all others are told apart easily, and would outvote them.
    """
    first = gather([(labels[:, :FIRST], chances[:, :FIRST]) for labels, chances in answers], gathered.labels)
    near = first.held.any(axis=0)
    if not hits[near].any() or hits[near].all():
        raise DataError("weights are learnt from labels that are true and others that are not. Give more documents.")
    columns = np.stack([column[near] for column in _columns(gathered, frequency)], axis=1)  # (pairs, 2 + 2m)
    return Learnt(_logistic(columns, hits[near].astype(np.float64)))


def _columns(gathered: Gathered, frequency: Chances) -> list[Chances]:
    """(n, u) each, in the order of the weights."""
    logits = np.where(gathered.held, _logit(gathered.chances), 0.0)
    return [np.ones(gathered.labels.shape), frequency, *logits, *(~gathered.held).astype(np.float64)]


def _logit(chances: Chances) -> Chances:
    inner = np.clip(chances, EDGE, 1 - EDGE)
    logits: Chances = np.log(inner) - np.log1p(-inner)
    return logits


def _logistic(columns: NDArray[np.float64], hits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Newton's method with steps that are halved until they help."""
    weights = np.zeros(columns.shape[1])
    loss = _loss(columns, hits, weights)
    for _ in range(_STEPS):
        chances = np.exp(-np.logaddexp(0.0, -(columns @ weights)))
        gradient = columns.T @ (chances - hits) + _RIDGE * weights
        curvature = (columns * (chances * (1 - chances))[:, None]).T @ columns + _RIDGE * np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        for halved in range(30):
            tried = weights - step * 0.5**halved
            new = _loss(columns, hits, tried)
            if new < loss:
                break
        else:
            break  # no lower within rounding
        gain, weights, loss = loss - new, tried, new
        if gain < 1e-10 * len(hits):
            break
    return weights


def _loss(columns: NDArray[np.float64], hits: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    margins = columns @ weights
    return float((np.logaddexp(0.0, margins) - hits * margins).sum() + _RIDGE / 2 * (weights @ weights))
