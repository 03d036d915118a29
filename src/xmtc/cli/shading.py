"""An explanation in a terminal: the text with words shaded by their weight."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.cells import cell_len

from xmtc.cli.show import explanation
from xmtc.core.explanation import Explanation
from xmtc.views.shading import STEPS, Stretch, levels, stretches

_FOR, _AGAINST = (109, 110, 74, 75, 33), (138, 174, 173, 209, 202)
"""Colours out of 256, pale to full, on which black text is readable and which differ from black and white."""
_AROUND = (240, 120, 60, 30)  # characters kept on both sides of a word when a text is cut
_MOST_WIDTH = 100
_INDENT = "  "

Cell = tuple[str, int]  # a character and its level


def shaded(found: Explanation, width: int = 80, most_lines: int = 15) -> str:
    """The plain explanation below the shaded text; of a long text, the parts around the strongest words."""
    plain = explanation(found)
    if found.kind != "tokens" or not found.text.strip():
        return plain
    room = max(min(width, _MOST_WIDTH) - len(_INDENT) - 1, 20)
    lines = _wrapped(_cells(found, int(0.9 * room * most_lines)), room)[:most_lines]
    heading, _, rest = plain.partition("\n")
    legend = _terminal_legend(stretches(found), found.shares)
    painted = [_INDENT + _painted(line) for line in lines]
    return "\n".join([heading, "", *painted, "", *legend, *([rest] if rest else [])])


def _cells(found: Explanation, room: int) -> list[Cell]:
    """The characters to show: blanks are merged, and '…' replaces omitted parts."""
    cut = stretches(found)
    shade = [level for stretch, level in zip(cut, levels(cut), strict=True) for _ in range(stretch.end - stretch.start)]
    cells: list[Cell] = []
    end = 0
    for start, stop in _kept(found.text, cut, levels(cut), room):
        if start > end:
            cells += [(" ", 0), ("…", 0), (" ", 0)] if cells else [("…", 0), (" ", 0)]
        for char, level in zip(found.text[start:stop], shade[start:stop], strict=True):
            if char.isspace():
                if cells and cells[-1][0] != " ":
                    cells.append((" ", level))
            elif shown_char := _printable(char):
                cells.append((shown_char, level))
        end = stop
    if end < len(found.text.rstrip()):
        cells += [(" ", 0), ("…", 0)]
    return cells


def _printable(char: str) -> str:
    """A character without effect on the terminal; invisible marks are omitted, except those that join letters."""
    if char.isprintable() or char in "\u200c\u200d":
        return char
    return "" if unicodedata.category(char) == "Cf" else "\N{REPLACEMENT CHARACTER}"


def _kept(text: str, cut: Sequence[Stretch], shades: Sequence[int], room: int) -> list[tuple[int, int]]:
    """The ranges to show: all, or as much as fits around every shaded word, or only the strongest words."""
    if cell_len(" ".join(text.split())) <= room:
        return [(0, len(text))]
    strong = [stretch for stretch, shade in zip(cut, shades, strict=True) if shade]
    strong.sort(key=lambda stretch: (-abs(stretch.weight), stretch.start))
    if not strong:
        return [_window(text, 0, 0, room // 2)]  # characters of a wide script take two columns
    for around in _AROUND:
        kept = _joined(_window(text, stretch.start, stretch.end, around) for stretch in strong)
        if _room_of(text, kept) <= room:
            return kept
    kept = []
    for stretch in strong:
        more = _joined([*kept, _window(text, stretch.start, stretch.end, _AROUND[-1])])
        if kept and _room_of(text, more) > room:
            break
        kept = more
    return kept


def _room_of(text: str, ranges: Sequence[tuple[int, int]]) -> int:
    return sum(cell_len(text[start:end]) + 3 for start, end in ranges)


def _window(text: str, start: int, end: int, around: int) -> tuple[int, int]:
    """A word and its context, cut between words if there are blanks."""
    low, high = max(start - around, 0), min(end + around, len(text))
    if low and not text[low - 1].isspace():
        low = next((place + 1 for place in range(low, start) if text[place].isspace()), low)
    if high < len(text) and not text[high].isspace():
        high = next((place for place in range(high - 1, end - 1, -1) if text[place].isspace()), high)
    return low, high


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges in order, with adjacent ones merged."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _wrapped(cells: list[Cell], width: int) -> list[list[Cell]]:
    """Lines of at most `width` columns, broken at blanks or next to a wide character, otherwise anywhere."""
    lines: list[list[Cell]] = []
    line: list[Cell] = []
    used = 0  # columns
    ends, begins = 0, 0  # the last place to break: where this line would end, and the next one begin
    for cell in cells:
        char, wide = cell[0], cell_len(cell[0])
        if char == " ":
            ends, begins = len(line), len(line) + 1
        elif wide == 2:
            ends, begins = len(line), len(line)
        if used + wide > width:
            if not ends:
                ends = begins = len(line)
            lines.append(line[:ends])
            line = line[begins:]
            used, ends, begins = sum(cell_len(kept) for kept, _ in line), 0, 0
        if char == " " and not line:
            continue
        line.append(cell)
        used += wide
        if wide == 2:
            ends = begins = len(line)
    return [*lines, line] if line else lines


def _painted(line: Iterable[Cell]) -> str:
    runs = ((level, "".join(char for char, _ in run)) for level, run in groupby(line, key=lambda cell: cell[1]))
    return "".join(_on(level, words) for level, words in runs)


def _on(level: int, words: str) -> str:
    """Words on the background colour of their level."""
    if level == 0:
        return words
    colour = (_FOR if level > 0 else _AGAINST)[abs(level) - 1]
    return f"\x1b[38;5;16;48;5;{colour}m{words}\x1b[0m"


def _terminal_legend(cut: Sequence[Stretch], shares: bool) -> list[str]:
    shades = levels(cut)
    if not any(shades):
        return []
    ramp = "".join(_on(level, "   ") for level in range(1, STEPS + 1))
    if min(shades) < 0:
        other = "".join(_on(-level, "   ") for level in range(STEPS, 0, -1))
        return [f"{_INDENT}evidence against {other} {ramp} evidence for", ""]
    return [f"{_INDENT}low {ramp} high attention" if shares else f"{_INDENT}weak {ramp} strong", ""]
