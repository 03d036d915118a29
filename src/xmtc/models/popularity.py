"""The most-frequent-label baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Settings
from xmtc.data.dataset import Dataset
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.models.update import Change


@dataclass(frozen=True)
class PopularitySettings(Settings):
    """This model has no settings."""

    of = "popularity"


class Popularity(Model):
    """The most-frequent-label baseline.

    Every document gets the most frequent labels; a model that does not beat it has learnt nothing. A score is the
    fraction of training documents with the label.
    """

    name = "popularity"
    Config = PopularitySettings
    capabilities = frozenset({"text", "features", "score_labels", "update"})

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        self._shares = (self.label_counts / len(train)).astype(np.float32)  # (L,)

    def _update(self, change: Change, run: FitContext) -> None:
        self._shares = (self.label_counts / (change.documents_before + len(change.new))).astype(np.float32)

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        ranking = np.argsort(-self._shares, kind="stable")
        best = (ranking if allowed is None else ranking[allowed[ranking]])[:k]
        shape = (len(batch), len(best))
        return np.broadcast_to(best, shape), np.broadcast_to(self._shares[best], shape)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        return self._shares[candidates]

    def _state(self) -> State:
        return State(arrays={"shares": self._shares})

    def _restore(self, state: SavedState) -> None:
        self._shares = state.array("shares", np.float32, (len(self.label_counts),))
