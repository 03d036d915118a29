"""The page of `xmtc report` in a real browser, as wide as a phone and as a desk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.bench_folders import realistic
from tests.support.command_line import call

pytestmark = pytest.mark.long

SIZES = """() => [...document.querySelectorAll('svg')].map(picture => {
    const box = picture.getBoundingClientRect();
    return [box.left, box.right, box.width, box.height];
})"""
LETTERS = """() => Math.min(...[...document.querySelectorAll('svg text')].map(text =>
    parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)))"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    call("report", realistic(folder / "bench"), "--out", folder / "report.html")
    return folder / "report.html"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("unfolded", [False, True])
def test_everything_is_seen_and_nothing_is_fetched(browser: Any, report: Path, width: int, unfolded: bool) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844})
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri(), wait_until="load")
    if unfolded:
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sizes = page.evaluate(SIZES)
    assert len(sizes) == 24
    for left, right, wide, high in sizes:
        assert left >= 0
        assert right <= width
        assert wide >= 250
        assert high >= 150
    assert page.evaluate(LETTERS) >= 8.5  # pixels
    for link in page.query_selector_all("nav a"):
        assert page.query_selector(link.get_attribute("href")) is not None
    page.wait_for_load_state("networkidle")
    assert asked == [report.as_uri()]
    assert said == []
    page.close()


def test_a_wide_table_moves_in_its_own_box(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(report.as_uri())
    box = page.query_selector(".box:has(tr.published)")
    assert box.evaluate("each => each.scrollWidth > each.clientWidth")
    box.evaluate("each => each.scrollLeft = 200")
    name = box.query_selector("tbody th").bounding_box()
    assert name["x"] == pytest.approx(box.bounding_box()["x"], abs=1)  # the model stays in sight
    page.close()


def test_it_is_all_there_without_scripts(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1280, "height": 844})
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("svg").count() == 24
    page.locator("summary").first.click()
    assert page.locator("details").first.locator("table").first.is_visible()
    context.close()
