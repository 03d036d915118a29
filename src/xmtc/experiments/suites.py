"""Suites: TOML files that define which models run on which datasets with which seeds.

    about = "…"
    seeds = [0, 1, 2]

    [datasets.NAME]
    train = "NAME/train.jsonl"    # relative to the folder with the datasets, compressed or not
    test = "NAME/test.jsonl"

    [models.NAME]
    model = "parabel"             # default: NAME
    recipe = "{dataset}/parabel"
    settings = { trees = 1 }

A setting value that starts with DATA/ is a file in the folder with the datasets.
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
"""Prefix of setting values that are paths in the folder with the datasets."""


@dataclass(frozen=True)
class NoiseSpec(Settings):
    """Label noise added to the training set."""

    kind: Literal["missing", "flip"] = "missing"
    """missing: remove labels; flip: replace labels by wrong ones."""
    rate: float = 0.0
    """Probability that a label is affected."""

    of = "noise"

    def check(self) -> None:
        self.require_range("rate", 0, 1)


@dataclass(frozen=True)
class PlantedSpec(Settings):
    """A synthetic corpus instead of files."""

    documents: int = 4000
    """Number of training documents."""
    test: int = 1000
    """Number of test documents."""
    labels: int = 300
    """Number of labels."""

    of = "planted"

    def check(self) -> None:
        for name in ("documents", "test", "labels"):
            self.require_range(name, 1, 10_000_000)


@dataclass(frozen=True)
class DataSpec(Settings):
    """A dataset of a suite."""

    about: str = ""
    """Description of the dataset."""
    train: str | tuple[str, ...] = ""
    """Training set; of several file names, the first that exists."""
    valid: str | tuple[str, ...] = ""
    """Validation set."""
    test: str | tuple[str, ...] = ""
    """Test set."""
    labels: str | tuple[str, ...] = ""
    """Label vocabulary."""
    planted: PlantedSpec | None = None
    """Synthetic corpus instead of files."""
    format: str | None = None
    """File format; default: detected from the files."""
    text_fields: tuple[str, ...] = ()
    """Fields or columns with the text; default: detected."""
    label_field: str = ""
    """Field or column with the labels; default: detected."""
    id_field: str = ""
    """Field or column with the document ids; default: detected."""
    label_separator: str = ";"
    """Separator between labels in one cell of a table."""
    optional: bool = False
    """Skip the dataset if its files are missing, instead of raising an error."""
    hold_out: float = 0.0
    """Fraction of the training documents to hold out as a validation set, if there is no file for it."""
    noise: NoiseSpec | None = None
    """Label noise to add to the training set; held-out documents keep their labels."""
    made_from: str = ""
    """Name of the dataset that noise was added to."""
    unknown_labels: Literal["count", "drop"] = "count"
    """Count test labels without training documents like all others, or drop them for all models."""
    propensity: tuple[float, ...] = (PROPENSITY_A, PROPENSITY_B)
    """A and B of propensity-scored metrics."""
    published: str = ""
    """Name of the dataset in the published results, if different."""

    of = "data set"

    def check(self) -> None:
        self.require_range("hold_out", 0, 0.9)
        self.require("propensity", len(self.propensity) == 2, "a list of two numbers")
        if self.planted is None:
            for name in ("train", "test"):
                self.require(name, bool(getattr(self, name)), "the name of a file")
        else:
            for name in ("train", "valid", "test", "labels"):
                self.require(name, not getattr(self, name), "omitted if 'planted' is given")
        self.require("hold_out", not (self.hold_out and self.valid), "0 if 'valid' is given")


@dataclass(frozen=True)
class ModelSpec(Settings):
    """A model of a suite."""

    model: str = ""
    """Registered name of the model."""
    recipe: str = ""
    """Recipe with the base settings; {dataset} is replaced by the name of the dataset."""
    seeds: tuple[int, ...] = ()
    """Seeds; default: those of the suite."""
    datasets: tuple[str, ...] = ()
    """Datasets to run on; default: all."""
    members: tuple[str, ...] = ()
    """Members of a consensus: models of the suite, each with the same dataset and seed, or its first seed."""
    calibrate: bool = False
    """Calibrate scores and tune a threshold on the validation set."""

    of = "model"


@dataclass(frozen=True)
class ModelEntry:
    """A model of a suite with its settings."""

    spec: ModelSpec
    settings: dict[str, Any]

    def resolved(self, dataset: str) -> dict[str, Any]:
        """Recipe merged with the settings of the suite, nested."""
        recipe: Mapping[str, Any] = {}
        if self.spec.recipe:
            of, recipe = config.read_recipe(find_recipe(self.spec.recipe.replace("{dataset}", dataset)))
            if of is not None and of != self.spec.model:
                raise ConfigError(
                    f"recipe '{self.spec.recipe}': is for {of}, not for {self.spec.model}. Choose another recipe."
                )
        return config.merge(recipe, self.settings)


@dataclass(frozen=True)
class Suite:
    """Datasets × models × seeds."""

    name: str
    about: str
    seeds: tuple[int, ...]
    datasets: dict[str, DataSpec]
    models: dict[str, ModelEntry]
    study: dict[str, Any] = field(default_factory=dict)
    """Kind of the study and the parameters of its plot."""
    content: dict[str, Any] = field(default_factory=dict, repr=False)
    """The contents of the TOML file."""

    def cells(self) -> list[CellName]:
        """All runs; members come before the ensembles that use them."""
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
        """The runs that an ensemble run combines."""
        found = []
        for name in self.models[cell.model].spec.members:
            seeds = self.models[name].spec.seeds or self.seeds
            found.append(CellName(cell.dataset, name, cell.seed if cell.seed in seeds else seeds[0]))
        return found


def shipped() -> list[str]:
    """Names of the suites shipped with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_suite(given: str | Path) -> Suite:
    """Read a suite from a file, or a shipped one by name."""
    path = Path(given)
    if not path.is_file():
        if str(given) not in shipped():
            known = ", ".join(shipped())
            raise ConfigError(
                f"no suite '{shown(given)}'.{nearest(str(given), shipped())} Pass a TOML file, or one of: {known}."
            )
        path = FOLDER / f"{given}.toml"
    content = config.read_toml(path)
    try:
        _check_keys("a suite", content, _KEYS)
        return parsed(re.sub(r"[^A-Za-z0-9._+-]", "-", path.stem).strip(".-_+")[:60] or "suite", content)
    except (ConfigError, DataError) as error:
        raise ConfigError(f"{path}: {error}") from None


