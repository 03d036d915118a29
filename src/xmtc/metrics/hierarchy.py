"""Metrics that use the hierarchy of labels: a prediction near a true label is better than one far away.

Y is the set of a document's true labels, P the set of its first k predictions. X⁺ is X with all labels above its own.

- hP@k = Σ |P⁺ ∩ Y⁺| / Σ |P⁺|, hR@k = Σ |P⁺ ∩ Y⁺| / Σ |Y⁺| and hF1@k = 2 Σ |P⁺ ∩ Y⁺| / (Σ |P⁺| + Σ |Y⁺|), the sums over
  all documents: hierarchical precision, recall and F1 (Kiritchenko et al. 2006).
- graphP@k: each prediction gains 1 / (1 + d), where d is the number of steps to the true label that it is assigned to:
  up to a common broader label, then down again. Beyond 3 steps it gains nothing. The sum of the gains is divided by k.
- nearP@k: the same with at most 1 step. A hit gains 1; a parent or a child of a true label gains 1/2.
- graphnDCG@k and nearnDCG@k: nDCG with these gains, divided by the ideal DCG of min(k, |Y|) hits.

Each true label is assigned to at most one prediction and each prediction to at most one true label: the pairs of a
document are taken in ascending order of steps, then of the prediction's rank, then of the label's number, and a pair is
skipped if one of the two is assigned already. So hits always count in full, a true label never counts twice, and the
values are at least those of P@k and nDCG@k and at most 1. All are means over documents, except hP, hR and hF1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import DataError
from xmtc.data.label_index import Csr
from xmtc.metrics.matching import (
    FloatArray,
    Predicted,
    Truth,
    check_cutoffs,
    check_truth,
    first_mentions,
    label_numbers,
    true_labels,
)
from xmtc.metrics.ranking import Parts, ratio
from xmtc.metrics.registry import at_cutoff

STEPS = {"near": 1, "graph": 3}
"""Most steps between a prediction and a true label, by metric."""
PAIRS = 1 << 21
"""Pairs of predictions and true labels compared at once."""
Numbers = NDArray[np.int64]


class Graph(Protocol):
    """The hierarchy that the metrics need, such as `xmtc.labels.hierarchy.Hierarchy`."""

    count: int
    """Number of labels."""

    def above(self, labels: ArrayLike, most: int | None = None) -> Csr:
        """(len(labels), L) each label and those above it, as non-zero entries."""
        ...

    def steps(self, left: ArrayLike, right: ArrayLike, most: int) -> Numbers:
        """Steps between the labels of each pair, −1 beyond `most`."""
        ...


def evaluate_hierarchy(
    predicted: Predicted, truth: Truth, hierarchy: Graph, ks: Iterable[int] = (1, 3, 5)
) -> dict[str, float]:
    """Compute all metrics of this module at all cut-offs: "hP@1", …, "nearP@1", …, "graphnDCG@5".

    Label numbers of predictions and truth are those of the hierarchy, which may have further labels.
    """
    return {name: parts.value for name, parts in hierarchy_parts(predicted, truth, hierarchy, ks).items()}


def hierarchy_parts(
    predicted: Predicted, truth: Truth, hierarchy: Graph, ks: Iterable[int] = (1, 3, 5)
) -> dict[str, Parts]:
    """Return the metrics of `evaluate_hierarchy` as contributions per document, which `bootstrap` resamples."""
    ks = list(ks)
    check_cutoffs(ks)
    returned = label_numbers(predicted)[:, : max(ks)].astype(np.int64)
    check_truth(truth, len(returned), "predictions")
    if max(truth.shape[1], int(returned.max(initial=-1)) + 1) > hierarchy.count:
        raise DataError(f"the hierarchy has {hierarchy.count:,} labels, fewer than the true labels. Pass one for all.")
    returned = np.where(first_mentions(returned), returned, -1)
    rows, labels = true_labels(truth)
    found = {
        **_extended_parts(returned, rows, labels, hierarchy, ks),
        **_distance_parts(returned, rows, labels, hierarchy, ks),
    }
    kinds = ("hP", "hR", "hF1", "nearP", "nearnDCG", "graphP", "graphnDCG")
    return {at_cutoff(kind, k): found[kind, k] for kind in kinds for k in ks}


def _extended_parts(
    returned: Numbers, rows: Numbers, labels: Numbers, hierarchy: Graph, ks: list[int]
) -> dict[tuple[str, int], Parts]:
    """Compute hP, hR and hF1: overlap of the sets of labels with all labels above them."""
    count = len(returned)
    true = _extended(rows, labels, hierarchy, count)  # (n, L)
    true_sizes = np.diff(true.indptr).astype(np.float64)
    parts = {}
    for k in ks:
        at, places = np.nonzero(returned[:, :k] >= 0)
        given = _extended(at, returned[at, places], hierarchy, count)
        sizes = np.diff(given.indptr).astype(np.float64)
        shared = np.asarray(given.multiply(true).sum(axis=1), dtype=np.float64).ravel()
        parts["hP", k] = Parts(shared, sizes)
        parts["hR", k] = Parts(shared, true_sizes)
        parts["hF1", k] = Parts(2 * shared, sizes + true_sizes)
    return parts


def _extended(rows: Numbers, labels: Numbers, hierarchy: Graph, count: int) -> Csr:
    """(n, L) the labels of each document and all labels above them, as ones."""
    used, at = np.unique(labels, return_inverse=True)
    members = sp.csr_array((np.ones(len(rows), dtype=np.int32), (rows, at)), shape=(count, len(used)))
    extended = sp.csr_array(members @ hierarchy.above(used))
    extended.data[:] = 1
    return extended


@dataclass(frozen=True)
class _NearPairs:
    """Predictions near a true label of their document, in the order in which they are assigned."""

    rows: Numbers
    ranks: Numbers
    entries: Numbers
    """Position of the true label among all."""
    steps: Numbers

    def where(self, chosen: NDArray[np.bool_] | Numbers) -> _NearPairs:
        """The pairs of a mask, or those with these numbers."""
        return _NearPairs(self.rows[chosen], self.ranks[chosen], self.entries[chosen], self.steps[chosen])


def _distance_parts(
    returned: Numbers, rows: Numbers, labels: Numbers, hierarchy: Graph, ks: list[int]
) -> dict[tuple[str, int], Parts]:
    count, sizes = len(returned), np.bincount(rows, minlength=len(returned))
    pairs = _near_pairs(returned, rows, labels, hierarchy, max(STEPS.values()))
    parts = {}
    for name, most in STEPS.items():
        for k in ks:
            assigned = _assigned(pairs.where((pairs.steps <= most) & (pairs.ranks < k)), returned.shape[1])
            gains: FloatArray = np.divide(1.0, 1.0 + assigned.steps, dtype=np.float64)
            total = np.bincount(assigned.rows, gains, minlength=count).astype(np.float64)
            parts[f"{name}P", k] = Parts(total, np.full(count, float(k)))
            discounted = np.bincount(assigned.rows, gains / np.log2(assigned.ranks + 2.0), minlength=count)
            ideal = np.cumsum(1.0 / np.log2(np.arange(k) + 2.0))[np.clip(sizes, 1, k) - 1]
            parts[f"{name}nDCG", k] = Parts(ratio(discounted, ideal), np.ones(count))
    return parts


def _near_pairs(returned: Numbers, rows: Numbers, labels: Numbers, hierarchy: Graph, most: int) -> _NearPairs:
    """All pairs of a prediction and a true label at most this many steps apart."""
    width = max(returned.shape[1], 1)
    found = [_NearPairs(*(np.empty(0, dtype=np.int64) for _ in range(4)))]
    for start in range(0, len(rows), max(PAIRS // width, 1)):
        entries = np.arange(start, min(start + max(PAIRS // width, 1), len(rows)))
        candidates = returned[rows[entries]]  # (e, k)
        at, ranks = np.nonzero(candidates >= 0)
        steps = hierarchy.steps(labels[entries[at]], candidates[at, ranks], most)
        found.append(_NearPairs(rows[entries[at]], ranks, entries[at], steps).where(steps >= 0))
    pairs = _NearPairs(*(np.concatenate([getattr(part, name) for part in found]) for name in vars(found[0])))
    order = np.lexsort((pairs.entries, pairs.ranks, pairs.steps))
    return pairs.where(order)


def _assigned(pairs: _NearPairs, width: int) -> _NearPairs:
    """Assign pairs in their order; skip those with a prediction or a true label that is assigned already.

    A pair that is the first of both its prediction and its true label is assigned in any case, so that each round
    decides many pairs at once.
    """
    chosen = [pairs.where(np.zeros(len(pairs.rows), dtype=bool))]
    while len(pairs.rows):
        slots = pairs.rows * width + pairs.ranks
        first = np.intersect1d(
            np.unique(slots, return_index=True)[1], np.unique(pairs.entries, return_index=True)[1], assume_unique=True
        )
        chosen.append(pairs.where(first))
        taken = np.isin(slots, slots[first]) | np.isin(pairs.entries, pairs.entries[first])
        pairs = pairs.where(~taken)
    return _NearPairs(*(np.concatenate([getattr(part, name) for part in chosen]) for name in vars(pairs)))
