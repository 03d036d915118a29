"""`xmtc labels …`: what a model knows of its labels. Everything heavy is imported inside the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import Threads, check_writable, command_group, counted, echo, echo_error, make_runtime
from xmtc.cli.options import takes_request
from xmtc.core.errors import ConfigError, DataError, shown
from xmtc.workflows.requests import LabelMapRequest, LabelNeighboursRequest

app = command_group("labels", "Labels that a model holds to be alike: lists and a map.")


@app.command()
@takes_request
def neighbours(
    request: LabelNeighboursRequest,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the labels whose vectors are closest to one's."""
    from xmtc.cli.show import shortened, table
    from xmtc.workflows.label_space import label_neighbours

    label, found = label_neighbours(request, runtime=make_runtime(device="cpu"))
    if as_json:
        echo(json.dumps({"label": label, "neighbours": found}, ensure_ascii=False, indent=1))
        return
    documents = "" if label["documents"] is None else f", {counted(label['documents'], 'training document')}"
    echo(f"{shown(shortened(str(label['name']), 90), 90)} (key {shown(label['key'])}){documents}\n")
    rows = [
        [
            f"{each['similarity']:.4f}",
            "–" if each["documents"] is None else f"{each['documents']:,}",
            shown(each["key"]),
            shown(shortened(str(each["name"]), 90), 90),
        ]
        for each in found
    ]
    echo(table(["cosine", "documents", "key", "label"], rows, right=(0, 1)))


@app.command(name="map")
@takes_request
def draw_map(
    request: LabelMapRequest,
    out: Annotated[
        Path | None, typer.Option(help="Write the page here (default: DIR-labels.html).", metavar="FILE.html")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of where labels stand.", metavar="N")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.html if it is there.")] = False,
    threads: Threads = None,
) -> None:
    """Draw all labels on a map that opens in a browser."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.core.files import replace_file
    from xmtc.views.label_map import page
    from xmtc.workflows.label_space import label_map

    place = Path(f"{request.folder.resolve().name}-labels.html") if out is None else out
    if place.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{place}: pages are HTML. Let the name end in .html.")
    check_writable(place)
    if place.exists() and not force:
        raise DataError(f"{place}: is there already. Choose another name, or replace it with --force.")
    runtime = make_runtime(threads, seed, device="cpu")
    found = label_map(request, runtime=runtime, progress=terminal_progress())
    written = page(found).encode()
    with replace_file(place) as stream:
        stream.write(written)
    echo(f"{place}: a map of {counted(len(found.names), 'label')}, {len(written) / 1e6:.2f} MB")
    if found.left_out:
        echo_error(
            f"{counted(found.left_out, 'rarer label')} left out: --most N draws more, in a time that grows with N²"
        )
