"""`xmtc data …`: describe, split, convert and fetch files of documents."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.common import check_writable, command_group, echo, echo_error, terminal_width
from xmtc.cli.options import takes_request
from xmtc.workflows.data_requests import ConvertRequest, DescribeRequest, FetchRequest, HeadRequest, SplitRequest

if TYPE_CHECKING:
    from xmtc.core.progress import Progress
    from xmtc.workflows.fetch import Fetched

app = command_group("data", "Look at files of documents, split, convert and fetch them.")

_HOW = {
    "fetched": "fetched",
    "resumed": "fetched, going on with what was there",
    "there": "there already, and whole",
    "placed": "there already",
    "used": "not needed any more",
}


@app.command()
@takes_request
def describe(
    request: DescribeRequest,
    picture: Annotated[
        Path | None, typer.Option(help="Draw histograms into this file (SVG, PNG or PDF).", metavar="FILE")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.", metavar="FILE")] = None,
) -> None:
    """Count documents, labels, lengths and duplicates; with two files, what they share."""
    from xmtc.cli.describe import description_text
    from xmtc.cli.progress import terminal_progress
    from xmtc.core.files import write_json
    from xmtc.workflows import describe as workflow

    for written in (picture, json_file):
        check_writable(written, request.source, request.other)
    if picture is not None:
        from xmtc.views.histograms import histograms
        from xmtc.views.plot import check_plot_file

        check_plot_file(picture)
    found = workflow.describe(request, progress=terminal_progress())
    files = [request.source] if request.other is None else [request.source, request.other]
    short = [file.name for file in files]
    names = short if len(set(short)) == len(files) else [str(file) for file in files]
    if picture is not None:
        histograms(names[0], found, *names[1:]).save(picture)
    if json_file is not None:
        write_json(json_file, found.to_json())
    echo(description_text(names[0], found, *names[1:]))
    if picture is not None:
        echo_error(f"{picture}: histograms")


@app.command()
@takes_request
def head(request: HeadRequest) -> None:
    """Show the first documents with their labels."""
    from xmtc.cli.describe import head_text
    from xmtc.workflows.describe import first_documents

    echo(head_text(first_documents(request), request.count))


@app.command()
@takes_request
def split(request: SplitRequest) -> None:
    """Split documents into train and test, each label kept in train where it can be."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import convert as workflow

    for path, written in workflow.split(request, progress=terminal_progress()).items():
        echo(f"{path}: {written.count:,} documents{_lost(written.changed)}")


@app.command()
@takes_request
def convert(request: ConvertRequest) -> None:
    """Write documents in another format, or a vocabulary as JSONL or TSV."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import convert as workflow

    target = request.target
    check_writable(None if target.is_dir() else target, request.source, request.labels)
    written = workflow.convert(request, progress=terminal_progress())
    what = "labels" if request.vocabulary else "documents"
    echo(f"{target}: {written.count:,} {what}{_lost(written.changed)}")


def _lost(changed: int) -> str:
    return f", {changed:,} texts or labels with characters replaced" if changed else ""


@app.command()
@takes_request
def get(request: FetchRequest) -> None:
    """Fetch a public data set, checked and unpacked, or say where to get it."""
    from xmtc.cli.progress import terminal_progress

    run_get(request, terminal_progress(), echo, terminal_width())


def run_get(request: FetchRequest, progress: Progress, write: Callable[[str], None], width: int | None = None) -> None:
    """Fetch a data set into `out`/NAME and print the next commands; without a name, list those there are."""
    from xmtc.workflows.fetch import fetch_dataset, find_dataset, unfinished_downloads

    if request.name is None:
        write(catalogue_table(width))
        write("\nby hand: needs a browser; get says what to click and where to save it.")
        write("Fetch one of them with: xmtc data get NAME --out DIR")
        return
    entry = find_dataset(request.name)
    write(f"{entry.name}: {entry.what}. Licence: {entry.licence or 'see ' + entry.home}.")
    try:
        done = fetch_dataset(request, progress=progress)
    except KeyboardInterrupt:
        for part in unfinished_downloads(request):
            write(f"{part}: {part.stat().st_size:,} bytes stay there. Go on with the same command.")
        raise
    write(fetch_report(done))


def catalogue_table(width: int | None = None) -> str:
    """All data sets, a line each."""
    from xmtc.cli.show import table
    from xmtc.workflows.fetch import CATALOGUE

    rows = [
        (
            entry.name,
            f"{entry.train:,}",
            f"{entry.test:,}" if entry.test else "–",
            f"{entry.labels:,}",
            entry.content,
            "by hand" if entry.by_hand else "",
            entry.what,
        )
        for entry in CATALOGUE.values()
    ]
    return table(["name", "train", "test", "labels", "of", "", "what"], rows, right=(1, 2, 3), width=width)


def fetch_report(done: Fetched) -> str:
    """What was fetched, what to know about it, and the commands to type next."""
    lines = [f"{file.path}: {_HOW[file.how]} ({file.size:,} bytes, sha256 {file.sha256})" for file in done.files]
    if done.unpacked is not None:
        count = f"{done.unpacked.files:,} file{'s' if done.unpacked.files > 1 else ''}"
        lines.append(f"unpacked: {count}, {done.unpacked.size:,} bytes")
    lines += [f"note: {note}" for note in done.notes]
    formats = {part.use: part.file_format for part in done.dataset.parts}
    lines += ["", *(f"{use:<7}{path}  ({formats[use]})" for use, path in done.parts.items())]
    return "\n".join([*lines, "", "Next:", *(f"  {command}" for command in next_commands(done))])


def next_commands(done: Fetched) -> list[str]:
    """What to type next: train, and measure if there is a test file."""
    model = f"{done.dataset.name}-model"
    words = ["xmtc", "train", str(done.parts["train"])]
    for use, option in (("valid", "--valid"), ("labels", "--labels")):
        words += [option, str(done.parts[use])] if use in done.parts else []
    lines = [shlex.join([*words, "--out", model])]
    if "test" in done.parts:
        lines.append(shlex.join(["xmtc", "evaluate", model, str(done.parts["test"]), *done.dataset.propensity]))
    return lines
