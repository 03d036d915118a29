"""Predict the labels of a text or of a file of documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from xmtc.core.errors import ConfigError, DataError
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.reading import stream
from xmtc.data.topk import TopK, write_parquet
from xmtc.labels.hierarchy import Hierarchy
from xmtc.labels.redundancy import no_hierarchy
from xmtc.models.base import Model
from xmtc.workflows.label_details import LabelDetails
from xmtc.workflows.label_filter import FEW, Restriction, few, read_restriction, vocabulary_filter
from xmtc.workflows.loading import load_model
from xmtc.workflows.requests import PredictRequest

__all__ = ["DocumentPredictor", "TopK", "check_tuned", "predict", "write_parquet"]


def predict(request: PredictRequest, *, runtime: Runtime | None = None, progress: Progress = silent) -> Iterator[TopK]:
    """Predict the labels of the text, or of the documents of the file batch by batch while they are read.

    The model and the label files are read immediately; notes on unknown labels go to `progress`.
    """
    model = load_model(request.folder, runtime, "tag" if request.source is None else "predict")
    predictor = DocumentPredictor(request, model, progress)
    return predictor.answers()


class DocumentPredictor:
    """A loaded model with a restriction of the labels it may return."""

    def __init__(self, request: PredictRequest, model: Model, progress: Progress = silent) -> None:
        self.request, self.model, self._progress = request, model, progress
        check_tuned(model, request.folder, request.threshold)
        if request.hierarchy != "keep" and not Hierarchy.of(model.labels):
            raise DataError(no_hierarchy("leave out --hierarchy"))
        counted = model.counted()
        self.restriction: Restriction = read_restriction(
            model.labels,
            allow=request.allow,
            deny=request.deny,
            candidates=request.candidates,
            vocabulary=vocabulary_filter(request.vocabulary),
            counts=None if counted is None else counted[0],
        )
        self._details = None
        if request.details:
            self._details = LabelDetails(model.labels, None if counted is None else counted[0])
        for line in self.restriction.notes:
            progress.say(line)
        self._documents = self._without_known_words = 0
        self._first_without: list[str] = []

    def answers(self) -> Iterator[TopK]:
        """Predict the labels of the text, or of all documents batch by batch."""
        for batch in [self._text()] if self.request.source is None else self.documents():
            yield self.answer(batch)
        self.report()

    def documents(self) -> Iterator[Dataset]:
        """Iterate over the documents of the file in batches."""
        assert self.request.source is not None
        batches = stream(self.request.source, self.request.reading.options, feature_count=self.model.feature_count)
        candidates = self.restriction.candidates
        yield from batches if candidates is None else candidates.watched(batches)

    def answer(self, batch: Dataset | list[str]) -> TopK:
        """Predict the labels of these documents."""
        candidates = self.restriction.candidates
        answer = self.model.predict(
            batch,
            self.request.k,
            threshold=self.request.threshold,
            allow=self.restriction.allowed,
            candidates=None if candidates is None or isinstance(batch, list) else candidates.of(batch),
            hierarchy=self.request.hierarchy,
        )
        answer.details = self._details
        self._documents += len(answer)
        if answer.known_words is not None and not answer.known_words.all():
            without = np.flatnonzero(~answer.known_words)
            self._without_known_words += len(without)
            self._first_without += [answer.ids[row] for row in without[: FEW + 1 - len(self._first_without)]]
        return answer

    def report(self) -> None:
        """Report documents without candidates or known words, once all documents have been seen."""
        if self.restriction.candidates is not None and (note := self.restriction.candidates.note()):
            self._progress.say(note)
        if self._without_known_words:
            self._progress.say(self._known_words_note())

    def _known_words_note(self) -> str:
        """A note on documents without a known word."""
        sets = self.request.threshold is not None
        if self.request.source is None:
            consequence = "it gets no label" if sets else "the labels do not depend on it"
            return f"the model knows no word of this text, so {consequence}"
        counts = f"{self._without_known_words:,} of {self._documents:,} documents"
        consequence = "get no label" if sets else "get labels that do not depend on their text"
        return f"{counts} have no word that the model knows and {consequence}: {few(self._first_without)}"

    def _text(self) -> list[str]:
        return [self.request.text or ""]


def check_tuned(model: Model, folder: Path, threshold: float | str | None) -> None:
    """Refuse 'auto' if the model has no tuned threshold."""
    if threshold == "auto" and model.decisions.thresholds is None:
        raise ConfigError(f"{folder}: the model has no tuned threshold. Tune one with: xmtc calibrate {folder} VALID")
