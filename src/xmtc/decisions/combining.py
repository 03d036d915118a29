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

from xmtc.core.errors import DataError
from xmtc.core.jit import kernel
from xmtc.decisions.calibration import fit_logistic, logit, sigmoid

Labels = NDArray[np.int64]
Chances = NDArray[np.float64]
Answer = tuple[Labels, NDArray[np.float32]]
"""(n, k) labels, −1 as pads, and their chances."""

EDGE = 1e-4
"""Chances count as at least this much, and as at most 1 less this much, where their logits are taken."""
FIRST = 10
"""Labels of each answer that weights are learnt from."""
LEAST_PAIRS = 10
"""True labels, and wrong ones, without which no weights are learnt."""
_RIDGE = 1e-3  # keeps the weights of a feature that never varies finite


@dataclass(frozen=True)
class Gathered:
    """What several answers say of the same labels."""

    labels: Labels  # (n, u) −1 as pads
    chances: NDArray[np.float32]  # (m, n, u) 0 where an answer lacks the label
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
    chances, held = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=bool)
    for place, (found, given) in enumerate(answers):
        order = np.argsort(found, axis=1, kind="stable")
        ranks = _places(np.take_along_axis(found, order, axis=1), labels)
        held[place] = ranks >= 0
        if found.shape[1]:
            rising = np.take_along_axis(given, order, axis=1)
            chances[place] = np.where(held[place], np.take_along_axis(rising, np.maximum(ranks, 0), axis=1), 0)
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


def noisy_or(chances: NDArray[np.float32]) -> Chances:
    """(n, u) the chance that one answer at least is right, were each right or wrong by itself: 1 − Π(1 − p)."""
    wrong = np.ones(chances.shape[1:])
    for each in chances:
        wrong *= 1 - each.astype(np.float64)
    return 1 - wrong


def average(chances: NDArray[np.float32], weights: Sequence[float] = ()) -> Chances:
    """(n, u) the mean of the answers' chances, or the weighted one."""
    given = np.array(weights or np.ones(len(chances)))
    combined = np.zeros(chances.shape[1:])
    for weight, each in zip(given / given.sum(), chances, strict=True):
        combined += weight * each
    return combined


def shares(chances: NDArray[np.float32], combine: str, weights: Sequence[float] = ()) -> Chances:
    """(m, n, u) how much each answer has to do with the noisy-or or the average."""
    given = chances.astype(np.float64)
    if combine == "average":
        weighted: Chances = given * np.reshape(weights or np.ones(len(chances)), (-1, 1, 1))
        return weighted
    return -np.log1p(-np.minimum(given, 1 - 1e-12))  # the logarithms add up to that of 1 less the noisy-or


@dataclass(frozen=True)
class Learnt:
    """Logistic regression on what the answers say: the logits of their chances, which of them lack the label, and the
    logit of their noisy-or, by which a label that several are fairly sure of outdoes their sum.

    The frequency of a label in training has a weight too: answers of different kinds are too sure of frequent labels,
    or of rare ones, to different degrees.
    """

    weights: NDArray[np.float64]  # (3 + 2m,): of one, of the frequency, of the noisy-or, of each logit, of each gap

    def __call__(self, gathered: Gathered, frequency: Chances) -> Chances:
        """(n, u) chances, 0 where no answer has the label.

        `frequency` (n, u) is the logarithm of one more than the training documents of each label.
        """
        return np.where(gathered.held.any(axis=0), sigmoid(self._margins(gathered, frequency)), 0.0)

    def _margins(self, gathered: Gathered, frequency: Chances) -> Chances:
        one, frequent, noisy = self.weights[:3]
        slopes, gaps = self.weights[3:].reshape(2, -1)
        margins: Chances = one + frequent * frequency + noisy * logit(noisy_or(gathered.chances), EDGE)
        for slope, gap, held, chances in zip(slopes, gaps, gathered.held, gathered.chances, strict=True):
            margins += np.where(held, slope * logit(chances, EDGE), gap)
        return margins

    def shares(self, gathered: Gathered) -> Chances:
        """(m, n, u) what each answer adds to the margin, beyond what would be there if it lacked the label."""
        nothing = np.zeros(gathered.labels.shape)
        whole = self._margins(gathered, nothing)
        added = []
        for place in range(len(gathered.held)):
            others = np.arange(len(gathered.held)) != place
            keep = others[:, None, None]
            without = Gathered(gathered.labels, gathered.chances * keep, gathered.held & keep)
            added.append(whole - self._margins(without, nothing))
        return np.stack(added)

    def values(self) -> dict[str, Any]:
        """What to keep in JSON."""
        return {"weights": self.weights.tolist()}

    @classmethod
    def restored(cls, values: Mapping[str, Any], answers: int) -> Learnt:
        """What was kept; ValueError, KeyError or TypeError where it does not fit so many answers."""
        weights = np.array(values["weights"], dtype=np.float64)
        if weights.shape != (3 + 2 * answers,) or not np.isfinite(weights).all():
            raise ValueError("learnt weights are damaged")
        return cls(weights)


def design_matrix(gathered: Gathered, frequency: Chances) -> Chances:
    """(pairs, 3 + 2m) what weights are learnt from: a row for each label that is gathered, in the order of weights."""
    filled = gathered.labels >= 0
    logits = [
        np.where(held, logit(each, EDGE), 0.0) for held, each in zip(gathered.held, gathered.chances, strict=True)
    ]
    noisy = logit(noisy_or(gathered.chances), EDGE)
    columns = [np.ones(filled.shape), frequency, noisy, *logits, *(~gathered.held).astype(np.float64)]
    return np.stack([column[filled] for column in columns], axis=1)


def learn(rows: Chances, hits: NDArray[np.bool_]) -> Learnt:
    """The weights that give the hits (pairs,) the best likelihood, none of them against an answer that is surer."""
    if (rare := min(int(hits.sum()), int((~hits).sum()))) < LEAST_PAIRS:
        which = "true" if hits.mean() < 0.5 else "wrong"
        raise DataError(
            f"{rare} {which} labels among the best are too few to learn weights from, {LEAST_PAIRS} the least. "
            "Give more documents, or set combine=noisy-or."
        )
    opinions = slice(2, 3 + (rows.shape[1] - 3) // 2)  # the noisy-or and the logits
    used = np.ones(rows.shape[1], dtype=bool)
    while True:
        weights = np.zeros(rows.shape[1])
        weights[used] = fit_logistic(rows[:, used], hits.astype(np.float64), np.zeros(int(used.sum())), _RIDGE)
        against = np.flatnonzero(weights[opinions] < 0) + opinions.start
        if not len(against):
            return Learnt(weights)
        used[against] = False  # what such an answer says is left out, whether it has the label stays
