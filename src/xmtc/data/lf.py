"""Label-feature (LF) data sets: JSON lines with title, content and label numbers; label texts in lbl.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.errors import DataError, shown
from xmtc.core.files import COMPRESSED, decode_line, has_surrogate, parse_lines, read_blocks, replace_file
from xmtc.data.dataset import Dataset
from xmtc.data.format import FileHead, Format
from xmtc.data.jsonl import is_json_lines, read_jsonl
from xmtc.data.label_index import LabelIndex
from xmtc.data.records import ReadOptions, Records
from xmtc.data.writing import label_lists

LABELS = "lbl.json"
_EXAMPLE = '{"uid": "…", "title": "…"}'


def labels_beside(path: str | Path) -> Path | None:
    """Return the file of label texts in the same folder, compressed or not."""
    names = (LABELS, *(LABELS + ending for ending in COMPRESSED))
    return next((place for place in (Path(path).with_name(name) for name in names) if place.is_file()), None)


def read_lf(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Read documents whose `target_ind` are line numbers of lbl.json, from 0; without that file they are label keys."""
    beside = None if str(path) == "-" else labels_beside(path)
    index = None if beside is None else read_label_texts(beside)
    for records in read_jsonl(path, replace(options, label_field=options.label_field or "target_ind")):
        if index is not None:
            records = _with_known_labels(records, path, len(index), options)
            records.label_width, records.label_index = len(index), index
        yield records


def _with_known_labels(records: Records, path: str | Path, width: int, options: ReadOptions) -> Records:
    """Return the documents whose labels are all numbers below `width`; report the others as invalid lines."""
    if options.ignore_labels:
        return replace(records, label_counts=None, label_keys=[])
    keys = pa.array(records.label_keys, pa.string())
    fine = pc.match_substring_regex(keys, "^(0|[1-9][0-9]{0,8})$")
    numbers = np.asarray(pc.if_else(fine, keys, str(width)).cast(pa.int64()))
    if (numbers < width).all():
        return records
    counts = np.asarray(records.label_counts, dtype=np.int64)
    rows = np.repeat(np.arange(len(records)), counts)
    bad, first = np.unique(rows[numbers >= width], return_index=True)
    for row, at in zip(bad, np.flatnonzero(numbers >= width)[first], strict=True):
        place, key = f"{path}:{records.lines[row]}", shown(keys[int(at)].as_py())
        options.bad_lines.add(
            DataError(
                f"{place}: label {key} is out of range: {LABELS} has {width:,} labels, numbered from 0. "
                "Correct the label."
            )
        )
    good = np.setdiff1d(np.arange(len(records)), bad)
    chosen = pa.array(good)
    return replace(
        records,
        ids=pa.array(records.ids, pa.string()).take(chosen),
        lines=np.asarray(records.lines)[good],
        fields={name: column.take(chosen) for name, column in records.fields.items()},
        label_counts=counts[good],
        label_keys=keys.filter(pa.array(np.isin(rows, good))),
    )


def read_label_texts(path: Path) -> LabelIndex:
    """Read labels in the order of their numbers: uid (or number) as key, title as name, content as description."""
    rows = _label_rows(path)
    keys = _keys(rows)
    names = [str(row.get("title") or key) for row, key in zip(rows, keys, strict=True)]
    return LabelIndex.from_keys(keys, names, descriptions=[str(row.get("content") or "") for row in rows])


def _label_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    before = 0
    for block in read_blocks(path):
        for number, row in parse_lines(block, path, before, _EXAMPLE):
            for name in ("uid", "title", "content"):
                value = row.get(name)
                wrong = not isinstance(value, (str, int, type(None))) or isinstance(value, bool)
                if wrong or has_surrogate(str(value)):
                    raise DataError(f"{path}:{number}: '{name}' must be a string. Write {_EXAMPLE}.")
            rows.append(row)
        before += block.count(b"\n")
    return rows


def _keys(rows: list[dict[str, Any]]) -> list[str]:
    """Return the uid of each label, or numbers from 0 if uids are missing or repeated."""
    keys = ["" if row.get("uid") is None else str(row["uid"]) for row in rows]
    return [str(number) for number in range(len(rows))] if "" in keys or len(set(keys)) < len(keys) else keys


