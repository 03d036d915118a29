"""P@k, nDCG@k, R@k and the propensity-scored variants, as fractions in [0, 1].

Every metric is a ratio of two sums over documents. For P, nDCG and R each document has the same denominator, so they
are means; a document without true labels scores 0 and counts in the mean, as in napkinXC.
See `matching` for the conventions of predictions and true labels.
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
    """Contributions of each document to numerator and denominator of a metric."""

    numerator: FloatArray  # (n,)
    denominator: FloatArray  # (n,)

    @property
    def value(self) -> float:
        """Value of the metric: ratio of the two sums."""
        return float(ratio(self.numerator.sum(), self.denominator.sum()))


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> NDArray[Any]:
    """Divide two sums; 0 if the denominator is 0.

    The sums are computed in different orders, so rounding could yield slightly more than 1; the result is clipped to 1.
    """
    over = np.asarray(denominator, dtype=np.float64)
    return np.minimum(np.divide(numerator, over, out=np.zeros(over.shape), where=over > 0), 1.0)


@dataclass(frozen=True)
class Weights:
    """Inverse propensities of the true labels, in label order and in descending order within each document."""

    given: FloatArray  # (nnz,)
    heaviest_first: FloatArray  # (nnz,)


@dataclass(frozen=True)
class RankingMetric:
    """A metric that is a ratio of two sums over documents, computed from the ranks of the true labels."""

    parts: Callable[[Match, int, Weights | None], Parts]
    """(match, k, weights) → contribution of each document."""
    propensity_scored: bool = False
    """Whether the metric needs inverse propensities."""

    def __call__(
        self, predicted: Predicted, truth: Truth, k: int, inverse_propensity: ArrayLike | None = None
    ) -> float:
        found = match(predicted, truth, [k])
        if not self.propensity_scored:
            return self.parts(found, k, None).value
        if inverse_propensity is None:
            raise DataError("propensity-scored metrics need 'inverse_propensity'. Pass one value per label.")
        return self.parts(found, k, _weigh(found, inverse_propensity)).value


def precision(predicted: Predicted, truth: Truth, k: int) -> float:
    """Compute precision: hits among the top k, divided by k even if a document has fewer labels or predictions."""
    return PRECISION(predicted, truth, k)


def ndcg(predicted: Predicted, truth: Truth, k: int) -> float:
    """Compute nDCG: hits discounted by log2(rank + 1), divided by the ideal DCG of min(k, |y|) hits."""
    return NDCG(predicted, truth, k)


def recall(predicted: Predicted, truth: Truth, k: int) -> float:
    """Compute recall: the fraction of a document's true labels among the top k, averaged over documents."""
    return RECALL(predicted, truth, k)


def psp(predicted: Predicted, truth: Truth, k: int, inverse_propensity: ArrayLike) -> float:
    """Compute PSP: inverse propensities of the hits, divided by the k largest ones of each document's labels.

    Numerator and denominator are summed over the test set before dividing, as in published tables; the mean of
    per-document ratios is a different number. 0 if no document has a label.
    """
    return PSP(predicted, truth, k, inverse_propensity)


def psndcg(predicted: Predicted, truth: Truth, k: int, inverse_propensity: ArrayLike) -> float:
    """Compute PSnDCG: PSP with every term discounted by log2(rank + 1), also summed over the test set before dividing.

    This is napkinXC's `psdcg_at_k` (normalised). Its `psndcg_at_k`, like pyxclib's `psndcg`, first divides both sums
    of each document by the ideal DCG of min(k, |y|) hits, which gives documents with few labels more weight. The two
    are equal at k = 1, and if every labelled document has at least k labels.
    """
    return PSNDCG(predicted, truth, k, inverse_propensity)


