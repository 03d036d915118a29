"""Values of several things as dots on one axis, with the spread of each: an SVG picture that is read from top down."""

from __future__ import annotations

from collections.abc import Mapping

from xmtc.core.errors import shown
from xmtc.views.sheet import FAINT, GRID, INK, LINE, even, safe, sheet

_WIDTH, _STEP = 300, 24  # of the panel; from one row to the next
_TOP, _RIGHT = 44, 56
_LETTER = 6.6  # width of one, about


def dot_chart(title: str, points: Mapping[str, tuple[float, float]], *, below: str, line: float | None = None) -> str:
    """An SVG with a row for each name: its value, and how far that goes up and down; `line` marks one value in all."""
    names = [shown(name, 30) for name in points]
    left = 24 + int(_LETTER * max(map(len, names), default=1))
    ends = [value + sign * spread for value, spread in points.values() for sign in (-1, 1)]
    room = 0.08 * (max(ends) - min(ends)) or max(abs(max(ends)) * 0.02, 0.01)
    scale = even(min(ends) - room, max(ends) + room, _WIDTH)
    bottom = _TOP + _STEP * len(points) + 6
    parts = [f'<text x="16" y="22" font-size="13" font-weight="bold" fill="{INK}">{safe(shown(title, 46))}</text>']
    for place, told in scale.marks:
        x = f"{left + place:.1f}"
        parts += [
            f'<line x1="{x}" x2="{x}" y1="{_TOP - 6}" y2="{bottom}" stroke="{GRID}"/>',
            f'<text x="{x}" y="{bottom + 17}" font-size="11" text-anchor="middle" fill="{INK}">{told}</text>',
        ]
    if line is not None:
        x = f"{left + scale.place(line):.1f}"
        parts.append(f'<line x1="{x}" x2="{x}" y1="{_TOP - 6}" y2="{bottom}" stroke="{FAINT}" stroke-dasharray="5 4"/>')
    for number, (name, (value, spread)) in enumerate(zip(names, points.values(), strict=True)):
        y = _TOP + _STEP * number + _STEP / 2
        dot, low, high = (left + scale.place(at) for at in (value, value - spread, value + spread))
        tip = f"{name}: {value:.2f}" + (f" ± {spread:.2f}" if spread else "")
        parts += [
            f'<text x="{left - 10}" y="{y + 4:g}" font-size="12" text-anchor="end" fill="{INK}">{safe(name)}</text>',
            *(
                [f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y:g}" y2="{y:g}" stroke="{LINE}" stroke-width="1.6"/>']
                if spread
                else []
            ),
            f'<circle class="dot" cx="{dot:.1f}" cy="{y:g}" r="4.5" fill="{LINE}"><title>{safe(tip)}</title></circle>',
            f'<text x="{high + 9:.1f}" y="{y + 4:g}" font-size="11" fill="{FAINT}" stroke="#ffffff" '
            f'stroke-width="3" paint-order="stroke">{value:.2f}</text>',
        ]
    parts += [
        f'<line x1="{left}" x2="{left + _WIDTH}" y1="{bottom}" y2="{bottom}" stroke="{INK}"/>',
        f'<text x="{left + _WIDTH / 2:g}" y="{bottom + 36}" font-size="12" text-anchor="middle" fill="{INK}">'
        f"{safe(below)}</text>",
    ]
    told = "; ".join(f"{name} {value:.2f}" for name, (value, _) in zip(names, points.values(), strict=True))
    return sheet(title, left + _WIDTH + _RIGHT, bottom + 48, parts, f"{below}: {told}.")
