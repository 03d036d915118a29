"""tf-idf features: words, word n-grams and character n-grams in one numbering."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.cancellation import check
from xmtc.core.config import Choices, Range, Settings
from xmtc.core.explanation import TokenEvidence
from xmtc.core.parallel import run_parallel
from xmtc.core.string_table import StringTable, places
from xmtc.data.dataset import Csr
from xmtc.text import token_kernels
from xmtc.text.tokens import TokenBlock, Tokens, fold, spans
from xmtc.text.vocabulary import (
    count_documents,
    fold_types,
    frequent_enough,
    mapped_blocks,
    worth_a_table,
)

WORD, CHARACTERS = 0, 1
WORDS_AT_ONCE = 20_000
LEAST_IDF, MOST_IDF = 1e-12, 1e3
"""Range of idf weights, which are positive logarithms of numbers of documents."""


@dataclass(frozen=True)
class TextSettings(Settings):
    """Conversion of text to tf-idf features."""

    lowercase: bool = True
    """Convert text to lower case."""
    min_token_length: int = 2
    """Minimum number of characters of a word; shorter words are ignored."""
    min_df: Annotated[int, Range(1, 5)] = 2
    """Minimum number of training documents in which a feature must occur."""
    max_features: int = 200_000
    """Maximum number of features; those that occur in the most documents are kept."""
    word_ngrams: Annotated[int, Range(1, 2)] = 1
    """Maximum length of word n-grams."""
    char_ngrams: Annotated[tuple[int, ...], Choices((), (3, 5))] = ()
    """Minimum and maximum length of character n-grams within words, such as [3, 5]; empty for none."""
    sublinear: bool = True
    """Sublinear term frequency: a word that occurs n times counts 1 + ln n."""
    idf: Annotated[Literal["smooth", "plain"], Choices()] = "smooth"
    """Inverse document frequency: 'smooth' 1 + ln((1+N)/(1+df)), 'plain' ln((1+N)/df) for df of N documents."""

    of = "text"

    def check(self) -> None:
        self.require_range("min_token_length", 1)
        self.require_range("min_df", 1)
        self.require_range("max_features", 1)
        self.require_range("word_ngrams", 1, 5)
        pair = self.char_ngrams
        fits = len(pair) in (0, 2) and (not pair or 1 <= pair[0] <= pair[1] <= 10)
        self.require("char_ngrams", fits, "empty or two ascending integers from 1 to 10, such as [3, 5]")


TERMS = {"term": pa.string()}
"""Columns of the saved table of feature names."""


class Tfidf:
    """tf-idf features and their idf weights. Rows are scaled to unit length."""

    def __init__(
        self,
        settings: TextSettings,
        terms: pa.Array,
        kinds: NDArray[np.int8],
        idf: NDArray[np.float32],
        ngram_keys: NDArray[np.uint64],
        ngram_features: NDArray[np.int32],
    ) -> None:
        self.settings = settings
        self.terms = terms  # (D,) feature names
        self.kinds = kinds  # (D,) WORD or CHARACTERS
        self.idf = idf  # (D,)
        self.ngram_keys = ngram_keys  # sorted keys of word n-grams: (number of the first n − 1 words, last word)
        self.ngram_features = ngram_features  # their feature numbers
        self._positions: tuple[dict[str, int], dict[str, int]] | None = None

    def __len__(self) -> int:
        return len(self.terms)

    @classmethod
    def fit(cls, tokens: Tokens, settings: TextSettings, threads: int = 1) -> Tfidf:
        """Choose the features and compute their idf."""
        words, numbers = fold_types(tokens.types, settings.lowercase, settings.min_token_length)
        blocks = mapped_blocks(tokens, numbers, threads)
        candidates = [_word_candidates(words, blocks, settings, threads)]
        for _ in range(settings.word_ngrams - 1):
            candidates.append(_longer_candidates(candidates, blocks, settings, threads))
        if settings.char_ngrams:
            candidates.append(_character_candidates(words, blocks, settings, threads))
        return _choose(candidates, settings, len(tokens))

    def grown(self, tokens: Tokens, documents: int, threads: int = 1, *, min_df: int | None = None) -> Tfidf:
        """Append new features of additional texts; existing features stay unchanged. `documents` is the total number.

        The new features are those that `fit` would choose from the additional texts alone, or, with `min_df`, those
        that occur in at least this many of them.
        """
        settings = self.settings if min_df is None else replace(self.settings, min_df=min_df)
        own = Tfidf.fit(tokens, settings, threads)
        numbers = np.full(len(own), -1, dtype=np.int64)  # their feature numbers among all features
        for kind in (WORD, CHARACTERS):
            there, here = np.flatnonzero(own.kinds == kind), np.flatnonzero(self.kinds == kind)
            if len(there) and len(here):
                found = places(own.terms.take(pa.array(there)), self.terms.take(pa.array(here)))
                numbers[there] = np.append(here, -1)[found]
        fresh = np.flatnonzero(numbers < 0)
        if not len(fresh):
            return self
        numbers[fresh] = len(self) + np.arange(len(fresh))
        rarer = np.float32(np.log((1.0 + documents) / (1.0 + len(tokens))))
        is_fresh = numbers[own.ngram_features] >= len(self)
        pairs = own.ngram_keys[is_fresh] - np.uint64(1)
        first, last = (
            numbers[(pairs >> np.uint64(32)).astype(np.int64)],
            numbers[(pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)],
        )
        keys = ((first.astype(np.uint64) << np.uint64(32)) | last.astype(np.uint64)) + np.uint64(1)
        keys = np.concatenate([self.ngram_keys, keys])
        features = np.concatenate([self.ngram_features, numbers[own.ngram_features[is_fresh]].astype(np.int32)])
        order = np.argsort(keys)
        return Tfidf(
            self.settings,
            pa.concat_arrays([self.terms, own.terms.take(pa.array(fresh))]),
            np.concatenate([self.kinds, own.kinds[fresh]]),
            np.concatenate([self.idf, own.idf[fresh] + rarer]),
            keys[order],
            features[order],
        )

    def transform(self, tokens: Tokens, threads: int = 1) -> Csr:
        """Compute tf-idf rows (n, D); a document without known words has an empty row."""
        words, numbers = fold_types(tokens.types, self.settings.lowercase, self.settings.min_token_length)
        word_features, parts = self._word_features(words), self._character_features(words)

        def rows(
            part: tuple[TokenBlock, NDArray[np.int32]],
        ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
            mapped = TokenBlock(*token_kernels.map_tokens(*part[0], part[1]))
            indptr, features = self._features(mapped, word_features, parts)
            return token_kernels.count_features(indptr, features, self.idf, self.settings.sublinear, True)

        return stack_rows(list(run_parallel(rows, tokens.under(numbers), threads)), len(self))

    def state(self) -> tuple[dict[str, NDArray[Any]], pa.Table]:
        """Return the state to save: arrays, and the feature names as a table."""
        arrays: dict[str, NDArray[Any]] = {
            "kinds": self.kinds,
            "idf": self.idf,
            "ngram_keys": self.ngram_keys,
            "ngram_features": self.ngram_features,
        }
        return arrays, pa.table({"term": self.terms})

    @classmethod
    def from_state(cls, settings: TextSettings, table: pa.Table, state: SavedState) -> Tfidf:
        """Restore from a saved state, with the table of the feature names."""
        width = table.num_rows
        keys = state.array("ngram_keys", np.uint64, (None,))
        return cls(
            settings,
            table["term"].combine_chunks(),
            state.array("kinds", np.int8, (width,), low=0, high=2),
            state.array("idf", np.float32, (width,), low=LEAST_IDF, high=MOST_IDF),
            keys,
            state.array("ngram_features", np.int32, (len(keys),), low=0, high=width),
        )

    def occurrences(self, text: str) -> list[tuple[int, int, int]]:
        """Return (feature, start, end) for every feature in one text, with its character range."""
        found: list[tuple[int, int, int]] = []
        words, characters = self._lookup()
        forms = [(fold(span.token, self.settings.lowercase), span) for span in spans(text)]
        forms = [(form, span) for form, span in forms if len(form) >= self.settings.min_token_length]
        for length in range(1, self.settings.word_ngrams + 1):
            check()
            for at in range(len(forms) - length + 1):
                feature = words.get(" ".join(form for form, _ in forms[at : at + length]))
                if feature is not None:
                    found.append((feature, forms[at][1].start, forms[at + length - 1][1].end))
        if self.settings.char_ngrams:
            for form, span in forms:
                grams = character_ngrams(form, *self.settings.char_ngrams)
                found += [(characters[gram], span.start, span.end) for gram in grams if gram in characters]
        return found

    def evidence(self, text: str, weights: Mapping[int, float]) -> list[TokenEvidence]:
        """Return the contribution of each text span to Σ value × weight over its features, largest first."""
        found = self.occurrences(text)
        times = Counter(feature for feature, _, _ in found)
        values = {
            feature: (1.0 + math.log(count) if self.settings.sublinear else count) * float(self.idf[feature])
            for feature, count in times.items()
        }
        length = math.sqrt(sum(value * value for value in values.values()))
        shares: dict[tuple[int, int], float] = {}
        for feature, start, end in found:
            share = values[feature] / length / times[feature] * weights.get(feature, 0.0)
            shares[start, end] = shares.get((start, end), 0.0) + share
        evidence = [TokenEvidence(text[start:end], start, end, share) for (start, end), share in shares.items()]
        return sorted((item for item in evidence if item.weight), key=lambda item: (-item.weight, item.start))

    def _lookup(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return term → feature for words (and word n-grams) and for character n-grams; built on first use."""
        if self._positions is None:
            found: tuple[dict[str, int], dict[str, int]] = ({}, {})
            for number, (term, kind) in enumerate(zip(self.terms.to_pylist(), self.kinds.tolist(), strict=True)):
                found[kind][term] = number
            self._positions = found
        return self._positions

    def _word_features(self, words: pa.Array) -> NDArray[np.int32]:
        if worth_a_table(len(words), len(self)):
            features = np.flatnonzero(self.kinds == WORD).astype(np.int32)
            found = places(words, self.terms.take(pa.array(features)))
            return np.append(features, np.int32(-1))[found]
        get = self._lookup()[WORD].get
        return np.fromiter((get(word, -1) for word in words.to_pylist()), dtype=np.int32, count=len(words))

    def _character_features(self, words: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
        if not self.settings.char_ngrams:
            return None
        get = self._lookup()[CHARACTERS].get
        counts, parts = [], []
        for numbers, grams in _grams_of(words, self.settings):
            counts.append(numbers)
            parts.append(np.fromiter((get(gram, -1) for gram in grams), dtype=np.int32, count=len(grams)))
        return _offsets(counts), np.concatenate(parts)

    def _features(
        self,
        block: TokenBlock,
        word_features: NDArray[np.int32],
        parts: tuple[NDArray[np.int64], NDArray[np.int32]] | None,
    ) -> TokenBlock:
        """Return the feature numbers of each document of a block of words, −1 for words without a feature."""
        words = word_features[block.ids]
        features, longer = TokenBlock(block.indptr, words), words
        for _ in range(self.settings.word_ngrams - 1):
            keys = token_kernels.join_neighbours(block.indptr, longer, words)
            longer = token_kernels.look_up(keys, self.ngram_keys, self.ngram_features)
            features = TokenBlock(*token_kernels.merge_streams(*features, block.indptr, longer))
        if parts is not None:
            features = TokenBlock(
                *token_kernels.merge_streams(*features, *token_kernels.expand(block.indptr, block.ids, *parts))
            )
        return features


@dataclass(frozen=True)
class _Candidates:
    """Candidate features of one kind; `numbers` has the candidate of each token of each block."""

    names: list[str]
    frequencies: NDArray[np.int64]
    kind: int
    length: int  # words per n-gram
    keys: NDArray[np.uint64]  # n-grams as (shorter candidate, candidate word)
    numbers: list[NDArray[np.int32]]


def _word_candidates(words: pa.Array, blocks: list[TokenBlock], settings: TextSettings, threads: int) -> _Candidates:
    frequencies = count_documents(blocks, len(words), threads)
    kept = np.flatnonzero(frequencies >= settings.min_df)
    position = np.full(len(words), -1, dtype=np.int32)
    position[kept] = np.arange(len(kept), dtype=np.int32)
    names = words.take(pa.array(kept)).to_pylist()
    numbers = [position[block.ids] for block in blocks] if settings.word_ngrams > 1 else []
    return _Candidates(names, frequencies[kept], WORD, 1, np.empty(0, dtype=np.uint64), numbers)


def _longer_candidates(
    shorter: list[_Candidates], blocks: list[TokenBlock], settings: TextSettings, threads: int
) -> _Candidates:
    """Extend n-grams by one word; only frequent ones, since an n-gram is never more frequent than its prefix."""
    words, last = shorter[0], shorter[-1]

    def joined(part: tuple[TokenBlock, NDArray[np.int32], NDArray[np.int32]]) -> tuple[NDArray[Any], ...]:
        block, longer, word = part
        keys = token_kernels.join_neighbours(block.indptr, longer, word)
        return keys, *np.unique(token_kernels.unique_per_document(block.indptr, keys), return_counts=True)

    parts = list(run_parallel(joined, zip(blocks, last.numbers, words.numbers, strict=True), threads))
    if not parts:
        return _Candidates([], np.empty(0, dtype=np.int64), WORD, last.length + 1, np.empty(0, np.uint64), [])
    known, inverse = np.unique(np.concatenate([unique for _, unique, _ in parts]), return_inverse=True)
    frequencies = np.bincount(inverse, np.concatenate([count for _, _, count in parts]), len(known)).astype(np.int64)
    kept = frequencies >= settings.min_df
    known, frequencies = known[kept], frequencies[kept]
    order = np.arange(len(known), dtype=np.int32)
    numbers = list(run_parallel(lambda part: token_kernels.look_up(part[0], known, order), parts, threads))
    first, final = (known - np.uint64(1)) >> np.uint64(32), (known - np.uint64(1)) & np.uint64(0xFFFFFFFF)
    names = [f"{last.names[a]} {words.names[b]}" for a, b in zip(first.tolist(), final.tolist(), strict=True)]
    return _Candidates(names, frequencies, WORD, last.length + 1, known, numbers)


def _character_candidates(
    words: pa.Array, blocks: list[TokenBlock], settings: TextSettings, threads: int
) -> _Candidates:
    counts, occurrences, table = [], [], StringTable()
    for numbers, grams in _grams_of(words, settings):
        counts.append(numbers)
        occurrences.append(table.number_strings(pa.array(grams, pa.string())))
    indptr, parts, dictionary = _offsets(counts), np.concatenate(occurrences), table.strings()
    width = len(dictionary)
    frequencies = np.zeros(width, dtype=np.int64)

    def counted(block: TokenBlock) -> NDArray[np.int32]:
        expanded = token_kernels.expand(block.indptr, block.ids, indptr, parts)
        own, seen = np.zeros(width, dtype=np.int32), np.full(width, -1, dtype=np.int32)
        token_kernels.document_frequencies(*expanded, 0, own, seen)
        return own

    for part in run_parallel(counted, blocks, threads):
        frequencies += part
    kept = np.flatnonzero(frequencies >= settings.min_df)
    names = dictionary.take(pa.array(kept)).to_pylist()
    return _Candidates(names, frequencies[kept], CHARACTERS, 0, np.empty(0, dtype=np.uint64), [])


def _choose(candidates: list[_Candidates], settings: TextSettings, documents: int) -> Tfidf:
    """Number the candidates by descending document frequency and truncate.

    On ties shorter candidates come first, so that the prefix of a kept n-gram is always kept.
    """
    names = [name for part in candidates for name in part.names]
    frequencies = np.concatenate([part.frequencies for part in candidates])
    lengths = np.concatenate([np.full(len(part.names), part.length) for part in candidates])
    kinds = np.concatenate([np.full(len(part.names), part.kind, dtype=np.int8) for part in candidates])
    near = frequent_enough(frequencies, settings.max_features)
    terms = pa.array([names[number] for number in near.tolist()], pa.string())
    alphabetical = np.argsort(np.asarray(pc.array_sort_indices(terms), dtype=np.int64))
    chosen = np.lexsort((alphabetical, lengths[near], -frequencies[near]))[: settings.max_features]
    order = near[chosen]
    position = np.full(len(names), -1, dtype=np.int64)
    position[order] = np.arange(len(order))
    if settings.idf == "smooth":
        idf = np.log((1.0 + documents) / (1.0 + frequencies[order])) + 1.0
    else:
        idf = np.log((1.0 + documents) / frequencies[order])
    keys, features = _ngram_table(candidates, position)
    return Tfidf(settings, terms.take(pa.array(chosen)), kinds[order], idf.astype(np.float32), keys, features)


def _ngram_table(
    candidates: list[_Candidates], position: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Return the sorted keys of the kept n-grams, in final feature numbers, and their features."""
    keys, features = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int32)]
    start = len(candidates[0].names)
    before = 0  # start of the candidates that are one word shorter
    for part in candidates[1:]:
        if part.kind == WORD and len(part.names):
            final = position[start : start + len(part.names)]
            kept = final >= 0
            pairs = part.keys[kept] - np.uint64(1)
            first = position[before + (pairs >> np.uint64(32)).astype(np.int64)].astype(np.uint64)
            last = position[(pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)].astype(np.uint64)
            keys.append(((first << np.uint64(32)) | last) + np.uint64(1))
            features.append(final[kept].astype(np.int32))
        before, start = start, start + len(part.names)
    flat = np.concatenate(keys)
    order = np.argsort(flat)
    return flat[order], np.concatenate(features)[order]


def character_ngrams(word: str, shortest: int, longest: int) -> list[str]:
    """Return the character n-grams of a word, with its start and end marked by < and >."""
    marked = f"<{word}>"
    return [
        marked[start : start + length]
        for length in range(shortest, longest + 1)
        for start in range(len(marked) - length + 1)
    ]


def _grams_of(words: pa.Array, settings: TextSettings) -> Iterator[tuple[NDArray[np.int64], list[str]]]:
    """Yield character n-grams of a few thousand words at a time: counts per word, and all n-grams concatenated."""
    for start in range(0, max(len(words), 1), WORDS_AT_ONCE):
        check()
        rows = [character_ngrams(word, *settings.char_ngrams) for word in words.slice(start, WORDS_AT_ONCE).to_pylist()]
        yield np.array([len(row) for row in rows], dtype=np.int64), [gram for row in rows for gram in row]


def _offsets(counts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)


def stack_rows(parts: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]], width: int) -> Csr:
    """Stack CSR parts vertically."""
    if not parts:
        return sp.csr_array((0, width), dtype=np.float32)
    counts = np.concatenate([np.diff(indptr) for indptr, _, _ in parts])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    small = np.int32 if indptr[-1] < 2**31 else np.int64
    columns = np.concatenate([columns for _, columns, _ in parts])
    values = np.concatenate([values for _, _, values in parts])
    matrix = sp.csr_array((values, columns.astype(small, copy=False), indptr.astype(small)), shape=(len(counts), width))
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    return matrix
