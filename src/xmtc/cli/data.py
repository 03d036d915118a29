"""`xmtc data …`: looking at files of documents, splitting, converting and fetching them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from xmtc.cli.common import check_writable, say, tell
from xmtc.cli.reader_options import Labels, Language, NotInLabels, reads_documents
from xmtc.core.errors import ConfigError

app = typer.Typer(
    name="data",
    help="Look at files of documents, split, convert and fetch them.",
    add_completion=False,
    rich_markup_mode=None,
)

Source = Annotated[Path, typer.Argument(metavar="FILE", help="Documents in any known format.")]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Look at files of documents, split, convert and fetch them."""
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command()
@reads_documents
def describe(
    source: Source,
    options: Any,
    other: Annotated[
        Path | None, typer.Argument(metavar="[OTHER]", help="A second file, such as the test file of the first.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw histograms into this file (SVG, PNG or PDF).", metavar="FILE")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.", metavar="FILE")] = None,
) -> None:
    """Count documents, labels, lengths and duplicates; with two files, what they share."""
    from xmtc.cli.describe import description_text
    from xmtc.cli.progress import terminal_progress
    from xmtc.core.files import write_json
    from xmtc.data.description import describe as figures

    for written in (picture, json_file):
        for file in (source, other):
            check_writable(written, file)
    if picture is not None:
        from xmtc.views.histograms import histograms
        from xmtc.views.plot import check_plot_file

        check_plot_file(picture)
    progress = terminal_progress()
    first = _read(source, options, progress)
    second = None if other is None else _read(other, options, progress)
    found = figures(first, second, progress=progress)
    files = [source] if other is None else [source, other]
    told = [file.name for file in files]
    names = told if len(set(told)) == len(files) else [str(file) for file in files]
    if picture is not None:
        histograms(names[0], found, *names[1:]).save(picture)
    if json_file is not None:
        write_json(json_file, found.to_json())
    say(description_text(names[0], found, *names[1:]))
    if picture is not None:
        tell(f"{picture}: histograms")


@app.command()
@reads_documents
def head(
    source: Source,
    options: Any,
    count: Annotated[int, typer.Option("-n", help="How many documents.", metavar="N")] = 5,
) -> None:
    """Show the first documents with their labels."""
    from xmtc.cli.describe import head_text
    from xmtc.data.reading import read_some

    if count < 1:
        raise ConfigError(f"'n' must be an integer ≥ 1. Got {count}.")
    say(head_text(read_some(source, count, options), count))


@app.command()
@reads_documents
def split(
    source: Source,
    options: Any,
    out: Annotated[Path, typer.Option(help="Folder for the parts.", metavar="DIR")],
    test: Annotated[float, typer.Option(help="Share of documents for testing.", metavar="SHARE")] = 0.2,
    valid: Annotated[float, typer.Option(help="Share of documents for making choices.", metavar="SHARE")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the choice.", metavar="N")] = 0,
    apart: Annotated[
        bool, typer.Option("--apart", help="Let documents with the same text go to different parts.")
    ] = False,
    to: Annotated[str | None, typer.Option(help="Format of the parts (default: that of FILE).", metavar="NAME")] = None,
    lossy: Annotated[bool, typer.Option("--lossy", help="Replace characters that a format cannot hold.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Split documents into train and test, each label kept in train where it can be."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows.convert import split_file

    written = split_file(
        *(source, out),
        test=test,
        valid=valid,
        seed=seed,
        together=not apart,
        to=to,
        lossy=lossy,
        force=force,
        options=options,
        progress=terminal_progress(),
    )
    for path, (documents, changed) in written.items():
        say(f"{path}: {documents:,} documents{_lost(changed)}")


@app.command()
@reads_documents
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Documents, or a label vocabulary.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; its name tells the format.")],
    options: Any,
    to: Annotated[str | None, typer.Option(help="Format of OUT (default: told by its name).", metavar="NAME")] = None,
    lossy: Annotated[bool, typer.Option("--lossy", help="Replace characters that OUT's format cannot hold.")] = False,
    vocabulary: Annotated[bool, typer.Option("--vocabulary", help="IN is a label vocabulary, such as SKOS.")] = False,
    labels: Labels = None,
    language: Language = None,
    unknown_labels: NotInLabels = "refuse",
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
) -> None:
    """Write documents in another format, or a vocabulary as JSONL or TSV."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import convert

    check_writable(None if target.is_dir() else target, source, labels)
    if language is not None and labels is None and not vocabulary:
        raise ConfigError("--language chooses among the names of a vocabulary. Add --labels FILE or --vocabulary.")
    convert.refuse_taken(target, force)  # before the work, not after it
    if vocabulary:
        say(f"{target}: {convert.convert_vocabulary(source, target, language):,} labels")
        return
    documents, changed = convert.convert_file(
        *(source, target),
        to=to,
        lossy=lossy,
        vocabulary=labels,
        language=language,
        unknown_labels=unknown_labels,
        force=force,
        options=options,
        progress=terminal_progress(),
    )
    say(f"{target}: {documents:,} documents{_lost(changed)}")


def _lost(changed: int) -> str:
    return f", {changed:,} texts or labels with characters replaced" if changed else ""


@app.command()
def get(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which data set (default: list them).")] = None,
    out: Annotated[Path, typer.Option(help="Folder for data sets.", metavar="DIR")] = Path("data"),
    mirror: Annotated[
        str | None, typer.Option(help="Fetch from this address instead of the public one.", metavar="URL")
    ] = None,
) -> None:
    """Fetch a public data set, checked and unpacked, or say where to get it."""
    from xmtc.cli.get import run_get
    from xmtc.cli.progress import terminal_progress

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    run_get(name, out, mirror, terminal_progress(), say, width)


def _read(path: Path, options: Any, progress: Any) -> Any:
    """Documents with their labels where they have some."""
    from dataclasses import replace

    from xmtc.data import read

    return read(path, replace(options, labelled=False), progress=progress)
