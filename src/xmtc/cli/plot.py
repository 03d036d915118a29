"""`xmtc plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import check_choice, check_writable, echo, echo_error
from xmtc.core.errors import shown


def plot(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG…", help="Training logs, or models with a log beside them.")
    ],
    out: Annotated[Path, typer.Option(help="Draw the curves into this file (SVG, PNG or PDF).", metavar="FILE")],
    against: Annotated[str, typer.Option(help="Along the axis: epoch, seconds or step.", metavar="WHAT")] = "epoch",
) -> None:
    """Draw loss and validation score from training logs."""
    from xmtc.cli.show import table
    from xmtc.views.plot import check_plot_file
    from xmtc.views.training_curves import training_plot
    from xmtc.views.training_log import AGAINST, read_curves, summary

    check_choice("--against", against, AGAINST)
    check_writable(out, *logs)
    check_plot_file(out)
    curves = read_curves(logs, against)
    training_plot(curves, against).save(out)
    echo(table(["training", "how it went"], [[shown(curve.name), summary(curve, against)] for curve in curves]))
    echo_error(f"{out}: curves")
