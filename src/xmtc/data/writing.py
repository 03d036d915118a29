"""What every writer shares: the labels of a batch as lists of keys, and text made to fit on a line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from xmtc.core.errors import DataError, shown
from xmtc.data.dataset import Dataset

LINE_END = "\v"
"""Stands for a line end inside a text where a line is a document: white space to every other tool."""


def label_lists(batch: Dataset) -> list[list[str]]:
    """The label keys of each document, in the order of the label index."""
    if batch.labels is None or batch.label_index is None:
        return [[] for _ in range(len(batch))]
    keys = batch.label_index.strings("key", batch.labels.indices)
    ends = batch.labels.indptr.tolist()
    return [keys[start:end] for start, end in pairwise(ends)]


def documents(dataset: Dataset) -> Iterator[tuple[str, str, list[str]]]:
    """(id, text, label keys) of each document."""
    for batch in dataset.batches(1024):
        yield from zip(batch.document_ids(), batch.text().to_pylist(), label_lists(batch), strict=True)


def documents_with_fields(dataset: Dataset) -> Iterator[tuple[str, list[str], list[str]]]:
    """(id, text of each field, label keys) of each document."""
    for batch in dataset.batches(1024):
        columns = [column.to_pylist() for column in batch.fields.values()]
        for document, keys, *texts in zip(batch.document_ids(), label_lists(batch), *columns, strict=True):
            yield document, texts, keys


def from_line(cell: str) -> str:
    """A text as it was before `OneLine` put it on a line."""
    return cell.replace(LINE_END, "\n")


class OneLine:
    """Puts texts and keys on one line. What a line cannot carry is refused, or replaced and counted if `lossy`."""

    def __init__(self, path: Path, format_name: str, lossy: bool) -> None:
        self.path, self.format_name, self.lossy = path, format_name, lossy
        self.changed = 0

    def text(self, text: str, document: str, tabs: bool = True) -> str:
        """A text whose line ends are vertical tabs; `tabs` says whether it may hold tabs."""
        if "\v" in text or "\r" in text or text.startswith("\ufeff") or (not tabs and "\t" in text):
            marks = {"\t": "a tab", "\v": "a vertical tab", "\r": "a carriage return", "\ufeff": "a byte order mark"}
            found = next(words for mark, words in marks.items() if mark in text and not (tabs and mark == "\t"))
            self.lose(f"document '{shown(document)}' holds {found}")
            text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\v", "\n")
            text = text if tabs else text.replace("\t", " ")
        return text.replace("\n", LINE_END)

    def identifier(self, document: str) -> str:
        """A document's id; a table cannot tell an empty one from none."""
        if not document:
            self.lose("a document has an empty id")
        return document

    def key(self, key: str, forbidden: str, kept: dict[str, str]) -> str:
        """A label key without the characters in `forbidden`; `kept` remembers who has which name in the file."""
        written = key
        if any(character in key for character in forbidden):
            self.lose(f"label '{shown(key)}' holds a character that parts labels there")
            written = "".join("_" if character in forbidden else character for character in key)
        owner = kept.setdefault(written, key)
        if owner != key:
            raise DataError(
                f"{self.path}: labels '{shown(owner)}' and '{shown(key)}' would be one. Rename one of them."
            )
        return written

    def lose(self, what: str) -> None:
        if not self.lossy:
            raise DataError(
                f"{self.path}: {what}, which {self.format_name} cannot carry. "
                "Choose another format, or pass --lossy to have such characters replaced."
            )
        self.changed += 1
