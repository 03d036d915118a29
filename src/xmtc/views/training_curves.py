"""Training curves (loss and validation score): several runs in two panels, or one run in small charts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xmtc.views.charts import line_chart, write_beside
from xmtc.views.plot import (
    Axes,
    Plot,
    add_legend,
    draw_points,
    even_ticks,
    file_title,
    logarithmic,
    new_figure,
    plot_style,
)
from xmtc.views.theme import COLOURS, DASHES, FAINT, colour, dashes
from xmtc.views.training_log import Curve, Point, summary

_MOST_POINTS, _MOST_SMALL_POINTS = 400, 150  # per loss curve; beyond that, neighbouring points are averaged
_MOST_VALUES = 6  # best values written in the plot; beyond that, only in the legend
_TIMES = ((7200, 3600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))


@plot_style()
def training_plot(curves: Sequence[Curve], against: str = "epoch") -> Plot:
    """Plot two panels: training loss and validation score."""
    unit, xlabel = _unit(curves, against)
    names = [file_title(curve.name) for curve in curves]
    legend = [f"{name}:  {summary(curve, against)}" for name, curve in zip(names, curves, strict=True)]
    figure = new_figure(max(716, 80 + 7 * max(map(len, legend))), 600)
    losses, scores = figure.subplots(2)
    right = max(point.at / unit for curve in curves for point in (*curve.losses, *curve.scores)) or 1.0
    styles = _styles(curves)
    for words, style in zip(legend, styles, strict=True):
        losses.plot([], [], color=colour(style), linestyle=dashes(style), linewidth=2.5, label=words)
    add_legend(figure, losses, "", most_columns=1)
    for axes, title, ylabel in ((losses, "Training loss", "loss"), (scores, "Validation score", "nDCG@5 (%)")):
        axes.set(title=title, xlabel=xlabel, ylabel=ylabel, xlim=(0, 1.01 * right))
        even_ticks(axes.xaxis, 12)
    _draw_losses(losses, curves, names, styles, unit)
    best = _draw_scores(scores, curves, names, styles, unit, against)
    if 0 < len(best) <= _MOST_VALUES:
        places = [place for place, _ in best]
        write_beside(figure, scores, [f"{value:.2f}" for _, value in places], places, [shade for _, shade in best])
    return Plot(figure, f"Training of {', '.join(names)}")


def small_curves(name: str, curves: Sequence[Curve], against: str = "epoch") -> list[Plot]:
    """Charts of a run's losses and scores; only those with data."""
    several = len({curve.run for curve in curves}) > 1
    by_name = {_part_name(curve, several): curve for curve in curves}
    losses = {
        part: [(point.at, point.value) for point in averaged(curve.losses, _MOST_SMALL_POINTS)]
        for part, curve in by_name.items()
        if curve.losses
    }
    scores = {
        part: [(point.at, 100 * point.value) for point in curve.scores]
        for part, curve in by_name.items()
        if curve.scores
    }
    best = {part: (each.best.at, 100 * each.best.value) for part, each in by_name.items() if each.best is not None}
    plots = []
    if losses:
        plots.append(line_chart(f"{name}: training loss", losses, xlabel=f"{against}s", ylabel="loss", points=False))
    if scores:
        title = f"{name}: validation score"
        plots.append(line_chart(title, scores, xlabel=f"{against}s", ylabel="nDCG@5 (%)", rings=best))
    return plots


def _part_name(curve: Curve, several: bool) -> str:
    """What distinguishes a curve from the others of its model: member and level; '' if there is only one."""
    member = curve.run.rpartition(", ")[2] if several else ""
    level = "" if curve.level is None else f"level {curve.level + 1}"
    return ", ".join(words for words in (member, level) if words)


def _unit(curves: Sequence[Curve], against: str) -> tuple[float, str]:
    """Unit and label of the x axis."""
    if against != "seconds":
        return 1.0, f"{against}s"
    longest = max(point.at for curve in curves for point in (*curve.losses, *curve.scores))
    size, name = next((size, name) for least, size, name in _TIMES if longest >= least)
    return float(size), f"training time ({name})"


