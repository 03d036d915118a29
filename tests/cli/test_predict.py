"""`xmtc predict`: documents in by file, pipe or argument; label names with scores out in four forms."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.command_line import call, mistake
from xmtc import load
from xmtc.data.topk import TopK


@pytest.fixture
def texts(data: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (data / "test.jsonl").read_text().splitlines()]


class TestInput:
    def test_text(self, ova: Path, label_text: tuple[str, str]) -> None:
        name, text = label_text
        (row,) = call("predict", ova, "--text", text, "-k", 3).lines()
        assert len(row["labels"]) == 3
        assert row["labels"][0]["name"] == name
        scores = [label["score"] for label in row["labels"]]
        assert scores == sorted(scores, reverse=True)

    def test_empty_text_is_a_document(self, models: Path) -> None:
        for name in ("one_vs_all", "knn", "popularity"):
            (row,) = call("predict", models / name, "--text", "").lines()
            assert row["id"] == "0"

    def test_no_known_word(self, ova: Path, models: Path, label_text: tuple[str, str], tmp_path: Path) -> None:
        lines = [{"id": "a", "text": label_text[1]}, *({"id": f"u{n}", "text": "qqzz " * n} for n in range(5))]
        stdin = "".join(json.dumps(line) + "\n" for line in lines)
        done = call("predict", ova, "-", "-k", 2, stdin=stdin)
        assert [row.get("known_words") for row in done.lines()] == [None] + [False] * 5
        assert all(len(row["labels"]) == 2 for row in done.lines())
        said = "5 of 6 documents have no word that the model knows and get labels that do not depend on their text: "
        assert done.err.splitlines() == [said + "'u0', 'u1', 'u2', …"]
        done = call("predict", ova, "-", "--threshold", 0, "--out", tmp_path / "parts", "--parts", 4, stdin=stdin)
        assert "5 of 6 documents have no word that the model knows and get no label: 'u0'" in done.err
        assert pq.read_table(tmp_path / "parts")["known_words"].to_pylist() == [True, *[False] * 5]
        assert [len(names) for names in TopK.read(tmp_path / "parts").names()][1:] == [0] * 5
        done = call("predict", ova, "--text", "qqzz", "-k", 1)
        assert done.err == "the model knows no word of this text, so the labels do not depend on it\n"
        assert call("predict", models / "popularity", "--text", "qqzz").err == ""  # it uses no words
        done = call("explain", ova, "--text", "qqzz", "--label", label_text[0])
        assert "the model knows no word of this text" in done.err

    def test_file_keeps_ids_and_order_and_equals_the_library(self, ova: Path, data: Path, texts: list[str]) -> None:
        rows = call("predict", ova, data / "test.jsonl", "-k", 4).lines()
        given = [json.loads(line)["id"] for line in (data / "test.jsonl").read_text().splitlines()]
        assert [row["id"] for row in rows] == given
        expected = load(ova).predict(texts, k=4)
        assert [[label["name"] for label in row["labels"]] for row in rows] == expected.names()
        assert [label["score"] for label in rows[5]["labels"]] == pytest.approx(expected.scores[5].tolist())

    def test_pipe_of_jsonl(self, ova: Path, label_text: tuple[str, str]) -> None:
        name, text = label_text
        lines = "".join(json.dumps({"id": f"q{number}", "text": text}) + "\n" for number in range(3))
        rows = call("predict", ova, "-", "-k", 1, stdin=lines).lines()
        assert [(row["id"], row["labels"][0]["name"]) for row in rows] == [(f"q{n}", name) for n in range(3)]

    def test_pipe_of_plain_lines_stays_in_step(self, ova: Path, label_text: tuple[str, str]) -> None:
        name, text = label_text
        rows = call("predict", ova, "-", "-k", 1, stdin=f"{text}\n\n{text}").lines()
        assert [row["id"] for row in rows] == ["0", "1", "2"]
        assert rows[0]["labels"][0]["name"] == rows[2]["labels"][0]["name"] == name

    def test_compressed_file(self, ova: Path, data: Path, tmp_path: Path) -> None:
        packed = tmp_path / "test.jsonl.gz"
        packed.write_bytes(gzip.compress((data / "test.jsonl").read_bytes()))
        assert call("predict", ova, packed).out == call("predict", ova, data / "test.jsonl").out

    def test_xmlrepository_end_to_end(self, models: Path, data: Path, tmp_path: Path) -> None:
        rows = call("predict", models / "features", data / "test.txt", "-k", 1).lines()
        truth = [line.split(" ")[0].split(",") for line in (data / "test.txt").read_text().splitlines()[1:]]
        right = sum(row["labels"][0]["key"] in row_truth for row, row_truth in zip(rows, truth, strict=True))
        assert right > 95
        call("evaluate", models / "features", data / "test.txt", "--json", tmp_path / "s.json")
        assert json.loads((tmp_path / "s.json").read_text())["P@1"] == pytest.approx(right / 100)

    def test_more_labels_than_there_are(self, ova: Path) -> None:
        (row,) = call("predict", ova, "--text", "years", "-k", 1000).lines()
        assert len(row["labels"]) == 40


class TestOutput:
    def test_forms_tell_the_same(self, ova: Path, data: Path, tmp_path: Path) -> None:
        source = data / "test.jsonl"
        rows = call("predict", ova, source, "-k", 2).lines()
        for name in ("a.jsonl", "a.tsv", "a.parquet"):
            done = call("predict", ova, source, "-k", 2, "--output", tmp_path / name)
            assert done.out == ""
            assert done.err == f"{tmp_path / name}: predictions for 100 documents\n"
        assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == rows
        with (tmp_path / "a.tsv").open(newline="") as handle:
            cells = list(csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))
        assert [
            {"key": cell["key"], "name": cell["name"], "score": float(cell["score"])} for cell in cells if cell["id"]
        ] == [label for row in rows for label in row["labels"]]
        assert [cell["rank"] for cell in cells[:4]] == ["1", "2", "1", "2"]
        table = pq.read_table(tmp_path / "a.parquet").to_pylist()
        assert [row["id"] for row in table] == [row["id"] for row in rows]
        assert table[7]["labels"][1]["score"] == pytest.approx(rows[7]["labels"][1]["score"])
        assert TopK.read(tmp_path / "a.parquet").names() == TopK.read(tmp_path / "a.jsonl").names()
        assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl", "a.tsv", "a.parquet"}

    def test_the_format_asked_for_goes_over_the_name(self, ova: Path, tmp_path: Path) -> None:
        call("predict", ova, "--text", "x", "--output", tmp_path / "a.txt", "--output-format", "tsv")
        assert (tmp_path / "a.txt").read_text().startswith("id\trank\tkey\tname\tscore\n")
        assert call("predict", ova, "--text", "x", "--output-format", "tsv").out.startswith("id\trank")

    def test_table_shows_text_names_and_scores(self, ova: Path, label_text: tuple[str, str]) -> None:
        name, text = label_text
        first, second, *_ = call("predict", ova, "--text", text, "--output-format", "table").out.splitlines()
        assert first == text
        score, found = second.split(maxsplit=1)
        assert found == name
        assert 0 < float(score) <= 1

    def test_a_mistake_half_way_leaves_the_old_file(self, ova: Path, tmp_path: Path) -> None:
        (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": \n')
        (tmp_path / "out.jsonl").write_text("old")
        assert ":2: invalid JSON" in mistake("predict", ova, tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl")
        assert (tmp_path / "out.jsonl").read_text() == "old"
        assert len(list(tmp_path.iterdir())) == 2


class TestSets:
    """Labels with at least a score, as many as there are."""

    @pytest.fixture(scope="class")
    @staticmethod
    def tuned(models: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = shutil.copytree(models / "knn", tmp_path_factory.mktemp("tuned") / "m")
        call("calibrate", folder, data / "test.jsonl")
        return folder

    @pytest.fixture
    @staticmethod
    def one_of_none(label_text: tuple[str, str], tmp_path: Path) -> Path:
        """Two documents, for the first of which nothing speaks."""
        path = tmp_path / "two.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("zzz", label_text[1])))
        return path

    @pytest.mark.parametrize("threshold", ["0.3", "0.5", "1", "-3"])
    def test_all_labels_with_at_least_the_score(self, ova: Path, data: Path, threshold: str) -> None:
        rows = call("predict", ova, data / "test.jsonl", "--threshold", threshold).lines()
        whole = call("predict", ova, data / "test.jsonl", "-k", 40).lines()
        for row, ranked in zip(rows, whole, strict=True):
            assert row["labels"] == [label for label in ranked["labels"] if label["score"] >= float(threshold)]
        assert len({len(row["labels"]) for row in rows}) > 1 or threshold in ("1", "-3")

    def test_the_tuned_rule(self, tuned: Path, data: Path) -> None:
        rule = load(tuned).decisions.thresholds
        assert rule is not None
        rows = call("predict", tuned, data / "test.jsonl", "--threshold", "auto").lines()
        assert rows == call("predict", tuned, data / "test.jsonl", "--threshold", rule.value).lines()
        assert [[label["name"] for label in row["labels"]] for row in rows] == load(tuned).predict(
            [json.loads(line)["text"] for line in (data / "test.jsonl").read_text().splitlines()], threshold="auto"
        ).names()

    def test_k_is_the_most(self, tuned: Path, data: Path) -> None:
        rows = call("predict", tuned, data / "test.jsonl", "--threshold", "auto").lines()
        cut = call("predict", tuned, data / "test.jsonl", "--threshold", "auto", "-k", 2).lines()
        assert [row["labels"][:2] for row in rows] == [row["labels"] for row in cut]
        assert max(len(row["labels"]) for row in rows) > 2

    def test_restricted(self, tuned: Path, data: Path, tmp_path: Path) -> None:
        rows = call("predict", tuned, data / "test.jsonl", "--threshold", 0.3).lines()
        often = rows[0]["labels"][0]["key"]
        (tmp_path / "l.txt").write_text(often)
        source = (data / "test.jsonl", "--threshold", 0.3)
        for option, stays in (("--allow", True), ("--deny", False)):
            found = call("predict", tuned, *source, option, tmp_path / "l.txt").lines()
            assert [row["labels"] for row in found] == [
                [label for label in row["labels"] if (label["key"] == often) == stays] for row in rows
            ]
        given = [{"id": row["id"], "labels": [often]} for row in rows]
        (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, given)))
        found = call("predict", tuned, *source, "--candidates", tmp_path / "c.jsonl").lines()
        assert [[label["key"] for label in row["labels"]] for row in found] == [
            [label["key"] for label in row["labels"] if label["key"] == often] for row in rows
        ]

    def test_an_empty_set_in_every_form(self, tuned: Path, one_of_none: Path, tmp_path: Path) -> None:
        asked = ("predict", tuned, one_of_none, "--threshold", "auto")
        empty, full = call(*asked).lines()
        assert empty == {"id": "0", "labels": [], "known_words": False}
        assert full["labels"]
        lines = call(*asked, "--output-format", "tsv").out.splitlines()
        assert lines[0] == "id\trank\tkey\tname\tscore"
        assert {line.split("\t")[0] for line in lines[1:]} == {"1"}
        assert call(*asked, "--output-format", "table").out.startswith("0\n  (no label)\n1\n    0.")
        call(*asked, "--output", tmp_path / "a.parquet")
        assert pq.read_table(tmp_path / "a.parquet").to_pylist()[0] == empty
        assert TopK.read(tmp_path / "a.parquet").names() == [[], [label["name"] for label in full["labels"]]]

    def test_text(self, tuned: Path, label_text: tuple[str, str]) -> None:
        (row,) = call("predict", tuned, "--text", "zzz", "--threshold", "auto").lines()
        assert row == {"id": "0", "labels": [], "known_words": False}
        (row,) = call("predict", tuned, "--text", label_text[1], "--threshold", 0.1).lines()
        assert row["labels"][0]["name"] == label_text[0]
        said = call("predict", tuned, "--text", "zzz", "--threshold", 0.5, "--output-format", "table").out
        assert said == "zzz\n  (no label)\n"

    @pytest.mark.parametrize("given", ["x", "nan", "inf", "", "Auto", "1e39", "0,5"])
    def test_bad_thresholds(self, ova: Path, data: Path, given: str) -> None:
        words = f"--threshold must be a number such as 0.3, or auto. Got '{given}'."
        assert mistake("predict", ova, "--text", "x", "--threshold", given) == words
        assert mistake("evaluate", ova, data / "test.jsonl", "--threshold", given) == words

    def test_nothing_was_tuned(self, ova: Path, data: Path, tmp_path: Path) -> None:
        words = f"{ova}: the model has no tuned threshold. Tune one with: xmtc calibrate {ova} VALID"
        assert mistake("predict", ova, "--text", "x", "--threshold", "auto") == words
        parts = ("--output", tmp_path / "parts", "--parts", 30)
        assert mistake("predict", ova, data / "test.jsonl", "--threshold", "auto", *parts) == words
        assert not (tmp_path / "parts").exists()
        assert mistake("evaluate", ova, data / "test.jsonl", "--threshold", "auto") == words


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "predict requires either an INPUT file (or - for standard input) or --text TEXT."),
            (["-", "--text", "x"], "predict requires either an INPUT file"),
            (["nowhere.jsonl"], "nowhere.jsonl: no such file. Check the path."),
            (["."], ".: is a folder, not a file. Pass a file in it."),
            ([""], "is a folder, not a file."),
            (["--text", "x", "-k", "0"], "'k' must be an integer ≥ 1. Got 0."),
            (["--text", "x", "-k", "many"], "Invalid value for '-k'"),
            (["--text", "x", "--threads", "0"], "'threads' must be an integer ≥ 1. Got 0."),
            (["--text", "x", "--output-format", "csv"], "--output-format must be one of jsonl, tsv, parquet, table."),
            (["--text", "x", "--output-format", "parquet"], "--output-format parquet requires a file. Add --out FILE."),
            (["--text", "x", "--output", "."], ".: is a folder. Choose a file name."),
            (["--text", "x", "--output", ""], ".: is a folder. Choose a file name."),
            (
                ["--text", "x", "--output", "nowhere/a.jsonl"],
                "nowhere/a.jsonl: the folder nowhere does not exist. Create it first.",
            ),
            (["--text", "x", "--output", "/proc/a.jsonl"], "/proc/a.jsonl: cannot be written"),
            (["-"], "empty"),
        ],
    )
    def test_arguments(self, ova: Path, arguments: list[str], message: str) -> None:
        assert message in mistake("predict", ova, *arguments)

    def test_bad_line_in_a_pipe(self, ova: Path) -> None:
        done = call("predict", ova, "-", stdin='{"text": "a"}\n{"texts": "b"}\n', ok=False)
        assert done.status == 2
        assert done.err.count("\n") == 1
        assert ":2: no" in done.err

    def test_no_model_there(self, data: Path, tmp_path: Path) -> None:
        said = mistake("predict", tmp_path / "nowhere", "--text", "x")
        assert said.startswith(f"{tmp_path / 'nowhere'}: no such folder. Train a model with: xmtc train")
        assert "not a model folder: model.json is missing" in mistake("predict", data, "--text", "x")
        said = mistake("predict", data / "train.jsonl", "--text", "x")
        assert said == f"{data / 'train.jsonl'}: is a file, not a model folder. The model folder comes first."

    def test_features_for_a_text_model_and_text_for_a_features_model(self, models: Path, data: Path) -> None:
        said = mistake("predict", models / "one_vs_all", data / "test.txt")
        assert "was trained on text" in said
        for arguments in (["--text", "x"], [data / "test.jsonl"]):
            assert "was trained on a feature matrix" in mistake("predict", models / "features", *arguments)

    def test_features_of_another_width(self, models: Path, tmp_path: Path) -> None:
        (tmp_path / "wide.txt").write_text("1 61 40\n0 60:1\n")
        said = mistake("predict", models / "features", tmp_path / "wide.txt")
        assert said == ("the model has 60 features. Got a matrix with 61 columns. Pass the features it was trained on.")


class TestFilesThatAreSomethingElse:
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("d.json", '[\n{"text": "a"}\n]\n', "is a single JSON array. Write CSV, or JSONL"),
            ("d.xlsx", "PK\x03\x04rest", "is not a text file. Write CSV, or JSONL"),
            ("d.txt", "PK\x03\x04rest", "is not a text file. Write CSV, or JSONL"),
        ],
    )
    def test_refused(self, ova: Path, tmp_path: Path, name: str, content: str, message: str) -> None:
        (tmp_path / name).write_text(content)
        assert message in mistake("predict", ova, tmp_path / name)

    def test_output_is_not_the_input(self, ova: Path, tmp_path: Path) -> None:
        source = tmp_path / "texts.jsonl"
        source.write_text('{"text": "precious"}\n')
        assert "is also an input file" in mistake("predict", ova, source, "--output", source)
        assert "is also an input file" in mistake("evaluate", ova, source, f"--json={source}")
        assert source.read_text() == '{"text": "precious"}\n'

    def test_unknown_endings_are_not_guessed(self, ova: Path, tmp_path: Path) -> None:
        said = mistake("predict", ova, "--text", "x", "--output", tmp_path / "answers.csv")
        assert "Use one of .jsonl, .ndjson, .tsv, .parquet, .txt, or set --output-format." in said
        call("predict", ova, "--text", "x", "--output", tmp_path / "answers.csv", "--output-format", "tsv")
        assert (tmp_path / "answers.csv").read_text().startswith("id\trank\tkey\tname\tscore\n")
