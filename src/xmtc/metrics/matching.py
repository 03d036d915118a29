"""Predictions against true labels: where each true label was returned.

What every measure agrees on:

- `predicted` holds label numbers (n, k'), best first; −1 pads. Ranks beyond k' are misses. A label repeated
  within a row counts once, at its first rank.
- `truth` is sparse (n, L'). Every entry that is not zero is one true label: explicit zeros are none,
  duplicates are one. Columns beyond the model's labels hold labels it never saw; they count as missed.

All measures follow from one number for each true label: the rank at which it was returned. That is nnz(truth)
integers, however many labels there are.
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
"""The rank of a true label that is not among the predictions."""

COMPARISONS_AT_ONCE = 1 << 18
"""Predictions compared with true labels in one go: 2 MiB of label numbers, which stay in the cache."""


class Ranked(Protocol):
    """Anything that carries label numbers as TopK does."""

    @property
    def labels(self) -> IntegerArray: ...


Predicted: TypeAlias = Ranked | IntegerArray


@dataclass(frozen=True)
class Match:
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


def match(predicted: Predicted, truth: Truth, ks: list[int]) -> Match:
    """Find every true label among the first max(ks) predictions of its document."""
    returned = label_numbers(predicted)  # (n, k')
    check_truth(truth, len(returned), "Predictions")
    check_cutoffs(ks)
    rows, labels = true_labels(truth)
    ranks = first_ranks(np.ascontiguousarray(returned[:, : max(ks)]), rows, labels)
    return Match(rows, labels, ranks, sizes=np.bincount(rows, minlength=len(returned)))


def label_numbers(predicted: Predicted) -> IntegerArray:
    labels = np.asarray(getattr(predicted, "labels", predicted))  # (n, k')
    if labels.ndim != 2 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"Predictions must be a TopK or label numbers (n, k) of an integer type. "
            f"Got {type(predicted).__name__} of shape {labels.shape}, type {labels.dtype}."
        )
    return labels


def check_truth(truth: Truth, documents: int, what: str) -> None:
    """Refuse true labels that are not sparse, or not one row for each row of `what`."""
    check_sparse(truth)
    if truth.shape[0] != documents:
        raise DataError(
            f"{what} have {documents} rows, true labels have shape {truth.shape}. "
            f"Give one row of each for each document."
        )
    if documents == 0:
        raise DataError("No documents to evaluate. Give at least one.")


def check_sparse(truth: Truth) -> None:
    if not sp.issparse(truth) or truth.ndim != 2:
        raise DataError(f"True labels must be a scipy CSR matrix (n, L). Got {type(truth).__name__}.")


def check_cutoffs(ks: list[int]) -> None:
    if not ks:
        raise DataError("'ks' is empty. Give at least one cut-off, such as 5.")
    for k in ks:
        check_count("k", k)


def check_count(name: str, value: Any, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise DataError(f"'{name}' must be an integer ≥ {least}. Got {value!r}.")


def true_labels(truth: Truth) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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


def first_ranks(returned: IntegerArray, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
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


def first_mentions(returned: IntegerArray) -> NDArray[np.bool_]:
    """(n, k') true where a label stands for the first time in its row, never at a pad; a block at a time."""
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
