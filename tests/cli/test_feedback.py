"""`xmtc feedback`: what people said becomes a file that a model learns from."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import call, mistake
from xmtc import load
from xmtc.workflows.feedback import Feedback, feedback_path

TEXT = "zorbex quillam vantorp"


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("feedback") / "model"
    settings = ("--set", "trees=1", "--set", "leaf_size=8", "--set", "keep_replay=100")
    call("train", data / "train.jsonl", "--model", "parabel", "--out", folder, *settings)
    return folder


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "model"))


@pytest.fixture
def keys(model: Path) -> list[str]:
    return load(model).labels.keys


def give(model: Path, text: str, accepted: list[str], rejected: list[str] | None = None, complete: bool = False) -> int:
    return Feedback(feedback_path(model)).add(
        version="v", text=text, accepted=accepted, rejected=rejected or [], complete=complete
    )


def set_time(model: Path, number: int, time: str) -> None:
    with sqlite3.connect(feedback_path(model)) as connection:
        connection.execute("UPDATE feedback SET time = ? WHERE id = ?", (time, number))
    connection.close()


def best(model: Path, text: str) -> Any:
    return call("predict", model, "--text", text, "-k", "1").lines()[0]["labels"][0]


class TestExport:
    def test_a_model_learns_from_it(self, model: Path, keys: list[str], tmp_path: Path) -> None:
        """What the feedback says is what the updated model says: in place, from end to end."""
        for number in range(20):
            give(model, f"{TEXT} {number}", [keys[5]], [keys[6]])
        give(model, f"{TEXT} all wrong", [], [keys[7]])
        out = tmp_path / "decided.jsonl"
        done = call("feedback", "export", model, "--output", out)
        assert (done.out, done.err) == ("", f"{out}: 21 texts\n")
        assert best(model, TEXT)["key"] != keys[5] or best(model, TEXT)["score"] < 0.5
        updated = call("update", model, out)
        assert "21 new documents, " in updated.out
        assert "new label" not in updated.out  # what was rejected is no label of its own
        assert load(model).labels.keys == keys
        assert best(model, TEXT)["key"] == keys[5]
        assert feedback_path(model).exists()

    def test_a_text_whose_labels_were_all_rejected_is_learnt_from(
        self, model: Path, data: Path, tmp_path: Path
    ) -> None:
        row = json.loads((data / "train.jsonl").read_text().splitlines()[0])
        label = best(model, row["text"])
        for number in range(30):
            give(model, f"{row['text']} {number}", [], [label["key"]])
        give(model, "something else", [load(model).labels.key(0)])
        call("feedback", "export", model, "--output", tmp_path / "out.jsonl")
        call("update", model, tmp_path / "out.jsonl", "--out", tmp_path / "new")
        after = call("predict", tmp_path / "new", "--text", row["text"], "-k", "100").lines()[0]["labels"]
        (score,) = [other["score"] for other in after if other["key"] == label["key"]] or [0.0]
        assert score < label["score"] - 0.1

    def test_lines(self, model: Path, keys: list[str]) -> None:
        give(model, "first", [keys[0]])
        give(model, "second\n“quoted” 水", [keys[1], keys[0], keys[1]], [keys[2], keys[2]])
        give(model, "first", [keys[2]], [keys[0]])
        give(model, "third", [keys[1]], complete=True)
        give(model, "fourth", [], complete=True)
        done = call("feedback", "export", model)
        fields = ("id", "text", "labels", "rejected", "complete")
        assert done.lines() == [
            dict(zip(fields, row, strict=True))
            for row in (
                ("feedback-2", "second\n“quoted” 水", [keys[1], keys[0]], [keys[2]], False),
                ("feedback-3", "first", [keys[2]], [keys[0]], False),
                ("feedback-4", "third", [keys[1]], [], True),
                ("feedback-5", "fourth", [], [], True),
            )
        ]
        assert "“quoted” 水" in done.out
        assert done.err == ""
        assert call("feedback", "export", feedback_path(model)).out == done.out

    def test_labels_that_have_gone(self, model: Path, keys: list[str], tmp_path: Path) -> None:
        (tmp_path / "retire.txt").write_text(f"{keys[0]}\n{keys[1]}\n")
        give(model, "a", [keys[0], keys[3]], [keys[1]])
        give(model, "b", [keys[0]], [keys[3]])
        give(model, "c", [], [keys[1]])
        give(model, "d", [], [keys[4], keys[1]])
        give(model, "e", [keys[0]], complete=True)  # the label may have another key now
        give(model, "f", [keys[0], keys[3]], complete=True)
        give(model, "g", [keys[3]], [keys[1]], complete=True)
        call("update", model, "--retire", tmp_path / "retire.txt")
        done = call("feedback", "export", model)
        assert [(row["text"], row["labels"], row["rejected"], row["complete"]) for row in done.lines()] == [
            ("a", [keys[3]], [], False),
            ("b", [], [keys[3]], False),
            ("d", [], [keys[4]], False),
            ("f", [keys[3]], [], False),
            ("g", [keys[3]], [], True),
        ]
        assert done.err.splitlines() == [
            "left out 2 labels that the model does not have",
            "left out 2 texts: the model has none of their labels",
        ]
        every = call("feedback", "export", feedback_path(model))  # a file alone does not tell what has gone
        assert [row["text"] for row in every.lines()] == list("abcdefg")

    def test_nothing_to_learn_from(self, model: Path, keys: list[str]) -> None:
        give(model, "a", [])
        done = call("feedback", "export", model, ok=False)
        note, error = done.err.splitlines()
        assert note == "left out 1 text: no label was accepted or rejected"
        assert error.startswith(f"xmtc: {feedback_path(model)}: contains no decisions.")
        assert (done.status, done.out) == (2, "")
        give(model, "b", [], [keys[0]])
        assert [row["text"] for row in call("feedback", "export", model).lines()] == ["b"]

    def test_other_formats_cannot_store_it(self, model: Path, keys: list[str], tmp_path: Path) -> None:
        give(model, "a", [keys[0]])
        for name in ("out.csv", "out.TSV", "out.parquet", "out.csv.gz"):
            said = mistake("feedback", "export", model, "--out", tmp_path / name)
            assert said.endswith("cannot store rejected labels. Choose a file name that ends in .jsonl.")
        call("feedback", "export", model, "--out", tmp_path / "out.ndjson")
        assert not list(tmp_path.glob("out.[!n]*"))

    def test_since(self, model: Path, keys: list[str]) -> None:
        for text, time in (
            ("a", "2026-01-31T23:59:59.999"),
            ("b", "2026-02-01T00:00:00.000"),
            ("c", "2026-03-01T12:00:00.000"),
        ):
            set_time(model, give(model, text, [keys[0]]), f"{time}+00:00")
        for since, texts in (("2026-02-01", "bc"), ("2026-02-01T01:00+01:00", "bc"), ("2026-02-01 00:01", "c")):
            rows = call("feedback", "export", model, "--since", since).lines()
            assert "".join(row["text"] for row in rows) == texts
        said = mistake("feedback", "export", model, "--since", "2027-01-01")
        assert said.endswith("no feedback since that date; the latest is from 2026-03-01. Choose an earlier date.")
        said = mistake("feedback", "export", model, "--since", "yesterday")
        assert said == "--since must be a date such as 2026-11-30. Got 'yesterday'."

    def test_without_feedback(self, model: Path, tmp_path: Path) -> None:
        said = mistake("feedback", "export", model)
        assert said == (
            f"{model}: no feedback yet (model.feedback.sqlite does not exist). Collect some with: xmtc serve {model}"
        )
        assert mistake("feedback", "show", model) == said
        assert "no feedback yet" in mistake("feedback", "export", tmp_path / "nowhere.sqlite")
        assert not feedback_path(model).exists()

    def test_mistakes(self, model: Path, keys: list[str], data: Path, tmp_path: Path) -> None:
        assert "not a model folder" in mistake("feedback", "export", data)
        assert "neither a model folder nor" in mistake("feedback", "export", data / "train.jsonl")
        feedback_path(model).write_text("no database " * 100)
        assert "is damaged or not a feedback file" in mistake("feedback", "export", model)
        feedback_path(model).unlink()
        give(model, "a", [keys[0]])
        before = feedback_path(model).read_bytes()
        assert "is also an input file" in mistake("feedback", "export", model, "--output", feedback_path(model))
        assert feedback_path(model).read_bytes() == before
        assert "does not exist" in mistake("feedback", "export", model, "--output", tmp_path / "no" / "file")

    def test_a_model_that_was_moved_or_deleted(self, model: Path, keys: list[str]) -> None:
        """Its feedback is still there to be read."""
        give(model, "a", [keys[0]])
        shutil.rmtree(model)
        assert [row["text"] for row in call("feedback", "export", model).lines()] == ["a"]


class TestShow:
    def test_counts(self, model: Path, keys: list[str]) -> None:
        set_time(model, give(model, "a", [keys[0]], [keys[1]]), "2026-01-31T10:00:00.000+00:00")
        give(model, "b", [keys[0], keys[2]], [keys[1], keys[3]], complete=True)
        give(model, "c", [keys[1]], ["gone"])
        set_time(model, give(model, "c", [keys[1]]), "2026-02-01T10:00:00.000+00:00")
        first, second = call("feedback", "show", model).out.split("\n\n")
        result = json.loads(call("feedback", "show", model, "--json").out)
        assert (result["texts"], result["earlier_feedback"], result["rejected_most"][0]["rejected"]) == (3, 1, 2)
        told = dict(line.rsplit(maxsplit=1) for line in first.splitlines()[2:])
        assert told == {
            "texts": "3",
            "earlier feedback on them": "1",
            "labels accepted": "4",
            "labels rejected": "3",
            "texts with all their labels": "1",
            "first": "2026-01-31",
            "last": "2026-02-01",
        }
        rows = [line.split(maxsplit=2)[:2] for line in second.splitlines()[3:]]
        assert rows == [["2", "1"], ["1", "0"]]
        assert load(model).labels.name(1) in second.splitlines()[3]

    def test_nothing_rejected(self, model: Path, keys: list[str]) -> None:
        give(model, "a", [keys[0]])
        assert "Rejected most often" not in call("feedback", "show", model).out


def test_help() -> None:
    said = call("feedback").out
    assert "export" in said
    assert "show" in said
    assert "..." not in said.partition("Commands:")[2]
