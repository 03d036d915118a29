"""Label features: sums of their documents' features, and co-occurring labels.

Both are sums over a label's documents, computed label by label, so memory is limited to one number per feature and
thread, and the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.errors import DataError
from xmtc.core.jit import inlined, kernel
from xmtc.core.parallel import run_parallel
from xmtc.core.selection import nth_largest
from xmtc.data.dataset import Csr

SUMMED = 1 << 22
"""Entries of documents that a thread sums at a time."""


def positive_features(rows: Csr, labels: Csr, *, keep: int = 256, threads: int = 1) -> Csr:
    """Sum the rows of each label's documents (L, D), scaled to unit length.

    Only the `keep` entries of a label with the largest absolute values are kept (0: all), on ties those with smaller
    feature numbers. A label without documents has an empty row. The result does not depend on `threads`.
    """
    if rows.shape[0] != labels.shape[0]:
        raise DataError(
            f"{rows.shape[0]:,} rows of features but {labels.shape[0]:,} of labels. Pass one row per document."
        )
    by_label = labels.T.tocsr()
    by_label.sort_indices()
    documents, label_indptr = by_label.indices.astype(np.int32, copy=False), by_label.indptr.astype(np.int64)
    indptr, indices, values = csr_parts(rows)
    width = int(rows.shape[1])

    def add_up(part: range) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        place = np.zeros(width, dtype=np.int32)
        own = label_indptr[part.start : part.stop + 1]
        return _sum_labels(own, documents, indptr, indices, values, max(keep, 0), place)

    work = np.concatenate([[0], np.cumsum(np.diff(indptr)[documents])])[label_indptr]
    parts = list(run_parallel(add_up, even_ranges(np.diff(work), SUMMED), threads))
    counts = np.concatenate([np.zeros(1, dtype=np.int64), *(part[0] for part in parts)])
    features = np.concatenate([np.empty(0, dtype=np.int32), *(part[1] for part in parts)])
    sums = np.concatenate([np.empty(0, dtype=np.float32), *(part[2] for part in parts)])
    return sp.csr_array((sums, features, np.cumsum(counts)), shape=(int(labels.shape[1]), width))


def cooccurrence_features(labels: Csr, *, keep: int = 256, threads: int = 1) -> Csr:
    """Count co-occurrences of labels (L, L), also with themselves; truncated and scaled like `positive_features`."""
    return positive_features(labels, labels, keep=keep, threads=threads)


def joined(left: Csr, right: Csr) -> Csr:
    """Concatenate both vectors of each label (L, D + E), rescaled to unit length."""
    if left.shape[0] != right.shape[0]:
        raise DataError(f"{left.shape[0]:,} and {right.shape[0]:,} rows of label features. Pass one row per label.")
    both = sp.hstack([left, right], format="csr", dtype=np.float32)
    lengths = np.diff(both.indptr)
    squares = np.concatenate([[0.0], np.cumsum(both.data.astype(np.float64) ** 2)])[both.indptr]
    norms = np.sqrt(np.diff(squares))  # (L,)
    scale = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    both.data *= np.repeat(scale, lengths).astype(np.float32)
    return both


def csr_parts(matrix: Csr) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return row starts, columns and values in the data types of the kernels."""
    return (
        matrix.indptr.astype(np.int64, copy=False),
        matrix.indices.astype(np.int32, copy=False),
        matrix.data.astype(np.float32, copy=False),
    )


def even_ranges(work: NDArray[np.int64], share: int) -> Iterator[range]:
    """Yield ranges of consecutive items whose total work reaches `share`; every item is in one range."""
    done = np.cumsum(work)
    start = 0
    while start < len(work):
        before = int(done[start - 1]) if start else 0
        stop = min(int(np.searchsorted(done, before + share)) + 1, len(work))
        yield range(start, stop)
        start = stop


@inlined
def _room(label_indptr: Any, documents: Any, indptr: Any, width: int, keep: int) -> Any:
    """Return upper bounds of the entries in the widest sum, and of all entries kept."""
    widest = 0
    most = 0
    for label in range(len(label_indptr) - 1):
        entries = 0
        for i in range(label_indptr[label], label_indptr[label + 1]):
            entries += indptr[documents[i] + 1] - indptr[documents[i]]
        entries = min(entries, width)
        widest = max(widest, entries)
        most += min(entries, keep) if keep else entries
    return widest, most


@inlined
def _choose(touched: Any, sums: Any, place: Any, keep: int, chosen: Any) -> int:
    """Write the features to keep, ascending, to the front of `chosen`; return their number."""
    threshold = 0.0
    if 0 < keep < len(sums):
        threshold = nth_largest(np.abs(sums), keep)
    candidates = 0
    spare = keep  # remaining slots for features at the threshold
    for i in range(len(sums)):
        if abs(sums[i]) >= threshold and sums[i] != 0.0:
            chosen[candidates] = touched[i]
            candidates += 1
            spare -= abs(sums[i]) > threshold
    chosen[:candidates].sort()
    kept = 0
    for i in range(candidates):
        if abs(sums[place[chosen[i]] - 1]) == threshold:
            if spare <= 0:
                continue
            spare -= 1
        chosen[kept] = chosen[i]
        kept += 1
    return kept


@kernel(outputs=("place",))
def _sum_labels(
    label_indptr: NDArray[np.int64],  # (m + 1,)
    documents: NDArray[np.int32],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    keep: int,
    place: NDArray[np.int32],  # (D,) zeros, reset to zeros at the end
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return the number of entries of each label (m,), and features and values of all entries."""
    widest, most = _room(label_indptr, documents, indptr, len(place), keep)
    counts = np.zeros(len(label_indptr) - 1, np.int64)
    features = np.empty(most, np.int32)
    out = np.empty(most, np.float32)
    touched = np.empty(widest, np.int32)
    chosen = np.empty(widest, np.int32)
    sums = np.empty(widest, np.float64)
    end = 0
    for label in range(len(counts)):
        count = 0
        for i in range(label_indptr[label], label_indptr[label + 1]):
            for j in range(indptr[documents[i]], indptr[documents[i] + 1]):
                at = place[indices[j]]  # 1 + position of its sum
                if at:
                    sums[at - 1] += values[j]
                else:
                    touched[count] = indices[j]
                    sums[count] = values[j]
                    count += 1
                    place[indices[j]] = count
        kept = _choose(touched, sums[:count], place, keep, chosen)
        square = 0.0
        for i in range(kept):
            square += sums[place[chosen[i]] - 1] ** 2
        for i in range(kept):
            features[end + i] = chosen[i]
            out[end + i] = sums[place[chosen[i]] - 1] / np.sqrt(square)
        for i in range(count):
            place[touched[i]] = 0
        counts[label] = kept
        end += kept
    return counts, features[:end].copy(), out[:end].copy()
