"""Studies: the suites that they are, and the figures and tables that follow from made-up results."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.support.bench_folders import cell, measures, put, tail
from tests.support.report_tables import best, texts
from xmtc.core import config
from xmtc.core.errors import ConfigError, DataError, MissingExtraError, UnsupportedError
from xmtc.experiments.records import Cell, DatasetRecord, Results, check_name, read_results
from xmtc.experiments.runs import model_of
from xmtc.experiments.studies import (
    RATES,
    StudyFiles,
    ablation_suite,
    model_section,
    noise_suite,
    study_figure,
    tail_suite,
)
from xmtc.experiments.suites import Suite
from xmtc.experiments.tables import NOTHING
from xmtc.models.registry import MODELS, model_class
from xmtc.recipes import find_recipe, shipped
from xmtc.views.charts import dot_chart
from xmtc.views.svg import stacked

SVG = "{http://www.w3.org/2000/svg}"
FILES = StudyFiles(Path("news/train.jsonl"), Path("news/test.jsonl"))


def words(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def tips(svg: str) -> list[str]:
    """What points say when they are pointed at."""
    root = ElementTree.fromstring(svg)
    found = (node.find(f"{SVG}title") for node in root.iter() if node.tag in (f"{SVG}path", f"{SVG}circle"))
    return [node.text or "" for node in found if node is not None]


# ---- suites


def test_noise_is_a_suite() -> None:
    suite = noise_suite(FILES, ["popularity", "knn"], settings={}, seeds=[0, 1])
    assert suite.seeds == (0, 1)
    assert len(suite.datasets) == 1 + 2 * (len(RATES) - 1), "what is clean is run once"
    assert len(suite.cells()) == 13 * 2 * 2
    clean, worst = suite.datasets["news-clean"], suite.datasets["news-flip-60"]
    assert clean.noise is not None
    assert clean.noise.rate == 0
    assert worst.noise is not None
    assert (worst.noise.kind, worst.noise.rate) == ("flip", 0.6)
    for spec in suite.datasets.values():
        assert (spec.hold_out, spec.made_from, spec.valid) == (0.2, "news", "")
        assert spec.train == str(Path("news/train.jsonl").resolve())
    assert sorted({spec.noise.rate for spec in suite.datasets.values() if spec.noise}) == list(RATES)


def test_rates_and_kinds_of_noise() -> None:
    def names(**how: Any) -> list[str]:
        return list(noise_suite(FILES, ["knn"], settings={}, seeds=[0], **how).datasets)

    assert names(rates=[0.07, 0, 0.07], kinds=["missing", "missing"]) == ["news-clean", "news-missing-7"]
    assert names(rates=[0.125], kinds=["flip"]) == ["news-flip-12.5"]
    for rates in ([], [1.0], [-0.1], [float("nan")]):
        with pytest.raises(ConfigError, match=r"^noise rates must be numbers ≥ 0 and < 1, such as 0,0.2,0.4.$"):
            names(rates=rates)
    with pytest.raises(ConfigError, match=r"^unknown kind of noise 'fip'. Available: missing, flip.$"):
        names(kinds=["fip"])
    with pytest.raises(ConfigError, match="Leave out --valid"):
        noise_suite(StudyFiles(Path("a"), Path("b"), Path("c")), ["knn"], settings={}, seeds=[0])


def test_names_of_data_sets() -> None:
    names = {
        "x/eurlex/train.jsonl.xz": "eurlex",
        "x/eurlex/trn.json": "eurlex",
        "x/Tweets 2020.csv": "tweets-2020",
        "x/数据.jsonl": "data",
        f"x/{'long' * 40}.jsonl": ("long" * 15),
    }
    for path, name in names.items():
        assert StudyFiles(Path(path), Path("t")).name == name
        check_name("data set", f"{name}-missing-12.5")


def test_models_by_name_and_by_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('model = "parabel"\n[settings]\ntrees = 2\n')
    name, section = model_section(str(recipe), {"cost": 3.0})
    assert (name, section["model"], section["recipe"]) == ("mine", "parabel", str(recipe.resolve()))
    assert model_section("cooking/parabel", {})[0] == "parabel"
    suite = tail_suite(FILES, ["knn", str(recipe)], settings={}, seeds=[0])
    made = model_of(suite, suite.cells()[1]).config
    assert (suite.cells()[1].model, made.trees) == ("mine", 2)
    both = tail_suite(FILES, ["parabel", str(recipe)], settings={}, seeds=[0])
    assert [cell.model for cell in both.cells()] == ["parabel", "mine"]
    with pytest.raises(ConfigError, match=r"^model 'mine' is given twice. Give each once, or write a suite"):
        tail_suite(FILES, [str(recipe), str(recipe)], settings={}, seeds=[0])
    recipe.write_text("[settings]\ntrees = 2\n")
    with pytest.raises(ConfigError, match=r'does not name its model. Add model = "NAME".$'):
        model_section(str(recipe), {})
    with pytest.raises(ConfigError, match="parabell"):
        model_section("parabell", {})


def test_tail_keeps_what_was_said_of_the_files() -> None:
    files = StudyFiles(Path("a.csv"), Path("b.csv"), Path("v.csv"), Path("l.tsv"), {"text_fields": ["x"]})
    spec = tail_suite(files, ["knn"], settings={}, seeds=[0]).datasets["a"]
    assert spec.text_fields == ("x",)
    assert [Path(str(each)).name for each in (spec.train, spec.valid, spec.test, spec.labels)] == [
        "a.csv",
        "v.csv",
        "b.csv",
        "l.tsv",
    ]


# ---- ablations


def declared() -> list[tuple[str, str]]:
    found = []
    for name in MODELS:
        try:
            found += [(name, part) for part in model_class(name).ablations]
        except MissingExtraError:
            continue
    return found


def is_of(recipe: str, name: str) -> bool:
    """Whether a recipe is of a model; a variant is named behind a hyphen."""
    return recipe.rpartition("/")[2].partition("-")[0] == name


@pytest.mark.parametrize(("name", "part"), declared())
def test_every_ablation_makes_another_model(name: str, part: str) -> None:
    """Than the default or, what is no part of that, than a recipe."""
    kind = model_class(name)
    recipes = [config.read_recipe(find_recipe(each))[1] for each in shipped() if is_of(each, name)]
    bases = [{}, *recipes]
    assert any(kind(**config.merge(base, kind.ablations[part])).config != kind(**base).config for base in bases)
    assert [each for each in kind.ablations.values() if each == kind.ablations[part]] == [kind.ablations[part]]
    check_name("model", f"{name}-{part}")


def test_parts_that_are_not_there_are_not_taken_away() -> None:
    plain, fewer = (ablation_suite(FILES, "parabel", settings=each, seeds=[0]) for each in ({}, {"trees": 1}))
    assert [name for name in plain.models if name not in fewer.models] == ["parabel-one-tree"]


def test_ablation_is_a_suite() -> None:
    suite = ablation_suite(FILES, "knn", settings={"neighbours": 9}, seeds=[4])
    made = {cell.model: model_of(suite, cell).config for cell in suite.cells()}
    assert list(made) == ["knn", "knn-one-neighbour", "knn-equal-votes"]
    assert [each.neighbours for each in made.values()] == [9, 1, 9]
    assert made["knn-equal-votes"].power == 0
    with pytest.raises(
        UnsupportedError, match=r"^popularity has no components to ablate\. Models with components: .*knn, .*\.$"
    ):
        ablation_suite(FILES, "popularity", settings={}, seeds=[0])


# ---- figures


def results(folder: Path, suite: Suite, cells: list[Cell], records: bool = True) -> Results:
    """As a run of the suite leaves them."""
    noises = [
        DatasetRecord(name, noise={"kind": spec.noise.kind, "rate": spec.noise.rate, "of": spec.made_from})
        for name, spec in suite.datasets.items()
        if spec.noise is not None and records
    ]
    return read_results(put(folder, cells, noises, suite=suite.name, study=suite.study))


def worth(name: str, value: float, **more: Any) -> Cell:
    return cell(name, metrics=measures(value), **more)


@pytest.fixture
def noise() -> Suite:
    return noise_suite(FILES, ["knn", "popularity"], rates=[0, 0.2, 0.5], settings={}, seeds=[0, 1])


def noise_cells() -> list[Cell]:
    values = {
        "news-clean/knn": (0.8, 0.9),
        "news-missing-20/knn": (0.7, 0.7),
        "news-missing-50/knn": (0.4, 0.6),
        "news-flip-20/knn": (0.5, 0.6),
        "news-clean/popularity": (0.1, 0.1),
        "news-missing-50/popularity": (0.6, 0.6),
    }
    return [worth(f"{name}/{seed}", value) for name, both in values.items() for seed, value in enumerate(both)]


def test_noise_is_told(tmp_path: Path, noise: Suite) -> None:
    figure, table = study_figure(results(tmp_path, noise, noise_cells()))
    assert table.caption == "P@1 by noise rate (%)"
    assert table.columns == ("0 %", "20 %", "50 %")
    assert texts(table) == {
        "knn, missing": ["85.00 ± 7.07", "70.00 ± 0.00", "50.00 ± 14.14"],
        "popularity, missing": ["10.00 ± 0.00", NOTHING, "60.00 ± 0.00"],
        "knn, flip": ["85.00 ± 7.07", "55.00 ± 7.07", NOTHING],
        "popularity, flip": ["10.00 ± 0.00", NOTHING, NOTHING],
    }
    assert best(table)["knn, missing"] == ["0 %", "20 %"]
    assert best(table)["popularity, missing"] == ["50 %"]
    assert "(20 % of the training documents) keeps its labels" in table.note
    told = tips(figure)
    assert "knn: 85 at 0" in told
    assert "knn: 55 at 20" in told
    assert "popularity: 60 at 50" in told
    assert len(told) == 8, "each value is a point"
    assert "Missing labels" in words(figure)
    assert "Missing and wrong labels" in words(figure)


def test_noise_is_told_of_a_run_that_stopped(tmp_path: Path, noise: Suite) -> None:
    """One kind is not there yet, and the data sets are not described."""
    made_of = {"data": {"noise": {"kind": "missing", "rate": 0.2}}}
    found = results(tmp_path, noise, [worth("news-missing-20/knn/0", 0.7, made_of=made_of)], records=False)
    figure, table = study_figure(found)
    assert texts(table) == {"knn, missing": ["70.00"]}
    assert tips(figure) == ["knn: 70 at 20"]


def test_cells_of_others_are_not_told_of(tmp_path: Path, noise: Suite) -> None:
    others = [worth("other/knn/0", 1.0), worth("news-clean/parabel/0", 1.0)]
    alone = study_figure(results(tmp_path / "a", noise, noise_cells()))
    assert study_figure(results(tmp_path / "b", noise, [*noise_cells(), *others])) == alone
    with pytest.raises(UnsupportedError, match=r"contains no complete run of the study. Run it first.$"):
        study_figure(results(tmp_path / "c", noise, others))


def test_an_ablation_is_told(tmp_path: Path) -> None:
    suite = ablation_suite(FILES, "knn", settings={}, seeds=[0, 1])
    plain: dict[str, Any] = {"neighbours": 0, "power": None, "text": {"min_df": 1}}
    cells = [
        worth("news/knn/0", 0.7, settings=plain),
        worth("news/knn/1", 0.8, settings=plain),
        worth("news/knn-one-neighbour/0", 0.4, settings=plain | {"neighbours": 1}),
        worth("news/knn-equal-votes/0", 0.9, settings=plain | {"power": 0.0, "text": {"min_df": 2}}),
        worth("another/knn/0", 0.1, settings=plain),
    ]
    figure, table = study_figure(results(tmp_path, suite, cells))
    ndcg = 98 * 0.72  # of a worth of one, as the made-up results have it
    assert [row.name for row in table.rows] == ["full model", "equal-votes", "one-neighbour"]
    told = texts(table)
    assert told["full model"][0] == "75.00 ± 7.07"
    assert told["full model"][-2:] == ["+0.00", NOTHING]
    assert told["equal-votes"][-2:] == [f"{0.15 * ndcg:+.2f}", "power=0.0, text.min_df=2"]
    assert told["one-neighbour"][-2:] == [f"−{0.35 * ndcg:.2f}", "neighbours=1"]
    assert table.columns[-2] == "change in nDCG@5"
    assert tips(figure)[0] == f"full model: {0.75 * ndcg:.2f} ± {0.0707107 * ndcg:.2f}"
    assert [tip.partition(":")[0] for tip in tips(figure)] == ["full model", "equal-votes", "one-neighbour"]
    dashed = [node for node in ElementTree.fromstring(figure).iter(f"{SVG}path") if node.get("stroke-dasharray")]
    first = next(ElementTree.fromstring(figure).iter(f"{SVG}circle"))
    (line,) = [re.findall(r"[\d.]+", node.get("d", "")) for node in dashed]
    middle = pytest.approx(float(first.get("cx", 0)), abs=0.15)
    assert [float(line[0]), float(line[2])] == [middle, middle], "the line goes through the whole model"


def test_an_ablation_without_the_whole(tmp_path: Path) -> None:
    suite = ablation_suite(FILES, "knn", settings={}, seeds=[0])
    figure, table = study_figure(results(tmp_path, suite, [worth("news/knn-equal-votes/0", 0.9)]))
    assert texts(table)["equal-votes"][-2:] == [NOTHING, NOTHING]
    assert "stroke-dasharray" not in figure


def test_the_tail_is_told(tmp_path: Path) -> None:
    suite = tail_suite(FILES, ["knn", "popularity", "parabel"], settings={}, seeds=[0, 1])
    cells = [
        worth("news/knn/0", 0.8, tail=tail(0.8)),
        worth("news/knn/1", 0.8, tail=tail(0.6)),
        worth("news/popularity/0", 0.1, tail=tail(0.3)),
        worth("news/parabel/0", 0.9),
    ]
    figure, table = study_figure(results(tmp_path, suite, cells))
    assert table.columns == ("P@1, min", "P@10, min", "P@20, min", "P@1, max", "P@10, max", "P@20, max")
    told = texts(table)
    assert list(told) == ["knn", "popularity"], "one has no tail"
    assert told["knn"][:2] == ["28.00 ± 5.66", "42.00 ± 8.49"]
    assert told["popularity"] == ["12.00", "18.00", "21.00", "4.00", "6.00", "7.00"]
    assert best(table) == {"knn": list(table.columns), "popularity": []}
    assert {"top 1", "top 10", "top 20"} <= set(words(figure))
    assert "knn: 42 at 1" in tips(figure)
    with pytest.raises(UnsupportedError, match="no model in these results can score given labels"):
        study_figure(results(tmp_path / "none", suite, [worth("news/parabel/0", 0.9)]))


def test_studies_that_are_not_known(tmp_path: Path, noise: Suite) -> None:
    found = results(tmp_path, noise, noise_cells())
    path = tmp_path / "bench.json"
    values = json.loads(path.read_text())
    for study, words_, kind in (
        ({"kind": "weather"}, "does not support the study 'weather'", UnsupportedError),
        ({}, "does not support the study 'None'", UnsupportedError),
        ({"kind": "noise"}, "bench.json: damaged. Run the study again.", DataError),
        (found.study | {"kinds": 3}, "bench.json: damaged.", DataError),
    ):
        path.write_text(json.dumps(values | {"study": study}))
        with pytest.raises(kind, match=words_):
            study_figure(read_results(tmp_path))


# ---- what they are drawn with


def test_dots() -> None:
    plot = dot_chart("A & B", {"<one>": (10.0, 2.0), "two": (14.0, 0.0)}, xlabel="%", line=10.0)
    root = ElementTree.fromstring(plot.svg())
    one, two = root.iter(f"{SVG}circle")
    assert float(one.get("cx", 0)) < float(two.get("cx", 0))
    assert float(one.get("cy", 0)) < float(two.get("cy", 0))
    assert tips(plot.svg()) == ["<one>: 10.00 ± 2.00", "two: 14.00"]
    (axes,) = plot.figure.axes
    spreads = [list(line.get_xdata()) for line in axes.lines if line.get_linestyle() == "-"]
    assert spreads == [[8.0, 12.0]], "one value has no spread"
    width = float(root.get("width", 0))
    assert all(0 < float(node.get("cx", 0)) < width for node in (one, two))
    equal = dot_chart("Equal", {"a": (0.0, 0.0), "b": (0.0, 0.0)}, xlabel="%")
    assert ElementTree.fromstring(equal.svg()) is not None


SIZED = (('width="100" height="40"', "First &amp; last"), ('width="130" height="60"', "Second"))


def test_pictures_below_each_other() -> None:
    pictures = [f'<svg xmlns="{SVG[1:-1]}" {size}><title>{title}</title><g/></svg>' for size, title in SIZED]
    root = ElementTree.fromstring(stacked(pictures))
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == ("130", "100", "0 0 130 100")
    inner = root.findall(f"{SVG}svg")
    assert [each.get("y") for each in inner] == ["0", "40"]
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == "First & last and Second"
