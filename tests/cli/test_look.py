"""The commands that look at things: explain, models, verify, doctor, demo, --help and --version."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from unittest import mock

import pytest
import typer

import xmtc
from tests.support.command_line import Done, call, mistake
from tests.support.tiny_encoder import write_encoder
from xmtc import load
from xmtc.cli.main import app
from xmtc.cli.show import table
from xmtc.models.registry import MODELS
from xmtc.workflows import demo as demo_module

COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


class TestExplain:
    def test_words_of_a_linear_model(self, ova: Path, label_text: tuple[str, str], corpus: object) -> None:
        name, text = label_text
        first, constant, *evidence = call("explain", ova, "--text", text, "--label", name).out.splitlines()
        assert "intercept, independent of the text" in constant
        score = load(ova).predict([text], 1).scores[0, 0]
        assert first == f"{name}   score {score:.4f}"
        weight, word, place = evidence[0].split()
        assert word in text
        assert float(weight) > 0
        assert text[slice(*map(int, place.strip("()").split("–")))] == word

    def test_vector_of_the_text(self, tmp_path: Path) -> None:
        """The contribution of the vector is a line of its own, so that all lines add up."""
        words = [f"salt{number}" for number in range(6)]
        (tmp_path / "vectors.txt").write_text("".join(f"{word} 1 {len(word)}.5 0.1\n" for word in words))
        texts, labels = words * 4 + ["iron", "steel"] * 8, [["food"]] * 24 + [["metal"]] * 16
        model = xmtc.Parabel(dense={"source": str(tmp_path / "vectors.txt")}).fit(texts, labels)
        model.save(tmp_path / "model")
        lines = call("explain", tmp_path / "model", "--text", "salt3", "--label", "food").out.splitlines()
        (line,) = [line for line in lines if "vector of the whole text" in line]
        assert float(line.split()[0]) == pytest.approx(model.explain("salt3", "food").text_vector, abs=1e-4)

    def test_neighbours(self, models: Path, label_text: tuple[str, str]) -> None:
        name, text = label_text
        lines = call("explain", models / "knn", "--text", text, "--label", name).out.splitlines()
        assert "has the label: yes" in lines[1]
        assert name in next(line for line in lines if line.strip().startswith("labels: "))

    def test_json(self, ova: Path, label_text: tuple[str, str]) -> None:
        name, text = label_text
        found = json.loads(call("explain", ova, "--text", text, "--label", name.upper(), "--json").out)
        assert found["label"] == name
        assert found["kind"] == "tokens"
        assert found["evidence"][0]["weight"] > 0

    def test_nothing_speaks_for_it(self, models: Path, label_text: tuple[str, str]) -> None:
        for model in ("one_vs_all", "knn"):
            said = call("explain", models / model, "--text", "", "--label", label_text[0]).out
            assert "nothing in this text is evidence for or against it" in said

    def test_mistakes(self, models: Path, ova: Path, label_text: tuple[str, str]) -> None:
        name, text = label_text
        said = mistake("explain", ova, "--text", text, "--label", name + "x")
        assert said.startswith(f"label '{name}x' is not among the model's 40 labels. Did you mean '{name}'?")
        said = mistake("explain", models / "popularity", "--text", text, "--label", name)
        assert said.startswith("popularity cannot explain its predictions.")
        assert "trained on a feature matrix" in mistake("explain", models / "features", "--text", text, "--label", "1")
        assert mistake("explain", ova, "--text", text) == "Missing option '--label'. See: xmtc explain --help"
        assert "no such folder" in mistake("explain", "nowhere", "--text", text, "--label", name)


class TestModels:
    def test_every_model_has_a_line(self) -> None:
        lines = call("models").out.partition("\n\n")[0].splitlines()[2:]
        assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(MODELS)

    @pytest.mark.parametrize("name", MODELS)
    def test_settings_of_one(self, name: str) -> None:
        said = call("models", name).out
        assert said.startswith(f"{name}: ")
        expected = {"consensus": "members", "lexical": "hidden_labels", "transformer": "text.max_tokens"}.get(
            name, "text.min_df"
        )
        assert expected in said or "The model has no settings." in said

    def test_a_setting_that_is_shown_can_be_set(self, data: Path, tmp_path: Path) -> None:
        rows = [row.split() for row in call("models", "knn").out.split("\n\n")[1].splitlines()[2:] if row[0] != " "]
        settings = [f"{row[0]}={row[1]}" for row in rows]
        assert len(settings) == 12
        arguments = [part for setting in settings for part in ("--set", setting)]
        call("train", data / "train.jsonl", "--model", "knn", "--out", tmp_path / "m", *arguments)

    def test_unknown(self) -> None:
        assert mistake("models", "knnn").startswith("no model 'knnn'. Did you mean 'knn'?")

    def test_a_table_keeps_within_the_terminal(self) -> None:
        shown = table(["a", "b"], [["one", "many words " * 20]], width=60)
        assert max(map(len, shown.splitlines())) <= 60
        assert " ".join(shown.split()[4:]).count("many words") == 20


class TestVerify:
    def test_whole(self, models: Path) -> None:
        for name in ("one_vs_all", "knn", "popularity", "features"):
            *files, last = call("verify", models / name).out.splitlines()
            assert last == f"{models / name}: valid; all files match their hashes"
            assert all(line.startswith("ok ") for line in files)
            assert len(files) == len(list((models / name).iterdir())) - 1

    def test_mistakes(self, data: Path) -> None:
        assert "no such folder" in mistake("verify", "nowhere")
        assert "not a model folder" in mistake("verify", data)


class TestDemo:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(demo_module, "TRAIN", 3000)
        monkeypatch.setattr(demo_module, "TEST", 100)
        monkeypatch.chdir(tmp_path)

    def test_says_what_to_do_next_and_it_works(self, tmp_path: Path) -> None:
        said = call("demo").out
        _, ours, baseline = next(line.split() for line in said.splitlines() if line.startswith("P@1"))
        assert float(ours) > float(baseline) + 30
        commands = [line.strip() for line in said.splitlines() if line.startswith("  xmtc ")]
        *commands, serve = commands
        assert len(commands) == 5
        assert serve == "xmtc serve xmtc-demo/model"
        for command in commands:
            call(*shlex.split(command)[1:])
        assert max(map(len, said.splitlines())) <= 80
        result = json.loads(call("demo", "--json", "--quiet").out)  # once more over its own files
        assert result["metrics"]["popularity"]["P@1"] < result["metrics"]["parabel"]["P@1"]
        assert (tmp_path / "xmtc-demo" / "my-model").is_dir()

    def test_an_interrupted_demo_can_be_run_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("xmtc.workflows.demo.train", interrupt)
            assert call("demo", ok=False) == Done(130, mock.ANY, "xmtc: interrupted.\n")
        call("demo")

    def test_never_writes_over_other_files(self, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "train.jsonl").write_text("precious")
        assert "contains other files" in mistake("demo", "--out", "mine")
        assert (tmp_path / "mine" / "train.jsonl").read_text() == "precious"
        assert "is a file" in mistake("demo", "--out", "mine/train.jsonl")
        assert "cannot be created" in mistake("demo", "--out", "mine/train.jsonl/x")
        assert "'seed' must be" in mistake("demo", "--seed", "-1", "--out", "new")
        assert not (tmp_path / "new").exists()


def test_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    lines = dict(line.split(maxsplit=1) for line in call("doctor").out.splitlines())
    assert lines["xmtc"] == xmtc.__version__
    assert {"python", "cores", "memory", "GPU", "numpy", "numba", "pyarrow"} <= set(lines)
    assert "encoder" not in lines

    write_encoder(tmp_path / "encoders" / "tiny", ["salt"])
    (write_encoder(tmp_path / "encoders" / "broken", ["salt"]) / "tokenizer.json").unlink()
    monkeypatch.setenv("XMTC_ENCODERS", str(tmp_path / "encoders"))
    said = " ".join(call("doctor").out.split())
    assert "encoder tiny bert, 1 layer, 32 wide, 0 MB (" in said
    assert "encoder broken cannot be used: tokenizer.json is missing." in said
    found = {each["name"]: each for each in json.loads(call("doctor", "--json").out)["encoders"]}
    assert found["tiny"]["problem"] == ""
    assert found["tiny"]["folder"] == str(tmp_path / "encoders" / "tiny")


def test_version() -> None:
    assert call("--version").out == f"xmtc {xmtc.__version__}\n"


class TestHelp:
    def test_lists_every_command_and_cuts_no_sentence(self) -> None:
        said = call("--help").out
        assert said == call().out
        for name in COMMANDS:
            assert f"\n  {name} " in said
        assert "..." not in said.partition("Commands:")[2]

    @pytest.mark.parametrize("name", COMMANDS)
    def test_of_each_command(self, name: str) -> None:
        said = call(name, "--help").out
        assert said.startswith(f"Usage: xmtc {name} ")
        assert "[[" not in said

    def test_unknown_command_and_argument(self) -> None:
        assert mistake("trian") == "No such command 'trian'. Did you mean 'train'? See: xmtc --help"
        assert "unexpected extra argument" in mistake("doctor", "x")
