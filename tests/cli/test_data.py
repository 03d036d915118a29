"""`xmtc data …`: looking at files, splitting, converting and fetching them, as somebody does who sees it first."""

from __future__ import annotations

import http.server
import json
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import call, mistake
from tests.support.packing import pack
from xmtc.data import read
from xmtc.data.catalogue import CATALOGUE, DataSet, Part, RemoteFile
from xmtc.data.dataset import Dataset

ROWS: list[dict[str, Any]] = [
    {"id": "a", "text": "potato starch in a sauce", "labels": ["sauce", "starch"]},
    {"id": "b", "text": "größere Kartoffeln 🥔", "labels": ["starch"]},
    {"id": "c", "text": "nothing to say", "labels": []},
    {"id": "d", "text": "two\nlines of cheese", "labels": ["cheese", "sauce"]},
    {"id": "e", "text": "cheese sauce", "labels": ["cheese", "sauce"]},
]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return tmp_path / "small.jsonl"


def content(dataset: Dataset) -> list[tuple[str, set[str]]]:
    """Text and labels of each document."""
    assert dataset.labels is not None
    assert dataset.label_index is not None
    rows = (dataset.labels[[row]].indices for row in range(len(dataset)))
    keys = [set(dataset.label_index.strings("key", row)) for row in rows]
    return list(zip(dataset.text().to_pylist(), keys, strict=True))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_without_a_command_there_is_help() -> None:
    said = call("data").out
    assert all(command in said for command in ("describe", "head", "split", "convert", "get"))
    assert "No such command" in mistake("data", "spit")


