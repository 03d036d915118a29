"""The most-frequent-label baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.store import State
from xmtc.core.config import Settings
from xmtc.data.dataset import Dataset
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.models.relabelling import Relabelling
from xmtc.models.update import Change


@dataclass(frozen=True)
class PopularitySettings(Settings):
    """This model has no settings."""

    of = "popularity"


class _PartialCounts(NamedTuple):
    """Documents with partial labels, and how many of them have each label accepted and rejected."""

    documents: int
    accepted: NDArray[np.int64]  # (L,)
    rejected: NDArray[np.int64]  # (L,)

    @classmethod
    def none(cls, labels: int) -> _PartialCounts:
        return cls(0, np.zeros(labels, dtype=np.int64), np.zeros(labels, dtype=np.int64))

    @classmethod
    def of(cls, documents: Dataset) -> _PartialCounts:
        assert documents.labels is not None
        width = int(documents.labels.shape[1])
        if documents.partial is None:
            return cls.none(width)
        rows = np.flatnonzero(documents.partial)
        accepted, rejected = (
            np.zeros(width, dtype=np.int64) if given is None else np.bincount(given[rows].indices, minlength=width)
            for given in (documents.labels, documents.rejected)
        )
        return cls(len(rows), accepted.astype(np.int64), rejected.astype(np.int64))

    def plus(self, more: _PartialCounts) -> _PartialCounts:
        return _PartialCounts(
            self.documents + more.documents, self.accepted + more.accepted, self.rejected + more.rejected
        )

    def relabelled(self, labels: Relabelling) -> _PartialCounts:
        counts = _PartialCounts.none(len(labels.index))
        stay = np.flatnonzero(labels.numbers >= 0)
        for old, new in ((self.accepted, counts.accepted), (self.rejected, counts.rejected)):
            np.add.at(new, labels.numbers[stay], old[stay])
        most = np.minimum(counts.accepted, self.documents)  # merged labels may overlap
        return _PartialCounts(self.documents, most, np.minimum(counts.rejected, self.documents - most))

    def shares(self, counts: NDArray[np.int64], documents: int) -> NDArray[np.float32]:
        """(L,) fraction of all documents with each label."""
        complete = documents - self.documents
        among = np.maximum(counts - self.accepted, 0) / max(complete, 1)
        unknown = self.documents - self.accepted - self.rejected
        shares: NDArray[np.float32] = ((counts + unknown * among) / documents).astype(np.float32)
        return shares


class Popularity(Model):
    """The most-frequent-label baseline.

    Every document gets the most frequent labels; a model that does not beat it has learnt nothing. A score is the
    fraction of training documents with the label. A document for which a label is unknown counts as the fraction of
    complete documents with it.
    """

    name = "popularity"
    Config = PopularitySettings
    capabilities = frozenset({"text", "features", "score_labels", "update"})

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        self._partial = _PartialCounts.of(train)
        self._shares = self._partial.shares(self.label_counts, len(train))  # (L,)

    def _update(self, change: Change, run: FitContext) -> None:
        self._partial = self._partial.relabelled(change.labels).plus(_PartialCounts.of(change.new))
        self._shares = self._partial.shares(self.label_counts, change.documents_before + len(change.new))

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        ranking = np.argsort(-self._shares, kind="stable")
        best = (ranking if allowed is None else ranking[allowed[ranking]])[:k]
        shape = (len(batch), len(best))
        return np.broadcast_to(best, shape), np.broadcast_to(self._shares[best], shape)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        return self._shares[candidates]

    def _state(self) -> State:
        kept = State(arrays={"shares": self._shares})
        if self._partial.documents:
            kept.values["partial_documents"] = self._partial.documents
            kept.arrays.update(partial_accepted=self._partial.accepted, partial_rejected=self._partial.rejected)
        return kept

    def _restore(self, state: State) -> None:
        self._shares = state.arrays["shares"]
        self._partial = _PartialCounts.none(len(self._shares))
        if "partial_accepted" in state.arrays:
            counts = state.arrays["partial_accepted"], state.arrays["partial_rejected"]
            self._partial = _PartialCounts(int(state.values["partial_documents"]), *counts)
