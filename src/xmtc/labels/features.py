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
from xmtc.core.selection import nth_largest_moved, sort_ascending
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
        most = np.minimum(work[part.start : part.stop], width)  # upper bounds of the entries of each sum
        widest = int(most.max(initial=0))
        kept = int((np.minimum(most, keep) if keep > 0 else most).sum())
        place, touched, chosen = np.zeros(width, np.int32), np.empty(widest, np.int32), np.empty(widest, np.int32)
        counts, features, out = np.empty(len(part), np.int64), np.empty(kept, np.int32), np.empty(kept, np.float32)
        own = label_indptr[part.start : part.stop + 1]
        found = (np.empty((2, widest)), counts, features, out)
        _sum_labels(own, documents, indptr, indices, values, max(keep, 0), place, touched, chosen, *found)
        end = int(counts.sum())
        return counts, features[:end].copy(), out[:end].copy()

    work = np.diff(np.concatenate([[0], np.cumsum(np.diff(indptr)[documents])])[label_indptr])
    parts = list(run_parallel(add_up, even_ranges(work, SUMMED), threads))
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
def _choose(touched: Any, sums: Any, count: Any, place: Any, keep: int, chosen: Any, sizes: Any) -> int:
    """Write the features to keep, ascending, to the front of `chosen`; return their number."""
    threshold = 0.0
    if 0 < keep < count:
        for i in range(count):
            sizes[i] = abs(sums[i])
        threshold = nth_largest_moved(sizes[:count], keep)
    candidates = 0
    spare = keep  # remaining slots for features at the threshold
    for i in range(count):
        if abs(sums[i]) >= threshold and sums[i] != 0.0:
            chosen[candidates] = touched[i]
            candidates += 1
            spare -= abs(sums[i]) > threshold
    sort_ascending(chosen, candidates)
    kept = 0
    for i in range(candidates):
        if abs(sums[place[chosen[i]] - 1]) == threshold:
            if spare <= 0:
                continue
            spare -= 1
        chosen[kept] = chosen[i]
        kept += 1
    return kept


@kernel(outputs=("place", "touched", "chosen", "sums", "counts", "features", "out"))
def _sum_labels(
    label_indptr: NDArray[np.int64],  # (m + 1,)
    documents: NDArray[np.int32],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    keep: int,
    place: NDArray[np.int32],  # (D,) zeros, reset to zeros at the end
    touched: NDArray[np.int32],  # (entries of the widest sum,), as `chosen`
    chosen: NDArray[np.int32],
    sums: NDArray[np.float64],  # (2, entries of the widest sum)
    counts: NDArray[np.int64],  # out: (m,) the number of entries of each label
    features: NDArray[np.int32],  # out: the features of all entries
    out: NDArray[np.float32],  # out: their values
) -> None:
    """Sum the rows of the documents of each label and scale them to unit length."""
    total, sizes = sums[0], sums[1]
    end = 0
    for label in range(len(counts)):
        count = 0
        for i in range(label_indptr[label], label_indptr[label + 1]):
            for j in range(indptr[documents[i]], indptr[documents[i] + 1]):
                at = place[indices[j]]  # 1 + position of its sum
                if at:
                    total[at - 1] += values[j]
                else:
                    touched[count] = indices[j]
                    total[count] = values[j]
                    count += 1
                    place[indices[j]] = count
        kept = _choose(touched, total, count, place, keep, chosen, sizes)
        square = 0.0
        for i in range(kept):
            value = total[place[chosen[i]] - 1]
            square += value * value
        for i in range(kept):
            features[end + i] = chosen[i]
            out[end + i] = total[place[chosen[i]] - 1] / np.sqrt(square)
        for i in range(count):
            place[touched[i]] = 0
        counts[label] = kept
        end += kept
