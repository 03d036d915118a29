"""Which documents a tree node is trained on, and which of its children are right, wrong or unknown for each of them.

A child is right for a document with a label below it. For a document with complete labels, all other children are
wrong. For one with partial labels, a child is wrong if all labels below it are rejected; every other one is unknown,
and its classifier is not trained on the document.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.jit import kernel
from xmtc.data.dataset import Csr, Dataset
from xmtc.labels.tree import LabelTree


class Members(NamedTuple):
    """Documents of each node, or of each child of the nodes, ascending."""

    indptr: NDArray[np.int64]
    documents: NDArray[np.int32]

    @classmethod
    def build(cls, positives: Csr) -> Members:
        """From a (documents, nodes) 0/1 matrix."""
        columns = positives.T.tocsr()
        columns.sort_indices()
        return cls(columns.indptr.astype(np.int64), columns.indices.astype(np.int32))

    def of(self, node: int) -> NDArray[np.int32]:
        """The documents of one node."""
        return self.documents[self.indptr[node] : self.indptr[node + 1]]


class Undecided(NamedTuple):
    """The children of the nodes of one level that partial documents are not trained on: all that are not listed."""

    partial: NDArray[np.bool_]  # (n,)
    rejected: Members  # documents for which each child is wrong


class PartialLabels(NamedTuple):
    """Rejected labels, and the documents whose other labels are unknown."""

    rejected: Csr  # (n, L)
    partial: NDArray[np.bool_]  # (n,)

    @classmethod
    def of(cls, documents: Dataset) -> PartialLabels | None:
        """None if all labels are complete and none is rejected."""
        if documents.partial is None and documents.rejected is None:
            return None
        assert documents.labels is not None
        none = sp.csr_array(documents.labels.shape, dtype=np.float32)
        return cls(none if documents.rejected is None else documents.rejected, documents.partial_rows())

    def extended(self, count: int) -> PartialLabels:
        """With this number of further documents, whose labels are complete."""
        none = sp.csr_array((count, self.rejected.shape[1]), dtype=np.float32)
        rejected = sp.csr_array(sp.vstack([self.rejected, none], format="csr"))
        return PartialLabels(rejected, np.concatenate([self.partial, np.zeros(count, dtype=np.bool_)]))

    def reached(self, tree: LabelTree, level: int, held: Csr) -> Csr:
        """(n, nodes) `held`, the documents with a label below a node, plus those for which a child of it is wrong.

        A rejected label is therefore learnt even if the document has no label in the same leaf.
        """
        wrong = self._wrong(tree, level + 1)
        columns = tree.parents(level + 1)[wrong.indices]
        also = sp.csr_array((wrong.data, columns, wrong.indptr), shape=held.shape)
        both = sp.csr_array(held + also)
        both.sum_duplicates()
        both.data[:] = 1.0
        return both

    def undecided(self, tree: LabelTree, level: int) -> Undecided:
        """The children of the nodes of a level."""
        return Undecided(self.partial, Members.build(self._wrong(tree, level + 1)))

    def _wrong(self, tree: LabelTree, level: int) -> Csr:
        """(n, nodes) a 1 if all labels below a node are rejected."""
        nodes = tree.node_of(level)
        columns = nodes.astype(np.int32)[self.rejected.indices]
        ones = np.ones(len(columns), dtype=np.float32)
        counts = sp.csr_array((ones, columns, self.rejected.indptr.copy()), (len(self.partial), tree.nodes(level)))
        counts.sum_duplicates()
        sizes = np.bincount(nodes, minlength=tree.nodes(level))
        counts.data = (counts.data == sizes[counts.indices]).astype(np.float32)
        counts.eliminate_zeros()
        return counts


def child_signs(
    documents: NDArray[np.int32], children: Members, first: int, count: int, lanes: int, undecided: Undecided | None
) -> NDArray[np.int8]:
    """(n, lanes) 1 if a child is right for a document, −1 if it is wrong and in unused lanes, 0 if it is unknown."""
    signs = _signs(documents, children.indptr, children.documents, first, count, lanes)
    if undecided is not None:
        partial, wrong = undecided.partial[documents], undecided.rejected
        signs[partial] = np.maximum(signs[partial], 0)
        for lane in range(count):
            signs[np.searchsorted(documents, wrong.of(first + lane)), lane] = -1
    return signs


@kernel()
def _signs(
    documents: NDArray[np.int32],
    child_indptr: NDArray[np.int64],
    child_documents: NDArray[np.int32],
    first: int,
    count: int,
    lanes: int,
) -> NDArray[np.int8]:
    """(n, lanes) 1 if a document belongs to a child, −1 otherwise and in unused lanes."""
    out = np.full((len(documents), lanes), np.int8(-1))
    for lane in range(count):
        for i in range(child_indptr[first + lane], child_indptr[first + lane + 1]):
            out[np.searchsorted(documents, child_documents[i]), lane] = 1
    return out
