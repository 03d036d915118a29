"""Match predictions with true labels: find the rank of each true label.

Conventions of all metrics:

- `predicted` contains label numbers (n, k'), best first, padded with −1. Ranks beyond k' are misses. A label repeated
  within a row counts once, at its first rank.
- `truth` is sparse (n, L'). Every non-zero entry is one true label; explicit zeros are ignored and duplicates count
  once. Columns beyond the model's labels are labels unknown to the model; they count as missed.

All metrics are computed from one number per true label, its rank: nnz(truth) integers, independent of the number of
labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.errors import DataError

IntegerArray: TypeAlias = NDArray[np.integer[Any]]
FloatArray: TypeAlias = NDArray[np.float64]
Truth: TypeAlias = "sp.csr_array[Any] | sp.csr_matrix[Any]"

NOT_RETURNED = np.iinfo(np.int64).max
"""Rank of a true label that was not predicted."""

FEW_LABELS = 32
"""Labels of a document up to which comparing them with all predictions is faster than a sorted search."""
COMPARISONS_AT_ONCE = 1 << 18
"""Predictions to compare with true labels at a time: 2 MiB of label numbers, which fit in the CPU cache."""


class Ranked(Protocol):
    """Predictions with label numbers, such as a TopK."""

    @property
    def labels(self) -> IntegerArray:
        """Label numbers (n, k), best first."""
        ...


Predicted: TypeAlias = Ranked | IntegerArray


@dataclass(frozen=True)
class Match:
    """The true labels, sorted by document, and the rank of each in the predictions."""

    rows: NDArray[np.int64]  # (nnz,) document of each true label
    labels: NDArray[np.int64]  # (nnz,)
    ranks: NDArray[np.int64]  # (nnz,) from 0; NOT_RETURNED if missed
    sizes: NDArray[np.int64]  # (n,) number of true labels of each document

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(self.sizes)

    @cached_property
    def discounts(self) -> FloatArray:
        """1 / log2(rank + 1) with ranks from 1; meaningless for labels that were not predicted."""
        values: FloatArray = 1.0 / np.log2(self.ranks + 2.0)  # (nnz,)
        return values

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """0, 1, … within each document: the ranks of a perfect prediction."""
        starts = np.cumsum(self.sizes) - self.sizes  # (n,)
        return np.arange(len(self.rows)) - starts[self.rows]  # (nnz,)


def match(predicted: Predicted, truth: Truth, ks: list[int]) -> Match:
    """Find every true label among the first max(ks) predictions of its document."""
    returned = label_numbers(predicted)  # (n, k')
    check_truth(truth, len(returned), "predictions")
    check_cutoffs(ks)
    rows, labels = true_labels(truth)
    ranks = first_ranks(np.ascontiguousarray(returned[:, : max(ks)]), rows, labels)
    return Match(rows, labels, ranks, sizes=np.bincount(rows, minlength=len(returned)))


def label_numbers(predicted: Predicted) -> IntegerArray:
    """Return the label numbers (n, k') of predictions; raise `DataError` for anything else."""
    labels = np.asarray(getattr(predicted, "labels", predicted))  # (n, k')
    if labels.ndim != 2 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"predictions must be a TopK or label numbers (n, k) of an integer type. "
            f"Got {type(predicted).__name__} of shape {labels.shape}, type {labels.dtype}."
        )
    return labels


def check_truth(truth: Truth, documents: int, what: str) -> None:
    """Raise `DataError` unless true labels are sparse with one row per row of `what`."""
    check_sparse(truth)
    if truth.shape[0] != documents:
        raise DataError(
            f"{what} have {documents} rows, but true labels have shape {truth.shape}. Pass one row per document."
        )
    if documents == 0:
        raise DataError("no documents to evaluate. Pass at least one.")


def check_sparse(truth: Truth) -> None:
    """Raise `DataError` unless true labels are a sparse matrix."""
    if not sp.issparse(truth) or truth.ndim != 2:
        raise DataError(f"true labels must be a scipy CSR matrix (n, L). Got {type(truth).__name__}.")


