"""Search of labels by name while the user types, among millions of labels."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError, DataError
from xmtc.core.jit import inlined, kernel
from xmtc.core.normal_forms import LONG, with_ordered_marks
from xmtc.data.label_index import LabelIndex

_CHUNK = 1 << 15  # strings to fold at a time
_EXACT, _PREFIX, _WORD, _ANYWHERE, _CLASSES = range(5)
_BLOCK = 64  # bytes to compare at a time
_NOTHING = 0xFFFFFFFF  # marks characters to remove
_SAMPLE = 1 << 14  # bytes of the sample that determines rare bytes


@dataclass(frozen=True)
class LabelMatch:
    """A label, and the matching alternative name if its own name did not match."""

    label: int
    alternative: str | None = None


def fold(text: str) -> str:
    """Normalise a text for comparison: case, accents, character variants, quotation marks and spaces."""
    return fold_all([text.encode("utf-8", "replace").decode()])[0]  # unpaired surrogates are replaced


def fold_all(texts: Sequence[str]) -> list[str]:
    """Normalise many texts at once, several times faster than one by one."""
    texts = [with_ordered_marks(text) if len(text) >= LONG and not text.isascii() else text for text in texts]
    joined = "\n".join([text.replace("\n", " ") if "\n" in text else text for text in texts])
    if joined.isascii():
        joined = joined.lower()
    else:
        joined = _bare(joined).casefold()
        joined = joined if unicodedata.is_normalized("NFKD", joined) else _bare(joined)
    return [" ".join(text.split()) for text in joined.split("\n")]


def _bare(text: str) -> str:
    """Decompose characters, and map or remove each by `_alike`."""
    codes = np.frombuffer(unicodedata.normalize("NFKD", text).encode("utf-32-le"), dtype=np.uint32)
    codes = _alike()[codes]
    return str(codes[codes != _NOTHING].tobytes(), "utf-32-le")


@cache
def _alike() -> NDArray[np.uint32]:
    """Return a table (0x110000,) that removes marks and invisible characters and unifies dashes and quotation marks."""
    table = np.arange(sys.maxunicode + 1, dtype=np.uint32)
    for code in range(0x80, 0x20000):
        character = chr(code)
        kind = unicodedata.category(character)
        if kind == "Cf" or unicodedata.combining(character):
            table[code] = _NOTHING
        elif kind == "Pd":
            table[code] = ord("-")
    table[[ord(character) for character in "‘’‚‛‹›ʼ"]] = ord("'")
    table[[ord(character) for character in "“”„‟«»"]] = ord('"')
    return table


class _Strings:
    """Folded strings in one buffer, one per line, in order of preference."""

    def __init__(self, values: pa.ChunkedArray, owners: NDArray[np.int64]) -> None:
        parts = [b"\n"]
        for start in range(0, len(values), _CHUNK):
            folded = fold_all(values.slice(start, _CHUNK).to_pylist())
            parts.append(("\n".join(folded) + "\n").encode())
        self.text = np.frombuffer(b"".join(parts), dtype=np.uint8)  # (B,) UTF-8; a folded string has no line end
        self.starts = np.flatnonzero(self.text == ord("\n")) + 1  # (S + 1,)
        self.owners = owners.astype(np.int32)  # (S,) label of each string; strings of one label are consecutive

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.text.nbytes + self.starts.nbytes + self.owners.nbytes

    def find(self, query: bytes, most: int) -> list[int]:
        """Return the numbers of strings that contain the query, best first: one per label, about `most`."""
        wanted = np.frombuffer(query, dtype=np.uint8)
        found = np.empty((_CLASSES, most), dtype=np.int64)
        filled = np.zeros(_CLASSES, dtype=np.int64)
        parts, places = (self.text, self.starts, self.owners, wanted), self._telling(wanted)
        begin = _scan(*parts, places, True, 0, found, filled)
        begin = _scan(*parts, places, False, begin, found, filled)
        _scan_starts(*parts, begin, found, filled)
        return [int(number) for row, count in zip(found, filled, strict=True) for number in row[:count]]

    def _telling(self, query: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return three positions in the query whose bytes are rare together, by a sample of a few hundred strings."""
        places = np.unique(np.linspace(0, len(query) - 1, 32).astype(np.int64))
        sample = self.text[len(self.text) // 2 :][: _SAMPLE + len(query)]
        size = max(len(sample) - len(query), 0)
        held = np.array([sample[place : place + size] == query[place] for place in places])
        chosen = []
        for _ in range(3):
            chosen.append(int(np.argmin(held.sum(1))))
            held &= held[chosen[-1]]
        return places[chosen]


class LabelSearch:
    """Search of labels by parts of their names, then of their keys and alternatives.

    Results are ordered by quality of the match (exact, prefix, start of a word, anywhere), then by number of documents,
    then by label number. The index is immutable, and searching releases the interpreter lock.
    """

    def __init__(self, labels: LabelIndex, counts: NDArray[np.int64] | None = None) -> None:
        if counts is not None and len(counts) != len(labels):
            raise DataError(f"{len(labels):,} labels but {len(counts):,} counts. Pass one count per label.")
        total = len(labels)
        order = np.arange(total) if counts is None else np.argsort(-np.asarray(counts, np.int64), kind="stable")
        self._order = order.astype(np.int32)  # (L,) labels, most frequent first
        self._names = _Strings(labels.table["name"].take(pa.array(order)), order)
        rank = np.empty(total, dtype=np.int32)
        rank[order] = np.arange(total)
        self._others, self._sources = _other_names(labels, rank)
        self._alternatives = labels.table["alternatives"].combine_chunks()
        self.find("é")  # loads the kernels and the table in advance

    @property
    def nbytes(self) -> int:
        """Memory in bytes, without the labels themselves."""
        return self._names.nbytes + self._others.nbytes + self._sources.nbytes + self._order.nbytes

    def find(self, query: str, limit: int = 20) -> tuple[list[LabelMatch], bool]:
        """Return the best `limit` labels for a query (most frequent for an empty one), and whether there are more."""
        if limit < 1:
            raise ConfigError(f"'limit' must be an integer ≥ 1. Got {limit}.")
        limit = min(limit, len(self._order))
        folded = fold(query).encode()
        if not folded:
            return [LabelMatch(int(label)) for label in self._order[:limit]], len(self._order) > limit
        found = {
            int(self._names.owners[number]): LabelMatch(int(self._names.owners[number]))
            for number in self._names.find(folded, limit + 1)
        }
        if len(found) <= limit:  # all matches by name; other labels can only match by another name
            for number in self._others.find(folded, limit + 1 + len(found)):
                label = int(self._others.owners[number])
                if label not in found:
                    found[label] = LabelMatch(label, self._alternative(number))
        return list(found.values())[:limit], len(found) > limit

    def _alternative(self, number: int) -> str | None:
        """Return the original alternative name; None for a key."""
        source = int(self._sources[number])
        return None if source < 0 else str(self._alternatives.values[source].as_py())


def _other_names(labels: LabelIndex, rank: NDArray[np.int32]) -> tuple[_Strings, NDArray[np.int32]]:
    """Return keys that differ from names, and alternatives; and the position of each alternative, −1 for a key."""
    keys, names = labels.table["key"], labels.table["name"]
    unlike = np.flatnonzero(np.asarray(pc.not_equal(keys, names)))
    alternatives = labels.table["alternatives"].combine_chunks()
    offsets = np.asarray(alternatives.offsets)
    inside = np.arange(offsets[0], offsets[-1]) if len(offsets) else np.empty(0, np.int64)
    owners = np.concatenate([unlike, np.repeat(np.arange(len(labels)), np.diff(offsets))]).astype(np.int64)
    sources = np.concatenate([np.full(len(unlike), -1), inside]).astype(np.int32)
    order = np.argsort(rank[owners], kind="stable")
    strings = list(chain(keys.take(pa.array(unlike)).chunks, [alternatives.values.take(pa.array(inside))]))
    values = pa.chunked_array(strings, pa.string()).take(pa.array(order))
    return _Strings(values, owners[order]), sources[order]


@inlined
def _skipped(text: NDArray[np.uint8], at: int, end: int, query: NDArray[np.uint8], places: NDArray[np.int64]) -> int:
    """Return the start of the first block with matching bytes at three positions of the query.

    Unsigned numbers and a constant length allow the compiler to use SIMD, here and below.
    """
    x, y, z = query[places[0]], query[places[1]], query[places[2]]
    while at + _BLOCK <= end:
        a, b, c = np.uint64(at + places[0]), np.uint64(at + places[1]), np.uint64(at + places[2])
        seen = np.uint8(0)
        for i in range(np.uint64(_BLOCK)):
            seen |= np.uint8(text[a + i] == x) & np.uint8(text[b + i] == y) & np.uint8(text[c + i] == z)
        if seen:
            break
        at += _BLOCK
    return at


@inlined
def _skipped_to_word(
    text: NDArray[np.uint8], at: int, end: int, query: NDArray[np.uint8], places: NDArray[np.int64]
) -> int:
    """Do the same, but only at the start of a word."""
    x, y, z = query[places[0]], query[places[1]], query[places[2]]
    while at + _BLOCK <= end:
        a, b, c = np.uint64(at + places[0]), np.uint64(at + places[1]), np.uint64(at + places[2])
        seen, d = np.uint8(0), np.uint64(at - 1)
        for i in range(np.uint64(_BLOCK)):
            before = text[d + i]
            apart = np.uint8(np.uint8(before - np.uint8(48)) > np.uint8(9))
            apart &= np.uint8(np.uint8(before - np.uint8(97)) > np.uint8(25)) & np.uint8(before < np.uint8(128))
            seen |= np.uint8(text[a + i] == x) & np.uint8(text[b + i] == y) & np.uint8(text[c + i] == z) & apart
        if seen:
            break
        at += _BLOCK
    return at


@inlined
def _holds(text: NDArray[np.uint8], at: int, query: NDArray[np.uint8]) -> bool:
    i = 0
    while i < len(query) and text[at + i] == query[i]:
        i += 1
    return i == len(query)


@inlined
def _begins_word(text: NDArray[np.uint8], at: int) -> bool:
    """Whether the previous character is ASCII and neither a letter nor a digit."""
    before = text[at - 1]
    return before < 0x80 and not (48 <= before <= 57 or 97 <= before <= 122)


@inlined
def _add(number: int, kind: int, found: NDArray[np.int64], filled: NDArray[np.int64]) -> None:
    if filled[kind] < found.shape[1]:
        found[kind, filled[kind]] = number
        filled[kind] += 1


@kernel(outputs=("found", "filled"))
def _scan(
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    owners: NDArray[np.int32],
    query: NDArray[np.uint8],
    places: NDArray[np.int64],
    inside: bool,
    begin: int,
    found: NDArray[np.int64],
    filled: NDArray[np.int64],
) -> int:
    """Find strings with the query at the start of a word, or also `inside` one: one per label, in its best class.

    Start at string number `begin`, stop when further matches of this class are not needed, and return the first
    remaining string. Most blocks are skipped because the bytes at three `places` of the query are rare together.
    """
    size, first, second = len(query), np.uint64(places[0]), np.uint64(places[1])
    one, other = query[first], query[second]
    worst = _ANYWHERE if inside else _WORD
    at, end = starts[begin], len(text) - size  # the last byte is a line end, which never occurs in a query
    number, best, best_class = begin, -1, _CLASSES
    while at < end:
        at = _skipped(text, at, end, query, places) if inside else _skipped_to_word(text, at, end, query, places)
        stop = min(at + _BLOCK, end)
        while at < stop:
            here = np.uint64(at)
            at += 1
            if text[here + first] != one or text[here + second] != other:
                continue
            if not _holds(text, at - 1, query):
                continue
            while starts[number + 1] < at:
                number += 1
            if best >= 0 and owners[best] != owners[number]:
                _add(best, best_class, found, filled)
                best, best_class = -1, _CLASSES
                if filled[: worst + 1].sum() >= found.shape[1]:
                    return number
            kind = _ANYWHERE
            if at - 1 == starts[number]:
                kind = _EXACT if at + size == starts[number + 1] else _PREFIX
            elif best_class > _WORD and _begins_word(text, at - 1):
                kind = _WORD
            if kind < best_class and kind <= worst:
                best, best_class = number, kind
            if kind <= _WORD:  # no better match can follow in this string
                at = starts[number + 1]
    if best >= 0:
        _add(best, best_class, found, filled)
    return len(owners)


@kernel(outputs=("found", "filled"))
def _scan_starts(
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    owners: NDArray[np.int32],
    query: NDArray[np.uint8],
    begin: int,
    found: NDArray[np.int64],
    filled: NDArray[np.int64],
) -> None:
    """Find strings that start with or equal the query, from number `begin`: one per label, in its best class."""
    best, best_class = -1, _CLASSES
    for number in range(begin, len(owners)):
        longer = starts[number + 1] - starts[number] - 1 - len(query)
        if longer < 0 or (longer > 0 and filled[_EXACT] + filled[_PREFIX] >= found.shape[1]):
            continue
        if text[starts[number]] != query[0] or not _holds(text, starts[number], query):
            continue
        if best >= 0 and owners[best] != owners[number]:
            _add(best, best_class, found, filled)
            best, best_class = -1, _CLASSES
        kind = _PREFIX if longer else _EXACT
        if kind < best_class:
            best, best_class = number, kind
    if best >= 0:
        _add(best, best_class, found, filled)
