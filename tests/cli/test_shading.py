"""Shaded texts: every character once, weights where they belong, nothing that a terminal or a browser would obey."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from xmtc.cli.shading import shaded
from xmtc.cli.show import explanation
from xmtc.core.explanation import (
    AspectEvidence,
    Explanation,
    FeatureEvidence,
    GroupEvidence,
    Kind,
    MemberEvidence,
    NeighbourEvidence,
    PathStep,
    TokenEvidence,
)
from xmtc.views.explanation_page import MOST_ROWS, page
from xmtc.views.shading import levels, stretches
from xmtc.views.theme import DARK, LIGHT, Scheme

COLOUR = re.compile(r"\x1b\[38;5;16;48;5;(\d+)m(.*?)\x1b\[0m")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def told(text: str, *weights: tuple[str, float], label: str = "pans", path: tuple[PathStep, ...] = ()) -> Explanation:
    """An explanation whose evidence are the first places of words in the text."""
    evidence = [TokenEvidence(word, text.index(word), text.index(word) + len(word), weight) for word, weight in weights]
    return Explanation("tokens", text, label, 0.5, tuple(sorted(evidence, key=lambda item: -item.weight)), path=path)


def shaded_text(found: Explanation, width: int = 80) -> str:
    """The lines between the heading and the legend."""
    return shaded(found, width).split("\n\n")[1]


class Page(HTMLParser):
    """What a browser makes of a page: its text, marks with class and tip, rows, and the tags it met."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.title = ""
        self.marks: list[tuple[str, str, str]] = []  # (class, tip, words)
        self.rows: list[list[str]] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "meta":
            return
        self.open.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self.open]
        if "title" in tags:
            self.title += data
        if any(attributes.get("class") == "text" for _, attributes in self.open):
            self.text += data
            if tags[-1] == "mark":
                attributes = self.open[-1][1]
                self.marks.append((attributes.get("class") or "", attributes["title"] or "", data))
        if tags and tags[-1] in ("td", "th"):
            self.rows[-1][-1] += data


# ---- stretches


def test_overlapping_evidence_is_added_and_the_text_not_doubled() -> None:
    found = told("a cast iron pan", ("cast iron", 0.5), ("cast", 0.25), ("iron", -0.125))
    cut = stretches(found)
    assert [(found.text[each.start : each.end], each.weight) for each in cut] == [
        *(("a ", 0.0), ("cast", 0.75), (" ", 0.5), ("iron", 0.375), (" pan", 0.0))
    ]
    assert levels(cut) == [0, 5, 3, 3, 0]
    marks = Page(page(found)).marks
    assert [words for _, _, words in marks] == ["cast", " ", "iron"]
    assert marks[0][1] == "+0.7500 = cast +0.2500, cast iron +0.5000"
    assert marks[1][1] == "+0.5000"


def test_opposite_weights_at_one_place_leave_it_unshaded() -> None:
    found = told("cast iron", ("cast iron", 0.5), ("cast", -0.5), ("iron", 0.5))
    assert levels(stretches(found)) == [0, 3, 5]
    assert Page(page(found)).marks[0] == ("", "+0.0000 = cast -0.5000, cast iron +0.5000", "cast")


def test_levels_follow_weight_and_sign() -> None:
    words = {"a": 1.0, "b": 0.5, "c": 0.1, "d": 0.09, "e": -0.3, "f": -1.0}
    found = told("a b c d e f", *words.items())
    cut = stretches(found)
    shades = {found.text[each.start]: level for each, level in zip(cut, levels(cut), strict=True)}
    assert {word: shades[word] for word in words} == {"a": 5, "b": 3, "c": 1, "d": 0, "e": -2, "f": -5}


def test_spans_that_reach_beyond_the_text_are_cut() -> None:
    evidence = (TokenEvidence("?", -3, 2, 1.0), TokenEvidence("?", 3, 99, 2.0), TokenEvidence("?", 50, 60, 3.0))
    cut = stretches(Explanation("tokens", "abcde", "x", 0.1, evidence))
    assert [(each.start, each.end, each.weight) for each in cut] == [(0, 2, 1.0), (2, 3, 0.0), (3, 5, 2.0)]


