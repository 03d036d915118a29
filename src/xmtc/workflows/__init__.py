"""The verbs that the command line and the server call: train, predict, evaluate, compare, calibrate, explain."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from xmtc import __version__
from xmtc.artifact import store
from xmtc.artifact.dependencies import content_of
from xmtc.artifact.workspace import FollowerWorkspace, Workspace, log_beside
from xmtc.core import config
from xmtc.core.errors import ConfigError, DataError, XmtcError
from xmtc.core.explanation import Explanation
from xmtc.core.files import content_hash
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data import lf
from xmtc.data.dataset import Dataset, check_known
from xmtc.data.formats import detected
from xmtc.data.label_index import LabelIndex
from xmtc.data.reading import read, stream
from xmtc.data.records import ReadOptions
from xmtc.data.topk import TopK
from xmtc.data.vocabularies import read_vocabulary
from xmtc.decisions.calibration import Method
from xmtc.decisions.decision_rules import DEPTH, Decisions
from xmtc.decisions.thresholds import Kind, Measure, Thresholds
from xmtc.metrics import Interval, bootstrap_difference
from xmtc.models.base import DECISIONS, PLACES, Model
from xmtc.models.registry import MODELS, model_class, preferred
from xmtc.recipes import find_recipe
from xmtc.text.cache import content_hash as text_hash
from xmtc.workflows import batch_predict, saved_metrics
from xmtc.workflows.batch_predict import Written
from xmtc.workflows.evaluation import Evaluation, Scope, Training, judge, judge_file, most_filtered
from xmtc.workflows.label_filter import EVERYTHING, Restriction


@dataclass(frozen=True)
class Plan:
    """A training that is decided but not begun: the model with its resolved settings, and where it goes."""

    model: Model
    out: Path
    resume: bool


def plan(
    out: str | Path,
    *,
    name: str | None = None,
    recipe: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    force: bool = False,
    follows: bool = False,
) -> Plan:
    """Settle model and settings (default < recipe < given) and refuse what would overwrite work.

    A process that `follows` another writes nothing, and leaves the refusing to it.
    """
    recipe_name, recipe_settings = (None, {}) if recipe is None else config.read_recipe(find_recipe(recipe))
    if name and recipe_name and name != recipe_name:
        raise ConfigError(f"{recipe}: is a recipe for {recipe_name}, not for {name}. Leave out one of them.")
    model = model_class(name or recipe_name or preferred())(**config.merge(recipe_settings, settings or {}))
    out = Path(out)
    if follows:
        return Plan(model, out, resume)
    for place in model.made_of():
        if out.resolve() in (place.resolve(), *place.resolve().parents):
            raise DataError(f"{out}: would replace {place}, which the model is to be made of. Choose another folder.")
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: is a file. Name a folder to put the model in.")
    if out.is_dir() and not store.is_model(out) and any(not store.is_own(path) for path in out.iterdir()):
        raise DataError(f"{out}: holds other files. Choose a new or empty folder.")
    work = Workspace.beside(out)
    if store.is_model(out) and not force and not (resume and work.exists()):  # what is resumed was allowed before
        raise DataError(f"{out}: holds a model already. Choose another folder, or replace it with --force.")
    if work.exists() and not (resume or force):
        raise DataError(f"{work}: holds an unfinished training. Go on with --resume, or start over with --force.")
    if resume and not work.exists():
        raise DataError(f"{work}: there is no unfinished training to resume. Leave out --resume.")
    return Plan(model, out, resume)


def train(
    decided: Plan,
    train_file: str | Path,
    *,
    valid_file: str | Path | None = None,
    options: ReadOptions | None = None,
    vocabulary: str | Path | None = None,
    language: str | None = None,
    unknown_labels: str = "refuse",
    runtime: Runtime | None = None,
    progress: Progress = silent,
    begun: Callable[[], None] = lambda: None,
) -> Model:
    """Read, fit and save. Until the model folder is complete, finished parts lie in the workspace beside it.

    The log of a complete training lies beside the model folder, as DIR.log.jsonl.
    `begun` is called when everything is read and found fit to train on.
    """

    def documents() -> tuple[Dataset, Dataset | None]:
        files = (train_file, *([] if valid_file is None else [valid_file]))
        found = read_labelled(
            *(files, options),
            vocabulary=vocabulary,
            language=language,
            unknown_labels=unknown_labels,
            progress=progress,
        )
        return found[0], found[1] if len(found) > 1 else None

    return train_on(decided, documents, runtime=runtime, progress=progress, begun=begun)


def train_on(
    decided: Plan,
    documents: Callable[[], tuple[Dataset, Dataset | None]],
    *,
    runtime: Runtime | None = None,
    progress: Progress = silent,
    begun: Callable[[], None] = lambda: None,
) -> Model:
    """`train` on documents from anywhere: those to learn from and, where there are any, those to make choices on.

    They are asked for when the workspace is this process's alone.
    """
    runtime = runtime or Runtime()
    leads = runtime.rank == 0
    workspace = (Workspace if leads else FollowerWorkspace)(Workspace.beside(decided.out))
    with workspace.claimed():
        try:
            train_documents, valid = documents()
            workspace.begin(_fingerprint(decided.model, train_documents, valid, runtime), decided.resume)
            begun()
            decided.model.fit(train_documents, valid=valid, runtime=runtime, progress=progress, workspace=workspace)
            replaces = store.is_model(decided.out)
            if leads:
                decided.model.save(decided.out)
        except XmtcError:
            if not decided.resume:
                workspace.remove_if_nothing_finished()
            raise
        workspace.keep_log(log_beside(decided.out), replaces and not decided.resume)
        workspace.remove()
    return decided.model


def read_labelled(files: Sequence[str | Path], options: ReadOptions | None, **how: Any) -> list[Dataset]:
    """Files of documents with labels, all with as many features as the first."""
    found: list[Dataset] = []
    for path in files:
        if found and found[0].features is not None:
            options = replace(options or ReadOptions(), feature_count=int(found[0].features.shape[1]))
        found.append(read(path, options, **how))
    for path, part in zip(files, found, strict=True):
        if part.labels is None or part.labels.nnz == 0:
            raise DataError(f"{path}: no document has a label. Check the label field.")
    return found


def _fingerprint(model: Model, documents: Dataset, valid: Dataset | None, runtime: Runtime) -> dict[str, Any]:
    """What must be equal for finished parts of an earlier run to be parts of this one."""
    return {
        "version of xmtc": __version__,
        "model": model.name,
        "settings": config.to_mapping(model.config),
        "seed": runtime.seed,
        "number of processes": runtime.world_size,
        "precision": runtime.precision,
        "training data": data_digest(documents),
        "validation data": None if valid is None else data_digest(valid),
    }


def data_digest(documents: Dataset) -> str:
    """A hash of documents, their labels and ids."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update("\0".join(documents.document_ids()).encode())
    if documents.has_text:
        digest.update(text_hash(documents.text()).encode())
    for matrix in (documents.features, documents.labels):
        if matrix is not None:
            for array in (matrix.indptr, matrix.indices, matrix.data):
                digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def predict(
    model: Model,
    source: str | Path,
    k: int | None = None,
    *,
    threshold: float | str | None = None,
    options: ReadOptions | None = None,
    restriction: Restriction = EVERYTHING,
) -> Iterator[TopK]:
    """Answers for a file (or '-') a batch at a time, as fast as it can be read; `threshold` is that of the model."""
    for batch in _documents(model, source, options, restriction):
        yield _answer(model, batch, k, threshold, restriction)


