"""Tables with a header: CSV with quotes, TSV without quotes."""

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

from xmtc.core.errors import DataError, shown
from xmtc.core.files import decode_line, read_blocks, replace_file
from xmtc.data.annif import subjects
from xmtc.data.dataset import Dataset
from xmtc.data.format import Format
from xmtc.data.lines import numbered_lines
from xmtc.data.records import ReadOptions, Records
from xmtc.data.rows import Columns, RowBatch, cell_labels, check_columns, choose_columns, usual_names
from xmtc.data.writing import OneLine, documents_with_fields, from_line

_DELIMITERS = (",", ";", "\t", "|")
_MOST_AGAIN = 1 << 25  # maximum characters of a CSV file to read again after invalid rows
Cells = Iterator[tuple[int, list[str] | DataError]]
_Line = tuple[str, DataError | None]  # text with its line end, and its error
_BRACKETED = re.compile(r"(?:<[^>]*+>\s*+)++")
_SEPARATOR_LINE = re.compile(r'(?:\ufeff)?"?sep=([,;|\t])"?\s*', re.IGNORECASE)  # from spreadsheets, before the header
_TO_QUOTE = re.compile('[",;|\r\n]')


def read_tsv(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Read cells separated by tabs; quotes have no special meaning, and blank lines are skipped."""
    return _table(path, _tsv_cells(path), options, from_line)


def read_csv(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Read cells that may be quoted; the separator, one of , ; | or a tab, is detected from the header."""
    return _table(path, _csv_cells(path), options, str)


def table_cells(path: str | Path, quoted: bool) -> Cells:
    """Yield (line number, cells) for each row of a CSV or TSV file, header first; or the error of an invalid row."""
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
    """Yield the rows of a CSV file. After an invalid row, continue with the line after its first."""
    lines = _Lines(path)
    declared = _SEPARATOR_LINE.fullmatch(lines.first())
    if declared is not None:
        next(lines)
    reader = csv.reader(lines, delimiter=declared[1] if declared else _delimiter(lines.first()), strict=True)
    while True:
        start = lines.begin_row()
        try:
            with _long_cells():
                row = next(reader, None)
        except csv.Error as error:
            reason = shown(str(error), 80).rstrip(".")
            message = f"{path}:{start}: invalid CSV ({reason}). Quote cells and double the quotes inside them."
            yield start, DataError(message)
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
    """Raise the csv module's limit on the length of a cell, which is global, and restore it afterwards."""
    with _cell_limit:
        before = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(before)


class _Lines(Iterator[str]):
    """Iterator over the lines of a file with their ends; the lines of the current row can be read again."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._lines = (line for block in read_blocks(path) for line in block.removesuffix(b"\n").split(b"\n"))
        self._number = 0  # lines returned so far
        self._row: list[_Line] = []  # lines of the current row
        self._waiting: deque[_Line] = deque()  # lines to return again
        self._given_again = 0
        self.bad: DataError | None = None
        """Error of a line of the current row that is not UTF-8."""

    def first(self) -> str:
        """Return the first line without consuming it."""
        self.begin_row()
        line = next(self, "")
        self.back_to(1)
        return line

    def begin_row(self) -> int:
        """Start the next row; return its line number."""
        self._row, self.bad = [], None
        return self._number + 1

    def back_to(self, number: int) -> None:
        """Go back to line `number` of the current row."""
        again = self._row[len(self._row) - (self._number + 1 - number) :]
        self._given_again += sum(len(text) for text, _ in again)
        if self._given_again > _MOST_AGAIN:  # every line could contain an unclosed quote
            raise DataError(f"{self._path}:{number - 1}: too many unclosed quotes. Close them.")
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
        raise DataError(f"{path}: empty. Start the file with a header such as id, text, labels.")
    names = usual_names([name.strip() for name in header], options)
    place = f"{path}:{number}"
    columns = check_columns(choose_columns(names, names, options, place), names, options, place)
    used = {*columns.text, columns.labels, columns.id, *filter(None, [columns.split])}
    for name in used:
        if names.count(name) > 1:
            raise DataError(f"{place}: two columns are named '{shown(name)}'. Rename one of them.")
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
    """Return the cells of a row by column name; labels as a list, an empty id as None."""
    if len(row) != width:
        raise DataError(
            f"{place}: {len(row)} cells, but {width} in the header. Quote cells that contain the separator."
        )
    named: dict[str, Any] = {name: clean(row[column]) for name, column in at.items()}
    if columns.labels in at and not options.ignore_labels:
        named[columns.labels] = row_labels(row[at[columns.labels]], columns, options, place)
    if columns.id in named and not named[columns.id] and columns.id not in columns.text:
        named[columns.id] = None
    return named


def row_labels(cell: str, columns: Columns, options: ReadOptions, place: str) -> list[Any]:
    """Parse the labels of a row's label cell."""
    if columns.labels == "subject_uris" and options.label_separator == ReadOptions.label_separator:
        return subjects(cell)  # Annif's column: URIs separated by spaces, which may contain the default separator
    return labels_in_cell(cell, options.label_separator, place)


def labels_in_cell(cell: str, separator: str, place: str) -> list[Any]:
    """Parse the labels of one cell: Annif's subjects, <uri> <uri>, a list, or keys with a separator."""
    return subjects(cell) if _BRACKETED.fullmatch(cell) else cell_labels(cell, separator, place)


# ---- writing


def write_csv(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write a header, then one row per document: id, text fields, labels."""
    fit = OneLine(path, "csv", lossy)
    header = _header(dataset, fit)
    with replace_file(path) as stream:
        stream.write(",".join(map(_quoted, header)).encode() + b"\n")
        for document, texts, keys in documents_with_fields(dataset):
            cells = [fit.identifier(document), *texts, label_cell(keys)]
            stream.write(",".join(map(_quoted, cells)).encode() + b"\n")
    return fit.changed


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if _TO_QUOTE.search(cell) else cell


def _header(dataset: Dataset, fit: OneLine) -> list[str]:
    """Return the names of all columns; raise `DataError` if one cannot be read back."""
    for name in dataset.fields:
        if not name or name != name.strip() or not name.isprintable():
            raise DataError(f"{fit.path}: '{shown(name)}' is not a valid column name. Rename that text field.")
    return ["id", *dataset.fields, "labels"]


def write_tsv(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write a header, then one line per document; line ends inside a text become vertical tabs."""
    fit = OneLine(path, "tsv", lossy)
    header = _header(dataset, fit)
    with replace_file(path) as stream:
        stream.write("\t".join(header).encode() + b"\n")
        for document, texts, keys in documents_with_fields(dataset):
            cells = [fit.text(cell, document, tabs=False) for cell in (fit.identifier(document), *texts)]
            stream.write("\t".join([*cells, label_cell(keys)]).encode() + b"\n")
    return fit.changed


def label_cell(keys: list[str]) -> str:
    """Format labels as 'a;b', or as a JSON list if a key contains special characters."""
    joined = ";".join(keys)
    plain = all(key == key.strip() and ";" not in key and key.isprintable() for key in keys)
    if plain and not joined.startswith(("[", "<")):
        return joined
    return json.dumps(keys, ensure_ascii=False)


CSV = Format(
    name="csv",
    description="a table with a header, quoted cells",
    read=read_csv,
    write=write_csv,
    part_name="{}.csv",
    endings=(".csv",),
    fields=True,
    ids=True,
    split_field=True,
)
TSV = Format(
    name="tsv",
    description="a table with a header, no quotes",
    read=read_tsv,
    write=write_tsv,
    part_name="{}.tsv",
    endings=(".tsv", ".tab"),
    fields=True,
    ids=True,
    split_field=True,
)
