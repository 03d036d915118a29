"""`xmtc evaluate` and `xmtc compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.common import check_writable, echo, echo_error
from xmtc.cli.options import Machine, Partial, takes_request
from xmtc.core.errors import ConfigError, DataError
from xmtc.workflows.requests import CompareRequest, EvaluateRequest

if TYPE_CHECKING:
    from xmtc.workflows.evaluation import Evaluation, Reliability


@takes_request
def evaluate(
    paths: Annotated[
        list[Path], typer.Argument(metavar="[DIR] TEST", help="A model folder, and documents with labels.")
    ],
    make_request: Partial[EvaluateRequest],
    machine: Machine,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the metrics here too (fractions).", metavar="FILE")
    ] = None,
    per_label: Annotated[
        Path | None, typer.Option(help="Write support, suggestions and hits of each label here (CSV).", metavar="FILE")
    ] = None,
    reliability: Annotated[
        Path | None,
        typer.Option(help="Draw scores against shares of hits into this file (SVG, PNG or PDF).", metavar="FILE"),
    ] = None,
) -> None:
    """Measure a model, or anybody's predictions, on a test file.

    P, nDCG, PSP, PSnDCG, R, F1 and coverage at 1, 3 and 5, in percent; fractions in the JSON file. Where scores are
    probabilities, also how far they are from the shares of hits. At a threshold, also F1 of the sets of labels.
    """
    from xmtc.cli.progress import terminal_progress
    from xmtc.core.files import write_json
    from xmtc.workflows import evaluate as workflow
    from xmtc.workflows.evaluation import write_per_label

    *folders, test = paths
    if len(folders) > 1:
        raise ConfigError("evaluate needs a model folder and a test file, or --predictions FILE and a test file.")
    request = make_request(folder=folders[0] if folders else None, test=test)
    _check_outputs(request, json_file, per_label, reliability)
    runtime = None if request.folder is None else machine.runtime()
    result = workflow.evaluate(request, runtime=runtime, progress=terminal_progress())
    if json_file is not None:
        write_json(json_file, result.to_json())
    if per_label is not None:
        write_per_label(result, per_label)
    name, of_model = str(request.folder or request.predictions), request.folder is not None
    if reliability is not None and result.reliability is not None:
        _draw(name, result.reliability, reliability)
    _report(name, result, request.options.unknown_labels, of_model=of_model, bins=reliability is not None)
    if reliability is not None:
        if result.reliability is None:
            why = _no_reliability(result, of_model=of_model)
            raise DataError(f"{reliability}: there is nothing to draw, {why}.")
        echo_error(f"{reliability}: reliability diagram")


def _check_outputs(
    request: EvaluateRequest, json_file: Path | None, per_label: Path | None, reliability: Path | None
) -> None:
    """Refuse places that cannot be written to before the work is done."""
    outputs = [path for path in (json_file, per_label, reliability) if path is not None]
    for written in outputs:
        files = (request.test, request.predictions, request.train, request.labels, request.options.filter_file)
        check_writable(written, *files)
        if [path.resolve() for path in outputs].count(written.resolve()) > 1:
            raise ConfigError(f"{written}: is named for two things. Choose another name for one of them.")
    if reliability is not None:
        from xmtc.views.plot import check_plot_file

        check_plot_file(reliability)


def _draw(name: str, found: Reliability, path: Path) -> None:
    from xmtc.views.reliability import reliability_plot

    reliability_plot(name, found).save(path)


def _no_reliability(result: Evaluation, *, of_model: bool) -> str:
    """Why scores were not held against shares of hits."""
    remedy = "xmtc calibrate DIR VALID makes them so" if of_model else "some lie outside 0 to 1"
    predicted = bool((result.predictions.labels >= 0).any())
    return f"scores are no probabilities: {remedy}" if predicted else "no document has a predicted label"


def _report(name: str, result: Evaluation, unknown_labels: str, *, of_model: bool, bins: bool) -> None:
    from xmtc.cli import show

    echo(show.metrics_table({name: result.metrics}, {name: result.intervals}))
    if result.reliability is None:
        echo("\n" + _no_reliability(result, of_model=of_model))
    else:
        echo("\n" + show.reliability_words(result.reliability))
        if bins:
            echo("\n" + show.reliability_table(result.reliability))
    if result.sets is not None and result.threshold is not None:
        echo("\n" + show.sets_line(result.threshold, result.sets))
    if result.groups:
        echo("\n" + show.groups_table(result.groups))
    if result.tail:
        echo("\n" + show.tail_table(result.tail))
    seconds = f" in {result.seconds:.2f} s" if result.seconds else ""
    without = int((result.predictions.labels < 0).all(axis=1).sum())
    without_words = f", {without:,} of them without a predicted label" if without else ""
    echo(f"\n{result.documents:,} documents{seconds}{without_words}")
    echo(_unknown_words(result, unknown_labels, of_model=of_model))


def _unknown_words(result: Evaluation, treatment: str, *, of_model: bool) -> str:
    """How many test labels training never saw, and what was made of them."""
    if result.unknown_labels is None and of_model:
        return "training labels are not known, so there is no PSP"
    if result.unknown_labels is None:
        return "training labels are not known: --train FILE adds PSP and counts labels unseen in training"
    done = "left out" if treatment == "drop" else "counted as missed"
    more = f" ({result.unknown_pairs:,} occurrences), {done}" if result.unknown_labels else ""
    return f"test labels unseen in training: {result.unknown_labels:,}{more}"


@takes_request
def compare(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR… TEST", help="Model folders, then a test file.")],
    make_request: Partial[CompareRequest],
    machine: Machine,
) -> None:
    """Measure several models on one test file, side by side.

    Also how many of their best labels they share, and with --bootstrap how far each is from the first.
    """
    from xmtc.cli import show
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import compare as workflow

    *folders, test = paths
    request = make_request(folders=tuple(folders), test=test)
    results = workflow.compare(request, runtime=machine.runtime(), progress=terminal_progress())
    intervals = {name: result.intervals for name, result in results.items()}
    echo(show.metrics_table({name: result.metrics for name, result in results.items()}, intervals) + "\n")
    tuned = {name: result.sets for name, result in results.items() if result.sets is not None}
    if tuned:
        echo(show.sets_table(tuned) + "\n")
    if len(results) > 1:
        echo(show.overlap_table({name: result.predictions for name, result in results.items()}) + "\n")
        if request.options.bootstrap:
            echo(show.difference_table(workflow.differences(results, request.options), next(iter(results))) + "\n")
    for name, result in results.items():
        unseen = _unknown_words(result, request.options.unknown_labels, of_model=True)
        error = "" if result.reliability is None else f"; expected calibration error {result.reliability.error:.4f}"
        echo(f"{name}: {result.documents:,} documents in {result.seconds:.2f} s; {unseen}{error}")
