"""Regressions through sparse products only: ridge regression by conjugate gradients, and matrices of low rank.

A sweep over n documents costs a product of the sparse rows, and of their transpose, with a dense matrix of r columns
for each step of conjugate gradients: 4·r operations an entry. Nothing of the size n × L is ever made. Each number is
summed in one order, so that results depend neither on threads nor on how rows are cut into batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.dataset import Csr
from xmtc.jit import kernel
from xmtc.labels import ranks
from xmtc.labels.features import csr_parts
from xmtc.labels.ranks import insert
from xmtc.parallel import run_parallel

ROWS = 1024
"""Rows that a thread multiplies at a time."""
DOCUMENTS = 64
"""Documents that a thread ranks labels for at a time."""
PRECISION = 1e-6
"""A column is solved where what is left of its right side is this share of it: single precision tells no more."""

Array = NDArray[np.float32]


class TwoWays(NamedTuple):
    """A sparse matrix by rows and by columns, for products with it and with its transpose."""

    rows: Csr  # (n, D)
    columns: Csr  # (D, n)

    @classmethod
    def of(cls, matrix: Csr) -> TwoWays:
        return cls(matrix, sp.csr_array(matrix.T))


def multiply(matrix: Csr, dense: Array, threads: int = 1) -> Array:
    """(n, r) the product of a sparse and a dense matrix; each row is summed in the order of its entries."""
    indptr, indices, values = csr_parts(matrix)
    product = np.zeros((int(matrix.shape[0]), dense.shape[1]), dtype=np.float32)
    held = np.ascontiguousarray(dense, dtype=np.float32)

    def part(start: int) -> None:
        stop = min(start + ROWS, len(product))
        _multiply(indptr[start : stop + 1], indices, values, held, product[start:stop])

    for _ in run_parallel(part, range(0, len(product), ROWS), threads):
        pass
    return product


@kernel(outputs=("product",))
def _multiply(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: Array,
    dense: Array,  # (D, r)
    product: Array,  # out: (n, r) zeros
) -> None:
    for row in range(len(product)):
        for i in range(indptr[row], indptr[row + 1]):
            value = values[i]
            other = dense[indices[i]]
            for column in range(len(other)):
                product[row, column] += value * other[column]


def ridge(
    matrix: TwoWays,
    right: Array,  # (D, r)
    penalty: float,
    *,
    scales: NDArray[np.float64] | None = None,  # (r,) all 1 where nothing is said
    start: Array | None = None,  # (D, r) zeros where nothing is said
    steps: int = 100,
    threads: int = 1,
) -> Array:
    """(D, r) the W of scale · XᵀX w + penalty · w = b for each column b, by conjugate gradients on all of them.

    Columns do not know of each other: each has steps of its own length. Every step lowers each column's
    ½ wᵀ(scale · XᵀX + penalty) w − bᵀw. Directions are divided by the diagonal, so that columns of X that all documents
    have do no harm.
    """
    found = np.zeros_like(right) if start is None else start.astype(np.float32)
    scale = np.ones(right.shape[1]) if scales is None else scales
    squares = np.bincount(matrix.rows.indices, matrix.rows.data.astype(np.float64) ** 2, minlength=len(right))
    inverse = (1.0 / (squares[:, None] * scale + penalty)).astype(np.float32)
    scale32 = scale.astype(np.float32)

    def applied(columns: Array) -> Array:
        product = multiply(matrix.columns, multiply(matrix.rows, columns, threads), threads)
        return product * scale32 + np.float32(penalty) * columns

    left = right - applied(found) if found.any() else right.copy()  # of the right side
    towards = left * inverse
    before = _column_products(left, towards)
    enough = PRECISION**2 * _column_products(right, right * inverse)
    direction = towards
    for _ in range(steps):
        going = before > enough
        if not going.any():
            break
        image = applied(direction)
        bend = _column_products(direction, image)
        length = np.divide(before, bend, out=np.zeros_like(before), where=going & (bend > 0)).astype(np.float32)
        found += length * direction
        left -= length * image
        towards = left * inverse
        after = _column_products(left, towards)
        turn = np.divide(after, before, out=np.zeros_like(after), where=before > 0).astype(np.float32)
        direction = towards + turn * direction
        before = np.where(going, after, 0.0)
    return found


def _column_products(one: Array, other: Array) -> NDArray[np.float64]:
    """(r,) inner products of columns, in double precision."""
    return np.einsum("dr,dr->r", one, other, dtype=np.float64)


class Factors(NamedTuple):
    """W and H of labels ≈ X W Hᵀ."""

    features: Array  # (D, r)
    labels: Array  # (L, r)


def label_factors(embedded: Array, labels: TwoWays, penalty: float, threads: int = 1) -> Array:
    """(L, r) the best H for documents that lie at A = XW: Yᵀ A (AᵀA + penalty · I)⁻¹."""
    gram = _gram(embedded)
    gram[np.diag_indices_from(gram)] += penalty
    return np.linalg.solve(gram, multiply(labels.columns, embedded, threads).T.astype(np.float64)).T.astype(np.float32)


def feature_factors(
    rows: TwoWays, labels: TwoWays, factors: Factors, penalty: float, steps: int, threads: int = 1
) -> Factors:
    """A better W for the same H, both turned so that the columns of H are orthogonal.

    That changes neither W Hᵀ nor the penalty, and makes one ridge regression for each column of what was one problem.
    """
    squares, turn = np.linalg.eigh(_gram(factors.labels))
    turned = Factors(*((each @ turn).astype(np.float32) for each in factors))
    right = multiply(rows.columns, multiply(labels.rows, turned.labels, threads), threads)
    scales = np.maximum(squares, 0.0)
    found = ridge(rows, right, penalty, scales=scales, start=turned.features, steps=steps, threads=threads)
    return Factors(found, turned.labels)


def objective(embedded: Array, factors: Factors, labels: TwoWays, penalty: float, threads: int = 1) -> float:
    """‖Y − XWHᵀ‖² + penalty · (‖W‖² + ‖H‖²), with XW at hand."""
    images = multiply(labels.columns, embedded, threads)
    crossed = float(np.einsum("lr,lr->", images, factors.labels, dtype=np.float64))
    held = float(np.square(labels.rows.data, dtype=np.float64).sum())
    size = sum(float(np.einsum("dr,dr->", each, each, dtype=np.float64)) for each in factors)
    return held - 2 * crossed + float((_gram(embedded) * _gram(factors.labels)).sum()) + penalty * size


def _gram(columns: Array) -> NDArray[np.float64]:
    """(r, r) AᵀA in double precision, some rows at a time."""
    gram = np.zeros((columns.shape[1], columns.shape[1]))
    for start in range(0, len(columns), 16 * ROWS):
        part = columns[start : start + 16 * ROWS].astype(np.float64)
        gram += part.T @ part
    return gram


# ---- answers


def best_products(
    documents: Array,  # (n, r)
    labels: Array,  # (r, L)
    k: int,
    allowed: NDArray[np.bool_] | None = None,
    threads: int = 1,
) -> tuple[NDArray[np.int64], Array]:
    """(n, k) the labels with the largest `likelihood` of their inner products, and this; ties by label number."""
    found = np.full((len(documents), k), -1, dtype=np.int64)
    given = np.full((len(documents), k), -np.inf, dtype=np.float32)
    mask = np.ones(labels.shape[1], dtype=bool) if allowed is None else allowed

    def part(start: int) -> None:
        here = slice(start, start + DOCUMENTS)
        _best_products(documents[here], labels, mask, found[here], given[here])

    for _ in run_parallel(part, range(0, len(documents), DOCUMENTS), threads):
        pass
    return found, given


@kernel(outputs=("found", "given"), uses=(ranks,))
def _best_products(
    documents: Array,  # (n, r)
    labels: Array,  # (r, L)
    allowed: NDArray[np.bool_],  # (L,)
    found: NDArray[np.int64],  # out: (n, k)
    given: Array,  # out: (n, k)
) -> None:
    products = np.empty(labels.shape[1], np.float32)
    for row in range(len(documents)):
        products[:] = 0.0
        for column in range(labels.shape[0]):
            value = documents[row, column]
            other = labels[column]
            for label in range(len(products)):
                products[label] += value * other[label]
        held = 0
        for label in range(len(products)):
            if allowed[label]:
                score = np.float32(1.0 / (1.0 + np.exp(2.0 - 4.0 * np.float64(products[label]))))
                held = insert(found[row], given[row], held, label, score)


@kernel()
def products_of(documents: Array, labels: Array, candidates: NDArray[np.int64]) -> Array:
    """(n, c) the same numbers for given labels; 0 where a candidate is below 0."""
    out = np.zeros(candidates.shape, np.float32)
    for row in range(candidates.shape[0]):
        for place in range(candidates.shape[1]):
            label = candidates[row, place]
            if label >= 0:
                product = np.float32(0.0)
                for column in range(labels.shape[0]):
                    product += documents[row, column] * labels[column, label]
                out[row, place] = np.float32(1.0 / (1.0 + np.exp(2.0 - 4.0 * np.float64(product))))
    return out
