"""Word vectors: files of every format read back, and vectors learnt from texts against a slow and independent way."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.draws import Draws
from xmtc.core.errors import ConfigError, DataError
from xmtc.text import word2vec
from xmtc.text import word_vectors as vectors_module
from xmtc.text.word2vec import (
    CorpusVectorSettings,
    initial_vectors,
    keep_thresholds,
    noise_table,
    train_vectors,
)
from xmtc.text.word_vectors import read_vectors

Floats = NDArray[np.float32]
WORDS = ["the", "été", "fox", "dog", "漢字", "a_b"]
MATRIX = np.random.default_rng(0).normal(size=(len(WORDS), 7)).astype(np.float32)


def as_text(words: list[str], matrix: Floats, header: bool = False, end: str = "\n") -> bytes:
    lines = [f"{len(words)} {matrix.shape[1]}"] if header else []
    lines += [" ".join([word, *map(repr, row.tolist())]) for word, row in zip(words, matrix, strict=True)]
    return "".join(line + end for line in lines).encode()


def as_binary(words: list[str], matrix: Floats, end: bytes = b"\n") -> bytes:
    rows = [word.encode() + b" " + row.tobytes() + end for word, row in zip(words, matrix, strict=True)]
    return f"{len(words)} {matrix.shape[1]}\n".encode() + b"".join(rows)


FORMATS: dict[str, Callable[[list[str], Floats], bytes]] = {
    "glove.txt": as_text,
    "crlf.txt": lambda words, matrix: as_text(words, matrix, end="\r\n"),
    "marked.txt": lambda words, matrix: b"\xef\xbb\xbf" + as_text(words, matrix),
    "word2vec.txt": lambda words, matrix: as_text(words, matrix, header=True),
    "fasttext.vec": lambda words, matrix: as_text(words, matrix, header=True, end=" \n"),
    "no_last_line_end.txt": lambda words, matrix: as_text(words, matrix)[:-1],
    "word2vec.bin": as_binary,
    "without_line_ends.bin": lambda words, matrix: as_binary(words, matrix, b""),
    "told_by_content": as_binary,
}


@pytest.fixture(params=[1 << 22, 100, 7], ids=["whole", "blocks", "pieces"])
def block_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(vectors_module, "BLOCK_BYTES", request.param)
    return int(request.param)


def write_array(folder: Path, array: Any, words: list[str] | None, beside: str = "v.txt") -> Path:
    np.save(folder / "v.npy", array)
    if words is not None:
        (folder / beside).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return folder / "v.npy"


class TestFormats:
    @pytest.mark.parametrize("name", FORMATS)
    def test_rows_of_the_words_asked_for(self, tmp_path: Path, name: str, block_size: int) -> None:
        path = tmp_path / name
        path.write_bytes(FORMATS[name](WORDS, MATRIX))
        found = read_vectors(path, ["dog", "cat", "été", "the", "漢字"])
        assert found.found.tolist() == [True, False, True, True, True]
        np.testing.assert_array_equal(found.matrix, [MATRIX[3], np.zeros(7), MATRIX[1], MATRIX[0], MATRIX[4]])
        assert found.matrix.dtype == np.float32
        assert found.coverage == 0.8

    @pytest.mark.parametrize("beside", ["v.txt", "v.vocab", "v.words", "vocab.txt"])
    @pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
    def test_array_with_its_words(self, tmp_path: Path, beside: str, kind: type) -> None:
        path = write_array(tmp_path, MATRIX.astype(kind), WORDS, beside)
        found = read_vectors(path, ["fox", "cat", "the", "fox"])
        np.testing.assert_array_equal(
            found.matrix, MATRIX.astype(kind).astype(np.float32)[[2, 2, 0, 2]] * [[1], [0], [1], [1]]
        )
        assert found.found.tolist() == [True, False, True, True]

    @pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
    @pytest.mark.parametrize("name", ["glove.txt", "word2vec.bin"])
    def test_compressed(self, tmp_path: Path, pack: Callable[[bytes], bytes], name: str) -> None:
        path = tmp_path / f"{name}.packed"  # told by content
        path.write_bytes(pack(FORMATS[name](WORDS, MATRIX)))
        np.testing.assert_array_equal(read_vectors(path, WORDS).matrix, MATRIX)

    def test_words_with_spaces(self, tmp_path: Path, block_size: int) -> None:
        words = [". . .", "at", "at name@domain.com", ".", "New York", "top 10"]
        path = tmp_path / "glove.txt"
        path.write_bytes(as_text([*WORDS, *words], np.vstack([MATRIX, MATRIX + 1])))
        found = read_vectors(path, ["at", ". . .", ".", "new York", "top 10"])
        np.testing.assert_array_equal(found.matrix, MATRIX[[1, 0, 3, 4, 5]] + 1)

    def test_first_of_equal_words(self, tmp_path: Path, block_size: int) -> None:
        path = tmp_path / "glove.txt"
        path.write_bytes(as_text(["fox", "dog", "fox"], MATRIX[:3]))
        np.testing.assert_array_equal(read_vectors(path, ["fox", "dog"]).matrix, MATRIX[:2])
        path.write_bytes(as_binary(["fox", "dog", "fox"], MATRIX[:3]))
        np.testing.assert_array_equal(read_vectors(path, ["fox", "dog"]).matrix, MATRIX[:2])

    @pytest.mark.parametrize("write", [as_text, as_binary])
    def test_exact_then_capitalised_then_upper(
        self, tmp_path: Path, block_size: int, write: Callable[[list[str], Floats], bytes]
    ) -> None:
        path = tmp_path / "cased"
        path.write_bytes(write(["FOX", "Fox", "DOG", "été", "ÉTÉ", "The"], MATRIX))
        found = read_vectors(path, ["fox", "dog", "été", "the", "The", "dOG"])
        np.testing.assert_array_equal(found.matrix[:5], MATRIX[[1, 2, 3, 5, 5]])
        np.testing.assert_array_equal(found.matrix[5], MATRIX[2])
        path.write_bytes(write(["Fox", "FOX", "fox", "Dog", "DOG", "x"], MATRIX))  # the exact form comes last
        np.testing.assert_array_equal(read_vectors(path, ["fox", "dog"]).matrix, MATRIX[[2, 3]])

    def test_no_words(self, tmp_path: Path) -> None:
        path = tmp_path / "glove.txt"
        path.write_bytes(as_text(WORDS, MATRIX))
        assert read_vectors(path, []).matrix.shape == (0, 7)
        assert read_vectors(path, []).coverage == 0.0

    def test_memory_is_that_of_the_words_asked_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(vectors_module, "BLOCK_BYTES", 1 << 16)
        path = tmp_path / "glove.txt"
        line = " ".join(["0.125"] * 300)
        path.write_text("".join(f"w{i} {line}\n" for i in range(5000)))  # 9 MB
        tracemalloc.start()
        found = read_vectors(path, ["w17", "w4999", "w5000"])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.found.tolist() == [True, True, False]
        assert peak < 3 << 20


class TestBadFiles:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (
                "fox 1 2 3\ndog 1 2\n",
                ":2: 2 values, but the other vectors have 3. Write one word and 3 numbers per line",
            ),
            ("fox 1 2 3\ndog 1 2 3 4\n", ":2: 4 values, but the other vectors have 3."),
            ("fox 1 2 3\ndog 1 2 3\nrow\n", ":3: 0 values, but the other vectors have 3."),
            ("2 4\nfox 1 2 3\ndog 1 2 3\n", ":2: 3 values, but the other vectors have 4."),
            ("fox 1 2 3\ndog 1 x 3\n", ":2: 'x' is not a number."),
            ("hello to you\ndog 1 2\n", ":1: 'to' is not a number."),
            ("fox 1 2 3\ndog 1 nan 3\n", ":2: a value is infinite or NaN. Remove the word"),
            ("fox 1 2 3\ndog 1 1e99 3\n", ":2: a value is infinite or NaN."),
            ("fox\ndog\n", ":1: vectors have 0 values; the supported range is 1 to 65,536."),
            ("2 0\nfox\ndog\n", ":1: vectors have 0 values"),
            ("2 -3\nfox 1\ndog 1\n", ":1: vectors have -3 values"),
            ("2 9999999\nfox 1\ndog 1\n", ":1: vectors have 9,999,999 values"),
            ("3 2\nfox 1 2\ndog 1 2\n", ": truncated: 2 vectors, but 3 in the header. Download the file again."),
            ("le 1 2\nchien 1 2\n", ": contains none of the 2 words, such as 'dog'. Check language and case."),
            ("", ": empty. Download the file again."),
            ("PK\x03\x04 and so on", ": is a ZIP archive. Unpack it"),
            ("\x00\x01\x02 1 2 3\n", ": contains no word vectors. Pass GloVe or word2vec text"),
        ],
    )
    def test_text(self, tmp_path: Path, content: str, message: str) -> None:
        path = tmp_path / "bad.txt"
        path.write_text(content)
        with pytest.raises(DataError, match=re.escape(f"{path}{message}")) as caught:
            read_vectors(path, ["dog", "row"])
        assert "\n" not in str(caught.value)

    def test_missing(self, tmp_path: Path) -> None:
        for name in ("none.txt", "none.npy"):
            with pytest.raises(DataError, match=re.escape(f"{tmp_path / name}: no such file. Check the path.")):
                read_vectors(tmp_path / name, ["dog"])

    def test_damaged_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "glove.txt.gz"
        path.write_bytes(gzip.compress(as_text(WORDS, MATRIX))[:-20])
        with pytest.raises(DataError, match="damaged or truncated"):
            read_vectors(path, WORDS)

    @pytest.mark.parametrize(("left_out", "whole"), [(1, 5), (31, 5), (32, 5), (33, 4), (100, 2)])
    def test_binary_cut_short(self, tmp_path: Path, left_out: int, whole: int) -> None:
        path = tmp_path / "word2vec.bin"
        path.write_bytes(as_binary(WORDS, MATRIX, b"")[:-left_out])
        with pytest.raises(DataError, match=re.escape(f"{path}: truncated: {whole} vectors, but 6 in the header.")):
            read_vectors(path, WORDS)

    def test_binary_not_finite(self, tmp_path: Path) -> None:
        path = tmp_path / "word2vec.bin"
        damaged = MATRIX.copy()
        damaged[2, 3] = np.inf
        path.write_bytes(as_binary(WORDS, damaged))
        with pytest.raises(DataError, match=re.escape(f"{path}: the vector of 'fox': a value is infinite")):
            read_vectors(path, WORDS)
        assert read_vectors(path, ["dog"]).coverage == 1.0

    def test_binary_without_words(self, tmp_path: Path) -> None:
        path = tmp_path / "word2vec.bin"
        path.write_bytes(b"5 7\n" + b"\xff" * (1 << 17))
        with pytest.raises(DataError, match=re.escape(f"{path}: no word before vector 1. Download the file again.")):
            read_vectors(path, WORDS)

    @pytest.mark.parametrize(
        ("array", "words", "message"),
        [
            (
                np.array([["a", 1.0]], dtype=object),
                ["dog"],
                "v.npy: cannot be read as .npy (Array can't be memory-mapped",
            ),
            (np.array([["a", "b"]]), ["dog"], "v.npy: must contain real numbers. Got <U1."),
            (np.ones(3), ["dog"], "v.npy: must have the shape (words, width). Got (3,). Save one row per word."),
            (np.ones((1, 2, 3)), ["dog"], "v.npy: must have the shape (words, width). Got (1, 2, 3)."),
            (np.ones((2, 3)), ["dog"], "v.txt: 1 words for the 2 rows of v.npy. Write one word per row."),
            (np.ones((1, 3)), ["dog", "fox"], "v.txt: 2 words for the 1 rows of v.npy."),
            (
                np.ones((1, 3)),
                None,
                "v.npy: no vocabulary file in the same folder. Write v.txt with one word per line",
            ),
            (np.array([[1.0, 2], [3, np.nan]]), ["fox", "dog"], "v.npy: row 2: a value is infinite"),
            (np.array([[1e200, 2]]), ["dog"], "v.npy: row 1: a value is infinite"),
            (
                np.ones((1, 3)),
                ["chien"],
                "v.npy: contains none of the 1 words, such as 'dog'. Check language and case.",
            ),
        ],
    )
    def test_array(self, tmp_path: Path, array: Any, words: list[str] | None, message: str) -> None:
        path = write_array(tmp_path, array, words)
        with pytest.raises(DataError, match=re.escape(str(tmp_path / message))):
            read_vectors(path, ["dog"])

    def test_no_array(self, tmp_path: Path) -> None:
        path = write_array(tmp_path, np.ones((1, 3)), ["dog"])
        path.write_bytes(path.read_bytes()[:-4])
        with pytest.raises(DataError, match=re.escape(f"{path}: cannot be read as .npy (")):
            read_vectors(path, ["dog"])
        path.write_bytes(b"something else")
        with pytest.raises(DataError, match=re.escape(f"{path}: cannot be read as .npy (")):
            read_vectors(path, ["dog"])


def slow_vectors(
    documents: list[list[int]], frequencies: NDArray[np.int64], settings: CorpusVectorSettings, seed: int
) -> NDArray[np.float64]:
    """word2vec by the book: steps along the gradient in double precision, one pair after the other."""
    inputs = initial_vectors(len(frequencies), settings.width, seed).astype(np.float64)
    outputs = np.zeros_like(inputs)
    keep, noise = keep_thresholds(frequencies, settings.subsample), noise_table(frequencies)
    draws = Draws(seed)
    total, done = settings.epochs * sum(map(len, documents)), 0

    def drawn() -> int:
        bits = draws()
        slot = ((bits >> 32) * len(noise)) >> 32
        return slot if (bits & 0xFFFFFFFF) < noise[slot, 0] else int(noise[slot, 1])

    def learn(around: list[int], word: int, rate: float) -> None:
        hidden = inputs[around].mean(axis=0)
        gradient = np.zeros_like(hidden)  # of −ln σ(h·o) − Σ ln σ(−h·o')
        for draw in range(settings.negative + 1):
            target = drawn() if draw else word
            if draw and target == word:
                continue
            slope = 1 / (1 + np.exp(-hidden @ outputs[target])) - (draw == 0)
            gradient += slope * outputs[target]
            outputs[target] -= rate * slope * hidden
        np.subtract.at(inputs, around, rate * gradient)  # the mean's whole step for each word

    for _ in range(settings.epochs):
        for document in documents:
            kept = [
                (place, word)
                for place, word in enumerate(document)
                if word >= 0 and (keep[word] >= 1 << 32 or draws() >> 32 < keep[word])
            ]
            for at, (place, word) in enumerate(kept):
                rate = settings.learning_rate * (1 - (done + place) / total)
                reach = 1 + (draws() >> 33) % settings.window
                around = [other for _, other in kept[max(at - reach, 0) : at] + kept[at + 1 : at + reach + 1]]
                if settings.kind == "cbow" and around:
                    learn(around, word, rate)
                elif settings.kind == "skipgram":
                    for other in around:
                        learn([other], word, rate)
            done += len(document)
    return inputs


def flat(documents: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    indptr = np.cumsum([0, *map(len, documents)]).astype(np.int64)
    return indptr, np.array([word for document in documents for word in document], dtype=np.int32)


def counted(ids: NDArray[np.int32], words: int) -> NDArray[np.int64]:
    return np.bincount(ids[ids >= 0], minlength=words).astype(np.int64)


def topics(count: int, words: int, seed: int) -> list[list[int]]:
    """Documents of one of four topics each: a topic's words are all numbers of one remainder."""
    chance = np.random.default_rng(seed)
    return [(4 * chance.integers(0, words // 4, 12) + number % 4).tolist() for number in range(count)]


KINDS = pytest.mark.parametrize("kind", ["cbow", "skipgram"])


class TestCorpusVectors:
    @KINDS
    @pytest.mark.parametrize("subsample", [0.0, 0.05])
    def test_equal_the_book(self, kind: Any, subsample: float) -> None:
        chance = np.random.default_rng(1)
        documents = [chance.integers(-1, 20, length).tolist() for length in (0, 1, 2, 9, 30, 3, 12)]
        indptr, ids = flat(documents)
        frequencies = counted(ids, 22)
        settings = CorpusVectorSettings(
            kind=kind, width=19, window=3, negative=4, epochs=3, learning_rate=0.5, subsample=subsample
        )
        found = train_vectors(indptr, ids, frequencies, settings, seed=7)
        expected = slow_vectors(documents, frequencies, settings, seed=7)
        np.testing.assert_allclose(found, expected, atol=2e-5)
        started = initial_vectors(22, 19, 7)
        assert np.abs(found - started).max() > 0.05  # there was something to get wrong
        np.testing.assert_array_equal(found[20:], started[20:])  # words that do not occur

    @KINDS
    def test_words_of_a_topic_end_near_each_other(self, kind: Any) -> None:
        indptr, ids = flat(topics(800, 80, 0))
        settings = CorpusVectorSettings(kind=kind, width=24, subsample=0.0, epochs=8)
        found = train_vectors(indptr, ids, counted(ids, 80), settings)
        found = found / np.linalg.norm(found, axis=1, keepdims=True)
        near = found @ found.T - 2 * np.eye(80)
        own = np.arange(80) % 4
        best = np.argsort(-near, axis=1)[:, :10]
        assert (own[best] == own[:, None]).mean() > 0.99

    @KINDS
    def test_seed_and_nothing_else_decides(self, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        indptr, ids = flat(topics(100, 40, 0))
        settings = CorpusVectorSettings(kind=kind, width=16, subsample=0.01)
        first = train_vectors(indptr, ids, counted(ids, 40), settings, seed=3)
        monkeypatch.setattr(word2vec, "CHUNK_TOKENS", 50)
        np.testing.assert_array_equal(train_vectors(indptr, ids, counted(ids, 40), settings, seed=3), first)
        padded = np.concatenate([np.zeros(5, dtype=np.int32), ids])  # a corpus that starts within its array
        np.testing.assert_array_equal(train_vectors(indptr + 5, padded, counted(ids, 40), settings, seed=3), first)
        assert np.abs(train_vectors(indptr, ids, counted(ids, 40), settings, seed=-4) - first).max() > 0.01

    @KINDS
    @pytest.mark.parametrize("documents", [[], [[]], [[0]], [[-1, -1]], [[0, 0]], [[0, 1, 2]] * 4])
    def test_small_corpora(self, kind: Any, documents: list[list[int]]) -> None:
        indptr, ids = flat(documents)
        words = max(ids.max(initial=-1) + 1, 0)
        for subsample in (0.0, 1e-4):
            settings = CorpusVectorSettings(kind=kind, width=8, subsample=subsample)
            found = train_vectors(indptr, ids, counted(ids, words), settings)
            assert found.shape == (words, 8)
            assert np.isfinite(found).all()

    def test_unknown_words_are_passed_over(self) -> None:
        documents = topics(20, 40, 0)
        indptr, ids = flat(documents)
        settings = CorpusVectorSettings(width=8, subsample=0.0, learning_rate=1.0)
        spread = [[word for pair in zip(document, [-1] * 12, strict=True) for word in pair] for document in documents]
        found = train_vectors(indptr, ids, counted(ids, 40), settings)
        np.testing.assert_allclose(train_vectors(*flat(spread), counted(ids, 40), settings), found, atol=1e-6)

    def test_noise_follows_the_frequencies(self) -> None:
        frequencies = np.random.default_rng(0).zipf(1.5, 1000).astype(np.int64)
        frequencies[:10] = 0
        table = noise_table(frequencies).astype(np.float64)
        shares = np.zeros(1000)
        np.add.at(shares, np.arange(1000), table[:, 0] / 2**32)
        np.add.at(shares, table[:, 1].astype(int), 1 - table[:, 0] / 2**32)
        np.testing.assert_allclose(shares / 1000, frequencies**0.75 / (frequencies**0.75).sum(), atol=1e-8)

    def test_frequent_words_are_left_out_more_often(self) -> None:
        keep = keep_thresholds(np.array([1, 100, 9899], dtype=np.int64), 1e-3) / 2**32
        np.testing.assert_allclose(keep, [1.0, 0.1**0.5 + 0.1, (1e-3 / 0.9899) ** 0.5 + 1e-3 / 0.9899], rtol=1e-6)
        assert (keep_thresholds(np.array([0, 5], dtype=np.int64), 0.0) == 1 << 32).all()

    def test_progress_reaches_its_total(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(word2vec, "CHUNK_TOKENS", 100)
        steps: list[int] = []

        class Watch:
            def advance(self, steps_: int = 1) -> None:
                steps.append(steps_)

            def note(self, words: str) -> None:
                return

            @contextmanager
            def task(self, title: str, total: int | None = None) -> Iterator[Any]:
                assert total == 5 * 1200
                yield self

        indptr, ids = flat(topics(100, 40, 0))
        train_vectors(indptr, ids, counted(ids, 40), CorpusVectorSettings(width=4), progress=Watch())
        assert sum(steps) == 5 * 1200
        assert len(steps) > 20

    def test_word_without_a_frequency(self) -> None:
        with pytest.raises(ValueError, match="word 3 has no frequency"):
            train_vectors(*flat([[0, 3]]), np.ones(3, dtype=np.int64), CorpusVectorSettings())

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"kind": "glove"}, "'kind' of corpus must be one of cbow, skipgram. Got 'glove'."),
            ({"width": 0}, "'width' of corpus must be an integer ≥ 1. Got 0."),
            ({"window": 0}, "'window' of corpus must be an integer ≥ 1. Got 0."),
            ({"negative": 0}, "'negative' of corpus must be an integer ≥ 1. Got 0."),
            ({"epochs": 0}, "'epochs' of corpus must be an integer ≥ 1. Got 0."),
            ({"learning_rate": 0}, "'learning_rate' of corpus must be a number > 0. Got 0.0."),
            ({"subsample": -1.0}, "'subsample' of corpus must be a number ≥ 0. Got -1.0."),
        ],
    )
    def test_bad_settings(self, bad: dict, message: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(message)):
            CorpusVectorSettings(**bad)
