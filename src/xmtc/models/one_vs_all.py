"""One linear classifier per label, each trained against all other documents; small weights are pruned."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xmtc.config import Settings
from xmtc.dataset import Dataset
from xmtc.explanation import Explanation
from xmtc.linear.select import best_of_block, best_of_columns
from xmtc.linear.svm import FeatureWeights, LabelWeights, Problem, train_labels
from xmtc.models.base import Labels, Mask, Model, Run, Scores
from xmtc.store import State
from xmtc.text.features import DocumentFeatures
from xmtc.text.tfidf import TextSettings

LABELS_AT_ONCE = 256
"""Labels whose weights make one part of the workspace."""


@dataclass(frozen=True)
class OneVsAllSettings(Settings):
    """Settings of one_vs_all."""

    cost: float = 1.0
    """Price of a training error against large weights (C of a support vector machine)."""
    tolerance: float = 0.1
    """Stop a label's training when the projected gradients of its dual differ by no more."""
    passes: int = 20
    """Stop after this many passes over the documents at the latest."""
    prune: float = 0.01
    """Forget weights closer to zero than this."""
    text: TextSettings = field(default_factory=TextSettings)
    """How text becomes features."""

    of = "one_vs_all"

    def check(self) -> None:
        self.require_range("cost", 0, open_low=True)
        self.require_range("tolerance", 0, open_low=True)
        self.require_range("passes", 1)
        self.require_range("prune", 0)


class OneVsAll(Model):
    """A linear classifier for each label (L2-regularised squared hinge on tf-idf), small weights pruned.

    A score is the logistic function of the margin.
    """

    name = "one_vs_all"
    Config = OneVsAllSettings
    can = frozenset({"text", "features", "explain", "score"})

    def _fit(self, train: Dataset, valid: Dataset | None, run: Run) -> None:
        self._features, rows = DocumentFeatures.fit(train, self.config.text, run.runtime, run.progress)
        assert train.labels is not None
        problem = Problem.build(rows, train.labels)
        count = int(train.labels.shape[1])
        batches = [range(start, min(start + LABELS_AT_ONCE, count)) for start in range(0, count, LABELS_AT_ONCE)]
        with run.progress.task("training labels", total=count) as task:
            for labels in batches:
                part = f"labels-{labels.start}"
                if not run.workspace.has(part):
                    weights = train_labels(
                        problem,
                        labels,
                        cost=self.config.cost,
                        tolerance=self.config.tolerance,
                        passes=self.config.passes,
                        prune=self.config.prune,
                        seed=run.runtime.seed,
                        threads=run.runtime.threads,
                        advance=task.advance,
                    )
                    run.workspace.save(part, weights._asdict())
                else:
                    task.advance(len(labels))
        parts = [LabelWeights(**run.workspace.load(f"labels-{labels.start}")[0]) for labels in batches]
        self._weights = FeatureWeights.assemble(parts, problem.width)

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        columns = None if allowed is None else np.flatnonzero(allowed)

        def chosen(_: int, margins: NDArray[np.float32]) -> tuple[Labels, Scores]:
            return best_of_block(margins, k) if columns is None else best_of_columns(margins, columns, k)

        rows = self._features.transform(batch, self.runtime)
        best = self._weights.by_block(rows, self.runtime.threads, chosen)
        found, given = (np.concatenate(parts) for parts in zip(*best, strict=True))
        return found, _logistic(given)

    def _score(self, batch: Dataset, candidates: Labels) -> Scores:
        def wanted(start: int, margins: NDArray[np.float32]) -> NDArray[np.float32]:
            numbers = np.maximum(candidates[start : start + len(margins)], 0)
            return np.take_along_axis(margins, numbers, axis=1)

        rows = self._features.transform(batch, self.runtime)
        return _logistic(np.concatenate(list(self._weights.by_block(rows, self.runtime.threads, wanted))))

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        evidence = self._features.evidence(text, self._weights.of_label(label))
        constant = float(self._weights.bias[label])
        return Explanation("tokens", text, self.labels.name(label), score, tuple(evidence), constant)

    def _state(self) -> State:
        kept = self._features.state()
        kept.arrays.update({f"weights.{name}": array for name, array in self._weights._asdict().items()})
        return kept

    def _restore(self, state: State) -> None:
        self._features = DocumentFeatures.from_state(self.config.text, state)
        self._weights = FeatureWeights(*(state.arrays[f"weights.{name}"] for name in FeatureWeights._fields))


def _logistic(margins: NDArray[np.float32]) -> NDArray[np.float32]:
    """1 / (1 + e^−margin); −∞ stays −∞, the mark of a pad."""
    with np.errstate(over="ignore"):
        scores = 1.0 / (1.0 + np.exp(-margins.astype(np.float64)))
    return np.where(np.isneginf(margins), -np.inf, scores).astype(np.float32)
