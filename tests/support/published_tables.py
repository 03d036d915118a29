"""The parts of published.toml that only the tests read: group, tail, time and overlap figures, and comparisons."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xmtc.experiments.published import FILE, Figure, Reader, Source, build, fractions, parsed, refuse_unknown

TAIL_KS = (1, 10, 20)


@dataclass(frozen=True)
class GroupFigure:
    """Means over the labels of three groups: frequent, middle, rare. Measures and shares are fractions."""

    method: str
    dataset: str
    source: Source
    auc: tuple[float, ...]
    aupr: tuple[float, ...]
    least: tuple[int, ...]
    """Test documents that a label of the group has at least."""
    labels: tuple[int, ...]
    share: tuple[float, ...]
    """Of all occurrences."""


@dataclass(frozen=True)
class Seconds:
    """What a method took."""

    method: str
    dataset: str
    source: Source
    train: float
    test: float
    """All test documents."""
    document: float | None = None
    """One document alone."""


@dataclass(frozen=True)
class PublishedOverlap:
    """How much of their first 1, 2, … labels two methods have in common, as fractions."""

    methods: tuple[str, ...]
    dataset: str
    source: Source
    shared: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """Methods compared over all data sets and cut-offs of a source."""

    source: Source
    measure: str
    """P or nDCG."""
    values: dict[str, float]
    """Method → average rank, or p-value of a signed rank test against one of the methods."""
    against: str = ""
    """That method."""


@dataclass(frozen=True)
class PublishedTables:
    groups: list[GroupFigure]
    tail: list[Figure]
    """Precision on the rarest labels, all test documents ranked for each."""
    seconds: list[Seconds]
    overlaps: list[PublishedOverlap]
    ranks: list[Comparison]
    p_values: list[Comparison]


@functools.cache
def published_tables() -> PublishedTables:
    """Those of the shipped file, read once."""
    return read_tables(FILE.read_text(encoding="utf-8"))


def read_tables(text: str) -> PublishedTables:
    known = parsed(text)
    content = tomllib.loads(text)
    reader = TableReader(known.sources, known.datasets)
    return PublishedTables(
        groups=reader.groups(content.get("groups", {})),
        tail=[reader.tail(*each) for each in reader.lines(content, "tail")],
        seconds=[reader.seconds(*each) for each in reader.lines(content, "seconds")],
        overlaps=reader.overlaps(content.get("overlap", {})),
        ranks=[Comparison(*each) for each in reader.compared(content, "ranks")],
        p_values=[
            Comparison(source, measure, values, against)
            for source, measure, tests in reader.compared(content, "p_values")
            for against, values in tests.items()
        ],
    )


class TableReader(Reader):
    def compared(self, content: Mapping[str, Any], part: str) -> list[tuple[Source, str, Any]]:
        """(source, measure, what is said of the methods) of a part that compares them."""
        found = []
        for key, table in content.get(part, {}).items():
            refuse_unknown(table, ("P", "nDCG"), f"{part}.{key}")
            found += [(self.source(key, part), measure, said) for measure, said in table.items()]
        return found

    def tail(self, source: Source, dataset: str, method: str, said: Any) -> Figure:
        values = fractions(said, f"tail.{source.key}.{dataset}: {method}", len(TAIL_KS))
        return Figure(method, dataset, source, {f"P@{k}": each for k, each in zip(TAIL_KS, values, strict=True)})

    def seconds(self, source: Source, dataset: str, method: str, said: Mapping[str, Any]) -> Seconds:
        where = f"seconds.{source.key}.{dataset}: {method}"
        return build(Seconds, where, {"method": method, "dataset": dataset, "source": source}, said)

    def groups(self, part: Mapping[str, Any]) -> list[GroupFigure]:
        found = []
        for key, tables in part.items():
            source = self.source(key, "groups")
            refuse_unknown(tables, self.known_datasets, f"groups.{key}")
            for dataset, table in tables.items():
                where = f"groups.{key}.{dataset}"
                methods = dict(table)
                least, labels = tuple(methods.pop("least", ())), tuple(methods.pop("labels", ()))
                share = fractions(methods.pop("share", ()), where, len(least))
                for method, said in methods.items():
                    refuse_unknown(said, ("AUC", "AUPR"), f"{where}: {method}")
                    auc, aupr = (fractions(said.get(name, ()), where, len(least)) for name in ("AUC", "AUPR"))
                    found.append(GroupFigure(method, dataset, source, auc, aupr, least, labels, share))
        return found

    def overlaps(self, part: Mapping[str, Any]) -> list[PublishedOverlap]:
        found = []
        for key, table in part.items():
            source, tables = self.source(key, "overlap"), dict(table)
            methods = tuple(tables.pop("methods", ()))
            refuse_unknown(tables, self.known_datasets, f"overlap.{key}")
            for dataset, values in tables.items():
                shared = fractions(values, f"overlap.{key}.{dataset}", len(values))
                found.append(PublishedOverlap(methods, dataset, source, shared))
        return found
