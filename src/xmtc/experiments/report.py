"""The contents of a report, independent of its output format: the tables of each suite, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmtc.core.errors import DataError, UnsupportedError
from xmtc.experiments import detail_tables, tables
from xmtc.experiments.published import Figure, Published, PublishedSet, Source, published
from xmtc.experiments.records import Cell, DatasetRecord, Results, read_results
from xmtc.experiments.studies import study_figure
from xmtc.experiments.tables import Runs, Table
from xmtc.metrics import Reliability, ReliabilityBin
from xmtc.views.training_log import Curve, curves_of, read_curves


@dataclass(frozen=True)
class DatasetPart:
    """The part of a report about one dataset of a suite."""

    record: DatasetRecord
    published: PublishedSet | None
    """The dataset as described in publications, if published results are shown."""
    runs: list[Runs]
    """One entry per model, best first."""
    accuracy: Table
    beside: Table | None
    measures: Table
    groups: list[Table]
    tail: Table | None
    overlap: list[Table]
    reading: Table | None
    costs: Table
    machines: list[str]
    quantiles: Table | None
    reliabilities: dict[str, Reliability]
    """Reliability for the first seed of each model whose scores are probabilities."""
    curves: dict[str, list[Curve]]
    """Training curves for the first seed of each model that has a log."""
    missing: list[str]
    """Sentences about missing parts."""

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.record.name


@dataclass(frozen=True)
class Study:
    """The result of a study: one plot and one table."""

    figure: str
    table: Table


@dataclass(frozen=True)
class SuitePart:
    """The part of a report about one suite."""

    results: Results
    title: str
    datasets: list[DatasetPart]
    statistics: Table | None
    ranks: list[Table]
    no_ranks: str
    """Why there are no ranks."""
    study: Study | None


@dataclass(frozen=True)
class Report:
    """The contents of a report."""

    suites: list[SuitePart]
    sources: list[Source]
    """Sources of the published results, in order of appearance."""

    def number(self, figure: Figure) -> int:
        """Number of a result's source, from 1."""
        return self.sources.index(figure.source) + 1


def citation(source: Source) -> str:
    """Authors, title, venue and year, as far as known."""
    where = ", ".join(str(words) for words in (source.where, source.year) if words)
    return " ".join(f"{words}." for words in (source.authors, source.title, where) if words)


def machines(part: DatasetPart) -> str:
    """The machines that costs were measured on, numbered if there are several."""
    numbered = [f"machine {number}: {words}" for number, words in enumerate(part.machines, start=1)]
    return "; ".join(numbered) if len(numbered) > 1 else part.machines[0]


def collected(sources: Sequence[Path]) -> Report:
    """Build a report from folders or results files; each must contain at least one complete run."""
    known = published()
    distinct = {source.resolve(): source for source in sources}
    runs = [read_results(source) for source in distinct.values()]
    names = [results.suite for results in runs]
    suites = []
    for results in runs:
        if not results.cells:
            raise DataError(f"{results.source}: contains no complete run. Run xmtc bench first, or leave it out.")
        again = names.count(results.suite) > 1
        title = f"{results.suite} ({results.name})" if again else results.suite
        suites.append(_suite(results, title, known))
    shown = [
        row.published
        for suite in suites
        for part in suite.datasets
        for table in (part.accuracy, part.beside)
        if table is not None
        for row in table.rows
        if row.published is not None
    ]
    return Report(suites, list(dict.fromkeys(figure.source for figure in shown)))


def _suite(results: Results, title: str, known: Published) -> SuitePart:
    for cell in results.cells:
        _check_cell(cell, results.place(cell.name))
    by_dataset: dict[str, list[Cell]] = {}
    for cell in results.cells:
        by_dataset.setdefault(cell.name.dataset, []).append(cell)
    parts = []
    for name, cells in sorted(by_dataset.items()):
        record = results.datasets.get(name, DatasetRecord(name))
        place = results.place(name)
        _check(record, _RECORD_SHAPES, place)
        with _sound(place):
            parts.append(_dataset(record, tables.runs_of(cells), known))
    plain = [part for part in parts if not part.record.noise]
    ranks, no_ranks = tables.rank_tables({part.name: part.runs for part in plain})
    with _sound(results.source / "datasets" if results.line_numbers is None else results.source):
        statistics = detail_tables.statistics_table([part.record for part in plain])
    return SuitePart(results, title, parts, statistics, ranks, no_ranks, _study(results))


def _study(results: Results) -> Study | None:
    """Plot and table of a study; None if the suite is not a study or cannot be plotted."""
    if not results.study:
        return None
    with suppress(UnsupportedError):
        return Study(*study_figure(results))
    return None


