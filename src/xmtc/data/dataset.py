"""Dataset: documents with labels, returned by every reader and consumed by every model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import DataError, shown
from xmtc.core.mapped_text import TextSpool
from xmtc.data.label_index import LabelIndex, string_array
from xmtc.data.row_selection import row_numbers, taken_rows

Csr: TypeAlias = sp.csr_array


@dataclass(frozen=True, eq=False)
class Dataset:
    """Documents as text, features or both, optionally with labels. Rows are documents throughout.

    Text is stored in Arrow arrays, which may be memory-mapped; labels and features are CSR matrices.
    """

    fields: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    """Text by field name: 'text', or 'title', 'body', …"""
    features: Csr | None = None
    """(n, D) feature matrix, given instead of text."""
    labels: Csr | None = None
    """(n, L) matrix with a 1 for each label of a document."""
    label_index: LabelIndex | None = None
    """Keys and names of the L label columns."""
    ids: pa.ChunkedArray | None = None
    """Document ids; row numbers if the source has none."""
    rejected: Csr | None = None
    """(n, L) matrix with a 1 for each label known to be wrong for a document; None if there are none."""
    partial: NDArray[np.bool_] | None = None
    """(n,) True where labels that are neither in `labels` nor in `rejected` are unknown; None if all are complete."""
    whole_vocabulary: bool = False
    """Whether `label_index` is a whole vocabulary, including labels that no document has."""
    split_values: pa.ChunkedArray | None = None
    """Values of the field by which documents are split, such as a patient or a date, as strings; null if missing."""

    def __post_init__(self) -> None:
        counts = {f"field '{name}'": len(column) for name, column in self.fields.items()}
        for name, part in (("features", self.features), ("labels", self.labels)):
            if part is not None:
                counts[name] = int(part.shape[0])
        if not counts:
            raise DataError("a data set needs text or features. Pass one of them.")
        for name, column in (("ids", self.ids), ("split values", self.split_values)):
            if column is not None:
                counts[name] = len(column)
        if len(set(counts.values())) > 1:
            sizes = ", ".join(f"{name} {count:,}" for name, count in counts.items())
            raise DataError(f"the parts of a data set differ in length: {sizes}. Pass one row per document.")
        self._check_partial()
        if self.labels is None:
            return
        if self.label_index is None:
            object.__setattr__(self, "label_index", LabelIndex.numbered(int(self.labels.shape[1])))
        elif len(self.label_index) != self.labels.shape[1]:
            raise DataError(
                f"{self.labels.shape[1]:,} label columns but {len(self.label_index):,} labels in the index. "
                "Pass one label per column."
            )

    def _check_partial(self) -> None:
        """Check rejected and partial labels; drop them if there are none, so that complete data has a fast path."""
        if self.rejected is not None:
            if self.labels is None or self.rejected.shape != self.labels.shape:
                raise DataError("'rejected' must have the shape of 'labels'. Pass one row per document.")
            twice = np.flatnonzero(np.diff(self.labels.multiply(self.rejected).tocsr().indptr))
            if len(twice):
                raise DataError(
                    f"a label of document {twice[0]} is both accepted and rejected. Remove it from one of the lists."
                )
            object.__setattr__(self, "rejected", self.rejected if self.rejected.nnz else None)
        if self.partial is not None:
            if self.labels is None or self.partial.shape != (len(self),) or self.partial.dtype != bool:
                raise DataError("'partial' must be one boolean per document with labels.")
            object.__setattr__(self, "partial", self.partial if self.partial.any() else None)

    def __len__(self) -> int:
        if self.fields:
            return len(next(iter(self.fields.values())))
        part = self.features if self.features is not None else self.labels
        assert part is not None
        return int(part.shape[0])

    def __repr__(self) -> str:
        parts = [f"{len(self):,} documents", *(f"field '{name}'" for name in self.fields)]
        parts += [] if self.features is None else [f"{self.features.shape[1]:,} features"]
        parts += [] if self.labels is None else [f"{self.labels.shape[1]:,} labels"]
        return f"Dataset({', '.join(parts)})"

    @property
    def has_text(self) -> bool:
        """Whether the documents have text fields."""
        return bool(self.fields)

    def text(self) -> pa.ChunkedArray:
        """Return one text per document: its non-empty fields, joined by line ends."""
        columns = list(self.fields.values())
        if not columns:
            raise DataError("these documents have features and no text. Use a model that accepts features.")
        return columns[0] if len(columns) == 1 else self._joined

    @cached_property
    def _joined(self) -> pa.ChunkedArray:
        """The joined fields, computed once, a few documents at a time."""
        spool = TextSpool()
        for batch in pa.table(dict(self.fields)).to_batches(max_chunksize=4096):
            filled = [
                pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column) for column in batch.columns
            ]
            # The leading "" keeps rows whose fields are all empty; its line end is removed again.
            joined = pc.binary_join_element_wise("", *filled, "\n", null_handling="skip")
            spool.add(pa.record_batch({"text": pc.utf8_slice_codeunits(joined, 1)}))
        return spool.finish()["text"] if len(self) else pa.chunked_array([], pa.string())

    def document_ids(self) -> list[str]:
        """Return the document ids; row numbers if there are none."""
        if self.ids is None:
            return [str(row) for row in range(len(self))]
        return list(self.ids.to_pylist())

    def partial_rows(self) -> NDArray[np.bool_]:
        """(n,) whether each document has unknown labels; all False for complete data."""
        return np.zeros(len(self), dtype=bool) if self.partial is None else self.partial

    def decided(self) -> Csr:
        """(n, L) matrix with a 1 for each label that is accepted or rejected."""
        assert self.labels is not None
        if self.rejected is None:
            return self.labels
        both = sp.csr_array(self.labels + self.rejected)
        both.sort_indices()
        return both

    def is_known(self, candidates: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n, c) whether it is known that each candidate label is right or wrong; negative entries count as known."""
        known = np.ones(candidates.shape, dtype=bool)
        rows = np.flatnonzero(self.partial_rows())
        if len(rows):
            decided = self.decided()[rows]
            width = int(decided.shape[1])
            pairs = np.repeat(np.arange(len(rows)), np.diff(decided.indptr)) * width + decided.indices
            wanted = np.arange(len(rows))[:, None] * width + candidates[rows]
            known[rows] = np.isin(wanted, pairs) | (candidates[rows] < 0)
        return known

    def complete_documents(self) -> Dataset:
        """The documents without unknown labels, which can be used for validation."""
        complete = self if self.partial is None else self.take(~self.partial)
        return complete if complete.rejected is None else replace(complete, rejected=None)

    def without_rejected_only(self) -> Dataset:
        """The same documents without labels that are rejected somewhere and accepted nowhere."""
        if self.rejected is None:
            return self
        assert self.labels is not None
        accepted, rejected = (np.bincount(m.indices, minlength=m.shape[1]) for m in (self.labels, self.rejected))
        kept = np.flatnonzero((accepted > 0) | (rejected == 0))
        return self if len(kept) == len(accepted) else self._with_labels(kept)

    def used_labels(self) -> Dataset:
        """The same documents with only the labels that a document has, accepted or rejected."""
        if self.labels is None:
            return self
        used = np.unique(self.decided().indices)
        dataset = self if len(used) == self.labels.shape[1] else self._with_labels(used)
        return replace(dataset, whole_vocabulary=False) if dataset.whole_vocabulary else dataset

    def _with_labels(self, kept: NDArray[np.int64]) -> Dataset:
        """The same documents with only these label columns, renumbered."""
        assert self.labels is not None
        assert self.label_index is not None
        labels, rejected = (None if m is None else sp.csr_array(m[:, kept]) for m in (self.labels, self.rejected))
        return replace(self, labels=labels, rejected=rejected, label_index=self.label_index.take(kept))

    def take(self, rows: ArrayLike) -> Dataset:
        """Return the documents of these rows, in this order."""
        chosen = row_numbers(rows, len(self))
        return replace(
            self,
            fields={name: taken_rows(column, chosen) for name, column in self.fields.items()},
            features=None if self.features is None else self.features[chosen],
            labels=None if self.labels is None else self.labels[chosen],
            ids=pa.chunked_array([pa.array(chosen).cast(pa.string())])
            if self.ids is None
            else taken_rows(self.ids, chosen),
            rejected=None if self.rejected is None else self.rejected[chosen],
            partial=None if self.partial is None else self.partial[chosen],
            split_values=None if self.split_values is None else taken_rows(self.split_values, chosen),
        )

    def slice(self, start: int, stop: int) -> Dataset:
        """Return a range of consecutive documents without copying their text."""
        start = min(max(start, 0), len(self))
        stop = min(max(stop, start), len(self))
        ids = [pa.array(np.arange(start, stop)).cast(pa.string())]
        return replace(
            self,
            fields={name: column.slice(start, stop - start) for name, column in self.fields.items()},
            features=None if self.features is None else self.features[start:stop],
            labels=None if self.labels is None else self.labels[start:stop],
            ids=pa.chunked_array(ids) if self.ids is None else self.ids.slice(start, stop - start),
            rejected=None if self.rejected is None else self.rejected[start:stop],
            partial=None if self.partial is None else self.partial[start:stop],
            split_values=None if self.split_values is None else self.split_values.slice(start, stop - start),
        )

    def batches(self, size: int) -> Iterator[Dataset]:
        """Yield the documents in order, `size` at a time."""
        if size < 1:
            raise DataError(f"'size' of a batch must be an integer ≥ 1. Got {size}.")
        if 0 < len(self) <= size:
            yield self
            return
        for start in range(0, len(self), size):
            yield self.slice(start, start + size)


