"""The verbs that the command line and the server call: train, predict, evaluate, compare, explain."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from xmtc import __version__, bulk, config, store
from xmtc.bulk import Written
from xmtc.data import lf, lines, matrices
from xmtc.data.formats import detected, format_to_write, named_format, write
from xmtc.data.reading import read, stream
from xmtc.data.records import ReadOptions
from xmtc.data.splitting import split
from xmtc.data.vocabularies import read_vocabulary, write_vocabulary
from xmtc.dataset import Dataset
from xmtc.errors import ConfigError, DataError, MissingExtraError, XmtcError
from xmtc.evaluation import Evaluation, Scope, Training, judge, judge_file, most_filtered
from xmtc.explanation import Explanation
from xmtc.files import COMPRESSED, make_folder
from xmtc.metrics import Interval, bootstrap_difference
from xmtc.models.base import Model
from xmtc.progress import Progress, silent
from xmtc.recipes import find_recipe
from xmtc.registry import MODELS, model_class, preferred
from xmtc.restrict import EVERYTHING, Restriction
from xmtc.runtime import Runtime
from xmtc.store import Workspace
from xmtc.text.cache import content_hash
from xmtc.topk import TopK


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
) -> Plan:
    """Settle model and settings (default < recipe < given) and refuse what would overwrite work."""
    recipe_name, recipe_settings = (None, {}) if recipe is None else config.read_recipe(find_recipe(recipe))
    if name and recipe_name and name != recipe_name:
        raise ConfigError(f"{recipe}: is a recipe for {recipe_name}, not for {name}. Leave out one of them.")
    model = model_class(name or recipe_name or preferred())(**config.merge(recipe_settings, settings or {}))
    out = Path(out)
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

    `begun` is called when everything is read and found fit to train on.
    """
    runtime = runtime or Runtime()
    workspace = Workspace(Workspace.beside(decided.out))
    workspace.claim()
    try:
        documents = read(
            *(train_file, options),
            vocabulary=vocabulary,
            language=language,
            unknown_labels=unknown_labels,
            progress=progress,
        )
        valid = None if valid_file is None else read(valid_file, options, progress=progress)
        for path, part in ((train_file, documents), (valid_file, valid)):
            if part is not None and (part.labels is None or part.labels.nnz == 0):
                raise DataError(f"{path}: no document has a label. Check the label field.")
        workspace.begin(_fingerprint(decided.model, documents, valid, runtime), decided.resume)
        begun()
        decided.model.fit(documents, valid=valid, runtime=runtime, progress=progress, workspace=workspace)
        decided.model.save(decided.out)
    except XmtcError:
        if not decided.resume:
            workspace.remove_if_nothing_finished()
        raise
    workspace.remove()
    return decided.model


def _fingerprint(model: Model, documents: Dataset, valid: Dataset | None, runtime: Runtime) -> dict[str, Any]:
    """What must be equal for finished parts of an earlier run to be parts of this one."""
    return {
        "version of xmtc": __version__,
        "model": model.name,
        "settings": config.to_mapping(model.config),
        "seed": runtime.seed,
        "training data": _digest(documents),
        "validation data": None if valid is None else _digest(valid),
    }


def _digest(documents: Dataset) -> str:
    digest = hashlib.blake2b(digest_size=16)
    if documents.has_text:
        digest.update(content_hash(documents.text()).encode())
    for matrix in (documents.features, documents.labels):
        if matrix is not None:
            for array in (matrix.indptr, matrix.indices, matrix.data):
                digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def predict(
    model: Model,
    source: str | Path,
    k: int = 5,
    *,
    options: ReadOptions | None = None,
    restriction: Restriction = EVERYTHING,
) -> Iterator[TopK]:
    """Answers for a file (or '-') a batch at a time, as fast as it can be read."""
    for batch in _documents(model, source, options, restriction):
        yield _answer(model, batch, k, restriction)


