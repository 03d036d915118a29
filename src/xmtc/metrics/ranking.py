"""P@k, nDCG@k, R@k and their propensity-scored kin, as fractions in [0, 1].

What every function here agrees on:

- `predicted` holds label numbers (n, k'), best first; −1 pads. Ranks beyond k' are misses. A label repeated
  within a row counts once, at its first rank.
- `truth` is sparse (n, L'). Every entry that is not zero is one true label: explicit zeros are none,
  duplicates are one. Columns beyond the model's labels hold labels it never saw; they count as missed.
- A document without true labels scores 0 and stays in the mean, as in napkinXC.

All measures follow from one number for each true label: the rank at which it was returned. That is nnz(truth)
integers, however many labels there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from xmtc.errors import DataError

IntegerArray: TypeAlias = NDArray[np.integer[Any]]
FloatArray: TypeAlias = NDArray[np.float64]
Truth: TypeAlias = "sp.csr_array[Any] | sp.csr_matrix[Any]"

NOT_RETURNED = np.iinfo(np.int64).max
"""The rank of a true label that is not among the predictions."""

COMPARISONS_AT_ONCE = 1 << 18
"""Predictions compared with true labels in one go: 2 MiB of label numbers, which stay in the cache."""


class Ranked(Protocol):
    """Anything that carries label numbers as TopK does."""

    @property
    def labels(self) -> IntegerArray: ...


Predicted: TypeAlias = Ranked | IntegerArray


def precision(predicted: Predicted, truth: Truth, k: int) -> float:
    """Hits among the first k, divided by k even where a document has fewer than k labels or predictions."""
    return _precision(_match(predicted, truth, [k]), k)


def ndcg(predicted: Predicted, truth: Truth, k: int) -> float:
    """Hits discounted by log2(rank + 1), over what a document allows: hits at its first min(k, |y|) ranks."""
    return _ndcg(_match(predicted, truth, [k]), k)


def recall(predicted: Predicted, truth: Truth, k: int) -> float:
    """The share of a document's true labels among the first k, averaged over documents."""
    return _recall(_match(predicted, truth, [k]), k)


def psp(predicted: Predicted, truth: Truth, k: int, inverse_propensity: ArrayLike) -> float:
    """Inverse propensities of the hits, over those of each document's k heaviest labels.

    Numerator and denominator are each summed over the test set before dividing, as published tables do; a
    mean of per-document ratios is a different number. 0 when no document has a label.
    """
    match = _match(predicted, truth, [k])
    return _psp(_weigh(match, inverse_propensity), match, k)


def psndcg(predicted: Predicted, truth: Truth, k: int, inverse_propensity: ArrayLike) -> float:
    """PSP with every term discounted by log2(rank + 1), again summed over the test set before dividing.

    This is what napkinXC calls `psdcg_at_k` (normalised). Its `psndcg_at_k`, like pyxclib's `psndcg`, first
    divides both sums of each document by the ideal DCG of min(k, |y|) hits, which gives documents with few
    labels more say. The two coincide at k = 1, and where every labelled document has at least k labels.
    """
    match = _match(predicted, truth, [k])
    return _psndcg(_weigh(match, inverse_propensity), match, k)


def evaluate(
    predicted: Predicted,
    truth: Truth,
    ks: Iterable[int] = (1, 3, 5),
    inverse_propensity: ArrayLike | None = None,
) -> dict[str, float]:
    """All measures at all cut-offs from one comparison: "P@1", …, "nDCG@1", …, "PSP@1", "PSnDCG@1", "R@1", ….

    The two propensity-scored ones only appear when `inverse_propensity` is given: one value for each column
    of `truth`, from `xmtc.labels.propensity`.
    """
    ks = list(ks)
    match = _match(predicted, truth, ks)
    values = {f"P@{k}": _precision(match, k) for k in ks}
    values |= {f"nDCG@{k}": _ndcg(match, k) for k in ks}
    if inverse_propensity is not None:
        weights = _weigh(match, inverse_propensity)
        values |= {f"PSP@{k}": _psp(weights, match, k) for k in ks}
        values |= {f"PSnDCG@{k}": _psndcg(weights, match, k) for k in ks}
    return values | {f"R@{k}": _recall(match, k) for k in ks}


@dataclass(frozen=True)
class _Match:
    """The true labels, sorted by document, and where each was returned."""

    rows: NDArray[np.int64]  # (nnz,) document of each true label
    labels: NDArray[np.int64]  # (nnz,)
    ranks: NDArray[np.int64]  # (nnz,) from 0; NOT_RETURNED where missed
    sizes: NDArray[np.int64]  # (n,) true labels of each document

    @property
    def documents(self) -> int:
        return len(self.sizes)

    @cached_property
    def discounts(self) -> FloatArray:
        """1 / log2(rank + 1) with ranks from 1; of no meaning where the label was not returned."""
        values: FloatArray = 1.0 / np.log2(self.ranks + 2.0)  # (nnz,)
        return values

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """0, 1, … within each document: the ranks of a perfect answer."""
        starts = np.cumsum(self.sizes) - self.sizes  # (n,)
        return np.arange(len(self.rows)) - starts[self.rows]  # (nnz,)


@dataclass(frozen=True)
class _Weights:
    """Inverse propensities of the true labels, as they stand and heaviest first within each document."""

    given: FloatArray  # (nnz,)
    heaviest_first: FloatArray  # (nnz,)


def _precision(match: _Match, k: int) -> float:
    return int((match.ranks < k).sum()) / (match.documents * k)


