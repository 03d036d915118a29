"""The figures of a leaderboard, as places in pixels that a template draws.

They have the colours of the page, light or dark, and need no plotting library.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from xmtc.core.errors import shown
from xmtc.presets.leaderboard import Leaderboard, TriedModel
from xmtc.views.leaderboard_words import amount, percent, time
from xmtc.views.scales import LINE, NEAR, NameBox, even_values, log_values, outlier_floor, place_names

WIDTH = 420
LEFT, RIGHT, TOP = 44.0, WIDTH - 10.0, 30.0
"""Edges of the panel that contains the points."""
_FOOT = 44  # below the panel: ticks and the name of the axis
_STRIP = 0.12  # fraction of the panel for outliers far below
_LETTER = 7.3  # width of a letter in pixels; of an East Asian one twice that
_LONGEST = 22  # letters of a name
_UNITS = ((10_800, 3600, "hours"), (180, 60, "minutes"), (0, 1, "seconds"))
_COSTS = (1e-6, 1e9)  # milliseconds; others are drawn at the edge
FINAL, MEMBER, OTHER = "final", "member", "other"


class BoardTick(NamedTuple):
    """A value of an axis."""

    at: float
    words: str


class BoardName(NamedTuple):
    """The name next to a point, anchored on the side of the point."""

    x: float
    y: float
    anchor: str
    words: str
    line: tuple[float, float] | None
    """End of a line from the point, if the name is far from it."""


class BoardMark(NamedTuple):
    """The point of a model."""

    x: float
    y: float
    kind: str
    """FINAL, MEMBER or OTHER; on the figure over time, MEMBER marks an improvement."""
    tip: str
    name: BoardName | None


@dataclass(frozen=True)
class BoardFigure:
    """A figure; all places are in pixels."""

    key: str
    title: str
    description: str
    height: int
    bottom: float
    xlabel: str
    ylabel: str
    xticks: tuple[BoardTick, ...]
    yticks: tuple[BoardTick, ...]
    marks: tuple[BoardMark, ...]
    legend: tuple[tuple[str, str], ...]
    """Kinds of marks and what they mean."""
    path: str = ""
    """The corners of the stepped line."""
    divider: float | None = None
    """Height of the line above the outliers."""
    limit: BoardTick | None = None
    """A limit on the x axis."""
    hidden: int = 0
    """Names for which there was no room."""


class _Spot(NamedTuple):
    x: float
    score: float
    kind: str
    name: str
    """Empty for a point without a name."""
    tip: str


class _Upright:
    """The y axis: scores in percent, with a strip at the bottom for outliers."""

    def __init__(self, scores: Sequence[float], bottom: float) -> None:
        self.floor = outlier_floor(scores)
        above = [score for score in scores if score >= self.floor]
        low, high = min(above), max(above)
        room = 0.14 * (high - low) or max(0.05 * abs(high), 0.5)
        self.low, self.high = max(low - room, 0.0) if low >= 0 else low - room, high + room
        self.bottom = bottom
        self.split = len(above) < len(scores)
        self.base = bottom - (_STRIP * (bottom - TOP) if self.split else 0.0)

    def __call__(self, score: float) -> float:
        return (self.base + self.bottom) / 2 if score < self.floor else self.place(score)

    def place(self, score: float) -> float:
        """The height of a score on the scale, also below the lowest point."""
        return self.base - (score - self.low) / (self.high - self.low) * (self.base - TOP)

    def ticks(self) -> tuple[BoardTick, ...]:
        return tuple(BoardTick(self.place(value), f"{value:.6g}") for value in even_values(self.low, self.high, 6))


def time_figure(board: Leaderboard) -> BoardFigure | None:
    """Best validation score over time: a stepped line and a mark per model; None if there are no scores."""
    moments = sorted((each for each in board.curve if math.isfinite(each.score)), key=lambda each: each.seconds)
    final = board.final if board.final is not None and board.final.ranked else None
    if not moments:
        return None
    last = max([board.seconds, *(each.seconds for each in moments)])
    limit = 60 * board.minutes if board.minutes is not None else None
    shows_limit = limit is not None and 0 < limit <= 1.6 * last
    most = max(last, limit if shows_limit and limit is not None else 0.0) or 1.0
    spots, best = [], -math.inf
    line: list[tuple[float, float]] = []
    for each in moments:
        improves = each.score > best
        best = max(best, each.score)
        tip = f"{each.name}: {percent(each.score)} after {time(each.seconds)}"
        kind = FINAL if final is not None and each.name == final.name else MEMBER if improves else OTHER
        spots.append(_Spot(each.seconds, 100 * each.score, kind, "" if kind == OTHER else each.name, tip))
        line.append((each.seconds, 100 * best))
    kinds = [(MEMBER, "new best"), (OTHER, "other"), (FINAL, "final model")]
    if final is not None and final.score is not None and final.name not in {each.name for each in moments}:
        tip = f"{final.name}: {percent(final.score)}, the final model"
        spots.append(_Spot(last, 100 * final.score, FINAL, final.name, tip))
    size, unit = next((size, unit) for least, size, unit in _UNITS if most >= least)
    bottom = TOP + 226

    def across(seconds: float) -> float:
        return LEFT + seconds / most * (RIGHT - 8 - LEFT)

    upright = _Upright([spot.score for spot in spots], bottom)
    corners = [(across(line[0][0]), upright(line[0][1]))]
    for seconds, score in line[1:]:
        corners += [(across(seconds), corners[-1][1]), (across(seconds), upright(score))]
    corners.append((across(last), corners[-1][1]))
    used = {spot.kind for spot in spots}
    mark = None
    if shows_limit and limit is not None:
        mark = BoardTick(across(limit), f"limit {time(limit)}")
    top = max(moments, key=lambda each: each.score)
    marks, hidden = _marks(spots, across, upright, mark, corners)
    return BoardFigure(
        "time",
        "Best validation score over time",
        f"{shown(board.metric)} in percent against training time, {len(moments)} scores; the best is "
        f"{percent(top.score)} of {shown(top.name)} after {time(top.seconds)}. "
        + "; ".join(f"{shown(each.name)} {percent(each.score)} after {time(each.seconds)}" for each in moments)
        + ".",
        round(bottom) + _FOOT,
        bottom,
        f"time ({unit})",
        f"{shown(board.metric, 16)} (%)",
        tuple(BoardTick(across(size * value), f"{value:.6g}") for value in even_values(0, most / size, 7)),
        upright.ticks(),
        marks,
        tuple((kind, words) for kind, words in kinds if kind in used),
        " ".join(f"{x:.1f},{y:.1f}" for x, y in corners),
        upright.base if upright.split else None,
        mark,
        hidden,
    )


def cost_figure(board: Leaderboard) -> BoardFigure | None:
    """Score against prediction time on a logarithmic axis; None if no model has both."""
    final = board.final
    models = [
        (entry, MEMBER if entry.member else OTHER)
        for entry in board.entries
        if final is None or entry.name != final.name
    ]
    models += [] if final is None else [(final, FINAL)]
    models = [(entry, kind) for entry, kind in models if entry.ranked and _positive(entry.predict_ms)]
    if not models:
        return None
    models.sort(key=lambda pair: ((FINAL, MEMBER, OTHER).index(pair[1]), -(pair[0].score or 0)))  # names in this order
    spots = [_cost_spot(entry, kind) for entry, kind in models]
    low, high = min(spot.x for spot in spots) / 1.6, max(spot.x for spot in spots) * 1.6
    limit = board.limits.get("max_ms")
    shows_limit = limit is not None and low / 5 < limit < high * 5  # false for NaN
    if limit is not None and shows_limit:
        low, high = min(low, limit / 1.25), max(high, limit * 1.25)
    if high < 20 * low:  # too short for two ticks
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(20), middle * math.sqrt(20)
    bottom = TOP + 226 + min(9 * max(len(spots) - 10, 0), 260)

    def across(cost: float) -> float:
        return LEFT + math.log(cost / low) / math.log(high / low) * (RIGHT - LEFT)

    upright = _Upright([spot.score for spot in spots], bottom)
    mark = None if limit is None or not shows_limit else BoardTick(across(limit), f"limit {amount(limit)} ms")
    marks, hidden = _marks(spots, across, upright, mark)
    kinds = {spot.kind for spot in spots}
    words = {FINAL: "final model", MEMBER: "member of it", OTHER: "other"}
    return BoardFigure(
        "cost",
        "Score against prediction time",
        f"{shown(board.metric)} in percent against milliseconds per document, log scale: "
        + "; ".join(f"{shown(spot.tip, 200)}" for spot in spots)
        + ".",
        round(bottom) + _FOOT,
        bottom,
        "prediction time (ms per document, log scale)",
        f"{shown(board.metric, 16)} (%)",
        tuple(BoardTick(across(value), amount(value)) for value in log_values(low, high, 7)),
        upright.ticks(),
        marks,
        tuple((kind, meaning) for kind, meaning in words.items() if kind in kinds),
        "",
        upright.base if upright.split else None,
        mark,
        hidden,
    )


def _cost_spot(entry: TriedModel, kind: str) -> _Spot:
    assert entry.score is not None
    assert entry.predict_ms is not None
    tip = f"{entry.name}: {percent(entry.score)} at {amount(entry.predict_ms)} ms per document"
    return _Spot(min(max(entry.predict_ms, _COSTS[0]), _COSTS[1]), 100 * entry.score, kind, entry.name, tip)


def _positive(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _marks(
    spots: Sequence[_Spot],
    across: Callable[[float], float],
    upright: _Upright,
    limit: BoardTick | None,
    corners: Sequence[tuple[float, float]] = (),
) -> tuple[tuple[BoardMark, ...], int]:
    """The points in the order given, with names where there is room, and the number of names that had none.

    No name covers the limit or the line through the corners.
    """
    places = [(across(spot.x), upright(spot.score)) for spot in spots]
    named = [at for at, spot in enumerate(spots) if spot.name]
    order = [*named, *(at for at, spot in enumerate(spots) if not spot.name)]
    words = [
        shown(spots[at].name, _LONGEST) + (f" ↓ {spots[at].score:.1f}" if spots[at].score < upright.floor else "")
        for at in named
    ]
    panel = NameBox(LEFT + 2, TOP - 4, RIGHT, upright.bottom - 1)
    taken = [_box_of(start, end) for start, end in pairwise(corners)]
    if limit is not None:
        line = _box_of((limit.at, TOP), (limit.at, upright.bottom))
        taken += [limit_box(limit, upright.bottom), line]
    boxes = place_names([text_width(each) for each in words], [places[at] for at in order], panel, taken)
    names: dict[int, BoardName] = {}
    for at, text, box in zip(named, words, boxes, strict=True):
        if box is not None:
            names[at] = _name(text, places[at], box)
    marks = tuple(
        BoardMark(x, y, spot.kind, spot.tip, names.get(at))
        for at, (spot, (x, y)) in enumerate(zip(spots, places, strict=True))
    )
    return marks, len(named) - len(names)


def limit_box(limit: BoardTick, bottom: float) -> NameBox:
    """The words of a limit, at the foot of its line and on the side where there is more room."""
    width = text_width(limit.words)
    left = limit.at - width - 5 if limit.at > (LEFT + RIGHT) / 2 else limit.at + 5
    return NameBox(left, bottom - LINE - 4, left + width, bottom - 4)


def _box_of(start: tuple[float, float], end: tuple[float, float]) -> NameBox:
    """The area of a horizontal or vertical line."""
    (x0, x1), (y0, y1) = sorted((start[0], end[0])), sorted((start[1], end[1]))
    return NameBox(x0 - 2, y0 - 2, x1 + 2, y1 + 2)


def _name(words: str, place: tuple[float, float], box: NameBox) -> BoardName:
    """Letters are narrower than the box, so they start at its side next to the point."""
    x, anchor = (box.x0 + box.x1) / 2, "middle"
    if place[0] <= box.x0 + 12:
        x, anchor = box.x0, "start"
    elif place[0] >= box.x1 - 12:
        x, anchor = box.x1, "end"
    return BoardName(x, box.y1 - 3, anchor, words, _line(place, box))


def _line(place: tuple[float, float], box: NameBox) -> tuple[float, float] | None:
    """Where a line from a point to its name ends; None if the name is next to it."""
    x, y = place
    end = (min(max(x, box.x0), box.x1), min(max(y, box.y0 + 1), box.y1 - 1))
    return end if abs(end[0] - x) > NEAR + 2 or abs(end[1] - y) > NEAR + 2 else None


def text_width(text: str) -> float:
    """An upper estimate of the width of a text in pixels."""
    return _LETTER * sum(1.8 if unicodedata.east_asian_width(char) in "WF" else 1.0 for char in text)
