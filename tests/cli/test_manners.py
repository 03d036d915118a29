"""Common manners of all commands: --json, --quiet, -h, help texts, tables of 80 columns, completion, install hints."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.support.command_line import call, mistake
from xmtc.cli.command import RENAMED
from xmtc.cli.doctor import requirements
from xmtc.cli.main import app
from xmtc.cli.output import PIPE_WIDTH, strict
from xmtc.cli.text_table import table
from xmtc.core.constants import TORCH_EXTRAS, TORCH_VERSION
from xmtc.core.errors import install_command
from xmtc.models.registry import MODELS, preferred

ROOT = Path(__file__).parents[2]


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands that do something, with the words that call them."""
    for name, each in getattr(command, "commands", {}).items():
        if hasattr(each, "commands"):
            yield from leaves(each, (*path, name))
        else:
            yield (*path, name), each


COMMANDS = dict(leaves(typer.main.get_command(app)))
WITHOUT_JSON = {("serve",), ("feedback", "export")}


def options(command: Any) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def parsed(text: str) -> Any:
    """Strict JSON: NaN and Infinity are refused."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


class TestEveryCommand:
    @pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
    def test_has_the_common_options(self, words: tuple[str, ...]) -> None:
        given = options(COMMANDS[words])
        assert {"--quiet", "-q"} <= given
        assert ("--json" in given) == (words not in WITHOUT_JSON)
        assert ("-o" in given) == ("--out" in given)
        assert not given & set(RENAMED)

    @pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
    def test_describes_each_option_and_argument(self, words: tuple[str, ...]) -> None:
        command = COMMANDS[words]
        assert command.help
        for parameter in command.params:
            assert (parameter.help or "").endswith((".", ")")), f"{' '.join(words)}: {parameter.name}"
            flag = getattr(parameter, "is_flag", False)
            assert flag or parameter.metavar, f"{' '.join(words)}: {parameter.name} has no metavar"

    @pytest.mark.parametrize("words", [(), ("data",), *COMMANDS], ids=" ".join)
    def test_help_by_its_short_name(self, words: tuple[str, ...]) -> None:
        said = call(*words, "-h").out
        assert said == call(*words, "--help").out
        usage = said.splitlines()[0]
        assert usage.startswith(" ".join(["Usage: xmtc", *words, "[OPTIONS]"]))
        assert not set("{}<>") & set(usage)
        assert "<path>" not in said
        assert max(map(len, said.splitlines())) <= PIPE_WIDTH

    def test_usage_lines(self) -> None:
        def usage(*words: str) -> str:
            return call(*words, "-h").out.splitlines()[0]

        assert usage("train") == "Usage: xmtc train [OPTIONS] TRAIN"
        assert usage("update") == "Usage: xmtc update [OPTIONS] DIR [NEW]"
        assert usage("evaluate") == "Usage: xmtc evaluate [OPTIONS] [DIR] TEST"
        assert usage("compare") == "Usage: xmtc compare [OPTIONS] DIR... TEST"
        assert usage("data", "get") == "Usage: xmtc data get [OPTIONS] [NAME]"


@pytest.fixture(scope="module")
def work(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three small models."""
    folder = tmp_path_factory.mktemp("work")
    call("train", data / "train.jsonl", "--model", "one_vs_all", "--out", folder / "m")
    call("train", data / "train.jsonl", "--model", "popularity", "--out", folder / "p")
    call("train", data / "train.jsonl", "--model", "leml", "--out", folder / "v")
    return folder


