"""`xmtc plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import check_choice, check_writable, echo, echo_error
from xmtc.core.errors import ConfigError, shown


def plot(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG…", help="Training logs, or models with a log beside them.")
    ],
    out: Annotated[Path, typer.Option(help="Draw the curves into this SVG file.", metavar="FILE")],
    against: Annotated[str, typer.Option(help="Along the axis: epoch, seconds or step.", metavar="WHAT")] = "epoch",
) -> None:
    """Draw loss and validation score from training logs."""
    from xmtc.cli.show import table
    from xmtc.core.files import replace_file
    from xmtc.views.training_curves import AGAINST, drawn, read_curves, told

    check_choice("--against", against, AGAINST)
    check_writable(out, *logs)
    if out.suffix.lower() != ".svg":
        raise ConfigError(f"{out}: pictures are SVG. Let the name end in .svg.")
    curves = read_curves(logs, against)
    with replace_file(out) as stream:
        stream.write(drawn(curves, against).encode())
    echo(table(["training", "how it went"], [[shown(curve.name), told(curve, against)] for curve in curves]))
    echo_error(f"{out}: curves")
