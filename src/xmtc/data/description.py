"""Statistics of a file of documents: labels, texts, duplicates, and the overlap with a second file.

A word is a run of characters without ASCII white space: fast to count and independent of any model's tokeniser. For
languages that do not separate words by spaces, the number of characters is more informative.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from xmtc.core.mapped_text import cut_texts, let_go, string_offsets
from xmtc.core.progress import Progress, silent
from xmtc.data.dataset import Csr, Dataset

SHARES = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)
"""The quantiles to report."""
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Distribution:
    """Frequency of each distinct value, from which mean, quantiles and histogram are computed."""

    values: NDArray[np.int64]
    """Distinct values, ascending."""
    counts: NDArray[np.int64]
    """Number of occurrences of each value."""

    @classmethod
    def of(cls, numbers: ArrayLike) -> Distribution:
        """Count the values of an array."""
        values, counts = np.unique(np.asarray(numbers, dtype=np.int64), return_counts=True)
        return cls(values, counts.astype(np.int64))

    @cached_property
    def _reached(self) -> NDArray[np.int64]:
        return np.cumsum(self.counts)

    @property
    def total(self) -> int:
        """Number of observations."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean of the observations; 0 if there are none."""
        return float(self.values @ self.counts) / max(self.total, 1)

    def quantile(self, share: float) -> int:
        """Return the smallest observed value that is ≥ this fraction of the observations; 0 if there are none."""
        if not len(self.values):
            return 0
        rank = max(math.ceil(round(share * self.total, 6)), 1)  # 0.95 × n may be rounded up slightly
        return int(self.values[np.searchsorted(self._reached, rank)])

    def count(self, value: int) -> int:
        """Return the number of occurrences of a value."""
        return int(self.counts[self.values == value].sum())

    def to_json(self) -> dict[str, Any]:
        """Convert to mean and quantiles (percent → value)."""
        return {"mean": self.mean, "quantiles": {f"{100 * share:g}": self.quantile(share) for share in SHARES}}


@dataclass(frozen=True)
class LabelFigures:
    """Label statistics of a file. A label occurs if a document has it; a vocabulary or header may list more."""

    occurring: int
    columns: int
    """Number of labels, including those without documents."""
    pairs: int
    """Number of (document, label) pairs."""
    per_document: Distribution
    documents_without: int
    per_label: Distribution
    """Number of documents of each occurring label."""
    seen_once: int
    """Number of labels with exactly one document."""
    head_shares: dict[str, float]
    """Fraction of all pairs that belong to the most frequent '1' and '10' % of the occurring labels (at least one)."""

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values."""
        return {
            "occurring": self.occurring,
            "columns": self.columns,
            "pairs": self.pairs,
            "labels_per_document": self.per_document.to_json(),
            "documents_without_labels": self.documents_without,
            "documents_per_label": self.per_label.to_json(),
            "labels_seen_once": self.seen_once,
            "share_seen_once": self.seen_once / max(self.occurring, 1),
            "share_of_most_frequent_percent": self.head_shares,
        }


@dataclass(frozen=True)
class TextFigures:
    """Text statistics of a file; the fields of a document count as one text."""

    words: Distribution
    """Number of words per text, separated by ASCII white space."""
    characters: Distribution
    """Number of Unicode code points per text."""
    empty: int
    """Number of texts without a word."""

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values."""
        return {
            "words_per_text": self.words.to_json(),
            "characters_per_text": self.characters.to_json(),
            "empty_texts": self.empty,
        }


@dataclass(frozen=True)
class FeatureFigures:
    """Feature statistics of a file that contains features instead of text."""

    width: int
    """Number of feature columns, including unused ones."""
    used: int
    """Number of columns used by at least one document."""
    per_document: Distribution
    empty: int
    """Number of documents without features."""

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values."""
        return {
            "width": self.width,
            "used": self.used,
            "features_per_document": self.per_document.to_json(),
            "documents_without_features": self.empty,
        }


@dataclass(frozen=True)
class Repeats:
    """Counts of repeated ids or documents."""

    distinct: int
    """Number of distinct values that occur more than once."""
    further: int
    """Number of occurrences beyond the first of each."""

    def to_json(self) -> dict[str, int]:
        """Convert to plain values."""
        return {"distinct": self.distinct, "further": self.further}


@dataclass(frozen=True)
class Overlap:
    """Overlap of a second file with the first, and labels that only the second has."""

    documents: int | None
    """Documents of the second file whose text or features are in the first; None if only one of them has text."""
    ids: int | None
    """Documents of the second file whose id is in the first; None if one file has no ids."""
    unseen_labels: int | None
    """Labels of the second file without a document in the first; None if one file has no labels."""
    unseen_pairs: int | None
    """(document, label) pairs of the second file with such a label."""

    def to_json(self) -> dict[str, int | None]:
        """Convert to plain values."""
        return {
            "documents": self.documents,
            "ids": self.ids,
            "unseen_labels": self.unseen_labels,
            "unseen_pairs": self.unseen_pairs,
        }


@dataclass(frozen=True)
class Description:
    """Statistics of a file, and optionally of a second one."""

    documents: int
    labels: LabelFigures | None
    """None if the file has no labels."""
    text: TextFigures | None
    features: FeatureFigures | None
    repeated_ids: Repeats | None
    """None if the file has no ids."""
    repeated_documents: Repeats
    """Duplicates by text, or by features if there is no text; empty documents are not counted."""
    other: Description | None = None
    overlap: Overlap | None = None

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values; absent parts are omitted."""
        parts = {
            "labels": self.labels,
            "text": self.text,
            "features": self.features,
            "repeated_ids": self.repeated_ids,
            "repeated_documents": self.repeated_documents,
            "other": self.other,
            "overlap": self.overlap,
        }
        present = {name: part.to_json() for name, part in parts.items() if part is not None}
        return {"documents": self.documents, **present}


