"""Top-k selection from sparse rows of scores, and look-up of the scores of given labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import kernel
from xmtc.core.selection import SORTED, heap_insert, heap_sort, insert


def best_of_rows(
    indptr: NDArray[np.int64], labels: NDArray[np.int32], scores: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(n, k) labels with the largest scores of each CSR row, whose labels ascend; ties are ordered by label number."""
    return (_best_few if k <= SORTED else _best_many)(indptr, labels, scores, k)


@kernel()
def _best_few(
    indptr: NDArray[np.int64], labels: NDArray[np.int32], scores: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    found = np.full((len(indptr) - 1, k), -1, np.int64)
    given = np.full((len(indptr) - 1, k), -np.inf, np.float32)
    for row in range(len(indptr) - 1):
        held = 0
        for i in range(indptr[row], indptr[row + 1]):
            held = insert(found[row], given[row], held, labels[i], scores[i])
    return found, given


@kernel()
def _best_many(
    indptr: NDArray[np.int64], labels: NDArray[np.int32], scores: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    found = np.full((len(indptr) - 1, k), -1, np.int64)
    given = np.full((len(indptr) - 1, k), -np.inf, np.float32)
    for row in range(len(indptr) - 1):
        held = 0
        for i in range(indptr[row], indptr[row + 1]):
            held = heap_insert(found[row], given[row], held, labels[i], scores[i])
        heap_sort(found[row], given[row], held)
    return found, given


def only_allowed(
    indptr: NDArray[np.int64], labels: NDArray[np.int32], scores: NDArray[np.float32], allowed: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """CSR rows without the labels that are not allowed."""
    kept = allowed[labels]
    return np.concatenate([[0], np.cumsum(kept)])[indptr], labels[kept], scores[kept]


@kernel()
def look_up_rows(
    indptr: NDArray[np.int64],
    labels: NDArray[np.int32],
    scores: NDArray[np.float32],
    candidates: NDArray[np.int64],
) -> NDArray[np.float32]:
    """(n, c) scores of given labels in CSR rows whose labels ascend; 0 where a row has no entry."""
    out = np.zeros(candidates.shape, np.float32)
    for row in range(candidates.shape[0]):
        start, stop = indptr[row], indptr[row + 1]
        for column in range(candidates.shape[1]):
            label = candidates[row, column]
            at = start + np.searchsorted(labels[start:stop], label)
            if label >= 0 and at < stop and labels[at] == label:
                out[row, column] = scores[at]
    return out
