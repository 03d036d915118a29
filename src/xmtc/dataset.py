"""Dataset and LabelIndex: what every reader returns and every model eats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from xmtc.errors import DataError, nearest

Csr: TypeAlias = sp.csr_array

LABEL_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("name", pa.string()),
        ("alternatives", pa.list_(pa.string())),
        ("parents", pa.list_(pa.string())),
        ("description", pa.string()),
    ]
)


class LabelIndex:
    """The labels of a model, numbered: key, display name, alternatives, parents and description of each.

    Backed by an Arrow table, so that a million labels load by mapping a file.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table.select(LABEL_SCHEMA.names).cast(LABEL_SCHEMA)

    @classmethod
    def from_keys(
        cls,
        keys: Sequence[str],
        names: Sequence[str] | None = None,
        alternatives: Sequence[Sequence[str]] | None = None,
        parents: Sequence[Sequence[str]] | None = None,
        descriptions: Sequence[str] | None = None,
    ) -> LabelIndex:
        """Labels from plain lists; a label without a name is shown by its key."""
        count = len(keys)
        key = pa.array(keys, pa.string())
        if count != len(pc.unique(key)):
            raise DataError(f"label '{_repeated(key)}' is there twice. Keep one of them.")
        columns = {
            "key": key,
            "name": key if names is None else pa.array(names, pa.string()),
            "alternatives": pa.array(alternatives or [[]] * count, pa.list_(pa.string())),
            "parents": pa.array(parents or [[]] * count, pa.list_(pa.string())),
            "description": pa.array(descriptions or [""] * count, pa.string()),
        }
        return cls(pa.table(columns, schema=LABEL_SCHEMA))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelIndex) and bool(self.table.equals(other.table))

    __hash__ = None  # type: ignore[assignment]

    @property
    def keys(self) -> list[str]:
        return list(self.table["key"].to_pylist())

    @property
    def names(self) -> list[str]:
        return list(self.table["name"].to_pylist())

    def name(self, label: int) -> str:
        return str(self.table["name"][label].as_py())

    def key(self, label: int) -> str:
        return str(self.table["key"][label].as_py())

    def strings(self, column: str, labels: ArrayLike) -> list[str]:
        """One column ('key', 'name', 'description') of the labels with these numbers."""
        return list(self.table[column].take(pa.array(np.asarray(labels, dtype=np.int64))).to_pylist())

    def ids(self, keys: Sequence[str] | pa.Array) -> NDArray[np.int64]:
        """The number of each key, −1 where it is unknown."""
        wanted = keys if isinstance(keys, pa.Array) else pa.array(keys, pa.string())
        if not len(wanted):
            return np.empty(0, dtype=np.int64)
        found = pc.index_in(wanted, value_set=self.table["key"].combine_chunks())
        return np.asarray(pc.fill_null(found, -1), dtype=np.int64)

    def find(self, label: str) -> int:
        """The number of the label that a person means: by key, name or alternative, case ignored last."""
        for column in ("key", "name"):
            exact = pc.index(self.table[column], label).as_py()
            if exact >= 0:
                return int(exact)
        folded = label.casefold()
        for number, (key, name, others) in enumerate(
            zip(self.keys, self.names, self.table["alternatives"].to_pylist(), strict=True)
        ):
            if folded in (key.casefold(), name.casefold(), *(other.casefold() for other in others)):
                return number
        raise DataError(f"label '{label}' is not among the model's {len(self):,} labels.{nearest(label, self.names)}")

    def take(self, labels: ArrayLike) -> LabelIndex:
        """The labels with these numbers, renumbered in this order."""
        return LabelIndex(self.table.take(pa.array(np.asarray(labels, dtype=np.int64))))


def _repeated(keys: pa.Array) -> str:
    counts = pc.value_counts(keys)
    return str(counts.field("values")[pc.index(pc.greater(counts.field("counts"), 1), True).as_py()].as_py())


