"""P@k, nDCG@k, R@k and their propensity-scored kin, as fractions in [0, 1].

Every measure is a sum over documents divided by a sum over documents. P, nDCG and R divide by the same number for
each document, which makes them means; a document without true labels scores 0 and stays in the mean, as in napkinXC.
How predictions and true labels are read is said in `matching`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import DataError
from xmtc.metrics.matching import FloatArray, Match, Predicted, Truth, match


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


def precision(predicted: Predicted, truth: Truth, k: int) -> float:
    """Hits among the first k, divided by k even where a document has fewer than k labels or predictions."""
    return _precision(match(predicted, truth, [k]), k).value


def ndcg(predicted: Predicted, truth: Truth, k: int) -> float:
    """Hits discounted by log2(rank + 1), over what a document allows: hits at its first min(k, |y|) ranks."""
    return _ndcg(match(predicted, truth, [k]), k).value


def recall(predicted: Predicted, truth: Truth, k: int) -> float:
    """The share of a document's true labels among the first k, averaged over documents."""
    return _recall(match(predicted, truth, [k]), k).value


def psp(predicted: Predicted, truth: Truth, k: int, inverse_propensity: ArrayLike) -> float:
    """Inverse propensities of the hits, over those of each document's k heaviest labels.

    Numerator and denominator are each summed over the test set before dividing, as published tables do; a
    mean of per-document ratios is a different number. 0 when no document has a label.
    """
    found = match(predicted, truth, [k])
    return _psp(found, k, _weigh(found, inverse_propensity)).value


def psndcg(predicted: Predicted, truth: Truth, k: int, inverse_propensity: ArrayLike) -> float:
    """PSP with every term discounted by log2(rank + 1), again summed over the test set before dividing.

    This is what napkinXC calls `psdcg_at_k` (normalised). Its `psndcg_at_k`, like pyxclib's `psndcg`, first
    divides both sums of each document by the ideal DCG of min(k, |y|) hits, which gives documents with few
    labels more say. The two coincide at k = 1, and where every labelled document has at least k labels.
    """
    found = match(predicted, truth, [k])
    return _psndcg(found, k, _weigh(found, inverse_propensity)).value


def evaluate(
    predicted: Predicted,
    truth: Truth,
    ks: Iterable[int] = (1, 3, 5),
    inverse_propensity: ArrayLike | None = None,
) -> dict[str, float]:
    """All measures at all cut-offs from one comparison: "P@1", …, "nDCG@1", …, "PSP@1", "PSnDCG@1", "R@1", ….

    The two propensity-scored ones only appear when `inverse_propensity` is given: one value for each column
    of `truth`, from `xmtc.labels.propensity`.
    """
    return {name: parts.value for name, parts in _all_parts(predicted, truth, list(ks), inverse_propensity)}


def document_parts(
    predicted: Predicted,
    truth: Truth,
    ks: Iterable[int] = (1, 3, 5),
    inverse_propensity: ArrayLike | None = None,
) -> dict[str, Parts]:
    """The measures of `evaluate` before the documents are summed up: what `bootstrap` resamples."""
    return dict(_all_parts(predicted, truth, list(ks), inverse_propensity))


@dataclass(frozen=True)
class _Weights:
    """Inverse propensities of the true labels, as they stand and heaviest first within each document."""

    given: FloatArray  # (nnz,)
    heaviest_first: FloatArray  # (nnz,)


def _all_parts(
    predicted: Predicted, truth: Truth, ks: list[int], inverse_propensity: ArrayLike | None
) -> Iterator[tuple[str, Parts]]:
    """One measure at a time, so that summing them up never holds the parts of all."""
    found = match(predicted, truth, ks)
    yield from ((f"P@{k}", _precision(found, k)) for k in ks)
    yield from ((f"nDCG@{k}", _ndcg(found, k)) for k in ks)
    if inverse_propensity is not None:
        weights = _weigh(found, inverse_propensity)
        yield from ((f"PSP@{k}", _psp(found, k, weights)) for k in ks)
        yield from ((f"PSnDCG@{k}", _psndcg(found, k, weights)) for k in ks)
    yield from ((f"R@{k}", _recall(found, k)) for k in ks)


def _precision(found: Match, k: int) -> Parts:
    return Parts(_by_document(found, found.ranks < k), np.full(found.documents, float(k)))


def _recall(found: Match, k: int) -> Parts:
    hits = _by_document(found, found.ranks < k)  # (n,)
    return Parts(hits / np.maximum(found.sizes, 1), np.ones(found.documents))


def _ndcg(found: Match, k: int) -> Parts:
    gains = _by_document(found, found.ranks < k, found.discounts)  # (n,)
    attainable = np.minimum(found.sizes, k)  # (n,) hits of a perfect answer
    ideal = np.cumsum(1.0 / np.log2(np.arange(max(attainable.max(), 1)) + 2.0))  # DCG of 1, 2, … hits
    return Parts(ratio(gains, ideal[np.maximum(attainable, 1) - 1]), np.ones(found.documents))


def _psp(found: Match, k: int, weights: _Weights) -> Parts:
    reached = _by_document(found, found.ranks < k, weights.given)  # (n,)
    return Parts(reached, _by_document(found, found.positions < k, weights.heaviest_first))


def _psndcg(found: Match, k: int, weights: _Weights) -> Parts:
    reached = _by_document(found, found.ranks < k, weights.given * found.discounts)  # (n,)
    ideal = weights.heaviest_first / np.log2(found.positions + 2.0)  # (nnz,)
    return Parts(reached, _by_document(found, found.positions < k, ideal))


def _by_document(found: Match, chosen: NDArray[np.bool_], values: FloatArray | None = None) -> FloatArray:
    """Sums for each document over the chosen true labels; counts when no values are given."""
    weights = None if values is None else values[chosen]
    return np.bincount(found.rows[chosen], weights, minlength=found.documents).astype(np.float64)  # (n,)


def _weigh(found: Match, inverse_propensity: ArrayLike) -> _Weights:
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
    return _Weights(given, heaviest_first=given[np.lexsort((-given, found.rows))])
