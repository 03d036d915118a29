"""SLEEC: documents are embedded close to those with similar labels; the nearest training documents vote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Choices, Range, Settings
from xmtc.core.explanation import Explanation
from xmtc.data.dataset import Csr, Dataset, as_dataset
from xmtc.labels.clustering import spherical_kmeans
from xmtc.linear.low_rank import TwoWays, best_products, multiply, ridge, unit_length
from xmtc.linear.projection import match_products, near_pairs
from xmtc.linear.top_scores import best_of_rows, look_up_rows, only_allowed
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.models.neighbour_vote import Ballots, Voters
from xmtc.text.dense_features import ColumnFeatures
from xmtc.text.features import Weighing, unit_rows
from xmtc.text.tfidf import TextSettings

Array = NDArray[np.float32]
STEPS = 40
"""Conjugate gradient steps in a regression, enough to converge."""
CENTRES = "centres"


@dataclass(frozen=True)
class SleecSettings(Settings):
    """Settings of sleec."""

    learners: int = 5
    """Number of learners, each with its own clusters and pairs; all of them vote."""
    cluster_size: int = 6000
    """Approximate number of training documents per cluster; each cluster has its own embedding."""
    width: Annotated[int, Range(50, 200, log=True)] = 100
    """Dimension of the embeddings."""
    pairs: Annotated[int, Range(10, 100, log=True)] = 30
    """Number of nearest documents, by labels, whose similarities each document's embedding should preserve."""
    rounds: Annotated[int, Range(4, 40, log=True)] = 15
    """Iterations of singular value projection."""
    penalty: Annotated[float, Range(0.3, 10, log=True)] = 3.0
    """Strength of the L2 regularisation in the regression from features to embeddings."""
    neighbours: Annotated[int, Range(10, 200, log=True)] = 40
    """Number of training documents per learner that vote."""
    sharpness: Annotated[float, Range(5, 30)] = 15.0
    """Vote weights are exp(sharpness · (cosine − largest cosine)); 0 for equal votes, as published."""
    bias: Annotated[float, Choices(0.0, 0.3, 1.0)] = 1.0
    """Value of a constant feature that acts as the bias; 0 for none."""
    columns: Annotated[Weighing, Choices()] = "given"
    """Weighting of feature matrices: as given, or multiplied by idf. Text always uses tf-idf."""
    snippet: int = 120
    """Characters of each training text stored for explanations; 0 for none."""
    text: TextSettings = field(default_factory=TextSettings)
    """Settings of the tf-idf features."""

    of = "sleec"

    def check(self) -> None:
        for name in ("learners", "cluster_size", "width", "pairs", "rounds", "neighbours"):
            self.require_range(name, 1)
        self.require_range("penalty", 0, open_low=True)
        for name in ("sharpness", "bias", "snippet"):
            self.require_range(name, 0)


class Cluster(NamedTuple):
    """A cluster of similar training documents, and the regression that embeds documents in it."""

    members: NDArray[np.int32]  # (m,) ascending
    columns: NDArray[np.int32]  # (c,) features of the members, ascending
    weights: Array  # (c, r) from features to embeddings
    vectors: Array  # (r, m) embeddings of the members, of unit length

    def embedded(self, rows: Csr, threads: int) -> Array:
        """(n, r) embeddings of documents, of unit length."""
        return unit_length(multiply(rows[:, self.columns], self.weights, threads))


class Learner(NamedTuple):
    """Clusters of the training documents; a query is searched in the cluster with the most similar centre."""

    clusters: list[Cluster]
    centres: Array  # (D, clusters), of unit length

    def nearest(self, rows: Csr, count: int, threads: int) -> tuple[NDArray[np.int32], Array]:
        """(n, count) training documents and their cosines, best first, −1 and −∞ as padding."""
        found = np.full((int(rows.shape[0]), count), -1, dtype=np.int32)
        cosines = np.full(found.shape, -np.inf, dtype=np.float32)
        chosen = multiply(rows, self.centres, threads).argmax(axis=1)
        for number in np.unique(chosen).tolist():
            cluster, own = self.clusters[number], np.flatnonzero(chosen == number)
            queries = cluster.embedded(rows[own], threads)
            places, given = best_products(queries, cluster.vectors, count, threads=threads)
            found[own] = np.where(places >= 0, cluster.members[places], -1)
            cosines[own] = given
        return found, cosines


