"""Histogram bins for plots and the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xmtc.data.description import Distribution

MOST_BARS, FEWEST_BARS = 30, 6


@dataclass(frozen=True)
class Bins:
    """Bin b counts edges[b] ≤ value < edges[b + 1]; with an open end, the last bin has no upper limit."""

    edges: NDArray[np.int64]
    open_end: bool = False

    def count(self, distribution: Distribution) -> NDArray[np.int64]:
        """(bins,) number of values in each bin."""
        last = len(self.edges) - 2
        places = np.searchsorted(self.edges, distribution.values, side="right") - 1
        return np.bincount(np.minimum(places, last), distribution.counts, minlength=last + 1).astype(np.int64)

    def label(self, number: int) -> str:
        """The range of a bin as text."""
        first, last = int(self.edges[number]), int(self.edges[number + 1]) - 1
        if self.open_end and number == len(self.edges) - 2:
            return f"{first:,} or more"
        return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def doubling_bins(distributions: Sequence[Distribution]) -> Bins:
    """Bins 1, 2 to 3, 4 to 7, …, of equal width on a logarithmic axis."""
    highest = max((each.quantile(1) for each in distributions), default=1)
    return Bins(2 ** np.arange(max(highest.bit_length(), FEWEST_BARS) + 1))


def even_bins(distributions: Sequence[Distribution], most: int = MOST_BARS) -> Bins:
    """Bins of equal, round width from 0; values far beyond the 99th percentile share one open bin."""
    highest = max((each.quantile(1) for each in distributions), default=0)
    usual = max((each.quantile(0.99) for each in distributions), default=0)
    open_end = highest > 1.3 * usual + 1
    top = max((usual if open_end else highest) + 1, FEWEST_BARS)
    width = round_up(top / (most - open_end))
    return Bins(width * np.arange(math.ceil(top / width) + open_end + 1), bool(open_end))


def round_up(number: float) -> int:
    """Round up to the next of 1, 2, 5, 10, 20, 50, …"""
    if number <= 1:
        return 1
    power = 10 ** math.floor(math.log10(number))
    return int(next(step * power for step in (1, 2, 5, 10) if step * power >= number))


def format_mean(value: float) -> str:
    """Format a mean with a sensible number of decimals."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 100 else f"{value:,.2f}"
