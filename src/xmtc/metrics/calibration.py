"""Calibration of scores: about seven in ten labels with a score near 0.7 should be true.

Pairs of a document and one of its top k labels are sorted by score and split into bins of equal size. In each bin the
mean score should equal the observed precision; the expected calibration error (ECE) is the mean absolute difference
over all pairs. Pairs with the same score share their mean precision, so the assignment of ties to bins is irrelevant.
See `matching` for the conventions of predictions and true labels.
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
    """A bin of (document, label) pairs with similar scores."""

    count: int
    confidence: float
    """Mean score."""
    accuracy: float
    """Observed precision: fraction of pairs whose label is true."""
    lowest: float
    highest: float


@dataclass(frozen=True)
class Reliability:
    """Scores of the top k labels compared with their observed precision."""

    k: int
    error: float
    """Expected calibration error: Σ count / pairs · |confidence − accuracy|."""
    bins: tuple[ReliabilityBin, ...]
    """Bins of equal size (counts differ by at most one), by ascending score."""

    @property
    def pairs(self) -> int:
        """Number of (document, label) pairs."""
        return sum(each.count for each in self.bins)


def reliability(predicted: TopK, truth: Truth, k: int = 5, bins: int = 15) -> Reliability | None:
    """Compare the scores of the top k labels with their observed precision; with few pairs, one bin per pair.

    Return None if nothing is predicted, or if a score is outside [0, 1] and so not a probability.
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
    scores, hits = np.repeat(distinct, ties), np.repeat(shares, ties)  # (pairs,) each, by ascending score
    parts = min(bins, len(scores))
    counts = len(scores) // parts + (np.arange(parts) < len(scores) % parts)  # (parts,)
    starts = np.cumsum(counts) - counts
    confidence = np.add.reduceat(scores, starts) / counts
    accuracy = np.add.reduceat(hits, starts) / counts
    error = float((counts * np.abs(confidence - accuracy)).sum() / len(scores))
    columns = (counts, confidence, accuracy, scores[starts], scores[starts + counts - 1])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return Reliability(k, error, tuple(ReliabilityBin(*row) for row in rows))
