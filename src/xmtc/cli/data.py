"""`xmtc data …`: describe, split, convert and download files of documents."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.command import Command, command_group
from xmtc.cli.common import check_writable, counted
from xmtc.cli.options import takes_request
from xmtc.cli.output import JsonOutput, echo, note
from xmtc.workflows.data_requests import ConvertRequest, DescribeRequest, FetchRequest, HeadRequest, SplitRequest

if TYPE_CHECKING:
    from xmtc.core.progress import Progress
    from xmtc.workflows.fetch import Fetched

app = command_group("data", "Describe, split, convert and download data sets.")

_HOW = {
    "fetched": "downloaded",
    "resumed": "download resumed and completed",
    "there": "already present, checksum matches",
    "placed": "already present",
    "used": "no longer needed",
}


@app.command(cls=Command)
@takes_request
def describe(
    request: DescribeRequest,
    output: JsonOutput,
    plot: Annotated[
        Path | None, typer.Option(help="Write histograms to FILE (SVG, PNG or PDF).", metavar="FILE")
    ] = None,
) -> None:
    """Print statistics of one or two files of documents.

    Reports documents, labels, text lengths and duplicates; with two files, also what they have in common.
    """
    from xmtc.cli.describe import description_text
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import describe as workflow

    for written in (plot, output.path):
        check_writable(written, request.source, request.other)
    if plot is not None:
        from xmtc.views.histograms import histograms
        from xmtc.views.plot import check_plot_file

        check_plot_file(plot)
    found = workflow.describe(request, progress=terminal_progress())
    files = [request.source] if request.other is None else [request.source, request.other]
    short = [file.name for file in files]
    names = short if len(set(short)) == len(files) else [str(file) for file in files]
    if plot is not None:
        histograms(names[0], found, *names[1:]).save(plot)
    echo(description_text(names[0], found, *names[1:]))
    output.write(found.to_json())
    if plot is not None:
        note(f"{plot}: histograms")


@app.command(cls=Command)
@takes_request
def head(request: HeadRequest, output: JsonOutput) -> None:
    """Print the first documents with their labels."""
    from xmtc.cli.describe import head_rows, head_text
    from xmtc.workflows.describe import first_documents

    check_writable(output.path, request.source)
    documents = first_documents(request)
    echo(head_text(documents, request.count))
    output.write(head_rows(documents, request.count))


@app.command(cls=Command)
@takes_request
def split(request: SplitRequest, output: JsonOutput) -> None:
    """Split documents into a training and a test set.

    The labels of the test set also occur in the training set, if possible.
    """
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import convert as workflow

    check_writable(output.path, request.source)
    parts = workflow.split(request, progress=terminal_progress())
    for path, written in parts.items():
        echo(f"{path}: {counted(written.count, 'document')}{_lost(written.changed)}")
    output.write(
        [{"file": path, "documents": part.count, "texts_changed": part.changed} for path, part in parts.items()]
    )


@app.command(cls=Command)
@takes_request
def convert(request: ConvertRequest, output: JsonOutput) -> None:
    """Convert documents or a label vocabulary to another format."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import convert as workflow

    target = request.target
    check_writable(None if target.is_dir() else target, request.source, request.labels)
    check_writable(output.path, request.source, request.labels, target)
    written = workflow.convert(request, progress=terminal_progress())
    what = "label" if request.vocabulary else "document"
    echo(f"{target}: {counted(written.count, what)}{_lost(written.changed)}")
    output.write({"file": target, f"{what}s": written.count, "texts_changed": written.changed})


def _lost(changed: int) -> str:
    return f", {changed:,} texts or labels with replaced characters" if changed else ""


@app.command(cls=Command)
@takes_request
def get(request: FetchRequest, output: JsonOutput) -> None:
    """Download a public data set, or list all.

    Checks and unpacks the files. For data sets that cannot be downloaded automatically, prints instructions.
    """
    from xmtc.cli.progress import terminal_progress

    check_writable(output.path)
    output.write(run_get(request, terminal_progress(), echo))


def run_get(request: FetchRequest, progress: Progress, write: Callable[[str], None]) -> Any:
    """Download a data set into `out`/NAME and print the next commands; without a name, list all."""
    from xmtc.workflows.fetch import fetch_dataset, find_dataset, unfinished_downloads

    if request.name is None:
        write(catalogue_table())
        write("\n[manual]: requires a browser; xmtc data get NAME prints the instructions.")
        write("Download a data set: xmtc data get NAME --out DIR")
        return catalogue_rows()
    entry = find_dataset(request.name)
    write(f"{entry.name}: {entry.what}. Licence: {entry.licence or 'see ' + entry.home}.")
    try:
        done = fetch_dataset(request, progress=progress)
    except KeyboardInterrupt:
        for part in unfinished_downloads(request):
            write(f"{part}: {part.stat().st_size:,} bytes downloaded. To resume, repeat the command.")
        raise
    write(fetch_report(done))
    files = [{"file": each.path, "bytes": each.size, "sha256": each.sha256, "status": each.how} for each in done.files]
    return {"name": entry.name, "folder": done.folder, "files": files, "parts": done.parts, "notes": done.notes}


def catalogue_rows() -> list[dict[str, Any]]:
    """All data sets, for JSON."""
    from xmtc.workflows.fetch import CATALOGUE

    return [
        {
            "name": entry.name,
            "description": entry.what,
            "train": entry.train,
            "test": entry.test,
            "labels": entry.labels,
            "content": entry.content,
            "manual": entry.by_hand,
            "licence": entry.licence,
            "home": entry.home,
        }
        for entry in CATALOGUE.values()
    ]


def catalogue_table() -> str:
    """A table of all data sets."""
    from xmtc.cli.text_table import table
    from xmtc.workflows.fetch import CATALOGUE

    rows = [
        (
            entry.name,
            f"{entry.train:,}",
            f"{entry.test:,}" if entry.test else "–",
            f"{entry.labels:,}",
            entry.what
            + (" (features)" if entry.content == "features" else "")
            + (" [manual]" if entry.by_hand else ""),
        )
        for entry in CATALOGUE.values()
    ]
    return table(["name", "train", "test", "labels", "description"], rows, right=(1, 2, 3))


def fetch_report(done: Fetched) -> str:
    """The downloaded files, notes on them, and the next commands."""
    lines = [f"{file.path}: {_HOW[file.how]} ({file.size:,} bytes, sha256 {file.sha256})" for file in done.files]
    if done.unpacked is not None:
        count = f"{done.unpacked.files:,} file{'s' if done.unpacked.files > 1 else ''}"
        lines.append(f"unpacked: {count}, {done.unpacked.size:,} bytes")
    lines += [f"note: {note}" for note in done.notes]
    formats = {part.use: part.file_format for part in done.dataset.parts}
    lines += ["", *(f"{use:<7}{path}  ({formats[use]})" for use, path in done.parts.items())]
    return "\n".join([*lines, "", "Next:", *(f"  {command}" for command in next_commands(done))])


def next_commands(done: Fetched) -> list[str]:
    """The next commands: train, and evaluate if there is a test set."""
    model = f"{done.dataset.name}-model"
    words = ["xmtc", "train", str(done.parts["train"])]
    for use, option in (("valid", "--valid"), ("labels", "--labels")):
        words += [option, str(done.parts[use])] if use in done.parts else []
    lines = [shlex.join([*words, "--out", model])]
    if "test" in done.parts:
        lines.append(shlex.join(["xmtc", "evaluate", model, str(done.parts["test"]), *done.dataset.propensity]))
    return lines
