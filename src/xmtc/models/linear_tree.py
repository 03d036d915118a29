"""Common parts of models with label trees of linear classifiers: everything except how the tree is built."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Alias, Range
from xmtc.core.errors import UnsupportedError
from xmtc.core.explanation import Explanation, TokenEvidence
from xmtc.data.dataset import Csr, Dataset, as_dataset
from xmtc.labels.features import joined, positive_features
from xmtc.labels.name_documents import LENGTH, NameDocuments, has_names, has_word_keys, name_texts
from xmtc.labels.tree import LabelTree
from xmtc.linear.beam_search import SIGMOID
from xmtc.linear.forest import Forest, Reasons, SearchParameters, train_tree
from xmtc.linear.node_documents import PartialLabels
from xmtc.linear.node_training import LinearObjective, Rows, numbers_by_frequency
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.models.dense_source import read_text_vectors
from xmtc.models.update import Change
from xmtc.nn.neighbours.text_vectors import DenseSettings, TextVectors
from xmtc.text.features import DenseColumns, DocumentFeatures, Weighing
from xmtc.text.tfidf import TextSettings

USUAL = 2.0
"""Default weight of label names, if there are any."""
MOST = 1000
"""Maximum weight of label names."""
FEW_LABELS = 10_000
"""Up to this many labels, one tree with large leaves is as accurate as two with small ones, and faster."""


@dataclass(frozen=True)
class LinearTreeSettings(LinearObjective):
    """Settings of models with label trees of linear classifiers."""

    cost: Annotated[float | Literal["auto"], Range(0.05, 10, log=True)] = "auto"
    """Inverse regularisation strength C of the classifiers; 'auto' is 0.2 (features / 500)^0.3, from 0.25 to 1."""
    weights: Literal["float32", "float16"] = "float16"
    """Precision of the saved weights; 'float16' halves their size, and is as accurate."""
    trees: int | Literal["auto"] = 2
    """Number of trees whose probabilities are averaged; 'auto' is 1 for up to 10,000 labels and 2 for more."""
    beam_width: Annotated[int, Alias("beam")] = 5
    """Beam width: nodes followed per level of a tree; 0 follows all."""
    power: int = 3
    """Exponent of the edge log-probability −max(0, 1 − margin)^power; 2 as published. Unused with the logistic loss."""
    path_weight: float = 0.5
    """Weight of the log-probabilities of inner edges relative to that of the last edge; 1 as published."""
    negatives: int = 4
    """Nodes per level in which a document is a negative because a search would try them first; 0 as published."""
    label_names: float | Literal["auto"] = "auto"
    """Weight of a label's names as a training document, 0 for none; 'auto' is 2 if there are names or keys of words."""
    cluster_names: float = 0.0
    """Weight of a label's names in clustering, relative to its documents; labels without documents use names alone."""
    label_features: int = 256
    """Number of features, those with the largest weights, that represent a label in clustering; 0 keeps all."""
    keep_replay: int = 0
    """Number of training documents stored in the model folder for replay in updates; 0 for none."""
    columns: Weighing = "given"
    """Weighting of feature matrices: as given, or multiplied by idf. Text always uses tf-idf."""
    text: TextSettings = field(default_factory=TextSettings)
    """Settings of the tf-idf features."""
    dense: DenseSettings = field(default_factory=DenseSettings)
    """Vectors of the texts as further features."""

    def check(self) -> None:
        super().check()
        self.require_range("keep_replay", 0)
        if self.trees != "auto":
            self.require_range("trees", 1, 1000)
        self.require_range("beam_width", 0)
        self.require_range("power", 2, 3)
        self.require_range("path_weight", 0.01, 1)
        self.require_range("negatives", 0)
        self.require_range("label_features", 0)
        require_name_weight(self)
        self.require_range("cluster_names", 0, MOST)


def require_name_weight(settings: Any) -> None:
    """Check the setting `label_names`."""
    if settings.label_names != "auto":
        settings.require("label_names", 0 <= settings.label_names <= MOST, f"a number from 0 to {MOST}, or auto")


class TrainingRows(NamedTuple):
    """Rows and labels to train on: those of the documents, followed by those of label names."""

    rows: Csr  # (n + m, D)
    labels: Csr  # (n + m, L)
    importance: NDArray[np.float32] | None  # (n + m,); None: all 1
    partial: PartialLabels | None

    @classmethod
    def of(cls, documents: Dataset, rows: Csr, names: NameDocuments | None = None, weight: float = 1.0) -> TrainingRows:
        """With `names`, each counts as a document of this weight."""
        assert documents.labels is not None
        partial = PartialLabels.of(documents)
        if names is None:
            return cls(rows, documents.labels, None, partial)
        if partial is not None:
            partial = partial.extended(len(names.labels))
        return cls(
            sp.csr_array(sp.vstack([rows, names.rows * LENGTH], format="csr")),
            sp.csr_array(sp.vstack([documents.labels, names.matrix()], format="csr")),
            np.concatenate([np.ones(len(documents)), np.full(len(names.labels), weight)]).astype(np.float32),
            partial,
        )


