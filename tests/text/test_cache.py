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
from xmtc.text.cache import tfidf_of, tokens_of
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
