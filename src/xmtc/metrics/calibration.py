"""Whether scores can be read as probabilities: of the labels scored about 0.7, seven in ten should be true.

Pairs of a document and one of its first k labels are sorted by score and cut into bins of equal mass. In each bin the
mean score should be the share of hits; the expected calibration error is the mean distance of the two over all pairs.
Of pairs with the same score each counts as their share of hits, so that it does not matter which of them a bin gets.
How predictions and true labels are read is said in `matching`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xmtc.metrics.matching import Truth, check_count, first_mentions, match

if TYPE_CHECKING:
    from xmtc.data.topk import TopK


@dataclass(frozen=True)
class ReliabilityBin:
    """Pairs of a document and a label that stand next to each other by score."""

    count: int
    confidence: float
    """Their mean score."""
    accuracy: float
    """The share of them whose label is true."""
    lowest: float
    highest: float


@dataclass(frozen=True)
class Reliability:
    """Scores of the first k labels against how often they are right."""

    k: int
    error: float
    """The expected calibration error: Σ count / pairs · |confidence − accuracy|."""
    bins: tuple[ReliabilityBin, ...]
    """By rising score, of equal mass: counts differ by one at most."""

    @property
    def pairs(self) -> int:
        return sum(each.count for each in self.bins)


def reliability(predicted: TopK, truth: Truth, k: int = 5, bins: int = 15) -> Reliability | None:
    """How far the scores of the first k labels are from probabilities; with fewer pairs than bins, a bin a pair.

    None where nothing is predicted, or where a score lies outside 0 to 1 and is no probability at all.
    """
    check_count("bins", bins)
    found = match(predicted, truth, [k])
    mentions = first_mentions(predicted.labels[:, :k])  # (n, ≤ k)
    scores = predicted.scores[:, :k][mentions].astype(np.float64)  # (pairs,)
    if not len(scores) or not ((scores >= 0) & (scores <= 1)).all():
        return None
    right = np.zeros(mentions.shape, dtype=bool)
    returned = found.ranks < k  # (nnz,)
    right[found.rows[returned], found.ranks[returned]] = True
    distinct, place, ties = np.unique(scores, return_inverse=True, return_counts=True)  # (u,), (pairs,), (u,)
    shares = np.bincount(place, weights=right[mentions]) / ties  # (u,)
    scores, hits = np.repeat(distinct, ties), np.repeat(shares, ties)  # (pairs,) each, by rising score
    parts = min(bins, len(scores))
    counts = len(scores) // parts + (np.arange(parts) < len(scores) % parts)  # (parts,)
    starts = np.cumsum(counts) - counts
    confidence = np.add.reduceat(scores, starts) / counts
    accuracy = np.add.reduceat(hits, starts) / counts
    error = float((counts * np.abs(confidence - accuracy)).sum() / len(scores))
    columns = (counts, confidence, accuracy, scores[starts], scores[starts + counts - 1])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return Reliability(k, error, tuple(ReliabilityBin(*row) for row in rows))
