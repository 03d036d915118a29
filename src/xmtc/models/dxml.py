"""DXML: documents are embedded in the space of label vectors, and the nearest training documents vote."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Choices, Range
from xmtc.core.errors import UnsupportedError
from xmtc.core.explanation import Explanation
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.labels.label_vectors import LabelVectorSettings, label_vectors, with_name_vectors
from xmtc.labels.name_documents import name_texts
from xmtc.models.base import Labels, Mask, Scores
from xmtc.models.context import FitContext
from xmtc.models.embedding_vote import DirectScores, EmbeddingVote, vote_quality
from xmtc.models.neighbour_vote import PartialVoters, Voters
from xmtc.models.neural import NetworkSettings, NeuralModel, UpdatableSettings, cached_array
from xmtc.models.update import Change
from xmtc.nn.device import chosen_device, cpu_threads, memory_errors
from xmtc.nn.documents import DocumentReader, Documents
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.encoders.sphere import EmbeddingSettings, SphereEncoder
from xmtc.nn.heads.base import Head
from xmtc.nn.heads.label_targets import TargetHead, TargetSettings
from xmtc.nn.members import MemberSpec, TrainingData
from xmtc.nn.neighbours.embedded_documents import EmbeddedDocuments, SearchSettings, moved_embeddings, partition_of
from xmtc.nn.neighbours.vector_index import VectorIndex
from xmtc.nn.network import Network
from xmtc.nn.prediction import embeddings
from xmtc.nn.tensors import read_tensor
from xmtc.nn.training.loop import TrainingSettings
from xmtc.nn.training.optimisers import Momentum
from xmtc.nn.training.process_group import Group
from xmtc.text.features import Weighing
from xmtc.text.sequences import PADDING
from xmtc.text.tfidf import TextSettings
from xmtc.text.weighted_bags import BagReader, Bags, Numbered

Array = NDArray[np.float32]

NEIGHBOURS = (5, 10, 20, 40, 80)
SHARPNESSES = (0.0, 5.0, 10.0, 20.0, 40.0)
USUAL = (20, 10.0)
"""Default neighbours and sharpness, without a validation set to choose them on."""
VECTORS = "label_vectors"
SKIP_SPREAD = 0.05
"""Standard deviation of the initial word weights of the skip connection."""


@dataclass(frozen=True)
class DxmlTrainingSettings(TrainingSettings):
    """Training of a DXML network, including the optimiser."""

    optimiser: Literal["adam", "sgd"] = "adam"
    """Optimiser: Adam, or SGD with momentum (as published)."""
    momentum: float = 0.9
    """Momentum of SGD; ignored with Adam."""
    weight_decay: float = 0.0
    """Weight decay of SGD; ignored with Adam."""

    def check(self) -> None:
        super().check()
        self.require("momentum", 0 <= self.momentum < 1, "a number ≥ 0 and < 1")
        self.require_range("weight_decay", 0)


@dataclass(frozen=True)
class DxmlSettings(UpdatableSettings, NetworkSettings):
    """Settings of dxml."""

    members: int = 1
    """Number of networks, trained from different seeds, whose embeddings are concatenated."""
    neighbours: int | Literal["auto"] = "auto"
    """Number of training documents that vote; 'auto' maximises nDCG@5 on the validation set."""
    sharpness: float | Literal["auto"] = "auto"
    """Vote weights are exp(sharpness · (cosine − largest cosine)); 0 for equal votes, as published; 'auto': tuned."""
    direct: Annotated[float, Range(0, 3)] = 1.0
    """Weight of a label's direct score, relative to the vote."""
    columns: Annotated[Weighing, Choices()] = "given"
    """Weighting of feature matrices: as given, or multiplied by idf. Text always uses tf-idf."""
    most_features: int = 1000
    """Maximum number of features per document, those with the largest weights."""
    snippet: int = 120
    """Characters of each training text stored for explanations; 0 for none."""
    text: TextSettings = field(default_factory=TextSettings)
    """Settings of the tf-idf features."""
    vectors: LabelVectorSettings = field(default_factory=lambda: LabelVectorSettings(width=200))
    """Settings of the label vectors."""
    encoder: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    """The network that embeds documents."""
    head: TargetSettings = field(default_factory=TargetSettings)
    """The loss of the embeddings."""
    search: SearchSettings = field(default_factory=SearchSettings)
    """Search for the nearest training documents."""
    training: DxmlTrainingSettings = field(
        default_factory=lambda: DxmlTrainingSettings(
            epochs=15, learning_rate=3e-3, decay_from=0.0, clip=0.0, skipped_words=0.3
        )
    )
    """Training of the network."""

    of = "dxml"

    def check(self) -> None:
        super().check()
        if self.neighbours != "auto":
            self.require("neighbours", self.neighbours >= 1, "an integer ≥ 1, or auto")
        if self.sharpness != "auto":
            self.require("sharpness", self.sharpness >= 0, "a number ≥ 0, or auto")
        self.require_range("direct", 0)
        self.require_range("most_features", 1, 1_000_000)
        self.require_range("snippet", 0)


