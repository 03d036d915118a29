"""`xmtc calibrate`: probabilities and sets of labels, kept with the model and taken away again."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.command_line import call, mistake
from xmtc import Model, load
from xmtc.artifact.store import read_manifest, sealed
from xmtc.data.planted_corpus import PlantedCorpus

MEASURES = {
    "micro-F1": "micro",
    "macro-F1": "macro",
    "document-F1": "document",
    "precision": "precision",
    "recall": "recall",
}
HINT = "measured on the validation set used for fitting; for an unbiased estimate: xmtc evaluate {} TEST\n"  # one line


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with short, noisy documents to train, to calibrate and to test on, and a knn model called `plain`."""
    folder = tmp_path_factory.mktemp("calibrate")
    corpus = PlantedCorpus(documents=1000, labels=40, words_per_document=12, seed=4)
    for name, start, stop in (("train", 0, 400), ("valid", 400, 700), ("test", 700, 1000)):
        with (folder / f"{name}.jsonl").open("w") as handle:
            corpus.write_jsonl(handle, start, stop)
    call("train", folder / "train.jsonl", "--model", "knn", "--out", folder / "plain")
    return folder


@pytest.fixture
def folder(files: Path, tmp_path: Path) -> Path:
    """A model of one's own to calibrate."""
    return Path(shutil.copytree(files / "plain", tmp_path / "m"))


def rows(*arguments: object) -> list[list[dict[str, Any]]]:
    return [row["labels"] for row in call("predict", *arguments).lines()]


def keys(answers: list[list[dict[str, Any]]]) -> list[list[str]]:
    return [[label["key"] for label in row] for row in answers]


def told(*arguments: object, place: Path) -> dict[str, Any]:
    call(*arguments, "--json", place / "told.json")
    return dict(json.loads((place / "told.json").read_text()))


def known_files(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.iterdir()
        if path.name != "model.json" and not path.name.startswith("decisions-")
    }


class TestWhatItSays:
    def test_table_and_json_agree(self, files: Path, folder: Path, tmp_path: Path) -> None:
        done = call("calibrate", folder, files / "valid.jsonl", "--json", tmp_path / "c.json")
        found = json.loads((tmp_path / "c.json").read_text())
        lines = done.out.splitlines()
        assert lines[0].split("  ")[0] == "on 300 documents"
        assert lines[0].endswith("isotonic calibration")
        cells = dict(line.rsplit("  ", 1) for line in lines[2:-2])
        cells = {name.strip(): value for name, value in cells.items()}
        before, after = found["ECE@5 before"], found["ECE@5"]
        assert cells.pop("expected calibration error, top 5") == f"{before:.4f} before, {after:.4f} after"
        assert after < before
        assert found["threshold"]["kind"] == "global"
        assert cells.pop("threshold") == f"global {found['threshold']['value']:.4f}, optimised for micro-F1"
        assert cells.pop("labels per document") == f"{found['F1']['labels']:.2f}"
        assert cells == {f"{name}, %": f"{100 * found['F1'][key]:.2f}" for name, key in MEASURES.items()}
        sets = "predict returns probabilities; predict --threshold auto returns label sets"
        assert lines[-2:] == ["", f"saved in {folder}: {sets}"]
        assert done.err == HINT.format(folder)
        assert (found["documents"], found["k"]) == (300, 40)  # there are no more labels

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--threshold", "document"], "best label set of each document"),
            (["--threshold", "label", "--f1", "macro"], "one per label for 40 of 40 labels, optimised for macro-F1"),
            (["--threshold", "global", "--f1", "document"], "optimised for document-F1"),
            (["--method", "platt"], "platt calibration"),
            (["--threshold", "none"], "saved in {}: predict returns probabilities\n"),
            (
                ["--method", "none"],
                "saved in {}: predict returns raw scores; predict --threshold auto returns label sets",
            ),
            (["--method", "none"], "no calibration\n"),
            (["-k", "3"], "expected calibration error, top 3"),
        ],
    )
    def test_the_ways(self, files: Path, folder: Path, arguments: list[str], words: str) -> None:
        said = call("calibrate", folder, files / "valid.jsonl", *arguments).out
        assert " ".join(words.format(folder).split()) in " ".join(said.split())
        assert ("F1, %" in said) == ("none" not in arguments or "--method" in arguments)

    def test_labels_with_thresholds_of_their_own(self, files: Path, folder: Path, tmp_path: Path) -> None:
        lines = (files / "valid.jsonl").read_text().splitlines()[:40]  # a few labels are hardly there
        (tmp_path / "v.jsonl").write_text("\n".join(lines))
        said = call("calibrate", folder, tmp_path / "v.jsonl", "--threshold", "label").out
        rule = load(folder).decisions.thresholds
        assert rule is not None
        assert rule.by_label is not None
        own = int((rule.by_label != np.float32(rule.value)).sum())
        assert 0 < own < 40
        assert f"one per label for {own} of 40 labels, {rule.value:.4f} for the others, " in " ".join(said.split())


