"""Pretrained encoders are found by place and name, and broken ones say why, without being loaded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from xmtc.core.encoders import FoundEncoder, encoder_folder, find_encoders

CONFIG = {"model_type": "bert", "num_hidden_layers": 3, "hidden_size": 24}


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMTC_ENCODERS", str(tmp_path / "own"))
    monkeypatch.setenv("XMTC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)


def written(folder: Path, config: object = CONFIG) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    save_file({"a": np.ones((3, 5), np.float32), "b": np.ones(7, np.float16)}, folder / "model.safetensors")
    return folder


def found() -> dict[str, FoundEncoder]:
    return {each.name: each for each in find_encoders()}


def test_no_place_exists() -> None:
    assert find_encoders() == []


def test_what_the_files_say(tmp_path: Path) -> None:
    folder = written(tmp_path / "own" / "small")
    (tmp_path / "own" / "notes").mkdir()
    size = (folder / "model.safetensors").stat().st_size
    assert find_encoders() == [FoundEncoder("small", folder, "bert", 3, 24, size, "")]


def test_each_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    single = written(tmp_path / "elsewhere" / "single")
    first = written(tmp_path / "own" / "same")
    written(tmp_path / "cache" / "encoders" / "same")
    cached = written(tmp_path / "cache" / "encoders" / "cached")
    monkeypatch.setenv("XMTC_ENCODERS", os.pathsep.join([str(tmp_path / "own"), str(single)]))
    assert {name: each.folder for name, each in found().items()} == {"same": first, "single": single, "cached": cached}


def test_snapshots_of_the_hub(tmp_path: Path) -> None:
    """Of several snapshots that of the branch main is used; without the branch, the latest."""
    repository = tmp_path / "hf" / "hub" / "models--some--thing"
    old, new = (written(repository / "snapshots" / name) for name in ("aaa", "bbb"))
    os.utime(old, (1, 1))
    assert found()["some/thing"].folder == new
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("aaa\n")
    assert found()["some/thing"].folder == old
    assert encoder_folder("some/thing") == encoder_folder("thing") == old


def test_names_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "own" / "small")
    assert encoder_folder("small") == folder
    assert encoder_folder("missing") == Path("missing")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small").mkdir()
    assert encoder_folder("small") == Path("small")  # an existing path comes first


def test_broken_ones(tmp_path: Path) -> None:
    own = tmp_path / "own"
    cut = written(own / "cut") / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-1])
    (written(own / "noise") / "model.safetensors").write_bytes(b"\xff" * 100)
    (written(own / "pickled") / "model.safetensors").rename(own / "pickled" / "pytorch_model.bin")
    (written(own / "bare") / "model.safetensors").unlink()
    (written(own / "no-words") / "tokenizer.json").unlink()
    (written(own / "no-json") / "config.json").write_text("{")
    written(own / "decoder", {**CONFIG, "is_decoder": True})
    problems = {name: each.problem for name, each in found().items()}
    expected = {
        "cut": "model.safetensors: incomplete or damaged",
        "noise": "model.safetensors: incomplete or damaged",
        "pickled": "the weights are pickled",
        "bare": "the weights (*.safetensors) are missing",
        "no-words": "tokenizer.json is missing",
        "no-json": "config.json: invalid",
        "decoder": "this is a decoder (bert)",
    }
    assert problems.keys() == expected.keys()
    for name, start in expected.items():
        assert problems[name].startswith(start)
        assert "\n" not in problems[name]
