"""Members of a consensus: models, and files of predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact import store
from xmtc.artifact.dependencies import Link
from xmtc.core.errors import DataError, UnsupportedError, XmtcError, shown
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset, check_known
from xmtc.data.label_index import LabelIndex
from xmtc.data.predictions import read_predictions
from xmtc.data.topk import read_answers, read_trained_on
from xmtc.decisions import combining
from xmtc.decisions.calibration import Calibration, Method
from xmtc.decisions.combining import Answer
from xmtc.decisions.decision_rules import calibration_of
from xmtc.models import base
from xmtc.models.base import Labels, Mask, Model, Scores


class Member(ABC):
    """A member of a consensus. Its labels have their own numbering and one that is shared by all members."""

    calibration: Calibration | None = None

    def __init__(self, name: str, labels: LabelIndex) -> None:
        self.name, self.labels = name, labels

    def number(self, index: LabelIndex) -> None:
        """Map its labels to the shared label index, by key."""
        self.shared = index.ids(self.labels.table["key"].combine_chunks())  # (own labels,)
        if (self.shared < 0).any():
            raise ValueError(f"{self.name} has labels that are not in the consensus")
        self._own = np.full(len(index), -1, dtype=np.int64)  # (L,) −1 for labels it does not have
        self._own[self.shared] = np.arange(len(self.shared))

    def best(self, batch: Dataset, k: int, allowed: Mask | None) -> Answer:
        """The k best of its labels for each document, with its own scores."""
        mine = None if allowed is None else allowed[self.shared]
        if mine is not None and not mine.any():
            return np.full((len(batch), 0), -1, dtype=np.int64), np.empty((len(batch), 0), dtype=np.float32)
        labels, scores = self._best(batch, k, mine)
        return np.where(labels >= 0, self.shared[labels], -1), scores

    def score_labels(self, batch: Dataset, labels: Labels) -> Scores:
        """(n, c) scores of given labels, −∞ for labels it does not have."""
        known = np.where(labels >= 0, self._own[labels], -1)
        return self._score_labels(batch, known)

    def chances(self, scores: Scores) -> Scores:
        """Scores as probabilities; padding is kept."""
        if self.calibration is not None:
            return self.calibration.apply(scores)
        outside = (scores > 1) | ((scores < 0) & (scores > -np.inf))
        if outside.any():
            raise DataError(
                f"{self.name}: score {scores[outside][0]:.4g} is not a probability, which consensus requires. "
                "Set calibrate=isotonic, or calibrate the member first: xmtc calibrate DIR VALID"
            )
        return scores

    @abstractmethod
    def known_words(self, batch: Dataset) -> Mask | None:
        """(n,) which documents have a word that the member knows; None if it uses no words or this is not recorded."""

    @abstractmethod
    def check_update(self) -> None:
        """Raise UnsupportedError if it cannot be updated."""

    @abstractmethod
    def counted(self) -> tuple[NDArray[np.int64], int] | None:
        """Training documents of each of its labels, and in total; None if unknown."""

    @abstractmethod
    def _best(self, batch: Dataset, k: int, allowed: Mask | None) -> Answer:
        """`best` in its own label numbering."""

    @abstractmethod
    def _score_labels(self, batch: Dataset, labels: Labels) -> Scores:
        """`score_labels` in its own label numbering."""


class ModelMember(Member):
    """A member that is a model folder."""

    def __init__(self, name: str, path: Path, runtime: Runtime) -> None:
        self.model = Model.load(path, runtime)
        super().__init__(name, self.model.labels)

    def check_update(self) -> None:
        if "update" not in self.model.capabilities:
            raise UnsupportedError(f"{self.name}: {self.model.name} cannot be updated. Train the consensus again.")

    def counted(self) -> tuple[NDArray[np.int64], int] | None:
        return self.model.counted()

    def _best(self, batch: Dataset, k: int, allowed: Mask | None) -> Answer:
        with self._named():
            answer = self.model.predict(batch, min(k, len(self.labels)), allow=allowed)
        return answer.labels, answer.scores

    def known_words(self, batch: Dataset) -> Mask | None:
        with self._named():
            return self.model.known_words(batch)

    def _score_labels(self, batch: Dataset, labels: Labels) -> Scores:
        with self._named():
            return self.model.score_labels(batch, labels)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Prefix errors with the name of the member."""
        try:
            yield
        except XmtcError as error:
            raise type(error)(f"{self.name}: {error}") from None