def commands(work: Path, data: Path, label: str, text: str) -> dict[str, tuple[list[object], set[str] | None]]:
    """Name → command, and the keys that its JSON has; None for a list."""
    train, test, model = data / "train.jsonl", data / "test.jsonl", work / "m"
    return {
        "train": (
            ["train", train, "--model", "popularity", "--out", work / "new", "--force"],
            {"model", "folder", "documents", "labels", "seconds", "settings"},
        ),
        "update": (
            ["update", work / "p", train, "--out", work / "updated", "--force"],
            {"model", "folder", "documents", "labels_added", "nDCG@5_after"},
        ),
        "evaluate": (["evaluate", model, test], {"P@1", "nDCG@5", "documents"}),
        "compare": (["compare", model, work / "p", test, "--bootstrap", 10], {"models", "overlap", "differences"}),
        "calibrate": (["calibrate", model, test], {"calibration", "threshold", "documents"}),
        "explain": (["explain", model, "--text", text, "--label", label], {"label", "score", "evidence"}),
        "models": (["models"], None),
        "models NAME": (["models", "parabel"], {"name", "description", "settings"}),
        "models DIR": (["models", model], {"model", "labels", "training", "settings", "history"}),
        "verify": (["verify", model], {"folder", "valid", "files"}),
        "doctor": (["doctor"], {"xmtc", "python", "packages", "extras"}),
        "bench": (["bench"], None),
        "bench --list": (["bench", "quick", "--list"], None),
        "data describe": (["data", "describe", train, test], {"documents", "labels", "other"}),
        "data head": (["data", "head", train, "-n", 2], None),
        "data split": (["data", "split", train, "--out", work / "parts", "--force"], None),
        "data convert": (["data", "convert", train, work / "train.csv", "--force"], {"file", "documents"}),
        "data get": (["data", "get"], None),
        "labels neighbours": (["labels", "neighbours", work / "v", label], {"label", "neighbours"}),
        "labels map": (["labels", "map", work / "v", "--out", work / "map.html", "--force"], {"page", "labels"}),
    }


NAMES = sorted(commands(Path(), Path(), "", ""))


@pytest.mark.parametrize("name", NAMES)
class TestOutput:
    @pytest.fixture
    def command(self, name: str, work: Path, data: Path, label_text: tuple[str, str]) -> list[object]:
        return commands(work, data, *label_text)[name][0]

    def test_json_is_all_that_standard_output_has(self, name: str, command: list[object], tmp_path: Path) -> None:
        done = call(*command, "--quiet", "--json")
        assert done.err == ""
        found = parsed(done.out)
        keys = commands(Path(), Path(), "", "")[name][1]
        rows = found if keys is None else [found]
        assert rows
        assert keys is None or keys <= set(found)
        assert all(" " not in key or key == "ECE@5 before" for row in rows for key in row)

    def test_json_in_a_file_and_text_as_usual(self, name: str, command: list[object], tmp_path: Path) -> None:
        plain = call(*command)
        done = call(*command, "--json", tmp_path / "result.json")
        assert without_times(done.out) == without_times(plain.out)
        assert plain.out
        parsed((tmp_path / "result.json").read_text())
        assert parsed(call(*command, "--json", "-").out)

    def test_text_fits_80_columns(self, name: str, command: list[object]) -> None:
        lines = call(*command, "--quiet").out.splitlines()
        wide = [line for line in lines if len(line) > PIPE_WIDTH and "/" not in line]  # paths are not broken
        assert wide == []


def without_times(text: str) -> str:
    return re.sub(r"[\d.]+ s\b", "N s", text)


class TestJsonOption:
    def test_a_path_that_follows_is_not_taken_for_the_file(self, ova: Path, data: Path) -> None:
        test = data / "test.jsonl"
        before = test.read_bytes()
        for arguments, word in (
            (("evaluate", "--json", ova, test), ova),
            (("evaluate", ova, "--json", test), test),
            (("models", "--json", "parabel"), "parabel"),
        ):
            line = mistake(*arguments)
            assert str(word)[-20:] in line or "…" in line
            assert line.endswith("Put --json last to print JSON, or write --json=FILE.")
        assert test.read_bytes() == before
        assert not Path("parabel").exists()

    def test_before_another_option_and_with_an_equals_sign(self, ova: Path, data: Path, tmp_path: Path) -> None:
        assert "P@1" in parsed(call("evaluate", "--json", "--tail", ova, data / "test.jsonl").out)
        call("evaluate", f"--json={tmp_path / 'scores'}", ova, data / "test.jsonl")
        assert "P@1" in parsed((tmp_path / "scores").read_text())

    def test_predict_writes_json_lines(self, ova: Path, data: Path, tmp_path: Path) -> None:
        plain = call("predict", ova, data / "test.jsonl").out
        assert call("predict", ova, data / "test.jsonl", "--json").out == plain
        call("predict", ova, data / "test.jsonl", "--json", tmp_path / "a.jsonl")
        assert (tmp_path / "a.jsonl").read_text() == plain
        assert "--json cannot be used with --out" in mistake(
            "predict", ova, data / "test.jsonl", "--json", "--out", tmp_path / "b.jsonl"
        )

    def test_inputs_and_folders_are_never_written_over(self, ova: Path, data: Path) -> None:
        test = data / "test.jsonl"
        assert "is also an input file" in mistake("evaluate", ova, test, f"--json={test}")
        assert "is a folder" in mistake("evaluate", ova, test, f"--json={data}")

    def test_values_that_json_lacks(self) -> None:
        assert strict({"a": math.nan, "b": [math.inf, 1.5], "c": Path("x"), "d": (True, None)}) == {
            "a": None,
            "b": [None, 1.5],
            "c": "x",
            "d": [True, None],
        }