def _dataset(record: DatasetRecord, runs: list[Runs], known: Published) -> DatasetPart:
    figures = known.of(record.published_as) if record.published_as and not record.noise else []
    beside = {each.model: known.beside(each.first.kind, record.published_as) for each in runs} if figures else {}
    machines = list(dict.fromkeys(detail_tables.machine_told(cell) for each in runs for cell in each.cells))
    curves, unread = _curves(runs)
    reliabilities = {each.model: found for each in runs if (found := _reliability(each.first)) is not None}
    part = DatasetPart(
        record,
        known.dataset(record.published_as) if figures else None,
        runs,
        accuracy=tables.accuracy_table(record.name, runs, figures),
        beside=tables.beside_table(runs, beside),
        measures=tables.measures_table(runs),
        groups=detail_tables.group_tables(runs),
        tail=detail_tables.tail_table(runs),
        overlap=tables.overlap_tables(record, runs),
        reading=detail_tables.reading_table(runs),
        costs=detail_tables.cost_table(runs, machines),
        machines=machines,
        quantiles=detail_tables.quantile_table(record),
        reliabilities=reliabilities,
        curves=curves,
        missing=unread,
    )
    part.missing.extend(_missing(part))
    return part


def _missing(part: DatasetPart) -> list[str]:
    """Sentences about parts that are missing for some or all models."""
    there = {
        "frequency groups": {row.name for table in part.groups[:1] for row in table.rows},
        "tail metrics": {row.name for row in part.tail.rows} if part.tail else set(),
        "reliability diagram": set(part.reliabilities),
        "training log": set(part.curves),
    }
    notes = []
    for what, models in there.items():
        lacking = [each.model for each in part.runs if each.model not in models]
        if lacking:
            whom = "any model" if len(lacking) == len(part.runs) else ", ".join(lacking)
            notes.append(f"No {what} for {whom}.")
    if not part.overlap and len(part.runs) > 1:
        notes.append("No overlap of predictions.")
    return notes


def _curves(runs: Sequence[Runs]) -> tuple[dict[str, list[Curve]], list[str]]:
    """Curves of the first seed of each model, and sentences about unreadable logs."""
    curves, unread = {}, []
    for each in runs:
        log = each.first.log
        if log is not None:
            place = "log" if isinstance(log, list) else str(log)
            try:
                curves[each.model] = (
                    curves_of(place, enumerate(log, 1), place) if isinstance(log, list) else read_curves([log])
                )
            except DataError as error:
                words = str(error).removeprefix(place).lstrip(":")
                unread.append(f"Log of {each.first.name}{':' if words[:1] == ' ' else ', line '}{words}")
    return curves, unread


def _reliability(cell: Cell) -> Reliability | None:
    found = cell.reliability
    error = detail_tables.error_of(cell)
    if found is None or error is None or not found.get("bins"):
        return None
    k = next(int(name.removeprefix("ECE@")) for name in found if name.startswith("ECE@"))
    shares = ("confidence", "accuracy", "lowest", "highest")
    bins = [ReliabilityBin(int(each["count"]), *(float(each[name]) for name in shares)) for each in found["bins"]]
    if not all(-1e-6 <= getattr(each, name) <= 1 + 1e-6 for each in bins for name in shares):
        raise ValueError("scores and precisions must be between 0 and 1")
    return Reliability(k, float(error), tuple(bins))


_CELL_SHAPES: Mapping[str, Any] = {
    **dict.fromkeys(("metrics", "settings", "seconds", "memory", "machine", "groups", "tail", "facts"), dict),
    **dict.fromkeys(("reliability", "threshold"), dict | None),
    **dict.fromkeys(("kind", "command", "finished"), str),
    "model_bytes": int | None,
    "documents": int,
}
_RECORD_SHAPES: Mapping[str, Any] = {
    **dict.fromkeys(("about", "published_as"), str),
    **dict.fromkeys(("statistics", "noise"), dict),
    "overlap": list,
}


def _check_cell(cell: Cell, place: str) -> None:
    """Refuse a run whose fields have the wrong types."""
    _check(cell, _CELL_SHAPES, place)
    for name in ("metrics", "seconds", "memory"):
        if not all(value is None or _is_number(value) for value in getattr(cell, name).values()):
            raise _amiss(place, name)


def _check(found: Cell | DatasetRecord, shapes: Mapping[str, Any], place: str) -> None:
    for name, kind in shapes.items():
        if not isinstance(getattr(found, name), kind):
            raise _amiss(place, name)


def _amiss(place: str, name: str) -> DataError:
    return DataError(f"{place}: damaged, '{name}' is invalid. Copy or run it again.")


@contextmanager
def _sound(place: Path | str) -> Iterator[None]:
    """Report errors caused by unexpected values as a damaged file."""
    try:
        yield
    except DataError:
        raise
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise DataError(f"{place}: this file or one of its runs is damaged. Copy or run it again.") from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
