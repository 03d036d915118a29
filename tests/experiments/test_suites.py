"""Suites: what a file says, the cells that follow from it, and one line for each mistake in it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xmtc.core import config
from xmtc.core.errors import ConfigError, DataError, MissingExtraError
from xmtc.core.runtime import Runtime
from xmtc.experiments.records import CellName
from xmtc.experiments.runs import RunJob, _placed, model_of
from xmtc.experiments.suite_data import SuiteData, find
from xmtc.experiments.suites import DATA, DataSpec, Suite, chosen, parsed, read_suite, shipped

CONTENT: dict[str, Any] = {
    "about": "Two data sets.",
    "seeds": [0, 1],
    "datasets": {
        "one": {"train": "one/train.jsonl", "valid": "one/dev.jsonl", "test": "one/test.jsonl"},
        "cooking": {"planted": {"documents": 50, "test": 10, "labels": 5}, "hold_out": 0.2},
    },
    "models": {
        "both": {"model": "consensus", "members": ["knn", "trees"], "seeds": [1, 4], "datasets": ["cooking"]},
        "popularity": {"datasets": ["cooking"], "seeds": [7]},
        "knn": {"datasets": ["cooking"], "settings": {"text.min_df": 2}},
        "trees": {"model": "parabel", "calibrate": True, "settings": {"trees": 1}, "seeds": [3]},
    },
}


def content() -> dict[str, Any]:
    return copy.deepcopy(CONTENT)


def named(cells: list[CellName]) -> list[str]:
    return [str(cell) for cell in cells]


def test_cells_come_in_order_and_members_first() -> None:
    assert named(parsed("small", content()).cells()) == [
        "one/trees/3",
        "cooking/popularity/7",
        "cooking/knn/0",
        "cooking/knn/1",
        "cooking/trees/3",
        "cooking/both/1",
        "cooking/both/4",
    ]


def test_members_have_the_same_seed_or_their_first() -> None:
    suite = parsed("small", content())
    assert named(suite.members(CellName("cooking", "both", 1))) == ["cooking/knn/1", "cooking/trees/3"]
    assert named(suite.members(CellName("cooking", "both", 4))) == ["cooking/knn/0", "cooking/trees/3"]
    assert suite.members(CellName("cooking", "knn", 1)) == []
    assert model_of(suite, CellName("cooking", "both", 1)).config.members == ("cooking/knn/1", "cooking/trees/3")


def test_what_is_not_said() -> None:
    suite = parsed("small", {"datasets": {"a": {"train": "x", "test": "y"}}, "models": {"knn": {}}})
    assert (suite.seeds, suite.about, suite.study) == ((0,), "", {})
    assert suite.datasets["a"] == DataSpec(train="x", test="y")
    assert suite.models["knn"].spec.model == "knn"
    assert named(suite.cells()) == ["a/knn/0"]


def test_a_model_on_a_data_set_runs_on_what_was_made_of_it() -> None:
    values = content()
    base = values["datasets"]["cooking"]
    values["datasets"] = {
        f"cooking-{rate}": base | {"made_from": "cooking", "noise": {"rate": rate / 100}} for rate in (0, 40)
    }
    values["models"] = {"popularity": {"datasets": ["cooking"], "seeds": [7]}}
    suite = parsed("small", values)
    assert named(suite.cells()) == ["cooking-0/popularity/7", "cooking-40/popularity/7"]
    assert suite.datasets["cooking-40"].noise is not None
    assert suite.datasets["cooking-40"].noise.rate == 0.4


def test_a_recipe_by_the_name_of_the_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine-cooking.toml").write_text('model = "parabel"\n[settings]\ntrees = 5\ntext = { min_df = 4 }\n')
    values = content()
    values["models"]["trees"]["recipe"] = "mine-{dataset}.toml"
    values["models"]["trees"]["datasets"] = ["cooking"]
    values["models"]["trees"]["settings"] = {"trees": 2}
    suite = parsed("small", values)
    settings = config.to_mapping(model_of(suite, CellName("cooking", "trees", 3)).config)
    assert (settings["trees"], settings["text"]["min_df"]) == (2, 4), "default < recipe < suite"
    values["models"]["trees"]["model"] = "bonsai"
    with pytest.raises(ConfigError, match=r"^recipe 'mine-\{dataset\}.toml': is for parabel, not for bonsai\."):
        model_of(parsed("small", values), CellName("cooking", "trees", 3))


def test_files_in_the_folder_of_the_data_sets(tmp_path: Path) -> None:
    values = content()
    values["datasets"]["one"] |= {"optional": True}
    suite = parsed("small", values)
    assert find("one", suite.datasets["one"], tmp_path, tmp_path / "made") is None
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "train.jsonl").write_text("{}")
    (tmp_path / "one" / "dev.jsonl.gz").write_text("{}")
    (tmp_path / "one" / "test.jsonl").write_text("{}")
    found = find("one", suite.datasets["one"], tmp_path, tmp_path / "made")
    assert found is not None
    assert {use: path.name for use, path in found.files.items()} == {
        "train": "train.jsonl",
        "valid": "dev.jsonl.gz",
        "test": "test.jsonl",
    }
    assert found.hashes["train"] == found.hashes["test"]
    first = DataSpec(train=("no.txt", "one/train.jsonl"), test="one/test.jsonl", labels=".")
    with pytest.raises(DataError, match=r"no such file \(required by data set 'x' of the suite\)\. Pass the folder"):
        find("x", first, tmp_path, tmp_path / "made")
    with pytest.raises(DataError, match="no such file"):
        find("x", DataSpec(train=".", test="."), Path(), tmp_path / "made")


def test_paths_of_settings(tmp_path: Path) -> None:
    """DATA/ is a place here, and stays what it is in what is kept."""
    pytest.importorskip("torch")
    values = {
        "datasets": CONTENT["datasets"],
        "models": {"xml_cnn": {"settings": {"vectors": f"{DATA}vectors.npy"}}},
    }
    suite = parsed("small", values)
    cell = CellName("cooking", "xml_cnn", 0)
    order = RunJob(suite, cell, tmp_path / "data", tmp_path / "out", Runtime(), "")
    model = model_of(suite, cell)
    assert model.config.vectors == "DATA/vectors.npy"
    material = SuiteData("cooking", suite.datasets["cooking"], {}, {})
    assert _placed(model, order, material)["vectors"] == str(tmp_path / "data" / "vectors.npy")


def test_an_order_reads_as_it_was_written(tmp_path: Path) -> None:
    suite = parsed("small", content())
    order = RunJob(suite, suite.cells()[0], tmp_path / "d", tmp_path / "o", Runtime(threads=1, seed=3), "xmtc", True)
    assert RunJob.from_json(json.loads(json.dumps(order.to_json()))) == order


# ---- --only


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([], "abcdefg"),
        (["cooking/knn/*"], "cd"),
        (["cooking/knn"], "cd"),
        (["one"], "a"),
        (["*/trees"], "ae"),
        (["*/*/[01]"], "cdf"),
        (["cooking/both/4", "one"], "ag"),
    ],
)
def test_patterns(patterns: list[str], expected: str) -> None:
    cells = parsed("small", content()).cells()
    assert "".join("abcdefg"[cells.index(cell)] for cell in chosen(cells, patterns)) == expected


@pytest.mark.parametrize("pattern", ["", "cookin", "cooking/knn/0/1", "cooking/knn/2", "knn"])
def test_patterns_that_name_nothing(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"matches no run\. Write, for example, --only 'one/trees/\*'\.$"):
        chosen(parsed("small", content()).cells(), ["one", pattern])


# ---- mistakes


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        *groups, last = path
        for group in groups:
            values = values[group]
        values[last] = value

    return change


SEEDS = "'seeds' must be a list of distinct integers ≥ 0, such as [0, 1, 2]."
MISTAKES: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (
        put("sedes", value=[0]),
        "a suite has no key 'sedes'. Did you mean 'seeds'? Available: about, seeds, datasets and models.",
    ),
    (
        put("study", value={"kind": "noise"}),
        "a suite has no key 'study'. Available: about, seeds, datasets and models.",
    ),
    (put("about", value=3), "'about' must be a string. Got 3."),
    (put("seeds", value=[]), SEEDS),
    (put("seeds", value=[0, 0]), SEEDS),
    (put("seeds", value=[-1]), SEEDS),
    (put("seeds", value=[2**32]), SEEDS),
    (put("seeds", value=[True]), SEEDS),
    (put("seeds", value=3), SEEDS),
    (put("models", "knn", "seeds", value=[0, 0]), f"model 'knn': {SEEDS}"),
    (put("datasets", value={}), "a suite needs at least one dataset. Add [datasets.NAME]."),
    (put("models", value={}), "a suite needs at least one model. Add [models.NAME]."),
    (put("datasets", value=[1]), "'datasets' must be a table."),
    (put("models", "knn", value=[1]), "'models.knn' must be a table."),
    (put("models", "knn", "settings", value=1), "'models.knn.settings' must be a table."),
    (put("datasets", "cooking", "planted", value=1), "'datasets.cooking.planted' must be a table."),
    (
        put("datasets", "one", "trian", value="x"),
        "data set 'one' has no key 'trian'. Did you mean 'train'? Available: ",
    ),
    (put("datasets", "one", "train", value=""), "data set 'one': 'train' of data set must be the name of a file."),
    (
        put("datasets", "one", "test", value=7),
        "data set 'one': 'test' of data set must be a string or list of strings.",
    ),
    (
        put("datasets", "one", "hold_out", value=0.1),
        "data set 'one': 'hold_out' of data set must be 0 if 'valid' is given.",
    ),
    (put("datasets", "one", "propensity", value=[1]), "data set 'one': 'propensity' of data set must be a list of two"),
    (put("datasets", "one", "noise", value={"rate": 2}), "'noise' of data set 'one': 'rate' of noise must be a number"),
    (put("datasets", "cooking", "planted", "text", value=1), "'planted' of data set 'cooking' has no key 'text'."),
    (
        put("datasets", "cooking", "test", value="x"),
        "data set 'cooking': 'test' of data set must be omitted if 'planted'",
    ),
    (
        put("datasets", "cooking", "valid", value="x"),
        "data set 'cooking': 'valid' of data set must be omitted if 'planted'",
    ),
    (put("models", "parabell", value={}), "no model 'parabell'. Did you mean 'parabel'? Available: "),
    (put("models", "knn", "modle", value="knn"), "model 'knn' has no key 'modle'. Did you mean 'model'? Available: "),
    (put("models", "knn", "calibrate", value=1), "model 'knn': 'calibrate' of model must be true or false. Got 1."),
    (
        put("models", "knn", "settings", value={"text": 1, "text.min_df": 2}),
        "model 'knn': 'text' is given both as a value and as a group.",
    ),
    (
        put("models", "popularity", "datasets", value=["cookin"]),
        "model 'popularity': no data set 'cookin'. The suite has: cooking, one.",
    ),
    (put("models", "both", "members", value=[]), "model 'both': 'members' is required for a consensus"),
    (
        put("models", "knn", "members", value=["trees"]),
        "model 'knn': 'members' is required for a consensus and not allowed",
    ),
    (put("models", "both", "members", value=["tree"]), "model 'both': 'tree' cannot be a member."),
    (put("models", "both", "members", value=["both"]), "model 'both': 'both' cannot be a member."),
    (put("models", "both", "members", value=["knn", "knn"]), "model 'both': a member is listed twice. List each once."),
    (put("models", "both", "datasets", value=[]), "model 'both': its member 'knn' does not run on 'one'."),
    (
        put("datasets", "one", "valid", value=""),
        "model 'trees' needs a validation set. Add 'valid' or 'hold_out' to data set 'one'.",
    ),
    (
        put("datasets", "cooking", "hold_out", value=0),
        "model 'both' needs a validation set. Add 'valid' or 'hold_out' to data set 'cooking'.",
    ),
    *(
        (put("datasets", name, value={"train": "x", "test": "y"}), f"data set '{told}': invalid name. Use at most")
        for name, told in (("a/b", "a/b"), ("..", ".."), ("", ""), ("a b", "a b"), ("a" * 101, "a" * 59 + "…"))
    ),
    (
        put("models", "-x", value={"model": "knn"}),
        "model '-x': invalid name. Use at most 100 letters, digits, '-', '_', '+' and '.'",
    ),
]


@pytest.mark.parametrize(("change", "line"), MISTAKES, ids=[line[:60] for _, line in MISTAKES])
def test_mistakes(change: Callable[[dict[str, Any]], None], line: str, tmp_path: Path) -> None:
    values = content()
    change(values)
    path = tmp_path / "mine.toml"
    path.write_text(toml(values), encoding="utf-8")
    with pytest.raises(ConfigError) as told:
        read_suite(path)
    assert str(told.value).startswith(f"{path}: {line}")
    assert "\n" not in str(told.value)


def toml(value: Any) -> str:
    """Enough TOML for what stands here."""

    def inline(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f'"{key}" = {inline(each)}' for key, each in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(inline, value)) + "]"
        return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)

    return "".join(f"{key} = {inline(each)}\n" for key, each in value.items())


def test_files_that_are_no_suites(tmp_path: Path) -> None:
    broken, latin = tmp_path / "broken.toml", tmp_path / "latin.toml"
    broken.write_text("seeds = [")
    latin.write_bytes(b'about = "\xe9"')
    for path in (broken, latin):
        with pytest.raises(ConfigError, match=rf"^{path}: invalid TOML"):
            read_suite(path)
    with pytest.raises(
        ConfigError, match=r"^no suite 'quik'\. Did you mean 'quick'\? Pass a TOML file, or one of: classic, "
    ):
        read_suite("quik")
    odd = tmp_path / "my suite.toml"
    odd.write_text(toml(content()))
    assert read_suite(odd).name == "my-suite"
    dated = tmp_path / "dated.toml"
    dated.write_text(toml(content()).replace('"Two data sets."', "2020-01-01"))
    with pytest.raises(ConfigError, match=r"dated.toml: 'about' must be a string\."):
        read_suite(dated)


# ---- those that come with the package


@pytest.mark.parametrize("name", shipped())
def test_shipped_suites(name: str) -> None:
    """Each parses, says what it is, finds its recipes, and its models take their settings."""
    suite: Suite = read_suite(name)
    assert suite.about
    assert not suite.study
    assert len(set(suite.cells())) == len(suite.cells()) > 0
    for cell in suite.cells():
        try:
            model = model_of(suite, cell)
        except MissingExtraError:
            continue
        assert model.name == suite.models[cell.model].spec.model
    for dataset, spec in suite.datasets.items():
        assert spec.about, dataset
