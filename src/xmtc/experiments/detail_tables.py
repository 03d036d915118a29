"""Detail tables of a dataset: frequent and rare labels, calibration, costs and statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from xmtc.core import config
from xmtc.experiments.records import Cell, DatasetRecord
from xmtc.experiments.tables import NOTHING, Row, Runs, Table, TableEntry, Take, mean_of, rows_of

# ---- frequent and rare labels


def group_heads(runs: Sequence[Runs]) -> list[str]:
    """Column heads of the frequency groups, most frequent labels first; empty if none were measured."""
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
    """Accessor of a run's AUC or AUPR in a frequency group."""

    def take(cell: Cell) -> float | None:
        groups = cell.groups.get(ties) or []
        return groups[at][what] if at < len(groups) else None

    return take


def _tail_value(bound: str, cut: str) -> Take:
    return lambda cell: cell.tail.get(bound, {}).get(cut)


def _set_score(name: str) -> Take:
    return lambda cell: ((cell.threshold or {}).get("scores") or {}).get(name)


TIES = {
    "pessimistic": "negatives rank before positives with the same score, as in published tables",
    "standard": "equal scores form one threshold, as in scikit-learn",
}


def group_tables(runs: Sequence[Runs]) -> list[Table]:
    """AUC and AUPR by label frequency, one table per treatment of ties."""
    heads = group_heads(runs)
    columns = tuple(f"{what} {head}" for what in ("AUC", "AUPR") for head in heads)
    tables = []
    for ties, words in TIES.items():
        measured = [each for each in runs if any(cell.groups.get(ties) for cell in each.cells)]
        if not measured:
            continue
        takes = [group_value(ties, at, what) for what in ("auc", "aupr") for at in range(len(heads))]
        rows = rows_of(measured, takes)
        caption = f"AUC and AUPR by number of test documents per label, {ties} ties (%)"
        tables.append(Table(caption, "model", columns, rows, f"{ties.capitalize()} ties: {words}."))
    return tables


def tail_table(runs: Sequence[Runs]) -> Table | None:
    """P@k of the rarest labels, each of which ranks all documents, with both denominators."""
    measured = [each for each in runs if any(cell.tail for cell in each.cells)]
    pairs = list(
        dict.fromkeys(
            (bound, cut) for each in measured for cell in each.cells for bound, at in cell.tail.items() for cut in at
        )
    )
    pairs.sort(key=lambda pair: pair[0] != "min")  # first the denominator with which a perfect ranking reaches 100 %
    if not pairs:
        return None
    rows = rows_of(measured, [_tail_value(bound, cut) for bound, cut in pairs])
    columns = tuple(f"{cut} / {bound}" for bound, cut in pairs)
    note = (
        "Each of the rarest labels ranks all test documents; hits are divided by Σ min(documents, k) or "
        "Σ max(documents, k)."
    )
    return Table("Tail P@k of the rarest labels (%)", "model", columns, rows, note)


# ---- calibration and label sets


def error_of(cell: Cell) -> float | None:
    """The expected calibration error; None if the scores are not probabilities."""
    found = (value for name, value in (cell.reliability or {}).items() if name.startswith("ECE@"))
    return next(found, None)


_SET_SCORES = {
    "micro": "micro-F1 (%)",
    "macro": "macro-F1 (%)",
    "document": "document-F1 (%)",
    "precision": "precision (%)",
    "recall": "recall (%)",
    "labels": "labels per document",
}


def reading_table(runs: Sequence[Runs]) -> Table | None:
    """Calibration error, and F1 of the label sets at the tuned threshold."""
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
    columns = ("ECE", *(_SET_SCORES.get(name, name) for name in scores))
    caption = "Expected calibration error (ECE)" + (" and label sets at the tuned threshold" if scores else "")
    return Table(caption, "model", columns, tuple(rows))


# ---- costs

MEGA = 1e6


def seconds_of_training(cell: Cell) -> float | None:
    """Training time in seconds."""
    return cell.seconds.get("train")