def _recall(match: _Match, k: int) -> float:
    hits = np.bincount(match.rows[match.ranks < k], minlength=match.documents)  # (n,)
    return float(np.mean(hits / np.maximum(match.sizes, 1)))


def _ndcg(match: _Match, k: int) -> float:
    hit = match.ranks < k  # (nnz,)
    gains = np.bincount(match.rows[hit], weights=match.discounts[hit], minlength=match.documents)  # (n,)
    attainable = np.minimum(match.sizes, k)  # (n,) hits of a perfect answer
    ideal = np.cumsum(1.0 / np.log2(np.arange(max(attainable.max(), 1)) + 2.0))  # DCG of 1, 2, … hits
    ratios = gains / ideal[np.maximum(attainable, 1) - 1]  # (n,)
    return float(np.mean(np.minimum(ratios, 1.0)))  # summed in another order: 1 + ε is possible


def _psp(weights: _Weights, match: _Match, k: int) -> float:
    return _share(weights.given[match.ranks < k], weights.heaviest_first[match.positions < k])


def _psndcg(weights: _Weights, match: _Match, k: int) -> float:
    hit, best = match.ranks < k, match.positions < k  # (nnz,) each
    ideal_discounts = 1.0 / np.log2(match.positions[best] + 2.0)
    return _share(weights.given[hit] * match.discounts[hit], weights.heaviest_first[best] * ideal_discounts)


def _share(reached: FloatArray, attainable: FloatArray) -> float:
    """Sum over sum; the two add up in different orders, so a perfect answer could round to just above 1."""
    return min(float(reached.sum()) / float(attainable.sum()), 1.0) if len(attainable) else 0.0


def _match(predicted: Predicted, truth: Truth, ks: list[int]) -> _Match:
    """Find every true label among the first max(ks) predictions of its document."""
    returned = _label_numbers(predicted)  # (n, k')
    _check(returned, truth, ks)
    rows, labels = _true_labels(truth)
    ranks = _first_ranks(np.ascontiguousarray(returned[:, : max(ks)]), rows, labels)
    return _Match(rows, labels, ranks, sizes=np.bincount(rows, minlength=len(returned)))


def _label_numbers(predicted: Predicted) -> IntegerArray:
    labels = np.asarray(getattr(predicted, "labels", predicted))  # (n, k')
    if labels.ndim != 2 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"Predictions must be a TopK or label numbers (n, k) of an integer type. "
            f"Got {type(predicted).__name__} of shape {labels.shape}, type {labels.dtype}."
        )
    return labels


def _check(returned: IntegerArray, truth: Truth, ks: list[int]) -> None:
    if not sp.issparse(truth):
        raise DataError(f"True labels must be a scipy CSR matrix (n, L). Got {type(truth).__name__}.")
    if truth.ndim != 2 or truth.shape[0] != len(returned):
        raise DataError(
            f"Predictions have {len(returned)} rows, true labels have shape {truth.shape}. "
            f"Give one row of each for each document."
        )
    if len(returned) == 0:
        raise DataError("No documents to evaluate. Give at least one.")
    if not ks:
        raise DataError("'ks' is empty. Give at least one cut-off, such as 5.")
    for k in ks:
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise DataError(f"'k' must be an integer ≥ 1. Got {k!r}.")


def _true_labels(truth: Truth) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Documents and labels of the entries that are not zero, each pair once, in order."""
    truth = truth.tocsr()
    present = truth.data != 0  # (stored entries,)
    rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))[present]
    labels = truth.indices[present].astype(np.int64)
    if ((np.diff(rows) > 0) | (np.diff(labels) > 0)).all():
        return rows, labels
    order = np.lexsort((labels, rows))
    rows, labels = rows[order], labels[order]
    first = np.ones(len(rows), dtype=bool)  # of the entries that name the same pair
    first[1:] = (np.diff(rows) > 0) | (np.diff(labels) > 0)
    return rows[first], labels[first]


def _first_ranks(returned: IntegerArray, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank from 0 of each true label in its document's predictions, by plain comparison, a block at a time.

    nnz × k' comparisons beat a sorted search because documents have few labels; `argmax` finds the first hit,
    which settles repeated labels.
    """
    ranks = np.full(len(rows), NOT_RETURNED)  # (nnz,)
    width = returned.shape[1]
    if width == 0:
        return ranks
    step = max(COMPARISONS_AT_ONCE // width, 1)
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        equal = returned[rows[block]] == labels[block, None]  # (block, k')
        first = equal.argmax(axis=1)  # (block,) 0 also where nothing is equal
        found = equal[np.arange(len(first)), first]
        ranks[block] = np.where(found, first, NOT_RETURNED)
    return ranks


def _weigh(match: _Match, inverse_propensity: ArrayLike) -> _Weights:
    values = np.asarray(inverse_propensity, dtype=np.float64)  # (L',)
    largest = int(match.labels.max(initial=-1))
    if values.ndim != 1 or len(values) <= largest:
        raise DataError(
            f"'inverse_propensity' must give one value to each label, {largest + 1} at least here. "
            f"Got shape {values.shape}. Give labels unseen in training a count of 0 when computing it."
        )
    given = values[match.labels]  # (nnz,)
    if not (np.isfinite(given) & (given > 0)).all():
        raise DataError("'inverse_propensity' must be positive and finite for every true label.")
    return _Weights(given, heaviest_first=given[np.lexsort((-given, match.rows))])