def write_lf(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write the documents, and lbl.json in the same folder; new labels are appended to an existing lbl.json."""
    assert dataset.label_index is not None or dataset.labels is None
    ending = next((ending for ending in COMPRESSED if path.name.endswith(ending)), "")
    beside = labels_beside(path) or path.with_name(LABELS + ending)
    known = _label_rows(beside) if beside.is_file() else []
    index = LabelIndex.from_keys([]) if dataset.label_index is None else dataset.label_index
    where = {key: number for number, key in enumerate(_keys(known))}
    labels = zip(*(index.table[each].to_pylist() for each in ("key", "name", "description")), strict=True)
    new = [{"uid": key, "title": name, "content": text} for key, name, text in labels if key not in where]
    where |= {row["uid"]: len(known) + number for number, row in enumerate(new)}
    if _keys([*known, *new]) != list(where):
        raise DataError(f"{beside}: its labels have no unique uid, so no labels can be added. Write to another folder.")
    keep = beside.is_file() and not new
    with nullcontext() if keep else replace_file(beside) as labels_stream, replace_file(path) as stream:
        if labels_stream is not None:
            _write_labels(beside, new, labels_stream)
        for batch in dataset.batches(1024):
            _write_documents(batch, where, stream)
    return 0


def _write_labels(there: Path, new: list[dict[str, str]], stream: IO[bytes]) -> None:
    """Copy the existing lines, then append the new labels."""
    for block in read_blocks(there) if there.is_file() else ():
        stream.write(block if block.endswith(b"\n") else block + b"\n")
    for row in new:
        stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _write_documents(batch: Dataset, where: dict[str, int], stream: IO[bytes]) -> None:
    """Write a leading title field as title and join all other fields as content."""
    titled = next(iter(batch.fields)) == "title"
    titles = batch.fields["title"].to_pylist() if titled else [""] * len(batch)
    rest = {name: column for name, column in batch.fields.items() if not (titled and name == "title")}
    bodies = Dataset(fields=rest).text().to_pylist() if rest else [""] * len(batch)
    for document, title, body, keys in zip(batch.document_ids(), titles, bodies, label_lists(batch), strict=True):
        found = sorted(where[key] for key in keys)
        row = {"uid": document, "title": title, "content": body, "target_ind": found, "target_rel": [1.0] * len(found)}
        stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def read_filter(path: str | Path, documents: int) -> tuple[NDArray[np.int64], list[str]]:
    """Read (row, label key) pairs to exclude from evaluation, such as a document and its own label.

    The file has one 'document label' pair per line, both numbered from 0; lbl.json in the same folder has the labels.
    """
    beside = labels_beside(path)
    index = None if beside is None else read_label_texts(beside)
    rows: list[int] = []
    labels: list[int] = []
    number = 0
    for block in read_blocks(path):
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            parts = decode_line(line, path, number).split()
            if not parts:
                continue
            if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
                raise DataError(f"{path}:{number}: not two integers. Write: document label.")
            row, label = map(int, parts)
            if row >= documents:
                raise DataError(
                    f"{path}:{number}: document {row} is out of range: {documents:,} documents, numbered from 0. "
                    "Correct the number."
                )
            if index is not None and label >= len(index):
                raise DataError(
                    f"{path}:{number}: label {label} is out of range: {LABELS} has {len(index):,} labels, "
                    "numbered from 0. Correct the number."
                )
            rows.append(row)
            labels.append(label)
    keys = [str(label) for label in labels] if index is None else index.strings("key", labels)
    return np.asarray(rows, dtype=np.int64), keys


def _is_lf(head: FileHead) -> bool:
    """Whether the file is JSON lines and the first document has "target_ind" and no "labels"."""
    line = head.first_line
    return is_json_lines(head) and bool(re.search(rb'"target_ind"\s*:', line) and not re.search(rb'"labels"\s*:', line))


LF = Format(
    name="lf",
    description="title, content, target_ind; labels in lbl.json",
    read=read_lf,
    write=write_lf,
    sniff=_is_lf,
    part_name="{}.json",
    endings=(".json",),
    fields=True,
    ids=True,
)
