"""Combine several predictions for the same documents: noisy-or, average, or weights learnt on validation documents.

Predictions are combined over the union of their labels. A label missing in a prediction has probability 0 there, and
learnt weights have a separate weight for each such gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
"""Labels (n, k), padded with −1, and their probabilities."""

EDGE = 1e-4
"""Probabilities are clipped to [EDGE, 1 − EDGE] before taking logits."""
FIRST = 10
"""Labels of each prediction to learn weights from."""
LEAST_PAIRS = 10
"""Minimum number of true labels, and of wrong ones, to learn weights."""
MANY_PAIRS = 5000
"""Number of true labels, and of wrong ones, from which weights may depend on the frequency."""
_RIDGE = 1e-3  # keeps the weight of a constant feature finite
_UNSEEN_RIDGE = 1.0  # keeps the weight of labels without documents moderate if the few of them are all wrong


@dataclass(frozen=True)
class Gathered:
    """Probabilities of the same labels in several predictions."""

    labels: Labels  # (n, u) padded with −1
    chances: NDArray[np.float32]  # (m, n, u) 0 if a prediction lacks the label
    held: NDArray[np.bool_]  # (m, n, u) whether the prediction has the label
    answers: Sequence[Answer] = ()
    """The predictions themselves."""


def union(answers: Sequence[Answer]) -> Labels:
    """Return the union of the labels of all predictions (n, u), ascending and padded with −1."""
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
    """Look up the probabilities of given labels (n, u) in each prediction."""
    shape = (len(answers), *labels.shape)
    chances, held = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=bool)
    for place, (found, given) in enumerate(answers):
        order = np.argsort(found, axis=1, kind="stable")
        ranks = _places(np.take_along_axis(found, order, axis=1), labels)
        held[place] = ranks >= 0
        if found.shape[1]:
            rising = np.take_along_axis(given, order, axis=1)
            chances[place] = np.where(held[place], np.take_along_axis(rising, np.maximum(ranks, 0), axis=1), 0)
    return Gathered(labels, chances, held, tuple(answers))


def ranks(gathered: Gathered) -> Iterator[Labels]:
    """Look up the rank (n, u) of each label in each prediction, from 0; −1 if it is missing."""
    for found, _ in gathered.answers:
        order = np.argsort(found, axis=1, kind="stable")
        place = _places(np.take_along_axis(found, order, axis=1), gathered.labels)
        if found.shape[1]:
            yield np.where(place < 0, -1, np.take_along_axis(order, np.maximum(place, 0), axis=1))
        else:
            yield place


@kernel()
def _places(found: Labels, wanted: Labels) -> Labels:
    """Return the position (n, u) of each wanted label in its row of ascending labels; −1 if missing or padding."""
    places = np.full(wanted.shape, -1, np.int64)
    for row in range(wanted.shape[0]):
        for column in range(wanted.shape[1]):
            label = wanted[row, column]
            at = np.searchsorted(found[row], label)
            if label >= 0 and at < found.shape[1] and found[row, at] == label:
                places[row, column] = at
    return places


def noisy_or(chances: NDArray[np.float32]) -> Chances:
    """Return the probability (n, u) that at least one prediction is right, assuming independence: 1 − Π(1 − p)."""
    wrong = np.ones(chances.shape[1:])
    for each in chances:
        wrong *= 1 - each.astype(np.float64)
    return 1 - wrong


def average(chances: NDArray[np.float32], weights: Sequence[float] = ()) -> Chances:
    """Return the mean of the probabilities (n, u), optionally weighted."""
    given = np.array(weights or np.ones(len(chances)))
    combined = np.zeros(chances.shape[1:])
    for weight, each in zip(given / given.sum(), chances, strict=True):
        combined += weight * each
    return combined


def ranked(labels: Labels, chances: Chances, k: int) -> Answer:
    """The k best of labels (n, u), which ascend in every row; ties are broken by the smaller number."""
    order = np.argsort(np.where(labels >= 0, -chances, np.inf), axis=1, kind="stable")[:, :k]
    found = np.take_along_axis(labels, order, axis=1)
    given = np.where(found >= 0, np.take_along_axis(chances, order, axis=1), -np.inf)
    return found, given.astype(np.float32)


def shares(chances: NDArray[np.float32], combine: str, weights: Sequence[float] = ()) -> Chances:
    """Return the contribution (m, n, u) of each prediction to the noisy-or or the average."""
    given = chances.astype(np.float64)
    if combine == "average":
        weighted: Chances = given * np.reshape(weights or np.ones(len(chances)), (-1, 1, 1))
        return weighted
    return -np.log1p(-np.minimum(given, 1 - 1e-12))  # these sum to −log(1 − noisy-or)


@dataclass(frozen=True)
class Learnt:
    """Logistic regression on the logits of the predicted probabilities, indicators of missing labels, and the logit of
    the noisy-or, which increases the score of labels supported by several predictions.

    Some models are better at frequent labels, others at rare ones. So the training frequency of a label is a feature,
    too, as is whether it has no training documents, and the weights of each prediction depend on the frequency.
    """

    weights: NDArray[np.float64]
    """(5 + 4m,): constant, frequency, noisy-or, each logit, each gap, no training documents; then what the weights of
    the noisy-or, each logit and each gap change by with the frequency."""
    most_frequent: float = np.inf
    """The largest frequency that weights were learnt from; higher ones count as this one."""

    def __call__(self, gathered: Gathered, frequency: Chances) -> Chances:
        """Compute probabilities (n, u), 0 if no prediction has the label.

        `frequency` (n, u) is log(1 + number of training documents) of each label.
        """
        return np.where(gathered.held.any(axis=0), sigmoid(self._margins(gathered, frequency)), 0.0)

    def _margins(self, gathered: Gathered, frequency: Chances) -> Chances:
        count = len(gathered.held)
        frequency = np.minimum(frequency, self.most_frequent)
        one, frequent, *fixed = self.weights[: 3 + 2 * count]
        unseen, *changes = self.weights[3 + 2 * count :]
        noisy, *members = (fix + change * frequency for fix, change in zip(fixed, changes, strict=True))
        margins: Chances = one + frequent * frequency + noisy * logit(noisy_or(gathered.chances), EDGE)
        margins += unseen * (frequency == 0)
        opinions = zip(members[:count], members[count:], gathered.held, gathered.chances, strict=True)
        for slope, gap, held, chances in opinions:
            margins += np.where(held, slope * logit(chances, EDGE), gap)
        return margins

    def shares(self, gathered: Gathered, frequency: Chances) -> Chances:
        """Return the contribution (m, n, u) of each prediction to the margin, compared with a missing label."""
        whole = self._margins(gathered, frequency)
        added = []
        for place in range(len(gathered.held)):
            others = np.arange(len(gathered.held)) != place
            keep = others[:, None, None]
            without = Gathered(gathered.labels, gathered.chances * keep, gathered.held & keep, gathered.answers)
            added.append(whole - self._margins(without, frequency))
        return np.stack(added)

    def values(self) -> dict[str, Any]:
        """Return the values to save as JSON."""
        limit = {"most_frequent": self.most_frequent} if np.isfinite(self.most_frequent) else {}
        return {"weights": self.weights.tolist(), **limit}

    @classmethod
    def restored(cls, values: Mapping[str, Any], answers: int) -> Learnt:
        """Restore saved weights; raise ValueError, KeyError or TypeError unless they fit the number of predictions.

        Older models have weights that do not depend on the frequency, or no limit on the frequency.
        """
        weights = np.array(values["weights"], dtype=np.float64)
        most_frequent = float(values.get("most_frequent", np.inf))
        full = 5 + 4 * answers
        if weights.shape not in ((full,), (3 + 2 * answers,)) or not np.isfinite(weights).all():
            raise ValueError("learnt weights are invalid")
        if not most_frequent >= 0:
            raise ValueError("the largest frequency of learnt weights is invalid")
        return cls(np.concatenate([weights, np.zeros(full - len(weights))]), most_frequent)


def design_matrix(gathered: Gathered, frequency: Chances) -> Chances:
    """Build the features (pairs, 5 + 4m) for learning weights: one row per gathered label, in the order of weights."""
    filled = gathered.labels >= 0
    logits = [
        np.where(held, logit(each, EDGE), 0.0) for held, each in zip(gathered.held, gathered.chances, strict=True)
    ]
    opinions = [logit(noisy_or(gathered.chances), EDGE), *logits, *(~gathered.held).astype(np.float64)]
    columns = [np.ones(filled.shape), frequency, *opinions, (frequency == 0).astype(np.float64)]
    columns += [column * frequency for column in opinions]
    return np.stack([column[filled] for column in columns], axis=1)


def learn(rows: Chances, hits: NDArray[np.bool_]) -> Learnt:
    """Fit weights to the hits (pairs,) by maximum likelihood.

    No weight of a probability is negative at any frequency: features that would make it so are dropped. From few pairs,
    the weights of probabilities that are learnt do not depend on the frequency.
    """
    if (rare := min(int(hits.sum()), int((~hits).sum()))) < LEAST_PAIRS:
        which = "true" if hits.mean() < 0.5 else "wrong"
        raise DataError(
            f"{rare} {which} labels among the top predictions are too few to learn weights; the minimum is "
            f"{LEAST_PAIRS}. Provide more documents, or set combine=noisy-or."
        )
    count = (rows.shape[1] - 5) // 4
    most = float(rows[:, 1].max(initial=0.0))  # the largest frequency
    slopes = np.arange(2, 3 + count)  # of the noisy-or and of the logits
    changes = slopes + 2 + 2 * count
    used: NDArray[np.bool_] = np.asarray(rows.any(axis=0))
    used[4 + 2 * count :] &= rare >= MANY_PAIRS
    ridge = np.full(rows.shape[1], _RIDGE)
    ridge[3 + 2 * count] = _UNSEEN_RIDGE
    while True:
        weights = np.zeros(rows.shape[1])
        weights[used] = fit_logistic(rows[:, used], hits.astype(np.float64), np.zeros(int(used.sum())), ridge[used])
        against = np.minimum(weights[slopes], weights[slopes] + most * weights[changes]) < 0
        if not against.any():
            return Learnt(weights, most)
        dependent = used[changes]
        used[changes[against]] = False  # first the dependence on the frequency, then the probability itself
        used[slopes[against & ~dependent]] = False