class TestFormerNames:
    def test_output(self, ova: Path, data: Path, tmp_path: Path) -> None:
        for number, option in enumerate(("--out", "--output", "-o")):
            call("predict", ova, data / "test.jsonl", option, tmp_path / f"{number}.jsonl")
        call("predict", ova, data / "test.jsonl", f"--output={tmp_path / '3.jsonl'}")
        assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
        assert len(list(tmp_path.iterdir())) == 4

    def test_keep_picture_and_apart(self, work: Path, data: Path, tmp_path: Path) -> None:
        for option in ("--keep", "--save-metrics"):
            assert "saved" in call("evaluate", work / "p", data / "test.jsonl", option).err
        for option in ("--picture", "--plot"):
            call("data", "describe", data / "train.jsonl", option, tmp_path / f"{option}.svg")
        for option in ("--apart", "--split-duplicates"):
            call("data", "split", data / "train.jsonl", option, "--out", tmp_path / option)

    def test_measure(self, data: Path, tmp_path: Path) -> None:
        for option in ("--measure", "--metric"):
            line = mistake("tune", "knn", data / "train.jsonl", "--out", tmp_path / "t", option, "nothing")
            assert "nothing" in line

    def test_names_are_hidden_from_the_help(self) -> None:
        for words in COMMANDS:
            said = call(*words, "-h").out
            for former in RENAMED:
                assert not re.search(rf"{former}\b(?!-)", said), words


class TestPredictFormat:
    def test_output_format_given_as_format(self, ova: Path, data: Path) -> None:
        for arguments in ((data / "test.jsonl",), ("--text", "x")):
            line = mistake("predict", ova, *arguments, "--format", "table")
            assert line == "--format is the format of the input. For the output, use --output-format table."
        assert "--output-format jsonl" in mistake("predict", ova, "--text", "x", "--format", "jsonl")
        call("predict", ova, data / "test.jsonl", "--format", "jsonl")


class TestTrain:
    def test_settings_that_differ_and_next_steps(self, data: Path, tmp_path: Path) -> None:
        (tmp_path / "r.toml").write_text('model = "knn"\n[settings]\nsnippet = 60\ntext = {min_df = 1}\n')
        out = tmp_path / "a model"
        given = ("--config", tmp_path / "r.toml", "--set", "text.min_df=3", "--set", "text.lowercase=true", "--seed", 4)
        done = call("train", data / "train.jsonl", "--out", out, *given)
        head, steps = done.err.split("\nNext:\n")
        assert head.splitlines()[:5] == [
            "model: knn",
            f"  snippet = 60  (recipe {tmp_path / 'r.toml'})",
            "  text.min_df = 3  (--set)",
            "  seed = 4  (--seed)",
            "all other settings have their defaults; list them with: xmtc models knn",
        ]
        commands = [line.strip() for line in steps.splitlines()]
        assert commands[0] == f"xmtc evaluate '{out}' TEST"
        assert commands[-1] == f"xmtc serve '{out}'"
        assert call("predict", out, "--text", "Some text").lines()

    def test_the_default(self, data: Path, tmp_path: Path) -> None:
        assert "(default: chosen by --preset fast)" in " ".join(call("train", "--help").out.split())
        lines = call("train", data / "train.jsonl", "--out", tmp_path / "m").err.splitlines()
        assert "(preset fast; choose another with --model NAME, or try --preset good)" in lines[0]

    def test_settings_without_a_model_are_those_of_the_default_model(self, data: Path, tmp_path: Path) -> None:
        assert preferred() == "parabel"
        lines = call("train", data / "train.jsonl", "--set", "trees=1", "--out", tmp_path / "m").err.splitlines()
        assert lines[0] == "model: parabel (the default; choose another with --model NAME)"
        assert lines[1] == "  trees = 1  (--set)"

    def test_a_model_on_features_is_not_given_texts(self, data: Path, tmp_path: Path) -> None:
        said = call("train", data / "train.txt", "--model", "popularity", "--out", tmp_path / "m").err
        assert "Next:" in said
        assert "--text" not in said


