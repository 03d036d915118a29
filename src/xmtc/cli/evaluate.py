"""`xmtc evaluate` and `xmtc compare`."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.common import check_writable, counted
from xmtc.cli.options import Machine, Partial, takes_request
from xmtc.cli.output import JsonOutput, echo, note
from xmtc.core.errors import ConfigError, DataError
from xmtc.workflows.requests import CompareRequest, EvaluateRequest

if TYPE_CHECKING:
    from xmtc.workflows.evaluation import Evaluation, Interval, Reliability


@takes_request
def evaluate(
    paths: Annotated[
        list[Path], typer.Argument(metavar="[DIR] TEST", help="Model folder, and test set: documents with labels.")
    ],
    make_request: Partial[EvaluateRequest],
    machine: Machine,
    output: JsonOutput,
    per_label: Annotated[
        Path | None,
        typer.Option(help="Write each label's support, number of predictions and hits to FILE as CSV.", metavar="FILE"),
    ] = None,
    reliability: Annotated[
        Path | None,
        typer.Option(help="Write a reliability diagram to FILE (SVG, PNG or PDF).", metavar="FILE"),
    ] = None,
) -> None:
    """Evaluate a model or a file of predictions on a test set.

    Prints P, nDCG, PSP, PSnDCG, R, F1 and coverage at 1, 3 and 5 in percent; JSON has fractions. If scores are
    probabilities, also prints the expected calibration error; with a threshold, F1 of the label sets.
    """
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import evaluate as workflow
    from xmtc.workflows.evaluation import write_per_label

    *folders, test = paths
    if len(folders) > 1:
        raise ConfigError("evaluate requires a model folder and a test file, or --predictions FILE and a test file.")
    request = make_request(folder=folders[0] if folders else None, test=test)
    _check_outputs(request, output.path, per_label, reliability)
    runtime = None if request.folder is None else machine.runtime()
    result = workflow.evaluate(request, runtime=runtime, progress=terminal_progress())
    output.write(result.to_json())
    if per_label is not None:
        write_per_label(result, per_label)
    name, of_model = str(request.folder or request.predictions), request.folder is not None
    if reliability is not None and result.reliability is not None:
        _draw(name, result.reliability, reliability)
    _report(name, result, of_model=of_model, bins=reliability is not None)
    if reliability is not None:
        if result.reliability is None:
            why = _no_reliability(result, of_model=of_model)
            raise DataError(f"{reliability}: not written: {why}.")
        note(f"{reliability}: reliability diagram")


def _check_outputs(
    request: EvaluateRequest, json_file: Path | None, per_label: Path | None, reliability: Path | None
) -> None:
    """Raise an error before any work is done if an output file cannot be written."""
    outputs = [path for path in (json_file, per_label, reliability) if path is not None]
    for written in outputs:
        files = (request.test, request.predictions, request.train, request.labels, request.options.filter_file)
        check_writable(written, *files)
        if [path.resolve() for path in outputs].count(written.resolve()) > 1:
            raise ConfigError(f"{written}: is used for two outputs. Choose another file for one of them.")
    if reliability is not None:
        from xmtc.views.plot import check_plot_file

        check_plot_file(reliability)


def _draw(name: str, found: Reliability, path: Path) -> None:
    from xmtc.views.reliability import reliability_plot

    reliability_plot(name, found).save(path)


def _no_reliability(result: Evaluation, *, of_model: bool) -> str:
    """The reason why scores were not compared with the observed precision."""
    reason = "calibrate the model with xmtc calibrate DIR VALID" if of_model else "some are outside 0 to 1"
    predicted = bool((result.predictions.labels >= 0).any())
    return f"scores are not probabilities ({reason})" if predicted else "no document has a predicted label"


def _report(name: str, result: Evaluation, *, of_model: bool, bins: bool) -> None:
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
    echo(f"\n{counted(result.documents, 'document')}{seconds}{without_words}")
    echo(_unknown_words(result, of_model=of_model))
    if result.unknown_labels is None and not of_model:
        labels = counted(result.truth.shape[1], "label")
        echo(f"macroF1 is the mean over the {labels} of the predictions and the test file; with --train FILE, also")
        echo("over the other labels of the training set, as for a model folder")


def _unknown_words(result: Evaluation, *, of_model: bool) -> str:
    """How many test labels do not occur in training, and how they were treated."""
    if result.unknown_labels is None and of_model:
        return "PSP is not available: the model does not store its training label counts"
    if result.unknown_labels is None:
        return "PSP is not available: pass the training set with --train FILE"
    if not result.unknown_labels:
        return "test labels not in the training set: 0"
    missed = result.unknown_labels - result.predictable_labels - result.dropped_labels
    fates = {
        "predictable by name": result.predictable_labels,
        "dropped": result.dropped_labels,
        "counted as missed": missed,
    }
    (first, count), *others = [(fate, count) for fate, count in fates.items() if count]
    said = [first if count == result.unknown_labels else f"{count:,} of them {first}"]
    said += [f"{count:,} {fate}" for fate, count in others[:-1]] + [f"the others {fate}" for fate, _ in others[-1:]]
    where = "without training documents" if result.predictable_labels else "not in the training set"
    return f"test labels {where}: {result.unknown_labels:,} ({result.unknown_pairs:,} occurrences), {', '.join(said)}"


@takes_request
def compare(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR… TEST", help="Model folders, followed by a test set.")],
    make_request: Partial[CompareRequest],
    machine: Machine,
    output: JsonOutput,
) -> None:
    """Compare several models on the same test set.

    Prints the metrics side by side and the overlap of the predicted labels; with --bootstrap, also the differences from
    the first model with confidence intervals.
    """
    from xmtc.cli import show
    from xmtc.cli.progress import terminal_progress
    from xmtc.cli.text_table import paragraph
    from xmtc.workflows import compare as workflow

    *folders, test = paths
    request = make_request(folders=tuple(folders), test=test)
    check_writable(output.path, request.test, request.labels, request.options.filter_file)
    results = workflow.compare(request, runtime=machine.runtime(), progress=terminal_progress())
    intervals = {name: result.intervals for name, result in results.items()}
    echo(show.metrics_table({name: result.metrics for name, result in results.items()}, intervals) + "\n")
    tuned = {name: result.sets for name, result in results.items() if result.sets is not None}
    if tuned:
        echo(show.sets_table(tuned) + "\n")
    tops = {name: result.predictions for name, result in results.items()}
    changes: dict[str, dict[str, Interval]] = {}
    if len(results) > 1:
        echo(show.overlap_table(tops) + "\n")
        if request.options.bootstrap:
            changes = workflow.differences(results, request.options)
            echo(show.difference_table(changes, next(iter(results))) + "\n")
    for name, result in results.items():
        unseen = _unknown_words(result, of_model=True)
        error = "" if result.reliability is None else f"; expected calibration error {result.reliability.error:.4f}"
        counts = f"{counted(result.documents, 'document')} in {result.seconds:.2f} s"
        echo(paragraph(f"{name}: {counts}; {unseen}{error}", indent="  "))
    output.write(
        {
            "models": {name: result.to_json() for name, result in results.items()},
            "overlap": [
                {"models": [a, b], "shared": {str(k): workflow.overlap(tops[a], tops[b], k) for k in (1, 3, 5)}}
                for a, b in combinations(tops, 2)
            ],
            "differences": {
                name: {metric: vars(found) for metric, found in each.items()} for name, each in changes.items()
            },
        }
    )
