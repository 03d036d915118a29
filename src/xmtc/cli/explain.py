"""`xmtc explain`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import Device, check_writable, make_runtime
from xmtc.cli.options import takes_request
from xmtc.cli.output import JsonOutput, echo, note, output_width
from xmtc.core.request import require_suffix
from xmtc.workflows.requests import ExplainRequest


@takes_request
def explain(
    request: ExplainRequest,
    output: JsonOutput,
    html: Annotated[Path | None, typer.Option(help="Write the explanation to FILE as HTML.", metavar="FILE")] = None,
    device: Device = "auto",
) -> None:
    """Explain why a model assigns a label to a text."""
    from xmtc.cli.shading import shaded
    from xmtc.cli.show import explanation
    from xmtc.core.files import replace_file
    from xmtc.views.explanation_page import page
    from xmtc.workflows import explain as workflow

    for path in (html, output.path):
        check_writable(path)
    require_suffix(html, ".html", ".htm", what="the explanation is an HTML page")
    found = workflow.explain(request, runtime=make_runtime(device=device))
    if html is not None:
        with replace_file(html) as stream:
            stream.write(page(found).encode())
    echo(shaded(found, output_width()) if in_colour() else explanation(found))
    output.write(found.to_json())
    if not found.known_words:
        note("the model knows no word of this text; the score is the same for every such text")
    if html is not None:
        note(f"{html}: explanation")


def in_colour() -> bool:
    """Whether standard output is a terminal with colours and NO_COLOR is not set (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
