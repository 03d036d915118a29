"""Measures of a ranking against the true labels: pure functions of (TopK, labels)."""

from xmtc.metrics.ranking import evaluate, ndcg, precision, psndcg, psp, recall
from xmtc.metrics.scorer import scorer

__all__ = ["evaluate", "ndcg", "precision", "psndcg", "psp", "recall", "scorer"]
