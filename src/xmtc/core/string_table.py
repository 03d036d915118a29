"""Numbering of strings by their bytes, with a keyed hash: nobody without the key can build strings that collide.

Arrow's hash tables (`dictionary_encode`, `index_in`, `unique`) have a fixed hash, so that strings can be chosen for
which they take quadratic time. Texts of strangers are numbered here instead.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.core.jit import inlined, kernel

MAX_PROBES = 1 << 12
"""Slots to search for one string, ten times more than chance ever needs; beyond, another key is drawn."""


class _Key:
    """The key of this process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.words = np.uint64(secrets.randbits(64)), np.uint64(secrets.randbits(64))


_key = _Key()


@inlined
def _mixed(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any, Any, Any]:
    """One round of SipHash."""
    a += b
    c += d
    b = ((b << np.uint64(13)) | (b >> np.uint64(51))) ^ a
    d = ((d << np.uint64(16)) | (d >> np.uint64(48))) ^ c
    a = (a << np.uint64(32)) | (a >> np.uint64(32))
    c += b
    a += d
    b = ((b << np.uint64(17)) | (b >> np.uint64(47))) ^ c
    d = ((d << np.uint64(21)) | (d >> np.uint64(43))) ^ a
    c = (c << np.uint64(32)) | (c >> np.uint64(32))
    return a, b, c, d


@inlined
def _hashed(data: NDArray[np.uint8], start: Any, length: Any, key: Any, second_key: Any) -> tuple[Any, Any]:
    """SipHash-1-3 of some bytes, and the last word that enters it: up to seven bytes and the length."""
    a, b = key ^ np.uint64(0x736F6D6570736575), second_key ^ np.uint64(0x646F72616E646F6D)
    c, d = key ^ np.uint64(0x6C7967656E657261), second_key ^ np.uint64(0x7465646279746573)
    at, rest, word = np.uint64(start), length, np.uint64(0)
    while rest >= 0:
        word = np.uint64(0)
        if np.int64(at) + 8 <= len(data):  # one load: unsigned indices do not count from the end
            for i in range(8):
                word |= np.uint64(data[at + np.uint64(i)]) << np.uint64(8 * i)
        else:
            for i in range(rest):
                word |= np.uint64(data[at + np.uint64(i)]) << np.uint64(8 * i)
        if rest < 8:
            word = (word & ((np.uint64(1) << np.uint64(8 * rest)) - np.uint64(1))) | (
                np.uint64(length) << np.uint64(56)
            )
        d ^= word
        a, b, c, d = _mixed(a, b, c, d)
        a ^= word
        at += np.uint64(8)
        rest -= 8
    c ^= np.uint64(0xFF)
    for _ in range(3):
        a, b, c, d = _mixed(a, b, c, d)
    return a ^ b ^ c ^ d, word


@kernel(outputs=("ids", "first"))
def _number(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],  # first byte of each string
    lengths: NDArray[np.int32],  # bytes of each string
    key: Any,  # uint64
    second_key: Any,  # uint64
    most: int,  # slots to search
    ids: NDArray[np.int32],  # out: number of each string
    first: NDArray[np.int32],  # out: first string of each number
) -> int:
    """Number the distinct strings by first occurrence; return how many there are, −1 if a search took too long."""
    hashes = np.empty(len(starts), np.uint64)  # of each number
    tails = np.empty(len(starts), np.uint64)  # last words
    size, used, string = 1024, 0, 0
    while string < len(starts):
        slots = np.full(size, -1, np.int32)  # open addressing: slot → number; few numbers fit into a small cache
        mask = np.uint64(size - 1)
        for number in range(used):
            slot = hashes[number] & mask
            while slots[slot] >= 0:
                slot = (slot + np.uint64(1)) & mask
            slots[slot] = number
        while string < len(starts) and 2 * used <= size:
            start, length = starts[string], np.int64(lengths[string])
            hashed, tail = _hashed(data, start, length, key, second_key)
            slot = hashed & mask
            entry = np.int32(-1)
            for _ in range(most):
                entry = slots[slot]
                if entry < 0:
                    entry = np.int32(used)
                    first[used] = string
                    hashes[used] = hashed
                    tails[used] = tail
                    slots[slot] = entry
                    used += 1
                    break
                if hashes[entry] == hashed and tails[entry] == tail and lengths[first[entry]] == length:
                    known = starts[first[entry]]
                    same = True
                    for i in range(length & ~7):
                        if data[known + i] != data[start + i]:
                            same = False
                            break
                    if same:
                        break
                entry = np.int32(-1)
                slot = (slot + np.uint64(1)) & mask
            if entry < 0:
                return -1
            ids[string] = entry
            string += 1
        size *= 4
    return used


def number_bytes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number distinct pieces of `data` by first occurrence; return the number of each, and the first of each number.

    The result does not depend on the key.
    """
    ids, first = np.empty(len(starts), dtype=np.int32), np.empty(len(starts), dtype=np.int32)
    while (used := _number(data, starts, lengths, *_key.words, MAX_PROBES, ids, first)) < 0:
        _key.renew()
    return ids, first[:used]


def number_strings(strings: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number distinct strings by first occurrence; return the number of each, and the first of each number."""
    wide = pa.types.is_large_string(strings.type)
    _, offsets_buffer, data_buffer = strings.buffers()
    if offsets_buffer is None or not len(strings):
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64 if wide else np.int32)
    offsets = offsets[strings.offset : strings.offset + len(strings) + 1]
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)
    return number_bytes(data, offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int32))


def places(wanted: pa.Array, known: pa.Array) -> NDArray[np.int32]:
    """Return the position of each wanted string among the known ones, −1 if it is missing."""
    ids, first = number_strings(pa.concat_arrays([known, wanted]))
    found = first[ids[len(known) :]]
    return np.where(found < len(known), found, np.int32(-1))


class StringNumbers:
    """Numbering of the distinct strings of consecutive parts, in order of first occurrence.

    Parts are buffered until they are as large as all distinct strings and then merged, so work is proportional to the
    parts and memory to the distinct strings.
    """

    def __init__(self) -> None:
        self.strings: pa.Array = pa.array([], pa.large_string())  # may exceed 2 GiB in total
        self.numbers: list[NDArray[np.int32]] = []
        """For each part: number of each of its strings; complete after `settle`."""
        self._waiting: list[pa.Array] = []

    def add(self, strings: pa.Array) -> None:
        """Add a part, whose strings are distinct."""
        self._waiting.append(strings)
        if sum(map(len, self._waiting)) > max(len(self.strings), 1 << 18):
            self.settle()

    def settle(self) -> None:
        """Number the strings of all parts."""
        wide = [part.cast(pa.large_string()) for part in self._waiting]
        if len(self.strings) or len(wide) > 1:
            joined = pa.concat_arrays([self.strings, *wide])
            numbers, first = number_strings(joined)  # known strings keep their numbers
            ends = np.cumsum([len(self.strings), *map(len, wide)])
            self.numbers += [part.copy() for part in np.split(numbers, ends[:-1])[1:]]
            self.strings = joined.take(pa.array(first))
        elif wide:
            self.strings = wide[0]
            self.numbers.append(np.arange(len(self.strings), dtype=np.int32))
        self._waiting = []