class ForestModel(Model):
    """Base class of models with a forest of linear classifiers on tf-idf features."""

    capabilities = frozenset({"text", "features", "explain", "score_labels", "update"})
    _sees_all: ClassVar[bool] = False
    """Whether a label's classifier is trained on all documents."""
    _features: DocumentFeatures
    _forest: Forest
    _cost: float
    """The cost of errors in training."""
    _name_weight: float
    """Weight of label names in training; 0 if they were not used."""

    @property
    def uses_label_names(self) -> bool:
        """Whether labels without training documents are learnt from their names."""
        return bool(self.config.label_names != 0)

    @property
    def adds_unseen_labels(self) -> bool:
        return self._name_weight > 0

    @property
    def name_weight(self) -> float:
        return self._name_weight

    @abstractmethod
    def _search(self) -> SearchParameters:
        """How the forest is searched."""

    @property
    def _name_importance(self) -> float:
        """Names are often a label's only document: their cost does not decrease with that of documents."""
        return self._name_weight / min(1.0, self._cost)

    def _objective(self, width: int) -> LinearObjective:
        """The objective of training on this number of features; its cost is recorded."""
        objective: LinearObjective = self.config.resolved(width)
        self._cost = float(objective.cost)
        if self.config.cost == "auto":
            self.facts = {"cost": self._cost}
        return objective

    def _fit_features(self, train: Dataset, run: FitContext) -> tuple[Csr, NameDocuments | None]:
        """Learn the features; return the rows of the documents, and those of the names if a setting uses them."""
        self._features, rows = DocumentFeatures.fit(
            train,
            self.config.text,
            run.runtime,
            run.progress,
            self.config.columns,
            self._text_vectors(train, run),
        )
        self._name_weight = self._chosen_weight(train, run)
        if not (self._name_weight or getattr(self.config, "cluster_names", 0)):
            return rows, None
        if not train.has_text:
            raise UnsupportedError("label names need texts. Train on texts, or set label_names and cluster_names to 0.")
        assert train.label_index is not None
        texts = name_texts(train.label_index)
        names, grown = NameDocuments.of(texts, self._features, len(train), run.runtime, run.progress)
        if grown.width > self._features.width:  # words that are rare in documents
            self._features, rows = grown, grown.widened(train, rows, run.runtime)
        return rows, names

    def _text_vectors(self, train: Dataset, run: FitContext) -> DenseColumns | None:
        """The vectors of texts, if the settings have a source of them."""
        return read_text_vectors(self.config.dense, train, run)

    def _chosen_weight(self, train: Dataset, run: FitContext) -> float:
        """The weight of names in training: as set, or `USUAL` if there are names or keys that consist of words."""
        if self.config.label_names != "auto":
            return float(self.config.label_names)
        if not train.has_text:
            return 0.0
        assert train.label_index is not None
        is_worthwhile = (
            train.whole_vocabulary
            or has_names(train.label_index)
            or has_word_keys(train.label_index, self._features, run.runtime)
        )
        return USUAL if is_worthwhile else 0.0

    def _update(self, change: Change, run: FitContext) -> None:
        """Add new labels to the leaves of similar labels; continue training nodes that new documents or names reach."""
        documents, labels = change.documents, change.labels
        seen = change.documents_before + len(change.new)
        features, rows = self._features.grown(documents, seen, run.runtime, run.progress)
        known, names = change.known, None
        if self._name_weight:
            texts, is_learnt = labels.names_to_learn()
            if len(documents) or not is_learnt.all():
                names, grown = NameDocuments.of(texts, features, seen, run.runtime, run.progress)
                if grown.width > features.width:
                    features, rows = grown, grown.widened(documents, rows, run.runtime)
                known = np.concatenate([known, is_learnt[names.labels]])
        training = TrainingRows.of(documents, rows, names, self._name_importance)
        self._features = features
        self._forest = self._forest.updated(
            training.rows,
            training.labels,
            known,
            change.relatives,
            (labels.numbers, labels.kept),
            replace(self.config, cost=self._cost),
            sees_all=self._sees_all,
            seed=run.runtime.seed,
            threads=run.runtime.threads,
            workspace=run.workspace,
            progress=run.progress,
            partial=training.partial,
            importance=training.importance,
        )

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        return self._forest.predict(self._features.transform(batch, self.runtime), k, allowed, self.runtime.threads)

    def _known_words(self, batch: Dataset) -> Mask | None:
        return self._features.known_words(batch, self.runtime)

    def _tag(self, row: Csr, k: int) -> tuple[Labels, Scores]:
        return self._forest.predict_one(self._features.scaled(row), k)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        return self._forest.score(self._features.transform(batch, self.runtime), candidates, self.runtime.threads)

    def _evidence(self, text: str, label: int) -> tuple[tuple[TokenEvidence, ...], float, Reasons]:
        """Contributions of the words, contribution of the text vector, and reasons for a label."""
        row = self._features.transform(as_dataset([text]), self.runtime)
        reasons = self._forest.reasons(row, label)
        words = self._features.evidence(text, reasons.weights)
        return tuple(words), self._features.dense_contribution(row, reasons.weights), reasons

    def _state(self) -> State:
        kept = self._features.state()
        kept.values["cost"] = self._cost
        if self._name_weight:
            kept.values["name_weight"] = self._name_weight
        kept.arrays.update({f"forest.{name}": array for name, array in self._forest.state().items()})
        return kept

    def _restore(self, state: SavedState) -> None:
        dense = TextVectors.restored(state, self.runtime)
        self._features = DocumentFeatures.from_state(self.config.text, state, dense)
        self._name_weight = state.value("name_weight", float, 0, MOST) if state.has_value("name_weight") else 0.0
        self._cost = state.value("cost", float, 1e-6, 1e7) if state.has_value("cost") else float(self.config.cost)
        self._forest = Forest.from_state(
            state.part("forest."),
            self._search(),
            labels=len(self.label_counts),
            width=self._features.width,
            threads=self.runtime.threads,
        )


