"""Candidate labels of texts: labels whose names occur in a text or are similar to its words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.core.explanation import TokenEvidence
from xmtc.core.jit import frozen
from xmtc.core.mapped_text import cut_texts
from xmtc.core.parallel import run_parallel
from xmtc.data.label_index import LabelIndex
from xmtc.labels.hierarchy import Hierarchy
from xmtc.lexical.match_kernels import match_texts, name_facts
from xmtc.lexical.match_types import (
    COSINE,
    FEATURES,
    MatchMemory,
    Neighbours,
    Rarity,
    TextNumbers,
    memory_of,
)
from xmtc.lexical.names import GramIndex, NameTable, index_names
from xmtc.lexical.texts import analyse, normalised, words_of
from xmtc.text.token_kernels import document_frequencies, expand
from xmtc.text.tokens import spans

Parts = TypeVar("Parts", bound=tuple[Any, ...])

NEAREST = 50
"""Candidates with the nearest vectors."""
BLOCK_BYTES, BLOCK_TEXTS = 1 << 18, 128
"""Texts matched at a time."""
NOTHING = np.empty((0, 0), dtype=np.int32)
MOST_OCCURRING = 200
"""Candidates whose names occur in a text, besides those with the most similar names: the longest and rarest names."""
POSTINGS = 25_000
"""Names that the n-grams of a text add up for, most telling n-grams first; the cost is bounded for any vocabulary."""
RESEMBLES = 0.5
"""Fraction of the n-grams of a word that a name must have for the word to be marked in explanations."""


class Candidates(NamedTuple):
    """Candidate labels of consecutive texts, padded with −1."""

    labels: NDArray[np.int32]  # (n, c)
    names: NDArray[np.int32]  # (n, c) the name that matched best
    features: NDArray[np.float32]  # (n, c, F)


class _Piece(NamedTuple):
    """A few texts to match at a time."""

    texts: pa.Array
    wanted: NDArray[np.int32]  # (n, c) labels to describe; (0, 0) for the candidates
    more: NDArray[np.int32] = NOTHING  # (n, e) further candidates, padded with −1
    embedded: Any = None  # the vectors of the texts


class NameSearch(Protocol):
    """Search for names by vectors, as `nn.neighbours.name_vectors` provides it."""

    def embed(self, texts: pa.ChunkedArray) -> Any:
        """Vectors of texts, which the other methods take."""

    def search(self, texts: Any, k: int, allowed: Any = None) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(n, k) labels with the nearest names, padded with −1, and their cosines."""

    def score(self, texts: Any, candidates: NDArray[Any]) -> NDArray[np.float32]:
        """(n, c) cosines of given labels."""


