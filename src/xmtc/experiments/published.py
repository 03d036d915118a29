"""Published results from published.toml, for comparison with our own.

Values are fractions under the metric names that `evaluate` uses ('P@1', 'nDCG@3', 'PSP@5'); the file contains them in
percent, as printed. Unknown keys in the file are refused.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from xmtc.core.errors import DataError, nearest, shown

Kind = Literal["paper", "collected", "measured here"]
Mark = Literal["", "secondary", "recalled"]
Made = TypeVar("Made")

FILE = Path(__file__).with_name("published.toml")
PARTS = ("sources", "datasets", "methods", "figures", "groups", "tail", "seconds", "overlap", "ranks", "p_values")
"""Sections of the file; those after 'figures' serve to check the figures and are read only by the tests."""
_CUTS = {"P": (1, 3, 5), "nDCG": (3, 5), "PSP": (1, 3, 5)}
_MEASURE = re.compile(r"(P|nDCG|PSP|R)@[1-9][0-9]*")


@dataclass(frozen=True)
class Source:
    """A source of published results."""

    key: str
    kind: Kind
    """paper: checked against its text; collected: publication not available; measured here: by this project."""
    title: str
    authors: str = ""
    where: str = ""
    year: int | None = None
    tables: str = ""
    own: tuple[str, ...] = ()
    """Methods that the source proposes; all others are its baselines."""
    machine: str = ""
    note: str = ""
    doubt: str = ""
    """Why its figures are doubtful; '' if they are not."""


@dataclass(frozen=True)
class PublishedSet:
    """A dataset as described in publications; None for values they do not give."""

    key: str
    name: str
    """Name in tables."""
    train: int | None = None
    test: int | None = None
    features: int | None = None
    labels: int | None = None
    per_document: float | None = None
    also: tuple[str, ...] = ()
    """Other names in the catalogue for the same documents in the same split."""
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """Results of one method on one dataset from one source."""

    method: str
    dataset: str
    source: Source
    metrics: dict[str, float]
    """Metric → fraction."""
    mark: Mark = ""
    """secondary: as quoted by another publication; recalled: from memory, not verified."""
    note: str = ""

    @property
    def own(self) -> bool:
        """Whether the source proposes the method."""
        return self.method in self.source.own


@dataclass(frozen=True)
class Published:
    """The contents of published.toml."""

    sources: dict[str, Source]
    datasets: dict[str, PublishedSet]
    methods: dict[str, tuple[str, ...]]
    """Registered model → its names in publications."""
    figures: list[Figure]

    def dataset(self, name: str) -> PublishedSet | None:
        """A dataset by key or catalogue name; None if there are no published results on it."""
        return next((each for key, each in self.datasets.items() if name == key or name in each.also), None)

    def of(self, dataset: str) -> list[Figure]:
        """All published results on a dataset, in the order of the file."""
        found = self.dataset(dataset)
        return [each for each in self.figures if found is not None and each.dataset == found.key]

    def beside(self, model_kind: str, dataset: str) -> list[Figure]:
        """Published results on a dataset of the method that a model implements, those of its own paper first."""
        names = self.methods.get(model_kind, ())
        return sorted((each for each in self.of(dataset) if each.method in names), key=lambda each: not each.own)

    def figure(self, source: str, dataset: str, method: str) -> Figure | None:
        """One entry of the file."""
        wanted = (source, dataset, method)
        return next((each for each in self.figures if (each.source.key, each.dataset, each.method) == wanted), None)


@functools.cache
def published() -> Published:
    """The published results shipped with the package, read once."""
    return parsed(FILE.read_text(encoding="utf-8"))


def parsed(text: str) -> Published:
    """Parse the contents of published.toml and validate every name and number."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"published.toml: invalid TOML ({error}). Correct it.") from None
    refuse_unknown(content, PARTS, "the file")
    sources = {key: _source(key, values) for key, values in content.get("sources", {}).items()}
    datasets = {key: _dataset(key, values) for key, values in content.get("datasets", {}).items()}
    reader = Reader(sources, datasets)
    return Published(
        sources=sources,
        datasets=datasets,
        methods={model: tuple(names) for model, names in content.get("methods", {}).items()},
        figures=[reader.figure(*each) for each in reader.lines(content, "figures")],
    )