def describe(dataset: Dataset, other: Dataset | None = None, *, progress: Progress = silent) -> Description:
    """Compute the statistics of a dataset; with `other`, such as a test set, of both and their overlap."""
    with progress.task("counting", total=len(dataset) + (0 if other is None else len(other))) as task:
        first = _Counted(dataset, task.advance)
        if other is None:
            return first.description()
        second = _Counted(other, task.advance)
    overlap = Overlap(
        documents=_shared(first.contents, second.contents) if dataset.has_text == other.has_text else None,
        ids=None if first.ids is None or second.ids is None else _shared(first.ids, second.ids),
        **_unseen(dataset, other),
    )
    return first.description(second.description(), overlap)


class _Counted:
    """Counts and hashes of one file; 8 bytes per document for each kind of number or hash."""

    def __init__(self, dataset: Dataset, advance: Callable[[int], None]) -> None:
        self.documents = len(dataset)
        self.labels = None if dataset.labels is None else _label_figures(dataset.labels)
        self.text: TextFigures | None = None
        self.features: FeatureFigures | None = None
        self.contents = np.empty(0, dtype=np.uint64)  # hashes of non-empty documents
        if dataset.has_text:
            words, characters, hashes = _read_through(dataset.text(), advance)
            self.text = TextFigures(Distribution.of(words), Distribution.of(characters), int((words == 0).sum()))
            self.contents = hashes[words > 0]
        if dataset.features is not None:
            sizes = np.diff(dataset.features.indptr)
            used = np.count_nonzero(np.bincount(dataset.features.indices, minlength=1))
            width, empty = int(dataset.features.shape[1]), int((sizes == 0).sum())
            self.features = FeatureFigures(width, int(used), Distribution.of(sizes), empty)
            if not dataset.has_text:
                self.contents = _row_hashes(dataset.features)[sizes > 0]
                advance(len(dataset))
        self.ids = None if dataset.ids is None or _only_numbered(dataset.ids) else _string_hashes(dataset.ids)

    def description(self, other: Description | None = None, overlap: Overlap | None = None) -> Description:
        return Description(
            documents=self.documents,
            labels=self.labels,
            text=self.text,
            features=self.features,
            repeated_ids=None if self.ids is None else _repeats(self.ids),
            repeated_documents=_repeats(self.contents),
            other=other,
            overlap=overlap,
        )


def _label_figures(labels: Csr) -> LabelFigures:
    per_label = np.bincount(labels.indices, minlength=1)
    per_label = np.sort(per_label[per_label > 0])[::-1]
    sizes = np.diff(labels.indptr)
    pairs = int(per_label.sum())
    heads = {percent: max(math.ceil(len(per_label) * percent / 100), 1) for percent in (1, 10)}
    return LabelFigures(
        occurring=len(per_label),
        columns=int(labels.shape[1]),
        pairs=pairs,
        per_document=Distribution.of(sizes),
        documents_without=int((sizes == 0).sum()),
        per_label=Distribution.of(per_label),
        seen_once=int((per_label == 1).sum()),
        head_shares={str(percent): float(per_label[:head].sum()) / max(pairs, 1) for percent, head in heads.items()},
    )


def _unseen(first: Dataset, second: Dataset) -> dict[str, int | None]:
    """Count labels, matched by key, that only documents of the second file have."""
    if first.labels is None or second.labels is None:
        return {"unseen_labels": None, "unseen_pairs": None}
    assert first.label_index is not None
    assert second.label_index is not None
    seen = np.zeros(len(first.label_index) + 1, dtype=bool)  # the last for keys that are not in the first file
    seen[first.labels.indices] = True
    numbers = first.label_index.ids(second.label_index.table["key"].combine_chunks())
    counts = np.bincount(second.labels.indices, minlength=len(numbers))[~seen[numbers]]
    return {"unseen_labels": int(np.count_nonzero(counts)), "unseen_pairs": int(counts.sum())}


