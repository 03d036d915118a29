"""Which documents have a word or feature that a model knows, remembered from the latest conversion of a data set."""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

from xmtc.data.dataset import Csr, Dataset


class KnownWords:
    """The mask (n,) of the latest data set that a reader converted: False for documents without a known word.

    Prediction converts every batch anyway, so that the mask costs no second conversion. The data set is referenced
    weakly and identifies the mask: another thread that converts another data set only causes a conversion more.
    """

    def __init__(self) -> None:
        self._latest: tuple[weakref.ref[Dataset], NDArray[np.bool_]] | None = None

    def remember(self, dataset: Dataset, mask: NDArray[np.bool_]) -> None:
        """Record the mask of a data set, in place of that of the previous one."""
        self._latest = weakref.ref(dataset), mask

    def get(self, dataset: Dataset) -> NDArray[np.bool_] | None:
        """Return the mask of this data set; None if another one was converted last."""
        latest = self._latest
        return None if latest is None or latest[0]() is not dataset else latest[1]

    def __reduce__(self) -> tuple[type[KnownWords], tuple[()]]:
        return KnownWords, ()  # copies and pickles start empty


def rows_with_values(rows: Csr) -> NDArray[np.bool_]:
    """Return which rows of a matrix have a value other than 0."""
    return filled_rows(rows) if rows.data.all() else rows_with(rows.data != 0, rows.indptr)


def filled_rows(rows: Csr) -> NDArray[np.bool_]:
    """Return which rows of a matrix have entries."""
    filled: NDArray[np.bool_] = rows.indptr[1:] > rows.indptr[:-1]  # faster than np.diff for few rows
    return filled


def rows_with(known: NDArray[np.bool_], indptr: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which rows have a known entry; row i has the entries indptr[i]:indptr[i + 1]."""
    before = np.concatenate([[0], np.cumsum(known)])
    found: NDArray[np.bool_] = np.diff(before[indptr]) > 0
    return found
