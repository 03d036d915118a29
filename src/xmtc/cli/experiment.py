"""`xmtc experiment noise|ablation|tail`: the papers' studies on any files. Everything heavy is imported inside."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.bench import CellFailed, run_suite
from xmtc.cli.common import echo, echo_error
from xmtc.cli.options import TrainingMachine, takes_request
from xmtc.core.errors import ConfigError, XmtcError, shown
from xmtc.experiments.requests import StudyRequest
from xmtc.views.theme import check_matplotlib

if TYPE_CHECKING:
    from xmtc.experiments.studies import StudyFiles
    from xmtc.experiments.suites import Suite

app = typer.Typer(
    name="experiment",
    help="Studies: noisy labels, ablations, the rarest labels.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


Models = Annotated[
    list[str], typer.Option("--model", help="A model, or a recipe for one; may be repeated.", metavar="NAME")
]


@app.command()
@takes_request
def noise(
    request: StudyRequest,
    machine: TrainingMachine,
    models: Models,
    rates: Annotated[str, typer.Option(help="Chances that a label goes.", metavar="R,…")] = "0,0.1,0.2,0.3,0.4,0.5,0.6",
    kinds: Annotated[
        str, typer.Option(help="Labels are left out, or left out and replaced by wrong ones.", metavar="missing,flip")
    ] = "missing,flip",
) -> None:
    """How well models learn from wrong labels.

    Labels of 80 % of the training documents are made wrong at rising rates; the other 20 % stay as they are, to make
    choices on, and so does the test. Ends in a figure and the table behind it.
    """
    from xmtc.experiments.studies import noise_suite

    numbers = [_number(rate, "--rates") for rate in rates.split(",")]
    named = [kind.strip() for kind in kinds.split(",")]
    suite = noise_suite(_files(request), models, rates=numbers, kinds=named, **_settings(request))
    _run(suite, request, machine, _command("noise", request, models, ["--rates", rates, "--kinds", kinds]))


@app.command()
@takes_request
def ablation(
    request: StudyRequest,
    machine: TrainingMachine,
    model: Annotated[str, typer.Option(help="A model, or a recipe for one.", metavar="NAME")],
) -> None:
    """What the parts of a model are worth.

    The model is trained as it is, and with each of its parts taken away or put back to what is published. Ends in a
    figure and the table behind it.
    """
    from xmtc.experiments.studies import ablation_suite

    suite = ablation_suite(_files(request), model, **_settings(request))
    _run(suite, request, machine, _command("ablation", request, [model]))


@app.command()
@takes_request
def tail(
    request: StudyRequest,
    machine: TrainingMachine,
    models: Models,
) -> None:
    """How well the rarest labels find their documents.

    Each of the ten rarest labels ranks all test documents: P@1, P@10 and P@20. Ends in a figure and the table behind
    it.
    """
    from xmtc.experiments.studies import tail_suite

    suite = tail_suite(_files(request), models, **_settings(request))
    _run(suite, request, machine, _command("tail", request, models))


def _run(suite: Suite, request: StudyRequest, machine: TrainingMachine, command: str) -> None:
    check_matplotlib()  # a study ends in a figure
    try:
        run_suite(
            suite,
            request.out,
            Path(),
            command,
            list(request.only),
            machine.runtime(),
            force=request.force,
            keep_models=request.keep_models,
        )
    except CellFailed:  # the results of the other cells are shown all the same
        with suppress(XmtcError):
            _write_figure(request.out)
        raise
    _write_figure(request.out)


def _files(request: StudyRequest) -> StudyFiles:
    from xmtc.experiments.studies import StudyFiles

    return StudyFiles(request.train, request.test, request.valid, request.labels, request.dataset_settings())


def _settings(request: StudyRequest) -> dict[str, Any]:
    """Settings and seeds, as suites take them."""
    from xmtc.core import config

    return {"settings": config.parse_assignments(request.assignments), "seeds": request.seed_numbers}


def _number(words: str, option: str) -> float:
    try:
        return float(words)
    except ValueError:
        raise ConfigError(f"{option} must be numbers, such as 0,0.2,0.4. Got '{shown(words)}'.") from None


def _command(kind: str, request: StudyRequest, models: list[str], more: Sequence[str] = ()) -> str:
    """The command line, with file names in place of the paths of this machine."""
    options = request.reading.options
    words = ["xmtc", "experiment", kind, request.train.name, request.test.name]
    words += [word for model in models for word in ("--model", model)]
    words += [word for each in request.assignments for word in ("--set", each)]
    named = {
        "--seeds": request.seeds,
        "--valid": None if request.valid is None else request.valid.name,
        "--labels": None if request.labels is None else request.labels.name,
        "--format": options.file_format,
        "--text-field": ",".join(options.text_fields or []),
        "--label-field": options.label_field,
        "--id-field": options.id_field,
        "--label-separator": None if options.label_separator == ";" else options.label_separator,
        "--unknown-labels": request.unknown_labels,
    }
    return shlex.join([*words, *more, *(word for key, value in named.items() if value for word in (key, value))])


def _write_figure(out: Path) -> None:
    from xmtc.core.files import replace_file
    from xmtc.experiments.records import read_results
    from xmtc.experiments.report_markdown import markdown_table
    from xmtc.experiments.studies import study_figure

    figure, table = study_figure(read_results(out))
    written = markdown_table(table)
    for name, content in (("figure.svg", figure), ("table.md", written)):
        with replace_file(out / name) as stream:
            stream.write(content.encode())
    echo("\n" + written)
    echo_error(f"{out / 'figure.svg'}: the figure; {out / 'table.md'}: the table behind it")
