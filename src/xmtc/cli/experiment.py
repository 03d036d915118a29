"""`xmtc experiment noise|ablation|tail`: studies from the literature on your own files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.bench import CellFailed, run_suite
from xmtc.cli.command import Command, command_group
from xmtc.cli.common import check_writable
from xmtc.cli.completion import completer
from xmtc.cli.options import TrainingMachine, takes_request
from xmtc.cli.output import JsonOutput, echo, note
from xmtc.core.errors import ConfigError, XmtcError, shown
from xmtc.experiments.requests import StudyRequest
from xmtc.views.theme import check_matplotlib

if TYPE_CHECKING:
    from xmtc.experiments.studies import StudyFiles
    from xmtc.experiments.suites import Suite

app = command_group("experiment", "Run studies: noisy labels, ablations, rare labels.")

Models = Annotated[
    list[str],
    typer.Option(
        "--model",
        help="Model or recipe to include; can be repeated.",
        metavar="NAME",
        autocompletion=completer("models"),
    ),
]


@app.command(cls=Command)
@takes_request
def noise(
    request: StudyRequest,
    machine: TrainingMachine,
    models: Models,
    output: JsonOutput,
    rates: Annotated[
        str, typer.Option(help="Probabilities that a label is corrupted.", metavar="R,…")
    ] = "0,0.1,0.2,0.3,0.4,0.5,0.6",
    kinds: Annotated[
        str,
        typer.Option(help="Kinds of noise: remove labels, or replace them with wrong ones.", metavar="missing,flip"),
    ] = "missing,flip",
) -> None:
    """Measure robustness to noisy training labels.

    Corrupts the labels of 80% of the training documents at increasing rates. The other 20% are the validation set;
    they and the test set are not changed. Writes a figure and a table.
    """
    from xmtc.experiments.studies import noise_suite

    numbers = [_number(rate, "--rates") for rate in rates.split(",")]
    named = [kind.strip() for kind in kinds.split(",")]
    suite = noise_suite(_files(request), models, rates=numbers, kinds=named, **_settings(request))
    _run(suite, request, machine, _command("noise", request, models, ["--rates", rates, "--kinds", kinds]), output)


@app.command(cls=Command)
@takes_request
def ablation(
    request: StudyRequest,
    machine: TrainingMachine,
    output: JsonOutput,
    model: Annotated[
        str,
        typer.Option(help="Model or recipe to study.", metavar="NAME", autocompletion=completer("models")),
    ],
) -> None:
    """Measure the contribution of each part of a model.

    Trains the model as configured, and once per part with that part removed or as published. Writes a figure and a
    table.
    """
    from xmtc.experiments.studies import ablation_suite

    suite = ablation_suite(_files(request), model, **_settings(request))
    _run(suite, request, machine, _command("ablation", request, [model]), output)


@app.command(cls=Command)
@takes_request
def tail(
    request: StudyRequest,
    machine: TrainingMachine,
    models: Models,
    output: JsonOutput,
) -> None:
    """Measure the accuracy on the rarest labels.

    Ranks all test documents for each of the ten rarest labels and reports P@1, P@10 and P@20. Writes a figure and a
    table.
    """
    from xmtc.experiments.studies import tail_suite

    suite = tail_suite(_files(request), models, **_settings(request))
    _run(suite, request, machine, _command("tail", request, models), output)


def _run(suite: Suite, request: StudyRequest, machine: TrainingMachine, command: str, output: JsonOutput) -> None:
    check_matplotlib()  # a study ends with a figure
    check_writable(output.path, request.train, request.test, request.valid, request.labels)
    try:
        result = run_suite(
            suite,
            request.out,
            Path(),
            command,
            list(request.only),
            machine.runtime(),
            force=request.force,
            keep_models=request.keep_models,
        )
    except CellFailed as failed:  # the results of the other runs are shown nevertheless
        with suppress(XmtcError):
            output.write({**failed.result, **_write_figure(request.out)})
        raise
    output.write({**result, **_write_figure(request.out)})


def _files(request: StudyRequest) -> StudyFiles:
    from xmtc.experiments.studies import StudyFiles

    return StudyFiles(request.train, request.test, request.valid, request.labels, request.dataset_settings())


def _settings(request: StudyRequest) -> dict[str, Any]:
    """Settings and seeds, as arguments of a suite."""
    from xmtc.core import config

    return {"settings": config.parse_assignments(request.assignments), "seeds": request.seed_numbers}


def _number(words: str, option: str) -> float:
    try:
        return float(words)
    except ValueError:
        raise ConfigError(f"{option} must be numbers, such as 0,0.2,0.4. Got '{shown(words)}'.") from None


def _command(kind: str, request: StudyRequest, models: list[str], more: Sequence[str] = ()) -> str:
    """The command, with file names instead of paths on this machine."""
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


def _write_figure(out: Path) -> dict[str, Any]:
    """Write and show the figure and the table of a study."""
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
    note(f"{out / 'figure.svg'}: figure; {out / 'table.md'}: table")
    return {"figure": out / "figure.svg", "table": out / "table.md"}
