"""`xmtc predict`: labels for documents as JSONL, TSV, Parquet or a table. Files are written atomically."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from xmtc.cli.common import check_writable, counted
from xmtc.cli.completion import completer
from xmtc.cli.options import Machine, takes_request
from xmtc.cli.output import STDOUT, echo_error, note, output_width
from xmtc.core.errors import ConfigError, nearest
from xmtc.workflows.requests import BatchOptions, BatchPredictRequest, PredictRequest

if TYPE_CHECKING:
    from xmtc.core.runtime import Runtime
    from xmtc.workflows.predict import TopK

FORMATS = ("jsonl", "tsv", "parquet", "table")
OUTPUT_ONLY = ("table",)
"""Output formats that are not input formats."""
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".tsv": "tsv", ".parquet": "parquet", ".txt": "table", "": "jsonl"}


@takes_request
def predict(
    request: PredictRequest,
    batch: BatchOptions,
    machine: Machine,
    output: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the predictions to FILE (default: standard output).", metavar="FILE"),
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(FORMATS),
            help="Output format (default: from the extension of FILE; table on a terminal, jsonl in a pipe).",
            autocompletion=completer(FORMATS),
        ),
    ] = None,
    json_target: Annotated[
        str | None,
        typer.Option("--json", metavar="[=FILE]", help="Print JSON Lines; with =FILE, write them to FILE."),
    ] = None,
) -> None:
    """Predict labels for documents."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.cli.show import shortened
    from xmtc.workflows import predict as workflow

    _check_input_format(request)
    if json_target is not None:
        output, output_format = _json_lines(json_target, output, output_format, batch)
    if request.details:
        output_format = _with_details(output, output_format, batch)
    if batch.parts is not None:
        if output_format not in (None, "parquet"):
            raise ConfigError(f"--parts writes Parquet, not {output_format}. Leave out --output-format.")
        parts = BatchPredictRequest(predict=request, out=output, batch=batch)
        _write_parts(parts, machine.runtime())
        return
    form = chosen_format(output_format, output)
    check_writable(output, request.source, request.allow, request.deny, request.candidates)
    runtime = machine.runtime()
    answers = workflow.predict(request, runtime=runtime, progress=terminal_progress())
    if request.text is not None and form == "table":  # headed by the text, not by a number
        (answer,) = answers
        answer.ids = [shortened(request.text, output_width())]
        answers = iter([answer])
    count = write_answers(answers, output, form)
    if output is not None:
        note(f"{output}: predictions for {counted(count, 'document')}")


def _check_input_format(request: PredictRequest) -> None:
    """Reject an output format as --format, which is the format of the input."""
    given = request.reading.file_format
    if given in OUTPUT_ONLY or (given in FORMATS and request.text is not None):
        raise ConfigError(f"--format is the format of the input. For the output, use --output-format {given}.")


def _json_lines(
    target: str, output: Path | None, output_format: str | None, batch: BatchOptions
) -> tuple[Path | None, str]:
    """The output file and format that --json stands for."""
    if batch.parts is not None or output_format not in (None, "jsonl") or output is not None:
        other = "--parts" if batch.parts is not None else "--out" if output is not None else "--output-format"
        raise ConfigError(f"--json cannot be used with {other}. Leave out one of them.")
    return (None if target == STDOUT else Path(target)), "jsonl"


def _with_details(output: Path | None, output_format: str | None, batch: BatchOptions) -> str:
    """JSON Lines, the only format with details."""
    if batch.parts is not None:
        raise ConfigError("--details writes JSON Lines, and --parts writes Parquet. Leave out --parts or --details.")
    form = output_format
    if form is None:
        form = "jsonl" if output is None else chosen_format(None, output)
    if form != "jsonl":
        raise ConfigError(f"--details writes JSON Lines, not {form}. Use --json, or leave out --details.")
    return form


def _write_parts(request: BatchPredictRequest, runtime: Runtime) -> None:
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows.batch_predict import batch_predict

    with _resume_hint(request):
        written = batch_predict(request, runtime=runtime, progress=terminal_progress())
    note(f"{request.out}: {counted(written.documents, 'document')} in {counted(written.parts, 'part')}")


@contextmanager
def _resume_hint(request: BatchPredictRequest) -> Iterator[None]:
    """Print how to resume after an interruption."""
    from xmtc.workflows.batch_predict import finished_parts, is_begun

    try:
        yield
    except KeyboardInterrupt:
        if request.out is None or not is_begun(request.out):
            raise
        remedy = (
            "Start over with --force"
            if request.predict.source == "-"
            else "To resume, repeat the command with --resume"
        )
        echo_error(f"xmtc: interrupted. Complete parts in {request.out}: {finished_parts(request.out):,}. {remedy}.")
        raise typer.Exit(130) from None


def chosen_format(given: str | None, output: Path | None) -> str:
    """The given format, or that of the file extension, or a table on a terminal and JSONL in a pipe."""
    from xmtc.core.files import plain_name

    if given is not None:
        if given not in FORMATS:
            raise ConfigError(
                f"--output-format must be one of {', '.join(FORMATS)}. Got '{given}'.{nearest(given, FORMATS)}"
            )
        if given == "parquet" and output is None:
            raise ConfigError("--output-format parquet requires a file. Add --out FILE.")
        return given
    if output is not None:
        suffix = Path(plain_name(output)).suffix
        if suffix not in ENDINGS:
            known = ", ".join(ending for ending in ENDINGS if ending)
            raise ConfigError(f"{output}: unknown extension. Use one of {known}, or set --output-format.")
        return ENDINGS[suffix]
    return "table" if sys.stdout.isatty() else "jsonl"


def write_answers(answers: Iterable[TopK], output: Path | None, form: str) -> int:
    """Write predictions batch by batch; returns the number of documents."""
    from xmtc.core.files import replace_file
    from xmtc.workflows.predict import write_parquet

    if output is None:
        return _write_text(answers, sys.stdout.buffer, form)
    with replace_file(output) as stream:
        return write_parquet(answers, stream) if form == "parquet" else _write_text(answers, stream, form)


def _write_text(answers: Iterable[TopK], stream: IO[bytes], form: str) -> int:
    count = 0
    for answer in answers:
        stream.write(_text(answer, form, first=count == 0).encode())
        stream.flush()
        count += len(answer)
    return count


def _text(answer: TopK, form: str, first: bool) -> str:
    if form == "table":
        from xmtc.cli.show import ranking

        return ranking(answer) + "\n"
    if form == "tsv":
        head = "id\trank\tkey\tname\tscore\n" if first else ""
        return head + "".join(
            f"{_cell(row['id'])}\t{rank}\t{_cell(label['key'])}\t{_cell(label['name'])}\t{label['score']}\n"
            for row in answer.rows()
            for rank, label in enumerate(row["labels"], start=1)
        )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in answer.rows())


def _cell(text: str) -> str:
    """A TSV cell: tabs and line breaks become blanks."""
    return " ".join(text.split("\t")).replace("\n", " ").replace("\r", " ")
