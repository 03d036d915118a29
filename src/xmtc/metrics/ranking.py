"""P@k, nDCG@k, R@k and their propensity-scored kin, as fractions in [0, 1].

Every measure is a sum over documents divided by a sum over documents. P, nDCG and R divide by the same number for
each document, which makes them means; a document without true labels scores 0 and stays in the mean, as in napkinXC.
How predictions and true labels are read is said in `matching`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import DataError, XmtcWarning, shown
from xmtc.metrics.matching import FloatArray, Match, Predicted, Truth, match
from xmtc.metrics.registry import METRICS, at_cutoff


@dataclass(frozen=True)
class Parts:
    """What each document adds to the two sums whose ratio is a measure."""

    numerator: FloatArray  # (n,)
    denominator: FloatArray  # (n,)

    @property
    def value(self) -> float:
        return float(ratio(self.numerator.sum(), self.denominator.sum()))


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> NDArray[Any]:
    """Sum over sum, 0 where nothing was attainable.

    The two add up in different orders, so a perfect answer could come out just above 1: it is cut there.
    """
    over = np.asarray(denominator, dtype=np.float64)
    return np.minimum(np.divide(numerator, over, out=np.zeros(over.shape), where=over > 0), 1.0)


@dataclass(frozen=True)
class Weights:
    """Inverse propensities of the true labels, as they stand and heaviest first within each document."""

    given: FloatArray  # (nnz,)
    heaviest_first: FloatArray  # (nnz,)


@dataclass(frozen=True)
class RankingMetric:
    """A ratio of two sums over documents, computed from the ranks of the true labels: see `matching`."""

    parts: Callable[[Match, int, Weights | None], Parts]
    """(match, k, weights) → what each document adds."""
    propensity_scored: bool = False
    """Whether it needs inverse propensities."""

    def __call__(
        self, predicted: Predicted, truth: Truth, k: int, inverse_propensity: ArrayLike | None = None
    ) -> float:
        found = match(predicted, truth, [k])
        if not self.propensity_scored:
            return self.parts(found, k, None).value
        if inverse_propensity is None:
            raise DataError("propensity-scored metrics need 'inverse_propensity', one value for each label.")
        return self.parts(found, k, _weigh(found, inverse_propensity)).value


def precision(predicted: Predicted, truth: Truth, k: int) -> float:
    """Hits among the first k, divided by k even where a document has fewer than k labels or predictions."""
    return PRECISION(predicted, truth, k)


def ndcg(predicted: Predicted, truth: Truth, k: int) -> float:
    """Hits discounted by log2(rank + 1), over what a document allows: hits at its first min(k, |y|) ranks."""
    return NDCG(predicted, truth, k)


def recall(predicted: Predicted, truth: Truth, k: int) -> float:
    """The share of a document's true labels among the first k, averaged over documents."""
    return RECALL(predicted, truth, k)


def psp(predicted: Predicted, truth: Truth, k: int, inverse_propensity: ArrayLike) -> float:
    """Inverse propensities of the hits, over those of each document's k heaviest labels.

    Numerator and denominator are each summed over the test set before dividing, as published tables do; a
    mean of per-document ratios is a different number. 0 when no document has a label.
    """
    return PSP(predicted, truth, k, inverse_propensity)


def psndcg(predicted: Predicted, truth: Truth, k: int, inverse_propensity: ArrayLike) -> float:
    """PSP with every term discounted by log2(rank + 1), again summed over the test set before dividing.

    This is what napkinXC calls `psdcg_at_k` (normalised). Its `psndcg_at_k`, like pyxclib's `psndcg`, first
    divides both sums of each document by the ideal DCG of min(k, |y|) hits, which gives documents with few
    labels more say. The two coincide at k = 1, and where every labelled document has at least k labels.
    """
    return PSNDCG(predicted, truth, k, inverse_propensity)


def evaluate(
    predicted: Predicted,
    truth: Truth,
    ks: Iterable[int] = (1, 3, 5),
    inverse_propensity: ArrayLike | None = None,
) -> dict[str, float]:
    """All ranking metrics at all cut-offs from one comparison: "P@1", …, "nDCG@1", …, "PSP@1", "PSnDCG@1", "R@1", ….

    The two propensity-scored ones only appear when `inverse_propensity` is given: one value for each column
    of `truth`, from `xmtc.labels.propensity`. The metrics of other packages follow.
    """
    ks = list(ks)
    values = {name: parts.value for name, parts in _all_parts(predicted, truth, ks, inverse_propensity)}
    return values | _plugin_values(predicted, truth, ks)


