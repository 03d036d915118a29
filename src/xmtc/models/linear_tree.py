"""Common parts of models with label trees of linear classifiers: everything except how the tree is built."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from xmtc.artifact.store import State
from xmtc.core.config import Alias
from xmtc.core.explanation import Explanation
from xmtc.data.dataset import Csr, Dataset, as_dataset
from xmtc.labels.tree import LabelTree
from xmtc.linear.beam_search import SIGMOID
from xmtc.linear.forest import Forest, train_tree
from xmtc.linear.node_documents import PartialLabels
from xmtc.linear.node_training import LinearObjective, Rows, numbers_by_frequency
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.models.update import Change
from xmtc.text.features import DocumentFeatures, unit_rows
from xmtc.text.tfidf import TextSettings


@dataclass(frozen=True)
class LinearTreeSettings(LinearObjective):
    """Settings of models with label trees of linear classifiers."""

    trees: int = 3
    """Number of trees whose probabilities are averaged; one if all labels fit into a single leaf."""
    beam_width: Annotated[int, Alias("beam")] = 10
    """Beam width: nodes followed per level of a tree; 0 follows all."""
    power: int = 3
    """Exponent of the edge log-probability −max(0, 1 − margin)^power; 2 as published. Unused with the logistic loss."""
    label_features: int = 256
    """Number of features, those with the largest weights, that represent a label in clustering; 0 keeps all."""
    keep_replay: int = 0
    """Number of training documents stored in the model folder for replay in updates; 0 for none."""
    text: TextSettings = field(default_factory=TextSettings)
    """Settings of the tf-idf features."""

    def check(self) -> None:
        super().check()
        self.require_range("keep_replay", 0)
        self.require_range("trees", 1, 1000)
        self.require_range("beam_width", 0)
        self.require_range("power", 2, 3)
        self.require_range("label_features", 0)


class ForestModel(Model):
    """Base class of models with a forest of linear classifiers on tf-idf features."""

    capabilities = frozenset({"text", "features", "explain", "score_labels", "update"})
    _sees_all: ClassVar[bool] = False
    """Whether a label's classifier is trained on all documents."""
    _features: DocumentFeatures
    _forest: Forest

    @abstractmethod
    def _beam_and_link(self) -> tuple[int, int]:
        """Beam width and link function of the forest."""

    def _update(self, change: Change, run: FitContext) -> None:
        """Add new labels to the leaves of similar labels, and continue training nodes that new documents reach."""
        documents, labels = change.documents, change.labels
        seen = change.documents_before + len(change.new)
        self._features, rows = self._features.grown(documents, seen, run.runtime)
        assert documents.labels is not None
        self._forest = self._forest.updated(
            rows,
            documents.labels,
            change.known,
            change.relatives,
            (labels.numbers, labels.kept),
            self.config,
            sees_all=self._sees_all,
            seed=run.runtime.seed,
            threads=run.runtime.threads,
            workspace=run.workspace,
            progress=run.progress,
            partial=PartialLabels.of(documents),
        )

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        return self._forest.predict(self._features.transform(batch, self.runtime), k, allowed, self.runtime.threads)

    def _tag(self, row: Csr, k: int) -> tuple[Labels, Scores]:
        return self._forest.predict_one(unit_rows(row), k)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        return self._forest.score(self._features.transform(batch, self.runtime), candidates, self.runtime.threads)

    def _state(self) -> State:
        kept = self._features.state()
        kept.arrays.update({f"forest.{name}": array for name, array in self._forest.state().items()})
        return kept

    def _restore(self, state: State) -> None:
        self._features = DocumentFeatures.from_state(self.config.text, state)
        arrays = {name.removeprefix("forest."): a for name, a in state.arrays.items() if name.startswith("forest.")}
        beam, link = self._beam_and_link()
        self._forest = Forest.from_state(
            arrays, labels=len(self.label_counts), width=self._features.width, beam=beam, link=link
        )


class LinearTreeModel(ForestModel):
    """Label trees in which every node has a linear classifier for each of its children."""

    @abstractmethod
    def _grow(self, rows: Csr, labels: Csr, seed: int, run: FitContext) -> LabelTree:
        """Build a tree over the labels; it depends on the seed."""

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        self._features, rows = DocumentFeatures.fit(train, self.config.text, run.runtime, run.progress)
        assert train.labels is not None
        numbers = numbers_by_frequency(rows)
        numbered = Rows.build(rows, numbers)
        trees = []
        for place in range(self.config.trees):
            name, seed = f"tree-{place}", run.runtime.seed + 104_729 * place
            if not run.workspace.has(name):
                run.workspace.save(name, self._grow(rows, train.labels, seed, run).state())
            tree = LabelTree.from_state(run.workspace.load(name)[0])
            chunks = train_tree(
                numbered,
                int(rows.shape[1]),
                train.labels,
                tree,
                self.config,
                seed=seed,
                threads=run.runtime.threads,
                workspace=run.workspace,
                name=name,
                progress=run.progress,
                partial=PartialLabels.of(train),
            )
            trees.append((tree, chunks))
            if tree.depth == 1:  # all others would be the same
                break
        beam, link = self._beam_and_link()
        self._forest = Forest(trees, numbers, beam=beam, link=link)

    def _beam_and_link(self) -> tuple[int, int]:
        return self.config.beam_width, SIGMOID if self.config.loss == "logistic" else self.config.power

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        row = self._features.transform(as_dataset([text]), self.runtime)
        reasons = self._forest.reasons(row, label)
        evidence = self._features.evidence(text, reasons.weights)
        steps = enumerate(reasons.path, start=1)
        path = [self._path_step(depth, step.probability, step.below) for depth, step in steps]
        name = self.labels.name(label)
        return Explanation("tokens", text, name, score, tuple(evidence), reasons.bias, tuple(path))
