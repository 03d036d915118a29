"""Nearest neighbours among dense unit vectors: exact, within clusters, or with FAISS.

Minimum cost of exact search for n queries among N rows of d numbers: 2·n·N·d operations of a matrix product, 1.4e12 for
26,168 × 90,452 × 300; 4·n·N bytes of products that pass through the last-level cache block by block, 9.5e9 of them,
read once to select the best; 4·d bytes per row from memory for each 2,048 queries, 1.4e9. So the matrix product
dominates, and its memory is bounded: a block of products, and one of rows.

The rounding of a matrix product depends on its shape, so it only preselects rows that may be among the best: their
products are recomputed in double precision in a fixed order, and these decide. No row is missed, since the error of
single precision is bounded. Results therefore do not depend on how queries are batched. Measured: 49 CPU seconds for
the above, 42 of them in the matrix product; FAISS takes 11, plus 5 to build its index.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.core.errors import ConfigError, missing_extra
from xmtc.core.jit import inlined, kernel
from xmtc.core.parallel import run_parallel
from xmtc.core.selection import insert, nth_largest
from xmtc.nn.device import cpu_threads
from xmtc.nn.neighbours.tensor_search import search_tensor

QUERIES, ROWS = 2048, 1024
"""Block size on a CPU: 8 MiB of products."""
RUN = 64
"""Products skipped at once if none of them is among the best."""
EXTRA = 16
"""Additional rows requested from FAISS, since products are recomputed."""
PART = 256
"""Queries that a thread handles at once in a FAISS search."""
FEW = 4096
"""Up to this many rows, the search is always exact."""
PROBES = 44
"""Lists that FAISS probes per query: recall 0.98 for the nearest twenty among 90,000 embedded documents."""
LISTS, POINTS, ROUNDS = 3, 32, 5
"""FAISS lists as a multiple of √N; training rows per list, and k-means iterations."""
SEARCHES = ("exact", "faiss")

Array = NDArray[np.float32]
Numbers = NDArray[np.int32]
Found = tuple[NDArray[np.int32], NDArray[np.float32]]


class Clusters(Protocol):
    """Rows divided into clusters; a query is searched in one of them."""

    def shares(self, queries: Array, numbers: Numbers, threads: int) -> Iterator[tuple[NDArray[np.int64], Numbers]]:
        """For each cluster assigned to a query: these queries, and its rows out of `numbers`."""
        ...


class VectorIndex:
    """Search by inner product among rows of equal length; for unit vectors this is the cosine."""

    def __init__(
        self,
        vectors: Array | Tensor,
        *,
        threads: int = 1,
        search: str = "exact",
        probes: int = PROBES,
        partition: Clusters | None = None,
    ) -> None:
        """Index an array, which is not copied and may be memory-mapped, or a tensor, searched on its device."""
        if search not in SEARCHES:
            raise ConfigError(f"'search' must be 'exact' or 'faiss'. Got '{search}'.")
        if search == "faiss" and partition is not None:
            raise ConfigError("search 'faiss' does not support clusters. Use search 'exact', or no clusters.")
        if search == "faiss" and importlib.util.find_spec("faiss") is None:
            raise missing_extra("search 'faiss' needs FAISS", "ann")
        self._vectors: Array | Tensor
        if isinstance(vectors, Tensor) and vectors.device.type != "cpu" and search == "exact":
            self._vectors = vectors.detach().float()
        else:
            self._vectors = as_rows(vectors)
        self.threads, self.partition = threads, partition
        self._probes = probes if search == "faiss" else 0
        self._lists: _InvertedLists | None = None
        self._longest: float | None = None

    def __len__(self) -> int:
        return int(self._vectors.shape[0])

    def nearest(
        self,
        queries: Array | Tensor,
        count: int,
        *,
        without: NDArray[np.integer[Any]] | None = None,
        among: NDArray[np.bool_] | NDArray[np.integer[Any]] | None = None,
    ) -> Found:
        """(n, count) rows with the largest products, and the products, best first; −1 and 0 as padding.

        Ties are broken by the lower row number. Query i never returns row `without[i]`; `among`, a mask or row numbers,
        restricts the rows, in which case FAISS is replaced by exact search.
        """
        given = as_rows(queries)
        found = np.full((len(given), count), -1, dtype=np.int32)
        products = np.zeros((len(given), count), dtype=np.float32)
        if not found.size or not len(self):
            return found, products
        barred = np.full(len(given), -1, np.int32) if without is None else np.asarray(without).astype(np.int32)
        numbers = self._numbers(among)
        if self.partition is not None:
            for own, members in self.partition.shares(given, numbers, self.threads):
                part = found[own], products[own]
                self._search(given[own], members, barred[own], *part)
                found[own], products[own] = part
        elif self._probes and among is None and len(self) >= FEW:
            if self._lists is None:
                self._lists = _InvertedLists(self._vectors, self.threads)
            self._lists.search(given, self._probes, barred, found, products)
        else:
            self._search(given, numbers, barred, found, products)
        return found, products

    def _numbers(self, among: NDArray[Any] | None) -> Numbers:
        """The rows that may be returned, ascending."""
        if among is None:
            return np.arange(len(self), dtype=np.int32)
        among = np.asarray(among)
        return (np.flatnonzero(among) if among.dtype == bool else np.unique(among)).astype(np.int32)

    def _search(self, queries: Array, numbers: Numbers, barred: Numbers, found: Numbers, products: Array) -> None:
        if self._longest is None:
            self._longest = _longest(self._vectors)
        # Error bound of a sum of d products in single precision, plus one more rounding.
        relative = (queries.shape[1] + 2) * 2.0**-24 * self._longest
        slack = np.sqrt(np.einsum("nd,nd->n", queries, queries, dtype=np.float64)) * (1.01 * relative)
        with _full_precision(), torch.inference_mode():
            if isinstance(self._vectors, Tensor):
                search_tensor(self._vectors, queries, numbers, barred, slack, found, products)
            else:
                with cpu_threads(self.threads):
                    _search_array(self._vectors, queries, numbers, barred, slack, found, products, self.threads)


def as_rows(given: Array | Tensor) -> Array:
    """Rows as a contiguous float32 array, without a copy if possible."""
    if isinstance(given, Tensor):
        given = given.detach().float().cpu().numpy()
    return np.ascontiguousarray(given, dtype=np.float32)


def _longest(vectors: Array | Tensor) -> float:
    """The largest norm of a row."""
    squares = [0.0]
    for low in range(0, len(vectors), ROWS):
        part = vectors[low : low + ROWS]
        if isinstance(part, Tensor):
            squares.append(float(part.double().square().sum(1).max()))
        else:
            squares.append(float(np.einsum("nd,nd->n", part, part, dtype=np.float64).max()))
    return math.sqrt(max(squares))


@contextmanager
def _full_precision() -> Iterator[None]:
    """Disable reduced-precision matrix products (TF32), which may be enabled for training."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# ---- on a CPU


