"""Train a model on files of documents, or on documents in memory, and save it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from xmtc import __version__
from xmtc.artifact import store
from xmtc.artifact.workspace import FollowerWorkspace, Workspace, log_beside
from xmtc.core import config
from xmtc.core.compile_ahead import compile_ahead
from xmtc.core.errors import ConfigError, DataError, XmtcError
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.reading import read
from xmtc.data.records import ReadOptions
from xmtc.models.base import Model
from xmtc.models.persistence import check_model_target
from xmtc.models.registry import model_class, preferred
from xmtc.recipes import find_recipe
from xmtc.text.cache import content_hash as text_hash
from xmtc.workflows.data_requests import ReadingOptions, VocabularyOptions
from xmtc.workflows.requests import TrainRequest

Documents = Callable[[], tuple[Dataset, Dataset | None]]
"""Returns the training set and the validation set, if there is one."""


def train(
    request: TrainRequest,
    *,
    runtime: Runtime | None = None,
    progress: Progress = silent,
    started: Callable[[Model], None] = lambda model: None,
) -> Model:
    """Read the documents, fit a model and save it.

    While training runs, checkpoints are in a workspace next to the model folder; when it is done, the training log is
    next to it as DIR.log.jsonl. `started` is called with the untrained model once all files are read and checked.
    """
    runtime = runtime or Runtime()
    plan = plan_training(
        request.out,
        name=request.model,
        recipe=request.recipe,
        settings=config.merge(request.settings, config.parse_assignments(request.assignments)),
        resume=request.resume,
        force=request.force,
        follows=runtime.rank > 0,
    )

    compile_ahead(f"train {plan.model.name}", processes=runtime.threads)
    documents = document_reader(request.train_file, request.valid, request.reading, request.vocabulary, progress)
    return train_on(plan, documents, runtime=runtime, progress=progress, started=started)


@dataclass(frozen=True)
class TrainingPlan:
    """A training run that has not started: the model with its resolved settings, and its folder."""

    model: Model
    out: Path
    resume: bool


def plan_training(
    out: str | Path,
    *,
    name: str | None = None,
    recipe: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    force: bool = False,
    follows: bool = False,
) -> TrainingPlan:
    """Resolve model and settings (defaults < recipe < given) and refuse to overwrite existing models.

    A process that `follows` another writes nothing and leaves these checks to the leader.
    """
    recipe_name, recipe_settings = (None, {}) if recipe is None else config.read_recipe(find_recipe(recipe))
    if name and recipe_name and name != recipe_name:
        raise ConfigError(f"{recipe}: is a recipe for {recipe_name}, not for {name}. Leave out --model or --config.")
    model = model_class(name or recipe_name or preferred())(**config.merge(recipe_settings, settings or {}))
    out = Path(out)
    if follows:
        return TrainingPlan(model, out, resume)
    for place in model.made_of():
        if out.resolve() in (place.resolve(), *place.resolve().parents):
            raise DataError(f"{out}: would overwrite {place}, a member of the new model. Choose another folder.")
    work = Workspace.beside(out)
    check_model_target(out, force or (resume and work.exists()), "--force")  # was checked before the interruption
    if work.exists() and not (resume or force):
        raise DataError(
            f"{work}: contains an unfinished training run. Continue with --resume, or start over with --force."
        )
    if resume and not work.exists():
        raise DataError(f"{work}: does not exist, so there is no training run to resume. Leave out --resume.")
    return TrainingPlan(model, out, resume)


def train_on(
    plan: TrainingPlan,
    documents: Documents,
    *,
    runtime: Runtime | None = None,
    progress: Progress = silent,
    started: Callable[[Model], None] = lambda model: None,
) -> Model:
    """Train on documents from any source; they are requested once this process has locked the workspace."""
    runtime = runtime or Runtime()
    leads = runtime.rank == 0
    workspace = (Workspace if leads else FollowerWorkspace)(Workspace.beside(plan.out))
    with workspace.claimed():
        try:
            train_documents, valid = documents()
            workspace.begin(_fingerprint(plan.model, train_documents, valid, runtime), plan.resume)
            started(plan.model)
            plan.model.fit(train_documents, valid=valid, runtime=runtime, progress=progress, workspace=workspace)
            replaces = store.is_model(plan.out)
            if leads:
                plan.model.save(plan.out, overwrite=True)  # checked by the plan
        except XmtcError:
            if not plan.resume:
                workspace.remove_if_nothing_finished()
            raise
        workspace.keep_log(log_beside(plan.out), replaces and not plan.resume)
        workspace.remove()
    return plan.model


def unfinished_training(out: str | Path) -> tuple[Path, bool]:
    """The workspace of an interrupted training run, and whether it contains finished parts of the model."""
    work = Workspace.beside(Path(out))
    return work, any(work.rglob("*.safetensors"))


def is_model(out: Path) -> bool:
    """Whether there is a model in the output folder."""
    return store.is_model(out)


def document_reader(
    train_file: Path,
    valid: Path | None,
    reading: ReadingOptions,
    vocabulary: VocabularyOptions,
    progress: Progress,
    *,
    split_field: str | None = None,
) -> Documents:
    """Return a function that reads the training set and the validation set, if there is one.

    `split_field` is a field of the training documents by which they are to be split.
    """

    def documents() -> tuple[Dataset, Dataset | None]:
        files = [train_file, *([] if valid is None else [valid])]
        train_set, *rest = read_labelled(files, reading.options, vocabulary, progress, split_field)
        return train_set, rest[0] if rest else None

    return documents


def read_labelled(
    files: Sequence[Path],
    options: ReadOptions,
    vocabulary: VocabularyOptions,
    progress: Progress,
    split_field: str | None = None,
) -> list[Dataset]:
    """Read files of labelled documents, all with as many features as the first, which also has the `split_field`."""
    datasets: list[Dataset] = []
    for path in files:
        if datasets and datasets[0].features is not None:
            options = replace(options, feature_count=int(datasets[0].features.shape[1]))
        datasets.append(
            read(
                path,
                options if datasets else replace(options, split_field=split_field),
                vocabulary=vocabulary.labels,
                language=vocabulary.language,
                unknown_labels=vocabulary.unknown_labels,
                progress=progress,
            )
        )
    for path, dataset in zip(files, datasets, strict=True):
        if dataset.labels is None or dataset.labels.nnz == 0:
            of, remedy = "", "the label field"
            if vocabulary.labels is not None and vocabulary.unknown_labels == "drop":
                of, remedy = f" of {vocabulary.labels}", "the label field and the keys of the vocabulary"
            raise DataError(f"{path}: no document has a label{of}. Check {remedy}.")
    return datasets


def _fingerprint(model: Model, documents: Dataset, valid: Dataset | None, runtime: Runtime) -> dict[str, Any]:
    """Inputs and settings that must be equal to resume an earlier run."""
    return {
        "version of xmtc": __version__,
        "model": model.name,
        "settings": config.to_mapping(model.config),
        "seed": runtime.seed,
        "number of processes": runtime.world_size,
        "precision": runtime.precision,
        "training data": data_digest(documents),
        "validation data": None if valid is None else data_digest(valid),
        "labels": label_digest(documents.label_index),
    }


def label_digest(labels: LabelIndex | None) -> str:
    """A hash of labels with their names and hierarchy."""
    digest = hashlib.blake2b(digest_size=16)
    for batch in [] if labels is None else labels.table.to_batches(max_chunksize=4096):
        digest.update(repr(batch.to_pydict()).encode())
    return digest.hexdigest()


def data_digest(documents: Dataset) -> str:
    """A hash of documents with their labels, ids and split values."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update("\0".join(documents.document_ids()).encode())
    if documents.has_text:
        digest.update(text_hash(documents.text()).encode())
    if documents.split_values is not None:
        digest.update(repr(documents.split_values.to_pylist()).encode())
    if documents.partial is not None:
        digest.update(documents.partial.tobytes())
    for matrix in (documents.features, documents.labels, documents.rejected):
        if matrix is not None:
            for array in (matrix.indptr, matrix.indices, matrix.data):
                digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()
