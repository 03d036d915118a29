"""Common parts of models in which the nearest training documents vote: voters, votes and explanations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.explanation import NeighbourEvidence
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.linear.neighbours import vote
from xmtc.models.relabelling import Relabelling

Ballots = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]  # CSR: label votes of each document
DOCUMENTS = "documents"


class Voters:
    """Training documents that vote with their labels, and the snippets shown of them."""

    def __init__(self, indptr: NDArray[np.int64], labels: NDArray[np.int32], documents: pa.Table) -> None:
        if len(indptr) != documents.num_rows + 1:
            raise ValueError(f"labels of {len(indptr) - 1:,} documents, expected {documents.num_rows:,}")
        self.indptr = indptr  # (N + 1,)
        self.labels = labels
        self.documents = documents

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def of(cls, train: Dataset, snippet: int) -> Voters:
        """All training documents, with this many characters of their texts."""
        assert train.labels is not None
        ids = pa.array(train.document_ids(), pa.string())
        if not train.has_text or snippet == 0:
            starts = pa.array([""] * len(train), pa.string())
        else:
            starts = pc.utf8_slice_codeunits(train.text(), 0, snippet)
        table = pa.table({"id": ids, "snippet": starts})
        return cls(train.labels.indptr.astype(np.int64), train.labels.indices.astype(np.int32), table)

    def joined(self, train: Dataset, snippet: int, relabelling: Relabelling) -> Voters:
        """These documents, with updated labels, plus more documents."""
        ones = np.ones(len(self.labels), dtype=np.float32)
        before = sp.csr_array((ones, self.labels, self.indptr), shape=(len(self), len(relabelling.numbers)))
        held, more = relabelling.columns(before) if relabelling.changes else before, Voters.of(train, snippet)
        return Voters(
            np.concatenate([held.indptr.astype(np.int64), held.indptr[-1] + more.indptr[1:]]),
            np.concatenate([held.indices.astype(np.int32), more.labels]),
            pa.concat_tables([self.documents, more.documents]),
        )

    def ballots(self, found: NDArray[np.int32], weights: NDArray[np.float32], labels: int) -> Ballots:
        """Votes for labels from each row of neighbours (n, m), −1 as padding, with their weights."""
        return vote(np.ascontiguousarray(found), weights, self.indptr, self.labels, labels)

    def evidence(
        self,
        found: NDArray[np.int32],  # (m,) the neighbours of one document, nearest first
        similarities: NDArray[np.float32],
        weights: NDArray[np.float32],
        label: int,
        index: LabelIndex,
    ) -> tuple[NeighbourEvidence, ...]:
        """Neighbours with the label, nearest first, with their fraction of the vote; then the others."""
        evidence = []
        total = max(float(weights[found >= 0].sum()), np.finfo(np.float32).tiny)
        for document, similarity, weight in zip(found.tolist(), similarities.tolist(), weights.tolist(), strict=True):
            if document < 0:
                continue
            held = self.labels[self.indptr[document] : self.indptr[document + 1]]
            row: dict[str, Any] = self.documents.slice(document, 1).to_pylist()[0]
            holds = bool(label in held)
            names = tuple(index.strings("name", held))
            share = weight / total if holds else 0.0
            evidence.append(NeighbourEvidence(row["id"], row["snippet"], similarity, holds, names, share))
        return tuple(sorted(evidence, key=lambda item: not item.holds))

    def state(self) -> State:
        """The state to save."""
        return State({}, {"label_indptr": self.indptr, "label_indices": self.labels}, {DOCUMENTS: self.documents})

    @classmethod
    def from_state(cls, state: SavedState, labels: int) -> Voters:
        """Restore documents of a model with this number of labels."""
        table = state.table(DOCUMENTS, {"id": pa.string(), "snippet": pa.string()})
        if not table.num_rows:
            raise ValueError("there are no training documents")
        held = state.array("label_indices", np.int32, (None,), low=0, high=labels)
        return cls(state.offsets("label_indptr", table.num_rows, len(held)), held, table)
