"""The page of a leaderboard in a real browser: on a phone and on a desk, light and dark, without scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.leaderboards import full_board
from xmtc.views.leaderboard_page import leaderboard_page

pytestmark = pytest.mark.long

CONTRASTS = """() => {
    const light = colour => {
        const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(value => value / 255)
            .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (one, other) => {
        const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const paper = getComputedStyle(document.body).backgroundColor;
    const of = (selector, what) => [...document.querySelectorAll(selector)]
        .map(each => contrast(getComputedStyle(each)[what], paper));
    return {
        text: Math.min(...of('svg text', 'fill'), ...of('h1,h2,p,li,th,td,caption,.settings,figcaption', 'color')),
        marks: Math.min(...of('svg .member,svg .final', 'fill'), ...of('svg .other,svg .step', 'stroke')),
        paper: light(paper),
    };
}"""
LETTERS = """() => Math.min(...[...document.querySelectorAll('svg text')].map(text =>
    parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)))"""
OUTSIDE = """() => [...document.querySelectorAll('svg text, svg circle, svg path')].filter(each => {
    const box = each.getBoundingClientRect(), whole = each.ownerSVGElement.getBoundingClientRect();
    return box.left < whole.left - 0.5 || box.right > whole.right + 0.5 || box.bottom > whole.bottom + 0.5;
}).length"""
LABELS_MEET = """() => {
    const boxes = [...document.querySelectorAll('svg')].map(picture =>
        [...picture.querySelectorAll('text')].map(each => each.getBoundingClientRect()));
    return boxes.flatMap(all => all.flatMap((one, at) => all.slice(at + 1).filter(other =>
        one.left < other.right && other.left < one.right && one.top + 2 < other.bottom && other.top + 2 < one.bottom
    ))).length;
}"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("leaderboard") / "leaderboard.html"
    path.write_text(leaderboard_page(full_board()))
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1280])
def test_everything_is_seen_and_nothing_is_fetched(browser: Any, written: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(written.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("svg").count() == 2
    assert page.evaluate(LETTERS) >= 9  # pixels
    assert page.evaluate(OUTSIDE) == 0
    assert page.evaluate(LABELS_MEET) == 0
    contrasts = page.evaluate(CONTRASTS)
    assert contrasts["text"] >= 4.5
    assert contrasts["marks"] >= 3
    assert (contrasts["paper"] > 0.5) == (scheme == "light")
    page.wait_for_load_state("networkidle")
    assert requests == [written.as_uri()]
    assert problems == []
    context.close()


def test_it_is_all_there_without_scripts(browser: Any, written: Path) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(written.as_uri())
    assert page.locator("circle.member").first.is_visible()
    assert page.locator("table").count() == 3
    context.close()
