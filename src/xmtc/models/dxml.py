"""DXML: documents are embedded among the vectors of their labels, and the nearest training documents vote."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.artifact.store import State
from xmtc.core.config import Choices, Range, Settings
from xmtc.core.explanation import Explanation
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.labels.label_vectors import LabelVectorSettings, label_vectors
from xmtc.linear.neighbours import vote
from xmtc.linear.top_scores import best_of_rows, look_up_rows, only_allowed
from xmtc.metrics import ndcg
from xmtc.models.base import Labels, Mask, Scores
from xmtc.models.context import FitContext
from xmtc.models.neighbour_vote import Ballots, Voters
from xmtc.models.neural import NetworkSettings, NeuralModel, TrainingData, UpdatableSettings
from xmtc.models.update import Change
from xmtc.nn.device import chosen_device, chunk_memory, cpu_threads, memory_told
from xmtc.nn.documents import Documents
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.heads.base import Head
from xmtc.nn.heads.dxml_network import EmbeddingSettings, SphereEncoder, TargetHead, TargetSettings
from xmtc.nn.neighbours.clusters import Partition
from xmtc.nn.neighbours.vector_index import PROBES, VectorIndex
from xmtc.nn.network import Network
from xmtc.nn.prediction import embeddings, sortable
from xmtc.nn.tensors import read_tensor
from xmtc.nn.training.fine_tuning import brought_along, places_of
from xmtc.nn.training.loop import TrainingSettings
from xmtc.nn.training.optimisers import Momentum, Optimiser
from xmtc.nn.training.process_group import Group
from xmtc.text.sequences import PADDING
from xmtc.text.tfidf import TextSettings
from xmtc.text.weighted_bags import BagReader, Numbered, Weighing

Array = NDArray[np.float32]

NEIGHBOURS = (5, 10, 20, 40, 80)
SHARPNESSES = (0.0, 5.0, 10.0, 20.0, 40.0)
USUAL = (20, 10.0)
"""Neighbours and sharpness where there are no documents to choose them on."""
VECTORS, EMBEDDINGS, CENTRES, CLUSTERS = "label_vectors", "embeddings", "cluster_centres", "clusters"
SAME = 0.98
"""Cosine of a document's embedding and the row with its id from which on the row is that document's."""
SKIP_SPREAD = 0.05
"""Standard deviation of what a word adds to the embedding itself, as training begins."""


@dataclass(frozen=True)
class DxmlTrainingSettings(TrainingSettings):
    """How a network is trained."""

    optimiser: Literal["adam", "sgd"] = "adam"
    """Adam, or gradient descent with momentum, as published."""
    momentum: float = 0.9
    """Share of the last step that a step of gradient descent keeps; Adam has its own."""
    weight_decay: float = 0.0
    """Share of the weights that a step of gradient descent, at rate 1, takes away; none with Adam."""

    def check(self) -> None:
        super().check()
        self.require("momentum", 0 <= self.momentum < 1, "a number from 0 to below 1")
        self.require_range("weight_decay", 0)


@dataclass(frozen=True)
class SearchSettings(Settings):
    """How the nearest training documents are found."""

    kind: Literal["exact", "faiss"] = "exact"
    """All are looked at, or FAISS looks at those that are likely near."""
    probes: int = PROBES
    """Lists that FAISS looks through; more find more and take longer."""
    clusters: int = 1
    """Parts that the training documents are divided into, of which the nearest is searched; above 1 as published."""

    of = "search"

    def check(self) -> None:
        self.require_range("probes", 1)
        self.require_range("clusters", 1)
        self.require("clusters", self.kind == "exact" or self.clusters == 1, "1 where search.kind = 'faiss'")


@dataclass(frozen=True)
class DxmlSettings(UpdatableSettings, NetworkSettings):
    """Settings of dxml."""

    members: int = 1
    """Networks, trained from different seeds, whose embeddings stand side by side."""
    neighbours: int | Literal["auto"] = "auto"
    """How many training documents vote; 'auto' takes what ranks held-out documents best."""
    sharpness: float | Literal["auto"] = "auto"
    """A vote falls by e to this times the cosine that it is behind the nearest's; 0 counts all alike, as published."""
    direct: Annotated[float, Range(0, 3)] = 1.0
    """Weight of a label's own nearness to the document beside the vote, which weighs 1."""
    columns: Annotated[Weighing, Choices()] = "given"
    """Weights of a feature matrix: as given, or times the idf of the column. Text is weighed by tf-idf."""
    most_features: int = 1000
    """Features of a document that are read, the heaviest ones."""
    snippet: int = 120
    """Characters kept of each training text to show as evidence; 0 keeps none."""
    text: TextSettings = field(default_factory=TextSettings)
    """How text becomes features."""
    vectors: LabelVectorSettings = field(default_factory=lambda: LabelVectorSettings(width=200))
    """How labels get their vectors."""
    encoder: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    """From a document to its embedding."""
    head: TargetSettings = field(default_factory=TargetSettings)
    """What embeddings are learnt by."""
    search: SearchSettings = field(default_factory=SearchSettings)
    """How the nearest training documents are found."""
    training: DxmlTrainingSettings = field(
        default_factory=lambda: DxmlTrainingSettings(
            epochs=15, learning_rate=3e-3, decay_from=0.0, clip=0.0, skipped_words=0.3
        )
    )
    """How the network is trained."""

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
    """Documents embedded among vectors of their labels, which a graph of labels gives; the nearest ones vote.

    DXML. Labels that occur together are near each other in the graph, and so are their vectors; a network embeds a
    document near to the mean of its labels. Texts and feature matrices alike. A score is a share of the vote, blended
    with the label's own score where `direct` says so.
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

    # ---- the network

    def _encoder(self, width: int) -> Encoder:
        return SphereEncoder(self._vectors.shape[1], self.config.encoder)

    def _head(self, labels: int, width: int) -> Head:
        return TargetHead(self._shared, self.config.head)

    def _share(self, vectors: Array) -> None:
        """Keep label vectors, and one copy of them on the device for all members."""
        self._vectors = vectors
        self._shared = read_tensor(vectors).to(chosen_device(self.runtime))

    @property
    def _frozen(self) -> bool:
        return False

    def _optimiser(self, parameters: Mapping[str, Tensor], rows: frozenset[str]) -> Optimiser:
        settings = self.config.training
        if settings.optimiser == "adam":
            return super()._optimiser(parameters, rows)
        return Momentum(parameters, rows, momentum=settings.momentum, decay=settings.weight_decay)

    # ---- training

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        self._voters = Voters.of(train, self.config.snippet)
        super()._fit(train, valid, run)

    def _read(self, train: Dataset, run: FitContext) -> Numbered:
        config = self.config
        self._reader, numbered = BagReader.fit(
            train, config.text, config.columns, config.most_features, run.runtime, run.progress
        )
        vectors, self._graph_facts = self._label_vectors(train, run)
        self._share(vectors)
        return numbered

    def _label_vectors(self, train: Dataset, run: FitContext) -> tuple[Array, dict[str, Any]]:
        """Of all labels, made once for a training that is resumed."""
        assert train.labels is not None
        assert train.label_index is not None
        if not run.workspace.has(VECTORS):
            found, facts = label_vectors(
                train.labels,
                train.label_index,
                self.config.vectors,
                seed=run.runtime.seed,
                threads=run.runtime.threads,
                progress=run.progress,
            )
            if run.runtime.rank > 0:
                return found, facts
            run.workspace.save(VECTORS, {VECTORS: found}, facts)
        arrays, facts = run.workspace.load(VECTORS)
        return arrays[VECTORS], facts

    def _table(self, numbered: Numbered, group: Group, run: FitContext) -> Array:
        """(V, hidden, or hidden + width) rows of random numbers, from the seed."""
        self.facts.update(self._graph_facts)
        table = self._drawn_words(self._reader.size, np.random.default_rng([run.runtime.seed, 1]))
        table[PADDING] = 0.0
        return table

    def _drawn_words(self, count: int, random: np.random.Generator) -> Array:
        settings = self.config.encoder
        width = SphereEncoder.row_width(self._vectors.shape[1], settings)
        rows = random.standard_normal((count, width), dtype=np.float32)
        rows[:, : settings.hidden] *= settings.spread
        rows[:, settings.hidden :] *= SKIP_SPREAD
        return rows

    def _judged(self, network: Network, material: TrainingData) -> float:
        """nDCG@5 of the votes for the watched documents, of the documents that are learnt from."""
        return max(self._tried([network], material, clusters=1).values())

    def _tried(self, networks: list[Network], material: TrainingData, clusters: int) -> dict[tuple[int, float], float]:
        """nDCG@5 on the watched documents for every number of neighbours and sharpness that may be chosen."""
        config = self.config
        counts = NEIGHBOURS if config.neighbours == "auto" else (config.neighbours,)
        sharpnesses = SHARPNESSES if config.sharpness == "auto" else (config.sharpness,)
        assert material.watched is not None
        seen, truth = material.watched
        labels = truth.shape[1]
        queries = embeddings(networks, seen)
        vectors = embeddings(networks, material.documents)
        index = VectorIndex(vectors, threads=self.runtime.threads, partition=self._divided(vectors, clusters))
        found, cosines = index.nearest(queries, max(counts))
        indptr, held = material.labels.indptr.astype(np.int64), material.labels.indices.astype(np.int32)
        places = min(5, labels)

        def ballots(count: int, sharpness: float) -> Ballots:
            weights = _weights(cosines[:, :count], sharpness)
            return vote(np.ascontiguousarray(found[:, :count]), weights, indptr, held, labels)

        own = self._own(networks, ballots(max(counts), 0.0), queries, places, None) if config.direct else None
        scores = {}
        for pair in itertools.product(counts, sharpnesses):
            cast = ballots(*pair)
            ranked, _ = best_of_rows(*(cast if own is None else self._blended(cast, own)), places)
            scores[pair] = ndcg(ranked, truth, 5)
        return scores

    def _divided(self, vectors: Array, clusters: int) -> Partition | None:
        if clusters == 1:
            return None
        return Partition.fit(vectors, clusters, seed=self.runtime.seed, threads=self.runtime.threads)

    def _conclude(self, numbered: Numbered, material: TrainingData, run: FitContext) -> None:
        """Settle what is left to 'auto', and embed all training documents."""
        config, runtime = self.config, run.runtime
        chosen = (
            USUAL[0] if config.neighbours == "auto" else config.neighbours,
            USUAL[1] if config.sharpness == "auto" else config.sharpness,
        )
        with cpu_threads(runtime.threads), memory_told(self.less_memory):
            if material.watched is not None:
                tried, usual = self._tried(self._members, material, config.search.clusters), chosen
                chosen = max(tried, key=lambda pair: (tried[pair], pair == usual))
                self.facts["nDCG@5 held out"] = round(tried[chosen], 4)
                for name, value in zip(("neighbours", "sharpness"), chosen, strict=True):
                    if getattr(config, name) == "auto":
                        self.facts[name] = value
            self._neighbours, self._sharpness = int(chosen[0]), float(chosen[1])
            self._embedded = embeddings(self._members, Documents(numbered, None, chosen_device(runtime)))
            self._partition = self._divided(self._embedded, config.search.clusters)
        self._index = self._made_index()

    def _made_index(self) -> VectorIndex:
        device, search = chosen_device(self.runtime), self.config.search
        vectors = read_tensor(self._embedded).to(device) if device.type == "cuda" else self._embedded
        return VectorIndex(
            vectors,
            threads=self.runtime.threads,
            search=search.kind,
            probes=search.probes,
            partition=self._partition,
        )

    # ---- learning from new documents

    def _update(self, change: Change, run: FitContext) -> None:
        """Labels get vectors, networks learn, and the index grows; how many vote, and how, stays as it was chosen."""
        reader, members = self._reader, self._members
        self._share(self._vectors_of_now(change, run))
        super()._update(change, run)
        voters = self._voters
        self._voters = voters.joined(change.new, self.config.snippet, change.labels)
        if not len(change.new):  # nothing has moved
            return
        with cpu_threads(run.runtime.threads), memory_told(self.less_memory):
            known = change.new if change.replay is None else change.replay
            old = embeddings(members, Documents(reader.encode(known, run.runtime), None, members[0].table.device))
        now = self._queries(known)
        moved = brought_along(self._embedded, old, now, self.config.members)
        if change.replay is not None:
            rows, found = self._found_again(voters, known.document_ids(), old)
            moved[rows] = now[found]
        self._embedded = np.concatenate([moved, now if known is change.new else self._queries(change.new)])
        if self._partition is not None:
            self._partition = self._partition.moved(self._embedded, run.runtime.threads)
        self._index = self._made_index()

    def _more_words(self, count: int, runtime: Runtime) -> Array:
        return self._drawn_words(count, np.random.default_rng([runtime.seed, 4, self._reader.size]))

    def _vectors_of_now(self, change: Change, run: FitContext) -> Array:
        """(L, d) label vectors: those that stay, means of those that became one, and of a new label's relatives.

        What is a mean gets the usual length; a label without relatives, a direction at random.
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

    def _found_again(self, voters: Voters, ids: list[str], old: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of documents that were embedded before, and where these are among those given.

        An id that two documents have tells nothing, and so does one whose row is not where the document was.
        """
        places = places_of(voters.documents["id"].to_pylist())
        found = np.array([at for name, at in places_of(ids).items() if name in places], dtype=np.int64)
        rows = np.array([places[ids[at]] for at in found.tolist()], dtype=np.int64)
        near = np.einsum("nd,nd->n", self._embedded[rows], old[found]) >= SAME
        return rows[near], found[near]

    # ---- answers

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        queries = self._queries(batch)
        return self._ranking(self._votes(queries), queries, k, allowed)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        queries = self._queries(batch)
        votes = look_up_rows(*self._votes(queries), candidates)
        if not self.config.direct:
            return votes
        own = np.zeros(candidates.shape, dtype=np.float32)
        for rows, nearness in self._nearness(self._members, queries):
            numbers = torch.from_numpy(np.maximum(candidates[rows], 0)).to(nearness.device)
            own[rows] = nearness.gather(1, numbers).cpu().numpy()
        blended: Scores = (self.config.direct * own + votes) / np.float32(1.0 + self.config.direct)
        return blended

    def _queries(self, batch: Dataset) -> Array:
        """(n, d) embeddings of all members, side by side."""
        with cpu_threads(self.runtime.threads), memory_told(self.less_memory):
            return embeddings(self._members, self._documents(batch))

    def _votes(self, queries: Array) -> Ballots:
        found, cosines = self._index.nearest(queries, self._neighbours)
        return self._voters.ballots(found, _weights(cosines, self._sharpness), len(self.label_counts))

    def _ranking(self, ballots: Ballots, queries: Array, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        """(n, k) labels and scores, best first: the vote, or that and the labels' own scores."""
        ballots = ballots if allowed is None else only_allowed(*ballots, allowed)
        if self.config.direct:
            ballots = self._blended(ballots, self._own(self._members, ballots, queries, k, allowed))
        return best_of_rows(*ballots, k)

    def _own(self, networks: list[Network], ballots: Ballots, queries: Array, k: int, allowed: Mask | None) -> Ballots:
        """CSR: labels' own scores, of those voted for and of the k best; no other can be among the best k of both."""
        indptr, voted, _ = ballots
        count = len(self.label_counts)
        keys, scores = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.float32)]
        for rows, nearness in self._nearness(networks, queries):
            if allowed is not None:
                nearness.masked_fill_(torch.from_numpy(~allowed).to(nearness.device), -torch.inf)
            numbers = torch.arange(count, device=nearness.device).expand(nearness.shape)
            best = sortable(nearness, numbers).topk(min(k, count), dim=1).indices.cpu().numpy()
            starts = np.arange(len(nearness)) * count
            held = voted[indptr[rows.start] : indptr[rows.stop]]
            of = np.repeat(starts, np.diff(indptr[rows.start : rows.stop + 1]))
            places = np.unique(np.concatenate([of + held, (starts[:, None] + best).ravel()]))
            own = nearness.flatten()[torch.from_numpy(places).to(nearness.device)].cpu().numpy()
            keys.append((places + rows.start * count)[own >= 0])
            scores.append(own[own >= 0])
        found = np.concatenate(keys)
        ends = np.searchsorted(found, np.arange(len(queries) + 1) * count)
        return ends, (found % count).astype(np.int32), np.concatenate(scores)

    def _blended(self, ballots: Ballots, own: Ballots) -> Ballots:
        """Votes and own scores together, for the labels of the latter, which are all of the former's and more."""
        count, weight = len(self.label_counts), np.float32(self.config.direct)
        scores = own[2] * weight
        places = np.searchsorted(_keys(own, count), _keys(ballots, count))
        scores[places] += ballots[2]
        return own[0], own[1], scores / (1 + weight)

    def _nearness(self, networks: list[Network], queries: Array) -> Iterator[tuple[slice, Tensor]]:
        """Some documents at a time, and (b, L) the scores of labels by themselves, in the mean of all members."""
        device, labels = networks[0].table.device, len(self.label_counts)
        step = max(1, chunk_memory(device) // (16 * labels))
        for low in range(0, len(queries), step):
            rows = slice(low, min(low + step, len(queries)))
            beside = torch.from_numpy(queries[rows]).to(device) * len(networks) ** 0.5
            total = beside.new_zeros(len(beside), labels)
            for network, own in zip(networks, beside.chunk(len(networks), dim=1), strict=True):
                assert isinstance(network.head, TargetHead)
                total += network.head.nearness(own)
            yield rows, total / len(networks)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        queries, direct = self._queries(as_dataset([text])), self.config.direct
        found, cosines = self._index.nearest(queries, self._neighbours)
        weights = _weights(cosines, self._sharpness)
        evidence = self._voters.evidence(found[0], cosines[0], weights[0], label, self.labels)
        own = 0.0
        if direct:
            ((_, nearness),) = self._nearness(self._members, queries)
            own = direct * float(nearness[0, label]) / (1.0 + direct)
        return Explanation("neighbours", text, self.labels.name(label), score, evidence, constant=own)

    def label_vectors(self) -> Array:
        """(L, d) where the documents of each label lie, in the mean.

        The vectors that are learnt from are no use here: whitened, they are about as far from each other as can be. A
        label without documents has nothing but its own.
        """
        count, documents = len(self.labels), len(self._voters)
        ones = np.ones(len(self._voters.labels), dtype=np.float32)
        held = sp.csr_array((ones, self._voters.labels, self._voters.indptr), shape=(documents, count))
        vectors: Array = (held.T @ self._embedded).astype(np.float32)
        bare = np.asarray(held.sum(axis=0)).ravel() == 0
        vectors[bare] = np.tile(self._vectors[bare], (1, self.config.members))
        return vectors

    # ---- what is kept

    def _reader_state(self) -> State:
        return self._reader.state()

    def _restore_reader(self, state: State) -> None:
        self._reader = BagReader.from_state(self.config.text, self.config.most_features, state)

    def _state(self) -> State:
        kept, voters = super()._state(), self._voters.state()
        kept.arrays.update({**voters.arrays, VECTORS: self._vectors, EMBEDDINGS: self._embedded})
        kept.tables.update(voters.tables)
        if self._partition is not None:
            kept.arrays.update({CENTRES: self._partition.centres, CLUSTERS: self._partition.clusters})
        kept.values.update(neighbours=self._neighbours, sharpness=self._sharpness)
        return kept

    def _restore(self, state: State) -> None:
        arrays = state.arrays
        self._share(arrays[VECTORS])
        self._embedded = arrays[EMBEDDINGS]
        self._voters = Voters.from_state(state)
        width = self.config.members * self._vectors.shape[1]
        if len(self._vectors) != len(self.label_counts):
            raise ValueError(f"vectors of {len(self._vectors):,} labels and not {len(self.label_counts):,}")
        if self._embedded.shape != (len(self._voters), width):
            shape = " × ".join(map(str, self._embedded.shape))
            raise ValueError(f"embeddings of {shape} and not {len(self._voters)} × {width}")
        super()._restore(state)
        self._neighbours, self._sharpness = int(state.values["neighbours"]), float(state.values["sharpness"])
        if self._neighbours < 1:
            raise ValueError(f"{self._neighbours} neighbours")
        self._partition = Partition(arrays[CENTRES], arrays[CLUSTERS]) if CENTRES in arrays else None
        self._index = self._made_index()


def _weights(cosines: Array, sharpness: float) -> Array:
    """(n, m) weights of neighbours, nearest first; the nearest weighs 1."""
    weights: Array = np.exp(np.float32(sharpness) * (cosines - cosines[:, :1]))
    return weights


def _keys(rows: Ballots, count: int) -> NDArray[np.int64]:
    """One number for each entry of CSR rows, ascending as rows and labels do."""
    return np.repeat(np.arange(len(rows[0]) - 1) * count, np.diff(rows[0])) + rows[1]
