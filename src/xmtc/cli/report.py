"""`xmtc report`: the results of suites as a page, and as Markdown beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import check_writable, echo, echo_error
from xmtc.core.errors import ConfigError
from xmtc.views.theme import check_matplotlib


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Folders of xmtc bench, or exported files.")],
    out: Annotated[Path, typer.Option(help="Write the page here.", metavar="FILE.html")],
    markdown: Annotated[
        Path | None, typer.Option(help="Write the tables here (default: beside the page).", metavar="FILE.md")
    ] = None,
) -> None:
    """Show results of suites as one page, beside published figures."""
    check_matplotlib()
    from xmtc.core.files import replace_file
    from xmtc.experiments import report_markdown as text
    from xmtc.experiments.report import collected
    from xmtc.experiments.report_page import page

    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{out}: pages are HTML. Let the name end in .html.")
    beside = out.with_suffix(".md") if markdown is None else markdown
    if beside.resolve() == out.resolve():
        raise ConfigError(f"{out}: is named twice. Choose another name for --markdown.")
    check_writable(out)
    check_writable(beside)
    found = collected(folders)
    written = page(found).encode()
    for path, content in ((out, written), (beside, text.markdown(found).encode())):
        with replace_file(path) as stream:
            stream.write(content)
    cells = sum(len(suite.results.cells) for suite in found.suites)
    echo(f"{out}: a page of {cells:,} cell{'' if cells == 1 else 's'}, {len(written) / 1e6:.2f} MB")
    echo_error(f"{beside}: its tables as Markdown")
