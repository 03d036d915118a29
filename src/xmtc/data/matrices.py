"""Pairs of sparse matrices, such as X.trn.npz and Y.trn.npz: features and labels of the same documents."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.errors import DataError, shown
from xmtc.core.files import open_bytes, replace_file
from xmtc.data.dataset import Csr, Dataset
from xmtc.data.format import Format
from xmtc.data.records import ReadOptions, Records
from xmtc.data.sparse import MOST_LABELS, label_numbers

_PARTS = ("indices", "indptr", "data", "shape")


def labels_beside(path: str | Path) -> Path | None:
    """Return the label file of a feature file: Y.trn.npz for X.trn.npz."""
    name = Path(path).name
    return Path(path).with_name("Y" + name[1:]) if name.startswith("X") else None


def read_npz(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Read the features of X.….npz with the labels of Y.….npz; a label's key is its column number."""
    features = read_matrix(path)
    beside = labels_beside(path)
    if beside is None or not beside.is_file():
        if options.labelled:
            missing = "the name does not start with X" if beside is None else f"no {beside.name} in the same folder"
            raise DataError(f"{path}: labels not found: {missing}. Name the two files X.….npz and Y.….npz.")
        yield _records(features, None)
        return
    labels = read_matrix(beside)
    if labels.shape[0] != features.shape[0]:
        raise DataError(
            f"{beside}: {labels.shape[0]:,} rows, but {features.shape[0]:,} in {path}. Write one row per document."
        )
    if labels.shape[1] > MOST_LABELS:
        raise DataError(f"{beside}: {labels.shape[1]:,} labels are too many (maximum {MOST_LABELS:,}).")
    labels.eliminate_zeros()
    if (labels.data < 0).any():
        raise DataError(f"{beside}: contains a negative value. Write 1 for each label of a document.")
    yield _records(features, labels)


def _records(features: Csr, labels: Csr | None) -> Records:
    count = features.shape[0]
    return Records(
        ids=pa.array(np.arange(count)).cast(pa.string()),
        lines=np.arange(1, count + 1),
        features=features,
        label_counts=None if labels is None else np.diff(labels.indptr).astype(np.int64),
        label_keys=pa.array([], pa.string()) if labels is None else pa.array(labels.indices).cast(pa.string()),
        label_width=None if labels is None else int(labels.shape[1]),
    )


def read_matrix(path: str | Path) -> Csr:
    """Read a sparse matrix saved by SciPy (CSR or CSC) with full validation and without unpickling."""
    if str(path) == "-":
        raise DataError(f"{path}: a matrix cannot be read from a pipe. Write it to a file first.")
    try:
        with open_bytes(path) as stream, zipfile.ZipFile(stream) as archive:
            kind = _kind(_array(archive, "format"))
            parts = {name: _array(archive, name) for name in _PARTS}
        return _matrix(kind, parts)
    except DataError:
        raise
    except Exception as error:  # a damaged archive may raise anything
        reason = shown(str(error) or type(error).__name__, 120).rstrip(".")
        raise DataError(f"{path}: not a sparse matrix saved by SciPy ({reason}). Save it again.") from None


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"'{name}' has an unknown version")
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = header(member)
        size = int(np.prod(shape, dtype=object)) * kind.itemsize
        if kind.hasobject or size > info.file_size:
            raise ValueError(f"'{name}' is not a plain array or longer than the file")
        content = member.read(size)
    if len(content) < size:
        raise ValueError(f"'{name}' is truncated")
    return np.frombuffer(content[:size], dtype=kind).reshape(shape)


def _kind(stored: NDArray[Any]) -> str:
    kind = stored.reshape(-1)[0] if stored.size else b""
    name = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    if name not in ("csr", "csc"):
        raise ValueError(f"format '{shown(name)}' is neither csr nor csc, so save it with .tocsr()")
    return name


def _matrix(name: str, parts: dict[str, NDArray[Any]]) -> Csr:
    indices, indptr, data, shape = (parts[part] for part in ("indices", "indptr", "data", "shape"))
    if shape.shape != (2,) or any(part.dtype.kind not in "iu" for part in (indices, indptr, shape)):
        raise ValueError("its indices or its shape are not integers")
    if data.dtype.kind not in "biuf" or data.ndim != 1 or indices.shape != data.shape:
        raise ValueError("its values are not one number per entry")
    rows, columns = (int(count) for count in shape)
    across, along = (rows, columns) if name == "csr" else (columns, rows)
    if min(rows, columns) < 0 or max(rows, columns) >= 2**31 or indptr.shape != (across + 1,):
        raise ValueError("its shape is inconsistent with the array sizes")
    if name == "csc" and rows > max(1_000_000, 1000 * len(data)):  # rows need memory, even without entries
        raise ValueError(f"{rows:,} rows are too many for {len(data):,} entries")
    steps = np.diff(indptr.astype(np.int64))
    if indptr[0] != 0 or indptr[-1] != len(data) or (steps < 0).any():
        raise ValueError("'indptr' is not ascending from 0 to the number of entries")
    if len(indices) and (indices.min() < 0 or indices.max() >= along):
        raise ValueError("an index is out of range")
    with np.errstate(over="ignore"):
        values = data.astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError("a value is not finite")
    build = sp.csr_array if name == "csr" else sp.csc_array
    matrix = sp.csr_array(build((values, indices.astype(np.int64), indptr.astype(np.int64)), shape=(rows, columns)))
    matrix.sum_duplicates()
    if not np.isfinite(matrix.data).all():
        raise ValueError("values of a repeated entry sum to infinity")
    return matrix


def write_npz(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write X.….npz and, in the same folder, Y.….npz."""
    assert dataset.features is not None
    beside = labels_beside(path)
    if beside is None:
        raise DataError(f"{path}: the name must start with X, such as X.trn.npz; labels are written to Y.trn.npz.")
    numbers = label_numbers(dataset, path)
    features, labels = sp.csr_matrix(dataset.features), dataset.labels
    if labels is None:
        if beside.exists():
            raise DataError(
                f"{path}: these documents have no labels, but {beside.name} is in the same folder. Remove it first."
            )
        with replace_file(path) as stream:
            sp.save_npz(stream, features)
        return 0
    width = len(numbers) if np.array_equal(numbers, np.arange(len(numbers))) else int(numbers.max(initial=-1)) + 1
    matrix = sp.csr_matrix((labels.data, numbers[labels.indices], labels.indptr), shape=(len(dataset), width))
    matrix.sort_indices()
    with replace_file(beside) as labels_stream, replace_file(path) as stream:
        sp.save_npz(labels_stream, matrix)
        sp.save_npz(stream, features)
    return 0


NPZ = Format(
    name="npz",
    description="X.trn.npz and Y.trn.npz",
    read=read_npz,
    write=write_npz,
    part_name="X.{}.npz",
    endings=(".npz",),
    holds="features",
    lines=False,
    labels_beside=labels_beside,
)


def is_plain_row(document: Any, width: int | None) -> bool:
    """Whether this is one CSR row of a matrix with `width` columns that needs no conversion."""
    return (
        sp.issparse(document)
        and document.format == "csr"
        and document.shape == (1, width)
        and document.dtype == np.float32
        and document.has_canonical_format
        and bool(np.isfinite(document.data).all())
        and (not document.nnz or (document.indices[0] >= 0 and document.indices[-1] < document.shape[1]))
    )
