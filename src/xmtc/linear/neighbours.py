"""Exact nearest neighbours among sparse rows, through an inverted index, and the votes of their labels.

Work per query: the postings of its features, two values each; one pass over the documents to find the best. The
scores of all documents fit in the second-level cache up to half a million documents.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.dataset import Csr
from xmtc.jit import kernel, run_parallel

QUERIES = 256
"""Queries one thread takes at a time."""


class InvertedIndex(NamedTuple):
    """For each feature the documents that hold it, ascending, and their values."""

    indptr: NDArray[np.int64]  # (D + 1,)
    documents: NDArray[np.int32]
    values: NDArray[np.float32]
    size: int  # documents

    @classmethod
    def build(cls, rows: Csr) -> InvertedIndex:
        columns = sp.csc_array(rows)
        columns.sort_indices()
        return cls(
            columns.indptr.astype(np.int64),
            columns.indices.astype(np.int32),
            columns.data.astype(np.float32),
            int(rows.shape[0]),
        )

    def nearest(self, queries: Csr, count: int, threads: int = 1) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """(n, count) documents with the largest inner products and these; −1 and 0 where fewer have any.

        Equal products are ordered by document number.
        """
        shape = (int(queries.shape[0]), min(count, self.size))
        found = np.full(shape, -1, dtype=np.int32)
        products = np.zeros(shape, dtype=np.float32)
        indptr = queries.indptr.astype(np.int64)
        indices = queries.indices.astype(np.int32)
        data = np.ascontiguousarray(queries.data, dtype=np.float32)

        def search(start: int) -> None:
            stop = min(start + QUERIES, shape[0])
            _search(
                self.indptr,
                self.documents,
                self.values,
                self.size,
                indptr[start : stop + 1],
                indices,
                data,
                found[start:stop],
                products[start:stop],
            )

        for _ in run_parallel(search, range(0, shape[0], QUERIES), threads):
            pass
        return found, products


@kernel()
def _search(
    indptr: NDArray[np.int64],
    documents: NDArray[np.int32],
    values: NDArray[np.float32],
    size: int,
    query_indptr: NDArray[np.int64],
    query_indices: NDArray[np.int32],
    query_values: NDArray[np.float32],
    found: NDArray[np.int32],  # out: (n, m)
    products: NDArray[np.float32],  # out: (n, m)
) -> None:
    scores = np.zeros(size, np.float32)
    most = found.shape[1]
    heap_score = np.empty(most, np.float32)
    heap_document = np.empty(most, np.int32)
    for query in range(found.shape[0]):
        scores[:] = 0.0
        for i in range(query_indptr[query], query_indptr[query + 1]):
            feature = query_indices[i]
            value = query_values[i]
            for j in range(indptr[feature], indptr[feature + 1]):
                scores[documents[j]] += value * values[j]
        # A heap of the best, the worst of them on top; documents come in ascending order, so that of two equal
        # scores the first stays.
        held = 0
        for document in range(size):
            score = scores[document]
            if score <= 0.0:
                continue
            if held < most:
                at = held
                held += 1
                heap_score[at] = score
                heap_document[at] = document
                while at > 0:
                    parent = (at - 1) // 2
                    if heap_score[parent] < heap_score[at] or (
                        heap_score[parent] == heap_score[at] and heap_document[parent] > heap_document[at]
                    ):
                        break
                    heap_score[parent], heap_score[at] = heap_score[at], heap_score[parent]
                    heap_document[parent], heap_document[at] = heap_document[at], heap_document[parent]
                    at = parent
            elif score > heap_score[0]:
                heap_score[0] = score
                heap_document[0] = document
                at = 0
                while True:
                    child = 2 * at + 1
                    if child >= held:
                        break
                    right = child + 1
                    if right < held and (
                        heap_score[right] < heap_score[child]
                        or (heap_score[right] == heap_score[child] and heap_document[right] > heap_document[child])
                    ):
                        child = right
                    if heap_score[at] < heap_score[child] or (
                        heap_score[at] == heap_score[child] and heap_document[at] > heap_document[child]
                    ):
                        break
                    heap_score[at], heap_score[child] = heap_score[child], heap_score[at]
                    heap_document[at], heap_document[child] = heap_document[child], heap_document[at]
                    at = child
        # Two stable sorts: by document, then by falling score.
        by_document = np.argsort(heap_document[:held], kind="mergesort")
        order = by_document[np.argsort(-heap_score[:held][by_document], kind="mergesort")]
        for rank in range(held):
            found[query, rank] = heap_document[order[rank]]
            products[query, rank] = heap_score[order[rank]]


@kernel()
def vote(
    neighbours: NDArray[np.int32],  # (n, m), −1 pads
    weights: NDArray[np.float32],  # (n, m)
    label_indptr: NDArray[np.int64],
    label_indices: NDArray[np.int32],
    labels: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """CSR rows of label votes: each neighbour gives its weight to each of its labels; a row's weights sum to one."""
    total = 0
    for query in range(neighbours.shape[0]):
        for rank in range(neighbours.shape[1]):
            document = neighbours[query, rank]
            if document >= 0:
                total += label_indptr[document + 1] - label_indptr[document]
    indptr = np.zeros(neighbours.shape[0] + 1, np.int64)
    indices = np.empty(total, np.int32)
    votes = np.empty(total, np.float32)
    sums = np.zeros(labels, np.float64)
    count = 0
    for query in range(neighbours.shape[0]):
        start = count
        mass = 0.0
        for rank in range(neighbours.shape[1]):
            document = neighbours[query, rank]
            if document < 0:
                continue
            weight = np.float64(weights[query, rank])
            mass += weight
            for i in range(label_indptr[document], label_indptr[document + 1]):
                label = label_indices[i]
                if sums[label] == 0.0 and weight > 0.0:
                    indices[count] = label
                    count += 1
                sums[label] += weight
        indices[start:count] = np.sort(indices[start:count])
        for i in range(start, count):
            votes[i] = np.float32(sums[indices[i]] / mass)
            sums[indices[i]] = 0.0
        indptr[query + 1] = count
    return indptr, indices[:count].copy(), votes[:count].copy()
