"""Texts as means of word vectors: weighted by idf, without the components that all names have in common. No PyTorch.

The vectors come from a file and are stored as 8-bit integers, so that a saved model does not need the file. Words that
are neither in a name nor in a training text are not stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.labels.layout import unit_rows
from xmtc.nn.neighbours.code_index import CodeRows
from xmtc.text.cache import tokens_of
from xmtc.text.tokens import Tokens, tokenise
from xmtc.text.vocabulary import Vocabulary, count_documents
from xmtc.text.word_vectors import read_vectors

MOST_WORDS = 500_000
"""Maximum size of the vocabulary; words of names come first, then the most frequent ones of the training texts."""
NAMES = 1 << 16
"""Names in memory as vectors at a time."""
WORDS = "name_words"
"""Name of the table with the words in a model's state."""

Vectors = NDArray[np.float32]


class WordMeans(NamedTuple):
    """Words with a vector, which lacks the common components, and their weights."""

    vocabulary: Vocabulary
    codes: NDArray[np.int8]  # (V, d)
    weights: Vectors  # (V,) idf, multiplied by the scale of the codes

    @classmethod
    def fit(
        cls,
        names: pa.ChunkedArray,
        texts: pa.ChunkedArray | None,
        file: Path,
        components: int,
        runtime: Runtime,
        progress: Progress = silent,
    ) -> WordMeans:
        """Read the vectors of the words of names and training texts. idf is that of the texts, if given."""
        name_tokens = tokenise(names, runtime.threads)
        text_tokens = name_tokens if texts is None else tokens_of(texts, runtime, progress)
        vocabulary = Vocabulary.fit(name_tokens, max_terms=MOST_WORDS, threads=runtime.threads)
        if texts is not None:
            vocabulary = vocabulary.grown(text_tokens, max_terms=MOST_WORDS, threads=runtime.threads)
        vectors = read_vectors(file, vocabulary.terms.to_pylist(), progress)
        known = np.flatnonzero(vectors.found)
        documents = _document_counts(vocabulary, text_tokens, runtime.threads)[known]
        vocabulary = Vocabulary(vocabulary.terms.take(pa.array(known)), documents, len(text_tokens))
        matrix = vectors.matrix[known]
        made = cls._rounded(vocabulary, matrix)
        if components:
            common = made._common(names, components, runtime.threads)
            made = cls._rounded(vocabulary, matrix - (matrix @ common.T) @ common)
        return made

    @classmethod
    def _rounded(cls, vocabulary: Vocabulary, matrix: NDArray[Any]) -> WordMeans:
        """Store word vectors (V, d) as integers."""
        rows = CodeRows.of(matrix)
        idf = np.log((1.0 + vocabulary.documents) / (1.0 + vocabulary.frequencies))
        return cls(vocabulary, rows.codes, (np.linalg.norm(matrix, axis=1) * rows.scales * idf).astype(np.float32))

    @property
    def width(self) -> int:
        """Dimension of the vectors."""
        return int(self.codes.shape[1])

    def embed(self, texts: pa.ChunkedArray, threads: int = 1) -> Vectors:
        """(n, d) unit vectors; zero for texts without a known word."""
        block = self.vocabulary.encode(tokenise(texts, threads))
        known = block.ids >= 0
        indptr = np.concatenate([[0], np.cumsum(known)])[block.indptr]
        ids = block.ids[known]
        used, places = np.unique(ids, return_inverse=True)
        counts = sp.csr_array((self.weights[ids], places, indptr), shape=(len(texts), len(used)))
        return unit_rows(counts @ self.codes[used].astype(np.float32))

    def _common(self, names: pa.ChunkedArray, components: int, threads: int) -> Vectors:
        """The directions that the names have in common."""
        moments = np.zeros((self.width, self.width))
        for low in range(0, len(names), NAMES):
            part = self.embed(names.slice(low, NAMES), threads)
            moments += part.T @ part
        return leading_directions(moments, components)

    def state(self) -> State:
        """The state to save."""
        words = {"word": self.vocabulary.terms, "documents": pa.array(self.vocabulary.frequencies)}
        return State(arrays={"word_codes": self.codes, "word_weights": self.weights}, tables={WORDS: pa.table(words)})

    @classmethod
    def from_state(cls, state: SavedState, width: int) -> WordMeans:
        """Restore from a saved state."""
        table = state.table(WORDS, {"word": pa.string(), "documents": pa.int64()})
        codes = state.array("word_codes", np.int8, (table.num_rows, width), low=-127)
        weights = state.array("word_weights", np.float32, (table.num_rows,), low=0.0)
        vocabulary = Vocabulary(table["word"].combine_chunks(), np.asarray(table["documents"]), 0)
        return cls(vocabulary, codes, weights)


def leading_directions(moments: NDArray[np.float64], count: int) -> Vectors:
    """(count, d) orthonormal directions in which vectors are longest, from the sum of their outer products (d, d)."""
    _, directions = np.linalg.eigh(moments)
    return np.ascontiguousarray(directions.T[::-1][: min(count, len(moments) - 1)], dtype=np.float32)


def _document_counts(vocabulary: Vocabulary, tokens: Tokens, threads: int) -> NDArray[np.int64]:
    """(V,) number of texts with each word."""
    return count_documents(tokens, vocabulary.numbers(tokens.types), len(vocabulary), threads)
