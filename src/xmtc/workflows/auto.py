"""Train with a preset: choose the model for the data, or the best combination of models within a time limit."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xmtc import __version__
from xmtc.artifact.workspace import Workspace, log_beside
from xmtc.core.checksum import checksum
from xmtc.core.compile_ahead import compile_ahead
from xmtc.core.config import flat
from xmtc.core.errors import ConfigError, DataError, XmtcError, shown
from xmtc.core.files import replace_file
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.reading import read
from xmtc.data.split_by import SplitBy
from xmtc.data.vocabularies import with_vocabulary
from xmtc.models.base import Model
from xmtc.models.persistence import check_model_target
from xmtc.models.vocabulary import Vocabulary
from xmtc.presets.candidates import Candidate
from xmtc.presets.clock import Clock
from xmtc.presets.distillation import STUDENTS, distil
from xmtc.presets.estimates import create
from xmtc.presets.fast import FastChoice, choose_fast
from xmtc.presets.leaderboard import Leaderboard, PlannedModel, TriedModel
from xmtc.presets.scores import Measure
from xmtc.presets.search import ModelSearch, leaderboard_file
from xmtc.presets.search_data import SearchData, SearchOptions
from xmtc.presets.validation import Validation, given_validation, plan_validation
from xmtc.workflows.requests import PresetOptions, TrainRequest
from xmtc.workflows.train import Documents, data_digest, document_reader, label_digest

__all__ = [
    "FastChoice",
    "Leaderboard",
    "PlannedModel",
    "TriedModel",
    "auto",
    "leaderboard_file",
    "leaderboard_page_file",
    "train_preset",
]

TEACHER_LABELS = 20
"""Labels that the combined models give each text without labels."""
MINUTES = {"good": 10.0, "best": 60.0}
"""Time limit if none is given."""
FEW_DOCUMENTS = 20_000
"""Number of documents up to which all of them are predicted out of fold; of more, a part is held out."""
FOLDS = 5
HELD_OUT, LEAST_HELD_OUT, MOST_HELD_OUT = 0.1, 2000, 10_000
"""Fraction, minimum and maximum of the documents that are held out."""

Event = FastChoice | Leaderboard
Listener = Callable[[Event], None]
"""Receives the choice of `fast`, and the leaderboard of a search when it is planned and when it is complete."""


def _ignore(event: Event) -> None:
    return


def leaderboard_page_file(out: Path) -> Path:
    """The page with the leaderboard, next to the model folder."""
    return out.with_name(f"{out.name}.leaderboard.html")


def train_preset(
    request: TrainRequest,
    *,
    runtime: Runtime | None = None,
    progress: Progress = silent,
    listener: Listener = _ignore,
) -> Model:
    """Read the documents, train with the preset of the request and save the model."""
    runtime = runtime or Runtime()
    compile_ahead("train fast", processes=runtime.threads)
    split_by = None if request.auto.split_by is None else SplitBy.parse(request.auto.split_by)
    reading = request.reading
    documents = document_reader(
        request.train_file,
        request.valid,
        reading,
        request.vocabulary,
        progress,
        split_field=None if split_by is None else split_by.field,
    )
    unlabelled = request.auto.unlabelled
    further = replace(reading.options, labelled=False, ignore_labels=True, split_field=None)
    job = _Job(
        request.auto,
        request.out,
        split_by,
        runtime,
        progress,
        listener,
        request.resume,
        request.force,
        None if unlabelled is None else lambda: read(unlabelled, further, progress=progress),
    )
    return job.run(documents)


def auto(
    documents: Any,
    labels: Any = None,
    *,
    preset: str = "good",
    minutes: float | None = None,
    metric: str = "nDCG@5",
    max_ms: float | None = None,
    max_mb: float | None = None,
    split_by: str | None = None,
    distil: str | None = None,
    encoder: str | Path | None = None,
    unlabelled: Any = None,
    valid: Any = None,
    vocabulary: Vocabulary | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    runtime: Runtime | None = None,
    progress: Progress = silent,
    listener: Listener = _ignore,
) -> Model:
    """Train the best model for these documents that can be found in the time given.

    `preset` is fast (one model, settings chosen by rules and a sample), good (several models, combined; 10 minutes by
    default) or best (also networks, several seeds; 60 minutes). `documents` and `labels` are as in `Model.fit`, `valid`
    a validation set as a Dataset or a pair; without it, some or all documents are predicted out of fold. `out` is the
    model folder to write; next to it are the leaderboard and, during training, a workspace to resume from. `max_ms` and
    `max_mb` limit prediction time per document and size of the model (in MiB). `distil` names a model that is trained
    on what the combination has learnt, also on the texts `unlabelled`. `encoder` is the folder of a pretrained encoder
    that `best` fine-tunes. `listener` receives the plan and the leaderboard.
    """
    options = PresetOptions(
        preset=preset,  # type: ignore[arg-type]
        minutes=minutes,
        metric=metric,
        max_ms=max_ms,
        max_mb=max_mb,
        split_by=split_by,
        distil=distil,
        encoder=None if encoder is None else Path(encoder),
    )
    train = as_dataset(documents, labels)
    checked = None if valid is None else as_dataset(*valid) if isinstance(valid, tuple) else as_dataset(valid)
    if vocabulary is not None:
        train = with_vocabulary(train, vocabulary)

    def given() -> tuple[Dataset, Dataset | None]:
        return train, checked

    place = None if out is not None else tempfile.TemporaryDirectory(prefix="xmtc-")
    folder = Path(out) if place is None else Path(place.name) / "model"  # type: ignore[arg-type]
    by = None if split_by is None else SplitBy.parse(split_by)
    further = None if unlabelled is None else partial(as_dataset, unlabelled)
    job = _Job(options, folder, by, runtime or Runtime(), progress, listener, resume, overwrite, further)
    model = job.run(given)
    if place is not None:
        weakref.finalize(model, place.cleanup)  # a consensus reads its members from there when it is saved
    return model


@dataclass(frozen=True)
class _Job:
    """One training with a preset."""

    options: PresetOptions
    out: Path
    split_by: SplitBy | None
    runtime: Runtime
    progress: Progress
    listener: Listener
    resume: bool
    force: bool
    unlabelled: Callable[[], Dataset] | None = None
    """Reads texts for the combined models to label."""

    def run(self, documents: Documents) -> Model:
        if self.options.distil is not None and self.options.distil not in STUDENTS:
            raise ConfigError(f"--distil must be one of {', '.join(STUDENTS)}. Got '{shown(self.options.distil)}'.")
        if self.options.encoder is not None and not (self.options.encoder / "config.json").is_file():
            raise DataError(f"{self.options.encoder}: no config.json. Pass the folder of a pretrained encoder.")
        if self.runtime.world_size > 1:
            raise ConfigError("a preset runs in a single process. Name a model with --model, or run without torchrun.")
        workspace = self._workspace()
        with workspace.claimed():
            try:
                train, valid = documents()
                unlabelled = None if self.unlabelled is None else self.unlabelled()
                self._check(train, valid, unlabelled)
                workspace.begin(self._fingerprint(train, valid), self.resume)
                model = self._trained(train, valid, unlabelled, workspace)
            except XmtcError:
                if not self.resume:
                    workspace.drop("choice")
                    workspace.remove_if_nothing_finished()
                raise
            workspace.keep_log(log_beside(self.out), replaces=True)
            del model  # its members are in the workspace
            workspace.remove()
        return Model.load(self.out, self.runtime)

    def _workspace(self) -> Workspace:
        work = Workspace.beside(self.out)
        if work.exists() and not (self.resume or self.force):
            raise DataError(
                f"{work}: contains an unfinished training run. Continue with --resume, or start over with --force."
            )
        check_model_target(self.out, self.force or (self.resume and work.exists()), "--force")
        if self.resume and not work.exists():
            raise DataError(f"{work}: does not exist, so there is no training run to resume. Leave out --resume.")
        return Workspace(work)

    def _check(self, train: Dataset, valid: Dataset | None, unlabelled: Dataset | None) -> None:
        """Refuse data that a search could not use, before it starts."""
        if valid is not None:
            self.options.check_with_validation()
        _check_labels(train, valid)
        if unlabelled is not None and unlabelled.has_text != train.has_text:
            raise DataError("documents with and without labels must both be texts, or both feature matrices.")
        if self.split_by is not None:
            self._validation(train, 1)

    def _fingerprint(self, train: Dataset, valid: Dataset | None) -> dict[str, Any]:
        """Inputs and settings that must be equal to resume."""
        return {
            "version of xmtc": __version__,
            "preset": self.options.preset,
            "metric": self.options.metric,
            "encoder": None if self.options.encoder is None else str(self.options.encoder),
            "split": None if self.split_by is None else str(self.split_by),
            "seed": self.runtime.seed,
            "training data": data_digest(train),
            "validation data": None if valid is None else data_digest(valid),
            "labels": label_digest(train.label_index),
        }

    def _trained(
        self, train: Dataset, valid: Dataset | None, unlabelled: Dataset | None, workspace: Workspace
    ) -> Model:
        assert train.labels is not None
        counts = np.bincount(train.labels.indices, minlength=int(train.labels.shape[1]))
        measure = Measure.of(self.options.metric, counts, len(train))
        before = workspace.load("clock")[1]["seconds"] if workspace.has("clock") else 0.0
        limit = self.options.minutes or MINUTES.get(self.options.preset or "")
        clock = Clock(None if limit is None else 60 * limit, before)
        choice = self._first_choice(train, valid, measure, workspace)
        if self.options.preset in (None, "fast"):
            self.listener(choice)
            return self._fast(choice, train, valid, workspace, clock)
        options = SearchOptions(
            self.options.preset,
            measure,
            clock.limit,
            self.options.max_ms,
            self.options.max_mb,
            valid,
            FOLDS if valid is None and len(train) <= FEW_DOCUMENTS else 1,
            self.listener,
            self.options.encoder,
        )

        def divide(folds: int) -> SearchData:
            validation = self._validation(train, folds) if valid is None else given_validation(train, valid)
            return SearchData(train, valid, validation)

        first = Candidate("fast", choice.model, flat(choice.settings), "the choice of the preset fast")
        search = ModelSearch(options, train, divide, first, self.out, workspace, self.runtime, self.progress, clock)
        model = search.run()
        board = search.board
        if self.options.distil is not None:
            self._distil(search, model, choice, train, unlabelled, workspace)
        self._write_page(board)
        self.listener(board)
        return model

    def _first_choice(
        self, train: Dataset, valid: Dataset | None, measure: Measure, workspace: Workspace
    ) -> FastChoice:
        """The choice of the preset `fast`, which all presets start with."""
        if workspace.has("choice"):
            return FastChoice(**_choice_values(workspace.load("choice")[1]))
        choice = choose_fast(train, valid=valid, measure=measure.name, runtime=self.runtime, progress=self.progress)
        workspace.save("choice", {}, _choice_json(choice))
        return choice

    def _fast(
        self, choice: FastChoice, train: Dataset, valid: Dataset | None, workspace: Workspace, clock: Clock
    ) -> Model:
        model = create(Candidate(choice.model, choice.model, choice.settings, ""))
        inner = workspace.inner("training")
        model.fit(train, valid=valid, runtime=self.runtime, progress=self.progress, workspace=inner)
        model.training = {
            **model.training,
            "preset": {"name": "fast", "seconds": round(clock.elapsed, 3), **_choice_json(choice)},
        }
        model.save(self.out, overwrite=True)
        return model

    def _validation(self, train: Dataset, folds: int) -> Validation:
        count = len(train)
        share = min(max(HELD_OUT * count, LEAST_HELD_OUT), MOST_HELD_OUT, count / 3) / max(count, 1)
        return plan_validation(train, folds=folds, fraction=share, seed=self.runtime.seed, split_by=self.split_by)

    def _distil(
        self,
        search: ModelSearch,
        teacher: Model,
        choice: FastChoice,
        train: Dataset,
        unlabelled: Dataset | None,
        workspace: Workspace,
    ) -> None:
        """Train one model on what the combination has learnt, and save it in its place."""
        student = self.options.distil
        assert student is not None
        settings = choice.settings if choice.model == student else {}
        answers = search.teacher()
        inner = workspace.inner("distillation")
        inner.go_on_or_begin(
            {
                "student": student,
                "settings": settings,
                "unlabelled texts": None if unlabelled is None else data_digest(unlabelled),
                "teacher": checksum(answers.labels.tobytes() + answers.scores.tobytes()),
            }
        )
        model = distil(
            train,
            answers,
            student,
            Candidate(student, student, settings, "").plain_settings(),
            unlabelled=None if unlabelled is None else (unlabelled, teacher.predict(unlabelled, TEACHER_LABELS)),
            runtime=self.runtime,
            progress=self.progress,
            workspace=inner,
        )
        model.training = {**model.training, "preset": {**teacher.training["preset"], "distilled": student}}
        model.save(self.out, overwrite=True)

    def _write_page(self, board: Leaderboard) -> None:
        from xmtc.views.leaderboard_page import leaderboard_page

        with replace_file(leaderboard_page_file(self.out)) as stream:
            stream.write(leaderboard_page(board).encode())


def _choice_json(choice: FastChoice) -> dict[str, Any]:
    return {"model": choice.model, "settings": flat(choice.settings), "reasons": list(choice.reasons)}


def _choice_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "reasons": tuple(values["reasons"]), "trials": ()}


def _check_labels(train: Dataset, valid: Dataset | None) -> None:
    if train.labels is None or not train.labels.nnz:
        raise DataError("training requires labels. Pass one list of labels per document.")
    if valid is not None and valid.labels is None:
        raise DataError("validation requires labels. Pass one list of labels per document.")
