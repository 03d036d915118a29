"""Update a saved model with new documents and labels, in place or into another folder, atomically."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from xmtc import __version__
from xmtc.artifact import store
from xmtc.artifact.dependencies import content_of
from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ConfigError, DataError, RefusedError, XmtcError, shown
from xmtc.core.files import content_hash, decode_line
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.lines import numbered_lines
from xmtc.data.vocabularies import read_vocabulary
from xmtc.models.base import Model
from xmtc.models.persistence import check_model_target
from xmtc.workflows.label_filter import read_labels
from xmtc.workflows.requests import UpdateRequest
from xmtc.workflows.train import data_digest, label_digest, read_labelled

_EXAMPLE = "old key, a tab, new key"


def update(request: UpdateRequest, *, runtime: Runtime | None = None, progress: Progress = silent) -> Model:
    """Update a saved model and save it, in place unless `out` is another folder.

    Finished parts are kept next to the folder until then; running the same update again continues from them.
    """
    runtime = runtime or Runtime()
    _check(request, runtime)
    workspace = Workspace(unfinished_update(request))
    with workspace.claimed():
        try:
            model = _updated(request, runtime, progress, workspace)
            model.save(request.target, overwrite=True)
        except RefusedError:
            workspace.remove()
            raise
        except XmtcError:  # keep finished parts: the disk may just have been full
            workspace.remove_if_nothing_finished()
            raise
        workspace.remove()
    return model


def unfinished_update(request: UpdateRequest) -> Path:
    """The folder with the finished parts of an incomplete update."""
    return Workspace.beside(request.target, ".update")


def _updated(request: UpdateRequest, runtime: Runtime, progress: Progress, workspace: Workspace) -> Model:
    """The updated model, not saved yet."""
    model = Model.load(request.folder, runtime)
    new, valid, replay = (
        None if path is None else _documents(path, request, model, progress)
        for path in (request.new, request.valid, request.replay)
    )
    retire, notes = _retired(model.labels, request.retire)
    request.reading.options.notes.extend(notes)
    merge = _merged(model.labels, request.merge)
    vocabulary = _vocabulary(request, model, new, {*retire, *merge})
    content = _content(new, retire, merge, vocabulary if new is None else None)
    if model.history and model.history[-1].get("content") == content and not request.force:
        used, remedy = "files", "Pass --force to apply them again."
        if new is not None and vocabulary is not None:
            used, remedy = "documents", "Pass --labels without documents, or --force to apply them again."
        last = f"the last update ({model.history[-1]['date']})"
        raise DataError(f"{request.folder}: {last} already used these {used}. {remedy}")
    workspace.go_on_or_begin(
        {
            "version of xmtc": __version__,
            "model": content_of(request.folder),
            "seed": runtime.seed,
            "documents": [None if part is None else _digest(part) for part in (new, valid, replay)],
            "label files": [None if path is None else content_hash(path) for path in (request.retire, request.merge)],
            "vocabulary": label_digest(vocabulary),
        }
    )
    model.update(
        new,
        valid=valid,
        replay=replay,
        retire=retire,
        merge=merge,
        vocabulary=vocabulary,
        margin=request.margin / 100,
        force=request.force,
        runtime=runtime,
        progress=progress,
        workspace=workspace,
    )
    model.history[-1]["content"] = content
    return model


def _check(request: UpdateRequest, runtime: Runtime) -> None:
    store.read_manifest(request.folder)
    if runtime.world_size > 1:
        raise ConfigError("an update runs in a single process. Run it without torchrun.")
    target = request.target
    if target.exists() and target.resolve() == request.folder.resolve():
        return
    check_model_target(target, request.force, "--force")


def _documents(path: Path, request: UpdateRequest, model: Model, progress: Progress) -> Dataset:
    options = replace(request.reading.options, feature_count=model.feature_count)
    (documents,) = read_labelled([path], options, request.vocabulary, progress)
    return documents


def _vocabulary(
    request: UpdateRequest, model: Model, new: Dataset | None, removed: Collection[str]
) -> LabelIndex | None:
    """The labels of the vocabulary, if there is one; the lines of a plain list are names if labels are numbers.

    Labels of the model that it lacks are noted, unless this update removes them.
    """
    options = request.vocabulary
    if options.labels is None:
        return None
    if new is not None and new.whole_vocabulary:
        vocabulary = new.label_index
        assert vocabulary is not None
    else:
        vocabulary = read_vocabulary(options.labels, model.feature_count is not None, language=options.language).index
    if not request.force and (model.labels.ids(vocabulary.table["key"].combine_chunks()) < 0).all():
        counts = f"none of its {len(vocabulary):,} labels is among the model's {len(model.labels):,} labels"
        raise DataError(f"{options.labels}: {counts}. Check the keys, or use --force.")
    absent = np.flatnonzero(vocabulary.ids(model.labels.table["key"].combine_chunks()) < 0)
    missing = [key for key in model.labels.strings("key", absent) if key not in removed]
    if missing:
        some = f"{len(missing):,} of the model's {len(model.labels):,} labels, such as '{shown(missing[0])}'"
        request.reading.options.notes.append(
            f"{options.labels}: lacks or deprecates {some}. They stay in the model; --retire and --merge remove labels"
        )
    return vocabulary


def _digest(documents: Dataset) -> str:
    """A hash of documents and their label keys, which identify the model's labels."""
    documents = documents.used_labels() if documents.whole_vocabulary else documents
    assert documents.label_index is not None
    keys = hashlib.blake2b("\0".join(documents.label_index.keys).encode(), digest_size=16).hexdigest()
    return f"{data_digest(documents)} {keys}"


