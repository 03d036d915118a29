"""Features of a match, and the arrays that the matching kernel reads and writes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xmtc.lexical.names import GramIndex, NameTable

FEATURES = (
    "similarity",
    "relative similarity",
    "rank by similarity",
    "share of the name in the text",
    "share of the name in the title",
    "match",
    "occurrences",
    "first position",
    "spread",
    "in the title",
    "words of the name",
    "n-grams of the name",
    "kind of name",
    "labels with this name",
    "length of the text",
    "rarest word of the name",
    "mean rarity of its words",
    "part of a longer match",
    "broader labels found",
    "narrower labels found",
    "related labels found",
    "number of neighbours",
    "frequency",
    "precision of the name",
    "title only",
    "matches in the text",
    "share of the name in one word",
    "share of this word in the name",
    "position of this word",
    "rarity of the common n-grams",
    "frequency of the common n-grams",
    "share in this word, relative to the best name",
    "cosine of the vectors",
)
"""Names of the features of a candidate, in order."""
(
    SIMILARITY,
    RELATIVE_SIMILARITY,
    SIMILARITY_RANK,
    SHARE_IN_TEXT,
    SHARE_IN_TITLE,
    MATCH,
    OCCURRENCES,
    FIRST_POSITION,
    SPREAD,
    MATCH_IN_TITLE,
    WORDS_OF_NAME,
    GRAMS_OF_NAME,
    KIND_OF_NAME,
    LABELS_WITH_NAME,
    TEXT_LENGTH,
    RAREST_WORD,
    MEAN_RARITY,
    IN_LONGER_MATCH,
    BROADER_FOUND,
    NARROWER_FOUND,
    RELATED_FOUND,
    NEIGHBOUR_COUNT,
    FREQUENCY,
    PRECISION,
    TITLE_ONLY,
    MATCH_COUNT,
    SHARE_IN_WORD,
    SHARE_OF_WORD,
    WORD_POSITION,
    COMMON_RARITY,
    COMMON_FREQUENCY,
    SHARE_OF_BEST,
    COSINE,
) = range(len(FEATURES))
"""Places of the features."""
LINE_END = 2
"""Break before a token that is the first of its line; 1 stands for the first of a sentence."""
SETS, PHRASES = 1, 3
"""Kinds of matches: all words of the name in one sentence, or side by side; one more if no word was stemmed."""
MOST_OCCURRENCES = 64
"""Occurrences of a word that are compared with the other words of a name."""
MOST_NEIGHBOURS = 64
"""Broader, narrower and related labels that are looked up."""


WORDS_COMPARED = 16
"""Words of a text that may share n-grams with one name."""
INSIDE, IN_TITLE, POSITION, ONE_WORD, ITS_GRAMS, RARE, OFTEN = range(7)
"""Results of a comparison: share of the name in the text and in the title; position of the word with the largest share,
its share, and how many of its n-grams the name has; mean rarity and mean log frequency of the common n-grams."""

GRAM_VALUE, GRAM_IDF, GRAM_RARE, GRAM_OFTEN, GRAM_TITLE, GRAM_FIRST, GRAM_COUNT = range(7)
"""Numbers of an n-gram of a text: what it adds to the similarity of a name; its idf among names; this times its rarity,
its log frequency, and 1 if it is in the title; position of the first token with it, and number of tokens."""

NAME_SCALE, NAME_MASS, NAME_GRAMS, NAME_WORDS, NAME_KIND, NAME_LABELS, NAME_RAREST, NAME_RARITY = range(8)
"""Numbers of a name: 1 / length of its vector, sum of its n-grams' idf, n-grams, words, kind, labels with this name,
rarity of its rarest word, and mean rarity of its words."""


class TextNumbers(NamedTuple):
    """Texts in the numbering of the names; −1 for words that no name has."""

    indptr: NDArray[np.int64]  # (n + 1,)
    tokens: NDArray[np.int32]  # number of the word
    breaks: NDArray[np.uint8]
    forms: NDArray[np.int32]  # (W,) of each word
    stems: NDArray[np.int32]  # (W,)
    gram_indptr: NDArray[np.int64]  # (W + 1,)
    grams: NDArray[np.int32]


class Rarity(NamedTuple):
    """Inverse document frequencies in the training texts."""

    grams: NDArray[np.float32]  # (G,)
    stems: NDArray[np.float32]  # (stems,)


class Neighbours(NamedTuple):
    """Broader, narrower and related labels (three CSR matrices)."""

    broader_indptr: NDArray[np.int64]
    broader: NDArray[np.int32]
    narrower_indptr: NDArray[np.int64]
    narrower: NDArray[np.int32]
    related_indptr: NDArray[np.int64]
    related: NDArray[np.int32]


class MatchMemory(NamedTuple):
    """Memory of one thread, restored to its initial values after each text."""

    sums: NDArray[np.float32]  # (S, 2) zeros; beside them, to be read at once, the scale of each name
    gram_places: NDArray[np.int32]  # (G,) zeros: row of the text's n-gram plus one
    heads: NDArray[np.int32]  # (stems,) −1
    found: NDArray[np.int32]  # (L,) −1: number of the label's match
    ranks: NDArray[np.int32]  # (L,) −1: rank by similarity


def memory_of(names: NameTable, grams: GramIndex, labels: int) -> MatchMemory:
    """Allocate the memory of one thread."""
    stems, count = len(names.stem_table), len(grams.table)
    return MatchMemory(
        np.stack([np.zeros_like(grams.scales), grams.scales], axis=1),
        np.zeros(count, np.int32),
        np.full(stems, -1, np.int32),
        np.full(labels, -1, np.int32),
        np.full(labels, -1, np.int32),
    )
