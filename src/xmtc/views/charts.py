"""Charts: line charts, dot charts, quality against cost, and the trials of a hyperparameter search.

Series differ in colour, marker shape and, when colours repeat, in dash pattern, so that they can be distinguished in
print and by colour-blind readers. All charts are legible on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from xmtc.core.errors import shown
from xmtc.views import scales
from xmtc.views.plot import (
    Axes,
    Bbox,
    Figure,
    FuncFormatter,
    MaxNLocator,
    Plot,
    add_legend,
    draw_points,
    even_ticks,
    logarithmic,
    new_figure,
    plot_style,
)
from xmtc.views.svg import gid
from xmtc.views.theme import ACCENT, COLOURS, FAINT, INK, colour, dashes, marker

Series = Mapping[str, Sequence[tuple[float, float]]]
_WIDTH, _HEIGHT = 416, 270


@plot_style()
def line_chart(
    title: str,
    series: Series,
    *,
    xlabel: str,
    ylabel: str,
    errors: Mapping[str, Sequence[float]] | None = None,
    marks: Sequence[tuple[float, str]] | None = None,
    points: bool = True,
    rings: Mapping[str, tuple[float, float]] | None = None,
    description: str = "",
) -> Plot:
    """Line chart of (x, y) points, joined in the given order, with the legend above.

    `xlabel` and `ylabel` are the axis labels. `errors` contains the half length of each point's error bar. `marks` are
    custom ticks of the x axis. `rings` highlight one point of a series. The y axis is logarithmic if points are not
    drawn and the largest value exceeds the smallest more than twentyfold. A single series with an empty name has no
    legend.
    """
    drawn = {name: list(each) for name, each in series.items() if each}
    figure = new_figure(_WIDTH, _HEIGHT)
    axes = figure.add_subplot(xlabel=xlabel, ylabel=ylabel)
    ends = []
    for number, (name, each) in enumerate(drawn.items()):
        across, upright = zip(*each, strict=True)
        look = {"color": colour(number), "linestyle": dashes(number)}
        axes.plot([], [], label=shown(name, 40), marker=marker(number) if points else None, **look)  # for the legend
        if len(each) > 1:
            axes.plot(across, upright, **look)
        if points or len(each) == 1:
            tips = [f"{name or title}: {y:.6g} at {x:,.6g}" for x, y in each]
            draw_points(axes, each, number, tips, size=3.4 if len(each) <= 40 else 2)
        spreads = list((errors or {}).get(name, [0.0] * len(each)))
        bars = [(x, y, far) for (x, y), far in zip(each, spreads, strict=True) if far and math.isfinite(far)]
        if bars:
            x, y, far = zip(*bars, strict=True)
            axes.errorbar(x, y, far, fmt="none", ecolor=colour(number), elinewidth=1.2, capsize=3)
        if (ring := (rings or {}).get(name)) is not None:
            axes.scatter(*ring, s=14**2, facecolors="none", edgecolors=INK, gid=gid("ring"), zorder=4)
        ends += [y + sign * far for y, far in zip(upright, spreads, strict=True) for sign in (-1, 1)]
    _limit_across(axes, [x for each in drawn.values() for x, _ in each], marks)
    _limit_upright(axes, ends, steep=not points)
    if list(drawn) == [""]:
        axes.set_title(shown(title, 46))
    else:
        add_legend(figure, axes, shown(title, 46))
    about = description or f"{ylabel} against {xlabel} for {', '.join(name or title for name in drawn)}."
    return Plot(figure, title, about)


def _limit_across(axes: Axes, values: Sequence[float], marks: Sequence[tuple[float, str]] | None) -> None:
    places = [*values, *(at for at, _ in marks or ())]
    room = 0.04 * (max(places) - min(places)) or 0.5
    axes.set_xlim(min(places) - room, max(places) + room)
    if marks is not None:
        axes.set_xticks([at for at, _ in marks], [shown(name) for _, name in marks])
    else:
        even_ticks(axes.xaxis)


def _limit_upright(axes: Axes, values: Sequence[float], steep: bool) -> None:
    low, high = min(values), max(values)
    if steep and low > 0 and high > 20 * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.1, high * 1.1)
        logarithmic(axes.yaxis)
        return
    room = 0.08 * (high - low) or max(abs(high) * 0.02, 0.01)
    axes.set_ylim(max(low - room, 0.0) if low >= 0 else low - room, high + room)
    even_ticks(axes.yaxis)


# ---- dots


@plot_style()
def dot_chart(title: str, points: Mapping[str, tuple[float, float]], *, xlabel: str, line: float | None = None) -> Plot:
    """Dot chart with one row per name: its value and half the length of its error bar; `line` is a reference value."""
    names = [shown(name, 30) for name in points]
    figure = new_figure(380 + 7 * max(map(len, names), default=1), 92 + 24 * len(points))
    axes = figure.add_subplot(xlabel=xlabel)
    axes.set_title(shown(title, 46), x=0)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    ends = [value + sign * spread for value, spread in points.values() for sign in (-1, 1)]
    room = 0.08 * (max(ends) - min(ends)) or max(abs(max(ends)) * 0.02, 0.01)
    axes.set_xlim(min(ends) - room, max(ends) + 2 * room)
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.set_yticks(range(len(points)), names, fontsize=12)
    even_ticks(axes.xaxis)
    if line is not None:
        axes.axvline(line, color=FAINT, linewidth=1, linestyle="dashed")
    for row, (name, (value, spread)) in enumerate(zip(names, points.values(), strict=True)):
        if spread:
            axes.plot([value - spread, value + spread], [row, row], color=ACCENT, linewidth=1.6)
        tip = f"{name}: {value:.2f}" + (f" ± {spread:.2f}" if spread else "")
        draw_points(axes, [(value, row)], 0, [tip], size=4.5, color=ACCENT, kind="dot")
        end = (value + spread, row)
        axes.annotate(f"{value:.2f}", end, (9, 0), textcoords="offset points", va="center", color=FAINT)
    values = "; ".join(f"{name} {value:.2f}" for name, (value, _) in zip(names, points.values(), strict=True))
    return Plot(figure, title, f"{xlabel}: {values}.")


# ---- quality against cost

_BENEATH = 0.12  # fraction of the height reserved for outliers far below


class CostPoint(NamedTuple):
    """A model with its cost (> 0), its score and its tooltip."""

    name: str
    cost: float
    score: float
    tip: str = ""


@plot_style()
def scatter(title: str, points: Sequence[CostPoint], *, xlabel: str, ylabel: str) -> Plot:
    """Scatter plot with one named point per model: cost on a logarithmic x axis, score on the y axis.

    Names do not overlap each other or points; a name far from its point is connected to it by a line. Outliers far
    below all others are drawn beneath a dotted line, with an arrow and their value.
    """
    figure = new_figure(_WIDTH, _HEIGHT + 9 * max(len(points) - 8, 0))
    axes = figure.add_subplot(xlabel=xlabel, ylabel=ylabel, xscale="log", title=shown(title, 46))
    floor = scales.outlier_floor([point.score for point in points])
    above = [point.score for point in points if point.score >= floor]
    room = 0.14 * (max(above) - min(above)) or max(0.05 * abs(max(above)), 0.5)
    low, high = min(above) - room, max(above) + room
    low = max(low, 0.0) if min(above) >= 0 else low
    bottom = low - (_BENEATH * (high - low) if len(above) < len(points) else 0.0)
    axes.set_ylim(bottom, high)
    ticks = MaxNLocator(7, steps=[1, 2, 5, 10]).tick_values(low, high)
    axes.set_yticks([tick for tick in ticks if low <= tick <= high], minor=False)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
    if bottom < low:
        axes.axhline(low, color=FAINT, linewidth=1, linestyle="dotted")
    costs = [point.cost for point in points]
    axes.set_xlim(min(costs) / 1.8, max(costs) * 1.8)
    logarithmic(axes.xaxis)
    places = [(point.cost, point.score if point.score >= floor else (low + bottom) / 2) for point in points]
    for number, (point, place) in enumerate(zip(points, places, strict=True)):
        tip = point.tip or f"{point.name}: {point.score:.2f} at {point.cost:,.4g}"
        draw_points(axes, [place], number, [tip], size=4.2)
    names = [shown(each.name, 26) + ("" if each.score >= floor else f" ↓ {each.score:.1f}") for each in points]
    missing = write_beside(figure, axes, names, places)
    if missing:
        words = f"{missing} name{'' if missing == 1 else 's'} hidden"
        axes.set_title(words, loc="right", fontsize=11, fontweight="normal", color=FAINT)
    values = "; ".join(f"{point.name} {point.score:.2f} at {point.cost:,.4g}" for point in points)
    return Plot(figure, title, f"{ylabel} against {xlabel} (log scale): {values}")


def write_beside(
    figure: Figure,
    axes: Axes,
    names: Sequence[str],
    places: Sequence[tuple[float, float]],
    colours: Sequence[str] = (),
) -> int:
    """Write names next to their points without overlaps; returns how many did not fit."""
    labels = [
        axes.annotate(name, place, (0, 0), textcoords="offset points", fontsize=12, in_layout=False, gid=gid("name"))
        for name, place in zip(names, places, strict=True)
    ]
    for label, each in zip(labels, colours, strict=False):
        label.set(color=each, fontweight="bold")
    figure.draw_without_rendering()
    pixels = [(float(x), float(y)) for x, y in axes.transData.transform(places)]
    widths = [label.get_window_extent().width for label in labels]
    panel = Bbox.from_extents(axes.bbox.x0 + 2, axes.bbox.y0 + 2, axes.bbox.x1 - 2, axes.bbox.y1 + 4)
    boxes = place_names(widths, pixels, panel)
    for label, box, (x, y) in zip(labels, boxes, pixels, strict=True):
        if box is None:
            label.remove()
            continue
        label.set_position((box.x0 - x, box.y0 + 3 - y))
        to = (min(max(x, box.x0), box.x1), min(max(y, box.y0 + 2), box.y1 - 2))
        if abs(to[0] - x) > scales.NEAR + 2 or abs(to[1] - y) > scales.NEAR + 2:
            ends = axes.transData.inverted().transform([(x, y), to])
            axes.plot(*zip(*ends.tolist(), strict=True), color=FAINT, linewidth=0.8, scalex=False, scaley=False)
    return sum(box is None for box in boxes)


def place_names(widths: Sequence[float], places: Sequence[tuple[float, float]], panel: Bbox) -> list[Bbox | None]:
    """A box in pixels for each name that overlaps no other name and no point; None if there is no room."""
    boxes = scales.place_names(widths, places, scales.NameBox(panel.x0, panel.y0, panel.x1, panel.y1))
    return [None if box is None else Bbox.from_extents(*box) for box in boxes]


# ---- the trials of a hyperparameter search

_SCORE, _BEST, _START = COLOURS[:3]


class TrialMark(NamedTuple):
    """One trial in chronological order; the first is the starting point of the search."""

    score: float | None
    """From 0 to 1; None for a trial without a score."""
    state: str
    """Why the trial has no score, in one word."""
    best: bool
    tip: str
    """Tooltip."""


@plot_style()
def trial_plot(marks: Sequence[TrialMark], title: str, measure: str) -> Plot:
    """A dot per score, a stepped line for the best so far, a dashed one for the start, crosses for the other trials."""
    scored = [(number, 100 * mark.score) for number, mark in enumerate(marks) if mark.score is not None]
    scores = [score for _, score in scored]
    low, high = min(scores, default=0.0), max(scores, default=100.0)
    room = max(0.1 * (high - low), 0.5)
    low, high = max(low - room, 0.0), min(high + room, 102.0)
    strip = 0.09 * (high - low) if len(scores) < len(marks) else 0.0  # below the scores, for trials that have none
    figure = new_figure(716, 360)
    axes = figure.add_subplot(xlabel="trial", ylabel=f"{shown(measure)} (%)")
    axes.set_xlim(-0.6, max(len(marks) - 1, 1) + 0.6)
    axes.set_ylim(low - strip, high)
    axes.xaxis.set_major_locator(MaxNLocator(12, steps=[1, 2, 5, 10], integer=True))
    even_ticks(axes.yaxis)
    size = 3.6 if len(marks) <= 100 else 2.0
    axes.scatter([], [], s=(2 * size) ** 2, color=_SCORE, label="trial")
    best = [max(scores[: at + 1]) for at in range(len(scores))]
    across = [number for number, _ in scored] + ([len(marks) - 1] if scores else [])
    reached = f"best so far: {max(scores):.2f}" if scores else "best so far"
    axes.step(across, best + best[-1:], where="post", color=_BEST, linewidth=2, label=reached, gid=gid("best"))
    if marks and marks[0].score is not None:
        words = f"starting point: {scores[0]:.2f}"
        axes.axhline(scores[0], color=_START, linewidth=1.4, linestyle="dashed", label=words, gid=gid("start"))
    for state in dict.fromkeys(mark.state for mark in marks if mark.score is None):
        without = [(at, mark) for at, mark in enumerate(marks) if mark.score is None and mark.state == state]
        cross: dict[str, Any] = {"marker": "x" if state == "failed" else "+", "color": FAINT, "linewidth": 1.6}
        axes.scatter([], [], s=49, label=f"{shown(state)}: {len(without)}", **cross)
        places = [(at, low - strip / 2) for at, _ in without]
        draw_points(axes, places, 0, [mark.tip for _, mark in without], size=3.5, kind=shown(state), **cross)
    if scored:
        shades = [_START if at == 0 else _BEST if marks[at].best else _SCORE for at, _ in scored]
        draw_points(axes, scored, 0, [marks[at].tip for at, _ in scored], size=size, color=shades, kind="trial")
        ring = [place for place in scored if marks[place[0]].best]
        ring_look = {"color": "none", "edgecolor": _BEST, "linewidth": 1.6, "kind": "ring"}
        draw_points(axes, ring, 0, [""] * len(ring), size=size + 3, **ring_look)
    add_legend(figure, axes, shown(title), most_columns=6)
    about = f"best {measure} {max(scores):.2f}" if scores else "none with a score"
    return Plot(figure, title, f"{len(marks)} trials, {about}")
