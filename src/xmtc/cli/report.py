"""`xmtc report`: results of suites as an HTML page and as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import check_writable, counted
from xmtc.cli.options import takes_request
from xmtc.cli.output import JsonOutput, echo, note
from xmtc.core.errors import ConfigError
from xmtc.core.request import require_suffix
from xmtc.views.theme import check_matplotlib


@takes_request
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR…", help="Results of xmtc bench: folders or exported files.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML page to write.", metavar="FILE.html")],
    output: JsonOutput,
    markdown: Annotated[
        Path | None,
        typer.Option(help="Markdown file to write (default: FILE.md, next to the page).", metavar="FILE.md"),
    ] = None,
) -> None:
    """Write a report on benchmark results.

    Writes an HTML page that compares the results with published figures, and its tables as Markdown.
    """
    check_matplotlib()
    from xmtc.core.files import replace_file
    from xmtc.experiments import report_markdown as text
    from xmtc.experiments.report import collected
    from xmtc.experiments.report_page import page

    require_suffix(out, ".html", ".htm", what="the report is an HTML page")
    tables = out.with_suffix(".md") if markdown is None else markdown
    if tables.resolve() == out.resolve():
        raise ConfigError(f"{out}: is used for two outputs. Choose another file for --markdown.")
    for path in (out, tables, output.path):
        check_writable(path)
    found = collected(folders)
    written = page(found).encode()
    for path, content in ((out, written), (tables, text.markdown(found).encode())):
        with replace_file(path) as stream:
            stream.write(content)
    runs = sum(len(suite.results.cells) for suite in found.suites)
    echo(f"{out}: report on {counted(runs, 'run')}, {len(written) / 1e6:.2f} MB")
    output.write({"page": out, "markdown": tables, "runs": runs, "bytes": len(written)})
    note(f"{tables}: its tables as Markdown")
