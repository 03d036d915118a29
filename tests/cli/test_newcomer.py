"""Slips that a newcomer makes: nothing is overwritten, nothing goes in silence, and files as people have them work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import call, mistake
from xmtc.core.errors import DataError
from xmtc.data import read, read_vocabulary

ROWS = [
    {"id": "a", "text": "a sauce of starch", "labels": ["sauce", "starch"]},
    {"id": "b", "text": "a sauce of cheese", "labels": ["sauce", "cheese"]},
    {"id": "c", "text": "starch and cheese", "labels": ["starch", "cheese"]},
]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[:2]))
    return tmp_path


class TestNothingThatIsReadIsOverwritten:
    def test_by_describe(self, here: Path) -> None:
        before = (here / "b.jsonl").read_bytes()
        said = mistake("data", "describe", here / "a.jsonl", here / "b.jsonl", f"--json={here / 'b.jsonl'}")
        assert "is also an input file" in said
        assert (here / "b.jsonl").read_bytes() == before

    @pytest.mark.parametrize("option", ["--allow", "--deny", "--candidates"])
    def test_by_predict(self, ova: Path, data: Path, tmp_path: Path, option: str) -> None:
        (tmp_path / "l.jsonl").write_text('{"key": "x", "id": "d0000600", "labels": []}\n')
        given = (option, tmp_path / "l.jsonl", "--output", tmp_path / "l.jsonl")
        assert "is also an input file" in mistake("predict", ova, data / "test.jsonl", *given)
        assert (tmp_path / "l.jsonl").read_text().startswith('{"key": "x"')

    def test_by_split(self, here: Path) -> None:
        (here / "train.jsonl").write_text((here / "a.jsonl").read_text() * 4)
        said = mistake("data", "split", here / "train.jsonl", "--out", here, "--force", "--apart")
        assert "is also an input file" in said
        assert len((here / "train.jsonl").read_text().splitlines()) == 12

    def test_parts_of_a_model(self, ova: Path, data: Path) -> None:
        before = (ova / "model.json").read_bytes()
        part = next(ova.glob("*.safetensors"))
        for output in (ova / "model.json", part):
            given = ("--output-format", "jsonl", "--output", output)
            assert "is part of a model" in mistake("predict", ova, data / "test.jsonl", *given)
        assert "is part of a model" in mistake("evaluate", ova, data / "test.jsonl", "--json", ova / "model.json")
        assert (ova / "model.json").read_bytes() == before

    def test_a_folder_of_texts_is_replaced_when_told(self, here: Path) -> None:
        call("data", "convert", here / "a.jsonl", here / "texts", "--to", "annif-folder")
        assert "already exists" in mistake("data", "convert", here / "b.jsonl", here / "texts", "--to", "annif-folder")
        call("data", "convert", here / "b.jsonl", here / "texts", "--to", "annif-folder", "--force")
        assert sorted(path.name for path in (here / "texts").iterdir()) == ["a.tsv", "a.txt", "b.tsv", "b.txt"]
        (here / "texts" / "thesis.odt").write_text("mine")
        said = mistake("data", "convert", here / "a.jsonl", here / "texts", "--to", "annif-folder", "--force")
        assert "contains files other than texts and labels" in said
        assert sorted(path.name for path in here.iterdir()) == ["a.jsonl", "b.jsonl", "texts"]


class TestNothingGoesInSilence:
    def test_labels_that_a_vocabulary_lacks(self, here: Path) -> None:
        (here / "v.txt").write_text("sauce\nstarch\n")
        given = ("--labels", here / "v.txt", "--unknown-labels", "drop")
        done = call("data", "convert", here / "a.jsonl", here / "out.csv", *given)
        assert done.err == f"note: {here / 'a.jsonl'}: dropped 2 of 6 labels that are repeated or not in v.txt\n"

    def test_no_labels_at_all(self, here: Path) -> None:
        (here / "n.jsonl").write_text('{"text": "a", "topics": ["x"]}\n')
        done = call("data", "convert", here / "n.jsonl", here / "n.csv")
        note = "no document has labels. Pass --label-field if they are in a field."
        assert done.err == f"note: {here / 'n.jsonl'}: {note}\n"

    def test_another_separator(self, here: Path) -> None:
        (here / "s.csv").write_text('text,labels\nx,"a, b"\ny,"b, c"\nz,d\n')
        done = call("data", "convert", here / "s.csv", here / "s.jsonl")
        assert "no document has more than one label, but 2 contain a ','" in done.err
        given = ("--label-separator", ",")
        assert call("data", "convert", here / "s.csv", here / "t.jsonl", *given).err == ""
        assert read(here / "t.jsonl").label_index.keys == ["a", "b", "c", "d"]

    def test_a_test_file_in_other_words(self, ova: Path, here: Path) -> None:
        said = mistake("evaluate", ova, here / "a.jsonl")
        assert said.startswith("the documents and the model have no label in common: 'cheese' in the documents, ")

    def test_a_language_of_nothing(self, here: Path) -> None:
        assert "--language" in mistake("train", here / "a.jsonl", "--out", here / "m", "--language", "de")
        assert "--language" in mistake("data", "convert", here / "a.jsonl", here / "x.csv", "--language", "de")

    def test_a_vocabulary_is_no_file_of_documents(self, here: Path) -> None:
        (here / "t.ttl").write_text("@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n")
        assert "is a vocabulary, not documents" in mistake("data", "convert", here / "t.ttl", here / "t.jsonl")


class TestFilesAsPeopleHaveThem:
    def test_a_spreadsheet_that_says_its_separator(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfsep=;\r\nText;Labels\r\n"a; b";"x;y"\r\n')
        dataset = read(tmp_path / "a.csv")
        assert dataset.text().to_pylist() == ["a; b"]
        assert dataset.label_index.keys == ["x", "y"]
        (tmp_path / "b.csv").write_text("text,labels\na\n")
        with pytest.raises(DataError, match=r"b\.csv:2: 1 cells, but 2 in the header"):
            read(tmp_path / "b.csv")

    def test_labels_as_objects(self, tmp_path: Path) -> None:
        rows = [
            {"text": "a", "subjects": [{"uri": "http://x/1", "label": "one"}, {"uri": "http://x/2"}]},
            {"text": "b", "subjects": ["http://x/3"]},
        ]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        index = read(tmp_path / "a.jsonl").label_index
        assert index.keys == ["http://x/1", "http://x/2", "http://x/3"]
        assert index.names == ["one", "http://x/2", "http://x/3"]
        (tmp_path / "b.jsonl").write_text('{"text": "a", "labels": [{"name": "one"}]}\n')
        with pytest.raises(DataError, match="a label must be a string or an integer"):
            read(tmp_path / "b.jsonl")

    def test_vocabularies_of_annif(self, tmp_path: Path) -> None:
        (tmp_path / "v.tsv").write_text("<http://x/1>\tone\n<http://x/2>\ttwo\n")
        assert read_vocabulary(tmp_path / "v.tsv").index.keys == ["http://x/1", "http://x/2"]
        (tmp_path / "v.csv").write_text(
            "uri,label_de,label_en,notation\nhttp://x/1,eins,one,1\nhttp://x/2,zwei,two,2\n"
        )
        assert read_vocabulary(tmp_path / "v.csv").index.names == ["one", "two"]
        assert read_vocabulary(tmp_path / "v.csv", language="de").index.names == ["eins", "zwei"]
        with pytest.raises(DataError, match="no column label_fr"):
            read_vocabulary(tmp_path / "v.csv", language="fr")
        (tmp_path / "w.csv").write_text("a,b\n1,2\n")
        with pytest.raises(DataError, match=r"w\.csv:1: columns uri \(or key\) and label_en \(or name\)"):
            read_vocabulary(tmp_path / "w.csv")

    def test_label_texts_as_a_vocabulary(self, tmp_path: Path) -> None:
        (tmp_path / "lbl.json").write_text('{"uid": "B1", "title": "a book", "content": "of words"}\n')
        index = read_vocabulary(tmp_path / "lbl.json").index
        assert (index.keys, index.names, index.strings("description", [0])) == (["B1"], ["a book"], ["of words"])

    def test_numbered_predictions_with_a_list_of_labels(self, here: Path) -> None:
        (here / "p.txt").write_text("2 3\n0:0.9 1:0.8\n0:0.9 2:0.8\n")
        (here / "labels.txt").write_text("sauce\nstarch\ncheese\n")
        given = ("--predictions", here / "p.txt", here / "b.jsonl", "--labels", here / "labels.txt")
        call("evaluate", *given, "--json", here / "s.json")
        assert json.loads((here / "s.json").read_text())["P@1"] == 1.0
        assert json.loads((here / "s.json").read_text())["R@3"] == 1.0

    def test_a_list_of_labels_has_a_line_for_each_number(self, here: Path) -> None:
        (here / "p.txt").write_text("2 4\n0:0.9 2:0.8\n0:0.9 3:0.8\n")
        (here / "labels.txt").write_text("sauce\n\nstarch\ncheese\n")
        given = ("--predictions", here / "p.txt", here / "b.jsonl", "--labels", here / "labels.txt")
        call("evaluate", *given, "--json", here / "s.json")
        assert json.loads((here / "s.json").read_text())["R@3"] == 1.0

    def test_denied_labels_that_are_deprecated(self, here: Path) -> None:
        call("train", here / "a.jsonl", "--model", "popularity", "--out", here / "m")
        (here / "d.jsonl").write_text('{"key": "sauce", "deprecated": true}\n{"key": "starch"}\n')
        rows = call("predict", here / "m", "--text", "x", "--deny", here / "d.jsonl", "-k", 3).lines()
        assert [label["key"] for label in rows[0]["labels"]] == ["cheese"]

    def test_nobody_asks_for_labels_when_predicting(self, here: Path) -> None:
        call("train", here / "a.jsonl", "--model", "popularity", "--out", here / "m")
        for name, content in (
            ("x.csv", "text,keywords\nsauce,[draft] [x]\n"),
            ("x.jsonl", '{"text": "sauce", "labels": [null, ""]}\n'),
        ):
            (here / name).write_text(content)
            assert len(call("predict", here / "m", here / name).lines()) == 1

    def test_the_labels_of_the_source_are_not_overwritten(self, here: Path) -> None:
        call("data", "convert", here / "a.jsonl", here / "train_raw_texts.txt")
        before = (here / "train_labels.txt").read_bytes()
        said = mistake(
            "data", "split", here / "train_raw_texts.txt", "--out", here, "--test", 0.4, "--apart", "--force"
        )
        assert "is also an input file" in said
        assert (here / "train_labels.txt").read_bytes() == before

    def test_a_folder_is_not_replaced_by_a_file(self, here: Path) -> None:
        call("data", "convert", here / "a.jsonl", here / "texts", "--to", "annif-folder")
        said = mistake("data", "convert", here / "b.jsonl", here / "texts", "--to", "jsonl", "--force")
        assert "is a folder" in said
        assert (here / "texts" / "a.txt").is_file()

    def test_validation_documents_are_read_as_the_training_ones(self, here: Path) -> None:
        (here / "t.svm").write_text("0 0:1\n1 1:1\n0 0:1 1:0.1\n")
        (here / "v.svm").write_text("0 0:1 7:1\n1 1:1\n")
        call("train", here / "t.svm", "--valid", here / "v.svm", "--model", "knn", "--out", here / "m")
        assert len(call("predict", here / "m", here / "v.svm").lines()) == 2
