"""Parquet format: a columnar table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xmtc.core.errors import DataError, shown
from xmtc.core.files import first_bytes, read_blocks, replace_file, unchanged
from xmtc.data.dataset import Dataset
from xmtc.data.format import FileHead, Format
from xmtc.data.records import ReadOptions, Records
from xmtc.data.rows import Columns, RowBatch, check_columns, choose_columns, split_column
from xmtc.data.tables import row_labels
from xmtc.data.writing import label_lists

_BATCH = 4096
_ENDINGS = (".parquet",)
_DAMAGE = (pa.ArrowException, OSError, ValueError, RuntimeError, OverflowError, MemoryError)
"""Exceptions that Arrow raises for a damaged file."""


def read_parquet(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Read string columns as text; labels are a list, or one string with separators."""
    import pyarrow.parquet as pq

    if str(path) == "-":
        raise DataError(f"{path}: Parquet cannot be read from a pipe. Write it to a file first.")
    with unchanged(path):
        source = _parquet_source(path)
        try:
            file = pq.ParquetFile(source)
            names = list(file.schema_arrow.names)
            texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
        except _DAMAGE as error:
            raise _damaged(path, error) from None
        columns = check_columns(choose_columns(names, texts, options, f"{path}"), names, options, f"{path}")
        used = dict.fromkeys([*columns.text, columns.labels, columns.id, columns.split])
        wanted = [name for name in used if name in names]
        for name in wanted:
            if names.count(name) > 1:
                raise DataError(f"{path}: two columns are named '{shown(name)}'. Rename one of them.")
        number = 0
        batches = file.iter_batches(_BATCH, columns=wanted, use_threads=True)
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                batch.validate(full=True)
                records = _fast(batch, number, columns, options)
                rows = batch.to_pylist() if records is None else []
            except _DAMAGE as error:
                raise _damaged(path, error) from None
            yield _slow(rows, number, columns, path, options) if records is None else records
            number += len(batch)


def _parquet_source(path: str | Path) -> Any:
    """Return the path, or the decompressed bytes if the file as a whole is compressed."""
    first_bytes(path, 4)  # raises an error if the file cannot be opened or decompressed
    with Path(path).open("rb") as stream:
        if stream.read(4) == b"PAR1":
            return str(path)
    return pa.BufferReader(b"".join(read_blocks(path)))


def _damaged(path: str | Path, error: Exception) -> DataError:
    reason = shown(str(error) or type(error).__name__, 120).rstrip(".")
    return DataError(f"{path}: not a readable Parquet file ({reason}). Download or create it again.")


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _fast(batch: pa.RecordBatch, before: int, columns: Columns, options: ReadOptions) -> Records | None:
    """Convert a batch in the form written by `write_parquet` by column; None if it must be read row by row."""
    if columns.labels not in batch.schema.names or columns.labels in (*columns.text, columns.id):
        return None
    labels = batch.column(columns.labels)
    if not pa.types.is_list(labels.type) or not pa.types.is_string(labels.type.value_type) or labels.null_count:
        return None
    keys = labels.flatten()
    texts = {name: batch.column(name) for name in columns.text}
    if any(not pa.types.is_string(text.type) or text.null_count for text in texts.values()):
        return None
    if keys.null_count or pc.any(pc.equal(keys, "")).as_py():
        return None
    lines = np.arange(before + 1, before + 1 + len(batch))
    ids = pa.array(lines - 1).cast(pa.string())
    if columns.id in batch.schema.names:
        given = batch.column(columns.id)
        if not (pa.types.is_string(given.type) or pa.types.is_integer(given.type)):
            return None
        ids = pc.coalesce(given.cast(pa.string()), ids)
    values = None
    if columns.split is not None:
        values = split_column(batch.column(columns.split))
        if values is None:
            return None
    counts = np.asarray(pc.list_value_length(labels), dtype=np.int64)
    return Records(ids=ids, lines=lines, fields=texts, label_counts=counts, label_keys=keys, split_values=values)


def _slow(rows: list[dict[str, Any]], before: int, columns: Columns, path: str | Path, options: ReadOptions) -> Records:
    out = RowBatch(path, columns, options)
    for number, row in enumerate(rows, start=before + 1):
        place = f"{path}:{number}"
        cell = row.get(columns.labels)
        try:
            if isinstance(cell, str):
                row[columns.labels] = row_labels(cell, columns, options, place)
            elif isinstance(cell, (tuple, np.ndarray)):
                row[columns.labels] = list(cell)
        except DataError as error:
            options.bad_lines.add(error)
            continue
        out.add(number, row)
    return out.records()


def write_parquet(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write the columns id, the text fields, and labels (a list of strings)."""
    import pyarrow.parquet as pq

    names = ["id", *dataset.fields, "labels"]
    kinds = [pa.string()] * (len(names) - 1) + [pa.list_(pa.string())]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    with replace_file(path) as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for batch in dataset.batches(16_384):
            columns = [
                pa.array(batch.document_ids(), pa.string()),
                *(column.combine_chunks() for column in batch.fields.values()),
                pa.array(label_lists(batch), pa.list_(pa.string())),
            ]
            writer.write_table(pa.table(columns, schema=schema))
    return 0


def _is_parquet(head: FileHead) -> bool:
    return head.raw.startswith(b"PAR1") or head.name.endswith(_ENDINGS)


PARQUET = Format(
    name="parquet",
    description="a columnar table",
    read=read_parquet,
    write=write_parquet,
    sniff=_is_parquet,
    part_name="{}.parquet",
    endings=_ENDINGS,
    fields=True,
    ids=True,
    split_field=True,
    lines=False,
)
