"""`xmtc evaluate` and `xmtc compare`: the numbers, their file, and labels that training never saw."""

from __future__ import annotations

import json
import os
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import call, mistake
from xmtc import Model, load

KINDS = ("P", "nDCG", "PSP", "PSnDCG", "R", "microF1", "macroF1", "coverage")
NAMES = [f"{kind}@{k}" for kind in KINDS for k in (1, 3, 5)]


def scores(folder: Path, test: Path, place: Path, *more: object) -> dict[str, Any]:
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
        assert set(found) == {*NAMES, "documents", "seconds", "reliability"}
        assert found["documents"] == 100
        assert found["seconds"] > 0
        assert all(0 <= found[name] <= 1 for name in NAMES)
        assert found["P@1"] > 0.9
        shown = dict(line.split() for line in done.out.splitlines() if "@" in line)
        assert {name: float(value) for name, value in shown.items()} == {
            name: pytest.approx(100 * found[name], abs=0.0051) for name in NAMES
        }
        assert "100 documents in" in done.out
        assert "test labels not in the training set: 0" in done.out

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
        assert "test labels not in the training set: 1 (1 occurrences), counted as missed" in said
        said = call("evaluate", folder, test, "--unknown-labels", "drop").out
        assert "test labels not in the training set: 1 (1 occurrences), dropped" in said

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
            ('{"text": "a", "labels": ["b"]}\n{"text"\n', ":2: invalid JSON"),
            ("words\n", ":1: plain text without labels."),
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
            (["--json", "nowhere/s.json"], "nowhere/s.json: the folder nowhere does not exist."),
            (["--json=."], ".: is a folder. Choose a file name."),
            (["--json", "."], "Put --json last to print JSON, or write --json=FILE."),
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
        assert "requires a model folder and a test file" in mistake("evaluate", ova)


