"""Convert files of public data sets to supported formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from xmtc.core.errors import DataError
from xmtc.core.files import parse_lines, read_blocks, replace_file
from xmtc.core.progress import Progress, Task, silent
from xmtc.data.catalogue import Lines, Making, Matched, Numbered, Renamed, Tabbed
from xmtc.data.matrices import read_matrix


def prepare(source: Path, making: Making, target: Path, progress: Progress = silent) -> list[str]:
    """Convert `source` to `target` atomically; return notes for the user.

    Bytes that are not UTF-8 become � instead of an error.
    """
    makers: dict[type, Callable[[Path, Any, _Writer], None]] = {
        Lines: _lines,
        Tabbed: _tabbed,
        Renamed: _renamed,
        Matched: _matched,
        Numbered: _numbered,
    }
    with progress.task(f"writing {target.name}, lines") as task, replace_file(target) as stream:
        writer = _Writer(stream, task)
        makers[type(making)](source, making, writer)
        writer.flush()
    if writer.bad:
        writer.notes.append(f"{target}: {writer.bad:,} lines were not valid UTF-8; invalid bytes were replaced by �")
    return writer.notes


class _Writer:
    """Buffers lines and writes them in blocks."""

    def __init__(self, stream: IO[bytes], task: Task) -> None:
        self._stream, self._task = stream, task
        self._waiting: list[bytes] = []
        self.notes: list[str] = []
        self.bad = 0
        """Lines that were not UTF-8."""

    def line(self, line: bytes) -> None:
        self._waiting.append(line)
        if len(self._waiting) == 1000:
            self.flush()

    def row(self, **fields: Any) -> None:
        self.line(json.dumps(fields, ensure_ascii=False).encode(errors="replace"))  # unpaired surrogates become ?

    def text(self, line: bytes) -> str:
        """Decode a line; replace invalid bytes and count the line."""
        try:
            return line.decode().rstrip("\r")
        except UnicodeDecodeError:
            self.bad += 1
            return line.decode(errors="replace").rstrip("\r")

    def flush(self) -> None:
        self._stream.writelines(line + b"\n" for line in self._waiting)
        self._task.advance(len(self._waiting))
        self._waiting.clear()


def _each_line(path: Path) -> Iterator[bytes]:
    for block in read_blocks(path):
        yield from block.removesuffix(b"\n").split(b"\n")


def _lines(source: Path, making: Lines, out: _Writer) -> None:
    total = sum(1 for _ in _each_line(source))
    wanted = making.first or making.last or 0
    if total < wanted:
        raise DataError(f"{source}: {total:,} lines, expected {wanted:,}. Delete the folder and download it again.")
    start, stop = (0, making.first) if making.first else (total - wanted, total)
    for number, line in enumerate(_each_line(source)):
        if start <= number < stop:
            out.line(line)


def _tabbed(source: Path, making: Tabbed, out: _Writer) -> None:
    columns = 0
    for number, line in enumerate(_each_line(source), start=1):
        columns = columns or line.count(b"\t") + 1
        cells = out.text(line).split("\t", columns - 1)
        if columns not in (2, 3) or len(cells) != columns:
            raise DataError(f"{source}:{number}: expected labels, a tab and a text. Download the data set again.")
        *identifier, labels, text = cells
        out.row(**({"id": identifier[0]} if identifier else {}), text=text, labels=labels.split())


def _renamed(source: Path, making: Renamed, out: _Writer) -> None:
    before = 0
    for block in read_blocks(source):
        for number, row in parse_lines(block, source, before, '{"…": "…"}'):
            fields = {}
            for ours, theirs in making.fields.items():
                values = [_value(row, name, f"{source}:{number}") for name in theirs]
                joined = [piece for value in values for piece in (value if isinstance(value, list) else [value])]
                # A single list, such as labels, stays a list; several values are joined to one text.
                fields[ours] = values[0] if len(values) == 1 else "\n".join(map(str, joined))
            out.row(**fields)
        before += block.count(b"\n")


def _value(row: dict[str, Any], name: str, place: str) -> Any:
    value = row.get(name)
    if not isinstance(value, (str, int, list)):
        raise DataError(f"{place}: no '{name}'. Download the data set again.")
    return value


def _matched(source: Path, making: Matched, out: _Writer) -> None:
    labels = read_matrix(source.with_name(making.labels))
    labels.eliminate_zeros()
    rows = labels.shape[0]
    count = 0
    for count, line in enumerate(_each_line(source), start=1):
        if count > rows:
            break
        found = labels.indices[labels.indptr[count - 1] : labels.indptr[count]]
        out.row(text=out.text(line), labels=[str(label) for label in found.tolist()])
    if count != rows:
        more = "too many" if count > rows else f"{count:,}"
        raise DataError(f"{source}: {more} lines for {rows:,} rows of {making.labels}. Download the data set again.")


def _numbered(source: Path, making: Numbered, out: _Writer) -> None:
    count = read_matrix(source.with_name(making.labels)).shape[1]
    lines = sum(1 for _ in _each_line(source))
    if lines != count:  # a wrong line end shifts all names after it
        out.notes.append(f"{source}: {lines:,} names for {count:,} labels; label numbers are used as names instead")
    names = _each_line(source) if lines == count else iter([b""] * count)
    for number, line in enumerate(names):
        out.row(id=str(number), name=out.text(line).strip() or str(number))
