"""A report as one self-contained HTML page without scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence

from xmtc.core import config
from xmtc.experiments import report_figures
from xmtc.experiments.records import Cell
from xmtc.experiments.report import DatasetPart, Report, citation, machines
from xmtc.experiments.tables import NOTHING, Table
from xmtc.views.pages import render, several

_MOST_NAMES = 4  # suites named in the title
_MARKS = {"secondary": "as quoted in another publication", "recalled": "recalled from the publication, not verified"}
_SOURCE_KINDS = {
    "collected": "Taken from a collection of results; not checked against the publication.",
    "measured here": "Measured by this project with other software.",
}


def page(report: Report) -> str:
    """Render the page."""
    return render(
        "report.html",
        report=report,
        names=_names(report),
        extent=_extent(report),
        light_only=True,  # like the plots
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


def _names(report: Report) -> str:
    """The suites by name, or their number if there are many."""
    titles = [suite.title for suite in report.suites]
    return ", ".join(titles) if len(titles) <= _MOST_NAMES else several(len(titles), "suite")


def _extent(report: Report) -> str:
    cells = [cell for suite in report.suites for cell in suite.results.cells]
    models, datasets = ({getattr(cell.name, what) for cell in cells} for what in ("model", "dataset"))
    words = [several(len(report.suites), "suite"), several(len(datasets), "data set"), several(len(models), "model")]
    return f"{', '.join(words)}, {several(len(cells), 'run')} (one model on one data set with one seed each)."


def _sections(part: DatasetPart) -> dict[str, str]:
    """Headings of the section of a dataset."""
    known = {
        ("accuracy", "Accuracy"): True,
        ("rare", "Frequent and rare labels"): bool(part.groups or part.tail),
        ("overlap", "Overlap of predictions"): bool(part.overlap),
        ("scores", "Calibration"): part.reading is not None,
        ("curves", "Training"): bool(part.curves),
        ("costs", "Time, memory and size"): True,
        ("cells", "All runs"): True,
    }
    return dict(section for section, there in known.items() if there)


def _noise(part: DatasetPart) -> str:
    noise = part.record.noise
    return (
        f"{noise.get('of', 'unknown data set')} with label noise, "
        f"{noise.get('kind', 'unknown kind')} at rate {noise.get('rate', '?')}"
    )


def _published_set(part: DatasetPart) -> str:
    """The dataset of the published results, for comparison with ours."""
    if (found := part.published) is None:
        return ""
    sizes = [("training documents", found.train), ("test documents", found.test), ("labels", found.labels)]
    counts = [f"{count:,} {what}" for what, count in sizes if count is not None]
    return f"Published results are on {found.name}{': ' if counts else ''}{', '.join(counts)}. {found.note}".rstrip()


def _remarks(table: Table, report: Report) -> list[str]:
    """Remarks on the published results in a table."""
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
        **{f"determined in training: {name}": value for name, value in config.flat(cell.facts).items()},
        **{f"setting: {name}": value for name, value in config.flat(cell.settings).items()},
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for name, value in facts.items()
    }
