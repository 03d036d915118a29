"""Strings are numbered by first occurrence under any key, and no text makes it slow."""

from __future__ import annotations

import time
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.flooding import flooding_words, probes, random_words
from xmtc.core import string_table
from xmtc.core.string_table import StringTable, number_strings, places
from xmtc.text.tokens import tokenise

MASK = (1 << 64) - 1
anything = st.lists(st.text(max_size=20) | st.sampled_from(["", "a", "a" * 7, "a" * 8, "a" * 9, "b" * 16]), max_size=40)


def siphash(data: bytes, key: int, second_key: int) -> int:
    """SipHash-1-3 as published, in Python's integers."""
    a, b = key ^ 0x736F6D6570736575, second_key ^ 0x646F72616E646F6D
    c, d = key ^ 0x6C7967656E657261, second_key ^ 0x7465646279746573

    def turned(word: int, bits: int) -> int:
        return ((word << bits) | (word >> (64 - bits))) & MASK

    def mix(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
        a, c = (a + b) & MASK, (c + d) & MASK
        b, d, a = turned(b, 13) ^ a, turned(d, 16) ^ c, turned(a, 32)
        c, a = (c + b) & MASK, (a + d) & MASK
        return a, turned(b, 17) ^ c, turned(c, 32), turned(d, 21) ^ a

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        a, b, c, d = mix(a, b, c, d ^ word)
        a ^= word
    c ^= 0xFF
    for _ in range(3):
        a, b, c, d = mix(a, b, c, d)
    return a ^ b ^ c ^ d


@numba.njit
def hashed(data: NDArray[np.uint8], start: int, length: int, key: Any, second_key: Any) -> Any:
    return string_table._hashed(data, start, length, key, second_key)


def test_the_hash_is_siphash() -> None:
    rng = np.random.default_rng(1)
    for length in range(40):
        for start, after in ((0, 0), (3, 0), (5, 9)):
            data = rng.integers(256, size=start + length + after, dtype=np.uint8)
            key, second_key = rng.integers(1 << 64, size=2, dtype=np.uint64)
            expected = siphash(data[start : start + length].tobytes(), int(key), int(second_key))
            assert int(hashed(data, start, length, key, second_key)) == expected


@given(anything)
def test_numbers_are_by_first_occurrence_under_any_key(strings: list[str]) -> None:
    known = list(dict.fromkeys(strings))
    for kind in (pa.string(), pa.large_string()):
        string_table._key.renew()
        ids, first = number_strings(pa.array(["x", *strings, "y"], kind).slice(1, len(strings)))
        assert ids.tolist() == [known.index(string) for string in strings]
        assert [strings[at] for at in first] == known


def test_many_strings_with_long_common_parts() -> None:
    rng = np.random.default_rng(2)
    strings = [f"{'x' * 30}{number}{'y' * (number % 9)}" for number in rng.integers(20_000, size=50_000)]
    encoded = pa.array(strings).dictionary_encode()
    ids, first = number_strings(pa.array(strings))
    assert ids.tolist() == encoded.indices.to_pylist()
    assert [strings[at] for at in first] == encoded.dictionary.to_pylist()


@given(anything, anything)
def test_places(wanted: list[str], known: list[str]) -> None:
    arrays = pa.array(wanted, pa.string()), pa.array(known, pa.string())
    assert places(*arrays).tolist() == pc.fill_null(pc.index_in(*arrays), -1).to_pylist()


@given(st.lists(anything, max_size=6), st.integers(0, 40))
def test_parts_are_numbered_together(parts: list[list[str]], expected: int) -> None:
    known = list(dict.fromkeys(string for part in parts for string in part))
    table = StringTable(expected)
    for part in parts:
        assert table.number_strings(pa.array(part, pa.string())).tolist() == [known.index(string) for string in part]
    assert table.strings().to_pylist() == known
    assert len(table) == len(known)
    asked = [*known, "none of them", ""]
    found = [known.index(string) if string in known else -1 for string in asked]
    assert table.number_strings(pa.array(asked), add=False).tolist() == found
    assert len(table) == len(known)
    table.clear()
    assert table.number_strings(pa.array(["b", "a", "b"])).tolist() == [0, 1, 0]


def test_a_table_grows() -> None:
    rng = np.random.default_rng(3)
    table, numbers = StringTable(1), dict[str, int]()
    for size in (10, 1000, 100_000):
        strings = [f"{number:x}" * (number % 5) for number in rng.integers(1 << 40, size=size)]
        strings += ["x" * size, "é" * 7, "é" * 8]
        found = table.number_strings(pa.array(strings))
        assert found.tolist() == [numbers.setdefault(string, len(numbers)) for string in strings]
    assert table.strings().to_pylist() == list(numbers)


def test_a_string_has_one_number_wherever_it_is() -> None:
    """Short strings are loaded in another way near the end of the bytes."""
    for length in (0, 1, 7, 8, 9, 15, 16, 17, 40):
        string = ("abcdefghij" * 4)[:length]
        after = [string, "and more bytes after it" * 2]
        table = StringTable()
        expected = list(dict.fromkeys(after))
        assert table.number_strings(pa.array(after)).tolist() == [expected.index(each) for each in after]
        assert table.number_strings(pa.array([string])).tolist() == [0]
        assert table.number_strings(pa.array([string + "x", string])).tolist() == [len(expected), 0]


def test_more_bytes_than_are_numbered_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(string_table, "_BATCH_BYTES", 10)
    strings = ["ab", "ccc", "ab", "a string longer than a batch", "", "ccc", "d"]
    for kind in (pa.string(), pa.large_string()):
        ids, first = number_strings(pa.array(["", *strings], kind).slice(1))
        assert ids.tolist() == [0, 1, 0, 2, 3, 1, 4]
        assert first.tolist() == [0, 1, 3, 4, 6]


def test_a_search_that_takes_too_long_draws_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    strings = pa.array(random_words(1000))
    monkeypatch.setattr(string_table, "MAX_PROBES", 10)
    expected = number_strings(strings)[0].tolist()
    drawn = []

    class Weak(string_table._Key):
        def renew(self) -> None:
            super().renew()
            drawn.append(self.words)

    monkeypatch.setattr(string_table, "_key", Weak())
    for _ in range(50):
        assert number_strings(strings)[0].tolist() == expected
        string_table._key.renew()
    assert len(drawn) > 51, "a search of ten slots was always enough"


def test_flooding_words_flood_a_table_without_a_key() -> None:
    assert probes(random_words(2048)) < 2 * 2048
    assert probes(flooding_words(2048)) > 500 * 2048


def test_a_flood_takes_no_longer_than_random_text() -> None:
    texts = [pa.chunked_array([pa.array([" ".join(make(1 << 17))])]) for make in (random_words, flooding_words)]
    assert texts[0].nbytes == texts[1].nbytes
    best = [float("inf"), float("inf")]
    for turn in range(6):
        for kind, text in enumerate(texts):
            started = time.thread_time()
            assert len(tokenise(text).types) == 1 << 17
            if turn:
                best[kind] = min(best[kind], time.thread_time() - started)
    assert best[1] <= 2 * best[0]