# ---- one pass over the text


def document_hashes(dataset: Dataset) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return a 64-bit hash of each document's text (or features and labels), and a mask of empty documents.

    Different documents often have the same few features, and then different labels.
    For a million distinct texts, the probability of a collision is about 1 in 40 million.
    """
    if dataset.has_text:
        words, _, hashes = _read_through(dataset.text(), lambda steps: None)
        return hashes, words == 0
    if dataset.features is None:
        return np.zeros(len(dataset), dtype=np.uint64), np.ones(len(dataset), dtype=bool)
    hashes = _row_hashes(dataset.features)
    if dataset.labels is not None:
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + _row_hashes(dataset.labels)
    return hashes, np.diff(dataset.features.indptr) == 0


def _read_through(
    texts: pa.ChunkedArray, advance: Callable[[int], None]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
    """Return words, characters and hash of each text; release pages of a mapped file after counting."""
    words = np.empty(len(texts), dtype=np.int64)
    characters = np.empty(len(texts), dtype=np.int64)
    hashes = np.empty(len(texts), dtype=np.uint64)
    start = 0
    for block in cut_texts(texts, BLOCK_BYTES):
        stop = start + len(block)
        words[start:stop] = _words(block)
        characters[start:stop] = np.asarray(pc.utf8_length(block))
        hashes[start:stop] = _array_hashes(block)
        let_go(block)
        advance(len(block))
        start = stop
    return words, characters, hashes


def _words(texts: pa.Array) -> NDArray[np.int64]:
    """Count runs without ASCII white space per text; in UTF-8, bytes of other characters never match it."""
    offsets = string_offsets(texts).astype(np.int64)
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    places = offsets - offsets[0]
    inside = (data != 32) & (data - np.uint8(9) > 4)  # space; tab, line ends, vertical tab, form feed
    starts = inside.copy()
    starts[1:] &= ~inside[:-1]
    first = places[:-1][np.diff(places) > 0]
    starts[first] = inside[first]  # a word does not continue from the previous text
    reached: NDArray[np.int64] = np.searchsorted(np.flatnonzero(starts), places)
    return np.diff(reached)


def _string_hashes(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    return np.concatenate([np.empty(0, dtype=np.uint64), *(_array_hashes(chunk) for chunk in column.chunks)])


def _array_hashes(strings: pa.Array) -> NDArray[np.uint64]:
    return _hashed(memoryview(strings.buffers()[2] or b""), string_offsets(strings).tolist())


def _row_hashes(matrix: Csr) -> NDArray[np.uint64]:
    """Hash each row by its columns and values, independent of their order and data types."""
    if not matrix.has_sorted_indices:
        matrix = matrix.sorted_indices()
    hashes = [np.empty(0, dtype=np.uint64)]
    size = 1 << 14
    for start in range(0, matrix.shape[0], size):
        ends = matrix.indptr[start : start + size + 1].astype(np.int64)
        entries = np.empty((int(ends[-1] - ends[0]), 2), dtype="<i4")
        entries[:, 0] = matrix.indices[ends[0] : ends[-1]]
        entries[:, 1] = matrix.data[ends[0] : ends[-1]].astype("<f4").view("<i4")
        hashes.append(_hashed(memoryview(entries.tobytes()), (8 * (ends - ends[0])).tolist()))
    return np.concatenate(hashes)


def _hashed(data: memoryview, offsets: list[int]) -> NDArray[np.uint64]:
    """Return the blake2b hash of each piece, the same on every machine."""
    blake = hashlib.blake2b
    digests = [blake(data[start:stop], digest_size=8).digest() for start, stop in pairwise(offsets)]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _only_numbered(ids: pa.ChunkedArray) -> bool:
    """Whether ids are line numbers, which readers assign if a file has no ids: ascending, with few gaps."""
    if not len(ids):
        return True
    if not pc.all(pc.match_substring_regex(ids, r"^(0|[1-9][0-9]{0,17})$")).as_py():
        return False
    numbers = np.asarray(ids.cast(pa.int64()))
    return bool((np.diff(numbers) > 0).all()) and int(numbers[-1]) <= 1.1 * len(numbers) + 10


def _repeats(hashes: NDArray[np.uint64]) -> Repeats:
    counts = np.unique(hashes, return_counts=True)[1]
    more = counts[counts > 1]
    return Repeats(len(more), int(more.sum()) - len(more))


def _shared(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> int:
    """Return how many hashes of the second are among the first."""
    return int(np.isin(second, first).sum())
