"""Parabel: balanced label trees with a linear classifier for every edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from xmtc.core.config import Range
from xmtc.data.dataset import Csr
from xmtc.labels.name_documents import with_names
from xmtc.labels.tree import LabelTree, balanced_tree
from xmtc.models.context import FitContext
from xmtc.models.linear_tree import FEW_LABELS, LinearTreeModel, LinearTreeSettings


@dataclass(frozen=True)
class ParabelSettings(LinearTreeSettings):
    """Settings of parabel."""

    trees: int | Literal["auto"] = "auto"
    """Number of trees whose probabilities are averaged; 'auto' is 1 for up to 10,000 labels and 2 for more."""
    leaf_size: Annotated[int | Literal["auto"], Range(32, 1024, log=True)] = "auto"
    """Approximate number of labels in a leaf; 'auto' is 512 for up to 10,000 labels and 256 for more."""
    fan_out: int = 256
    """Maximum number of children of an inner node; larger values give shallower trees."""

    of = "parabel"

    def check(self) -> None:
        super().check()
        if self.leaf_size != "auto":
            self.require_range("leaf_size", 2)
        self.require_range("fan_out", 2)


class Parabel(LinearTreeModel):
    """Parabel: balanced label trees of linear classifiers.

    Labels are split recursively into balanced clusters by the features of their documents, which gives shallow, wide
    trees. Every edge has a linear classifier on tf-idf features. A score is the product of the probabilities along the
    path, averaged over the trees.
    """

    name = "parabel"
    Config = ParabelSettings
    ablations: ClassVar = {
        "one-tree": {"trees": 1},
        "no-label-names": {"label_names": 0.0},
        "binary-tree": {"fan_out": 2, "leaf_size": 100},  # as published
        "published-edges": {"power": 2, "path_weight": 1.0},
        "published-negatives": {"negatives": 0},
        "logistic": {"loss": "logistic"},
        "plain-counts": {"text.sublinear": False},
    }

    def _leaf_size(self, labels: int) -> int:
        return (512 if labels <= FEW_LABELS else 256) if self.config.leaf_size == "auto" else int(self.config.leaf_size)

    def _grow(self, rows: Csr, labels: Csr, names: Csr | None, seed: int, run: FitContext) -> LabelTree:
        threads = run.runtime.threads
        features = self._label_features(rows, labels, threads)
        if names is not None:
            features = with_names(features, names, self.config.cluster_names)
        return balanced_tree(
            features,
            leaf_size=self._leaf_size(features.shape[0]),
            fan_out=self.config.fan_out,
            seed=seed,
            threads=threads,
            progress=run.progress,
        )
