"""Texts as sequences of word numbers in reading order, for neural models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.artifact.store import State
from xmtc.core.config import Settings
from xmtc.core.errors import DataError, UnsupportedError
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.text.cache import tokens_of
from xmtc.text.tokens import Span, TokenBlock, Tokens, spans
from xmtc.text.vocabulary import Vocabulary

PADDING, UNKNOWN = 0, 1
WORDS = "words"
"""The table of a model's state that holds the words."""
FIRST_WORD = 2
"""Numbers below this are no words: padding, and whatever the vocabulary does not know."""


@dataclass(frozen=True)
class SequenceSettings(Settings):
    """How text becomes a sequence of words."""

    max_tokens: int = 500
    """Words of a text that are read, from its start."""
    max_words: int = 500_000
    """Words of the vocabulary, the most widespread ones."""
    min_df: int = 1
    """Training texts that a word must be in; rarer ones are read as unknown."""
    lowercase: bool = True
    """Read words in lower case."""

    of = "text"

    def check(self) -> None:
        self.require_range("max_tokens", 1, 1_000_000)
        self.require_range("max_words", 1)
        self.require_range("min_df", 1)


class WordSequences:
    """The words that a model knows, and texts as their numbers."""

    def __init__(self, settings: SequenceSettings, vocabulary: Vocabulary) -> None:
        self.settings = settings
        self.vocabulary = vocabulary

    @property
    def size(self) -> int:
        """Numbers in use: words, and those below FIRST_WORD."""
        return len(self.vocabulary) + FIRST_WORD

    @property
    def words(self) -> list[str]:
        return list(self.vocabulary.terms.to_pylist())

    @classmethod
    def fit(
        cls, dataset: Dataset, settings: SequenceSettings, runtime: Runtime, progress: Progress = silent
    ) -> tuple[WordSequences, TokenBlock]:
        """Choose the words from training texts; returns them with the texts' sequences."""
        tokens = tokens_of(dataset.text(), runtime, progress)
        with progress.task("choosing words", total=1) as task:
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
                f"no word is in {settings.min_df} or more training texts. "
                f"Check the text field, or lower {settings.of}.min_df."
            )
        return made, sequences

    def grown(self, dataset: Dataset, documents: int, runtime: Runtime) -> WordSequences:
        """These words under their numbers, and after them those that more texts bring, `documents` in all."""
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
        """The sequences of new texts; a text without a word becomes one unknown word."""
        if not dataset.has_text:
            raise UnsupportedError("this model was trained on text. Got a feature matrix: give it texts.")
        return self._numbered(tokens_of(dataset.text(), runtime))

    def spans(self, text: str) -> list[Span]:
        """The words of a text that are read, with their characters."""
        return spans(text)[: self.settings.max_tokens]

    def _numbered(self, tokens: Tokens) -> TokenBlock:
        whole = self.vocabulary.encode(tokens, self.settings.lowercase)
        return first_words(TokenBlock(whole.indptr, whole.ids + np.int32(FIRST_WORD)), self.settings.max_tokens)

    def state(self) -> State:
        """The words in the order of their numbers."""
        words = {"word": self.vocabulary.terms, "documents": pa.array(self.vocabulary.frequencies)}
        return State(tables={WORDS: pa.table(words)})

    @classmethod
    def from_state(cls, settings: SequenceSettings, state: State) -> WordSequences:
        table = state.tables[WORDS]
        terms = table["word"].combine_chunks()
        return cls(settings, Vocabulary(terms, np.asarray(table["documents"]), 0))


def first_words(block: TokenBlock, most: int) -> TokenBlock:
    """Every document cut after `most` words; one without words gets a single unknown one."""
    lengths = np.diff(block.indptr)
    if len(lengths) and lengths.min() >= 1 and lengths.max() <= most:
        return block
    kept = np.minimum(lengths, most)
    indptr = np.concatenate([[0], np.cumsum(np.maximum(kept, 1))]).astype(np.int64)
    ids = np.full(int(indptr[-1]), UNKNOWN, dtype=np.int32)
    ids[_places(indptr[:-1], kept)] = block.ids[_places(block.indptr[:-1], kept)]
    return TokenBlock(indptr, ids)


def taken(block: TokenBlock, rows: NDArray[np.int64]) -> TokenBlock:
    """Some of the documents, in this order."""
    counts = np.diff(block.indptr)[rows]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return TokenBlock(indptr, block.ids[_places(block.indptr[rows], counts)])


def _places(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """starts[i], starts[i] + 1, … counts[i] of them, for each i in turn."""
    before = np.cumsum(counts) - counts
    places: NDArray[np.int64] = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(starts - before, counts)
    return places
