"""Numbered 64-bit keys of words and character n-grams, which compiled kernels look up without strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import inlined, kernel

_BUCKETS = 1 << 16  # buckets by the first 16 bits of a key; the keys of one bucket are searched


class KeyTable(NamedTuple):
    """Ascending keys; the number of a key is its position."""

    keys: NDArray[np.uint64]
    starts: NDArray[np.int64]  # (65,537,) where the keys of each bucket start

    @classmethod
    def of(cls, keys: NDArray[np.uint64]) -> KeyTable:
        """Number the distinct keys."""
        return cls.sorted(np.unique(keys))

    @classmethod
    def sorted(cls, keys: NDArray[np.uint64]) -> KeyTable:
        """Wrap keys that are ascending and distinct."""
        firsts = np.arange(_BUCKETS, dtype=np.uint64) << np.uint64(48)
        return cls(keys, np.append(np.searchsorted(keys, firsts), len(keys)).astype(np.int64))

    def __len__(self) -> int:
        return len(self.keys)

    def numbers(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the number of each key, −1 if it is unknown."""
        return _numbers(keys, self.keys, self.starts)


def code_points(words: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Concatenate the code points of words; return them with the offsets of the words."""
    joined = "".join(words)
    offsets = np.zeros(len(words) + 1, dtype=np.int64)
    np.cumsum([len(word) for word in words], out=offsets[1:])
    return np.frombuffer(joined.encode("utf-32-le", "replace"), dtype=np.uint32), offsets


@inlined
def mixed(key: Any, code: Any) -> Any:
    """Add a code point to a key."""
    key = (key ^ np.uint64(code)) * np.uint64(0x9E3779B97F4A7C15)
    return key ^ (key >> np.uint64(29))


@inlined
def finished(key: Any) -> Any:
    """Spread a key evenly over 64 bits."""
    key = (key ^ (key >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return key ^ (key >> np.uint64(32))


@inlined
def find(key: Any, keys: NDArray[np.uint64], starts: NDArray[np.int64]) -> Any:
    """Return the number of a key, −1 if it is unknown."""
    bucket = np.int64(key >> np.uint64(48))
    low, high = starts[bucket], starts[bucket + 1]
    end = high
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return np.int32(low) if low < end and keys[low] == key else np.int32(-1)


@kernel()
def _numbers(keys: NDArray[np.uint64], known: NDArray[np.uint64], starts: NDArray[np.int64]) -> NDArray[np.int32]:
    out = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        out[i] = find(keys[i], known, starts)
    return out


@kernel()
def word_keys(codes: NDArray[np.uint32], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the key of each word."""
    out = np.empty(len(offsets) - 1, np.uint64)
    for word in range(len(out)):
        key = np.uint64(7)
        for i in range(offsets[word], offsets[word + 1]):
            key = mixed(key, codes[i])
        out[word] = finished(key)
    return out


@inlined
def _is_unspaced(code: Any) -> Any:
    """Return whether a character is of a script without spaces between words: Thai, Lao, Burmese, Khmer, Kana, Han."""
    if code < 0x0E00:
        return False
    southern = code < 0x0F00 or 0x1000 <= code < 0x10A0 or 0x1780 <= code < 0x1800
    return southern or 0x3040 <= code < 0x3100 or 0x3400 <= code < 0xA000 or 0x20000 <= code < 0x40000


@kernel()
def gram_keys(
    codes: NDArray[np.uint32], offsets: NDArray[np.int64], shortest: int, longest: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the keys of the character n-grams of each word, which is padded with one space on either side.

    A word shorter than an n-gram has itself as its only n-gram. In scripts without spaces between words, a name is
    seldom a word of its own: any two characters side by side are an n-gram, too.
    """
    words = len(offsets) - 1
    room = (len(codes) + 3 * words) * (longest - shortest + 1) + len(codes)
    indptr, out, count = np.zeros(words + 1, np.int64), np.empty(room, np.uint64), 0
    for word in range(words):
        start, size = offsets[word], offsets[word + 1] - offsets[word] + 2
        for n in range(shortest, longest + 1):
            if size < n and n > shortest:
                break
            for first in range(max(size - n, 0) + 1):
                key = np.uint64(11)
                for i in range(first, min(first + n, size)):
                    is_space = i == 0 or i == size - 1
                    key = mixed(key, np.uint32(32) if is_space else codes[start + i - 1])
                out[count] = finished(key)
                count += 1
        for i in range(start + 1, offsets[word + 1]):
            if _is_unspaced(codes[i - 1]) and _is_unspaced(codes[i]):
                out[count] = finished(mixed(mixed(np.uint64(11), codes[i - 1]), codes[i]))
                count += 1
        indptr[word + 1] = count
    return indptr, out[:count].copy()
