"""`xmtc explain`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import Device, check_writable, echo, echo_error, make_runtime
from xmtc.cli.options import takes_request
from xmtc.core.request import require_suffix
from xmtc.workflows.requests import ExplainRequest


@takes_request
def explain(
    request: ExplainRequest,
    html: Annotated[Path | None, typer.Option(help="Write a page that shows why here.", metavar="FILE")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    device: Device = "auto",
) -> None:
    """Show why a model gives a text a label."""
    from xmtc.cli.shading import shaded
    from xmtc.cli.show import explanation
    from xmtc.core.files import replace_file
    from xmtc.views.explanation_page import page
    from xmtc.workflows import explain as workflow

    check_writable(html)
    require_suffix(html, ".html", ".htm", what="pages are HTML")
    found = workflow.explain(request, runtime=make_runtime(device=device))
    if html is not None:
        with replace_file(html) as stream:
            stream.write(page(found).encode())
    if as_json:
        echo(json.dumps(found.to_json(), indent=1))
    else:
        echo(shaded(found, shutil.get_terminal_size().columns) if in_colour() else explanation(found))
    if html is not None:
        echo_error(f"{html}: a page that shows why")


def in_colour() -> bool:
    """Whether standard output is a terminal that shows colours, and nobody asked for none (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
