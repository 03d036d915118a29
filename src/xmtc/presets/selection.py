"""Choose members of an ensemble by the score of their combination, learnt and measured on different documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.errors import DataError
from xmtc.data.dataset import Csr
from xmtc.decisions import combining
from xmtc.decisions.calibration import Calibration
from xmtc.decisions.combining import FIRST, Answer
from xmtc.decisions.decision_rules import calibration_of
from xmtc.decisions.thresholds import hits_among
from xmtc.models.stacking import StackedTrees, stacking_rows
from xmtc.presets.scores import Measure

Combine = Literal["learnt", "stacked", "noisy-or"]


SELECTION = 4000
"""Maximum number of documents on which members are selected."""
LEAST_GAIN = 2e-4
"""A member must improve the score by at least this."""
WORTHWHILE = 1e-3
"""All models are members if that improves the score by at least this over the selected ones."""
PARTS, FINAL_PARTS = 3, 5
"""Parts of the documents, of which each is predicted by what was learnt from the others: in the selection of members,
and when ways to combine them are compared."""
K = 10
"""Labels that are ranked to compute a score."""


@dataclass(frozen=True)
class Ballots:
    """Out-of-fold predictions of several models for the same documents."""

    answers: Mapping[str, Answer]
    """By model: labels (n, k) and raw scores, best first."""
    truth: Csr
    """(n, L)"""
    frequency: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
    """(documents, labels (n, u)) → log(1 + training documents) of each label."""

    def take(self, rows: NDArray[np.int64]) -> Ballots:
        """The predictions for some of the documents."""
        return Ballots(
            {name: (labels[rows], scores[rows]) for name, (labels, scores) in self.answers.items()},
            sp.csr_array(self.truth[rows]),
            lambda places, labels: self.frequency(rows[places], labels),
        )

    def __len__(self) -> int:
        return int(self.truth.shape[0])


def cross_fitted(
    ballots: Ballots, names: Sequence[str], combine: Combine, *, seed: int = 0, threads: int = 1, parts: int = PARTS
) -> NDArray[np.int64]:
    """The best labels (n, K) of each document by a combination that was learnt on the other parts of the documents."""
    if len(names) == 1:
        return ballots.answers[names[0]][0][:, :K]
    part = np.random.default_rng(seed).permutation(len(ballots)) % parts
    found = np.full((len(ballots), K), -1, dtype=np.int64)
    for each in range(parts):
        learnt, measured = np.flatnonzero(part != each), np.flatnonzero(part == each)
        combination = _learnt(ballots.take(learnt), names, combine, seed, threads)
        labels = combination(ballots.take(measured))
        found[measured, : labels.shape[1]] = labels
    return found


def _learnt(
    ballots: Ballots, names: Sequence[str], combine: Combine, seed: int, threads: int
) -> Callable[[Ballots], NDArray[np.int64]]:
    calibrations = {name: calibration_of("isotonic", *ballots.answers[name], ballots.truth) for name in names}
    scorer: Any = None
    if combine != "noisy-or":
        answers = _calibrated(ballots, names, calibrations)
        first = combining.union([(labels[:, :FIRST], scores) for labels, scores in answers])
        gathered, filled = combining.gather(answers, first), first >= 0
        frequency = ballots.frequency(np.arange(len(ballots)), first)
        right = hits_among(first, ballots.truth)[filled]
        if combine == "stacked":
            rows = stacking_rows(gathered, frequency, filled)
            scorer = StackedTrees.fit(rows, right, np.nonzero(filled)[0], seed, threads)
        else:
            scorer = combining.learn(combining.design_matrix(gathered, frequency), right)

    def ranked(others: Ballots) -> NDArray[np.int64]:
        answers = _calibrated(others, names, calibrations)
        labels = combining.union([(labels[:, : 2 * K], scores) for labels, scores in answers])
        gathered = combining.gather(answers, labels)
        if scorer is None:
            chances = combining.noisy_or(gathered.chances)
        else:
            chances = scorer(gathered, others.frequency(np.arange(len(others)), labels))
        return combining.ranked(labels, chances, K)[0]

    return ranked


def _calibrated(ballots: Ballots, names: Sequence[str], by: Mapping[str, Calibration]) -> list[Answer]:
    return [(ballots.answers[name][0], by[name].apply(ballots.answers[name][1])) for name in names]


@dataclass(frozen=True)
class Selection:
    """The chosen members and how they are combined."""

    names: tuple[str, ...]
    combine: Combine
    score: float
    labels: NDArray[np.int64]
    """(n, K) the best labels of each document, cross-fitted."""


def sample_of(ballots: Ballots, seed: int) -> Ballots:
    """A random part of the documents, to select members on."""
    return ballots.take(np.sort(np.random.default_rng(seed).permutation(len(ballots))[:SELECTION]))


def joint_score(ballots: Ballots, names: Sequence[str], measure: Measure, seed: int, threads: int) -> float:
    """The cross-fitted score of a combination of models."""
    try:
        return measure(cross_fitted(ballots, names, "learnt", seed=seed, threads=threads), ballots.truth)
    except DataError:  # too few documents to learn from
        return measure(cross_fitted(ballots, names, "noisy-or", seed=seed, threads=threads), ballots.truth)


def select(
    ballots: Ballots,
    measure: Measure,
    *,
    costs: Mapping[str, tuple[float, float]],
    most: tuple[float, float],
    seed: int,
    threads: int,
) -> Selection | None:
    """Add members one by one, each time the one that improves the combination most, within the limits.

    `costs` are two additive costs of each model (time and size of a prediction), `most` their limits. None if no model
    fits into the limits.
    """
    sample = sample_of(ballots, seed)
    chosen: list[str] = []
    best = -np.inf
    while True:
        fitting = [name for name in ballots.answers if name not in chosen and fits([*chosen, name], costs, most)]
        tried = {name: joint_score(sample, [*chosen, name], measure, seed, threads) for name in fitting}
        if not tried:
            break
        name = max(tried, key=lambda each: tried[each])
        if tried[name] < best + LEAST_GAIN:
            break
        chosen.append(name)
        best = tried[name]
    if not chosen:
        return None
    few = combined(ballots, chosen, measure, seed, threads)
    rest = [name for name in ballots.answers if name not in chosen]
    if not rest or not fits([*chosen, *rest], costs, most):
        return few
    many = combined(ballots, [*chosen, *rest], measure, seed, threads)
    return many if many.score >= few.score + WORTHWHILE else few


def combined(ballots: Ballots, names: Sequence[str], measure: Measure, seed: int, threads: int) -> Selection:
    """The best way to combine these models."""
    found = []
    for combine in _combinations(len(names)):
        try:
            labels = cross_fitted(ballots, names, combine, seed=seed, threads=threads, parts=FINAL_PARTS)
        except DataError:  # too few documents to learn from
            continue
        found.append(Selection(tuple(names), combine, measure(labels, ballots.truth), labels))
    return max(found, key=lambda each: each.score)


def _combinations(members: int) -> tuple[Combine, ...]:
    return ("learnt", "stacked", "noisy-or") if members > 1 else ("noisy-or",)


def fits(names: Sequence[str], costs: Mapping[str, tuple[float, float]], most: tuple[float, float]) -> bool:
    """Whether the costs of these models keep to the limits."""
    return all(sum(costs[name][each] for name in names) <= most[each] for each in (0, 1))
