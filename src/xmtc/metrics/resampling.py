"""Bootstrap confidence intervals of metrics: percentile intervals from resampled test documents.

Each resample draws as many documents as there are, with replacement. A metric on a resample is a ratio of two sums
weighted by how often each document was drawn; so all metrics, and both systems of a comparison, use the same
resamples, which depend only on the number of documents and the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xmtc.core.errors import DataError
from xmtc.metrics.matching import FloatArray, check_count
from xmtc.metrics.ranking import Parts, ratio

COUNTS_AT_ONCE = 1 << 22
"""Counts of drawn documents in memory at a time (32 MiB), but at least one resample."""


@dataclass(frozen=True)
class Interval:
    """A metric on all documents, with the bounds that contain the fraction `level` of the resampled values."""

    value: float
    low: float
    high: float


def bootstrap(
    parts: Mapping[str, Parts], samples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, Interval]:
    """Compute the confidence interval of each metric from the result of `document_parts`."""
    _check(parts, samples, level, seed)
    values = _resampled(list(parts.values()), samples, seed)  # (samples, metrics)
    return _intervals([part.value for part in parts.values()], values, list(parts), level)


def bootstrap_difference(
    first: Mapping[str, Parts], second: Mapping[str, Parts], samples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, Interval]:
    """Compute the interval of each metric's difference, `first` − `second`, on the same documents in the same order.

    Both use the same resamples, so the difficulty of individual documents cancels out. If an interval excludes 0, the
    difference is significant at this level.
    """
    _check(first, samples, level, seed)
    _check(second, samples, level, seed)
    odd = sorted(first.keys() ^ second.keys())
    if odd:
        raise DataError(f"only one of the two systems has {odd[0]}. Evaluate both with the same metrics and cut-offs.")
    names = list(first)
    counts = [len(parts[names[0]].numerator) for parts in (first, second)]
    if counts[0] != counts[1]:
        raise DataError(
            f"the two systems have predictions for {counts[0]} and {counts[1]} documents. Use the same documents."
        )
    values = _resampled([parts[name] for parts in (first, second) for name in names], samples, seed)
    differences = values[:, : len(names)] - values[:, len(names) :]  # (samples, metrics)
    return _intervals([first[name].value - second[name].value for name in names], differences, names, level)


def _check(parts: Mapping[str, Parts], samples: int, level: float, seed: int) -> None:
    if not parts:
        raise DataError("no metrics to resample. Pass the result of document_parts.")
    lengths = {len(side) for part in parts.values() for side in (part.numerator, part.denominator)}
    if len(lengths) > 1:
        raise DataError(f"the metrics cover {min(lengths)} to {max(lengths)} documents. Use the same documents.")
    if lengths == {0}:
        raise DataError("no documents to resample. Pass at least one.")
    check_count("samples", samples)
    check_count("seed", seed, least=0)
    if not 0.0 < level < 1.0:
        raise DataError(f"'level' must be between 0 and 1, such as 0.95. Got {level!r}.")


def _resampled(parts: list[Parts], samples: int, seed: int) -> FloatArray:
    """Compute (samples, metrics) values on resampled documents, a few resamples at a time."""
    columns = np.stack([part.numerator for part in parts] + [part.denominator for part in parts])  # (2 · metrics, n)
    documents = columns.shape[1]
    generator = np.random.default_rng(seed)
    sums = np.empty((samples, len(columns)))
    step = max(COUNTS_AT_ONCE // documents, 1)
    for start in range(0, samples, step):
        drawn = np.empty((min(step, samples - start), documents))
        for counts in drawn:
            counts[:] = np.bincount(generator.integers(documents, size=documents), minlength=documents)
        sums[start : start + step] = drawn @ columns.T
    return ratio(sums[:, : len(parts)], sums[:, len(parts) :])


def _intervals(given: list[float], values: FloatArray, names: list[str], level: float) -> dict[str, Interval]:
    low, high = np.quantile(values, [(1.0 - level) / 2, (1.0 + level) / 2], axis=0)  # (metrics,) each
    return {name: Interval(*map(float, bounds)) for name, *bounds in zip(names, given, low, high, strict=True)}
