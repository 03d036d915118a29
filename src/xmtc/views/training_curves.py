"""Training logs as curves: loss and validation score of one training or several, as an SVG picture.

A log has a JSON object a line: `step`, `epoch` and `seconds`, all counted from the start of training, and any of
`loss`, `score` (nDCG@5 on the validation documents, 0 to 1), `best` (whether that score is the best so far), `member`
(which run of an ensemble) and `level` (of a label tree, each a training of its own), both from 0. It may still be
written to: a last line without an end is left for later. Where an interrupted training went back to an earlier step,
only the way it took then is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from xmtc.artifact.store import is_model
from xmtc.artifact.workspace import LOG, LOG_SUFFIX, WORK_SUFFIX, Workspace, log_beside
from xmtc.core.errors import DataError, shown
from xmtc.core.files import parse_lines
from xmtc.views.sheet import (
    COLOURS,
    DASHES,
    FAINT,
    INK,
    Scale,
    axes,
    colour,
    even,
    grid,
    logarithmic,
    named,
    nice_step,
    safe,
    sheet,
    short,
    stroke,
)

AGAINST = ("epoch", "seconds", "step")
_MOST = 2**53  # a larger integer is no count, and may not even fit a float
_EXAMPLE = '{"step": 100, "epoch": 0.5, "seconds": 12.3, "loss": 0.04}'


class Point(NamedTuple):
    """Where on the horizontal axis, and how high."""

    at: float
    value: float


@dataclass(frozen=True)
class Curve:
    """One training: its losses and validation scores in order, and the best of these."""

    run: str
    """The model, and which member of it."""
    level: int | None
    """Of a label tree, from 0."""
    losses: list[Point]
    scores: list[Point]
    best: Point | None
    epochs: float
    seconds: float

    @property
    def name(self) -> str:
        return self.run if self.level is None else f"{self.run}, level {self.level + 1}"


# ---- reading


def log_of(path: Path) -> Path:
    """The log that a path means: itself, or that of a model folder of that name, trained or still in training."""
    if path.exists() and not path.is_dir():
        return path
    if path.name.endswith(WORK_SUFFIX) and (path / LOG).exists():
        return path / LOG
    logs = [log_beside(path), Workspace.beside(path) / LOG]
    for log in logs if is_model(path) else reversed(logs):
        if log.exists():
            return log
    if path.is_dir():
        raise DataError(f"{path}: has no training log {logs[0]} beside it. Name the log of a training.")
    return path


def read_curves(paths: Sequence[Path], against: str = "epoch") -> list[Curve]:
    """A curve for each log, or for each member and each level of a tree in it, named so that they can be told apart."""
    logs = list(dict.fromkeys(log_of(path) for path in paths))
    short = [_short_name(log) for log in logs]
    names = short if len(set(short)) == len(logs) else [str(log) for log in logs]
    return [
        curve for name, log in zip(names, logs, strict=True) for curve in curves_of(name, _lines(log), log, against)
    ]


def _short_name(log: Path) -> str:
    """The name of the model that a log is of, as far as the log's place tells it."""
    if log.name == LOG and log.parent.name.endswith(WORK_SUFFIX):
        return log.parent.name.removesuffix(WORK_SUFFIX)
    return log.name.removesuffix(LOG_SUFFIX).removesuffix(".jsonl")


def curves_of(
    name: str, lines: Iterable[tuple[int, dict[str, Any]]], log: Path | str, against: str = "epoch"
) -> list[Curve]:
    """The curves of one log: its numbered lines, and what errors call it."""
    runs: dict[tuple[int, int | None], dict[int, dict[str, Any]]] = {}  # (member, level) → step → what was noted there
    for number, line in lines:
        place = f"{log}:{number}"
        step = _whole(line, "step", place)
        if step is None:
            raise DataError(f"{place}: has no 'step'. Write one object a line: {_EXAMPLE}.")
        if line.get(against) is None:
            raise DataError(f"{place}: has no '{against}'. Choose another axis with --against {_others(against)}.")
        noted: dict[str, Any] = {key: _number(line, key, place) for key in ("epoch", "seconds", "loss", "score")}
        noted.update(step=step, best=line.get("best") is True or None)
        run = runs.setdefault((_whole(line, "member", place) or 0, _whole(line, "level", place)), {})
        for later in [other for other in run if other > step]:  # went back to here
            del run[later]
        run[step] = {**run.get(step, {}), **{key: value for key, value in noted.items() if value is not None}}
    if not runs:
        raise DataError(f"{log}: the log is empty. Wait until the training has written its first line.")
    several = len({member for member, _ in runs}) > 1
    found = [
        _curve(f"{name}, member {member + 1}" if several else name, level, run, against)
        for (member, level), run in runs.items()
    ]
    if not any(curve.losses or curve.scores for curve in found):
        raise DataError(f"{log}: no line has a 'loss' or a 'score'. Check that this is the log of a training.")
    return found


