"""Candidate generation: a linear label tree proposes labels, so that a network need not score them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Settings
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset
from xmtc.labels.features import positive_features
from xmtc.labels.tree import balanced_tree
from xmtc.linear.forest import Forest, SearchParameters, train_tree
from xmtc.linear.node_documents import PartialLabels
from xmtc.linear.node_training import LinearObjective, Rows, numbers_by_frequency
from xmtc.models.base import Labels, Mask
from xmtc.models.context import FitContext
from xmtc.text.features import DocumentFeatures
from xmtc.text.tfidf import TextSettings

PREFIX = "candidates"
"""Prefix of the names under which the tree is saved."""
LEAF, FAN_OUT, DESCRIBED = 256, 256, 256
"""Labels per leaf, children per node, and features that represent a label in clustering."""
SEARCH = SearchParameters(beam=20, link=3)
"""Beam width, larger than for a model that ranks by the tree alone, and exponent of the edge log-probability."""


@dataclass(frozen=True)
class CandidateSettings(Settings):
    """Which labels the network scores."""

    kind: Literal["auto", "none", "tree"] = "auto"
    """Score all labels ('none') or those proposed by a linear tree; 'auto' uses a tree if scoring all is slow."""
    count: int = 500
    """Number of labels proposed per document."""

    of = "candidates"
    searched = False

    def check(self) -> None:
        self.require_range("count", 1)


class Proposer:
    """A linear label tree on tf-idf features that proposes labels."""

    def __init__(self, features: DocumentFeatures, forest: Forest) -> None:
        self._features, self._forest = features, forest

    @classmethod
    def fit(cls, train: Dataset, text: TextSettings, run: FitContext) -> Self:
        """Train a tree over the labels of the training documents."""
        assert train.labels is not None
        threads, seed = run.runtime.threads, run.runtime.seed
        features, rows = DocumentFeatures.fit(train, text, run.runtime, run.progress)
        numbers = numbers_by_frequency(rows)
        described = positive_features(rows, train.labels, keep=DESCRIBED, threads=threads)
        tree = balanced_tree(
            described, leaf_size=LEAF, fan_out=FAN_OUT, seed=seed, threads=threads, progress=run.progress
        )
        trained = train_tree(
            Rows.build(rows, numbers),
            int(rows.shape[1]),
            train.labels,
            tree,
            LinearObjective(),
            seed=seed,
            threads=threads,
            workspace=run.workspace,
            name=PREFIX,
            progress=run.progress,
            partial=PartialLabels.of(train),
        )
        return cls(features, Forest([(tree, trained)], numbers, SEARCH))

    def best(self, batch: Dataset, count: int, allowed: Mask | None, runtime: Runtime) -> Labels:
        """(n, count) labels, −1 as padding."""
        return self._forest.predict(self._features.transform(batch, runtime), count, allowed, runtime.threads)[0]

    def recall(self, batch: Dataset, truth: Csr, count: int, runtime: Runtime) -> float:
        """Fraction of the documents' labels that are proposed."""
        found = self.best(batch, min(count, truth.shape[1]), None, runtime)
        held = found >= 0
        hits = truth[np.nonzero(held)[0], found[held]]
        return float(np.count_nonzero(hits) / max(1, truth.nnz))

    def state(self) -> State:
        """The state to save, with prefixed names."""
        features, forest = self._features.state(), self._forest.state()
        arrays = features.arrays | {f"forest.{name}": array for name, array in forest.items()}
        return State(
            {PREFIX: features.values},
            {f"{PREFIX}.{name}": array for name, array in arrays.items()},
            {f"{PREFIX}_{name}": table for name, table in features.tables.items()},
        )

    @classmethod
    def from_state(cls, state: SavedState, text: TextSettings, labels: int) -> Self | None:
        """Restore from `state`; None if it has no tree."""
        if not state.has_value(PREFIX):
            return None
        inner = state.nested(state.value(PREFIX, dict), f"{PREFIX}.", f"{PREFIX}_")
        features = DocumentFeatures.from_state(text, inner)
        forest = Forest.from_state(inner.part("forest."), SEARCH, labels=labels, width=features.width)
        return cls(features, forest)
