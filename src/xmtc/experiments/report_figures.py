"""The plots of a report as SVG, small enough for a phone; plots without data are omitted."""

from __future__ import annotations

import math

from xmtc.experiments import detail_tables, tables
from xmtc.experiments.report import DatasetPart
from xmtc.views.charts import CostPoint, line_chart, scatter
from xmtc.views.reliability import small_reliability_plot
from xmtc.views.training_curves import small_curves

_COSTS = {
    "training (s)": ("Training time", "training time (s, log scale)"),
    "prediction (ms/document)": ("Prediction time", "prediction time (ms/document, log scale)"),
    "peak memory (MB)": ("Peak memory", "peak memory (MB, log scale)"),
    "peak GPU memory (MB)": ("Peak GPU memory", "peak GPU memory (MB, log scale)"),
    "model size (MB)": ("Model size", "model size (MB, log scale)"),
}
MOST_SERIES = 12
"""Maximum number of series in a chart; more cannot be distinguished."""


def cost_plots(part: DatasetPart) -> list[str]:
    """Accuracy against costs: time, memory and size."""
    plots = []
    for name, (title, xlabel) in _COSTS.items():
        points = []
        for runs in part.runs:
            costs, score = runs.values(detail_tables.COSTS[name]), runs.mean(tables.ORDER)
            cost = math.fsum(costs) / len(costs) if costs else 0.0
            if cost > 0 and not math.isnan(score):
                tip = f"{runs.model}: {tables.ORDER} {100 * score:.2f} %, {name} {detail_tables.figures(cost)}"
                points.append(CostPoint(runs.model, cost, 100 * score, tip))
        if len(points) > 1:
            plots.append(scatter(title, points, xlabel=xlabel, ylabel=f"{tables.ORDER} (%)").svg())
    return plots


def group_plots(part: DatasetPart) -> list[str]:
    """AUC and AUPR by label frequency, one line per model."""
    heads = detail_tables.group_heads(part.runs)
    if len(heads) < 2:
        return []
    measured = {ties for runs in part.runs for cell in runs.cells for ties in cell.groups}
    ties = next(ties for ties in detail_tables.TIES if ties in measured)
    marks = [(float(at), head.partition(" (")[0]) for at, head in enumerate(heads)]
    plots = []
    for what in ("auc", "aupr"):
        series = {}
        for runs in part.runs[:MOST_SERIES]:
            found = [runs.values(detail_tables.group_value(ties, at, what)) for at in range(len(heads))]
            series[runs.model] = [
                (float(at), 100 * math.fsum(values) / len(values)) for at, values in enumerate(found) if values
            ]
        if any(series.values()):
            title = f"{what.upper()} by label frequency"
            xlabel, ylabel = "test documents per label", f"{what.upper()} (%)"
            plots.append(line_chart(title, series, xlabel=xlabel, ylabel=ylabel, marks=marks).svg())
    return plots


def reliability_plots(part: DatasetPart) -> list[str]:
    """Reliability diagrams of the first seed of each model."""
    return [small_reliability_plot(model, found).svg() for model, found in part.reliabilities.items()]


def curve_plots(part: DatasetPart) -> list[str]:
    """Loss and validation score of the first seed of each model."""
    return [plot.svg() for model, curves in part.curves.items() for plot in small_curves(model, curves)]
