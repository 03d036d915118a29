"""`xmtc predict --allow --deny --candidates`: labels by file, what the model does not know, and bad files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command_line import call, mistake
from xmtc import load
from xmtc.models.base import Model


@pytest.fixture
def model(ova: Path) -> Model:
    return load(ova)


@pytest.fixture
def ids(data: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (data / "test.jsonl").read_text().splitlines()]


def lines(path: Path, *rows: Any) -> Path:
    """A file with a line for each row: text as it is, anything else as JSON."""
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def keys(rows: list[Any]) -> list[list[str]]:
    return [[label["key"] for label in row["labels"]] for row in rows]


class TestAllowAndDeny:
    def test_equal_the_library(self, models: Path, data: Path, tmp_path: Path) -> None:
        for name in ("one_vs_all", "knn", "popularity"):
            fitted = load(models / name)
            allow = lines(tmp_path / "allow.txt", *fitted.labels.keys[:25])
            deny = lines(tmp_path / "deny.txt", *fitted.labels.keys[20:])
            texts = [json.loads(line)["text"] for line in (data / "test.jsonl").read_text().splitlines()]
            for flags, ways in (
                (["--allow", allow], {"allow": fitted.labels.keys[:25]}),
                (["--deny", deny], {"deny": fitted.labels.keys[20:]}),
                (["--allow", allow, "--deny", deny], {"allow": fitted.labels.keys[:20]}),
            ):
                done = call("predict", models / name, data / "test.jsonl", "-k", 4, *flags)
                assert keys(done.lines()) == fitted.predict(texts, 4, **ways).keys()
                assert done.err == ""

    def test_text(self, ova: Path, label_text: tuple[str, str], tmp_path: Path) -> None:
        name, text = label_text
        deny = lines(tmp_path / "deny.txt", name)
        assert call("predict", ova, "--text", text, "-k", 1).lines()[0]["labels"][0]["name"] == name
        (row,) = call("predict", ova, "--text", text, "-k", 40, "--deny", deny).lines()
        assert len(row["labels"]) == 39
        assert name not in [label["name"] for label in row["labels"]]

    @pytest.mark.parametrize("name", ["v.txt", "v.tsv", "v.jsonl", "v.txt.gz"])
    def test_any_vocabulary_file(self, ova: Path, model: Model, tmp_path: Path, name: str) -> None:
        path, wanted = tmp_path / name, model.labels.keys[4:6]
        if name == "v.jsonl":
            lines(path, *({"id": key, "name": "another name"} for key in wanted))
        elif name == "v.tsv":
            lines(path, *(f"{key}\tanother name" for key in wanted))
        elif name == "v.txt.gz":
            path.write_bytes(gzip.compress("\n".join(wanted).encode()))
        else:
            lines(path, *wanted)
        assert set(keys(call("predict", ova, "--text", "years", "--allow", path).lines())[0]) == set(wanted)

    def test_by_name_where_no_key_matches(self, models: Path, data: Path, tmp_path: Path) -> None:
        """Labels 0, 1, 2 are called '2', 'fish', 'fish': a key goes before a name, a name means all who bear it."""
        names = lines(tmp_path / "names.txt", "2", "fish", "fish", *(f"name {number}" for number in range(3, 40)))
        out = tmp_path / "m"
        call("train", data / "train.txt", "--model", "popularity", "--labels", names, "--out", out)
        for wanted, expected in (
            (["2"], {"2"}),
            (["fish"], {"1", "2"}),
            (["name 7", "3"], {"7", "3"}),
            (["Fish"], None),
        ):
            allow = lines(tmp_path / "allow.txt", *wanted)
            command = ("predict", out, data / "test.txt", "-k", 40, "--allow", allow)
            if expected is None:
                assert "the model has none of the labels in this file ('Fish'). Did you mean 'fish'?" in mistake(
                    *command
                )
            else:
                assert set(keys(call(*command).lines())[0]) == expected

    def test_labels_that_the_model_does_not_know_are_counted(self, ova: Path, model: Model, tmp_path: Path) -> None:
        known = model.labels.keys[:6]
        allow = lines(tmp_path / "allow.txt", *known, "w\x07", "x", "y", "z")
        done = call("predict", ova, "--text", "years", "--allow", allow, "-k", 10)
        assert done.err == "4 of 10 labels of allow.txt are not labels of the model: 'w\\x07', 'x', 'y', …\n"
        assert set(keys(done.lines())[0]) == set(known)
        deny = lines(tmp_path / "deny.txt", known[0], "x")
        done = call("predict", ova, "--text", "years", "--deny", deny)
        assert done.err == "1 of 2 labels of deny.txt is not a label of the model: 'x'\n"

    def test_files_that_are_of_no_use(self, ova: Path, model: Model, tmp_path: Path) -> None:
        strange = lines(tmp_path / "strange.txt", model.labels.keys[3] + "x", "q")
        for flag in ("--allow", "--deny"):
            said = mistake("predict", ova, "--text", "x", flag, strange)
            assert said.startswith(f"{strange}: the model has none of the labels in this file (")
            assert said.endswith(f"Did you mean '{model.labels.keys[3]}'?")
            assert "no such file" in mistake("predict", ova, "--text", "x", flag, tmp_path / "nowhere.txt")
            assert "contains no labels" in mistake("predict", ova, "--text", "x", flag, lines(tmp_path / "e.txt", ""))
        everything = lines(tmp_path / "all.txt", *model.labels.keys)
        said = mistake("predict", ova, "--text", "x", "--deny", everything)
        assert said == f"{everything}: none of the model's 40 labels remains. Allow more labels, or deny fewer."
        said = mistake("predict", ova, "--text", "x", "--allow", everything, "--deny", everything)
        assert said.startswith(f"{everything} and {everything}: none of the model's 40 labels remains")


class TestCandidates:
    @pytest.fixture
    def chosen(self, model: Model, ids: list[str]) -> dict[str, list[str]]:
        """Five labels for each document of the test file."""
        return {name: model.labels.keys[at % 35 : at % 35 + 5] for at, name in enumerate(ids)}

    @pytest.mark.parametrize("form", ["keys", "objects", "parquet", "parquet of keys", "shuffled and packed"])
    def test_equal_the_library(
        self, models: Path, data: Path, tmp_path: Path, chosen: dict[str, list[str]], form: str
    ) -> None:
        rows = [{"id": name, "labels": labels} for name, labels in chosen.items()]
        objects = [{"id": row["id"], "labels": [{"key": key, "score": 0.5} for key in row["labels"]]} for row in rows]
        path = tmp_path / "c.jsonl"
        if form == "keys":
            lines(path, *rows)
        elif form == "objects":
            lines(path, *objects)
        elif form.startswith("parquet"):
            path = tmp_path / "c.parquet"
            pq.write_table(pa.Table.from_pylist(rows if form.endswith("keys") else objects), path)
        else:
            path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in reversed(rows)).encode()))
        texts = [json.loads(line)["text"] for line in (data / "test.jsonl").read_text().splitlines()]
        for name in ("one_vs_all", "knn"):
            fitted = load(models / name)
            done = call("predict", models / name, data / "test.jsonl", "-k", 3, "--candidates", path)
            assert done.err == ""
            assert keys(done.lines()) == fitted.predict(texts, 3, candidates=list(chosen.values())).keys()

    def test_answers_of_one_model_are_candidates_of_another(self, models: Path, data: Path, tmp_path: Path) -> None:
        first = tmp_path / "first.jsonl"
        call("predict", models / "knn", data / "test.jsonl", "-k", 2, "--output", first)
        done = call("predict", models / "one_vs_all", data / "test.jsonl", "-k", 2, "--candidates", first)
        given = [json.loads(line) for line in first.read_text().splitlines()]
        assert [set(row) for row in keys(done.lines())] == [set(row) for row in keys(given)]
        parts = tmp_path / "parts"
        call("predict", models / "knn", data / "test.jsonl", "-k", 2, "--output", parts, "--parts", 30)
        again = call("predict", models / "one_vs_all", data / "test.jsonl", "-k", 2, "--candidates", parts)
        assert again.out == done.out

    def test_with_a_list_of_allowed_labels(
        self, ova: Path, model: Model, data: Path, ids: list[str], tmp_path: Path
    ) -> None:
        path = lines(tmp_path / "c.jsonl", *({"id": name, "labels": model.labels.keys[:6]} for name in ids))
        allow = lines(tmp_path / "allow.txt", *model.labels.keys[4:20])
        done = call("predict", ova, data / "test.jsonl", "--candidates", path, "--allow", allow)
        assert all(set(row) == set(model.labels.keys[4:6]) for row in keys(done.lines()))

    def test_what_is_left_out_is_told(
        self, ova: Path, model: Model, data: Path, ids: list[str], tmp_path: Path
    ) -> None:
        known = model.labels.keys[0]
        rows = [{"id": name, "labels": [known, "x", "y"] if at < 2 else [known]} for at, name in enumerate(ids[:-2])]
        path = lines(tmp_path / "c.jsonl", *rows, {"id": "nobody", "labels": [known]})
        done = call("predict", ova, data / "test.jsonl", "--candidates", path)
        assert done.err == (
            "4 of 103 candidates in c.jsonl are not labels of the model: 'x', 'y'\n"
            f"2 of 100 documents have no line in c.jsonl and got no labels: '{ids[-2]}', '{ids[-1]}'\n"
        )
        assert keys(done.lines()) == [[known]] * 98 + [[], []]
        path = lines(tmp_path / "c.jsonl", {"id": "nobody", "labels": [known]})
        said = mistake("predict", ova, data / "test.jsonl", "--candidates", path, "--output", tmp_path / "o.jsonl")
        assert said == (
            f"c.jsonl: no id matches a document ('nobody' in this file, '{ids[0]}' in the documents). Use the same ids."
        )
        assert not (tmp_path / "o.jsonl").exists()

    def test_numbers_as_ids_and_keys(self, models: Path, data: Path, tmp_path: Path) -> None:
        path = lines(tmp_path / "c.jsonl", *({"id": at, "labels": [3, 5]} for at in range(100)))
        done = call("predict", models / "features", data / "test.txt", "--candidates", path)
        assert done.err == ""
        assert {key for row in keys(done.lines()) for key in row} == {"3", "5"}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ('{"id": "a", "labels": ["KEY"]}\n{"id": "a", "labels": []}\n', ":2: document 'a' is listed twice."),
            ('{"id": 1, "labels": ["KEY"]}\n{"id": "1", "labels": []}\n', ":2: document '1' is listed twice."),
            ('{"labels": ["KEY"]}\n', ":1: not an object with an id and a list of labels. Write"),
            ('{"id": "a"}\n', ":1: not an object with an id and a list of labels. Write"),
            ('{"id": true, "labels": []}\n', ":1: not an object with an id and a list of labels. Write"),
            ('{"id": "a", "labels": "KEY"}\n', ":1: not an object with an id and a list of labels. Write"),
            ('{"id": "a", "labels": [["KEY"]]}\n', ":1: a candidate is neither a key nor an object with a key."),
            (
                '{"id": "a", "labels": [{"name": "KEY"}]}\n',
                ":1: a candidate is neither a key nor an object with a key.",
            ),
            ('{"id": "a", "labels": ["KEYx"]}\n', ": no candidate is a label of the model ('KEYx'). Did you"),
            ('{"id": "a", "labels": ["\\ud800"]}\n', ": no candidate is a label of the model ('?')."),
            ('{"id": "a", "labels": []}\n', ": contains no candidates. Write"),
            ("", ": contains no candidates. Write"),
            ("KEY\n", ":1: invalid JSON"),
        ],
    )
    def test_bad_files(self, ova: Path, model: Model, data: Path, tmp_path: Path, content: str, message: str) -> None:
        path = tmp_path / "c.jsonl"
        path.write_text(content.replace("KEY", model.labels.keys[0]))
        said = mistake("predict", ova, data / "test.jsonl", "--candidates", path)
        assert said.startswith(f"{path}{message.replace('KEY', model.labels.keys[0])}")

    def test_other_mistakes(self, ova: Path, data: Path, tmp_path: Path) -> None:
        said = mistake("predict", ova, "--text", "x", "--candidates", "c.jsonl")
        assert said == "--candidates requires document ids and cannot be used with --text. Pass an INPUT file."
        assert "no such file" in mistake("predict", ova, data / "test.jsonl", "--candidates", tmp_path / "nowhere")
        said = mistake("predict", ova, data / "test.jsonl", "--candidates", tmp_path)
        assert said.startswith(f"{tmp_path}: not a folder of predictions: _answers.json is missing")
        (tmp_path / "c.parquet").write_bytes(b"PAR1")
        said = mistake("predict", ova, data / "test.jsonl", "--candidates", tmp_path / "c.parquet")
        assert "not a readable Parquet file" in said
