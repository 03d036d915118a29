"""Means of word vectors: weights, common components, and what is saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from xmtc.artifact.saved_state import SavedState
from xmtc.core.errors import DataError, ModelFormatError
from xmtc.core.runtime import Runtime
from xmtc.nn.neighbours.word_means import WORDS, WordMeans

VECTORS = {
    "cat": (3, 0, 0),
    "dog": (2, 1, 0),
    "wine": (0, 2, 1),
    "beer": (0, 2, 2),
    "the": (0, 0, 5),
    "Oslo": (1, 1, 1),
}
RUNTIME = Runtime(device="cpu", threads=1)


def column(*texts: str) -> pa.ChunkedArray:
    return pa.chunked_array([list(texts)], pa.string())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in VECTORS.items()))
    return path


NAMES = column("the cat", "wine", "beer", "oslo", "unheard")
TEXTS = column("the cat", "the dog", "the wine", "the the dog")


def test_idf_comes_from_the_texts(file: Path) -> None:
    means = WordMeans.fit(NAMES, TEXTS, file, 0, RUNTIME)
    found = means.embed(column("cat dog", "the", "the cat", "unheard", ""))
    wanted = np.log(5 / 2) * np.array([3, 0, 0]) + np.log(5 / 3) * np.array([2, 1, 0])
    assert np.abs(found[0] - wanted / np.linalg.norm(wanted)).max() < 0.01
    assert (found[1] == 0).all()  # it occurs in every text
    assert np.abs(found[2] - [1, 0, 0]).max() < 0.01
    assert (found[3:] == 0).all()


def test_without_texts_only_words_of_names(file: Path) -> None:
    means = WordMeans.fit(NAMES, None, file, 0, RUNTIME)
    assert sorted(means.vocabulary.terms.to_pylist()) == ["beer", "cat", "oslo", "the", "wine"]
    assert means.embed(column("dog")).tolist() == [[0.0, 0.0, 0.0]]
    assert np.abs(means.embed(column("OSLO dog"))[0] - 3**-0.5).max() < 0.01


def test_common_components_are_removed(tmp_path: Path) -> None:
    """Vectors that share a long component are all alike until it is removed."""
    random = np.random.default_rng(0)
    own, shared = random.standard_normal((40, 8)), 20 * np.eye(8)[3]
    own -= own.mean(axis=0)
    words = [f"w{number}" for number in range(40)]
    np.save(tmp_path / "vectors.npy", (own + shared).astype(np.float32))
    (tmp_path / "vectors.txt").write_text("\n".join(words) + "\n")
    names = column(*words)
    raw = WordMeans.fit(names, None, tmp_path / "vectors.npy", 0, RUNTIME).embed(names)
    cut = WordMeans.fit(names, None, tmp_path / "vectors.npy", 1, RUNTIME).embed(names)
    assert (raw @ raw.T).min() > 0.9
    own[:, 3] = 0.0
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    assert np.abs(cut @ cut.T - own @ own.T).max() < 0.1


def test_batches_do_not_change_vectors(file: Path) -> None:
    means = WordMeans.fit(NAMES, TEXTS, file, 1, RUNTIME)
    texts = ["cat wine beer dog", "wine", "", "beer beer cat"]
    assert np.array_equal(means.embed(column(*texts)), np.concatenate([means.embed(column(text)) for text in texts]))


def test_saved_and_restored(file: Path) -> None:
    means = WordMeans.fit(NAMES, TEXTS, file, 1, RUNTIME)
    state = means.state()
    again = WordMeans.from_state(SavedState(state), 3)
    assert np.array_equal(again.embed(TEXTS), means.embed(TEXTS))
    state.arrays["word_weights"] = -state.arrays["word_weights"]
    with pytest.raises(ModelFormatError, match="'word_weights'"):
        WordMeans.from_state(SavedState(state), 3)
    state.tables[WORDS] = state.tables[WORDS].slice(1)
    with pytest.raises(ModelFormatError, match="'word_codes'"):
        WordMeans.from_state(SavedState(state), 3)


def test_a_file_of_another_language(file: Path) -> None:
    with pytest.raises(DataError, match="contains none of the 1 words, such as 'katze'"):
        WordMeans.fit(column("Katze"), None, file, 0, RUNTIME)
