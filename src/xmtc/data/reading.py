"""`read` makes a whole Dataset of a file, `stream` small ones as it goes; both tell the format by content."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from xmtc.data.jsonl import read_jsonl
from xmtc.data.records import Records
from xmtc.data.spool import TextSpool
from xmtc.data.vocabularies import read_vocabulary
from xmtc.data.xmlrepo import is_header, read_xmlrepo
from xmtc.dataset import Csr, Dataset, LabelIndex, label_matrix, labels_from_keys
from xmtc.errors import DataError, nearest
from xmtc.files import first_bytes, plain_name, read_blocks
from xmtc.progress import Progress, silent

FORMATS = ("jsonl", "text", "xmlrepo")


def read(
    path: str | Path,
    *,
    file_format: str | None = None,
    text_fields: Sequence[str] | None = None,
    vocabulary: str | Path | None = None,
    unknown_labels: str = "refuse",
    labelled: bool = True,
    progress: Progress = silent,
) -> Dataset:
    """All documents of a file with their labels.

    `vocabulary` names a file of labels; a label that is not in it is refused, or left out with
    `unknown_labels="drop"`. Large text is kept in a memory-mapped file, not in memory.
    """
    spool = TextSpool()
    parts: list[Records] = []
    with progress.task(f"reading {Path(path).name}") as task:
        for records in _records(path, file_format, text_fields, labelled):
            if records.fields:
                spool.add(pa.record_batch({"id": pa.array(records.ids, pa.string()), **records.fields}))
                records.fields = {}
            task.advance(len(records))
            parts.append(records)
    if not parts:
        raise DataError(f"{path}: no documents in it. Write one a line.")
    table = spool.finish()
    dataset = _dataset(parts, table)
    if labelled or any(part.label_keys for part in parts):
        labels, index = _labels(parts, path, vocabulary, unknown_labels)
        dataset = replace(dataset, labels=labels, label_index=index)
    return dataset


def stream(
    path: str | Path,
    *,
    file_format: str | None = None,
    text_fields: Sequence[str] | None = None,
    size: int = 1024,
) -> Iterator[Dataset]:
    """Unlabelled documents a few at a time, for prediction; '-' is standard input."""
    for records in _records(path, file_format, text_fields, labelled=False):
        table = pa.table({"id": pa.array(records.ids, pa.string()), **records.fields})
        yield from _dataset([records], table).batches(size)


def _dataset(parts: list[Records], table: pa.Table) -> Dataset:
    """Text or features, and ids."""
    if parts[0].features is not None:
        features = sp.csr_array(sp.vstack([part.features for part in parts], format="csr"))
        ids = pa.chunked_array([pa.array(part.ids, pa.string()) for part in parts])
        return Dataset(features=features, ids=ids)
    fields = {name: table[name] for name in table.column_names if name != "id"}
    return Dataset(fields=fields, ids=table["id"])


def _records(
    path: str | Path, file_format: str | None, text_fields: Sequence[str] | None, labelled: bool
) -> Iterator[Records]:
    if file_format is not None and file_format not in FORMATS:
        raise DataError(f"no format '{file_format}'.{nearest(file_format, FORMATS)} Known: {', '.join(FORMATS)}.")
    kind = file_format or _detected(path, labelled)
    if kind == "xmlrepo":
        return read_xmlrepo(path)
    if kind == "text":
        return _text_lines(path)
    return read_jsonl(path, text_fields, labelled)


def _detected(path: str | Path, labelled: bool) -> str:
    """The format of a file by its first line; plain lines of text can only be predicted on."""
    first = first_bytes(path).removeprefix(b"\xef\xbb\xbf").lstrip()
    line = first.split(b"\n", 1)[0]
    if line.startswith(b"{") or plain_name(path).endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if is_header(line):
        return "xmlrepo"
    if not first:
        raise DataError(f"{path}: empty. Write one document a line.")
    if labelled:
        raise DataError(
            f'{path}:1: neither JSONL nor XMLRepository text. Write {{"text": "…", "labels": ["…"]}} a line.'
        )
    return "text"


def _text_lines(path: str | Path) -> Iterator[Records]:
    """One document a line; an empty line is an empty document, so that answers stay in step with lines."""
    number = 0
    for block in read_blocks(path):
        lines = block.removesuffix(b"\n").split(b"\n")
        texts = []
        for line in lines:
            number += 1
            try:
                texts.append(line.decode("utf-8").removeprefix("\ufeff").rstrip("\r"))
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{number}: not UTF-8 (byte {line[error.start]:#04x}). Convert the file to UTF-8."
                ) from None
        rows = range(number - len(texts), number)
        yield Records(
            ids=[str(row) for row in rows],
            lines=[row + 1 for row in rows],
            fields={"text": pa.array(texts, pa.string())},
        )


def _labels(
    parts: list[Records], path: str | Path, vocabulary: str | Path | None, unknown: str
) -> tuple[Csr, LabelIndex]:
    counts = itertools.chain.from_iterable(part.label_counts or [0] * len(part) for part in parts)
    offsets = np.concatenate([[0], np.cumsum(list(counts))]).astype(np.int64)
    keys = pa.array(itertools.chain.from_iterable(part.label_keys for part in parts), pa.string())
    width = parts[0].label_width
    if vocabulary is None:
        if width is None:
            return labels_from_keys(offsets, keys)
        index = LabelIndex.from_keys([str(number) for number in range(width)])
        return label_matrix(offsets, index.ids(keys), width), index
    index, plain = read_vocabulary(vocabulary)
    if plain and width is not None:
        if len(index) < width:
            raise DataError(f"{vocabulary}: {len(index):,} names for the {width:,} labels of {path}. Add the rest.")
        index = LabelIndex.from_keys([str(number) for number in range(width)], names=index.names[:width])
        return label_matrix(offsets, index.ids(keys), width), index
    numbers = index.ids(keys)
    if unknown != "drop" and (numbers < 0).any():
        _refuse_unknown(parts, path, Path(vocabulary).name, int(np.argmax(numbers < 0)), offsets, keys)
    seen = np.unique(numbers[numbers >= 0])  # a model can only learn the labels that occur
    position = np.full(len(index) + 1, -1, dtype=np.int64)
    position[seen] = np.arange(len(seen))
    return label_matrix(offsets, position[numbers], len(seen)), index.take(seen)


def _refuse_unknown(
    parts: list[Records], path: str | Path, vocabulary: str, at: int, offsets: np.ndarray, keys: pa.Array
) -> None:
    lines = [line for part in parts for line in part.lines]
    row = int(np.searchsorted(offsets, at, side="right")) - 1
    raise DataError(
        f"{path}:{lines[row]}: label '{keys[at].as_py()}' is not in {vocabulary}. "
        "Add it, or pass --unknown-labels drop."
    )
