"""Whatever the bytes: a result or a message of one line, never anything else."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xmtc.data import read, read_vocabulary, stream
from xmtc.dataset import Dataset, LabelIndex
from xmtc.errors import XmtcError
from xmtc.topk import TopK

pytestmark = pytest.mark.long

INDEX = LabelIndex.from_keys(["a", "b", "ö"], names=["Ay", "Bee", "Ö"])
DOCUMENTS = [
    {"id": "1", "text": "some text", "labels": ["a", "b"]},
    {"id": 2, "title": "größer", "text": "", "labels": []},
    {"text": "\ud83e\udd54 \u2028", "tags": [3, "x"], "body": None},
]
LABELS = [{"key": "a", "name": "Ay", "alt": ["x"]}, {"id": 2, "parents": ["a"], "description": "d"}]
ANSWERS = [{"id": "1", "labels": [{"key": "a", "name": "Ay", "score": 0.5}]}, {"id": 2, "labels": []}]

TOKENS = st.sampled_from(
    [
        *(
            b"{",
            b"}",
            b"[",
            b"]",
            b'"',
            b":",
            b",",
            b"\n",
            b"\r\n",
            b" ",
            b"\t",
            b"0",
            b"1",
            b"-1",
            b"3 2 2\n",
            b"9" * 20,
        ),
        *(b"nan", b"NaN", b"inf", b"1e999", b"null", b"true", b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"\xff\xfe"),
        *(
            b"\x1f\x8b\x08",
            b"\xfd7zXZ\x00",
            b"\x28\xb5\x2f\xfd",
            b"BZh9",
            b"PAR1",
            b"\x00",
            b"\xc3\xb6",
            b"\xed\xa0\x80",
        ),
        *(
            b'"text"',
            b'"labels"',
            b'"key"',
            b'"id"',
            b'"title"',
            b'"score"',
            b'{"text": "a", "labels": [',
            b"0:1",
            b"1,",
        ),
    ]
)
SOUP = st.one_of(st.binary(max_size=200), st.lists(TOKENS | st.binary(max_size=4), max_size=40).map(b"".join))
MOSTLY_NONE = st.integers(0, 3).flatmap(lambda die: SOUP if die == 0 else st.none())  # None: mutate a valid file
EDITS = st.lists(
    st.tuples(
        st.floats(0, 1), st.sampled_from(["put", "replace", "cut", "double", "end"]), TOKENS | st.binary(max_size=3)
    ),
    min_size=1,
    max_size=4,
)


def mutated(content: bytes, edits: list[tuple[float, str, bytes]]) -> bytes:
    for where, how, piece in edits:
        at = int(where * len(content))
        before, after = content[:at], content[at:]
        content = {
            "put": before + piece + after,
            "replace": before + piece + after[len(piece) :],
            "cut": before + after[len(piece) + 1 :],
            "double": before + after[:20] * 2 + after[20:],
            "end": before + piece,
        }[how]
    return content


def lines(rows: list[dict], ascii_only: bool = True) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows).encode("utf-8", "surrogatepass")


PLAIN = {
    "a.jsonl": [
        lines(DOCUMENTS[:1] * 3),
        lines([{"text": "t", "labels": [1, 2]}, {"text": "u", "labels": ["ö"]}], False),
    ],
    "b.txt": [b"3 4 5\n0,4 0:1 3:0.5\n2 1:-2e-1\n 2:3\n", b"1 1 1\n0 0:1\n"],
    "c.txt": ["one line\r\ngrößer\n\nlast".encode()],
    "d.jsonl": [lines(DOCUMENTS), lines([{"title": "t", "body": "b", "tags": []}, {"title": "t", "tags": ["x"]}])],
}
PACKED = [
    (f"{name}{suffix}", pack(content))
    for name, contents in PLAIN.items()
    for content in contents
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress))
]
UNPACKED = [(name, content) for name, contents in PLAIN.items() for content in contents]


def often(examples: int) -> Callable:
    return settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(autouse=True)
def small_headers(monkeypatch) -> None:
    """A header of millions of labels is allowed and slow; here it is only in the way."""
    monkeypatch.setattr("xmtc.data.xmlrepo.MOST_LABELS", 10_000)


def check_result_or_words(path: Path, use: Callable[[], object]) -> None:
    """Run `use`; a refusal must be one of ours, on one line, and begin with the file."""
    try:
        use()
    except XmtcError as error:
        message = str(error)
        assert message.isprintable(), message
        assert message.startswith(str(path)), message
        assert message.endswith((".", "?")), message


def check_sound(dataset: Dataset) -> None:
    """Every part of a dataset has its rows and can be looked at."""
    count = len(dataset)
    assert len(dataset.document_ids()) == count
    if dataset.has_text:
        assert all(isinstance(text, str) for text in dataset.text().to_pylist())
    else:
        assert dataset.features is not None
        assert dataset.features.shape[0] == count
    if dataset.labels is not None:
        assert dataset.label_index is not None
        assert dataset.labels.shape == (count, len(dataset.label_index))
        dataset.label_index.strings("name", dataset.labels.indices)


def check_read_every_way(folder: Path, name: str, content: bytes, file_format: str | None, labelled: bool) -> None:
    path = folder / name
    path.write_bytes(content)
    check_result_or_words(path, lambda: check_sound(read(path, file_format=file_format, labelled=labelled)))
    check_result_or_words(path, lambda: [check_sound(batch) for batch in stream(path, file_format=file_format, size=2)])


FORMATS = st.sampled_from([None, "jsonl", "text", "xmlrepo"])


@often(4000)
@given(st.sampled_from(["a.jsonl", "a.txt"]), SOUP, FORMATS, st.booleans())
def test_soup(folder, name, content, file_format, labelled):
    check_read_every_way(folder, name, content, file_format, labelled)


@often(6000)
@given(st.sampled_from(UNPACKED), EDITS, FORMATS | st.none(), st.booleans())
def test_mutated_documents(folder, file, edits, file_format, labelled):
    name, content = file
    check_read_every_way(folder, name, mutated(content, edits), file_format, labelled)


@often(2000)
@given(st.sampled_from(PACKED), EDITS)
def test_mutated_archives(folder, file, edits):
    name, content = file
    check_read_every_way(folder, name, mutated(content, edits), None, True)


@often(1000)
@given(EDITS)
def test_mutated_zstandard(folder, edits):
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(lines(DOCUMENTS[:1] * 3))
    check_read_every_way(folder, "a.jsonl.zst", mutated(sink.getvalue().to_pybytes(), edits), None, True)


@often(3000)
@given(
    st.sampled_from([("l.jsonl", lines(LABELS)), ("l.tsv", b"a\tAy\tfirst\nb\tBee\n"), ("l.txt", b"a\nb\n\xc3\xb6\n")]),
    MOSTLY_NONE,
    EDITS,
    st.booleans(),
)
def test_vocabularies(folder, file, soup, edits, numbered):
    name, content = file
    path = folder / name
    path.write_bytes(mutated(content, edits) if soup is None else soup)

    def use() -> None:
        index = read_vocabulary(path, numbered).index
        assert len(index) == len(set(index.keys)) == len(index.names) > 0
        assert index.ids(index.keys).tolist() == list(range(len(index)))

    check_result_or_words(path, use)


def check_use_answers(path: Path, index: LabelIndex | None) -> None:
    top = TopK.read(path, index)
    assert len(top.names()) == len(top.keys()) == len(top.pairs()) == len(top.ids) == len(top)
    again = path.with_name("again.jsonl")
    top.write(again)
    assert TopK.read(again, index).pairs() == top.pairs()


@often(3000)
@given(MOSTLY_NONE, EDITS, st.booleans())
def test_answers_in_jsonl(folder, soup, edits, with_index):
    path = folder / "answers.jsonl"
    path.write_bytes(mutated(lines(ANSWERS), edits) if soup is None else soup)
    check_result_or_words(path, lambda: check_use_answers(path, INDEX if with_index else None))


@often(1000)
@given(EDITS, MOSTLY_NONE)
def test_answers_in_parquet(folder, edits, soup):
    whole, path = folder / "whole.parquet", folder / "answers.parquet"
    if not whole.exists():
        TopK([[0, 1], [2, -1]], [[0.5, 0.25], [1, -1]], INDEX).write(whole)
    path.write_bytes(mutated(whole.read_bytes(), edits) if soup is None else soup)
    check_result_or_words(path, lambda: check_use_answers(path, None))


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(
    "\x00\t\n\r\x0b\x85\u2028\u2029\ufeff\ufffe\uffff\U0010ffff🥔ö\u0301\\\"/'{}[],", max_size=8
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"text": WORDS, "labels": st.lists(WORDS.filter(bool) | st.integers(), max_size=4)},
        optional={"id": WORDS | st.integers()},
    ),
    min_size=1,
    max_size=5,
)


@often(2000)
@given(ROWS, st.booleans(), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_jsonl_comes_back_as_it_was_written(folder, rows, ascii_only, end):
    path = folder / "round.jsonl"
    path.write_bytes("".join(json.dumps(row, ensure_ascii=ascii_only) + end for row in rows).encode())
    dataset = read(path)
    assert dataset.text().to_pylist() == [row["text"] for row in rows]
    step = end.count("\n")
    assert dataset.document_ids() == [str(row.get("id", number * step)) for number, row in enumerate(rows)]
    assert dataset.labels is not None
    assert dataset.label_index is not None
    assert dataset.label_index.keys == sorted({str(label) for row in rows for label in row["labels"]})
    for number, row in enumerate(rows):
        held = dataset.label_index.strings("key", dataset.labels[[number]].indices)
        assert set(held) == {str(label) for label in row["labels"]}
        assert len(held) == len(set(held))
