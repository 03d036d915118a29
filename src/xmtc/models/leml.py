"""LEML: a low-rank linear map from features to labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Choices, Range, Settings
from xmtc.core.explanation import Explanation
from xmtc.data.dataset import Csr, Dataset, as_dataset
from xmtc.labels.label_vectors import singular_vectors
from xmtc.linear.low_rank import (
    Factors,
    Imputed,
    Penalty,
    TwoWays,
    best_products,
    feature_factors,
    known_objective,
    label_factors,
    likelihoods,
    multiply,
    objective,
)
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.text.dense_features import ColumnFeatures
from xmtc.text.features import Weighing
from xmtc.text.tfidf import TextSettings

STEEPNESS, MIDDLE = 4.0, 0.5
"""A score is the logistic function of 4 · (estimate − ½), which is tangent to the estimate of the 0/1 label at ½."""
FEATURES, LABELS = "features", "labels"


@dataclass(frozen=True)
class LemlSettings(Settings):
    """Settings of leml."""

    rank: Annotated[int, Range(30, 200, log=True)] = 100
    """Rank of the map; at most the number of labels or features."""
    penalty: Annotated[float, Range(0.1, 10, log=True)] = 1.0
    """Strength of the L2 regularisation."""
    penalised: Annotated[Literal["factors", "map"], Choices()] = "map"
    """What is regularised: both factors, as published, or their product, the map from features to labels."""
    sweeps: Annotated[int, Range(1, 20, log=True)] = 8
    """Number of alternations between fitting label factors and feature factors."""
    steps: int = 10
    """Conjugate gradient steps for the feature factors in each sweep."""
    bias: Annotated[float, Choices(0.0, 0.3, 1.0)] = 1.0
    """Value of a constant feature that acts as the bias; 0 for none."""
    longer: Annotated[float, Choices(0.0, 0.1, 0.2, 0.4)] = 0.0
    """Weight of a second copy of all features, scaled by √(number of features) to reflect document length."""
    columns: Annotated[Weighing, Choices()] = "given"
    """Weighting of feature matrices: as given, or multiplied by idf. Text always uses tf-idf."""
    text: TextSettings = field(default_factory=TextSettings)
    """Settings of the tf-idf features."""

    of = "leml"

    def check(self) -> None:
        for name in ("rank", "sweeps", "steps"):
            self.require_range(name, 1)
        self.require_range("penalty", 0, open_low=True)
        self.require_range("bias", 0)
        self.require_range("longer", 0)


class Leml(Model):
    """LEML: low-rank linear map from features to labels.

    Fitted by regularised least squares; labels share the low-dimensional space. A score is the logistic function of 4 ·
    (estimate − ½), so that an estimate of ½ scores ½.
    """

    name = "leml"
    Config = LemlSettings
    capabilities = frozenset({"text", "features", "explain", "score_labels"})
    ablations: ClassVar = {
        "factors-penalised": {"penalised": "factors"},
        "low-rank": {"rank": 20},
        "no-bias": {"bias": 0.0},
        "one-sweep": {"sweeps": 1},
    }

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        config = self.config
        self._features, rows = ColumnFeatures.fit(
            train, config.text, config.columns, config.bias, run.runtime, run.progress, config.longer
        )
        assert train.labels is not None
        labels = train.labels.astype(np.float32)
        labels.data[:] = 1.0
        partial = None if train.partial is None else (train.partial, train.decided())
        self._factors = self._alternated(TwoWays.of(rows), TwoWays.of(labels), partial, run)
        self._across = np.ascontiguousarray(self._factors.labels.T)

    def _alternated(
        self, rows: TwoWays, labels: TwoWays, partial: tuple[NDArray[np.bool_], Csr] | None, run: FitContext
    ) -> Factors:
        """W and H, initialised with the singular vectors of the label matrix; each sweep is saved in the workspace.

        Unknown labels of `partial` documents, given with their known labels, have the estimates of the sweep before.
        """
        config, threads, workspace = self.config, run.runtime.threads, run.workspace
        penalty = Penalty(config.penalty, config.penalised == "map")
        rank = min(config.rank, *rows.rows.shape, int(labels.rows.shape[1]))
        done = next((sweep for sweep in range(config.sweeps, 0, -1) if workspace.has(f"sweep-{sweep}")), 0)
        if done:
            kept, _ = workspace.load(f"sweep-{done}")
            factors = Factors(kept[FEATURES], kept[LABELS])
        else:
            directions = singular_vectors(labels.rows, rank, seed=run.runtime.seed)
            factors = Factors(np.zeros((int(rows.rows.shape[1]), rank), dtype=np.float32), directions)
        with run.progress.task("alternating least squares", config.sweeps) as task:
            task.advance(done)
            for sweep in range(done + 1, config.sweeps + 1):
                targets: TwoWays | Imputed = labels
                if partial is not None:
                    before = multiply(rows.rows, factors.features, threads)
                    targets = Imputed.of(labels.rows, partial[1], partial[0], before, factors.labels)
                factors = feature_factors(rows, targets, factors, penalty, config.steps, threads)
                embedded = multiply(rows.rows, factors.features, threads)
                factors = label_factors(embedded, factors.features, targets, penalty, threads)
                if partial is None:
                    error = objective(embedded, factors, labels, penalty, threads)
                else:
                    error = known_objective(embedded, factors, labels.rows, partial, penalty)
                workspace.save(f"sweep-{sweep}", factors._asdict())
                workspace.drop(f"sweep-{sweep - 1}")
                workspace.log({"sweep": sweep, "objective": error})
                task.note(f"objective {error:,.0f}")
                task.advance()
        return factors

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        documents = self._embedded(batch)
        return best_products(documents, self._across, k, allowed, logistic=True, threads=self.runtime.threads)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        return likelihoods(self._embedded(batch), self._across, candidates)

    def _known_words(self, batch: Dataset) -> Mask | None:
        return self._features.known_words(batch, self.runtime)

    def _embedded(self, batch: Dataset) -> NDArray[np.float32]:
        """(n, r) documents in the low-dimensional space."""
        rows = self._features.transform(batch, self.runtime)
        return multiply(rows, self._factors.features, self.runtime.threads)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        row: Csr = self._features.transform(as_dataset([text]), self.runtime)
        weights = STEEPNESS * (self._factors.features[row.indices].astype(np.float64) @ self._factors.labels[label])
        evidence = self._features.features.evidence(text, self._features.weights_of(row, weights))
        start = self._features.bias * float(weights[-1]) - STEEPNESS * MIDDLE
        return Explanation("tokens", text, self.labels.name(label), score, tuple(evidence), start)

    def label_vectors(self) -> NDArray[np.float32]:
        """(L, r) the label factors."""
        return self._factors.labels

    def _state(self) -> State:
        kept = self._features.state()
        kept.arrays.update(self._factors._asdict())
        return kept

    def _restore(self, state: SavedState) -> None:
        self._features = ColumnFeatures.from_state(self.config.text, self.config.bias, state, self.config.longer)
        labels = state.array(LABELS, np.float32, (len(self.label_counts), None))
        self._factors = Factors(state.array(FEATURES, np.float32, (self._features.width, labels.shape[1])), labels)
        self._across = np.ascontiguousarray(self._factors.labels.T)
