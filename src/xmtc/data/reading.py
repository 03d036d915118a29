"""`read` makes a whole Dataset of a file, `stream` small ones as it goes; both tell the format by content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.data.jsonl import read_jsonl
from xmtc.data.records import Records
from xmtc.data.vocabularies import read_vocabulary
from xmtc.data.xmlrepo import is_header, read_xmlrepo
from xmtc.dataset import Csr, Dataset, LabelIndex, label_matrix, labels_from_keys
from xmtc.errors import ConfigError, DataError, nearest, shown
from xmtc.files import decode_line, first_bytes, plain_name, read_blocks
from xmtc.mapping import TextSpool
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
    if unknown_labels not in ("refuse", "drop"):
        raise ConfigError(f"'unknown_labels' must be refuse or drop. Got '{shown(unknown_labels)}'.")
    spool = TextSpool()
    parts: list[Records] = []
    with progress.task(f"reading {Path(path).name}") as task:
        for records in _records(path, file_format, text_fields, labelled):
            if records.fields:
                spool.add(_text_batch(records))
            task.advance(len(records))
            parts.append(_lean(records))
    if not parts:
        raise DataError(f"{path}: no documents in it. Write one a line.")
    dataset = _dataset(parts, spool.finish(), asked_for=bool(text_fields))
    if labelled or any(len(part.label_keys) for part in parts):
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
    empty = True
    for records in _records(path, file_format, text_fields, labelled=False):
        empty = False
        table = pa.Table.from_batches([_text_batch(records)])
        yield from _dataset([records], table, asked_for=bool(text_fields)).batches(size)
    if empty:
        raise DataError(f"{path}: no documents in it. Write one a line.")


def _lean(records: Records) -> Records:
    """What is kept of a batch until the file is read: its text is in the spool, the rest goes into arrays."""
    return replace(
        records,
        fields={},
        ids=[] if records.fields else records.ids,
        lines=np.asarray(records.lines, dtype=np.int64),
        label_counts=None if records.label_counts is None else np.asarray(records.label_counts, dtype=np.int64),
        label_keys=pa.array(records.label_keys, pa.string()),
    )


def _text_batch(records: Records) -> pa.RecordBatch:
    """Ids first, then the fields, whatever they are called."""
    columns = [pa.array(records.ids, pa.string()), *records.fields.values()]
    return pa.RecordBatch.from_arrays(columns, names=["id", *records.fields])


def _dataset(parts: list[Records], table: pa.Table, asked_for: bool) -> Dataset:
    """Text or features, and ids; of the fields that nobody asked for, those that hold something."""
    if parts[0].features is not None:
        features = sp.csr_array(sp.vstack([part.features for part in parts], format="csr"))
        ids = pa.chunked_array([pa.array(part.ids, pa.string()) for part in parts])
        return Dataset(features=features, ids=ids)
    fields = dict(zip(table.column_names[1:], table.columns[1:], strict=True))
    if len(fields) > 1 and not asked_for:
        filled = {name: column for name, column in fields.items() if pc.any(pc.not_equal(column, "")).as_py()}
        fields = filled or fields
    return Dataset(fields=fields, ids=table.column(0))


def _records(
    path: str | Path, file_format: str | None, text_fields: Sequence[str] | None, labelled: bool
) -> Iterator[Records]:
    if file_format is not None and file_format not in FORMATS:
        near = nearest(file_format, FORMATS)
        raise DataError(f"{path}: no format '{shown(file_format)}'.{near} Known: {', '.join(FORMATS)}.")
    kind = file_format or _detected(path)
    if kind == "text" and labelled:
        raise DataError(
            f'{path}:1: neither JSONL nor XMLRepository text. Write {{"text": "…", "labels": ["…"]}} a line.'
        )
    if kind == "xmlrepo":
        return read_xmlrepo(path)
    if kind == "text":
        return _text_lines(path)
    return read_jsonl(path, text_fields, labelled)


def _detected(path: str | Path) -> str:
    """The format of a file by its first line; plain lines of text can only be predicted on."""
    start = first_bytes(path)
    _refuse_other_kinds(path, start)
    first = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    line = first.split(b"\n", 1)[0]
    if line.startswith(b"{") or plain_name(path).endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if is_header(line):
        return "xmlrepo"
    if not first:
        raise DataError(f"{path}: empty. Write one document a line.")
    return "text"


def _refuse_other_kinds(path: str | Path, start: bytes) -> None:
    """Files that would pass as lines of text and are something else."""
    name, remedy = plain_name(path), 'Write JSONL: {"text": "…", "labels": ["…"]} a line.'
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path}:1: not UTF-8 but UTF-16. Convert the file to UTF-8.")
    if start.startswith((b"PK\x03\x04", b"PAR1", b"%PDF")) or name.endswith((".xlsx", ".parquet", ".pdf", ".docx")):
        raise DataError(f"{path}: is not a text file. {remedy}")
    if name.endswith((".csv", ".tsv")):
        raise DataError(f"{path}: tables are not read. {remedy}")
    if start.lstrip().startswith(b"[") and name.endswith(".json"):
        raise DataError(f"{path}: is one JSON array. {remedy}")


def _text_lines(path: str | Path) -> Iterator[Records]:
    """One document a line; an empty line is an empty document, so that answers stay in step with lines."""
    number = 0
    for block in read_blocks(path):
        lines = block.removesuffix(b"\n").split(b"\n")
        rows = range(number, number + len(lines))
        texts = [decode_line(line, path, row + 1) for row, line in zip(rows, lines, strict=True)]
        yield Records(
            ids=[str(row) for row in rows],
            lines=[row + 1 for row in rows],
            fields={"text": pa.array(texts, pa.string())},
        )
        number += len(lines)


def _labels(
    parts: list[Records], path: str | Path, vocabulary: str | Path | None, unknown: str
) -> tuple[Csr, LabelIndex]:
    none = [np.zeros(len(part.lines), dtype=np.int64) for part in parts]
    counts = [zero if part.label_counts is None else part.label_counts for part, zero in zip(parts, none, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    keys = pa.concat_arrays([pa.array([], pa.string()), *(part.label_keys for part in parts)])
    width = parts[0].label_width
    if vocabulary is None:
        if width is None:
            return labels_from_keys(offsets, keys)
        return label_matrix(offsets, _whole_numbers(keys), width), LabelIndex.numbered(width)
    named = read_vocabulary(vocabulary, numbered=width is not None)
    index = named.index
    if named.plain and width is not None:
        if len(index) < width:
            raise DataError(f"{vocabulary}: {len(index):,} names for the {width:,} labels of {path}. Add the rest.")
        return label_matrix(offsets, _whole_numbers(keys), width), LabelIndex.numbered(width, index.names[:width])
    numbers = index.ids(keys)
    if unknown != "drop" and (numbers < 0).any():
        _refuse_unknown(parts, path, Path(vocabulary).name, int(np.argmax(numbers < 0)), offsets, keys)
    seen = np.unique(numbers[numbers >= 0])  # a model can only learn the labels that occur
    position = np.full(len(index) + 1, -1, dtype=np.int64)
    position[seen] = np.arange(len(seen))
    return label_matrix(offsets, position[numbers], len(seen)), index.take(seen)


def _whole_numbers(keys: pa.Array) -> NDArray[np.int64]:
    return np.asarray(keys.cast(pa.int64()), dtype=np.int64)


def _refuse_unknown(
    parts: list[Records], path: str | Path, vocabulary: str, at: int, offsets: NDArray[np.int64], keys: pa.Array
) -> None:
    lines = np.concatenate([part.lines for part in parts])
    row = int(np.searchsorted(offsets, at, side="right")) - 1
    raise DataError(
        f"{path}:{lines[row]}: label '{shown(keys[at].as_py())}' is not in {vocabulary}. "
        "Add it, or pass --unknown-labels drop."
    )
