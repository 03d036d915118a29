"""Texts and names as the matcher reads them: folded words, their stems, and where sentences begin."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.labels.name_index import fold_all
from xmtc.lexical.keys import code_points, gram_keys, word_keys
from xmtc.text.stemming import stems
from xmtc.text.tokens import fold, tokenise_with_breaks

GRAMS = (4, 5)
"""Shortest and longest character n-grams."""


class Words(NamedTuple):
    """Distinct words: keys of their folded forms, of their stems and of their character n-grams."""

    folded: list[str]
    forms: NDArray[np.uint64]  # (W,)
    stems: NDArray[np.uint64]  # (W,)
    gram_indptr: NDArray[np.int64]  # (W + 1,)
    grams: NDArray[np.uint64]


class AnalysedTexts(NamedTuple):
    """Texts as token numbers. The tokens of text i are indptr[i]:indptr[i + 1]."""

    indptr: NDArray[np.int64]  # (n + 1,)
    tokens: NDArray[np.int32]  # number of the word
    breaks: NDArray[np.uint8]  # 2 for the first token of a line, 1 of a sentence, else 0
    words: Words


def analyse(texts: pa.Array, language: str | None) -> AnalysedTexts:
    """Split texts into words; words that differ only in case are one, and without a language also in accents."""
    block, types, breaks = tokenise_with_breaks(texts)
    numbers: dict[str, int] = {}
    words = normalised(types.to_pylist(), language)
    word_of = np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int32)
    tokens = word_of[block.ids] if len(word_of) else np.empty(0, dtype=np.int32)
    return AnalysedTexts(block.indptr, tokens, breaks, words_of(list(numbers), language))


def normalised(words: list[str], language: str | None) -> list[str]:
    """Fold words; if a language is given, only their case, because its stemmer needs the accents."""
    return fold_all(words) if language is None else [fold(word) for word in words]


def words_of(words: list[str], language: str | None) -> Words:
    """Compute the keys of normalised words."""
    folded, stemmed = words, stems(words, language)
    if language is not None:
        folded, stemmed = fold_all(folded), fold_all(stemmed)
    codes, offsets = code_points(folded)
    indptr, grams = gram_keys(codes, offsets, *GRAMS)
    return Words(folded, word_keys(codes, offsets), word_keys(*code_points(stemmed)), indptr, grams)
