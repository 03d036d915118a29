"""Reports of suites: numbers worked by hand, the page as a parser sees it, and plots whose words do not meet."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.transforms import Bbox

from tests.support.bench_folders import cell, groups, log, measures, put, realistic, reliability, statistics, tail
from tests.support.report_tables import best, texts
from xmtc.core.errors import DataError
from xmtc.experiments import report as report_module
from xmtc.experiments.detail_tables import figures, group_tables
from xmtc.experiments.published import Figure, Published, PublishedSet, Source
from xmtc.experiments.records import Cell, DatasetRecord
from xmtc.experiments.report import Report, collected
from xmtc.experiments.report_markdown import markdown
from xmtc.experiments.report_page import page
from xmtc.experiments.tables import (
    Row,
    Runs,
    Table,
    TableEntry,
    accuracy_table,
    overlap_tables,
    p_value_text,
    rank_tables,
    runs_of,
    spread,
)
from xmtc.metrics import Reliability, ReliabilityBin
from xmtc.views.charts import CostPoint, line_chart, place_names, scatter
from xmtc.views.reliability import small_reliability_plot

SVG = "{http://www.w3.org/2000/svg}"


def scored(name: str, **metrics: float) -> Cell:
    """A cell with these measures alone: P1 stands for P@1."""
    known = {re.sub(r"(\d)$", r"@\1", key): value for key, value in metrics.items()}
    return cell(name, metrics=known)


PAPER = Source("paper", "paper", "On <Labels>", authors="A. Uthor", where="CONF", year=2019)
DUBIOUS = Source("dubious", "collected", "Too good", year=2020, doubt="Nobody could reach it.")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Published:
    """Three published figures on one data set."""
    figures = [
        Figure("Parabel", "cooking", PAPER, {"P@1": 0.70, "P@3": 0.50, "nDCG@5": 0.61}),
        Figure("Other", "cooking", PAPER, {"P@1": 0.65, "P@3": 0.55}, mark="recalled"),
        Figure("Wonder", "cooking", DUBIOUS, {"P@1": 0.99}),
    ]
    sources = {"paper": PAPER, "dubious": DUBIOUS}
    found = Published(
        sources,
        {"cooking": PublishedSet("cooking", "Cooking", 9000, note="Another split.")},
        {"parabel": ("Parabel",)},
        figures,
    )
    monkeypatch.setattr(report_module, "published", lambda: found)
    return found


# ---- numbers


def test_mean_and_standard_deviation_of_a_sample() -> None:
    assert spread([50.0, 52.0, 54.0]) == "52.00 ± 2.00"
    assert spread([50.0]) == "50.00"
    assert spread([]) == "–"
    runs = runs_of([scored(f"a/m/{seed}", P1=value) for seed, value in enumerate((0.5, 0.52, 0.54))])
    assert texts(accuracy_table("a", runs, []))["m"] == ["52.00 ± 2.00"]
    assert accuracy_table("a", runs, []).note == "Mean ± standard deviation over 3 seeds."


def test_models_stand_by_their_score_and_equal_ones_by_name() -> None:
    cells = [
        scored("a/low/0", nDCG5=0.1),
        scored("a/zeta/0", nDCG5=0.4),
        scored("a/zeta/1", nDCG5=0.6),
        scored("a/beta/0", nDCG5=0.5),
        scored("a/none/0", P1=0.9),
    ]
    order = ["beta", "zeta", "low", "none"]
    assert [runs.model for runs in runs_of(cells)] == order
    assert [runs.model for runs in runs_of(reversed(cells))] == order
    assert [each.name.seed for each in runs_of(reversed(cells))[1].cells] == [0, 1]


def test_the_best_is_marked_as_far_as_two_places_tell() -> None:
    cells = [
        scored("a/x/0", P1=0.500021, P3=0.4, nDCG5=0.5),
        scored("a/y/0", P1=0.500049, P3=0.3, nDCG5=0.4),
        scored("a/z/0", P1=0.49, nDCG5=0.3),
    ]
    found = best(accuracy_table("a", runs_of(cells), []))
    assert found == {"x": ["P@1", "P@3", "nDCG@5"], "y": ["P@1"], "z": []}


def test_published_figures_stand_beneath_ours_and_beside_the_same_method(known: Published, tmp_path: Path) -> None:
    cells = [scored("cooking/mine/0", P1=0.72, nDCG5=0.6), scored("cooking/fast/0", P1=0.68, P3=0.52, nDCG5=0.5)]
    cells[1] = replace(cells[1], kind="parabel")
    put(tmp_path, cells, [DatasetRecord("cooking", published_as="cooking")])
    found = collected([tmp_path])
    (part,) = found.suites[0].datasets
    assert [row.name for row in part.accuracy.rows] == ["mine", "fast", "Wonder", "Parabel", "Other"]
    assert part.accuracy.columns == ("P@1", "P@3", "nDCG@5")
    assert texts(part.accuracy)["Parabel"] == ["70.00", "50.00", "61.00"]
    assert best(part.accuracy) == {
        "mine": ["P@1", "nDCG@5"],
        "fast": ["P@3"],
        "Wonder": [],  # in doubt
        "Parabel": ["P@1", "nDCG@5"],
        "Other": ["P@3"],
    }
    assert part.beside is not None
    assert texts(part.beside) == {"fast": ["68.00", "70.00", "−2.00", "52.00", "50.00", "+2.00"]}
    assert found.sources == [DUBIOUS, PAPER]
    html, text = page(found), markdown(found)
    assert 'Parabel <span class="nowrap"><a href="#source-2" aria-label="source 2">[2]</a></span>' in html
    assert '<li id="source-2">A. Uthor. On &lt;Labels&gt;. CONF, 2019.' in html
    assert "Nobody could reach it." in html
    assert "Published results are on Cooking: 9,000 training documents. Another split." in html
    assert "recalled from the publication, not verified" in html
    assert "| Wonder \\[1\\] ? | 99.00 | – | – |" in text
    assert "| mine | **72.00** | – | **60.00** |" in text
    assert "2. A. Uthor. On \\<Labels\\>. CONF, 2019." in text


def test_ranks_and_p_values_by_hand() -> None:
    # a is the best six times out of six: 2 / 2⁶. Of b − c the two smallest differences are negative: of the 64 choices
    # of signs 5 have ranks that add up to 3 at most ({}, {1}, {2}, {3}, {1, 2}), on either side.
    gaps = {"one": (-0.01, -0.02, 0.03), "two": (0.04, 0.05, 0.06)}
    by_dataset = {}
    for dataset, (first, second, third) in gaps.items():
        cells = [
            scored(f"{dataset}/a/0", P1=0.9, P3=0.9, P5=0.9),
            scored(f"{dataset}/b/0", P1=0.5 + first, P3=0.5 + second, P5=0.5 + third),
            scored(f"{dataset}/c/0", P1=0.5, P3=0.5, P5=0.5),
        ]
        by_dataset[dataset] = runs_of(cells)
    (ranks, p_values), reason = rank_tables(by_dataset)
    assert reason == ""
    assert texts(ranks) == {"a": ["1.00", "6"], "b": ["2.33", "6"], "c": ["2.67", "6"]}
    assert best(ranks)["a"] == ["average rank"]
    assert p_values.columns == ("a", "b", "c")
    assert texts(p_values) == {
        "a": ["", p_value_text(2 / 64), p_value_text(2 / 64)],
        "b": [p_value_text(2 / 64), "", p_value_text(10 / 64)],
        "c": [p_value_text(2 / 64), p_value_text(10 / 64), ""],
    }


def test_too_few_results_are_not_ranked() -> None:
    one = runs_of([scored("a/m/0", P1=0.5, P3=0.4, P5=0.3), scored("a/n/0", P1=0.6, P3=0.5, P5=0.2)])
    tables, reason = rank_tables({"a": one})
    assert tables == []
    assert "here there are 3" in reason
    alone = runs_of([scored("b/m/0", P1=0.5, P3=0.4, P5=0.3)])  # nothing to be compared with
    assert rank_tables({"a": one, "b": alone})[0] == []


def test_a_model_that_did_not_run_everywhere_has_no_p_value_with_too_few_results() -> None:
    values = {"P1": 0.5, "P3": 0.4, "P5": 0.3}
    by_dataset = {
        name: runs_of(
            [
                scored(f"{name}/{model}/0", **{key: value + at / 10 for key, value in values.items()})
                for at, model in enumerate(there)
            ]
        )
        for name, there in (("one", "mn"), ("two", "mno"))
    }
    (ranks, p_values), _ = rank_tables(by_dataset)
    assert texts(ranks) == {"o": ["1.00", "3"], "n": ["1.50", "6"], "m": ["2.50", "6"]}
    assert best(ranks) == {"o": [], "n": ["average rank"], "m": []}  # o has half the results
    assert texts(p_values)["o"] == ["", "–", "–"]
    assert texts(p_values)["m"] == ["–", p_value_text(2 / 64), ""]


def test_costs_are_told_with_three_figures() -> None:
    assert [figures(value) for value in (0.01234, 1.234, 12.34, 123.4, 12345.6, 0.0)] == [
        "0.0123",
        "1.23",
        "12.3",
        "123",
        "12,346",
        "0",
    ]


def test_costs_are_those_of_a_document_and_in_megabytes(tmp_path: Path) -> None:
    one = cell("a/m/0", seconds={"train": 10.0, "predict": 5.0}, documents=2000, model_bytes=2_500_000)
    two = cell("a/m/1", seconds={"train": 20.0, "predict": 5.0}, documents=2000, model_bytes=2_500_000, resumed=True)
    put(tmp_path, [one, two])
    (part,) = collected([tmp_path]).suites[0].datasets
    assert part.costs.columns == ("training (s)", "prediction (ms/document)", "peak memory (MB)", "model size (MB)")
    assert texts(part.costs) == {"m": ["15.0", "2.50", "100", "2.50"]}
    assert "a/m/1" in part.costs.note
    other = cell("a/n/0", machine={"processor": "x86_64", "gpu": "NVIDIA H200", "torch": "2.11"})
    put(tmp_path, [one, two, other])
    (part,) = collected([tmp_path]).suites[0].datasets
    assert part.machines == ["processor x86_64, threads 2", "processor x86_64, gpu NVIDIA H200"]
    assert [row[-1] for row in texts(part.costs).values()] == ["1", "2"]


def test_groups_without_an_area_and_of_one_frequency() -> None:
    found: dict[str, Any] = {"standard": [{"least": 5, "labels": 3, "occurrences": 20, "auc": None, "aupr": 0.25}]}
    runs = [Runs("m", (cell("a/m/0", groups=found),)), Runs("n", (cell("a/n/0"),))]
    (table,) = group_tables(runs)
    assert table.columns == ("AUC ≥ 5 (3 labels)", "AUPR ≥ 5 (3 labels)")
    assert texts(table) == {"m": ["–", "25.00"]}


def test_overlap_is_of_each_two_models_in_whatever_order() -> None:
    shared = {str(k): k / 10 for k in range(1, 6)}
    record = DatasetRecord("a", overlap=[{"models": ["y", "x"], "shared": shared}])
    runs = runs_of([scored("a/x/0", nDCG5=0.5), scored("a/y/0", nDCG5=0.4), scored("a/z/0", nDCG5=0.3)])
    square, pairs = overlap_tables(record, runs)
    assert texts(square) == {"x": ["", "50.00"], "y": ["50.00", ""]}
    assert texts(pairs) == {"x – y": ["10.00", "20.00", "30.00", "40.00", "50.00"]}


# ---- what a report holds


def test_times_and_dates_leave_accuracy_tables_alone(tmp_path: Path) -> None:
    cells = [
        cell(f"a/{model}/{seed}", metrics=measures(0.5 + at / 10)) for at, model in enumerate("mn") for seed in (0, 1)
    ]
    put(tmp_path / "one", cells)
    later = [replace(each, finished="2030-01-01", seconds={"train": 9.0, "predict": 9.0}) for each in reversed(cells)]
    put(tmp_path / "two", later)
    first, second = (collected([tmp_path / name]).suites[0] for name in ("one", "two"))
    assert first.datasets[0].accuracy == second.datasets[0].accuracy
    assert first.datasets[0].measures == second.datasets[0].measures
    assert first.datasets[0].costs != second.datasets[0].costs


def test_what_is_not_there_is_said_once_and_not_drawn(tmp_path: Path) -> None:
    full = cell("a/full/0", groups=groups(0.5), tail=tail(0.5), reliability=reliability(1.2))
    lines = log(0.5, random.Random(1))
    put(tmp_path, [full, cell("a/bare/0")], logs={"a/full/0": lines})
    found = collected([tmp_path])
    (part,) = found.suites[0].datasets
    assert part.missing == [
        "No frequency groups for bare.",
        "No tail metrics for bare.",
        "No reliability diagram for bare.",
        "No training log for bare.",
        "No overlap of predictions.",
    ]
    assert page(found).count("<svg") == 2 + 1 + 2 + 4  # AUC and AUPR, reliability, loss and score, costs
    put(tmp_path / "bare", [cell("a/bare/0")])
    found = collected([tmp_path / "bare"])
    assert "<svg" not in page(found)
    assert "No reliability diagram for any model." in page(found)


def test_a_log_that_cannot_be_read_costs_its_curves_only(tmp_path: Path) -> None:
    put(tmp_path, [cell("a/m/0")], logs={"a/m/0": [{"epoch": 1, "loss": 0.5}]})
    (part,) = collected([tmp_path]).suites[0].datasets
    assert part.curves == {}
    assert part.missing[0].startswith("Log of a/m/0, line 1: 'step' is missing.")


def test_several_folders_are_sections_and_one_named_twice_is_one(tmp_path: Path) -> None:
    put(tmp_path / "one", [cell("a/m/0")])
    put(tmp_path / "two", [cell("a/m/0")])
    put(tmp_path / "three", [cell("a/m/0")], suite="large")
    found = collected([tmp_path / "one", tmp_path / "two", tmp_path / "three", tmp_path / "one"])
    assert [suite.title for suite in found.suites] == ["small (one)", "small (two)", "large"]


def test_noisy_data_sets_have_a_line_and_no_statistics(tmp_path: Path) -> None:
    noise = {"kind": "flip", "rate": 0.2, "of": "a"}
    records = [
        DatasetRecord("a", statistics=statistics(1000, 50, 20.0)),
        DatasetRecord("a-flip-20", statistics=statistics(1000, 50, 20.0), noise=noise),
    ]
    put(tmp_path, [cell("a/m/0"), cell("a-flip-20/m/0")], records)
    found = collected([tmp_path])
    assert found.suites[0].statistics is not None
    assert found.suites[0].statistics.columns == ("a",)
    assert texts(found.suites[0].statistics)["training documents"] == ["1,000"]
    assert "a-flip-20: a with label noise, flip at rate 0.2." in page(found)


def test_a_study_shows_its_figure_and_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, [cell("a/m/0")], study={"kind": "noise"})
    table = Table("What noise does", "rate", ("P@1",), (Row("0.2", (TableEntry("41.00"),)),))
    monkeypatch.setattr(report_module, "study_figure", lambda results: ("<svg><title>noise</title></svg>", table))
    found = collected([tmp_path])
    assert '<figure class="single"><svg><title>noise</title></svg></figure>' in page(found)
    assert "xmtc bench small --data DATA --out DIR --only a/m/0" in page(found)
    assert "| 0.2 | 41.00 |" in markdown(found)
    monkeypatch.undo()
    put(tmp_path / "new", [cell("a/m/0")], study={"kind": "of a later version"})
    assert collected([tmp_path / "new"]).suites[0].study is None


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"metrics": "high"}, "metrics"),
        ({"metrics": {"P@1": "high"}}, "metrics"),
        ({"seconds": {"train": [1]}}, "seconds"),
        ({"model_bytes": "many"}, "model_bytes"),
        ({"reliability": []}, "reliability"),
    ],
)
def test_a_cell_of_another_form_is_refused(tmp_path: Path, changes: dict[str, Any], name: str) -> None:
    put(tmp_path, [cell("a/m/0", **changes)])
    with pytest.raises(DataError, match=rf"a/m/0/cell\.json: damaged, '{name}' is invalid\."):
        collected([tmp_path])


@pytest.mark.parametrize(
    "changes",
    [
        {"groups": {"standard": [{"least": 5}]}},
        {"tail": {"min": 3}},
        {"reliability": {"ECE@5": 0.1, "bins": [{"count": 3}]}},
        {"threshold": {"scores": 4}},
    ],
)
def test_damage_further_down_is_one_line_too(tmp_path: Path, changes: dict[str, Any]) -> None:
    put(tmp_path, [cell("a/m/0", **changes)])
    with pytest.raises(DataError, match=r"a\.json: this file or one of its runs is damaged\."):
        collected([tmp_path])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise": "much"}, r"a\.json: damaged, 'noise' is invalid\."),
        ({"overlap": {}}, r"a\.json: damaged, 'overlap' is invalid\."),
        ({"overlap": [{"models": ["m", "n"]}]}, r"a\.json: this file or one of its runs is damaged\."),
        ({"statistics": {"documents": "many"}}, r"datasets: this file or one of its runs is damaged\."),
    ],
)
def test_damaged_data_sets(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    put(tmp_path, [cell("a/m/0"), cell("a/n/0")], [DatasetRecord("a", **changes)])
    with pytest.raises(DataError, match=words):
        collected([tmp_path])


# ---- the page


class Parsed(HTMLParser):
    """Tags with their attributes, in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return collected([realistic(tmp_path_factory.mktemp("bench"))])


