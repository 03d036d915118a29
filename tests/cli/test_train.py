"""`xmtc train`: what it prints and saves, and what it refuses in one line before any work is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.command_line import call, mistake
from xmtc import load
from xmtc.artifact.store import read_manifest
from xmtc.artifact.workspace import Workspace


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "model"


def assert_nothing_left(out: Path) -> None:
    assert not out.exists()
    assert not Workspace.beside(out).exists()


class TestGood:
    def test_prints_the_resolved_settings_and_what_it_saved(self, data: Path, out: Path) -> None:
        arguments = ("--model", "knn", "--set", "neighbours=3", "--set", "text.min_df=1", "--seed", "5")
        done = call("train", data / "train.jsonl", "--out", out, *arguments)
        settings = [line.strip() for line in done.err.splitlines()]
        assert settings[0] == "model: knn"
        for line in ("neighbours = 3  (--set)", "text.min_df = 1  (--set)", "seed = 5  (--seed)"):
            assert line in settings
        assert not any(line.startswith(("power =", "text.idf =")) for line in settings)  # the defaults
        assert f"saved knn in {out}: 600 documents, 40 labels" in done.out
        assert load(out).config.text.min_df == 1
        assert read_manifest(out)["training"]["seed"] == 5
        assert not Workspace.beside(out).exists()

    def test_without_a_model_the_choice_is_named(self, data: Path, out: Path) -> None:
        done = call("train", data / "train.jsonl", "--out", out)
        assert done.err.startswith(f"model: {read_manifest(out)['model']} (preset fast; ")

    def test_command_line_goes_over_recipe_goes_over_default(self, data: Path, out: Path, tmp_path: Path) -> None:
        recipe = tmp_path / "r.toml"
        recipe.write_text('model = "knn"\n[settings]\nneighbours = 7\npower = 2\ntext.min_df = 3\n')
        call("train", data / "train.jsonl", "--config", recipe, "--set", "power=3", "--out", out)
        settings = read_manifest(out)["settings"]
        assert (settings["neighbours"], settings["power"], settings["text"]["min_df"]) == (7, 3.0, 3)
        assert settings["snippet"] == 120

    def test_force_replaces_a_model(self, data: Path, out: Path) -> None:
        for name, force in (("popularity", []), ("knn", ["--force"])):
            call("train", data / "train.jsonl", "--model", name, "--out", out, *force)
        assert read_manifest(out)["model"] == "knn"
        assert len(list(out.iterdir())) == 1 + len(read_manifest(out)["files"])

    def test_validation_documents_are_chosen_on(self, data: Path, out: Path) -> None:
        valid = ("--valid", data / "test.jsonl")
        done = call("train", data / "train.jsonl", "--model", "knn", *valid, "--out", out)
        assert "chosen automatically: neighbours = " in done.err
        assert "chosen automatically: power = " in done.err

    def test_the_current_folder_may_be_the_model(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / "here"
        place.mkdir()
        monkeypatch.chdir(place)
        call("train", data / "train.jsonl", "--model", "popularity", "--out", ".")
        assert (place / "model.json").is_file()
        assert not (tmp_path / "here.work").exists()

    @pytest.mark.parametrize("model", ["bonsai", "one_vs_all", "parabel"])
    def test_same_seed_same_model_whatever_the_threads(self, model: str, data: Path, tmp_path: Path) -> None:
        for threads in (1, 2):
            out = tmp_path / str(threads)
            call("train", data / "train.jsonl", "--model", model, "--out", out, "--threads", threads)
        assert read_manifest(tmp_path / "1")["files"] == read_manifest(tmp_path / "2")["files"]


class TestVocabulary:
    @pytest.fixture
    def small(self, tmp_path: Path) -> Path:
        rows = [("red apple", ["c1"]), ("green pear", ["c2"]), ("red apple pear", ["c1", "c2"])]
        lines = [json.dumps({"text": text, "labels": labels}) for text, labels in rows]
        (tmp_path / "small.jsonl").write_text("\n".join(lines))
        return tmp_path / "small.jsonl"

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("v.tsv", "c1\tApples\nc2\tPears\n"),
            ("v.jsonl", '{"id": "c1", "name": "Apples"}\n{"key": "c2", "name": "Pears"}\n'),
        ],
    )
    def test_names_appear_in_predictions(self, small: Path, out: Path, tmp_path: Path, name: str, content: str) -> None:
        (tmp_path / name).write_text(content)
        call("train", small, "--model", "popularity", "--labels", tmp_path / name, "--out", out)
        labels = call("predict", out, "--text", "x").lines()[0]["labels"]
        assert {(label["key"], label["name"]) for label in labels} == {("c1", "Apples"), ("c2", "Pears")}

    def test_a_list_names_the_numbers_of_xmlrepository_labels(self, data: Path, out: Path, tmp_path: Path) -> None:
        (tmp_path / "names.txt").write_text("".join(f"name {number}\n" for number in range(40)))
        call("train", data / "train.txt", "--labels", tmp_path / "names.txt", "--out", out)
        first = call("predict", out, data / "test.txt", "-k", 1).lines()[0]["labels"][0]
        assert first["name"] == f"name {first['key']}"

    def test_a_label_outside_is_refused_or_dropped(self, small: Path, out: Path, tmp_path: Path) -> None:
        (tmp_path / "v.tsv").write_text("c1\tApples\n")
        command = ("train", small, "--model", "popularity", "--labels", tmp_path / "v.tsv", "--out", out)
        said = mistake(*command)
        assert said == f"{small}:2: label 'c2' is not in v.tsv. Add it, or pass --unknown-labels drop."
        assert_nothing_left(out)
        call(*command, "--unknown-labels", "drop")
        assert load(out).labels.names == ["Apples"]


MISTAKES: list[tuple[list[str], str]] = [
    (["--set", "costt=3"], "parabel has no setting 'costt'. Did you mean 'cost'?"),
    (["--set", "text.min_d=3"], "Did you mean 'min_df'?"),
    (["--set", "cost=many"], "'cost' of parabel must be a number or auto. Got 'many'."),
    (["--set", "cost=-1"], "'cost' of parabel must be a number from 1e-06 to 1e+06. Got -1.0."),
    (["--set", "cost=inf"], "'cost' of parabel must be a number or auto. Got inf."),
    (["--set", "passes=0.5"], "'passes' of parabel must be an integer. Got 0.5."),
    (["--set", "passes=99999999999999999999"], "'passes' of parabel must be an integer."),
    (["--set", "cost"], "--set cost: expected key=value"),
    (["--set", "text=3"], "'text' of parabel must be"),
    (["--model", "one_vs_al"], "no model 'one_vs_al'. Did you mean 'one_vs_all'?"),
    (["--model", "cooking/parabel"], "no model 'cooking/parabel'. Pass a recipe with --config."),
    (["--config", "nowhere.toml"], "no recipe 'nowhere.toml'."),
    (["--seed", "-1"], "'seed' must be an integer from 0 to 4294967295. Got -1."),
    (["--seed", "99999999999999999999"], "'seed' must be an integer from 0 to 4294967295."),
    (["--seed", "x"], "Invalid value for '--seed'"),
    (["--threads", "0"], "'threads' must be an integer ≥ 1. Got 0."),
    (["--valid", "nowhere.jsonl"], "nowhere.jsonl: no such file. Check the path."),
    (["--labels", "nowhere.tsv"], "nowhere.tsv: no such file. Check the path."),
    (["--unknown-labels", "keep"], "--unknown-labels must be refuse or drop. Got 'keep'."),
    (["--resume"], "there is no training run to resume. Leave out --resume."),
    (["--bogus"], "No such option: --bogus"),
]


class TestMistakes:
    @pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(a) for a, _ in MISTAKES])
    def test_arguments(self, data: Path, out: Path, arguments: list[str], message: str) -> None:
        assert message in mistake("train", data / "train.jsonl", "--out", out, *arguments)
        assert_nothing_left(out)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, "no such file. Check the path."),
            ("", "empty. Write one document per line."),
            ('{"text": "a", "labels": ["b"]}\n{"text": "a", "labels":\n', ":2: invalid JSON ("),
            ('{"text": "a", "labels": ["b"]}\n["a"]\n', ":2: not a JSON object."),
            ('{"text": "a", "labels": "b"}\n', ":1: 'labels' must be a list"),
            ('{"text": 3, "labels": ["b"]}\n', ":1: 'text' must be a string. Got a number."),
            ('{"text": "a"}\n', ":1: no 'labels'."),
            ('{"text": "a", "labels": []}\n', ": no document has a label. Check the label field."),
            ('{"text": "\\u0000 ?", "labels": ["b"]}\n', "Check the text field"),
            ("just words\n", ":1: plain text without labels."),
            (b'{"text": "\xff", "labels": ["b"]}\n', ":1: not UTF-8 (byte 0xff"),
            ("2 5 5\n0 0:1\n", "2 documents in the header, but 1 in the file."),
            ("1 5 5\n7 0:1\n", ":2: label 7 is not below 5, the limit set by the header."),
        ],
    )
    def test_training_file(self, tmp_path: Path, out: Path, content: str | bytes | None, message: str) -> None:
        path = tmp_path / "given"
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        done = call("train", path, "--out", out, ok=False)
        assert done.status == 2
        said = done.err.splitlines()
        if "text field" not in message:  # what only training finds out follows the settings
            assert len(said) == 1
            assert said[0].startswith(f"xmtc: {path}")
        assert message in said[-1]
        assert_nothing_left(out)

    def test_all_labels_dropped(self, data: Path, out: Path, tmp_path: Path) -> None:
        train, other = data / "train.jsonl", tmp_path / "other.tsv"
        other.write_text("no such key\tA name\n")
        assert (
            mistake("train", train, "--labels", other, "--unknown-labels", "drop", "--out", out)
            == f"{train}: no document has a label of {other}. Check the label field and the keys of the vocabulary."
        )
        assert_nothing_left(out)

    def test_a_folder_in_place_of_a_file(self, data: Path, out: Path) -> None:
        assert mistake("train", data, "--out", out) == f"{data}: is a folder, not a file. Pass a file in it."

    def test_arguments_left_out(self, data: Path) -> None:
        assert mistake("train", data / "train.jsonl") == "Missing option '--out' / '-o'. See: xmtc train --help"
        assert "Missing argument" in mistake("train", "--out", "x")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("a = [", "r.toml: invalid TOML"),
            ('mode = "knn"', "r.toml: unknown key 'mode'."),
            ('model = "knn"\n[settings]\nneighbors = 3', "knn has no setting 'neighbors'. Did you mean 'neighbours'?"),
            ('model = "kn"', "no model 'kn'. Did you mean 'knn'?"),
            ('model = "popularity"', "is a recipe for popularity, not for knn."),
        ],
    )
    def test_recipe(self, data: Path, out: Path, tmp_path: Path, content: str, message: str) -> None:
        (tmp_path / "r.toml").write_text(content)
        named = ["--model", "knn"] if "popularity" in content else []
        said = mistake("train", data / "train.jsonl", "--config", tmp_path / "r.toml", "--out", out, *named)
        assert message in said
        assert_nothing_left(out)

    def test_a_model_is_not_overwritten(self, data: Path, ova: Path) -> None:
        before = (ova / "model.json").read_bytes()
        said = mistake("train", data / "train.jsonl", "--out", ova)
        assert said == f"{ova}: already contains a model. Choose another folder, or replace it with --force."
        assert (ova / "model.json").read_bytes() == before

    def test_a_folder_with_other_files_is_left_alone_even_with_force(self, data: Path) -> None:
        for force in ([], ["--force"]):
            assert f"{data}: contains other files (" in mistake("train", data / "train.jsonl", "--out", data, *force)

    def test_a_file_is_no_place_for_a_model(self, data: Path) -> None:
        train = data / "train.jsonl"
        assert mistake("train", train, "--out", train) == f"{train}: is a file. Pass a folder for the model."
        assert "cannot be created" in mistake("train", train, "--out", train / "model")

    def test_an_unfinished_training_is_not_swept_away(self, data: Path, out: Path) -> None:
        work = Workspace.beside(out)
        work.mkdir()
        (work / "labels-0.safetensors").write_bytes(b"precious")
        said = mistake("train", data / "train.jsonl", "--out", out)
        remedy = "Continue with --resume, or start over with --force."
        assert said == f"{work}: contains an unfinished training run. {remedy}"
        mistake("train", data / "nowhere.jsonl", "--out", out, "--force")
        assert (work / "labels-0.safetensors").read_bytes() == b"precious"
        call("train", data / "train.jsonl", "--model", "popularity", "--out", out, "--force")
        assert not work.exists()

    @pytest.mark.parametrize("how", ["--resume", "--force"])
    def test_two_do_not_train_in_one_place(self, data: Path, out: Path, how: str) -> None:
        work = Workspace.beside(out)
        with Workspace(work).claimed():  # as another process would
            (work / "labels-0.safetensors").write_bytes(b"precious")
            said = mistake("train", data / "train.jsonl", "--model", "popularity", "--out", out, how)
            assert said == f"{work}: in use by another process. Wait for it to finish, or choose another folder."
            assert (work / "labels-0.safetensors").read_bytes() == b"precious"
        call("train", data / "train.jsonl", "--model", "popularity", "--out", out, "--force")
        assert not work.exists()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_place_without_permission(self, data: Path, tmp_path: Path) -> None:
        (tmp_path / "closed").mkdir(mode=0o500)
        assert "cannot be created" in mistake("train", data / "train.jsonl", "--out", tmp_path / "closed" / "m")
