"""The map of labels in a real browser, as wide as a phone and as a desk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xmtc.labels.label_map import REGIONS, LabelMap
from xmtc.labels.layout import layout, nearest, regions
from xmtc.views.label_map import page
from xmtc.views.theme import DARK, LIGHT

pytestmark = pytest.mark.long
BAD = "<script>alert(1)</script>"
LABELS = 420
COLOURS = """() => {
    const map = document.getElementById("map"), found = new Set();
    const pixels = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
    for (let i = 0; i < pixels.length; i += 4) found.add(`${pixels[i]},${pixels[i + 1]},${pixels[i + 2]}`);
    return found.size;
}"""


@pytest.fixture(scope="module")
def map_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six planted groups of labels, named 'group number'; one has a name that is markup, and one has no vector."""
    random = np.random.default_rng(0)
    members = np.arange(LABELS) % 6
    vectors = (random.normal(size=(6, 30))[members] + 0.5 * random.normal(size=(LABELS, 30))).astype(np.float32)
    vectors[LABELS - 1] = 0
    groups = ["fruit", "metal", "weather", "law", "music", "Käse"]
    names = [f"{groups[member]} {number}" for number, member in enumerate(members)]
    names[7], names[8], names[9] = BAD, "x" * 500, "\u202e\u2028 & 'quoted\" \x07"
    documents = np.maximum(5000 // np.arange(1, LABELS + 1), 1)
    near = nearest(vectors, 15)
    places = layout(vectors, near=near)
    found = np.append(regions(places[:-1], REGIONS), -1)
    keys = [f"k{number:03d}" for number in range(LABELS)]
    shown = LabelMap(
        *("Labels of <i>planted</i>", "dxml", names, keys, documents),
        *(places, found, near[0][:, :5], near[1][:, :5]),
    )
    written = tmp_path_factory.mktemp("map") / "map.html"
    written.write_text(page(shown), encoding="utf-8")
    return written


@pytest.fixture
def opened(browser: Any, map_file: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page, as wide as asked for; at the end it must have said nothing and fetched nothing."""
    options = {"viewport": {"width": 1280, "height": 844}, "reduced_motion": "reduce", **getattr(request, "param", {})}
    context = browser.new_context(**options)
    tab = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    tab.on("request", lambda asking: asked.append(asking.url))
    tab.goto(map_file.as_uri(), wait_until="load")
    tab.wait_for_selector("#view li")
    yield tab
    tab.wait_for_load_state("networkidle")
    assert said == []
    assert asked == [map_file.as_uri()]
    context.close()


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
DESK: dict[str, Any] = {}


def in_view(tab: Any) -> int:
    tab.wait_for_timeout(250)  # lists follow when the map stands still
    return int(tab.inner_text("#view-count").split()[0].replace(",", ""))


@pytest.mark.parametrize("opened", [PHONE, DESK], indirect=True)
def test_everything_fits_and_something_is_drawn(opened: Any) -> None:
    wide = opened.viewport_size["width"]
    assert opened.evaluate("document.documentElement.scrollWidth") <= wide
    assert opened.inner_text("h1") == "Labels of <i>planted</i>"
    assert "420 labels of a dxml model" in opened.inner_text("header")
    box = opened.locator("#map").bounding_box()
    assert box["width"] > 300
    assert box["height"] > 300
    assert opened.evaluate(COLOURS) > 20
    assert in_view(opened) == LABELS
    assert opened.locator("#regions button").count() == REGIONS + 1
    opened.locator("#view button").first.click()  # a long name must not widen the page either
    opened.fill("#search", "xxxx")
    opened.press("#search", "Enter")
    assert opened.inner_text("#about-name").startswith("xxxx")
    assert opened.evaluate("document.documentElement.scrollWidth") <= wide


def test_searching_flies_to_a_label_and_shows_its_neighbours(opened: Any) -> None:
    before = opened.locator("#map").screenshot()
    opened.keyboard.press("/")
    opened.keyboard.type("metal 1")
    options = opened.locator("#suggestions li")
    assert options.count() == 12
    assert all("metal 1" in words for words in options.all_inner_texts())
    opened.keyboard.press("ArrowDown")
    assert opened.get_attribute("#search", "aria-activedescendant") == "option-1"
    wanted = options.nth(1).locator(".name").inner_text()
    opened.keyboard.press("Enter")
    assert opened.inner_text("#about-name") == wanted
    assert opened.inner_text("#about-facts").startswith("Key k")
    near = opened.locator("#about-near .name").all_inner_texts()
    assert len(near) == 5
    assert sum(name.startswith("metal") for name in near) >= 4
    assert in_view(opened) < 200
    assert opened.locator("#map").screenshot() != before
    opened.locator("#about-near button").first.click()
    assert opened.inner_text("#about-name") == near[0]


def test_names_are_found_without_accents_and_by_key(opened: Any) -> None:
    opened.fill("#search", "kase 5")
    assert opened.locator("#suggestions .name").first.inner_text() == "Käse 5"
    opened.fill("#search", "k041")
    assert opened.locator("#suggestions .name").all_inner_texts() == ["Käse 41"]
    opened.fill("#search", "no such label")
    assert opened.inner_text("#found") == "No label matches"
    opened.press("#search", "Escape")
    assert opened.input_value("#search") == ""


def test_markup_in_a_name_is_text(opened: Any) -> None:
    opened.fill("#search", "alert")
    opened.press("#search", "Enter")
    assert opened.inner_text("#about-name") == BAD
    assert opened.locator("#rest script").count() == 0
    opened.fill("#search", "quoted")
    opened.press("#search", "Enter")
    assert "& 'quoted\" \ufffd" in opened.inner_text("#about-name")


@pytest.mark.parametrize("way", ["wheel", "keys", "buttons"])
def test_zooming_changes_what_is_drawn(opened: Any, way: str) -> None:
    canvas = opened.locator("#map")
    before, all_labels = canvas.screenshot(), in_view(opened)
    box = canvas.bounding_box()
    opened.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 3)
    canvas.focus()
    for _ in range(4):
        if way == "wheel":
            opened.mouse.wheel(0, -240)
        elif way == "keys":
            opened.keyboard.press("+")
        else:
            opened.click("#closer")
    closer = in_view(opened)
    assert closer < all_labels
    assert canvas.screenshot() != before
    listed = opened.locator("#view .name").all_inner_texts()
    opened.keyboard.press("0") if way != "buttons" else opened.click("#everything")
    assert in_view(opened) == all_labels
    assert opened.locator("#view .name").all_inner_texts() != listed


def test_dragging_and_arrows_move_the_map(opened: Any) -> None:
    box = opened.locator("#map").bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    opened.mouse.move(*middle)
    opened.mouse.down()
    opened.mouse.move(middle[0] + 350, middle[1], steps=5)
    opened.mouse.up()
    moved = in_view(opened)
    assert moved < LABELS
    assert opened.locator("#about").is_hidden()  # a drag chooses nothing
    for _ in range(3):
        opened.locator("#map").press("ArrowRight")
    assert in_view(opened) > moved


def test_pointing_tells_of_a_label(opened: Any) -> None:
    opened.fill("#search", "fruit 0")
    opened.press("#search", "Enter")
    box = opened.locator("#map").bounding_box()
    opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    told = opened.locator("#tip").inner_text()
    assert told.startswith("fruit 0\n")
    assert "Key k000" in told
    assert "5,000 training documents" in told
    assert opened.locator("#tip li").count() == 5
    opened.mouse.move(box["x"] + 2, box["y"] + 2)
    assert opened.locator("#tip").is_hidden()


@pytest.mark.parametrize("opened", [PHONE], indirect=True)
def test_a_tap_chooses_a_label_and_two_fingers_zoom(opened: Any) -> None:
    opened.fill("#search", "law 3")
    opened.press("#search", "Enter")
    box = opened.locator("#map").bounding_box()
    across, down = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    opened.touchscreen.tap(across, down)
    assert opened.locator("#tip").inner_text().startswith(opened.inner_text("#about-name"))
    opened.click("#everything")
    everything = in_view(opened)
    hands = opened.context.new_cdp_session(opened)

    def touch(kind: str, *apart: float) -> None:
        points = [{"x": across + side * gap, "y": down, "id": at} for gap in apart for at, side in enumerate((-1, 1))]
        hands.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 20)
    for gap in (40, 80, 120):
        touch("touchMove", gap)
    touch("touchEnd")
    assert in_view(opened) < everything


def test_a_region_can_be_seen_alone(opened: Any) -> None:
    button = opened.locator("#regions button").first
    size = int(button.locator(".note").inner_text())
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert in_view(opened) == size
    button.click()
    assert in_view(opened) == LABELS


def test_a_label_without_a_vector_says_so(opened: Any) -> None:
    opened.fill("#search", f"Käse {LABELS - 1}")
    opened.press("#search", "Enter")
    assert opened.inner_text("#about-head") == "The model has no vector for this label"
    assert opened.locator("#about-near li").count() == 0


def test_more_labels_are_listed_when_asked(opened: Any) -> None:
    assert opened.locator("#view li").count() == 20
    opened.wait_for_timeout(500)  # the first layout of the map lists the labels once more
    opened.click("#more")
    assert opened.locator("#view li").count() == 120
    focused = "document.activeElement.closest('li') === document.querySelectorAll('#view li')[20]"
    assert opened.evaluate(focused)
    while opened.locator("#more").is_visible():
        opened.click("#more")
    assert opened.locator("#view li").count() == LABELS


@pytest.mark.parametrize("opened", [{"color_scheme": "dark"}, {"color_scheme": "light"}], indirect=True)
def test_colours_follow_the_system(opened: Any) -> None:
    dark = opened.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    first = opened.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--region-0')").strip()
    assert first == (DARK if dark else LIGHT)["region"][0]
    corner = "[...document.getElementById('map').getContext('2d').getImageData(1, 1, 1, 1).data]"
    opened.emulate_media(color_scheme="light" if dark else "dark")
    opened.wait_for_timeout(200)
    assert (sum(opened.evaluate(corner)[:3]) < 150) != dark  # the canvas was drawn anew


@pytest.mark.parametrize("opened", [{"reduced_motion": "no-preference"}], indirect=True)
def test_a_flight_ends_at_the_label(opened: Any) -> None:
    opened.fill("#search", "fruit 0")
    opened.press("#search", "Enter")
    opened.wait_for_timeout(1500)
    assert in_view(opened) < 200
    box = opened.locator("#map").bounding_box()
    opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert opened.locator("#tip strong").inner_text() == "fruit 0"


def test_without_scripts_it_says_why_there_is_no_map(browser: Any, map_file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(map_file.as_uri())
    assert tab.locator("noscript").is_visible()
    context.close()