def check_cutoffs(ks: list[int]) -> None:
    """Raise `DataError` unless `ks` are integers ≥ 1, at least one."""
    if not ks:
        raise DataError("'ks' is empty. Pass at least one cut-off, such as 5.")
    for k in ks:
        check_count("k", k)


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise `DataError` unless the value is an integer ≥ `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise DataError(f"'{name}' must be an integer ≥ {least}. Got {value!r}.")


def true_labels(truth: Truth) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return documents and labels of the non-zero entries, sorted and without duplicates."""
    truth = truth.tocsr()
    present = truth.data != 0  # (stored entries,)
    rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))[present]
    labels = truth.indices[present].astype(np.int64)
    if ((np.diff(rows) > 0) | (np.diff(labels) > 0)).all():
        return rows, labels
    order = np.lexsort((labels, rows))
    rows, labels = rows[order], labels[order]
    first = np.ones(len(rows), dtype=bool)  # first of equal pairs
    first[1:] = (np.diff(rows) > 0) | (np.diff(labels) > 0)
    return rows[first], labels[first]


def first_ranks(returned: IntegerArray, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rank, from 0, of each true label in its document's predictions; repeated ones count the first time.

    `rows` are the documents of the labels, ascending.
    Documents usually have few labels: comparing each with all k' predictions is then faster than a sorted search, which
    serves documents with many.
    """
    ranks = np.full(len(rows), NOT_RETURNED)  # (nnz,)
    if returned.shape[1] == 0:
        return ranks
    many = np.bincount(rows, minlength=len(returned))[rows] > FEW_LABELS  # (nnz,)
    if not many.any():
        return _compared_ranks(returned, rows, labels)
    ranks[~many] = _compared_ranks(returned, rows[~many], labels[~many])
    ranks[many] = _searched_ranks(returned, rows[many], labels[many])
    return ranks


def _searched_ranks(returned: IntegerArray, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find ranks by binary search in the sorted predictions of a block of documents."""
    ranks = np.full(len(rows), NOT_RETURNED)  # (nnz,)
    documents, place = np.unique(rows, return_inverse=True)  # (d,), (nnz,)
    width, span = returned.shape[1], int(max(returned.max(initial=0), labels.max(initial=0))) + 2
    step = max(COMPARISONS_AT_ONCE // width, 1)
    for start in range(0, len(documents), step):
        chosen = returned[documents[start : start + step]].astype(np.int64)  # (block, k')
        keys = (np.arange(len(chosen))[:, None] * span + np.maximum(chosen, -1) + 1).ravel()  # one number per pair
        order = np.argsort(keys, kind="stable")
        wanted = np.arange(*np.searchsorted(place, [start, start + step]))  # consecutive, since rows ascend
        sought = (place[wanted] - start) * span + labels[wanted] + 1
        at = np.minimum(np.searchsorted(keys, sought, sorter=order), len(keys) - 1)
        found = keys[order[at]] == sought
        ranks[wanted[found]] = order[at[found]] % width
    return ranks


def _compared_ranks(returned: IntegerArray, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find ranks by comparing each label with all predictions, one block at a time; `argmax` finds the first hit."""
    ranks = np.full(len(rows), NOT_RETURNED)  # (nnz,)
    step = max(COMPARISONS_AT_ONCE // returned.shape[1], 1)
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        equal = returned[rows[block]] == labels[block, None]  # (block, k')
        first = equal.argmax(axis=1)  # (block,) 0 also if nothing is equal
        found = equal[np.arange(len(first)), first]
        ranks[block] = np.where(found, first, NOT_RETURNED)
    return ranks


def first_mentions(returned: IntegerArray) -> NDArray[np.bool_]:
    """Return a mask (n, k') of the first occurrence of each label in its row, excluding padding."""
    mentions = np.empty(returned.shape, dtype=bool)
    step = max(COMPARISONS_AT_ONCE // max(returned.shape[1], 1), 1)
    for start in range(0, len(returned), step):
        block = returned[start : start + step]  # (block, k')
        order = np.argsort(block, axis=1, kind="stable")
        ordered = np.take_along_axis(block, order, axis=1)
        new = ordered >= 0
        new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
        np.put_along_axis(mentions[start : start + step], order, new, axis=1)
    return mentions
