"""Methods compared over many results: the signed rank test and average ranks."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import DataError
from xmtc.metrics.matching import FloatArray

NOISE = 1e-10
"""Differences that are closer than this part of the largest value given are equal: 0.3 − 0.1 and 0.2 are."""

MOST_PAIRS = 1000
"""Differences whose exact distribution takes about a second; the work grows with their third power."""


def wilcoxon(first: ArrayLike, second: ArrayLike, noise: float = NOISE) -> float:
    """The exact two-sided p-value of the signed rank test on paired results.

    Differences of zero are dropped. Equal sizes share the mean of their ranks, and the p-value comes from the
    distribution of those very ranks over all choices of signs. What is zero or equal is decided up to rounding, see
    NOISE: sizes in order are equal as long as each is that close to the one before. With noise=0 the last bits of
    floating point decide, as they do in SciPy and in published tables. 1 when no difference is left.
    """
    one, other = _results(first), _results(second)
    if len(one) != len(other):
        raise DataError(f"Got {len(one)} and {len(other)} results. Give them in pairs, one of each method.")
    noise *= max(np.abs(one).max(), np.abs(other).max())
    differences = one - other
    differences = differences[np.abs(differences) > noise]  # (n,)
    if len(differences) > MOST_PAIRS:
        raise DataError(f"{len(differences):,} differences, the exact test takes {MOST_PAIRS:,}. Use the bootstrap.")
    differences = differences[np.argsort(np.abs(differences))]
    ranks = _doubled_ranks(np.abs(differences), noise)  # (n,)
    smaller = min(int(ranks[differences > 0].sum()), int(ranks[differences < 0].sum()))
    return min(2.0 * _at_most(smaller, ranks), 1.0)


def average_ranks(table: ArrayLike, ties: Literal["min", "mid"] = "min") -> FloatArray:
    """(methods,) mean rank of each column of results (rows, methods), the largest of a row being rank 1.

    NaN stands for a method that was not run: a row ranks the methods it has, and a method's mean is over the rows
    that have it, NaN where none does. Equal results share the best of their ranks, or the middle with ties="mid".
    """
    values = np.asarray(table, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise DataError(f"Results must be a table (rows, methods) with at least one of each. Got shape {values.shape}.")
    if ties not in ("min", "mid"):
        raise DataError(f"'ties' must be 'min' or 'mid'. Got {ties!r}.")
    present = ~np.isnan(values)
    ranks = np.zeros(values.shape)
    for row, results in enumerate(values):
        better = (results[None, :] > results[:, None]).sum(axis=1)  # (methods,) NaN is neither larger nor equal
        equal = (results[None, :] == results[:, None]).sum(axis=1)
        ranks[row] = better + 1 if ties == "min" else better + (equal + 1) / 2
    rows = present.sum(axis=0)  # (methods,)
    sums = np.where(present, ranks, 0.0).sum(axis=0)
    mean: FloatArray = np.divide(sums, rows, out=np.full(len(rows), np.nan), where=rows > 0)
    return mean


def _results(values: ArrayLike) -> FloatArray:
    results = np.asarray(values, dtype=np.float64)
    if results.ndim != 1 or len(results) == 0 or not np.isfinite(results).all():
        raise DataError(f"Results must be a list of finite numbers, one at least. Got shape {results.shape}.")
    return results


def _doubled_ranks(sizes: FloatArray, noise: float) -> NDArray[np.int64]:
    """Twice the mid-ranks of sizes in order, which makes them integers: the first plus the last rank of each run."""
    run = np.cumsum(np.diff(sizes, prepend=sizes[:1]) > noise)  # (n,)
    last = np.cumsum(np.bincount(run))[run]  # (n,) ranks from 1
    first = last - np.bincount(run)[run] + 1
    return first + last


def _at_most(bound: int, ranks: NDArray[np.int64]) -> float:
    """The chance that the ranks with a positive sign add up to at most `bound`, each sign being a fair coin."""
    chance = np.zeros(bound + 1)  # of each sum; what is beyond the bound falls off the end
    chance[0] = 1.0
    for rank in ranks:
        with_it = chance[: max(bound + 1 - rank, 0)] / 2
        chance /= 2
        chance[rank:] += with_it
    return float(chance.sum())
