"""How far measures would move with other test documents: percentile intervals from resampled documents.

Documents are drawn with replacement, as many as there are. A resample is how often each document was drawn, and a
measure on it is a weighted sum over a weighted sum; so all measures, and both systems of a comparison, see the same
resamples. They depend on the number of documents and the seed alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xmtc.core.errors import DataError
from xmtc.metrics.matching import FloatArray, check_count
from xmtc.metrics.ranking import Parts, ratio

COUNTS_AT_ONCE = 1 << 22
"""Counts of drawn documents held at a time, 32 MiB; a resample of more documents than that is held alone."""


@dataclass(frozen=True)
class Interval:
    """A value on all documents, and the bounds between which `level` of the resampled values lie."""

    value: float
    low: float
    high: float


def bootstrap(
    parts: Mapping[str, Parts], samples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, Interval]:
    """The interval of each measure, from `document_parts`."""
    _check(parts, samples, level, seed)
    values = _resampled(list(parts.values()), samples, seed)  # (samples, measures)
    return _intervals([part.value for part in parts.values()], values, list(parts), level)


def bootstrap_difference(
    first: Mapping[str, Parts], second: Mapping[str, Parts], samples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, Interval]:
    """The interval of each measure of `first` less that of `second`, on the same documents in the same order.

    Both see the same resamples, so what makes a document hard for either cancels out. An interval without 0 is a
    difference that the choice of test documents does not explain.
    """
    _check(first, samples, level, seed)
    _check(second, samples, level, seed)
    odd = sorted(first.keys() ^ second.keys())
    if odd:
        raise DataError(f"Only one of the two systems has {odd[0]}. Evaluate both with the same cut-offs.")
    names = list(first)
    counts = [len(parts[names[0]].numerator) for parts in (first, second)]
    if counts[0] != counts[1]:
        raise DataError(f"The two systems answered {counts[0]} and {counts[1]} documents. Give both the same ones.")
    values = _resampled([parts[name] for parts in (first, second) for name in names], samples, seed)
    differences = values[:, : len(names)] - values[:, len(names) :]  # (samples, measures)
    return _intervals([first[name].value - second[name].value for name in names], differences, names, level)


def _check(parts: Mapping[str, Parts], samples: int, level: float, seed: int) -> None:
    if not parts:
        raise DataError("No measures to resample. Give the result of document_parts.")
    lengths = {len(side) for part in parts.values() for side in (part.numerator, part.denominator)}
    if len(lengths) > 1:
        raise DataError(f"Measures cover {min(lengths)} to {max(lengths)} documents. Give all the same ones.")
    if lengths == {0}:
        raise DataError("No documents to resample. Give at least one.")
    check_count("samples", samples)
    check_count("seed", seed, least=0)
    if not 0.0 < level < 1.0:
        raise DataError(f"'level' must be between 0 and 1, such as 0.95. Got {level!r}.")


def _resampled(parts: list[Parts], samples: int, seed: int) -> FloatArray:
    """(samples, measures) values on resampled documents, a few resamples at a time."""
    columns = np.stack([part.numerator for part in parts] + [part.denominator for part in parts])  # (2 · measures, n)
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
    low, high = np.quantile(values, [(1.0 - level) / 2, (1.0 + level) / 2], axis=0)  # (measures,) each
    return {name: Interval(*map(float, bounds)) for name, *bounds in zip(names, given, low, high, strict=True)}
