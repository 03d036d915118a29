"""A report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence

from xmtc.core import config
from xmtc.experiments import report_figures
from xmtc.experiments.records import Cell
from xmtc.experiments.report import DatasetPart, Report, citation, machines
from xmtc.experiments.tables import NOTHING, Table
from xmtc.views.pages import render, several

_MARKS = {"secondary": "as quoted elsewhere", "recalled": "from memory of the publication"}
_SOURCE_KINDS = {
    "collected": "Taken from a collection; the publication was not at hand.",
    "measured here": "Measured by this project with other software.",
}


def page(report: Report) -> str:
    """The whole page."""
    return render(
        "report.html",
        report=report,
        names=", ".join(suite.title for suite in report.suites),
        extent=_extent(report),
        light_only=True,  # as the plots are
        nothing=NOTHING,
        plots=report_figures,
        source_kinds=_SOURCE_KINDS,
        cell_facts=_cell_facts,
        cells=_cells,
        citation=citation,
        machines=machines,
        noise=_noise,
        published_set=_published_set,
        remarks=_remarks,
        sections=_sections,
    )


def _extent(report: Report) -> str:
    cells = [cell for suite in report.suites for cell in suite.results.cells]
    models, datasets = ({getattr(cell.name, what) for cell in cells} for what in ("model", "dataset"))
    words = [several(len(report.suites), "suite"), several(len(datasets), "data set"), several(len(models), "model")]
    return f"{', '.join(words)}, {several(len(cells), 'cell')} (one model on one data set with one seed)."


def _sections(part: DatasetPart) -> dict[str, str]:
    """What the section of a data set holds."""
    known = {
        ("accuracy", "Accuracy"): True,
        ("rare", "Frequent and rare labels"): bool(part.groups or part.tail),
        ("overlap", "What models share"): bool(part.overlap),
        ("scores", "Scores as probabilities"): part.reading is not None,
        ("curves", "Training"): bool(part.curves),
        ("costs", "Time, memory and size"): True,
        ("cells", "Each cell"): True,
    }
    return dict(section for section, there in known.items() if there)


def _noise(part: DatasetPart) -> str:
    noise = part.record.noise
    return (
        f"{noise.get('of', 'another')} with noise, {noise.get('kind', 'of some kind')} at rate {noise.get('rate', '?')}"
    )


def _published_set(part: DatasetPart) -> str:
    """The data set that others measured on, to be compared with ours."""
    if (found := part.published) is None:
        return ""
    sizes = [("training documents", found.train), ("test documents", found.test), ("labels", found.labels)]
    counts = [f"{count:,} {what}" for what, count in sizes if count is not None]
    return f"Others’ figures are on {found.name}{': ' if counts else ''}{', '.join(counts)}. {found.note}".rstrip()


def _remarks(table: Table, report: Report) -> list[str]:
    """What there is to know of published figures in a table."""
    remarks = []
    for figure in (row.published for row in table.rows if row.published is not None):
        words = [_MARKS[figure.mark]] if figure.mark else []
        words += [figure.note.rstrip(".")] if figure.note else []
        if words:
            remarks.append(f"{figure.method} [{report.number(figure)}]: {'; '.join(words)}.")
    return remarks


def _cells(parts: Sequence[DatasetPart]) -> list[Cell]:
    return [cell for part in parts for runs in part.runs for cell in runs.cells]


def _cell_facts(cell: Cell) -> dict[str, str]:
    facts = {
        "model": cell.kind,
        "seed": cell.name.seed,
        "finished": cell.finished,
        "test documents": cell.documents,
        **{f"machine: {name}": value for name, value in config.flat(cell.machine).items()},
        **{f"found by training: {name}": value for name, value in config.flat(cell.facts).items()},
        **{f"setting: {name}": value for name, value in config.flat(cell.settings).items()},
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for name, value in facts.items()
    }
