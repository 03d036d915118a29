"""`xmtc export`, and what can be done with its result where PyTorch cannot be imported."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import xmtc
from tests.support.command_line import call, mistake
from tests.support.models import QUICK, made
from tests.support.service import Service, labels_of
from xmtc.core.errors import install_command
from xmtc.models.onnx import OnnxModel
from xmtc.workflows import export as workflow

pytestmark = pytest.mark.usefixtures("one_thread")

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
"""Makes PyTorch and transformers impossible to import."""


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models with a calibration and a threshold: one reads words, one subwords."""
    folder = tmp_path_factory.mktemp("trained")
    train, test = xmtc.read(data / "train.jsonl"), xmtc.read(data / "test.jsonl")
    for name in ("xml_cnn", "transformer"):
        if name == "transformer":
            pytest.importorskip("transformers", reason="transformers is not installed")
        settings = {**made(QUICK[name]), "training.epochs": 2}
        xmtc.create(name, **settings).fit(train.take(np.arange(200))).calibrate(test).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def exported(trained: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    call("export", trained / "xml_cnn", "--onnx", folder / "xml_cnn", "--check", data / "test.jsonl")
    call("export", trained / "transformer", "--onnx", folder / "transformer")
    return folder


def blocked(folder: Path) -> dict[str, str]:
    """The environment of a process in which PyTorch cannot be imported."""
    (folder / "sitecustomize.py").write_text(BLOCK)
    before = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *before])}


PREDICT = """
import sys
from xmtc.cli.main import main

try:
    import torch
except ImportError:
    pass
else:
    raise AssertionError("torch was imported")
for arguments in {calls!r}:
    sys.argv = ["xmtc", *arguments]
    try:
        main()
    except SystemExit as done:
        assert done.code == 0
"""
"""Several commands in one process, which saves the time to start."""


def test_predictions_without_torch(trained: Path, exported: Path, data: Path, tmp_path: Path) -> None:
    """Labels, calibrated scores and tuned thresholds are those of the original."""
    calls = [
        [
            "predict",
            str(exported / name),
            str(data / "test.jsonl"),
            "--out",
            str(tmp_path / f"{name}{number}.jsonl"),
            *more,
        ]
        for name in ("xml_cnn", "transformer")
        for number, more in enumerate(([], ["--threshold", "auto"]))
    ]
    script = PREDICT.format(calls=calls)
    subprocess.run([sys.executable, "-c", script], env=blocked(tmp_path), check=True)
    for name in ("xml_cnn", "transformer"):
        model = xmtc.load(trained / name)
        for number, threshold in enumerate((None, "auto")):
            expected = list(model.predict(xmtc.read(data / "test.jsonl"), threshold=threshold).rows())
            lines = (tmp_path / f"{name}{number}.jsonl").read_text().splitlines()
            for row, line in zip(expected, lines, strict=True):
                found = json.loads(line)["labels"]
                assert [label["key"] for label in found] == [label["key"] for label in row["labels"]]
                scores = [[label["score"] for label in labels] for labels in (found, row["labels"])]
                np.testing.assert_allclose(*scores, atol=1e-5)