class TestWhatItDoes:
    @pytest.mark.parametrize("method", ["isotonic", "platt"])
    @pytest.mark.parametrize("name", ["knn", "one_vs_all"])
    def test_probabilities_with_the_same_ranking(
        self, files: Path, tmp_path: Path, folder: Path, method: str, name: str
    ) -> None:
        if name != "knn":
            folder = tmp_path / name
            call("train", files / "train.jsonl", "--model", name, "--out", folder)
        test = files / "test.jsonl"
        before, scores = rows(folder, test), told("evaluate", folder, test, place=tmp_path)
        call("calibrate", folder, files / "valid.jsonl", "--method", method)
        after, others = rows(folder, test), told("evaluate", folder, test, place=tmp_path)
        assert keys(after) == keys(before)
        assert after != before
        assert all(0 <= label["score"] <= 1 for row in after for label in row)
        assert all(row == sorted(row, key=lambda label: -label["score"]) for row in after)
        assert others["reliability"]["ECE@5"] < 0.6 * scores["reliability"]["ECE@5"]
        for measure, value in scores.items():
            if "@" in measure:
                assert others[measure] == value

    @pytest.mark.parametrize(
        "how",
        [
            ("--threshold", "global"),
            ("--threshold", "global", "--f1", "macro", "-k", 3),
            ("--threshold", "label", "--f1", "macro"),
            ("--threshold", "label", "--f1", "document", "--method", "platt"),
            ("--threshold", "document"),
            ("--threshold", "label", "--method", "none"),
        ],
    )
    def test_sets_have_the_f1_that_was_said(
        self, files: Path, folder: Path, tmp_path: Path, how: tuple[object, ...]
    ) -> None:
        valid = files / "valid.jsonl"
        said = told("calibrate", folder, valid, *how, place=tmp_path)
        measured = told("evaluate", folder, valid, place=tmp_path)["threshold"]
        assert measured["scores"] == said["F1"]
        assert {name: measured[name] for name in said["threshold"]} == said["threshold"]
        sets = [set(row) for row in keys(rows(folder, valid, "--threshold", "auto"))]
        truth = [set(json.loads(line)["labels"]) for line in valid.read_text().splitlines()]
        hits = sum(len(row & held) for row, held in zip(sets, truth, strict=True))
        assert 2 * hits / sum(map(len, sets + truth)) == pytest.approx(said["F1"]["micro"], abs=1e-12)
        assert sum(map(len, sets)) / 300 == pytest.approx(said["F1"]["labels"])
        f1 = [2 * len(row & held) / len([*row, *held]) for row, held in zip(sets, truth, strict=True)]
        assert np.mean(f1) == pytest.approx(said["F1"]["document"], abs=1e-12)

    def test_each_is_the_best_for_its_f1(self, files: Path, folder: Path, tmp_path: Path) -> None:
        found = {
            measure: told("calibrate", folder, files / "valid.jsonl", "--f1", measure, place=tmp_path)["F1"]
            for measure in ("micro", "macro", "document")
        }
        for measure, scores in found.items():
            assert scores[measure] == max(other[measure] for other in found.values())

    def test_nothing_else_is_written_and_all_of_it_is_taken_away(self, files: Path, folder: Path) -> None:
        test = files / "test.jsonl"
        manifest, before, answers = (folder / "model.json").read_bytes(), known_files(folder), rows(folder, test)
        call("calibrate", folder, files / "valid.jsonl")
        assert len(list(folder.glob("decisions-*"))) == 1
        assert known_files(folder) == before
        assert rows(folder, test) != answers
        call("calibrate", folder, files / "valid.jsonl", "--method", "platt", "--threshold", "label")
        assert len(list(folder.glob("decisions-*"))) == 1
        assert known_files(folder) == before
        away = ("--method", "none", "--threshold", "none")
        done = call("calibrate", folder, files / "valid.jsonl", *away)
        assert done.out.endswith(f"\n\n{folder}: not calibrated; predict returns raw scores\n")
        assert done.err == ""
        assert (folder / "model.json").read_bytes() == manifest
        assert known_files(folder) == before
        assert not list(folder.glob("decisions-*"))
        assert rows(folder, test) == answers
        call("calibrate", folder, files / "valid.jsonl")
        done = call("calibrate", folder, *away)  # which needs no documents
        assert done.out == f"{folder}: not calibrated; predict returns raw scores\n"
        assert (folder / "model.json").read_bytes() == manifest

    def test_calibrating_again_starts_from_the_plain_scores(self, files: Path, folder: Path, tmp_path: Path) -> None:
        first = told("calibrate", folder, files / "valid.jsonl", place=tmp_path)
        call("calibrate", folder, files / "test.jsonl", "--method", "platt")
        assert told("calibrate", folder, files / "valid.jsonl", place=tmp_path) == first

    def test_training_again_drops_it(self, files: Path, folder: Path) -> None:
        call("calibrate", folder, files / "valid.jsonl")
        call("train", files / "train.jsonl", "--model", "knn", "--out", folder, "--force")
        assert not list(folder.glob("decisions-*"))
        assert "has no tuned threshold" in mistake("predict", folder, "--text", "x", "--threshold", "auto")
        assert rows(folder, files / "test.jsonl") == rows(files / "plain", files / "test.jsonl")

    def test_a_copy_keeps_it(self, files: Path, folder: Path, tmp_path: Path) -> None:
        call("calibrate", folder, files / "valid.jsonl", "--threshold", "label")
        load(folder).save(tmp_path / "copy")
        test = (files / "test.jsonl", "--threshold", "auto")
        assert rows(tmp_path / "copy", *test) == rows(folder, *test)

    def test_labels_that_the_model_does_not_know_count_as_missed(
        self, files: Path, folder: Path, tmp_path: Path
    ) -> None:
        lines = [json.loads(line) for line in (files / "valid.jsonl").read_text().splitlines()]
        (tmp_path / "v.jsonl").write_text(
            "".join(json.dumps({**line, "labels": [*line["labels"], "new"]}) + "\n" for line in lines)
        )
        usual = told("calibrate", folder, files / "valid.jsonl", place=tmp_path)["F1"]
        found = told("calibrate", folder, tmp_path / "v.jsonl", place=tmp_path)["F1"]
        assert found["recall"] < usual["recall"]
        assert told("evaluate", folder, tmp_path / "v.jsonl", place=tmp_path)["threshold"]["scores"] == found
        (tmp_path / "labels.txt").write_text("\n".join(load(folder).labels.keys))
        named = ("--labels", tmp_path / "labels.txt")
        assert "not in" in mistake("calibrate", folder, tmp_path / "v.jsonl", *named)
        again = told(*("calibrate", folder, tmp_path / "v.jsonl", *named, "--unknown-labels", "drop"), place=tmp_path)
        assert again["F1"] == usual


