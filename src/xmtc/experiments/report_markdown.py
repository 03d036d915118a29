"""A report as GitHub-flavoured Markdown: accuracy and costs. Output is deterministic."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xmtc.experiments.report import DatasetPart, Report, SuitePart, citation, machines
from xmtc.experiments.tables import Row, Table, TableEntry

_SPECIAL = re.compile(r"([\\`*\[\]<>|#~&])")
_LONE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def markdown(report: Report) -> str:
    """Render the report."""
    lines = ["# Results", ""]
    for suite in report.suites:
        lines += _suite(report, suite)
    if report.sources:
        lines += ["## Sources of published results", ""]
        for number, source in enumerate(report.sources, start=1):
            doubt = f" Doubtful: {source.doubt}" if source.doubt else ""
            lines.append(f"{number}. {_safe(citation(source) + doubt)}")
        lines.append("")
    return "\n".join(lines)


def _suite(report: Report, suite: SuitePart) -> list[str]:
    lines = [f"## Suite {_safe(suite.title)}", ""]
    if suite.results.about:
        lines += [_safe(suite.results.about), ""]
    if suite.study is not None:
        return [*lines, *_table(suite.study.table, report)]
    for table in (suite.statistics, *suite.ranks):
        lines += _table(table, report)
    lines += [_safe(suite.no_ranks), ""] if suite.no_ranks else []
    for part in suite.datasets:
        lines += _dataset(report, part)
    return lines


def _dataset(report: Report, part: DatasetPart) -> list[str]:
    lines = [f"### {_safe(part.name)}", "", *_table(part.accuracy, report), *_table(part.costs, report)]
    return [*lines, f"Measured on {_safe(machines(part))}.", ""]


def _table(table: Table | None, report: Report) -> list[str]:
    if table is None:
        return []
    lines = [f"{_safe(table.caption)}. {_safe(table.note)}".rstrip(), ""]
    lines += [_line([table.head, *table.columns]), _line(["---", *["---:"] * len(table.columns)], raw=True)]
    apart = table.rows[0].published is None if table.rows else False
    for row in table.rows:
        if apart and row.published is not None:
            lines.append(_line(["*published results*", *[""] * len(table.columns)], raw=True))
            apart = False
        lines.append(_line([_named(row, report), *(_entry(entry) for entry in row.entries)], raw=True))
    if any(row.published is not None and row.published.source.doubt for row in table.rows):
        lines += ["", "? marks doubtful figures (see the source); they are never in bold."]
    return [*lines, ""]


def markdown_table(table: Table) -> str:
    """Render one table of our own results."""
    return "\n".join(_table(table, Report([], [])))


def _line(cells: Sequence[str], raw: bool = False) -> str:
    return f"| {' | '.join(cell if raw else _safe(cell) for cell in cells)} |"


def _named(row: Row, report: Report) -> str:
    if row.published is None:
        return _safe(row.name)
    return f"{_safe(row.name)} \\[{report.number(row.published)}\\]{' ?' if row.published.source.doubt else ''}"


def _entry(entry: TableEntry) -> str:
    return f"**{_safe(entry.text)}**" if entry.best else _safe(entry.text)


def _safe(text: str) -> str:
    """Escape text for Markdown, on one line."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return _LONE_UNDERSCORE.sub(r"\\_", _SPECIAL.sub(r"\\\1", line))