def milliseconds_a_document(cell: Cell) -> float | None:
    """Prediction time per document in milliseconds."""
    seconds = cell.seconds.get("predict")
    return None if seconds is None or not cell.documents else 1000 * seconds / cell.documents


def megabytes_of_memory(cell: Cell) -> float | None:
    """Peak memory in MB."""
    return _mega(cell.memory.get("host"))


def megabytes_on_device(cell: Cell) -> float | None:
    """Peak GPU memory in MB."""
    return _mega(cell.memory.get("device"))


def megabytes_of_model(cell: Cell) -> float | None:
    """Size of the model in MB."""
    return _mega(cell.model_bytes)


def _mega(count: int | None) -> float | None:
    return None if count is None else count / MEGA


COSTS: dict[str, Take] = {
    "training (s)": seconds_of_training,
    "prediction (ms/document)": milliseconds_a_document,
    "peak memory (MB)": megabytes_of_memory,
    "peak GPU memory (MB)": megabytes_on_device,
    "model size (MB)": megabytes_of_model,
}


def cost_table(runs: Sequence[Runs], machines: Sequence[str]) -> Table:
    """Time, memory and size as means over seeds, with the machine if there are several."""
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
    note = f"Interrupted and resumed, so times cover the last part only: {', '.join(resumed)}." if resumed else ""
    return Table("Time, memory and size", "model", columns, tuple(rows), note)


def figures(value: float) -> str:
    """Format with three significant figures: 0.0123, 1.23, 12.3, 123, 12,345."""
    if math.isnan(value):
        return NOTHING
    if value == 0 or value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


_SOFTWARE = ("xmtc", "python", "torch")


def machine_told(cell: Cell) -> str:
    """The hardware of a run on one line."""
    parts = [
        (name, value)
        for name, value in config.flat(cell.machine).items()
        if value not in (None, "") and name not in _SOFTWARE
    ]
    return ", ".join(f"{name} {value}" for name, value in parts) or "unknown"


# ---- datasets


def _at(values: Any, *path: str) -> Any:
    """A nested value; None if the path does not exist."""
    for name in path:
        values = values.get(name) if isinstance(values, Mapping) else None
    return values


_STATISTICS: dict[str, tuple[tuple[str, ...], float, str]] = {  # row: path, factor, format
    "training documents": (("documents",), 1, ",.0f"),
    "test documents": (("other", "documents"), 1, ",.0f"),
    "labels": (("labels", "occurring"), 1, ",.0f"),
    "labels per document": (("labels", "labels_per_document", "mean"), 1, ",.2f"),
    "documents per label": (("labels", "documents_per_label", "mean"), 1, ",.1f"),
    "labels occurring once (%)": (("labels", "share_seen_once"), 100, ".1f"),
    "pairs with the top 10 % of labels (%)": (("labels", "share_of_most_frequent_percent", "10"), 100, ".1f"),
    "words per text": (("text", "words_per_text", "mean"), 1, ",.0f"),
    "features per document": (("features", "features_per_document", "mean"), 1, ",.0f"),
    "test labels not in training": (("overlap", "unseen_labels"), 1, ",.0f"),
    "test documents in training": (("overlap", "documents"), 1, ",.0f"),
}


def statistics_table(records: Sequence[DatasetRecord]) -> Table | None:
    """Statistics of the datasets, one column per dataset."""
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
    return Table("Datasets", "statistic", tuple(record.name for record in described), tuple(rows))


_QUANTILES = {"0": "min", "25": "25 %", "50": "median", "75": "75 %", "95": "95 %", "100": "max"}
_DISTRIBUTIONS = {
    "labels per document": ("labels", "labels_per_document"),
    "documents per label": ("labels", "documents_per_label"),
    "words per text": ("text", "words_per_text"),
    "characters per text": ("text", "characters_per_text"),
    "features per document": ("features", "features_per_document"),
}


def quantile_table(record: DatasetRecord) -> Table | None:
    """Distribution of labels and text lengths in the training and the test set."""
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
    return Table(f"Distributions in {record.name}", "quantity", ("mean", *_QUANTILES.values()), tuple(rows))