class LinearTreeModel(ForestModel):
    """Label trees in which every node has a linear classifier for each of its children."""

    def _label_features(self, rows: Csr, labels: Csr, threads: int) -> Csr:
        """(L, D) features of labels for clustering; `label_features` limits those of words, not of text vectors."""
        keep, vectors = self.config.label_features, self._features.dense
        if vectors is None:
            return positive_features(rows, labels, keep=keep, threads=threads)
        dense = positive_features(sp.csr_array(rows[:, : vectors.width]), labels, keep=0, threads=threads)
        words = positive_features(sp.csr_array(rows[:, vectors.width :]), labels, keep=keep, threads=threads)
        return joined(dense * np.float32(vectors.weight), words)

    @abstractmethod
    def _grow(self, rows: Csr, labels: Csr, names: Csr | None, seed: int, run: FitContext) -> LabelTree:
        """Build a tree over the labels, with `names` (L, D) beside their documents; it depends on the seed."""

    def _tree_count(self, labels: int) -> int:
        """Number of trees for this number of labels."""
        return (1 if labels <= FEW_LABELS else 2) if self.config.trees == "auto" else int(self.config.trees)

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        rows, names = self._fit_features(train, run)
        assert train.labels is not None
        named = None if names is None else names.by_label()
        objective = self._objective(int(rows.shape[1]))
        training = TrainingRows.of(train, rows, names if self._name_weight else None, self._name_importance)
        numbers = numbers_by_frequency(training.rows)
        numbered = Rows.build(training.rows, numbers, training.importance)
        trees = []
        for place in range(self._tree_count(training.labels.shape[1])):
            name, seed = f"tree-{place}", run.runtime.seed + 104_729 * place
            if not run.workspace.has(name):
                run.workspace.save(name, self._grow(rows, train.labels, named, seed, run).state())
            tree = LabelTree.from_arrays(run.workspace.load(name)[0])
            chunks = train_tree(
                numbered,
                int(rows.shape[1]),
                training.labels,
                tree,
                objective,
                seed=seed,
                threads=run.runtime.threads,
                workspace=run.workspace,
                name=name,
                progress=run.progress,
                partial=training.partial,
                negatives=self.config.negatives,
            )
            trees.append((tree, chunks))
            if tree.depth == 1:  # all others would be the same
                break
        self._forest = Forest(trees, numbers, self._search())

    def _search(self) -> SearchParameters:
        link = SIGMOID if self.config.loss == "logistic" else self.config.power
        return SearchParameters(self.config.beam_width, link, self.config.path_weight)

    def _state(self) -> State:
        kept = super()._state()
        kept.values["path_weight"] = self.config.path_weight
        return kept

    def _restore(self, state: SavedState) -> None:
        weight = state.value("path_weight", float) if state.has_value("path_weight") else 1.0  # 1 in older folders
        self.config = replace(self.config, path_weight=weight)
        super()._restore(state)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        evidence, vector, reasons = self._evidence(text, label)
        steps = enumerate(reasons.path, start=1)
        path = [self._path_step(depth, step.probability, step.below) for depth, step in steps]
        name = self.labels.name(label)
        return Explanation("tokens", text, name, score, evidence, reasons.bias, tuple(path), text_vector=vector)