class TestDescribe:
    def test_one_file(self, small: Path, tmp_path: Path) -> None:
        done = call("data", "describe", small, "--json", tmp_path / "d.json")
        found = json.loads((tmp_path / "d.json").read_text())
        assert found["documents"] == 5
        assert found["labels"]["pairs"] == 7
        assert found["labels"]["occurring"] == 3
        assert found["labels"]["documents_without_labels"] == 1
        lines = [line.split() for line in done.out.splitlines()]
        assert ["documents", "5"] in lines
        assert ["(document,", "label)", "pairs", "7"] in lines

    def test_two_files_and_what_they_share(self, small: Path, tmp_path: Path) -> None:
        rows = [ROWS[0], {"id": "z", "text": "new", "labels": ["unheard of", "sauce"]}]
        (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        done = call("data", "describe", small, tmp_path / "test.jsonl", "--json", tmp_path / "d.json")
        found = json.loads((tmp_path / "d.json").read_text())
        assert found["overlap"]["documents"] == 1
        assert found["overlap"]["unseen_labels"] == 1
        assert "labels not in small.jsonl" in done.out

    def test_a_picture_that_opens(self, small: Path, tmp_path: Path) -> None:
        done = call("data", "describe", small, "--picture", tmp_path / "p.svg")
        assert ElementTree.parse(tmp_path / "p.svg").getroot().tag.endswith("svg")
        assert f"{tmp_path / 'p.svg'}: histograms" in done.err

    def test_features_and_texts_without_labels(self, data: Path, tmp_path: Path) -> None:
        assert "features" in call("data", "describe", data / "train.txt").out
        (tmp_path / "t.txt").write_text("one text\nand another\n")
        assert "words per text" in call("data", "describe", tmp_path / "t.txt").out

    def test_mistakes(self, small: Path, tmp_path: Path) -> None:
        assert "unsupported plot format" in mistake("data", "describe", small, "--picture", tmp_path / "p.jpg")
        assert "no such file" in mistake("data", "describe", tmp_path / "nowhere")
        assert "no such file" in mistake("data", "describe", small, tmp_path / "nowhere")
        assert "is also an input file" in mistake("data", "describe", small, f"--json={small}")
        other = small.with_name("other.jsonl")
        other.write_bytes(small.read_bytes())
        assert "is also an input file" in mistake("data", "describe", small, other, f"--json={other}")
        assert "does not exist" in mistake("data", "describe", small, "--json", tmp_path / "no" / "d.json")
        assert other.read_bytes() == small.read_bytes()
        assert files(tmp_path) == ["other.jsonl", "small.jsonl"]


class TestHead:
    def test_documents_with_their_labels(self, small: Path) -> None:
        said = call("data", "head", small, "-n", 2).out.splitlines()
        assert said[0] == "a"
        assert said[1].strip() == "potato starch in a sauce"
        assert said[2].strip() == "labels: sauce, starch"
        assert said[3] == "b"
        assert "nothing to say" not in said

    def test_more_than_there_are(self, small: Path) -> None:
        assert call("data", "head", small, "-n", 50).out.count("labels: ") == 5

    def test_a_bad_line_beyond_is_not_seen(self, small: Path) -> None:
        with small.open("a") as stream:
            stream.write("\n" * 3 + "{" * 5_000_000)
        assert "potato" in call("data", "head", small, "-n", 1).out

    def test_other_fields(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("number,question,topics\n7,why?,a|b\n")
        how = ("--text-field", "question", "--label-field", "topics", "--id-field", "number", "--label-separator", "|")
        said = [line.strip() for line in call("data", "head", tmp_path / "t.csv", *how).out.splitlines()]
        assert said == ["7", "why?", "labels: a, b"]

    def test_mistakes(self, small: Path, tmp_path: Path) -> None:
        assert "'n' must be an integer ≥ 1. Got 0." in mistake("data", "head", small, "-n", 0)
        assert "no format 'jsnl'. Did you mean 'jsonl'?" in mistake("data", "head", small, "--format", "jsnl")
        assert "must be refuse or skip" in mistake("data", "head", small, "--on-bad-line", "ignore")
        assert "at least one character" in mistake("data", "head", small, "--label-separator", "")
        assert "given twice" in mistake("data", "head", small, "--text-field", "a,a")
        (tmp_path / "t.jsonl").write_text('{"text": "a", "labels": "x;y"}\n')
        assert "'labels' must be a list" in mistake("data", "head", tmp_path / "t.jsonl")


class TestSplit:
    def test_no_document_is_lost_and_every_label_is_trained_on(self, data: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        done = call("data", "split", data / "train.jsonl", "--out", out, "--test", 0.3, "--valid", 0.1)
        parts = {name: read(out / f"{name}.jsonl") for name in ("train", "valid", "test")}
        assert files(out) == ["test.jsonl", "train.jsonl", "valid.jsonl"]
        assert {name: len(part) for name, part in parts.items()} == {"train": 360, "valid": 60, "test": 180}
        assert f"{out / 'test.jsonl'}: 180 documents" in done.out
        whole = read(data / "train.jsonl")
        ids = [name for part in parts.values() for name in part.document_ids()]
        assert sorted(ids) == sorted(whole.document_ids())
        train = parts["train"].label_index
        assert train is not None
        assert whole.label_index is not None
        assert set(train.keys) == set(whole.label_index.keys)
        rows = dict(zip(whole.document_ids(), content(whole), strict=True))
        for part in parts.values():
            assert [rows[name] for name in part.document_ids()] == content(part)

    def test_the_seed_decides(self, data: Path, tmp_path: Path) -> None:
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            call("data", "split", data / "train.jsonl", "--out", tmp_path / name, "--seed", seed)
        same, again, other = ((tmp_path / name / "test.jsonl").read_bytes() for name in "abc")
        assert same == again != other

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("x.csv", "train.csv"),
            ("x.tsv", "train.tsv"),
            ("x.ft", "train.txt"),
            ("x_texts.txt", "train_texts.txt"),
            ("x.parquet", "train.parquet"),
            ("x.jsonl.gz", "train.jsonl.gz"),
            ("x.csv.xz", "train.csv.xz"),
            ("x.json", "train.json"),
        ],
    )
    def test_parts_are_of_the_same_format(self, data: Path, tmp_path: Path, name: str, expected: str) -> None:
        call("data", "convert", data / "test.jsonl", tmp_path / name, "--lossy")
        call("data", "split", tmp_path / name, "--out", tmp_path / "out")
        train = tmp_path / "out" / expected
        assert train.is_file()
        if train.suffix == ".gz":
            assert train.read_bytes().startswith(b"\x1f\x8b")
        both = content(read(train)) + content(read(train.with_name(expected.replace("train", "test"))))
        assert sorted(both, key=str) == sorted(content(read(tmp_path / name)), key=str)

    def test_features_in_their_formats(self, data: Path, tmp_path: Path) -> None:
        call("data", "split", data / "test.txt", "--out", tmp_path)
        assert (tmp_path / "train.txt").read_text().startswith("80 60 40\n")
        call("data", "split", data / "test.txt", "--out", tmp_path, "--to", "npz")
        assert files(tmp_path) == ["X.test.npz", "X.train.npz", "Y.test.npz", "Y.train.npz", "test.txt", "train.txt"]
        assert read(tmp_path / "X.test.npz").features is not None

    def test_what_is_there_stays(self, data: Path, tmp_path: Path) -> None:
        (tmp_path / "test.jsonl").write_text("precious")
        command = ("data", "split", data / "test.jsonl", "--out", tmp_path)
        assert f"{tmp_path / 'test.jsonl'}: already exists." in mistake(*command)
        assert files(tmp_path) == ["test.jsonl"]
        assert (tmp_path / "test.jsonl").read_text() == "precious"
        call(*command, "--force")
        assert len(read(tmp_path / "test.jsonl")) == 20
        (tmp_path / "train_labels.txt").write_text("precious")
        said = mistake(*command, "--to", "attentionxml")
        assert f"{tmp_path / 'train_labels.txt'}: already exists." in said
        assert (tmp_path / "train_labels.txt").read_text() == "precious"

    def test_all_parts_or_none(self, tmp_path: Path) -> None:
        """One document cannot be written as asked; whichever it is, in train or in test."""
        command = ("data", "split", tmp_path / "t.jsonl", "--out", tmp_path / "out", "--test", 0.5)
        for bad in range(8):
            rows = [{"text": f"text {n}" + "\r" * (n == bad), "labels": ["a"]} for n in range(8)]
            (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            assert "cannot store" in mistake(*command, "--to", "attentionxml")
            assert files(tmp_path) == ["t.jsonl"]
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine").write_text("precious")
        assert "cannot store" in mistake(*command, "--to", "tsv")
        assert files(tmp_path / "out") == ["mine"]

    def test_equal_documents_stay_together_unless_told(self, tmp_path: Path) -> None:
        rows = [{"id": str(n), "text": f"same text {n % 10}", "labels": ["a"]} for n in range(40)]
        (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

        def shared(out: str, *more: str) -> int:
            call("data", "split", tmp_path / "t.jsonl", "--out", tmp_path / out, *more)
            train, test = (set(read(tmp_path / out / f"{n}.jsonl").text().to_pylist()) for n in ("train", "test"))
            return len(train & test)

        assert shared("together") == 0
        assert shared("apart", "--apart") > 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--test", "0"], "'test' of a split must be a fraction between 0 and 1"),
            (["--test", "1.5"], "'test' of a split must be a fraction between 0 and 1"),
            (["--test", "nan"], "'test' of a split must be a fraction between 0 and 1"),
            (["--valid", "-1"], "'valid' of a split must be 0 or a fraction"),
            (["--test", "0.6", "--valid", "0.5"], "of a split must be less than 1"),
            (["--seed", "-1"], "'seed'"),
            (["--to", "jsnl"], "no format 'jsnl'. Did you mean 'jsonl'?"),
            (["--to", "text"], "the format 'text' cannot store labels"),
            (["--to", "npz"], "npz stores features"),
        ],
    )
    def test_mistakes(self, small: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
        assert message in mistake("data", "split", small, "--out", tmp_path / "out", *arguments)
        assert not (tmp_path / "out").exists() or files(tmp_path / "out") == []

    def test_a_file_in_place_of_the_folder(self, small: Path) -> None:
        assert "is a file. Pass a folder." in mistake("data", "split", small, "--out", small, "--test", 0.4)
        assert small.read_text().startswith('{"id": "a"')


TEXT_NAMES = ["o.jsonl", "o.csv", "o.tsv", "o.parquet", "o.ft", "o_texts.txt", "o.json", "o.jsonl.zst", "o.csv.bz2"]


class TestConvert:
    @pytest.mark.parametrize("first", TEXT_NAMES)
    @pytest.mark.parametrize("second", ["p.jsonl", "p.csv", "p_raw_texts.txt"])
    def test_there_and_back(self, small: Path, tmp_path: Path, first: str, second: str) -> None:
        done = call("data", "convert", small, tmp_path / first)
        assert done.out == f"{tmp_path / first}: 5 documents\n"
        call("data", "convert", tmp_path / first, tmp_path / second)
        call("data", "convert", tmp_path / second, tmp_path / "back.jsonl")
        assert content(read(tmp_path / "back.jsonl")) == [(row["text"], set(row["labels"])) for row in ROWS]

    @pytest.mark.parametrize(("name", "to"), [("o.tsv", "annif"), ("folder", "annif-folder")])
    def test_formats_that_no_name_tells(self, small: Path, tmp_path: Path, name: str, to: str) -> None:
        call("data", "convert", small, tmp_path / name, "--to", to)
        call("data", "convert", tmp_path / name, tmp_path / "back.jsonl")
        assert content(read(tmp_path / "back.jsonl")) == [(row["text"], set(row["labels"])) for row in ROWS]

    @pytest.mark.parametrize(("name", "more"), [("X.o.npz", ()), ("o.svm", ()), ("o.txt", ("--to", "xmlrepo"))])
    def test_features(self, data: Path, tmp_path: Path, name: str, more: tuple[str, ...]) -> None:
        call("data", "convert", data / "test.txt", tmp_path / name, *more)
        call("data", "convert", tmp_path / name, tmp_path / "back.txt", "--to", "xmlrepo")
        first, second = read(data / "test.txt"), read(tmp_path / "back.txt")
        assert first.features is not None
        assert first.labels is not None
        assert abs(first.features - second.features).max() < 1e-6
        assert abs(first.labels - second.labels).max() == 0

    def test_text_without_labels(self, tmp_path: Path) -> None:
        (tmp_path / "t.txt").write_text("one\n\ntwo\n")
        call("data", "convert", tmp_path / "t.txt", tmp_path / "t.jsonl")
        rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
        assert [(row["text"], row["labels"]) for row in rows] == [("one", []), ("", []), ("two", [])]

    def test_standard_input(self, small: Path, tmp_path: Path) -> None:
        call("data", "convert", "-", tmp_path / "o.csv", stdin=small.read_bytes())
        assert len(read(tmp_path / "o.csv")) == 5
        said = mistake("data", "convert", "-", tmp_path / "p.csv", stdin="{\n")
        assert said.startswith("standard input:1: invalid JSON")
        assert mistake("train", "-", "--out", tmp_path / "m", stdin=" ").startswith("standard input: empty.")
        assert files(tmp_path) == ["o.csv", "small.jsonl"]

    def test_to_a_device(self, small: Path) -> None:
        assert call("data", "convert", small, "/dev/null", "--to", "jsonl").out == "/dev/null: 5 documents\n"

    def test_fields_stay_apart(self, tmp_path: Path) -> None:
        (tmp_path / "t.jsonl").write_text('{"title": "t", "body": "b", "tags": ["x"]}\n')
        call("data", "convert", tmp_path / "t.jsonl", tmp_path / "t.csv")
        assert (tmp_path / "t.csv").read_text() == "id,title,body,labels\n0,t,b,x\n"

    def test_characters_that_a_format_cannot_hold(self, tmp_path: Path) -> None:
        (tmp_path / "t.jsonl").write_text(json.dumps({"text": "a\tb\rc", "labels": ["x y"]}) + "\n")
        command = ("data", "convert", tmp_path / "t.jsonl", tmp_path / "t.ft")
        said = mistake(*command)
        assert "which fasttext cannot store" in said
        assert "--lossy" in said
        assert files(tmp_path) == ["t.jsonl"]
        assert "2 texts or labels with replaced characters" in call(*command, "--lossy").out
        assert (tmp_path / "t.ft").read_bytes() == b"__label__x_y a\tb\x0bc\n"

    def test_labels_that_are_no_list_are_not_lost(self, tmp_path: Path) -> None:
        (tmp_path / "t.jsonl").write_text('{"text": "a", "labels": null}\n{"text": "a", "labels": "x;y"}\n')
        said = mistake("data", "convert", tmp_path / "t.jsonl", tmp_path / "t.csv")
        assert said.startswith(f"{tmp_path / 't.jsonl'}:2: 'labels' must be a list")
        assert files(tmp_path) == ["t.jsonl"]

    def test_what_is_there_stays(self, small: Path, data: Path, tmp_path: Path) -> None:
        (tmp_path / "o.csv").write_text("precious")
        assert "already exists" in mistake("data", "convert", small, tmp_path / "o.csv")
        (tmp_path / "o_labels.txt").write_text("precious")
        assert f"{tmp_path / 'o_labels.txt'}: already exists" in mistake(
            "data", "convert", small, tmp_path / "o_texts.txt"
        )
        (tmp_path / "Y.o.npz").write_text("precious")
        assert f"{tmp_path / 'Y.o.npz'}: already exists" in mistake(
            "data", "convert", data / "test.txt", tmp_path / "X.o.npz"
        )
        assert "already exists" in mistake("data", "convert", small, tmp_path, "--to", "annif-folder")
        for name in ("o.csv", "o_labels.txt", "Y.o.npz"):
            assert (tmp_path / name).read_text() == "precious"
        call("data", "convert", small, tmp_path / "o.csv", "--force")
        call("data", "convert", small, tmp_path / "o_texts.txt", "--force")
        assert files(tmp_path) == ["Y.o.npz", "o.csv", "o_labels.txt", "o_texts.txt", "small.jsonl"]

    def test_out_is_not_in(self, small: Path, tmp_path: Path) -> None:
        before = small.read_bytes()
        assert "is also an input file" in mistake("data", "convert", small, small, "--force")
        (tmp_path / "link.jsonl").symlink_to(small)
        assert "is also an input file" in mistake("data", "convert", small, tmp_path / "link.jsonl", "--force")
        assert small.read_bytes() == before

    @pytest.mark.parametrize(
        ("out", "more", "message"),
        [
            ("o.xyz", [], "the extension does not determine a format. Pass --to FORMAT: annif, annif-folder,"),
            ("o.xyz", ["--to", "cvs"], "no format 'cvs'. Did you mean 'csv'?"),
            ("o.svm", [], "these documents have text, but libsvm stores features"),
            ("o.txt", ["--to", "text"], "the format 'text' cannot store labels"),
            ("o.txt", ["--to", "attentionxml"], "the file name is not NAME_texts.txt"),
            ("no/o.csv", [], "does not exist. Create it first."),
            ("o.csv", ["--unknown-labels", "keep"], "must be refuse or drop"),
            ("o.csv", ["--labels", "nowhere.tsv"], "nowhere.tsv: no such file"),
            ("o.csv", ["--format", "csv"], "no text field"),
        ],
    )
    def test_mistakes(self, small: Path, tmp_path: Path, out: str, more: list[str], message: str) -> None:
        assert message in mistake("data", "convert", small, tmp_path / out, *more)
        assert files(tmp_path) == ["small.jsonl"]

    def test_labels_by_a_vocabulary(self, small: Path, tmp_path: Path) -> None:
        (tmp_path / "v.jsonl").write_text(
            '{"key": "sauce"}\n{"key": "cheese"}\n{"key": "starch", "deprecated": true, "replaced_by": "sauce"}\n'
        )
        call("data", "convert", small, tmp_path / "o.csv", "--labels", tmp_path / "v.jsonl")
        assert [keys for _, keys in content(read(tmp_path / "o.csv"))][:2] == [{"sauce"}, {"sauce"}]


class TestConvertVocabulary:
    def test_skos_becomes_jsonl(self, tmp_path: Path) -> None:
        pytest.importorskip("rdflib")
        (tmp_path / "v.ttl").write_text(
            "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
            '<http://e/1> a skos:Concept ; skos:prefLabel "cheese"@en , "Käse"@de .\n'
            '<http://e/2> a skos:Concept ; skos:prefLabel "milk"@en , "Milch"@de ; skos:narrower <http://e/1> .\n',
            encoding="utf-8",
        )
        done = call("data", "convert", tmp_path / "v.ttl", tmp_path / "v.jsonl", "--vocabulary", "--language", "de")
        assert done.out == f"{tmp_path / 'v.jsonl'}: 2 labels\n"
        rows = {row["key"]: row for row in map(json.loads, (tmp_path / "v.jsonl").read_text().splitlines())}
        assert {key: row["name"] for key, row in rows.items()} == {"http://e/1": "Käse", "http://e/2": "Milch"}
        assert rows["http://e/1"]["parents"] == ["http://e/2"]
        assert "already exists" in mistake("data", "convert", tmp_path / "v.ttl", tmp_path / "v.jsonl", "--vocabulary")

    def test_mistakes(self, tmp_path: Path) -> None:
        (tmp_path / "v.tsv").write_text("a\tAy\nb\tBee\n")
        assert "Leave out --language" in mistake(
            "data", "convert", tmp_path / "v.tsv", tmp_path / "v.jsonl", "--vocabulary", "--language", "de"
        )
        assert "writing SKOS is not supported" in mistake(
            "data", "convert", tmp_path / "v.tsv", tmp_path / "v.ttl", "--vocabulary"
        )
        assert files(tmp_path) == ["v.tsv"]


@pytest.fixture
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A web server over a folder."""
    folder = tmp_path_factory.mktemp("mirror")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words: Any) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()
        thread.join()


class TestGet:
    def test_a_list(self) -> None:
        said = call("data", "get").out
        assert all(name in said for name in CATALOGUE)
        assert "xmtc data get NAME" in said

    def test_unknown(self, tmp_path: Path) -> None:
        assert "no data set 'cookin' in the catalogue. Did you mean 'cooking'?" in mistake("data", "get", "cookin")

    def test_from_a_mirror(
        self, mirror: tuple[str, Path], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the command prints at the end can be typed."""
        url, folder = mirror
        entry = DataSet(
            name="tiny",
            what="a few texts",
            train=600,
            test=100,
            labels=40,
            home="https://example.org",
            files=tuple(RemoteFile(f"https://example.org/x/{name}.jsonl.gz") for name in ("train", "test")),
            parts=tuple(Part(name, f"{name}.jsonl.gz", "jsonl") for name in ("train", "test")),
        )
        monkeypatch.setitem(CATALOGUE, "tiny", entry)
        for name in ("train", "test"):
            pack(folder / f"{name}.jsonl.gz", (data / f"{name}.jsonl").read_bytes())
        done = call("data", "get", "tiny", "--out", tmp_path / "sets", "--mirror", url)
        assert len(read(tmp_path / "sets" / "tiny" / "train.jsonl.gz")) == 600
        commands = [line.split()[1:] for line in done.out.splitlines() if line.startswith("  xmtc ")]
        assert [command[0] for command in commands] == ["train", "evaluate"]
        monkeypatch.chdir(tmp_path)
        for command in commands:
            call(*command)
        assert (
            "already present, checksum matches"
            in call("data", "get", "tiny", "--out", tmp_path / "sets", "--mirror", url).out
        )

    def test_a_mirror_without_the_file(
        self, mirror: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("xmtc.data.http_download.PAUSES", ())
        done = call("data", "get", "cooking", "--out", tmp_path, "--mirror", mirror[0], ok=False)
        assert done.status == 2
        assert done.err.count("\n") == 1
        assert "404" in done.err
        assert "ftp://x" in mistake("data", "get", "cooking", "--out", tmp_path, "--mirror", "ftp://x")
