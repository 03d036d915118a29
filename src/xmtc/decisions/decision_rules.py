"""Decisions fitted on a validation set: calibration of scores to probabilities, and thresholds for label sets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.errors import DataError
from xmtc.data.topk import TopK
from xmtc.decisions.calibration import Calibration, Method, fit_calibration
from xmtc.decisions.thresholds import Kind, Measure, Thresholds, hits_among, select_labels, tune
from xmtc.metrics import reliability, set_scores
from xmtc.metrics.matching import Truth

DEPTH = 50
"""Default number of candidate labels per document for label sets."""
LEAST_DOCUMENTS = 10
"""Minimum number of validation documents."""


@dataclass(frozen=True)
class Decisions:
    """Calibration and thresholds of a model."""

    calibration: Calibration | None = None
    thresholds: Thresholds | None = None
    depth: int = DEPTH
    """Number of candidate labels per document."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Metrics on the validation set."""

    @property
    def is_fitted(self) -> bool:
        """Whether there is a calibration or a threshold."""
        return self.calibration is not None or self.thresholds is not None

    def probabilities(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return calibrated scores, or the scores themselves without a calibration; padding is unchanged."""
        return scores if self.calibration is None else self.calibration.apply(scores)

    def relabelled(self, kept_labels: NDArray[np.int64], labels: int) -> Decisions:
        """Adapt to a model whose first labels are `kept_labels`; new labels get the global threshold."""
        if self.thresholds is None or self.thresholds.by_label is None:
            return self
        by_label = np.full(labels, self.thresholds.value, dtype=np.float32)
        by_label[: len(kept_labels)] = self.thresholds.by_label[kept_labels]
        return replace(self, thresholds=replace(self.thresholds, by_label=by_label))

    def state(self) -> State:
        """Return the state to save."""
        parts = {"calibration": self.calibration, "thresholds": self.thresholds}
        made = {name: part for name, part in parts.items() if part is not None}
        values = {name: part.values() for name, part in made.items()}
        arrays = {f"{name}.{key}": array for name, part in made.items() for key, array in part.arrays().items()}
        return State({**values, "depth": self.depth, "facts": self.facts}, dict(arrays))

    @classmethod
    def restored(cls, state: SavedState, label_count: int) -> Decisions:
        """Restore from a saved state; raise ValueError, KeyError or TypeError if it is inconsistent."""

        def part(name: str, kind: Any) -> Any:
            return kind.restored(state.value(name, dict), state.part(f"{name}.")) if state.has_value(name) else None

        # No more than there are labels: a damaged number must not determine how much memory a prediction takes.
        depth, facts = min(state.value("depth", int, 1), max(label_count, DEPTH)), state.value("facts", dict)
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
    """Calibrate the scores of predictions, and tune a threshold on the calibrated scores; None skips either step.

    `measure` is the F1 variant to optimise; the default is micro, or document for `threshold="document"`. `counts` (L,)
    are the training documents of each label, if known.
    """
    if len(answer) < LEAST_DOCUMENTS:
        few = f"{len(answer)} validation document{'' if len(answer) == 1 else 's'}"
        raise DataError(f"{few}: too few to calibrate the model. Provide at least {LEAST_DOCUMENTS}.")
    if not (answer.labels >= 0).any():
        raise DataError("no validation document has a predicted label. Use documents similar to the training set.")
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
        labels = answer.labels
        if answer.known_words is not None:  # documents without a known word get no set
            labels = np.where(answer.known_words[:, None], labels, -1)
        thresholds = tune(threshold, measure, labels, scores, truth, label_count=len(answer.index))
        sets = select_labels(answer.relabelled(answer.labels, scores), thresholds.choose(answer.labels, scores))
        facts["F1"] = score_sets(sets.labels, truth, counts)
    nothing = calibration is None and thresholds is None
    return Decisions(calibration, thresholds, DEPTH if nothing else answer.k, facts)


def calibration_of(method: Method, labels: NDArray[np.int64], scores: NDArray[np.float32], truth: Truth) -> Calibration:
    """Fit a calibration to the scores of ranked labels (n, k), given the true labels."""
    filled = labels >= 0
    return fit_calibration(method, scores[filled], hits_among(labels, truth)[filled])


def score_sets(sets: NDArray[np.int64], truth: Truth, counts: NDArray[np.int64] | None) -> dict[str, float]:
    """Compute F1, precision, recall and size of label sets (n, k); `counts` are training documents per label."""
    return set_scores(*counted_columns(sets, truth, counts))


def counted_columns(
    labels: NDArray[np.int64], truth: Truth, counts: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], Truth]:
    """Renumber predicted labels (n, k) and truth to labels that occur in training or in the truth.

    Otherwise means over labels would depend on which other labels a file of predictions contains. Other predicted
    labels get numbers beyond the columns: they count as wrong and do not enter means over labels.
    """
    counted = np.bincount(truth.indices, minlength=truth.shape[1]) > 0  # (L',)
    if counts is not None:
        counted[: len(counts)] |= counts > 0
    numbers = np.where(counted, np.cumsum(counted) - 1, int(counted.sum()) + np.cumsum(~counted) - 1)
    return np.append(numbers, -1)[labels], truth[:, np.flatnonzero(counted)]  # padding selects the last entry