@dataclass(frozen=True, eq=False)
class Dataset:
    """Documents as text, as features or both, with their labels where known. Rows are documents throughout.

    Text sits in Arrow arrays, which may be memory-mapped; labels and features are CSR matrices.
    """

    fields: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    """Text by field name: 'text', or 'title', 'body', …"""
    features: Csr | None = None
    """(n, D) numbers given in place of text."""
    labels: Csr | None = None
    """(n, L) ones where a document holds a label."""
    label_index: LabelIndex | None = None
    """What the L columns are called."""
    ids: pa.ChunkedArray | None = None
    """Document ids; row numbers when the source has none."""

    def __post_init__(self) -> None:
        counts = {f"field '{name}'": len(column) for name, column in self.fields.items()}
        for name, part in (("features", self.features), ("labels", self.labels)):
            if part is not None:
                counts[name] = int(part.shape[0])
        if self.ids is not None:
            counts["ids"] = len(self.ids)
        if not counts:
            raise DataError("a dataset needs text or features. Give one of them.")
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{name} {count:,}" for name, count in counts.items())
            raise DataError(f"the parts of a dataset differ in length: {told}. Give one row a document.")
        if self.labels is not None and self.label_index is None:
            keys = [str(number) for number in range(int(self.labels.shape[1]))]
            object.__setattr__(self, "label_index", LabelIndex.from_keys(keys))

    def __len__(self) -> int:
        if self.fields:
            return len(next(iter(self.fields.values())))
        part = self.features if self.features is not None else self.labels
        assert part is not None
        return int(part.shape[0])

    @property
    def has_text(self) -> bool:
        return bool(self.fields)

    def text(self) -> pa.ChunkedArray:
        """One text a document: its fields one after the other, a line each."""
        columns = list(self.fields.values())
        if not columns:
            raise DataError("these documents have features and no text. Use a model that takes features.")
        if len(columns) == 1:
            return columns[0]
        return pc.binary_join_element_wise(*columns, "\n", null_handling="skip")

    def document_ids(self) -> list[str]:
        if self.ids is None:
            return [str(row) for row in range(len(self))]
        return list(self.ids.to_pylist())

    def take(self, rows: ArrayLike) -> Dataset:
        """The documents of these rows, in this order."""
        chosen = np.asarray(rows, dtype=np.int64)
        arrow = pa.array(chosen)
        return replace(
            self,
            fields={name: column.take(arrow) for name, column in self.fields.items()},
            features=None if self.features is None else self.features[chosen],
            labels=None if self.labels is None else self.labels[chosen],
            ids=pa.chunked_array([pa.array(self.document_ids(), pa.string())]).take(arrow)
            if self.ids is None
            else self.ids.take(arrow),
        )

    def slice(self, start: int, stop: int) -> Dataset:
        """Neighbouring documents, without copying their text."""
        stop = min(stop, len(self))
        ids = [pa.array([str(row) for row in range(start, stop)], pa.string())]
        return replace(
            self,
            fields={name: column.slice(start, stop - start) for name, column in self.fields.items()},
            features=None if self.features is None else self.features[start:stop],
            labels=None if self.labels is None else self.labels[start:stop],
            ids=pa.chunked_array(ids) if self.ids is None else self.ids.slice(start, stop - start),
        )

    def batches(self, size: int) -> Iterator[Dataset]:
        """The documents in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self.slice(start, start + size)


def text_column(texts: Any) -> pa.ChunkedArray:
    """Python strings as an Arrow column; anything that is not a string is named with its place."""
    if isinstance(texts, pa.ChunkedArray):
        return texts
    values = texts.tolist() if hasattr(texts, "tolist") else list(texts)
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise DataError(f"document {number} must be a string. Got {type(value).__name__} instead.")
    try:
        return pa.chunked_array([pa.array(values, pa.string())])
    except UnicodeEncodeError:
        return pa.chunked_array([pa.array([v.encode("utf-8", "replace").decode() for v in values], pa.string())])


def label_matrix(offsets: NDArray[np.int64], labels: NDArray[np.int64], width: int) -> Csr:
    """(n, width) ones from label numbers per row; repeats within a row count once, −1 is left out."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    kept = labels >= 0
    ones = np.ones(int(kept.sum()), dtype=np.float32)
    matrix = sp.csr_array((ones, (rows[kept], labels[kept])), shape=(len(offsets) - 1, width))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def labels_from_keys(offsets: NDArray[np.int64], keys: pa.Array) -> tuple[Csr, LabelIndex]:
    """The label matrix of keys per row, numbered in the order of the sorted keys."""
    unique = pc.unique(keys)
    index = LabelIndex.from_keys(unique.take(pc.array_sort_indices(unique)).to_pylist())
    return label_matrix(offsets, index.ids(keys), len(index)), index


