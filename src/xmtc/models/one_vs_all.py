"""One linear classifier per label, each trained against all other documents; small weights are pruned."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.config import Settings
from xmtc.dataset import Csr, Dataset
from xmtc.explanation import Explanation
from xmtc.jit import run_parallel
from xmtc.linear.svm import LabelWeights, Problem, best_labels, candidate_margins, train_labels
from xmtc.models.base import Labels, Model, Run, Scores
from xmtc.store import State
from xmtc.text.features import DocumentFeatures
from xmtc.text.tfidf import TextSettings

LABELS_AT_ONCE = 256
"""Labels whose weights make one part of the workspace."""
ROWS_AT_ONCE = 64
"""Documents one thread scores at a time."""


@dataclass(frozen=True)
class OneVsAllSettings(Settings):
    """Settings of one_vs_all."""

    cost: float = 1.0
    """Price of a training error against large weights (C of a support vector machine)."""
    tolerance: float = 0.1
    """Stop a label's training when no dual variable would move by more."""
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
    """L2-regularised squared hinge on tf-idf; a score is the logistic function of the margin."""

    name = "one_vs_all"
    Config = OneVsAllSettings
    can = frozenset({"text", "features", "explain", "score"})

    def _fit(self, train: Dataset, valid: Dataset | None, run: Run) -> None:
        self._features, rows = DocumentFeatures.fit(train, self.config.text, run.runtime, run.progress)
        assert train.labels is not None
        problem = Problem.build(rows, train.labels)
        count = int(train.labels.shape[1])
        batches = [
            range(start, min(start + LABELS_AT_ONCE, count)) for start in range(0, count, LABELS_AT_ONCE)
        ]
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
                    )
                    run.workspace.save(part, weights._asdict())
                task.advance(len(labels))
        parts = [LabelWeights(**run.workspace.load(f"labels-{labels.start}")[0]) for labels in batches]
        self._assemble(parts, problem.width)

    def _assemble(self, parts: list[LabelWeights], width: int) -> None:
        """Weights by feature, so that a document touches only the features it has."""
        counts = np.concatenate([np.diff(part.indptr) for part in parts])
        indptr = np.concatenate([[0], np.cumsum(counts)])
        by_label = sp.csr_array(
            (np.concatenate([p.weights for p in parts]), np.concatenate([p.features for p in parts]), indptr),
            shape=(len(counts), width),
        )
        by_feature = by_label.T.tocsr()
        by_feature.sort_indices()
        self._indptr: NDArray[np.int64] = by_feature.indptr.astype(np.int64)  # (D + 1,)
        self._weight_labels: NDArray[np.int32] = by_feature.indices.astype(np.int32)
        self._weights: NDArray[np.float32] = by_feature.data
        self._bias: NDArray[np.float32] = np.concatenate([part.bias for part in parts])  # (L,)

    def _predict(self, batch: Dataset, k: int) -> tuple[Labels, Scores]:
        rows = self._features.transform(batch, self.runtime)
        parts = list(run_parallel(lambda piece: best_labels(*self._with(piece), k), _pieces(rows), self.runtime.threads))
        found, given = (np.concatenate(column) for column in zip(*parts, strict=True))
        return found, _logistic(given)

    def _score(self, batch: Dataset, candidates: Labels) -> Scores:
        rows = self._features.transform(batch, self.runtime)
        return _logistic(candidate_margins(*self._with(rows), candidates))

    def _with(self, rows: Csr) -> tuple[NDArray[np.generic], ...]:
        """The rows and the weights, as the kernels take them."""
        return (
            rows.indptr.astype(np.int64),
            rows.indices.astype(np.int32),
            rows.data,
            self._indptr,
            self._weight_labels,
            self._weights,
            self._bias,
        )

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        places = np.flatnonzero(self._weight_labels == label)
        features = np.searchsorted(self._indptr, places, side="right") - 1
        weights = dict(zip(features.tolist(), self._weights[places].tolist(), strict=True))
        evidence = self._features.evidence(text, weights)
        return Explanation("tokens", text, self.labels.name(label), score, tuple(evidence))

    def _state(self) -> State:
        kept = self._features.state()
        kept.arrays.update(
            indptr=self._indptr, weight_labels=self._weight_labels, weights=self._weights, bias=self._bias
        )
        return kept

    def _restore(self, state: State) -> None:
        self._features = DocumentFeatures.from_state(self.config.text, state)
        self._indptr, self._weight_labels = state.arrays["indptr"], state.arrays["weight_labels"]
        self._weights, self._bias = state.arrays["weights"], state.arrays["bias"]


def _pieces(rows: Csr) -> list[Csr]:
    count = int(rows.shape[0])
    return [rows[start : start + ROWS_AT_ONCE] for start in range(0, count, ROWS_AT_ONCE)]


def _logistic(margins: NDArray[np.float32]) -> NDArray[np.float32]:
    """1 / (1 + e^−margin); −∞ stays −∞, the mark of a pad."""
    with np.errstate(over="ignore"):
        scores = 1.0 / (1.0 + np.exp(-margins.astype(np.float64)))
    return np.where(np.isneginf(margins), -np.inf, scores).astype(np.float32)
