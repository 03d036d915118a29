"""Geometry of charts: round ticks, outliers, and names next to points that overlap nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

NEAR = 9
"""Pixels from a point to its name."""
LINE = 13
"""Height of a name in pixels."""
_FAR = (0, 14, 28, 44, 62, 82)  # further distances to try
_STEPS = (1, 2, 5, 10)


class NameBox(NamedTuple):
    """A rectangle in pixels."""

    x0: float
    y0: float
    x1: float
    y1: float

    def meets(self, other: NameBox) -> bool:
        """Whether the two have an area in common."""
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1

    def inside(self, panel: NameBox) -> bool:
        """Whether the panel contains all of it."""
        return panel.x0 <= self.x0 and self.x1 <= panel.x1 and panel.y0 <= self.y0 and self.y1 <= panel.y1


def place_names(
    widths: Sequence[float], places: Sequence[tuple[float, float]], panel: NameBox, taken: Sequence[NameBox] = ()
) -> list[NameBox | None]:
    """A box in pixels for each name that overlaps no other name, no point and nothing of `taken`; None without room.

    Names belong to the first places; there may be more places than names.
    """
    points = [*taken, *(NameBox(x - 5, y - 5, x + 5, y + 5) for x, y in places)]
    boxes: list[NameBox | None] = []
    for width, (x, y) in zip(widths, places, strict=False):
        full = [*points, *(box for box in boxes if box is not None)]
        inside = (box for box in _name_boxes(x, y, width) if box.inside(panel))
        boxes.append(next((box for box in inside if not any(box.meets(other) for other in full)), None))
    return boxes


def _name_boxes(x: float, y: float, width: float) -> list[NameBox]:
    """Candidate positions of a name, best first: right of its point, left, above, below, then further away."""
    corners = []
    for far in _FAR:
        for sign in (1, -1) if far else (1,):
            bottom = y - LINE / 2 - sign * far
            corners += [(x + NEAR, bottom), (x - NEAR - width, bottom)]
        for bottom in (y + NEAR + far, y - NEAR - LINE - far + 2):
            corners += [(left, bottom) for left in (x - width / 2, x - width + 12, x - 12)]
    return [NameBox(left, bottom, left + width, bottom + LINE) for left, bottom in corners]


def outlier_floor(scores: Sequence[float]) -> float:
    """Score below which a point is drawn as an outlier, because it would compress the scale for all others."""
    best, middle = max(scores), sorted(scores)[len(scores) // 2]
    return best - max(5 * (best - middle), 0.15 * abs(best)) if len(scores) > 2 else min(scores)


def even_values(low: float, high: float, most: int = 7) -> list[float]:
    """At most `most` round numbers from `low` to `high` at equal distances."""
    if not high > low:
        return [low]
    power = 10.0 ** (math.floor(math.log10((high - low) / most)))
    for step in (power * factor for factor in (*_STEPS, 20, 50)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            return [float(f"{number * step:.12g}") for number in range(first, last + 1)]
    return []


def log_values(low: float, high: float, most: int = 6) -> list[float]:
    """Powers of ten from `low` to `high`, and 2 and 5 times these if they are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [float(f"{factor}e{power}") for power in powers for factor in factors]
        inside = [value for value in found if low <= value <= high]
        if len(inside) <= most:
            return inside
    return inside[:: math.ceil(len(inside) / most)]