@given(
    st.text(max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12), st.floats(-2, 2)), max_size=12),
)
def test_every_character_once_with_the_sum_of_what_covers_it(text: str, spans: list[tuple[int, int, float]]) -> None:
    evidence = tuple(TokenEvidence(text[start : start + size], start, start + size, w) for start, size, w in spans)
    found = Explanation("tokens", text, "x", 0.1, evidence)
    cut = stretches(found)
    assert "".join(text[each.start : each.end] for each in cut) == text
    for each in cut:
        for place in range(each.start, each.end):
            expected = sum(item.weight for item in evidence if item.start <= place < item.end)
            assert each.weight == pytest.approx(expected, abs=1e-9)
    seen = Page(page(found)).text
    assert len(seen) == (len(text.replace("\r\n", "\n")) if text.strip() else 0)
    shaded(found, 30)


# ---- in a terminal


def test_words_are_shaded_by_sign_and_strength() -> None:
    found = told("iron and wood and rust", ("iron", 1.0), ("wood", 0.4), ("rust", -0.4))
    (strong, first), (weak, second), (against, third) = COLOUR.findall(shaded_text(found))
    assert (first, second, third) == ("iron", "wood", "rust")
    assert len({strong, weak, against}) == 3
    legend = shaded(found).split("\n\n")[2]
    assert len(COLOUR.findall(legend)) == 10
    assert "evidence against" in legend


def test_attention_shares_have_no_side_against() -> None:
    found = replace(told("iron and wood", ("iron", 0.7), ("wood", 0.3)), shares=True)
    assert "speaks" not in shaded(found) + page(found)
    assert "low" in shaded(found).split("\n\n")[2]
    assert "attention: little" in Page(page(found)).text + page(found)
    assert "attention weights" in explanation(found)
    assert "attention weights" not in explanation(replace(found, shares=False))
    assert "against" not in shaded(found)
    assert "against" not in Page(page(found)).tags
    assert "evidence against" not in page(found)
    assert "evidence against" in page(told("iron and wood", ("iron", 0.7), ("wood", -0.3)))


def test_without_colours_the_shaded_view_still_holds_the_plain_one() -> None:
    found = told("iron and wood", ("iron", 0.7), ("wood", -0.3))
    plain = ESCAPE.sub("", shaded(found))
    assert "iron and wood" in plain
    heading, _, rest = explanation(found).partition("\n")
    assert plain.startswith(heading + "\n\n")
    assert plain.endswith("\n" + rest)


@pytest.mark.parametrize(
    "found", [told(""), told(" \n "), Explanation("groups", "a", "x", 0.5, (GroupEvidence("y", 1),))]
)
def test_nothing_to_shade_is_shown_as_ever(found: Explanation) -> None:
    assert shaded(found) == explanation(found)


@pytest.mark.parametrize("width", [40, 80, 300])
@pytest.mark.parametrize("filler", ["some words of no weight, ", "没有重量的字", "e\u0301tude "])
def test_a_long_text_is_cut_around_the_strongest_words(width: int, filler: str) -> None:
    text = f"{filler * 400}skillet {filler * 400}rusty {filler * 400}"
    found = told(text, ("skillet", 1.0), ("rusty", -0.6))
    lines = ESCAPE.sub("", shaded_text(found, width)).splitlines()
    assert 2 <= len(lines) <= 15
    assert max(map(cell_len, lines)) <= min(width, 100)
    told_text = " ".join(line.strip() for line in lines)
    assert "skillet" in told_text
    assert "rusty" in told_text
    assert told_text.startswith("…")
    assert told_text.endswith("…")
    assert told_text.count("…") == 3


def test_of_too_many_strong_words_the_strongest_stay() -> None:
    words = [f"word{number:04}" for number in range(2000)]
    found = told(" and so on ".join(words), *((word, 0.5) for word in words[:-1]), (words[-1], 1.0))
    lines = ESCAPE.sub("", shaded_text(found)).splitlines()
    assert len(lines) <= 15
    assert words[-1] in lines[-1]
    assert words[0] in lines[0]


def test_a_long_text_without_evidence_shows_its_beginning() -> None:
    lines = shaded_text(told("many words " * 500)).splitlines()
    assert lines[0].startswith("  many words many")
    assert lines[-1].endswith("…")
    assert len(lines) <= 15


