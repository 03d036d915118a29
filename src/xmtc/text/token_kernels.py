"""Compiled kernels over UTF-8 bytes and token numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import inlined, kernel


@inlined
def _continued(data: NDArray[np.uint8], at: Any, after: int) -> Any:
    """Return the six bits of a continuation byte."""
    return np.int64(data[at + np.uint64(after)]) & 0x3F


@inlined
def _code_point(data: NDArray[np.uint8], at: Any, first: Any) -> tuple[Any, int]:
    """Decode the code point that starts at a non-ASCII byte; return it with its length."""
    if first < 0xE0:
        return ((first & 0x1F) << 6) | _continued(data, at, 1), 2
    if first < 0xF0:
        return ((first & 0x0F) << 12) | (_continued(data, at, 1) << 6) | _continued(data, at, 2), 3
    return (
        ((first & 0x07) << 18)
        | (_continued(data, at, 1) << 12)
        | (_continued(data, at, 2) << 6)
        | _continued(data, at, 3)
    ), 4


@kernel(outputs=("kinds", "edges", "starts", "lengths", "indptr"))
def split_words(
    data: NDArray[np.uint8],  # UTF-8 bytes of all documents of the block
    offsets: NDArray[np.int32],  # (n + 1,) where documents start in it
    classes: NDArray[np.uint8],  # (0x110000,) of tokens.py
    kinds: NDArray[np.uint8],  # buffer for the bytes of the longest document, and one more
    edges: NDArray[np.int32],  # buffer of the same length
    starts: NDArray[np.int32],  # out: first byte of each token
    lengths: NDArray[np.int32],  # out: bytes of each token
    indptr: NDArray[np.int64],  # out: (n + 1,) where the tokens of documents start
) -> None:
    """Find the tokens of each document: runs of word characters and the marks that follow them.

    Branches per byte would cost more than the rest: ASCII bytes are classified sixteen and more at a time, and the
    next edge of a token is overwritten by each byte until one differs in kind from the byte before.
    """
    total = np.uint64(0)
    indptr[0] = 0
    for document in range(len(offsets) - 1):
        begin = np.uint64(offsets[document])  # an unsigned index is never counted from the end
        size = np.uint64(offsets[document + 1]) - begin
        for i in range(size):
            byte = data[begin + i]
            is_letter = np.uint8((byte | np.uint8(32)) - np.uint8(97)) < np.uint8(26)
            is_digit = np.uint8(byte - np.uint8(48)) < np.uint8(10)
            kinds[i] = np.uint8(is_letter | is_digit | (byte == np.uint8(95)))
        at = np.uint64(0)
        while at < size:
            stop = min(at + np.uint64(8), size)
            if stop == at + np.uint64(8):
                highest = np.uint8(0)
                for i in range(8):
                    highest |= data[begin + at + np.uint64(i)]
                if highest < 0x80:
                    at = stop
                    continue
            while at < stop:
                code = np.int64(data[begin + at])
                if code < 0x80:
                    at += np.uint64(1)
                    continue
                code, width = _code_point(data, begin + at, code)
                kind = classes[code]
                if kind == 2:
                    kind = kinds[at - np.uint64(1)] if at > 0 else np.uint8(0)
                for _ in range(width):
                    kinds[at] = kind
                    at += np.uint64(1)
        kinds[size] = 0
        before, count = np.uint8(0), np.uint64(0)
        for i in range(size + np.uint64(1)):
            edges[count] = np.int32(begin + i)
            count += np.uint64(kinds[i] ^ before)
            before = kinds[i]
        count >>= np.uint64(1)
        for i in range(count):
            starts[total + i] = edges[np.uint64(2) * i]
            lengths[total + i] = edges[np.uint64(2) * i + np.uint64(1)] - edges[np.uint64(2) * i]
        total += count
        indptr[document + 1] = total


@kernel()
def map_tokens(
    indptr: NDArray[np.int64], ids: NDArray[Any], numbers: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Renumber the tokens of each document; tokens with number −1 are dropped."""
    out = np.empty(indptr[-1] - indptr[0], np.int32)
    out_indptr = np.zeros(len(indptr), np.int64)
    count = 0
    for document in range(len(indptr) - 1):
        for i in range(indptr[document], indptr[document + 1]):
            number = numbers[ids[i]]
            if number >= 0:
                out[count] = number
                count += 1
        out_indptr[document + 1] = count
    return out_indptr, out[:count].copy()


