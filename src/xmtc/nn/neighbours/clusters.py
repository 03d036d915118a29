"""Clusters of rows by k-means, so that a query is searched in a single cluster."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.core.progress import Progress, silent
from xmtc.nn.neighbours.vector_index import Array, Numbers, VectorIndex, as_rows

ROWS = 1 << 15
"""Rows processed at once."""
SAMPLE = 4096, 20
"""Size of the sample for the initial centres: this many rows, or this many per cluster, whichever is larger."""


class Partition:
    """Rows in non-empty clusters: a query is searched in the cluster with the nearest centre."""

    def __init__(self, centres: Array, clusters: Numbers) -> None:
        self.centres = centres  # (m, d) float32
        self.clusters = clusters  # (N,) int32: the cluster of each row

    @classmethod
    def fit(
        cls,
        vectors: Array | Tensor,
        count: int,
        *,
        seed: int = 0,
        threads: int = 1,
        iterations: int = 20,
        progress: Progress = silent,
    ) -> Partition:
        """k-means with k-means++ initialisation, until the assignment is stable.

        An empty cluster restarts from the row that is farthest from its centre. On a CPU, the same seed gives the same
        clusters.
        """
        rows = as_rows(vectors)
        random = np.random.default_rng(seed)
        count = max(1, min(count, len(rows)))
        centres = _starts(rows, count, random)
        clusters = np.full(len(rows), -1, dtype=np.int32)
        with progress.task("clustering", iterations) as task:
            for _ in range(iterations):
                before = clusters
                clusters, nearness = _assign(vectors, centres, threads)
                if np.array_equal(before, clusters):
                    break
                centres = _means(rows, clusters, nearness, centres)
                task.advance()
        used = np.unique(clusters)
        return cls(centres[used], np.searchsorted(used, clusters).astype(np.int32))

    def moved(self, vectors: Array | Tensor, threads: int) -> Partition:
        """The partition after rows have moved and new rows were added: each row is assigned to the nearest centre."""
        rows = as_rows(vectors)
        known = len(self.clusters)
        centres = _means(rows[:known], self.clusters, np.zeros(known, np.float32), self.centres)
        clusters, _ = _assign(vectors, centres, threads)
        used = np.unique(clusters)
        return Partition(centres[used], np.searchsorted(used, clusters).astype(np.int32))

    def shares(self, queries: Array, numbers: Numbers, threads: int) -> Iterator[tuple[NDArray[np.int64], Numbers]]:
        """For each cluster assigned to a query: these queries, and its rows out of `numbers`, ascending."""
        chosen, _ = _assign(queries, self.centres, threads)
        order = np.argsort(self.clusters[numbers], kind="stable")
        ends = np.searchsorted(self.clusters[numbers][order], np.arange(len(self.centres) + 1))
        for cluster in np.unique(chosen).tolist():
            yield np.flatnonzero(chosen == cluster), numbers[order[ends[cluster] : ends[cluster + 1]]]


def _starts(rows: Array, count: int, random: np.random.Generator) -> Array:
    """k-means++ on a sample: each centre is drawn with probability proportional to its squared distance."""
    sample = rows[np.sort(random.permutation(len(rows))[: max(SAMPLE[0], SAMPLE[1] * count)])].astype(np.float32)
    squares = np.einsum("nd,nd->n", sample, sample)
    chosen = [int(random.integers(len(sample)))]
    distance = np.full(len(sample), np.inf, dtype=np.float64)
    while len(chosen) < count:
        last = chosen[-1]
        distance = np.minimum(distance, np.maximum(squares + squares[last] - 2 * (sample @ sample[last]), 0.0))
        distance[chosen] = 0.0
        total = distance.sum()
        if total > 0.0:
            chosen.append(int(np.searchsorted(np.cumsum(distance), random.random() * total, side="right")))
        else:  # only copies of the chosen centres are left
            chosen.append(int(random.choice(np.setdiff1d(np.arange(len(sample)), chosen))))
    return sample[chosen]


def _assign(vectors: Array | Tensor, centres: Array, threads: int) -> tuple[Numbers, Array]:
    """The nearest centre of each row, and x·c − |c|²/2, the criterion for it."""
    halves = np.einsum("md,md->m", centres, centres, dtype=np.float64) / 2
    longer = np.column_stack([centres, -halves]).astype(np.float32)
    device = vectors.device if isinstance(vectors, Tensor) else torch.device("cpu")
    index = VectorIndex(longer if device.type == "cpu" else torch.from_numpy(longer).to(device), threads=threads)
    clusters = np.empty(len(vectors), dtype=np.int32)
    nearness = np.empty(len(vectors), dtype=np.float32)
    for low in range(0, len(vectors), ROWS):
        part = as_rows(vectors[low : low + ROWS])
        found, given = index.nearest(np.column_stack([part, np.ones(len(part), np.float32)]), 1)
        clusters[low : low + ROWS], nearness[low : low + ROWS] = found[:, 0], given[:, 0]
    return clusters, nearness


def _means(rows: Array, clusters: Numbers, nearness: Array, centres: Array) -> Array:
    """The mean of each cluster; an empty one gets one of the rows that are farthest from their centres."""
    sizes = np.bincount(clusters, minlength=len(centres))
    sums = torch.zeros(centres.shape, dtype=torch.float64)
    for low in range(0, len(rows), ROWS):
        part = slice(low, low + ROWS)
        sums.index_add_(0, torch.from_numpy(clusters[part]), torch.from_numpy(rows[part].astype(np.float64)))
    new = (sums.numpy() / np.maximum(sizes, 1)[:, None]).astype(np.float32)
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        distance = np.einsum("nd,nd->n", rows, rows) - 2 * nearness
        new[empty] = rows[np.argsort(-distance, kind="stable")[: len(empty)]]
    return new
