"""Metrics as scorers for scikit-learn's model selection."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from xmtc.core.errors import DataError
from xmtc.data.dataset import Csr, Dataset, align_labels, as_labels
from xmtc.data.label_index import LabelIndex
from xmtc.metrics.matching import Ranked
from xmtc.metrics.ranking import RankingMetric
from xmtc.metrics.registry import METRICS


class Predictor(Protocol):
    """The part of a fitted model that a scorer needs."""

    @property
    def labels(self) -> LabelIndex:
        """The model's labels."""
        ...

    def predict(self, documents: Any, k: int = 5) -> Ranked:
        """Predict the top k labels of each document."""
        ...


def scorer(name: str) -> Callable[[Predictor, Any, Any], float]:
    """Create a scorer, as in `scoring=scorer("P@1")` for GridSearchCV: any metric at a cut-off, larger is better.

    Propensity-scored metrics are not supported, since they need the label frequencies of the training set.
    True labels are lists of keys, or a matrix whose columns are the model's label numbers. A label that is unknown to
    the fitted model because all its documents are in the held-out fold counts as missed.
    """
    parts = re.fullmatch(r"(.+)@([1-9][0-9]*)", name)
    metric = None if parts is None else next((m for m in (f"{parts[1]}@k", parts[1]) if m in METRICS), None)
    if parts is None or metric is None or _propensity_scored(metric):
        known = ", ".join(f"{each.removesuffix('@k')}@k" for each in METRICS if not _propensity_scored(each))
        raise DataError(f"a scorer must be one of {known} with an integer k ≥ 1, such as 'P@1'. Got {name!r}.")
    return _Scorer(metric, k=int(parts[2]))


def _propensity_scored(name: str) -> bool:
    metric = METRICS[name] if name in METRICS.builtin else None
    return isinstance(metric, RankingMetric) and metric.propensity_scored


@dataclass(frozen=True)
class _Scorer:
    """A class rather than a closure, so that scikit-learn can pickle it for worker processes."""

    metric: str
    k: int

    def __call__(self, estimator: Predictor, documents: Any, labels: Any) -> float:
        truth = _numbered_as(estimator.labels, labels)
        return float(METRICS[self.metric](estimator.predict(documents, k=self.k), truth, self.k))


def _numbered_as(known: LabelIndex, labels: Any) -> Csr:
    """Return the label matrix in the model's numbering, with an extra column for each unknown key."""
    matrix, index = as_labels(labels)  # (n, keys)
    return matrix if index is None else align_labels(Dataset(labels=matrix, label_index=index), known)[0]