def stacked(parts: Sequence[Dataset]) -> Dataset:
    """Concatenate data sets with the same labels; text fields are joined into one."""
    first = parts[0]
    fields = {}
    if first.has_text:
        fields = {"text": pa.chunked_array([chunk for part in parts for chunk in part.text().chunks], pa.string())}
    features = None if first.has_text else sp.vstack([part.features for part in parts], format="csr")
    ids = pa.chunked_array([pa.array(part.document_ids(), pa.string()) for part in parts])
    labels = None if first.labels is None else sp.vstack([part.labels for part in parts], format="csr")
    rejected = partial = None
    if any(part.rejected is not None for part in parts):
        shapes = [sp.csr_array(part.labels.shape, dtype=np.float32) for part in parts if part.labels is not None]
        given = [none if part.rejected is None else part.rejected for part, none in zip(parts, shapes, strict=True)]
        rejected = sp.csr_array(sp.vstack(given, format="csr"))
    if any(part.partial is not None for part in parts):
        partial = np.concatenate([part.partial_rows() for part in parts])
    values = None
    if any(part.split_values is not None for part in parts):
        columns = [pa.nulls(len(p), pa.string()) if p.split_values is None else p.split_values for p in parts]
        values = pa.chunked_array([chunk for c in columns for chunk in getattr(c, "chunks", [c])], pa.string())
    return Dataset(fields, features, labels, first.label_index, ids, rejected, partial, split_values=values)