def test_the_page_stands_alone_and_holds_together(whole: Report) -> None:
    html = page(whole)
    parsed = Parsed(html)
    assert not {tag for tag, _ in parsed.tags} & {"script", "link", "img", "iframe", "object", "image", "use"}
    assert not re.search(r"url\(|@import|\bon\w+=", html)
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in parsed.all("a"):
        assert (attributes["href"] or "").removeprefix("#") in ids
    levels = [int(tag[1]) for tag, _ in parsed.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(attributes.get("scope") in ("col", "row", "colgroup") for attributes in parsed.all("th"))
    assert len(parsed.all("caption")) == len(parsed.all("table"))


def test_every_picture_has_a_title_and_a_description(whole: Report) -> None:
    pictures = re.findall(r"<svg.*?</svg>", page(whole), flags=re.DOTALL)
    # AUC and AUPR, four reliabilities, loss and score, four costs, of two data sets
    assert len(pictures) == 2 * (2 + 4 + 2 + 4)
    for picture in pictures:
        drawn = ElementTree.fromstring(picture)
        assert drawn.findtext(f"{SVG}title")
        assert drawn.findtext(f"{SVG}desc")
        assert int(drawn.attrib["width"]) <= 420  # or words would be too small on a phone


def test_every_cell_tells_how_it_was_made(whole: Report) -> None:
    html = page(whole)
    for each in whole.suites[0].results.cells:
        assert f"--out DIR --only {each.name}</code>" in html
    for words in ("setting: head.tree.height", "machine: gpu", "2026-01-02T03:04:05+00:00", "seed"):
        assert words in html


def test_hostile_names_are_words(tmp_path: Path, known: Published) -> None:
    name, words = "<img src=x onerror=alert(1)>", '<script>alert("&")</script>|*\u0007'
    bad = cell(f"a/{name}/0", kind="parabel", settings={words: words}, machine={words: words}, command=words)
    bad = replace(bad, groups=groups(0.5), reliability=reliability(1.5), facts={words: [words]})
    overlap = [{"models": [name, "other"], "shared": {"5": 0.5}}]
    record = DatasetRecord("a", about=words, published_as="cooking", overlap=overlap)
    lines = log(0.5, random.Random(1))
    put(tmp_path, [bad, cell("a/other/0")], [record], suite=words, about=words, logs={str(bad.name): lines})
    found = collected([tmp_path])
    html = page(found)
    assert not {tag for tag, _ in Parsed(html).tags} & {"script", "img"}
    assert "\u0007" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    rows = [line for line in markdown(found).splitlines() if line.startswith("| \\<img")]
    assert len(rows) == 2
    assert all(
        len(re.findall(r"(?<!\\)\|", row)) == len(re.findall(r"\|", rule))
        for row, rule in zip(rows, _rules(found), strict=True)
    )
    assert "<" not in markdown(found).replace("\\<", "")


def _rules(found: Report) -> list[str]:
    """The lines below the heads of accuracy and cost tables."""
    return [line for line in markdown(found).splitlines() if line.startswith("| ---")][-2:]


@pytest.mark.long
def test_two_hundred_cells_fit_in_five_megabytes(tmp_path: Path) -> None:
    found = collected([realistic(tmp_path, seeds=range(4), models=25)])
    assert len(found.suites[0].results.cells) == 200
    assert len(page(found).encode()) < 5_000_000


# ---- plots


def test_names_in_a_scatter_meet_neither_each_other_nor_a_point() -> None:
    drawn = random.Random(5)
    for count in (2, 8, 16):
        widths = [6.4 * drawn.randint(6, 15) for _ in range(count)]
        places = [(drawn.uniform(80, 380), drawn.uniform(50, 220)) for _ in widths]
        panel = Bbox.from_extents(60, 32, 414, 260)
        boxes = [box for box in place_names(widths, places, panel) if box is not None]
        assert len(boxes) == count
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        for box in boxes:
            assert panel.contains(box.x0, box.y0)
            assert panel.contains(box.x1, box.y1)
            assert not any(box.contains(x, y) for x, y in places)


def test_a_scatter_is_logarithmic_across_and_keeps_a_poor_model_from_pressing_the_others_together() -> None:
    points = [CostPoint("a", 1, 50.0), CostPoint("b", 10, 48.0), CostPoint("c", 100, 47.0), CostPoint("poor", 0.1, 3.0)]
    plot = scatter("Cost", points, xlabel="s", ylabel="%")
    (axes,) = plot.figure.axes
    plot.figure.draw_without_rendering()
    starts = [axes.transData.transform(each.get_offsets()[0]).tolist() for each in axes.collections]
    assert len(starts) == 4
    assert starts[3][0] < starts[0][0] < starts[1][0] < starts[2][0]
    assert starts[1][0] - starts[0][0] == pytest.approx(starts[2][0] - starts[1][0])
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c", "poor ↓ 3.0"]
    assert starts[0][1] - starts[2][1] > 100
    assert starts[3][1] < starts[2][1]


def test_a_line_chart_draws_points_bars_and_names() -> None:
    series = {"<a>": [(0.0, 10.0), (1.0, 20.0), (2.0, 15.0)], "b": [(0.0, 12.0), (2.0, 12.0)], "none": []}
    plot = line_chart("T", series, xlabel="noise", ylabel="P@1, %", errors={"<a>": [1.0, 0.0, 2.0]})
    (axes,) = plot.figure.axes
    drawn = [each for each in axes.lines if each.get_linestyle() != "None" and len(each.get_xdata())]
    expected = [[list(place) for place in series[name]] for name in ("<a>", "b")]
    assert [each.get_xydata().tolist() for each in drawn] == expected
    (bars,) = axes.containers[0][2]
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[9.0, 11.0], [13.0, 17.0]]
    words = [text.text for text in ElementTree.fromstring(plot.svg()).iter(f"{SVG}text")]
    assert {"T", "<a>", "b", "noise", "P@1, %"} <= set(words)
    assert "none" not in words


def test_a_line_chart_of_one_point_and_of_named_places() -> None:
    ElementTree.fromstring(line_chart("T", {"": [(3.0, 0.0)]}, xlabel="x", ylabel="y").svg())
    marks = [(0.0, "many"), (1.0, "few")]
    plot = line_chart("T", {"m": [(0.0, 1.0), (1.0, 2.0)]}, xlabel="x", ylabel="y", marks=marks)
    words = [text.text for text in ElementTree.fromstring(plot.svg()).iter(f"{SVG}text")]
    assert {"many", "few"} <= set(words)


def test_a_small_reliability_diagram_places_bins() -> None:
    bins = (ReliabilityBin(10, 0.25, 0.5, 0.2, 0.3), ReliabilityBin(10, 0.75, 0.5, 0.7, 0.8))
    (axes,) = small_reliability_plot("m", Reliability(5, 0.25, bins)).figure.axes
    (found,) = [each for each in axes.collections if (each.get_gid() or "").startswith("bin|")]
    assert found.get_offsets().tolist() == [[0.25, 0.5], [0.75, 0.5]]
