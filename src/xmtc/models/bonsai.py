"""Bonsai: shallow, unbalanced label trees with a linear classifier for every edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from xmtc.core.config import Choices, Range
from xmtc.data.dataset import Csr
from xmtc.labels.features import cooccurrence_features, joined
from xmtc.labels.name_documents import with_names
from xmtc.labels.tree import LabelTree, unbalanced_tree
from xmtc.models.context import FitContext
from xmtc.models.linear_tree import LinearTreeModel, LinearTreeSettings


@dataclass(frozen=True)
class BonsaiSettings(LinearTreeSettings):
    """Settings of bonsai."""

    clusters: Annotated[int, Range(16, 256, log=True)] = 100
    """Maximum number of clusters that the labels of a node are split into."""
    leaf_size: Annotated[int, Range(32, 512, log=True)] = 100
    """Split nodes with more labels than this."""
    depth: int = 3
    """Maximum number of levels, including the root; nodes that are still too large become leaves."""
    label_space: Annotated[Literal["input", "output", "both"], Choices()] = "input"
    """Cluster labels by the features of their documents ('input'), by co-occurrence ('output'), or by both."""

    of = "bonsai"

    def check(self) -> None:
        super().check()
        self.require_range("clusters", 2)
        self.require_range("leaf_size", 1)
        self.require_range("depth", 1)


class Bonsai(LinearTreeModel):
    """Bonsai: shallow, unbalanced label trees of linear classifiers.

    Labels are split by k-means into up to 100 clusters of any size, and large clusters are split again. Every edge has
    a linear classifier on tf-idf features. A score is the product of the probabilities along the path, averaged over
    the trees.
    """

    name = "bonsai"
    Config = BonsaiSettings
    ablations: ClassVar = {
        "one-tree": {"trees": 1},
        "no-label-names": {"label_names": 0.0},
        "published-edges": {"power": 2, "path_weight": 1.0},
        "published-negatives": {"negatives": 0},
        "labels-by-documents": {"label_space": "output"},
        "labels-by-both": {"label_space": "both"},
    }

    def _grow(self, rows: Csr, labels: Csr, names: Csr | None, seed: int, run: FitContext) -> LabelTree:
        keep, threads = self.config.label_features, run.runtime.threads
        spaces = []
        if self.config.label_space in ("input", "both"):
            spaces.append(self._label_features(rows, labels, threads))
        if self.config.label_space in ("output", "both"):
            spaces.append(cooccurrence_features(labels, keep=keep, threads=threads))
        if names is not None:
            apart = self.config.label_space == "output"
            spaces[0] = with_names(spaces[0], names, self.config.cluster_names, apart=apart)
        return unbalanced_tree(
            spaces[0] if len(spaces) == 1 else joined(*spaces),
            clusters=self.config.clusters,
            leaf_size=self.config.leaf_size,
            depth=self.config.depth,
            seed=seed,
            threads=threads,
            progress=run.progress,
        )