def parsed(name: str, content: Mapping[str, Any]) -> Suite:
    """Build a suite from the contents of its file, or from those a study generates."""
    _check_keys("a suite", content, (*_KEYS, "study"))
    about = content.get("about", "")
    if not isinstance(about, str):
        raise ConfigError(f"'about' must be a string. Got {config.as_written(about)}.")
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
                f"{what} has no key '{shown(key)}'.{nearest(key, known)} "
                f"Available: {', '.join(known[:-1])} and {known[-1]}."
            )


def _seeds(given: Any, whose: str = "") -> tuple[int, ...]:
    good = isinstance(given, list | tuple) and all(
        isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32 for seed in given
    )
    if not good or not given or len(set(given)) < len(given):
        raise ConfigError(f"{whose}'seeds' must be a list of distinct integers ≥ 0, such as [0, 1, 2].")
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
    """Build settings; errors name their section."""
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
        hint = f"{nearest(spec.model, MODELS)} Available: {', '.join(MODELS)}."
        raise ConfigError(f"no model '{shown(spec.model)}'.{hint}")
    if spec.seeds:
        _seeds(spec.seeds, f"model '{name}': ")
    if (spec.model == "consensus") != bool(spec.members):
        raise ConfigError(
            f"model '{name}': 'members' is required for a consensus and not allowed for other models. "
            "List models of the suite as members of a consensus."
        )
    settings = _section(f"models.{name}", "settings", values.get("settings", {}))
    try:
        return ModelEntry(spec, config.merge(settings))
    except ConfigError as error:
        raise ConfigError(f"model '{name}': {error}") from None


def _check(suite: Suite) -> None:
    """Checks that need no files."""
    for what, found in (("dataset", suite.datasets), ("model", suite.models)):
        if not found:
            raise ConfigError(f"a suite needs at least one {what}. Add [{what}s.NAME].")
    sources = {*suite.datasets, *(spec.made_from for spec in suite.datasets.values())} - {""}
    for name, entry in suite.models.items():
        for dataset in entry.spec.datasets:
            if dataset not in sources:
                known = ", ".join(sorted(sources))
                raise ConfigError(f"model '{name}': no data set '{shown(dataset)}'. The suite has: {known}.")
        if len(set(entry.spec.members)) < len(entry.spec.members):
            raise ConfigError(f"model '{name}': a member is listed twice. List each once.")
        for member in entry.spec.members:
            if member not in suite.models or suite.models[member].spec.members:
                raise ConfigError(
                    f"model '{name}': '{shown(member)}' cannot be a member. List models of the suite that are not "
                    "ensembles themselves."
                )
        for dataset, spec in suite.datasets.items():
            needs = entry.spec.calibrate or entry.spec.members
            if needs and suite._runs_on(name, dataset) and not (spec.valid or spec.hold_out):
                raise ConfigError(
                    f"model '{name}' needs a validation set. Add 'valid' or 'hold_out' to data set '{dataset}'."
                )
            missing = [member for member in entry.spec.members if not suite._runs_on(member, dataset)]
            if suite._runs_on(name, dataset) and missing:
                raise ConfigError(
                    f"model '{name}': its member '{missing[0]}' does not run on '{dataset}'. Add '{dataset}' to its "
                    "'datasets'."
                )


def chosen(cells: Sequence[CellName], patterns: Sequence[str]) -> list[CellName]:
    """The runs that match patterns such as cooking/*/0; all without patterns."""
    if not patterns:
        return list(cells)
    for pattern in patterns:
        if not any(_matches(cell, pattern) for cell in cells):
            example = f"{cells[0].dataset}/{cells[0].model}" if cells else "DATASET/MODEL"
            raise ConfigError(f"--only {shown(pattern)}: matches no run. Write, for example, --only '{example}/*'.")
    return [cell for cell in cells if any(_matches(cell, pattern) for pattern in patterns)]


def _matches(cell: CellName, pattern: str) -> bool:
    """Match each part of the name against its part of the pattern; omitted parts match anything."""
    parts = pattern.split("/")
    values = (cell.dataset, cell.model, str(cell.seed))
    return len(parts) <= 3 and all(fnmatchcase(value, part) for value, part in zip(values, parts, strict=False))
