"""Convert documents and vocabularies to other formats, and split files of documents."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from xmtc.core.errors import DataError, XmtcError
from xmtc.core.files import COMPRESSED, make_folder
from xmtc.core.progress import Progress, silent
from xmtc.data.annif import is_text_folder
from xmtc.data.dataset import Dataset
from xmtc.data.formats import FORMATS, detected, format_to_write, named_format, write
from xmtc.data.reading import read
from xmtc.data.splitting import split as split_rows
from xmtc.data.vocabularies import read_vocabulary, write_vocabulary
from xmtc.workflows.data_requests import ConvertRequest, SplitRequest


@dataclass(frozen=True)
class Converted:
    """Summary of what was written."""

    count: int
    """Number of documents or labels."""
    changed: int = 0
    """Number of character replacements."""


def convert(request: ConvertRequest, *, progress: Progress = silent) -> Converted:
    """Write documents in another format, or a vocabulary as JSONL or TSV."""
    refuse_taken(request.target, request.force)  # fail before the work, not after it
    if request.vocabulary:
        vocabulary = read_vocabulary(request.source, language=request.language)
        write_vocabulary(vocabulary, request.target)
        return Converted(len(vocabulary.index))
    options = request.reading.options
    documents = read(
        request.source,
        options,
        labelled=False,
        vocabulary=request.labels,
        language=request.language,
        unknown_labels=request.unknown_labels,
        whole_vocabulary=False,
        progress=progress,
    )
    if documents.labels is None or documents.labels.nnz == 0:
        options.notes.append(f"{request.source}: no document has labels. Pass --label-field if they are in a field.")
    chosen = format_to_write(request.target, documents, request.to).name
    if str(request.source) != "-":
        refuse_read(request.target, chosen, request.source, options.file_format or detected(request.source))
    refuse_taken(request.target, request.force, chosen)
    with progress.task(f"writing {request.target.name}") as task:
        changed = _write(documents, request.target, chosen, request.lossy)
        task.advance(len(documents))
    return Converted(len(documents), changed)


def _write(documents: Dataset, target: Path, file_format: str, lossy: bool) -> int:
    """Write documents to a file, or to a folder that replaces an existing one."""
    if not target.is_dir() or not any(target.iterdir()):
        return write(documents, target, file_format=file_format, lossy=lossy)
    if not FORMATS[file_format].folder:
        raise DataError(f"{target}: is a folder. Pass the path of a file.")
    if not is_text_folder(target) or any(path.suffix not in (".txt", ".tsv", ".key") for path in target.iterdir()):
        raise DataError(f"{target}: contains files other than texts and labels. Choose another folder.")
    new, old = (target.with_name(f".{target.name}.{secrets.token_hex(4)}.{end}") for end in ("new", "old"))
    try:
        changed = write(documents, new, file_format=file_format, lossy=lossy)
        target.rename(old)
        try:
            new.rename(target)
        except OSError:
            old.rename(target)
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    return changed


def refuse_read(target: Path, to: str, source: str | Path, file_format: str) -> None:
    """Refuse to overwrite an input file, including the separate label file of a format that has one."""
    for place in _written(target, to):
        for read_from in [] if str(source) == "-" else _written(Path(source), file_format):
            if place.exists() and read_from.exists() and place.samefile(read_from):
                raise DataError(f"{place}: is also an input file. Choose another output file.")


def refuse_taken(target: Path, force: bool, file_format: str | None = None) -> None:
    """Refuse to overwrite existing output, including the separate label file of a format that has one."""
    for place in _written(target, file_format):
        taken = place.is_file() or (place.is_dir() and any(place.iterdir()))  # devices such as /dev/null are fine
        if taken and not force:
            raise DataError(f"{place}: already exists. Choose another name, or replace it with --force.")


def _written(target: Path, file_format: str | None) -> list[Path]:
    """Files that documents are written to: one, plus the label file if the format has a separate one."""
    label_path = None if file_format is None else FORMATS[file_format].labels_beside
    label_file = None if label_path is None else label_path(target)
    return [target] if label_file is None else [target, label_file]


def split(request: SplitRequest, *, progress: Progress = silent) -> dict[Path, Converted]:
    """Split a file into parts in a folder, in the input format unless the request gives another.

    Returns a summary per written file.
    """
    source, out, options = request.source, request.out, request.reading.options
    file_format = options.file_format or detected(source)
    form = named_format(request.to or file_format, source)
    ending = next((ending for ending in COMPRESSED if form.lines and str(source).endswith(ending)), "")
    documents = read(source, options, progress=progress)
    rows = split_rows(documents, request.test, request.valid, request.seed, together=not request.apart)
    places = {name: out / (form.part_name.format(name) + ending) for name in rows}
    for place in places.values():
        refuse_read(place, form.name, source, file_format)
        refuse_taken(place, request.force, form.name)
    new = [path for place in places.values() for path in _written(place, form.name) if not path.exists()]
    new += [] if out.exists() else [out]
    make_folder(out)
    written = {}
    try:
        with progress.task(f"writing to {out}", total=len(documents)) as task:
            for name, place in places.items():
                changed = _write(documents.take(rows[name]), place, form.name, request.lossy)
                written[place] = Converted(len(rows[name]), changed)
                task.advance(len(rows[name]))
    except XmtcError:  # all of the parts or none of them
        for path in new:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        raise
    return written
