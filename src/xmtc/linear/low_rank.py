"""Regression with sparse matrix products only: ridge regression by conjugate gradients, and low-rank factorisation.

Each step of conjugate gradients multiplies the sparse rows, and their transpose, by a dense matrix of r columns: 4·r
operations per entry. No n × L matrix is ever built. Every sum is computed in a fixed order, so that results depend
neither on the number of threads nor on how rows are split into batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.jit import inlined, kernel
from xmtc.core.parallel import run_parallel
from xmtc.core.selection import insert
from xmtc.data.dataset import Csr
from xmtc.labels.features import csr_parts

ROWS = 1024
"""Rows that a thread multiplies at a time."""
DOCUMENTS = 64
"""Documents for which a thread ranks labels at a time."""
PRECISION = 1e-6
"""A column is solved if its residual is at most this fraction of the right-hand side: the limit of single precision."""
ROUNDING = 1e-10
"""Eigenvalues below this fraction of the largest count as zero."""

Array = NDArray[np.float32]


class TwoWays(NamedTuple):
    """A sparse matrix by rows and by columns, for products with it and with its transpose."""

    rows: Csr  # (n, D)
    columns: Csr  # (D, n)

    @classmethod
    def of(cls, matrix: Csr) -> TwoWays:
        """Store a matrix together with its transpose."""
        return cls(matrix, sp.csr_array(matrix.T))


def multiply(matrix: Csr, dense: Array, threads: int = 1) -> Array:
    """(n, r) product of a sparse and a dense matrix; each row is summed in the order of its entries."""
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
    scales: NDArray[np.float64] | None = None,  # (r,) default: all 1
    start: Array | None = None,  # (D, r) default: zeros
    steps: int = 100,
    threads: int = 1,
) -> Array:
    """(D, r) solution W of (scale · XᵀX + penalty · I) w = b for each column b, by preconditioned conjugate gradients.

    Columns are independent: each has its own step length. Every step lowers each column's ½ wᵀ(scale · XᵀX + penalty) w
    − bᵀw. The preconditioner is the diagonal, so that columns of X that all documents have do no harm.
    """
    found = np.zeros_like(right) if start is None else start.astype(np.float32)
    scale = np.ones(right.shape[1]) if scales is None else scales
    squares = np.bincount(matrix.rows.indices, matrix.rows.data.astype(np.float64) ** 2, minlength=len(right))
    inverse = (1.0 / (squares[:, None] * scale + penalty)).astype(np.float32)
    scale32 = scale.astype(np.float32)

    def applied(columns: Array) -> Array:
        product = multiply(matrix.columns, multiply(matrix.rows, columns, threads), threads)
        return product * scale32 + np.float32(penalty) * columns

    left = right - applied(found) if found.any() else right.copy()  # residual
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
    products: NDArray[np.float64] = np.einsum("dr,dr->r", one, other, dtype=np.float64)
    return products


class Factors(NamedTuple):
    """W and H of labels ≈ X W Hᵀ."""

    features: Array  # (D, r)
    labels: Array  # (L, r)


class Penalty(NamedTuple):
    """Regularisation term: weight · (‖W‖² + ‖H‖²), or weight · ‖W Hᵀ‖² if `on_map`."""

    weight: float
    on_map: bool = False

    def of(self, factors: Factors) -> float:
        """The value of the term for these factors."""
        grams = [_gram(each) for each in factors]
        return self.weight * float((grams[0] * grams[1]).sum() if self.on_map else sum(map(np.trace, grams)))


class Imputed(NamedTuple):
    """A label matrix whose unknown entries have the values of an earlier estimate A Hᵀ: Y + A Hᵀ − D.

    A has rows of partial documents only; D has the estimates of their known labels. No n × L matrix is built.
    """

    known: TwoWays  # (n, L) Y − D, sparse
    embedded: Array  # (n, r) A, zero for complete documents
    labels: Array  # (L, r) H

    @classmethod
    def of(cls, labels: Csr, decided: Csr, partial: NDArray[np.bool_], embedded: Array, factors: Array) -> Imputed:
        """`decided` (n, L) has a 1 for each known label of partial documents, and is ignored for complete ones."""
        own = np.where(partial[:, None], embedded, np.float32(0.0))
        estimates = sp.csr_array(decided, dtype=np.float32)
        rows = np.repeat(np.arange(len(own)), np.diff(estimates.indptr))
        estimates.data = np.einsum("er,er->e", own[rows], factors[estimates.indices])
        return cls(TwoWays.of(sp.csr_array(labels - estimates)), own, factors)

    def times(self, dense: Array, threads: int = 1) -> Array:
        """(n, r) product with a dense (L, r) matrix."""
        return multiply(self.known.rows, dense, threads) + self.embedded @ (self.labels.T @ dense)

    def transposed_times(self, dense: Array, threads: int = 1) -> Array:
        """(L, r) product of the transpose with a dense (n, r) matrix."""
        return multiply(self.known.columns, dense, threads) + self.labels @ (self.embedded.T @ dense)


def _times(labels: TwoWays | Imputed, dense: Array, threads: int) -> Array:
    return labels.times(dense, threads) if isinstance(labels, Imputed) else multiply(labels.rows, dense, threads)


def label_factors(
    embedded: Array, features: Array, labels: TwoWays | Imputed, penalty: Penalty, threads: int = 1
) -> Factors:
    """The optimal H given W and the embedded documents A = XW: Yᵀ A (AᵀA + weight · I)⁻¹, or with WᵀW instead of I."""
    gram = _gram(embedded)
    gram += penalty.weight * (_gram(features) if penalty.on_map else np.eye(len(gram)))
    gram[np.diag_indices_from(gram)] += ROUNDING * max(float(gram.diagonal().max()), 1e-30)
    if isinstance(labels, Imputed):
        right = labels.transposed_times(embedded, threads).astype(np.float64)
    else:
        right = multiply(labels.columns, embedded, threads).astype(np.float64)
    return Factors(features, np.linalg.solve(gram, right.T).T.astype(np.float32))


def feature_factors(
    rows: TwoWays, labels: TwoWays | Imputed, factors: Factors, penalty: Penalty, steps: int, threads: int = 1
) -> Factors:
    """A better W for the same H, after rotating both so that the columns of H are orthogonal (and scaled if needed).

    This changes neither W Hᵀ nor the penalty, and splits the problem into one ridge regression per column.
    """
    squares, turn = np.linalg.eigh(_gram(factors.labels))
    squares = np.where(squares > ROUNDING * squares[-1], squares, 0.0)
    lengths = np.sqrt(squares) if penalty.on_map else np.ones_like(squares)
    shortened = turn * np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    start = (factors.features @ (turn * lengths)).astype(np.float32)
    turned = (factors.labels @ shortened).astype(np.float32)
    right = multiply(rows.columns, _times(labels, turned, threads), threads)
    scales = (squares > 0).astype(np.float64) if penalty.on_map else squares
    found = ridge(rows, right, penalty.weight, scales=scales, start=start, steps=steps, threads=threads)
    return Factors(found, turned)


def objective(embedded: Array, factors: Factors, labels: TwoWays, penalty: Penalty, threads: int = 1) -> float:
    """‖Y − XWHᵀ‖² plus the penalty, given XW."""
    images = multiply(labels.columns, embedded, threads)
    crossed = float(np.einsum("lr,lr->", images, factors.labels, dtype=np.float64))
    held = float(np.square(labels.rows.data, dtype=np.float64).sum())
    return held - 2 * crossed + float((_gram(embedded) * _gram(factors.labels)).sum()) + penalty.of(factors)


def known_objective(
    embedded: Array, factors: Factors, labels: Csr, partial: tuple[NDArray[np.bool_], Csr], penalty: Penalty
) -> float:
    """The objective over known labels only; `partial` marks documents, and has the known labels of these."""
    rows, decided = partial
    errors = Imputed.of(labels, decided, rows, embedded, factors.labels).known.rows[np.flatnonzero(rows)]
    complete = np.flatnonzero(~rows)
    rest = objective(embedded[complete], factors, TwoWays.of(labels[complete]), penalty)
    return rest + float(np.square(errors.data, dtype=np.float64).sum())


def _gram(columns: Array) -> NDArray[np.float64]:
    """(r, r) AᵀA in double precision, computed in blocks of rows."""
    gram = np.zeros((columns.shape[1], columns.shape[1]))
    for start in range(0, len(columns), 16 * ROWS):
        part = columns[start : start + 16 * ROWS].astype(np.float64)
        gram += part.T @ part
    return gram


# ---- prediction


def best_products(
    documents: Array,  # (n, r)
    others: Array,  # (r, m) labels, or other documents
    k: int,
    allowed: NDArray[np.bool_] | None = None,
    *,
    logistic: bool = False,
    threads: int = 1,
) -> tuple[NDArray[np.int64], Array]:
    """(n, k) columns with the largest products, and the products, best first; −1 and −∞ as padding; ties by number.

    With `logistic`, each product p is replaced by 1 / (1 + e^(2 − 4p)), which is tangent to p at one half.
    """
    found = np.full((len(documents), k), -1, dtype=np.int64)
    given = np.full((len(documents), k), -np.inf, dtype=np.float32)
    mask = np.ones(others.shape[1], dtype=bool) if allowed is None else allowed

    def part(start: int) -> None:
        here = slice(start, start + DOCUMENTS)
        _best_products(documents[here], others, mask, logistic, found[here], given[here])

    for _ in run_parallel(part, range(0, len(documents), DOCUMENTS), threads):
        pass
    return found, given


@inlined
def _likelihood(product: Any) -> Any:
    return np.float32(1.0 / (1.0 + np.exp(2.0 - 4.0 * np.float64(product))))


@kernel(outputs=("found", "given"))
def _best_products(
    documents: Array,  # (n, r)
    others: Array,  # (r, m)
    allowed: NDArray[np.bool_],  # (m,)
    logistic: bool,
    found: NDArray[np.int64],  # out: (n, k)
    given: Array,  # out: (n, k)
) -> None:
    products = np.empty(others.shape[1], np.float32)
    for row in range(len(documents)):
        products[:] = 0.0
        for column in range(others.shape[0]):
            value = documents[row, column]
            other = others[column]
            for number in range(len(products)):
                products[number] += value * other[number]
        held = 0
        for number in range(len(products)):
            if allowed[number]:
                score = _likelihood(products[number]) if logistic else products[number]
                held = insert(found[row], given[row], held, number, score)


@kernel()
def likelihoods(documents: Array, labels: Array, candidates: NDArray[np.int64]) -> Array:
    """(n, c) logistic scores of given labels, bit-identical to `best_products`; 0 for negative candidates."""
    out = np.zeros(candidates.shape, np.float32)
    for row in range(candidates.shape[0]):
        for place in range(candidates.shape[1]):
            label = candidates[row, place]
            if label >= 0:
                product = np.float32(0.0)
                for column in range(labels.shape[0]):
                    product += documents[row, column] * labels[column, label]
                out[row, place] = _likelihood(product)
    return out


@kernel()
def unit_length(vectors: Array) -> Array:
    """Rows scaled to unit length; zero rows are kept."""
    out = vectors.copy()
    for row in range(len(out)):
        square = 0.0
        for column in range(out.shape[1]):
            square += np.float64(out[row, column]) * np.float64(out[row, column])
        if square > 0.0:
            scale = 1.0 / np.sqrt(square)
            for column in range(out.shape[1]):
                out[row, column] = np.float32(out[row, column] * scale)
    return out