def labels_from_lists(lists: Sequence[Sequence[str | int]]) -> tuple[Csr, LabelIndex]:
    """The label matrix of plain Python lists; integer labels become their decimal text, in numeric order."""
    for number, row in enumerate(lists):
        if isinstance(row, (str, bytes)) or not hasattr(row, "__iter__"):
            raise DataError(f"the labels of document {number} must be a list, such as ['{row}']. Got {row!r}.")
    lists = [list(row) for row in lists]
    flat = [key for row in lists for key in row]
    for key in flat:
        if not isinstance(key, (str, int, np.integer)) or isinstance(key, bool):
            raise DataError(f"a label must be a string or an integer. Got {key!r}.")
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in lists], dtype=np.int64)]).astype(np.int64)
    if flat and all(not isinstance(key, str) for key in flat):
        numbers = np.asarray(flat, dtype=np.int64)
        unique, inverse = np.unique(numbers, return_inverse=True)
        index = LabelIndex.from_keys([str(number) for number in unique.tolist()])
        return label_matrix(offsets, inverse.astype(np.int64), len(index)), index
    return labels_from_keys(offsets, pa.array([str(key) for key in flat], pa.string()))


def as_csr(matrix: Any, what: str) -> Csr:
    """A float32 CSR matrix from a sparse or dense one; not-a-number and infinity are refused."""
    if not sp.issparse(matrix):
        matrix = np.asarray(matrix)
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise DataError(f"{what} must be a 2-d matrix of numbers. Got {matrix.ndim}-d {matrix.dtype}.")
    elif matrix.ndim != 2:
        raise DataError(f"{what} must be a 2-d matrix. Got {matrix.ndim} dimensions.")
    csr = sp.csr_array(matrix, dtype=np.float32)
    if not np.isfinite(csr.data).all():
        bad = int(np.searchsorted(csr.indptr, int(np.argmin(np.isfinite(csr.data))), side="right")) - 1
        raise DataError(f"{what} of document {bad} hold a value that is not finite. Replace it with a number.")
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def as_labels(labels: Any) -> tuple[Csr, LabelIndex | None]:
    """Labels as users hold them: lists of keys, or a 0/1 matrix whose columns are the labels."""
    if sp.issparse(labels) or (isinstance(labels, np.ndarray) and labels.ndim == 2):
        csr = as_csr(labels, "labels")
        csr.eliminate_zeros()
        ones = np.ones(csr.nnz, dtype=np.float32)
        return sp.csr_array((ones, csr.indices, csr.indptr), shape=csr.shape), None
    if isinstance(labels, (str, bytes)):
        raise DataError("labels must be one list a document. Got a single string.")
    return labels_from_lists(labels)


def as_dataset(documents: Any, labels: Any = None) -> Dataset:
    """What a user holds — a Dataset, texts, or a matrix; labels as lists or a matrix — as a Dataset."""
    if isinstance(documents, Dataset):
        dataset = documents
    elif isinstance(documents, (str, bytes)):
        raise DataError("documents must be a list of texts. Got a single string: put it in a list.")
    elif sp.issparse(documents) or (hasattr(documents, "ndim") and documents.ndim == 2):
        dataset = Dataset(features=as_csr(documents, "features"))
    else:
        dataset = Dataset(fields={"text": text_column(documents)})
    if labels is None:
        return dataset
    matrix, index = as_labels(labels)
    if matrix.shape[0] != len(dataset):
        raise DataError(f"{len(dataset):,} documents and {matrix.shape[0]:,} label rows. Give one row each.")
    return replace(dataset, labels=matrix, label_index=index)
