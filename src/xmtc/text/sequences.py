"""Texts as sequences of word numbers, for neural models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Settings
from xmtc.core.errors import DataError, UnsupportedError
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.text.cache import tokens_of
from xmtc.text.known_words import KnownWords, rows_with
from xmtc.text.tokens import Span, TokenBlock, Tokens, spans
from xmtc.text.vocabulary import Vocabulary

PADDING, UNKNOWN = 0, 1
WORDS = "words"
"""Name of the table with the words in a model's state."""
FIRST_WORD = 2
"""Number of the first word; lower numbers are padding and unknown words."""


@dataclass(frozen=True)
class SequenceSettings(Settings):
    """Conversion of text to a sequence of words."""

    max_tokens: int = 500
    """Maximum number of words per text; the rest is cut off."""
    max_words: int = 500_000
    """Maximum size of the vocabulary; the words that occur in the most documents are kept."""
    min_df: int = 1
    """Minimum number of training texts in which a word must occur; rarer words are treated as unknown."""
    lowercase: bool = True
    """Convert words to lower case."""

    of = "text"

    def check(self) -> None:
        self.require_range("max_tokens", 1, 1_000_000)
        self.require_range("max_words", 1)
        self.require_range("min_df", 1)


class WordSequences:
    """The vocabulary of a model; converts texts to word numbers."""

    def __init__(self, settings: SequenceSettings, vocabulary: Vocabulary) -> None:
        self.settings = settings
        self.vocabulary = vocabulary
        self._known = KnownWords()

    @property
    def size(self) -> int:
        """Number of ids in use: words, and those below FIRST_WORD."""
        return len(self.vocabulary) + FIRST_WORD

    @property
    def words(self) -> list[str]:
        """Words in the order of their numbers."""
        return list(self.vocabulary.terms.to_pylist())

    @classmethod
    def fit(
        cls, dataset: Dataset, settings: SequenceSettings, runtime: Runtime, progress: Progress = silent
    ) -> tuple[WordSequences, TokenBlock]:
        """Build the vocabulary from training texts; return it with the texts' sequences."""
        tokens = tokens_of(dataset.text(), runtime, progress)
        with progress.task("building the vocabulary", total=1) as task:
            vocabulary = Vocabulary.fit(
                tokens,
                lowercase=settings.lowercase,
                min_df=settings.min_df,
                max_terms=settings.max_words,
                threads=runtime.threads,
            )
            made = cls(settings, vocabulary)
            sequences = made._numbered(tokens)
            task.advance()
        if not len(vocabulary):
            raise DataError(
                f"no word occurs in {settings.min_df} or more training texts. "
                f"Check the text field, or lower {settings.of}.min_df."
            )
        return made, sequences

    def grown(self, dataset: Dataset, documents: int, runtime: Runtime) -> WordSequences:
        """Append new words of additional texts, `documents` in total; existing words keep their numbers."""
        if not len(dataset):
            return self
        vocabulary = self.vocabulary.grown(
            tokens_of(dataset.text(), runtime),
            lowercase=self.settings.lowercase,
            min_df=self.settings.min_df,
            max_terms=self.settings.max_words,
            threads=runtime.threads,
        )
        return WordSequences(self.settings, vocabulary)

    def encode(self, dataset: Dataset, runtime: Runtime) -> TokenBlock:
        """Convert new texts to sequences; a text without words becomes one unknown word."""
        if not dataset.has_text:
            raise UnsupportedError("this model was trained on text. Got a feature matrix: pass texts.")
        block = self._numbered(tokens_of(dataset.text(), runtime))
        self._known.remember(dataset, _known_rows(block))
        return block

    def known_words(self, dataset: Dataset, runtime: Runtime) -> NDArray[np.bool_]:
        """Return which texts have a known word (n,); free for the texts that were encoded last."""
        known = self._known.get(dataset)
        return _known_rows(self.encode(dataset, runtime)) if known is None else known

    def spans(self, text: str) -> list[Span]:
        """Return the words of a text, up to `max_tokens`, with their character ranges."""
        return spans(text)[: self.settings.max_tokens]

    def _numbered(self, tokens: Tokens) -> TokenBlock:
        whole = self.vocabulary.encode(tokens, self.settings.lowercase)
        return first_words(TokenBlock(whole.indptr, whole.ids + np.int32(FIRST_WORD)), self.settings.max_tokens)

    def state(self) -> State:
        """Return the state to save: the words in the order of their numbers."""
        words = {"word": self.vocabulary.terms, "documents": pa.array(self.vocabulary.frequencies)}
        return State(tables={WORDS: pa.table(words)})

    @classmethod
    def from_state(cls, settings: SequenceSettings, state: SavedState) -> WordSequences:
        """Restore from a saved state."""
        table = state.table(WORDS, {"word": pa.string(), "documents": pa.int64()})
        terms = table["word"].combine_chunks()
        return cls(settings, Vocabulary(terms, np.asarray(table["documents"]), 0))


def _known_rows(block: TokenBlock) -> NDArray[np.bool_]:
    return rows_with(block.ids >= FIRST_WORD, block.indptr)


def first_words(block: TokenBlock, most: int) -> TokenBlock:
    """Truncate every document to `most` words; one without words gets a single unknown word."""
    lengths = np.diff(block.indptr)
    if len(lengths) and lengths.min() >= 1 and lengths.max() <= most:
        return block
    kept = np.minimum(lengths, most)
    indptr = np.concatenate([[0], np.cumsum(np.maximum(kept, 1))]).astype(np.int64)
    ids = np.full(int(indptr[-1]), UNKNOWN, dtype=np.int32)
    ids[_places(indptr[:-1], kept)] = block.ids[_places(block.indptr[:-1], kept)]
    return TokenBlock(indptr, ids)


def taken(block: TokenBlock, rows: NDArray[np.int64]) -> TokenBlock:
    """Return these documents, in this order."""
    counts = np.diff(block.indptr)[rows]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return TokenBlock(indptr, block.ids[_places(block.indptr[rows], counts)])


def _places(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return starts[i], starts[i] + 1, …, counts[i] numbers for each i, concatenated."""
    before = np.cumsum(counts) - counts
    places: NDArray[np.int64] = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(starts - before, counts)
    return places
