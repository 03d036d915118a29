"""Write src/xmtc/text/unicode_classes.txt from this Python's Unicode tables; run it with Python 3.13."""

from __future__ import annotations

import argparse
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src" / "xmtc" / "text" / "unicode_classes.txt"


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
            lines.append(line.rstrip())
            line = ""
        line += number + " "
    return "\n".join([*lines, line.rstrip()])


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    word = ranges(lambda c: c.isalnum() or c == "_")
    mark = ranges(lambda c: unicodedata.category(c).startswith("M") and not c.isalnum())
    TARGET.write_text(
        f"# Unicode {unicodedata.unidata_version}, made by tools/make_unicode_classes.py\n"
        f"word\n{packed(word)}\nmark\n{packed(mark)}\n"
    )
