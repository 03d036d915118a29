"""Ranking and set metrics, a registry of metrics by name, and statistics for comparing results."""

from xmtc.metrics.calibration import Reliability, ReliabilityBin, reliability
from xmtc.metrics.groups import FrequencyGroup, frequency_groups
from xmtc.metrics.hierarchy import evaluate_hierarchy, hierarchy_parts
from xmtc.metrics.ranking import Parts, RankingMetric, document_parts, evaluate, ndcg, precision, psndcg, psp, recall
from xmtc.metrics.registry import METRICS, metric_names
from xmtc.metrics.resampling import Interval, bootstrap, bootstrap_difference
from xmtc.metrics.scorer import scorer
from xmtc.metrics.sets import (
    LabelCounts,
    coverage,
    document_f1,
    evaluate_sets,
    macro_f1,
    micro_f1,
    overlap,
    per_label,
    set_scores,
)
from xmtc.metrics.significance import average_ranks, wilcoxon
from xmtc.metrics.tail import rarest_labels, tail_precision

__all__ = [
    "METRICS",
    "FrequencyGroup",
    "Interval",
    "LabelCounts",
    "Parts",
    "RankingMetric",
    "Reliability",
    "ReliabilityBin",
    "average_ranks",
    "bootstrap",
    "bootstrap_difference",
    "coverage",
    "document_f1",
    "document_parts",
    "evaluate",
    "evaluate_hierarchy",
    "evaluate_sets",
    "frequency_groups",
    "hierarchy_parts",
    "macro_f1",
    "metric_names",
    "micro_f1",
    "ndcg",
    "overlap",
    "per_label",
    "precision",
    "psndcg",
    "psp",
    "rarest_labels",
    "recall",
    "reliability",
    "scorer",
    "set_scores",
    "tail_precision",
    "wilcoxon",
]
