"""Suites: which models run on which data sets with which seeds, as a TOML file says it.

    about = "…"
    seeds = [0, 1, 2]

    [datasets.NAME]
    train = "NAME/train.jsonl"    # in the folder of the data sets, compressed or not
    test = "NAME/test.jsonl"

    [models.NAME]
    model = "parabel"             # where it is not the name
    recipe = "{dataset}/parabel"
    settings = { trees = 1 }

A value of a setting that starts with DATA/ is a file in the folder of the data sets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from xmtc.core import config
from xmtc.core.config import AnySettings, Settings
from xmtc.core.constants import PROPENSITY_A, PROPENSITY_B
from xmtc.core.errors import ConfigError, DataError, nearest, shown
from xmtc.experiments.records import CellName, check_name
from xmtc.models.registry import MODELS
from xmtc.recipes import find_recipe

FOLDER = Path(__file__).parent / "shipped"
_KEYS = ("about", "seeds", "datasets", "models")
DATA = "DATA/"
"""What paths in settings start with that lie in the folder of the data sets."""


@dataclass(frozen=True)
class NoiseSpec(Settings):
    """Labels of the training documents made wrong on purpose."""

    kind: Literal["missing", "flip"] = "missing"
    """Labels are left out, or left out and replaced by wrong ones."""
    rate: float = 0.0
    """The chance that a label goes."""

    of = "noise"

    def check(self) -> None:
        self.require_range("rate", 0, 1)


@dataclass(frozen=True)
class PlantedSpec(Settings):
    """A made-up corpus in place of files."""

    documents: int = 4000
    test: int = 1000
    labels: int = 300

    of = "planted"

    def check(self) -> None:
        for name in ("documents", "test", "labels"):
            self.require_range(name, 1, 10_000_000)


@dataclass(frozen=True)
class DataSpec(Settings):
    """A data set of a suite."""

    about: str = ""
    train: str | tuple[str, ...] = ""
    """Documents to learn from; of several names, the first that is there."""
    valid: str | tuple[str, ...] = ""
    """Documents to make choices on."""
    test: str | tuple[str, ...] = ""
    """Documents to measure on."""
    labels: str | tuple[str, ...] = ""
    """A label vocabulary."""
    planted: PlantedSpec | None = None
    """A made-up corpus in place of files."""
    format: str | None = None
    """Of the files, where they do not say it themselves."""
    text_fields: tuple[str, ...] = ()
    """Fields or columns that hold the text, where they are not called as usual."""
    label_field: str = ""
    """Field or column of the labels."""
    id_field: str = ""
    """Field or column of the document ids."""
    label_separator: str = ";"
    """What parts labels within one cell of a table."""
    optional: bool = False
    """Whether it is left out where its files are missing; else that is an error."""
    hold_out: float = 0.0
    """The part of the training documents that is held out to make choices on, where there is no file of them."""
    noise: NoiseSpec | None = None
    """What is done to the labels of the training documents; those held out stay as they are."""
    made_from: str = ""
    """The data set that noise was added to."""
    unknown_labels: Literal["count", "drop"] = "count"
    """A test label that training never saw counts as missed, or is left out."""
    propensity: tuple[float, ...] = (PROPENSITY_A, PROPENSITY_B)
    """A and B of propensity-scored measures."""
    published: str = ""
    """Its name among the published figures, where that is another."""

    of = "data set"

    def check(self) -> None:
        self.require_range("hold_out", 0, 0.9)
        self.require("propensity", len(self.propensity) == 2, "a list of two numbers")
        if self.planted is None:
            for name in ("train", "test"):
                self.require(name, bool(getattr(self, name)), "the name of a file")
        else:
            for name in ("train", "valid", "test", "labels"):
                self.require(name, not getattr(self, name), "left out beside 'planted'")
        self.require("hold_out", not (self.hold_out and self.valid), "0 beside 'valid'")


@dataclass(frozen=True)
class ModelSpec(Settings):
    """A model of a suite."""

    model: str = ""
    """As the registry calls it."""
    recipe: str = ""
    """Settings to start from; {dataset} stands for the name of the data set."""
    seeds: tuple[int, ...] = ()
    """Where they are not those of the suite."""
    datasets: tuple[str, ...] = ()
    """Which data sets it runs on; none named means all."""
    members: tuple[str, ...] = ()
    """Of a consensus: models of the suite, each with the same data set and seed, or its first."""
    calibrate: bool = False
    """Whether scores are made probabilities, and a threshold is tuned, on the validation documents."""

    of = "model"


@dataclass(frozen=True)
class ModelEntry:
    """A model of a suite with its settings."""

    spec: ModelSpec
    settings: dict[str, Any]

    def resolved(self, dataset: str) -> dict[str, Any]:
        """Recipe and settings of the suite together, nested."""
        recipe: Mapping[str, Any] = {}
        if self.spec.recipe:
            of, recipe = config.read_recipe(find_recipe(self.spec.recipe.replace("{dataset}", dataset)))
            if of is not None and of != self.spec.model:
                raise ConfigError(f"recipe '{self.spec.recipe}': is for {of}, not for {self.spec.model}.")
        return config.merge(recipe, self.settings)


@dataclass(frozen=True)
class Suite:
    """Data sets × models × seeds."""

    name: str
    about: str
    seeds: tuple[int, ...]
    datasets: dict[str, DataSpec]
    models: dict[str, ModelEntry]
    study: dict[str, Any] = field(default_factory=dict)
    """Which study this is: kind, and what its figure needs to know."""
    content: dict[str, Any] = field(default_factory=dict, repr=False)
    """What `parsed` made it of."""

    def cells(self) -> list[CellName]:
        """All of them, those that others are made of first."""
        order = sorted(self.models, key=lambda name: bool(self.models[name].spec.members))  # stable
        return [
            CellName(dataset, name, seed)
            for dataset in self.datasets
            for name in order
            if self._runs_on(name, dataset)
            for seed in self.models[name].spec.seeds or self.seeds
        ]

    def _runs_on(self, model: str, dataset: str) -> bool:
        named = self.models[model].spec.datasets
        spec = self.datasets[dataset]
        return not named or dataset in named or (bool(spec.made_from) and spec.made_from in named)

    def members(self, cell: CellName) -> list[CellName]:
        """The cells that a cell is made of."""
        found = []
        for name in self.models[cell.model].spec.members:
            seeds = self.models[name].spec.seeds or self.seeds
            found.append(CellName(cell.dataset, name, cell.seed if cell.seed in seeds else seeds[0]))
        return found


def shipped() -> list[str]:
    """Names of the suites that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_suite(given: str | Path) -> Suite:
    """A suite from its file, or a shipped one by its name."""
    path = Path(given)
    if not path.is_file():
        if str(given) not in shipped():
            known = ", ".join(shipped())
            raise ConfigError(
                f"no suite '{shown(given)}'.{nearest(str(given), shipped())} Give a TOML file, or {known}."
            )
        path = FOLDER / f"{given}.toml"
    content = config.read_toml(path)
    try:
        _check_keys("a suite", content, _KEYS)
        return parsed(re.sub(r"[^A-Za-z0-9._+-]", "-", path.stem).strip(".-_+")[:60] or "suite", content)
    except (ConfigError, DataError) as error:
        raise ConfigError(f"{path}: {error}") from None


