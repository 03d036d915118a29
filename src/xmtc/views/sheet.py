"""What every plot is made of: the sheet, its axes and their scales, colours, and words that are safe to print."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from xmtc.core.errors import shown

FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
FILL, LINE = "#8fb3d9", "#a33b12"
INK, FAINT, GRID = "#222222", "#5c5c5c", "#e3e3e3"
COLOURS = ("#2f6db3", "#a33b12", "#3b8256", "#7a5aa8", "#9a7410", "#2b8592", "#b24a7d", "#5f6670")
DASHES = ("", "7 3", "2 3", "9 3 2 3")  # once the colours are used up
_SIZE = re.compile(r'width="(\d+)" height="(\d+)"')
_TITLE = re.compile(r"<title>(.*?)</title>")


def sheet(title: str, width: int, height: int, parts: Sequence[str], description: str = "") -> str:
    """An SVG on white with what is drawn on it; the description is for those who do not see it."""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="{FONT}" role="img">',
        f"<title>{safe(title)}</title>",
        *([f"<desc>{safe(description)}</desc>"] if description else []),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    return "\n".join([*head, *parts, "</svg>", ""])


def grid(marks: Sequence[tuple[float, str]], left: float, bottom: float, width: float) -> list[str]:
    """Faint lines across a panel, each (pixels above its bottom, what it stands for)."""
    right = left + width
    parts = []
    for height, told in marks:
        level = bottom - height
        parts += [
            f'<line x1="{left}" x2="{right}" y1="{level:.1f}" y2="{level:.1f}" stroke="{GRID}"/>',
            f'<text x="{left - 6}" y="{level + 3.5:.1f}" font-size="11" text-anchor="end" fill="{INK}">{told}</text>',
        ]
    return parts


def axes(
    ticks: Sequence[tuple[float, str]],
    left: float,
    bottom: float,
    width: float,
    height: float,
    *,
    below: str,
    beside: str,
) -> list[str]:
    """The horizontal axis with its ticks, each (pixels from the left, what stands there), and the names of both."""
    right, middle = left + width, bottom - height / 2
    parts = [f'<line x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="{INK}"/>']
    for place, told in ticks:
        x = f"{left + place:.1f}"
        parts += [
            f'<line x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 4}" stroke="{INK}"/>',
            f'<text x="{x}" y="{bottom + 17}" font-size="11" text-anchor="middle" fill="{INK}">{told}</text>',
        ]
    return [
        *parts,
        f'<text x="{left + width / 2:g}" y="{bottom + 36}" font-size="12" text-anchor="middle" fill="{INK}">'
        f"{below}</text>",
        f'<text x="{left - 40}" y="{middle:g}" font-size="12" text-anchor="middle" fill="{INK}" '
        f'transform="rotate(-90 {left - 40} {middle:g})">{beside}</text>',
    ]


class Scale(NamedTuple):
    """From values to pixels, with the marks of the axis."""

    low: float
    high: float
    length: float
    marks: list[tuple[float, str]]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Pixels from where the axis starts."""
        low, high, value = (math.log(x) if self.logarithmic else x for x in (self.low, self.high, value))
        return self.length * (value - low) / (high - low)


def even(low: float, high: float, length: float, times: float = 1.0) -> Scale:
    """From low to high over so many pixels, with marks at round numbers of the value taken so many times."""
    gap = nice_step((high - low) * times / 6)
    scale = Scale(low, high, length, [])
    marks = range(math.ceil(low * times / gap - 1e-9), math.floor(high * times / gap + 1e-9) + 1)
    return scale._replace(marks=[(scale.place(mark * gap / times), f"{mark * gap:.6g}") for mark in marks])


def logarithmic(low: float, high: float, length: float) -> Scale:
    """From low to high over so many pixels by factors, with marks at round numbers."""
    factors = (1, 2, 5) if high < 300 * low else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = range(first, last + 1, math.ceil((last - first) / 10))
    scale = Scale(low, high, length, [], True)
    marks = [factor * 10.0**power for power in powers for factor in factors]
    return scale._replace(marks=[(scale.place(mark), short(mark)) for mark in marks if low <= mark <= high])


def short(value: float) -> str:
    """A number of an axis."""
    return short_number(int(value)) if value >= 1000 else f"{value:.6g}"


def stroke(number: int) -> str:
    dash = DASHES[number // len(COLOURS) % len(DASHES)]
    return f'stroke="{colour(number)}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def marker(number: int, x: float, y: float, size: float, tip: str = "") -> str:
    """A point of the colour and the shape that a series has, which tells of itself when pointed at."""
    r, d = size, 1.25 * size
    way = (
        f"M{x - r:.1f},{y:.1f}a{r:g},{r:g} 0 1 0 {2 * r:g},0a{r:g},{r:g} 0 1 0 {-2 * r:g},0z",  # a circle
        f"M{x - r:.1f},{y - r:.1f}h{2 * r:g}v{2 * r:g}h{-2 * r:g}z",  # a square
        f"M{x:.1f},{y - d:.1f}l{d:g},{1.9 * d:.3g}h{-2 * d:g}z",  # a triangle
        f"M{x:.1f},{y - d:.1f}l{d:g},{d:g}l{-d:g},{d:g}l{-d:g},{-d:g}z",  # a diamond
        f"M{x:.1f},{y + d:.1f}l{d:g},{-1.9 * d:.3g}h{-2 * d:g}z",  # a triangle on its head
    )[number % 5]
    told = f"><title>{safe(tip)}</title></path>" if tip else "/>"
    return f'<path class="point" d="{way}" fill="{colour(number)}"{told}'


def nice_step(number: float) -> float:
    """The next of …, 0.5, 1, 2, 5, 10, …"""
    power = 10.0 ** math.floor(math.log10(number))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= number * 0.999)


def short_number(value: int) -> str:
    """1, 10, 100, 1k, 2.5M."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{float(f'{value / size:.3g}'):g}{letter}"
    return str(value)


def named(name: str) -> str:
    """A file's name, short enough for a line; its end says more than its start."""
    return shown(name if len(name) <= 48 else "…" + name[-47:])


def safe(text: str) -> str:
    """Text between tags or in an attribute."""
    return escape(text, {'"': "&quot;"})


def below_each_other(pictures: Sequence[str]) -> str:
    """Several SVG pictures as one."""
    sizes = [[int(float(size)) for size in _SIZE.findall(each)[0]] for each in pictures]
    placed, top = [], 0
    for each, (_, height) in zip(pictures, sizes, strict=True):
        placed.append(each.replace("<svg ", f'<svg y="{top}" ', 1).strip())
        top += height
    width = max(width for width, _ in sizes)
    titles = [_TITLE.findall(each)[0] for each in pictures]
    size = f'width="{width}" height="{top}" viewBox="0 0 {width} {top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, f"<title>{' and '.join(titles)}</title>", *placed, "</svg>", ""])
