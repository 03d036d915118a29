"""Vocabulary: the words of a corpus with their numbers, by descending document frequency."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.buffers import Buffers
from xmtc.core.parallel import run_parallel
from xmtc.core.string_table import StringIndex, number_strings
from xmtc.text import token_kernels
from xmtc.text.tokens import TokenBlock, Tokens, fold

MANY = 4096
"""Number of token types from which Arrow is faster than a Python loop."""


class Vocabulary:
    """Terms by descending document frequency (ties alphabetically), so that truncation keeps the most frequent."""

    def __init__(self, terms: pa.Array, frequencies: NDArray[np.int64], documents: int) -> None:
        self.terms = terms
        self.frequencies = frequencies  # (V,) number of documents with the term
        self.documents = documents

    def __len__(self) -> int:
        return len(self.terms)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Term → number."""
        return {term: number for number, term in enumerate(self.terms.to_pylist())}

    @cached_property
    def _index(self) -> StringIndex:
        return StringIndex(self.terms)

    @classmethod
    def fit(
        cls,
        tokens: Tokens,
        *,
        lowercase: bool = True,
        min_token_length: int = 1,
        min_df: int = 1,
        max_terms: int | None = None,
        threads: int = 1,
    ) -> Vocabulary:
        """Choose the terms that occur in at least `min_df` documents, at most `max_terms`."""
        folded, numbers = folded_words(tokens, lowercase, min_token_length)
        frequencies = count_documents(tokens, numbers, len(folded), threads)
        chosen = rank_terms(folded, frequencies, min_df, max_terms)
        return cls(folded.take(pa.array(chosen)), frequencies[chosen], len(tokens))

    def grown(
        self,
        tokens: Tokens,
        *,
        lowercase: bool = True,
        min_df: int = 1,
        max_terms: int | None = None,
        threads: int = 1,
    ) -> Vocabulary:
        """Append new terms that occur in at least `min_df` of additional documents; existing terms keep their numbers.

        At most `max_terms` in total; existing terms are never removed.
        """
        folded, numbers = folded_words(tokens, lowercase, 1)
        counts = count_documents(tokens, numbers, len(folded), threads)
        known = self._index.places(folded)
        frequencies = self.frequencies.copy()
        frequencies[known[known >= 0]] += counts[known >= 0]
        room = None if max_terms is None else max(0, max_terms - len(self))
        fresh = rank_terms(folded, np.where(known < 0, counts, 0), min_df, room) if room != 0 else known[:0]
        terms = pa.concat_arrays([self.terms, folded.take(pa.array(fresh, pa.int64()))])
        return Vocabulary(terms, np.concatenate([frequencies, counts[fresh]]), self.documents + len(tokens))

    def numbers(self, types: pa.Array, lowercase: bool = True) -> NDArray[np.int32]:
        """Return the term number of each token type, −1 if unknown."""
        return self._index.places(fold_all(types, lowercase))

    def encode(self, tokens: Tokens, lowercase: bool = True) -> TokenBlock:
        """Return the token numbers of every document in order, for neural models; unknown words are −1."""
        numbers = self.numbers(tokens.types, lowercase)
        counts = [np.diff(block.indptr) for block in tokens.blocks]
        ids = [local[block.ids] for block, local in tokens.under(numbers)]
        lengths = np.concatenate(counts) if counts else np.empty(0, dtype=np.int64)
        flat = np.concatenate(ids) if ids else np.empty(0, dtype=np.int32)
        return TokenBlock(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), flat)


def folded_words(tokens: Tokens, lowercase: bool, min_length: int) -> tuple[pa.Array, NDArray[np.int32]]:
    """Return the distinct normalised tokens, and the number of each type's normalised form (−1 if too short)."""
    key = lowercase, min_length
    if key not in tokens.folded:
        tokens.folded[key] = _fold_types(tokens.types, lowercase, min_length)
    return tokens.folded[key]


def _fold_types(types: pa.Array, lowercase: bool, min_length: int) -> tuple[pa.Array, NDArray[np.int32]]:
    if len(types) < MANY:
        known: dict[str, int] = {}
        forms = [fold(token, lowercase) for token in types.to_pylist()]
        few = [known.setdefault(form, len(known)) if len(form) >= min_length else -1 for form in forms]
        return pa.array(known, pa.string()), np.array(few, dtype=np.int32)
    folded = fold_all(types, lowercase)
    numbers, first = number_strings(folded)
    if min_length > 1:
        numbers = np.where(np.asarray(pc.utf8_length(folded)) < min_length, np.int32(-1), numbers)
    return folded.take(pa.array(first)), numbers


