"""Batch prediction into a folder of Parquet parts. Each part is written atomically, so an interrupted run can resume.

`_answers.json` is written before the first part and records the inputs; a run resumes only with the same inputs. It is
marked complete once the last part is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from xmtc import __version__
from xmtc.artifact.dependencies import content_of
from xmtc.core.errors import ConfigError, DataError, XmtcError
from xmtc.core.files import (
    check_output_folder,
    content_hash,
    locked,
    make_folder,
    replace_file,
    sync_folder,
    write_json,
)
from xmtc.core.progress import Progress, Task, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.topk import ANSWERS, FORMAT, TopK, part_name, read_answers, write_parquet
from xmtc.models.base import PLACES
from xmtc.workflows.loading import load_model
from xmtc.workflows.predict import DocumentPredictor
from xmtc.workflows.requests import BatchPredictRequest, VocabularyFilterOptions

_PART = re.compile(r"^part-\d{5,}\.parquet$")
_TEMPORARY = re.compile(r"^\.(?:part-\d{5,}\.parquet|_answers\.json)\.[0-9a-f]{8}\.part$")


class Written(NamedTuple):
    """Number of documents and parts in a folder of predictions."""

    documents: int
    parts: int


def batch_predict(
    request: BatchPredictRequest, *, runtime: Runtime | None = None, progress: Progress = silent
) -> Written:
    """Predict labels for a file (or '-') and write Parquet parts with a fixed number of documents each.

    `resume` continues an interrupted run. Standard input cannot be read again and has to start over.
    """
    out, size, resume, force = request.out, request.batch.parts, request.batch.resume, request.batch.force
    assert out is not None
    assert size is not None
    check_folder(out, resume=resume, force=force)
    predictor = DocumentPredictor(request.predict, load_model(request.predict.folder, runtime, "predict"), progress)
    written = write_parts(
        out,
        size,
        _inputs(request, predictor),
        predictor.documents(),
        predictor.answer,
        resume=resume,
        force=force,
        progress=progress,
    )
    predictor.report()
    return written


def _inputs(request: BatchPredictRequest, predictor: DocumentPredictor) -> dict[str, Any]:
    """Inputs and settings that must be equal for a run to resume."""
    predict, options = request.predict, request.predict.reading.options
    return {
        "version of xmtc": __version__,
        "model": content_of(predict.folder),
        "input": None if predict.source in (None, "-") else content_hash(predict.source),
        "input format": options.file_format,
        "text fields": None if options.text_fields is None else list(options.text_fields),
        "id field": options.id_field,
        "bad lines": "skip" if options.bad_lines.skip else "refuse",
        "k": PLACES if predict.k is None and predict.threshold is None else predict.k,
        "threshold": predict.threshold,
        **{name: None if path is None else content_hash(path) for name, path in predictor.restriction.files.items()},
        "selected labels": _selected_labels(predict.vocabulary),
        "hierarchy": None if predict.hierarchy == "keep" else predict.hierarchy,
        "part size": request.batch.parts,
    }


def _selected_labels(options: VocabularyFilterOptions) -> dict[str, Any] | None:
    """The conditions on the vocabulary; None without any, as in folders written before they existed."""
    conditions = {
        "under": list(options.under),
        "scheme": list(options.scheme),
        "collection": list(options.collection),
        "type": list(options.label_type),
        "used": options.used,
    }
    return {name: value for name, value in conditions.items() if value not in ([], None)} or None


def check_folder(folder: Path, *, resume: bool = False, force: bool = False) -> None:
    """Refuse to overwrite predictions or files that xmtc did not write."""
    begun = is_begun(folder)  # without a manifest, parts are foreign files: it is written first and deleted last

    def is_own(path: Path) -> bool:
        own = path.name == ANSWERS or _TEMPORARY.match(path.name) or (begun and _PART.match(path.name))
        return bool(own)

    check_output_folder(folder, is_own, "for the parts")
    if force:
        return
    manifest = read_answers(folder)
    if manifest is None:
        if resume:
            raise DataError(f"{folder}: no unfinished predictions to resume. Leave out --resume.")
    elif manifest["complete"]:
        count = f"{manifest['documents']:,} documents"
        raise DataError(f"{folder}: already complete ({count}). Choose another folder, or start over with --force.")
    elif not resume:
        raise DataError(
            f"{folder}: contains unfinished predictions. Continue with --resume, or start over with --force."
        )


def write_parts(
    folder: Path,
    size: int,
    made_of: Mapping[str, Any],
    documents: Iterable[Dataset],
    answer: Callable[[Dataset], TopK],
    *,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> Written:
    """Predict all documents and write the predictions in parts of `size` documents.

    With `resume`, existing parts are counted and not computed again; missing ones are written.
    """
    check_folder(folder, resume=resume, force=force)
    fresh = not folder.exists()
    make_folder(folder)
    with locked(folder, "another process is writing there. Wait for it, or choose another folder."):
        check_folder(folder, resume=resume, force=force)  # another run may have ended meanwhile
        try:
            _begin(folder, dict(made_of), resume)
            written = _write(folder, size, documents, answer, progress)
        except XmtcError:
            if not resume and not finished_parts(folder):  # leave no files that would block the next attempt
                _remove(folder)
                if fresh:
                    with suppress(OSError):
                        folder.rmdir()
            raise
        write_json(folder / ANSWERS, _manifest(made_of, complete=True, **written._asdict()))
    return written


def is_begun(folder: Path) -> bool:
    """Whether the folder contains a manifest of predictions, complete or not."""
    return (folder / ANSWERS).is_file()


def finished_parts(folder: Path) -> int:
    """Number of parts in the folder."""
    return sum(_PART.match(path.name) is not None for path in folder.iterdir()) if folder.is_dir() else 0


def _manifest(made_of: Mapping[str, Any], complete: bool = False, **counts: int) -> dict[str, Any]:
    return {"format": FORMAT, "complete": complete, **counts, "made_of": dict(made_of)}


def _begin(folder: Path, made_of: dict[str, Any], resume: bool) -> None:
    if resume:
        before = dict((read_answers(folder) or {}).get("made_of", {}))
        if not before:
            raise DataError(f"{folder}: interrupted while old parts were being deleted. Start over with --force.")
        changed = [name for name in {**made_of, **before} if made_of.get(name) != before.get(name)]
        if changed:
            raise ConfigError(
                f"{folder}: cannot be resumed; changed since the run started: {', '.join(changed)}. "
                "Pass the same files and settings, or start over with --force."
            )
        _remove(folder, _TEMPORARY)
        return
    if (folder / ANSWERS).exists():
        # Clear the inputs first: a run killed while it deletes the old parts must not be resumed.
        write_json(folder / ANSWERS, _manifest({}))
        _remove(folder, _PART)
    _remove(folder, _TEMPORARY)
    sync_folder(folder)
    write_json(folder / ANSWERS, _manifest(made_of))


def _remove(folder: Path, kind: re.Pattern[str] | None = None) -> None:
    """Delete the files of one kind, or all files of a batch prediction."""
    kinds = (_PART, _TEMPORARY) if kind is None else (kind,)
    for path in folder.iterdir():
        if any(pattern.match(path.name) for pattern in kinds):
            path.unlink(missing_ok=True)
    if kind is None:
        (folder / ANSWERS).unlink(missing_ok=True)


def _write(
    folder: Path, size: int, documents: Iterable[Dataset], answer: Callable[[Dataset], TopK], progress: Progress
) -> Written:
    count = parts = 0
    with progress.task("predicting") as task:
        for pieces in _in_parts(documents, size):
            path = folder / part_name(parts)
            if path.exists():
                rows = sum(len(piece) for piece in pieces)
                _check_part(path, rows)
                task.advance(rows)
            else:
                with replace_file(path) as stream:
                    rows = write_parquet(_answered(pieces, answer, task), stream)
            count, parts = count + rows, parts + 1
    if finished_parts(folder) > parts:
        raise DataError(f"{folder}: contains parts beyond the last document. Start over with --force.")
    return Written(count, parts)


def _answered(pieces: Iterable[Dataset], answer: Callable[[Dataset], TopK], task: Task) -> Iterator[TopK]:
    for piece in pieces:
        yield answer(piece)
        task.advance(len(piece))


def _in_parts(batches: Iterable[Dataset], size: int) -> Iterator[Iterator[Dataset]]:
    """Regroup batches into parts of `size` documents. Consume each part before requesting the next."""
    source = iter(batches)
    rest = next(source, None)

    def more() -> bool:
        """Whether documents are left. Reads the source lazily, so a part is finished before the next batch is read."""
        nonlocal rest
        while rest is not None and not len(rest):
            rest = next(source, None)
        return rest is not None

    def pieces() -> Iterator[Dataset]:
        nonlocal rest
        wanted = size
        while wanted and more():
            assert rest is not None
            piece = rest.slice(0, wanted)
            rest = rest.slice(len(piece), len(rest))
            wanted -= len(piece)
            yield piece

    while more():
        yield pieces()


def _check_part(path: Path, rows: int) -> None:
    """Check the row count of a part of an earlier run; its contents are not read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        count = pq.read_metadata(path).num_rows
    except (pa.ArrowException, OSError, ValueError):
        raise DataError(f"{path}: not a readable Parquet file. Delete it and use --resume.") from None
    if count != rows:
        raise DataError(f"{path}: contains {count:,} documents, expected {rows:,}. Delete it and use --resume.")
