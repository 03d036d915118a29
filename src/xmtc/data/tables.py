"""Tables with a header: CSV with quotes, TSV without, and Parquet."""

from __future__ import annotations

import csv
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xmtc.core.errors import DataError, shown
from xmtc.core.files import decode_line, first_bytes, read_blocks, replace_file, unchanged
from xmtc.data.annif import subjects
from xmtc.data.dataset import Dataset
from xmtc.data.lines import numbered_lines
from xmtc.data.records import ReadOptions, Records
from xmtc.data.rows import Columns, RowBatch, cell_labels, check_columns, choose_columns, usual_names
from xmtc.data.writing import OneLine, from_line, label_lists

_BATCH = 4096
_DELIMITERS = (",", ";", "\t", "|")
_MOST_AGAIN = 1 << 25  # characters of a CSV file that are looked at again after rows that are none
Cells = Iterator[tuple[int, list[str] | DataError]]
_Line = tuple[str, DataError | None]  # with its end, and what is wrong with it
_BRACKETED = re.compile(r"(?:<[^>]*+>\s*+)++")
_SEPARATOR_LINE = re.compile(r'(?:\ufeff)?"?sep=([,;|\t])"?\s*', re.IGNORECASE)  # of spreadsheets, before the header
_TO_QUOTE = re.compile('[",;|\r\n]')


