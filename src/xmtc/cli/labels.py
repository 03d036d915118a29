"""`xmtc labels …`: what a model knows of its labels. Everything heavy is imported inside the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import ModelFolder, Threads, check_writable, clean, make_runtime, say, tell
from xmtc.core.errors import ConfigError, DataError, shown

app = typer.Typer(
    name="labels",
    help="Labels that a model holds to be alike: lists and a map.",
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Labels that a model holds to be alike: lists and a map."""
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command()
def neighbours(
    folder: ModelFolder,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="A label by name, alternative name or key.")],
    k: Annotated[int, typer.Option("-k", help="How many.", metavar="N")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the labels whose vectors are closest to one's."""
    from xmtc import load
    from xmtc.cli.show import shortened, table
    from xmtc.workflows.label_space import nearest_labels

    if k < 1:
        raise ConfigError(f"'k' must be an integer ≥ 1. Got {k}.")
    asked, found = nearest_labels(load(folder, make_runtime(device="cpu")), clean(label), k)
    if as_json:
        say(json.dumps({"label": asked, "neighbours": found}, ensure_ascii=False, indent=1))
        return
    documents = "" if asked["documents"] is None else f", {_several(asked['documents'], 'training document')}"
    say(f"{shown(shortened(str(asked['name']), 90), 90)} (key {shown(asked['key'])}){documents}\n")
    rows = [
        [
            f"{each['similarity']:.4f}",
            "–" if each["documents"] is None else f"{each['documents']:,}",
            shown(each["key"]),
            shown(shortened(str(each["name"]), 90), 90),
        ]
        for each in found
    ]
    say(table(["cosine", "documents", "key", "label"], rows, right=(0, 1)))


@app.command(name="map")
def draw_map(
    folder: ModelFolder,
    out: Annotated[
        Path | None, typer.Option(help="Write the page here (default: DIR-labels.html).", metavar="FILE.html")
    ] = None,
    most: Annotated[
        int, typer.Option(help="Draw at most so many labels, the most frequent ones.", metavar="N")
    ] = 50_000,
    seed: Annotated[int, typer.Option(help="Seed of where labels stand.", metavar="N")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.html if it is there.")] = False,
    threads: Threads = None,
) -> None:
    """Draw all labels on a map that opens in a browser."""
    from xmtc import load
    from xmtc.cli.progress import terminal_progress
    from xmtc.core.files import replace_file
    from xmtc.views.label_map import page
    from xmtc.workflows.label_space import label_map

    place = Path(f"{folder.resolve().name}-labels.html") if out is None else out
    if place.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{place}: pages are HTML. Let the name end in .html.")
    check_writable(place)
    if place.exists() and not force:
        raise DataError(f"{place}: is there already. Choose another name, or replace it with --force.")
    if most < 1:
        raise ConfigError(f"'most' must be an integer ≥ 1. Got {most}.")
    runtime = make_runtime(threads, seed, device="cpu")
    model = load(folder, runtime)
    found = label_map(model, clean(folder.resolve().name), most, terminal_progress())
    written = page(found).encode()
    with replace_file(place) as stream:
        stream.write(written)
    say(f"{place}: a map of {_several(len(found.names), 'label')}, {len(written) / 1e6:.2f} MB")
    if found.left_out:
        tell(f"{_several(found.left_out, 'rarer label')} left out: --most N draws more, in a time that grows with N²")


def _several(count: object, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
