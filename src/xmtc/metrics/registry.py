"""Registry of metrics, "P@k", "nDCG@k", …: built in, or functions of plug-in packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from xmtc.core.registry import Entry, Registry

MetricFunction = Callable[..., float]
"""(predictions, truth, k) → a fraction, larger is better. `predictions` is a TopK or label numbers (n, k'), best first;
`truth` is sparse (n, L'), with labels that do not occur in training as last columns. A metric that is a
`ranking.RankingMetric` gets confidence intervals, and may use propensities."""

METRICS: Registry[Any] = Registry(
    group="xmtc.metrics",
    noun="metric",
    builtin={
        "P@k": Entry("xmtc.metrics.ranking:PRECISION"),
        "nDCG@k": Entry("xmtc.metrics.ranking:NDCG"),
        "PSP@k": Entry("xmtc.metrics.ranking:PSP"),
        "PSnDCG@k": Entry("xmtc.metrics.ranking:PSNDCG"),
        "R@k": Entry("xmtc.metrics.ranking:RECALL"),
        "microF1@k": Entry("xmtc.metrics.sets:micro_f1"),
        "macroF1@k": Entry("xmtc.metrics.sets:macro_f1"),
        "coverage@k": Entry("xmtc.metrics.sets:coverage"),
    },
    required=("__call__",),
)


def at_cutoff(name: str, k: int) -> str:
    """Return the name of a metric at a cut-off: 'P@k' at 5 → 'P@5'."""
    return f"{name.removesuffix('@k')}@{k}"


def metric_names(ks: Iterable[int]) -> list[str]:
    """Return the names of all metrics at all cut-offs."""
    ks = list(ks)
    return [at_cutoff(name, k) for name, _ in METRICS.loadable() for k in ks]