@dataclass(frozen=True)
class Reader:
    """Reads the sections of the file that refer to sources and datasets."""

    known_sources: Mapping[str, Source]
    known_datasets: Mapping[str, PublishedSet]

    def source(self, key: str, where: str) -> Source:
        """Look up a source by its key."""
        refuse_unknown([key], self.known_sources, where)
        return self.known_sources[key]

    def lines(self, content: Mapping[str, Any], part: str) -> list[tuple[Source, str, str, Any]]:
        """(source, dataset, method, fields) of each entry of a section."""
        found = []
        for key, tables in content.get(part, {}).items():
            source = self.source(key, part)
            refuse_unknown(tables, self.known_datasets, f"{part}.{key}")
            found += [
                (source, data, method, entry) for data, table in tables.items() for method, entry in table.items()
            ]
        return found

    def figure(self, source: Source, dataset: str, method: str, entry: Mapping[str, Any]) -> Figure:
        """Parse one entry of the section 'figures'."""
        where = f"figures.{source.key}.{dataset}: {method}"
        metrics: dict[str, float] = {}
        for name, value in entry.items():
            if name in _CUTS:
                values = fractions(value, where, len(_CUTS[name]))
                metrics |= {f"{name}@{k}": each for k, each in zip(_CUTS[name], values, strict=True)}
            elif _MEASURE.fullmatch(name):
                (metrics[name],) = fractions([value], where, 1)
            else:
                refuse_unknown([name], (*_CUTS, "mark", "note"), where)
        mark = entry.get("mark", "")
        refuse_unknown([mark], get_args(Mark), where)
        if not metrics:
            raise DataError(f"published.toml: {where}: contains no metric. Add one, such as P = [70.1, 60.2, 50.3].")
        return Figure(method, dataset, source, metrics, mark, entry.get("note", ""))


def _source(key: str, values: Mapping[str, Any]) -> Source:
    where = f"sources.{key}"
    source = build(Source, where, {"key": key, "own": tuple(values.get("own", ()))}, _without(values, "own"))
    refuse_unknown([source.kind], get_args(Kind), where)
    return source


def _dataset(key: str, values: Mapping[str, Any]) -> PublishedSet:
    known = {"key": key, "also": tuple(values.get("also", ()))}
    return build(PublishedSet, f"datasets.{key}", known, {**_without(values, "also", "size"), **values.get("size", {})})


def _without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def build(kind: type[Made], where: str, known: Mapping[str, Any], entry: Mapping[str, Any]) -> Made:
    """Build `kind` from known values and an entry of the file."""
    names = getattr(kind, "__dataclass_fields__", {})
    refuse_unknown(entry, [name for name in names if name not in known], where)
    try:
        return kind(**known, **entry)
    except TypeError:
        raise DataError(f"published.toml: {where}: a field is missing. Fields: {', '.join(names)}.") from None


def fractions(values: Any, where: str, count: int) -> tuple[float, ...]:
    """Convert `count` percentages to fractions and check their range."""
    if not isinstance(values, list) or len(values) != count:
        raise DataError(f"published.toml: {where}: expected {count} values. Got {shown(values)}.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
            raise DataError(f"published.toml: {where}: values must be percentages from 0 to 100. Got {shown(value)}.")
    return tuple(round(value / 100, 8) for value in values)  # 0.8705, not 0.8704999…


def refuse_unknown(names: Collection[str], known: Collection[str], where: str) -> None:
    """Raise DataError for the first unknown name."""
    for name in names:
        if name not in known:
            raise DataError(
                f"published.toml: {where}: unknown name '{shown(name)}'.{nearest(str(name), known)} "
                f"Available: {shown(', '.join(each for each in known if each), 200)}."
            )
