"""LEML: one linear map from features to labels, of low rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.store import State
from xmtc.core.config import Choices, Range, Settings
from xmtc.core.explanation import Explanation
from xmtc.data.dataset import Csr, Dataset, as_dataset
from xmtc.labels.label_vectors import singular_vectors
from xmtc.linear.low_rank import (
    Factors,
    Penalty,
    TwoWays,
    best_products,
    feature_factors,
    label_factors,
    likelihoods,
    multiply,
    objective,
)
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.text.dense_features import ColumnFeatures
from xmtc.text.tfidf import TextSettings
from xmtc.text.weighted_bags import Weighing

STEEPNESS, MIDDLE = 4.0, 0.5
"""A score is the logistic function of 4 · (estimate − ½), which touches the estimate of the 0/1 label at one half."""
FEATURES, LABELS = "features", "labels"


@dataclass(frozen=True)
class LemlSettings(Settings):
    """Settings of leml."""

    rank: Annotated[int, Range(30, 200, log=True)] = 100
    """Numbers between a document's features and its labels; fewer where there are fewer labels or features."""
    penalty: Annotated[float, Range(0.1, 10, log=True)] = 1.0
    """Weight of the squares of parameters beside those of the errors."""
    penalised: Annotated[Literal["factors", "map"], Choices()] = "map"
    """Whose squares those are: of both factors, as published, or of the map from features to labels that they make."""
    sweeps: Annotated[int, Range(1, 20, log=True)] = 8
    """Times that the labels' side and the features' side are fitted, each to the other."""
    steps: int = 10
    """Steps of conjugate gradients for the features' side in a sweep."""
    bias: Annotated[float, Choices(0.0, 0.3, 1.0)] = 1.0
    """What every document has in a column of its own, so that labels start from how often they occur; 0 for nothing."""
    longer: Annotated[float, Choices(0.0, 0.1, 0.2, 0.4)] = 0.0
    """Weight of a second copy of all features, × √(how many the document has), which rows of one length hide."""
    columns: Annotated[Weighing, Choices()] = "given"
    """Weights of a feature matrix: as given, or times the idf of the column. Text is weighed by tf-idf."""
    text: TextSettings = field(default_factory=TextSettings)
    """How text becomes features."""

    of = "leml"

    def check(self) -> None:
        for name in ("rank", "sweeps", "steps"):
            self.require_range(name, 1)
        self.require_range("penalty", 0, open_low=True)
        self.require_range("bias", 0)
        self.require_range("longer", 0)


class Leml(Model):
    """A linear map from features to labels that goes through a few numbers, fitted by least squares.

    LEML. Labels that go with the same features share what is learnt of them. A score is the logistic function of the
    estimate, ½ where that is ½.
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
        self._factors = self._alternated(TwoWays.of(rows), TwoWays.of(labels), run)
        self._across = np.ascontiguousarray(self._factors.labels.T)

    def _alternated(self, rows: TwoWays, labels: TwoWays, run: FitContext) -> Factors:
        """W and H from the best directions of the labels alone, after so many sweeps; each one is a finished part."""
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
        with run.progress.task("Fitting features and labels to each other", config.sweeps) as task:
            task.advance(done)
            for sweep in range(done + 1, config.sweeps + 1):
                factors = feature_factors(rows, labels, factors, penalty, config.steps, threads)
                embedded = multiply(rows.rows, factors.features, threads)
                factors = label_factors(embedded, factors.features, labels, penalty, threads)
                error = objective(embedded, factors, labels, penalty, threads)
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

    def _embedded(self, batch: Dataset) -> NDArray[np.float32]:
        """(n, r) documents between features and labels."""
        rows = self._features.transform(batch, self.runtime)
        return multiply(rows, self._factors.features, self.runtime.threads)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        row: Csr = self._features.transform(as_dataset([text]), self.runtime)
        weights = STEEPNESS * (self._factors.features[row.indices].astype(np.float64) @ self._factors.labels[label])
        evidence = self._features.features.evidence(text, self._features.weights_of(row, weights))
        start = self._features.bias * float(weights[-1]) - STEEPNESS * MIDDLE
        return Explanation("tokens", text, self.labels.name(label), score, tuple(evidence), start)

    def label_vectors(self) -> NDArray[np.float32]:
        """(L, r) what is learnt of each label."""
        return self._factors.labels

    def _state(self) -> State:
        kept = self._features.state()
        kept.arrays.update(self._factors._asdict())
        return kept

    def _restore(self, state: State) -> None:
        self._features = ColumnFeatures.from_state(self.config.text, self.config.bias, state, self.config.longer)
        self._factors = Factors(state.arrays[FEATURES], state.arrays[LABELS])
        shapes = (len(self._factors.features), len(self._factors.labels))
        if shapes != (self._features.width, len(self.label_counts)):
            raise ValueError(f"factors of {shapes[0]:,} features and {shapes[1]:,} labels")
        self._across = np.ascontiguousarray(self._factors.labels.T)