def test_serving_without_torch(trained: Path, exported: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the server is not installed")
    texts = ["one text", "and another"]
    service = Service(exported / "transformer", environment=blocked(tmp_path))
    try:
        answer = service.predict(texts, k=3)
    finally:
        service.stop()
    expected = labels_of(xmtc.load(trained / "transformer"), texts, 3)
    for found, wanted in zip(answer.labels(), expected, strict=True):
        assert [label["key"] for label in found] == [label["key"] for label in wanted]


def test_report_and_8_bits(trained: Path, data: Path, tmp_path: Path) -> None:
    arguments = ["export", trained / "xml_cnn", "--onnx", tmp_path / "m", "--check", data / "test.jsonl", "--int8"]
    found = json.loads(call(*arguments, "--json").out)
    assert found["model"] == "xml_cnn"
    assert found["exported"]["texts"] == found["int8"]["texts"] == 100
    assert found["exported"]["largest"] < 1e-6 < found["int8"]["largest"] < 0.1
    model, exported = xmtc.load(trained / "xml_cnn"), xmtc.load(tmp_path / "m")
    assert isinstance(exported, OnnxModel)
    assert exported.config.int8
    test = xmtc.read(data / "test.jsonl")
    best = [each.ask(test, 1)[0] for each in (model, exported)]
    assert found["int8"]["same_best"] == int((best[0] == best[1]).sum())
    shown = call("models", tmp_path / "m").out
    assert '"xml_cnn"' in shown
    assert "xmtc update" not in shown  # an exported model cannot be updated
    call("verify", tmp_path / "m")


def test_a_file_for_other_programs(trained: Path, tmp_path: Path) -> None:
    """The network only: onnxruntime runs it as it is."""
    assert "saved xml_cnn" in call("export", trained / "xml_cnn", "--onnx", tmp_path / "net.onnx").out
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    assert session.get_modelmeta().custom_metadata_map["model"] == "xml_cnn"
    assert session.run(["probabilities"], {"tokens": np.array([[0, 2, 3], [4, 5, 6]])})[0].shape == (2, 40)
    line = mistake("export", trained / "xml_cnn", "--onnx", tmp_path / "net.onnx")
    assert line == f"{tmp_path / 'net.onnx'}: already exists. Choose another file, or replace it with --force."
    call("export", trained / "xml_cnn", "--onnx", tmp_path / "net.onnx", "--force")


def test_mistakes(trained: Path, exported: Path, ova: Path, tmp_path: Path) -> None:
    source, out = trained / "xml_cnn", tmp_path / "out"
    able = "Models that can are marked 'export' in: xmtc models"
    assert mistake("export", ova, "--onnx", out) == f"one_vs_all cannot be exported to ONNX. {able}"
    assert mistake("export", exported / "xml_cnn", "--onnx", out) == f"onnx cannot be exported to ONNX. {able}"
    assert "already contains a model" in mistake("export", source, "--onnx", exported / "xml_cnn")
    assert "is the model to export" in mistake("export", source, "--onnx", source, "--force")
    assert "no such file" in mistake("export", source, "--onnx", out, "--check", tmp_path / "none.jsonl")
    assert "no such folder" in mistake("export", tmp_path / "none", "--onnx", out)
    assert "does not exist" in mistake("export", source, "--onnx", tmp_path / "none" / "m.onnx")
    assert "no model 'onnx'" in mistake("train", "x.jsonl", "--model", "onnx", "--out", out)
    with mock.patch.dict(sys.modules, {"onnx": None}):
        line = mistake("export", source, "--onnx", out)
        assert line == f"ONNX models need onnx and onnxruntime. Install it with: {install_command('onnx')}"
    found = importlib.util.find_spec
    with mock.patch("importlib.util.find_spec", lambda name: None if name == "onnxruntime" else found(name)):
        line = mistake("predict", exported / "xml_cnn", "--text", "a")
        assert line == f"onnx needs onnx and onnxruntime. Install it with: {install_command('onnx')}"
    assert not out.exists()


def test_nothing_is_left_of_an_export_that_differs(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exported probabilities are compared with the model's: here, with those of another text."""
    ask = xmtc.Model.ask

    def other(model: xmtc.Model, documents: object, k: int) -> object:
        labels, scores = ask(model, documents, k)  # type: ignore[arg-type]
        return labels, scores if isinstance(model, OnnxModel) else scores + np.float32(2e-3)

    monkeypatch.setattr(xmtc.Model, "ask", other)
    for name in ("m", "net.onnx"):
        line = mistake("export", trained / "xml_cnn", "--onnx", tmp_path / name)
        assert "probabilities of the exported model differ by 0.002, more than 0.001, so nothing was written" in line
    assert not list(tmp_path.iterdir())


def test_example_texts_use_the_words_of_the_model() -> None:
    texts = workflow.example_texts(["", "salt", "##er", "iron", "[CLS]"])
    assert {word for text in texts for word in text.split()} == {"salt", "iron"}
    assert [len(text.split()) for text in texts] == [0, *workflow.LENGTHS]