class TestTable:
    def test_numbers_continue_below(self) -> None:
        header = ["metric", *(f"model-{number}" for number in range(12))]
        shown = table(header, [["P@1", *["12.345678"] * 12]], right=range(1, 13), width=60)
        assert max(map(len, shown.splitlines())) <= 60
        assert shown.count("12.345678") == 12
        assert len(re.findall(r"^P@1", shown, flags=re.MULTILINE)) == shown.count("\n\n") + 1 > 1
        assert all(name in shown for name in header)

    def test_long_headings_and_words_are_broken(self) -> None:
        shown = table(["", "/a/path/" + "x" * 100], [["1", "y" * 90]], width=50)
        assert max(map(len, shown.splitlines())) <= 50
        assert shown.count("x") == 100
        assert shown.count("y") == 90

    def test_as_wide_as_needed(self) -> None:
        assert table(["a", "b"], [["one", "2"]], right=(1,), width=80) == "a    b\n------\none  2"


def complete(*words: str, shell: str = "bash") -> list[str]:
    """Completions of the last word; importing NumPy, SciPy or torch fails."""
    code = (
        "import sys\n"
        "for heavy in ('numpy', 'scipy', 'torch', 'pyarrow', 'numba'):\n"
        "    sys.modules[heavy] = None\n"
        "from xmtc.cli.main import main\n"
        "main()\n"
    )
    line = " ".join(("xmtc", *words))
    environment = {
        "_XMTC_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words)),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


class TestCompletion:
    def test_commands_and_options(self) -> None:
        assert complete("ev") == ["evaluate"]
        assert complete("data", "s") == ["split"]
        assert "--model" in complete("train", "--m")

    def test_names_and_choices(self) -> None:
        assert complete("train", "--model", "p") == [name for name in MODELS if name.startswith("p")]
        assert "eurlex57k/parabel" in complete("train", "x", "--config", "eurlex57k/")
        assert complete("train", "x", "--on-bad-line", "s") == ["skip"]
        assert complete("train", "x", "--device", "c") == ["cpu", "cuda"]
        assert complete("predict", "--output-format", "t") == ["tsv", "table"]
        assert complete("bench", "qu") == ["quick"]
        assert "eurlex57k" in complete("data", "get", "eurlex")

    @pytest.mark.parametrize("shell", ["zsh", "fish"])
    def test_other_shells(self, shell: str) -> None:
        assert any("parabel" in line for line in complete("train", "--model", "para", shell=shell))

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_scripts(self, shell: str) -> None:
        said = call("--show-completion", shell).out
        assert f"_XMTC_COMPLETE=complete_{shell}" in said

    def test_installing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        path, _, words = call("--install-completion", "fish").out.partition(": ")
        assert Path(path).is_relative_to(tmp_path)
        assert "complete --command xmtc" in Path(path).read_text()
        assert words == "fish completion installed. Restart the shell to use it.\n"

    def test_an_unknown_shell(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.import_module("typer.completion"), "_get_shell_name", lambda: None)
        choices = "Choose one of: bash, zsh, fish, powershell."
        assert mistake("--show-completion") == f"cannot detect a supported shell. {choices}"
        assert mistake("--show-completion", "tcsh") == f"no completion for the shell 'tcsh'. {choices}"


class TestInstallHints:
    def test_torch_is_the_pinned_one(self) -> None:
        assert f"torch=={TORCH_VERSION}\n" in (ROOT / "constraints.txt").read_text()
        assert install_command("torch") == f'pip install "xmtc[torch]" "torch=={TORCH_VERSION}"'
        assert install_command("skos") == 'pip install "xmtc[skos]"'

    def test_extras_with_torch(self) -> None:
        _, extras = requirements()
        assert {extra for extra, names in extras.items() if "torch" in names} == TORCH_EXTRAS - {"all"}

    def test_hints_come_from_one_place(self) -> None:
        places = [path for path in (ROOT / "src" / "xmtc").rglob("*.py") if "pip install" in path.read_text()]
        assert [path.name for path in places] == ["errors.py"]

    def test_doctor_lists_every_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        declared = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]\n")[2]
        names = set(re.findall(r"^(\w+) = \[", declared.partition("\n[")[0], flags=re.MULTILINE)) - {"all", "dev"}
        found = parsed(call("doctor", "--json").out)
        assert set(found["extras"]) == names
        assert found["packages"]["numpy"]
        version = importlib.import_module("xmtc.cli.doctor")._version
        monkeypatch.setattr("xmtc.cli.doctor._version", lambda name: None if name == "tokenizers" else version(name))
        said = " ".join(call("doctor").out.split())
        assert f"extra [transformers] missing tokenizers; install with: {install_command('transformers')}" in said
