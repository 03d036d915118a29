"""The pictures of a report, small enough for a phone and drawn only where there is something to draw."""

from __future__ import annotations

import math

from xmtc.experiments import detail_tables, tables
from xmtc.experiments.report import DatasetPart
from xmtc.views.line_chart import line_chart
from xmtc.views.reliability import small_reliability
from xmtc.views.scatter import Spot, scatter
from xmtc.views.small_curves import small_curves

_COSTS = {
    "training, s": ("Seconds of training", "training, s, logarithmic"),
    "prediction, ms a document": ("Prediction of a document", "prediction, ms a document, logarithmic"),
    "peak memory, MB": ("Peak memory", "peak memory, MB, logarithmic"),
    "peak device memory, MB": ("Peak memory of the device", "peak device memory, MB, logarithmic"),
    "model, MB": ("Size of the model", "model, MB, logarithmic"),
}
MOST_SERIES = 12
"""Of a chart; beyond that, lines cannot be told apart."""


def cost_pictures(part: DatasetPart) -> list[str]:
    """Accuracy against what it costs: time, memory and size."""
    pictures = []
    for name, (title, below) in _COSTS.items():
        spots = []
        for runs in part.runs:
            costs, worth = runs.values(detail_tables.COSTS[name]), runs.mean(tables.ORDER)
            cost = math.fsum(costs) / len(costs) if costs else 0.0
            if cost > 0 and not math.isnan(worth):
                tip = f"{runs.model}: {tables.ORDER} {100 * worth:.2f} %, {name} {detail_tables.figures(cost)}"
                spots.append(Spot(runs.model, cost, 100 * worth, tip))
        if len(spots) > 1:
            pictures.append(scatter(title, spots, below=below, beside=f"{tables.ORDER}, %"))
    return pictures


def group_pictures(part: DatasetPart) -> list[str]:
    """AUC and AUPR of frequent and rare labels, a line for each model."""
    heads = detail_tables.group_heads(part.runs)
    if len(heads) < 2:
        return []
    measured = {ties for runs in part.runs for cell in runs.cells for ties in cell.groups}
    ties = next(ties for ties in detail_tables.TIES if ties in measured)
    marks = [(float(at), head.partition(" (")[0]) for at, head in enumerate(heads)]
    pictures = []
    for what in ("auc", "aupr"):
        series = {}
        for runs in part.runs[:MOST_SERIES]:
            found = [runs.values(detail_tables.group_value(ties, at, what)) for at in range(len(heads))]
            series[runs.model] = [
                (float(at), 100 * math.fsum(values) / len(values)) for at, values in enumerate(found) if values
            ]
        if any(series.values()):
            title = f"{what.upper()} by frequency of the label"
            pictures.append(
                line_chart(title, series, below="test documents of a label", beside=f"{what.upper()}, %", marks=marks)
            )
    return pictures


def reliability_pictures(part: DatasetPart) -> list[str]:
    return [small_reliability(model, found) for model, found in part.reliabilities.items()]


def curve_pictures(part: DatasetPart) -> list[str]:
    """Loss and validation score of the first seed of each model."""
    return [picture for model, curves in part.curves.items() for picture in small_curves(model, curves)]
