"""Settings: one truth, refused with a clear line where it is broken."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from xmtc import recipes
from xmtc.artifact.store import sealed
from xmtc.core.config import (
    Alias,
    Choices,
    Range,
    Settings,
    _warn_renamed,
    changed,
    current_names,
    flat,
    from_mapping,
    merge,
    parse_assignments,
    read_recipe,
    space,
    table,
    to_mapping,
)
from xmtc.core.errors import ConfigError, XmtcWarning
from xmtc.models.base import Model
from xmtc.models.knn import KnnSettings
from xmtc.models.registry import MODELS, available, model_class


@dataclass(frozen=True)
class Inner(Settings):
    of = "inner"
    width: int = 3
    """How wide."""
    kind: Literal["a", "b"] = "a"
    """Which."""


@dataclass(frozen=True)
class Outer(Settings):
    of = "outer"
    rate: float = 0.5
    """How fast."""
    sizes: tuple[int, ...] = ()
    """How large."""
    limit: int | None = None
    """How many at most."""
    on: bool = True
    """Whether."""
    title: str = "x"
    """What it says."""
    inner: Inner = field(default_factory=lambda: Inner(width=8))
    """The rest."""

    def check(self) -> None:
        self.require_range("rate", 0, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rat": 1}, "outer has no setting 'rat'. Did you mean 'rate'?"),
        ({"width": 3}, "outer has no setting 'width'. Did you mean 'inner.width'?"),
        ({"rate": 2}, "'rate' of outer must be a number from 0 to 1. Got 2.0."),
        ({"rate": "fast"}, "'rate' of outer must be a number. Got 'fast'."),
        ({"rate": True}, "'rate' of outer must be a number. Got True."),
        ({"sizes": 3}, "'sizes' of outer must be a list of integers. Got 3."),
        ({"sizes": [1, "b"]}, "'sizes' of outer must be an integer. Got 'b'."),
        ({"limit": 1.5}, "'limit' of outer must be an integer or none. Got 1.5."),
        ({"on": 1}, "'on' of outer must be true or false. Got 1."),
        ({"inner": {"kind": "c"}}, "'kind' of inner must be one of a, b. Got 'c'."),
        ({"inner.widht": 3}, "inner has no setting 'widht'. Did you mean 'width'?"),
        ({"rate.x": 3}, "'rate' of outer is a single value. Write rate=VALUE."),
        ({"inner": 3}, "'inner' of outer must be a group of settings. Got 3."),
    ],
)
def test_refused(values: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        from_mapping(Outer, values)


def test_a_group_set_in_part_keeps_its_owner_s_defaults() -> None:
    assert from_mapping(Outer, {"inner": {"kind": "b"}}).inner == Inner(width=8, kind="b")
    assert from_mapping(Outer, {"inner.kind": "b"}).inner == Inner(width=8, kind="b")
    assert from_mapping(KnnSettings, {"text.min_df": 5}).text.idf == "plain"
    assert changed(Outer(inner=Inner(width=1)), {"inner.kind": "b"}).inner == Inner(width=1, kind="b")


def test_round_trip() -> None:
    settings = from_mapping(Outer, {"sizes": [1, 2], "limit": 4, "rate": 1, "inner": {"width": 5}})
    plain = to_mapping(settings)
    assert plain["sizes"] == [1, 2]
    assert plain["inner"] == {"width": 5, "kind": "a"}
    assert from_mapping(Outer, plain) == settings


def test_table_shows_every_setting_with_its_owner_s_default() -> None:
    rows = {row.name: row for row in table(Outer())}
    assert list(rows) == ["rate", "sizes", "limit", "on", "title", "inner.width", "inner.kind"]
    assert rows["inner.width"].default == 8
    assert rows["inner.kind"].sentence == "Which."
    assert rows["limit"].kind == "integer or none"


def test_assignments_read_values_as_toml() -> None:
    given = ["a=1", "b.c=[1, 2]", "d=word", 'e="3"', "f=true", "g=1.5", "h=a=b"]
    expected = {"a": 1, "b.c": [1, 2], "d": "word", "e": "3", "f": True, "g": 1.5, "h": "a=b"}
    assert parse_assignments(given) == expected
    for bad in ("novalue", "=3"):
        with pytest.raises(ConfigError, match="expected key=value"):
            parse_assignments([bad])


def test_later_layers_win() -> None:
    merged = merge({"a": 1, "b": {"c": 1, "d": 1}}, {"b.c": 2}, {"a": 3})
    assert merged == {"a": 3, "b": {"c": 2, "d": 1}}
    with pytest.raises(ConfigError, match="both as a value and as a group"):
        merge({"a": 1, "a.b": 2})


@dataclass(frozen=True)
class Searched(Settings):
    of = "searched"
    rate: Annotated[float | Literal["auto"], Range(1, 10, log=True)] = "auto"
    """How fast."""
    count: Annotated[int, Range(1, 5)] = 2
    """How many."""
    plain: int = 3
    """Nothing to try."""
    on: Annotated[bool, Choices()] = True
    """Whether."""
    sizes: Annotated[tuple[int, ...], Choices((), (3, 5))] = ()
    """How large."""


@dataclass(frozen=True)
class Group(Settings):
    of = "group"
    inner: Searched = field(default_factory=Searched)
    """The rest."""
    kind: Annotated[Literal["a", "b", "c"], Choices("a", "c")] = "a"
    """Which."""


class TestSpaces:
    def test_what_stands_beside_a_type(self) -> None:
        assert space(Group()) == {
            "inner.rate": Range(1.0, 10.0, log=True),
            "inner.count": Range(1, 5),
            "inner.on": Choices(False, True),
            "inner.sizes": Choices((), (3, 5)),
            "kind": Choices("a", "c"),
        }
        assert [type(space(Group())[f"inner.{name}"].low) for name in ("rate", "count")] == [float, int]  # type: ignore[union-attr]

    def test_types_and_sentences_are_what_they_were(self) -> None:
        rows = {row.name: row for row in table(Group())}
        assert rows["inner.rate"].kind == "number or auto"
        assert rows["inner.count"].sentence == "How many."
        assert rows["inner.plain"].space is None
        assert [str(rows[name].space) for name in ("inner.rate", "inner.sizes", "kind")] == [
            "1 to 10, log scale",
            "[], [3, 5]",
            "a, c",
        ]
        with pytest.raises(ConfigError, match=r"'count' of searched must be an integer\. Got 'x'\."):
            from_mapping(Group, {"inner.count": "x"})

    @pytest.mark.parametrize("name", [name for name in MODELS if available(name)])
    def test_every_model_declares_what_it_can_take(self, name: str) -> None:
        start = model_class(name)().config
        values = flat(to_mapping(start))
        declared = space(start)
        assert declared or name == "popularity"
        for key, each in declared.items():
            tried: list[Any] = [each.low, each.high] if isinstance(each, Range) else list(each.values)
            assert len(tried) > 1, key
            for value in tried:
                after = flat(to_mapping(changed(start, {key: value})))[key]
                assert after == (list(value) if isinstance(value, tuple) else value)
            if isinstance(each, Range):
                assert each.low < each.high
                assert each.low > 0 or not each.log
                assert values[key] in each or isinstance(values[key], str), key
            else:
                assert values[key] in [list(value) if isinstance(value, tuple) else value for value in tried], key


class TestRecipes:
    def test_read(self, tmp_path: Path) -> None:
        path = tmp_path / "r.toml"
        path.write_text('model = "knn"\n[settings]\nneighbours = 7\ntext.min_df = 3\n')
        name, settings = read_recipe(path)
        model = model_class(name or "")(**settings)
        assert model.config.neighbours == 7
        assert model.config.text.min_df == 3

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("model = ", "invalid TOML"),
            ("neighbours = 3", "unknown key 'neighbours'"),
            ("model = 3", "must be a string"),
        ],
    )
    def test_refused(self, tmp_path: Path, content: str, message: str) -> None:
        path = tmp_path / "r.toml"
        path.write_text(content)
        with pytest.raises(ConfigError, match=message) as caught:
            read_recipe(path)
        assert str(caught.value).startswith(str(path))

    def test_unknown_name(self) -> None:
        with pytest.raises(ConfigError, match="no recipe 'nowhere/nothing'"):
            recipes.find_recipe("nowhere/nothing")

    def test_shipped_recipes_are_valid(self) -> None:
        for name in recipes.shipped():
            model, settings = read_recipe(recipes.find_recipe(name))
            assert model is not None
            assert Path(name).name.partition("-")[0] == model
            model_class(model)(**settings)


@dataclass(frozen=True)
class Renamed(Settings):
    size: Annotated[int, Alias("count")] = 3
    """How many."""
    inner: Inner = field(default_factory=Inner)
    """A group."""
    of = "renamed"


@dataclass(frozen=True)
class Whole(Settings):
    group: Annotated[Renamed, Alias("old_group")] = field(default_factory=Renamed)
    """A group whose own name and one of whose fields changed."""
    of = "whole"


RENAMED = {
    "training.held_out": ("xml_cnn", "training.validation_size", 7),
    "training.batch": ("xml_cnn", "training.batch_size", 7),
    "training.warm_up": ("xml_cnn", "training.warmup_steps", 7),
    "training.check_every": ("xml_cnn", "training.validate_every", 7),
    "update.replayed": ("xml_cnn", "update.replay_ratio", 0.25),
    "update.kept": ("xml_cnn", "update.retention", 0.25),
    "head.tree.beam": ("attention_xml", "head.tree.beam_width", 7),
    "beam": ("parabel", "beam_width", 7),
}
"""Former name → model, name, a value."""


@pytest.fixture
def warn_again() -> None:
    _warn_renamed.cache_clear()


@pytest.mark.usefixtures("warn_again")
class TestFormerNames:
    @pytest.mark.parametrize("values", [{"count": 5}, {"size": 4, "count": 5}])
    def test_honoured_with_one_warning(self, values: dict[str, int]) -> None:
        with pytest.warns(XmtcWarning, match="'count' of renamed was renamed to 'size'"):
            assert from_mapping(Renamed, values).size == 5
        with warnings.catch_warnings(action="error"):
            assert from_mapping(Renamed, {"count": 6}).size == 6

    def test_groups(self) -> None:
        with pytest.warns(XmtcWarning) as caught:
            assert from_mapping(Whole, {"old_group": {"count": 5}}).group.size == 5
        assert from_mapping(Whole, {"old_group.count": 6}).group.size == 6
        assert changed(Whole(), {"group.count": 7}).group.size == 7
        assert [str(each.message).split(" was")[0] for each in caught] == ["'old_group' of whole", "'count' of renamed"]

    def test_later_layers_win_whatever_they_write(self) -> None:
        with pytest.warns(XmtcWarning):
            assert from_mapping(Renamed, merge({"count": 5}, {"size": 6})).size == 6
        assert from_mapping(Renamed, merge({"size": 5}, {"count": 6})).size == 6

    def test_constructor_and_attribute(self) -> None:
        with pytest.warns(XmtcWarning):
            made = Renamed(count=9)  # type: ignore[call-arg]
        assert made == Renamed(size=9)
        assert made.count == 9
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = made.nothing

    def test_they_are_not_listed(self) -> None:
        assert "count" not in to_mapping(Renamed())
        assert [row.name for row in table(Renamed())] == ["size", "inner.width", "inner.kind"]

    def test_saved_settings_are_read_in_silence(self) -> None:
        saved = {"old_group": {"count": 5, "inner": {"width": 2}}}
        with warnings.catch_warnings(action="error"):
            assert current_names(Whole, saved) == {"group": {"size": 5, "inner": {"width": 2}}}
            assert current_names(Whole, {"old_group.count": 5, "other": 1}) == {"group.size": 5, "other": 1}

    @pytest.mark.parametrize("former", RENAMED)
    def test_of_models(self, former: str, tmp_path: Path) -> None:
        """As keywords, from --set and from a recipe."""
        model, name, value = RENAMED[former]
        if not available(model):
            pytest.skip(f"{model} needs an extra")
        (tmp_path / "r.toml").write_text(f'model = "{model}"\n[settings]\n{former} = {value}\n')
        given = [
            {former.replace(".", "__"): value},
            parse_assignments([f"{former}={value}"]),
            read_recipe(tmp_path / "r.toml")[1],
        ]
        for settings in given:
            _warn_renamed.cache_clear()
            with pytest.warns(XmtcWarning, match=f"was renamed to '{name.rpartition('.')[2]}'"):
                made = model_class(model)(**settings)
            assert flat(to_mapping(made.config))[name] == value
            assert former not in flat(to_mapping(made.config))

    def test_a_folder_of_before_loads_in_silence(self, tmp_path: Path) -> None:
        texts, labels = ["salt pepper", "iron steel"] * 5, [["x"], ["y"]] * 5
        model = model_class("parabel")(text__min_df=1, beam_width=4).fit(texts, labels)
        model.save(tmp_path / "model")
        manifest = json.loads((tmp_path / "model" / "model.json").read_text())
        manifest["settings"]["beam"] = manifest["settings"].pop("beam_width")
        (tmp_path / "model" / "model.json").write_text(json.dumps(sealed(manifest)))
        with warnings.catch_warnings(action="error"):
            assert Model.load(tmp_path / "model").config.beam_width == 4
