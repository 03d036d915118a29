"""Helpers shared by all writers: label keys of a batch as lists, and text encoded to fit on one line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from xmtc.core.errors import DataError, shown
from xmtc.data.dataset import Dataset

LINE_END = "\v"
"""Replaces line ends inside a text in formats with one document per line; other tools treat it as white space."""


def label_lists(batch: Dataset) -> list[list[str]]:
    """Return the label keys of each document, in the order of the label index."""
    if batch.labels is None or batch.label_index is None:
        return [[] for _ in range(len(batch))]
    keys = batch.label_index.strings("key", batch.labels.indices)
    ends = batch.labels.indptr.tolist()
    return [keys[start:end] for start, end in pairwise(ends)]


def documents(dataset: Dataset) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (id, text, label keys) for each document."""
    for batch in dataset.batches(1024):
        yield from zip(batch.document_ids(), batch.text().to_pylist(), label_lists(batch), strict=True)


def documents_with_fields(dataset: Dataset) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (id, text of each field, label keys) for each document."""
    for batch in dataset.batches(1024):
        columns = [column.to_pylist() for column in batch.fields.values()]
        for document, keys, *texts in zip(batch.document_ids(), label_lists(batch), *columns, strict=True):
            yield document, texts, keys


def from_line(cell: str) -> str:
    """Restore a text that `OneLine` encoded on one line."""
    return cell.replace(LINE_END, "\n")


class OneLine:
    """Encodes texts and keys on one line; unsupported characters are an error, or replaced and counted if `lossy`."""

    def __init__(self, path: Path, format_name: str, lossy: bool) -> None:
        self.path, self.format_name, self.lossy = path, format_name, lossy
        self.changed = 0

    def text(self, text: str, document: str, tabs: bool = True) -> str:
        """Encode line ends as vertical tabs; `tabs`: whether the format allows tabs in a text."""
        if "\v" in text or "\r" in text or text.startswith("\ufeff") or (not tabs and "\t" in text):
            marks = {"\t": "a tab", "\v": "a vertical tab", "\r": "a carriage return", "\ufeff": "a byte order mark"}
            name = next(words for mark, words in marks.items() if mark in text and not (tabs and mark == "\t"))
            self.lose(f"document '{shown(document)}' contains {name}")
            text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\v", "\n")
            text = text if tabs else text.replace("\t", " ")
        return text.replace("\n", LINE_END)

    def identifier(self, document: str) -> str:
        """Check a document id; a table cannot distinguish an empty id from a missing one."""
        if not document:
            self.lose("a document has an empty id")
        return document

    def key(self, key: str, forbidden: str, owners: dict[str, str]) -> str:
        """Encode a label key without the characters in `forbidden`; `owners` maps each written key to its label."""
        written = key
        if any(character in key for character in forbidden):
            self.lose(f"label '{shown(key)}' contains a character that separates labels")
            written = "".join("_" if character in forbidden else character for character in key)
        owner = owners.setdefault(written, key)
        if owner != key:
            raise DataError(
                f"{self.path}: labels '{shown(owner)}' and '{shown(key)}' would get the same key. Rename one of them."
            )
        return written

    def lose(self, what: str) -> None:
        """Count one lossy replacement, or raise `DataError` if `lossy` is off; `what` describes the problem."""
        if not self.lossy:
            raise DataError(
                f"{self.path}: {what}, which {self.format_name} cannot store. "
                "Choose another format, or pass --lossy to replace such characters."
            )
        self.changed += 1
