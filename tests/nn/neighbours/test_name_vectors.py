"""Semantic match of texts and label names, from settings to a restored model."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.tiny_encoder import write_encoder
from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import read_folder, write_folder
from xmtc.core.errors import ConfigError, MissingExtraError, ModelFormatError
from xmtc.core.runtime import Runtime
from xmtc.data.label_index import LabelIndex
from xmtc.nn.neighbours.name_vectors import (
    NameEncoderSettings,
    NameVectors,
    NameVectorSettings,
    label_names,
    text_start,
)

RUNTIME = Runtime(device="cpu", threads=1)
GROUPS = {
    "feline": ["cat", "kitten", "feline", "puss"],
    "alcohol": ["wine", "beer", "alcohol", "liquor"],
    "metal": ["iron", "steel", "metal", "zinc"],
    "weather": ["rain", "snow", "weather", "wind"],
}
"""Words that mean much the same have similar vectors."""
LABELS = LabelIndex.from_keys(
    ["a", "b", "c", "d", "e"],
    ["Feline", "Alcohol", "Iron", "", "Nonesuch"],
    [["puss"], [], ["metal", "Iron", ""], ["weather"], []],
)
TEXTS = ["Kitten\nsnow snow snow", "Liquor. Wine and beer in the snow", "steel", "nothing known", ""]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    lines = []
    for words in GROUPS.values():
        centre = random.standard_normal(32)
        lines += [f"{word} {' '.join(map(str, centre + 0.3 * random.standard_normal(32)))}" for word in words]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def settings(file: Path) -> NameVectorSettings:
    return NameVectorSettings(word_vectors=str(file), common_components=0)


@pytest.fixture(scope="module")
def vectors(settings: NameVectorSettings) -> NameVectors:
    words = pa.chunked_array([[word for group in GROUPS.values() for word in group]])
    return NameVectors.fit(LABELS, settings, RUNTIME, texts=words)


def test_names_of_labels() -> None:
    """Neither empty names nor repeated ones of the same label."""
    names, owners = label_names(LABELS)
    found = sorted(zip(owners.tolist(), names.to_pylist(), strict=True))
    assert found == [
        (0, "Feline"),
        (0, "puss"),
        (1, "Alcohol"),
        (2, "Iron"),
        (2, "metal"),
        (3, "weather"),
        (4, "Nonesuch"),
    ]


def test_start_of_a_text() -> None:
    assert text_start("\n Rain in May\nIt rained.") == "Rain in May"
    assert text_start("Regulation No. 17 of the Council. It applies.") == "Regulation No. 17 of the Council."
    assert text_start("No stop here") == "No stop here"
    assert len(text_start("x" * 5000)) == 400
    assert text_start("") == ""


def test_words_that_no_name_contains_find_the_label(vectors: NameVectors) -> None:
    labels, cosines = vectors.search(TEXTS, 2)
    assert labels[:2].tolist() == [[0, 3], [1, 3]]  # by the start of a text, then by the whole of it
    assert labels[2, 0] == 2
    assert (cosines[:3, 0] > 0.6).all()
    assert labels[3:].tolist() == [[-1, -1]] * 2
    assert (cosines[3:] == 0).all()


def test_parts_of_a_text(settings: NameVectorSettings, vectors: NameVectors) -> None:
    both = vectors.embed(TEXTS)
    assert both.shape == (5, 2, 32)
    for name, view in (("whole", 0), ("start", 1)):
        only = NameVectorSettings(word_vectors=settings.word_vectors, common_components=0, views=name)  # type: ignore[arg-type]
        other = NameVectors(vectors._embedder, vectors.index, only, RUNTIME)
        assert np.array_equal(other.embed(TEXTS)[:, 0], both[:, view])
    assert np.array_equal(vectors.search(both, 3)[0], vectors.search(pa.chunked_array([TEXTS]), 3)[0])


def test_scores_of_candidates(vectors: NameVectors) -> None:
    labels, cosines = vectors.search(TEXTS, 4)
    assert np.array_equal(vectors.score(TEXTS, labels), cosines)
    every = vectors.score(TEXTS, np.tile(np.arange(5), (5, 1)))
    assert (every[:, 4] == 0).all()  # its name has no vector
    assert every[2].argmax() == 2


def test_only_allowed_labels(vectors: NameVectors) -> None:
    labels, _ = vectors.search(TEXTS, 3, np.array([True, False, False, False, True]))
    assert labels.tolist() == [[0, -1, -1]] * 3 + [[-1] * 3] * 2


def test_saved_with_other_parts_of_a_model(tmp_path: Path, vectors: NameVectors, settings: NameVectorSettings) -> None:
    state = vectors.state()
    state.values["width"] = 7
    state.arrays["codes"] = np.zeros(3)
    write_folder(tmp_path, {"model": "lexical", "settings": {}}, state)
    saved = SavedState(read_folder(tmp_path)[1])
    again = NameVectors.restored(saved, 5, settings, RUNTIME)
    for one, other in zip(again.search(TEXTS, 3), vectors.search(TEXTS, 3), strict=True):
        assert np.array_equal(one, other)
    saved.array("codes", np.float64, (3,))
    saved.finish()
    with pytest.raises(ModelFormatError, match=r"'name_vectors.owners' contains numbers"):
        NameVectors.restored(saved, 2, settings, RUNTIME)


def test_an_encoder(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    words = [word for group in GROUPS.values() for word in group]
    encoder = NameEncoderSettings(path=str(write_encoder(tmp_path / "encoder", words)), max_tokens=32)
    settings = NameVectorSettings(encoder=encoder, common_components=0)
    fitted = NameVectors.fit(LABELS, settings, RUNTIME)
    labels, cosines = fitted.search(["Alcohol", "Puss\nrain and snow", ""], 3)
    assert labels[:2, 0].tolist() == [1, 0]
    assert (cosines[:2, 0] > 0.999).all()
    assert (labels[2] == -1).all()
    again = NameVectors.restored(SavedState(fitted.state()), 5, settings, RUNTIME)
    assert np.array_equal(again.search(["Alcohol"], 3)[0], labels[:1])


def test_texts_are_centred_with_an_encoder(tmp_path: Path) -> None:
    """What all training texts share does not count, nor what all names share."""
    pytest.importorskip("transformers")
    words = [word for group in GROUPS.values() for word in group]
    encoder = NameEncoderSettings(path=str(write_encoder(tmp_path / "encoder", words)), max_tokens=32)
    settings = NameVectorSettings(encoder=encoder, common_components=1)
    texts = [f"wine and beer and liquor {word}" for word in words]
    centred = NameVectors.fit(LABELS, settings, RUNTIME, texts=pa.chunked_array([texts]))
    plain = NameVectors.fit(LABELS, settings, RUNTIME)
    assert np.linalg.norm(plain.embed(texts).mean(axis=0), axis=1).min() > 0.5
    assert np.linalg.norm(centred.embed(texts).mean(axis=0), axis=1).max() < 0.1
    names = plain.index.names.codes * plain.index.names.scales[:, None]
    direction = plain._embedder._common  # type: ignore[union-attr]
    assert np.abs(names @ direction.T).max() < 0.02
    again = NameVectors.restored(SavedState(centred.state()), 5, settings, RUNTIME)
    assert np.array_equal(again.search(texts, 3)[1], centred.search(texts, 3)[1])


def test_settings(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not NameVectorSettings().is_used
    with pytest.raises(ConfigError, match=r"Give word_vectors or encoder.path"):
        NameVectors.fit(LABELS, NameVectorSettings(), RUNTIME)
    with pytest.raises(ConfigError, match="'word_vectors' of name vectors must be '' with an encoder"):
        NameVectorSettings(word_vectors=str(file), encoder=NameEncoderSettings(path="x"))
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else found(name))
    with pytest.raises(MissingExtraError, match=r"needs PyTorch and transformers. Install it with: pip install"):
        NameVectors.fit(LABELS, NameVectorSettings(encoder=NameEncoderSettings(path="x")), RUNTIME)


def test_word_vectors_do_not_need_torch(file: Path) -> None:
    code = f"""
import sys
sys.modules["torch"] = None
from xmtc.core.runtime import Runtime
from xmtc.data.label_index import LabelIndex
from xmtc.nn.neighbours.name_vectors import NameVectors, NameVectorSettings
settings = NameVectorSettings(word_vectors={str(file)!r}, common_components=0)
labels = LabelIndex.from_keys(["a", "b"], ["puss", "zinc"])
print(NameVectors.fit(labels, settings, Runtime(threads=1)).search(["zinc"], 1)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[1]]"