def align_labels(dataset: Dataset, index: LabelIndex) -> tuple[Csr, list[str]]:
    """Renumber a dataset's labels by a model's label index; labels unknown to the model become extra columns.

    Return the label matrix and the keys of the extra columns.
    """
    assert dataset.labels is not None
    assert dataset.label_index is not None
    numbers = index.ids(dataset.label_index.table["key"].combine_chunks())
    occurring = np.zeros(len(numbers), dtype=bool)
    occurring[dataset.labels.indices] = True
    unknown = np.flatnonzero((numbers < 0) & occurring)
    numbers[unknown] = len(index) + np.arange(len(unknown))
    shape = (len(dataset), len(index) + len(unknown))
    columns = numbers[dataset.labels.indices]
    aligned = sp.csr_array((dataset.labels.data, columns, dataset.labels.indptr), shape=shape)
    aligned.sort_indices()
    return aligned, dataset.label_index.strings("key", unknown)


def align_rejected(dataset: Dataset, index: LabelIndex) -> Csr | None:
    """(n, L) the rejected labels in the numbering of a model's label index; labels unknown to the model are dropped."""
    if dataset.rejected is None:
        return None
    assert dataset.label_index is not None
    numbers = index.ids(dataset.label_index.table["key"].combine_chunks())
    return label_matrix(dataset.rejected.indptr, numbers[dataset.rejected.indices], len(index))


