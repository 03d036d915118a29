"""Labels for a text or for a file of documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from xmtc.core.errors import ConfigError
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.reading import stream
from xmtc.data.topk import TopK, write_parquet
from xmtc.models.base import Model
from xmtc.workflows.label_filter import Restriction, read_restriction
from xmtc.workflows.requests import PredictRequest

__all__ = ["DocumentPredictor", "TopK", "check_tuned", "predict", "write_parquet"]


def predict(request: PredictRequest, *, runtime: Runtime | None = None, progress: Progress = silent) -> Iterator[TopK]:
    """Labels for the text or for the documents of the file, a batch at a time, as fast as they can be read.

    The model and the label files are read at once; notes on labels that the model does not know go to `progress`.
    """
    predictor = DocumentPredictor(request, Model.load(request.folder, runtime), progress)
    return predictor.answers()


class DocumentPredictor:
    """A loaded model with the labels that it may return."""

    def __init__(self, request: PredictRequest, model: Model, progress: Progress = silent) -> None:
        self.request, self.model, self._progress = request, model, progress
        check_tuned(model, request.folder, request.threshold)
        self.restriction: Restriction = read_restriction(
            model.labels, allow=request.allow, deny=request.deny, candidates=request.candidates
        )
        for line in self.restriction.notes:
            progress.say(line)

    def answers(self) -> Iterator[TopK]:
        """Labels of the text, or of all documents batch by batch."""
        for batch in [self._text()] if self.request.source is None else self.documents():
            yield self.answer(batch)
        self.report()

    def documents(self) -> Iterator[Dataset]:
        """The documents of the file."""
        assert self.request.source is not None
        batches = stream(self.request.source, self.request.reading.options, feature_count=self.model.feature_count)
        candidates = self.restriction.candidates
        yield from batches if candidates is None else candidates.watched(batches)

    def answer(self, batch: Dataset | list[str]) -> TopK:
        """Labels of these documents."""
        candidates = self.restriction.candidates
        return self.model.predict(
            batch,
            self.request.k,
            threshold=self.request.threshold,
            allow=self.restriction.allowed,
            candidates=None if candidates is None or isinstance(batch, list) else candidates.of(batch),
        )

    def report(self) -> None:
        """Say which documents had no candidates, once all have been seen."""
        if self.restriction.candidates is not None and (note := self.restriction.candidates.note()):
            self._progress.say(note)

    def _text(self) -> list[str]:
        return [self.request.text or ""]


def check_tuned(model: Model, folder: Path, threshold: float | str | None) -> None:
    """Refuse 'auto' where no threshold was tuned."""
    if threshold == "auto" and model.decisions.thresholds is None:
        raise ConfigError(f"{folder}: no threshold was tuned for this model. Do so with: xmtc calibrate {folder} VALID")
