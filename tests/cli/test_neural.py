"""Neural models on the command line: devices, the log of a training, its curves, and life without torch."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.support.command_line import call, mistake
from tests.support.models import QUICK
from xmtc.artifact.store import read_manifest
from xmtc.artifact.workspace import LOG, Workspace, log_beside
from xmtc.core.errors import install_command
from xmtc.models.registry import MODELS

NEURAL = [name for name, entry in MODELS.entries.items() if entry.extra == "torch"]
REMEDY = f"Install it with: {install_command('torch')}"


def quickly(model: str, **settings: object) -> list[str]:
    """--model and --set with which it trains in a second or two."""
    chosen = {**QUICK[model], "training.epochs": 2, **settings}
    assignments = [f"{key}={json.dumps(value)}" for key, value in chosen.items()]
    return ["--model", model, *(part for assignment in assignments for part in ("--set", assignment))]


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """attention_xml, with vectors of the corpus and validation documents."""
    out = tmp_path_factory.mktemp("neural") / "attention"
    settings = quickly("attention_xml", vectors="corpus", **{"training.epochs": 8})
    call("train", data / "train.jsonl", "--valid", data / "test.jsonl", "--out", out, *settings, "--device", "cpu")
    return out


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
class TestWithTorch:
    def test_all_that_can_be_done_with_a_model(
        self, trained: Path, data: Path, tmp_path: Path, label_text: tuple[str, str]
    ) -> None:
        name, text = label_text
        cpu = ("--device", "cpu")
        assert "nDCG@5 held out" in read_manifest(trained)["training"]["found"]
        assert len(call("predict", trained, data / "test.jsonl", *cpu).lines()) == 100
        call("evaluate", trained, data / "test.jsonl", *cpu, "--json", tmp_path / "scores.json")
        assert "P@1" in call("compare", trained, data / "test.jsonl", *cpu).out
        found = json.loads(call("explain", trained, "--text", text, "--label", name, "--json", *cpu).out)
        assert sum(item["weight"] for item in found["evidence"]) == pytest.approx(1.0, abs=1e-4)
        call("explain", trained, "--text", text, "--label", name, "--html", tmp_path / "page.html")
        assert text.split()[0] in (tmp_path / "page.html").read_text()
        call("verify", trained)

    def test_rank_ae_takes_texts_and_features(self, data: Path, tmp_path: Path, label_text: tuple[str, str]) -> None:
        (name, text), brief = label_text, {"training.epochs": 1}
        call("train", data / "train.jsonl", "--out", tmp_path / "texts", *quickly("rank_ae", **brief))
        explained = ("explain", tmp_path / "texts", "--text", text, "--label", name)
        found = json.loads(call(*explained, "--json").out)
        assert sum(item["weight"] for item in found["evidence"]) == pytest.approx(1.0, abs=1e-4)
        assert all(text[item["start"] : item["end"]] == item["text"] for item in found["evidence"])
        call("train", data / "train.txt", "--out", tmp_path / "features", *quickly("rank_ae", columns="idf", **brief))
        assert "P@1" in call("compare", tmp_path / "features", data / "test.txt").out
        said = mistake("explain", tmp_path / "features", "--text", text, "--label", "0")
        assert said == "this model was trained on a feature matrix. Got text: pass features."
        train = ("train", data / "train.txt", "--model", "rank_ae", "--out", tmp_path / "none")
        done = call(*train, "--set", 'reads="sequence"', ok=False)
        assert done.status == 2
        assert done.err.splitlines()[-1] == "xmtc: a feature matrix has no word order. Use reads = 'bag'."
        said = mistake(*train, "--set", "head.straight=true", "--set", 'head.decode_from="label"')
        assert said.startswith("'head.straight' of rank_ae needs decoding from documents.")

    def test_the_log_lies_beside_the_model_and_is_drawn(self, trained: Path, tmp_path: Path) -> None:
        lines = [json.loads(line) for line in log_beside(trained).read_text().splitlines()]
        assert [line["epoch"] for line in lines] == list(range(1, 9))
        assert not Workspace.beside(trained).exists()
        said = call("plot", trained, "--out", tmp_path / "curves.svg").out
        assert "attention " in said
        assert "8 epochs" in said

    def test_a_training_under_way_is_drawn(self, trained: Path, tmp_path: Path) -> None:
        out = tmp_path / "running"
        Workspace.beside(out).mkdir()
        shutil.copy(log_beside(trained), Workspace.beside(out) / LOG)
        assert "running " in call("plot", out, "--out", tmp_path / "curves.svg").out
        log_beside(out).write_text('{"step": 1, "epoch": 99, "seconds": 1, "loss": 1}\n')
        assert "8 epochs" in call("plot", out, "--out", tmp_path / "curves.svg").out  # the older log is another's
        shutil.copytree(trained, out)
        assert "99 epochs" in call("plot", out, "--out", tmp_path / "curves.svg").out  # that of the complete model

    def test_a_new_training_replaces_the_log(self, trained: Path, data: Path, tmp_path: Path) -> None:
        out = tmp_path / "again"
        shutil.copytree(trained, out)
        shutil.copy(log_beside(trained), log_beside(out))
        call("train", data / "train.jsonl", "--out", out, "--force", *quickly("xml_cnn"))
        assert len(log_beside(out).read_text().splitlines()) == 2
        call("train", data / "train.jsonl", "--out", out, "--force", "--model", "popularity")  # which writes none
        assert not log_beside(out).exists()
        assert "no training log for this folder" in mistake("plot", out, "--out", tmp_path / "curves.svg")

    def test_killed_after_the_log_was_moved(self, data: Path, tmp_path: Path) -> None:
        out = tmp_path / "m"
        with mock.patch.object(Workspace, "remove", side_effect=KeyboardInterrupt):
            done = call("train", data / "train.jsonl", "--out", out, *quickly("xml_cnn"), ok=False)
        assert done.status == 130
        log = log_beside(out).read_text()
        call("train", data / "train.jsonl", "--out", out, *quickly("xml_cnn"), "--resume")
        assert log_beside(out).read_text() == log
        assert not Workspace.beside(out).exists()

    @pytest.mark.parametrize("device", ["gpu", "cuda:x", "", "mps"])
    def test_devices_that_do_not_exist(self, trained: Path, data: Path, tmp_path: Path, device: str) -> None:
        expected = f"'device' must be 'auto', 'cpu', 'cuda' or 'cuda:N'. Got '{device}'."
        test, out = data / "test.jsonl", tmp_path / "m"
        for command in (
            ("train", data / "train.jsonl", "--out", out),
            ("predict", trained, test),
            ("evaluate", trained, test),
            ("compare", trained, test),
            ("explain", trained, "--text", "a", "--label", "b"),
        ):
            assert mistake(*command, "--device", device) == expected
        assert not out.exists()

    def test_absent_cuda(self, trained: Path, data: Path, tmp_path: Path) -> None:
        said = mistake("predict", trained, "--text", "a", "--device", "cuda:99")
        assert said.startswith("device 'cuda:99' is not available (CUDA devices found: ")
        assert said.endswith("Use device 'auto' or 'cpu'.")
        train = ("train", data / "train.jsonl", "--out", tmp_path / "m", *quickly("xml_cnn"))
        done = call(*train, "--device", "cuda:99", ok=False)
        assert done.status == 2
        assert done.err.splitlines()[-1] == f"xmtc: {said}"
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.long
    def test_precision(self, data: Path, tmp_path: Path) -> None:
        train = ("train", data / "train.jsonl", "--out", tmp_path / "m")
        said = mistake(*train, "--precision", "float16")
        assert said == "'precision' must be 'auto', 'float32' or 'bfloat16'. Got 'float16'."
        call(*train, *quickly("xml_cnn", **{"training.epochs": 1}), "--precision", "bfloat16")

    def test_the_doctor_tells_what_they_run_on(self) -> None:
        import torch

        assert f"neural models torch {torch.__version__} on " in " ".join(call("doctor").out.split())


HIDDEN = """
import sys

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hiding())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "torch" else found(name, *more)
from xmtc.cli.main import main
main()
"""


class TestWithoutTorch:
    def run(self, place: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", HIDDEN, *map(str, arguments)]
        return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)

    @pytest.mark.parametrize("model", NEURAL)
    def test_training_says_what_is_missing(self, model: str, data: Path, tmp_path: Path) -> None:
        done = self.run(tmp_path, "train", data / "train.jsonl", "--model", model, "--out", "m")
        assert (done.returncode, done.stderr) == (2, f"xmtc: {model} needs PyTorch. {REMEDY}\n")
        assert list(tmp_path.iterdir()) == []

    def test_the_rest_goes_on(self, data: Path, tmp_path: Path) -> None:
        listed = self.run(tmp_path, "models", "--json")
        assert listed.returncode == 0, listed.stderr
        described = {row["name"]: row["description"] for row in json.loads(listed.stdout)}
        for model in NEURAL:
            assert f"{model} needs PyTorch. {REMEDY}" in described[model]
        doctor = self.run(tmp_path, "doctor")
        assert f"not available: torch is missing; install with: {install_command('torch')}" in " ".join(
            doctor.stdout.split()
        )
        trained = self.run(tmp_path, "train", data / "train.jsonl", "--out", "m")
        assert trained.returncode == 0, trained.stderr
        assert self.run(tmp_path, "evaluate", "m", data / "test.jsonl").returncode == 0

    def test_a_torch_that_does_not_load(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
        assert "cannot be loaded: import of torch halted" in call("doctor").out
