"""`xmtc update`."""

from __future__ import annotations

import typer

from xmtc.cli.common import echo, echo_error
from xmtc.cli.options import SeededMachine, takes_request
from xmtc.workflows.requests import UpdateRequest


@takes_request
def update(
    request: UpdateRequest,
    machine: SeededMachine,
) -> None:
    """Teach a model new documents and new labels.

    The model is replaced at once or not at all. An update that was interrupted goes on when it is started again.
    """
    from xmtc.cli.models import update_line
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import update as workflow

    try:
        updated = workflow.update(request, runtime=machine.runtime(), progress=terminal_progress())
    except KeyboardInterrupt:
        work = workflow.unfinished_update(request)
        state = f"{request.folder} is as it was; finished parts are in {work}"
        echo_error(f"xmtc: interrupted. {state}: go on with the same command.")
        raise typer.Exit(130) from None
    entry = updated.history[-1]
    echo(f"saved {updated.name} in {request.target}: {update_line(entry)}, {entry['seconds']:.1f} s")
    if entry["nDCG@5 after"] is None:
        echo_error(
            "nothing tells whether it is better: give --valid FILE, or 500 new documents, of which a tenth is held out"
        )
    if updated.decisions.is_fitted:
        echo_error(f"what scores mean was found before the update: xmtc calibrate {request.target} VALID finds it anew")
