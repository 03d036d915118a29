"""What validation documents say of a model's scores: probabilities, and which labels to return."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.store import State
from xmtc.core.errors import DataError
from xmtc.data.topk import TopK
from xmtc.decisions.calibration import Calibration, Method, fit_calibration
from xmtc.decisions.thresholds import Kind, Measure, Thresholds, hits_among, select_labels, tune
from xmtc.metrics import reliability, set_scores
from xmtc.metrics.matching import Truth

DEPTH = 50
"""Labels of each document that are looked at where a set is asked for and nothing says how many."""
LEAST_DOCUMENTS = 10
"""Validation documents without which nothing is said of scores."""


@dataclass(frozen=True)
class Decisions:
    """How a model's scores are read."""

    calibration: Calibration | None = None
    thresholds: Thresholds | None = None
    depth: int = DEPTH
    """Labels of each document that were looked at."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What was measured on the documents that it comes from."""

    @property
    def is_fitted(self) -> bool:
        """Whether there is anything to keep."""
        return self.calibration is not None or self.thresholds is not None

    def probabilities(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores as they are given to users; pads stay."""
        return scores if self.calibration is None else self.calibration.apply(scores)

    def relabelled(self, kept_labels: NDArray[np.int64], labels: int) -> Decisions:
        """The same for a model whose first labels are these of before; others have no thresholds of their own."""
        if self.thresholds is None or self.thresholds.by_label is None:
            return self
        by_label = np.full(labels, self.thresholds.value, dtype=np.float32)
        by_label[: len(kept_labels)] = self.thresholds.by_label[kept_labels]
        return replace(self, thresholds=replace(self.thresholds, by_label=by_label))

    def state(self) -> State:
        """What to keep."""
        parts = {"calibration": self.calibration, "thresholds": self.thresholds}
        made = {name: part for name, part in parts.items() if part is not None}
        values = {name: part.values() for name, part in made.items()}
        arrays = {f"{name}.{key}": array for name, part in made.items() for key, array in part.arrays().items()}
        return State({**values, "depth": self.depth, "facts": self.facts}, dict(arrays))

    @classmethod
    def restored(cls, state: State, label_count: int) -> Decisions:
        """What was kept for a model of so many labels; ValueError, KeyError or TypeError where parts do not fit."""

        def part(name: str, kind: Any) -> Any:
            start = f"{name}."
            arrays = {key.removeprefix(start): array for key, array in state.arrays.items() if key.startswith(start)}
            return kind.restored(state.values[name], arrays) if name in state.values else None

        depth, facts = state.values["depth"], state.values["facts"]
        if not isinstance(depth, int) or depth < 1 or not isinstance(facts, dict):
            raise ValueError("depth or facts of decisions are damaged")
        thresholds = part("thresholds", Thresholds)
        if thresholds is not None and thresholds.by_label is not None and len(thresholds.by_label) != label_count:
            raise ValueError(f"{len(thresholds.by_label):,} thresholds for {label_count:,} labels")
        return cls(part("calibration", Calibration), thresholds, depth, facts)


def decide(
    answer: TopK,
    truth: Truth,
    *,
    method: Method | None,
    threshold: Kind | None,
    measure: Measure | None = None,
    counts: NDArray[np.int64] | None = None,
) -> Decisions:
    """Calibrate the scores of a ranked answer, and tune a threshold on what they become; None leaves one of them out.

    `measure` is what the threshold is the best for: micro-F1 where nothing is said, document-F1 for sets of documents.
    `counts` (L,) are the training documents of each label, where they are known.
    """
    if len(answer) < LEAST_DOCUMENTS:
        few = f"{len(answer)} validation document{'' if len(answer) == 1 else 's'}"
        raise DataError(f"{few}: too few to say what scores mean, {LEAST_DOCUMENTS} the least. Give more of them.")
    if not (answer.labels >= 0).any():
        raise DataError("no validation document has a predicted label. Give documents like the training documents.")
    calibration = None if method is None else calibration_of(method, answer.labels, answer.scores, truth)
    scores = answer.scores if calibration is None else calibration.apply(answer.scores)
    facts: dict[str, Any] = {"documents": len(answer)}
    before = {} if calibration is None else {"ECE@5 before": answer.scores}
    for name, given in {**before, "ECE@5": scores}.items():
        found = reliability(TopK(answer.labels, given, answer.index), truth)
        facts |= {} if found is None else {name: found.error}
    thresholds = None
    if threshold is not None:
        measure = measure or ("document" if threshold == "document" else "micro")
        thresholds = tune(threshold, measure, answer.labels, scores, truth, label_count=len(answer.index))
        sets = select_labels(TopK(answer.labels, scores, answer.index), thresholds.choose(answer.labels, scores))
        facts["F1"] = score_sets(sets.labels, truth, counts)
    nothing = calibration is None and thresholds is None
    return Decisions(calibration, thresholds, DEPTH if nothing else answer.k, facts)


def calibration_of(method: Method, labels: NDArray[np.int64], scores: NDArray[np.float32], truth: Truth) -> Calibration:
    """What the scores of ranked labels (n, k) mean, given the true ones."""
    filled = labels >= 0
    return fit_calibration(method, scores[filled], hits_among(labels, truth)[filled])


def score_sets(sets: NDArray[np.int64], truth: Truth, counts: NDArray[np.int64] | None) -> dict[str, float]:
    """F1, precision, recall and size of sets of labels (n, k); `counts` are training documents of the first labels."""
    return set_scores(*counted_columns(sets, truth, counts))


def counted_columns(
    labels: NDArray[np.int64], truth: Truth, counts: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], Truth]:
    """Predicted labels (n, k) and truth with columns for the labels of training and of the true labels only.

    Means over labels would otherwise depend on what else a file of predictions happens to name; other predicted labels
    get numbers beyond the columns, as labels that are wrong and have no mean of their own.
    """
    counted = np.bincount(truth.indices, minlength=truth.shape[1]) > 0  # (L',)
    if counts is not None:
        counted[: len(counts)] |= counts > 0
    numbers = np.where(counted, np.cumsum(counted) - 1, int(counted.sum()) + np.cumsum(~counted) - 1)
    return np.append(numbers, -1)[labels], truth[:, np.flatnonzero(counted)]  # a pad picks the last
