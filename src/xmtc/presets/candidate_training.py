"""Train a candidate: predictions for documents that it was not trained on, and a model of all documents."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from xmtc.artifact import store
from xmtc.artifact.workspace import Workspace
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.topk import TopK
from xmtc.models.base import Model
from xmtc.presets.candidates import Candidate
from xmtc.presets.clock import TimedProgress
from xmtc.presets.estimates import create
from xmtc.presets.search_data import DEPTH_OF_ANSWERS, SearchData

PREDICTED_AT_ONCE = 2000
"""Documents that are predicted before the time is checked."""


@dataclass(frozen=True)
class CandidateTrainer:
    """Trains candidates; what is finished stays in the workspace."""

    train: Dataset
    valid: Dataset | None
    """Given validation documents, for which the model of all documents predicts."""
    workspace: Workspace
    runtime: Runtime

    def folder(self, candidate: Candidate) -> Path:
        """Where the model of all documents is."""
        inner = self.workspace.inner("members").folder
        assert inner is not None
        return inner / candidate.name

    def is_done(self, candidate: Candidate) -> bool:
        """Whether predictions and model are finished."""
        return self.workspace.has(f"answers-{candidate.name}") and store.is_model(self.folder(candidate))

    def trained(self, candidate: Candidate, watched: TimedProgress) -> Path:
        """The folder of a model of all documents, which is trained unless there is one."""
        folder = self.folder(candidate)
        if not store.is_model(folder):
            inner = self.workspace.inner(f"training-{candidate.name}")
            model = create(candidate)
            model.fit(self.train, valid=self.valid, runtime=self._seeded(candidate), progress=watched, workspace=inner)
            model.save(folder, overwrite=True)
            inner.remove()
        return folder

    def predicted(self, candidate: Candidate, data: SearchData, watched: TimedProgress) -> tuple[TopK, float]:
        """Predictions for the validation documents, by models that were not trained on them, and the seconds taken."""
        part = f"answers-{candidate.name}"
        if not self.workspace.has(part):
            self._predict(candidate, data, part, watched)
        arrays, values = self.workspace.load(part)
        assert self.train.label_index is not None
        return TopK(arrays["labels"], arrays["scores"], self.train.label_index), float(values["predict_seconds"])

    def _seeded(self, candidate: Candidate) -> Runtime:
        return replace(self.runtime, seed=self.runtime.seed + candidate.seed)

    def _predict(self, candidate: Candidate, data: SearchData, part: str, watched: TimedProgress) -> None:
        index = self.train.label_index
        assert index is not None
        labels, scores, seconds = [], [], 0.0
        for learnt, held in data.parts():
            if self.valid is not None:
                model = Model.load(self.trained(candidate, watched), self.runtime)
            else:
                model = create(candidate).fit(learnt, runtime=self._seeded(candidate), progress=watched)
            k = min(DEPTH_OF_ANSWERS, len(model.labels))
            model.predict(held.take(np.arange(min(10, len(held)))), k)  # compiles
            numbers = index.ids(model.labels.table["key"].combine_chunks())
            for start in range(0, len(held), PREDICTED_AT_ONCE):
                watched.check()
                documents = held.slice(start, start + PREDICTED_AT_ONCE)
                started = time.perf_counter()
                answer = model.predict(documents, k)
                seconds += time.perf_counter() - started
                found = np.full((len(documents), DEPTH_OF_ANSWERS), -1, dtype=np.int64)
                given = np.full((len(documents), DEPTH_OF_ANSWERS), -np.inf, dtype=np.float32)
                found[:, : answer.k] = np.where(answer.labels >= 0, numbers[answer.labels], -1)
                given[:, : answer.k] = answer.scores
                labels.append(found)
                scores.append(np.where(found >= 0, given, np.float32(-np.inf)))
            del model
        arrays = {"labels": np.concatenate(labels), "scores": np.concatenate(scores)}
        self.workspace.save(part, arrays, {"predict_seconds": seconds})
