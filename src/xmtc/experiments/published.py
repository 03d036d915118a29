"""Published figures of the field, out of published.toml: what our results are held beside.

Figures are fractions under the names that `evaluate` uses ('P@1', 'nDCG@3', 'PSP@5'); the file has them in percent, as
they are printed. Anything in the file that is not known is refused.
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
"""Of the file; those after 'figures' are there to check the figures, and only the tests read them."""
_CUTS = {"P": (1, 3, 5), "nDCG": (3, 5), "PSP": (1, 3, 5)}
_MEASURE = re.compile(r"(P|nDCG|PSP|R)@[1-9][0-9]*")


@dataclass(frozen=True)
class Source:
    """Where figures come from."""

    key: str
    kind: Kind
    """paper: read against its text; collected: the publication was not at hand; measured here: by this project."""
    title: str
    authors: str = ""
    where: str = ""
    year: int | None = None
    tables: str = ""
    own: tuple[str, ...] = ()
    """The methods that it proposes; all others it compares with."""
    machine: str = ""
    note: str = ""
    doubt: str = ""
    """Why not to trust its figures; '' where nothing speaks against them."""


@dataclass(frozen=True)
class PublishedSet:
    """A data set as publications describe it; None for what they do not tell."""

    key: str
    name: str
    """As a table shows it."""
    train: int | None = None
    test: int | None = None
    features: int | None = None
    labels: int | None = None
    per_document: float | None = None
    also: tuple[str, ...] = ()
    """Further names of the catalogue for the same documents in the same split."""
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """What one source says of one method on one data set."""

    method: str
    dataset: str
    source: Source
    metrics: dict[str, float]
    """Measure → fraction."""
    mark: Mark = ""
    """secondary: as another publication quotes it; recalled: from memory, not looked up again."""
    note: str = ""

    @property
    def own(self) -> bool:
        """Whether the source is the one that proposes the method."""
        return self.method in self.source.own


@dataclass(frozen=True)
class Published:
    """All that published.toml holds."""

    sources: dict[str, Source]
    datasets: dict[str, PublishedSet]
    methods: dict[str, tuple[str, ...]]
    """Model of the registry → names that publications have for it; () where there are none."""
    figures: list[Figure]

    def dataset(self, name: str) -> PublishedSet | None:
        """A data set by its key or another name of the catalogue; None where nobody published figures on it."""
        return next((each for key, each in self.datasets.items() if name == key or name in each.also), None)

    def of(self, dataset: str) -> list[Figure]:
        """All figures on a data set, in the order of the file."""
        found = self.dataset(dataset)
        return [each for each in self.figures if found is not None and each.dataset == found.key]

    def beside(self, model_kind: str, dataset: str) -> list[Figure]:
        """The figures on a data set of the method that a model is: those of its own paper first."""
        names = self.methods.get(model_kind, ())
        return sorted((each for each in self.of(dataset) if each.method in names), key=lambda each: not each.own)

    def figure(self, source: str, dataset: str, method: str) -> Figure | None:
        """One line of the file."""
        wanted = (source, dataset, method)
        return next((each for each in self.figures if (each.source.key, each.dataset, each.method) == wanted), None)


@functools.cache
def published() -> Published:
    """The figures that are shipped, read once."""
    return parsed(FILE.read_text(encoding="utf-8"))


def parsed(text: str) -> Published:
    """The content of such a file, every name and number of it checked."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"published.toml: no valid TOML ({error}). Correct it.") from None
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
    """Reads the parts of the file that name sources and data sets."""

    known_sources: Mapping[str, Source]
    known_datasets: Mapping[str, PublishedSet]

    def source(self, key: str, where: str) -> Source:
        refuse_unknown([key], self.known_sources, where)
        return self.known_sources[key]

    def lines(self, content: Mapping[str, Any], part: str) -> list[tuple[Source, str, str, Any]]:
        """(source, data set, method, its fields) of a part with one line each."""
        found = []
        for key, tables in content.get(part, {}).items():
            source = self.source(key, part)
            refuse_unknown(tables, self.known_datasets, f"{part}.{key}")
            found += [
                (source, data, method, entry) for data, table in tables.items() for method, entry in table.items()
            ]
        return found

    def figure(self, source: Source, dataset: str, method: str, entry: Mapping[str, Any]) -> Figure:
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
            raise DataError(f"published.toml: {where}: holds no figure. Give one, such as P = [70.1, 60.2, 50.3].")
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
    """`kind` from what is known already and what the file says of the rest."""
    names = getattr(kind, "__dataclass_fields__", {})
    refuse_unknown(entry, [name for name in names if name not in known], where)
    try:
        return kind(**known, **entry)
    except TypeError:
        raise DataError(f"published.toml: {where}: something is missing. It takes {', '.join(names)}.") from None


def fractions(values: Any, where: str, count: int) -> tuple[float, ...]:
    """Percentages as fractions, all of them there and none beyond 0 to 100."""
    if not isinstance(values, list) or len(values) != count:
        raise DataError(f"published.toml: {where}: {count} figures are due. Got {shown(values)}.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
            raise DataError(f"published.toml: {where}: figures are percentages, from 0 to 100. Got {shown(value)}.")
    return tuple(round(value / 100, 8) for value in values)  # 0.8705, not 0.8704999…


def refuse_unknown(names: Collection[str], known: Collection[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise DataError(
                f"published.toml: {where}: '{shown(name)}' is not known.{nearest(str(name), known)} "
                f"Known: {shown(', '.join(each for each in known if each), 200)}."
            )
