"""The trials of a search over settings: the score of each in order, and the best so far, as an SVG picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xmtc.views.sheet import COLOURS, FAINT, INK, Scale, axes, even, grid, nice_step, safe, sheet, short

_WIDTH, _HEIGHT = 620, 260
_LEFT, _RIGHT, _TOP = 68, 28, 72
_STRIP = 26  # below the scores, for trials that have none
_SCORE, _BEST, _START = COLOURS[0], COLOURS[1], COLOURS[2]


class Mark(NamedTuple):
    """One trial, in its turn; the first is what the search started from."""

    score: float | None
    """From 0 to 1; None for one that has none."""
    state: str
    """Why it has none, in a word."""
    best: bool
    tip: str
    """What it tells of itself when pointed at."""


class _Panel(NamedTuple):
    across: Scale
    upright: Scale
    bottom: float  # of the scores

    def place(self, number: float, score: float) -> tuple[float, float]:
        return _LEFT + self.across.place(number), self.bottom - self.upright.place(score)


def drawn(marks: Sequence[Mark], title: str, measure: str) -> str:
    """A dot for each score, a stepped line for the best so far, a dashed one for the start, crosses for the rest."""
    scores = [mark.score for mark in marks if mark.score is not None]
    strip = _STRIP if len(scores) < len(marks) else 0
    panel = _Panel(_numbers(len(marks)), _upright(scores), _TOP + _HEIGHT)
    floor = panel.bottom + strip
    parts = [
        f'<text x="{_LEFT}" y="28" font-size="14" font-weight="bold" fill="{INK}">{safe(title)}</text>',
        *_legend(marks, scores),
        *grid(panel.upright.marks, _LEFT, panel.bottom, _WIDTH),
        *_lines(marks, panel),
        *_dots(marks, panel),
        *_crosses(marks, panel, floor - strip / 2),
        *axes(
            panel.across.marks,
            *(_LEFT, floor, _WIDTH, _HEIGHT + strip),
            below="trial",
            beside=f"{safe(measure)}, %",
        ),
    ]
    reached = f"{measure} {100 * max(scores):.2f}" if scores else "no score"
    about = f"{len(marks)} trials, the best with {reached}"
    return sheet(title, _LEFT + _WIDTH + _RIGHT, int(floor) + 52, parts, about)


def _numbers(count: int) -> Scale:
    """Trials by number, with room at both ends, and marks at whole numbers."""
    low, high = -0.6, max(count - 1, 1) + 0.6
    gap = max(int(nice_step((high - low) / 12)), 1)
    scale = Scale(low, high, _WIDTH, [])
    return scale._replace(marks=[(scale.place(number), short(number)) for number in range(0, int(high) + 1, gap)])


def _upright(scores: Sequence[float]) -> Scale:
    """Around the scores there are, in percent."""
    low, high = min(scores, default=0.0), max(scores, default=1.0)
    room = max(0.1 * (high - low), 0.005)
    return even(max(low - room, 0.0), min(high + room, 1.02), _HEIGHT, 100.0)


def _legend(marks: Sequence[Mark], scores: Sequence[float]) -> list[str]:
    entries = [(f'<circle cx="6" cy="-4" r="3.2" fill="{_SCORE}"/>', "a trial")]
    entries.append((_sample(_BEST, ""), f"the best so far: {100 * max(scores):.2f}" if scores else "the best so far"))
    if marks and marks[0].score is not None:
        entries.append((_sample(_START, "6 3"), f"where it started: {100 * marks[0].score:.2f}"))
    for state in dict.fromkeys(mark.state for mark in marks if mark.score is None):
        entries.append((_cross(6, -4, state, ""), f"{state}: {sum(mark.state == state for mark in marks)}"))
    parts, left = [], float(_LEFT)
    for sample, words in entries:
        parts.append(
            f'<g transform="translate({left:g} 50)">{sample}'
            f'<text x="22" y="0" font-size="12" fill="{FAINT}">{safe(words)}</text></g>'
        )
        left += 44 + 5.9 * len(words)
    return parts


def _sample(colour: str, dash: str) -> str:
    return f'<line x1="-2" x2="16" y1="-4" y2="-4" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'


def _lines(marks: Sequence[Mark], panel: _Panel) -> list[str]:
    parts = []
    if marks and marks[0].score is not None:
        _, level = panel.place(0, marks[0].score)
        parts.append(
            f'<line class="start" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{level:.1f}" y2="{level:.1f}" '
            f'stroke="{_START}" stroke-width="1.4" stroke-dasharray="6 3"/>'
        )
    way: list[str] = []
    best = -1.0
    for number, mark in enumerate(marks):
        if mark.score is not None and mark.score > best:
            x, y = panel.place(number, mark.score)
            way.append(f"H{x:.1f}V{y:.1f}" if way else f"M{x:.1f},{y:.1f}")
            best = mark.score
    if way:
        end, _ = panel.place(len(marks) - 1, best)
        parts.append(f'<path class="best" d="{"".join(way)}H{end:.1f}" fill="none" stroke="{_BEST}" stroke-width="2"/>')
    return parts


def _dots(marks: Sequence[Mark], panel: _Panel) -> list[str]:
    radius = 3.6 if len(marks) <= 100 else 2.0
    parts = []
    for number, mark in enumerate(marks):
        if mark.score is None:
            continue
        x, y = panel.place(number, mark.score)
        colour = _START if number == 0 else _BEST if mark.best else _SCORE
        if mark.best:
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius + 3:g}" fill="none" stroke="{_BEST}" '
                'stroke-width="1.6"/>'
            )
        parts.append(
            f'<circle class="trial" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}">'
            f"<title>{safe(mark.tip)}</title></circle>"
        )
    return parts


def _crosses(marks: Sequence[Mark], panel: _Panel, level: float) -> list[str]:
    places = [(_LEFT + panel.across.place(n), mark) for n, mark in enumerate(marks) if mark.score is None]
    return [_cross(x, level, mark.state, mark.tip) for x, mark in places]


def _cross(x: float, y: float, state: str, tip: str) -> str:
    """Slanted for a trial that failed, upright for one that was ended."""
    arms = "m-3,-3l6,6m0,-6l-6,6" if state == "failed" else "m-4,0h8m-4,-4v8"
    told = f"<title>{safe(tip)}</title>" if tip else ""
    return (
        f'<path class="{safe(state)}" d="M{x:.1f},{y:.1f}{arms}" fill="none" stroke="{FAINT}" stroke-width="1.6">'
        f"{told}</path>"
    )
