"""One document a line: what readers of lines share, and plain text without labels."""

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
    """(line number, line) of a file, a block at a time."""
    number = 0
    for block in read_blocks(path):
        lines = block.removesuffix(b"\n").split(b"\n")
        yield list(enumerate(lines, start=number + 1))
        number += len(lines)


def read_each(
    blocks: Iterable[list[tuple[int, Line]]], options: ReadOptions, parse: Callable[[int, Line], Parsed | None]
) -> Iterator[Records]:
    """Documents that are a line each; `parse` makes text and labels of a line, or None of one to pass over."""
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
    """One document a line; an empty line is an empty document, so that answers stay in step with lines."""
    return read_each(numbered_lines(path), options, lambda number, line: (decode_line(line, path, number), None))


TEXT = Format(name="text", description="one text a line, no labels", read=read_text, sniff=lambda head: True)
