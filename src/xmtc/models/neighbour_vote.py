"""Common parts of models in which the nearest training documents vote: voters, votes and explanations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.explanation import NeighbourEvidence
from xmtc.data.dataset import Csr, Dataset, not_accepted
from xmtc.data.label_index import LabelIndex
from xmtc.linear.neighbours import partial_vote, vote
from xmtc.models.relabelling import Relabelling

Ballots = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]  # CSR: label votes of each document
DOCUMENTS = "documents"


class PartialVoters(NamedTuple):
    """Rejected labels of training documents, and those documents whose other labels are unknown."""

    indptr: NDArray[np.int64]  # (N + 1,)
    rejected: NDArray[np.int32]
    flags: NDArray[np.bool_]  # (N,)

    @classmethod
    def of(cls, rejected: Csr | None, flags: NDArray[np.bool_]) -> PartialVoters:
        """From a matrix of rejected labels, if any."""
        if rejected is None:
            return cls(np.zeros(len(flags) + 1, dtype=np.int64), np.empty(0, dtype=np.int32), flags)
        return cls(rejected.indptr.astype(np.int64), rejected.indices.astype(np.int32), flags)

    @classmethod
    def none(cls, count: int) -> PartialVoters:
        """Documents with complete labels."""
        return cls.of(None, np.zeros(count, dtype=bool))

    def rejected_by(self, document: int) -> NDArray[np.int32]:
        """The rejected labels of one document."""
        return self.rejected[self.indptr[document] : self.indptr[document + 1]]

    def relabelled(self, held: Csr, relabelling: Relabelling) -> PartialVoters:
        """After an update; a label that is accepted, too, after a merge (see `held`) is not rejected any more."""
        if not relabelling.changes:
            return self
        ones, width = np.ones(len(self.rejected), dtype=np.float32), len(relabelling.numbers)
        before = sp.csr_array((ones, self.rejected, self.indptr), shape=(len(self.flags), width))
        return PartialVoters.of(not_accepted(relabelling.columns(before), held), self.flags)

    def joined(self, more: PartialVoters) -> PartialVoters:
        """These documents and more of them."""
        return PartialVoters(
            np.concatenate([self.indptr, self.indptr[-1] + more.indptr[1:]]),
            np.concatenate([self.rejected, more.rejected]),
            np.concatenate([self.flags, more.flags]),
        )


class Voters:
    """Training documents that vote with their labels, and the snippets shown of them.

    Documents with partial labels vote on the labels that are known for them, and otherwise as the complete ones do.
    """

    def __init__(
        self,
        indptr: NDArray[np.int64],
        labels: NDArray[np.int32],
        documents: pa.Table,
        partial: PartialVoters | None = None,
    ) -> None:
        if len(indptr) != documents.num_rows + 1:
            raise ValueError(f"labels of {len(indptr) - 1:,} documents, expected {documents.num_rows:,}")
        self.indptr = indptr  # (N + 1,)
        self.labels = labels
        self.documents = documents
        self.partial = partial

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
        partial = None if train.partial is None else PartialVoters.of(train.rejected, train.partial)
        return cls(train.labels.indptr.astype(np.int64), train.labels.indices.astype(np.int32), table, partial)

    def joined(self, train: Dataset, snippet: int, relabelling: Relabelling) -> Voters:
        """These documents, with updated labels, plus more documents."""
        ones = np.ones(len(self.labels), dtype=np.float32)
        before = sp.csr_array((ones, self.labels, self.indptr), shape=(len(self), len(relabelling.numbers)))
        held, more = relabelling.columns(before) if relabelling.changes else before, Voters.of(train, snippet)
        partial = None
        if self.partial is not None or more.partial is not None:
            old = (self.partial or PartialVoters.none(len(self))).relabelled(held, relabelling)
            partial = old.joined(more.partial or PartialVoters.none(len(more)))
        return Voters(
            np.concatenate([held.indptr.astype(np.int64), held.indptr[-1] + more.indptr[1:]]),
            np.concatenate([held.indices.astype(np.int32), more.labels]),
            pa.concat_tables([self.documents, more.documents]),
            partial,
        )

    def ballots(self, found: NDArray[np.int32], weights: NDArray[np.float32], labels: int) -> Ballots:
        """Votes for labels from each row of neighbours (n, m), −1 as padding, with their weights."""
        neighbours = np.ascontiguousarray(found)
        if self.partial is None:
            return vote(neighbours, weights, self.indptr, self.labels, labels)
        return partial_vote(neighbours, weights, self.indptr, self.labels, *self.partial, labels)

    def evidence(
        self,
        found: NDArray[np.int32],  # (m,) the neighbours of one document, nearest first
        similarities: NDArray[np.float32],
        weights: NDArray[np.float32],
        label: int,
        index: LabelIndex,
    ) -> tuple[NeighbourEvidence, ...]:
        """Neighbours with the label, nearest first, with their fraction of the vote; then the others.

        Complete neighbours also have the votes of those for which the label is unknown.
        """
        evidence = []
        total = max(float(weights[found >= 0].sum()), np.finfo(np.float32).tiny)
        raised = 1.0 if self.partial is None else self._raised(found, weights, label)
        for document, similarity, weight in zip(found.tolist(), similarities.tolist(), weights.tolist(), strict=True):
            if document < 0:
                continue
            held = self.labels[self.indptr[document] : self.indptr[document + 1]]
            row: dict[str, Any] = self.documents.slice(document, 1).to_pylist()[0]
            holds = bool(label in held)
            names = tuple(index.strings("name", held))
            share = weight / total if holds else 0.0
            share *= 1.0 if self.partial is not None and self.partial.flags[document] else raised
            evidence.append(NeighbourEvidence(row["id"], row["snippet"], similarity, holds, names, share))
        return tuple(sorted(evidence, key=lambda item: not item.holds))

    def _raised(self, found: NDArray[np.int32], weights: NDArray[np.float32], label: int) -> float:
        """Factor by which complete neighbours count more, because others do not know the label."""
        assert self.partial is not None
        complete = unknown = 0.0
        for document, weight in zip(found.tolist(), weights.tolist(), strict=True):
            if document >= 0 and not self.partial.flags[document]:
                complete += weight
            elif document >= 0:
                held = self.labels[self.indptr[document] : self.indptr[document + 1]]
                unknown += 0.0 if label in held or label in self.partial.rejected_by(document) else weight
        return 1.0 + unknown / complete if complete else 1.0

    def state(self) -> State:
        """The state to save."""
        arrays: dict[str, NDArray[Any]] = {"label_indptr": self.indptr, "label_indices": self.labels}
        if self.partial is not None:
            arrays |= {"rejected_indptr": self.partial.indptr, "rejected_indices": self.partial.rejected}
            arrays["partial"] = self.partial.flags.astype(np.uint8)
        return State({}, arrays, {DOCUMENTS: self.documents})

    @classmethod
    def from_state(cls, state: SavedState, labels: int) -> Voters:
        """Restore documents of a model with this number of labels."""
        columns = {"id": pa.string(), "snippet": pa.string()}
        table = state.table(DOCUMENTS, columns).select(list(columns))
        if not table.num_rows:
            raise ValueError("there are no training documents")
        count, partial = table.num_rows, None
        held = state.array("label_indices", np.int32, (None,), low=0, high=labels)
        if state.has("partial"):
            flags = state.array("partial", np.uint8, (count,), low=0, high=2).astype(bool)
            rejected = state.array("rejected_indices", np.int32, (None,), low=0, high=labels)
            partial = PartialVoters(state.offsets("rejected_indptr", count, len(rejected)), rejected, flags)
        return cls(state.offsets("label_indptr", count, len(held)), held, table, partial)
