"""Nearest labels by the vectors of their names: unit vectors as 8-bit integers, in clusters. NumPy and numba only.

A million names of 384 numbers take 384 MB, a quarter of `VectorIndex`, and need no PyTorch. A query is compared with
all centres, then with the names in the nearest clusters. Products of 8-bit integers preselect labels; these are then
scored exactly, so that a result has the same cosine as `scores` gives. Integer sums do not depend on their order:
results do not depend on how queries are batched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.jit import inlined, kernel
from xmtc.core.parallel import run_parallel
from xmtc.core.progress import Progress, silent
from xmtc.core.selection import nth_largest

QUERIES, ROWS, CENTRES = 8, 1 << 13, 256
"""Work per step: queries that a thread searches, rows that it assigns to clusters, and centres compared at a time."""
FEW = 1 << 15
"""Up to this many names, all are compared."""
CLUSTERS, SAMPLE, ROUNDS = 4, 24, 6
"""Clusters as a multiple of √N, sampled names per cluster, and k-means iterations."""
PROBES = 128
"""Clusters searched per query: recall 0.99 for the nearest ten of a million synthetic names, 0.98 for real ones."""
SMALLEST = 1e-6
"""Lower bound of the scale of a row that is not zero."""
EXTRA = 16
"""Additional labels that are scored exactly."""

Vectors = NDArray[np.float32]
Codes = NDArray[np.int8]


class CodeRows(NamedTuple):
    """Unit vectors as integers: row i is codes[i] · scales[i]; the scale of a zero row is 0."""

    codes: Codes  # (N, d)
    scales: Vectors  # (N,)

    @classmethod
    def of(cls, vectors: Vectors) -> CodeRows:
        """Round vectors of any length."""
        largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
        codes = np.rint(vectors * (np.float32(127) / np.where(largest > 0, largest, np.float32(1)))).astype(np.int8)
        return cls(codes, _lengths(codes))

    def take(self, rows: NDArray[np.integer[Any]]) -> CodeRows:
        """Return these rows, in this order."""
        return CodeRows(self.codes[rows], self.scales[rows])


class CodeIndex:
    """Names as vectors other than zero, each with its label; of several names of a label, the nearest counts."""

    def __init__(
        self,
        names: CodeRows,
        owners: NDArray[np.int32],
        centres: CodeRows,
        starts: NDArray[np.int64],
        labels: int,
        threads: int = 1,
        probes: int = PROBES,
    ) -> None:
        self.names, self.owners = names, owners  # (N,) label of each name
        self.centres, self.starts = centres, starts  # (m + 1,) cluster i has the names starts[i] to starts[i + 1]
        self.labels, self.threads, self.probes = labels, threads, probes
        self._every = np.arange(len(owners), dtype=np.int32)
        self._by_label = np.argsort(owners, kind="stable").astype(np.int32)
        self._label_starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=labels))]).astype(np.int64)

    @classmethod
    def build(
        cls,
        names: CodeRows,
        owners: NDArray[np.int32],
        labels: int,
        *,
        seed: int = 0,
        threads: int = 1,
        few: int = FEW,
        progress: Progress = silent,
    ) -> CodeIndex:
        """Cluster the names; up to `few` names stay in a single cluster. The same seed gives the same clusters."""
        centres, clusters = names.take(np.arange(min(len(owners), 1))), np.zeros(len(owners), dtype=np.int32)
        if len(owners) > few:
            centres, clusters = _clusters(names, round(CLUSTERS * len(owners) ** 0.5), seed, threads, progress)
        order = np.argsort(clusters, kind="stable")
        starts = np.searchsorted(clusters[order], np.arange(len(centres.codes) + 1)).astype(np.int64)
        return cls(names.take(order), owners[order], centres, starts, labels, threads)

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        arrays = (*self.names, *self.centres, self.owners, self.starts, self._every, self._by_label, self._label_starts)
        return sum(array.nbytes for array in arrays)

    def nearest(
        self, queries: Vectors, count: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], Vectors]:
        """(n, count) labels with the largest cosines, and these, best first; −1 and 0 as padding.

        Query i has one vector or several, queries (n, v, d): the largest cosine counts. `allowed` (labels,) restricts
        the labels; the more it leaves out, the more clusters are searched. Ties are broken by the lower number.
        """
        shape = (len(queries), min(count, self.labels) + EXTRA)
        found, products = np.full(shape, -1, dtype=np.int32), np.zeros(shape, dtype=np.float32)
        rows, starts = self._every, self.starts
        if allowed is not None:
            rows = np.flatnonzero(allowed[self.owners]).astype(np.int32)
            starts = np.searchsorted(rows, self.starts).astype(np.int64)
        probes = min(self.probes, len(self.centres.codes))
        least = min(len(rows), len(self) * probes // max(2 * len(self.centres.codes), 1))

        def search(low: int) -> None:
            part = slice(low, low + QUERIES)
            width = queries.shape[2]
            rounded = CodeRows.of(queries[part].reshape(-1, width))
            _search(
                rounded.codes.reshape(-1, queries.shape[1], width),
                rounded.scales.reshape(-1, queries.shape[1]),
                *self.names,
                self.owners,
                rows,
                starts,
                *self.centres,
                probes,
                least,
                found[part],
                products[part],
            )
            self._score(queries[part], found[part], products[part])

        if len(rows) and count:
            for _ in run_parallel(search, range(0, len(queries), QUERIES), self.threads):
                pass
        order = np.lexsort((found, -products, found < 0))[:, :count]
        labels = np.full((len(queries), count), -1, dtype=np.int64)
        cosines = np.zeros((len(queries), count), dtype=np.float32)
        labels[:, : order.shape[1]] = np.take_along_axis(found, order, axis=1)
        cosines[:, : order.shape[1]] = np.take_along_axis(products, order, axis=1)
        return labels, cosines

    def scores(self, queries: Vectors, candidates: NDArray[np.integer[Any]]) -> Vectors:
        """(n, c) cosine of each query with the nearest name of each candidate; 0 for −1 and labels without a name."""
        found = np.asarray(candidates).astype(np.int32)
        products = np.zeros(found.shape, dtype=np.float32)

        def score(low: int) -> None:
            part = slice(low, low + QUERIES)
            self._score(queries[part], found[part], products[part])

        for _ in run_parallel(score, range(0, len(queries), QUERIES), self.threads):
            pass
        return products

    def _score(self, queries: Vectors, found: NDArray[np.int32], products: Vectors) -> None:
        _exact_scores(queries, found, *self.names, self._label_starts, self._by_label, products)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        names, centres = self.names, self.centres
        return {
            "codes": names.codes,
            "scales": names.scales,
            "owners": self.owners,
            "centre_codes": centres.codes,
            "centre_scales": centres.scales,
            "starts": self.starts,
        }

    @classmethod
    def from_state(cls, state: SavedState, width: int, labels: int, threads: int = 1) -> CodeIndex:
        """Restore the names of a model with this number of labels."""
        owners = state.array("owners", np.int32, (None,), low=0, high=labels)
        names = CodeRows(
            state.array("codes", np.int8, (len(owners), width), low=-127),
            state.array("scales", np.float32, (len(owners),), low=SMALLEST, high=1.01),
        )
        codes = state.array("centre_codes", np.int8, (None, width), low=-127)
        centres = CodeRows(codes, state.array("centre_scales", np.float32, (len(codes),), low=SMALLEST, high=1.01))
        return cls(names, owners, centres, state.offsets("starts", len(codes), len(owners)), labels, threads)


def concatenated(parts: Iterable[Vectors], count: int, width: int) -> CodeRows:
    """Round parts of a matrix (count, width) one after the other; it never exists as floating-point numbers."""
    rows = CodeRows(np.zeros((count, width), dtype=np.int8), np.zeros(count, dtype=np.float32))
    low = 0
    for part in parts:
        rounded = CodeRows.of(part)
        rows.codes[low : low + len(part)], rows.scales[low : low + len(part)] = rounded
        low += len(part)
    return rows


# ---- clusters


def _clusters(
    names: CodeRows, count: int, seed: int, threads: int, progress: Progress
) -> tuple[CodeRows, NDArray[np.int32]]:
    """Spherical k-means on a sample; return the centres of non-empty clusters, and the cluster of each name."""
    random = np.random.default_rng(seed)
    sample = names.take(np.sort(random.permutation(len(names.codes))[: SAMPLE * count]))
    centres = sample.take(np.sort(random.permutation(len(sample.codes))[:count]))
    steps = -(-len(names.codes) // ROWS)
    with progress.task("clustering label names", ROUNDS + steps) as task:
        for _ in range(ROUNDS):
            clusters = _assigned(sample, centres, threads)
            sums = np.zeros(centres.codes.shape, dtype=np.float32)
            _sum_rows(*sample, clusters, sums)
            filled = np.bincount(clusters, minlength=len(centres.codes)) > 0
            centres = CodeRows.of(sums[filled])
            task.advance()
        clusters = _assigned(names, centres, threads)
        task.advance(steps)
    used = np.unique(clusters)
    return centres.take(used), np.searchsorted(used, clusters).astype(np.int32)


def _assigned(rows: CodeRows, centres: CodeRows, threads: int) -> NDArray[np.int32]:
    """The nearest centre of each row."""
    clusters = np.zeros(len(rows.codes), dtype=np.int32)

    def assign(low: int) -> None:
        part = slice(low, low + ROWS)
        _assign(rows.codes[part], *centres, CENTRES, clusters[part])

    for _ in run_parallel(assign, range(0, len(rows.codes), ROWS), threads):
        pass
    return clusters


# ---- kernels


@inlined
def _dot(one: Any, other: Any) -> Any:
    """The product of two rows of 8-bit integers; compiles to dot-product instructions."""
    total = np.int32(0)
    for i in range(len(one)):
        total = np.int32(total + np.int32(one[i]) * np.int32(other[i]))
    return total


@kernel()
def _lengths(codes: Codes) -> Vectors:
    """1 / length of each row; 0 for a zero row."""
    scales = np.zeros(len(codes), np.float32)
    for row in range(len(codes)):
        square = _dot(codes[row], codes[row])
        if square > 0:
            scales[row] = np.float32(1.0 / np.sqrt(np.float64(square)))
    return scales


@kernel(outputs=("clusters",))
def _assign(codes: Codes, centres: Codes, scales: Vectors, step: int, clusters: NDArray[np.int32]) -> None:
    best = np.full(len(codes), -np.inf, np.float32)
    for low in range(0, len(centres), step):  # centres stay in the cache
        for row in range(len(codes)):
            for centre in range(low, min(low + step, len(centres))):
                product = np.float32(_dot(codes[row], centres[centre])) * scales[centre]
                if product > best[row]:
                    best[row] = product
                    clusters[row] = centre


@kernel(outputs=("sums",))
def _sum_rows(codes: Codes, scales: Vectors, clusters: NDArray[np.int32], sums: Vectors) -> None:
    for row in range(len(codes)):
        total = sums[clusters[row]]
        for i in range(codes.shape[1]):
            total[i] += scales[row] * np.float32(codes[row, i])


@inlined
def _hold(labels: Any, products: Any, held: Any, label: Any, product: Any) -> Any:
    """Keep a label in a row that is sorted by product, ties by number; a label that is there keeps the larger one."""
    at = 0
    while at < held and labels[at] != label:
        at += 1
    if at < held:
        if products[at] >= product:
            return held
    elif held < len(labels):
        held += 1
    else:
        at = held - 1
    while at > 0 and (products[at - 1] < product or (products[at - 1] == product and labels[at - 1] > label)):
        products[at] = products[at - 1]
        labels[at] = labels[at - 1]
        at -= 1
    products[at] = product
    labels[at] = label
    return held


@inlined
def _bar(near: Any, starts: Any, probes: Any, least: Any) -> Any:
    """The product with a centre from which its cluster is searched: `probes` clusters with at least `least` names."""
    while True:
        bar = nth_largest(near, probes)
        names = 0
        for cluster in range(len(near)):
            if near[cluster] >= bar:
                names += starts[cluster + 1] - starts[cluster]
        if names >= least or probes == len(near):
            return bar
        probes = min(2 * probes, len(near))


@kernel(outputs=("found", "products"))
def _search(
    queries: Any,  # (n, v, d) int8
    query_scales: Vectors,  # (n, v)
    codes: Codes,  # (N, d)
    scales: Vectors,  # (N,)
    owners: NDArray[np.int32],  # (N,)
    rows: NDArray[np.int32],  # (A,) the names that may be returned, ascending
    starts: NDArray[np.int64],  # (m + 1,) positions in `rows`
    centres: Codes,  # (m, d)
    centre_scales: Vectors,  # (m,)
    probes: int,
    least: int,
    found: NDArray[np.int32],  # out: (n, c) labels
    products: Vectors,  # out: (n, c) approximate cosines
) -> None:
    near = np.zeros(len(centres), np.float32)
    for query in range(queries.shape[0]):
        held, last = 0, found.shape[1] - 1
        for view in range(queries.shape[1]):
            own, scale = queries[query, view], query_scales[query, view]
            if scale == 0.0:
                continue
            for cluster in range(len(centres)):
                near[cluster] = np.float32(_dot(own, centres[cluster])) * centre_scales[cluster]
            bar = _bar(near, starts, probes, least)
            for cluster in range(len(centres)):
                if near[cluster] < bar:
                    continue
                for i in range(starts[cluster], starts[cluster + 1]):
                    row = rows[i]
                    product = np.float32(_dot(own, codes[row])) * scales[row] * scale
                    if held <= last or product >= products[query, last]:
                        if held > last and product == products[query, last] and owners[row] >= found[query, last]:
                            continue
                        held = _hold(found[query], products[query], held, owners[row], product)


@kernel(outputs=("products",))
def _exact_scores(
    queries: Any,  # (n, v, d) float32
    candidates: NDArray[np.int32],  # (n, c) labels, −1 as padding
    codes: Codes,  # (N, d)
    scales: Vectors,  # (N,)
    label_starts: NDArray[np.int64],  # (labels + 1,)
    by_label: NDArray[np.int32],  # (N,) names in the order of their labels
    products: Vectors,  # out: (n, c)
) -> None:
    for query in range(candidates.shape[0]):
        for place in range(candidates.shape[1]):
            label = candidates[query, place]
            best, known = 0.0, False
            for view in range(queries.shape[1] if label >= 0 else 0):
                own = queries[query, view]
                for i in range(label_starts[label], label_starts[label + 1]):
                    row = by_label[i]
                    total = 0.0
                    for j in range(codes.shape[1]):
                        total += np.float64(own[j]) * np.float64(codes[row, j])
                    total *= scales[row]
                    if total > best or not known:
                        best, known = total, True
            products[query, place] = np.float32(best)
