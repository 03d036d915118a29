"""`xmtc predict`: arguments in, one workflow call, answers out. Everything heavy is imported inside the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from xmtc.cli.common import (
    Device,
    ModelFolder,
    Threads,
    check_tuned,
    check_writable,
    clean,
    make_runtime,
    read_threshold,
    tell,
)
from xmtc.cli.reader_options import reads_documents
from xmtc.core.errors import ConfigError


@reads_documents
def predict(
    folder: ModelFolder,
    options: Any,
    source: Annotated[
        str | None,
        typer.Argument(metavar="INPUT|-", help="Documents in any known format, or a text a line; - is standard input."),
    ] = None,
    text: Annotated[str | None, typer.Option(help="One text, instead of a file.")] = None,
    k: Annotated[
        int | None, typer.Option("-k", help="Labels for each document (default: 5), at most N of a set.", metavar="N")
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="auto|SCORE",
            help="Sets: of the 50 best labels those with at least this score, or auto, as xmtc calibrate tuned it.",
        ),
    ] = None,
    allow: Annotated[
        Path | None, typer.Option(help="Return only the labels of this list or vocabulary.", metavar="FILE")
    ] = None,
    deny: Annotated[Path | None, typer.Option(help="Never return the labels of this one.", metavar="FILE")] = None,
    candidates: Annotated[
        Path | None,
        typer.Option(help="Choose among labels given for each document: JSONL with id and labels.", metavar="FILE"),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write here instead of to the screen.", metavar="FILE")] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="jsonl, tsv, parquet or table (default: as FILE ends; a table on a terminal, jsonl in a pipe).",
        ),
    ] = None,
    parts: Annotated[
        int | None,
        typer.Option(help="Make --output a folder of Parquet parts of N documents each.", metavar="N"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with unfinished parts.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace parts that are there.")] = False,
    threads: Threads = None,
    device: Device = "auto",
) -> None:
    """Give documents their best labels, with scores."""
    from xmtc import load, workflows
    from xmtc.cli.prediction_output import chosen_format, write_answers
    from xmtc.cli.progress import terminal_progress
    from xmtc.cli.show import shortened
    from xmtc.workflows import batch_predict
    from xmtc.workflows.label_filter import read_restriction

    if (source is None) == (text is None):
        both = "" if text is None else ", not both"
        raise ConfigError(f"predict needs either an INPUT file (or - for standard input) or --text TEXT{both}.")
    least = read_threshold(threshold)
    if k is not None and k < 1:
        raise ConfigError(f"'k' must be an integer ≥ 1. Got {k}.")
    if text is not None and candidates is not None:
        raise ConfigError("--candidates knows documents by their ids. Leave it out with --text.")
    if parts is None:
        if resume or force:
            option = "--resume" if resume else "--force"
            raise ConfigError(f"{option} goes with --parts. Leave it out, or add --parts N.")
        form = chosen_format(output_format, output)
        check_writable(output, source, allow, deny, candidates)
    else:
        _check_parts(text, output, output_format, resume and force)
        batch_predict.check_folder(output or Path(), resume=resume, force=force)
    model = load(folder, make_runtime(threads, device=device))
    check_tuned(model, folder, least)
    restriction = read_restriction(model.labels, allow=allow, deny=deny, candidates=candidates)
    for line in restriction.notes:
        tell(line)
    if parts is not None and source is not None and output is not None:
        with _told_how_to_go_on(output, source):
            count, files = workflows.predict_parts(
                model,
                folder,
                source,
                output,
                k,
                size=parts,
                threshold=least,
                options=options,
                restriction=restriction,
                resume=resume,
                force=force,
                progress=terminal_progress(),
            )
        tell(f"{output}: {count:,} documents in {files:,} parts")
    else:
        if source is not None:
            how: dict[str, Any] = {"threshold": least, "options": options, "restriction": restriction}
            answers = workflows.predict(model, source, k, **how)
            count = write_answers(answers, output, form)
        else:
            answer = model.predict([clean(text or "")], k, threshold=least, allow=restriction.allowed)
            if form == "table":  # a person knows the text by its words, not by its number
                answer.ids = [shortened(clean(text or ""), 90)]
            count = write_answers([answer], output, form)
        if output is not None:
            tell(f"{output}: {count:,} documents")
    if restriction.candidates is not None and (note := restriction.candidates.note()):
        tell(note)


def _check_parts(text: str | None, output: Path | None, output_format: str | None, both: bool) -> None:
    if text is not None:
        raise ConfigError("--parts is for many documents. Give an INPUT file in place of --text.")
    if output is None:
        raise ConfigError("--parts needs a folder to put them in. Add --output FOLDER.")
    if output_format not in (None, "parquet"):
        raise ConfigError(f"--parts writes Parquet, not {output_format}. Leave out --output-format.")
    if both:
        raise ConfigError("--resume goes on and --force starts over. Give one of them.")


@contextmanager
def _told_how_to_go_on(output: Path, source: str) -> Iterator[None]:
    from xmtc.workflows import batch_predict

    try:
        yield
    except KeyboardInterrupt:
        if not batch_predict.is_begun(output):
            raise
        remedy = "start over with --force" if source == "-" else "go on with the same command and --resume"
        tell(f"xmtc: interrupted. Whole parts in {output}: {batch_predict.finished_parts(output):,}; {remedy}.")
        raise typer.Exit(130) from None
