"""The page of a leaderboard: the order of its tables, the places of its points, and that it holds any text."""

from __future__ import annotations

import math
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.support.leaderboards import board, full_board, planned, tried
from xmtc.presets.leaderboard import Leaderboard, Moment
from xmtc.views.leaderboard_figures import (
    FINAL,
    LEFT,
    MEMBER,
    OTHER,
    RIGHT,
    TOP,
    BoardFigure,
    cost_figure,
    limit_box,
    text_width,
    time_figure,
)
from xmtc.views.leaderboard_page import leaderboard_page
from xmtc.views.scales import NameBox, even_values, log_values


class Page(HTMLParser):
    """Every element with its attributes, its text and the elements around it; fails on tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        element = {"tag": tag, "text": "", "around": [each["tag"] for each in self.open], **dict(attrs)}
        self.elements.append(element)
        if tag != "meta":
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element["text"] += data

    def all(self, tag: str, **attributes: str) -> list[dict[str, Any]]:
        wanted = attributes.items()
        return [each for each in self.elements if each["tag"] == tag and all(each.get(k) == v for k, v in wanted)]

    def table(self, number: int) -> list[list[str]]:
        """The cells of a table; settings below a name are after a '|'."""
        rows: list[list[str]] = []
        seen = -1
        for each in self.elements:
            if each["tag"] == "table":
                seen += 1
            elif seen == number and each["tag"] == "tr":
                rows.append([])
            elif seen == number and each["tag"] in ("th", "td"):
                rows[-1].append(each["text"].strip())
        return rows


def test_the_tables_are_in_order() -> None:
    page = Page(leaderboard_page(full_board()))
    assert [each["text"] for each in page.all("h1")] == ["Leaderboard of the preset good"]
    assert [each["text"] for each in page.all("h2")] == ["Final model", "Models tried", "Plan"]
    assert page.table(0) == [["setting", "value"], ["trees", "5"], ["gate.kind", "soft"]]
    models = page.table(1)
    assert models[0] == [
        *("model", "nDCG@5 (%)", "P@1 (%)", "P@5 (%)", "training", "ms per document", "size (MiB)", "role", "state")
    ]
    assert models[1:] == [
        ["consensus", "65.00", "–", "–", "–", "1.25", "56.6", "final model", "complete"],
        ["parabel", "60.00", "70.00", "30.00", "1 min", "1", "44", "member", "complete"],
        ["knn", "50.00", "70.00", "30.00", "–", "10", "–", "", "complete"],
        ["lexicalnames.most=3", "40.00", "65.00", "30.00", "–", "0.1", "–", "member", "complete"],
        ["late", "–", "–", "–", "–", "–", "–", "", "stopped: time limit"],
        ["broken", "–", "–", "–", "–", "–", "–", "", "failed: out of memory"],
    ]
    assert page.table(2) == [
        ["model", "planned", "why", "time", "memory (MiB)"],
        ["parabel", "yes", "why parabel", "30 s", "100"],
        ["knn", "yes", "why knn", "–", "100"],
        ["slow", "left out: would need 14 min of 10", "why slow", "30 s", "100"],
    ]
    assert [each["text"] for each in page.all("strong")] == [
        "consensus",
        "60.00",
        "70.00",
        "30.00",
        "70.00",
        *["30.00"] * 2,
    ]


def test_the_words_about_the_search_and_the_final_model() -> None:
    html = leaderboard_page(full_board())
    page = Page(html)
    words = [" ".join(each["text"].split()) for tag in ("p", "li") for each in page.all(tag)]
    assert words == [
        "12,000 documents, 3,000 labels, metric to optimise: nDCG@5",
        "consensus: nDCG@5 65.00 % on the validation documents, 1.25 ms per document, 56.6 MiB on disk.",
        "2 members: parabel (60.00), lexical (40.00). The final model is 5.00 points better than its best member.",
        "3-fold cross-validation.",
        "Time used: 4 min of 10 min. Seed: 0.",
        "Limits on the final model: 5 ms per document.",
    ]


def test_the_page_is_accessible_and_loads_nothing() -> None:
    page = Page(leaderboard_page(full_board()))
    assert page.all("script") == []
    assert not any("src" in each or "href" in each for each in page.elements)
    assert {each["scope"] for each in page.all("th")} == {"col", "row"}
    ids = {each["id"]: each for each in page.elements if "id" in each}
    assert len(ids) == sum("id" in each for each in page.elements)
    pictures = page.all("svg")
    assert len(pictures) == 2
    for each in pictures:
        assert each["role"] == "img"
        assert ids[each["aria-labelledby"]]["tag"] == "title"
        assert ids[each["aria-describedby"]]["tag"] == "desc"
        assert "parabel" in ids[each["aria-describedby"]]["text"]


# ---- the figures


def spots(figure: BoardFigure | None) -> dict[str, tuple[float, float, str]]:
    assert figure is not None
    return {mark.tip.partition(":")[0]: (mark.x, mark.y, mark.kind) for mark in figure.marks}


def heights(figure: BoardFigure | None) -> Callable[[float], float]:
    """The scale of the y axis, from its ticks."""
    assert figure is not None
    first, *_, last = [(float(tick.words), tick.at) for tick in figure.yticks]
    return lambda score: first[1] + (score - first[0]) * (last[1] - first[1]) / (last[0] - first[0])


def test_scores_over_time() -> None:
    """The axis ends at the limit of 10 minutes if that is near; here the search took 4, so at 4."""
    figure = time_figure(full_board())
    assert figure is not None
    height, found = heights(figure), spots(figure)
    across = {
        name: LEFT + minutes / 4 * (RIGHT - 8 - LEFT)
        for name, minutes in {"lexical": 1, "parabel": 2, "knn": 3, "consensus": 4}.items()
    }
    for name, score, kind in (
        ("lexical", 40, MEMBER),
        ("parabel", 60, MEMBER),
        ("knn", 50, OTHER),
        ("consensus", 65, FINAL),
    ):
        assert found[name][0] == pytest.approx(across[name])
        assert found[name][1] == pytest.approx(height(score))
        assert found[name][2] == kind
    corners = [tuple(map(float, each.split(","))) for each in figure.path.split()]
    low, high, end = height(40), height(60), across["consensus"]
    expected = [(across["lexical"], low), (across["parabel"], low), (across["parabel"], high)]
    expected += [(across["knn"], high)] * 2 + [(end, high)]
    assert [value for corner in corners for value in corner] == pytest.approx(
        [v for c in expected for v in c], abs=0.06
    )
    assert [tick.words for tick in figure.xticks] == ["0", "1", "2", "3", "4"]
    assert figure.xlabel == "time (minutes)"
    assert figure.limit is None
    assert {mark.tip for mark in figure.marks if mark.name is None} == {"knn: 50.00 after 3 min"}


def test_a_limit_that_is_near_is_drawn() -> None:
    figure = time_figure(board(curve=(Moment(300.0, 0.5, "a"),), seconds=480.0))
    assert figure is not None
    assert figure.limit is not None
    assert figure.limit.at == pytest.approx(RIGHT - 8)
    assert figure.limit.words == "limit 10 min"
    assert figure.marks[0].x == pytest.approx(LEFT + (RIGHT - 8 - LEFT) / 2)


def test_scores_against_prediction_time() -> None:
    found = full_board()
    figure = cost_figure(found)
    assert figure is not None
    height, placed = heights(figure), spots(figure)
    assert {name: kind for name, (_, _, kind) in placed.items()} == {
        "consensus": FINAL,
        "parabel": MEMBER,
        "lexical": MEMBER,
        "knn": OTHER,
    }
    for name, score in (("consensus", 65), ("parabel", 60), ("knn", 50), ("lexical", 40)):
        assert placed[name][1] == pytest.approx(height(score))
    assert placed["knn"][0] - placed["parabel"][0] == pytest.approx(placed["parabel"][0] - placed["lexical"][0])
    assert placed["parabel"][0] == pytest.approx((LEFT + RIGHT) / 2)  # the axis goes from 0.1 / 1.6 to 10 · 1.6
    ticks = {tick.words: tick.at for tick in figure.xticks}
    assert ticks["0.1"] == pytest.approx(placed["lexical"][0])
    assert ticks["10"] == pytest.approx(placed["knn"][0])
    assert figure.limit is not None
    assert figure.limit.words == "limit 5 ms"
    between = (placed["knn"][0] - placed["parabel"][0]) * math.log10(5)
    assert figure.limit.at == pytest.approx(placed["parabel"][0] + between)


def test_the_points_of_the_page_are_those_of_the_figures() -> None:
    found = full_board()
    page = Page(leaderboard_page(found))
    drawn = {(each["class"], each["cx"], each["cy"]) for each in page.all("circle")}
    for figure in (time_figure(found), cost_figure(found)):
        assert figure is not None
        for mark in figure.marks:
            if mark.kind == FINAL:
                start = f"M{mark.x:.1f} {mark.y - 7:.1f}l"
                assert any(each["d"].startswith(start) for each in page.all("path", **{"class": "final"}))
            else:
                assert (mark.kind, f"{mark.x:.1f}", f"{mark.y:.1f}") in drawn
    tips = [each["text"] for each in page.all("title") if each["around"][-1] in ("circle", "path")]
    assert sorted(tips) == sorted(
        mark.tip for each in (time_figure(found), cost_figure(found)) if each is not None for mark in each.marks
    )


def test_a_score_far_below_the_others_does_not_press_them_together() -> None:
    scores = {"a": 0.60, "b": 0.58, "c": 0.57, "poor": 0.05}
    figure = cost_figure(board(entries=tuple(tried(name, score, 1.0) for name, score in scores.items())))
    assert figure is not None
    assert figure.divider is not None
    placed = spots(figure)
    assert placed["c"][1] - placed["a"][1] > 100
    assert figure.divider < placed["poor"][1] < figure.bottom
    assert "poor ↓ 5.0" in {mark.name.words for mark in figure.marks if mark.name is not None}
    assert all(tick.at <= figure.divider for tick in figure.yticks)


def test_the_ticks_of_a_single_score_are_apart() -> None:
    figure = cost_figure(board(entries=(tried("a", 0.5, 0.2),)))
    assert figure is not None
    places = [tick.at for tick in figure.yticks]
    assert len(set(places)) == len(places) >= 3
    assert len(figure.xticks) >= 2
    assert heights(figure)(50) == pytest.approx(figure.marks[0].y)


def thirty() -> Leaderboard:
    models = [f"model number {number}" for number in range(30)]
    scores = [0.4 + 0.2 * (number * 7 % 30) / 30 for number in range(30)]
    return board(
        entries=tuple(
            tried(name, score, 0.05 * 1.2**at, member=at % 5 == 0)
            for at, (name, score) in enumerate(zip(models, scores, strict=True))
        ),
        curve=tuple(
            Moment(20.0 * at, score, name) for at, (name, score) in enumerate(zip(models, scores, strict=True))
        ),
        seconds=600.0,
        limits={"max_ms": 1.0},
    )


def test_names_of_thirty_models_overlap_nothing_and_stay_in_the_figure() -> None:
    for figure in (time_figure(thirty()), cost_figure(thirty())):
        assert figure is not None
        assert len(figure.marks) == 30
        boxes = []
        for mark in figure.marks:
            if mark.name is not None:
                wide = text_width(mark.name.words)
                left = mark.name.x - {"start": 0, "middle": wide / 2, "end": wide}[mark.name.anchor]
                boxes.append(NameBox(left, mark.name.y - 10, left + wide, mark.name.y + 3))
        assert len(boxes) + figure.hidden == (
            30 if figure.key == "cost" else sum(m.kind == MEMBER for m in figure.marks)
        )
        assert len(boxes) >= 3
        panel = NameBox(LEFT, TOP - 5, RIGHT + 0.01, figure.bottom)
        for at, box in enumerate(boxes):
            assert box.inside(panel)
            assert not any(box.meets(other) for other in boxes[:at])
            assert not any(box.x0 < mark.x < box.x1 and box.y0 < mark.y < box.y1 for mark in figure.marks)
            assert figure.limit is None or not box.meets(limit_box(figure.limit, figure.bottom))
    page = Page(leaderboard_page(thirty()))
    assert len(page.table(0)) == 31
    assert len(page.all("circle")) == 60 + 4  # with the legends


# ---- boards with less, and with odd texts


def test_an_empty_board() -> None:
    page = Page(leaderboard_page(board()))
    assert page.all("svg") == []
    assert page.all("table") == []
    words = [each["text"] for each in page.all("p")]
    assert words[1:] == ["Not trained yet.", "No model was tried.", "The preset has no plan."]
    assert "The search has not ended." in [each["text"] for each in page.all("strong")]


def test_a_board_on_which_every_model_failed() -> None:
    entries = tuple(tried(name, None, state="failed", note="diverged") for name in "ab")
    page = Page(leaderboard_page(board(entries=entries, curve=(Moment(1.0, math.nan, "a"),), complete=True)))
    assert page.all("svg") == []
    assert [row[0] for row in page.table(0)] == ["model", "a", "b"]
    assert [row[-1] for row in page.table(0)] == ["state", *["failed: diverged"] * 2]
    assert "No model could be trained." in [each["text"] for each in page.all("p")]


def test_a_single_model_that_is_the_final_one_is_listed_once() -> None:
    one = tried("parabel", 0.5, 0.2, member=True)
    page = Page(leaderboard_page(board(entries=(one,), curve=(Moment(3.0, 0.5, "parabel"),), final=one, seconds=3.4)))
    assert [row[0] for row in page.table(0)] == ["model", "parabel"]
    assert page.table(0)[1][-2] == "final model"
    assert "All its settings have their defaults." in [each["text"] for each in page.all("p")]
    assert not any("member" in each["text"] for each in page.all("p"))
    figure = time_figure(board(entries=(one,), curve=(Moment(3.0, 0.5, "parabel"),), final=one))
    assert figure is not None
    assert [mark.kind for mark in figure.marks] == [FINAL]


def test_a_board_without_prediction_times_has_one_figure() -> None:
    entries = (tried("a", 0.5), tried("b", 0.4, 0.0), tried("c", 0.3, math.nan))
    page = Page(leaderboard_page(board(entries=entries, curve=(Moment(0.0, 0.5, "a"),))))
    assert len(page.all("svg")) == 1


def test_any_text_is_escaped() -> None:
    evil = "<script>alert(1)</script>&\"'\x00\ud800"
    one = tried(evil, 0.5, 1.0, model=evil, settings={evil: evil}, note=evil, metrics={evil: 0.5}, member=True)
    found = board(
        preset=evil,
        metric=evil,
        validation=evil,
        plan=(planned(evil, evil, reason=evil, settings={evil: [evil]}),),
        entries=(one,),
        curve=(Moment(1.0, 0.5, evil),),
        final=tried("final " + evil, 0.6, 2.0, settings={evil: {evil: evil}}, note=evil),
        seconds=2.0,
    )
    html = leaderboard_page(found)
    html.encode()
    assert "<script" not in html
    assert "\x00" not in html
    page = Page(html)
    assert page.all("script") == []
    assert any("<script>alert(1)</script>&\"'" in each["text"] for each in page.all("th"))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 4, [0, 1, 2, 3, 4]), (41.2, 58.9, [45, 50, 55]), (0.1, 0.35, [0.1, 0.15, 0.2, 0.25, 0.3, 0.35]), (3, 3, [3])],
)
def test_even_values(low: float, high: float, expected: list[float]) -> None:
    assert even_values(low, high, 6) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.5, 20, [0.5, 1, 2, 5, 10, 20]), (0.002, 5, [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3]), (1e-9, 1e9, None)],
)
def test_log_values(low: float, high: float, expected: list[float] | None) -> None:
    found = log_values(low, high, 7)
    assert len(found) <= 7
    assert found == sorted(found)
    assert expected is None or found == expected


def test_costs_and_limits_of_any_size_are_drawn() -> None:
    entries = (tried("fast", 0.5, 1e-300), tried("slow", 0.4, 1e300), tried("usual", 0.4, 1.0))
    found = board(entries=entries, limits={"max_ms": math.nan, "max_mb": math.inf}, minutes=0.0)
    figure = cost_figure(found)
    assert figure is not None
    assert figure.limit is None
    places = spots(figure)
    assert LEFT <= places["fast"][0] < places["usual"][0] < places["slow"][0] <= RIGHT
    assert "Limits on the final model" not in leaderboard_page(found)
