"""Histograms of a description as an SVG picture, drawn by hand: nothing to install, sharp in a paper and in a browser.

The first file is drawn as filled bars, the second as an outline over them: they differ in print without colour, too.
Labels are few and frequent or many and rare, so their panel is logarithmic both ways; the others count documents in
percent, which makes files of different size comparable, and gather the longest hundredth in one last bar.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xmtc.data.description import Description, Distribution
from xmtc.views.sheet import FAINT, FILL, INK, LINE, axes, grid, named, nice_step, safe, sheet, short_number

MOST_BARS, FEWEST_BARS = 30, 6


@dataclass(frozen=True)
class Bins:
    """Bin b holds edges[b] ≤ value < edges[b + 1]; the last one all from its edge on, if the end is open."""

    edges: NDArray[np.int64]
    open_end: bool = False

    def count(self, distribution: Distribution) -> NDArray[np.int64]:
        """(bins,) how many numbers fall into each."""
        last = len(self.edges) - 2
        places = np.searchsorted(self.edges, distribution.values, side="right") - 1
        return np.bincount(np.minimum(places, last), distribution.counts, minlength=last + 1).astype(np.int64)

    def told(self, number: int) -> str:
        """The values of a bin in words."""
        first, last = int(self.edges[number]), int(self.edges[number + 1]) - 1
        if self.open_end and number == len(self.edges) - 2:
            return f"{first:,} or more"
        return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def doubling_bins(distributions: Sequence[Distribution]) -> Bins:
    """1, 2 to 3, 4 to 7, …: as wide as each other on a logarithmic axis."""
    highest = max((each.quantile(1) for each in distributions), default=1)
    return Bins(2 ** np.arange(max(highest.bit_length(), FEWEST_BARS) + 1))


def even_bins(distributions: Sequence[Distribution], most: int = MOST_BARS) -> Bins:
    """Bins of one round width from 0 on; if the last hundredth reaches far out, it shares an open bin."""
    highest = max((each.quantile(1) for each in distributions), default=0)
    usual = max((each.quantile(0.99) for each in distributions), default=0)
    open_end = highest > 1.3 * usual + 1
    top = max((usual if open_end else highest) + 1, FEWEST_BARS)
    width = _round_up(top / (most - open_end))
    return Bins(width * np.arange(math.ceil(top / width) + open_end + 1), bool(open_end))


def _round_up(number: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50, …"""
    if number <= 1:
        return 1
    power = 10 ** math.floor(math.log10(number))
    return int(next(step * power for step in (1, 2, 5, 10) if step * power >= number))


# ---- the picture

_WIDTH, _HEIGHT = 320, 214  # of a panel
_LEFT, _RIGHT, _GAP = 64, 24, 70  # beside the first panel and the last, and between two: room for the axis
_FLOOR = 0.6  # where a logarithmic axis of counts starts, so that a bar of 1 can be seen


class _Panel(NamedTuple):
    """One histogram of up to two files."""

    title: str  # what is counted along the horizontal axis
    distributions: list[Distribution]  # an empty one for a file that has nothing of the kind
    logarithmic: bool = False


def picture(name: str, description: Description, other_name: str | None = None) -> str:
    """An SVG with histograms of labels and texts; the description's second file is drawn too if it is named."""
    files = [(name, description)]
    if other_name is not None and description.other is not None:
        files.append((other_name, description.other))
    panels = _panels([each for _, each in files])
    names = [named(each) for each, _ in files]
    facts = [_facts(each) for _, each in files]
    longest = max(9 * len(each) + 7 * len(told) for each, told in zip(names, facts, strict=True))  # in pixels, about
    width = max(_LEFT + len(panels) * (_WIDTH + _GAP) - _GAP, _LEFT + 40 + longest) + _RIGHT
    top = 62 + 34 * len(files)
    height = top + _HEIGHT + 52
    parts = _legend(names, facts)
    for number, panel in enumerate(panels):
        parts += _drawn(panel, names, _LEFT + number * (_WIDTH + _GAP), top)
    return sheet(" and ".join(names), width, height, parts)


