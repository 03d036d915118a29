"""Annif's two corpus formats: lines 'text<TAB><uri> <uri>', and a folder with one text and one subject file each."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from xmtc.core.errors import DataError, shown
from xmtc.core.files import decode_line, read_blocks, replace_file, sync_folder
from xmtc.data.dataset import Dataset
from xmtc.data.format import FileHead, Format
from xmtc.data.lines import Parsed, numbered_lines, read_each
from xmtc.data.records import ReadOptions, Records
from xmtc.data.writing import OneLine, documents, from_line

_SUBJECTS = re.compile(r"<([^>]*)>|(\S+)")
_LINE_PARTS = "\t\n\v\r"
_BATCH = 256  # documents of a folder to read at a time
_LONGEST_NAME = 200  # bytes; file systems allow 255 including the ending


def _is_annif(head: FileHead) -> bool:
    """Whether lines have a tab followed by subjects in angle brackets only; the first documents may have none."""
    for line in head.start.splitlines():
        _, tab, subjects = line.partition(b"\t")
        if line.strip() and not (tab and not subjects.strip()):
            return bool(tab) and re.fullmatch(rb"(?:<[^>\t]*+>\s*+)++", subjects) is not None
    return False


def subjects(cell: str) -> list[str]:
    """Parse keys in angle brackets, or separated by spaces without brackets."""
    end = cell.rfind(">") + 1  # no bracket is closed after it
    keys = [bracketed or bare for bracketed, bare in _SUBJECTS.findall(cell[:end])]
    return [key for key in (*keys, *cell[end:].split()) if key]


def read_annif(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Read lines of text, tab and subjects; skip blank lines."""

    def parse(number: int, line: bytes) -> Parsed | None:
        text, tab, rest = decode_line(line, path, number).partition("\t")
        if not tab and not text.strip():
            return None
        if (not tab and options.labelled) or "\t" in rest:
            raise DataError(f"{path}:{number}: expected a text, a tab and subjects. Write text<TAB><uri> <uri>.")
        return from_line(text), subjects(rest) if tab else None

    return read_each(numbered_lines(path), options, parse)


def write_annif(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write one line per document: text, tab, subjects; return the number of lossy replacements."""
    fit, names = OneLine(path, "annif", lossy), {}  # type: OneLine, dict[str, str]
    with replace_file(path) as stream:
        for document, text, keys in documents(dataset):
            cell = " ".join(f"<{fit.key(key, _LINE_PARTS + '>', names)}>" for key in keys)
            stream.write(f"{fit.text(text, document, tabs=False)}\t{cell}\n".encode())
    return fit.changed


# ---- a folder of full texts


def is_text_folder(path: Path) -> bool:
    """Whether a path is a folder of texts with subject files, or of texts only."""
    if not path.is_dir():
        return False
    try:
        names = set(os.listdir(path))
    except OSError:
        return False
    texts = {name for name in names if name.endswith(".txt")}
    labelled = any(name[:-4] + ending in names for name in texts for ending in (".tsv", ".key"))
    return bool(texts) and (labelled or len(texts) == len(names))


def read_annif_folder(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Read documents NAME.txt with labels in NAME.tsv ('<uri><TAB>name' per line) or NAME.key (one name per line)."""
    folder = Path(path)
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".txt"))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}). Check the path and its permissions.") from None
    if not names:
        raise DataError(f"{folder}: contains no .txt files. Pass a file, or a folder of texts.")
    for start in range(0, len(names), _BATCH):
        yield _folder_records(folder, names[start : start + _BATCH], start, options)


