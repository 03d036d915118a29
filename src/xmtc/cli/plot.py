"""`xmtc plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import check_choice, check_writable
from xmtc.cli.completion import completer
from xmtc.cli.options import takes_request
from xmtc.cli.output import JsonOutput, echo, note
from xmtc.core.errors import shown

AXES = ("epoch", "seconds", "step")


@takes_request
def plot(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG…", help="Training logs, or folders of models trained with a log.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Write the plot to FILE (SVG, PNG or PDF).", metavar="FILE")],
    output: JsonOutput,
    against: Annotated[
        str,
        typer.Option(
            help="Horizontal axis.",
            metavar="|".join(AXES),
            autocompletion=completer(AXES),
        ),
    ] = "epoch",
) -> None:
    """Plot loss and validation score from training logs."""
    from xmtc.cli.text_table import table
    from xmtc.views.plot import check_plot_file
    from xmtc.views.training_curves import training_plot
    from xmtc.views.training_log import AGAINST, read_curves, summary

    check_choice("--against", against, AGAINST)
    for path in (out, output.path):
        check_writable(path, *logs)
    check_plot_file(out)
    curves = read_curves(logs, against)
    training_plot(curves, against).save(out)
    echo(table(["run", "summary"], [[shown(curve.name), summary(curve, against)] for curve in curves]))
    output.write({"plot": out, "against": against, "curves": [{"name": each.name, **vars(each)} for each in curves]})
    note(f"{out}: training curves")