def _content(
    new: Dataset | None, retire: Sequence[str], merge: Mapping[str, str], vocabulary: LabelIndex | None
) -> str:
    """A hash of an update's contents, by which a repeated update is recognised."""
    parts = ["" if new is None else _digest(new), *retire, "", *(f"{old}\t{target}" for old, target in merge.items())]
    parts += [] if vocabulary is None else ["", label_digest(vocabulary)]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def _retired(labels: LabelIndex, path: Path | None) -> tuple[list[str], list[str]]:
    """Keys of the labels to remove, given by key or name in a file; and notes on labels the model does not have."""
    notes: list[str] = []
    if path is None:
        return [], notes
    mask = read_labels(labels, path, notes, with_deprecated=True)
    return labels.strings("key", mask.nonzero()[0]), notes


def _merged(labels: LabelIndex, path: Path | None) -> Mapping[str, str]:
    """Old key → new key of labels to merge or rename; both may be given by name, and the new one may not exist yet."""
    merges: dict[str, str] = {}
    if path is None:
        return merges
    names = Counter(labels.names)
    by_name = {name: key for key, name in zip(labels.keys, labels.names, strict=True) if names[name] == 1}
    known = set(labels.keys)
    for lines in numbered_lines(path):
        for number, line in lines:
            text = decode_line(line, path, number).strip("\r\n")
            if not text.strip():
                continue
            parts = [part.strip() for part in text.split("\t")]
            if len(parts) != 2 or not all(parts):
                raise DataError(f"{path}:{number}: expected two labels separated by a tab. Write: {_EXAMPLE}.")
            old, new = (part if part in known else by_name.get(part, part) for part in parts)
            if old not in known:
                raise DataError(f"{path}:{number}: the model has no label '{shown(parts[0])}'. Check its key.")
            if merges.setdefault(old, new) != new:
                raise DataError(
                    f"{path}:{number}: label '{shown(parts[0])}' is merged into two labels. Remove one of the lines."
                )
    if not merges:
        raise DataError(f"{path}: contains no labels. Write: {_EXAMPLE}.")
    return merges
