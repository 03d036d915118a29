"""A saved model learns from files of new documents, in its place or into another folder, at once or not at all."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
from xmtc.data.records import ReadOptions
from xmtc.models.base import Model
from xmtc.models.update import MARGIN
from xmtc.workflows import data_digest, read_labelled
from xmtc.workflows.label_filter import read_labels

_EXAMPLE = "old key, a tab, new key"


@dataclass(frozen=True)
class UpdateFiles:
    """What an update is made of; each may be missing, but not all that changes anything."""

    new: Path | None = None
    valid: Path | None = None
    replay: Path | None = None
    retire: Path | None = None
    """Labels that go, in any form of a label file."""
    merge: Path | None = None
    """Lines of a label, a tab and the label that it becomes."""


def update(
    folder: str | Path,
    files: UpdateFiles,
    *,
    out: str | Path | None = None,
    options: ReadOptions | None = None,
    vocabulary: str | Path | None = None,
    language: str | None = None,
    unknown_labels: str = "refuse",
    margin: float = MARGIN,
    force: bool = False,
    runtime: Runtime | None = None,
    progress: Progress = silent,
) -> Model:
    """Update a saved model and save it again, in its place where `out` names no other.

    Finished parts lie beside the folder until then; the same update that is asked for again goes on with them.
    """
    folder, runtime = Path(folder), runtime or Runtime()
    place = folder if out is None else Path(out)
    _check(folder, place, files, margin, force, runtime)
    workspace = Workspace(Workspace.beside(place, ".update"))
    with workspace.claimed():
        try:
            model = Model.load(folder, runtime)
            how = {"vocabulary": vocabulary, "language": language, "unknown_labels": unknown_labels}
            new, valid, replay = (
                None if path is None else _documents(path, model, options, progress, **how)
                for path in (files.new, files.valid, files.replay)
            )
            retire, merge = _retired(model.labels, files.retire, options), _merged(model.labels, files.merge)
            learnt = _what_is_learnt(new, retire, merge)
            if model.history and model.history[-1].get("content") == learnt and not force:
                raise DataError(
                    f"{folder}: has learnt this in its last update ({model.history[-1]['date']}), which is complete. "
                    "Nothing is left to do; --force learns it again."
                )
            workspace.go_on_or_begin(
                {
                    "version of xmtc": __version__,
                    "model": content_of(folder),
                    "seed": runtime.seed,
                    "documents": [None if part is None else _digest(part) for part in (new, valid, replay)],
                    "label files": [
                        None if path is None else content_hash(path) for path in (files.retire, files.merge)
                    ],
                }
            )
            model.update(
                new,
                valid=valid,
                replay=replay,
                retire=retire,
                merge=merge,
                margin=margin,
                force=force,
                runtime=runtime,
                progress=progress,
                workspace=workspace,
            )
            model.history[-1]["content"] = learnt
            model.save(place)
        except RefusedError:
            workspace.remove()
            raise
        except XmtcError:  # what is finished is worth keeping: a disk may have been full
            workspace.remove_if_nothing_finished()
            raise
        workspace.remove()
    return model


def _check(folder: Path, place: Path, files: UpdateFiles, margin: float, force: bool, runtime: Runtime) -> None:
    store.read_manifest(folder)
    if files.new is None and files.retire is None and files.merge is None:
        raise ConfigError("there is nothing to learn from. Name a file of new documents, --retire or --merge.")
    if not margin >= 0:
        raise ConfigError(f"the margin must be a number ≥ 0. Got {margin:g}.")
    if runtime.world_size > 1:
        raise ConfigError("an update is the work of one process. Run it without torchrun.")
    if place.exists() and not place.is_dir():
        raise DataError(f"{place}: is a file. Name a folder to put the model in.")
    if not place.exists() or place.resolve() == folder.resolve():
        return
    if store.is_model(place) and not force:
        raise DataError(f"{place}: holds a model already. Choose another folder, or replace it with --force.")
    if not store.is_model(place) and any(not store.is_own(path) for path in place.iterdir()):
        raise DataError(f"{place}: holds other files. Choose a new or empty folder.")


def _documents(
    path: Path, model: Model, options: ReadOptions | None, progress: Progress, **how: str | Path | None
) -> Dataset:
    options = replace(options or ReadOptions(), feature_count=model.feature_count)
    return read_labelled([path], options, progress=progress, **how)[0]


def _digest(documents: Dataset) -> str:
    """A hash of documents and of what their labels are called: by key they are the model's."""
    assert documents.label_index is not None
    keys = hashlib.blake2b("\0".join(documents.label_index.keys).encode(), digest_size=16).hexdigest()
    return f"{data_digest(documents)} {keys}"


def _what_is_learnt(new: Dataset | None, retire: Sequence[str], merge: Mapping[str, str]) -> str:
    """A hash of what an update brings, by which it is known when it is asked for again."""
    parts = ["" if new is None else _digest(new), *retire, "", *(f"{old}\t{target}" for old, target in merge.items())]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def _retired(labels: LabelIndex, path: Path | None, options: ReadOptions | None) -> list[str]:
    """Keys of the labels that a file means, by key or by name."""
    if path is None:
        return []
    notes: list[str] = []
    mask = read_labels(labels, path, notes, with_deprecated=True)
    if options is not None:
        options.notes.extend(notes)
    return labels.strings("key", mask.nonzero()[0])


def _merged(labels: LabelIndex, path: Path | None) -> Mapping[str, str]:
    """Key → key of what each becomes; both may be told by name, and the latter may be new."""
    found: dict[str, str] = {}
    if path is None:
        return found
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
                raise DataError(f"{path}:{number}: not two labels and a tab between them. Write: {_EXAMPLE}.")
            old, new = (part if part in known else by_name.get(part, part) for part in parts)
            if old not in known:
                raise DataError(f"{path}:{number}: label '{shown(parts[0])}' is not one of the model. Check its key.")
            if found.setdefault(old, new) != new:
                raise DataError(f"{path}:{number}: label '{shown(parts[0])}' becomes two others. Keep one of them.")
    if not found:
        raise DataError(f"{path}: no labels in it. Write: {_EXAMPLE}.")
    return found