def _lines(log: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    if not log.exists():
        raise DataError(f"{log}: no such file. Check the path.")
    try:
        content = log.read_bytes()
    except OSError as error:
        raise DataError(f"{log}: cannot be read ({error.strerror}). Check the path and its permissions.") from None
    whole = content[: content.rfind(b"\n") + 1]
    yield from parse_lines(whole, log, 0, _EXAMPLE)
    yield from parse_lines(content[len(whole) :], log, whole.count(b"\n"), _EXAMPLE, lambda _: None)


def _number(line: dict[str, Any], key: str, place: str) -> float | None:
    """A number, or None where there is none or a loss that ran off to infinity and cannot be drawn."""
    value = line.get(key)
    if value is None:
        return None
    low, high, wanted = {"score": (0, 1, " from 0 to 1"), "loss": (-_MOST, _MOST, "")}.get(key, (0, _MOST, " ≥ 0"))
    if isinstance(value, int | float) and not isinstance(value, bool):
        if low <= value <= high:
            return float(value)
        if key == "loss" and isinstance(value, float):
            return None
    raise DataError(f"{place}: '{key}' must be a number{wanted}. Got {shown(value)}.")


def _whole(line: dict[str, Any], key: str, place: str) -> int | None:
    value = line.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST):
        raise DataError(f"{place}: '{key}' must be an integer ≥ 0. Got {shown(value)}.")
    return value


def _others(against: str) -> str:
    return " or ".join(other for other in AGAINST if other != against)


def _curve(name: str, level: int | None, run: dict[int, dict[str, Any]], against: str) -> Curve:
    noted = list(run.values())
    scored = [line for line in noted if "score" in line]
    flagged = [line for line in scored if "best" in line]
    # What the training kept; without its word on that, the highest, the earlier of two.
    best = flagged[-1] if flagged else max(scored, key=lambda line: float(line["score"]), default=None)
    return Curve(
        name,
        level,
        [Point(float(line[against]), line["loss"]) for line in noted if "loss" in line],
        [Point(float(line[against]), line["score"]) for line in scored],
        None if best is None else Point(float(best[against]), best["score"]),
        max((line["epoch"] for line in noted if "epoch" in line), default=0.0),
        max((line["seconds"] for line in noted if "seconds" in line), default=0.0),
    )


# ---- the picture

_WIDTH, _HEIGHT = 620, 220  # of a panel
_LEFT, _RIGHT, _GAP = 68, 28, 84
_MOST_POINTS = 400  # of a line of losses; beyond that, neighbours are averaged
_MOST_VALUES = 6  # written beside the best points; beyond that, only the legend has room for them
_TIMES = ((7200, 3600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))


class _Panel(NamedTuple):
    """Where a panel stands and how points are placed in it."""

    across: Scale
    upright: Scale
    bottom: int
    unit: float  # of the horizontal axis

    def place(self, point: Point) -> tuple[float, float]:
        """Pixels from the left and from the top of the picture."""
        return _LEFT + self.across.place(point.at / self.unit), self.bottom - self.upright.place(point.value)


def drawn(curves: Sequence[Curve], against: str = "epoch") -> str:
    """An SVG of two panels, one above the other: training loss and validation score."""
    unit, below = _unit(curves, against)
    across = _from_zero([point.at / unit for curve in curves for point in (*curve.losses, *curve.scores)], _WIDTH)
    names = [named(curve.name) for curve in curves]
    facts = [told(curve, against) for curve in curves]
    longest = max(9 * len(name) + 7 * len(fact) for name, fact in zip(names, facts, strict=True))  # in pixels, about
    width = max(_LEFT + _WIDTH, _LEFT + 46 + longest) + _RIGHT
    upper = 28 + 19 * len(curves) + 38 + _HEIGHT  # where the panel of losses ends
    lower = upper + _GAP + _HEIGHT
    styles = _styles(curves)
    parts = _legend(names, facts, styles)
    upright = _loss_scale([point.value for curve in curves for point in curve.losses])
    if upright is None:
        parts += _empty("Training loss", upper)
    else:
        title = f"Training loss{', logarithmic' if upright.logarithmic else ''}"
        panel = _Panel(across, upright, upper, unit)
        parts += _filled(title, _loss_lines(curves, names, styles, panel), panel, beside="loss", below=below)
    upright = _score_scale([point.value for curve in curves for point in curve.scores])
    if upright is None:
        parts += _empty("Validation score", lower)
    else:
        panel = _Panel(across, upright, lower, unit)
        lines = _score_lines(curves, names, styles, panel, against)
        parts += _filled("Validation score", lines, panel, beside="nDCG@5, %", below=below)
    return sheet(f"Training of {', '.join(names)}", width, lower + 52, parts)


