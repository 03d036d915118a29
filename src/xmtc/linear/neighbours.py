"""Exact nearest neighbours of sparse rows by an inverted index, and label votes of the neighbours.

Work per query: the postings of its features, two values each, plus one pass over all documents to select the best. The
scores of all documents fit in the L2 cache for up to half a million documents.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.jit import inlined, kernel
from xmtc.core.parallel import run_parallel
from xmtc.data.dataset import Csr

QUERIES = 256
"""Queries that a thread handles at a time."""


class InvertedIndex(NamedTuple):
    """For each feature, the documents that have it, ascending, and their values."""

    indptr: NDArray[np.int64]  # (D + 1,)
    documents: NDArray[np.int32]
    values: NDArray[np.float32]
    size: int  # documents

    @classmethod
    def build(cls, rows: Csr) -> InvertedIndex:
        """Build the index of a sparse matrix."""
        columns = sp.csc_array(rows)
        columns.sort_indices()
        return cls(
            columns.indptr.astype(np.int64, copy=False),
            columns.indices.astype(np.int32, copy=False),
            columns.data.astype(np.float32, copy=False),
            int(rows.shape[0]),
        )

    @classmethod
    def from_state(cls, state: SavedState, width: int, size: int) -> InvertedIndex:
        """Restore the index of a matrix with `size` rows and `width` columns."""
        documents = state.array("documents", np.int32, (None,), low=0, high=size)
        values = state.array("values", np.float32, (len(documents),))
        return cls(state.offsets("indptr", width, len(documents)), documents, values, size)

    def grown(self, rows: Csr) -> InvertedIndex:
        """This index extended by more documents, whose rows may have additional features."""
        more = InvertedIndex.build(rows)
        counts = np.zeros(len(more.indptr) - 1, dtype=np.int64)
        counts[: len(self.indptr) - 1] = np.diff(self.indptr)
        indptr = np.concatenate([[0], np.cumsum(counts + np.diff(more.indptr))])
        documents, values = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32)
        _put(self.indptr, self.documents, self.values, 0, indptr[:-1], documents, values)
        _put(more.indptr, more.documents, more.values, self.size, indptr[:-1] + counts, documents, values)
        return InvertedIndex(indptr, documents, values, self.size + more.size)

    def emptied(self) -> InvertedIndex:
        """An index of the same size and features in which no document can be found."""
        nothing = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
        return InvertedIndex(np.zeros_like(self.indptr), *nothing, self.size)

    def nearest(self, queries: Csr, count: int, threads: int = 1) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """(n, count) documents with the largest inner products, and the products; −1 and 0 if fewer are positive.

        Ties are broken by document number.
        """
        shape = (int(queries.shape[0]), min(count, self.size))
        found = np.full(shape, -1, dtype=np.int32)
        products = np.zeros(shape, dtype=np.float32)
        indptr = queries.indptr.astype(np.int64, copy=False)
        indices = queries.indices.astype(np.int32, copy=False)
        data = queries.data.astype(np.float32, copy=False)

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


@inlined
def _worse(score: Any, document: Any, i: int, j: int) -> Any:
    """Whether entry i ranks behind entry j: a lower score, or the same score and a higher document number."""
    return score[i] < score[j] or (score[i] == score[j] and document[i] > document[j])


@inlined
def _swap(score: Any, document: Any, i: int, j: int) -> None:
    score[i], score[j] = score[j], score[i]
    document[i], document[j] = document[j], document[i]


@inlined
def _rise(score: Any, document: Any, at: int) -> None:
    """Restore the heap, worst entry on top, after appending an entry."""
    while at > 0 and _worse(score, document, at, (at - 1) // 2):
        _swap(score, document, at, (at - 1) // 2)
        at = (at - 1) // 2


@inlined
def _sink(score: Any, document: Any, held: int) -> None:
    """Restore the heap after replacing its top."""
    at = 0
    while 2 * at + 1 < held:
        child = 2 * at + 1
        if child + 1 < held and _worse(score, document, child + 1, child):
            child += 1
        if not _worse(score, document, child, at):
            break
        _swap(score, document, child, at)
        at = child


@kernel(outputs=("to_documents", "to_values"))
def _put(
    indptr: NDArray[np.int64],
    documents: NDArray[np.int32],
    values: NDArray[np.float32],
    first: int,
    places: NDArray[np.int64],
    to_documents: NDArray[np.int32],
    to_values: NDArray[np.float32],
) -> None:
    """Write the postings of each feature starting at its place; document numbers are shifted by `first`."""
    for feature in range(len(indptr) - 1):
        at = places[feature]
        for i in range(indptr[feature], indptr[feature + 1]):
            to_documents[at] = documents[i] + first
            to_values[at] = values[i]
            at += 1


@kernel(outputs=("found", "products"))
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
        held = 0
        for document in range(size):
            score = scores[document]
            if score <= 0.0:
                continue
            if held < most:
                heap_score[held] = score
                heap_document[held] = document
                held += 1
                _rise(heap_score, heap_document, held - 1)
            elif score > heap_score[0]:
                heap_score[0] = score
                heap_document[0] = document
                _sink(heap_score, heap_document, held)
        while held > 0:  # the worst is on top: fill the ranks from the end
            held -= 1
            found[query, held] = heap_document[0]
            products[query, held] = heap_score[0]
            heap_score[0] = heap_score[held]
            heap_document[0] = heap_document[held]
            _sink(heap_score, heap_document, held)


@kernel()
def vote(
    neighbours: NDArray[np.int32],  # (n, m), −1 pads
    weights: NDArray[np.float32],  # (n, m)
    label_indptr: NDArray[np.int64],
    label_indices: NDArray[np.int32],
    labels: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """CSR rows of label votes: each neighbour adds its weight to each of its labels; they sum to one."""
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
        if count - start > 32:
            indices[start:count].sort()
        else:  # insertion is faster for a few
            for i in range(start + 1, count):
                label = indices[i]
                at = i
                while at > start and indices[at - 1] > label:
                    indices[at] = indices[at - 1]
                    at -= 1
                indices[at] = label
        for i in range(start, count):
            votes[i] = np.float32(sums[indices[i]] / mass)
            sums[indices[i]] = 0.0
        indptr[query + 1] = count
    return indptr, indices[:count].copy(), votes[:count].copy()


@kernel()
def partial_vote(
    neighbours: NDArray[np.int32],  # (n, m), −1 pads
    weights: NDArray[np.float32],  # (n, m)
    label_indptr: NDArray[np.int64],
    label_indices: NDArray[np.int32],
    rejected_indptr: NDArray[np.int64],
    rejected_indices: NDArray[np.int32],
    partial: NDArray[np.bool_],  # (documents,) whether labels that are not listed are unknown
    labels: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """`vote` with partial labels: a neighbour that does not know a label votes as the complete neighbours together.

    Its vote for the label is therefore their share, or 0 without complete neighbours, and does not change their result.
    """
    total = 0
    for query in range(neighbours.shape[0]):
        for rank in range(neighbours.shape[1]):
            document = neighbours[query, rank]
            if document >= 0:
                total += label_indptr[document + 1] - label_indptr[document]
    indptr = np.zeros(neighbours.shape[0] + 1, np.int64)
    indices = np.empty(total, np.int32)
    votes = np.empty(total, np.float32)
    sums = np.zeros((labels, 3), np.float64)  # votes of complete and of partial neighbours; partial ones that know it
    count = 0
    for query in range(neighbours.shape[0]):
        start = count
        mass, partial_mass = 0.0, 0.0
        for rank in range(neighbours.shape[1]):
            document = neighbours[query, rank]
            if document < 0:
                continue
            weight = np.float64(weights[query, rank])
            is_partial = partial[document]
            kind = 1 if is_partial else 0
            mass += 0.0 if is_partial else weight
            partial_mass += weight if is_partial else 0.0
            for i in range(label_indptr[document], label_indptr[document + 1]):
                label = label_indices[i]
                if sums[label, 0] + sums[label, 1] == 0.0 and weight > 0.0:
                    indices[count] = label
                    count += 1
                sums[label, kind] += weight
                sums[label, 2] += weight * kind
            if is_partial:
                for i in range(rejected_indptr[document], rejected_indptr[document + 1]):
                    sums[rejected_indices[i], 2] += weight
        indices[start:count].sort()
        for i in range(start, count):
            label = indices[i]
            share = sums[label, 0] / mass if mass > 0.0 else 0.0
            given = sums[label, 0] + sums[label, 1] + max(partial_mass - sums[label, 2], 0.0) * share
            votes[i] = np.float32(given / (mass + partial_mass))
            sums[label, :2] = 0.0
        for rank in range(neighbours.shape[1]):  # clear all that is left
            document = neighbours[query, rank]
            if document >= 0 and partial[document]:
                for i in range(label_indptr[document], label_indptr[document + 1]):
                    sums[label_indices[i], 2] = 0.0
                for i in range(rejected_indptr[document], rejected_indptr[document + 1]):
                    sums[rejected_indices[i], 2] = 0.0
        indptr[query + 1] = count
    return indptr, indices[:count].copy(), votes[:count].copy()
