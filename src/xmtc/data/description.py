"""What is in a file of documents, in numbers: labels, texts, repeats, and what a second file shares with the first.

A word is a run without ASCII white space: no model's rule, but one that is counted at the speed of memory and means
the same for every model. Where a language parts words by other means, characters tell more.
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
"""The quantiles that are told."""
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Distribution:
    """How often each value is there: its mean, quantiles and histogram follow, whatever the number of documents."""

    values: NDArray[np.int64]
    """Distinct values, ascending."""
    counts: NDArray[np.int64]
    """How many times each of them is there."""

    @classmethod
    def of(cls, numbers: ArrayLike) -> Distribution:
        values, counts = np.unique(np.asarray(numbers, dtype=np.int64), return_counts=True)
        return cls(values, counts.astype(np.int64))

    @cached_property
    def _reached(self) -> NDArray[np.int64]:
        return np.cumsum(self.counts)

    @property
    def total(self) -> int:
        """How many numbers there are."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """0 where there is no number."""
        return float(self.values @ self.counts) / max(self.total, 1)

    def quantile(self, share: float) -> int:
        """The smallest value that at least this share of the numbers does not exceed, so always one that is there."""
        if not len(self.values):
            return 0
        rank = max(math.ceil(round(share * self.total, 6)), 1)  # 0.95 × n may come out a hair too high
        return int(self.values[np.searchsorted(self._reached, rank)])

    def count(self, value: int) -> int:
        """How many times a value is there."""
        return int(self.counts[self.values == value].sum())

    def to_json(self) -> dict[str, Any]:
        return {"mean": self.mean, "quantiles": {f"{100 * share:g}": self.quantile(share) for share in SHARES}}


@dataclass(frozen=True)
class LabelFigures:
    """The labels of a file. A label occurs if a document has it; a vocabulary or a header may name more."""

    occurring: int
    columns: int
    """Labels in all, those included that no document has."""
    pairs: int
    """(document, label) pairs."""
    per_document: Distribution
    documents_without: int
    per_label: Distribution
    """Documents of each label that occurs."""
    seen_once: int
    """Labels with one document."""
    head_shares: dict[str, float]
    """Part of all pairs that the most frequent '1' and '10' % of the labels that occur take, one label at least."""

    def to_json(self) -> dict[str, Any]:
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
    """The texts of a file, the fields of a document taken as one text."""

    words: Distribution
    """Words of each text, parted by ASCII white space."""
    characters: Distribution
    """Unicode code points of each text."""
    empty: int
    """Texts without a word."""

    def to_json(self) -> dict[str, Any]:
        return {
            "words_per_text": self.words.to_json(),
            "characters_per_text": self.characters.to_json(),
            "empty_texts": self.empty,
        }


@dataclass(frozen=True)
class FeatureFigures:
    """The features of a file that has them in place of text."""

    width: int
    """Columns, those included that no document uses."""
    used: int
    """Columns that a document uses."""
    per_document: Distribution
    empty: int
    """Documents without a feature."""

    def to_json(self) -> dict[str, Any]:
        return {
            "width": self.width,
            "used": self.used,
            "features_per_document": self.per_document.to_json(),
            "documents_without_features": self.empty,
        }


@dataclass(frozen=True)
class Repeats:
    """Things that are there more than once."""

    distinct: int
    """Different things among them."""
    further: int
    """Documents that would go if one of each were kept."""

    def to_json(self) -> dict[str, int]:
        return {"distinct": self.distinct, "further": self.further}


@dataclass(frozen=True)
class Overlap:
    """What a second file has in common with the first, and what only the second has."""

    documents: int | None
    """Documents of the second whose text (or features) is in the first; None if one has text and the other features."""
    ids: int | None
    """Documents of the second whose id is in the first; None if one of them has no ids of its own."""
    unseen_labels: int | None
    """Labels of the second that no document of the first has; None if one of them has no labels."""
    unseen_pairs: int | None
    """(document, label) pairs of the second with such a label."""

    def to_json(self) -> dict[str, int | None]:
        return {
            "documents": self.documents,
            "ids": self.ids,
            "unseen_labels": self.unseen_labels,
            "unseen_pairs": self.unseen_pairs,
        }


@dataclass(frozen=True)
class Description:
    """What is in a file, and in a second one if there is one."""

    documents: int
    labels: LabelFigures | None
    """None where the file has none at all."""
    text: TextFigures | None
    features: FeatureFigures | None
    repeated_ids: Repeats | None
    """None where the file has no ids of its own."""
    repeated_documents: Repeats
    """By text, or by features where there is no text; empty ones are not counted here."""
    other: Description | None = None
    overlap: Overlap | None = None

    def to_json(self) -> dict[str, Any]:
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
    """Count what is in a dataset; with `other`, such as the test documents, in both, and what they share."""
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
    """One file after the pass over its documents; 8 bytes a document for each kind of number or hash."""

    def __init__(self, dataset: Dataset, advance: Callable[[int], None]) -> None:
        self.documents = len(dataset)
        self.labels = None if dataset.labels is None else _label_figures(dataset.labels)
        self.text: TextFigures | None = None
        self.features: FeatureFigures | None = None
        self.contents = np.empty(0, dtype=np.uint64)  # hashes of what is not empty
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
    """Labels, matched by key, that only documents of the second have."""
    if first.labels is None or second.labels is None:
        return {"unseen_labels": None, "unseen_pairs": None}
    assert first.label_index is not None
    assert second.label_index is not None
    seen = np.zeros(len(first.label_index) + 1, dtype=bool)  # the last for a key that the first file does not know
    seen[first.labels.indices] = True
    numbers = first.label_index.ids(second.label_index.table["key"].combine_chunks())
    counts = np.bincount(second.labels.indices, minlength=len(numbers))[~seen[numbers]]
    return {"unseen_labels": int(np.count_nonzero(counts)), "unseen_pairs": int(counts.sum())}


# ---- one pass over the text


def document_hashes(dataset: Dataset) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """A 64-bit hash of each document's text (of its features, without text), and which documents hold nothing.

    Two of a million different texts are taken for equal once in 40 million files.
    """
    if dataset.has_text:
        words, _, hashes = _read_through(dataset.text(), lambda steps: None)
        return hashes, words == 0
    if dataset.features is None:
        return np.zeros(len(dataset), dtype=np.uint64), np.ones(len(dataset), dtype=bool)
    return _row_hashes(dataset.features), np.diff(dataset.features.indptr) == 0


def _read_through(
    texts: pa.ChunkedArray, advance: Callable[[int], None]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
    """Words, characters and hash of each text; pages of a mapped file are let go once they are counted."""
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
    """(n,) runs without ASCII white space: in UTF-8, no byte of another character looks like it."""
    offsets = string_offsets(texts).astype(np.int64)
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    places = offsets - offsets[0]
    inside = (data != 32) & (data - np.uint8(9) > 4)  # a blank; tab, line ends, vertical tab, form feed
    starts = inside.copy()
    starts[1:] &= ~inside[:-1]
    first = places[:-1][np.diff(places) > 0]
    starts[first] = inside[first]  # the end of the text before does not run on into this one
    reached: NDArray[np.int64] = np.searchsorted(np.flatnonzero(starts), places)
    return np.diff(reached)


def _string_hashes(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    return np.concatenate([np.empty(0, dtype=np.uint64), *(_array_hashes(chunk) for chunk in column.chunks)])


def _array_hashes(strings: pa.Array) -> NDArray[np.uint64]:
    return _hashed(memoryview(strings.buffers()[2] or b""), string_offsets(strings).tolist())


def _row_hashes(matrix: Csr) -> NDArray[np.uint64]:
    """Equal for rows with the same columns and values, in whatever order and types they are kept."""
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
    """blake2b of each piece, the same on every machine."""
    blake = hashlib.blake2b
    digests = [blake(data[start:stop], digest_size=8).digest() for start, stop in pairwise(offsets)]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _only_numbered(ids: pa.ChunkedArray) -> bool:
    """Whether ids are but line numbers, which readers give where a file has none: they go up, with few left out."""
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
    """How many of the second are among the first."""
    return int(np.isin(second, first).sum())
