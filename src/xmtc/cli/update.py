"""`xmtc update`."""

from __future__ import annotations

import shlex

import typer

from xmtc.cli.common import check_writable
from xmtc.cli.options import SeededMachine, takes_request
from xmtc.cli.output import JsonOutput, echo, echo_error, note, snake_keys
from xmtc.workflows.requests import UpdateRequest


@takes_request
def update(
    request: UpdateRequest,
    machine: SeededMachine,
    output: JsonOutput,
) -> None:
    """Update a model with new documents and labels.

    The model folder is replaced in one step, or not at all. To resume an interrupted update, repeat the command.
    """
    from xmtc.cli.models import update_line
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import update as workflow

    check_writable(output.path, request.new, request.valid, request.replay, request.retire, request.merge)
    try:
        updated = workflow.update(request, runtime=machine.runtime(), progress=terminal_progress())
    except KeyboardInterrupt:
        work = workflow.unfinished_update(request)
        state = f"{request.folder} is unchanged; finished parts are in {work}"
        echo_error(f"xmtc: interrupted. {state}. To resume, repeat the command.")
        raise typer.Exit(130) from None
    entry = updated.history[-1]
    echo(f"saved {updated.name} in {request.target}: {update_line(entry)}, {entry['seconds']:.1f} s")
    output.write({"model": updated.name, "folder": request.target, "labels": len(updated.labels), **snake_keys(entry)})
    learnt = entry["documents"] or entry["labels added"] or entry["labels retired"] or entry["merged"]
    if entry["nDCG@5 after"] is None and learnt:
        more = ", or at least 500 new documents (a tenth is held out)" if entry["documents"] else ""
        note(f"the update was not checked: pass --valid FILE{more}")
    if updated.decisions.is_fitted:
        target = shlex.quote(str(request.target))
        note(f"the model was calibrated before the update; calibrate it again with: xmtc calibrate {target} VALID")
