"""Numbering of strings by their bytes, with a keyed hash: nobody without the key can build strings that collide.

Arrow's hash tables (`dictionary_encode`, `index_in`, `unique`) have a fixed hash, so that strings can be chosen for
which they take quadratic time. Texts of strangers are numbered here instead.
"""

from __future__ import annotations

import secrets
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from xmtc.core.jit import called, kernel

MAX_PROBES = 1 << 12
"""Slots to search for one string, ten times more than chance ever needs; beyond, another key is drawn."""
PADDING = 16
"""Bytes after the strings of a table, so that words of eight bytes are loaded without a check."""
_RECENT = 1 << 13
"""Slots for short strings that are found again without hashing them with the key."""
_START = 1 << 14
"""Maximum number of strings that a table has room for at first."""
_BATCH_BYTES = 1 << 30
"""Bytes of strings to number at a time."""


class _Key:
    """The key of this process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.words = np.uint64(secrets.randbits(64)), np.uint64(secrets.randbits(64))


_key = _Key()


@called
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


def _loaded(_: Any, data: Any, at: Any) -> Any:
    """Load eight bytes in one step, which compiles faster than a loop."""
    signature = types.uint64(data, types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        loaded = builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()))
        loaded.align = 1
        return loaded

    return signature, generate


def _checked_word(data: Any, at: Any) -> Any:
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(data[at + np.uint64(i)]) << np.uint64(8 * i)
    return word


# numba's own checks do not cover LLVM code
_word: Any = called(_checked_word) if getattr(numba.config, "BOUNDSCHECK", None) else intrinsic(_loaded)


@called
def _hashed(data: NDArray[np.uint8], start: Any, length: Any, key: Any, second_key: Any) -> Any:
    """SipHash-1-3 of some bytes."""
    a, b = key ^ np.uint64(0x736F6D6570736575), second_key ^ np.uint64(0x646F72616E646F6D)
    c, d = key ^ np.uint64(0x6C7967656E657261), second_key ^ np.uint64(0x7465646279746573)
    at, rest = np.uint64(start), length
    while rest >= 0:
        if np.int64(at) + 8 <= len(data):
            word = _word(data, at)
        else:
            word = np.uint64(0)
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
    return a ^ b ^ c ^ d


@called
def _hashed_pair(first: Any, second: Any, key: Any, second_key: Any) -> Any:
    """SipHash-1-3 of two words that contain a string and its length."""
    a, b = key ^ np.uint64(0x736F6D6570736575), second_key ^ np.uint64(0x646F72616E646F6D)
    c, d = key ^ np.uint64(0x6C7967656E657261), second_key ^ np.uint64(0x7465646279746573)
    a, b, c, d = _mixed(a, b, c, d ^ first)
    a ^= first
    a, b, c, d = _mixed(a, b, c, d ^ second)
    a ^= second
    c ^= np.uint64(0xFF)
    for _ in range(3):
        a, b, c, d = _mixed(a, b, c, d)
    return a ^ b ^ c ^ d


@kernel(outputs=("slots", "ends", "text", "recent", "ids"))
def _number(
    data: NDArray[np.uint8],
    starts: NDArray[np.int32],  # first byte of each string
    lengths: NDArray[np.int32],  # bytes of each string
    key: Any,  # uint64
    second_key: Any,  # uint64
    most: int,  # slots to search
    used: int,  # strings in the table; −1 − used if no string is to be added
    smaller: NDArray[np.uint64],  # slots to fill in first
    slots: NDArray[np.uint64],  # open addressing: 32 bits of the hash, the number plus one; 0 is free
    ends: NDArray[np.int64],  # (capacity + 1,) where the strings of the table end, from 0
    text: NDArray[np.uint8],  # bytes of the strings, and padding
    recent: NDArray[np.uint64],  # (slots, 4) of strings of up to 15 bytes: bytes, with the length; number plus one
    ids: NDArray[np.int32],  # out: number of each string, −1 if unknown
) -> tuple[int, int]:
    """Number strings until the table is full; return how many were, −1 if a search took too long, and the new `used`.

    Most strings of a text are found in `recent`, which has one slot for each string and so takes equally long for any
    strings; the others are hashed with the key.
    """
    add = used >= 0
    if not add:
        used = -1 - used
    mask = np.uint64(len(slots) - 1)
    shift = np.uint64(32)
    while (np.uint64(1) << (np.uint64(32) - shift)) <= mask:
        shift -= np.uint64(1)
    for i in range(len(smaller)):
        if smaller[i]:
            slot = (smaller[i] >> np.uint64(32)) >> shift
            while slots[slot]:
                slot = (slot + np.uint64(1)) & mask
            slots[slot] = smaller[i]
    recent_mask = np.uint64(len(recent) - 1)
    full = np.uint64(0xFFFFFFFFFFFFFFFF)
    string = 0
    while string < len(starts):
        start, length = np.uint64(starts[string]), np.int64(lengths[string])
        is_short = length < 16
        first_mask, second_mask, first, second, place = full, full, np.uint64(0), np.uint64(0), np.uint64(0)
        if is_short:
            if length < 8:
                first_mask, second_mask = (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1), np.uint64(0)
            else:
                second_mask = (np.uint64(1) << np.uint64(8 * length - 64)) - np.uint64(1)
            if np.int64(start) + 16 <= len(data):
                first, second = _word(data, start) & first_mask, _word(data, start + np.uint64(8)) & second_mask
            else:
                for i in range(length):
                    byte = np.uint64(data[start + np.uint64(i)]) << np.uint64(8 * (i & 7))
                    if i < 8:
                        first |= byte
                    else:
                        second |= byte
            second |= np.uint64(length + 1) << np.uint64(56)
            place = (first ^ (second * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xD6E8FEB86659FD93)
            place = (place >> np.uint64(40)) & recent_mask
            if recent[place, 0] == first and recent[place, 1] == second:
                ids[string] = np.int32(recent[place, 2])
                string += 1
                continue
            tag = _hashed_pair(first, second, key, second_key)
        else:
            tag = _hashed(data, start, length, key, second_key)
        tag >>= np.uint64(32)
        slot = tag >> shift
        number = np.int64(-2)
        for _ in range(most):
            entry = slots[slot]
            if entry == 0:
                number = np.int64(-1)
                break
            if entry >> np.uint64(32) == tag:
                number = np.int64(entry & np.uint64(0xFFFFFFFF)) - 1
                known = np.uint64(ends[number])
                if ends[number + 1] - np.int64(known) == length:
                    if is_short:
                        if ((_word(text, known) & first_mask) == first) and (
                            (_word(text, known + np.uint64(8)) ^ second) & second_mask
                        ) == 0:
                            break
                    else:
                        at = np.uint64(0)
                        while at < np.uint64(length) and text[known + at] == data[start + at]:
                            at += np.uint64(1)
                        if at == np.uint64(length):
                            break
                number = np.int64(-2)
            slot = (slot + np.uint64(1)) & mask
        if number == -2:
            return -1, used
        if number < 0 and add:
            end = ends[used]
            if used + 1 >= len(ends) or end + length + 16 > len(text):
                break
            number = np.int64(used)
            if is_short:
                for i in range(8):
                    text[np.uint64(end + i)] = np.uint8((first >> np.uint64(8 * i)) & np.uint64(255))
                    text[np.uint64(end + 8 + i)] = np.uint8((second >> np.uint64(8 * i)) & np.uint64(255))
            else:
                for i in range(length):
                    text[np.uint64(end + i)] = data[start + np.uint64(i)]
            used += 1
            ends[used] = end + length
            slots[slot] = (tag << np.uint64(32)) | np.uint64(used)
        if is_short and number >= 0:
            recent[place, 0] = first
            recent[place, 1] = second
            recent[place, 2] = np.uint64(number)
        ids[string] = number
        string += 1
    return string, used


Pieces = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]
"""Bytes, and the start and length of each string in them."""


class StringTable:
    """Numbers the distinct strings that are added to it, by first occurrence; the numbers do not depend on the key.

    Memory is proportional to the distinct strings, whose bytes the table holds.
    """

    def __init__(self, expected: int = _START) -> None:
        """Create an empty table; it grows when more than the `expected` strings are added."""
        room = 1 << max(2, (min(expected, _START) - 1).bit_length())
        self._ends = np.zeros(room + 1, dtype=np.int64)
        self._text = np.empty(8 * room + PADDING, dtype=np.uint8)
        self._slots = np.empty(2 * room, dtype=np.uint64)
        self._recent = np.empty((min(_RECENT, room), 4), dtype=np.uint64)
        self.clear()

    def __len__(self) -> int:
        return self._used

    def clear(self) -> None:
        """Remove all strings; the room for them is kept."""
        self._used = 0
        self._key = _key.words
        self._slots.fill(0)
        self._recent.fill(0)

    def number(
        self, data: NDArray[np.uint8], starts: NDArray[np.int32], lengths: NDArray[np.int32], add: bool = True
    ) -> NDArray[np.int32]:
        """Return the numbers of pieces of `data`. Unknown pieces get the next numbers, or −1 unless `add`."""
        ids = np.empty(len(starts), dtype=np.int32)
        done, smaller = 0, self._slots[:0]
        if not add:  # several threads may search at a time
            recent = np.zeros((1, 4), dtype=np.uint64)
            self._call(data, starts, lengths, len(self._slots), -1 - self._used, smaller, recent, ids)
            return ids
        while True:
            rest = data, starts[done:], lengths[done:]
            count, self._used = self._call(*rest, MAX_PROBES, self._used, smaller, self._recent, ids[done:])
            smaller = self._slots[:0]
            if count < 0:
                self._draw_another_key()
                continue
            done += count
            if done == len(starts):
                return ids
            if self._used + 1 == len(self._ends):
                smaller, self._slots = self._slots, np.zeros(4 * len(self._slots), dtype=np.uint64)
                self._ends = _grown(self._ends, 4 * self._used + 1)
            else:
                self._text = _grown(self._text, 2 * len(self._text) + int(lengths[done]))

    def number_strings(self, strings: pa.Array, add: bool = True) -> NDArray[np.int32]:
        """Return the numbers of an array of strings. Unknown ones get the next numbers, or −1 unless `add`."""
        data, offsets = string_bytes(strings)
        parts, start = [np.empty(0, dtype=np.int32)], 0
        while start < len(strings):
            stop = int(np.searchsorted(offsets, offsets[start] + _BATCH_BYTES, side="right")) - 1
            stop = max(start + 1, stop)
            own = offsets[start : stop + 1] - offsets[start]
            parts.append(
                self.number(data[offsets[start] :], own[:-1].astype(np.int32), np.diff(own).astype(np.int32), add)
            )
            start = stop
        return parts[1] if len(parts) == 2 else np.concatenate(parts)

    def pieces(self) -> Pieces:
        """Return the strings in order: their bytes with padding, and the start and length of each."""
        ends = self._ends[: self._used + 1]
        text = self._text[: ends[-1] + PADDING].copy()
        return text, ends[:-1].astype(np.int32), np.diff(ends).astype(np.int32)

    def strings(self) -> pa.Array:
        """Return the strings in order."""
        ends = self._ends[: self._used + 1]
        text = pa.py_buffer(self._text[: ends[-1]].copy())
        if ends[-1] < 1 << 31:
            return pa.StringArray.from_buffers(self._used, pa.py_buffer(ends.astype(np.int32)), text)
        return pa.LargeStringArray.from_buffers(self._used, pa.py_buffer(ends.copy()), text)

    def _call(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int32],
        lengths: NDArray[np.int32],
        most: int,
        used: int,
        smaller: NDArray[np.uint64],
        recent: NDArray[np.uint64],
        ids: NDArray[np.int32],
    ) -> tuple[int, int]:
        key, second_key = self._key
        return _number(
            data,
            starts,
            lengths,
            key,
            second_key,
            most,
            used,
            smaller,
            self._slots,
            self._ends,
            self._text,
            recent,
            ids,
        )

    def _draw_another_key(self) -> None:
        """Rearrange the strings under another key."""
        _key.renew()
        pieces = self.pieces()
        self.clear()
        self.number(*pieces)


def string_bytes(strings: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of an array of strings, and the offsets (n + 1,) of the strings in them."""
    _, offsets, data = strings.buffers()
    if offsets is None:
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    kind = np.int64 if pa.types.is_large_string(strings.type) else np.int32
    edges = np.frombuffer(offsets, dtype=kind)[strings.offset : strings.offset + len(strings) + 1]
    return np.frombuffer(data or b"", dtype=np.uint8), edges.astype(np.int64)


