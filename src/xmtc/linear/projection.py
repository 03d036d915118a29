"""Document embeddings whose inner products match those of the label vectors, for near pairs only.

Singular value projection: the matrix of all inner products takes a step towards the known values at the given pairs and
is then replaced by the nearest positive semidefinite matrix of rank r. It is never materialised: it is stored as U Λ
Uᵀ, the step is sparse, and the leading eigenvectors come from multiplying the previous ones by both. A round costs 2·r
operations per pair for the residuals, the same for each of two products, and a small multiple of n·r² for the rest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.jit import kernel
from xmtc.core.parallel import run_parallel
from xmtc.data.dataset import Csr
from xmtc.labels.features import csr_parts
from xmtc.linear.low_rank import Array, multiply
from xmtc.linear.neighbours import InvertedIndex

ROWS = 1024
"""Rows whose residuals a thread computes at a time."""
ROUNDING = 1e-12
"""Fraction of the trace added to the diagonal, so that linearly dependent columns do no harm."""
SPARE = 10
"""Extra directions that are iterated too, so that the last requested ones are accurate."""


def near_pairs(labels: Csr, count: int, *, seed: int = 0, threads: int = 1) -> Csr:
    """(n, n) inner products of sparse rows: of each row with itself and with its `count` nearest; symmetric.

    Among equally near rows, those that come first in a random order are taken.
    """
    size = int(labels.shape[0])
    order = np.random.default_rng(seed).permutation(size)
    shuffled = labels[order]
    found, products = InvertedIndex.build(shuffled).nearest(shuffled, count + 1, threads)
    filled = found >= 0
    one = order[np.repeat(np.arange(size), found.shape[1])[filled.ravel()]]
    other, values = order[found[filled]], products[filled]
    itself = np.arange(size)
    squares = np.asarray(labels.multiply(labels).sum(axis=1)).ravel()
    pairs = sp.coo_array(
        (
            np.concatenate([values, values, squares]).astype(np.float32),
            (np.concatenate([one, other, itself]), np.concatenate([other, one, itself])),
        ),
        shape=(size, size),
    )
    return _first_of_each(pairs)


def _first_of_each(pairs: sp.coo_array) -> Csr:
    """CSR matrix in which duplicate entries keep the first value instead of being summed."""
    rows, columns = (axis.astype(np.int64) for axis in pairs.coords)
    places, first = np.unique(rows * pairs.shape[1] + columns, return_index=True)
    indptr = np.searchsorted(places, np.arange(pairs.shape[0] + 1) * pairs.shape[1])
    indices = (places % pairs.shape[1]).astype(np.int32)
    return sp.csr_array((pairs.data[first], indices, indptr.astype(np.int64)), shape=pairs.shape)


def match_products(
    pairs: Csr,
    rank: int,
    *,
    rounds: int = 30,
    seed: int = 0,
    threads: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> Array:
    """(n, rank) vectors whose inner products approximate those of the given pairs; other pairs are unconstrained."""
    size = int(pairs.shape[0])
    wide = min(rank + SPARE, size)
    basis = _orthonormal(np.random.default_rng(seed).standard_normal((size, wide), np.float32))
    values = np.zeros(wide, dtype=np.float32)  # eigenvalues in descending order; those beyond the rank are 0
    for _ in range(rounds):
        moved = residuals(pairs, basis * np.sqrt(values), threads)

        def image(of: Array, moved: Csr = moved, basis: Array = basis, values: Array = values) -> Array:
            return np.asarray(basis @ (values[:, None] * (basis.T @ of)) + multiply(moved, of, threads))

        turned = _orthonormal(image(basis))
        small = (turned.T @ image(turned)).astype(np.float64)
        found, mix = np.linalg.eigh((small + small.T) / 2)
        basis = (turned @ mix[:, ::-1]).astype(np.float32)
        values = np.maximum(found[::-1], 0.0).astype(np.float32)
        values[rank:] = 0.0
        advance()
    vectors = np.zeros((size, rank), dtype=np.float32)
    vectors[:, : min(wide, rank)] = (basis * np.sqrt(values))[:, :rank]
    return vectors


def _orthonormal(columns: Array) -> Array:
    """An orthonormal basis of the column span; linearly dependent columns become close to zero."""
    gram = columns.T.astype(np.float64) @ columns
    gram[np.diag_indices_from(gram)] += ROUNDING * max(float(np.trace(gram)), 1e-30)
    return np.asarray(columns @ np.linalg.inv(np.linalg.cholesky(gram)).T).astype(np.float32)


def residuals(pairs: Csr, vectors: Array, threads: int = 1) -> Csr:
    """The given inner products minus those of the vectors, at the given pairs."""
    indptr, indices, products = csr_parts(pairs)
    left = np.empty_like(products)
    held = np.ascontiguousarray(vectors, dtype=np.float32)

    def part(start: int) -> None:
        stop = min(start + ROWS, len(held))
        _residuals(start, indptr[start : stop + 1], indices, products, held, left)

    for _ in run_parallel(part, range(0, len(held), ROWS), threads):
        pass
    return sp.csr_array((left, indices, indptr), shape=pairs.shape)


@kernel(outputs=("left",), fastmath={"reassoc", "contract", "nsz"})
def _residuals(
    first: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    products: Array,
    vectors: Array,  # (n, r)
    left: Array,  # out
) -> None:
    for row in range(len(indptr) - 1):
        own = vectors[first + row]
        for i in range(indptr[row], indptr[row + 1]):
            other = vectors[indices[i]]
            total = np.float32(0.0)
            for column in range(len(own)):
                total += own[column] * other[column]
            left[i] = products[i] - total
