"""Tables of results as rows and columns of text, independent of the output format.

Metrics are in percent. With several seeds, a value is mean ± standard deviation.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from xmtc.experiments.records import OVERLAPS, Cell, DatasetRecord
from xmtc.metrics.significance import average_ranks, wilcoxon

if TYPE_CHECKING:
    from xmtc.experiments.published import Figure

MEASURES = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
ORDER = "nDCG@5"
"""Metric that models are sorted by, best first."""
RANKED = ("P@1", "P@3", "P@5")
FEWEST_ROWS = 6
"""Minimum number of results to compare two models on: with five, an exact two-sided signed-rank test cannot reach
p < 0.05."""
NOTHING = "–"
MOST = 2**53
"""Upper limit of metrics, counts and times; larger values and NaN count as missing."""
Take = Callable[[Cell], float | None]
"""Accessor of a number of a run; None if it is missing."""


@dataclass(frozen=True)
class TableEntry:
    """A cell of a table."""

    text: str = NOTHING
    best: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    name: str
    entries: tuple[TableEntry, ...]
    published: Figure | None = None
    """The published result that the row shows; None for our own."""


@dataclass(frozen=True)
class Table:
    """A table with caption and note."""

    caption: str
    head: str
    """Head of the first column, which contains the row names."""
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""


@dataclass(frozen=True)
class Runs:
    """The runs of one model on one dataset, one per seed."""

    model: str
    cells: tuple[Cell, ...]

    @property
    def first(self) -> Cell:
        """The run with the smallest seed."""
        return self.cells[0]

    def values(self, take: Take) -> list[float]:
        """The values of the runs that have one."""
        found = (take(cell) for cell in self.cells)
        return [float(value) for value in found if value is not None and abs(value) <= MOST]

    def mean(self, measure: str) -> float:
        """Mean of a metric over seeds; NaN if no run has it."""
        return mean_of(self.values(_measure(measure)))

    def formatted(self, take: Take, times: float = 100.0, places: int = 2) -> str:
        """Mean ± standard deviation of a value as text."""
        return spread([times * value for value in self.values(take)], places)


def runs_of(cells: Iterable[Cell]) -> list[Runs]:
    """Group the runs of one dataset by model, best first, ties by name."""
    by_model: dict[str, list[Cell]] = {}
    for cell in cells:
        by_model.setdefault(cell.name.model, []).append(cell)
    found = [Runs(model, tuple(sorted(each, key=lambda cell: cell.name.seed))) for model, each in by_model.items()]
    return sorted(found, key=lambda runs: (-round(_or_zero(runs.mean(ORDER)), 6), runs.model))


def spread(values: Sequence[float], places: int = 2) -> str:
    """Mean ± sample standard deviation; only the value if there is just one."""
    if not values:
        return NOTHING
    mean = f"{mean_of(values):.{places}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{places}f}"


def mean_of(values: Sequence[float]) -> float:
    """Arithmetic mean; NaN for an empty sequence."""
    return math.fsum(values) / len(values) if values else math.nan


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def with_best(rows: Sequence[Row], values: Sequence[Sequence[float]]) -> list[Row]:
    """Mark the highest value of each column as best, including all that are equal after rounding to two decimals."""
    marked = [list(row.entries) for row in rows]
    for column in range(len(values[0]) if values else 0):
        rounded = [round(100 * each[column], 2) for each in values]
        highest = max((value for value in rounded if not math.isnan(value)), default=None)
        for at, value in enumerate(rounded):
            if value == highest:
                marked[at][column] = replace(marked[at][column], best=True)
    return [replace(row, entries=tuple(entries)) for row, entries in zip(rows, marked, strict=True)]


def rows_of(runs: Sequence[Runs], takes: Sequence[Take]) -> tuple[Row, ...]:
    """One row of metrics per model, with the best marked."""
    rows = [Row(each.model, tuple(TableEntry(each.formatted(take)) for take in takes)) for each in runs]
    return tuple(with_best(rows, [[mean_of(each.values(take)) for take in takes] for each in runs]))


# ---- accuracy


def accuracy_table(dataset: str, runs: Sequence[Runs], figures: Sequence[Figure]) -> Table:
    """Our results, best first, then published ones; the best of each are marked, except doubtful figures."""
    measures = _known(
        MEASURES, [*(cell.metrics for each in runs for cell in each.cells), *(f.metrics for f in figures)]
    )
    ours = rows_of(runs, [_measure(name) for name in measures])
    theirs = [
        Row(each.method, tuple(TableEntry(_percent(each.metrics.get(name))) for name in measures), each)
        for each in figures
    ]
    values = [
        [math.nan if each.source.doubt else each.metrics.get(name, math.nan) for name in measures] for each in figures
    ]
    order = sorted(range(len(figures)), key=lambda at: (-_or_zero(_worth(figures[at])), figures[at].method, at))
    theirs = with_best([theirs[at] for at in order], [values[at] for at in order])
    return Table(f"Accuracy on {dataset} (%)", "model", measures, (*ours, *theirs), _seeds(runs))


def _worth(figure: Figure) -> float:
    """Sort key of published results: P@1, which all papers report."""
    return figure.metrics.get("P@1", figure.metrics.get(ORDER, math.nan))


def _measure(name: str) -> Take:
    return lambda cell: cell.metrics.get(name)


def _percent(value: float | None) -> str:
    return NOTHING if value is None or math.isnan(value) else f"{100 * value:.2f}"


def _known(names: Sequence[str], among: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    there = {name for each in among for name in each}
    return tuple(name for name in names if name in there)


def _seeds(runs: Sequence[Runs]) -> str:
    """A sentence on the number of seeds."""
    counts = {each.model: len(each.cells) for each in runs}
    if set(counts.values()) == {1}:
        return "One seed each."
    if len(set(counts.values())) == 1:
        return f"Mean ± standard deviation over {next(iter(counts.values()))} seeds."
    counted = ", ".join(f"{model} {count}" for model, count in counts.items())
    return f"Mean ± standard deviation over seeds; number of seeds: {counted}."


def beside_table(runs: Sequence[Runs], published: Mapping[str, Sequence[Figure]]) -> Table | None:
    """Our results next to published ones of the same method, with differences; doubtful figures are left out."""
    pairs = [(each, figure) for each in runs for figure in published.get(each.model, ()) if not figure.source.doubt]
    measures = _known(RANKED, [figure.metrics for _, figure in pairs])
    if not measures:
        return None
    columns = tuple(f"{name} {what}" for name in measures for what in ("ours", "published", "difference"))
    rows = []
    for each, figure in pairs:
        entries: list[TableEntry] = []
        for name in measures:
            ours, theirs = each.mean(name), figure.metrics.get(name, math.nan)
            gap = NOTHING if math.isnan(ours - theirs) else f"{100 * (ours - theirs):+.2f}".replace("-", "−")
            entries += [TableEntry(_percent(ours)), TableEntry(_percent(theirs)), TableEntry(gap)]
        rows.append(Row(each.model, tuple(entries), figure))
    return Table("Our results and published results of the same method (%)", "ours / published", columns, tuple(rows))


def measures_table(runs: Sequence[Runs]) -> Table:
    """All metrics, one per row."""
    names = list(dict.fromkeys(name for each in runs for cell in each.cells for name in cell.metrics))
    rows = [Row(name, tuple(TableEntry(each.formatted(_measure(name))) for each in runs)) for name in names]
    return Table("All metrics (%)", "metric", tuple(each.model for each in runs), tuple(rows))


# ---- model comparison


def rank_tables(by_dataset: Mapping[str, Sequence[Runs]]) -> tuple[list[Table], str]:
    """Average ranks and p-values over datasets × k; with too few results, no tables and the reason."""
    models = list(dict.fromkeys(runs.model for each in by_dataset.values() for runs in each))
    found = {
        (dataset, runs.model, name): runs.mean(name)
        for dataset, each in by_dataset.items()
        for runs in each
        for name in RANKED
    }
    lines = [
        [found.get((dataset, model, name), math.nan) for model in models] for dataset in by_dataset for name in RANKED
    ]
    lines = [line for line in lines if sum(not math.isnan(value) for value in line) > 1]
    if len(lines) < FEWEST_ROWS:
        return [], (
            f"Average ranks and signed-rank tests need at least {FEWEST_ROWS} results (data set × k) that models have "
            f"in common; here there {'is 1' if len(lines) == 1 else f'are {len(lines)}'}."
        )
    ranks = dict(zip(models, average_ranks(lines).tolist(), strict=True))
    counts = {model: sum(not math.isnan(line[at]) for line in lines) for at, model in enumerate(models)}
    models = [model for model in models if counts[model]]
    models.sort(key=lambda model: (round(ranks[model], 9), model))
    everywhere = [model for model in models if counts[model] == len(lines)]
    least = min((ranks[model] for model in everywhere), default=None)  # ranks over different results are not comparable
    rows = [
        Row(
            model,
            (
                TableEntry(f"{ranks[model]:.2f}", model in everywhere and ranks[model] == least),
                TableEntry(str(counts[model])),
            ),
        )
        for model in models
    ]
    table = Table("Average rank by P@1, P@3 and P@5", "model", ("average rank", "results"), tuple(rows))
    columns = {model: [line[at] for line in lines] for at, model in enumerate(list(ranks)) if model in models}
    return [table, _p_values(models, columns)], ""


def _p_values(models: Sequence[str], columns: Mapping[str, Sequence[float]]) -> Table:
    def entry(one: str, other: str) -> TableEntry:
        pairs = [(a, b) for a, b in zip(columns[one], columns[other], strict=True) if not math.isnan(a + b)]
        if one == other or len(pairs) < FEWEST_ROWS:
            return TableEntry("" if one == other else NOTHING)
        return TableEntry(p_value_text(wilcoxon([a for a, _ in pairs], [b for _, b in pairs])))

    rows = [Row(one, tuple(entry(one, other) for other in models)) for one in models]
    note = (
        "Exact two-sided Wilcoxon signed-rank tests over the same results. P@1, P@3 and P@5 on one data set are not "
        "independent, so the p-values overstate the significance."
    )
    return Table("p-values of pairwise comparisons", "model", tuple(models), tuple(rows), note)


def p_value_text(value: float) -> str:
    """Format a p-value: 0.0312, 1.2e−5."""
    return f"{value:.4f}" if value >= 0.001 else f"{value:.1e}".replace("e-0", "e-").replace("-", "−")


def overlap_tables(record: DatasetRecord, runs: Sequence[Runs]) -> list[Table]:
    """Fraction of the top 5 labels shared by each pair of models, and of the top 1 to 5."""
    shared = {frozenset(each["models"]): each["shared"] for each in record.overlap}
    models = [each.model for each in runs]
    models = [model for model in models if any(model in pair for pair in shared)]
    if len(models) < 2:
        return []

    def entry(one: str, other: str, k: int) -> TableEntry:
        return TableEntry(_percent(shared.get(frozenset((one, other)), {}).get(str(k))) if one != other else "")

    most = max(OVERLAPS)
    rows = [Row(one, tuple(entry(one, other, most) for other in models)) for one in models]
    square = Table(f"Labels shared by two models among their top {most} (%)", "model", tuple(models), tuple(rows))
    pairs = [(one, other) for one, other in combinations(models, 2) if frozenset((one, other)) in shared]
    rows = [Row(f"{one} – {other}", tuple(entry(one, other, k) for k in OVERLAPS)) for one, other in pairs]
    columns = tuple(f"top {k}" for k in OVERLAPS)
    return [square, Table("Labels shared by two models among their top k (%)", "models", columns, tuple(rows))]