def _styles(curves: Sequence[Curve]) -> list[int]:
    """A style number per curve that determines colour and dashes: levels differ in colour, runs in dashes."""
    runs = list(dict.fromkeys(curve.run for curve in curves))
    levels = [curve.level or 0 for curve in curves]
    if max(levels) == 0 or max(levels) >= len(COLOURS) or len(runs) > len(DASHES):  # not enough colours or dashes
        return list(range(len(curves)))
    return [len(COLOURS) * runs.index(curve.run) + level for curve, level in zip(curves, levels, strict=True)]


def averaged(points: list[Point], most: int = _MOST_POINTS) -> list[Point]:
    """Reduce a curve to at most `most` points by averaging neighbours."""
    size = math.ceil(len(points) / most) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [Point(*(math.fsum(column) / len(group) for column in zip(*group, strict=True))) for group in groups]


def _draw_losses(axes: Axes, curves: Sequence[Curve], names: Sequence[str], styles: Sequence[int], unit: float) -> None:
    """Draw losses from 0, or on a log scale if the largest exceeds the smallest more than twentyfold."""
    values = [point.value for curve in curves for point in curve.losses]
    if not values:
        _mark_empty(axes)
        return
    low, high = min(values), max(values)
    if low > 0 and high > 20 * low:
        axes.set_yscale("log")
        axes.set(ylim=(low / 1.1, high * 1.1), title="Training loss (log scale)")
        logarithmic(axes.yaxis)
    else:
        axes.set_ylim(min(1.06 * low, 0.0), 1.06 * max(high, 0.0) or 1.0)
        even_ticks(axes.yaxis)
    for curve, name, style in zip(curves, names, styles, strict=True):
        places = [(point.at / unit, point.value) for point in averaged(curve.losses)]
        if len(places) == 1:
            draw_points(axes, places, style, [f"{name}: {places[0][1]:.6g}"], size=3, marker="o", kind="loss")
        elif places:
            axes.plot(*zip(*places, strict=True), color=colour(style), linestyle=dashes(style))


def _draw_scores(
    axes: Axes, curves: Sequence[Curve], names: Sequence[str], styles: Sequence[int], unit: float, against: str
) -> list[tuple[tuple[float, float], str]]:
    """Draw lines with a point per validation and a ring around the best; returns position and colour of the best."""
    values = [100 * point.value for curve in curves for point in curve.scores]
    if not values:
        _mark_empty(axes)
        return []
    room = max(0.12 * (max(values) - min(values)), 0.5)
    axes.set_ylim(max(min(values) - room, 0.0), min(max(values) + 1.6 * room, 102.0))
    even_ticks(axes.yaxis)
    for curve, name, style in zip(curves, names, styles, strict=True):
        places = [(point.at / unit, 100 * point.value) for point in curve.scores]
        if len(places) > 1:
            axes.plot(*zip(*places, strict=True), color=colour(style), linestyle=dashes(style))
        if places:
            tips = [f"{name}, {against} {point.at:,.6g}: {100 * point.value:.2f}" for point in curve.scores]
            size = 2.6 if len(places) <= 60 else 1.4
            draw_points(axes, places, style, tips, size=size, marker="o", kind="score")
    marked = [(curve.best, style) for curve, style in zip(curves, styles, strict=True) if curve.best is not None]
    best = [(point.at / unit, 100 * point.value) for point, _ in marked]
    colours = [colour(style) for _, style in marked]
    look = {"marker": "o", "color": "none", "edgecolor": colours, "linewidth": 1.6, "kind": "best", "zorder": 4}
    draw_points(axes, best, 0, [""] * len(best), size=5.5, **look)
    return list(zip(best, colours, strict=True))


def _mark_empty(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color=FAINT)
    axes.set(xlabel="", ylabel="", xticks=[], yticks=[])
    axes.spines.bottom.set_visible(False)
