"""The entries of a report table: their texts, and which are marked as the best."""

from __future__ import annotations

from xmtc.experiments.tables import Table


def texts(table: Table) -> dict[str, list[str]]:
    return {row.name: [entry.text for entry in row.entries] for row in table.rows}


def best(table: Table) -> dict[str, list[str]]:
    """The columns in which a row is the best."""
    return {
        row.name: [column for column, entry in zip(table.columns, row.entries, strict=True) if entry.best]
        for row in table.rows
    }
