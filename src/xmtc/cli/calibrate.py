"""`xmtc calibrate`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from xmtc.cli.common import check_writable
from xmtc.cli.options import Machine, takes_request
from xmtc.cli.output import JsonOutput, echo, note
from xmtc.core.errors import ConfigError
from xmtc.workflows.requests import CalibrateRequest

if TYPE_CHECKING:
    from xmtc.workflows.calibrate import Decisions


@takes_request
def calibrate(
    request: CalibrateRequest,
    machine: Machine,
    output: JsonOutput,
) -> None:
    """Calibrate scores and tune a threshold.

    Calibrated scores are probabilities. The calibration is saved with the model; the model itself does not change. Use
    --method none --threshold none to remove the calibration.
    """
    from xmtc.cli import show
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import calibrate as workflow

    if request.valid is None and output.json_target is not None:
        raise ConfigError("--json requires a validation set. Pass VALID, or leave out --json.")
    check_writable(output.path, request.valid, request.labels)
    model = workflow.calibrate(request, runtime=machine.runtime(), progress=terminal_progress())
    decisions = model.decisions
    if request.valid is not None:
        output.write(_to_json(decisions))
    if request.valid is not None:
        echo(show.calibration_table(decisions) + "\n")
    if not decisions.is_fitted:
        echo(f"{request.folder}: not calibrated; predict returns raw scores")
        return
    scores = "raw scores" if decisions.calibration is None else "probabilities"
    sets = "" if decisions.thresholds is None else "; predict --threshold auto returns label sets"
    echo(f"saved in {request.folder}: predict returns {scores}{sets}")
    folder = shlex.quote(str(request.folder))
    note(f"measured on the validation set used for fitting; for an unbiased estimate: xmtc evaluate {folder} TEST")


def _to_json(found: Decisions) -> dict[str, Any]:
    """Calibration and threshold with their metrics, for JSON."""
    parts = {"calibration": found.calibration, "threshold": found.thresholds}
    return {
        **{name: None if part is None else part.values() for name, part in parts.items()},
        "k": found.depth,
        **found.facts,
    }
