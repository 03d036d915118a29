"""`xmtc evaluate` and `xmtc compare`: how good answers are. Everything heavy is imported inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.common import (
    Device,
    Threads,
    check_choice,
    check_tuned,
    check_writable,
    make_runtime,
    read_threshold,
    say,
    tell,
)
from xmtc.cli.reader_options import Labels, reads_documents
from xmtc.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from xmtc.core.runtime import Runtime
    from xmtc.metrics import Reliability
    from xmtc.workflows.evaluation import Evaluation, Scope

UnknownLabels = Annotated[
    str,
    typer.Option(metavar="count|drop", help="Test labels that training never saw: count them as missed, or drop them."),
]
Bootstrap = Annotated[int, typer.Option(help="Resamples for 95 % confidence intervals, such as 1000.", metavar="N")]
Filter = Annotated[
    Path | None,
    typer.Option("--filter", help="Pairs 'document label' to leave out of predictions and truth.", metavar="FILE"),
]


@reads_documents
def evaluate(
    paths: Annotated[
        list[Path], typer.Argument(metavar="[DIR] TEST", help="A model folder, and documents with labels.")
    ],
    options: Any,
    predictions: Annotated[
        Path | None, typer.Option(help="Score this file of predictions instead of a model.", metavar="FILE")
    ] = None,
    predictions_format: Annotated[
        str | None,
        typer.Option(help="jsonl, parquet, tsv, csv, fasttext, npz or xc (default: told by content).", metavar="NAME"),
    ] = None,
    train: Annotated[
        Path | None, typer.Option(help="With --predictions: training documents, for PSP.", metavar="FILE")
    ] = None,
    labels: Labels = None,
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
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the measures beside the model, where xmtc serve shows them.")
    ] = False,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="auto|SCORE",
            help="F1 of the sets of labels with at least this score (default: auto, if tuned by xmtc calibrate).",
        ),
    ] = None,
    groups: Annotated[bool, typer.Option("--groups", help="AUC and AUPR of frequent and rare labels apart.")] = False,
    tail: Annotated[bool, typer.Option("--tail", help="P@k of the ten rarest labels over all documents.")] = False,
    bootstrap: Bootstrap = 0,
    filter_file: Filter = None,
    unknown_labels: UnknownLabels = "count",
    propensity_a: Annotated[float, typer.Option(help="A of the propensity model.", metavar="A")] = 0.55,
    propensity_b: Annotated[float, typer.Option(help="B of the propensity model.", metavar="B")] = 1.5,
    seed: Annotated[int, typer.Option(help="Seed of the resamples.", metavar="N")] = 0,
    threads: Threads = None,
    device: Device = "auto",
) -> None:
    """Measure a model, or anybody's predictions, on a test file.

    P, nDCG, PSP, PSnDCG, R, F1 and coverage at 1, 3 and 5, in percent; fractions in the JSON file. Where scores are
    probabilities, also how far they are from the shares of hits. At a threshold, also F1 of the sets of labels.
    """
    from xmtc.core.files import write_json
    from xmtc.workflows import saved_metrics
    from xmtc.workflows.evaluation import Scope, write_per_label

    *folders, test = paths
    if len(folders) != (0 if predictions else 1):
        raise ConfigError("evaluate needs a model folder and a test file, or --predictions FILE and a test file.")
    check_choice("--unknown-labels", unknown_labels, ("count", "drop"))
    outputs = [path for path in (json_file, per_label, reliability) if path is not None]
    for written in outputs:
        check_writable(written, test, predictions, train, labels, filter_file)
        if [path.resolve() for path in outputs].count(written.resolve()) > 1:
            raise ConfigError(f"{written}: is named for two things. Choose another name for one of them.")
    if reliability is not None:
        from xmtc.views.plot import check_plot_file

        check_plot_file(reliability)
    if tail and predictions is not None:
        raise ConfigError("--tail scores given labels, which takes a model. Leave it out with --predictions.")
    if keep and predictions is not None:
        raise ConfigError("--keep puts measures beside a model. Leave it out with --predictions.")
    _check_filter(filter_file, options)
    least = read_threshold(threshold)
    scope = Scope(unknown_labels, propensity_a, propensity_b, bootstrap, groups, tail, filter_file, seed, least)
    if predictions is not None:
        name, result = (
            str(predictions),
            _of_predictions(predictions, predictions_format, test, train, labels, scope, options),
        )
    else:
        for option, given in (("--train", train), ("--predictions-format", predictions_format)):
            if given is not None:
                raise ConfigError(f"{option} goes with --predictions FILE. Leave it out, or name the predictions.")
        runtime = make_runtime(threads, device=device)
        name, result = str(folders[0]), _of_model(folders[0], test, labels, scope, options, runtime)
    if json_file is not None:
        write_json(json_file, result.to_json())
    if keep:
        tell(f"{saved_metrics.keep(folders[0], test, result)}: kept beside the model")
    if per_label is not None:
        write_per_label(result, per_label)
    if reliability is not None and result.reliability is not None:
        _draw(name, result.reliability, reliability)
    _report(name, result, scope, of_model=predictions is None, bins=reliability is not None)
    if reliability is not None:
        if result.reliability is None:
            why = _no_reliability(result, of_model=predictions is None)
            raise DataError(f"{reliability}: there is nothing to draw, {why}.")
        tell(f"{reliability}: reliability diagram")


def _check_filter(filter_file: Path | None, options: Any) -> None:
    if filter_file is not None and options.bad_lines.skip:
        raise ConfigError(
            "--filter counts documents, of which --on-bad-line skip may leave some out. Give one of them."
        )


def _of_model(
    folder: Path, test: Path, labels: Path | None, scope: Scope, options: Any, runtime: Runtime
) -> Evaluation:
    from xmtc import load, workflows
    from xmtc.cli.progress import terminal_progress

    model, progress = load(folder, runtime), terminal_progress()
    check_tuned(model, folder, scope.threshold)
    unknown = "drop" if scope.unknown_labels == "drop" else "refuse"
    documents = workflows.read_test(
        test, options, model=model, vocabulary=labels, unknown_labels=unknown, progress=progress
    )
    return workflows.evaluate(model, documents, scope, progress=progress)


def _of_predictions(
    predictions: Path,
    file_format: str | None,
    test: Path,
    train: Path | None,
    labels: Path | None,
    scope: Scope,
    options: Any,
) -> Evaluation:
    from xmtc import workflows
    from xmtc.cli.progress import terminal_progress

    return workflows.evaluate_predictions(
        predictions,
        test,
        scope,
        train_file=train,
        vocabulary=labels,
        predictions_format=file_format,
        options=options,
        progress=terminal_progress(),
    )


def _draw(name: str, found: Reliability, path: Path) -> None:
    from xmtc.views.reliability import reliability_plot

    reliability_plot(name, found).save(path)


def _no_reliability(result: Evaluation, *, of_model: bool) -> str:
    """Why scores were not held against shares of hits."""
    remedy = "xmtc calibrate DIR VALID makes them so" if of_model else "some lie outside 0 to 1"
    predicted = bool((result.predictions.labels >= 0).any())
    return f"scores are no probabilities: {remedy}" if predicted else "no document has a predicted label"


def _report(name: str, result: Evaluation, scope: Scope, *, of_model: bool, bins: bool) -> None:
    from xmtc.cli import show

    say(show.metrics_table({name: result.metrics}, {name: result.intervals}))
    if result.reliability is None:
        say("\n" + _no_reliability(result, of_model=of_model))
    else:
        say("\n" + show.reliability_words(result.reliability))
        if bins:
            say("\n" + show.reliability_table(result.reliability))
    if result.sets is not None and result.threshold is not None:
        say("\n" + show.sets_line(result.threshold, result.sets))
    if result.groups:
        say("\n" + show.groups_table(result.groups))
    if result.tail:
        say("\n" + show.tail_table(result.tail))
    seconds = f" in {result.seconds:.2f} s" if result.seconds else ""
    without = int((result.predictions.labels < 0).all(axis=1).sum())
    without_words = f", {without:,} of them without a predicted label" if without else ""
    say(f"\n{result.documents:,} documents{seconds}{without_words}")
    say(_unknown_words(result, scope.unknown_labels, of_model=of_model))


def _unknown_words(result: Evaluation, treatment: str, *, of_model: bool) -> str:
    """How many test labels training never saw, and what was made of them."""
    if result.unknown_labels is None and of_model:
        return "training labels are not known, so there is no PSP"
    if result.unknown_labels is None:
        return "training labels are not known: --train FILE adds PSP and counts labels unseen in training"
    done = "left out" if treatment == "drop" else "counted as missed"
    more = f" ({result.unknown_pairs:,} occurrences), {done}" if result.unknown_labels else ""
    return f"test labels unseen in training: {result.unknown_labels:,}{more}"


@reads_documents
def compare(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR… TEST", help="Model folders, then a test file.")],
    options: Any,
    bootstrap: Bootstrap = 0,
    filter_file: Filter = None,
    unknown_labels: UnknownLabels = "count",
    seed: Annotated[int, typer.Option(help="Seed of the resamples.", metavar="N")] = 0,
    threads: Threads = None,
    device: Device = "auto",
) -> None:
    """Measure several models on one test file, side by side.

    Also how many of their best labels they share, and with --bootstrap how far each is from the first.
    """
    from xmtc import workflows
    from xmtc.cli import show
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows.evaluation import Scope

    if len(paths) < 2:
        raise ConfigError("compare needs one or more model folders and then a test file.")
    check_choice("--unknown-labels", unknown_labels, ("count", "drop"))
    _check_filter(filter_file, options)
    *folders, test = paths
    scope = Scope(unknown_labels, bootstrap=bootstrap, filter_file=filter_file, seed=seed)
    runtime = make_runtime(threads, device=device)
    results = workflows.compare(folders, test, scope, options=options, runtime=runtime, progress=terminal_progress())
    intervals = {name: result.intervals for name, result in results.items()}
    say(show.metrics_table({name: result.metrics for name, result in results.items()}, intervals) + "\n")
    tuned = {name: result.sets for name, result in results.items() if result.sets is not None}
    if tuned:
        say(show.sets_table(tuned) + "\n")
    if len(results) > 1:
        say(show.overlap_table({name: result.predictions for name, result in results.items()}) + "\n")
        if bootstrap:
            say(show.difference_table(workflows.differences(results, scope), next(iter(results))) + "\n")
    for name, result in results.items():
        unseen = _unknown_words(result, unknown_labels, of_model=True)
        error = "" if result.reliability is None else f"; expected calibration error {result.reliability.error:.4f}"
        say(f"{name}: {result.documents:,} documents in {result.seconds:.2f} s; {unseen}{error}")
