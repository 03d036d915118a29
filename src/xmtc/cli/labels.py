"""`xmtc labels …`: what a model knows of its labels. Everything heavy is imported inside the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.common import ModelFolder, Threads, check_writable, clean, make_runtime, say, tell
from xmtc.errors import ConfigError, DataError, shown

if TYPE_CHECKING:
    from xmtc.models.base import Model
    from xmtc.pictures.label_map import LabelMap
    from xmtc.progress import Progress

NEAR = 5
"""Labels near to each that a map tells."""

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
    from xmtc.files import replace_file
    from xmtc.pictures.label_map import page

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


def nearest_labels(model: Model, label: str, k: int) -> tuple[dict[str, object], list[dict[str, object]]]:
    """A label that a person means, and the k whose vectors are closest: key, name, training documents, similarity."""
    from xmtc.linear.layout import close_to

    vectors, number = model.label_vectors(), model.labels.find(label)
    if not vectors[number].any():
        raise DataError(
            f"label '{shown(model.labels.name(number))}' has a vector of zeros, close to none. Ask another."
        )
    best, cosines = close_to(vectors, number, k)
    counted = model.counted()

    def told(each: int) -> dict[str, object]:
        documents = None if counted is None else int(counted[0][each])
        return {"key": model.labels.key(each), "name": model.labels.name(each), "documents": documents}

    pairs = zip(best.tolist(), cosines.tolist(), strict=True)
    return told(number), [{**told(each), "similarity": round(cosine, 6)} for each, cosine in pairs]


def label_map(model: Model, title: str, most: int, progress: Progress) -> LabelMap:
    """The most frequent labels of a model, placed by their vectors."""
    import numpy as np

    from xmtc.linear.layout import NEIGHBOURS, layout, nearest, regions
    from xmtc.pictures.label_map import REGIONS, LabelMap

    vectors, counted = model.label_vectors(), model.counted()
    counts = None if counted is None else np.asarray(counted[0])
    total = len(model.labels)
    often = np.arange(total) if counts is None else np.argsort(-counts, kind="stable")
    drawn = np.sort(often[:most])
    rows = np.asarray(vectors[drawn], dtype=np.float32)
    seed, threads = model.runtime.seed, model.runtime.threads
    near = nearest(rows, NEIGHBOURS, threads=threads, progress=progress)
    places = layout(rows, seed=seed, threads=threads, progress=progress, near=near)
    found, told = np.full(len(rows), -1, dtype=np.int64), rows.any(axis=1)
    found[told] = regions(places[told], REGIONS, seed=seed)
    return LabelMap(
        title=f"Labels of {title}",
        model=model.name,
        names=model.labels.strings("name", drawn),
        keys=model.labels.strings("key", drawn),
        documents=None if counts is None else counts[drawn],
        places=places,
        regions=found,
        near=near[0][:, :NEAR],
        cosines=near[1][:, :NEAR],
        left_out=total - len(drawn),
    )


def _several(count: object, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
