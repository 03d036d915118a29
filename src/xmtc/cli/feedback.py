"""`xmtc feedback …`: feedback on a model's labels, to look at and to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import check_writable, command_group, counted, echo, echo_error
from xmtc.cli.options import takes_request
from xmtc.core.errors import DataError, shown
from xmtc.workflows.requests import FeedbackRequest

app = command_group("feedback", "What people accepted and rejected, to learn from.")


@app.command()
@takes_request
def export(
    request: FeedbackRequest,
    output: Annotated[Path | None, typer.Option(help="Write here (default: standard output).", metavar="FILE")] = None,
) -> None:
    """Write what people said as JSONL for `xmtc update`.

    The last word on a text counts. Its labels are those that were accepted; what was rejected stands beside them.
    """
    from xmtc.core.files import replace_file
    from xmtc.workflows.feedback import export_feedback, feedback_file

    place = feedback_file(request.folder)
    check_writable(output, place)
    exported = export_feedback(request)
    for note in exported.notes:
        echo_error(note)
    if not exported.lines:
        raise DataError(f"{place}: nothing in it can be learnt from. Accept labels of some texts first.")
    if output is None:
        echo("\n".join(exported.lines))
        return
    with replace_file(output) as stream:
        stream.write("".join(f"{line}\n" for line in exported.lines).encode())
    echo_error(f"{output}: {counted(len(exported.lines), 'text')}")


@app.command()
@takes_request
def show(request: FeedbackRequest) -> None:
    """Count what people said, and what they rejected most."""
    from xmtc.cli.show import shortened, table
    from xmtc.workflows.feedback import summarise_feedback

    found = summarise_feedback(request)
    rows = [
        ["texts", f"{found.texts:,}"],
        ["earlier words on them", f"{found.superseded:,}"],
        ["labels accepted", f"{found.accepted.total():,}"],
        ["labels rejected", f"{found.rejected.total():,}"],
        ["first", found.first],
        ["last", found.last],
    ]
    echo(table([shown(found.path.name, 90), ""], rows))
    often = sorted(found.rejected.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
    if not often:
        return
    cells = [
        [f"{count:,}", f"{found.accepted[key]:,}", shown(key), shown(shortened(found.names[key], 90), 90)]
        for key, count in often
    ]
    echo("\nRejected most often\n" + table(["rejected", "accepted", "key", "label"], cells, right=(0, 1)))
