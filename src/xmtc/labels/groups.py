"""Label groups: the few labels that occur most tellingly together with each label.

CF-IDF weighs label j for label i by the share of documents that hold both, times log(N / documents that hold j): labels
that stand beside everything tell little. Pairs are counted label by label, so that memory is that of the documents'
labels and two numbers a label for each thread, however many pairs there are.
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
from xmtc.labels import graph
from xmtc.labels.features import even_ranges
from xmtc.labels.graph import as_sets, count_beside, document_graph

COUNTED = 1 << 22
"""Pairs of labels that a thread counts at a time."""


def label_groups(labels: Csr, size: int, progress: Progress = silent, *, threads: int = 1) -> NDArray[np.int32]:
    """(L, size) for each label of documents (N, L) those with the largest CF-IDF, best first; −1 where there are fewer.

    A label is not in its own group. Among equals the smaller number goes first. A label that every document holds
    weighs 0: it comes last, but it does come, as it occurs together with the others.
    """
    if size < 0:
        raise ConfigError(f"The size of label groups must be an integer ≥ 0. Got {size}.")
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


@kernel(outputs=("times", "beside", "groups"), uses=(graph,))
def _fill_groups(
    indptr: NDArray[np.int64],  # (n + 1,)
    members: NDArray[np.int32],
    label_indptr: NDArray[np.int64],  # (L + 1,)
    documents: NDArray[np.int32],
    rarity: NDArray[np.float64],  # (L,) IDF
    first: int,
    last: int,
    times: NDArray[np.int32],  # (L,) zeros, and zeros again afterwards
    beside: NDArray[np.int32],  # (L,) scratch
    groups: NDArray[np.int32],  # out: of labels first … last − 1; −1 before
) -> None:
    for label in range(first, last):
        count = count_beside(indptr, members, label_indptr, documents, label, times, beside, 0)
        for i in range(count):
            _take_in(groups[label], beside[i], times, rarity)
        times[beside[:count]] = 0


@inlined
def _take_in(group: Any, label: Any, times: Any, rarity: Any) -> None:
    """Put a label where it belongs among the best so far; the last of them falls out."""
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
