"""Sparse rows of tf-idf values from the items (words and n-grams) of documents."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.buffers import Buffers
from xmtc.core.parallel import run_parallel
from xmtc.data.dataset import Csr
from xmtc.text import token_kernels
from xmtc.text.vocabulary import WordParts

_FEW = 64
"""Features of the model per item of a block from which sorting the items is faster than marking their features."""
_FREQUENCIES = np.arange(256, dtype=np.float64)
_LOGARITHMS = np.array([0.0, *(1.0 + math.log(frequency) for frequency in range(1, 256))])


class Items(NamedTuple):
    """The items of documents: item i has the feature features[i] (−1 for none) and, if it is a word, its parts."""

    indptr: NDArray[np.int64]  # (n + 1,)
    ids: NDArray[Any]  # items of each document; −1 is ignored
    features: NDArray[np.int32]  # (items,)
    parts: WordParts
    words: NDArray[np.int32]
    """Number of the first items among the words with parts; −1 for none."""


class TfidfRows(NamedTuple):
    """Rows of a sparse matrix."""

    indptr: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[np.float32]


def weighed_rows(items: Items, weights: NDArray[np.float32], sublinear: bool, buffers: Buffers) -> TfidfRows:
    """Compute tf-idf rows of unit length; columns ascend within a row."""
    has_parts = items.parts.different > 0
    starts, ends = items.parts.edges(items.words) if has_parts else (items.indptr[:0], items.indptr[:0])
    if has_parts:
        features, ranks = np.arange(len(weights), dtype=np.int32), items.features
        sizes = np.append(ends - starts, np.zeros(len(items.features) - len(starts), dtype=np.int64)) + 1
        most = int(sizes[items.ids].sum())
    else:
        features, ranks = _ranked(items.features, len(weights))
        most = len(items.ids)
    get, documents = buffers.get, len(items.indptr) - 1
    indptr = np.empty(documents + 1, dtype=np.int64)
    columns, values = get("columns", most, np.int32), get("values", most, np.float32)
    token_kernels.weigh_features(
        items.indptr,
        items.ids,
        ranks,
        starts,
        ends,
        items.parts.parts,
        features,
        weights,
        _LOGARITHMS if sublinear else _FREQUENCIES,
        sublinear,
        get("counts", len(ranks), np.int32, zero=True),
        get("tallies", len(features), np.int32, zero=True),
        get("ends", len(features), np.int64, zero=True),
        get("items", int(np.diff(items.indptr).max(initial=0)) + 1, np.int32),
        get("found", 2 * most + 1, np.int32),
        get("ordered", 2 * most, np.int32),
        get("squares", documents, np.float64, zero=True),
        indptr,
        columns,
        values,
    )
    return TfidfRows(indptr, columns[: indptr[-1]].copy(), values[: indptr[-1]].copy())


def _ranked(of_items: NDArray[np.int32], width: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the distinct features of items, ascending, and the rank of each item's feature among them."""
    known = of_items[of_items >= 0]
    features: NDArray[Any]
    ranks: NDArray[Any]
    if _FEW * len(of_items) < width:
        features = np.unique(known)
        ranks = np.searchsorted(features, of_items)
    else:
        is_used = np.zeros(width, dtype=bool)
        is_used[known] = True
        features = np.flatnonzero(is_used)
        rank_of = np.empty(width + 1, dtype=np.int32)
        rank_of[features] = np.arange(len(features), dtype=np.int32)
        ranks = rank_of[of_items]
    return features.astype(np.int32), np.where(of_items < 0, -1, ranks).astype(np.int32)


def stack_rows(parts: list[TfidfRows], width: int, threads: int) -> Csr:
    """Stack rows; `parts` is emptied on the way, so that memory does not hold all of them twice."""
    if len(parts) == 1 and len(parts[0].columns) < 2**31:
        return _matrix(*parts[0], width)
    counts = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.indptr) for part in parts)])
    indptr = np.cumsum(counts)
    small = np.int32 if indptr[-1] < 2**31 else np.int64
    columns, values = np.empty(indptr[-1], dtype=small), np.empty(indptr[-1], dtype=np.float32)
    starts = np.cumsum([0, *(len(part.columns) for part in parts)])

    def put(number: int) -> None:
        part, place = parts[number], slice(starts[number], starts[number + 1])
        columns[place], values[place] = part.columns, part.values
        parts[number] = part._replace(columns=columns[:0], values=values[:0])

    list(run_parallel(put, range(len(parts)), threads))
    return _matrix(indptr, columns, values, width)


def _matrix(indptr: NDArray[Any], columns: NDArray[Any], values: NDArray[np.float32], width: int) -> Csr:
    indptr = indptr.astype(columns.dtype)
    matrix = sp.csr_array((values, columns, indptr), shape=(len(indptr) - 1, width))
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    return matrix
