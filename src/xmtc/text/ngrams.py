"""Word n-grams as pairs (shorter n-gram, next word), and character n-grams within words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.core.cancellation import check
from xmtc.core.string_table import StringTable, string_bytes
from xmtc.text import token_kernels

WORDS_AT_ONCE = 20_000


def pair_key(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the keys of pairs of numbers; no key is 0."""
    keys: NDArray[np.uint64] = ((first.astype(np.uint64) << np.uint64(32)) | last.astype(np.uint64)) + np.uint64(1)
    return keys


def pair_of(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of numbers that belong to keys."""
    pairs = keys - np.uint64(1)
    return (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)


def number_keys(keys: NDArray[np.uint64], table: StringTable, add: bool = True) -> NDArray[np.int32]:
    """Return the numbers of keys in a table, where they are strings of eight bytes; −1 for 0 and, unless `add`, if new.

    So nobody can build texts whose n-grams collide.
    """
    kept = np.flatnonzero(keys)
    numbers = np.full(len(keys), -1, dtype=np.int32)
    lengths = np.full(len(kept), 8, dtype=np.int32)
    numbers[kept] = table.number(keys.view(np.uint8), (8 * kept).astype(np.int32), lengths, add)
    return numbers


def keys_in(table: StringTable) -> NDArray[np.uint64]:
    """Return the keys in a table, by number."""
    data, starts, _ = table.pieces()
    return data[: 8 * len(starts)].view(np.uint64)


def character_ngrams(word: str, shortest: int, longest: int) -> list[str]:
    """Return the character n-grams of a word, with its start and end marked by < and >."""
    marked = f"<{word}>"
    return [
        marked[start : start + length]
        for length in range(shortest, longest + 1)
        for start in range(len(marked) - length + 1)
    ]


def character_parts(
    words: pa.Array,
    range_: tuple[int, ...],
    number: Callable[[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]], NDArray[np.int32]],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the character n-grams of words, numbered by `number`: where those of each word start, and the numbers."""
    shortest, longest = range_
    counts, parts = [np.zeros(1, dtype=np.int64)], [np.empty(0, dtype=np.int32)]
    none = np.empty(0, dtype=np.int32)
    for first in range(0, len(words), WORDS_AT_ONCE):
        check()
        data, ends = _marked(words.slice(first, WORDS_AT_ONCE))
        indptr = np.empty(len(ends), dtype=np.int64)
        count = token_kernels.character_grams(data, ends, shortest, longest, none, none, indptr)
        starts, lengths = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
        token_kernels.character_grams(data, ends, shortest, longest, starts, lengths, indptr)
        counts.append(np.diff(indptr))
        parts.append(number(data, starts, lengths))
    return np.cumsum(np.concatenate(counts)), np.concatenate(parts)


def _marked(words: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of words with < and > around each, and where they end, from 0."""
    data, offsets = string_bytes(words)
    places = np.repeat(offsets - offsets[0], 2)[1:-1]
    marks = np.tile(np.frombuffer(b"<>", dtype=np.uint8), len(words))
    return np.insert(data[offsets[0] : offsets[-1]], places, marks), offsets - offsets[0] + 2 * np.arange(len(offsets))
