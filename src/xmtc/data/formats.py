"""The formats: what each can hold, who reads and who writes it, and how one is told from another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmtc.core.errors import DataError, nearest, shown
from xmtc.core.files import first_bytes, is_compressed, plain_name
from xmtc.data import matrices
from xmtc.data.annif import (
    is_annif,
    is_text_folder,
    read_annif,
    read_annif_folder,
    write_annif,
    write_annif_folder,
)
from xmtc.data.dataset import Dataset
from xmtc.data.jsonl import read_jsonl, write_jsonl
from xmtc.data.lf import read_lf, write_lf
from xmtc.data.lines import (
    is_fasttext,
    labels_beside,
    read_attentionxml,
    read_fasttext,
    read_text,
    write_attentionxml,
    write_fasttext,
)
from xmtc.data.matrices import read_npz, write_npz
from xmtc.data.records import ReadOptions, Records
from xmtc.data.sparse import is_libsvm, is_xmlrepo, read_libsvm, read_xmlrepo, write_libsvm, write_xmlrepo
from xmtc.data.tables import read_csv, read_parquet, read_tsv, write_csv, write_parquet, write_tsv

Reader = Callable[[str | Path, ReadOptions], Iterator[Records]]
Writer = Callable[[Dataset, Path, bool], int]
"""Dataset, path and whether characters that the format cannot hold may be replaced → how often that was done."""


@dataclass(frozen=True)
class Format:
    """One form that a file of documents can have."""

    name: str
    what: str
    """A few words for the documentation."""
    read: Reader
    write: Writer | None = None
    part_name: str = ""
    """What a file with a part of the documents, 'train' or 'test', is called."""
    endings: tuple[str, ...] = ()
    """How the name of such a file ends, where the name is enough to know."""
    holds: str = "text"
    """'text', or 'features'."""
    fields: bool = False
    """Whether fields of text stay apart."""
    ids: bool = False
    """Whether document ids are kept."""
    folder: bool = False
    """Whether documents are files in a folder."""
    packs: bool = True
    """Whether such a file may be compressed as a whole."""
    labels_beside: Callable[[Path], Path | None] | None = None
    """Where the labels go that are in a file of their own."""


_TABLE: dict[str, Any] = {"fields": True, "ids": True}
_FEATURES: dict[str, Any] = {"holds": "features"}

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        Format("jsonl", "one JSON object a line", read_jsonl, write_jsonl, "{}.jsonl", (".jsonl", ".ndjson"), **_TABLE),
        Format("csv", "a table with a header, cells in quotes", read_csv, write_csv, "{}.csv", (".csv",), **_TABLE),
        Format("tsv", "a table with a header, no quotes", read_tsv, write_tsv, "{}.tsv", (".tsv", ".tab"), **_TABLE),
        Format(
            *("parquet", "a table in columns", read_parquet, write_parquet, "{}.parquet", (".parquet",)),
            **_TABLE,
            packs=False,
        ),
        Format("fasttext", "__label__a __label__b text", read_fasttext, write_fasttext, "{}.txt", (".ft",)),
        Format("annif", "text, a tab, <uri> <uri>", read_annif, write_annif, "{}.tsv"),
        Format(
            *("annif-folder", "NAME.txt beside NAME.tsv", read_annif_folder, write_annif_folder, "{}"),
            ids=True,
            folder=True,
            packs=False,
        ),
        Format(
            *("attentionxml", "NAME_texts.txt beside NAME_labels.txt", read_attentionxml, write_attentionxml),
            *("{}_texts.txt", ("_texts.txt",)),
            labels_beside=labels_beside,
        ),
        Format("lf", "title, content, target_ind; lbl.json beside", read_lf, write_lf, "{}.json", (".json",), **_TABLE),
        Format("xmlrepo", "a header, then l1,l2 f:v f:v", read_xmlrepo, write_xmlrepo, "{}.txt", **_FEATURES),
        Format("libsvm", "l1,l2 f:v f:v", read_libsvm, write_libsvm, "{}.svm", (".svm", ".libsvm"), **_FEATURES),
        Format(
            *("npz", "X.trn.npz beside Y.trn.npz", read_npz, write_npz, "X.{}.npz", (".npz",)),
            **_FEATURES,
            packs=False,
            labels_beside=matrices.labels_beside,
        ),
        Format("text", "one text a line, no labels", read_text),
    )
}


def named_format(name: str, path: str | Path) -> Format:
    if name not in FORMATS:
        near = nearest(name, FORMATS)
        raise DataError(f"{path}: no format '{shown(name)}'.{near} Known: {', '.join(FORMATS)}.")
    return FORMATS[name]


def detected(path: str | Path) -> str:
    """The format of a file by its name and its first lines; plain lines of text can only be predicted on."""
    if str(path) != "-" and is_text_folder(Path(path)):
        return "annif-folder"
    start = first_bytes(path)
    name = plain_name(path)
    if str(path) == "-" and is_compressed(start):
        raise DataError(f"{path}: compressed. Name the file, or unpack it on the way: xz -dc FILE | xmtc …")
    _refuse_other_kinds(path, start, name)
    if start.startswith(b"PAR1") or name.endswith(FORMATS["parquet"].endings):
        return "parquet"
    if name.endswith(".npz"):
        return "npz"
    start = start.removeprefix(b"\xef\xbb\xbf")
    first = start.lstrip()
    if not first:
        raise DataError(f"{path}: empty. Write one document a line.")
    line = first.split(b"\n", 1)[0].rstrip(b"\r")
    beside = None if str(path) == "-" else labels_beside(path)
    if beside is not None and beside.is_file():
        return "attentionxml"
    if line.startswith(b"{") or name.endswith(FORMATS["jsonl"].endings):
        return "lf" if re.search(rb'"target_ind"\s*:', line) and not re.search(rb'"labels"\s*:', line) else "jsonl"
    if is_annif(start):
        return "annif"
    for table in ("csv", "tsv"):
        if name.endswith(FORMATS[table].endings):
            return table
    return _detected_by_line(start, name)


def _detected_by_line(start: bytes, name: str) -> str:
    lines = [line.rstrip(b"\r") for line in start.split(b"\n")]
    said = [line for line in lines if line.strip() and not line.startswith(b"#")] or [b""]
    if is_xmlrepo(said):
        return "xmlrepo"
    if is_libsvm(said) or name.endswith(FORMATS["libsvm"].endings):
        return "libsvm"
    return "fasttext" if is_fasttext(start) or name.endswith(FORMATS["fasttext"].endings) else "text"


def _refuse_other_kinds(path: str | Path, start: bytes, name: str) -> None:
    """Files that would pass as lines of text and are something else."""
    remedy = 'Write JSONL, {"text": "…", "labels": ["…"]} a line, or CSV.'
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path}:1: not UTF-8 but UTF-16. Convert the file to UTF-8.")
    packed = start.startswith((b"PK\x03\x04", b"%PDF", b"\x89PNG", b"\x7fELF")) and not name.endswith(".npz")
    if packed or name.endswith((".xlsx", ".pdf", ".docx", ".xls", ".ods")):
        raise DataError(f"{path}: is not a text file. {remedy}")
    if name.endswith((".ttl", ".rdf", ".nt", ".jsonld", ".skos", ".owl")):
        raise DataError(f"{path}: is a vocabulary, not documents. Name it with --labels, or convert it: --vocabulary.")
    if start.lstrip().startswith(b"[") and name.endswith(".json"):
        raise DataError(f"{path}: is one JSON array. {remedy}")


def format_to_write(path: Path, dataset: Dataset, name: str | None) -> Format:
    """The format that a name asks for, if it can hold these documents."""
    if name is None:
        plain = plain_name(path)
        by_name = [each.name for each in FORMATS.values() if plain.endswith(each.endings or ("\0",))]
        if not by_name:
            known = ", ".join(each.name for each in FORMATS.values() if each.write)
            raise DataError(f"{path}: the name does not tell a format. Say which with --to: {known}.")
        name = by_name[0]
    chosen = named_format(name, path)
    if chosen.write is None:
        raise DataError(f"{path}: '{name}' holds no labels and is not written. Choose another format.")
    has = "text" if dataset.has_text else "features"
    if chosen.holds != has:
        fitting = ", ".join(each.name for each in FORMATS.values() if each.holds == has and each.name != "text")
        raise DataError(f"{path}: these documents are {has}, and {name} holds {chosen.holds}. Choose one of {fitting}.")
    reserved = {"id", "labels"} & set(dataset.fields)
    if reserved and chosen.fields:
        raise DataError(f"{path}: a text field is called '{reserved.pop()}'. Rename it before it is written.")
    return chosen


def write(dataset: Dataset, path: str | Path, *, file_format: str | None = None, lossy: bool = False) -> int:
    """Write documents in the format that the name tells, or in a given one; the file appears whole or not at all.

    Characters that a format cannot hold are refused; with `lossy` they are replaced. Returns how many times.
    """
    path = Path(path)
    if not len(dataset):
        raise DataError(f"{path}: there are no documents to write. Choose some.")
    if dataset.label_index is not None and dataset.label_index.ids([""])[0] >= 0:
        raise DataError(f"{path}: a label has an empty key. Give it one.")
    chosen = format_to_write(path, dataset, file_format)
    assert chosen.write is not None
    return chosen.write(dataset, path, lossy)
