"""`xmtc predict`: arguments in, one workflow call, answers out. Everything heavy is imported inside the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import ModelFolder, Threads, check_writable, clean, make_runtime, tell
from xmtc.errors import ConfigError


def predict(
    folder: ModelFolder,
    source: Annotated[
        str | None,
        typer.Argument(metavar="INPUT|-", help="JSONL, XMLRepository or a text a line; - is standard input."),
    ] = None,
    text: Annotated[str | None, typer.Option(help="One text, instead of a file.")] = None,
    k: Annotated[int, typer.Option("-k", help="Labels for each document.", metavar="N")] = 5,
    output: Annotated[Path | None, typer.Option(help="Write here instead of to the screen.", metavar="FILE")] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="jsonl, tsv, parquet or table (default: as FILE ends; a table on a terminal, jsonl in a pipe).",
        ),
    ] = None,
    threads: Threads = None,
) -> None:
    """Give documents their best labels, with scores."""
    from xmtc import load, workflows
    from xmtc.cli.output import chosen_format, write_answers
    from xmtc.cli.show import shortened

    if (source is None) == (text is None):
        both = "" if text is None else ", not both"
        raise ConfigError(f"predict needs either an INPUT file (or - for standard input) or --text TEXT{both}.")
    form = chosen_format(output_format, output)
    if k < 1:
        raise ConfigError(f"'k' must be an integer ≥ 1. Got {k}.")
    check_writable(output, source)
    model = load(folder, make_runtime(threads))
    if source is not None:
        count = write_answers(workflows.predict(model, source, k), output, form)
    else:
        answer = model.predict([clean(text or "")], k)
        if form == "table":  # a person knows the text by its words, not by its number
            answer.ids = [shortened(clean(text or ""), 90)]
        count = write_answers([answer], output, form)
    if output is not None:
        tell(f"{output}: {count:,} documents")
