"""Those who answer in a consensus: models, and files of what models have predicted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xmtc.core.errors import DataError, UnsupportedError, XmtcError, shown
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.predictions import read_predictions
from xmtc.data.topk import read_trained_on
from xmtc.decisions import combining
from xmtc.decisions.calibration import Calibration
from xmtc.decisions.combining import Answer
from xmtc.models.base import Labels, Mask, Model, Scores


class Member(ABC):
    """One of those who answer. Its labels have numbers of their own, and those that all members share."""

    calibration: Calibration | None = None

    def __init__(self, name: str, labels: LabelIndex) -> None:
        self.name, self.labels = name, labels

    def number(self, index: LabelIndex) -> None:
        """Find its labels among those of all, by key: no two members need number them alike."""
        self.shared = index.ids(self.labels.table["key"].combine_chunks())  # (own labels,)
        if (self.shared < 0).any():
            raise ValueError(f"{self.name} has labels that the consensus does not know")
        self._own = np.full(len(index), -1, dtype=np.int64)  # (L,) −1 for what it does not know
        self._own[self.shared] = np.arange(len(self.shared))

    def best(self, batch: Dataset, k: int, allowed: Mask | None) -> Answer:
        """The k best of its labels for each document, and their scores as it gives them."""
        mine = None if allowed is None else allowed[self.shared]
        if mine is not None and not mine.any():
            return np.full((len(batch), 0), -1, dtype=np.int64), np.empty((len(batch), 0), dtype=np.float32)
        labels, scores = self._best(batch, k, mine)
        return np.where(labels >= 0, self.shared[labels], -1), scores

    def score_labels(self, batch: Dataset, labels: Labels) -> Scores:
        """(n, c) scores of given labels, −∞ where it does not know them."""
        known = np.where(labels >= 0, self._own[labels], -1)
        return self._score_labels(batch, known)

    def chances(self, scores: Scores) -> Scores:
        """Scores as probabilities; pads stay."""
        if self.calibration is not None:
            return self.calibration.apply(scores)
        outside = (scores > 1) | ((scores < 0) & (scores > -np.inf))
        if outside.any():
            raise DataError(
                f"{self.name}: a score is {scores[outside][0]:.4g}, and probabilities are combined. "
                "Set calibrate=isotonic, or calibrate the member first: xmtc calibrate DIR VALID"
            )
        return scores

    @abstractmethod
    def check_update(self) -> None:
        """Refuse to learn from new documents where it cannot."""

    @abstractmethod
    def counted(self) -> tuple[NDArray[np.int64], int] | None:
        """Training documents of each of its labels, and of all; None where that is not known."""

    @abstractmethod
    def _best(self, batch: Dataset, k: int, allowed: Mask | None) -> Answer:
        """Under its own numbers."""

    @abstractmethod
    def _score_labels(self, batch: Dataset, labels: Labels) -> Scores:
        """Under its own numbers."""


class ModelMember(Member):
    """A model from its folder."""

    def __init__(self, name: str, path: Path, runtime: Runtime) -> None:
        self.model = Model.load(path, runtime)
        super().__init__(name, self.model.labels)

    def check_update(self) -> None:
        if "update" not in self.model.capabilities:
            raise UnsupportedError(f"{self.name}: {self.model.name} cannot be updated, and is a member here.")

    def counted(self) -> tuple[NDArray[np.int64], int] | None:
        return self.model.counted()

    def _best(self, batch: Dataset, k: int, allowed: Mask | None) -> Answer:
        with self._named():
            answer = self.model.predict(batch, min(k, len(self.labels)), allow=allowed)
        return answer.labels, answer.scores

    def _score_labels(self, batch: Dataset, labels: Labels) -> Scores:
        with self._named():
            return self.model.score_labels(batch, labels)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Says which of the members cannot do it."""
        try:
            yield
        except XmtcError as error:
            raise type(error)(f"{self.name}: {error}") from None


class FileMember(Member):
    """Predictions from a file, for the documents that it names and no others."""

    def __init__(self, name: str, path: Path) -> None:
        read = read_predictions(path)
        self._path, self._top, self._trained_on = path, read.top, read_trained_on(path)
        labels = read.top.index
        if self._trained_on is not None:  # labels that it never returned are labels all the same
            keys, names = [key for key, _, _ in self._trained_on[1]], [name for _, name, _ in self._trained_on[1]]
            labels = labels.joined(LabelIndex.from_keys(keys, names))
        super().__init__(name, labels)
        self._rows = {document: row for row, document in enumerate(self._top.ids)}
        lines = [[str(row + first) for row in range(len(self._top))] for first in (0, 1)]
        if not read.has_ids or self._top.ids in lines:
            raise DataError(
                f"{path}: knows documents by their place in a file only, and other files have such places too. "
                "Give documents ids of their own and predict them again."
            )
        if len(self._rows) < len(self._top):
            twice = next(document for row, document in enumerate(self._top.ids) if self._rows[document] != row)
            raise DataError(f"{path}: document '{shown(twice)}' is there twice. Keep one of them.")

    def check_update(self) -> None:
        raise UnsupportedError(
            f"{self._path}: is a file of predictions and cannot learn. Train a consensus of model folders."
        )

    def counted(self) -> tuple[NDArray[np.int64], int] | None:
        if self._trained_on is None:
            return None
        documents, known = self._trained_on
        counts = np.zeros(len(self.labels), dtype=np.int64)
        counts[self.labels.ids([key for key, _, _ in known])] = [count for _, _, count in known]
        return counts, documents

    def _best(self, batch: Dataset, k: int, allowed: Mask | None) -> Answer:
        labels, scores = self._of(batch)
        if allowed is not None:
            out = (labels < 0) | ~allowed[labels]
            order = np.argsort(out, axis=1, kind="stable")  # what is not allowed goes last
            labels = np.take_along_axis(np.where(out, -1, labels), order, axis=1)
            scores = np.take_along_axis(np.where(out, np.float32(-np.inf), scores), order, axis=1)
        return labels[:, :k], scores[:, :k]

    def _score_labels(self, batch: Dataset, labels: Labels) -> Scores:
        """It knows what it holds: anything else is as if it did not know the label."""
        gathered = combining.gather([self._of(batch)], labels)
        return np.where(gathered.held[0], gathered.chances[0], -np.inf).astype(np.float32)

    def _of(self, batch: Dataset) -> Answer:
        ids = batch.document_ids()
        rows = np.array([self._rows.get(document, -1) for document in ids], dtype=np.int64)
        if (rows < 0).any():
            missing = (
                f"{int((rows < 0).sum()):,} of {len(rows):,} documents, such as '{shown(ids[int(np.argmin(rows))])}'"
            )
            raise DataError(
                f"{self._path}: no prediction for {missing}, and this member is a file. "
                "Train again with a file that has it too, or with the member's model folder."
            )
        return self._top.labels[rows], self._top.scores[rows]