@kernel(outputs=("frequencies", "seen"))
def document_frequencies(
    indptr: NDArray[np.int64],
    ids: NDArray[np.int32],
    before: int,  # documents counted before
    frequencies: NDArray[np.int32],  # (width,) grows by the documents that each number occurs in
    seen: NDArray[np.int32],  # (width,) the last document with each number, −1 at first
) -> None:
    """Count the documents in which each number occurs; −1 is ignored."""
    for document in range(len(indptr) - 1):
        for i in range(indptr[document], indptr[document + 1]):
            number = ids[i]
            if number >= 0 and seen[number] != before + document:
                seen[number] = before + document
                frequencies[number] += 1


@kernel()
def join_neighbours(indptr: NDArray[np.int64], longer: NDArray[np.int32], ids: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Return the key of the (n+1)-gram that ends at each token: number of its first n words, last word; 0 if none."""
    keys = np.zeros(len(ids), np.uint64)
    for document in range(len(indptr) - 1):
        for i in range(indptr[document] + 1, indptr[document + 1]):
            if longer[i - 1] >= 0 and ids[i] >= 0:
                keys[i] = ((np.uint64(longer[i - 1]) << np.uint64(32)) | np.uint64(ids[i])) + np.uint64(1)
    return keys


@kernel()
def expand(
    indptr: NDArray[np.int64],
    ids: NDArray[np.int32],
    part_indptr: NDArray[np.int64],
    parts: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Replace every token by its parts (a word by its character n-grams)."""
    out_indptr = np.zeros(len(indptr), np.int64)
    total = 0
    for document in range(len(indptr) - 1):
        for i in range(indptr[document], indptr[document + 1]):
            total += part_indptr[ids[i] + 1] - part_indptr[ids[i]]
        out_indptr[document + 1] = total
    out = np.empty(total, np.int32)
    count = 0
    for i in range(len(ids)):
        for j in range(part_indptr[ids[i]], part_indptr[ids[i] + 1]):
            out[count] = parts[j]
            count += 1
    return out_indptr, out


@kernel()
def merge_streams(
    first_indptr: NDArray[np.int64],
    first: NDArray[np.int32],
    second_indptr: NDArray[np.int64],
    second: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Concatenate two streams of numbers per document."""
    indptr = np.empty(len(first_indptr), np.int64)
    ids = np.empty(len(first) + len(second), np.int32)
    count = 0
    indptr[0] = 0
    for document in range(len(indptr) - 1):
        for i in range(first_indptr[document], first_indptr[document + 1]):
            ids[count] = first[i]
            count += 1
        for i in range(second_indptr[document], second_indptr[document + 1]):
            ids[count] = second[i]
            count += 1
        indptr[document + 1] = count
    return indptr, ids


@kernel(outputs=("frequencies", "owner", "part_frequencies", "part_seen", "merged", "seen", "counts"))
def count_documents(
    indptr: NDArray[np.int64],
    ids: NDArray[Any],  # local numbers; −1 is ignored
    numbers: NDArray[np.int32],  # number of each local number, −1 for none; several may have the same
    part_starts: NDArray[np.int64],  # where the parts of each local number start; empty if there are none
    part_ends: NDArray[np.int64],
    parts: NDArray[np.int32],
    before: int,  # local numbers of the blocks counted before
    documents: int,  # documents of the blocks counted before
    frequencies: NDArray[np.int32],  # (width,) grows by the documents that each number occurs in
    owner: NDArray[np.int64],  # (width,) first local number with each number, plus `before`; −1 at first
    part_frequencies: NDArray[np.int32],  # (different parts,) grows by the documents that each part occurs in
    part_seen: NDArray[np.int32],  # (different parts,) last document with each part; −1 at first
    merged: NDArray[np.int32],  # buffer (local numbers,)
    seen: NDArray[np.int32],  # buffer (local numbers,)
    counts: NDArray[np.int32],  # buffer (local numbers,)
) -> None:
    """Count the documents in which each number, and each of its parts, occurs.

    Work per token touches only arrays of local numbers.
    """
    for local in range(len(numbers)):
        number = numbers[local]
        merged[local] = -1
        seen[local] = -1
        counts[local] = 0
        if number >= 0:
            if owner[number] < before:
                owner[number] = before + local
            merged[local] = owner[number] - before
    for document in range(len(indptr) - 1):
        for i in range(indptr[document], indptr[document + 1]):
            if ids[i] >= 0:
                local = merged[ids[i]]
                if local >= 0 and seen[local] != document:
                    seen[local] = document
                    counts[local] += 1
                    if local < len(part_starts):
                        for place in range(part_starts[local], part_ends[local]):
                            part = parts[place]
                            if part_seen[part] != documents + document:
                                part_seen[part] = documents + document
                                part_frequencies[part] += 1
    for local in range(len(numbers)):
        if merged[local] == local:
            frequencies[numbers[local]] += counts[local]


@kernel(
    outputs=("counts", "tallies", "ends", "items", "found", "ordered", "squares", "out_indptr", "columns", "values")
)
def weigh_features(
    indptr: NDArray[np.int64],
    ids: NDArray[Any],  # items of each document; −1 is ignored
    ranks: NDArray[np.int32],  # (items,) rank of each item's feature, −1 for none
    part_starts: NDArray[np.int64],  # (parts of items,) where the parts of the first items start
    part_ends: NDArray[np.int64],
    parts: NDArray[np.int32],  # ranks of further features of items, −1 for none
    features: NDArray[np.int32],  # (ranks,) ascending
    weights: NDArray[np.float32],  # of features
    terms: NDArray[np.float64],  # weight of each frequency
    sublinear: bool,  # for higher frequencies
    counts: NDArray[np.int32],  # (items,) zeros
    tallies: NDArray[np.int32],  # (ranks,) zeros
    ends: NDArray[np.int64],  # (ranks,) zeros
    items: NDArray[np.int32],  # buffer for the longest document
    found: NDArray[np.int32],  # buffer (2 · values,)
    ordered: NDArray[np.int32],  # buffer (2 · values,)
    squares: NDArray[np.float64],  # (n,) zeros
    out_indptr: NDArray[np.int64],  # out: (n + 1,)
    columns: NDArray[np.int32],  # out: features of each document, ascending
    values: NDArray[np.float32],  # out
) -> None:
    """Compute tf-idf rows of unit length.

    Features and their frequencies are found document by document, sorted by feature (counting sort), and returned to
    their documents in this order. So no row is sorted, and the work is linear.
    """
    size = len(values)
    total = np.int64(0)
    out_indptr[0] = 0
    for document in range(len(indptr) - 1):
        distinct = 0
        for i in range(indptr[document], indptr[document + 1]):
            item = np.int64(ids[i])
            if item >= 0:
                items[distinct] = item
                distinct += counts[item] == 0
                counts[item] += 1
        first = total
        for i in range(distinct):
            item = np.int64(items[i])
            times, rank = counts[item], ranks[item]
            counts[item] = 0
            if rank >= 0:
                found[total] = rank
                total += tallies[rank] == 0
                tallies[rank] += times
            if item < len(part_starts):
                for part in range(part_starts[item], part_ends[item]):
                    rank = parts[part]
                    if rank >= 0:
                        found[total] = rank
                        total += tallies[rank] == 0
                        tallies[rank] += times
        for i in range(first, total):
            rank = found[i]
            found[size + i] = tallies[rank]
            tallies[rank] = 0
            ends[rank] += 1
        out_indptr[document + 1] = total
    start = np.int64(0)
    for rank in range(len(features)):
        start += ends[rank]
        ends[rank] = start - ends[rank]
    for document in range(len(indptr) - 1):
        for i in range(out_indptr[document], out_indptr[document + 1]):
            place = ends[found[i]]
            ends[found[i]] += 1
            ordered[place] = document
            ordered[size + place] = found[size + i]
    place = np.int64(0)
    for rank in range(len(features)):
        weight = np.float64(weights[features[rank]])
        while place < ends[rank]:
            document, times = ordered[place], ordered[size + place]
            frequency = np.float64(times)
            if times < len(terms):
                frequency = terms[times]
            elif sublinear:
                frequency = 1.0 + np.log(frequency)
            value = frequency * weight
            at = out_indptr[document]
            out_indptr[document] += 1
            columns[at] = features[rank]
            values[at] = value
            squares[document] += value * value
            place += 1
        ends[rank] = 0
    start = np.int64(0)
    for document in range(len(indptr) - 1):
        stop = out_indptr[document]
        out_indptr[document] = start
        if squares[document] > 0.0:
            scale = 1.0 / np.sqrt(squares[document])
            for i in range(start, stop):
                values[i] = np.float32(values[i] * scale)
        squares[document] = 0.0
        start = stop


@kernel(outputs=("starts", "lengths", "indptr"))
def character_grams(
    data: NDArray[np.uint8],  # UTF-8 bytes of all words
    ends: NDArray[np.int64],  # (n + 1,) where words end, from 0
    shortest: int,
    longest: int,
    starts: NDArray[np.int32],  # out: first byte of each n-gram; if empty, n-grams are only counted
    lengths: NDArray[np.int32],  # out: bytes of each n-gram
    indptr: NDArray[np.int64],  # out: (n + 1,) where the n-grams of words start
) -> int:
    """Find the character n-grams of each word, and return how many there are."""
    count = 0
    indptr[0] = 0
    for word in range(len(ends) - 1):
        for length in range(shortest, longest + 1):
            first, last, between = ends[word], ends[word], 0
            while last < ends[word + 1]:
                last += 1
                while last < ends[word + 1] and data[last] & 0xC0 == 0x80:
                    last += 1
                between += 1
                if between == length:
                    if len(starts):
                        starts[count] = first
                        lengths[count] = last - first
                    count += 1
                    between -= 1
                    first += 1
                    while first < last and data[first] & 0xC0 == 0x80:
                        first += 1
        indptr[word + 1] = count
    return count


@kernel()
def find_breaks(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],  # (n + 1,) where documents start
    indptr: NDArray[np.int64],  # (n + 1,) where the tokens of documents start
    starts: NDArray[np.int32],
    lengths: NDArray[np.int32],
) -> NDArray[np.uint8]:
    """Return for each token what separates it from the one before: 2 a line end, 1 the end of a sentence, 0 neither.

    A sentence ends with one of . ! ? ; before white space: '2.0' and 'U.S.' are in one sentence.
    """
    breaks = np.zeros(len(starts), np.uint8)
    for document in range(len(indptr) - 1):
        at = np.int64(offsets[document])
        for token in range(indptr[document], indptr[document + 1]):
            ended = False
            while at < starts[token]:
                byte = data[at]
                if byte == 46 or byte == 33 or byte == 63 or byte == 59:
                    ended = True
                elif byte == 10:
                    breaks[token] = 2
                elif ended and byte <= 32 and breaks[token] == 0:
                    breaks[token] = 1
                at += 1
            at += lengths[token]
    return breaks
