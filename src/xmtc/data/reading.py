"""`read` loads a file as one Dataset, `stream` in small batches; both detect the format by name and content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError, DataError, shown
from xmtc.core.mapped_text import TextSpool
from xmtc.core.progress import Progress, silent
from xmtc.data.dataset import Csr, Dataset, label_matrix, labels_from_keys
from xmtc.data.formats import FORMATS, detected, named_format
from xmtc.data.label_index import LabelIndex
from xmtc.data.records import BadLines, ReadOptions, Records
from xmtc.data.vocabularies import apply, read_vocabulary


def read(
    path: str | Path,
    options: ReadOptions | None = None,
    *,
    vocabulary: str | Path | None = None,
    language: str | None = None,
    unknown_labels: str = "refuse",
    whole_vocabulary: bool = True,
    progress: Progress = silent,
    **how: Any,
) -> Dataset:
    """Read all documents of a file with their labels; `how` are fields of `ReadOptions`, as in text_fields=["title"].

    `vocabulary` is a file of labels; a label that is not in it is an error, or dropped with `unknown_labels="drop"`.
    Labels of the vocabulary that no document has are kept, unless `whole_vocabulary` is false. `language` selects the
    language of label names. Large text is stored in a memory-mapped temporary file.
    """
    if unknown_labels not in ("refuse", "drop"):
        raise ConfigError(f"'unknown_labels' must be 'refuse' or 'drop'. Got '{shown(unknown_labels)}'.")
    options = _options(options, how)
    spool = TextSpool()
    parts: list[Records] = []
    with progress.task(f"reading {Path(path).name}") as task:
        for records in _records(path, options):
            if not len(records):
                continue
            if records.fields:
                spool.add(_text_batch(records))
            task.advance(len(records))
            parts.append(_lean(records))
    if not parts:
        raise _nothing_in(path, options)
    dataset = _dataset(parts, spool.finish(), asked_for=bool(options.text_fields))
    if options.split_field is not None:
        dataset = replace(dataset, split_values=_split_values(parts, options.split_field, path))
    if options.labelled or any(len(part.label_keys) + len(part.rejected_keys) for part in parts):
        dataset = _labelled(dataset, parts, path, vocabulary, language, unknown_labels)
        dataset = dataset if whole_vocabulary or not dataset.whole_vocabulary else dataset.used_labels()
        options.notes.extend(_label_notes(parts, dataset, path, vocabulary))
    return dataset


def _label_notes(
    parts: list[Records], dataset: Dataset, path: str | Path, vocabulary: str | Path | None
) -> Iterator[str]:
    """Yield notes about dropped labels, and about labels that look like several joined by a separator."""
    labels, index = dataset.labels, dataset.label_index
    assert labels is not None
    assert index is not None
    read_in = sum(len(part.label_keys) for part in parts)
    if vocabulary is not None and labels.nnz < read_in:
        gone = read_in - labels.nnz
        yield f"{path}: dropped {gone:,} of {read_in:,} labels that are repeated or not in {Path(vocabulary).name}"
    widest = int(np.diff(labels.indptr).max(initial=0))
    keys = pa.array(index.strings("key", np.unique(labels.indices)) if dataset.whole_vocabulary else index.keys)
    if widest == 1 and len(keys) > 1:
        for separator in (",", "|", ";"):
            several = int(np.asarray(pc.match_substring(keys, separator)).sum())
            if several > len(keys) / 2:
                remedy = f"If it separates labels, pass --label-separator '{separator}'."
                yield f"{path}: no document has more than one label, but {several:,} contain a '{separator}'. {remedy}"


def read_some(path: str | Path, count: int, options: ReadOptions | None = None) -> Dataset:
    """Read only the first `count` documents of a file, with their labels, if any."""
    wanted = options or ReadOptions()
    options = replace(wanted, labelled=False, bad_lines=BadLines(skip=True))
    parts: list[Records] = []
    batches: list[pa.RecordBatch] = []
    for records in _records(path, options):
        if len(records):
            batches += [_text_batch(records)] if records.fields else []
            parts.append(_lean(records))
        if sum(map(len, parts)) >= count:
            break
    if not parts:
        raise _nothing_in(path, options)
    table = pa.Table.from_batches(batches) if batches else pa.table({})
    dataset = _dataset(parts, table, asked_for=bool(options.text_fields))
    if any(part.label_counts is not None for part in parts):
        dataset = _labelled(dataset, parts, path, None, None, "refuse")
    lines = np.concatenate([part.lines for part in parts])
    last = int(lines[count - 1]) if len(lines) >= count else np.inf
    for message in options.bad_lines.messages:
        line = re.match(r":(\d+): ", message.removeprefix(str(path)))
        if line is None or int(line[1]) <= last:  # ignore invalid lines after the last document
            wanted.bad_lines.add(DataError(message))
    return dataset.slice(0, count)


def stream(path: str | Path, options: ReadOptions | None = None, *, size: int = 1024, **how: Any) -> Iterator[Dataset]:
    """Yield documents in batches of `size`, without labels, for prediction; '-' is standard input."""
    options = replace(_options(options, how), labelled=False, ignore_labels=True)
    empty = True
    for records in _records(path, options):
        if not len(records):
            continue
        empty = False
        table = pa.Table.from_batches([_text_batch(records)])
        yield from _dataset([records], table, asked_for=bool(options.text_fields)).batches(size)
    if empty:
        raise _nothing_in(path, options)


def _options(options: ReadOptions | None, how: dict[str, Any]) -> ReadOptions:
    unknown = set(how) - set(ReadOptions.__dataclass_fields__)
    if unknown:
        raise TypeError(f"read has no option '{unknown.pop()}'")
    return replace(options or ReadOptions(), **how)


def _nothing_in(path: str | Path, options: ReadOptions) -> DataError:
    if options.bad_lines.messages:
        return DataError(f"{options.bad_lines.messages[0]} The file has no valid line.")
    return DataError(f"{path}: contains no documents. Write one per line.")


def _records(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    chosen = named_format(options.file_format or detected(path), path)
    if chosen.name == "text" and options.labelled:
        raise DataError(
            f'{path}:1: plain text without labels. Write one object per line: {{"text": "…", "labels": ["…"]}}, '
            "or specify the format with --format."
        )
    if options.split_field is not None and not chosen.split_field:
        able = ", ".join(sorted(each.name for _, each in FORMATS.loadable() if each.split_field))
        raise ConfigError(
            f"{path}: the format '{chosen.name}' has no field '{shown(options.split_field)}' to split by. "
            f"Choose one of: {able}; or leave out --split-by."
        )
    return chosen.read(path, options)


def _lean(records: Records) -> Records:
    """Drop the text of a batch, which is in the spool, and convert the rest to arrays."""
    return replace(
        records,
        fields={},
        ids=[] if records.fields else records.ids,
        lines=np.asarray(records.lines, dtype=np.int64),
        label_counts=None if records.label_counts is None else np.asarray(records.label_counts, dtype=np.int64),
        label_keys=pa.array(records.label_keys, pa.string()),
        rejected_keys=pa.array(records.rejected_keys, pa.string()),
        split_values=None if records.split_values is None else pa.array(records.split_values, pa.string()),
    )


def _text_batch(records: Records) -> pa.RecordBatch:
    """Return a record batch with the ids as first column, then the text fields."""
    columns = [pa.array(records.ids, pa.string()), *records.fields.values()]
    return pa.RecordBatch.from_arrays(columns, names=["id", *records.fields])


def _dataset(parts: list[Records], table: pa.Table, asked_for: bool) -> Dataset:
    """Assemble a Dataset; unless text fields were `asked_for`, drop those that are empty throughout."""
    if parts[0].features is not None:
        matrices = [part.features for part in parts if part.features is not None]
        width = max(matrix.shape[1] for matrix in matrices)  # batches of a format without a header differ in width
        for matrix in matrices:
            matrix.resize((matrix.shape[0], width))
        ids = pa.chunked_array([pa.array(part.ids, pa.string()) for part in parts])
        return Dataset(features=sp.csr_array(sp.vstack(matrices, format="csr")), ids=ids)
    fields = dict(zip(table.column_names[1:], table.columns[1:], strict=True))
    if len(fields) > 1 and not asked_for:
        filled = {name: column for name, column in fields.items() if pc.any(pc.not_equal(column, "")).as_py()}
        fields = filled or fields
    return Dataset(fields=fields, ids=table.column(0))


def _split_values(parts: list[Records], name: str, path: str | Path) -> pa.ChunkedArray:
    """The values of the field by which documents will be split; an error if a document has none."""
    values = pa.chunked_array([part.split_values for part in parts], pa.string())
    if values.null_count:
        lines = np.concatenate([part.lines for part in parts])[np.asarray(values.is_null())]
        raise DataError(
            f"{path}:{lines[0]}: no '{shown(name)}' to split by, as in {len(lines):,} of {len(values):,} documents. "
            "Add it to each document, or split by another field."
        )
    return values


# ---- labels


def _labelled(
    dataset: Dataset,
    parts: list[Records],
    path: str | Path,
    vocabulary: str | Path | None,
    language: str | None,
    unknown: str,
) -> Dataset:
    """Add the labels of the documents; accepted and rejected labels are numbered alike."""
    every, count = list(parts), len(dataset)
    if any(part.rejected_counts is not None for part in parts):
        every += [replace(part, label_counts=part.rejected_counts, label_keys=part.rejected_keys) for part in parts]
    labels, index, whole = _labels(every, path, vocabulary, language, unknown)
    return replace(
        dataset,
        labels=labels[:count],
        label_index=index,
        rejected=labels[count:] if len(every) > len(parts) else None,
        partial=_partial(parts),
        whole_vocabulary=whole,
    )


def _partial(parts: list[Records]) -> NDArray[np.bool_] | None:
    if all(part.partial is None for part in parts):
        return None
    return np.concatenate([np.zeros(len(p), dtype=bool) if p.partial is None else p.partial for p in parts])


def _labels(
    parts: list[Records], path: str | Path, vocabulary: str | Path | None, language: str | None, unknown: str
) -> tuple[Csr, LabelIndex, bool]:
    """Return the label matrix, the labels, and whether they are a whole vocabulary."""
    none = [np.zeros(len(part.lines), dtype=np.int64) for part in parts]
    counts = [zero if part.label_counts is None else part.label_counts for part, zero in zip(parts, none, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    keys = _few_chunks([part.label_keys for part in parts])
    width, own = parts[0].label_width, parts[0].label_index
    if vocabulary is None:
        if width is None:
            return *_named(*labels_from_keys(offsets, keys), parts), False
        return label_matrix(offsets, _whole_numbers(keys), width), own or LabelIndex.numbered(width), False
    found = read_vocabulary(vocabulary, numbered=width is not None and own is None, language=language)
    if found.plain and width is not None and own is None:
        if len(found.index) < width:
            raise DataError(
                f"{vocabulary}: {len(found.index):,} names for the {width:,} labels of {path}. Add the missing names."
            )
        names = found.index.names[:width]
        return label_matrix(offsets, _whole_numbers(keys), width), LabelIndex.numbered(width, names), False
    if own is not None:
        keys = own.table["key"].take(pa.array(_whole_numbers(keys)))
    numbers = np.concatenate([np.empty(0, np.int64), *(found.index.ids(apply(part, found)) for part in keys.chunks)])
    if unknown != "drop" and (numbers < 0).any():
        _refuse_unknown(parts, path, vocabulary, found.deprecated, int(np.argmax(numbers < 0)), offsets, keys)
    return label_matrix(offsets, numbers, len(found.index)), found.index, True


def _few_chunks(arrays: list[pa.Array]) -> pa.ChunkedArray:
    """Concatenate strings into as few arrays as possible: one, unless they exceed Arrow's size limit."""
    chunks: list[list[pa.Array]] = [[]]
    size = 0
    for array in arrays:
        if size + array.nbytes > 1 << 30:
            chunks, size = [*chunks, []], 0
        chunks[-1].append(array)
        size += array.nbytes
    return pa.chunked_array([pa.concat_arrays(chunk) for chunk in chunks if chunk], pa.string())


def _named(matrix: Csr, index: LabelIndex, parts: list[Records]) -> tuple[Csr, LabelIndex]:
    """Add label names found in the file, if any."""
    names = {key: name for part in parts for key, name in part.label_names.items()}
    if not names:
        return matrix, index
    return matrix, LabelIndex.from_keys(index.keys, [names.get(key, key) for key in index.keys])


def _whole_numbers(keys: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.asarray(keys.cast(pa.int64()), dtype=np.int64)


def _refuse_unknown(
    parts: list[Records],
    path: str | Path,
    vocabulary: str | Path,
    deprecated: frozenset[str],
    at: int,
    offsets: NDArray[np.int64],
    keys: pa.ChunkedArray,
) -> None:
    lines = np.concatenate([part.lines for part in parts])
    row = int(np.searchsorted(offsets, at, side="right")) - 1
    key, name = str(keys[at].as_py()), Path(vocabulary).name
    if key in deprecated:
        what = f"label '{shown(key)}' is deprecated in {name} and has no replacement. Choose another label"
    else:
        what = f"label '{shown(key)}' is not in {name}. Add it"
    raise DataError(f"{path}:{lines[row]}: {what}, or pass --unknown-labels drop.")
