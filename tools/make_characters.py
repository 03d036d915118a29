"""Write src/xmtc/text/characters.py from this Python's Unicode tables: python3.13 tools/make_characters.py"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src" / "xmtc" / "text" / "characters.py"


def ranges(belongs: Callable[[str], bool]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for code in range(sys.maxunicode + 1):
        if belongs(chr(code)):
            if found and found[-1][1] == code:
                found[-1] = (found[-1][0], code + 1)
            else:
                found.append((code, code + 1))
    return found


def packed(pairs: list[tuple[int, int]]) -> str:
    """Gaps and lengths in turn, in base 36: 'gap length gap length …'."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"

    def base36(number: int) -> str:
        text = ""
        while True:
            number, digit = divmod(number, 36)
            text = digits[digit] + text
            if not number:
                return text

    numbers, end = [], 0
    for start, stop in pairs:
        numbers += [base36(start - end), base36(stop - start)]
        end = stop
    lines, line = [], ""
    for number in numbers:
        if len(line) + len(number) > 100:
            lines.append(line)
            line = ""
        line += number + " "
    return "\n".join(f'    "{text}"' for text in [*lines, line.rstrip()])


word = ranges(lambda c: c.isalnum() or c == "_")
mark = ranges(lambda c: unicodedata.category(c).startswith("M") and not c.isalnum())
TARGET.write_text(
    f'''"""Which characters make words: Unicode {unicodedata.unidata_version}, fixed so that every Python splits alike.

Made by tools/make_characters.py: runs of code points as 'gap length gap length …' in base 36.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SEPARATOR, WORD, MARK = 0, 1, 2

_WORD = (
{packed(word)}
)
_MARK = (
{packed(mark)}
)


def character_classes() -> NDArray[np.uint8]:
    """The class of each code point: WORD starts and continues a token, MARK only continues one."""
    classes = np.zeros(0x110000, dtype=np.uint8)
    for runs, kind in ((_WORD, WORD), (_MARK, MARK)):
        numbers = np.array([int(number, 36) for number in runs.split()])
        edges = np.cumsum(numbers)  # start, stop, start, stop, …
        for start, stop in edges.reshape(-1, 2).tolist():
            classes[start:stop] = kind
    return classes
'''
)
