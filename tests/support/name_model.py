"""A small model that finds labels by their names, so that it can return labels without training documents."""

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
class NameMatchSettings(Settings):
    """Settings of the model."""

    by_name: bool = True
    """Whether the model uses label names."""
    of = "name_match"


class NameMatch(Model):
    """Scores are 1 for labels whose name or alternative is a word of the text, otherwise 0."""

    name = "name_match"
    Config = NameMatchSettings
    capabilities = frozenset({"text", "score_labels", "update"})

    @property
    def uses_label_names(self) -> bool:
        return bool(self.config.by_name)

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        pass

    def _update(self, change: Change, run: FitContext) -> None:
        pass

    def _scores(self, batch: Dataset) -> Scores:
        rows = self.labels.table.to_pylist()
        names = [{row["name"].lower(), *map(str.lower, row["alternatives"])} for row in rows]
        texts = [set(text.lower().split()) for text in batch.text().to_pylist()]
        return np.array([[float(bool(own & words)) for own in names] for words in texts], dtype=np.float32)

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        scores = self._scores(batch)
        if allowed is not None:
            scores[:, ~allowed] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return order, np.take_along_axis(scores, order, axis=1)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        return np.take_along_axis(self._scores(batch), np.maximum(candidates, 0), axis=1)

    def _state(self) -> State:
        return State()

    def _restore(self, state: SavedState) -> None:
        pass
