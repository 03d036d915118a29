"""Rows of a data set by number or mask, and the texts of such rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import DataError


def taken_rows(column: pa.ChunkedArray, rows: NDArray[np.int64]) -> pa.ChunkedArray:
    """Take rows of a string column chunk by chunk, since the column may exceed the size limit of one Arrow array."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    picked = [pa.array([], pa.large_string())]
    start = 0
    for chunk in column.chunks:
        first, last = np.searchsorted(ordered, [start, start + len(chunk)])
        picked.append(chunk.take(pa.array(ordered[first:last] - start)).cast(pa.large_string()))
        start += len(chunk)
    arranged = pa.concat_arrays(picked).take(pa.array(np.argsort(order)))
    pieces = [arranged.slice(at, 1 << 16).cast(pa.string()) for at in range(0, len(rows), 1 << 16)]
    return pa.chunked_array(pieces, pa.string())


def row_numbers(rows: ArrayLike, count: int) -> NDArray[np.int64]:
    """Convert row numbers below `count`, or a boolean mask of length `count`, to row numbers."""
    chosen = np.asarray(rows)
    if chosen.dtype == bool and chosen.shape == (count,):
        return np.flatnonzero(chosen)
    if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and chosen.size):
        raise DataError(f"rows must be a list of row numbers. Got a {chosen.ndim}-d array of {chosen.dtype}.")
    outside = chosen[(chosen < 0) | (chosen >= count)] if chosen.size else chosen
    if outside.size:
        raise DataError(f"row {outside[0]} is out of range for {count:,} documents numbered from 0.")
    return chosen.astype(np.int64)
