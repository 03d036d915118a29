"""The closer looks at a data set as tables: frequent and rare labels, scores as probabilities, costs, statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from xmtc.core import config
from xmtc.experiments.records import Cell, DatasetRecord
from xmtc.experiments.tables import NOTHING, Row, Runs, Table, TableEntry, Take, mean_of, rows_of

# ---- frequent and rare labels


def group_heads(runs: Sequence[Runs]) -> list[str]:
    """The frequency groups in words, the most frequent labels first; none where nothing was measured."""
    for cell in (cell for each in runs for cell in each.cells):
        for groups in cell.groups.values():
            least = [group["least"] for group in groups]
            above = [None, *least[:-1]]
            spans = [
                f"≥ {low:,}" if high is None else f"{low:,} to {high - 1:,}"
                for low, high in zip(least, above, strict=True)
            ]
            return [f"{span} ({group['labels']:,} labels)" for span, group in zip(spans, groups, strict=True)]
    return []


def group_value(ties: str, at: int, what: str) -> Take:
    """What a cell found of a frequency group: its AUC or AUPR."""

    def take(cell: Cell) -> float | None:
        groups = cell.groups.get(ties) or []
        return groups[at][what] if at < len(groups) else None

    return take


def _tail_value(bound: str, cut: str) -> Take:
    return lambda cell: cell.tail.get(bound, {}).get(cut)


def _set_score(name: str) -> Take:
    return lambda cell: ((cell.threshold or {}).get("scores") or {}).get(name)


TIES = {
    "pessimistic": "of equal scores those of other documents come first, as in published tables",
    "standard": "equal scores are one step, as in scikit-learn",
}


def group_tables(runs: Sequence[Runs]) -> list[Table]:
    """AUC and AUPR of frequent and rare labels, a table for each treatment of ties."""
    heads = group_heads(runs)
    columns = tuple(f"{what} {head}" for what in ("AUC", "AUPR") for head in heads)
    tables = []
    for ties, words in TIES.items():
        measured = [each for each in runs if any(cell.groups.get(ties) for cell in each.cells)]
        if not measured:
            continue
        takes = [group_value(ties, at, what) for what in ("auc", "aupr") for at in range(len(heads))]
        rows = rows_of(measured, takes)
        caption = f"AUC and AUPR by test documents of a label, ties {ties}, %"
        tables.append(Table(caption, "model", columns, rows, f"Ties {ties}: {words}."))
    return tables


def tail_table(runs: Sequence[Runs]) -> Table | None:
    """P@k of the rarest labels, each ranking all documents, with both denominators."""
    measured = [each for each in runs if any(cell.tail for cell in each.cells)]
    pairs = list(
        dict.fromkeys(
            (bound, cut) for each in measured for cell in each.cells for bound, at in cell.tail.items() for cut in at
        )
    )
    pairs.sort(key=lambda pair: pair[0] != "min")  # first the one that a perfect ranking reaches 100 % of
    if not pairs:
        return None
    rows = rows_of(measured, [_tail_value(bound, cut) for bound, cut in pairs])
    columns = tuple(f"{cut} / {bound}" for bound, cut in pairs)
    note = (
        "Hits of the rarest labels, each ranking all test documents, over Σ min(documents, k) or Σ max(documents, k)."
    )
    return Table("Tail P@k of the rarest labels, %", "model", columns, rows, note)


# ---- scores as probabilities, and sets of labels


def error_of(cell: Cell) -> float | None:
    """The expected calibration error; None where scores are no probabilities."""
    found = (value for name, value in (cell.reliability or {}).items() if name.startswith("ECE@"))
    return next(found, None)


_SET_SCORES = {
    "micro": "micro-F1, %",
    "macro": "macro-F1, %",
    "document": "document-F1, %",
    "precision": "precision, %",
    "recall": "recall, %",
    "labels": "labels a document",
}


def reading_table(runs: Sequence[Runs]) -> Table | None:
    """How far scores are from probabilities, and the F1 of the sets that a tuned threshold makes."""
    scores = list(
        dict.fromkeys(
            name for each in runs for cell in each.cells for name in (cell.threshold or {}).get("scores") or {}
        )
    )
    measured = [each for each in runs if any(error_of(cell) is not None or cell.threshold for cell in each.cells)]
    if not measured:
        return None
    rows = []
    for each in measured:
        entries = [TableEntry(each.formatted(error_of, 1.0, 4))]
        entries += [TableEntry(each.formatted(_set_score(name), 1.0 if name == "labels" else 100.0)) for name in scores]
        rows.append(Row(each.model, tuple(entries)))
    columns = ("calibration error", *(_SET_SCORES.get(name, name) for name in scores))
    caption = "Expected calibration error" + (", and sets of labels at the tuned threshold" if scores else "")
    return Table(caption, "model", columns, tuple(rows))


# ---- what it takes

MEGA = 1e6


def seconds_of_training(cell: Cell) -> float | None:
    return cell.seconds.get("train")


def milliseconds_a_document(cell: Cell) -> float | None:
    seconds = cell.seconds.get("predict")
    return None if seconds is None or not cell.documents else 1000 * seconds / cell.documents


def megabytes_of_memory(cell: Cell) -> float | None:
    return _mega(cell.memory.get("host"))


def megabytes_on_device(cell: Cell) -> float | None:
    return _mega(cell.memory.get("device"))


def megabytes_of_model(cell: Cell) -> float | None:
    return _mega(cell.model_bytes)


def _mega(count: int | None) -> float | None:
    return None if count is None else count / MEGA


COSTS: dict[str, Take] = {
    "training, s": seconds_of_training,
    "prediction, ms a document": milliseconds_a_document,
    "peak memory, MB": megabytes_of_memory,
    "peak device memory, MB": megabytes_on_device,
    "model, MB": megabytes_of_model,
}


def cost_table(runs: Sequence[Runs], machines: Sequence[str]) -> Table:
    """Time, memory and size, means over the seeds; the machine too where there are several."""
    known = {name: take for name, take in COSTS.items() if any(each.values(take) for each in runs)}
    rows = []
    for each in runs:
        entries = [TableEntry(figures(mean_of(each.values(take)))) for take in known.values()]
        if len(machines) > 1:
            used = sorted({machines.index(machine_told(cell)) + 1 for cell in each.cells})
            entries.append(TableEntry(", ".join(map(str, used))))
        rows.append(Row(each.model, tuple(entries)))
    columns = (*known, *(["machine"] if len(machines) > 1 else []))
    resumed = [str(cell.name) for each in runs for cell in each.cells if cell.resumed]
    note = f"Interrupted, so that times are those of the last part: {', '.join(resumed)}." if resumed else ""
    return Table("Time, memory and size", "model", columns, tuple(rows), note)


def figures(value: float) -> str:
    """Three figures that say something: 0.0123, 1.23, 12.3, 123, 12,345."""
    if math.isnan(value):
        return NOTHING
    if value == 0 or value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


_SOFTWARE = ("xmtc", "python", "torch")


def machine_told(cell: Cell) -> str:
    """The hardware of a cell on one line."""
    parts = [
        (name, value)
        for name, value in config.flat(cell.machine).items()
        if value not in (None, "") and name not in _SOFTWARE
    ]
    return ", ".join(f"{name} {value}" for name, value in parts) or "not known"


# ---- the data sets


def _at(values: Any, *path: str) -> Any:
    """A value deep down, None where the way ends before it."""
    for name in path:
        values = values.get(name) if isinstance(values, Mapping) else None
    return values


_STATISTICS: dict[str, tuple[tuple[str, ...], float, str]] = {  # column: where, times, how
    "training documents": (("documents",), 1, ",.0f"),
    "test documents": (("other", "documents"), 1, ",.0f"),
    "labels": (("labels", "occurring"), 1, ",.0f"),
    "labels a document": (("labels", "labels_per_document", "mean"), 1, ",.2f"),
    "documents a label": (("labels", "documents_per_label", "mean"), 1, ",.1f"),
    "labels seen once, %": (("labels", "share_seen_once"), 100, ".1f"),
    "pairs of the top 10 % of labels, %": (("labels", "share_of_most_frequent_percent", "10"), 100, ".1f"),
    "words a text": (("text", "words_per_text", "mean"), 1, ",.0f"),
    "features a document": (("features", "features_per_document", "mean"), 1, ",.0f"),
    "test labels not in training": (("overlap", "unseen_labels"), 1, ",.0f"),
    "test documents in training": (("overlap", "documents"), 1, ",.0f"),
}


def statistics_table(records: Sequence[DatasetRecord]) -> Table | None:
    """The data sets beside each other."""
    described = [record for record in records if record.statistics]
    known = {
        name: how
        for name, how in _STATISTICS.items()
        if any(_at(each.statistics, *how[0]) is not None for each in described)
    }
    if not known:
        return None
    rows = []
    for name, (path, times, form) in known.items():
        values = [_at(record.statistics, *path) for record in described]
        formatted = (NOTHING if value is None else f"{times * value:{form}}" for value in values)
        rows.append(Row(name, tuple(TableEntry(words) for words in formatted)))
    return Table("The data sets", "statistic", tuple(record.name for record in described), tuple(rows))


_QUANTILES = {"0": "least", "25": "25 %", "50": "median", "75": "75 %", "95": "95 %", "100": "most"}
_DISTRIBUTIONS = {
    "labels a document": ("labels", "labels_per_document"),
    "documents a label": ("labels", "documents_per_label"),
    "words a text": ("text", "words_per_text"),
    "characters a text": ("text", "characters_per_text"),
    "features a document": ("features", "features_per_document"),
}


def quantile_table(record: DatasetRecord) -> Table | None:
    """How labels and texts are spread, for training and test documents."""
    rows = []
    for use, values in (("training", record.statistics), ("test", record.statistics.get("other"))):
        for name, path in _DISTRIBUTIONS.items():
            if (found := _at(values, *path)) is None:
                continue
            quantiles = [_at(found, "quantiles", share) for share in _QUANTILES]
            entries = [TableEntry() if value is None else TableEntry(f"{value:,}") for value in quantiles]
            rows.append(Row(f"{name}, {use}", (TableEntry(f"{found['mean']:,.2f}"), *entries)))
    if not rows:
        return None
    return Table(f"How {record.name} is spread", "of", ("mean", *_QUANTILES.values()), tuple(rows))