def predict_parts(
    model: Model,
    folder: str | Path,
    source: str | Path,
    out: str | Path,
    k: int | None = None,
    *,
    size: int,
    threshold: float | str | None = None,
    options: ReadOptions | None = None,
    restriction: Restriction = EVERYTHING,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> Written:
    """Answers for a file (or '-') as Parquet parts of `size` documents each; `folder` is where the model lies.

    A run that stopped goes on with `resume`; standard input, which cannot be read again, has to start over.
    """
    if size < 1:
        raise ConfigError(f"the size of parts must be an integer ≥ 1. Got {size}.")
    if resume and str(source) == "-":
        raise ConfigError("standard input cannot be read again. Resume with a file, or start over with --force.")
    batch_predict.check_folder(Path(out), resume=resume, force=force)
    made_of = {
        "version of xmtc": __version__,
        "model": content_of(Path(folder)),
        "input": None if str(source) == "-" else content_hash(source),
        "input format": None if options is None else options.file_format,
        "text fields": None if options is None or options.text_fields is None else list(options.text_fields),
        "id field": None if options is None else options.id_field,
        "bad lines": "skip" if options is not None and options.bad_lines.skip else "refuse",
        "k": PLACES if k is None and threshold is None else k,
        "threshold": threshold,
        **{name: None if path is None else content_hash(path) for name, path in restriction.files.items()},
        "part size": size,
    }
    return batch_predict.write_parts(
        Path(out),
        size,
        made_of,
        _documents(model, source, options, restriction),
        lambda batch: _answer(model, batch, k, threshold, restriction),
        resume=resume,
        force=force,
        progress=progress,
    )


def _answer(
    model: Model, batch: Dataset, k: int | None, threshold: float | str | None, restriction: Restriction
) -> TopK:
    given = None if restriction.candidates is None else restriction.candidates.of(batch)
    return model.predict(batch, k, threshold=threshold, allow=restriction.allowed, candidates=given)


def _documents(
    model: Model, source: str | Path, options: ReadOptions | None, restriction: Restriction
) -> Iterator[Dataset]:
    batches = stream(source, options, feature_count=model.feature_count)
    yield from batches if restriction.candidates is None else restriction.candidates.watched(batches)


def evaluate(
    model: Model, test: Dataset, scope: Scope | None = None, *, progress: Progress = silent, **how: Any
) -> Evaluation:
    """All measures of a model on test documents; `how` are fields of `Scope`, such as unknown_labels="drop"."""
    scope = replace(scope or Scope(), **how)
    if test.labels is None:
        raise DataError("the test documents have no labels to hold answers against. Give them labels.")
    threshold = _threshold(model, scope)
    set_depth = model.set_depth("auto" if scope.threshold is None else scope.threshold)
    depth = scope.depth if threshold is None else max(scope.depth, set_depth)
    started = time.perf_counter()
    predictions = model.predict(test, depth + most_filtered(scope, test), progress=progress)
    seconds = time.perf_counter() - started
    check_known(model.labels, test)
    counted = model.counted()
    training = None if counted is None else Training(model.labels, *counted)
    return judge(
        *(predictions, test, scope),
        training=training,
        scorer=model,
        seconds=seconds,
        threshold=threshold,
        set_depth=set_depth,
    )


def _threshold(model: Model, scope: Scope) -> Thresholds | float | None:
    """What says which labels are in the sets that are measured; None where no sets are."""
    if scope.threshold is None:
        return model.decisions.thresholds
    return model.rule("auto") if scope.threshold == "auto" else float(scope.threshold)


def read_test(
    path: str | Path,
    options: ReadOptions | None = None,
    *,
    model: Model | None = None,
    vocabulary: str | Path | None = None,
    unknown_labels: str = "refuse",
    progress: Progress = silent,
) -> Dataset:
    """Test documents with their labels; a file without a single label is refused.

    A label that a given vocabulary lacks is refused too, or left out with `unknown_labels="drop"`.
    """
    options = replace(options or ReadOptions(), feature_count=None if model is None else model.feature_count)
    test = read(path, options, vocabulary=vocabulary, unknown_labels=unknown_labels, progress=progress)
    if test.labels is None or test.labels.nnz == 0:
        raise DataError(f"{path}: no document has a label, so there is nothing to measure. Check the label field.")
    return test


def compare(
    folders: Sequence[str | Path],
    test_file: str | Path,
    scope: Scope | None = None,
    *,
    options: ReadOptions | None = None,
    runtime: Runtime | None = None,
    progress: Progress = silent,
) -> dict[str, Evaluation]:
    """The same test file through several models, by folder name."""
    models = {str(folder): Model.load(folder, runtime) for folder in folders}
    tests: dict[int | None, Dataset] = {}  # read once, unless models take different numbers of features
    for model in models.values():
        if model.feature_count not in tests:
            tests[model.feature_count] = read_test(test_file, options, model=model, progress=progress)
    return {
        name: evaluate(model, tests[model.feature_count], scope, progress=progress) for name, model in models.items()
    }


def differences(results: Mapping[str, Evaluation], scope: Scope) -> dict[str, dict[str, Interval]]:
    """How far each system is from the first, on the same resamples of the test documents."""
    first, *others = results
    return {
        name: bootstrap_difference(results[name].parts, results[first].parts, scope.bootstrap, seed=scope.seed)
        for name in others
    }


def evaluate_predictions(
    path: str | Path,
    test_file: str | Path,
    scope: Scope | None = None,
    *,
    train_file: str | Path | None = None,
    vocabulary: str | Path | None = None,
    predictions_format: str | None = None,
    options: ReadOptions | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """All measures of a file of predictions; `train_file` gives the label counts that propensities come from."""
    named = None if vocabulary is None else read_vocabulary(vocabulary, numbered=True)
    applied = vocabulary if named is not None and not named.plain else None  # a list only says which number is which
    unknown = "drop" if scope is not None and scope.unknown_labels == "drop" else "refuse"
    test = read_test(test_file, options, vocabulary=applied, unknown_labels=unknown, progress=progress)
    train = None
    if train_file is not None:
        train = read(train_file, options, vocabulary=applied, unknown_labels=unknown, progress=progress)
    labels = None if named is None else named.index
    if named is not None and named.plain:  # line n is the key of label n
        labels = LabelIndex.from_keys(named.index.names)
    elif named is not None and (named.replaced or named.deprecated):
        labels = None  # those in use are not numbered as the lines of the file are
    if named is None and str(test_file) != "-" and ((options and options.file_format) or detected(test_file)) == "lf":
        beside = lf.labels_beside(test_file)
        labels = None if beside is None else lf.read_label_texts(beside)
    return judge_file(path, test, scope or Scope(), train=train, file_format=predictions_format, labels=labels)


def calibrate(
    folder: str | Path,
    valid_file: str | Path | None,
    *,
    method: Method | None = "isotonic",
    threshold: Kind | None = "global",
    measure: Measure | None = None,
    k: int = DEPTH,
    options: ReadOptions | None = None,
    vocabulary: str | Path | None = None,
    unknown_labels: str = "refuse",
    runtime: Runtime | None = None,
    progress: Progress = silent,
) -> Model:
    """Learn from validation documents how a saved model's scores are read, and keep that with it.

    Only this part of the folder is written. With neither method nor threshold it is taken away again, for which no
    documents are needed.
    """
    folder = Path(folder)
    manifest = store.read_manifest(folder)
    model = Model.load(folder, runtime)
    if valid_file is not None:
        how: dict[str, Any] = {"vocabulary": vocabulary, "unknown_labels": unknown_labels, "progress": progress}
        documents = read_test(valid_file, options, model=model, **how)
        check_known(model.labels, documents)
        model.calibrate(documents, method=method, threshold=threshold, measure=measure, k=k, progress=progress)
    elif method is None and threshold is None:
        model.decisions = Decisions()
    else:
        raise ConfigError("calibration needs a file of documents with labels. Name one that was not trained on.")
    state = model.decisions.state() if model.decisions.made else None
    store.replace_part(folder, DECISIONS, state, before=manifest)
    return model


def explain(folder: str | Path, text: str, label: str, runtime: Runtime | None = None) -> Explanation:
    """Why the model in this folder gives this text this label."""
    return Model.load(folder, runtime).explain(text, label)


def verify(folder: str | Path) -> list[tuple[str, int]]:
    """Every byte of a model folder against the hashes in model.json, then a load."""
    checked = store.verify_folder(Path(folder))
    Model.load(folder)
    return checked


def describe_folder(folder: str | Path) -> dict[str, Any]:
    """What model.json says of a saved model: its name, settings, labels, training and updates."""
    manifest = store.read_manifest(Path(folder))
    kind = model_class(manifest["model"])
    default = config.flat(config.to_mapping(kind.Config()))
    settings = config.flat(config.current_names(kind.Config, manifest["settings"]))
    size = sum(int(entry["bytes"]) for entry in manifest["files"].values())
    return {
        "folder": str(folder),
        "model": manifest["model"],
        "labels": int(manifest["labels"]),
        "bytes": size,
        "training": manifest["training"],
        "settings": {name: value for name, value in settings.items() if value != default.get(name)},
        "history": manifest.get("history", []),
        "metrics": saved_metrics.kept(Path(folder)),
    }


def describe_models() -> list[tuple[str, str, str]]:
    """(name, what it can do, first line of its description, or what it needs that is not installed) of every model."""
    rows = []
    for name in MODELS:
        try:
            kind = model_class(name)
        except XmtcError as error:  # an extra that is missing, or a broken plug-in
            rows.append((name, "–", str(error)))
        else:
            what = (kind.__doc__ or name).splitlines()[0]
            plugin = MODELS.plugins.get(name)
            rows.append((name, ", ".join(sorted(kind.capabilities)), f"{what} [{plugin.package}]" if plugin else what))
    return rows
