"""Normal forms are those of Python, also of texts for which Python takes minutes."""

from __future__ import annotations

import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmtc.core.normal_forms import LONG, normalise, with_ordered_marks

# marks of several classes, marks and vowels that decompose into marks, letters with and without marks, jamo
CHARACTERS = (
    "\u0301\u0316\u0334\u05b0\u05bc\u0345\u0327\u302a\u0344\u0f73\u0f75\u0f81\U0001d165eéǘÅ\u212b\u1100\u1161\u11a8각aΣ"
)
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@given(st.text(st.sampled_from(CHARACTERS) | st.characters(exclude_categories=["Cs"]), max_size=60))
def test_order_of_marks_changes_no_normal_form(text: str) -> None:
    for form in FORMS:
        expected = unicodedata.normalize(form, text)
        assert unicodedata.normalize(form, with_ordered_marks(text)) == expected
        assert normalise(form, "x" * LONG + text) == unicodedata.normalize(form, "x" * LONG + text)


def test_no_later_character_has_a_combining_class() -> None:
    later = map(chr, range(0x20000, sys.maxunicode + 1))
    assert not any(any(map(unicodedata.combining, unicodedata.normalize("NFKD", character))) for character in later)


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0f73", "\u0344\u0316", "\U0001d165\U0001d16e\u0301"])
def test_many_marks_take_a_moment(marks: str) -> None:
    """Python takes half a minute for each of these."""
    mixed = marks * (200_000 // len(marks))
    for text in ("e" + mixed, "e" + "".join(sorted(mixed, key=unicodedata.combining, reverse=True))):
        started = time.thread_time()
        for form in ("NFC", "NFKD"):
            normalise(form, text)
        assert time.thread_time() - started < 4