def number_strings(strings: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number distinct strings by first occurrence; return the number of each, and the first of each number."""
    ids = StringTable(len(strings)).number_strings(strings)
    highest = np.maximum.accumulate(np.append(np.int32(-1), ids))
    return ids, np.flatnonzero(highest[1:] > highest[:-1]).astype(np.int32)


def places(wanted: pa.Array, known: pa.Array) -> NDArray[np.int32]:
    """Return the position of each wanted string among the known ones, −1 if it is missing."""
    return StringIndex(known).places(wanted)


class StringIndex:
    """The positions of known strings, for several threads."""

    def __init__(self, known: pa.Array) -> None:
        self._table = StringTable(len(known))
        numbers = self._table.number_strings(known)
        self._first = np.empty(len(self._table) + 1, dtype=np.int32)  # position of each number
        self._first[numbers[::-1]] = np.arange(len(known) - 1, -1, -1, dtype=np.int32)
        self._first[-1] = -1

    def places(self, wanted: pa.Array) -> NDArray[np.int32]:
        """Return the position of each wanted string, of the first if several are equal; −1 if it is missing."""
        return self._first[self._table.number_strings(wanted, add=False)]

    def places_of(
        self, data: NDArray[np.uint8], starts: NDArray[np.int32], lengths: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Return the same for pieces of `data`."""
        return self._first[self._table.number(data, starts, lengths, add=False)]


def _grown(array: Any, size: int) -> Any:
    larger = np.empty(size, dtype=array.dtype)
    larger[: len(array)] = array
    return larger
