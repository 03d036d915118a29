"""The page of the tagging service in a real browser: at a desk and on a phone, by hand and from the keyboard alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import Service, labels_of, serving
from xmtc.cli.shading import levels, stretches
from xmtc.core.explanation import (
    AspectEvidence,
    Explanation,
    FeatureEvidence,
    GroupEvidence,
    MemberEvidence,
    PathStep,
    TokenEvidence,
)
from xmtc.data.dataset import as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.models.base import Model
from xmtc.models.knn import Knn
from xmtc.models.parabel import Parabel
from xmtc.models.popularity import Popularity
from xmtc.views.theme import DARK, LIGHT
from xmtc.workflows.feedback import Feedback, feedback_path

pytestmark = pytest.mark.long
BAD = "<img src=x onerror=alert(1)>"
LONG = "Donaudampfschifffahrtsgesellschaft" * 5
WORDS = {
    "cereals": "wheat barley rye",
    "cheese": "gouda cheddar brie",
    "railways": "train rails locomotive",
    "weather": "storm rain wind",
    "banks": "loan credit deposit",
    "music": "violin cello oboe",
    "fish": "salmon herring cod",
    "courts": "judge verdict appeal",
    "été": "soleil plage chaleur",
    "metals": "copper iron tin",
    BAD: "glass window pane",
    LONG: "river steamer captain",
}
FILLER = ["the", "of", "and", "a", "in", "for", "with", "on", "at", "by", "from", "their", "many", "some", "other"]
TEXT = "The wheat and the barley came by train. A judge heard of it in the rain."
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def documents(count: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Texts of two labels each: two words of either among words that mean nothing."""
    chance = random.Random(seed)
    texts, labels = [], []
    for _ in range(count):
        held = chance.sample(list(WORDS), 2)
        words = [word for label in held for word in chance.sample(WORDS[label].split(), 2)]
        words += chance.choices(FILLER, k=12)
        chance.shuffle(words)
        texts.append(" ".join(words))
        labels.append(held)
    return texts, labels


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Model]]:
    folder = tmp_path_factory.mktemp("models")
    texts, labels = documents(600, 1)
    made: dict[str, Model] = {
        "words": Parabel(trees=1).fit(texts, labels),
        "neighbours": Knn().fit(texts, labels),
        "fitted": Parabel(trees=1).fit(texts, labels).calibrate(*documents(200, 2)),
        "popular": Popularity().fit(texts, labels),
    }
    for name, model in made.items():
        model.save(folder / name)
    return {name: (folder / name, model) for name, model in made.items()}


@pytest.fixture(scope="module")
def service(models: dict[str, tuple[Path, Model]]) -> Iterator[Service]:
    with serving(*(folder for folder, _ in models.values())) as started:
        yield started


