"""`xmtc labels …`: similar labels of a model. Heavy imports are inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.command import Command, command_group
from xmtc.cli.common import Threads, check_writable, counted, make_runtime
from xmtc.cli.options import takes_request
from xmtc.cli.output import JsonOutput, echo, note
from xmtc.core.errors import DataError, shown
from xmtc.core.request import require_suffix
from xmtc.workflows.requests import LabelMapRequest, LabelNeighboursRequest

app = command_group("labels", "List similar labels, or draw a map of all labels.")


@app.command(cls=Command)
@takes_request
def neighbours(
    request: LabelNeighboursRequest,
    output: JsonOutput,
) -> None:
    """List the labels that are most similar to a label."""
    from xmtc.cli.text_table import table
    from xmtc.workflows.label_space import label_neighbours

    check_writable(output.path)
    label, found = label_neighbours(request, runtime=make_runtime(device="cpu"))
    output.write({"label": label, "neighbours": found})
    documents = "" if label["documents"] is None else f", {counted(label['documents'], 'training document')}"
    echo(f"{shown(label['name'], 90)} (key {shown(label['key'])}){documents}")
    for what, title in (("alternatives", "alternative names"), ("broader", "broader labels")):
        names = label[what]
        assert isinstance(names, list)
        if names:
            echo(f"  {title}: {shown(', '.join(names), 200)}")
    echo("")
    rows = [
        [
            f"{each['similarity']:.4f}",
            "–" if each["documents"] is None else f"{each['documents']:,}",
            shown(each["key"]),
            shown(each["name"], 90),
        ]
        for each in found
    ]
    echo(table(["cosine", "documents", "key", "label"], rows, right=(0, 1)))


@app.command(name="map", cls=Command)
@takes_request
def draw_map(
    request: LabelMapRequest,
    output: JsonOutput,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="HTML page to write (default: DIR-labels.html).", metavar="FILE.html"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the layout.", metavar="N")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.html if it exists.")] = False,
    threads: Threads = None,
) -> None:
    """Draw a map of all labels as an HTML page."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.core.files import replace_file
    from xmtc.views.label_map import page
    from xmtc.workflows.label_space import label_map

    place = Path(f"{request.folder.resolve().name}-labels.html") if out is None else out
    require_suffix(place, ".html", ".htm", what="the map is an HTML page")
    for path in (place, output.path):
        check_writable(path)
    if place.exists() and not force:
        raise DataError(f"{place}: already exists. Choose another file, or replace it with --force.")
    runtime = make_runtime(threads, seed, device="cpu")
    found = label_map(request, runtime=runtime, progress=terminal_progress())
    written = page(found).encode()
    with replace_file(place) as stream:
        stream.write(written)
    echo(f"{place}: map of {counted(len(found.names), 'label')}, {len(written) / 1e6:.2f} MB")
    output.write({"page": place, "labels": len(found.names), "labels_left_out": found.left_out, "bytes": len(written)})
    if found.left_out:
        note(f"{counted(found.left_out, 'rarer label')} left out. Use --most N to draw more; the time grows with N².")