def test_a_text_cannot_steer_the_terminal() -> None:
    text = "red \x1b[31m bell \x07 back\u202e soft\u00adhyphen line\nend iron"
    found = told(text, ("iron", 1.0))
    said = shaded_text(found)
    assert COLOUR.findall(said)[-1][1] == "iron"
    plain = COLOUR.sub(r"\2", said)
    assert all(char.isprintable() for char in plain.replace("\n", ""))
    assert "softhyphen line end iron" in plain


# ---- as a page


def test_a_page_escapes_everything() -> None:
    bad = "<script>alert('&\"')</script>"
    step = PathStep(1, 0.5, (bad,))
    found = told(f"x {bad} y", (bad, 1.0), label=bad, path=(step, step))
    seen = Page(page(found))
    assert "script" not in seen.tags
    assert seen.text == f"x {bad} y"
    assert bad in seen.title
    assert sum(bad in cell for row in seen.rows for cell in row) == 3


def test_a_page_needs_nothing_from_elsewhere() -> None:
    source = page(told("see http here", ("http", 1.0)))
    assert not re.search(r"(?:src|href|@import|url\()\s*=?", source.replace("style-src", "").replace("default-src", ""))
    assert "://" not in source
    assert "prefers-color-scheme:dark" in source


def test_offsets_count_characters_beyond_the_basic_plane() -> None:
    text = "🍳🍳 crème bru\u0302le\u0301e über 𝒜lpha"
    found = told(text, ("bru\u0302le\u0301e", 1.0), ("𝒜lpha", 0.5))
    assert [(look, words) for look, _, words in Page(page(found)).marks] == [
        *(("for5", "bru\u0302le\u0301e"), ("for3", "𝒜lpha"))
    ]
    assert [words for _, words in COLOUR.findall(shaded_text(found))] == ["bru\u0302le\u0301e", "𝒜lpha"]


def test_control_characters_are_replaced_and_lines_kept() -> None:
    seen = Page(page(told("a\x00b\x1b c\nd iron", ("iron", 1.0))))
    assert seen.text == "a\ufffdb\ufffd c\nd iron"


def test_the_strongest_words_come_first_whatever_their_sign() -> None:
    words = [f"w{number:02}" for number in range(30)]
    found = told(" ".join(words), *((word, (-1) ** at * (at + 1) / 30) for at, word in enumerate(words)))
    source = page(found)
    rows = Page(source).rows[1:]
    assert [row[2] for row in rows] == words[: -MOST_ROWS - 1 : -1]
    assert rows[0][0] == "-1.0000"
    assert f"… and {30 - MOST_ROWS} more" in source


@pytest.mark.parametrize(
    ("kind", "item", "cells"),
    [
        ("path", PathStep(2, 0.25, ("a", "b")), ["0.2500", "2", "a, b"]),
        (
            "neighbours",
            NeighbourEvidence("d7", "a <b>", 0.5, True, ("x",), 0.25),
            ["0.5000", "yes", "25.0 %", "d7", "a <b>", "x"],
        ),
        ("groups", GroupEvidence("near", 0.125, 0.5), ["+0.1250", "", "near", "50.0 %"]),
        ("members", MemberEvidence("knn", 0.75, 0.4), ["0.7500", "knn", "40 %"]),
    ],
)
def test_other_kinds_of_evidence_are_a_table(kind: Kind, item: object, cells: list[str]) -> None:
    seen = Page(page(Explanation(kind, "a text", "x", 0.5, (item,))))  # type: ignore[arg-type]
    assert seen.rows[1] == cells
    assert seen.text == "a text"


ASPECTS = Explanation(
    "groups",
    "two pans",
    "pans",
    0.75,
    (
        AspectEvidence(1, 2.0, 0.625),
        AspectEvidence(2, -0.5, 0.375),
        GroupEvidence("pots <i>", 0.25, 0.875),
        GroupEvidence("lids", 0.0, 0.125),
    ),
)


def test_aspects_and_related_labels_on_a_page() -> None:
    source = page(ASPECTS)
    seen = Page(source)
    assert seen.text == "two pans"
    assert seen.rows == [
        ["contribution", "", "aspect", "attention"],
        ["+2.0000", "", "1", "62.5 %"],
        ["-0.5000", "", "2", "37.5 %"],
        ["contribution", "", "label", "attention"],
        ["+0.2500", "", "pots <i>", "87.5 %"],
        ["+0.0000", "", "lids", "12.5 %"],
    ]
    assert source.index("Aspects of the text") < source.index("Related labels")
    bars = re.findall(r'<i class="(\w+)" style="width:([\d.]+)%">', source)  # one scale for both tables
    assert bars == [("for4", "100.0"), ("against4", "25.0"), ("for4", "12.5"), ("against4", "0.0")]
    alone = page(replace(ASPECTS, evidence=ASPECTS.evidence[:2]))
    assert "Aspects of the text" in alone
    assert "Related labels" not in alone


