"""JSONL format: one document per line, {"id": …, "text": …, "labels": […]}.

A document may also have labels known to be wrong, "rejected": […], and "complete": false if other labels are unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.errors import DataError
from xmtc.core.files import parse_lines, read_blocks, replace_file
from xmtc.core.parallel import in_background, run_parallel
from xmtc.data.dataset import Dataset
from xmtc.data.format import FileHead, Format
from xmtc.data.records import BadLines, ReadOptions, Records
from xmtc.data.rows import Columns, RowBatch, choose_columns, split_column
from xmtc.data.writing import documents_with_fields, label_lists

EXAMPLE = '{"text": "…", "labels": ["…"]}'
# A fast search for candidates by their first letters; whether they are JSON values is checked afterwards.
_LIKE_NO_NUMBER = (re.compile(rb"NaN[ \t\r]*+[,}\]]"), re.compile(rb"Inf(?:inity)?[ \t\r]*+[,}\]]"))
_NO_NUMBER = re.compile(rb"[:,\[][ \t\r]*+-?(?:NaN|Inf|Infinity)[ \t\r]*+[,}\]]")
BLOCK = 1 << 20  # bytes that a thread parses at a time; about the size of a tokeniser batch


def read_jsonl(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Yield batches of documents.

    Blocks are parsed by Arrow, several times faster than by Python. Blocks with anything unexpected are parsed line
    by line, which is needed to report errors.
    """
    number = 0
    is_pipe = str(path) == "-"  # its lines are processed as they arrive, without reading ahead
    blocks = read_blocks(path, BLOCK)
    blocks = _without_mark(blocks if is_pipe else in_background(blocks))  # decompression takes longer than parsing
    columns: Columns | None = None
    for first in blocks:
        columns, schema = _looked_up(first, path, number, options)
        if columns is not None:
            break
        number += first.count(b"\n")
    else:
        return
    found = columns

    def parse(block: bytes) -> tuple[bytes, Records | None]:
        return block, None if schema is None else _fast(block, found, schema, options)

    for block, records in run_parallel(parse, chain([first], blocks), 1 if is_pipe else 2, ahead=0):
        yield _slow(block, number, found, path, options) if records is None else _placed(records, number)
        number += block.count(b"\n") if records is None else len(records)


def _without_mark(blocks: Iterator[bytes]) -> Iterator[bytes]:
    for number, block in enumerate(blocks):
        yield block if number else block.removeprefix(b"\xef\xbb\xbf")


def _looked_up(
    block: bytes, path: str | Path, before: int, options: ReadOptions
) -> tuple[Columns | None, pa.Schema | None]:
    """Determine the columns, and their Arrow schema, from the first valid document of a block."""
    looked = BadLines(options.bad_lines.skip)  # these lines are read again when the columns are known
    for line, row in parse_lines(block, path, before, EXAMPLE, looked.add):
        texts = [name for name, value in row.items() if isinstance(value, (str, type(None)))]
        try:
            columns = choose_columns(row, texts, options, f"{path}:{line}")
        except DataError as error:
            looked.add(error)
            continue
        columns = _with_decisions(columns, options)
        return columns, _schema(row, columns)
    options.bad_lines.messages += looked.messages
    return None, None


def _with_decisions(columns: Columns, options: ReadOptions) -> Columns:
    """Add the fields 'rejected' and 'complete', unless they are used for something else or labels are ignored."""
    used = {*columns.text, columns.labels, columns.id}
    names = [None if name in used or options.ignore_labels else name for name in ("rejected", "complete")]
    return replace(columns, rejected=names[0], complete=names[1])


def _slow(block: bytes, before: int, columns: Columns, path: str | Path, options: ReadOptions) -> Records:
    batch = RowBatch(path, columns, options)
    for number, row in parse_lines(block, path, before, EXAMPLE, options.bad_lines.add):
        batch.add(number, row)
    return batch.records()


def _schema(row: dict[str, Any], columns: Columns) -> pa.Schema | None:
    """Derive the Arrow schema from the first document; None if text, label and id columns overlap."""
    labels = row.get(columns.labels, [])
    if columns.labels in (*columns.text, columns.id) or not isinstance(labels, list):
        return None
    if columns.split is not None and columns.split in (columns.labels, columns.rejected, columns.complete):
        return None
    kinds: dict[str, pa.DataType] = {columns.id: pa.int64() if type(row.get(columns.id)) is int else pa.string()}
    kinds |= dict.fromkeys(columns.text, pa.string())
    if columns.split is not None:
        numbers = {int: pa.int64(), float: pa.float64()}
        kinds.setdefault(columns.split, numbers.get(type(row.get(columns.split)), pa.string()))
    rejected = row.get("rejected") if columns.rejected else None
    every = [*labels, *(rejected if isinstance(rejected, list) else ())]
    keys = pa.list_(pa.int64() if every and all(type(label) is int for label in every) else pa.string())
    decisions = {columns.rejected: keys, columns.complete: pa.bool_()}
    return pa.schema([*kinds.items(), (columns.labels, keys), *((n, kind) for n, kind in decisions.items() if n)])