def predict_parts(
    model: Model,
    folder: str | Path,
    source: str | Path,
    out: str | Path,
    k: int = 5,
    *,
    size: int,
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
    bulk.check_folder(Path(out), resume=resume, force=force)
    made_of = {
        "version of xmtc": __version__,
        "model": bulk.content_hash(Path(folder) / store.MANIFEST),
        "input": None if str(source) == "-" else bulk.content_hash(source),
        "input format": None if options is None else options.file_format,
        "text fields": None if options is None or options.text_fields is None else list(options.text_fields),
        "id field": None if options is None else options.id_field,
        "bad lines": "skip" if options is not None and options.bad_lines.skip else "refuse",
        "k": k,
        **{name: None if path is None else bulk.content_hash(path) for name, path in restriction.files.items()},
        "part size": size,
    }
    return bulk.write_parts(
        Path(out),
        size,
        made_of,
        _documents(model, source, options, restriction),
        lambda batch: _answer(model, batch, k, restriction),
        resume=resume,
        force=force,
        progress=progress,
    )


def _answer(model: Model, batch: Dataset, k: int, restriction: Restriction) -> TopK:
    given = None if restriction.candidates is None else restriction.candidates.of(batch)
    return model.predict(batch, k, allow=restriction.allowed, candidates=given)


def _documents(
    model: Model, source: str | Path, options: ReadOptions | None, restriction: Restriction
) -> Iterator[Dataset]:
    try:
        batches = stream(source, options, feature_count=model.feature_count)
        yield from batches if restriction.candidates is None else restriction.candidates.watched(batches)
    except DataError as error:
        if str(source) != "-":
            raise
        raise DataError(f"standard input{str(error).removeprefix('-')}") from None


def evaluate(
    model: Model, test: Dataset, scope: Scope | None = None, *, progress: Progress = silent, **how: Any
) -> Evaluation:
    """All measures of a model on test documents; `how` are fields of `Scope`, such as unknown_labels="drop"."""
    scope = replace(scope or Scope(), **how)
    if test.labels is None:
        raise DataError("the test documents have no labels to hold answers against. Give them labels.")
    started = time.perf_counter()
    predictions = model.predict(test, scope.depth + most_filtered(scope, test), progress=progress)
    seconds = time.perf_counter() - started
    training = Training(model.labels, model.label_counts, int(model.training["documents"]))
    return judge(predictions, test, scope, training=training, scorer=model, seconds=seconds)


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
    test = read_test(test_file, options, progress=progress)
    train = None if train_file is None else read(train_file, options, progress=progress)
    labels = None if vocabulary is None else read_vocabulary(vocabulary, numbered=True).index
    if labels is None and ((options and options.file_format) or detected(test_file)) == "lf":
        beside = lf.labels_beside(test_file)
        labels = None if beside is None else lf.read_label_texts(beside)
    return judge_file(path, test, scope or Scope(), train=train, file_format=predictions_format, labels=labels)


def convert_file(
    source: str | Path,
    target: str | Path,
    *,
    to: str | None = None,
    lossy: bool = False,
    vocabulary: str | Path | None = None,
    language: str | None = None,
    unknown_labels: str = "refuse",
    force: bool = False,
    options: ReadOptions | None = None,
    progress: Progress = silent,
) -> tuple[int, int]:
    """Documents in another format; returns their number, and how often characters had to be replaced."""
    documents = read(
        *(source, options),
        labelled=False,
        vocabulary=vocabulary,
        language=language,
        unknown_labels=unknown_labels,
        progress=progress,
    )
    refuse_taken(Path(target), format_to_write(Path(target), documents, to).name, force)
    with progress.task(f"writing {Path(target).name}") as task:
        changed = write(documents, target, file_format=to, lossy=lossy)
        task.advance(len(documents))
    return len(documents), changed


def refuse_taken(target: Path, file_format: str, force: bool) -> None:
    """Refuse to write where something is already, be it only the file of labels that goes beside the documents."""
    for place in _written(target, file_format):
        taken = place.is_file() or (place.is_dir() and any(place.iterdir()))  # a device has nothing to lose
        if taken and not force:
            raise DataError(f"{place}: is there already. Choose another name, or replace it with --force.")


def _written(target: Path, file_format: str) -> list[Path]:
    """The files that documents go to: one, or one more for their labels."""
    beside = {"attentionxml": lines.labels_beside, "npz": matrices.labels_beside}.get(file_format)
    found = None if beside is None else beside(target)
    return [target] if found is None else [target, found]


def convert_vocabulary(source: str | Path, target: str | Path, language: str | None = None) -> int:
    """A label vocabulary as JSONL or TSV; returns the number of labels."""
    vocabulary = read_vocabulary(source, language=language)
    write_vocabulary(vocabulary, target)
    return len(vocabulary.index)


def split_file(
    source: str | Path,
    out: str | Path,
    *,
    test: float = 0.2,
    valid: float = 0.0,
    seed: int = 0,
    together: bool = True,
    to: str | None = None,
    lossy: bool = False,
    force: bool = False,
    options: ReadOptions | None = None,
    progress: Progress = silent,
) -> dict[Path, tuple[int, int]]:
    """Parts of a file in a folder, in the file's own format unless `to` names one.

    Returns of each file the number of documents, and how often characters had to be replaced.
    """
    out = Path(out)
    file_format = (options.file_format if options else None) or detected(source)
    form = named_format(to or file_format, source)
    packed = next((ending for ending in COMPRESSED if str(source).endswith(ending)), "")
    ending = packed if form.name not in ("parquet", "npz", "annif-folder") else ""
    documents = read(source, options, progress=progress)
    rows = split(documents, test, valid, seed, together=together)
    places = {name: out / (form.part_name.format(name) + ending) for name in rows}
    for place in places.values():
        refuse_taken(place, form.name, force)
    new = [path for place in places.values() for path in _written(place, form.name) if not path.exists()]
    new += [] if out.exists() else [out]
    make_folder(out)
    written = {}
    try:
        with progress.task(f"writing to {out}", total=len(documents)) as task:
            for name, place in places.items():
                changed = write(documents.take(rows[name]), place, file_format=form.name, lossy=lossy)
                written[place] = len(rows[name]), changed
                task.advance(len(rows[name]))
    except XmtcError:  # all of the parts or none of them
        for path in new:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        raise
    return written


def explain(folder: str | Path, text: str, label: str, runtime: Runtime | None = None) -> Explanation:
    """Why the model in this folder gives this text this label."""
    return Model.load(folder, runtime).explain(text, label)


def verify(folder: str | Path) -> list[tuple[str, int]]:
    """Every byte of a model folder against the hashes in model.json, then a load."""
    checked = store.verify_folder(Path(folder))
    Model.load(folder)
    return checked


def describe_models() -> list[tuple[str, str, str]]:
    """(name, what it can do, first line of its description, or what it needs that is not installed) of every model."""
    rows = []
    for name in MODELS:
        try:
            kind = model_class(name)
        except MissingExtraError as error:
            rows.append((name, "–", str(error)))
        else:
            rows.append((name, ", ".join(sorted(kind.can)), (kind.__doc__ or "").splitlines()[0]))
    return rows
