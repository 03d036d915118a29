"""Restrict the labels that may be predicted: files of labels to allow or deny and of candidates, and the vocabulary."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.errors import DataError, nearest, shown
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.rows import KEY_PARTS, first_of
from xmtc.data.topk import read_rows
from xmtc.data.vocabularies import read_vocabulary
from xmtc.labels.vocabulary_filter import VocabularyFilter
from xmtc.workflows.requests import VocabularyFilterOptions

FEW = 3
"""Maximum number of labels or documents listed in a message."""
FILES = ("allow", "deny", "candidates")
_EXAMPLE = '{"id": "…", "labels": ["…"]}'


@dataclass
class DocumentCandidates:
    """Candidate labels of each document, looked up by document id."""

    name: str
    """Name of the file."""
    rows: Mapping[str, int]
    """Document id → row."""
    ends: NDArray[np.int64]  # (n + 1,)
    numbers: NDArray[np.int64]
    documents: int = 0
    """Documents seen so far."""
    without: int = 0
    """Documents seen so far that have no line in the file."""
    first_without: list[str] = field(default_factory=list)

    def watched(self, batches: Iterable[Dataset]) -> Iterator[Dataset]:
        """Pass batches through and count documents without candidates."""
        for batch in batches:
            missing = [name for name in batch.document_ids() if name not in self.rows]
            self.documents += len(batch)
            self.without += len(missing)
            self.first_without = [*self.first_without, *missing[: FEW + 1]][: FEW + 1]
            yield batch
        if self.documents and self.without == self.documents:
            raise DataError(
                f"{self.name}: no id matches a document ('{shown(next(iter(self.rows)))}' in this file, "
                f"'{shown(self.first_without[0])}' in the documents). Use the same ids."
            )

    def of(self, documents: Dataset) -> NDArray[np.int64]:
        """(n, c) label numbers, padded with −1."""
        rows = np.array([self.rows.get(name, -1) for name in documents.document_ids()], dtype=np.int64)
        starts = self.ends[rows]
        counts = np.where(rows < 0, 0, self.ends[rows + 1] - starts)
        places = starts[:, None] + np.arange(counts.max(initial=0))  # (n, c)
        filled = places < (starts + counts)[:, None]
        found = np.full(places.shape, -1, dtype=np.int64)
        found[filled] = self.numbers[places[filled]]
        return found

    def note(self) -> str | None:
        """A note on documents without candidates, once all documents have been seen; None if there are none."""
        if not self.without:
            return None
        have = "has" if self.without == 1 else "have"
        counts = f"{self.without:,} of {self.documents:,} documents {have}"
        return f"{counts} no line in {self.name} and got no labels: {few(self.first_without)}"


@dataclass(frozen=True)
class Restriction:
    """The labels that may be returned."""

    allowed: NDArray[np.bool_] | None = None
    """(L,) mask of the labels allowed for every document."""
    candidates: DocumentCandidates | None = None
    files: Mapping[str, Path | None] = field(default_factory=lambda: dict.fromkeys(FILES))
    """Files that the restriction was read from."""
    notes: tuple[str, ...] = ()
    """Messages for the user."""


def read_restriction(
    labels: LabelIndex,
    *,
    allow: Path | None = None,
    deny: Path | None = None,
    candidates: Path | None = None,
    vocabulary: VocabularyFilter | None = None,
    counts: NDArray[np.int64] | None = None,
) -> Restriction:
    """Read the files of allowed labels, denied labels and candidate labels per document.

    Labels that the model does not have are left out and noted; a file without any label of the model is an error. With
    `vocabulary`, only the labels that it selects are allowed; `counts` are the training documents of each label.
    """
    notes: list[str] = []
    allowed: NDArray[np.bool_] | None = None
    if allow is not None:
        allowed = read_labels(labels, allow, notes)
    if deny is not None:
        not_denied = ~read_labels(labels, deny, notes, with_deprecated=True)
        allowed = not_denied if allowed is None else allowed & not_denied
    if vocabulary:
        selected = vocabulary.mask(labels, counts)
        allowed = selected if allowed is None else allowed & selected
    if allowed is not None and not allowed.any():
        given = " and ".join(str(part) for part in (allow, deny, vocabulary) if part)
        remedy = "Use fewer conditions" if vocabulary else "Allow more labels, or deny fewer"
        raise DataError(f"{given}: none of the model's {len(labels):,} labels remains. {remedy}.")
    chosen = None if candidates is None else _read_candidates(labels, candidates, notes)
    files = dict(zip(FILES, (allow, deny, candidates), strict=True))
    return Restriction(allowed, chosen, files, tuple(notes))


def vocabulary_filter(options: VocabularyFilterOptions) -> VocabularyFilter:
    """The selection of labels that the options of a command describe."""
    return VocabularyFilter(options.under, options.scheme, options.collection, options.label_type, options.used)


def read_labels(labels: LabelIndex, path: Path, notes: list[str], with_deprecated: bool = False) -> NDArray[np.bool_]:
    """(L,) mask of the labels in a vocabulary file, matched by key, or by name if no key matches."""
    vocabulary = read_vocabulary(path)
    given = vocabulary.index
    if with_deprecated and (vocabulary.replaced or vocabulary.deprecated):
        old = LabelIndex.from_keys([*vocabulary.replaced, *sorted(vocabulary.deprecated)])
        given = LabelIndex(pa.concat_tables([given.table, old.table]))
    numbers = labels.ids(given.table["key"].combine_chunks())
    mask = np.zeros(len(labels), dtype=bool)
    mask[numbers[numbers >= 0]] = True
    left = np.flatnonzero(numbers < 0)
    names, wanted = labels.table["name"].combine_chunks(), pa.array(given.strings("name", left), pa.string())
    mask |= np.asarray(pc.is_in(names, value_set=wanted))
    unknown = given.strings("key", left[~np.asarray(pc.is_in(wanted, value_set=names))])
    if len(unknown) == len(given):
        close = (
            nearest(unknown[0], labels.keys) or nearest(unknown[0], labels.names) or " Write one key or name per line."
        )
        raise DataError(f"{path}: the model has none of the labels in this file ({few(unknown)}).{close}")
    _note_unknown(notes, "labels of", path, len(unknown), len(given), unknown)
    return mask


def _read_candidates(labels: LabelIndex, path: Path, notes: list[str]) -> DocumentCandidates:
    known = {key: number for number, key in enumerate(labels.keys)}
    rows: dict[str, int] = {}
    ends, numbers = array("q", [0]), array("q")
    unknown: dict[str, int] = {}  # how often each occurs
    for place, row in read_rows(path, _EXAMPLE):
        document, listed = _text(row.get("id")), row.get("labels")
        if document is None or not isinstance(listed, list):
            raise DataError(f"{place}: not an object with an id and a list of labels. Write {_EXAMPLE}.")
        if document in rows:
            raise DataError(f"{place}: document '{shown(document)}' is listed twice. Remove one of the lines.")
        rows[document] = len(rows)
        for label in listed:
            key = _text(first_of(label, KEY_PARTS) if isinstance(label, dict) else label)
            if key is None:
                raise DataError(f"{place}: a candidate is neither a key nor an object with a key. Write {_EXAMPLE}.")
            if key in known:
                numbers.append(known[key])
            else:
                unknown[key] = unknown.get(key, 0) + 1
        ends.append(len(numbers))
    if not numbers:
        if unknown:
            first = next(iter(unknown))
            close = nearest(first, labels.keys) or " Give labels by key."
            raise DataError(f"{path}: no candidate is a label of the model ({few(unknown)}).{close}")
        raise DataError(f"{path}: contains no candidates. Write one {_EXAMPLE} per line.")
    count = sum(unknown.values())
    _note_unknown(notes, "candidates in", path, count, count + len(numbers), unknown)
    return DocumentCandidates(path.name, rows, np.array(ends, dtype=np.int64), np.array(numbers, dtype=np.int64))


def _text(value: Any) -> str | None:
    """An id or a key as a string; None if the value is neither a string nor an integer."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return str(value).encode("utf-8", "replace").decode()
    return None


def _note_unknown(
    notes: list[str], what: str, path: Path, count: int, total: int, unknown: Sequence[str] | Mapping[str, int]
) -> None:
    if count:
        are = "is not a label" if count == 1 else "are not labels"
        notes.append(f"{count:,} of {total:,} {what} {path.name} {are} of the model: {few(unknown)}")


def few(values: Iterable[str]) -> str:
    """The first few values, quoted."""
    first = list(islice(values, FEW + 1))
    return ", ".join([f"'{shown(value)}'" for value in first[:FEW]] + (["…"] if len(first) > FEW else []))
