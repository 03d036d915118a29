"""Plain-text tables that fit the width of the terminal, or 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Sequence

from xmtc.cli.output import output_width

GAP = 2
"""Blanks between two columns."""
LEAST_WORD, LEAST_HEADING = 30, 12
"""Columns of a word that is never broken, in a cell and in a heading."""


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = (), width: int | None = None
) -> str:
    """A table, with the columns numbered in `right` aligned right.

    If it is wider than `width` (default: that of the output), text is wrapped by words. If the numbers alone are too
    wide, columns are continued in a second table below that repeats the first column.
    """
    cells = [list(header), *(list(row) for row in rows)]
    room = output_width() if width is None else width
    tables = []
    for columns in _blocks(cells, right, room):
        block = [0, *columns]
        tables.append(_table([[row[column] for column in block] for row in cells], block, right, room))
    return "\n\n".join(tables)


def _least(cells: Sequence[Sequence[str]], column: int, right: Collection[int]) -> int:
    """The fewest columns for a column of cells: numbers are never wrapped, text and headings are."""
    heading, *body = (row[column] for row in cells)
    words = list(body) if column in right else [word for cell in body for word in cell.split()]
    longest = max(map(len, words), default=0)
    return max(
        longest if column in right else min(longest, LEAST_WORD),
        min(max(map(len, heading.split()), default=0), LEAST_HEADING),
    )


def _blocks(cells: Sequence[Sequence[str]], right: Collection[int], room: int) -> list[list[int]]:
    """The columns after the first, divided into tables that fit."""
    first = _least(cells, 0, right)
    blocks: list[list[int]] = [[]]
    used = first
    for column in range(1, len(cells[0])):
        needed = GAP + _least(cells, column, right)
        if blocks[-1] and used + needed > room:
            blocks.append([])
            used = first
        blocks[-1].append(column)
        used += needed
    return blocks


def _table(cells: list[list[str]], numbers: Sequence[int], right: Collection[int], room: int) -> str:
    """One table; `numbers` are the numbers of its columns in the whole."""
    aligned = {at for at, number in enumerate(numbers) if number in right}
    widths = [max(len(row[at]) for row in cells) for at in range(len(numbers))]
    least = [_least(cells, at, aligned) for at in range(len(numbers))]
    while sum(widths) + GAP * (len(widths) - 1) > room:
        wide = [at for at in range(len(widths)) if widths[at] > least[at]]
        if not wide:
            break
        widths[max(wide, key=lambda at: widths[at])] -= 1

    def lines(row: Sequence[str]) -> list[str]:
        wrapped = [wrap(cell, widths[at]) for at, cell in enumerate(row)]
        height = max(len(cell) for cell in wrapped)
        padded = [[*cell, *[""] * (height - len(cell))] for cell in wrapped]
        placed = [
            [part.rjust(widths[at]) if at in aligned else part.ljust(widths[at]) for part in cell]
            for at, cell in enumerate(padded)
        ]
        return [(" " * GAP).join(parts).rstrip() for parts in zip(*placed, strict=True)]

    head, *body = [lines(row) for row in cells]
    rule = "-" * max(len(line) for row in (head, *body) for line in row)
    return "\n".join([*head, rule, *(line for row in body for line in row)])


def wrap(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` columns, broken between words or after a slash if possible."""
    if len(text) <= width:
        return [text]
    lines = [""]
    for part in re.findall(r"\s+|[^\s/]*/|[^\s/]+", text):
        if len(lines[-1]) + len(part) <= width:
            lines[-1] += part
        elif not part.isspace():
            whole = lines.pop().rstrip() if not lines[-1].strip() else ""
            pieces = [part[at : at + width] for at in range(0, len(part), width)]
            lines += pieces if not whole else [whole, *pieces]
    return [line.rstrip() for line in lines]


def paragraph(text: str, indent: str = "") -> str:
    """A sentence or several, wrapped to the width of the output."""
    return textwrap.fill(text, output_width(), subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