class TestCompare:
    def test_a_column_for_each_model(
        self, models: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(models)
        folders = [Path("one_vs_all"), Path("popularity")]
        done = call("compare", *folders, data / "test.jsonl")
        header, _, first, *_ = done.out.splitlines()
        assert header.split() == ["%", *map(str, folders)]
        expected = [100 * scores(folder, data / "test.jsonl", tmp_path)["P@1"] for folder in folders]
        name, *values = first.split()
        assert name == "P@1"
        assert [float(value) for value in values] == pytest.approx(expected, abs=0.0051)

    def test_unseen_labels_are_counted_for_each(self, tiny: tuple[Path, Path]) -> None:
        folder, test = tiny
        assert f"{folder}: 2 documents" in " ".join(call("compare", folder, test).out.split())
        said = " ".join(call("compare", folder, test, "--unknown-labels", "drop").out.split())
        assert "test labels not in the training set: 1 (1 occurrences), dropped" in said

    def test_mistakes(self, ova: Path, data: Path) -> None:
        test = data / "test.jsonl"
        assert mistake("compare", ova) == "compare requires one or more model folders, followed by a test file."
        assert "Missing argument" in mistake("compare")
        assert mistake("compare", ova, ova) == f"{ova}: is a model folder. Pass the test file as the last argument."
        assert mistake("compare", test, ova) == f"{test}: is a file, not a model folder. The model folder comes first."
        assert "no such file" in mistake("compare", ova, "nowhere.jsonl")
        assert "must be count or drop" in mistake("compare", ova, test, "--unknown-labels", "x")


class TestPredictions:
    """Somebody's file of predictions in place of a model."""

    @pytest.fixture(scope="class")
    @staticmethod
    def written(ova: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("predictions")
        for name in ("p.jsonl", "p.tsv", "p.parquet", "p.jsonl.gz"):
            call("predict", ova, data / "test.jsonl", "--output", folder / name)
        call("predict", ova, data / "test.jsonl", "--output", folder / "parts", "--parts", 30)
        return folder

    @pytest.mark.parametrize("name", ["p.jsonl", "p.tsv", "p.parquet", "p.jsonl.gz", "parts"])
    def test_the_numbers_are_those_of_the_model(
        self, written: Path, ova: Path, data: Path, tmp_path: Path, name: str
    ) -> None:
        expected = scores(ova, data / "test.jsonl", tmp_path)
        done = call(
            *("evaluate", "--predictions", written / name, data / "test.jsonl", "--train", data / "train.jsonl"),
            *("--json", tmp_path / "s.json"),
        )
        found = json.loads((tmp_path / "s.json").read_text())
        reliability, others = (each.pop("reliability") for each in (found, expected))
        assert reliability["ECE@5"] == pytest.approx(others["ECE@5"])
        assert reliability["bins"] == [pytest.approx(each) for each in others["bins"]]
        assert found == {**{key: pytest.approx(value) for key, value in expected.items()}, "seconds": 0.0}
        assert "\n100 documents\n" in done.out
        assert "test labels not in the training set: 0" in done.out

    def test_without_training_documents(self, written: Path, data: Path) -> None:
        done = call("evaluate", "--predictions", written / "p.jsonl", data / "test.jsonl")
        assert "PSP@" not in done.out
        assert "PSP is not available: pass the training set with --train FILE" in done.out
        assert re.search(r"\nmacroF1 is the mean over the \d+ labels of the predictions and the test file;", done.out)

    def test_macro_f1_agrees_with_the_model_given_the_training_set(self, ova: Path, data: Path, tmp_path: Path) -> None:
        few = tmp_path / "few.jsonl"
        few.write_text("".join((data / "test.jsonl").read_text().splitlines(keepends=True)[:8]))
        call("predict", ova, few, "-k", "5", "--out", tmp_path / "p.jsonl")
        whole = json.loads(call("evaluate", ova, few, "--json").out)
        asked = ("evaluate", "--predictions", tmp_path / "p.jsonl", few, "--json")
        alone = json.loads(call(*asked).out)
        trained = json.loads(call(*asked, "--train", data / "train.jsonl").out)
        assert trained["macroF1@5"] == whole["macroF1@5"]
        assert alone["macroF1@5"] > whole["macroF1@5"]

    def test_documents_without_a_prediction_are_counted(self, written: Path, data: Path, tmp_path: Path) -> None:
        lines = (written / "p.tsv").read_text().splitlines()
        first = lines[1].split("\t")[0]
        kept = [line for line in lines if line.split("\t")[0] != first]
        (tmp_path / "p.tsv").write_text("\n".join(kept) + "\n")
        said = call("evaluate", "--predictions", tmp_path / "p.tsv", data / "test.jsonl").out
        assert "100 documents, 1 of them without a predicted label" in said

    def test_of_features(self, models: Path, data: Path, tmp_path: Path) -> None:
        call("predict", models / "features", data / "test.txt", "--output", tmp_path / "p.jsonl")
        more = ("--train", data / "train.txt", "--json", tmp_path / "t.json")
        call("evaluate", "--predictions", tmp_path / "p.jsonl", data / "test.txt", *more)
        found = json.loads((tmp_path / "t.json").read_text())
        expected = scores(models / "features", data / "test.txt", tmp_path)
        assert {name: found[name] for name in NAMES} == pytest.approx({name: expected[name] for name in NAMES})

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ('{"id": "x", "labels": [["a", NaN]]}\n', ":1: a score is not a number"),
            ('{"id": "x", "labels": ["a", "a"]}\n', ":1: a label occurs twice"),
            ('{"labels": ["a"]}\n', ": 1 predictions for 100 test documents"),
            ('{"labels": ["a"]}\n' * 100, ": no predicted label occurs in the test file ('a' predicted,"),
            ("", ": empty."),
            ("words\n", ":1: not a supported prediction format"),
        ],
    )
    def test_bad_files(self, data: Path, tmp_path: Path, content: str, message: str) -> None:
        path = tmp_path / "predictions"
        path.write_text(content)
        said = mistake("evaluate", "--predictions", path, data / "test.jsonl", "--json", tmp_path / "s.json")
        assert said.startswith(f"{path}{message}")
        assert [each.name for each in tmp_path.iterdir()] == ["predictions"]

    def test_mistakes(self, written: Path, ova: Path, data: Path, tmp_path: Path) -> None:
        test, path = data / "test.jsonl", written / "p.jsonl"
        needs = "evaluate requires a model folder and a test file, or --predictions FILE and a test file."
        assert mistake("evaluate", ova, "--predictions", path, test) == needs
        assert mistake("evaluate", test) == needs
        assert "Missing argument" in mistake("evaluate")
        assert "Missing argument" in mistake("evaluate", "--predictions", path)
        for option, value in (("--train", test), ("--predictions-format", "jsonl")):
            assert f"{option} can only be used with --predictions FILE." in mistake(
                "evaluate", ova, test, option, value
            )
        said = mistake("evaluate", "--predictions", path, test, "--predictions-format", "jsnol")
        assert said.startswith(f"{path}: no prediction format 'jsnol'. Did you mean 'jsonl'? Available: jsonl,")
        assert "--tail requires a model." in mistake("evaluate", "--predictions", path, test, "--tail")
        assert "no such file" in mistake("evaluate", "--predictions", tmp_path / "no", test)
        assert "not a folder of predictions" in mistake("evaluate", "--predictions", tmp_path, test)
        assert "is also an input file" in mistake("evaluate", "--predictions", path, test, f"--json={path}")
        assert path.read_text().startswith('{"id": ')


