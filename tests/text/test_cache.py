"""The text cache: a damaged entry never changes a result; it is deleted and created again."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from xmtc.core.runtime import Runtime
from xmtc.text import cache
from xmtc.text.cache import tfidf_of, tokens_of, vectors_of
from xmtc.text.tfidf import TextSettings

TEXTS = pa.chunked_array([[f"some words {number} and others {number * 7 % 40}" for number in range(200)]])
SETTINGS = TextSettings(word_ngrams=2)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    monkeypatch.setattr(cache, "WORTHWHILE_BYTES", 0)
    return Runtime(threads=1, cache=tmp_path / "cache")


def answers(runtime: Runtime) -> list[bytes]:
    """Everything that the cache restores, as bytes."""
    tokens = tokens_of(TEXTS, runtime)
    tfidf, rows = tfidf_of(TEXTS, SETTINGS, runtime)
    arrays, terms = tfidf.state()
    parts = [rows.data, rows.indices, rows.indptr, *(arrays[name] for name in sorted(arrays))]
    for block, own in zip(tokens.blocks, tokens.types_of, strict=True):
        parts += [block.indptr, block.ids, own]
    words = [str(column.to_pylist()).encode() for column in (tokens.types, *terms.columns)]
    return [np.ascontiguousarray(part).tobytes() for part in parts] + words


def entries(runtime: Runtime) -> list[Path]:
    assert runtime.cache is not None
    return sorted(runtime.cache.iterdir())


def files(runtime: Runtime) -> dict[Path, bytes]:
    return {path: path.read_bytes() for entry in entries(runtime) for path in sorted(entry.iterdir())}


def test_one_flipped_bit_anywhere(runtime: Runtime) -> None:
    expected = answers(Runtime(threads=1))
    assert answers(runtime) == expected
    whole = files(runtime)
    assert {path.suffix for path in whole} == {".json", ".safetensors", ".arrow"}
    rng = np.random.default_rng(0)
    for path, content in whole.items():
        for place in sorted({0, len(content) // 2, len(content) - 1, *map(int, rng.integers(0, len(content), 9))}):
            damaged = bytearray(content)
            damaged[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            assert answers(runtime) == expected, (path.name, place)
            assert files(runtime)[path] == content or path.suffix == ".json", (path.name, place)
            path.write_bytes(content)


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def nest(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


@pytest.mark.parametrize("damage", [remove, empty, truncate, extend, nest])
def test_damaged_files_are_created_again(runtime: Runtime, damage: Callable[[Path], None]) -> None:
    expected = answers(runtime)
    whole = files(runtime)
    for path, content in whole.items():
        damage(path)
        assert answers(runtime) == expected, path
        assert path.read_bytes() == content


def test_an_entry_in_the_place_of_another(runtime: Runtime) -> None:
    expected = answers(runtime)
    tfidf, tokens = (next(path for path in entries(runtime) if word in path.name) for word in ("tfidf", "tokens"))
    tokens_of(pa.chunked_array([["other words"]]), runtime)
    other = next(path for path in entries(runtime) if path not in (tfidf, tokens))
    for entry in (tfidf, tokens):
        kept = {path.name: path.read_bytes() for path in entry.iterdir()}
        for name in ("arrays.safetensors", "entry.json"):  # one file of another entry
            shutil.copy(other / name, entry / name)
            assert answers(runtime) == expected
            assert (entry / name).read_bytes() == kept[name]
        shutil.rmtree(entry)
        entry.write_text("a file")
        assert answers(runtime) == expected
        assert {path.name: path.read_bytes() for path in entry.iterdir()} == kept


def test_remains_of_killed_processes(runtime: Runtime) -> None:
    assert runtime.cache is not None
    names = [f".{'0' * 32}-1.0-tokens.{number:08x}.part" for number in range(2)]
    for name in names:
        (runtime.cache / name).mkdir(parents=True)
    os.utime(runtime.cache / names[0], (time.time() - 100_000,) * 2)
    tokens_of(TEXTS, runtime)
    assert sorted(path.name for path in entries(runtime) if path.name.startswith(".")) == names[1:]


class TestVectors:
    """Vectors of texts, each of which is looked up by itself."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cache, "WORTHWHILE_TEXTS", 4)
        self.embedded: list[str] = []

    def vectors(self, texts: list[str], runtime: Runtime, encoder: str = "e" * 32) -> np.ndarray:
        def embed(part: pa.ChunkedArray) -> np.ndarray:
            own = part.to_pylist()
            self.embedded += own
            return np.array([[len(text), text.count("a"), 1 / 3] for text in own], np.float32)

        return vectors_of(pa.chunked_array([texts], pa.string()), lambda: encoder, embed, runtime)

    def test_a_text_is_embedded_once(self, runtime: Runtime) -> None:
        texts = [f"{'a' * number} {number}" for number in range(30)]
        whole = self.vectors(texts, runtime)
        assert (whole == self.vectors(texts, Runtime(threads=1))).all()
        assert whole[:, 1].tolist() == list(range(30))
        self.embedded.clear()
        fold = [*texts[20:3:-1], *texts[25:], texts[7]]  # other order, repetitions
        assert (self.vectors(fold, runtime) == np.concatenate([whole[20:3:-1], whole[25:], whole[7:8]])).all()
        assert self.embedded == []
        more = [*texts[:10], *(f"new {number}" for number in range(8)), "new 3"]
        assert self.vectors(more, runtime)[:, 0].tolist() == [len(text) for text in more]
        assert sorted(self.embedded) == sorted(f"new {number}" for number in range(8))
        self.embedded.clear()
        assert self.vectors(more + texts, runtime).shape == (49, 3)
        assert self.embedded == []

    def test_other_encoders_have_their_own(self, runtime: Runtime) -> None:
        texts = [f"text {number}" for number in range(9)]
        self.vectors(texts, runtime)
        self.embedded.clear()
        self.vectors(texts, runtime, "f" * 32)
        assert sorted(self.embedded) == texts

    def test_damage(self, runtime: Runtime) -> None:
        texts = [f"text {number}" for number in range(9)]
        expected = self.vectors(texts, runtime)
        (entry,) = entries(runtime)
        content = bytearray((entry / "arrays.safetensors").read_bytes())
        content[-3] ^= 1
        (entry / "arrays.safetensors").write_bytes(content)
        self.embedded.clear()
        assert (self.vectors(texts, runtime) == expected).all()
        assert sorted(self.embedded) == texts
        self.embedded.clear()
        assert (self.vectors(texts, runtime) == expected).all()
        assert self.embedded == []
