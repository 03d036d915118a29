"""`xmtc evaluate` and `xmtc compare`: the numbers, their file, and labels that training never saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import call, mistake

KINDS = ("P", "nDCG", "PSP", "PSnDCG", "R", "microF1", "macroF1", "coverage")
NAMES = [f"{kind}@{k}" for kind in KINDS for k in (1, 3, 5)]


def scores(folder: Path, test: Path, place: Path, *more: object) -> dict[str, float]:
    call("evaluate", folder, test, "--json", place / "scores.json", *more)
    return dict(json.loads((place / "scores.json").read_text()))


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Path, Path]:
    """A popularity model that answers a, b, and two test documents whose scores can be counted by hand."""
    rows = [{"text": "x", "labels": ["a", "b"]}, {"text": "y", "labels": ["a"]}]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tests = [{"text": "x", "labels": ["b", "new"]}, {"text": "y", "labels": ["a"]}]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, tests)))
    call("train", tmp_path / "train.jsonl", "--model", "popularity", "--out", tmp_path / "m")
    return tmp_path / "m", tmp_path / "test.jsonl"


class TestEvaluate:
    def test_table_and_json_agree(self, ova: Path, data: Path, tmp_path: Path) -> None:
        done = call("evaluate", ova, data / "test.jsonl", "--json", tmp_path / "s.json")
        found = json.loads((tmp_path / "s.json").read_text())
        assert set(found) == {*NAMES, "documents", "seconds"}
        assert found["documents"] == 100
        assert found["seconds"] > 0
        assert all(0 <= found[name] <= 1 for name in NAMES)
        assert found["P@1"] > 0.9
        shown = dict(line.split() for line in done.out.splitlines() if "@" in line)
        assert {name: float(value) for name, value in shown.items()} == {
            name: pytest.approx(100 * found[name], abs=0.0051) for name in NAMES
        }
        assert "100 documents in" in done.out
        assert "test labels unseen in training: 0" in done.out

    def test_a_model_that_reads_beats_one_that_does_not(self, models: Path, data: Path, tmp_path: Path) -> None:
        found = {name: scores(models / name, data / "test.jsonl", tmp_path) for name in ("knn", "popularity")}
        assert found["knn"]["P@1"] > found["popularity"]["P@1"] + 0.3

    def test_labels_unseen_in_training(self, tiny: tuple[Path, Path], tmp_path: Path) -> None:
        """The answers are a, b for both documents; the first holds b and a label that nobody can return."""
        folder, test = tiny
        counted = scores(folder, test, tmp_path)
        dropped = scores(folder, test, tmp_path, "--unknown-labels", "drop")
        assert (counted["P@1"], dropped["P@1"]) == (0.5, 0.5)
        assert (counted["R@3"], dropped["R@3"]) == (0.75, 1.0)
        said = call("evaluate", folder, test).out
        assert "test labels unseen in training: 1 (1 occurrences), counted as missed" in said
        said = call("evaluate", folder, test, "--unknown-labels", "drop").out
        assert "test labels unseen in training: 1 (1 occurrences), left out" in said

    def test_propensity_constants_matter_to_psp_alone(self, ova: Path, data: Path, tmp_path: Path) -> None:
        usual = scores(ova, data / "test.jsonl", tmp_path)
        other = scores(ova, data / "test.jsonl", tmp_path, "--propensity-a", 0.6, "--propensity-b", 2.6)
        assert usual["PSP@3"] != other["PSP@3"]
        assert usual["P@3"] == other["P@3"]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ('{"text": "a", "labels": []}\n', "no document has a label"),
            ('{"text": "a"}\n', ":1: no 'labels'."),
            ('{"text": "a", "labels": ["b"]}\n{"text"\n', ":2: not JSON"),
            ("words\n", ":1: lines of text without labels."),
        ],
    )
    def test_bad_test_file(self, ova: Path, tmp_path: Path, content: str, message: str) -> None:
        (tmp_path / "t").write_text(content)
        said = mistake("evaluate", ova, tmp_path / "t")
        assert said.startswith(str(tmp_path / "t"))
        assert message in said

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--unknown-labels", "keep"], "--unknown-labels must be count or drop. Got 'keep'."),
            (["--json", "nowhere/s.json"], "nowhere/s.json: there is no folder nowhere"),
            (["--json", "."], ".: is a folder. Name a file to write to."),
            (["--propensity-b", "-5"], "B > 0"),
            (["--propensity-a", "x"], "Invalid value for '--propensity-a'"),
        ],
    )
    def test_bad_arguments(self, ova: Path, data: Path, arguments: list[str], message: str) -> None:
        done = call("evaluate", ova, data / "test.jsonl", *arguments, ok=False)
        assert done.out == ""  # refused before the work, not after it
        assert message in mistake("evaluate", ova, data / "test.jsonl", *arguments)

    def test_missing_things(self, ova: Path, data: Path) -> None:
        assert "no such file" in mistake("evaluate", ova, "nowhere.jsonl")
        assert "is a folder, not a file" in mistake("evaluate", ova, data)
        assert "no such folder" in mistake("evaluate", "nowhere", data / "test.jsonl")
        assert "was trained on text" in mistake("evaluate", ova, data / "test.txt")
        assert "needs a model folder and a test file" in mistake("evaluate", ova)


class TestCompare:
    def test_a_column_for_each_model(self, models: Path, data: Path, tmp_path: Path) -> None:
        folders = [models / "one_vs_all", models / "popularity"]
        done = call("compare", *folders, data / "test.jsonl")
        header, _, first, *_ = done.out.splitlines()
        assert header.split() == ["%", *map(str, folders)]
        expected = [100 * scores(folder, data / "test.jsonl", tmp_path)["P@1"] for folder in folders]
        name, *values = first.split()
        assert name == "P@1"
        assert [float(value) for value in values] == pytest.approx(expected, abs=0.0051)

    def test_unseen_labels_are_counted_for_each(self, tiny: tuple[Path, Path]) -> None:
        folder, test = tiny
        assert f"{folder}: 2 documents" in call("compare", folder, test).out
        assert (
            "unseen in training: 1 (1 occurrences), left out"
            in call("compare", folder, test, "--unknown-labels", "drop").out
        )

    def test_mistakes(self, ova: Path, data: Path) -> None:
        test = data / "test.jsonl"
        assert mistake("compare", ova) == "compare needs one or more model folders and then a test file."
        assert "Missing argument" in mistake("compare")
        assert mistake("compare", test, ova) == f"{test}: is a file. The model folder comes first."
        assert "no such file" in mistake("compare", ova, "nowhere.jsonl")
        assert "must be count or drop" in mistake("compare", ova, test, "--unknown-labels", "x")