def read_tsv(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Cells are what stands between two tabs, quotes and all; blank lines are passed over."""
    return _table(path, _tsv_cells(path), options, from_line)


def read_csv(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Cells in quotes may hold separators and line ends; the header tells what parts cells: , ; | or a tab."""
    return _table(path, _csv_cells(path), options, str)


def table_cells(path: str | Path, quoted: bool) -> Cells:
    """(line number, cells) of each row of a CSV or a TSV file, the header first; or the error of a row that is none."""
    return _csv_cells(path) if quoted else _tsv_cells(path)


def _tsv_cells(path: str | Path) -> Cells:
    for block in numbered_lines(path):
        for number, line in block:
            try:
                cells = decode_line(line, path, number).split("\t")
            except DataError as error:
                yield number, error
            else:
                if cells != [""]:
                    yield number, cells


def _csv_cells(path: str | Path) -> Cells:
    """The rows of a CSV file. Where one is none, the next line is taken as the beginning of the next row."""
    lines = _Lines(path)
    told = _SEPARATOR_LINE.fullmatch(lines.first())
    if told is not None:
        next(lines)
    reader = csv.reader(lines, delimiter=told[1] if told else _delimiter(lines.first()), strict=True)
    while True:
        start = lines.begin_row()
        try:
            with _long_cells():
                row = next(reader, None)
        except csv.Error as error:
            words = shown(str(error), 80).rstrip(".")
            words = f"{path}:{start}: not CSV ({words}). Put quotes around cells and double those inside."
            yield start, DataError(words)
            lines.back_to(start + 1)
            continue
        if lines.bad is not None:
            yield start, lines.bad
        elif row is None:
            return
        elif row:
            yield start, row


_cell_limit = threading.Lock()


@contextmanager
def _long_cells() -> Iterator[None]:
    """A text may be longer than the csv module allows; its limit is the whole process's, and is put back."""
    with _cell_limit:
        before = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(before)


class _Lines(Iterator[str]):
    """The lines of a file with their ends; those of the row that is being read can be read again."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._lines = (line for block in read_blocks(path) for line in block.removesuffix(b"\n").split(b"\n"))
        self._number = 0  # lines that were given
        self._row: list[_Line] = []  # of the row that is being read
        self._waiting: deque[_Line] = deque()  # to be given again
        self._given_again = 0
        self.bad: DataError | None = None
        """What is wrong with a line of this row, if it is not UTF-8."""

    def first(self) -> str:
        """The first line, which stays to be read."""
        self.begin_row()
        line = next(self, "")
        self.back_to(1)
        return line

    def begin_row(self) -> int:
        """The number of the line that begins the next row."""
        self._row, self.bad = [], None
        return self._number + 1

    def back_to(self, number: int) -> None:
        """Give the lines of this row from `number` on once more."""
        again = self._row[len(self._row) - (self._number + 1 - number) :]
        self._given_again += sum(len(text) for text, _ in again)
        if self._given_again > _MOST_AGAIN:  # every line could open a quote that is never closed
            raise DataError(f"{self._path}:{number - 1}: too many quotes are not closed. Correct them first.")
        self._waiting.extendleft(reversed(again))
        self._number = number - 1

    def __next__(self) -> str:
        text, bad = self._waiting.popleft() if self._waiting else self._decoded(next(self._lines))
        self._number += 1
        self._row.append((text, bad))
        self.bad = self.bad or bad
        return text.removeprefix("\ufeff") if self._number == 1 else text

    def _decoded(self, line: bytes) -> _Line:
        try:
            return line.decode("utf-8") + "\n", None
        except UnicodeDecodeError:
            pass
        try:
            raise AssertionError(decode_line(line, self._path, self._number + 1))
        except DataError as error:
            return line.decode("utf-8", "replace") + "\n", error


def _delimiter(header: str) -> str:
    bare = re.sub(r'"[^"]*"', "", header)
    return max(_DELIMITERS, key=bare.count)


def _table(path: str | Path, cells: Cells, options: ReadOptions, clean: Callable[[str], str]) -> Iterator[Records]:
    number, header = next(cells, (1, []))
    if isinstance(header, DataError):
        raise header
    if not header:
        raise DataError(f"{path}: empty. Begin with a header such as id, text, labels.")
    names = usual_names([name.strip() for name in header], options)
    place = f"{path}:{number}"
    columns = check_columns(choose_columns(names, names, options, place), names, options, place)
    used = {*columns.text, columns.labels, columns.id}
    for name in used:
        if names.count(name) > 1:
            raise DataError(f"{place}: two columns are called '{shown(name)}'. Rename one of them.")
    at = {name: names.index(name) for name in used if name in names}
    batch, held = RowBatch(path, columns, options), 0
    for number, row in cells:
        if isinstance(row, DataError):
            options.bad_lines.add(row)
            continue
        try:
            batch.add(number, _named(row, at, len(names), columns, options, clean, f"{path}:{number}"))
        except DataError as error:
            options.bad_lines.add(error)
            continue
        held += sum(map(len, row))
        if held > 1 << 20:
            yield batch.records()
            batch, held = RowBatch(path, columns, options), 0
    yield batch.records()


def _named(
    row: Sequence[str],
    at: dict[str, int],
    width: int,
    columns: Columns,
    options: ReadOptions,
    clean: Callable[[str], str],
    place: str,
) -> dict[str, Any]:
    """The cells of a row by column; those of labels as a list, an empty id as none."""
    if len(row) != width:
        raise DataError(
            f"{place}: {len(row)} cells where the header has {width}. Put a cell with a separator in quotes."
        )
    named: dict[str, Any] = {name: clean(row[column]) for name, column in at.items()}
    if columns.labels in at and not options.ignore_labels:
        named[columns.labels] = _row_labels(row[at[columns.labels]], columns, options, place)
    if columns.id in named and not named[columns.id] and columns.id not in columns.text:
        named[columns.id] = None
    return named


def _row_labels(cell: str, columns: Columns, options: ReadOptions, place: str) -> list[Any]:
    if columns.labels == "subject_uris" and options.label_separator == ReadOptions.label_separator:
        return subjects(cell)  # Annif's column, with blanks between URIs, which may hold the usual separator
    return labels_in_cell(cell, options.label_separator, place)


def labels_in_cell(cell: str, separator: str, place: str) -> list[Any]:
    """The labels of one cell: Annif's subjects, <uri> <uri>, or any other form of several keys in a cell."""
    return subjects(cell) if _BRACKETED.fullmatch(cell) else cell_labels(cell, separator, place)


# ---- writing


def write_csv(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """A header, then a row a document: id, text fields, labels."""
    fit = OneLine(path, "csv", lossy)
    header = _header(dataset, fit)
    with replace_file(path) as stream:
        stream.write(",".join(map(_quoted, header)).encode() + b"\n")
        for batch in dataset.batches(1024):
            columns = [column.to_pylist() for column in batch.fields.values()]
            for document, keys, *texts in zip(batch.document_ids(), label_lists(batch), *columns, strict=True):
                cells = [fit.identifier(document), *texts, label_cell(keys)]
                stream.write(",".join(map(_quoted, cells)).encode() + b"\n")
    return fit.changed


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if _TO_QUOTE.search(cell) else cell


def _header(dataset: Dataset, fit: OneLine) -> list[str]:
    """The names of all columns, which a reader must find as they are."""
    for name in dataset.fields:
        if not name or name != name.strip() or not name.isprintable():
            raise DataError(f"{fit.path}: a column cannot be called '{shown(name)}'. Rename that text field.")
    return ["id", *dataset.fields, "labels"]


def write_tsv(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """A header, then a line a document; line ends inside a text become vertical tabs."""
    fit = OneLine(path, "tsv", lossy)
    header = _header(dataset, fit)
    with replace_file(path) as stream:
        stream.write("\t".join(header).encode() + b"\n")
        for batch in dataset.batches(1024):
            columns = [column.to_pylist() for column in batch.fields.values()]
            for document, keys, *texts in zip(batch.document_ids(), label_lists(batch), *columns, strict=True):
                cells = [fit.text(cell, document, tabs=False) for cell in (fit.identifier(document), *texts)]
                stream.write("\t".join([*cells, label_cell(keys)]).encode() + b"\n")
    return fit.changed


def label_cell(keys: list[str]) -> str:
    """'a;b', or a JSON list where a key would not come through that."""
    joined = ";".join(keys)
    plain = all(key == key.strip() and ";" not in key and key.isprintable() for key in keys)
    if plain and not joined.startswith(("[", "<")):
        return joined
    return json.dumps(keys, ensure_ascii=False)


# ---- Parquet

_DAMAGE = (pa.ArrowException, OSError, ValueError, RuntimeError, OverflowError, MemoryError)
"""What Arrow raises on its way through a broken file."""


def read_parquet(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Columns of strings for the text; labels as a list, or in one string with separators."""
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
        wanted = [name for name in dict.fromkeys([*columns.text, columns.labels, columns.id]) if name in names]
        for name in wanted:
            if names.count(name) > 1:
                raise DataError(f"{path}: two columns are called '{shown(name)}'. Rename one of them.")
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
    """The file itself; or its unpacked bytes where it was compressed once more."""
    first_bytes(path, 4)  # a file that cannot be opened or unpacked is refused here
    with Path(path).open("rb") as stream:
        if stream.read(4) == b"PAR1":
            return str(path)
    return pa.BufferReader(b"".join(read_blocks(path)))


def _damaged(path: str | Path, error: Exception) -> DataError:
    reason = shown(str(error) or type(error).__name__, 120).rstrip(".")
    return DataError(f"{path}: not a readable Parquet file ({reason}). Fetch or write it again.")


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _fast(batch: pa.RecordBatch, before: int, columns: Columns, options: ReadOptions) -> Records | None:
    """A batch of the form that `write_parquet` gives, column by column; None where rows must be looked at."""
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
    counts = np.asarray(pc.list_value_length(labels), dtype=np.int64)
    return Records(ids=ids, lines=lines, fields=texts, label_counts=counts, label_keys=keys)


def _slow(rows: list[dict[str, Any]], before: int, columns: Columns, path: str | Path, options: ReadOptions) -> Records:
    out = RowBatch(path, columns, options)
    for number, row in enumerate(rows, start=before + 1):
        place = f"{path}:{number}"
        cell = row.get(columns.labels)
        try:
            if isinstance(cell, str):
                row[columns.labels] = _row_labels(cell, columns, options, place)
            elif isinstance(cell, (tuple, np.ndarray)):
                row[columns.labels] = list(cell)
        except DataError as error:
            options.bad_lines.add(error)
            continue
        out.add(number, row)
    return out.records()


def write_parquet(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Columns id, the text fields and labels (a list of strings)."""
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
