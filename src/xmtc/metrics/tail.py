"""How well the rarest labels find their documents: Tail P@K, equation 14 of MAACF+.

Each rare label ranks all test documents; its hits among the first K are added up over the labels and divided by what
they could be. The paper divides by the sum of max(documents of the label, K), which no ranking of a label with fewer
than K documents can reach; published values do not fit it, so the sum of min(documents, K) stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import DataError
from xmtc.metrics.matching import Truth, check_count, check_cutoffs, check_sparse, check_truth, true_labels
from xmtc.metrics.ranking import ratio


def tail_precision(scores: ArrayLike, truth: Truth, ks: Iterable[int] = (1, 10, 20)) -> dict[str, dict[str, float]]:
    """{"max": {"P@1": …}, "min": {"P@1": …}}, by denominator, of t labels with scores (n, t) and truth (n, t).

    Of equal scores the documents that do not hold the label come first: a label with one score for all documents has
    found none, whatever their order in the file.
    """
    ks = list(ks)
    given = np.asarray(scores)
    if given.ndim != 2 or given.dtype.kind not in "biuf" or given.shape[1] == 0:
        raise DataError(f"Scores must be numbers (n, t), one column a label. Got {given.dtype} of shape {given.shape}.")
    check_truth(truth, len(given), "Scores")
    check_cutoffs(ks)
    if truth.shape[1] != given.shape[1]:
        raise DataError(f"{given.shape[1]} columns of scores and {truth.shape[1]} of true labels. Give one a label.")
    if np.isnan(given).any():
        raise DataError("A score is not a number, so documents cannot be ranked by it. Replace it.")
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
    """Numbers of the labels with the fewest training documents among those with a test document, rarest first.

    Of equally rare labels those with smaller numbers come first. Labels with fewer than `at_least` training documents
    are left out, as are columns of `test_truth` beyond `train_counts`: nothing was trained for them. Fewer than
    `count` come back where there are no more.
    """
    check_count("count", count)
    check_count("at_least", at_least, least=0)
    counts = np.asarray(train_counts)  # (L,)
    if counts.ndim != 1:
        raise DataError(f"'train_counts' must hold one number for each label. Got shape {counts.shape}.")
    check_sparse(test_truth)
    tested = np.unique(true_labels(test_truth)[1])
    tested = tested[tested < len(counts)]
    tested = tested[counts[tested] >= at_least]  # in order of their numbers
    if not len(tested):
        raise DataError("No label has both training and test documents. Check that both number their labels alike.")
    return tested[np.argsort(counts[tested], kind="stable")][:count]
