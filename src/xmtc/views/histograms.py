"""Histograms of a dataset description.

The first file is drawn as filled bars, the second as an outline, so that they can be distinguished without colour.
Label frequencies are heavy-tailed, so both axes of their panel are logarithmic. The other panels show percentages of
documents, which makes files of different size comparable; values beyond the 99th percentile share the last bar.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xmtc.data.description import Description, Distribution
from xmtc.views.bins import Bins, doubling_bins, even_bins, format_mean, round_up
from xmtc.views.pages import several
from xmtc.views.plot import (
    Axes,
    Patch,
    Plot,
    even_ticks,
    file_title,
    logarithmic,
    new_figure,
    plot_style,
    short_number,
    write_above,
)
from xmtc.views.svg import gid
from xmtc.views.theme import ACCENT, FAINT, FILL

_FLOOR = 0.6  # where a logarithmic axis of counts starts, so that a bar of 1 can be seen
_STYLES: tuple[dict[str, Any], ...] = ({"color": FILL}, {"fill": False, "edgecolor": ACCENT, "linewidth": 1.6})


class HistogramPanel(NamedTuple):
    """One histogram of up to two files."""

    title: str  # label of the x axis
    distributions: list[Distribution]  # one per file; empty if a file has no such values
    logarithmic: bool = False


@plot_style()
def histograms(name: str, description: Description, other_name: str | None = None) -> Plot:
    """Plot histograms of labels and texts; the second file of the description is drawn if `other_name` is given."""
    files = [(file_title(name), description)]
    if other_name is not None and description.other is not None:
        files.append((file_title(other_name), description.other))
    names = [each for each, _ in files]
    panels = _panels([each for _, each in files])
    legend = [f"{each}:  {_facts(found)}" for each, found in files]
    figure = new_figure(max(390 * len(panels), 100 + 7 * max(map(len, legend))), 330 + 36 * len(files))
    handles = [Patch(**style) for style in _STYLES[: len(files)]]
    figure.legend(handles, legend, loc="outside upper left")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, panel, names)
    return Plot(figure, " and ".join(names))


def _panels(descriptions: list[Description]) -> list[HistogramPanel]:
    labels = [each.labels for each in descriptions]
    texts = [each.text for each in descriptions]
    features = [each.features for each in descriptions]
    none = Distribution.of([])
    panels = []
    if any(labels):
        per_label = [each.per_label if each else none for each in labels]
        per_document = [each.per_document if each else none for each in labels]
        panels += [
            HistogramPanel("documents per label", per_label, logarithmic=True),
            HistogramPanel("labels per document", per_document),
        ]
    if any(texts):
        panels.append(HistogramPanel("words per text", [each.words if each else none for each in texts]))
    if any(features):
        panels.append(
            HistogramPanel("features per document", [each.per_document if each else none for each in features])
        )
    return panels


def _facts(description: Description) -> str:
    documents = several(description.documents, "document")
    if description.labels is None:
        return documents
    return f"{documents}, {several(description.labels.occurring, 'label')}, {several(description.labels.pairs, 'pair')}"


def _draw_panel(axes: Axes, panel: HistogramPanel, names: list[str]) -> None:
    axes.set_title(panel.title.capitalize(), pad=8 + 15 * len(names))
    for number, distribution in enumerate(panel.distributions):
        key = ("■ ", "□ ")[number] if len(names) > 1 else ""
        write_above(axes, key + _summary(distribution), 15 * (len(names) - number) - 9)
    if any(each.total for each in panel.distributions):
        _draw_bars(axes, panel, names)
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color=FAINT)
        axes.set(xticks=[], yticks=[])
        axes.spines.bottom.set_visible(False)


def _summary(distribution: Distribution) -> str:
    if not distribution.total:
        return "none"
    middle, high, most = (distribution.quantile(share) for share in (0.5, 0.95, 1))
    words = [f"{value:,}" if value < 100_000 else short_number(value) for value in (middle, high, most)]
    return f"mean {format_mean(distribution.mean)}, median {words[0]}, 95 % ≤ {words[1]}, max {words[2]}"


def _draw_bars(axes: Axes, panel: HistogramPanel, names: list[str]) -> None:
    """Draw filled bars for the first file and an outline for the second; every bar has a tooltip with its count."""
    bins = (doubling_bins if panel.logarithmic else even_bins)(panel.distributions)
    counts = [bins.count(each) for each in panel.distributions]
    heights: list[NDArray[Any]] = counts if panel.logarithmic else [100 * each / max(each.sum(), 1) for each in counts]
    things = "label" if panel.logarithmic else "document"
    axes.set(xlabel=panel.title, ylabel="labels" if panel.logarithmic else "documents (%)", xlim=(0, len(counts[0])))
    highest = max(float(each.max()) for each in heights)
    if panel.logarithmic:
        axes.set(yscale="log", ylim=(_FLOOR, max(1.25 * highest, 12.5)))
        logarithmic(axes.yaxis)
    else:
        axes.set_ylim(0, 1.06 * highest)
        even_ticks(axes.yaxis)
    base = _FLOOR if panel.logarithmic else 0
    for number, (values, tall) in enumerate(zip(counts, heights, strict=True)):
        look = {"color": FILL} if number == 0 else {"alpha": 0}
        whose = f"{names[number]}, " if len(names) > 1 else ""
        bars = axes.bar(np.arange(len(values)) + 0.5, np.maximum(tall - base, 0), 0.94, bottom=base, **look)
        for bar, count, rectangle in zip(range(len(values)), values.tolist(), bars, strict=True):
            tip = f"{whose}{panel.title} {bins.label(bar)}: {several(count, things)}"
            rectangle.set_gid(gid(f"bar file-{number}", [tip]))
        if number:
            axes.stairs(np.maximum(tall, base), baseline=base, gid=gid("outline"), **_STYLES[1])
    places, words = zip(*_ticks(bins, panel.logarithmic), strict=True)
    axes.set_xticks(places, words)


def _ticks(bins: Bins, logarithmic: bool) -> list[tuple[float, str]]:
    """Tick positions on the x axis, in bars, and their labels."""
    edges = bins.edges
    if logarithmic:
        powers = range(int(math.log10(float(edges[-1]))) + 1)
        return [(math.log2(10**power), short_number(10**power)) for power in powers if 10**power <= edges[-1]]
    width = int(edges[1])
    centred = width == 1  # the tick of a bar of one value is under its middle
    last = int(edges[-2 if bins.open_end else -1])
    marks = range(0, last + (0 if centred else 1), width * round_up(last / width / 8))
    ticks = [(mark / width + (0.5 if centred else 0), short_number(mark)) for mark in marks]
    if bins.open_end:
        end = len(edges) - 1.5
        ticks = [(place, words) for place, words in ticks if place < end - 0.1 * len(edges)]
        ticks.append((end, f"≥{short_number(last)}"))
    return ticks
