"""Choose members of an ensemble by the score of their combination, learnt and measured on different documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.errors import DataError
from xmtc.data.dataset import Csr
from xmtc.decisions import combining
from xmtc.decisions.combining import FIRST, Answer
from xmtc.decisions.decision_rules import calibration_of
from xmtc.decisions.thresholds import hits_among
from xmtc.models.stacking import StackedTrees, stacking_rows
from xmtc.presets.clock import OutOfTime
from xmtc.presets.scores import Measure

Combine = Literal["learnt", "stacked", "noisy-or"]
COMBINATIONS: tuple[Combine, ...] = "learnt", "stacked", "noisy-or"
WITHOUT_TREES: tuple[Combine, ...] = "learnt", "noisy-or"
Costs = Mapping[str, tuple[float, float]]
Check = Callable[[], None]


def unlimited() -> None:
    """Never stop."""


SELECTION = 4000
"""Maximum number of documents on which members are selected."""
LEAST_GAIN = 5e-5
"""A member must improve the score by at least this; averages of more members vary less on other documents."""
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


class CrossFit:
    """Combinations that are learnt on some documents and measured on others; every document is measured once."""

    def __init__(
        self, ballots: Ballots, *, parts: int = PARTS, seed: int = 0, threads: int = 1, check: Check = unlimited
    ) -> None:
        """`check` is called before each combination of a part, and raises `OutOfTime` to stop."""
        self.ballots, self.check, self._seed, self._threads = ballots, check, seed, threads
        part = np.random.default_rng(seed).permutation(len(ballots)) % parts
        self._measured = [np.flatnonzero(part == each) for each in range(parts)]
        self._learnt = [ballots.take(np.flatnonzero(part != each)) for each in range(parts)]
        self._others = [ballots.take(rows) for rows in self._measured]
        self._calibrated: dict[tuple[int, str], tuple[Answer, Answer]] = {}

    def labels(self, names: Sequence[str], combine: Combine) -> NDArray[np.int64]:
        """The best labels (n, K) of each document by a combination that was learnt on the other parts."""
        if len(names) == 1:
            return self.ballots.answers[names[0]][0][:, :K]
        found = np.full((len(self.ballots), K), -1, dtype=np.int64)
        for part, rows in enumerate(self._measured):
            self.check()
            labels = self._ranked(part, names, combine)
            found[rows, : labels.shape[1]] = labels
        return found

    def score(self, names: Sequence[str], measure: Measure) -> float:
        """The score of a combination by learnt weights, or by noisy-or if there are too few documents to learn from.

        −∞ if not even the scores of its members can be calibrated, as when all their labels are right, or all wrong.
        """
        for combine in WITHOUT_TREES:
            try:
                return measure(self.labels(names, combine), self.ballots.truth)
            except DataError:
                pass
        return -np.inf

    def _calibrate(self, part: int, name: str) -> tuple[Answer, Answer]:
        """Calibrated predictions of a model: for the documents to learn from and for those to measure on."""
        if (part, name) not in self._calibrated:
            learnt, others = self._learnt[part], self._others[part]
            calibration = calibration_of("isotonic", *learnt.answers[name], learnt.truth)
            found, other = (
                (labels, calibration.apply(scores)) for labels, scores in (learnt.answers[name], others.answers[name])
            )
            self._calibrated[part, name] = found, other
        return self._calibrated[part, name]

    def _ranked(self, part: int, names: Sequence[str], combine: Combine) -> NDArray[np.int64]:
        """Learn from the documents outside a part, and rank the labels of those in it."""
        answers = [self._calibrate(part, name) for name in names]
        scorer: Any = None
        if combine != "noisy-or":
            scorer = self._scorer(self._learnt[part], [learnt for learnt, _ in answers], combine)
        measured = [other for _, other in answers]
        labels = combining.union([(labels[:, : 2 * K], scores) for labels, scores in measured])
        gathered = combining.gather(measured, labels)
        if scorer is None:
            chances = combining.noisy_or(gathered.chances)
        else:
            chances = scorer(gathered, self._others[part].frequency(np.arange(len(labels)), labels))
        return combining.ranked(labels, chances, K)[0]

    def _scorer(self, ballots: Ballots, answers: list[Answer], combine: Combine) -> Any:
        first = combining.union([(labels[:, :FIRST], scores) for labels, scores in answers])
        gathered, filled = combining.gather(answers, first), first >= 0
        frequency = ballots.frequency(np.arange(len(ballots)), first)
        right = hits_among(first, ballots.truth)[filled]
        if combine == "stacked":
            rows = stacking_rows(gathered, frequency, filled)
            return StackedTrees.fit(rows, right, np.nonzero(filled)[0], self._seed, self._threads)
        return combining.learn(combining.design_matrix(gathered, frequency), right)


@dataclass(frozen=True)
class Selection:
    """The chosen members and how they are combined."""

    names: tuple[str, ...]
    combine: Combine
    score: float
    labels: NDArray[np.int64]
    """(n, K) the best labels of each document, cross-fitted."""


def select(
    ballots: Ballots,
    measure: Measure,
    *,
    costs: Costs,
    most: tuple[float, float],
    seed: int,
    threads: int,
    check: Check = unlimited,
) -> Selection | None:
    """Choose members and how to combine them, within the limits.

    `costs` are two additive costs of each model (time and size of a prediction), `most` their limits. None if no model
    fits into the limits. `check` raises `OutOfTime` to end the selection with the best found so far.
    """
    chosen = _grown(CrossFit(_sample(ballots, seed), seed=seed, threads=threads, check=check), measure, costs, most)
    if not chosen:
        return None
    fit = CrossFit(ballots, parts=FINAL_PARTS, seed=seed, threads=threads)
    first = _measured(fit, chosen, "learnt", measure) or _measured(fit, chosen, "noisy-or", measure)
    if first is None:
        chosen = chosen[:1]
        first = _measured(fit, chosen, "learnt", measure)
    assert first is not None
    rest = [name for name in ballots.answers if name not in chosen]
    whole = [*chosen, *rest] if rest and fits([*chosen, *rest], costs, most) else []
    found: dict[bool, list[Selection]] = {False: [first], True: []}  # by whether all models are members
    fit.check = check
    try:
        for combine, names in product(COMBINATIONS, (chosen, whole)):
            done = any(each.combine == combine for each in found[names is whole])
            if len(names) > 1 and not done and (other := _measured(fit, names, combine, measure)) is not None:
                found[names is whole].append(other)
    except OutOfTime:
        pass
    few = max(found[False], key=lambda each: each.score)
    many = max(found[True], key=lambda each: each.score, default=few)
    return many if many.score >= few.score + WORTHWHILE else few


def measured(
    ballots: Ballots, names: Sequence[str], combine: Combine, measure: Measure, seed: int, threads: int
) -> Selection:
    """Given members and a way to combine them, with the cross-fitted score."""
    fit = CrossFit(ballots, parts=FINAL_PARTS, seed=seed, threads=threads)
    found = _measured(fit, names, combine, measure) or _measured(fit, names, "noisy-or", measure)
    return found or Selection(tuple(names), combine, -np.inf, fit.ballots.answers[names[0]][0][:, :K])


def joint_score(ballots: Ballots, names: Sequence[str], measure: Measure, seed: int, threads: int) -> float:
    """The cross-fitted score of a combination of models on a sample of the documents."""
    return CrossFit(_sample(ballots, seed), seed=seed, threads=threads).score(names, measure)


def _sample(ballots: Ballots, seed: int) -> Ballots:
    """A random part of the documents, to select members on."""
    return ballots.take(np.sort(np.random.default_rng(seed).permutation(len(ballots))[:SELECTION]))


def _grown(fit: CrossFit, measure: Measure, costs: Costs, most: tuple[float, float]) -> list[str]:
    """Add members one by one, each time the one that improves the combination most.

    The gain of a model shrinks as others are added, so those that gained less than the best one so far are not tried.
    The best model is chosen, whatever its score.
    """
    chosen: list[str] = []
    score = 0.0
    gains = dict.fromkeys(fit.ballots.answers, np.inf)  # when they were last tried
    try:
        while gains:
            tried: list[tuple[float, str]] = []
            for name in sorted(gains, key=lambda each: -gains[each]):
                if tried and gains[name] <= max(tried)[0]:
                    break
                if fits([*chosen, name], costs, most):
                    gains[name] = fit.score([*chosen, name], measure) - score
                    tried.append((gains[name], name))
            if not tried or (chosen and max(tried)[0] < LEAST_GAIN):
                break
            gain, name = max(tried)
            chosen.append(name)
            score += gain
            del gains[name]
    except OutOfTime:
        pass
    return chosen


def _measured(fit: CrossFit, names: Sequence[str], combine: Combine, measure: Measure) -> Selection | None:
    """A way to combine models with its score; None if there are too few documents to learn it from."""
    try:
        labels = fit.labels(names, combine)
    except DataError:
        return None
    return Selection(tuple(names), combine, measure(labels, fit.ballots.truth), labels)


def fits(names: Sequence[str], costs: Costs, most: tuple[float, float]) -> bool:
    """Whether the costs of these models keep to the limits."""
    return all(sum(costs[name][each] for name in names) <= most[each] for each in (0, 1))
