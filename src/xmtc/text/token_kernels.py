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
def unique_per_document(indptr: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the distinct non-zero keys of each document, concatenated."""
    out = np.empty(len(keys), np.uint64)
    count = 0
    for document in range(len(indptr) - 1):
        row = np.sort(keys[indptr[document] : indptr[document + 1]])
        for i in range(len(row)):
            if row[i] and (i == 0 or row[i] != row[i - 1]):
                out[count] = row[i]
                count += 1
    return out[:count].copy()


@kernel()
def look_up(keys: NDArray[np.uint64], known: NDArray[np.uint64], numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Look up each key in the sorted array `known`; return numbers[i] at its position, −1 if missing."""
    out = np.full(len(keys), -1, np.int32)
    for i in range(len(keys)):
        if keys[i]:
            at = np.searchsorted(known, keys[i])
            if at < len(known) and known[at] == keys[i]:
                out[i] = numbers[at]
    return out


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


@kernel()
def count_features(
    indptr: NDArray[np.int64],
    ids: NDArray[np.int32],
    weights: NDArray[np.float32],
    sublinear: bool,
    unit: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Compute tf-idf CSR rows from feature numbers per document (−1 is ignored); columns ascend within a row."""
    counts = np.zeros(len(weights), np.int32)
    touched = np.empty(len(weights), np.int32)
    out_indptr = np.zeros(len(indptr), np.int64)
    columns = np.empty(len(ids), np.int32)
    values = np.empty(len(ids), np.float32)
    total = 0
    for document in range(len(indptr) - 1):
        distinct = 0
        for i in range(indptr[document], indptr[document + 1]):
            feature = ids[i]
            if feature < 0:
                continue
            if counts[feature] == 0:
                touched[distinct] = feature
                distinct += 1
            counts[feature] += 1
        row = np.sort(touched[:distinct])
        square = 0.0
        for i in range(distinct):
            feature = row[i]
            frequency = np.float64(counts[feature])
            counts[feature] = 0
            value = (1.0 + np.log(frequency) if sublinear else frequency) * np.float64(weights[feature])
            columns[total + i] = feature
            values[total + i] = value
            square += value * value
        if unit and square > 0.0:
            scale = 1.0 / np.sqrt(square)
            for i in range(distinct):
                values[total + i] = np.float32(values[total + i] * scale)
        total += distinct
        out_indptr[document + 1] = total
    return out_indptr, columns[:total].copy(), values[:total].copy()


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