class Sleec(Model):
    """SLEEC: locally embedded documents; nearest neighbours vote.

    Training documents are clustered, and in each cluster a regression embeds documents close to those with similar
    labels. The embeddings preserve only similarities to nearby documents, so that rare labels count as much as frequent
    ones. A score is the label's share of the vote.
    """

    name = "sleec"
    Config = SleecSettings
    capabilities = frozenset({"text", "features", "explain", "score_labels"})
    ablations: ClassVar = {
        "one-learner": {"learners": 1},
        "equal-votes": {"sharpness": 0.0},
        "no-bias": {"bias": 0.0},
    }

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        config = self.config
        self._features, rows = ColumnFeatures.fit(
            train, config.text, config.columns, config.bias, run.runtime, run.progress
        )
        assert train.labels is not None
        labels = train.labels.astype(np.float32)
        labels.data[:] = 1.0
        self._voters = Voters.of(train, config.snippet)
        self._learners = [self._learnt(place, rows, unit_rows(labels), run) for place in range(config.learners)]
        self.facts = {"clusters": sum(len(learner.clusters) for learner in self._learners)}

    def _learnt(self, place: int, rows: Csr, labels: Csr, run: FitContext) -> Learner:
        """Train one learner; each of its clusters is saved in the workspace."""
        seed, part = run.runtime.seed + 104_729 * place, f"learner-{place}"
        if not run.workspace.has(part):
            run.workspace.save(part, {"members": self._divided(rows, labels, seed, run.runtime.threads)})
        divided = run.workspace.load(part)[0]["members"]
        count = int(divided.max()) + 1
        clusters = []
        title = f"embedding documents, learner {place + 1} of {self.config.learners}"
        with run.progress.task(title, count * self.config.rounds) as task:
            for number in range(count):
                name = f"{part}-cluster-{number}"
                if not run.workspace.has(name):
                    members = np.flatnonzero(divided == number)
                    made = self._cluster(rows, labels, members, seed + number, run.runtime.threads, task.advance)
                    run.workspace.save(name, made._asdict())
                else:
                    task.advance(self.config.rounds)
                clusters.append(Cluster(**run.workspace.load(name)[0]))
        return Learner(clusters, _centres(rows, divided, count))

    def _divided(self, rows: Csr, labels: Csr, seed: int, threads: int) -> NDArray[np.int64]:
        """(n,) the cluster of each training document; −1 for documents without labels."""
        divided = np.full(int(rows.shape[0]), -1, dtype=np.int64)
        speaking = np.flatnonzero(np.diff(labels.indptr))
        count = -(-len(speaking) // self.config.cluster_size)
        divided[speaking] = 0
        if count > 1:
            divided[speaking] = spherical_kmeans(_varying(rows), speaking, count, seed=seed, threads=threads)
        return divided

    def _cluster(
        self, rows: Csr, labels: Csr, members: NDArray[np.int64], seed: int, threads: int, advance: Callable[[], None]
    ) -> Cluster:
        """Compute embeddings that preserve label similarity, then fit the regression from features to embeddings."""
        config = self.config
        own = rows[members]
        columns = np.unique(own.indices)
        both = TwoWays.of(own[:, columns])
        pairs = near_pairs(labels[members], min(config.pairs, len(members)), seed=seed, threads=threads)
        width = min(config.width, len(members))
        targets = match_products(pairs, width, rounds=config.rounds, seed=seed, threads=threads, advance=advance)
        right = multiply(both.columns, targets, threads)
        weights = ridge(both, right, config.penalty, steps=STEPS, threads=threads)
        vectors = unit_length(multiply(both.rows, weights, threads))
        return Cluster(members.astype(np.int32), columns.astype(np.int32), weights, np.ascontiguousarray(vectors.T))

    # ---- prediction

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        ballots = self._votes(batch)
        return best_of_rows(*(ballots if allowed is None else only_allowed(*ballots, allowed)), k)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        return look_up_rows(*self._votes(batch), candidates)

    def _known_words(self, batch: Dataset) -> Mask | None:
        return self._features.known_words(batch, self.runtime)

    def _votes(self, batch: Dataset) -> Ballots:
        found, cosines = self._nearest(batch)
        return self._voters.ballots(found, self._weights(cosines), len(self.label_counts))

    def _nearest(self, batch: Dataset) -> tuple[NDArray[np.int32], Array]:
        """(n, learners · neighbours) voting training documents and their cosines, learner by learner."""
        rows, threads = self._features.transform(batch, self.runtime), self.runtime.threads
        count = min(self.config.neighbours, len(self._voters))
        each = [learner.nearest(rows, count, threads) for learner in self._learners]
        return np.concatenate([found for found, _ in each], axis=1), np.concatenate(
            [given for _, given in each], axis=1
        )

    def _weights(self, cosines: Array) -> Array:
        """Vote weights, 1 for the nearest document of each learner, 0 for padding."""
        apart = cosines.reshape(len(cosines), len(self._learners), -1)
        behind = np.maximum(apart - apart[:, :, :1], -2.0)  # cosines differ by at most 2
        weights = np.where(np.isneginf(apart), 0.0, np.exp(self.config.sharpness * behind.astype(np.float64)))
        return weights.reshape(cosines.shape).astype(np.float32)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        found, cosines = self._nearest(as_dataset([text]))
        weights = self._weights(cosines)[0].astype(np.float64)
        known = found[0] >= 0
        voters, places = np.unique(found[0, known], return_inverse=True)
        summed = np.bincount(places, weights[known])
        nearness = np.full(len(voters), -1.0, dtype=np.float32)
        np.maximum.at(nearness, places, cosines[0, known])
        order = np.argsort(-summed, kind="stable")
        chosen = voters[order].astype(np.int32), nearness[order], summed[order].astype(np.float32)
        evidence = self._voters.evidence(*chosen, label, self.labels)
        return Explanation("neighbours", text, self.labels.name(label), score, evidence)

    # ---- saving

    def _state(self) -> State:
        kept, voters = self._features.state(), self._voters.state()
        kept.arrays.update(voters.arrays)
        kept.tables.update(voters.tables)
        for place, learner in enumerate(self._learners):
            kept.arrays[f"{place}.{CENTRES}"] = learner.centres
            for number, cluster in enumerate(learner.clusters):
                kept.arrays.update({f"{place}.{number}.{name}": array for name, array in cluster._asdict().items()})
        return kept

    def _restore(self, state: SavedState) -> None:
        self._features = ColumnFeatures.from_state(self.config.text, self.config.bias, state)
        self._voters = Voters.from_state(state, len(self.label_counts))
        self._learners = []
        for place in range(self.config.learners):
            part = state.part(f"{place}.")
            centres = part.array(CENTRES, np.float32, (self._features.width, None))
            if not centres.shape[1]:
                raise ValueError(f"learner {place} has no clusters")
            clusters = [self._restored_cluster(part.part(f"{number}.")) for number in range(centres.shape[1])]
            self._learners.append(Learner(clusters, centres))

    def _restored_cluster(self, state: SavedState) -> Cluster:
        members = state.array("members", np.int32, (None,), low=0, high=len(self._voters))
        columns = state.array("columns", np.int32, (None,), low=0, high=self._features.width)
        weights = state.array("weights", np.float32, (len(columns), None))
        return Cluster(members, columns, weights, state.array("vectors", np.float32, (weights.shape[1], len(members))))


def _varying(rows: Csr) -> Csr:
    """Rows without the constant column at the end."""
    return sp.csr_array(rows[:, :-1])


def _centres(rows: Csr, clusters: NDArray[np.int64], count: int) -> Array:
    """(D, count) normalised sum of each cluster's rows, without the constant column."""
    held = clusters >= 0
    places = np.flatnonzero(held)
    belongs = sp.csr_array(
        (np.ones(len(places), np.float32), (clusters[places], places)), shape=(count, int(rows.shape[0]))
    )
    sums = np.asarray((belongs @ rows).todense(), dtype=np.float64)
    sums[:, -1] = 0.0
    lengths = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-30)
    return np.ascontiguousarray((sums / lengths).T.astype(np.float32))
