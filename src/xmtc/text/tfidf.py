"""tf-idf features: words, word n-grams and character n-grams in one numbering."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.buffers import Buffers
from xmtc.core.cancellation import check
from xmtc.core.config import Choices, Range, Settings
from xmtc.core.explanation import TokenEvidence
from xmtc.core.parallel import run_parallel
from xmtc.core.string_table import StringIndex, StringTable, places
from xmtc.data.dataset import Csr
from xmtc.text import token_kernels
from xmtc.text.feature_rows import Items, TfidfRows, stack_rows, weighed_rows
from xmtc.text.feature_selection import CHARACTERS, WORD, choose_features
from xmtc.text.ngrams import character_ngrams, character_parts, number_keys, pair_key, pair_of
from xmtc.text.tokens import TokenBlock, Tokens, fold, spans
from xmtc.text.vocabulary import NO_PARTS, WordParts, folded_words

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
    idf_power: float = 1.0
    """Exponent of the inverse document frequency; more than 1 gives rare words more weight."""

    of = "text"

    def check(self) -> None:
        self.require_range("min_token_length", 1)
        self.require_range("min_df", 1)
        self.require_range("max_features", 1)
        self.require_range("word_ngrams", 1, 5)
        self.require_range("idf_power", 0, 2)
        pair = self.char_ngrams
        fits = len(pair) in (0, 2) and (not pair or 1 <= pair[0] <= pair[1] <= 10)
        self.require("char_ngrams", fits, "empty or two ascending integers from 1 to 10, such as [3, 5]")


TERMS = {"term": pa.string()}
"""Columns of the saved table of feature names."""


class _TermIndex(NamedTuple):
    """Index of the terms of one kind."""

    terms: StringIndex
    features: NDArray[np.int32]
    """Feature of each term; −1 at the end for terms that are missing."""

    @classmethod
    def of(cls, terms: pa.Array, chosen: NDArray[np.bool_]) -> _TermIndex:
        features = np.flatnonzero(chosen).astype(np.int32)
        return cls(StringIndex(terms.take(pa.array(features))), np.append(features, np.int32(-1)))


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
        words, numbers = folded_words(tokens, settings.lowercase, settings.min_token_length)
        chosen = choose_features(
            tokens,
            words,
            numbers,
            word_ngrams=settings.word_ngrams,
            char_ngrams=settings.char_ngrams,
            min_df=settings.min_df,
            max_features=settings.max_features,
            threads=threads,
        )
        if settings.idf == "smooth":
            idf = np.log((1.0 + len(tokens)) / (1.0 + chosen.frequencies)) + 1.0
        else:
            idf = np.log((1.0 + len(tokens)) / chosen.frequencies)
        if settings.idf_power != 1.0:
            idf = np.clip(idf**settings.idf_power, LEAST_IDF, MOST_IDF)
        weights = idf.astype(np.float32)
        return cls(settings, chosen.terms, chosen.kinds, weights, chosen.ngram_keys, chosen.ngram_features)

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
        power, idf = settings.idf_power, own.idf[fresh]
        if power == 1.0:
            idf = idf + rarer
        elif power:
            idf = ((idf ** (1.0 / power) + rarer) ** power).astype(np.float32)
        is_fresh = numbers[own.ngram_features] >= len(self)
        first, last = pair_of(own.ngram_keys[is_fresh])
        keys = pair_key(numbers[first], numbers[last])
        keys = np.concatenate([self.ngram_keys, keys])
        features = np.concatenate([self.ngram_features, numbers[own.ngram_features[is_fresh]].astype(np.int32)])
        order = np.argsort(keys)
        return Tfidf(
            self.settings,
            pa.concat_arrays([self.terms, own.terms.take(pa.array(fresh))]),
            np.concatenate([self.kinds, own.kinds[fresh]]),
            np.concatenate([self.idf, idf]),
            keys[order],
            features[order],
        )

    def transform(self, tokens: Tokens, threads: int = 1) -> Csr:
        """Compute tf-idf rows (n, D); a document without known words has an empty row."""
        words, numbers = folded_words(tokens, self.settings.lowercase, self.settings.min_token_length)
        features = np.append(self._word_features(words), np.int32(-1))  # the last one is that of number −1
        parts = self._character_features(words)
        free = [Buffers() for _ in range(threads)]

        def rows(part: tuple[TokenBlock, NDArray[np.int32]]) -> TfidfRows:
            buffers = free.pop()
            found = weighed_rows(self._items(*part, features, parts), self.idf, self.settings.sublinear, buffers)
            free.append(buffers)
            return found

        return stack_rows(list(run_parallel(rows, tokens.under(numbers), threads)), len(self), threads)

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

    @cached_property
    def _indices(self) -> tuple[_TermIndex, _TermIndex]:
        """Indices of the words (and word n-grams) and of the character n-grams."""
        return _TermIndex.of(self.terms, self.kinds == WORD), _TermIndex.of(self.terms, self.kinds == CHARACTERS)

    @cached_property
    def _ngram_index(self) -> tuple[StringTable, NDArray[np.int32]]:
        """The keys of word n-grams, and the feature of each, with −1 for the number −1 at the end."""
        table = StringTable(len(self.ngram_keys))
        numbers = number_keys(self.ngram_keys, table)
        features = np.full(len(table) + 1, -1, dtype=np.int32)
        features[numbers] = self.ngram_features
        features[-1] = -1
        return table, features

    def _word_features(self, words: pa.Array) -> NDArray[np.int32]:
        terms, features = self._indices[WORD]
        return features[terms.places(words)]

    def _character_features(self, words: pa.Array) -> WordParts:
        """Return the features of the character n-grams of words."""
        if not self.settings.char_ngrams:
            return NO_PARTS
        terms, features = self._indices[CHARACTERS]
        parts = character_parts(words, self.settings.char_ngrams, lambda *pieces: features[terms.places_of(*pieces)])
        return WordParts(*parts, len(self))

    def _items(
        self, block: TokenBlock, words: NDArray[np.int32], features: NDArray[np.int32], parts: WordParts
    ) -> Items:
        """Return the items of each document of a block: words by local number, and behind them word n-grams."""
        if self.settings.word_ngrams > 1:
            table, ngram_features = self._ngram_index
            indptr, numbers = token_kernels.map_tokens(*block, words)
            single = features[numbers]
            longer, items = single, block
            for _ in range(self.settings.word_ngrams - 1):
                keys = token_kernels.join_neighbours(indptr, longer, single)
                longer = ngram_features[number_keys(keys, table, add=False)]
                behind = np.where(longer < 0, longer, longer + np.int32(len(words)))
                items = TokenBlock(
                    *token_kernels.merge_streams(items.indptr, items.ids.astype(np.int32), indptr, behind)
                )
            of_items = np.concatenate([features[words], np.arange(len(self), dtype=np.int32)])
            return Items(*items, of_items, parts, words)
        return Items(*block, features[words], parts, words)
