"""Precision of the rarest labels over documents: Tail P@K, equation 14 of MAACF+.

Each rare label ranks all test documents; the hits among the first K, summed over labels, are divided by a maximum. The
paper divides by the sum of max(documents of the label, K), which a label with fewer than K documents cannot reach.
Published values do not match this formula, so the variant with the sum of min(documents, K) is computed as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import DataError
from xmtc.metrics.matching import Truth, check_count, check_cutoffs, check_sparse, check_truth, true_labels
from xmtc.metrics.ranking import ratio


def tail_precision(scores: ArrayLike, truth: Truth, ks: Iterable[int] = (1, 10, 20)) -> dict[str, dict[str, float]]:
    """Compute {"max": {"P@1": …}, "min": {"P@1": …}}, by denominator, for t labels with scores and truth (n, t).

    Among equal scores, documents without the label rank first, so that a label with a constant score has no hits,
    independent of the order of the documents.
    """
    ks = list(ks)
    given = np.asarray(scores)
    if given.ndim != 2 or given.dtype.kind not in "biuf" or given.shape[1] == 0:
        raise DataError(f"scores must be numbers (n, t), one column per label. Got {given.dtype}, shape {given.shape}.")
    check_truth(truth, len(given), "scores")
    check_cutoffs(ks)
    if truth.shape[1] != given.shape[1]:
        raise DataError(f"{given.shape[1]} columns of scores but {truth.shape[1]} of true labels. Pass one per label.")
    if np.isnan(given).any():
        raise DataError("a score is NaN, so documents cannot be ranked. Replace it with a number.")
    true = np.zeros(given.shape, dtype=bool)  # (n, t)
    true[true_labels(truth)] = True
    documents = true.sum(axis=0)  # (t,)
    best = [np.lexsort((held, -column))[: max(ks)] for held, column in zip(true.T, given.astype(float).T, strict=True)]
    hits = np.stack([held[order] for held, order in zip(true.T, best, strict=True)])  # (t, ≤ max k)
    return {
        name: {f"P@{k}": float(ratio(hits[:, :k].sum(), bound(documents, k).sum())) for k in ks}
        for name, bound in (("max", np.maximum), ("min", np.minimum))
    }


def rarest_labels(train_counts: ArrayLike, test_truth: Truth, count: int = 10, at_least: int = 1) -> NDArray[np.int64]:
    """Return the numbers of the labels with the fewest training documents and at least one test document, rarest first.

    Ties are ordered by label number. Labels with fewer than `at_least` training documents and columns of `test_truth`
    beyond `train_counts` are excluded. The result may have fewer than `count` labels.
    """
    check_count("count", count)
    check_count("at_least", at_least, least=0)
    counts = np.asarray(train_counts)  # (L,)
    if counts.ndim != 1:
        raise DataError(f"'train_counts' must have one number per label. Got shape {counts.shape}.")
    check_sparse(test_truth)
    tested = np.unique(true_labels(test_truth)[1])
    tested = tested[tested < len(counts)]
    tested = tested[counts[tested] >= at_least]  # in order of their numbers
    if not len(tested):
        raise DataError("no label has both training and test documents. Use the same label numbers for both.")
    return tested[np.argsort(counts[tested], kind="stable")][:count]