class TestOtherCommands:
    @pytest.fixture
    @staticmethod
    def calibrated(files: Path, folder: Path) -> Path:
        call("calibrate", folder, files / "valid.jsonl")
        return folder

    def test_verify_covers_it(self, calibrated: Path) -> None:
        (path,) = calibrated.glob("decisions-*")
        assert path.name in call("verify", calibrated).out
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        said = mistake("verify", calibrated)
        assert said == f"{path}: content does not match its hash. Copy or train the model again."

    def test_explain_shows_the_probability(self, files: Path, calibrated: Path) -> None:
        text = json.loads((files / "test.jsonl").read_text().splitlines()[0])["text"]
        ((best, *_),) = rows(calibrated, "--text", text)
        found = json.loads(call("explain", calibrated, "--text", text, "--label", best["name"], "--json").out)
        assert found["score"] == pytest.approx(best["score"])
        ((plain, *_),) = rows(files / "plain", "--text", text)
        assert plain["score"] != pytest.approx(best["score"])

    def test_compare(self, files: Path, calibrated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(files)
        tuned = os.path.relpath(calibrated)
        done = call("compare", "plain", tuned, "test.jsonl").out
        first = next(line for line in done.splitlines() if line.startswith("P@1"))
        assert len(set(first.split()[1:])) == 1
        last = " ".join(done.rpartition("\n\n")[2].split())
        ends = re.findall(r"(\S+): [\d,]+ documents .*? expected calibration error ([\d.]+)", last)
        assert [name for name, _ in ends] == ["plain", tuned]
        assert float(ends[0][1]) > float(ends[1][1])
        header = next(line for line in done.splitlines() if line.startswith("tuned threshold, %"))
        assert header.split()[-1] == tuned
        assert "plain" not in header  # nothing was tuned for it

    def test_a_model_of_features(self, models: Path, data: Path, tmp_path: Path) -> None:
        folder = shutil.copytree(models / "features", tmp_path / "m")
        said = told("calibrate", folder, data / "test.txt", place=tmp_path)
        assert told("evaluate", folder, data / "test.txt", place=tmp_path)["threshold"]["scores"] == said["F1"]


class TestRefused:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--method", "sigmoid"], "--method must be isotonic or platt or none. Got 'sigmoid'."),
            (["--threshold", "0.5"], "--threshold must be global or document or label or none. Got '0.5'."),
            (["--f1", "weighted"], "--f1 must be micro or macro or document. Got 'weighted'."),
            (["-k", "0"], "'k' must be an integer ≥ 1. Got 0."),
            (["--threshold", "none", "--f1", "micro"], "--f1 cannot be used with --threshold none."),
            (
                ["--threshold", "document", "--f1", "micro"],
                "--threshold document optimises document-F1, not micro-F1. Leave out --f1.",
            ),
            (["--unknown-labels", "count"], "--unknown-labels must be refuse or drop. Got 'count'."),
            (["--json", "nowhere/c.json"], "nowhere/c.json: the folder nowhere does not exist."),
            (["--threads", "0"], "'threads' must be an integer ≥ 1. Got 0."),
        ],
    )
    def test_arguments(self, files: Path, folder: Path, arguments: list[str], message: str) -> None:
        before = (folder / "model.json").read_bytes()
        assert mistake("calibrate", folder, files / "valid.jsonl", *arguments).startswith(message)
        assert (folder / "model.json").read_bytes() == before

    def test_documents(self, files: Path, folder: Path, tmp_path: Path) -> None:
        needs = "VALID is missing. Pass documents with labels that the model was not trained on."
        assert mistake("calibrate", folder) == needs
        assert "Missing argument 'DIR'" in mistake("calibrate")
        away = ("--method", "none", "--threshold", "none")
        assert mistake("calibrate", folder, *away, "--json", tmp_path / "c.json").startswith(
            "--json requires a validation set."
        )
        assert mistake("calibrate", folder, "nowhere.jsonl") == "nowhere.jsonl: no such file. Check the path."
        valid = files / "valid.jsonl"
        assert (
            mistake("calibrate", valid, folder)
            == f"{valid}: is a file, not a model folder. The model folder comes first."
        )
        assert "no such folder" in mistake("calibrate", tmp_path / "no", valid)
        path = tmp_path / "v.jsonl"
        for content, message in {
            "": ": empty",
            '{"text": "a", "labels": []}\n': "no document has a label",
            '{"text": "a"}\n': ":1: no 'labels'",
            '{"text": "a", "labels": ["new"]}\n': "the documents and the model have no label in common",
        }.items():
            path.write_text(content)
            assert message in mistake("calibrate", folder, path)
        key = load(folder).labels.key(0)
        path.write_text(10 * (json.dumps({"text": "zzz", "labels": [key]}) + "\n"))
        said = mistake("calibrate", folder, path)
        assert said == "no validation document has a predicted label. Use documents similar to the training set."
        assert "is also an input file" in mistake("calibrate", folder, valid, f"--json={valid}")
        assert not list(folder.glob("decisions-*"))

    def test_too_few_documents(self, files: Path, folder: Path, tmp_path: Path) -> None:
        lines = (files / "valid.jsonl").read_text().splitlines()
        (tmp_path / "v.jsonl").write_text(lines[0] + "\n")
        said = mistake("calibrate", folder, tmp_path / "v.jsonl", "-k", 3)
        assert said == "1 validation document: too few to calibrate the model. Provide at least 10."

    def test_scores_that_are_no_probabilities(self, files: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = Model._ranked

        def doubled(self: Any, *given: Any) -> Any:
            found = real(self, *given)
            found.scores *= 2
            return found

        monkeypatch.setattr(Model, "_ranked", doubled)
        asked = ("calibrate", folder, files / "valid.jsonl", "--threshold", "document")
        said = mistake(*asked, "--method", "none")
        assert said.startswith("document thresholds need probabilities, but scores are outside [0, 1].")
        assert "– before, 0.0" in call(*asked).out

    def test_a_model_replaced_meanwhile(
        self, files: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = Model.calibrate

        def slow(self: Any, *given: Any, **how: Any) -> Any:
            call("train", files / "test.jsonl", "--model", "popularity", "--out", folder, "--force")
            return real(self, *given, **how)

        monkeypatch.setattr(Model, "calibrate", slow)
        said = mistake("calibrate", folder, files / "valid.jsonl")
        assert said == f"{folder}: another model was saved there in the meantime. Run the command again."
        assert read_manifest(folder)["model"] == "popularity"
        assert "parts" not in read_manifest(folder)

    def test_damage(self, files: Path, folder: Path) -> None:
        call("calibrate", folder, files / "valid.jsonl", "--threshold", "label")
        (path,) = folder.glob("decisions-*")
        manifest, whole = (folder / "model.json").read_text(), path.read_bytes()

        def said() -> str:
            return mistake("predict", folder, "--text", "x")

        path.write_bytes(whole[:-4])
        assert said().startswith(f"{path}: {len(whole) - 4:,} bytes, expected {len(whole):,}.")
        path.write_bytes(whole[:-4] + b"\xff\xff\xff\x7f")
        assert said() == f"{path}: content does not match its hash. Copy or train the model again."
        path.write_bytes(whole)
        for old, new in (
            ('"method": "isotonic"', '"method": "magic"'),
            ('"kind": "label"', '"kind": "all"'),
            ('"depth": 40', '"depth": 0'),
        ):
            assert old in manifest
            (folder / "model.json").write_text(manifest.replace(old, new))
            assert "damaged (its content does not match its hash)" in said()
            (folder / "model.json").write_text(json.dumps(sealed(json.loads(manifest.replace(old, new)))))
            assert said().startswith(f"{folder}: ")
            assert said().endswith("Copy or train the model again.")
        path.unlink()
        (folder / "model.json").write_text(manifest)
        assert said().startswith(f"{path}: missing, so the folder is damaged")
