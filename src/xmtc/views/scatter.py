"""What a result costs as an SVG picture: a named point for each model, its cost across, logarithmic, its worth upright.

Names stand beside their points where there is room: no name lies on another or on a point, and one that has to stand
away from its point is joined to it by a line. Points far below all others stand beneath a dashed line, with an arrow
and their value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xmtc.core.errors import shown
from xmtc.views.sheet import FAINT, INK, axes, even, grid, logarithmic, marker, safe, sheet

_WIDTH, _LEFT, _RIGHT, _TOP = 340, 58, 18, 36
_LETTER, _LINE = 6.4, 13  # width and height of a letter, about
_BENEATH = 24  # the height of the strip for points far below
_NEAR = 9  # from the point to its name
_FAR = (0, 14, 28, 44, 62, 82)


class Spot(NamedTuple):
    """One point: who, its cost, above 0, and its worth; what is told of it when pointed at."""

    name: str
    cost: float
    worth: float
    tip: str = ""


class Box(NamedTuple):
    """Where words lie, in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.bottom <= other.top or other.bottom <= self.top)

    def within(self, other: Box) -> bool:
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


def scatter(title: str, spots: Sequence[Spot], *, below: str, beside: str) -> str:
    """An SVG with one point and one name for each spot."""
    height = 200 + 9 * max(len(spots) - 8, 0)
    bottom = _TOP + height
    floor = _floor([spot.worth for spot in spots])
    base = bottom - (_BENEATH if any(spot.worth < floor for spot in spots) else 0)  # where the scale starts
    costs, worths = [spot.cost for spot in spots], [spot.worth for spot in spots if spot.worth >= floor]
    across = logarithmic(min(costs) / 1.8, max(costs) * 1.8, _WIDTH)
    room = 0.14 * (max(worths) - min(worths)) or max(0.05 * abs(max(worths)), 0.5)
    low = min(worths) - room
    upright = even(max(low, 0.0) if min(worths) >= 0 else low, max(worths) + room, base - _TOP)
    places = [
        (
            _LEFT + across.place(spot.cost),
            base - upright.place(spot.worth) if spot.worth >= floor else bottom - _BENEATH / 2,
        )
        for spot in spots
    ]
    names = [shown(spot.name, 26) + ("" if spot.worth >= floor else f" ↓ {spot.worth:.1f}") for spot in spots]
    panel = Box(_LEFT + 2, _TOP - 4, _LEFT + _WIDTH + _RIGHT - 2, bottom - 2)
    boxes = placed(names, places, panel)
    parts = [
        f'<text x="{_LEFT}" y="20" font-size="13" font-weight="bold" fill="{INK}">{safe(shown(title, 46))}</text>',
        *grid(upright.marks, _LEFT, base, _WIDTH),
        *axes(across.marks, _LEFT, bottom, _WIDTH, height, below=safe(below), beside=safe(beside)),
    ]
    if base < bottom:
        parts.append(f'<path d="M{_LEFT},{base}h{_WIDTH}" stroke="{FAINT}" stroke-dasharray="2 3"/>')
    for number, (spot, place, name, box) in enumerate(zip(spots, places, names, boxes, strict=True)):
        parts += _leader(place, box)
        parts.append(marker(number, *place, 4.2, spot.tip or f"{spot.name}: {spot.worth:.2f} at {spot.cost:,.4g}"))
        if box is not None:
            parts.append(
                f'<text class="name" x="{box.left:.1f}" y="{box.bottom - 3:.1f}" font-size="12" fill="{INK}" '
                f'stroke="#ffffff" stroke-width="3" paint-order="stroke">{safe(name)}</text>'
            )
    if missing := sum(box is None for box in boxes):
        parts.append(
            f'<text x="{_LEFT + _WIDTH}" y="20" font-size="11" text-anchor="end" fill="{FAINT}">'
            f"{missing} name{'' if missing == 1 else 's'} without room</text>"
        )
    told = f"{beside} against {below}, logarithmic: " + "; ".join(
        f"{spot.name} {spot.worth:.2f} at {spot.cost:,.4g}" for spot in spots
    )
    return sheet(title, _LEFT + _WIDTH + _RIGHT, bottom + 46, parts, told)


def _floor(worths: Sequence[float]) -> float:
    """Below this, a point would press all others together."""
    best, middle = max(worths), sorted(worths)[len(worths) // 2]
    return best - max(5 * (best - middle), 0.15 * abs(best)) if len(worths) > 2 else min(worths)


def placed(names: Sequence[str], places: Sequence[tuple[float, float]], panel: Box) -> list[Box | None]:
    """A box for each name that meets no other name and no point; None where there is no room left."""
    points = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    taken: list[Box] = []
    boxes: list[Box | None] = []
    for name, (x, y) in zip(names, places, strict=True):
        tried = (box for box in _spots(x, y, _LETTER * len(name)) if box.within(panel))
        box = next((box for box in tried if not any(box.meets(other) for other in (*taken, *points))), None)
        boxes.append(box)
        if box is not None:
            taken.append(box)
    return boxes


def _spots(x: float, y: float, width: float) -> list[Box]:
    """Where a name may stand, the best place first: right of its point, left, above, below, then further away."""
    found = []
    for far in _FAR:
        for sign in (1, -1) if far else (1,):
            lines = y - _LINE / 2 + sign * far
            for left in (x + _NEAR, x - _NEAR - width):
                found.append(Box(left, lines, left + width, lines + _LINE))
        for top in (y - _NEAR - _LINE - far, y + _NEAR + far - 2):
            for left in (x - width / 2, x - width + 12, x - 12):
                found.append(Box(left, top, left + width, top + _LINE))
    return found


def _leader(place: tuple[float, float], box: Box | None) -> list[str]:
    """A line from a point to a name that stands away from it."""
    if box is None:
        return []
    x, y = place
    to = (min(max(x, box.left), box.right), min(max(y, box.top + 2), box.bottom - 2))
    if abs(to[0] - x) <= _NEAR + 2 and abs(to[1] - y) <= _NEAR + 2:
        return []
    return [f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to[0]:.1f}" y2="{to[1]:.1f}" stroke="{FAINT}" stroke-width="0.8"/>']
