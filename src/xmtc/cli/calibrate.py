"""`xmtc calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.common import check_writable, echo, echo_error
from xmtc.cli.options import Machine, takes_request
from xmtc.core.errors import ConfigError
from xmtc.workflows.requests import CalibrateRequest

if TYPE_CHECKING:
    from xmtc.workflows.calibrate import Decisions


@takes_request
def calibrate(
    request: CalibrateRequest,
    machine: Machine,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write what was found here too (fractions).", metavar="FILE")
    ] = None,
) -> None:
    """Make scores probabilities, and tune a threshold for sets.

    What is found is kept with the model; nothing else of it changes. With --method none and --threshold none it is
    taken away again.
    """
    from xmtc.cli import show
    from xmtc.cli.progress import terminal_progress
    from xmtc.core.files import write_json
    from xmtc.workflows import calibrate as workflow

    if request.valid is None and json_file is not None:
        raise ConfigError("--json tells what was measured, which takes documents. Leave it out, or name VALID.")
    check_writable(json_file, request.valid, request.labels)
    model = workflow.calibrate(request, runtime=machine.runtime(), progress=terminal_progress())
    decisions = model.decisions
    if json_file is not None:
        write_json(json_file, _to_json(decisions))
    if request.valid is not None:
        echo(show.calibration_table(decisions) + "\n")
    if not decisions.is_fitted:
        echo(f"{request.folder}: gives its scores as they are, and has no threshold")
        return
    scores = "scores as they are" if decisions.calibration is None else "probabilities"
    sets = "" if decisions.thresholds is None else ", predict --threshold auto sets of labels"
    echo(f"saved in {request.folder}: predict gives {scores}{sets}")
    echo_error(f"these documents were fitted to: xmtc evaluate {request.folder} TEST says how it holds on others")


def _to_json(found: Decisions) -> dict[str, Any]:
    """Calibration and thresholds, ready for JSON."""
    parts = {"calibration": found.calibration, "threshold": found.thresholds}
    return {
        **{name: None if part is None else part.values() for name, part in parts.items()},
        "k": found.depth,
        **found.facts,
    }