class NameMatcher:
    """Finds candidate labels by their names. Threads share the index; each has its own scratch memory."""

    def __init__(
        self, names: NameTable, grams: GramIndex, rarity: Rarity, near: Neighbours, language: str | None, most: int
    ) -> None:
        self.names, self.grams, self.rarity, self.near = _frozen(names), _frozen(grams), _frozen(rarity), _frozen(near)
        self.language, self.most = language, most
        self.label_count = len(names.first) - 1
        self.vectors: NameSearch | None = None
        self._free: SimpleQueue[MatchMemory] = SimpleQueue()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have no scratch memory."""
        parts = self.names, self.grams, self.rarity, self.near, self.language, self.most
        return NameMatcher, parts, {"vectors": self.vectors}

    @cached_property
    def facts(self) -> NDArray[np.float32]:
        """(S, 8) numbers of each name, see `name_facts`; needed only once texts are matched."""
        facts: NDArray[np.float32] = frozen(name_facts(self.names, self.grams, self.rarity))
        return facts

    @classmethod
    def of(cls, labels: LabelIndex, language: str | None, most: int) -> NameMatcher:
        """Index the names of labels. All words count as equally rare."""
        names, grams = index_names(labels, language)
        rarity = Rarity(np.ones(len(grams.table), np.float32), np.ones(len(names.stem_table), np.float32))
        return cls(names, grams, rarity, neighbours_of(labels), language, most)

    def with_rarity(
        self, texts: pa.ChunkedArray, threads: int, advance: Callable[[int], None] = lambda count: None
    ) -> NameMatcher:
        """Return the same names with inverse document frequencies in these texts."""
        counts = [np.zeros(len(self.grams.table), dtype=np.int32), np.zeros(len(self.names.stem_table), dtype=np.int32)]
        seen = [np.full(len(count), -1, dtype=np.int32) for count in counts]
        before = 0
        for block in run_parallel(lambda piece: self._numbered(piece[1]), _pieces(texts), threads):
            spread, grams = expand(block.indptr, block.tokens, block.gram_indptr, block.grams)
            document_frequencies(spread, grams, before, counts[0], seen[0])
            document_frequencies(block.indptr, block.stems[block.tokens], before, counts[1], seen[1])
            before += len(block.indptr) - 1
            advance(len(block.indptr) - 1)
        idf = [(1.0 + np.log((1.0 + before) / (1.0 + count))).astype(np.float32) for count in counts]
        return self._with(Rarity(*idf))

    def renewed(self, labels: LabelIndex) -> NameMatcher:
        """Index the names of other labels; words that no name had before are as rare as the rarest."""
        new = NameMatcher.of(labels, self.language, self.most)
        pairs = ((new.grams.table, self.grams.table), (new.names.stem_table, self.names.stem_table))
        kept = []
        for (ours, theirs), rarity in zip(pairs, self.rarity, strict=True):
            places = theirs.numbers(ours.keys)
            kept.append(np.append(rarity, rarity.max(initial=1.0))[places].astype(np.float32))
        return new._with(Rarity(*kept))

    def _with(self, rarity: Rarity) -> NameMatcher:
        return NameMatcher(self.names, self.grams, rarity, self.near, self.language, self.most)

    def candidates(
        self,
        texts: pa.ChunkedArray,
        threads: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
        wanted: NDArray[np.int64] | None = None,
        only_names: bool = False,
    ) -> Iterator[Candidates]:
        """Yield the candidates of consecutive texts; `wanted` (n, c) has the labels to describe instead.

        With `only_names`, only labels whose name occurs; similarities are not computed. Vectors are computed and
        compared in the calling thread, because their computation uses several threads itself.
        """
        mask = np.empty(0, dtype=np.bool_) if allowed is None else allowed
        vectors = None if only_names else self.vectors

        def pieces() -> Iterator[_Piece]:
            for start, block in _pieces(texts):
                given = NOTHING if wanted is None else wanted[start : start + len(block)].astype(np.int32)
                if vectors is None:
                    yield _Piece(block, given)
                    continue
                embedded, more = vectors.embed(pa.chunked_array([block])), NOTHING
                if not given.shape[1]:
                    nearest, _ = vectors.search(embedded, min(NEAREST, self.label_count), allowed)
                    more = nearest.astype(np.int32)
                yield _Piece(block, given, more, embedded)

        def match(piece: _Piece) -> tuple[_Piece, Candidates]:
            return piece, self._matched(piece, mask, 0 if only_names else POSTINGS)

        for piece, found in run_parallel(match, pieces(), threads):
            if vectors is not None:
                found.features[:, :, COSINE] = vectors.score(piece.embedded, found.labels)
            yield found

    def _matched(self, piece: _Piece, allowed: NDArray[np.bool_], postings: int) -> Candidates:
        """The candidates of a few texts."""
        texts = self._numbered(piece.texts)
        width = piece.wanted.shape[1] or min(self.most + MOST_OCCURRING, self.label_count) + piece.more.shape[1]
        labels = np.full((len(piece.texts), width), -1, dtype=np.int32)
        names = np.full((len(piece.texts), width), -1, dtype=np.int32)
        features = np.empty((len(piece.texts), width, len(FEATURES)), dtype=np.float32)
        counts = np.zeros(len(piece.texts), dtype=np.int64)
        scratch = self._scratch()
        match_texts(
            texts,
            self.names,
            self.grams,
            self.facts,
            self.rarity,
            self.near,
            scratch,
            min(self.most, self.label_count),
            postings,
            allowed,
            piece.wanted,
            piece.more,
            labels,
            names,
            features,
            counts,
        )
        self._free.put(scratch)
        widest = width if piece.wanted.shape[1] else int(counts.max(initial=0))
        return Candidates(labels[:, :widest], names[:, :widest], features[:, :widest])

    def _numbered(self, block: pa.Array) -> TextNumbers:
        """Number the words of texts like those of the names."""
        texts = analyse(block, self.language)
        words = texts.words
        return _frozen(
            TextNumbers(
                texts.indptr,
                texts.tokens,
                texts.breaks,
                self.names.form_table.numbers(words.forms),
                self.names.stem_table.numbers(words.stems),
                words.gram_indptr,
                self.grams.table.numbers(words.grams),
            )
        )

    def matched_words(self, text: str, name: int) -> list[TokenEvidence]:
        """The words of a text that are in a name or resemble one, each with its share of the name's n-grams."""
        found = spans(text)
        words = words_of(normalised([span.token for span in found], self.language), self.language)
        grams = self.grams.table.numbers(words.grams)
        own = self.grams.grams[self.grams.indptr[name] : self.grams.indptr[name + 1]]
        stems = self.names.stems[self.names.indptr[name] : self.names.indptr[name + 1]]
        common = np.isin(grams, own)
        weights = np.where(common, self.grams.idf[grams], 0.0) / max(float(self.grams.idf[own].sum()), 1e-9)
        shares = np.concatenate([[0.0], np.cumsum(weights)])[words.gram_indptr]
        covered = np.diff(np.concatenate([[0], np.cumsum(common)])[words.gram_indptr]) / np.diff(words.gram_indptr)
        is_word = np.isin(self.names.stem_table.numbers(words.stems), stems)
        marked = np.flatnonzero(is_word | (covered >= RESEMBLES))
        order = marked[np.argsort(-np.diff(shares)[marked], kind="stable")]
        given = np.diff(shares)
        return [TokenEvidence(found[i].token, found[i].start, found[i].end, float(given[i])) for i in order]

    def _scratch(self) -> MatchMemory:
        try:
            return self._free.get_nowait()
        except Empty:
            return memory_of(self.names, self.grams, self.label_count)


def _pieces(texts: pa.ChunkedArray) -> Iterator[tuple[int, pa.Array]]:
    start = 0
    for piece in cut_texts(texts, BLOCK_BYTES):
        for first in range(0, len(piece), BLOCK_TEXTS):
            part = piece.slice(first, BLOCK_TEXTS)
            yield start, part
            start += len(part)


def neighbours_of(labels: LabelIndex) -> Neighbours:
    """Number the broader, narrower and related labels."""
    links, count = Hierarchy(labels), len(labels)
    arrays: list[NDArray[Any]] = []
    for matrix in (links.parents[:count, :count], links.children[:count, :count], links.related[:count, :count]):
        arrays += [matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)]
    return Neighbours(*arrays)


def _frozen(parts: Parts) -> Parts:
    """Make all arrays read-only, so that a kernel is compiled once for arrays in memory and in mapped files."""
    return type(parts)(*(_frozen(part) if isinstance(part, tuple) else frozen(part) for part in parts))