def told(curve: Curve, against: str) -> str:
    """How long a training went, and the best it reached."""
    went = [f"{float(f'{curve.epochs:.4g}'):,g} epoch{'' if curve.epochs == 1 else 's'}"] if curve.epochs else []
    went += [duration(curve.seconds)] if curve.seconds else []
    if curve.best is not None:
        at = f"after {duration(curve.best.at)}" if against == "seconds" else f"at {against} {curve.best.at:,.6g}"
        went.append(f"best nDCG@5 {100 * curve.best.value:.2f} {at}")
    return ", ".join(went)


def duration(seconds: float) -> str:
    """12 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02d} min"


def _unit(curves: Sequence[Curve], against: str) -> tuple[float, str]:
    """What the horizontal axis counts in, and its name."""
    if against != "seconds":
        return 1.0, f"{against}s"
    longest = max(point.at for curve in curves for point in (*curve.losses, *curve.scores))
    size, name = next((size, name) for least, size, name in _TIMES if longest >= least)
    return float(size), f"{name} of training"


def _from_zero(values: Sequence[float], length: float) -> Scale:
    high = max(values) or 1.0
    gap = nice_step(high / 12)
    marks = [(length * mark * gap / high, short(mark * gap)) for mark in range(int(high / gap * 1.0001) + 1)]
    return Scale(0.0, high, length, marks)


def _loss_scale(values: Sequence[float]) -> Scale | None:
    """From 0 on, or logarithmic where the largest loss is more than twenty times the smallest."""
    if not values:
        return None
    low, high = min(values), max(values)
    if low > 0 and high > 20 * low:
        return logarithmic(low / 1.1, high * 1.1, _HEIGHT)
    return even(min(low, 0.0), 1.06 * max(high, 0.0) or 1.0, _HEIGHT)


def _score_scale(values: Sequence[float]) -> Scale | None:
    """Around the scores there are, in percent."""
    if not values:
        return None
    low, high = min(values), max(values)
    room = max(0.12 * (high - low), 0.005)
    return even(max(low - room, 0.0), min(high + 1.6 * room, 1.02), _HEIGHT, 100.0)


def _styles(curves: Sequence[Curve]) -> list[int]:
    """A number for each curve, of which colour and dashes follow: levels differ by colour, runs by dashes."""
    runs = list(dict.fromkeys(curve.run for curve in curves))
    levels = [curve.level or 0 for curve in curves]
    if max(levels) == 0 or max(levels) >= len(COLOURS) or len(runs) > len(DASHES):  # there are not as many
        return list(range(len(curves)))
    return [len(COLOURS) * runs.index(curve.run) + level for curve, level in zip(curves, levels, strict=True)]


def _legend(names: Sequence[str], facts: Sequence[str], styles: Sequence[int]) -> list[str]:
    """Who is who, with how it went, one training a line."""
    parts = []
    for number, (name, fact) in enumerate(zip(names, facts, strict=True)):
        line = 28 + 19 * number
        parts += [
            f'<line x1="{_LEFT}" x2="{_LEFT + 26}" y1="{line - 4.5}" y2="{line - 4.5}" stroke-width="2.5" '
            f"{stroke(styles[number])}/>",
            f'<text x="{_LEFT + 34}" y="{line}" font-size="14" fill="{INK}"><tspan font-weight="bold">{safe(name)}'
            f'</tspan><tspan fill="{FAINT}" font-size="12" dx="10">{safe(fact)}</tspan></text>',
        ]
    return parts


def _title(title: str, bottom: int) -> str:
    place = f'x="{_LEFT}" y="{bottom - _HEIGHT - 12}"'
    return f'<text {place} font-size="13" font-weight="bold" fill="{INK}">{title}</text>'


def _empty(title: str, bottom: int) -> list[str]:
    middle = f'x="{_LEFT + _WIDTH / 2:g}" y="{bottom - _HEIGHT / 2:g}"'
    return [
        _title(title, bottom),
        f'<text {middle} font-size="12" text-anchor="middle" fill="{FAINT}">nothing to draw</text>',
    ]


def _filled(title: str, lines: list[str], panel: _Panel, *, beside: str, below: str) -> list[str]:
    return [
        f'<g class="panel" data-panel="{title}">',
        _title(title, panel.bottom),
        *grid(panel.upright.marks, _LEFT, panel.bottom, _WIDTH),
        *lines,
        *axes(panel.across.marks, _LEFT, panel.bottom, _WIDTH, _HEIGHT, below=below, beside=beside),
        "</g>",
    ]


def _loss_lines(curves: Sequence[Curve], names: Sequence[str], styles: Sequence[int], panel: _Panel) -> list[str]:
    parts = []
    for curve, name, style in zip(curves, names, styles, strict=True):
        places = [panel.place(point) for point in averaged(curve.losses)]
        if len(places) > 1:
            parts.append(_line(places, style))
        elif places:
            parts.append(_dot(places[0], style, "loss", 3, f"{name}: {curve.losses[0].value:.6g}"))
    return parts


def averaged(points: list[Point], most: int = _MOST_POINTS) -> list[Point]:
    """No more points than can be told apart, each the mean of its neighbours."""
    size = math.ceil(len(points) / most) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [Point(*(math.fsum(column) / len(group) for column in zip(*group, strict=True))) for group in groups]


def _score_lines(
    curves: Sequence[Curve], names: Sequence[str], styles: Sequence[int], panel: _Panel, against: str
) -> list[str]:
    """Lines with a dot for each validation, and over all of them the best."""
    parts = []
    for curve, name, style in zip(curves, names, styles, strict=True):
        places = [panel.place(point) for point in curve.scores]
        parts += [_line(places, style)] if len(places) > 1 else []
        radius = 2.6 if len(places) <= 60 else 1.4
        for place, point in zip(places, curve.scores, strict=True):
            tip = f"{name}, {against} {point.at:,.6g}: {100 * point.value:.2f}"
            parts.append(_dot(place, style, "score", radius, tip))
    marked = [(curve.best, style) for curve, style in zip(curves, styles, strict=True) if curve.best is not None]
    parts += [_ring(panel.place(best), style) for best, style in marked]
    taken: list[tuple[float, float]] = []  # where values are written
    for best, style in marked if len(marked) <= _MOST_VALUES else ():
        parts.append(_value(best, style, panel, taken))
    return parts


def _line(places: Sequence[tuple[float, float]], style: int) -> str:
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return (
        f'<polyline class="curve-{style}" points="{way}" fill="none" stroke-width="1.8" stroke-linejoin="round" '
        f"{stroke(style)}/>"
    )


def _dot(place: tuple[float, float], style: int, what: str, radius: float, tip: str) -> str:
    return (
        f'<circle class="{what}" cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{radius:g}" fill="{colour(style)}">'
        f"<title>{safe(tip)}</title></circle>"
    )


def _ring(place: tuple[float, float], style: int) -> str:
    """Around the best point."""
    x, y = place
    return (
        f'<circle class="best" cx="{x:.1f}" cy="{y:.1f}" r="5.5" fill="none" stroke-width="1.6" '
        f'stroke="{colour(style)}"/>'
    )


def _value(best: Point, style: int, panel: _Panel, taken: list[tuple[float, float]]) -> str:
    """The value of the best point, above it or where there is room."""
    x, y = panel.place(best)
    middle = min(max(x, _LEFT + 18.0), _LEFT + _WIDTH - 18.0)
    spots = [(middle, y + shift) for shift in (-10, 20, -23, 33, -36, 46)]
    free = [spot for spot in spots if all(abs(spot[0] - u) > 38 or abs(spot[1] - v) > 12 for u, v in taken)]
    inside = [spot for spot in free if panel.bottom - _HEIGHT - 4 <= spot[1] <= panel.bottom - 4]
    spot = (inside or free or spots)[0]
    taken.append(spot)
    return (
        f'<text x="{spot[0]:.1f}" y="{spot[1]:.1f}" font-size="12" font-weight="bold" text-anchor="middle" '
        f'fill="{colour(style)}" stroke="#ffffff" stroke-width="3" paint-order="stroke">{100 * best.value:.2f}</text>'
    )