def fold_all(types: pa.Array, lowercase: bool) -> pa.Array:
    """Apply `fold` to each type; for many types, only those that are not ASCII are processed in Python."""
    if len(types) < MANY:
        return pa.array([fold(token, lowercase) for token in types.to_pylist()], pa.string())
    is_ascii = pc.string_is_ascii(types)
    forms = pc.ascii_lower(types) if lowercase else types
    others = [fold(token, lowercase) for token in types.filter(pc.invert(is_ascii)).to_pylist()]
    return pc.replace_with_mask(forms, pc.invert(is_ascii), pa.array(others, pa.string())) if others else forms


def mapped_blocks(tokens: Tokens, numbers: NDArray[np.int32], threads: int) -> list[TokenBlock]:
    """Renumber the tokens of a corpus; tokens with number −1 are dropped."""

    def mapped(part: tuple[TokenBlock, NDArray[np.int32]]) -> TokenBlock:
        return TokenBlock(*token_kernels.map_tokens(*part[0], part[1]))

    return list(run_parallel(mapped, tokens.under(numbers), threads))


class WordParts(NamedTuple):
    """Further numbers of each word, such as its character n-grams: parts[indptr[w]:indptr[w + 1]] of word w."""

    indptr: NDArray[np.int64]
    parts: NDArray[np.int32]
    different: int
    """Number of different parts."""

    def edges(self, words: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the parts of each word start and end; the word −1 has none."""
        return np.where(words < 0, 0, self.indptr[words]), np.where(words < 0, 0, self.indptr[words + 1])


NO_PARTS = WordParts(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32), 0)


def count_documents(
    tokens: Tokens, numbers: NDArray[np.int32], width: int, threads: int, parts: WordParts = NO_PARTS
) -> NDArray[np.int64]:
    """Count the documents in which each number occurs; `numbers` has one below `width`, or −1, for each type.

    The counts of parts follow those of the numbers.
    """
    total = np.zeros(width + parts.different, dtype=np.int64)

    def counted(group: range) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        counts, part_counts = np.zeros(width, dtype=np.int32), np.zeros(parts.different, dtype=np.int32)
        owner, seen = np.full(width, -1, dtype=np.int64), np.full(parts.different, -1, dtype=np.int32)
        before, documents, get = 0, 0, Buffers().get
        for place in group:
            block, words = tokens.blocks[place], numbers[tokens.types_of[place]]
            edges = parts.edges(words) if parts.different else (NO_PARTS.indptr[:0],) * 2
            buffers = (get(name, len(words), np.int32) for name in ("merged", "seen", "counts"))
            token_kernels.count_documents(
                *block, words, *edges, parts.parts, before, documents, counts, owner, part_counts, seen, *buffers
            )
            before += len(words)
            documents += len(block.indptr) - 1
        return counts, part_counts

    for found in run_parallel(counted, _groups(tokens.blocks, width + parts.different), threads):
        total += np.concatenate(found)
    return total


def _groups(blocks: list[TokenBlock], width: int) -> Iterator[range]:
    """Group consecutive blocks to at least `width` tokens, so that counting costs no more than the tokens."""
    start, tokens = 0, 0
    for number, block in enumerate(blocks):
        tokens += len(block.ids)
        if tokens >= width or number + 1 == len(blocks):
            yield range(start, number + 1)
            start, tokens = number + 1, 0


def rank_terms(
    terms: pa.Array, frequencies: NDArray[np.int64], min_df: int, max_terms: int | None
) -> NDArray[np.int64]:
    """Return the positions of the terms to keep, by descending document frequency."""
    kept = np.flatnonzero(frequencies >= max(min_df, 1))
    kept = kept[frequent_enough(frequencies[kept], max_terms)]
    alphabetical = np.asarray(pc.array_sort_indices(terms.take(pa.array(kept))), dtype=np.int64)
    kept = kept[alphabetical]
    order = np.argsort(-frequencies[kept], kind="stable")
    return kept[order][:max_terms]


def frequent_enough(frequencies: NDArray[np.int64], most: int | None) -> NDArray[np.int64]:
    """Return the positions, ascending, of the `most` largest values, including ties; the others need no sorting."""
    if most is None or len(frequencies) <= most:
        return np.arange(len(frequencies))
    return np.flatnonzero(frequencies >= np.partition(frequencies, -most)[-most])
