"""Compare methods over many results: the Wilcoxon signed-rank test and average ranks."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import DataError
from xmtc.metrics.matching import FloatArray

NOISE = 1e-10
"""Differences within this fraction of the largest value are equal, such as 0.3 − 0.1 and 0.2."""

MOST_PAIRS = 1000
"""Maximum number of differences; computing their exact distribution takes about a second and grows cubically."""


def wilcoxon(first: ArrayLike, second: ArrayLike, noise: float = NOISE) -> float:
    """Compute the exact two-sided p-value of the Wilcoxon signed-rank test on paired results.

    Zero differences are dropped. Tied absolute differences share their mean rank, and the p-value is computed from the
    distribution of these ranks over all sign assignments. Zeros and ties are determined up to rounding, see NOISE: in
    sorted order, each value within that distance of the previous one is tied. With noise=0 comparisons are exact, as
    in SciPy and in published tables. Return 1 if no difference is left.
    """
    one, other = _results(first), _results(second)
    if len(one) != len(other):
        raise DataError(f"got {len(one)} and {len(other)} results. Pass pairs of results, one of each method.")
    noise *= max(np.abs(one).max(), np.abs(other).max())
    differences = one - other
    differences = differences[np.abs(differences) > noise]  # (n,)
    if len(differences) > MOST_PAIRS:
        raise DataError(
            f"{len(differences):,} differences are too many for the exact test (maximum {MOST_PAIRS:,}). "
            "Use the bootstrap."
        )
    differences = differences[np.argsort(np.abs(differences))]
    ranks = _doubled_ranks(np.abs(differences), noise)  # (n,)
    smaller = min(int(ranks[differences > 0].sum()), int(ranks[differences < 0].sum()))
    return min(2.0 * _at_most(smaller, ranks), 1.0)


def average_ranks(table: ArrayLike, ties: Literal["min", "mid"] = "min") -> FloatArray:
    """Return the mean rank of each column of results (rows, methods); the largest value of a row has rank 1.

    NaN means that a method was not run: it is skipped in that row, and the mean is over the other rows (NaN if there
    are none). Ties get the best of their ranks, or the mean rank with ties="mid".
    """
    values = np.asarray(table, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise DataError(f"results must be a non-empty table (rows, methods). Got shape {values.shape}.")
    if ties not in ("min", "mid"):
        raise DataError(f"'ties' must be 'min' or 'mid'. Got {ties!r}.")
    present = ~np.isnan(values)
    ranks = np.zeros(values.shape)
    for row, results in enumerate(values):
        better = (results[None, :] > results[:, None]).sum(axis=1)  # (methods,) comparisons with NaN are false
        equal = (results[None, :] == results[:, None]).sum(axis=1)
        ranks[row] = better + 1 if ties == "min" else better + (equal + 1) / 2
    rows = present.sum(axis=0)  # (methods,)
    sums = np.where(present, ranks, 0.0).sum(axis=0)
    mean: FloatArray = np.divide(sums, rows, out=np.full(len(rows), np.nan), where=rows > 0)
    return mean


def _results(values: ArrayLike) -> FloatArray:
    results = np.asarray(values, dtype=np.float64)
    if results.ndim != 1 or len(results) == 0 or not np.isfinite(results).all():
        raise DataError(f"results must be a non-empty list of finite numbers. Got shape {results.shape}.")
    return results


def _doubled_ranks(sizes: FloatArray, noise: float) -> NDArray[np.int64]:
    """Return twice the mid-ranks of sorted sizes, as integers: the first plus the last rank of each run of ties."""
    run = np.cumsum(np.diff(sizes, prepend=sizes[:1]) > noise)  # (n,)
    last = np.cumsum(np.bincount(run))[run]  # (n,) ranks from 1
    first = last - np.bincount(run)[run] + 1
    return first + last


def _at_most(bound: int, ranks: NDArray[np.int64]) -> float:
    """Return the probability that the sum of positive ranks is at most `bound`, with random signs."""
    chance = np.zeros(bound + 1)  # probability of each sum up to the bound
    chance[0] = 1.0
    for rank in ranks:
        with_it = chance[: max(bound + 1 - rank, 0)] / 2
        chance /= 2
        chance[rank:] += with_it
    return float(chance.sum())
