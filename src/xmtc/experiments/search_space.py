"""Definition of a hyperparameter search: model, starting point, search space and metric."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from xmtc import create, metrics
from xmtc.core import config
from xmtc.core.config import Choices, Range, Settings
from xmtc.core.errors import ConfigError, nearest, shown
from xmtc.core.parsing import parse_toml
from xmtc.models.base import Model
from xmtc.models.registry import model_class
from xmtc.recipes import find_recipe
from xmtc.workflows.evaluation import KS

MANY = 50
"""A range without a declared scale is searched on a log scale if its ends differ by at least this factor."""
OF_TEXT = "text."
"""Prefix of the settings for text features, which do not apply to precomputed features."""


@dataclass(frozen=True)
class Search:
    """A hyperparameter search that has not started."""

    model: str
    start: Settings
    """Settings of the first trial: defaults, recipe and fixed settings."""
    space: dict[str, Range | Choices]
    measure: str = "nDCG@5"
    trials: int = 30
    minutes: float | None = None
    named: tuple[str, ...] = ()
    """Settings that the user asked to search."""

    def settings(self, found: Mapping[str, Any]) -> Settings:
        """All settings of a trial."""
        changed: Settings = config.changed(self.start, found)
        return changed

    def new_model(self, found: Mapping[str, Any]) -> Model:
        """An untrained model with the settings of a trial."""
        return create(self.model, **config.to_mapping(self.settings(found)))

    def start_values(self) -> dict[str, Any]:
        """Start values of the searched settings."""
        values = config.flat(config.to_mapping(self.start))
        return {name: values[name] for name in self.space}

    def without_text(self) -> Search:
        """The same search without text settings, for precomputed features."""
        space = {n: each for n, each in self.space.items() if not n.startswith(OF_TEXT) or n in self.named}
        if not space:
            raise ConfigError(
                f"all searched settings of {self.model} concern text, but the documents are precomputed features. "
                "Pass --search with other settings."
            )
        return replace(self, space=space)

    def to_json(self) -> dict[str, Any]:
        """The parts of the search that must be equal to resume it."""
        tried = {name: asdict(each) for name, each in self.space.items()}
        described = {"model": self.model, "settings": config.to_mapping(self.start), "search": tried}
        found: dict[str, Any] = json.loads(json.dumps({**described, "measure": self.measure}))
        return found


def decide(
    name: str,
    *,
    recipe: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    search: Sequence[str] = (),
    measure: str = "nDCG@5",
    trials: int = 30,
    minutes: float | None = None,
) -> Search:
    """Define a search over the settings in `search`, or over the default search space, without fixed `settings`."""
    recipe_name, recipe_settings = (None, {}) if recipe is None else config.read_recipe(find_recipe(recipe))
    kind = model_class(name)
    if recipe_name is not None and recipe_name != name:
        raise ConfigError(f"{recipe}: is a recipe for {recipe_name}, not for {name}. Choose another recipe.")
    start: Settings = kind(**config.merge(recipe_settings, settings or {})).config
    fixed = list(config.flat(config.current_names(kind.Config, config.merge(settings or {}))))
    space = _named_space(start, search) if search else config.space(start)
    for each in fixed:
        if search and each in space:
            raise ConfigError(f"'{each}' is both fixed with --set and searched. Leave out one of them.")
        space.pop(each, None)
    if not space:
        none = "no settings to search" if not config.table(start) else "no settings left to search"
        raise ConfigError(f"{name} has {none}. Choose another model, or pass --search KEY=LOW..HIGH.")
    if measure not in (known := metrics.metric_names(KS)):
        raise ConfigError(f"unknown metric '{shown(measure)}'.{nearest(measure, known)} Available: {', '.join(known)}.")
    if trials < 1:
        raise ConfigError(f"'trials' must be an integer ≥ 1. Got {trials}.")
    if minutes is not None and not 0 < minutes < 1e6:
        raise ConfigError(f"'minutes' must be a number > 0. Got {minutes:g}.")
    return Search(name, start, space, measure, trials, minutes, tuple(space) if search else ())


def _named_space(start: Settings, search: Sequence[str]) -> dict[str, Range | Choices]:
    """Parse --search values: KEY, a group of keys, KEY=[a, b] or KEY=LOW..HIGH."""
    declared, known = config.space(start), [row.name for row in config.table(start)]
    space: dict[str, Range | Choices] = {}
    for words in search:
        key, equals, text = (part.strip() for part in words.partition("="))
        group = [name for name in known if name.startswith(f"{key}.")]
        if key not in known and not (group and not equals):
            raise ConfigError(
                f"--search {shown(words)}: {start.of} has no setting '{shown(key)}'.{nearest(key, known)} "
                f"See: xmtc models {start.of}"
            )
        if equals:
            space[key] = _written(start, key, text, declared.get(key))
            continue
        names = [name for name in group if name in declared] or [key]
        found = {name: each for name in names if (each := declared.get(name) or _every(start, name))}
        if not found:
            raise ConfigError(f"--search {key}: no default range. Write --search {key}=LOW..HIGH or {key}=[a, b].")
        space |= found
    return space


def _every(start: Settings, name: str) -> Choices | None:
    """All values of a setting with an enumerated type."""
    values = config.named_values(config.field_type(start, name))
    return Choices(*values) if values else None


def _written(start: Settings, key: str, text: str, declared: Range | Choices | None) -> Range | Choices:
    """Parse LOW..HIGH or [a, b, …]; all must be valid values of the setting."""
    _, dots, _ = text.partition("..")
    values = _ends(text) if dots else _listed(text)
    if not values:
        raise ConfigError(f"--search {key}={shown(text)}: not a range. Write {key}=LOW..HIGH or {key}=[a, b].")
    plain = [config.flat(config.to_mapping(config.changed(start, {key: value})))[key] for value in values]
    if not dots:
        return Choices(*{json.dumps(value): value for value in plain}.values())
    least, most = plain
    if not least < most:
        raise ConfigError(f"--search {key}={shown(text)}: empty range. Write the lower end first.")
    by_factors = declared.log if isinstance(declared, Range) else least > 0 and most >= MANY * least
    return config.fitted(Range(least, most, by_factors and least > 0), config.field_type(start, key))


def _ends(text: str) -> list[Any]:
    """The ends of LOW..HIGH; empty if one of them is not a number."""
    try:
        ends = [parse_toml(f"value = {end}")["value"] for end in text.split("..")]
    except ValueError:
        return []
    numbers = all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in ends)
    return ends if numbers and len(ends) == 2 else []


def _listed(text: str) -> list[Any]:
    """The values of a TOML list such as [1, 2], or of a list of unquoted words such as [plain, smooth]."""
    if not (text.startswith("[") and text.endswith("]")):
        return []
    try:
        return list(parse_toml(f"value = {text}")["value"])
    except tomllib.TOMLDecodeError:
        words = [word.strip().strip("\"'") for word in text[1:-1].split(",")]
        return [word for word in words if word]
    except ValueError:  # nested too deeply, or a number too large
        return []