def _folder_records(folder: Path, files: list[str], start: int, options: ReadOptions) -> Records:
    lines, ids, texts, labels = [], [], [], []  # type: list[int], list[str], list[str], list[list[str]]
    names: dict[str, str] = {}
    for number, file in enumerate(files, start=start + 1):
        place = folder / file
        try:
            text = _whole_text(place)
            found = _subject_file(place, names)
            if found is None and options.labelled:
                stem = place.stem
                raise DataError(
                    f"{place}: no label file {shown(stem)}.tsv or {shown(stem)}.key in the same folder. Add it."
                )
            name = _document_name(place)
        except DataError as error:
            options.bad_lines.add(error)
            continue
        lines.append(number)
        ids.append(name)
        texts.append(text)
        labels.append(found or [])
    return Records(
        ids=ids,
        lines=lines,
        fields={"text": pa.array(texts, pa.string())},
        label_counts=[len(row) for row in labels],
        label_keys=[key for row in labels for key in row],
        label_names=names,
    )


def _document_name(place: Path) -> str:
    return place.name.removesuffix(".txt").encode("utf-8", "replace").decode()


def _whole_text(place: Path) -> str:
    content = b"".join(read_blocks(place))
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{place}:{line}: not UTF-8. Convert the file to UTF-8.") from None


def _subject_file(place: Path, names: dict[str, str]) -> list[str] | None:
    """Read the subject file of a text; None if there is none. Label names are added to `names`."""
    for ending in (".tsv", ".key"):
        beside = place.with_suffix(ending)
        if not beside.is_file():
            continue
        keys = []
        for block in numbered_lines(beside):
            for number, line in block:
                cell = decode_line(line, beside, number)
                key, _, name = cell.partition("\t") if ending == ".tsv" else (cell, "", "")
                key = key.strip()
                if ending == ".tsv" and key.startswith("<") and key.endswith(">"):
                    key = key[1:-1]
                if not key and cell.strip():
                    raise DataError(f"{beside}:{number}: a label has no key. Write <uri><TAB>name.")
                if key:
                    keys.append(key)
                    names.update({key: name.strip()} if name.strip() else {})
        return keys
    return None


def write_annif_folder(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write one text file and one subject file per document; the folder is created atomically."""
    fit, names = OneLine(path, "annif-folder", lossy), {}  # type: OneLine, dict[str, str]
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise DataError(f"{path}: already exists. Choose a new or empty folder.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        temporary.mkdir()
        index = dataset.label_index
        called = {} if index is None else dict(zip(index.keys, index.names, strict=True))
        _write_documents(dataset, temporary, fit, names, called)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        message = f"{path}: cannot be written ({error.strerror}). Free disk space or choose another path."
        raise DataError(message) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return fit.changed


def _write_documents(
    dataset: Dataset, folder: Path, fit: OneLine, names: dict[str, str], label_name: dict[str, str]
) -> None:
    for document, text, keys in documents(dataset):
        unfit = not document or document.startswith(".") or len(document.encode()) > _LONGEST_NAME
        if unfit or not document.isprintable() or "/" in document or "\\" in document:
            raise DataError(f"{fit.path}: the id '{shown(document)}' is not a valid file name. Use other document ids.")
        place = folder / f"{document}.txt"
        if place.exists():
            raise DataError(f"{fit.path}: two documents have the id '{shown(document)}'. Use unique ids.")
        if text.startswith("\ufeff"):
            fit.lose(f"document '{shown(document)}' starts with a byte order mark")
            text = text.lstrip("\ufeff")
        place.write_bytes(text.encode())
        lines = []
        for key in keys:
            name = " ".join(label_name[key].split())
            lines.append(f"<{fit.key(key, _LINE_PARTS, names)}>\t{name}\n")
        place.with_suffix(".tsv").write_bytes("".join(lines).encode())


ANNIF = Format(
    name="annif",
    description="text, a tab, <uri> <uri>",
    read=read_annif,
    write=write_annif,
    sniff=_is_annif,
    part_name="{}.tsv",
)
ANNIF_FOLDER = Format(
    name="annif-folder",
    description="a folder of NAME.txt and NAME.tsv",
    read=read_annif_folder,
    write=write_annif_folder,
    sniff=lambda head: head.is_folder and is_text_folder(Path(head.path)),
    part_name="{}",
    ids=True,
    folder=True,
    lines=False,
)
