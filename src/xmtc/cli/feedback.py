"""`xmtc feedback …`: what people said of a model's labels, to look at and to learn from. Heavy imports are inside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.common import check_writable, say, tell
from xmtc.core.errors import ConfigError, DataError, shown

if TYPE_CHECKING:
    from xmtc.data.label_index import LabelIndex
    from xmtc.workflows.feedback import Record

app = typer.Typer(
    name="feedback",
    help="What people accepted and rejected, to learn from.",
    add_completion=False,
    rich_markup_mode=None,
)

Place = Annotated[Path, typer.Argument(metavar="DIR", help="Model folder, or a .feedback.sqlite file.")]
Since = Annotated[
    str | None, typer.Option(help="Only what was said from then on (UTC unless it says otherwise).", metavar="DATE")
]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """What people accepted and rejected, to learn from."""
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command()
def export(
    folder: Place,
    output: Annotated[Path | None, typer.Option(help="Write here (default: standard output).", metavar="FILE")] = None,
    since: Since = None,
) -> None:
    """Write what people said as JSONL for `xmtc update`.

    The last word on a text counts. Its labels are those that were accepted; what was rejected stands beside them.
    """
    from xmtc.core.files import replace_file
    from xmtc.workflows.feedback import latest

    place = _file(folder)
    check_writable(output, place)
    words = latest(_records(folder, place, _parse_date(since)))
    lines, notes = _lines(words, _known(folder))
    for note in notes:
        tell(note)
    if not lines:
        raise DataError(f"{place}: nothing in it can be learnt from. Accept labels of some texts first.")
    if output is None:
        say("\n".join(lines))
        return
    with replace_file(output) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())
    tell(f"{output}: {_several(len(lines), 'text')}")


@app.command()
def show(folder: Place, since: Since = None) -> None:
    """Count what people said, and what they rejected most."""
    from xmtc.cli.show import shortened, table
    from xmtc.workflows.feedback import latest

    place = _file(folder)
    records = _records(folder, place, _parse_date(since))
    words = latest(records)
    rejected = Counter(key for word in words for key in word.rejected)
    accepted = Counter(key for word in words for key in word.accepted)
    rows = [
        ["texts", f"{len(words):,}"],
        ["earlier words on them", f"{len(records) - len(words):,}"],
        ["labels accepted", f"{accepted.total():,}"],
        ["labels rejected", f"{rejected.total():,}"],
        ["first", records[0].time[:10]],
        ["last", records[-1].time[:10]],
    ]
    say(table([shown(place.name, 90), ""], rows))
    often = sorted(rejected.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
    if not often:
        return
    labels = _known(folder)
    names = [key for key, _ in often] if labels is None else _names(labels, [key for key, _ in often])
    header = ["rejected", "accepted", "key", "label"]
    cells = [
        [f"{count:,}", f"{accepted[key]:,}", shown(key), shown(shortened(name, 90), 90)]
        for (key, count), name in zip(often, names, strict=True)
    ]
    say("\nRejected most often\n" + table(header, cells, right=(0, 1)))


def _file(folder: Path) -> Path:
    """The file of feedback that a user means."""
    from xmtc.artifact import store
    from xmtc.workflows.feedback import beside

    if folder.is_dir():
        store.read_manifest(folder)  # else a folder that holds no model would only lack feedback
        return beside(folder)
    if folder.suffix != ".sqlite" and folder.exists():
        raise DataError(f"{folder}: neither a model folder nor a .sqlite file of feedback. Name one of them.")
    return folder if folder.suffix == ".sqlite" else beside(folder)


def _records(folder: Path, place: Path, since: datetime | None) -> list[Record]:
    """What was said from then on, or a line on what to do where nothing was."""
    from xmtc.workflows.feedback import Feedback

    remedy = f"Collect some with: xmtc serve {folder}" if folder.is_dir() else "Check the path."
    if not place.exists():
        raise DataError(f"{folder}: no feedback yet, {place.name} is not there. {remedy}")
    found = list(Feedback(place, read_only=True).records())
    if not found:
        raise DataError(f"{place}: no feedback in it yet. {remedy}")
    if since is None:
        return found
    recent = [record for record in found if datetime.fromisoformat(record.time) >= since]
    if not recent:
        raise DataError(
            f"{place}: no feedback since then, the last is of {found[-1].time[:10]}. Choose an earlier date."
        )
    return recent


def _parse_date(given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        date = datetime.fromisoformat(given)
    except ValueError:
        raise ConfigError(f"--since must be a date such as 2026-11-30. Got '{shown(given)}'.") from None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _known(folder: Path) -> LabelIndex | None:
    """The labels of a model; None for a file, which does not tell."""
    from xmtc.artifact import store
    from xmtc.data.label_index import LabelIndex

    return LabelIndex(store.read_folder(folder)[1].tables["labels"]) if folder.is_dir() else None


def _names(labels: LabelIndex, keys: Sequence[str]) -> list[str]:
    """Display names; '–' for a label that has gone."""
    return ["–" if number < 0 else labels.name(number) for number in labels.ids(keys).tolist()]


def _lines(words: Sequence[Record], labels: LabelIndex | None) -> tuple[list[str], list[str]]:
    """JSONL, and what a person should know of what is not in it.

    A text whose labels were all rejected stays: a model learns from it that none of them is right.
    """
    gone, unsaid, lost = _gone(words, labels), 0, 0
    lines, learnable = [], False
    for word in words:
        accepted = [key for key in dict.fromkeys(word.accepted) if key not in gone]
        rejected = [key for key in dict.fromkeys(word.rejected) if key not in gone]
        if not word.accepted and not word.rejected:
            unsaid += 1
        elif not accepted and (word.accepted or not rejected):
            lost += 1
        else:
            row = {"id": f"feedback-{word.id}", "text": word.text, "labels": accepted, "rejected": rejected}
            lines.append(json.dumps(row, ensure_ascii=False))
            learnable |= bool(accepted)
    notes = [] if not gone else [f"{_several(len(gone), 'label')} that the model does not know (any more) left out"]
    notes += [] if not lost else [f"{_several(lost, 'text')} left out: of their labels none is left"]
    notes += [] if not unsaid else [f"{_several(unsaid, 'text')} left out: nothing was accepted or rejected"]
    return (lines if learnable else []), notes


def _gone(words: Sequence[Record], labels: LabelIndex | None) -> set[str]:
    """Keys that are not among a model's labels."""
    keys = list(dict.fromkeys(key for word in words for key in (*word.accepted, *word.rejected)))
    if labels is None:
        return set()
    return {key for key, number in zip(keys, labels.ids(keys).tolist(), strict=True) if number < 0}


def _several(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