def _listed(values: Any, what: str) -> list[Any]:
    """Return the items of a list, an array, a column or a generator as a list."""
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__") or getattr(values, "ndim", 1) == 0:
        raise DataError(f"{what} Got {type(values).__name__}.")
    as_list = next((name for name in ("tolist", "to_pylist", "to_list") if hasattr(values, name)), None)
    return list(getattr(values, as_list)() if as_list else values)  # methods of NumPy and pandas, Arrow, Polars


def text_column(texts: Any) -> pa.ChunkedArray:
    """Convert Python strings to an Arrow column; the error names the position of an item that is not a string."""
    if isinstance(texts, pa.ChunkedArray) and texts.type == pa.string() and not texts.null_count:
        return texts
    values = _listed(texts, "documents must be a list of strings or a 2-d matrix of numbers.")
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise DataError(f"document {number} must be a string. Got {type(value).__name__}.")
    try:
        column = pa.array(values, pa.string())
    except UnicodeEncodeError:
        column = pa.array([value.encode("utf-8", "replace").decode() for value in values], pa.string())
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])  # chunked from 2 GiB


def label_matrix(offsets: NDArray[np.int64], labels: NDArray[np.int64], width: int) -> Csr:
    """Build the (n, width) label matrix from label numbers per row; ignore repeats within a row and −1."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    kept = labels >= 0
    ones = np.ones(int(kept.sum()), dtype=np.float32)
    matrix = sp.csr_array((ones, (rows[kept], labels[kept])), shape=(len(offsets) - 1, width))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def not_accepted(rejected: Csr, accepted: Csr) -> Csr:
    """(n, L) the rejected labels that are not accepted as well."""
    kept = sp.csr_array(rejected - rejected.multiply(accepted))
    kept.eliminate_zeros()
    return kept


def labels_from_keys(offsets: NDArray[np.int64], keys: pa.Array | pa.ChunkedArray) -> tuple[Csr, LabelIndex]:
    """Build the label matrix from label keys per row; labels are numbered in sorted order of their keys."""
    parts = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    unique = pc.unique(keys)
    index = LabelIndex.from_keys(unique.take(pc.array_sort_indices(unique)).to_pylist())
    numbers = np.concatenate([np.empty(0, dtype=np.int64), *(index.ids(part) for part in parts)])
    return label_matrix(offsets, numbers, len(index)), index


def labels_from_lists(lists: Sequence[Sequence[str | int]]) -> tuple[Csr, LabelIndex]:
    """Build the label matrix from Python lists; integer labels become decimal strings, in numeric order."""
    rows = [
        _listed(row, f"the labels of document {number} must be a list such as ['a', 'b'].")
        for number, row in enumerate(_listed(lists, "labels must be one list per document, or a 0/1 matrix."))
    ]
    for number, row in enumerate(rows):
        for key in row:
            if not isinstance(key, (str, int, np.integer)) or isinstance(key, bool):
                raise DataError(f"a label of document {number} must be a string or an integer. Got {shown(repr(key))}.")
            if key == "":
                raise DataError(f"a label of document {number} is empty. Remove it from the list.")
    flat = [key for row in rows for key in row]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)]).astype(np.int64)
    keys = string_array([str(key) for key in flat])
    if flat and not any(isinstance(key, str) for key in flat):
        index = LabelIndex.from_keys([str(number) for number in sorted({int(key) for key in flat})])
        return label_matrix(offsets, index.ids(keys), len(index)), index
    return labels_from_keys(offsets, keys)


def as_csr(matrix: Any, what: str) -> Csr:
    """Convert a sparse or dense matrix to float32 CSR; NaN and infinity are errors."""
    if not sp.issparse(matrix):
        matrix = np.asarray(matrix)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise DataError(f"{what} must be a 2-d matrix of numbers. Got {matrix.ndim}-d {matrix.dtype}.")
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, an error below
        csr = sp.csr_array(matrix, dtype=np.float32)
        if not csr.has_canonical_format:
            csr = csr.copy()
            csr.sum_duplicates()
    if csr.nnz and not 0 <= csr.indices.min() <= csr.indices.max() < csr.shape[1]:
        raise DataError(f"{what}: a column index is out of range for {csr.shape[1]:,} columns. Rebuild the matrix.")
    if not np.isfinite(csr.data).all():
        bad = int(np.searchsorted(csr.indptr, int(np.argmin(np.isfinite(csr.data))), side="right")) - 1
        raise DataError(f"{what} of document {bad} contain NaN or infinity. Replace these values with finite numbers.")
    return csr


def as_labels(labels: Any) -> tuple[Csr, LabelIndex | None]:
    """Convert labels, given as lists of keys or as a 0/1 matrix whose columns are the labels."""
    if sp.issparse(labels) or getattr(labels, "ndim", 1) == 2:
        csr = as_csr(labels, "labels")
        if (csr.data < 0).any():
            raise DataError(f"values of a label matrix must be 0 or 1. Got {csr.data.min():g}.")
        if not csr.data.all():
            csr = csr.copy()  # do not modify the caller's matrix
            csr.eliminate_zeros()
        ones = np.ones(csr.nnz, dtype=np.float32)
        return sp.csr_array((ones, csr.indices, csr.indptr), shape=csr.shape), None
    return labels_from_lists(labels)


def as_dataset(documents: Any, labels: Any = None, rejected: Any = None, complete: Any = None) -> Dataset:
    """Convert documents (a Dataset, texts or a matrix) and labels (lists or a matrix) to a Dataset.

    `rejected` has the labels known to be wrong, in the same form as `labels`. `complete` is a boolean, or one for each
    document: whether all other labels are known to be wrong too; False by default if `rejected` is given, else True.
    """
    if isinstance(documents, Dataset):
        dataset = documents
    elif isinstance(documents, (str, bytes)):
        raise DataError("documents must be a list of strings. Got a single string: put it in a list.")
    elif sp.issparse(documents) or (hasattr(documents, "ndim") and documents.ndim == 2):
        dataset = Dataset(features=as_csr(documents, "features"))
    else:
        dataset = Dataset(fields={"text": text_column(documents)})
    if labels is None:
        if rejected is not None or complete is not None:
            raise DataError("'rejected' and 'complete' require 'labels'. Pass one list of labels per document.")
        return dataset
    matrix, wrong, index = _decided_labels(labels, rejected)
    if matrix.shape[0] != len(dataset):
        raise DataError(f"{len(dataset):,} documents but {matrix.shape[0]:,} label rows. Pass one row per document.")
    partial = _partial_rows(len(dataset), rejected is None if complete is None else complete)
    return replace(dataset, labels=matrix, label_index=index, rejected=wrong, partial=partial)


def _decided_labels(labels: Any, rejected: Any) -> tuple[Csr, Csr | None, LabelIndex | None]:
    """Convert accepted and rejected labels with one numbering."""
    if rejected is None:
        matrix, index = as_labels(labels)
        return matrix, None, index
    is_matrix = [sp.issparse(given) or getattr(given, "ndim", 1) == 2 for given in (labels, rejected)]
    if is_matrix[0] != is_matrix[1]:
        raise DataError("'labels' and 'rejected' must have the same form. Pass lists for both, or matrices for both.")
    if is_matrix[0]:
        return as_labels(labels)[0], as_labels(rejected)[0], None
    accepted = _listed(labels, "labels must be one list per document, or a 0/1 matrix.")
    wrong = _listed(rejected, "rejected labels must be one list per document.")
    if len(accepted) != len(wrong):
        raise DataError(
            f"{len(accepted):,} lists of labels but {len(wrong):,} of rejected ones. Pass one per document."
        )
    both, index = labels_from_lists([*accepted, *wrong])
    return both[: len(accepted)], both[len(accepted) :], index


def _partial_rows(count: int, complete: Any) -> NDArray[np.bool_]:
    if isinstance(complete, (bool, np.bool_)):
        return np.full(count, not complete)
    flags = np.asarray(complete)
    if flags.shape != (count,) or flags.dtype != bool:
        raise DataError(f"'complete' must be a boolean, or one boolean for each of the {count:,} documents.")
    return ~flags


def check_known(known: LabelIndex, test: Dataset) -> None:
    """Raise `DataError` if the test documents and the model share no label: their keys probably differ in form."""
    assert test.labels is not None
    assert test.label_index is not None
    occurring = test.label_index.strings("key", np.unique(test.labels.indices))
    if occurring and len(known) and (known.ids(occurring) < 0).all():
        raise DataError(
            f"the documents and the model have no label in common: '{shown(occurring[0])}' in the documents, "
            f"'{shown(known.key(0))}' in the model. Use the same keys in both."
        )
