"""Vocabulary: the words of a corpus with their numbers, by descending document frequency."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.parallel import run_parallel
from xmtc.core.string_table import number_strings, places
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
        folded, numbers = fold_types(tokens.types, lowercase, min_token_length)
        frequencies = count_documents(mapped_blocks(tokens, numbers, threads), len(folded), threads)
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
        folded, numbers = fold_types(tokens.types, lowercase, 1)
        counts = count_documents(mapped_blocks(tokens, numbers, threads), len(folded), threads)
        known = places(folded, self.terms)
        frequencies = self.frequencies.copy()
        frequencies[known[known >= 0]] += counts[known >= 0]
        room = None if max_terms is None else max(0, max_terms - len(self))
        fresh = rank_terms(folded, np.where(known < 0, counts, 0), min_df, room) if room != 0 else known[:0]
        terms = pa.concat_arrays([self.terms, folded.take(pa.array(fresh, pa.int64()))])
        return Vocabulary(terms, np.concatenate([frequencies, counts[fresh]]), self.documents + len(tokens))

    def numbers(self, types: pa.Array, lowercase: bool = True) -> NDArray[np.int32]:
        """Return the term number of each token type, −1 if unknown."""
        forms = fold_all(types, lowercase)
        if worth_a_table(len(types), len(self)):
            return places(forms, self.terms)
        get = self.positions.get
        return np.fromiter((get(form, -1) for form in forms.to_pylist()), dtype=np.int32, count=len(forms))

    def encode(self, tokens: Tokens, lowercase: bool = True) -> TokenBlock:
        """Return the token numbers of every document in order, for neural models; unknown words are −1."""
        numbers = self.numbers(tokens.types, lowercase)
        counts = [np.diff(block.indptr) for block in tokens.blocks]
        ids = [local[block.ids] for block, local in tokens.under(numbers)]
        lengths = np.concatenate(counts) if counts else np.empty(0, dtype=np.int64)
        flat = np.concatenate(ids) if ids else np.empty(0, dtype=np.int32)
        return TokenBlock(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), flat)


def fold_types(types: pa.Array, lowercase: bool, min_length: int) -> tuple[pa.Array, NDArray[np.int32]]:
    """Return the distinct normalised tokens, and the number of each type's normalised form (−1 if too short)."""
    forms = fold_all(types, lowercase)
    numbers, first = number_strings(forms)
    if min_length > 1:
        numbers = np.where(np.asarray(pc.utf8_length(forms)) < min_length, np.int32(-1), numbers)
    return forms.take(pa.array(first)), numbers


def fold_all(types: pa.Array, lowercase: bool) -> pa.Array:
    """Apply `fold` to each type; for many types, only those that are not ASCII are processed in Python."""
    if len(types) < MANY:
        return pa.array([fold(token, lowercase) for token in types.to_pylist()], pa.string())
    is_ascii = pc.string_is_ascii(types)
    forms = pc.ascii_lower(types) if lowercase else types
    others = [fold(token, lowercase) for token in types.filter(pc.invert(is_ascii)).to_pylist()]
    return pc.replace_with_mask(forms, pc.invert(is_ascii), pa.array(others, pa.string())) if others else forms


def worth_a_table(types: int, terms: int) -> bool:
    """Whether `places`, which hashes all terms on each call, is faster than a dictionary that is built once."""
    return types >= MANY and 4 * types > terms


def mapped_blocks(tokens: Tokens, numbers: NDArray[np.int32], threads: int) -> list[TokenBlock]:
    """Renumber the tokens of a corpus; tokens with number −1 are dropped."""

    def mapped(part: tuple[TokenBlock, NDArray[np.int32]]) -> TokenBlock:
        return TokenBlock(*token_kernels.map_tokens(*part[0], part[1]))

    return list(run_parallel(mapped, tokens.under(numbers), threads))


def count_documents(blocks: list[TokenBlock], width: int, threads: int) -> NDArray[np.int64]:
    """Count the documents in which each number occurs."""
    total = np.zeros(width, dtype=np.int64)

    def counted(group: range) -> NDArray[np.int32]:
        frequencies, seen = np.zeros(width, dtype=np.int32), np.full(width, -1, dtype=np.int32)
        before = 0
        for block in blocks[group.start : group.stop]:
            token_kernels.document_frequencies(block.indptr, block.ids, before, frequencies, seen)
            before += len(block.indptr) - 1
        return frequencies

    for part in run_parallel(counted, _groups(blocks, width), threads):
        total += part
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
