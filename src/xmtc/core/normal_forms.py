"""Unicode normalisation in linear time."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

LONG = 256
"""Characters from which a text may have too many combining marks in a row."""
_END = 0x20000  # no later character is a combining mark or contains one

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


def normalise(form: Form, text: str) -> str:
    """Return a normal form of the text.

    Python orders n combining marks in a row in n² steps (a million of them in minutes), hence those of long texts are
    ordered beforehand.
    """
    return unicodedata.normalize(form, text if len(text) < LONG or text.isascii() else with_ordered_marks(text))


def with_ordered_marks(text: str) -> str:
    """Decompose characters that contain combining marks, and order the marks that follow each other canonically."""
    codes = np.frombuffer(text.translate(_decompositions()).encode("utf-32-le"), dtype=np.uint32)
    classes = _combining_classes()[np.minimum(codes, _END)]
    order = np.lexsort((classes, np.cumsum(classes == 0)))  # stable; class 0 starts a new group
    return str(codes[order].tobytes(), "utf-32-le")


@cache
def _decompositions() -> dict[int, str]:
    found = (
        (code, unicodedata.normalize("NFD", chr(code))) for code in range(0x80, _END) if not 0xD7FF < code < 0xE000
    )
    return {code: text for code, text in found if any(map(unicodedata.combining, text))}


@cache
def _combining_classes() -> NDArray[np.uint8]:
    return np.array([unicodedata.combining(chr(code)) for code in range(_END + 1)], dtype=np.uint8)
