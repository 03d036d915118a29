"""Formats with one document per line: shared helpers, and plain text without labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from xmtc.core.errors import DataError
from xmtc.core.files import decode_line, read_blocks
from xmtc.data.format import Format
from xmtc.data.records import ReadOptions, Records

Parsed = tuple[str, list[str] | None]  # a text and its labels
Line = TypeVar("Line")


def numbered_lines(path: str | Path) -> Iterator[list[tuple[int, bytes]]]:
    """Yield (line number, line) pairs of a file, one block at a time."""
    number = 0
    for block in read_blocks(path):
        lines = block.removesuffix(b"\n").split(b"\n")
        yield list(enumerate(lines, start=number + 1))
        number += len(lines)


def read_each(
    blocks: Iterable[list[tuple[int, Line]]], options: ReadOptions, parse: Callable[[int, Line], Parsed | None]
) -> Iterator[Records]:
    """Yield batches of one document per line; `parse` returns text and labels, or None to skip the line."""
    for block in blocks:
        lines: list[int] = []
        texts: list[str] = []
        labels: list[list[str]] = []
        labelled = False
        for number, line in block:
            try:
                parsed = parse(number, line)
            except DataError as error:
                options.bad_lines.add(error)
                continue
            if parsed is None:
                continue
            lines.append(number)
            texts.append(parsed[0])
            labels.append(parsed[1] or [])
            labelled |= parsed[1] is not None
        yield Records(
            ids=[str(number - 1) for number in lines],
            lines=lines,
            fields={"text": pa.array(texts, pa.string())},
            label_counts=[len(row) for row in labels] if labelled else None,
            label_keys=[key for row in labels for key in row],
        )


def read_text(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Read one document per line; an empty line is an empty document, so that predictions match line numbers."""
    return read_each(numbered_lines(path), options, lambda number, line: (decode_line(line, path, number), None))


TEXT = Format(name="text", description="one text per line, no labels", read=read_text, sniff=lambda head: True)
