"""Choice of tf-idf features: candidates with their document frequencies, of which the most frequent are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.buffers import Buffers
from xmtc.core.parallel import run_parallel
from xmtc.core.string_table import StringTable
from xmtc.text import token_kernels
from xmtc.text.ngrams import character_parts, keys_in, number_keys, pair_key, pair_of
from xmtc.text.tokens import TokenBlock, Tokens
from xmtc.text.vocabulary import NO_PARTS, WordParts, count_documents, frequent_enough, mapped_blocks

WORD, CHARACTERS = 0, 1
"""Kinds of features: words and word n-grams, and character n-grams."""


class Features(NamedTuple):
    """Chosen features, by descending document frequency."""

    terms: pa.Array  # (D,)
    kinds: NDArray[np.int8]  # (D,) WORD or CHARACTERS
    frequencies: NDArray[np.int64]  # (D,) number of documents with the feature
    ngram_keys: NDArray[np.uint64]  # sorted keys of word n-grams: (number of the first n − 1 words, last word)
    ngram_features: NDArray[np.int32]  # their feature numbers


@dataclass(frozen=True)
class _Candidates:
    """Candidate features of one kind."""

    names: Callable[[NDArray[np.int64]], pa.Array]
    """Names of some candidates."""
    frequencies: NDArray[np.int64]
    kind: int
    length: int  # words per n-gram
    keys: NDArray[np.uint64]  # n-grams as (shorter candidate, candidate word)


def choose_features(
    tokens: Tokens,
    words: pa.Array,
    numbers: NDArray[np.int32],
    *,
    word_ngrams: int,
    char_ngrams: tuple[int, ...],
    min_df: int,
    max_features: int,
    threads: int,
) -> Features:
    """Choose the most frequent words and n-grams; `numbers` has the word of each type of the tokens."""
    parts, grams = NO_PARTS, StringTable()
    if char_ngrams:
        parts = WordParts(*character_parts(words, char_ngrams, grams.number), len(grams))
    frequencies = count_documents(tokens, numbers, len(words), threads, parts)
    own, gram_frequencies = frequencies[: len(words)], frequencies[len(words) :]
    kept = np.flatnonzero(own >= min_df)
    none = np.empty(0, dtype=np.uint64)
    candidates = [_Candidates(lambda some: words.take(pa.array(kept[some])), own[kept], WORD, 1, none)]
    if word_ngrams > 1:
        position = np.full(len(words), -1, dtype=np.int32)
        position[kept] = np.arange(len(kept), dtype=np.int32)
        blocks = mapped_blocks(tokens, numbers, threads)
        candidates += _word_ngrams(candidates[0], blocks, position, word_ngrams, min_df, threads)
    if char_ngrams:
        common = np.flatnonzero(gram_frequencies >= min_df)
        strings = grams.strings()
        candidates.append(
            _Candidates(
                lambda some: strings.take(pa.array(common[some])), gram_frequencies[common], CHARACTERS, 0, none
            )
        )
    return _most_frequent(candidates, max_features)


def _word_ngrams(
    words: _Candidates, blocks: list[TokenBlock], position: NDArray[np.int32], longest: int, min_df: int, threads: int
) -> list[_Candidates]:
    """Extend n-grams word by word; only frequent ones, since an n-gram is never more frequent than its prefix."""
    found, last = [], words
    numbers = [position[block.ids] for block in blocks]  # candidate that ends at each token
    free = [(StringTable(), Buffers().get) for _ in range(threads)]

    def counted(
        part: tuple[TokenBlock, NDArray[np.int32]],
    ) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        table, get = free.pop()
        table.clear()
        block, longer = part
        keys = token_kernels.join_neighbours(block.indptr, longer, position[block.ids])
        ids, known = number_keys(keys, table), keys_in(table)
        counts = np.zeros(len(known), dtype=np.int32)
        edges, none = NO_PARTS.indptr[:0], NO_PARTS.parts
        token_kernels.count_documents(
            block.indptr, ids, np.arange(len(known), dtype=np.int32), edges, edges, none, 0, 0,
            counts, np.full(len(known), -1, dtype=np.int64), none, none,
            *(get(name, len(known), np.int32) for name in ("merged", "seen", "counts")),
        )  # fmt: skip
        free.append((table, get))
        return known, counts

    for length in range(2, longest + 1):
        table, frequencies = StringTable(), np.zeros(1 << 16, dtype=np.int64)
        for known, counts in run_parallel(counted, zip(blocks, numbers, strict=True), threads):
            ids = number_keys(known, table)
            if len(table) > len(frequencies):
                frequencies = np.append(frequencies, np.zeros(2 * len(table), dtype=np.int64))
            frequencies[ids] += counts
        kept = np.flatnonzero(frequencies[: len(table)] >= min_df)
        keys, before = keys_in(table)[kept], last
        del table

        def names(some: NDArray[np.int64], keys: NDArray[np.uint64] = keys, before: _Candidates = before) -> pa.Array:
            first, final = pair_of(keys[some])
            return pc.binary_join_element_wise(before.names(first), words.names(final), " ")

        last = _Candidates(names, frequencies[kept], WORD, length, keys)
        found.append(last)
        if length < longest:
            known_table = StringTable(len(keys))
            number_keys(keys, known_table)

            def renumbered(
                part: tuple[TokenBlock, NDArray[np.int32]], table: StringTable = known_table
            ) -> NDArray[np.int32]:
                block, longer = part
                joined = token_kernels.join_neighbours(block.indptr, longer, position[block.ids])
                return number_keys(joined, table, add=False)

            numbers = list(run_parallel(renumbered, zip(blocks, numbers, strict=True), threads))
    return found


def _most_frequent(candidates: list[_Candidates], most: int) -> Features:
    """Number the candidates by descending document frequency and truncate.

    On ties shorter candidates come first, so that the prefix of a kept n-gram is always kept.
    """
    frequencies = np.concatenate([part.frequencies for part in candidates])
    starts = np.cumsum([0, *(len(part.frequencies) for part in candidates)])
    near = frequent_enough(frequencies, most)
    edges = np.searchsorted(near, starts)
    terms, lengths, kinds = [], [], []
    for part, start, first, last in zip(candidates, starts[:-1], edges[:-1], edges[1:], strict=True):
        terms.append(part.names(near[first:last] - start).cast(pa.string()))
        lengths.append(np.full(last - first, part.length))
        kinds.append(np.full(last - first, part.kind, dtype=np.int8))
    names = pa.concat_arrays(terms)
    alphabetical = np.empty(len(names), dtype=np.int64)
    alphabetical[np.asarray(pc.array_sort_indices(names), dtype=np.int64)] = np.arange(len(names))
    chosen = np.lexsort((alphabetical, np.concatenate(lengths), -frequencies[near]))[:most]
    position = np.full(len(frequencies), -1, dtype=np.int64)
    position[near[chosen]] = np.arange(len(chosen))
    keys, features = _ngram_table(candidates, starts, position)
    return Features(
        names.take(pa.array(chosen)), np.concatenate(kinds)[chosen], frequencies[near[chosen]], keys, features
    )


def _ngram_table(
    candidates: list[_Candidates], starts: NDArray[np.int64], position: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Return the sorted keys of the kept n-grams, in final feature numbers, and their features."""
    keys, features = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int32)]
    for number, part in enumerate(candidates):
        if part.length > 1:
            final = position[starts[number] : starts[number + 1]]
            kept = final >= 0
            first, last = pair_of(part.keys[kept])
            keys.append(pair_key(position[starts[number - 1] + first], position[last]))
            features.append(final[kept].astype(np.int32))
    flat = np.concatenate(keys)
    order = np.argsort(flat)
    return flat[order], np.concatenate(features)[order]
