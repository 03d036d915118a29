"""A reliability diagram as an SVG picture: the scores of a model against how often they are right.

Each point is a bin of as many predictions as the others: across its mean score, with a bar from its lowest to its
highest, upright the share of its labels that are true. Calibrated scores lie on the diagonal, and what is shaded is the
distance to it. Below it stands how many predictions have at most a given score.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from xmtc.core.errors import shown
from xmtc.views.sheet import FAINT, FILL, INK, LINE, axes, grid, named, safe, sheet

if TYPE_CHECKING:
    from xmtc.metrics import Reliability

_SIDE, _LOW = 400, 84  # both sides of the diagram, the height of the panel below it
_LEFT, _RIGHT, _GAP = 68, 28, 84
_TOP = 100  # where the diagram starts
_BOTTOM = _TOP + _SIDE


class _Frame(NamedTuple):
    """Where a diagram stands: its side and where it ends below, in pixels."""

    side: int
    bottom: int

    def place(self, score: float, share: float) -> tuple[float, float]:
        """Pixels from the left and from the top of the picture."""
        return _LEFT + self.side * score, self.bottom - self.side * share

    @property
    def marks(self) -> list[tuple[float, str]]:
        return [(self.side * tenth / 10, f"{tenth / 10:g}") for tenth in range(0, 11, 2)]


_WHOLE, _SMALL = _Frame(_SIDE, _BOTTOM), _Frame(240, 302)


def reliability_picture(name: str, found: Reliability) -> str:
    """An SVG of two panels, one above the other: score against share of true labels, and where scores lie."""
    title = named(name)
    error = f"expected calibration error {found.error:.4f}"
    bins = f"{len(found.bins)} bin{'' if len(found.bins) == 1 else 's'} of equal mass"
    fact = f"{found.pairs:,} predictions, the first {found.k} of each document, in {bins}"
    width = _LEFT + max(_SIDE, 9 * len(title), 6 * len(fact)) + _RIGHT  # of letters in pixels, about
    parts = [
        f'<text x="{_LEFT}" y="28" font-size="14" font-weight="bold" fill="{INK}">{safe(title)}</text>',
        f'<text x="{_LEFT}" y="47" font-size="12" fill="{INK}">{error}</text>',
        f'<text x="{_LEFT}" y="64" font-size="12" fill="{FAINT}">{fact}</text>',
        *_diagram(found, _WHOLE),
        *_spread(found),
    ]
    told = f"Mean score against share of true labels: {error}; {fact}. On the diagonal, scores are probabilities."
    return sheet(f"Reliability of {title}", width, _BOTTOM + _GAP + _LOW + 52, parts, told)


def small_reliability(name: str, found: Reliability) -> str:
    """The diagram alone, small enough to stand beside others."""
    words = f"expected calibration error {found.error:.4f}"
    parts = [
        f'<text x="{_LEFT}" y="20" font-size="13" font-weight="bold" fill="{INK}">{safe(shown(name, 34))}</text>',
        f'<text x="{_LEFT}" y="38" font-size="12" fill="{FAINT}">{words}</text>',
        *_diagram(found, _SMALL),
    ]
    told = f"Mean score against share of true labels of {name}: {words}. On the diagonal, scores are probabilities."
    return sheet(f"Reliability of {name}", _LEFT + _SMALL.side + _RIGHT, _SMALL.bottom + 46, parts, told)


def _way(places: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _diagram(found: Reliability, frame: _Frame) -> list[str]:
    points = [frame.place(each.confidence, each.accuracy) for each in found.bins]
    diagonal = [frame.place(each.confidence, each.confidence) for each in reversed(found.bins)]
    right, top = _LEFT + frame.side, frame.bottom - frame.side
    parts = [
        '<g class="panel" data-panel="reliability">',
        *grid(frame.marks, _LEFT, frame.bottom, frame.side),
        *axes(frame.marks, _LEFT, frame.bottom, frame.side, frame.side, below="score", beside="share of true labels"),
        f'<text x="{_LEFT + 10}" y="{top + 20}" font-size="11" fill="{FAINT}">scores are too low</text>',
        f'<text x="{right - 10}" y="{frame.bottom - 12}" font-size="11" text-anchor="end" fill="{FAINT}">'
        f"scores are too high</text>",
        f'<polygon class="gap" points="{_way(points + diagonal)}" fill="{LINE}" fill-opacity="0.16"/>',
        f'<line class="diagonal" x1="{_LEFT}" y1="{frame.bottom}" x2="{right}" y2="{top}" stroke="{FAINT}" '
        f'stroke-dasharray="5 4"/>',
    ]
    for each, (x, y) in zip(found.bins, points, strict=True):
        low, high = (frame.place(score, 0)[0] for score in (each.lowest, each.highest))
        level = frame.place(0, each.confidence)[1]
        parts += [
            f'<line class="distance" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{level:.1f}" stroke="{LINE}" '
            f'stroke-opacity="0.55"/>',
            f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{FILL}" '
            f'stroke-width="4"/>',
        ]
    parts.append(
        f'<polyline class="curve" points="{_way(points)}" fill="none" stroke="{LINE}" stroke-width="1.8" '
        f'stroke-linejoin="round"/>'
    )
    for each, (x, y) in zip(found.bins, points, strict=True):
        tip = (
            f"scores {each.lowest:.4f} to {each.highest:.4f}, mean {each.confidence:.4f}: "
            f"{each.accuracy:.4f} of {each.count:,} are true"
        )
        parts.append(
            f'<circle class="bin" cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{LINE}"><title>{tip}</title></circle>'
        )
    return [*parts, "</g>"]


def _spread(found: Reliability) -> list[str]:
    """The share of predictions with at most a given score, known at the ends of the bins and straight in between."""
    bottom = _BOTTOM + _GAP + _LOW
    ends = [(found.bins[0].lowest, 0.0)]
    for each, count in zip(found.bins, accumulate(each.count for each in found.bins), strict=True):
        ends.append((each.highest, count / found.pairs))
    outline = [(0.0, 0.0), *ends, (1.0, 1.0), (1.0, 0.0)]
    way = _way([(_LEFT + _SIDE * score, bottom - _LOW * share) for score, share in outline])
    marks = [(_LOW * share, f"{100 * share:g}") for share in (0, 0.5, 1)]
    return [
        '<g class="panel" data-panel="scores">',
        f'<text x="{_LEFT}" y="{bottom - _LOW - 12}" font-size="13" font-weight="bold" fill="{INK}">'
        f"Predictions with at most this score</text>",
        *grid(marks, _LEFT, bottom, _SIDE),
        f'<polygon class="spread" points="{way}" fill="{FILL}"/>',
        *axes(_WHOLE.marks, _LEFT, bottom, _SIDE, _LOW, below="score", beside="predictions, %"),
        "</g>",
    ]
