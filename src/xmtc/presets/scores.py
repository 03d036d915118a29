"""Metrics by which the presets choose: any ranking metric at a cut-off of at most ten labels."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError, shown
from xmtc.data.dataset import Csr
from xmtc.labels.propensity import inverse_propensities
from xmtc.metrics import RankingMetric, ndcg, precision
from xmtc.metrics.registry import METRICS

MOST_LABELS = 10
"""Largest cut-off."""


@dataclass(frozen=True)
class Measure:
    """A metric at a cut-off, such as nDCG@5."""

    name: str
    metric: Any = field(repr=False, compare=False)
    k: int
    inverse_propensity: NDArray[np.float64] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, name: str, label_counts: NDArray[np.int64], documents: int) -> Measure:
        """Find a metric by name; raise ConfigError for others."""
        parts = re.fullmatch(r"(.+)@([1-9][0-9]?)", name)
        known = None if parts is None else next((m for m in (f"{parts[1]}@k", parts[1]) if m in METRICS), None)
        if parts is None or known is None or int(parts[2]) > MOST_LABELS:
            names = ", ".join(f"{each.removesuffix('@k')}@5" for each in METRICS)
            raise ConfigError(f"--metric must be one of {names}, with a cut-off from 1 to 10. Got '{shown(name)}'.")
        metric = METRICS[known]
        weights = None
        if isinstance(metric, RankingMetric) and metric.propensity_scored:
            weights = inverse_propensities(label_counts, max(documents, 1))
        return cls(name, metric, int(parts[2]), weights)

    def __call__(self, labels: NDArray[np.int64], truth: Csr) -> float:
        """Compute the metric of ranked labels (n, k), as a fraction."""
        if self.inverse_propensity is not None:
            return float(self.metric(labels, truth, self.k, self.inverse_propensity))
        return float(self.metric(labels, truth, self.k))


def score_metrics(labels: NDArray[np.int64], truth: Csr) -> dict[str, float]:
    """P@1, P@3, P@5 and nDCG@5."""
    found = {f"P@{k}": precision(labels, truth, k) for k in (1, 3, 5)}
    return {**found, "nDCG@5": ndcg(labels, truth, 5)}