def _fast(block: bytes, columns: Columns, schema: pa.Schema, options: ReadOptions) -> Records | None:
    """Parse a block in which every line is one object of the expected schema; None for any other block.

    Line numbers are relative to the block, and missing ids are null.
    """
    import pyarrow.json as pj

    characters = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    # If every line starts with { and ends with }, as many objects as lines means one object per line.
    count, starts = len(ends), np.concatenate([[0], ends[:-1] + 1])
    if not ((characters[starts] == ord("{")).all() and (characters[ends - 1] == ord("}")).all() and _is_utf8(block)):
        return None
    if any(like.search(block) for like in _LIKE_NO_NUMBER) and _NO_NUMBER.search(block):
        return None  # Arrow accepts Inf and -NaN as numbers
    try:
        table = pj.read_json(
            pa.BufferReader(block),
            read_options=pj.ReadOptions(block_size=len(block) + 1, use_threads=False),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, ValueError):
        return None
    if table.num_rows != count:
        return None
    labels = table[columns.labels].combine_chunks()
    keys = labels.flatten().cast(pa.string())
    texts = {name: table[name].combine_chunks() for name in columns.text}
    if (labels.null_count and options.labelled) or keys.null_count or pc.any(pc.equal(keys, "")).as_py():
        return None
    if any(text.null_count for text in texts.values()):
        if len(texts) == 1 or pc.any(pc.is_null(pc.coalesce(*texts.values()))).as_py():
            return None
        texts = {name: pc.fill_null(text, "") for name, text in texts.items()}
    ids = table[columns.id].combine_chunks().cast(pa.string())
    counts = np.asarray(pc.fill_null(pc.list_value_length(labels), 0), dtype=np.int64)
    records = Records(ids=ids, lines=np.arange(1, count + 1), fields=texts, label_counts=counts, label_keys=keys)
    if columns.split is not None:
        records.split_values = split_column(table[columns.split].combine_chunks())
    return _with_rejected(records, counts, table, columns)


def _with_rejected(
    records: Records, label_counts: NDArray[np.int64], table: pa.Table, columns: Columns
) -> Records | None:
    """Add rejected labels and whether labels are complete; None if a label is null, empty or also accepted."""
    count = len(records)
    partial = np.zeros(count, dtype=bool)
    if columns.rejected is not None and table[columns.rejected].null_count < count:
        rejected = table[columns.rejected].combine_chunks()
        keys = rejected.flatten().cast(pa.string())
        if keys.null_count or pc.any(pc.equal(keys, "")).as_py():
            return None
        counts = np.asarray(pc.fill_null(pc.list_value_length(rejected), 0), dtype=np.int64)
        both = np.asarray(pc.dictionary_encode(pa.concat_arrays([records.label_keys, keys])).indices, dtype=np.int64)
        rows = [np.repeat(np.arange(count), times) for times in (label_counts, counts)]
        pairs = np.concatenate(rows) * (both.max(initial=0) + 1) + both
        if np.isin(pairs[len(rows[0]) :], pairs[: len(rows[0])]).any():
            return None
        partial = np.asarray(pc.is_valid(rejected)).astype(bool)
        records = replace(records, rejected_counts=counts, rejected_keys=keys)
    if columns.complete is not None and table[columns.complete].null_count < count:
        complete = table[columns.complete].combine_chunks()
        partial = np.asarray(pc.coalesce(pc.invert(complete), pa.array(partial))).astype(bool)
    return replace(records, partial=partial) if partial.any() else records


def _placed(records: Records, before: int) -> Records:
    """Shift the line numbers of a block by the `before` lines preceding it, and fill in missing ids."""
    lines = np.asarray(records.lines) + before
    ids = records.ids
    if isinstance(ids, pa.Array) and ids.null_count:
        ids = pc.coalesce(ids, pa.array(lines - 1).cast(pa.string()))
    return replace(records, lines=lines, ids=ids)


def _is_utf8(block: bytes) -> bool:
    offsets = pa.py_buffer(np.array([0, len(block)], dtype=np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(block)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def write_jsonl(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write one object per document with id, text fields and labels, and with rejected labels if there are any."""
    wrong = None if dataset.rejected is None else replace(dataset, labels=dataset.rejected, rejected=None, partial=None)
    rejected = chain.from_iterable(label_lists(batch) for batch in wrong.batches(1024)) if wrong else repeat([])
    partial = repeat(False) if dataset.partial is None else iter(dataset.partial.tolist())
    with replace_file(path) as stream:
        for document, texts, labels in documents_with_fields(dataset):
            row: dict[str, Any] = {"id": document, **dict(zip(dataset.fields, texts, strict=True)), "labels": labels}
            wrong_labels, is_partial = next(rejected), next(partial)
            if wrong_labels or is_partial:
                row |= {"rejected": wrong_labels, "complete": not is_partial}
            stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return 0


_ENDINGS = (".jsonl", ".ndjson")


def is_json_lines(head: FileHead) -> bool:
    """Whether the name ends in .jsonl or .ndjson, or the first line is an object."""
    return head.first_line.startswith(b"{") or head.name.endswith(_ENDINGS)


JSONL = Format(
    name="jsonl",
    description="one JSON object per line",
    read=read_jsonl,
    write=write_jsonl,
    sniff=is_json_lines,
    part_name="{}.jsonl",
    endings=_ENDINGS,
    fields=True,
    ids=True,
    decisions=True,
    split_field=True,
)
