"""Files that start with a mebibyte of blank lines are not empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from xmtc.core.errors import DataError
from xmtc.core.files import first_bytes
from xmtc.data import read
from xmtc.data.predictions import read_predictions
from xmtc.data.vocabularies import read_vocabulary

MARK = b"\xef\xbb\xbf"
BLANK = b"\n" * (1 << 20)
CONTENT = {
    "t.jsonl": b'{"text": "some words", "labels": ["a"]}\n{"text": "more", "labels": ["b"]}\n',
    "t.json": b'{"text": "some words", "labels": ["a"]}\n{"text": "more", "labels": ["b"]}\n',
    "t.csv": b"text,labels\nsome words,a\nmore,b\n",
    "t.tsv": b"text\tlabels\nsome words\ta\nmore\tb\n",
    "t.ftxt": b"__label__a some words\n__label__b more\n",
}


@pytest.mark.parametrize("blank", [BLANK, b"\r\n" * (1 << 19), MARK + BLANK], ids=["lines", "returns", "mark"])
@pytest.mark.parametrize("name", CONTENT)
def test_documents(name: str, blank: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(blank + CONTENT[name])
    dataset = read(path)
    texts = dataset.text().to_pylist()
    assert texts[-2:] == ["some words", "more"]
    assert len(texts) == 2 or name == "t.ftxt"  # in which a blank line is a document without text
    assert dataset.label_index is not None
    assert dataset.label_index.keys == ["a", "b"]


def test_vocabularies_and_predictions(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    path.write_bytes(BLANK + b'{"key": "a", "name": "A"}\n')
    assert read_vocabulary(path).index.names == ["A"]
    path.write_bytes(BLANK + b'{"id": "0", "labels": [{"key": "a", "score": 0.5}]}\n')
    assert read_predictions(path, None, 5).top.index.keys == ["a"]


def test_a_blank_file_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(BLANK)
    with pytest.raises(DataError, match="empty"):
        read(path)


def test_first_bytes_are_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "t"
    line = b"x" * (3 << 20)
    path.write_bytes(BLANK + line + b"\nnext\n")
    assert first_bytes(path).strip() in (line, line + b"\nnext")
