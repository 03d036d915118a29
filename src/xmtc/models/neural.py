"""Common parts of neural models: readers, word vectors, members, training, updates and prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.artifact.workspace import Workspace
from xmtc.core.config import Settings
from xmtc.core.errors import UnsupportedError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.metrics import ndcg
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.models.update import Change
from xmtc.nn.device import chosen_device, cpu_threads, memory_errors
from xmtc.nn.documents import DocumentReader, Documents, Labelled, UnknownLabels, split_validation
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.heads.base import Head, LinearHead
from xmtc.nn.heads.correlation import CorrelationHead, CorrelationSettings
from xmtc.nn.members import (
    FlatMember,
    MemberRun,
    MemberSpec,
    NeuralMember,
    TrainingData,
    UpdateBatch,
    UpdateDocuments,
)
from xmtc.nn.network import TABLE, Network
from xmtc.nn.onnx_export import export_networks, values_per_label
from xmtc.nn.prediction import best_labels
from xmtc.nn.tensors import as_array
from xmtc.nn.training.fine_tuning import UpdateSettings
from xmtc.nn.training.loop import TrainingSettings
from xmtc.nn.training.process_group import Group
from xmtc.nn.word_table import Table, initial_table, rows_of_new_words
from xmtc.onnx.graph import OnnxExport
from xmtc.text.sequences import SequenceSettings, WordSequences
from xmtc.text.weighted_bags import Numbered
from xmtc.text.word2vec import CorpusVectorSettings


@dataclass(frozen=True)
class NetworkSettings(Settings):
    """Settings of neural models."""

    members: int = 1
    """Number of networks, trained from different seeds, whose probabilities are averaged."""
    training: TrainingSettings = field(default_factory=TrainingSettings)
    """Training of the network."""

    def check(self) -> None:
        self.require_range("members", 1, 1000)


@dataclass(frozen=True)
class UpdatableSettings(Settings):
    """Settings of neural models that can be updated."""

    keep_replay: int = 0
    """Number of training documents stored in the model folder for replay in updates; 0 for none."""
    update: UpdateSettings = field(default_factory=UpdateSettings)
    """Training in updates."""

    def check(self) -> None:
        super().check()
        self.require_range("keep_replay", 0)


@dataclass(frozen=True)
class WordNetworkSettings(NetworkSettings):
    """Settings of models with word vectors."""

    vectors: str = "corpus"
    """Initial word vectors: 'corpus' trains them on the training texts, 'random', or the path of a file."""
    frozen: bool = False
    """Freeze the word vectors."""
    corpus: CorpusVectorSettings = field(default_factory=CorpusVectorSettings)
    """Training of word vectors on the corpus; `width` also applies to random vectors."""

    def check(self) -> None:
        super().check()
        self.require("vectors", bool(self.vectors), "'corpus', 'random' or a file")


@dataclass(frozen=True)
class NeuralSettings(UpdatableSettings, WordNetworkSettings):
    """Settings of models that read sequences of words."""

    text: SequenceSettings = field(default_factory=SequenceSettings)
    """Settings of the word sequences."""
    correlation: CorrelationSettings = field(default_factory=CorrelationSettings)
    """Correlation blocks (CorNet)."""


CORRELATION_ABLATIONS: dict[str, dict[str, Any]] = {
    "correlation": {"correlation.blocks": 2},
    "published-correlation": {"correlation.blocks": 2, "correlation.identity": False},
}
"""Added parts of models that score all labels."""


class NeuralModel(Model):
    """Base class of neural models: document reader, word vectors, encoder and head, with one or several members.

    The settings `encoder` build the encoder, and `_head` builds the head. By default, documents are read as sequences
    of words, and members are networks over all labels.
    """

    capabilities = frozenset({"text", "score_labels"})
    less_memory: ClassVar[str] = "Lower training.batch_size, text.max_tokens, or the sizes in encoder and head."
    """Remedy shown when memory is insufficient."""
    ablations: ClassVar = {
        "random-vectors": {"vectors": "random"},
        "frozen-vectors": {"frozen": True},
        "no-dropout": {"encoder.dropout": 0.0, "encoder.word_dropout": 0.0},
        "no-averaging": {"training.averaging": "none"},
        **CORRELATION_ABLATIONS,
    }
    _reader: Any
    """A `DocumentReader`."""
    _members: list[Any]
    """Each is a `NeuralMember`."""

    # ---- overridden by models

    def _encoder(self, width: int) -> Encoder:
        """A new encoder for word vectors of this width; its `width` is that of its states or vectors."""
        encoder: Encoder = self.config.encoder.build(width)
        return encoder

    def _head(self, labels: int, width: int) -> Head:
        """A new head for states or vectors of this width."""
        return LinearHead(labels, width)

    def _read_labels(self, labels: LabelIndex, table: Table, runtime: Runtime) -> None:
        """Called before networks are built, with the word vectors (V, e): heads may start from the names of labels."""
        return

    @property
    def _member_type(self) -> type[NeuralMember[Any]]:
        return FlatMember

    def _spec(self, runtime: Runtime) -> MemberSpec:
        """How members are built and trained."""
        return MemberSpec(
            self._encoder,
            self._correlated_head,
            self._reader.size,
            self.config.training,
            self._validation_score,
            runtime,
            trained_words=not self._frozen,
            update=getattr(self.config, "update", UpdateSettings()),
        )

    def _correlated_head(self, labels: int, width: int) -> Head:
        """The head, with correlation blocks if the settings have some."""
        head, correlation = self._head(labels, width), getattr(self.config, "correlation", CorrelationSettings())
        return CorrelationHead(head, correlation) if correlation.blocks else head

    def _fit_reader(self, train: Dataset, run: FitContext) -> tuple[DocumentReader, Numbered]:
        """The document reader, and the encoded training documents."""
        return WordSequences.fit(train, self.config.text, run.runtime, run.progress)

    def _restored_reader(self, state: SavedState) -> DocumentReader:
        return WordSequences.from_state(self.config.text, state)

    def _initial_table(self, numbered: Numbered, run: FitContext) -> tuple[Table, dict[str, Any]]:
        """(V, e) the initial word table, and statistics about it."""
        config, seed = self.config, run.runtime.seed
        return initial_table(config.vectors, config.corpus, self._reader, numbered, seed=seed, progress=run.progress)

    def _rows_of_new_words(self, count: int, runtime: Runtime) -> Table:
        """(count, e) vectors for words added by an update."""
        return rows_of_new_words(as_array(self._members[0].word_table), count, runtime.seed)

    def _validation_score(self, network: Network, data: TrainingData) -> float:
        """nDCG@5 of a network on the validation set."""
        assert data.validation is not None
        documents, truth = data.validation
        return ndcg(best_labels([network], documents, min(5, truth.shape[1]))[0], truth, 5)

    def _conclude(self, numbered: Numbered, data: TrainingData, run: FitContext) -> None:
        """Called after all members are trained; `numbered` has all encoded training documents."""
        return

    # ---- training

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        assert train.labels is not None
        device = chosen_device(run.runtime)
        group = Group(run.runtime, device)
        self._reader, numbered = self._fit_reader(train, run)
        self.facts = {}
        table = self._table(numbered, group, run)
        assert train.label_index is not None
        self._read_labels(train.label_index, table, run.runtime)
        learnt, held = split_validation(
            train, numbered, valid, self._reader, self.config.training.validation_size, run.runtime
        )
        validation = None if held is None else (Documents(held.numbered, None, device), held.labels)
        frequencies = self.label_counts / len(train)
        data = TrainingData(
            train, table, learnt.documents(device), learnt.labels, validation, frequencies, learnt.unknown
        )
        spec, self._members, scores = self._spec(run.runtime), [], []
        for number in range(self.config.members):
            member_run = MemberRun(number, run.runtime, group, run.progress, run.workspace)
            with member_run.environment(self.less_memory):
                member, score = self._member_type.fit(spec, data, member_run)
            self._members.append(member)
            scores.append(score)
        if validation is not None:
            self.facts["nDCG@5 held out"] = round(float(np.mean(scores)), 4)
        self._conclude(numbered, data, run)

    def _table(self, numbered: Numbered, group: Group, run: FitContext) -> Table:
        """(V, e) the initial word table, cached in the workspace."""
        table, facts = cached_array(
            run.workspace, "vectors", TABLE, lambda: self._initial_table(numbered, run), group.leads
        )
        self.facts.update(facts)
        return table

    def _update(self, change: Change, run: FitContext) -> None:
        """Extend the members to the new labels and words, and train them on new and replayed documents."""
        device = chosen_device(run.runtime)
        group = Group(run.runtime, device)
        before, documents_now = self._reader.size, change.documents_before + len(change.new)
        self._reader = self._reader.grown(change.new.complete_documents(), documents_now, run.runtime)
        learnt, decided = self._update_documents(change, run)
        words = self._rows_of_new_words(self._reader.size - before, run.runtime)
        table = np.concatenate([as_array(self._members[0].word_table), words])
        self._read_labels(self.labels, table, run.runtime)
        batch = UpdateBatch(
            change.labels.kept,
            change.relatives,
            change.carried(change.counts_before),
            self.label_counts / documents_now,
            words,
            None if learnt is None else UpdateDocuments.of(learnt, device),
            None if decided is None else UpdateDocuments.of(decided, device),
        )
        spec, members = self._spec(run.runtime), []
        for number, member in enumerate(self._members):
            member_run = MemberRun(number, run.runtime, group, run.progress, run.workspace)
            with member_run.environment(self.less_memory):
                members.append(member.updated(spec, batch, member_run))
        self._members = members

    def _update_documents(self, change: Change, run: FitContext) -> tuple[Labelled | None, Labelled | None]:
        """New and replayed documents to train on, and new ones with unknown labels, with complete ones as anchors."""
        if not len(change.new):
            return None, None
        documents, update, seed = change.documents, self.config.update, run.runtime.seed
        assert documents.labels is not None
        encoded = self._reader.encode(documents, run.runtime)
        whole = Labelled(encoded, documents.labels, UnknownLabels.of(documents))
        is_new, is_partial = np.arange(len(documents)) < len(change.new), documents.partial_rows()
        decided = documents.decided()
        complete = np.flatnonzero(is_new & ~is_partial)
        partial = np.flatnonzero(is_new & is_partial & (np.diff(decided.indptr) > 0))
        replayed, others = np.flatnonzero(~is_new), np.flatnonzero(~is_partial)
        rows = np.concatenate([complete, replayed])[update.mixture(len(complete), len(replayed), seed)]
        learnt = whole.take(rows) if len(rows) else None
        if not len(partial):
            return learnt, None
        is_decided = np.zeros(documents.labels.shape[1], dtype=np.float32)
        is_decided[decided[partial].indices] = 1.0
        has_decided = np.asarray(documents.labels[others] @ is_decided) > 0
        anchors = others[update.anchors(len(partial), has_decided, seed)]
        return learnt, whole.take(np.append(partial, anchors))

    # ---- prediction

    def _documents(self, batch: Dataset) -> Documents:
        return Documents(self._reader.encode(batch, self.runtime), None, chosen_device(self.runtime))

    def _document(self, text: str) -> tuple[Documents, Tensor, Tensor | None]:
        """A single document, with its words (1, T) and their weights."""
        documents = self._documents(as_dataset([text]))
        row, length = torch.zeros(1, dtype=torch.int64, device=documents.device), int(documents.lengths[0])
        return documents, documents.tokens(row, length), documents.weights(row, length)

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        with cpu_threads(self.runtime.threads), memory_errors(self.less_memory):
            return self._best_labels(self._documents(batch), k, allowed)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        with cpu_threads(self.runtime.threads), memory_errors(self.less_memory):
            return self._candidate_scores(self._documents(batch), candidates)

    def _known_words(self, batch: Dataset) -> Mask | None:
        known: Mask = self._reader.known_words(batch, self.runtime)
        return known

    def _best_labels(self, documents: Documents, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        """(n, k) labels and mean probabilities of all members."""
        return self._member_type.best_labels(self._members, documents, k, allowed)

    def _candidate_scores(self, documents: Documents, candidates: Labels) -> Scores:
        """(n, c) mean probabilities of given labels."""
        return self._member_type.candidate_scores(self._members, documents, candidates)

    def to_onnx(self) -> OnnxExport:
        """One graph of all members."""
        _ = self.labels  # raises NotFittedError
        if "export" not in self.capabilities:
            return super().to_onnx()
        networks = [member.network for member in self._members if isinstance(member, FlatMember)]
        if not networks:
            raise UnsupportedError(
                f"{self.name} with a label tree cannot be exported to ONNX. Train it with head.tree.height = 0."
            )
        with cpu_threads(self.runtime.threads), memory_errors("Use a machine with more memory."):
            graph = export_networks(networks)
        return OnnxExport(graph, self._reader, values_per_label(networks[0].head))

    # ---- saving

    @property
    def _frozen(self) -> bool:
        """Whether the word table is frozen, and hence the same for all members."""
        return bool(getattr(self.config, "frozen", False))

    def _state(self) -> State:
        state: State = self._reader.state()
        for number, member in enumerate(self._members):
            for name, array in member.arrays().items():
                if number == 0 or name != TABLE or not self._frozen:
                    state.arrays[f"{number}.{name}"] = array
        return state

    def _restore(self, state: SavedState) -> None:
        self._reader = self._restored_reader(state)
        spec, self._members = self._spec(self.runtime), []
        table = state.array(f"0.{TABLE}", np.float32, (None, None)) if self._frozen else None
        for number in range(self.config.members):
            # Random initial weights are replaced at once, so the random state is restored.
            with torch.random.fork_rng(devices=[]), memory_errors("Use device 'cpu', or a machine with more memory."):
                part = state.part(f"{number}.")
                self._members.append(self._member_type.restored(spec, part, len(self.label_counts), table))


def cached_array(
    workspace: Workspace, part: str, name: str, make: Callable[[], tuple[Table, dict[str, Any]]], leads: bool
) -> tuple[Table, dict[str, Any]]:
    """An array and statistics about it, cached in the workspace; only the leading process writes them."""
    if not workspace.has(part):
        array, facts = make()
        if not leads:
            return array, facts
        workspace.save(part, {name: array}, facts)
    arrays, facts = workspace.load(part)
    return arrays[name], facts
