"""The sentence encoder against the library that its folder is made for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("transformers")

import torch

from tests.support.tiny_encoder import write_encoder
from xmtc.artifact.saved_state import SavedState
from xmtc.core.errors import DataError, ModelFormatError
from xmtc.core.runtime import Runtime
from xmtc.nn.neighbours.sentence_encoder import SentenceEncoder

RUNTIME = Runtime(device="cpu", threads=1)
WORDS = ["salt", "pepper", "iron", "steel", "and"]
TEXTS = ["salt and pepper", "iron", "steel and iron and salt and pepper and zinc", "", "pepper"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder"), WORDS)


def column(texts: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([texts], pa.string())


def reference(folder: Path, text: str, pooling: str) -> Any:
    """One text at a time, without padding."""
    from tokenizers import Tokenizer
    from transformers import AutoModel

    tokeniser = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokeniser.no_padding()
    tokeniser.no_truncation()
    ids = torch.tensor([tokeniser.encode(text).ids])
    with torch.no_grad():
        states = AutoModel.from_pretrained(str(folder))(input_ids=ids)[0][0]
    pooled = {"mean": states.mean(0), "cls": states[0], "max": states.amax(0)}[pooling]
    return (pooled / pooled.norm()).numpy()


def with_pooling(folder: Path, target: Path, settings: object) -> Path:
    shutil.copytree(folder, target)
    (target / "1_Pooling").mkdir()
    (target / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    return target


@pytest.mark.parametrize(
    ("settings", "pooling"),
    [
        (None, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "include_prompt": True}, "cls"),
        ({"pooling_mode": "max"}, "max"),
    ],
)
def test_pooled_as_the_folder_says(folder: Path, tmp_path: Path, settings: object, pooling: str) -> None:
    used = folder if settings is None else with_pooling(folder, tmp_path / "other", settings)
    found = SentenceEncoder.read(used, 64, RUNTIME).embed(column(TEXTS))
    for text, vector in zip(TEXTS, found, strict=True):
        if not text:
            assert (vector == 0).all()
        else:
            assert np.abs(vector - reference(folder, text, pooling)).max() < 1e-5


def test_long_texts_are_cut_off(folder: Path) -> None:
    encoder = SentenceEncoder.read(folder, 4, RUNTIME)
    found = encoder.embed(column(["salt and iron pepper", "salt and steel"]))
    assert np.abs(found[0] - found[1]).max() < 1e-5
    whole = SentenceEncoder.read(folder, 1000, RUNTIME).embed(column(["salt " * 300]))  # beyond its own limit
    assert np.isfinite(whole).all()


def test_restored_without_the_folder(folder: Path) -> None:
    encoder = SentenceEncoder.read(folder, 64, RUNTIME)
    again = SentenceEncoder.from_state(SavedState(encoder.state()), RUNTIME)
    assert np.array_equal(again.embed(column(TEXTS)), encoder.embed(column(TEXTS)))


def test_damaged_state(folder: Path) -> None:
    state = SentenceEncoder.read(folder, 64, RUNTIME).state()
    state.values["pooling"] = "least"
    with pytest.raises(ModelFormatError, match="'pooling' is 'least'"):
        SentenceEncoder.from_state(SavedState(state), RUNTIME)
    state.values.update(pooling="mean", encoder={**state.values["encoder"], "hidden_size": 1 << 20})
    with pytest.raises(ModelFormatError, match="the encoder is damaged"):
        SentenceEncoder.from_state(SavedState(state), RUNTIME)
    state = SentenceEncoder.read(folder, 64, RUNTIME).state()
    state.arrays["encoder_words"] = state.arrays["encoder_words"][1:]
    with pytest.raises(ModelFormatError, match="'encoder_words' has shape"):
        SentenceEncoder.from_state(SavedState(state), RUNTIME)


def test_unsupported_folders(folder: Path, tmp_path: Path) -> None:
    other = with_pooling(folder, tmp_path / "last", {"pooling_mode_lasttoken": True})
    with pytest.raises(DataError, match="pooling 'lasttoken' is not supported"):
        SentenceEncoder.read(other, 64, RUNTIME)
    (other / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Dense"}]))
    with pytest.raises(DataError, match="a layer of type 'Dense' is not supported"):
        SentenceEncoder.read(other, 64, RUNTIME)
    (other / "modules.json").write_text("[3")
    with pytest.raises(DataError, match=r"modules.json: invalid"):
        SentenceEncoder.read(other, 64, RUNTIME)