class TestCloserLooks:
    def test_intervals_stand_beside_their_values(self, ova: Path, data: Path, tmp_path: Path) -> None:
        done = call("evaluate", ova, data / "test.jsonl", "--bootstrap", 50, "--json", tmp_path / "s.json")
        found = json.loads((tmp_path / "s.json").read_text())
        for name, (low, high) in found["intervals"].items():
            assert low <= found[name] <= high
        line = next(line for line in done.out.splitlines() if line.startswith("P@3 "))
        low, high = found["intervals"]["P@3"]
        assert line.split(maxsplit=2)[2] == f"[{100 * low:.2f}, {100 * high:.2f}]"

    def test_seed_of_the_resamples(self, ova: Path, data: Path) -> None:
        command = ("evaluate", ova, data / "test.jsonl", "--bootstrap", 50)

        def table(*more: object) -> str:
            return call(*command, *more).out.partition("\n\n")[0]

        assert table() == table("--seed", 0) != table("--seed", 1)

    def test_groups_and_tail(self, ova: Path, data: Path, tmp_path: Path) -> None:
        done = call("evaluate", ova, data / "test.jsonl", "--groups", "--tail", "--json", tmp_path / "s.json")
        found = json.loads((tmp_path / "s.json").read_text())
        assert [group["least"] for group in found["groups"]["standard"]] == sorted(
            (group["least"] for group in found["groups"]["standard"]), reverse=True
        )
        assert set(found["tail"]) == {"max", "min"}
        assert found["tail"]["min"]["P@10"] > 0.5
        for words in ("head ", "middle ", "tail ", "AUPR", "pessimistic", "Σ max(documents, k)"):
            assert words in done.out

    def test_groups_of_a_small_test_file(self, tiny: tuple[Path, Path]) -> None:
        said = mistake("evaluate", *tiny, "--groups")
        need = "frequency groups need labels with at least 5 test documents"
        assert said == f"{need}, but no label has more than 1. Leave out --groups."

    def test_per_label(self, tiny: tuple[Path, Path], tmp_path: Path) -> None:
        """Both documents get a and b; one holds b and a new label, the other a."""
        call("evaluate", *tiny, "--per-label", tmp_path / "l.csv")
        assert (tmp_path / "l.csv").read_text().splitlines() == [
            "key,name,support,suggested@5,hits@5,never_suggested",
            "a,a,1,2,1,no",
            "b,b,1,2,1,no",
            "new,new,1,0,0,yes",
        ]

    def test_per_label_has_no_formulas(self, tmp_path: Path) -> None:
        keys = ["=1+1", "+2", "-3", "@x", "a=b", "'q"]
        row = {"text": "x", "labels": keys}
        (tmp_path / "t.jsonl").write_text(json.dumps(row))
        call("train", tmp_path / "t.jsonl", "--model", "popularity", "--out", tmp_path / "m")
        call("evaluate", tmp_path / "m", tmp_path / "t.jsonl", "--per-label", tmp_path / "l.csv")
        cells = [line.split(",")[0] for line in (tmp_path / "l.csv").read_text().splitlines()[1:]]
        assert sorted(cells) == sorted(["'=1+1", "'+2", "'-3", "'@x", "a=b", "'q"])

    def test_filter(self, tmp_path: Path) -> None:
        """Labels a and b are 0 and 1 of lbl.json; the best answer to the first document is taken out of it."""
        rows = [{"text": "x", "labels": ["a", "b"]}, {"text": "y", "labels": ["a"]}]
        (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (tmp_path / "lbl.json").write_text('{"uid": "a", "title": "A"}\n{"uid": "b", "title": "B"}\n')
        (tmp_path / "f.txt").write_text("0 0\n")
        call("train", tmp_path / "train.jsonl", "--model", "popularity", "--out", tmp_path / "m")
        test, more = tmp_path / "train.jsonl", ("--filter", tmp_path / "f.txt")
        assert scores(tmp_path / "m", test, tmp_path)["R@1"] == 0.75
        assert scores(tmp_path / "m", test, tmp_path, *more)["R@1"] == 1
        assert "100.00" in call("compare", tmp_path / "m", test, *more).out
        (tmp_path / "f.txt").write_text("0 0\n2 0\n")
        assert f"{tmp_path / 'f.txt'}:2: document 2 is out of range: 2 documents" in mistake(
            "evaluate", tmp_path / "m", test, *more
        )
        said = mistake("evaluate", tmp_path / "m", test, *more, "--on-bad-line", "skip")
        assert said.startswith("--filter refers to documents by number")
        assert mistake("compare", tmp_path / "m", test, *more, "--on-bad-line", "skip") == said

    @pytest.mark.parametrize("number", ["1", "-1", "9", "1000001"])
    def test_too_few_or_many_resamples(self, ova: Path, data: Path, number: str) -> None:
        said = mistake("evaluate", ova, data / "test.jsonl", "--bootstrap", number)
        assert said == f"--bootstrap must be 0 or from 10 to 1,000,000. Got {number}."

    def test_other_mistakes(self, ova: Path, data: Path, tmp_path: Path) -> None:
        test = data / "test.jsonl"
        assert "'seed' must be" in mistake("evaluate", ova, test, "--bootstrap", 20, "--seed", -1)
        assert "no such file" in mistake("evaluate", ova, test, "--filter", tmp_path / "no")
        one = tmp_path / "one"
        assert "is used for two outputs" in mistake("evaluate", ova, test, "--json", one, "--per-label", one)
        assert "does not exist" in mistake("evaluate", ova, test, "--per-label", tmp_path / "no" / "l.csv")
        assert "is also an input file" in mistake("evaluate", ova, test, "--per-label", test)


class TestReliability:
    """Scores as probabilities: the line, the table of bins, the picture."""

    @pytest.fixture
    @staticmethod
    def beyond(tmp_path: Path) -> tuple[Path, Path]:
        """Predictions with a score above 1, and their test file."""
        (tmp_path / "p.jsonl").write_text('{"labels": [["a", 1.5]]}\n{"labels": [["a", 0.5]]}\n')
        (tmp_path / "t.jsonl").write_text('{"text": "x", "labels": ["a"]}\n{"text": "y", "labels": ["b"]}\n')
        return tmp_path / "p.jsonl", tmp_path / "t.jsonl"

    def test_the_line_comes_after_the_metrics(self, ova: Path, data: Path, tmp_path: Path) -> None:
        done = call("evaluate", ova, data / "test.jsonl", "--json", tmp_path / "s.json")
        table, line, *_ = done.out.split("\n\n")
        assert table.splitlines()[-1].startswith("coverage@5")
        told = json.loads((tmp_path / "s.json").read_text())["reliability"]
        error = told["ECE@5"]
        assert line == f"expected calibration error of the top 5 labels: {error:.4f} (15 equal-sized bins)"
        counts = [each["count"] for each in told["bins"]]
        assert max(counts) - min(counts) <= 1
        assert sum(each["count"] * abs(each["confidence"] - each["accuracy"]) for each in told["bins"]) / sum(
            counts
        ) == pytest.approx(error)
        hits = sum(each["count"] * each["accuracy"] for each in told["bins"])
        assert hits == pytest.approx(100 * 5 * json.loads((tmp_path / "s.json").read_text())["P@5"])
        assert done.err == ""

    def test_the_picture_is_written_whole_and_the_bins_are_told(self, ova: Path, data: Path, tmp_path: Path) -> None:
        file = tmp_path / "r.SVG"
        file.write_text("an older picture")
        done = call("evaluate", ova, data / "test.jsonl", "--reliability", file, "--json", tmp_path / "s.json")
        assert done.err == f"{file}: reliability diagram\n"
        picture = ElementTree.fromstring(file.read_text(encoding="utf-8"))
        assert len(picture.findall(".//{*}circle[@class='bin']")) == 15
        assert str(ova)[-20:] in (picture.findtext("{*}title") or "")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["r.SVG", "s.json"]
        bins = json.loads((tmp_path / "s.json").read_text())["reliability"]["bins"]
        header, _, *rows = done.out.split("\n\n")[2].splitlines()
        assert header.split("  ")[0] == "scores"
        assert [row.split() for row in rows] == [
            [
                *(f"{each['lowest']:.4f}", "to", f"{each['highest']:.4f}"),
                *(f"{each['confidence']:.4f}", f"{each['accuracy']:.4f}", str(each["count"])),
            ]
            for each in bins
        ]

    def test_of_predictions(self, ova: Path, data: Path, tmp_path: Path) -> None:
        path, test = tmp_path / "p.jsonl", data / "test.jsonl"
        call("predict", ova, test, "--output", path)
        done = call("evaluate", "--predictions", path, test, "--reliability", tmp_path / "r.svg")
        expected = call("evaluate", ova, test, "--reliability", tmp_path / "s.svg")
        assert done.out.split("\n\n")[1:3] == expected.out.split("\n\n")[1:3]
        assert (tmp_path / "r.svg").is_file()

    def test_predictions_with_other_scores(self, beyond: tuple[Path, Path], tmp_path: Path) -> None:
        path, test = beyond
        done = call("evaluate", "--predictions", path, test)
        assert done.out.split("\n\n")[1] == "scores are not probabilities (some are outside 0 to 1)"
        out, told = tmp_path / "r.svg", tmp_path / "s.json"
        asked = ("evaluate", "--predictions", path, test, "--reliability", out, "--json", told)
        said = mistake(*asked)
        assert said == f"{out}: not written: scores are not probabilities (some are outside 0 to 1)."
        assert call(*asked, ok=False).out == done.out  # the metrics are not lost
        assert "reliability" not in json.loads(told.read_text())
        assert not out.exists()

    def test_a_model_with_other_scores(self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("xmtc.metrics.reliability", lambda *_: None)
        rows = '{"text": "x", "labels": ["a"]}\n{"text": "y", "labels": ["b"]}\n'
        (test := tmp_path / "t.jsonl").write_text(rows)
        call("train", test, "--model", "popularity", "--out", tmp_path / "m")
        done = call("evaluate", tmp_path / "m", test)
        remedy = "scores are not probabilities (calibrate the model with xmtc calibrate DIR VALID)"
        assert done.out.split("\n\n")[1] == remedy
        out = tmp_path / "r.svg"
        said = mistake("evaluate", tmp_path / "m", test, "--reliability", out)
        assert said == f"{out}: not written: {remedy}."
        assert not out.exists()

    def test_without_predictions(self, beyond: tuple[Path, Path], tmp_path: Path) -> None:
        path, test = beyond
        path.write_text('{"labels": []}\n{"labels": []}\n')
        asked = ("evaluate", "--predictions", path, test)
        assert "\n\nno document has a predicted label\n" in call(*asked).out
        out = tmp_path / "r.svg"
        said = mistake(*asked, "--reliability", out)
        assert said == f"{out}: not written: no document has a predicted label."

    @pytest.mark.parametrize("name", ["r.jpg", "r", "svg", "r.svg.gz"])
    def test_other_formats_are_refused(self, ova: Path, data: Path, tmp_path: Path, name: str) -> None:
        asked = ("evaluate", ova, data / "test.jsonl", "--reliability", tmp_path / name)
        assert mistake(*asked) == f"{tmp_path / name}: unsupported plot format. Use the extension .svg, .png or .pdf."
        assert call(*asked, ok=False).out == ""  # refused before the work, not after it
        assert not list(tmp_path.iterdir())

    def test_places_that_cannot_be_written(self, ova: Path, data: Path, tmp_path: Path) -> None:
        asked = ("evaluate", ova, data / "test.jsonl", "--reliability")
        missing, folder, one = tmp_path / "no" / "r.svg", tmp_path / "f.svg", tmp_path / "one.svg"
        folder.mkdir()
        assert mistake(*asked, missing) == f"{missing}: the folder {missing.parent} does not exist. Create it first."
        assert mistake(*asked, folder) == f"{folder}: is a folder. Choose a file name."
        same = os.path.join(tmp_path, "f.svg", "..", "one.svg")
        for option, other in (("--json", one), ("--per-label", one), ("--json", same)):
            assert "is used for two outputs. Choose another file" in mistake(*asked, one, option, other)
        precious = tmp_path / "t.svg"
        precious.write_text((data / "test.jsonl").read_text())
        assert "is also an input file" in mistake("evaluate", ova, precious, "--reliability", precious)
        assert not one.exists()


class TestSets:
    """F1 of the sets of labels at a threshold."""

    @pytest.fixture(scope="class")
    @staticmethod
    def tuned(models: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = shutil.copytree(models / "knn", tmp_path_factory.mktemp("tuned") / "m")
        call("calibrate", folder, data / "test.jsonl")
        return folder

    def test_the_line_comes_after_the_calibration_error(self, tuned: Path, data: Path, tmp_path: Path) -> None:
        done = call("evaluate", tuned, data / "test.jsonl", "--json", tmp_path / "s.json").out
        found = json.loads((tmp_path / "s.json").read_text())["threshold"]
        assert (found["kind"], found["measure"]) == ("global", "micro")
        values = {name: f"{100 * value:.2f}" for name, value in found["scores"].items()}
        assert " ".join(done.split("\n\n")[2].split()) == (
            f"tuned threshold (global {found['value']:.4f}, optimised for micro-F1), %: micro-F1 {values['micro']}, "
            f"macro-F1 {values['macro']}, document-F1 {values['document']}, precision {values['precision']}, "
            f"recall {values['recall']}, {found['scores']['labels']:.2f} labels per document"
        )
        assert (
            call("evaluate", tuned, data / "test.jsonl", "--threshold", "auto").out.split("\n\n")[:3]
            == (done.split("\n\n")[:3])
        )

    def test_a_threshold_that_is_given(self, models: Path, tuned: Path, data: Path, tmp_path: Path) -> None:
        for folder in (tuned, models / "knn"):
            done = call(*("evaluate", folder, data / "test.jsonl", "--threshold", "0.4", "--json", tmp_path / "s.json"))
            found = json.loads((tmp_path / "s.json").read_text())["threshold"]
            assert set(found) == {"value", "scores"}
            assert found["value"] == 0.4
            assert f"\nthreshold 0.4, %: micro-F1 {100 * found['scores']['micro']:.2f}, " in done.out

    def test_other_measures_do_not_change(self, models: Path, tuned: Path, data: Path, tmp_path: Path) -> None:
        plain = scores(models / "knn", data / "test.jsonl", tmp_path)
        assert "threshold" not in plain
        for folder, more in ((tuned, ()), (models / "knn", ("--threshold", 0.2))):
            found = scores(folder, data / "test.jsonl", tmp_path, *more)
            assert {name: found[name] for name in NAMES} == {name: plain[name] for name in NAMES}

    def test_predicted_once(self, tuned: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked, real = [], Model.predict

        def counting(self: Any, *given: Any, **how: Any) -> Any:
            asked.append(given)
            return real(self, *given, **how)

        monkeypatch.setattr(Model, "predict", counting)
        call("evaluate", tuned, data / "test.jsonl")
        assert len(asked) == 1

    def test_a_file_of_sets_and_a_file_of_rankings(self, tuned: Path, data: Path, tmp_path: Path) -> None:
        test, value = data / "test.jsonl", load(tuned).decisions.thresholds.value
        expected = scores(tuned, test, tmp_path)["threshold"]["scores"]
        call("predict", tuned, test, "--threshold", "auto", "--output", tmp_path / "sets.jsonl")
        call("predict", tuned, test, "-k", 40, "--output", tmp_path / "rankings.jsonl")
        for name in ("sets", "rankings"):
            call(
                *("evaluate", "--predictions", tmp_path / f"{name}.jsonl", test, "--train", data / "train.jsonl"),
                *("--threshold", value, "--json", tmp_path / "p.json"),
            )
            found = json.loads((tmp_path / "p.json").read_text())
            assert found["threshold"] == {"value": value, "scores": pytest.approx(expected)}
        said = mistake("evaluate", "--predictions", tmp_path / "sets.jsonl", test, "--threshold", "auto")
        assert said == "a file of predictions has no tuned threshold. Pass a number, or evaluate a model folder."

    def test_unknown_labels_and_filter(self, tmp_path: Path) -> None:
        """Both documents get a (score 1) and b (0.5); the first holds b and a label that nobody can return."""
        rows = [{"text": "x", "labels": ["a", "b"]}, {"text": "y", "labels": ["a"]}]
        (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
        tests = [{"text": "x", "labels": ["b", "new"]}, {"text": "y", "labels": ["a"]}]
        (test := tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, tests)))
        call("train", tmp_path / "train.jsonl", "--model", "popularity", "--out", tmp_path / "m")

        def found(threshold: float, *more: object) -> dict[str, float]:
            told = scores(tmp_path / "m", test, tmp_path, "--threshold", threshold, *more)
            return dict(told["threshold"]["scores"])

        both, best = found(0.5), found(0.6)
        assert both == pytest.approx(
            {
                "micro": 2 * 2 / 7,
                "macro": (2 / 3 + 2 / 3 + 0) / 3,
                "document": (2 / 4 + 2 / 3) / 2,
                "precision": 2 / 4,
                "recall": 2 / 3,
                "labels": 2,
            }
        )
        assert (best["precision"], best["recall"], best["labels"]) == pytest.approx((1 / 2, 1 / 3, 1))
        dropped = found(0.5, "--unknown-labels", "drop")
        assert (dropped["recall"], dropped["macro"]) == pytest.approx((1, 2 / 3))
        (tmp_path / "lbl.json").write_text('{"uid": "a", "title": "A"}\n{"uid": "b", "title": "B"}\n')
        (tmp_path / "f.txt").write_text("0 0\n")
        filtered = found(0.5, "--filter", tmp_path / "f.txt")
        assert (filtered["precision"], filtered["labels"]) == pytest.approx((2 / 3, 1.5))


class TestCompareClosely:
    def test_differences_to_the_first(
        self, models: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(models)
        folders = [Path("one_vs_all"), Path("popularity")]
        done = call("compare", *folders, data / "test.jsonl", "--bootstrap", 50)
        first, second = (scores(folder, data / "test.jsonl", tmp_path) for folder in folders)
        at = done.out.index(f"difference from {folders[0]}")
        line = next(line for line in done.out[at:].splitlines() if line.startswith("P@1 "))
        assert line.split()[1] == f"{100 * (second['P@1'] - first['P@1']):+.2f}"
        assert line.endswith("*")
        assert "shared labels, %" in done.out

    def test_models_that_know_different_features(self, data: Path, tmp_path: Path) -> None:
        """Lines of features without a header: each model leaves out what it does not know."""
        (tmp_path / "a.svm").write_text("0 0:1\n1 1:1\n")
        (tmp_path / "b.svm").write_text("0 0:1 5:1\n1 1:1 6:1\n")
        (tmp_path / "test.svm").write_text("0 0:1 9:1\n1 1:1 6:1\n")
        for name in ("a", "b"):
            call("train", tmp_path / f"{name}.svm", "--model", "one_vs_all", "--out", tmp_path / name)
        done = call("compare", tmp_path / "a", tmp_path / "b", tmp_path / "test.svm")
        assert next(line for line in done.out.splitlines() if line.startswith("P@1")).split() == [
            "P@1",
            "100.00",
            "100.00",
        ]

    def test_fields_by_other_names(self, models: Path, data: Path, tmp_path: Path) -> None:
        """The same test file as a table with columns of its own."""
        rows = [json.loads(line) for line in (data / "test.jsonl").read_text().splitlines()]
        lines = [f"{row['text']}\t{'|'.join(row['labels'])}" for row in rows]
        (tmp_path / "t.tab").write_text("body of it\tsubjects here\n" + "\n".join(lines) + "\n")
        how = ("--text-field", "body of it", "--label-field", "subjects here", "--label-separator", "|")
        expected = call("compare", models / "knn", data / "test.jsonl").out.splitlines()[2:8]
        assert call("compare", models / "knn", tmp_path / "t.tab", *how).out.splitlines()[2:8] == expected
        assert "no text field" in mistake("compare", models / "knn", tmp_path / "t.tab")


class TestHierarchy:
    def test_the_same_for_a_model_and_for_its_predictions(self, tree: Path, data: Path, tmp_path: Path) -> None:
        test = data / "test.jsonl"
        call("predict", tree, test, "--out", tmp_path / "p.jsonl")
        found = scores(tree, test, tmp_path, "--hierarchy", "--bootstrap", 50)
        names = [f"{kind}@{k}" for kind in ("hP", "hF1", "nearP", "nearnDCG", "graphP", "graphnDCG") for k in (1, 3, 5)]
        assert set(names) <= set(found["intervals"])
        assert found["P@5"] < found["nearP@5"] < found["graphP@5"]
        given = ("--predictions", tmp_path / "p.jsonl", test, "--labels", tree.parent / "labels.jsonl")
        call("evaluate", *given, "--hierarchy", "--json", tmp_path / "q.json")
        of_file = json.loads((tmp_path / "q.json").read_text())
        assert {name: of_file[name] for name in names} == pytest.approx({name: found[name] for name in names})
        assert "nearP@1" not in scores(tree, test, tmp_path)

    def test_by_hand(self, tmp_path: Path) -> None:
        """The model answers a, then b; 'new', below b, is known only to the vocabulary of the test set."""
        (tmp_path / "train.jsonl").write_text('{"text": "x", "labels": ["a", "b"]}\n{"text": "y", "labels": ["a"]}\n')
        (tmp_path / "test.jsonl").write_text('{"text": "x", "labels": ["new"]}\n{"text": "x", "labels": ["a"]}\n')
        rows = [{"id": "a"}, {"id": "b", "parents": ["top"]}, {"id": "new", "parents": ["b"]}, {"id": "top"}]
        (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
        call("train", tmp_path / "train.jsonl", "--model", "popularity", "--out", tmp_path / "m")
        vocabulary = ("--labels", tmp_path / "labels.jsonl")
        found = scores(tmp_path / "m", tmp_path / "test.jsonl", tmp_path, "--hierarchy", *vocabulary)
        assert found["nearP@1"] == 0.5
        assert found["nearP@3"] == pytest.approx((0.5 + 1) / 6)
        assert found["hP@3"] == pytest.approx((2 + 1) / (3 + 3))  # {a, b, top} twice; {new, b, top} and {a}
        assert found["hR@3"] == pytest.approx((2 + 1) / (3 + 1))
        compared = ("compare", tmp_path / "m", tmp_path / "test.jsonl", "--hierarchy", "--json", tmp_path / "c.json")
        call(*compared, *vocabulary)
        (of_model,) = json.loads((tmp_path / "c.json").read_text())["models"].values()
        assert {name: of_model[name] for name in ("nearP@1", "hP@3")} == {
            name: found[name] for name in ("nearP@1", "hP@3")
        }
        assert "Pass a vocabulary with broader labels (--labels FILE), or leave out --hierarchy." in mistake(*compared)

    def test_without_a_hierarchy(self, ova: Path, data: Path) -> None:
        assert "no label has a broader label" in mistake("evaluate", ova, data / "test.jsonl", "--hierarchy")