class Watched:
    """A tab, what it said, and what it asked for."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self.tab = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.refused: list[int] = []  # statuses that a test brings about
        self.url = url
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.tab.on("request", lambda asking: self.asked.append(asking.url))
        self.tab.on("requestfailed", lambda asking: self.said.append(f"failed: {asking.url}"))
        self.tab.goto(url)

    def close(self) -> None:
        """Nothing was said but of what the test refused, and nobody else was asked anything."""
        self.tab.wait_for_timeout(50)
        unexpected = [
            words for words in self.said if not any(f"status of {number} " in words for number in self.refused)
        ]
        assert unexpected == []
        assert [url for url in self.asked if not url.startswith((self.url, "blob:" + self.url))] == []
        self.context.close()


@pytest.fixture
def watched(browser: Any, service: Service, request: pytest.FixtureRequest) -> Iterator[Watched]:
    opened = Watched(browser, service.url, **getattr(request, "param", {}))
    until(opened.tab, "document.getElementById('first').options.length > 0")
    yield opened
    opened.close()


@pytest.fixture
def tab(watched: Watched) -> Any:
    return watched.tab


def until(tab: Any, expression: str, arg: Any = None) -> None:
    """Wait for an expression, or a function of `arg`, to be true; playwright's own wait is against the page's rules."""
    end = time.monotonic() + 10
    while not tab.evaluate(expression, arg):
        assert time.monotonic() < end, expression
        tab.wait_for_timeout(20)


def tag(tab: Any, text: str = TEXT) -> None:
    tab.fill("#text", text)
    tab.click("#tag")
    until(tab, "document.querySelector('.row') && document.querySelector('#stale').hidden")


def names(tab: Any, place: str = ".ranking") -> list[str]:
    return list(tab.locator(f"{place} .row .name").all_inner_texts())


def row(tab: Any, name: str, place: str = "#rankings") -> Any:
    return tab.locator(f"{place} .row").filter(has=tab.get_by_text(name, exact=True)).first


def explain(tab: Any, name: str, place: str = "#rankings") -> None:
    row(tab, name, place).locator(".label").click()
    until(tab, f"document.getElementById('why-name').textContent === {json.dumps(name)}")
    tab.wait_for_selector("#why:not([aria-busy]) #why-body > *")


def says(tab: Any, words: str) -> None:
    until(tab, "words => document.getElementById('said').textContent === words", arg=words)


def focused(tab: Any) -> str:
    """The label whose row has the focus."""
    return str(tab.evaluate("document.activeElement.closest('.row')?.querySelector('.name').textContent ?? ''"))


def marked(tab: Any) -> list[tuple[str, str]]:
    """Shaded words and the names of their shades."""
    script = "marks => marks.filter(mark => mark.className).map(mark => [mark.textContent, mark.className])"
    return [tuple(pair) for pair in tab.eval_on_selector_all(".shaded mark", script)]


def exported(folder: Path) -> list[dict[str, Any]]:
    """What `xmtc feedback export` says of a model."""
    command = [sys.executable, "-m", "xmtc", "feedback", "export", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def shown_score(score: float) -> str:
    return f"{score:.4f}"


def test_tagging_shows_a_ranking_and_what_carried_a_label(tab: Any, models: dict[str, tuple[Path, Model]]) -> None:
    assert tab.locator("#invitation").is_visible()
    tag(tab)
    expected = labels_of(models["words"][1], [TEXT], 10)[0]
    assert names(tab) == [label["name"] for label in expected]
    assert tab.locator(".ranking .figure").all_inner_texts() == [shown_score(label["score"]) for label in expected]
    assert "not probabilities" in tab.inner_text(".ranking")
    assert tab.locator("#invitation").is_hidden()
    explain(tab, "cereals")
    assert tab.locator("#editor").is_hidden()
    assert tab.text_content(".shaded") == TEXT
    shades = dict(marked(tab))
    assert {word for word, shade in shades.items() if shade in ("for4", "for5")} == {"wheat", "barley"}
    assert "evidence for the label" in tab.inner_text(".legend")
    told = models["words"][1].explain(TEXT, "cereals")
    rows = tab.locator("#why-body tbody tr").all_inner_texts()
    assert "intercept" in rows[0]
    assert f"{told.constant:+.4f}".replace("-", "−") in rows[0]
    assert "wheat" in rows[1] + rows[2]
    tab.click("#why-close")
    assert tab.locator("#editor").is_visible()
    assert focused(tab) == "cereals"


def test_shades_count_characters_as_the_service_does(tab: Any) -> None:
    text = "👩\u200d🌾 🇫🇷 e\u0301te\u0301 𝒳𝒴 wheat\nsoleil, cafe\u0301\u0327 «barley» 👍🏽rye\u0301 ok"
    tag(tab, text)
    explain(tab, "cereals")
    assert tab.text_content(".shaded") == text
    assert [word for word, shade in marked(tab) if shade in ("for4", "for5")] == ["wheat", "barley"]
    tab.keyboard.press("Escape")
    explain(tab, "été")
    assert [word for word, shade in marked(tab) if shade == "for5"] == ["soleil"]


def test_deciding_from_the_keyboard_alone(watched: Watched, models: dict[str, tuple[Path, Model]]) -> None:
    tab = watched.tab
    tab.keyboard.type("rasant jk /? ")  # the text has the focus from the start, and keys there are letters
    assert tab.input_value("#text") == "rasant jk /? "
    tab.keyboard.press("Control+a")
    tab.keyboard.insert_text(TEXT)
    tab.keyboard.press("Control+Enter")
    tab.wait_for_selector(".row")
    ranked = names(tab)
    assert focused(tab) == ranked[0]
    tab.keyboard.press("a")
    tab.keyboard.press("ArrowDown")
    assert focused(tab) == ranked[1]
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    tab.keyboard.press("k")
    assert focused(tab) == ranked[2]
    tab.keyboard.press("r")
    tab.keyboard.press("j")
    tab.keyboard.press("a")
    tab.keyboard.press("a")  # taken back
    tab.keyboard.press("Control+a")
    tab.keyboard.press("Alt+r")
    assert tab.inner_text("#decided") == "1 accepted · 1 rejected"
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".shaded")
    tab.keyboard.press("j")
    until(tab, "name => document.getElementById('why-name').textContent === name", arg=ranked[4])
    tab.keyboard.press("Escape")
    assert tab.locator("#why").is_hidden()
    tab.click("label:has(> input[value='5'])")
    until(tab, "document.querySelectorAll('.ranking .row').length === 5")
    wanted = next(label for label in WORDS if label not in ranked[:5] and label not in (BAD, LONG, "été"))
    tab.keyboard.press("/")
    tab.keyboard.type(wanted[:4])
    tab.wait_for_selector(f"#suggestions [aria-selected=true] >> text={wanted}")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowUp")
    assert tab.get_attribute("#search", "aria-activedescendant") == "option-0"
    tab.keyboard.press("Enter")
    assert names(tab, ".added") == [wanted]
    assert tab.input_value("#search") == ""
    tab.keyboard.type("sr?")  # letters again, not keys
    assert tab.input_value("#search") == "sr?"
    tab.keyboard.press("Escape")
    assert focused(tab) != ""
    tab.keyboard.press("s")
    says(tab, "Saved: 2 accepted, 1 rejected")
    tab.keyboard.press("s")
    says(tab, "Already saved: nothing has changed since.")
    assert sum(url.endswith("/v1/feedback") for url in watched.asked) == 1
    (line,) = [line for line in exported(models["words"][0]) if line["text"] == TEXT]
    assert line["labels"] == [ranked[0], wanted]
    assert line["rejected"] == [ranked[2]]
    tab.keyboard.press("n")
    assert tab.input_value("#text") == ""
    assert tab.evaluate("document.activeElement.id") == "text"
    tab.keyboard.press("Tab")
    tab.keyboard.press("Shift+?")
    assert tab.locator("#keys").is_visible()
    tab.keyboard.press("Escape")
    assert tab.locator("#keys").is_hidden()


def test_deciding_by_hand(tab: Any) -> None:
    tag(tab)
    first, second = names(tab)[:2]
    row(tab, first).locator(".accept").click()
    row(tab, second).locator(".reject").click()
    assert row(tab, first).locator(".accept").get_attribute("aria-pressed") == "true"
    assert row(tab, second).locator(".reject").get_attribute("aria-pressed") == "true"
    row(tab, second).locator(".accept").click()  # one or the other
    assert row(tab, second).locator(".reject").get_attribute("aria-pressed") == "false"
    row(tab, second).locator(".accept").click()
    tab.fill("#search", "onerror")
    tab.locator("#suggestions li", has_text=BAD).click()
    assert tab.inner_text("#decided") == "2 accepted · 0 rejected"
    tab.click("#send")
    says(tab, "Saved: 2 accepted, 0 rejected")


def test_decisions_outlast_a_shorter_ranking(tab: Any) -> None:
    tag(tab)
    ranked = names(tab)
    row(tab, ranked[8]).locator(".accept").click()
    row(tab, ranked[9]).locator(".reject").click()
    tab.click("label:has(> input[value='5'])")
    until(tab, "document.querySelectorAll('.ranking .row').length === 5")
    assert names(tab, ".added") == [ranked[8], ranked[9]]
    explain(tab, ranked[9])  # a label that is not among the best has its reasons, too
    tab.wait_for_selector(".shaded")
    row(tab, ranked[9]).locator(".label").focus()
    tab.keyboard.press("r")
    assert names(tab, ".added") == [ranked[8]]
    assert focused(tab) == ranked[8]
    assert tab.locator("#why").is_hidden()
    tab.keyboard.press("a")
    assert focused(tab) == ranked[4]
    assert tab.inner_text("#decided") == "0 accepted · 0 rejected"


def test_single_letters_can_be_turned_off(tab: Any) -> None:
    tag(tab)
    tab.click("#help")
    tab.uncheck("#single")
    tab.keyboard.press("Escape")
    row(tab, names(tab)[0]).locator(".label").focus()
    tab.keyboard.press("a")
    assert tab.inner_text("#decided").startswith("0 accepted")
    tab.keyboard.press("ArrowDown")
    assert focused(tab) == names(tab)[1]
    tab.reload()
    tab.click("#help")
    assert not tab.is_checked("#single")


def test_two_models_side_by_side(tab: Any, models: dict[str, tuple[Path, Model]]) -> None:
    tag(tab)
    tab.select_option("#second", "neighbours")
    until(tab, "document.querySelectorAll('.ranking').length === 2")
    left, right = (
        [label["name"] for label in labels_of(models[name][1], [TEXT], 10)[0]] for name in ("words", "neighbours")
    )
    assert names(tab, ".ranking:nth-child(1)") == left
    assert names(tab, ".ranking:nth-child(2)") == right
    both = set(left) & set(right)
    assert set(tab.locator(".both .name").all_inner_texts()) == both
    places = [tab.locator(".ranking").nth(side).bounding_box() for side in (0, 1)]
    assert places[0]["y"] == places[1]["y"]
    assert places[0]["x"] + places[0]["width"] <= places[1]["x"]
    shared = next(name for name in left if name in both)
    row(tab, shared, ".ranking:nth-child(1)").locator(".label").focus()
    tab.keyboard.press("a")
    assert row(tab, shared, ".ranking:nth-child(2)").locator(".accept").get_attribute("aria-pressed") == "true"
    tab.keyboard.press("l")
    assert tab.evaluate("document.activeElement.closest('.ranking').ariaLabel") == "Labels of neighbours"
    assert focused(tab) == shared
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".neighbours li")
    told = models["neighbours"][1].explain(TEXT, shared).evidence
    assert tab.locator(".neighbours li").count() == len(told)
    holding = [item for item in told if item.holds]  # type: ignore[union-attr]
    assert tab.locator(".neighbours .held").count() == len(holding)
    assert holding[0].snippet[:40] in tab.locator(".neighbours .held").first.inner_text()  # type: ignore[union-attr]
    tab.keyboard.press("h")
    tab.wait_for_selector(".shaded")
    assert "model words" in tab.inner_text("#why-facts")


def test_probabilities_and_as_many_as_fit(tab: Any, models: dict[str, tuple[Path, Model]]) -> None:
    assert tab.locator("#fitting").is_hidden()
    tab.select_option("#first", "fitted")
    tag(tab)
    figures = tab.locator(".ranking .figure").all_inner_texts()
    assert all(figure.endswith(" %") for figure in figures)
    assert "not probabilities" not in tab.inner_text(".ranking")
    tab.click("#fitting")
    fitting = models["fitted"][1].predict([TEXT], threshold="auto").rows()
    expected = [label["name"] for label in next(iter(fitting))["labels"]]
    until(tab, "count => document.querySelectorAll('.row').length === count", arg=len(expected))
    assert names(tab) == expected
    assert len(expected) < 10


def test_a_model_that_cannot_explain_says_so(watched: Watched) -> None:
    tab = watched.tab
    watched.refused = [422]
    tab.select_option("#first", "popular")
    tag(tab)
    explain(tab, names(tab)[0])
    assert "popularity" in tab.inner_text("#why-body")
    assert "explain" in tab.inner_text("#why-body")


FEATURES = (FeatureEvidence("similarity", 0.50625, 1.5), FeatureEvidence(BAD, None, -0.75))
STEPS = (PathStep(1, 0.75, ("cereals", BAD)), PathStep(2, 0.5, ("cereals",)))
KINDS: list[tuple[dict[str, Any], list[str]]] = [
    ({"kind": "path", "evidence": STEPS}, ["Path through the label tree", "0.7500", f"cereals, {BAD}"]),
    (
        {"kind": "groups", "evidence": (AspectEvidence(3, -1.5, 0.25), GroupEvidence("fish", 0.5, 0.125))},
        ["Aspects of the text", "−1.5000", "25.0 %", "Related labels", "fish", "+0.5000", "12.5 %"],
    ),
    (
        {"kind": "members", "evidence": (MemberEvidence("parabel", 0.9, 0.75), MemberEvidence("knn", 0.3, 0.25))},
        ["Ensemble members", "0.9000", "parabel", "75 %", "knn", "25 %"],
    ),
    (
        {"kind": "tokens", "evidence": (TokenEvidence("wheat", 4, 9, 0.9),), "shares": True, "path": STEPS},
        ["attention: low", "Attention by word", "wheat", "Path through the label tree with the highest"],
    ),
    ({"kind": "tokens", "evidence": ()}, ["no evidence"]),
    (
        {"kind": "tokens", "evidence": (), "constant": -2.5, "features": FEATURES},
        ["Features of the match", "No word of the text", "+1.5000", "similarity", "0.5062", BAD, "−0.7500", "–"],
    ),
]


def explaining(tab: Any, **parts: Any) -> Explanation:
    """From now on the service explains any label of TEXT like this."""
    found = Explanation(text=TEXT, label="a label", score=0.5, **parts)
    answer = {"model": "words", "label": {"key": "k", "name": "a label", "score": 0.5}, "explanation": found.to_json()}
    tab.unroute("**/v1/explain")
    tab.route("**/v1/explain", lambda route: route.fulfill(json=answer))
    return found


def test_any_kind_of_evidence_is_shown(tab: Any) -> None:
    tag(tab)
    for name, (parts, expected) in zip(names(tab), KINDS, strict=False):  # what was explained once is not asked again
        explaining(tab, **parts)
        explain(tab, name)
        until(tab, "words => document.getElementById('why-body').innerText.includes(words)", expected[0])
        shown = tab.inner_text("#why-body")
        assert [words for words in expected if words not in shown] == []


def test_overlapping_evidence_is_added_up(tab: Any) -> None:
    evidence = (TokenEvidence("wheat and", 4, 13, 0.5), TokenEvidence("and the", 10, 17, -0.75))
    found = explaining(tab, kind="tokens", evidence=evidence)
    tag(tab)
    explain(tab, "cereals")
    shades = levels(stretches(found))
    assert shades == [0, 3, -2, -5, 0]
    assert marked(tab) == [("wheat ", "for3"), ("and", "against2"), (" the", "against5")]
    assert tab.locator(".shaded mark").nth(1).get_attribute("title") == "−0.2500 = and the −0.7500, wheat and +0.5000"
    assert "evidence against it" in tab.inner_text(".legend")


def test_what_is_known_of_a_model(tab: Any) -> None:
    tag(tab)
    assert tab.inner_text(".about summary") == f"parabel · {len(WORDS)} labels · 600 documents"
    tab.click(".about summary")
    assert "not calibrated" in tab.inner_text(".about dl")


@pytest.mark.parametrize("watched", [{"permissions": ["clipboard-read", "clipboard-write"]}], indirect=True)
def test_copying(tab: Any, models: dict[str, tuple[Path, Model]]) -> None:
    tag(tab)
    tab.click("text=Copy names")
    says(tab, "Copied: 10 labels.")
    assert tab.evaluate("navigator.clipboard.readText()").split("\n") == names(tab)
    tab.click("text=Copy as table")
    until(tab, "navigator.clipboard.readText().then(text => text.includes('\\t'))")
    lines = [line.split("\t") for line in tab.evaluate("navigator.clipboard.readText()").split("\n")]
    expected = labels_of(models["words"][1], [TEXT], 10)[0]
    assert [line[:2] for line in lines] == [[label["name"], label["key"]] for label in expected]
    assert [float(line[2]) for line in lines] == pytest.approx([label["score"] for label in expected])
    tab.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # as over plain HTTP
    tab.click("text=Copy names")
    says(tab, "Copied: 10 labels.")


def test_earlier_texts_come_back_and_decisions_can_be_taken_home(tab: Any, tmp_path: Path) -> None:
    tag(tab)
    first = names(tab)
    tab.keyboard.press("a")
    tag(tab, "Salmon and cod in the storm")
    assert tab.inner_text("#decided") == "0 accepted · 0 rejected"
    tab.keyboard.press("r")
    rejected = names(tab)[0]
    assert tab.locator("#texts li").count() == 2
    assert "not saved" in tab.locator("#texts li").nth(1).inner_text()
    tab.locator("#texts button").nth(1).click()
    assert tab.input_value("#text") == TEXT
    assert names(tab) == first
    assert tab.inner_text("#decided") == "1 accepted · 0 rejected"
    assert row(tab, first[0]).locator(".accept").get_attribute("aria-pressed") == "true"
    with tab.expect_download() as taken:
        tab.click("#download")
    taken.value.save_as(tmp_path / "decisions.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines == [  # as `xmtc feedback export` writes them
        {"text": TEXT, "labels": [first[0]], "rejected": [], "complete": False},
        {"text": "Salmon and cod in the storm", "labels": [], "rejected": [rejected], "complete": False},
    ]


def test_an_edited_text_is_told_from_its_labels(tab: Any) -> None:
    tag(tab)
    tab.keyboard.press("a")
    tab.type("#text", " More.")
    assert tab.locator("#stale").is_visible()
    tab.click("#send")  # what was decided belongs to the text that was tagged
    says(tab, "Saved: 1 accepted, 0 rejected")
    tab.click("#again")
    tab.wait_for_selector("#stale", state="hidden")
    assert tab.locator("#texts li").count() == 2


def test_decisions_that_are_undone_are_withdrawn(tab: Any, models: dict[str, tuple[Path, Model]]) -> None:
    tag(tab)
    tab.keyboard.press("a")
    tab.keyboard.press("s")
    says(tab, "Saved: 1 accepted, 0 rejected")
    assert TEXT in [line["text"] for line in exported(models["words"][0])]
    row(tab, names(tab)[0]).locator(".accept").click()
    tab.click("#send")
    says(tab, "Saved: 0 accepted, 0 rejected")
    record = list(Feedback(feedback_path(models["words"][0]), read_only=True).records())[-1]
    assert (record.text, record.accepted, record.rejected, record.complete) == (TEXT, (), (), False)


def test_files_and_pasting(tab: Any, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("Gouda für alle", encoding="utf-8")
    (tmp_path / "old.txt").write_bytes("Brie für alle".encode("cp1252"))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0\0")
    for name, expected in (("one.txt", "Gouda für alle"), ("old.txt", "Brie für alle")):
        tab.set_input_files("#file", tmp_path / name)
        until(tab, "text => document.getElementById('text').value === text", arg=expected)
    assert "Undo" in tab.inner_text("#said")
    tab.click("#said button")
    assert tab.input_value("#text") == "Gouda für alle"
    tab.set_input_files("#file", tmp_path / "picture.png")
    tab.wait_for_selector("#problem p")
    assert tab.inner_text("#problem p") == "picture.png is not a text file. Open a plain text file, or paste the text."
    assert tab.input_value("#text") == "Gouda für alle"
    drop = """type => {
        const data = new DataTransfer();
        if (type === "file") data.items.add(new File(["Dropped cod"], "cod.txt", {type: "text/plain"}));
        else data.setData("text/plain", "Handed salmon");
        const kind = type === "paste" ? ClipboardEvent : DragEvent;
        const how = type === "paste" ? {clipboardData: data} : {dataTransfer: data};
        const what = type === "paste" ? "paste" : "drop";
        document.body.dispatchEvent(new kind(what, {bubbles: true, cancelable: true, ...how}));
    }"""
    for way, expected in (("file", "Dropped cod"), ("text", "Handed salmon"), ("paste", "Handed salmon")):
        tab.fill("#text", "")
        tab.evaluate(drop, way)
        until(tab, "text => document.getElementById('text').value === text", arg=expected)


def test_a_text_that_is_too_long_is_not_sent(watched: Watched) -> None:
    tab = watched.tab

    def less(route: Any) -> None:
        answer = route.fetch()
        told = answer.json()
        told["limits"]["characters"] = 8
        route.fulfill(response=answer, json=told)

    tab.route("**/v1/models", less)
    tab.reload()
    until(tab, "document.getElementById('count').textContent === 'up to 8 characters'")
    tab.fill("#text", "at sea 😀")
    assert tab.inner_text("#count") == "8 of 8 characters"
    tab.fill("#text", "at sea 😀!")
    assert tab.inner_text("#count") == "9 of 8 characters: 1 too many"
    tab.click("#tag")
    assert "too long" in tab.inner_text("#problem")
    assert not any(url.endswith("/v1/predict") for url in watched.asked)


def test_of_a_very_long_text_the_strongest_parts_are_shown(tab: Any) -> None:
    around = "nothing to see here\n" * 2500
    put = "text => { document.getElementById('text').value = text; }"  # to fill it as a person does would take minutes
    tab.evaluate(put, f"{around}the wheat 😀 and the barley\n{around}")
    tab.press("#text", "Control+Enter")
    tab.wait_for_selector(".row")
    explain(tab, "cereals")
    assert {word for word, shade in marked(tab) if shade in ("for4", "for5")} == {"wheat", "barley"}
    assert "the wheat 😀 and the barley" in tab.text_content(".shaded")
    assert len(tab.text_content(".shaded")) < 2000


def refuse_once(tab: Any, address: str, **answer: Any) -> None:
    """Answer the first request this way. Requests stay intercepted, unlike with `times=1`: setting it takes a while."""
    answers = [answer]
    tab.route(address, lambda route: route.fulfill(**answers.pop()) if answers else route.continue_())


def test_a_refusal_is_told_in_the_words_of_the_service_and_nothing_is_lost(watched: Watched) -> None:
    tab = watched.tab
    watched.refused = [429, 422, 503]
    problem = {"type": "about:blank", "title": "Busy", "status": 429, "detail": "Too much is waiting. Come again."}
    refusal = {"status": 429, "headers": {"Retry-After": "2"}, "content_type": "application/problem+json"}
    refused = {**problem, "status": 422, "detail": "The label is not known."}
    refuse_once(tab, "**/v1/predict", body=json.dumps(problem), **refusal)
    refuse_once(tab, "**/v1/feedback", status=422, body=json.dumps(refused))
    refuse_once(tab, "**/v1/explain", status=503, body="<html>")
    tab.fill("#text", TEXT)
    tab.click("#tag")
    tab.wait_for_selector("#problem p")
    assert tab.inner_text("#problem p") == "Too much is waiting. Come again. Try again in 2 s."
    assert tab.input_value("#text") == TEXT
    tab.click("#problem button:has-text('Try again')")
    tab.wait_for_selector(".row")
    assert tab.inner_text("#problem") == ""
    tab.keyboard.press("a")
    tab.keyboard.press("s")
    tab.wait_for_selector("#problem p")
    assert tab.inner_text("#problem p") == "The label is not known."
    assert tab.inner_text("#decided") == "1 accepted · 0 rejected"
    tab.keyboard.press("s")
    says(tab, "Saved: 1 accepted, 0 rejected")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#problem p")
    assert "503" in tab.inner_text("#problem p")
    tab.click("#problem button:has-text('Try again')")
    tab.wait_for_selector(".shaded")


def test_a_second_press_asks_nothing_and_a_slow_answer_shows_it_is_at_work(watched: Watched) -> None:
    tab = watched.tab
    held: list[Any] = []
    tab.route("**/v1/predict", lambda route: held.append(route))
    tab.fill("#text", TEXT)
    tab.click("#tag")
    tab.click("#tag")
    tab.press("#text", "Control+Enter")
    tab.wait_for_selector("body.working")
    assert "Tagging…" in tab.inner_text("#tag")
    assert len(held) == 1
    held[0].continue_()
    tab.wait_for_selector(".row")
    tab.wait_for_selector("body:not(.working)")
    assert tab.inner_text("#tag").startswith("Tag ")


def test_answers_to_an_older_search_are_dropped(watched: Watched) -> None:
    tab = watched.tab
    tag(tab)
    held: list[Any] = []
    tab.route("**/v1/labels?q=ra*", lambda route: held.append(route))
    tab.focus("#search")
    tab.keyboard.type("ra")
    while not held:
        tab.wait_for_timeout(20)
    tab.fill("#search", "fish")
    tab.wait_for_selector("#suggestions >> text=fish")
    held[0].continue_()
    tab.wait_for_timeout(300)
    assert tab.locator("#suggestions .name").all_inner_texts() == ["fish"]
    tab.fill("#search", "no such label")
    tab.wait_for_selector("#suggestions >> text=No label matches")
    tab.keyboard.press("Enter")
    assert tab.locator(".added").count() == 0


def test_markup_in_a_name_is_text(tab: Any) -> None:
    tag(tab, "glass in a window pane")
    assert names(tab)[0] == BAD
    explain(tab, BAD)
    assert tab.inner_text("#why-name") == BAD
    assert tab.locator("img").count() == 0


@pytest.mark.parametrize("watched", [{"color_scheme": "dark"}, {"color_scheme": "light"}], indirect=True)
def test_colours_follow_the_system_until_chosen(tab: Any) -> None:
    dark = tab.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    paper = "getComputedStyle(document.body).backgroundColor"
    shade = "getComputedStyle(document.querySelector('.for5')).backgroundColor"

    def colour(value: str) -> str:
        return f"rgb({', '.join(str(int(value[at : at + 2], 16)) for at in (1, 3, 5))})"

    def shaded() -> None:
        tag(tab)
        explain(tab, "cereals")
        tab.wait_for_selector(".for5")

    ours, others = (DARK, LIGHT) if dark else (LIGHT, DARK)
    shaded()
    assert (tab.evaluate(paper), tab.evaluate(shade)) == (colour(str(ours["paper"])), colour(ours["for"][4]))
    for _ in range(1 if dark else 2):  # system, light, dark
        tab.click("#theme")
    assert (tab.evaluate(paper), tab.evaluate(shade)) == (colour(str(others["paper"])), colour(others["for"][4]))
    tab.reload()
    assert tab.evaluate(paper) == colour(str(others["paper"]))


@pytest.mark.parametrize("watched", [{**PHONE, "viewport": {"width": 360, "height": 640}}], indirect=True)
def test_a_phone_is_wide_enough(tab: Any) -> None:
    def fits() -> bool:
        return bool(tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))

    assert fits()
    tag(tab, "river steamer captain wheat " + "x" * 300)
    assert names(tab)[0] == LONG
    assert fits()
    explain(tab, LONG)
    assert fits()
    inside = "document.getElementById('why').closest('.row')?.querySelector('.name').textContent"
    assert tab.evaluate(inside) == LONG  # under its label, where the thumb is
    assert tab.locator(".row .shaded").is_visible()
    tab.click("#why-close")
    tab.select_option("#second", "neighbours")
    until(tab, "document.querySelectorAll('.ranking').length === 2")
    assert fits()
    above, below = (tab.locator(".ranking").nth(side).bounding_box() for side in (0, 1))
    assert above["y"] + above["height"] <= below["y"]
    explain(tab, LONG, ".ranking:nth-child(2)")
    assert fits()
    sizes = tab.eval_on_selector_all(
        ".row .accept, .row .reject", "all => all.map(one => one.getBoundingClientRect().width)"
    )
    assert min(sizes) >= 36


AXE = find_spec("axe_playwright_python")


def violations(tab: Any) -> list[str]:
    """What axe holds to be serious or critical."""
    if not tab.evaluate("'axe' in window"):
        assert AXE is not None
        assert AXE.origin is not None
        tab.evaluate((Path(AXE.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {node['html']} {node['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.skipif(AXE is None, reason="axe-playwright-python is not installed")
@pytest.mark.parametrize(
    "watched",
    [
        {**shape, "color_scheme": colours, "reduced_motion": "reduce"}
        for shape in ({}, PHONE)
        for colours in ("light", "dark")
    ],
    indirect=True,
)
def test_everybody_can_use_it(tab: Any) -> None:
    assert violations(tab) == []
    tag(tab)
    tab.keyboard.press("a")
    tab.keyboard.press("j")
    tab.keyboard.press("r")
    tab.click(".about summary")
    explain(tab, "cereals")
    tab.wait_for_selector(".shaded")
    assert violations(tab) == []
    tab.select_option("#second", "neighbours")
    until(tab, "document.querySelectorAll('.ranking').length === 2")
    explain(tab, "cereals", ".ranking:nth-child(2)")
    tab.wait_for_selector(".neighbours")
    assert violations(tab) == []
    tab.click("#why-close")
    tab.type("#text", "!")
    tab.set_input_files("#file", {"name": "no.txt", "mimeType": "text/plain", "buffer": b"\0"})
    tab.wait_for_selector("#problem p")
    tab.focus("#search")
    tab.keyboard.type("r")
    tab.wait_for_selector("#suggestions [aria-selected=true]")
    assert violations(tab) == []
    tab.keyboard.press("Escape")
    tab.click("#help")
    assert violations(tab) == []


def test_a_key_is_asked_for_once(browser: Any, models: dict[str, tuple[Path, Model]], tmp_path: Path) -> None:
    shutil.copytree(models["words"][0], tmp_path / "locked")
    with serving(tmp_path / "locked", environment={**os.environ, "XMTC_API_KEY": "open-sesame-of-this-test"}) as locked:
        opened = Watched(browser, locked.url)
        opened.refused = [401]
        tab = opened.tab
        tab.wait_for_selector("#unlock[open]")
        if AXE is not None:
            assert violations(tab) == []
        tab.keyboard.press("Escape")
        tab.click("#problem button:has-text('Try again')")
        tab.wait_for_selector("#unlock[open]")
        tab.fill("#secret", "wrong")
        tab.keyboard.press("Enter")
        tab.wait_for_selector("#unlock-wrong:visible")
        tab.fill("#secret", "open-sesame-of-this-test")
        tab.keyboard.press("Enter")
        until(tab, "document.getElementById('only').textContent === 'locked'")
        tag(tab)
        explain(tab, "cereals")
        tab.wait_for_selector(".shaded")
        tab.reload()
        until(tab, "document.getElementById('only').textContent === 'locked'")  # kept by the tab
        assert tab.locator("#unlock").is_hidden()
        assert len(tab.evaluate("Object.keys(localStorage)")) == 0
        opened.close()


def test_without_scripts_it_says_so(browser: Any, service: Service) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(service.url)
    assert tab.locator("noscript").is_visible()
    context.close()


def test_broader_labels_and_notes(browser: Any, tmp_path: Path) -> None:
    """A small line beneath a label, notes that unfold by hand and from the keyboard, and the same in the search."""
    keys = ["plant", "oak", "rock"]
    train = as_dataset(["wheat"] * 4, [keys[:2], keys[:2], keys, keys[:1]])
    assert train.labels is not None
    assert train.label_index is not None
    index = LabelIndex.from_keys(
        keys, parents=[[], ["plant"], [BAD]], notes=[[], ["A tree.", BAD], []], descriptions=["", "", "Hard."]
    )
    train = replace(train, labels=train.labels[:, train.label_index.ids(keys)], label_index=index)
    Popularity().fit(train).save(tmp_path / "plants")
    with serving(tmp_path / "plants") as service:
        opened = Watched(browser, service.url)
        until(opened.tab, "document.getElementById('first').options.length > 0")
        tag(opened.tab, "wheat")
        rows = opened.tab.locator(".row")
        assert rows.all_inner_texts()[0].split("\n")[0] == "plant"
        assert [row.locator(".broader").all_inner_texts() for row in rows.all()] == [[], ["↑ plant"], [f"↑ {BAD}"]]
        notes = rows.nth(1).locator("details.notes")
        assert notes.get_attribute("open") is None
        notes.locator("summary").click()
        assert notes.locator("p").all_inner_texts() == ["A tree.", BAD]
        rows.nth(2).locator("button.label").focus()
        for _ in range(3):  # over accept and reject
            opened.tab.keyboard.press("Tab")
        opened.tab.keyboard.press("Enter")
        assert rows.nth(2).locator("details.notes p").all_inner_texts() == ["Hard."]
        assert opened.tab.locator(".unused").count() == 0
        opened.tab.fill("#search", "oak")
        until(opened.tab, "document.querySelector('#suggestions .broader')")
        opened.tab.keyboard.press("Enter")
        opened.close()