def _panels(descriptions: list[Description]) -> list[_Panel]:
    labels = [each.labels for each in descriptions]
    texts = [each.text for each in descriptions]
    features = [each.features for each in descriptions]
    none = Distribution.of([])
    panels = []
    if any(labels):
        per_label = [each.per_label if each else none for each in labels]
        per_document = [each.per_document if each else none for each in labels]
        panels += [
            _Panel("documents per label", per_label, logarithmic=True),
            _Panel("labels per document", per_document),
        ]
    if any(texts):
        panels.append(_Panel("words per text", [each.words if each else none for each in texts]))
    if any(features):
        panels.append(_Panel("features per document", [each.per_document if each else none for each in features]))
    return panels


def _facts(description: Description) -> str:
    told = _several(description.documents, "document")
    if description.labels is None:
        return told
    return f"{told}, {_several(description.labels.occurring, 'label')}, {_several(description.labels.pairs, 'pair')}"


def _several(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _legend(names: list[str], facts: list[str]) -> list[str]:
    """Who is who, with the size of each, one file a line."""
    parts = []
    for number, (name, told) in enumerate(zip(names, facts, strict=True)):
        line = 28 + 19 * number
        parts += [
            f'<rect x="{_LEFT}" y="{line - 11}" width="20" height="11" {_style(number)}/>',
            f'<text x="{_LEFT + 28}" y="{line}" font-size="14" fill="{INK}"><tspan font-weight="bold">'
            f'{safe(name)}</tspan><tspan fill="{FAINT}" font-size="12" dx="10">{told}</tspan></text>',
        ]
    return parts


def _style(number: int) -> str:
    return f'fill="{FILL}"' if number == 0 else f'fill="none" stroke="{LINE}" stroke-width="1.6"'


def _drawn(panel: _Panel, names: list[str], left: float, top: float) -> list[str]:
    y = top - 15 * len(names) - 9
    parts = [
        f'<g class="panel" data-panel="{panel.title}">',
        f'<text x="{left}" y="{y}" font-size="13" font-weight="bold" fill="{INK}">{panel.title.capitalize()}</text>',
    ]
    for number, distribution in enumerate(panel.distributions):
        line, indent = y + 16 + 15 * number, 14 if len(names) > 1 else 0
        if indent:
            parts.append(f'<rect x="{left}" y="{line - 8}" width="9" height="8" {_style(number)}/>')
        parts.append(
            f'<text x="{left + indent}" y="{line}" font-size="11" fill="{FAINT}">{_summary(distribution)}</text>'
        )
    if any(each.total for each in panel.distributions):
        parts += _histogram(panel, names, left, top + _HEIGHT)
    else:
        middle = f'x="{left + _WIDTH / 2:g}" y="{top + _HEIGHT / 2:g}"'
        parts.append(f'<text {middle} font-size="12" text-anchor="middle" fill="{FAINT}">nothing to draw</text>')
    return [*parts, "</g>"]


def _summary(distribution: Distribution) -> str:
    if not distribution.total:
        return "none"
    middle, high, most = (distribution.quantile(share) for share in (0.5, 0.95, 1))
    told = [f"{value:,}" if value < 100_000 else short_number(value) for value in (middle, high, most)]
    return f"mean {number_told(distribution.mean)}, median {told[0]}, 95 % ≤ {told[1]}, largest {told[2]}"


def number_told(value: float) -> str:
    """A mean with as many places as say something."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 100 else f"{value:,.2f}"


class _Upright(NamedTuple):
    """The vertical axis, in pixels above the horizontal one."""

    heights: list[list[float]]  # of each file's bars
    marks: list[tuple[float, str]]


def _logarithmic(counts: list[NDArray[np.int64]]) -> _Upright:
    top = max(1.25 * max(int(each.max()) for each in counts), 12.5)

    def height(count: float) -> float:
        return _HEIGHT * math.log(count / _FLOOR) / math.log(top / _FLOOR) if count else 0.0

    marks = [(height(10**power), short_number(10**power)) for power in range(int(math.log10(top)) + 1)]
    return _Upright([[height(count) for count in each.tolist()] for each in counts], marks)


def _percent(counts: list[NDArray[np.int64]]) -> _Upright:
    shares = [100 * each / max(int(each.sum()), 1) for each in counts]
    highest = max(float(each.max()) for each in shares)
    gap, pixels = nice_step(highest / 6), _HEIGHT / (1.06 * highest)
    marks = [(mark * gap * pixels, f"{mark * gap:g}") for mark in range(int(1.06 * highest / gap) + 1)]
    return _Upright([(each * pixels).tolist() for each in shares], marks)


def _histogram(panel: _Panel, names: list[str], left: float, bottom: float) -> list[str]:
    bins = (doubling_bins if panel.logarithmic else even_bins)(panel.distributions)
    counts = [bins.count(each) for each in panel.distributions]
    upright = _logarithmic(counts) if panel.logarithmic else _percent(counts)
    step = _WIDTH / (len(bins.edges) - 1)
    things = "label" if panel.logarithmic else "document"
    parts = grid(upright.marks, left, bottom, _WIDTH)
    for number, (values, heights) in enumerate(zip(counts, upright.heights, strict=True)):
        whose = f"{names[number]}, " if len(names) > 1 else ""
        tips = [
            f"{whose}{panel.title} {bins.told(bar)}: {_several(count, things)}"
            for bar, count in enumerate(values.tolist())
        ]
        parts += _bars(number, values.tolist(), heights, tips, left, bottom, step)
    ticks = _ticks(bins, panel.logarithmic, step)
    beside = f"{things}s{'' if panel.logarithmic else ', %'}"
    return [*parts, *axes(ticks, left, bottom, _WIDTH, _HEIGHT, below=panel.title, beside=beside)]


def _bars(
    number: int, values: list[int], heights: list[float], tips: list[str], left: float, bottom: float, step: float
) -> list[str]:
    """Filled bars for the first file, one outline for the second; every bar tells its count to the mouse."""
    inset = min(step * 0.06, 1.0)
    parts = []
    for bar, (value, tall, tip) in enumerate(zip(values, heights, tips, strict=True)):
        look = f'fill="{FILL}"' if number == 0 else 'fill="none" pointer-events="all"'
        parts.append(
            f'<rect class="bar file-{number}" data-count="{value}" x="{left + bar * step + inset:.2f}" '
            f'y="{bottom - tall:.2f}" width="{step - 2 * inset:.2f}" height="{tall:.2f}" {look}>'
            f"<title>{safe(tip)}</title></rect>"
        )
    if number:
        way = [f"M{left:.2f} {bottom:.2f}"]
        for bar, tall in enumerate(heights):
            right = left + (bar + 1) * step
            way.append(f"V{bottom - tall:.2f}H{right:.2f}" if tall else f"V{bottom:.2f}M{right:.2f} {bottom:.2f}")
        parts.append(f'<path class="outline" d="{"".join(way)}V{bottom:.2f}" {_style(number)}/>')
    return parts


def _ticks(bins: Bins, logarithmic: bool, step: float) -> list[tuple[float, str]]:
    """Places along the horizontal axis and what stands there."""
    edges = bins.edges
    if logarithmic:
        powers = range(int(math.log10(float(edges[-1]))) + 1)
        places = [(math.log2(10**power) * step, short_number(10**power)) for power in powers]
        return [(place, told) for place, told in places if place <= (len(edges) - 1) * step]
    width = int(edges[1])
    centred = width == 1  # a bar of one value has its number under its middle
    last = int(edges[-2 if bins.open_end else -1])
    gap = width * _round_up(last / width / 8)
    marks = range(0, last + (0 if centred else 1), gap)
    ticks = [((mark / width + (0.5 if centred else 0)) * step, short_number(mark)) for mark in marks]
    if bins.open_end:
        end = (len(edges) - 1.5) * step
        ticks = [(place, told) for place, told in ticks if place < end - 30]
        ticks.append((end, f"≥{short_number(last)}"))
    return ticks
