"""Metrics of the top k labels as a set: F1, coverage, counts per label, and the overlap of two predictions.

See `matching` for the conventions of predictions and true labels. A document may have fewer than k predictions. A
predicted label beyond the columns of `truth` counts as wrong in metrics over documents, and is ignored in metrics over
labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xmtc.core.errors import DataError
from xmtc.metrics.matching import (
    FloatArray,
    IntegerArray,
    Match,
    Predicted,
    Truth,
    check_count,
    first_mentions,
    first_ranks,
    label_numbers,
    match,
)
from xmtc.metrics.ranking import ratio

if TYPE_CHECKING:
    from xmtc.data.topk import TopK


@dataclass(frozen=True)
class LabelCounts:
    """Number of documents per label: in which it is true, in which it is among the top k, and both."""

    support: NDArray[np.int64]  # (L',)
    suggested: NDArray[np.int64]  # (L',) 0: never predicted
    hits: NDArray[np.int64]  # (L',)

    @property
    def f1(self) -> FloatArray:
        """F1 of each label; 0 if it is neither true nor predicted, as in scikit-learn with zero_division=0."""
        return ratio(2 * self.hits, self.support + self.suggested)  # (L',)


def micro_f1(predicted: Predicted, truth: Truth, k: int) -> float:
    """Compute F1 over all (document, label) pairs; 0 if there are none."""
    return _micro_f1(_compare(predicted, truth, [k]), k)


def macro_f1(predicted: Predicted, truth: Truth, k: int) -> float:
    """Compute the mean F1 of labels over all columns of `truth`, including labels that are never true or predicted."""
    return _macro_f1(_compare(predicted, truth, [k]), k)


def document_f1(predicted: Predicted, truth: Truth, k: int) -> float:
    """Compute the mean F1 of documents; 0 for a document without true and predicted labels."""
    return _document_f1(_compare(predicted, truth, [k]), k)


def coverage(predicted: Predicted, truth: Truth, k: int) -> float:
    """Compute the fraction of true labels that are predicted correctly at least once; 0 if there are none."""
    return _coverage(_compare(predicted, truth, [k]), k)


def evaluate_sets(predicted: Predicted, truth: Truth, ks: Iterable[int] = (1, 3, 5)) -> dict[str, float]:
    """Compute all set metrics at all cut-offs at once: "microF1@1", …, "macroF1@1", …, "coverage@1", …."""
    ks = list(ks)
    sets = _compare(predicted, truth, ks)
    values = {f"microF1@{k}": _micro_f1(sets, k) for k in ks}
    values |= {f"macroF1@{k}": _macro_f1(sets, k) for k in ks}
    return values | {f"coverage@{k}": _coverage(sets, k) for k in ks}


def set_scores(predicted: Predicted, truth: Truth) -> dict[str, float]:
    """Evaluate complete rows as label sets: F1 as "micro", "macro" and "document", "precision", "recall", "labels".

    Precision and recall are over all (document, label) pairs; "labels" is the mean number of labels per document.
    """
    k = max(label_numbers(predicted).shape[1], 1)
    sets = _compare(predicted, truth, [k])
    hits, returned = _hits(sets, k), int(sets.mentions.sum())
    return {
        "micro": _micro_f1(sets, k),
        "macro": _macro_f1(sets, k),
        "document": _document_f1(sets, k),
        "precision": float(ratio(hits, returned)),
        "recall": float(ratio(hits, len(sets.found.labels))),
        "labels": returned / sets.found.documents,
    }


def per_label(predicted: Predicted, truth: Truth, k: int) -> LabelCounts:
    """Count support, predictions and hits of every column of `truth`."""
    return _per_label(_compare(predicted, truth, [k]), k)


def overlap(first: TopK, second: TopK, k: int) -> float:
    """Compute |A ∩ B| / k of the top k labels of two predictions, averaged over documents.

    Labels are compared by number if both have the same label index, otherwise by key. As with P@k, the divisor is k
    even if a prediction has fewer labels.
    """
    check_count("k", k)
    if len(first) != len(second):
        raise DataError(f"the two predictions have {len(first)} and {len(second)} documents. Use the same documents.")
    if len(first) == 0:
        raise DataError("no documents to compare. Pass at least one.")
    returned, other = first.labels[:, :k], _numbered_as(first, second)[:, :k]  # (n, ≤ k) each
    chosen = first_mentions(other)
    ranks = first_ranks(np.ascontiguousarray(returned), np.nonzero(chosen)[0], other[chosen])
    return int((ranks < k).sum()) / (len(first) * k)


def _numbered_as(first: TopK, second: TopK) -> NDArray[np.int64]:
    """Renumber the labels of `second` by the label index of `first`; −1 for unknown keys."""
    keys = second.index.table["key"].combine_chunks()
    if first.index is second.index or first.index.table["key"].combine_chunks().equals(keys):
        return second.labels
    numbers = np.append(first.index.ids(keys), -1)  # padding, −1, selects the last entry
    return numbers[second.labels]  # (n, k')


@dataclass(frozen=True)
class _Sets:
    found: Match
    returned: IntegerArray  # (n, k')
    mentions: NDArray[np.bool_]  # (n, k') first occurrence of each label in a row
    columns: int


def _compare(predicted: Predicted, truth: Truth, ks: list[int]) -> _Sets:
    found = match(predicted, truth, ks)
    returned = label_numbers(predicted)[:, : max(ks)]  # (n, k')
    return _Sets(found, returned, first_mentions(returned), columns=truth.shape[1])


def _hits(sets: _Sets, k: int) -> int:
    return int((sets.found.ranks < k).sum())


def _micro_f1(sets: _Sets, k: int) -> float:
    return float(ratio(2 * _hits(sets, k), len(sets.found.labels) + int(sets.mentions[:, :k].sum())))


def _macro_f1(sets: _Sets, k: int) -> float:
    return float(ratio(_per_label(sets, k).f1.sum(), sets.columns))


def _document_f1(sets: _Sets, k: int) -> float:
    rows = sets.found.rows[sets.found.ranks < k]
    hits = np.bincount(rows, minlength=sets.found.documents)  # (n,)
    return float(ratio(2 * hits, sets.found.sizes + sets.mentions[:, :k].sum(axis=1)).mean())


def _coverage(sets: _Sets, k: int) -> float:
    hit = np.unique(sets.found.labels[sets.found.ranks < k])
    return float(ratio(len(hit), len(np.unique(sets.found.labels))))


def _per_label(sets: _Sets, k: int) -> LabelCounts:
    suggested = sets.returned[:, :k][sets.mentions[:, :k]]  # (suggestions,)
    counted = (sets.found.labels, suggested[suggested < sets.columns], sets.found.labels[sets.found.ranks < k])
    return LabelCounts(*(np.bincount(labels, minlength=sets.columns) for labels in counted))