def evaluate(
    predicted: Predicted,
    truth: Truth,
    ks: Iterable[int] = (1, 3, 5),
    inverse_propensity: ArrayLike | None = None,
) -> dict[str, float]:
    """Compute all ranking metrics at all cut-offs: "P@1", …, "nDCG@1", …, "PSP@1", "PSnDCG@1", "R@1", ….

    The propensity-scored metrics are included only if `inverse_propensity` is given: one value per column of `truth`,
    from `xmtc.labels.propensity`. Metrics of plug-in packages come last.
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
    """Return the metrics of `evaluate` as contributions per document, which `bootstrap` resamples."""
    return dict(_all_parts(predicted, truth, list(ks), inverse_propensity))


def _all_parts(
    predicted: Predicted, truth: Truth, ks: list[int], inverse_propensity: ArrayLike | None
) -> Iterator[tuple[str, Parts]]:
    """Yield one metric at a time, so that the parts of all metrics are never in memory together."""
    found = match(predicted, truth, ks)
    weights = None if inverse_propensity is None else _weigh(found, inverse_propensity)
    for name, metric in METRICS.loadable():
        if isinstance(metric, RankingMetric) and (weights is not None or not metric.propensity_scored):
            yield from ((at_cutoff(name, k), metric.parts(found, k, weights)) for k in ks)


def _plugin_values(predicted: Predicted, truth: Truth, ks: list[int]) -> dict[str, float]:
    """Compute the metrics of plug-in packages that are plain functions; omit failing ones with a warning."""
    values: dict[str, float] = {}
    for name, metric in METRICS.loadable() if METRICS.plugins else ():
        if name not in METRICS.plugins or isinstance(metric, RankingMetric):
            continue
        try:
            values |= {at_cutoff(name, k): float(metric(predicted, truth, k)) for k in ks}
        except Exception as error:  # a plug-in may raise anything
            package, reason = METRICS.plugins[name].package, shown(f"{type(error).__name__}: {error}", 160)
            message = f"the metric '{name}' of the package {package} failed and is omitted ({reason})."
            warnings.warn(message, XmtcWarning, stacklevel=3)
    return values


def _precision(found: Match, k: int, weights: Weights | None) -> Parts:
    return Parts(_by_document(found, found.ranks < k), np.full(found.documents, float(k)))


def _recall(found: Match, k: int, weights: Weights | None) -> Parts:
    hits = _by_document(found, found.ranks < k)  # (n,)
    return Parts(hits / np.maximum(found.sizes, 1), np.ones(found.documents))


def _ndcg(found: Match, k: int, weights: Weights | None) -> Parts:
    gains = _by_document(found, found.ranks < k, found.discounts)  # (n,)
    attainable = np.minimum(found.sizes, k)  # (n,) hits of a perfect prediction
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
    """Sum values over the chosen true labels of each document; count them if no values are given."""
    weights = None if values is None else values[chosen]
    return np.bincount(found.rows[chosen], weights, minlength=found.documents).astype(np.float64)  # (n,)


def _weigh(found: Match, inverse_propensity: ArrayLike) -> Weights:
    values = np.asarray(inverse_propensity, dtype=np.float64)  # (L',)
    largest = int(found.labels.max(initial=-1))
    if values.ndim != 1 or len(values) <= largest:
        raise DataError(
            f"'inverse_propensity' must have one value per label, here at least {largest + 1}. "
            f"Got shape {values.shape}. Use a count of 0 for labels that do not occur in training."
        )
    given = values[found.labels]  # (nnz,)
    if not (np.isfinite(given) & (given > 0)).all():
        raise DataError("'inverse_propensity' must be positive and finite for every true label. Correct its values.")
    return Weights(given, heaviest_first=given[np.lexsort((-given, found.rows))])


PRECISION = RankingMetric(_precision)
NDCG = RankingMetric(_ndcg)
RECALL = RankingMetric(_recall)
PSP = RankingMetric(_psp, propensity_scored=True)
PSNDCG = RankingMetric(_psndcg, propensity_scored=True)
