"""`xmtc data get`: the catalogue in a table, or one data set on this disk and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from xmtc.cli.show import table
from xmtc.core.progress import Progress
from xmtc.data.catalogue import CATALOGUE, find
from xmtc.data.downloads import Fetched, fetch

_HOW = {
    "fetched": "fetched",
    "resumed": "fetched, going on with what was there",
    "there": "there already, and whole",
    "placed": "there already",
    "used": "not needed any more",
}


def run_get(
    name: str | None,
    out: Path,
    mirror: str | None,
    progress: Progress,
    say: Callable[[str], None],
    width: int | None = None,
) -> None:
    """Fetch a data set into `out`/NAME and tell how to go on; without a name, list those there are."""
    if name is None:
        say(catalogue_table(width))
        say("\nby hand: needs a browser; get says what to click and where to save it.")
        say("Fetch one of them with: xmtc data get NAME --out DIR")
        return
    entry = find(name)
    say(f"{entry.name}: {entry.what}. Licence: {entry.licence or 'see ' + entry.home}.")
    try:
        done = fetch(entry, out, mirror=mirror, progress=progress)
    except KeyboardInterrupt:
        for part in sorted((out / entry.name).glob("*.part")):
            say(f"{part}: {part.stat().st_size:,} bytes stay there. Go on with the same command.")
        raise
    say(report(done))


def catalogue_table(width: int | None = None) -> str:
    """All data sets, a line each."""
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


def report(done: Fetched) -> str:
    """What was fetched, what to know about it, and the commands to type next."""
    lines = [f"{file.path}: {_HOW[file.how]} ({file.size:,} bytes, sha256 {file.sha256})" for file in done.files]
    if done.unpacked is not None:
        count = f"{done.unpacked.files:,} file{'s' if done.unpacked.files > 1 else ''}"
        lines.append(f"unpacked: {count}, {done.unpacked.size:,} bytes")
    lines += [f"note: {note}" for note in done.notes]
    formats = {part.use: part.file_format for part in done.dataset.parts}
    lines += ["", *(f"{use:<7}{path}  ({formats[use]})" for use, path in done.parts.items())]
    return "\n".join([*lines, "", "Next:", *(f"  {command}" for command in commands(done))])


def commands(done: Fetched) -> list[str]:
    """What to type next: train, and measure if there is a test file."""
    model = f"{done.dataset.name}-model"
    words = ["xmtc", "train", str(done.parts["train"])]
    for use, option in (("valid", "--valid"), ("labels", "--labels")):
        words += [option, str(done.parts[use])] if use in done.parts else []
    lines = [shlex.join([*words, "--out", model])]
    if "test" in done.parts:
        lines.append(shlex.join(["xmtc", "evaluate", model, str(done.parts["test"]), *done.dataset.propensity]))
    return lines
