"""Small JSONL files, the label sets of what is read, and a check of error messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xmtc.core.errors import DataError
from xmtc.data import read, read_vocabulary
from xmtc.data.dataset import Dataset


def label_sets(dataset: Dataset) -> list[set[str]]:
    """The labels of each document, by key."""
    assert dataset.labels is not None
    assert dataset.label_index is not None
    return [
        set(dataset.label_index.strings("key", dataset.labels[[row]].indices)) for row in range(dataset.labels.shape[0])
    ]


def write(path: Path, *rows: object) -> Path:
    path.write_bytes(b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows))
    return path


def check_refusal(path: Path, line: int | None = None, **how: object) -> str:
    """The message of a refusal, held against the form that every message has."""
    with pytest.raises(DataError) as caught:
        read(path, **how)  # type: ignore[arg-type]
    message = str(caught.value)
    place = f"{path}: " if line is None else f"{path}:{line}: "
    assert message.startswith(place)
    assert message.isprintable()
    what, _, remedy = message.removeprefix(place).partition(". ")
    assert what
    assert remedy.endswith((".", "?"))
    return message


def vocabulary_refusal(path: Path, line: int | None = None, **options: str) -> str:
    """The message with which a vocabulary is refused: one line with its place and a remedy."""
    with pytest.raises(DataError) as caught:
        read_vocabulary(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: " if line is None else f"{path}:{line}: ")
    assert message.isprintable()
    assert message.count(". ") >= 1
    assert message.endswith(".")
    return message