def test_aspects_and_related_labels_in_words() -> None:
    lines = explanation(ASPECTS).splitlines()
    assert lines == [
        "pans   score 0.7500",
        "  aspects of the text and their contributions to the score before the sigmoid:",
        "   +2.0000  aspect 1  (62.5 % of the attention)",
        "   -0.5000  aspect 2  (37.5 % of the attention)",
        "  related labels and their contributions to the score before the sigmoid:",
        "   +0.2500  pots <i>  (87.5 % of the attention)",
        "   +0.0000  lids  (12.5 % of the attention)",
    ]
    assert shaded(ASPECTS) == "\n".join(lines)
    assert explanation(ASPECTS, most=1).endswith("… and 3 more")


def test_aspects_and_related_labels_as_json() -> None:
    found = ASPECTS.to_json()
    assert found["kind"] == "groups"
    assert found["evidence"][1] == {"aspect": 2, "weight": -0.5, "attention": 0.375}
    assert found["evidence"][2] == {"label": "pots <i>", "weight": 0.25, "attention": 0.875}


FEATURES = (FeatureEvidence("similarity", 0.50625, 1.5), FeatureEvidence("match", 4.0, 0.375))
FEATURES += (FeatureEvidence("first <position>", None, -0.75),)


def test_features_of_a_match_in_words() -> None:
    found = replace(told("two pans", ("pans", 0.5)), features=FEATURES)
    lines = explanation(found).splitlines()
    assert lines[2:] == [
        "  features of the match (the same score before the sigmoid):",
        "   +1.5000  similarity        0.5062",
        "   +0.3750  match                  4",
        "   -0.7500  first <position>       –",
    ]
    assert shaded(found).endswith("\n".join(lines[2:]))
    unmatched = explanation(replace(found, evidence=())).splitlines()
    assert unmatched[1] == "  no word of this text matches a name of the label"
    assert unmatched[2:] == lines[2:]
    assert "features" not in explanation(ASPECTS)


def test_codes_in_words() -> None:
    found = replace(told("two pans"), features=(FeatureEvidence("match", 4.0, 0.375, "side by side: pan"),))
    assert explanation(found).endswith("  match  side by side: pan")
    assert Page(page(found)).rows[-1] == ["+0.3750", "", "match", "side by side: pan"]
    assert found.to_json()["features"][0]["value"] == 4.0


def test_features_of_a_match_on_a_page() -> None:
    found = replace(told("two pans", ("pans", 0.5)), features=FEATURES)
    source = page(found)
    assert Page(source).rows[2:] == [
        ["contribution", "", "feature", "value"],
        ["+1.5000", "", "similarity", "0.5062"],
        ["+0.3750", "", "match", "4"],
        ["-0.7500", "", "first <position>", "–"],
    ]
    bars = re.findall(r'<i class="(\w+)" style="width:([\d.]+)%">', source)
    assert bars[1:] == [("for4", "100.0"), ("for4", "25.0"), ("against4", "50.0")]
    assert "No word of the text matches" not in source
    assert "No word of the text matches" in page(replace(found, evidence=(), constant=-1.0))
    assert "Features of the match" not in page(ASPECTS)


def test_nothing_speaks_for_it() -> None:
    assert "This text contains no evidence for or against the label." in page(told("a text"))
    assert "The text is empty." in page(told(""))


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_words_stay_readable_on_every_shade(scheme: Scheme) -> None:
    ink, faint, paper = str(scheme["ink"]), str(scheme["faint"]), str(scheme["paper"])
    assert contrast(faint, paper) > 4.5
    for side in ("for", "against"):
        shades = scheme[side]
        assert all(contrast(ink, shade) > 4.5 for shade in shades)
        distances = [contrast(paper, shade) for shade in shades]
        assert distances == sorted(distances)  # the stronger, the further from the paper