def _search_array(
    vectors: Array,
    queries: Array,
    numbers: Numbers,
    barred: Numbers,
    slack: NDArray[np.float64],
    found: Numbers,
    products: Array,
    threads: int,
) -> None:
    """Fill `found` and `products` in blocks of queries × rows."""
    space = torch.empty(min(QUERIES, len(queries)) * min(ROWS, len(numbers)))
    copied = torch.empty(min(ROWS, len(numbers)), vectors.shape[1])
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(queries), QUERIES):
            state = tuple(array[first : first + QUERIES] for array in (queries, barred, slack, found, products))
            query_rows = torch.from_numpy(np.array(state[0]))
            share = -(-len(query_rows) // threads)
            pieces = [slice(start, start + share) for start in range(0, len(query_rows), share)]
            for low in range(0, len(numbers), ROWS):
                part = numbers[low : low + ROWS]
                rows = copied[: len(part)]
                np.take(vectors, part, axis=0, out=rows.numpy(), mode="clip")
                block = torch.mm(
                    query_rows, rows.T, out=space[: len(query_rows) * len(part)].view(len(query_rows), len(part))
                )
                keep = partial(_keep_share, block.numpy(), rows.numpy(), part, state)
                for _ in pool.map(keep, pieces) if len(pieces) > 1 else map(keep, pieces):
                    pass


def _keep_share(block: Array, rows: Array, numbers: Numbers, state: tuple[NDArray[Any], ...], here: slice) -> None:
    """One thread's part of the queries of a block."""
    queries, barred, slack, found, products = (array[here] for array in state)
    _keep_best(block[here], rows, numbers, queries, barred, slack, found, products)


@inlined
def _exact(one: Any, other: Any) -> Any:
    """The inner product in double precision, summed from the left."""
    total = 0.0
    for i in range(len(one)):
        total += np.float64(one[i]) * np.float64(other[i])
    return np.float32(total)


@kernel(outputs=("found", "products"))
def _keep_best(
    block: Array,  # (n, r) approximate products
    rows: Array,  # (r, d)
    numbers: Numbers,  # (r,) ascending, and larger than those of earlier blocks
    queries: Array,  # (n, d)
    barred: Numbers,  # (n,)
    slack: NDArray[np.float64],  # (n,) error bound of the approximate products
    found: Numbers,  # in and out: (n, count)
    products: Array,  # in and out: (n, count)
) -> None:
    count = found.shape[1]
    for query in range(block.shape[0]):
        held = 0
        while held < count and found[query, held] >= 0:
            held += 1
        if held == count:
            bar = np.float32(products[query, count - 1] - slack[query])
        elif held == 0 and block.shape[1] > count:  # one more, as one may be excluded
            bar = np.float32(nth_largest(block[query], count + 1) - 2 * slack[query])
        else:
            bar = np.float32(-np.inf)
        for start in range(0, block.shape[1], RUN):
            stop = min(start + RUN, block.shape[1])
            hits = 0
            for i in range(start, stop):
                hits += block[query, i] >= bar
            if hits == 0:
                continue
            for i in range(start, stop):
                if block[query, i] >= bar and numbers[i] != barred[query]:
                    product = _exact(queries[query], rows[i])
                    held = insert(found[query], products[query], held, numbers[i], product)
                    if held == count:
                        bar = np.float32(products[query, count - 1] - slack[query])


@kernel(outputs=("found", "products"))
def _rank(
    vectors: Array,  # (N, d)
    queries: Array,  # (n, d)
    candidates: Numbers,  # (n, c) ascending, −1 as padding
    barred: Numbers,  # (n,)
    found: Numbers,  # out: (n, count)
    products: Array,  # out: (n, count)
) -> None:
    """Select the best candidates of each query."""
    for query in range(candidates.shape[0]):
        held = 0
        for i in range(candidates.shape[1]):
            number = candidates[query, i]
            if number >= 0 and number != barred[query]:
                product = _exact(queries[query], vectors[number])
                held = insert(found[query], products[query], held, number, product)


# ---- FAISS


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ImportError:
        raise missing_extra("search 'faiss' needs FAISS", "ann") from None


class _InvertedLists:
    """FAISS inverted lists of the rows nearest to each of many centres; a query is searched in the nearest lists."""

    def __init__(self, vectors: Array | Tensor, threads: int) -> None:
        faiss = _faiss()
        self._vectors = as_rows(vectors)
        self.threads = threads
        size, width = self._vectors.shape
        count = round(LISTS * math.sqrt(size))
        with _faiss_threads(threads):
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, count, faiss.METRIC_INNER_PRODUCT)
            index.cp.seed, index.cp.niter = 1, ROUNDS
            index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 1, POINTS
            index.train(self._vectors)
            index.add(self._vectors)
        self._index = index
        self._centres = VectorIndex(index.quantizer.reconstruct_n(0, count), threads=threads)

    def search(self, queries: Array, probes: int, barred: Numbers, found: Numbers, products: Array) -> None:
        """Choose the lists to probe here, because FAISS's choice would depend on the number of queries in a batch.

        With given lists, FAISS processes queries sequentially, so threads are managed here, too.
        """
        self._index.nprobe = min(probes, len(self._centres))
        for first in range(0, len(queries), QUERIES):
            last = min(first + QUERIES, len(queries))
            lists, near = self._centres.nearest(queries[first:last], self._index.nprobe)

            def part(low: int, first: int = first, last: int = last, lists: Any = lists, near: Any = near) -> None:
                mine, of = slice(low, min(low + PART, last)), slice(low - first, min(low + PART, last) - first)
                given = lists[of], near[of]
                _, rough = self._index.search_preassigned(queries[mine], found.shape[1] + EXTRA, *given)
                candidates = np.sort(rough, axis=1).astype(np.int32)
                _rank(self._vectors, queries[mine], candidates, barred[mine], found[mine], products[mine])

            for _ in run_parallel(part, range(first, last, PART), self.threads):
                pass


@contextmanager
def _faiss_threads(count: int) -> Iterator[None]:
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
