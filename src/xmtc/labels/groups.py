"""Label groups: for each label, the few labels with the most significant co-occurrence.

CF-IDF weights label j for label i by the fraction of documents with both, times log(N / documents with j), since labels
that co-occur with everything are uninformative. Pairs are counted label by label, so memory is limited to the
documents' labels and two numbers per label and thread, independent of the number of pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError
from xmtc.core.jit import inlined, kernel
from xmtc.core.parallel import run_parallel
from xmtc.core.progress import Progress, silent
from xmtc.data.dataset import Csr
from xmtc.labels.features import even_ranges
from xmtc.labels.graph import as_sets, count_beside, document_graph

COUNTED = 1 << 22
"""Label pairs that a thread counts at a time."""


def label_groups(labels: Csr, size: int, progress: Progress = silent, *, threads: int = 1) -> NDArray[np.int32]:
    """Return the labels (L, size) with the largest CF-IDF for each label of documents (N, L), best first, else −1.

    A label is not in its own group. Ties are ordered by label number. A label that every document has weighs 0 and
    comes last.
    """
    if size < 0:
        raise ConfigError(f"the size of label groups must be an integer ≥ 0. Got {size}.")
    labels = as_sets(labels)
    groups = np.full((int(labels.shape[1]), size), -1, dtype=np.int32)
    if not size or not labels.nnz:
        return groups
    counts = np.bincount(labels.indices, minlength=len(groups))
    rarity = np.log(labels.shape[0] / np.maximum(counts, 1))
    joined = document_graph(labels)

    def fill(part: range) -> int:
        times, beside = np.zeros(len(groups), dtype=np.int32), np.empty(len(groups), dtype=np.int32)
        given = (joined.indptr, joined.members, joined.label_indptr, joined.documents, rarity, part.start, part.stop)
        _fill_groups(*given, times, beside, groups)
        return len(part)

    with progress.task("grouping labels", total=len(groups)) as task:
        for done in run_parallel(fill, even_ranges(joined.pairs(), COUNTED), threads, ahead=8):
            task.advance(done)
    return groups


@kernel(outputs=("times", "beside", "groups"))
def _fill_groups(
    indptr: NDArray[np.int64],  # (n + 1,)
    members: NDArray[np.int32],
    label_indptr: NDArray[np.int64],  # (L + 1,)
    documents: NDArray[np.int32],
    rarity: NDArray[np.float64],  # (L,) IDF
    first: int,
    last: int,
    times: NDArray[np.int32],  # (L,) zeros, reset to zeros at the end
    beside: NDArray[np.int32],  # (L,) scratch
    groups: NDArray[np.int32],  # out: groups of labels first … last − 1; initially −1
) -> None:
    for label in range(first, last):
        count = count_beside(indptr, members, label_indptr, documents, label, times, beside, 0)
        for i in range(count):
            _take_in(groups[label], beside[i], times, rarity)
        times[beside[:count]] = 0


@inlined
def _take_in(group: Any, label: Any, times: Any, rarity: Any) -> None:
    """Insert a label into the sorted group; the last one is dropped."""
    weight = times[label] * rarity[label]
    place = len(group)
    while place > 0:
        other = group[place - 1]
        theirs = times[other] * rarity[other]
        if other >= 0 and (theirs > weight or (theirs == weight and other < label)):
            break
        place -= 1
    if place < len(group):
        group[place + 1 :] = group[place:-1].copy()
        group[place] = label
