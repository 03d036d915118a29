"""Initial word tables: vectors from a file, trained on the corpus, or random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.progress import Progress
from xmtc.nn.documents import DocumentReader
from xmtc.text.sequences import FIRST_WORD, PADDING
from xmtc.text.tokens import TokenBlock
from xmtc.text.weighted_bags import Numbered
from xmtc.text.word2vec import CorpusVectorSettings, train_vectors
from xmtc.text.word_vectors import read_vectors

Table = NDArray[np.float32]

STANDARD_DEVIATION = 0.3
"""Standard deviation of vectors that are trained or drawn here; about that of GloVe."""


def initial_table(
    vectors: str,
    corpus: CorpusVectorSettings,
    reader: DocumentReader,
    numbered: Numbered,
    *,
    seed: int,
    progress: Progress,
) -> tuple[Table, dict[str, Any]]:
    """(V, e) word table and statistics about it; words without a vector are drawn at random, padding is zero.

    `vectors` is 'corpus', 'random' or a file; `numbered` has the encoded training documents.
    """
    count = reader.size - FIRST_WORD
    facts: dict[str, Any] = {}
    if vectors == "corpus":
        assert isinstance(numbered, TokenBlock)
        found, known = corpus_vectors(numbered, count, corpus, seed, progress), np.ones(count, dtype=bool)
    elif vectors == "random":
        found, known = np.zeros((count, corpus.width), dtype=np.float32), np.zeros(count, dtype=bool)
    else:
        found, known, facts = _vectors_of_file(Path(vectors), reader, numbered, progress)
    bound = np.sqrt(3) * (found[known].std() if known.any() else STANDARD_DEVIATION)  # same deviation as the others
    table = _uniform(np.random.default_rng([seed, 1]), bound, (count + FIRST_WORD, found.shape[1]))
    table[FIRST_WORD:][known] = found[known]
    table[PADDING] = 0.0
    return table, facts


def corpus_vectors(
    sequences: TokenBlock, count: int, settings: CorpusVectorSettings, seed: int, progress: Progress
) -> Table:
    """(count, e) vectors trained on the texts, centred: with few texts they have a large common component."""
    ids = sequences.ids - np.int32(FIRST_WORD)
    frequencies = np.bincount(ids[ids >= 0], minlength=count).astype(np.int64)
    trained = train_vectors(sequences.indptr, ids, frequencies, settings, seed, progress)
    trained -= trained.mean(0)
    return trained * np.float32(STANDARD_DEVIATION / max(float(trained.std()), 1e-12))


def rows_of_new_words(table: Table, count: int, seed: int) -> Table:
    """(count, e) random vectors for words added by an update, with the standard deviation of the others."""
    words = table[FIRST_WORD:]
    bound = np.sqrt(3) * words.std()
    return _uniform(np.random.default_rng([seed, 4, len(words)]), bound, (count, words.shape[1]))


def name_vectors(names: TokenBlock, table: Table, width: int, seed: int) -> tuple[Table, float]:
    """(L, width) means of the word vectors of names, and the fraction of names with a known word.

    Vectors of another width are projected at random. Names without a known word get random vectors of about the same
    length as the others.
    """
    random = np.random.default_rng([seed, 17])
    known = names.ids >= FIRST_WORD
    indptr = np.concatenate([[0], np.cumsum(known)])[names.indptr]
    counts = np.diff(indptr)
    weights = np.repeat(1.0 / np.maximum(counts, 1), counts).astype(np.float32)
    means = sp.csr_array((weights, names.ids[known], indptr), shape=(len(counts), len(table))) @ table
    if table.shape[1] != width:
        projection = random.standard_normal((table.shape[1], width)).astype(np.float32)
        means = means @ (projection / np.float32(width**0.5))
    has_name = counts > 0
    spread = means[has_name].std() if has_name.any() else STANDARD_DEVIATION
    vectors = _uniform(random, np.sqrt(3) * float(spread), means.shape)
    vectors[has_name] = means[has_name]
    return vectors, float(has_name.mean()) if len(counts) else 0.0


def _uniform(random: np.random.Generator, bound: float, shape: tuple[int, int]) -> Table:
    return random.uniform(-bound, bound, shape).astype(np.float32)


def _vectors_of_file(
    path: Path, reader: DocumentReader, numbered: Numbered, progress: Progress
) -> tuple[Table, NDArray[np.bool_], dict[str, Any]]:
    """(words, e) vectors, which words have one, and their coverage."""
    words = reader.words
    read = read_vectors(path, [word for word in words if word], progress)
    named = np.array([bool(word) for word in words])  # subwords have neither name nor vector
    found, known = read.matrix, read.found
    if not named.all():
        known = np.zeros(len(words), dtype=bool)
        known[named] = read.found
        found = np.zeros((len(words), read.matrix.shape[1]), dtype=np.float32)
        found[named] = read.matrix
    ids = numbered.ids - FIRST_WORD
    running = float(known[ids[ids >= 0]].mean()) if (ids >= 0).any() else 0.0
    facts = {
        "words with a vector": f"{100 * read.coverage:.1f} %",
        "running words with a vector": f"{100 * running:.1f} %",
    }
    return found, known, facts