def document_parts(
    predicted: Predicted,
    truth: Truth,
    ks: Iterable[int] = (1, 3, 5),
    inverse_propensity: ArrayLike | None = None,
) -> dict[str, Parts]:
    """The measures of `evaluate` before the documents are summed up: what `bootstrap` resamples."""
    return dict(_all_parts(predicted, truth, list(ks), inverse_propensity))


def _all_parts(
    predicted: Predicted, truth: Truth, ks: list[int], inverse_propensity: ArrayLike | None
) -> Iterator[tuple[str, Parts]]:
    """One measure at a time, so that summing them up never holds the parts of all."""
    found = match(predicted, truth, ks)
    weights = None if inverse_propensity is None else _weigh(found, inverse_propensity)
    for name, metric in METRICS.loadable():
        if isinstance(metric, RankingMetric) and (weights is not None or not metric.propensity_scored):
            yield from ((at_cutoff(name, k), metric.parts(found, k, weights)) for k in ks)


def _plugin_values(predicted: Predicted, truth: Truth, ks: list[int]) -> dict[str, float]:
    """Plain functions of other packages; one that fails is left out with a warning."""
    values: dict[str, float] = {}
    for name, metric in METRICS.loadable() if METRICS.plugins else ():
        if name not in METRICS.plugins or isinstance(metric, RankingMetric):
            continue
        try:
            values |= {at_cutoff(name, k): float(metric(predicted, truth, k)) for k in ks}
        except Exception as error:  # whatever somebody else's function raises
            package, reason = METRICS.plugins[name].package, shown(f"{type(error).__name__}: {error}", 160)
            words = f"the metric '{name}' of the package {package} failed and is left out ({reason})."
            warnings.warn(words, XmtcWarning, stacklevel=3)
    return values


def _precision(found: Match, k: int, weights: Weights | None) -> Parts:
    return Parts(_by_document(found, found.ranks < k), np.full(found.documents, float(k)))


def _recall(found: Match, k: int, weights: Weights | None) -> Parts:
    hits = _by_document(found, found.ranks < k)  # (n,)
    return Parts(hits / np.maximum(found.sizes, 1), np.ones(found.documents))


def _ndcg(found: Match, k: int, weights: Weights | None) -> Parts:
    gains = _by_document(found, found.ranks < k, found.discounts)  # (n,)
    attainable = np.minimum(found.sizes, k)  # (n,) hits of a perfect answer
    ideal = np.cumsum(1.0 / np.log2(np.arange(max(attainable.max(), 1)) + 2.0))  # DCG of 1, 2, … hits
    return Parts(ratio(gains, ideal[np.maximum(attainable, 1) - 1]), np.ones(found.documents))


def _psp(found: Match, k: int, weights: Weights | None) -> Parts:
    assert weights is not None
    reached = _by_document(found, found.ranks < k, weights.given)  # (n,)
    return Parts(reached, _by_document(found, found.positions < k, weights.heaviest_first))


def _psndcg(found: Match, k: int, weights: Weights | None) -> Parts:
    assert weights is not None
    reached = _by_document(found, found.ranks < k, weights.given * found.discounts)  # (n,)
    ideal = weights.heaviest_first / np.log2(found.positions + 2.0)  # (nnz,)
    return Parts(reached, _by_document(found, found.positions < k, ideal))


def _by_document(found: Match, chosen: NDArray[np.bool_], values: FloatArray | None = None) -> FloatArray:
    """Sums for each document over the chosen true labels; counts when no values are given."""
    weights = None if values is None else values[chosen]
    return np.bincount(found.rows[chosen], weights, minlength=found.documents).astype(np.float64)  # (n,)


def _weigh(found: Match, inverse_propensity: ArrayLike) -> Weights:
    values = np.asarray(inverse_propensity, dtype=np.float64)  # (L',)
    largest = int(found.labels.max(initial=-1))
    if values.ndim != 1 or len(values) <= largest:
        raise DataError(
            f"'inverse_propensity' must give one value to each label, {largest + 1} at least here. "
            f"Got shape {values.shape}. Give labels unseen in training a count of 0 when computing it."
        )
    given = values[found.labels]  # (nnz,)
    if not (np.isfinite(given) & (given > 0)).all():
        raise DataError("'inverse_propensity' must be positive and finite for every true label.")
    return Weights(given, heaviest_first=given[np.lexsort((-given, found.rows))])


PRECISION = RankingMetric(_precision)
NDCG = RankingMetric(_ndcg)
RECALL = RankingMetric(_recall)
PSP = RankingMetric(_psp, propensity_scored=True)
PSNDCG = RankingMetric(_psndcg, propensity_scored=True)
