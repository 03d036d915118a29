"""Broken files through every command: one line that names the file and the remedy, and nothing is left behind.

And files that look odd but are whole, which must work.
"""

from __future__ import annotations

import json
import lzma
import threading
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from tests.support.command_line import call, mistake
from xmtc.core import files
from xmtc.data import read

GOOD = b'{"text": "some words", "labels": ["a"]}\n{"text": "other words", "labels": ["b"]}\n'
FEATURES = b"2 3 4\n0,3 0:1 2:0.5\n1 1:2\n"


def bytes_of(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


def packed_half(path: Path) -> None:
    """An archive of which the second half did not arrive."""
    whole = lzma.compress(b"".join(b'{"text": "%d", "labels": ["a"]}\n' % number for number in range(5000)))
    path.write_bytes(whole[: len(whole) // 2])


def unequal_rows(path: Path) -> None:
    sp.save_npz(path, sp.csr_matrix(np.eye(3)))
    sp.save_npz(path.with_name("Y" + path.name[1:]), sp.csr_matrix(np.eye(2)))


def unequal_lines(path: Path) -> None:
    path.write_text("one text\nanother\n")
    path.with_name("t_labels.txt").write_text("a\n")


def broken_parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": ["x", "y"] * 500, "labels": [["a"], ["b"]] * 500}), path)
    path.write_bytes(path.read_bytes()[:-60])


def a_folder(path: Path) -> None:
    path.mkdir()
    (path / "notes.md").write_text("no texts here")


BROKEN: list[tuple[str, str, Callable[[Path], None], str]] = [
    ("too many documents", "t.txt", bytes_of(b"1 3 4\n0 0:1\n1 1:1\n"), ":3: more documents than the 1 in the header"),
    (
        "too few documents",
        "t.txt",
        bytes_of(b"3 60 40\n0 0:1\n1 1:1\n"),
        ": 3 documents in the header, but 2 in the file",
    ),
    ("a feature beyond", "t.txt", bytes_of(b"2 3 4\n0 0:1\n1 3:1\n"), ":3: "),
    ("a label beyond", "t.txt", bytes_of(b"2 3 4\n0 0:1\n4 1:1\n"), ":3: "),
    ("a header too large", "t.txt", bytes_of(b"2 3 4000000000\n0 0:1\n1 1:1\n"), ":1: a count is too large"),
    ("not a number", "t.txt", bytes_of(b"2 3 4\n0 0:1\n1 1:nan\n"), ":3: "),
    ("infinity", "t.txt", bytes_of(b"2 3 4\n0 0:1\n1 1:inf\n"), ":3: "),
    ("beyond all numbers", "t.txt", bytes_of(b"2 3 4\n0 0:1\n1 1:1e999\n"), ":3: "),
    ("half an archive", "t.jsonl.xz", packed_half, ": damaged or truncated"),
    (
        "bytes of Latin 1",
        "t.jsonl",
        bytes_of(GOOD + '{"text": "größer", "labels": []}\n'.encode("latin-1")),
        ":3: not UTF-8",
    ),
    ("Latin 1 in CSV", "t.csv", bytes_of("text,labels\na,b\ngrößer,b\n".encode("latin-1")), ":3: not UTF-8"),
    ("UTF-16", "t.jsonl", bytes_of(GOOD.decode().encode("utf-16")), ":1: UTF-16, not UTF-8"),
    ("UTF-16 CSV", "t.csv", bytes_of("text,labels\na,b\n".encode("utf-16")), ":1: UTF-16, not UTF-8"),
    ("empty", "t.jsonl", bytes_of(b""), ": empty."),
    ("an empty CSV", "t.csv", bytes_of(b"\n\n"), ": empty."),
    ("a header alone", "t.csv", bytes_of(b"id,text,labels\n"), ": contains no documents"),
    ("a folder", "t.jsonl", a_folder, ": is a folder, not a file"),
    ("a row too short", "t.csv", bytes_of(b"id,text,labels\n1,a,b\n2,a\n"), ":3: 2 cells, but 3 in the header"),
    ("a quote that is not closed", "t.csv", bytes_of(b'text,labels\na,b\n"a,b\n'), ":3: "),
    ("a row too long", "t.tsv", bytes_of(b"text\tlabels\na\tb\na\tb\tc\n"), ":3: 3 cells, but 2 in the header"),
    ("broken JSON", "t.jsonl", bytes_of(GOOD + b'{"text": "a", "labels": [\n'), ":3: invalid JSON"),
    ("another row count", "X.t.npz", unequal_rows, ": 2 rows, but 3 in"),
    ("a broken matrix", "X.t.npz", bytes_of(b"PK\x03\x04 words"), ": not a sparse matrix"),
    ("unequal lines", "t_texts.txt", unequal_lines, ": no labels for line 2"),
    ("broken Parquet", "t.parquet", broken_parquet, ": not a readable Parquet file"),
]


def everything(folder: Path) -> dict[str, bytes | None]:
    """All that lies in a folder, hidden files too."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def commands(path: Path, folder: Path, models: Path) -> list[tuple[object, ...]]:
    model = models / ("features" if path.name in ("t.txt", "X.t.npz") else "one_vs_all")
    target = folder / ("out.svm" if path.name in ("t.txt", "X.t.npz") else "out.csv")
    return [
        ("train", path, "--out", folder / "model"),
        ("evaluate", model, path, "--json", folder / "scores.json", "--per-label", folder / "labels.csv"),
        ("evaluate", "--predictions", models.parent / "nothing.jsonl", path, "--json", folder / "scores.json"),
        ("predict", model, path, "--output", folder / "out.jsonl"),
        ("data", "convert", path, target),
        ("data", "describe", path, "--json", folder / "figures.json", "--picture", folder / "figures.svg"),
        ("data", "split", path, "--out", folder / "split"),
    ]


@pytest.mark.parametrize(("name", "write", "message"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_one_line_and_nothing_left(
    models: Path, tmp_path: Path, name: str, write: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "in" / name
    path.parent.mkdir()
    write(path)
    before = everything(tmp_path)
    for command in commands(path, tmp_path, models):
        said = mistake(*command)
        blamed = path.with_name({"X.t.npz": "Y.t.npz", "t_texts.txt": "t_labels.txt"}.get(name, name))
        place, what = (blamed, message) if "rows," in message or "no labels for" in message else (path, message)
        assert said.startswith(f"{place}{what}"), (command[0], said)
        assert said.endswith((".", "?", '"]}')), said  # the remedy
        assert ". " in said, said
        assert everything(tmp_path) == before, command


@pytest.mark.parametrize(
    "content",
    [
        b'{"text": "a", "labels": []}\n{"text": "b", "labels": []}\n',
        b"text,labels\na,\nb,\n",
        b"2 1 1\n 0:1\n 0:1\n",
    ],
)
def test_no_document_has_a_label(ova: Path, tmp_path: Path, content: bytes) -> None:
    """Nothing to learn or to measure; but it can be predicted on and converted."""
    path = tmp_path / ("t.csv" if content.startswith(b"text") else "t.txt" if content[:1] == b"2" else "t.jsonl")
    path.write_bytes(content)
    before = everything(tmp_path)
    assert "no document has a label" in mistake("train", path, "--out", tmp_path / "model")
    if path.suffix != ".txt":
        assert "no document has a label" in mistake("evaluate", ova, path)
    assert everything(tmp_path) == before
    call("data", "convert", path, tmp_path / ("out.svm" if path.suffix == ".txt" else "out.parquet"))
    call("data", "describe", path)


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.tsv", "t.ft"])
@pytest.mark.parametrize("command", ["train", "evaluate", "convert"])
def test_a_file_that_grows_while_it_is_read(ova: Path, data: Path, tmp_path: Path, name: str, command: str) -> None:
    """Somebody else still writes to it: what was read would be some of it."""
    path = tmp_path / "in" / name
    path.parent.mkdir()
    call("data", "convert", data / "test.jsonl", path, "--lossy")
    before = sorted(everything(tmp_path))
    whole = files._read
    grown = threading.Event()

    def growing(read: Callable[[int], bytes], size: int, place: str | Path) -> bytes:
        block = whole(read, size, place)
        if str(place) == str(path) and size > 1 << 16 and not grown.is_set():  # not while the format is told
            grown.set()
            with path.open("ab") as stream:
                stream.write(path.read_bytes().splitlines(keepends=True)[-1])
        return block

    arguments: dict[str, tuple[object, ...]] = {
        "train": ("train", path, "--out", tmp_path / "model"),
        "evaluate": ("evaluate", ova, path),
        "convert": ("data", "convert", path, tmp_path / "out.parquet"),
    }
    with mock.patch.object(files, "_read", growing):
        said = mistake(*arguments[command])
    assert grown.is_set()
    assert said == f"{path}: changed while it was being read. Try again when no other process is writing to it."
    assert sorted(everything(tmp_path)) == before


# ---- odd, and whole

LONG = "word " * 2_000_000
PLAIN = [("größere words", ["ä", "b"]), ("no label", []), ("more", ["b"])]
ODD = [
    ("an empty list of labels", [("some words", ["a", "b"]), ("no label", []), ("more", ["b"])]),
    ("a label twice", [("some words", ["a", "a", "b"]), ("more words", ["b"])]),
    ("an empty text", [("", ["a"]), ("words", ["b"])]),
    ("ten megabytes on a line", [("short", ["a"]), (LONG, ["b"]), ("short again", ["a"])]),
]


def lines_of(form: str, rows: list[tuple[str, list[str]]]) -> dict[str, list[str]]:
    """The lines of each file of a form."""
    if form == "jsonl":
        return {"t.jsonl": [json.dumps({"text": text, "labels": labels}) for text, labels in rows]}
    if form == "csv":
        return {"t.csv": ["text,labels", *(f"{text},{';'.join(labels)}" for text, labels in rows)]}
    if form == "tsv":
        return {"t.tsv": ["text\tlabels", *(f"{text}\t{';'.join(labels)}" for text, labels in rows)]}
    if form == "fasttext":
        return {"t.txt": ["".join(f"__label__{key} " for key in labels) + text for text, labels in rows]}
    if form == "annif":
        return {"t.tsv": [f"{text}\t{' '.join(f'<{key}>' for key in labels)}" for text, labels in rows]}
    return {
        "t_texts.txt": [text for text, _ in rows],
        "t_labels.txt": [" ".join(labels) for _, labels in rows],
    }


FORMS = ["jsonl", "csv", "tsv", "fasttext", "annif", "attentionxml"]


def use(path: Path, rows: list[tuple[str, list[str]]], folder: Path) -> None:
    """Read, trained on, predicted on, measured and converted."""
    dataset = read(path)
    assert dataset.text().to_pylist() == [text for text, _ in rows]
    assert dataset.labels is not None
    assert dataset.labels.sum(axis=1).tolist() == [len(set(labels)) for _, labels in rows]
    call("train", path, "--model", "popularity", "--out", folder / "model")
    assert len(call("predict", folder / "model", path).lines()) == len(rows)
    assert f"{len(rows)} documents" in call("evaluate", folder / "model", path).out
    call("data", "convert", path, folder / "out.parquet")
    assert read(folder / "out.parquet").text().to_pylist() == [text for text, _ in rows]


@pytest.mark.parametrize("rows", [rows for _, rows in ODD], ids=[name for name, _ in ODD])
@pytest.mark.parametrize("form", FORMS)
def test_odd_files_work(tmp_path: Path, form: str, rows: list[tuple[str, list[str]]]) -> None:
    written = lines_of(form, rows)
    for name, lines in written.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    use(tmp_path / next(iter(written)), rows, tmp_path)


@pytest.mark.parametrize(
    ("mark", "end", "last"),
    [(b"", "\r\n", True), (b"\xef\xbb\xbf", "\n", True), (b"", "\n", False), (b"\xef\xbb\xbf", "\r\n", False)],
    ids=["CRLF", "BOM", "no line end at the end", "all of these"],
)
@pytest.mark.parametrize("form", FORMS)
def test_line_ends_and_byte_order_marks(tmp_path: Path, form: str, end: str, mark: bytes, last: bool) -> None:
    written = lines_of(form, PLAIN)
    for name, lines in written.items():
        content = mark + "".join(line + end for line in lines).encode()
        (tmp_path / name).write_bytes(content if last else content.removesuffix(end.encode()))
    use(tmp_path / next(iter(written)), PLAIN, tmp_path)


# ---- bad lines left out

BAD = {
    "jsonl": ("t.jsonl", b'{"text": "a", "labels": ["x"]}\n{"text":\n{"text": "b", "labels": ["x", "y"]}\n\xff\n'),
    "csv": ("t.csv", b"text,labels\na,x\nshort\nb,x;y\n\xff,x\n"),
    "tsv": ("t.tsv", b"text\tlabels\na\tx\nshort\nb\tx;y\n\xff\tx\n"),
    "fasttext": ("t.txt", b"__label__x a\n__label__ oh\n__label__x __label__y b\n\xff\n"),
    "annif": ("t.tsv", b"a\t<x>\ntwo\t<x>\ttabs\nb\t<x> <y>\n\xff\t<x>\n"),
    "libsvm": ("t.svm", b"0 0:1\n0 0:nan\n0,1 1:1\n0 x\n"),
}


class TestSkip:
    @pytest.mark.parametrize("form", BAD)
    def test_bad_lines_are_counted_and_the_rest_is_used(self, tmp_path: Path, form: str) -> None:
        name, content = BAD[form]
        (tmp_path / name).write_bytes(content)
        path, model = tmp_path / name, tmp_path / "model"
        header = content.split(b"\n")[0] in (b"text,labels", b"text\tlabels")
        bad = [f"  {path}:{number + header}: " for number in (2, 4)]

        def check(said: str) -> None:
            lines = said.splitlines()
            at = lines.index("skipped 2 bad lines:")
            assert len(lines) == at + 3
            assert all(line.startswith(start) for line, start in zip(lines[at + 1 :], bad, strict=True))

        assert str(path) in mistake("train", path, "--model", "popularity", "--out", model)
        skip = ("--on-bad-line", "skip")
        done = call("train", path, "--model", "popularity", "--out", model, *skip)
        assert "2 documents, 2 labels" in done.out
        check(done.err)
        done = call("evaluate", model, path, *skip)
        assert "\n2 documents in" in done.out
        check(done.err)
        check(call("compare", model, path, *skip).err)
        done = call(
            "data",
            "convert",
            path,
            tmp_path / ("out.txt" if form == "libsvm" else "out.jsonl"),
            *skip,
            *(("--to", "xmlrepo") if form == "libsvm" else ()),
        )
        assert "2 documents" in done.out
        check(done.err)
        done = call("predict", model, path, *skip)
        assert len(done.lines()) >= 2  # a line may be a document though its labels are bad
        assert done.err.startswith("skipped ")
        check(call("data", "head", path, *skip).err)

    def test_only_the_first_are_listed(self, tmp_path: Path) -> None:
        (tmp_path / "t.jsonl").write_bytes(GOOD + b"{\n" * 25)
        done = call("data", "convert", tmp_path / "t.jsonl", tmp_path / "t.csv", "--on-bad-line", "skip")
        lines = done.err.splitlines()
        assert lines[0] == "skipped 25 bad lines:"
        assert len(lines) == 12
        assert lines[-1] == "  … and 15 more"

    def test_of_training_and_validation(self, tmp_path: Path) -> None:
        for name in ("t.jsonl", "v.jsonl"):
            (tmp_path / name).write_bytes(GOOD + b"{\n")
        done = call(
            *("train", tmp_path / "t.jsonl", "--valid", tmp_path / "v.jsonl", "--model", "popularity"),
            *("--out", tmp_path / "m", "--on-bad-line", "skip"),
        )
        assert "skipped 2 bad lines:" in done.err
        assert f"  {tmp_path / 'v.jsonl'}:3: invalid JSON" in done.err

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("t.jsonl", b'{"text":\n{"labels": []}\n'),
            ("t.csv", b"text,labels\nshort\n\xff,x\n"),
            ("t.svm", b"0 0:nan\n0 1:nan\n"),
        ],
    )
    def test_nothing_but_bad_lines(self, models: Path, tmp_path: Path, name: str, content: bytes) -> None:
        path = tmp_path / name
        path.write_bytes(content)
        before = everything(tmp_path)
        model = models / ("features" if name == "t.svm" else "one_vs_all")
        for command in (
            ("train", path, "--out", tmp_path / "m"),
            ("evaluate", model, path),
            ("predict", model, path, "--output", tmp_path / "o.jsonl"),
            ("data", "convert", path, tmp_path / "o.parquet"),
        ):
            said = mistake(*command, "--on-bad-line", "skip")
            assert said.startswith(f"{path}:"), said
            assert everything(tmp_path) == before
