"""A line chart as an SVG picture, small enough to be read on a phone: several named series over one axis.

Series differ by colour, by the shape of their points and, once colours are used up, by dashes, so that they can be told
apart in print and by those who see colours otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from xmtc.core.errors import shown
from xmtc.views.sheet import INK, Scale, axes, colour, even, grid, logarithmic, marker, safe, sheet, short, stroke

Series = Mapping[str, Sequence[tuple[float, float]]]

_WIDTH, _HEIGHT = 340, 200  # of the panel
_LEFT, _RIGHT = 58, 18
_LETTER = 6.6  # width of one, about


def line_chart(
    title: str,
    series: Series,
    *,
    below: str,
    beside: str,
    errors: Mapping[str, Sequence[float]] | None = None,
    marks: Sequence[tuple[float, str]] | None = None,
    points: bool = True,
    rings: Mapping[str, tuple[float, float]] | None = None,
    description: str = "",
) -> str:
    """An SVG of (x, y) points joined in the order given, with the names of the series above.

    `errors` has, for each point of a series, how far its bar reaches up and down. `marks` name places on the horizontal
    axis, where round numbers would say nothing. `rings` go around one point of a series. Where the largest value is
    more than twenty times the smallest and points are not drawn, the vertical axis is logarithmic.
    """
    drawn = {name: list(each) for name, each in series.items() if each}
    spreads = {name: list((errors or {}).get(name, [0.0] * len(each))) for name, each in drawn.items()}
    legend, top = _legend(list(drawn), points)
    bottom = top + _HEIGHT
    across = _across([x for each in drawn.values() for x, _ in each], marks)
    ends = [
        y + sign * spread
        for name, each in drawn.items()
        for (_, y), spread in zip(each, spreads[name], strict=True)
        for sign in (-1, 1)
    ]
    upright = _upright(ends, steep=not points)
    parts = [
        f'<text x="{_LEFT}" y="20" font-size="13" font-weight="bold" fill="{INK}">{safe(shown(title, 46))}</text>',
        *legend,
        *grid(upright.marks, _LEFT, bottom, _WIDTH),
    ]
    for number, (name, each) in enumerate(drawn.items()):
        places = [(_LEFT + across.place(x), bottom - upright.place(y)) for x, y in each]
        parts += _bars(each, spreads[name], across, upright, bottom, number)
        if len(places) > 1:
            way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(
                f'<polyline points="{way}" fill="none" stroke-width="1.8" stroke-linejoin="round" {stroke(number)}/>'
            )
        if points or len(places) == 1:
            size = 3.4 if len(places) <= 40 else 2
            tips = [f"{name or title}: {y:.6g} at {x:,.6g}" for x, y in each]
            parts += [marker(number, x, y, size, tip) for (x, y), tip in zip(places, tips, strict=True)]
        if (ring := (rings or {}).get(name)) is not None:
            x, y = _LEFT + across.place(ring[0]), bottom - upright.place(ring[1])
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="{INK}"/>')
    parts += axes(across.marks, _LEFT, bottom, _WIDTH, _HEIGHT, below=safe(below), beside=safe(beside))
    told = description or f"{beside} against {below} of {', '.join(name or title for name in drawn)}."
    return sheet(title, _LEFT + _WIDTH + _RIGHT, bottom + 46, parts, told)


def _legend(names: Sequence[str], points: bool) -> tuple[list[str], int]:
    """Names with their line and point, in as many rows as they need; where the panel starts below them.

    One series without a name is that of the title.
    """
    parts: list[str] = []
    x, y = float(_LEFT), 40
    if names == [""]:
        return [], 36
    for number, name in enumerate(names):
        words = shown(name, 40)
        width = 30 + _LETTER * len(words) + 16
        if x > _LEFT and x + width > _LEFT + _WIDTH + 12:
            x, y = float(_LEFT), y + 17
        parts += [
            f'<line x1="{x:.1f}" x2="{x + 24:.1f}" y1="{y - 4}" y2="{y - 4}" stroke-width="1.8" {stroke(number)}/>',
            *([marker(number, x + 12, y - 4, 3.4)] if points else []),
            f'<text x="{x + 30:.1f}" y="{y}" font-size="12" fill="{INK}">{safe(words)}</text>',
        ]
        x += width
    return parts, y + 18


def _across(values: Sequence[float], marks: Sequence[tuple[float, str]] | None) -> Scale:
    low, high = min(values), max(values)
    if marks is not None:
        low, high = min(low, *(at for at, _ in marks)), max(high, *(at for at, _ in marks))
    room = 0.04 * (high - low) or 0.5
    scale = Scale(low - room, high + room, _WIDTH, [])
    if marks is not None:
        return scale._replace(marks=[(scale.place(at), safe(name)) for at, name in marks])
    # `even` would put marks where the room left and right of the points is, too.
    inner = even(low, high, 1.0) if high > low else Scale(low, low, 1.0, [(0.0, short(low))])
    return scale._replace(marks=[(scale.place(low + at * (high - low)), name) for at, name in inner.marks])


def _upright(values: Sequence[float], steep: bool) -> Scale:
    low, high = min(values), max(values)
    if steep and low > 0 and high > 20 * low:
        return logarithmic(low / 1.1, high * 1.1, _HEIGHT)
    room = 0.08 * (high - low) or max(abs(high) * 0.02, 0.01)
    return even(max(low - room, 0.0) if low >= 0 else low - room, high + room, _HEIGHT)


def _bars(
    points: Sequence[tuple[float, float]],
    spreads: Sequence[float],
    across: Scale,
    upright: Scale,
    bottom: float,
    number: int,
) -> list[str]:
    parts = []
    for (x, y), spread in zip(points, spreads, strict=True):
        if not spread or not math.isfinite(spread):
            continue
        at = _LEFT + across.place(x)
        low, high = (bottom - upright.place(y + sign * spread) for sign in (-1, 1))
        way = f"M{at - 3:.1f},{low:.1f}h6M{at:.1f},{low:.1f}V{high:.1f}M{at - 3:.1f},{high:.1f}h6"
        parts.append(f'<path d="{way}" stroke="{colour(number)}" stroke-width="1.2"/>')
    return parts