class FileMember(Member):
    """A member that is a file of predictions, for the documents in it only."""

    def __init__(self, name: str, path: Path) -> None:
        read = read_predictions(path)
        self._path, self._top, self._trained_on = path, read.top, read_trained_on(path)
        labels = read.top.index
        if self._trained_on is not None:  # includes labels that were never predicted
            keys, names = [key for key, _, _ in self._trained_on[1]], [name for _, name, _ in self._trained_on[1]]
            labels = labels.joined(LabelIndex.from_keys(keys, names))
        super().__init__(name, labels)
        self._rows = {document: row for row, document in enumerate(self._top.ids)}
        lines = [[str(row + first) for row in range(len(self._top))] for first in (0, 1)]
        if not read.has_ids or self._top.ids in lines:
            raise DataError(
                f"{path}: identifies documents only by their position in a file, which is ambiguous. "
                "Give the documents ids and predict them again."
            )
        if len(self._rows) < len(self._top):
            twice = next(document for row, document in enumerate(self._top.ids) if self._rows[document] != row)
            raise DataError(f"{path}: document '{shown(twice)}' occurs twice. Remove the duplicate.")

    def check_update(self) -> None:
        raise UnsupportedError(
            f"{self._path}: is a file of predictions, which cannot be updated. Train a consensus of model folders."
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
            order = np.argsort(out, axis=1, kind="stable")  # labels that are not allowed come last
            labels = np.take_along_axis(np.where(out, -1, labels), order, axis=1)
            scores = np.take_along_axis(np.where(out, np.float32(-np.inf), scores), order, axis=1)
        return labels[:, :k], scores[:, :k]

    def known_words(self, batch: Dataset) -> Mask | None:
        """As recorded in the file."""
        known = self._top.known_words
        return None if known is None else known[self._places(batch)]

    def _score_labels(self, batch: Dataset, labels: Labels) -> Scores:
        """Only labels in the file have a score; all others count as missing."""
        gathered = combining.gather([self._of(batch)], labels)
        return np.where(gathered.held[0], gathered.chances[0], -np.inf).astype(np.float32)

    def _of(self, batch: Dataset) -> Answer:
        rows = self._places(batch)
        return self._top.labels[rows], self._top.scores[rows]

    def _places(self, batch: Dataset) -> NDArray[np.int64]:
        """Rows of these documents in the file."""
        ids = batch.document_ids()
        rows = np.array([self._rows.get(document, -1) for document in ids], dtype=np.int64)
        if (rows < 0).any():
            missing = (
                f"{int((rows < 0).sum()):,} of {len(rows):,} documents, such as '{shown(ids[int(np.argmin(rows))])}'"
            )
            raise DataError(
                f"{self._path}: no prediction for {missing}. This member is a file of predictions: "
                "train again with a file that covers them, or with the member's model folder."
            )
        return rows


def linked(place: Path, copied: bool) -> Link:
    """A link to a model folder or to predictions."""
    if not place.exists():
        raise DataError(f"{place}: no such file or folder. Members must be model folders or files of predictions.")
    if place.is_dir() and not store.is_model(place) and read_answers(place) is None:
        raise DataError(f"{place}: neither a model folder nor a folder of predictions. Pass one of them, or a file.")
    return Link.to(place, copied=copied)


def check_labels_known(member: Member, documents: Dataset) -> None:
    """Raise an error that names the member if it knows none of the documents' labels."""
    try:
        check_known(member.labels, documents)
    except DataError as error:
        raise DataError(f"{member.name}: {error}") from None


def calibrated(method: Method, name: str, labels: Labels, scores: Scores, truth: Csr) -> Calibration:
    """Fit the calibration of a member; errors name the member."""
    try:
        return calibration_of(method, labels, scores, truth)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def answer_batches(
    documents: Dataset | int, answers: Sequence[Answer]
) -> Iterator[tuple[slice, list[Answer], Dataset | None]]:
    """Batches of documents, or of so many: their places, the members' predictions and the documents."""
    count = documents if isinstance(documents, int) else len(documents)
    batches = None if isinstance(documents, int) else documents.batches(base.BATCH)
    for start in range(0, count, base.BATCH):
        place = slice(start, min(start + base.BATCH, count))
        part = [(labels[place], scores[place]) for labels, scores in answers]
        yield place, part, None if batches is None else next(batches)
