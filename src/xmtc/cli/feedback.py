"""`xmtc feedback …`: show and export feedback on predicted labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.command import Command, command_group
from xmtc.cli.common import check_writable, counted
from xmtc.cli.options import takes_request
from xmtc.cli.output import JsonOutput, echo, note
from xmtc.core.errors import DataError, shown
from xmtc.workflows.requests import FeedbackRequest

app = command_group("feedback", "Show or export feedback on predicted labels.")


@app.command(cls=Command)
@takes_request
def export(
    request: FeedbackRequest,
    output: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the feedback to FILE (default: standard output).", metavar="FILE"),
    ] = None,
) -> None:
    """Export feedback as JSONL for `xmtc update`.

    Uses the latest feedback on each text. `labels` are the accepted labels, `rejected` the rejected ones; all others
    are unknown unless `complete` is true.
    """
    from xmtc.core.files import replace_file
    from xmtc.workflows.feedback_export import check_export_name, export_feedback, feedback_file

    place = feedback_file(request.folder)
    check_writable(output, place)
    if output is not None:
        check_export_name(output)
    exported = export_feedback(request)
    for line in exported.notes:
        note(line)
    if not exported.lines:
        raise DataError(f"{place}: contains no decisions. Accept or reject labels on the web page first.")
    if output is None:
        echo("\n".join(exported.lines))
        return
    with replace_file(output) as stream:
        stream.write("".join(f"{line}\n" for line in exported.lines).encode())
    note(f"{output}: {counted(len(exported.lines), 'text')}")


@app.command(cls=Command)
@takes_request
def show(request: FeedbackRequest, output: JsonOutput) -> None:
    """Summarise feedback, with the labels rejected most often."""
    from xmtc.cli.text_table import table
    from xmtc.workflows.feedback_export import summarise_feedback

    check_writable(output.path)
    found = summarise_feedback(request)
    rows = [
        ["texts", f"{found.texts:,}"],
        ["earlier feedback on them", f"{found.superseded:,}"],
        ["labels accepted", f"{found.accepted.total():,}"],
        ["labels rejected", f"{found.rejected.total():,}"],
        ["texts with all their labels", f"{found.complete:,}"],
        ["first", found.first],
        ["last", found.last],
    ]
    echo(table([shown(found.path.name, 90), ""], rows))
    often = sorted(found.rejected.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
    output.write(
        {
            "file": found.path,
            "texts": found.texts,
            "earlier_feedback": found.superseded,
            "labels_accepted": found.accepted.total(),
            "labels_rejected": found.rejected.total(),
            "complete_texts": found.complete,
            "first": found.first,
            "last": found.last,
            "rejected_most": [
                {"key": key, "name": found.names[key], "rejected": count, "accepted": found.accepted[key]}
                for key, count in often
            ],
        }
    )
    if not often:
        return
    cells = [
        [f"{count:,}", f"{found.accepted[key]:,}", shown(key), shown(found.names[key], 90)] for key, count in often
    ]
    echo("\nRejected most often\n" + table(["rejected", "accepted", "key", "label"], cells, right=(0, 1)))
