"""Embedded training documents: the search index, and how embeddings move in an update."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.config import Settings
from xmtc.core.runtime import Runtime
from xmtc.nn.device import chosen_device
from xmtc.nn.neighbours.clusters import Partition
from xmtc.nn.neighbours.vector_index import PROBES, Array, Found, VectorIndex
from xmtc.nn.tensors import read_tensor

EMBEDDINGS, CENTRES, CLUSTERS = "embeddings", "cluster_centres", "clusters"
SAME = 0.98
"""Minimum cosine between a document's embedding and the row with its id for both to count as the same document."""
RIDGE = 100
"""Pseudo-count of unmoved documents in the regression from old to new embeddings."""


@dataclass(frozen=True)
class SearchSettings(Settings):
    """How the nearest training documents are found."""

    kind: Literal["exact", "faiss"] = "exact"
    """Exact search over all documents, or approximate search with FAISS."""
    probes: int = PROBES
    """Number of lists that FAISS probes; a larger number is more accurate but slower."""
    clusters: int = 1
    """Number of clusters of the training documents, of which only the nearest is searched; more than 1 as published."""

    of = "search"

    def check(self) -> None:
        self.require_range("probes", 1)
        self.require_range("clusters", 1)
        self.require("clusters", self.kind == "exact" or self.clusters == 1, "1 with search.kind = 'faiss'")


class EmbeddedDocuments:
    """Embeddings (N, d) of training documents, with an index."""

    def __init__(
        self, vectors: Array, search: SearchSettings, runtime: Runtime, partition: Partition | None = None
    ) -> None:
        self.vectors, self.partition = vectors, partition
        self._search = search
        device = chosen_device(runtime)
        self.index = VectorIndex(
            read_tensor(vectors).to(device) if device.type == "cuda" else vectors,
            threads=runtime.threads,
            search=search.kind,
            probes=search.probes,
            partition=partition,
        )

    @classmethod
    def fit(cls, vectors: Array, search: SearchSettings, runtime: Runtime) -> EmbeddedDocuments:
        """Index the embeddings of training documents."""
        return cls(vectors, search, runtime, partition_of(vectors, search.clusters, runtime))

    def __len__(self) -> int:
        return len(self.vectors)

    def nearest(self, queries: Array, count: int, among: NDArray[np.bool_] | None = None) -> Found:
        """(n, count) the nearest documents, of those in a mask (N,), and their cosines, nearest first."""
        return self.index.nearest(queries, count, among=among)

    def rows_of(
        self, ids: list[str], row_ids: list[str], embedded: Array
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of documents with these ids, and their positions in `ids`; `row_ids` (N,) has the ids of the rows.

        Duplicate ids are skipped, and so are rows that differ from the embedding of the document in `embedded`.
        """
        rows_by_id = unique_places(row_ids)
        found = np.array([place for name, place in unique_places(ids).items() if name in rows_by_id], dtype=np.int64)
        rows = np.array([rows_by_id[ids[place]] for place in found.tolist()], dtype=np.int64)
        near = np.einsum("nd,nd->n", self.vectors[rows], embedded[found]) >= SAME
        return rows[near], found[near]

    def joined(self, moved: Array, added: Array, runtime: Runtime) -> EmbeddedDocuments:
        """These documents at their new positions plus more documents, assigned to the nearest clusters."""
        vectors = np.concatenate([moved, added])
        partition = None if self.partition is None else self.partition.moved(vectors, runtime.threads)
        return EmbeddedDocuments(vectors, self._search, runtime, partition)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        arrays: dict[str, NDArray[Any]] = {EMBEDDINGS: self.vectors}
        if self.partition is not None:
            arrays |= {CENTRES: self.partition.centres, CLUSTERS: self.partition.clusters}
        return arrays

    @classmethod
    def from_state(
        cls, state: SavedState, shape: tuple[int, int], search: SearchSettings, runtime: Runtime
    ) -> EmbeddedDocuments:
        """Restore embeddings of this shape."""
        vectors, partition = state.array(EMBEDDINGS, np.float32, shape), None
        if state.has(CENTRES):
            centres = state.array(CENTRES, np.float32, (None, shape[1]))
            partition = Partition(centres, state.array(CLUSTERS, np.int32, (shape[0],), low=0, high=len(centres)))
        return cls(vectors, search, runtime, partition)


def partition_of(vectors: Array, clusters: int, runtime: Runtime) -> Partition | None:
    """Partition the rows into clusters; None for a single cluster."""
    return None if clusters == 1 else Partition.fit(vectors, clusters, seed=runtime.seed, threads=runtime.threads)


def moved_embeddings(vectors: Array, old: Array, now: Array, members: int) -> Array:
    """Predict the new embeddings of documents at `vectors` (N, d) from others that moved from `old` to `now`.

    Uses one linear map per member, fitted by ridge regression towards the identity.
    """
    moved = np.empty(vectors.shape, dtype=np.float32)
    width = vectors.shape[1] // members
    for low in range(0, vectors.shape[1], width):
        part = slice(low, low + width)
        before, after = old[:, part].astype(np.float64), now[:, part].astype(np.float64)
        ridge = RIDGE / vectors.shape[1] * np.eye(width)
        turned = np.linalg.solve(before.T @ before + ridge, before.T @ after + ridge)
        moved[:, part] = vectors[:, part] @ turned.astype(np.float32)
        lengths = np.linalg.norm(moved[:, part], axis=1, keepdims=True)
        wanted = np.linalg.norm(vectors[:, part], axis=1, keepdims=True)
        moved[:, part] *= wanted / np.maximum(lengths, np.finfo(np.float32).tiny)
    return moved


def unique_places(ids: list[str]) -> dict[str, int]:
    """The position of each id that occurs once."""
    counts = Counter(ids)
    return {name: place for place, name in enumerate(ids) if counts[name] == 1}