def parsed(name: str, content: Mapping[str, Any]) -> Suite:
    """A suite from what its file says, or from what a study puts together."""
    _check_keys("a suite", content, (*_KEYS, "study"))
    about = content.get("about", "")
    if not isinstance(about, str):
        raise ConfigError(f"'about' must be a sentence. Got {config.as_written(about)}.")
    datasets = {
        check_name("data set", key): _dataset(key, _section("datasets", key, values))
        for key, values in _section("", "datasets", content.get("datasets", {})).items()
    }
    models = {
        check_name("model", key): _model(key, _section("models", key, values))
        for key, values in _section("", "models", content.get("models", {})).items()
    }
    suite = Suite(
        check_name("suite", name),
        about,
        _seeds(content.get("seeds", [0])),
        datasets,
        models,
        dict(_section("", "study", content.get("study", {}))),
        dict(content),
    )
    _check(suite)
    return suite


def _section(above: str, name: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ConfigError(f"'{'.'.join(part for part in (above, name) if part)}' must be a table.")
    return values


def _check_keys(what: str, values: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in values:
        if key not in known:
            raise ConfigError(
                f"{what} has no '{shown(key)}'.{nearest(key, known)} It has {', '.join(known[:-1])} and {known[-1]}."
            )


def _seeds(given: Any, whose: str = "") -> tuple[int, ...]:
    good = isinstance(given, list | tuple) and all(
        isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32 for seed in given
    )
    if not good or not given or len(set(given)) < len(given):
        raise ConfigError(f"{whose}'seeds' must be a list of different integers ≥ 0, such as [0, 1, 2].")
    return tuple(given)


def _dataset(name: str, values: Mapping[str, Any]) -> DataSpec:
    groups: dict[str, type[Settings]] = {"planted": PlantedSpec, "noise": NoiseSpec}
    made: dict[str, Settings] = {
        key: _made(kind, f"'{key}' of data set '{name}'", _section(f"datasets.{name}", key, values[key]))
        for key, kind in groups.items()
        if key in values
    }
    return _made(DataSpec, f"data set '{name}'", {**values, **made})


def _made(kind: type[AnySettings], what: str, values: Mapping[str, Any]) -> AnySettings:
    """Settings, with words that say whose they are."""
    _check_keys(what, values, list(config.field_types(kind)))
    try:
        return config.from_mapping(kind, values)
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None


def _model(name: str, values: Mapping[str, Any]) -> ModelEntry:
    rest = {key: value for key, value in values.items() if key != "settings"}
    rest.setdefault("model", name)
    spec = _made(ModelSpec, f"model '{name}'", rest)
    if spec.model not in MODELS:
        raise ConfigError(f"no model '{shown(spec.model)}'.{nearest(spec.model, MODELS)} Known: {', '.join(MODELS)}.")
    if spec.seeds:
        _seeds(spec.seeds, f"model '{name}': ")
    if (spec.model == "consensus") != bool(spec.members):
        raise ConfigError(
            f"model '{name}': a consensus, and nothing else, names its 'members' among the suite's models."
        )
    settings = _section(f"models.{name}", "settings", values.get("settings", {}))
    try:
        return ModelEntry(spec, config.merge(settings))
    except ConfigError as error:
        raise ConfigError(f"model '{name}': {error}") from None


def _check(suite: Suite) -> None:
    """What can be said before any file is looked for."""
    for what, found in (("data set", suite.datasets), ("model", suite.models)):
        if not found:
            raise ConfigError(f"a suite needs a {what}. Add [{what.replace('data set', 'dataset')}s.NAME].")
    sources = {*suite.datasets, *(spec.made_from for spec in suite.datasets.values())} - {""}
    for name, entry in suite.models.items():
        for dataset in entry.spec.datasets:
            if dataset not in sources:
                known = ", ".join(sorted(sources))
                raise ConfigError(f"model '{name}': no data set '{shown(dataset)}'. The suite has: {known}.")
        if len(set(entry.spec.members)) < len(entry.spec.members):
            raise ConfigError(f"model '{name}': a member is named twice. Name each once.")
        for member in entry.spec.members:
            if member not in suite.models or suite.models[member].spec.members:
                raise ConfigError(f"model '{name}': '{shown(member)}' is no model of the suite that can be a member.")
        for dataset, spec in suite.datasets.items():
            needs = entry.spec.calibrate or entry.spec.members
            if needs and suite._runs_on(name, dataset) and not (spec.valid or spec.hold_out):
                raise ConfigError(
                    f"model '{name}' needs validation documents: give '{dataset}' a 'valid' or 'hold_out'."
                )
            missing = [member for member in entry.spec.members if not suite._runs_on(member, dataset)]
            if suite._runs_on(name, dataset) and missing:
                raise ConfigError(f"model '{name}': its member '{missing[0]}' does not run on '{dataset}'.")


def chosen(cells: Sequence[CellName], patterns: Sequence[str]) -> list[CellName]:
    """The cells that a pattern such as cooking/*/0 names; without patterns all."""
    if not patterns:
        return list(cells)
    for pattern in patterns:
        if not any(_matches(cell, pattern) for cell in cells):
            example = f"{cells[0].dataset}/{cells[0].model}" if cells else "DATASET/MODEL"
            raise ConfigError(f"--only {shown(pattern)}: names no cell. Write for example --only '{example}/*'.")
    return [cell for cell in cells if any(_matches(cell, pattern) for pattern in patterns)]


def _matches(cell: CellName, pattern: str) -> bool:
    """Each part of the name against its part of the pattern; parts that are left out match anything."""
    parts = pattern.split("/")
    values = (cell.dataset, cell.model, str(cell.seed))
    return len(parts) <= 3 and all(fnmatchcase(value, part) for value, part in zip(values, parts, strict=False))
