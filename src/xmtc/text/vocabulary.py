"""Vocabulary: the words worth knowing, most widespread first, and the numbers they go by."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.parallel import run_parallel
from xmtc.text import kernels
from xmtc.text.tokens import TokenBlock, Tokens, fold


class Vocabulary:
    """Terms in order of falling document frequency (ties in alphabetical order), so that a prefix is the best cut."""

    def __init__(self, terms: pa.Array, frequencies: NDArray[np.int64], documents: int) -> None:
        self.terms = terms
        self.frequencies = frequencies  # (V,) documents that hold the term
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
        """The terms that at least `min_df` documents hold, `max_terms` at most."""
        folded, numbers = fold_types(tokens.types, lowercase, min_token_length)
        frequencies = count_documents(mapped_blocks(tokens, numbers, threads), len(folded), threads)
        chosen = rank_terms(folded, frequencies, min_df, max_terms)
        return cls(folded.take(pa.array(chosen)), frequencies[chosen], len(tokens))

    def numbers(self, types: pa.Array, lowercase: bool = True) -> NDArray[np.int32]:
        """The term number of each token type, −1 where it is unknown."""
        get = self.positions.get
        found = (get(fold(token, lowercase), -1) for token in types.to_pylist())
        return np.fromiter(found, dtype=np.int32, count=len(types))

    def encode(self, tokens: Tokens, lowercase: bool = True) -> TokenBlock:
        """Token numbers of every document in reading order, for neural models; unknown words are −1."""
        numbers = self.numbers(tokens.types, lowercase)
        counts = [np.diff(block.indptr) for block in tokens.blocks]
        ids = [local[block.ids] for block, local in tokens.under(numbers)]
        lengths = np.concatenate(counts) if counts else np.empty(0, dtype=np.int64)
        flat = np.concatenate(ids) if ids else np.empty(0, dtype=np.int32)
        return TokenBlock(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), flat)


def fold_types(types: pa.Array, lowercase: bool, min_length: int) -> tuple[pa.Array, NDArray[np.int32]]:
    """The distinct folded tokens, and for each type the number of its folded form (−1: too short to keep)."""
    forms = [fold(token, lowercase) for token in types.to_pylist()]
    encoded = pa.array(forms, pa.string()).dictionary_encode()
    numbers = np.asarray(encoded.indices, dtype=np.int32)
    if min_length > 1:
        short = np.fromiter((len(form) < min_length for form in forms), dtype=bool, count=len(forms))
        numbers = np.where(short, np.int32(-1), numbers)
    return encoded.dictionary, numbers


def mapped_blocks(tokens: Tokens, numbers: NDArray[np.int32], threads: int) -> list[TokenBlock]:
    """The corpus under other numbers; tokens numbered −1 are left out."""

    def mapped(part: tuple[TokenBlock, NDArray[np.int32]]) -> TokenBlock:
        return TokenBlock(*kernels.map_tokens(*part[0], part[1]))

    return list(run_parallel(mapped, tokens.under(numbers), threads))


def count_documents(blocks: list[TokenBlock], width: int, threads: int) -> NDArray[np.int64]:
    """In how many documents each number occurs."""
    total = np.zeros(width, dtype=np.int64)

    def counted(block: TokenBlock) -> NDArray[np.int32]:
        return kernels.document_frequencies(block.indptr, block.ids, width)

    for part in run_parallel(counted, blocks, threads):
        total += part
    return total


def rank_terms(
    terms: pa.Array, frequencies: NDArray[np.int64], min_df: int, max_terms: int | None
) -> NDArray[np.int64]:
    """Positions of the terms to keep, most widespread first."""
    kept = np.flatnonzero(frequencies >= max(min_df, 1))
    alphabetical = np.asarray(pc.array_sort_indices(terms.take(pa.array(kept))), dtype=np.int64)
    kept = kept[alphabetical]
    order = np.argsort(-frequencies[kept], kind="stable")
    return kept[order][:max_terms]