class Dxml(NeuralModel):
    """DXML: documents embedded in label space; nearest neighbours vote.

    Label vectors come from the label co-occurrence graph, so that labels that occur together are close. A network
    embeds each document close to the mean of its labels' vectors, and the nearest training documents vote. Accepts
    texts and feature matrices. A score is the label's share of the vote, blended with its direct score if `direct` >
    0.
    """

    name = "dxml"
    Config = DxmlSettings
    capabilities = frozenset({"text", "features", "explain", "score_labels", "update"})
    less_memory = "Lower training.batch_size, most_features, encoder.hidden or vectors.width."
    ablations: ClassVar = {
        "linear": {"encoder.linear": True},
        "no-skip": {"encoder.skip": False},
        "random-vectors": {"vectors.kind": "random"},
        "not-whitened": {"vectors.whiten": False},
        "robust-alone": {"head.robust": 1.0, "head.contrast": 0.0, "head.decode": 0.0},
        "equal-votes": {"sharpness": 0.0, "direct": 0.0},
        "no-dropout": {"encoder.dropout": 0.0, "training.skipped_words": 0.0},
    }
    _reader: BagReader
    _vote: EmbeddingVote

    # ---- the network

    def _encoder(self, width: int) -> Encoder:
        return SphereEncoder(self._vectors.shape[1], self.config.encoder)

    def _head(self, labels: int, width: int) -> Head:
        return TargetHead(self._shared, self.config.head)

    def _spec(self, runtime: Runtime) -> MemberSpec:
        spec, settings = super()._spec(runtime), self.config.training
        if settings.optimiser == "adam":
            return spec
        return replace(spec, optimiser=partial(Momentum, momentum=settings.momentum, decay=settings.weight_decay))

    def _share(self, vectors: Array) -> None:
        """Store the label vectors, with one copy on the device for all members."""
        self._vectors = vectors
        self._shared = read_tensor(vectors).to(chosen_device(self.runtime))

    @property
    def _networks(self) -> list[Network]:
        return [member.network for member in self._members]

    @property
    def name_weight(self) -> float:
        return float(self.config.vectors.names) if self.feature_count is None else 0.0

    # ---- training

    def _fit_reader(self, train: Dataset, run: FitContext) -> tuple[DocumentReader, Numbered]:
        config = self.config
        found = BagReader.fit(train, config.text, config.columns, config.most_features, run.runtime, run.progress)
        vectors, self._graph_facts = self._label_vectors(train, *found, run)
        self._share(vectors)
        return found

    def _restored_reader(self, state: SavedState) -> DocumentReader:
        return BagReader.from_state(self.config.text, self.config.most_features, state)

    def _label_vectors(
        self, train: Dataset, reader: BagReader, bags: Bags, run: FitContext
    ) -> tuple[Array, dict[str, Any]]:
        """The label vectors, cached in the workspace."""
        assert train.labels is not None
        assert train.label_index is not None
        labels, index, seed, threads = train.labels, train.label_index, run.runtime.seed, run.runtime.threads

        def made() -> tuple[Array, dict[str, Any]]:
            settings = self.config.vectors
            found, facts = label_vectors(labels, index, settings, seed=seed, threads=threads, progress=run.progress)
            if not settings.names:
                return found, facts
            if not train.has_text:
                raise UnsupportedError("label names need texts. Train on texts, or set vectors.names to 0.")
            names = reader.encode(Dataset({"text": name_texts(index)}), run.runtime)
            words, of_names = bags.matrix(reader.size), names.matrix(reader.size)
            return with_name_vectors(found, labels, words, of_names, settings.names), facts

        return cached_array(run.workspace, VECTORS, VECTORS, made, run.runtime.rank == 0)

    def _table(self, numbered: Numbered, group: Group, run: FitContext) -> Array:
        """(V, hidden, or hidden + width) random rows, from the seed."""
        self.facts.update(self._graph_facts)
        table = self._random_rows(self._reader.size, np.random.default_rng([run.runtime.seed, 1]))
        table[PADDING] = 0.0
        return table

    def _rows_of_new_words(self, count: int, runtime: Runtime) -> Array:
        return self._random_rows(count, np.random.default_rng([runtime.seed, 4, self._reader.size]))

    def _random_rows(self, count: int, random: np.random.Generator) -> Array:
        settings = self.config.encoder
        width = SphereEncoder.row_width(self._vectors.shape[1], settings)
        rows = random.standard_normal((count, width), dtype=np.float32)
        rows[:, : settings.hidden] *= settings.spread
        rows[:, settings.hidden :] *= SKIP_SPREAD
        return rows

    def _validation_score(self, network: Network, data: TrainingData) -> float:
        """nDCG@5 of the vote on the validation set."""
        return max(self._tried([network], data, clusters=1).values())

    def _tried(self, networks: list[Network], data: TrainingData, clusters: int) -> dict[tuple[int, float], float]:
        """nDCG@5 on the validation set for every candidate number of neighbours and sharpness."""
        config = self.config
        counts = NEIGHBOURS if config.neighbours == "auto" else (config.neighbours,)
        sharpnesses = SHARPNESSES if config.sharpness == "auto" else (config.sharpness,)
        assert data.validation is not None
        documents, truth = data.validation
        queries, vectors = embeddings(networks, documents), embeddings(networks, data.documents)
        partition = partition_of(vectors, clusters, self.runtime)
        index = VectorIndex(vectors, threads=self.runtime.threads, partition=partition)
        direct = DirectScores(networks, truth.shape[1], config.direct)
        if data.unknown is None:
            nearest = index.nearest(queries, max(counts))
            return vote_quality(nearest, data.labels, queries, truth, direct, counts, sharpnesses)
        partial = PartialVoters.of(data.unknown.rejected, data.unknown.partial)
        nearest, near = (index.nearest(queries, max(counts), among=rows) for rows in (~partial.flags, partial.flags))
        return vote_quality(nearest, data.labels, queries, truth, direct, counts, sharpnesses, (near, partial))

    def _conclude(self, numbered: Numbered, data: TrainingData, run: FitContext) -> None:
        """Choose the settings that are 'auto', and embed all training documents."""
        config, runtime = self.config, run.runtime
        chosen = (
            USUAL[0] if config.neighbours == "auto" else config.neighbours,
            USUAL[1] if config.sharpness == "auto" else config.sharpness,
        )
        with cpu_threads(runtime.threads), memory_errors(self.less_memory):
            if data.validation is not None:
                tried, usual = self._tried(self._networks, data, config.search.clusters), chosen
                chosen = max(tried, key=lambda pair: (tried[pair], pair == usual))
                self.facts["nDCG@5 held out"] = round(tried[chosen], 4)
                for name, value in zip(("neighbours", "sharpness"), chosen, strict=True):
                    if getattr(config, name) == "auto":
                        self.facts[name] = value
            vectors = embeddings(self._networks, Documents(numbered, None, chosen_device(runtime)))
            embedded = EmbeddedDocuments.fit(vectors, config.search, self.runtime)
        assert data.dataset is not None
        voters = Voters.of(data.dataset, config.snippet)
        self._vote = EmbeddingVote(voters, embedded, int(chosen[0]), float(chosen[1]))

    # ---- updating

    def _update(self, change: Change, run: FitContext) -> None:
        """Update label vectors, networks and index; the number of neighbours and the sharpness are kept."""
        reader, networks, voters, embedded = self._reader, self._networks, self._vote.voters, self._vote.embedded
        self._share(self._updated_vectors(change, run))
        super()._update(change, run)
        self._vote = replace(self._vote, voters=voters.joined(change.new, self.config.snippet, change.labels))
        if not len(change.new):  # nothing has moved
            return
        if not len(change.new.complete_documents()):  # other documents do not train the encoder
            added = self._queries(change.new)
            self._vote = replace(self._vote, embedded=embedded.joined(embedded.vectors, added, self.runtime))
            return
        with cpu_threads(run.runtime.threads), memory_errors(self.less_memory):
            known = change.new if change.replay is None else change.replay
            documents = Documents(reader.encode(known, run.runtime), None, networks[0].table.device)
            old = embeddings(networks, documents)
        now = self._queries(known)
        moved = moved_embeddings(embedded.vectors, old, now, self.config.members)
        if change.replay is not None:
            rows, found = embedded.rows_of(known.document_ids(), voters.documents["id"].to_pylist(), old)
            moved[rows] = now[found]
        added = now if known is change.new else self._queries(change.new)
        self._vote = replace(self._vote, embedded=embedded.joined(moved, added, self.runtime))

    def _updated_vectors(self, change: Change, run: FitContext) -> Array:
        """(L, d) label vectors: unchanged, or means of merged labels or of a new label's relatives.

        Means are scaled to the usual length; a label without relatives gets a random direction.
        """
        carried = change.carried(change.counts_before)
        vectors = np.asarray(carried @ self._vectors, dtype=np.float32)
        made = np.flatnonzero((np.diff(carried.indptr) != 1) | (np.arange(len(vectors)) >= len(change.labels.kept)))
        random = np.random.default_rng([run.runtime.seed, 5, len(vectors)])
        bare = made[np.linalg.norm(vectors[made], axis=1) == 0]
        vectors[bare] = random.standard_normal((len(bare), vectors.shape[1]), dtype=np.float32)
        usual = np.sqrt((np.linalg.norm(self._vectors, axis=1) ** 2).mean())
        vectors[made] *= usual / np.linalg.norm(vectors[made], axis=1, keepdims=True)
        return vectors

    # ---- prediction

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        return self._vote.best(self._queries(batch), self._direct, k, allowed)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        return self._vote.scores(self._queries(batch), self._direct, candidates)

    def _queries(self, batch: Dataset) -> Array:
        """(n, d) concatenated embeddings of all members."""
        with cpu_threads(self.runtime.threads), memory_errors(self.less_memory):
            return embeddings(self._networks, self._documents(batch))

    @property
    def _direct(self) -> DirectScores:
        return DirectScores(self._networks, len(self.label_counts), self.config.direct)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        queries, direct = self._queries(as_dataset([text])), self.config.direct
        found, cosines, weights = self._vote.nearest(queries)
        evidence = self._vote.voters.evidence(found[0], cosines[0], weights[0], label, self.labels)
        own = 0.0
        if direct:
            ((_, nearness),) = self._direct.nearness(queries)
            own = direct * float(nearness[0, label]) / (1.0 + direct)
        return Explanation("neighbours", text, self.labels.name(label), score, evidence, constant=own)

    def label_vectors(self) -> Array:
        """(L, d) sum of the embeddings of each label's documents.

        The vectors used in training are not suitable here: whitened, they are almost equidistant. Labels without
        documents keep their own vector.
        """
        labels, voters = len(self.labels), self._vote.voters
        ones = np.ones(len(voters.labels), dtype=np.float32)
        held = sp.csr_array((ones, voters.labels, voters.indptr), shape=(len(voters), labels))
        vectors: Array = (held.T @ self._vote.embedded.vectors).astype(np.float32)
        bare = np.asarray(held.sum(axis=0)).ravel() == 0
        vectors[bare] = np.tile(self._vectors[bare], (1, self.config.members))
        return vectors

    # ---- saving

    def _state(self) -> State:
        state, votes = super()._state(), self._vote.state()
        state.arrays.update({**votes.arrays, VECTORS: self._vectors})
        state.tables.update(votes.tables)
        state.values.update(votes.values)
        return state

    def _restore(self, state: SavedState) -> None:
        labels = len(self.label_counts)
        self._share(state.array(VECTORS, np.float32, (labels, None)))
        width = self.config.members * self._vectors.shape[1]
        self._vote = EmbeddingVote.from_state(state, labels, width, self.config.search, self.runtime)
        super()._restore(state)
