"""`xmtc experiment noise|ablation|tail`: the papers' studies on any files. Everything heavy is imported inside."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.bench import Keep, Only, Precision, run_suite
from xmtc.cli.common import Device, Threads, check_choice, make_runtime, say, tell
from xmtc.cli.reading import Labels, reads_documents
from xmtc.errors import ConfigError, shown

if TYPE_CHECKING:
    from xmtc.data.records import ReadOptions
    from xmtc.experiments.studies import Files

app = typer.Typer(
    name="experiment",
    help="Studies: noisy labels, ablations, the rarest labels.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Train = Annotated[Path, typer.Argument(metavar="TRAIN", help="Documents to learn from.")]
Test = Annotated[Path, typer.Argument(metavar="TEST", help="Documents to measure on.")]
Out = Annotated[Path, typer.Option(help="Folder for cells, figure and table.", metavar="DIR")]
Models = Annotated[
    list[str], typer.Option("--model", help="A model, or a recipe for one; may be repeated.", metavar="NAME")
]
Valid = Annotated[Path | None, typer.Option(help="Documents to make choices on.", metavar="FILE")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="One setting of the models; may be repeated.", metavar="KEY=VALUE")
]
Seeds = Annotated[str, typer.Option(help="Seeds, such as 0,1,2.", metavar="N,…")]
Unknown = Annotated[
    str, typer.Option(help="Test labels unseen in training: missed, or left out.", metavar="count|drop")
]
Force = Annotated[bool, typer.Option("--force", help="Run cells anew whose settings or data changed.")]


@app.command()
@reads_documents
def noise(
    train: Train,
    test: Test,
    options: Any,
    models: Models,
    out: Out,
    rates: Annotated[str, typer.Option(help="Chances that a label goes.", metavar="R,…")] = "0,0.1,0.2,0.3,0.4,0.5,0.6",
    kinds: Annotated[
        str, typer.Option(help="Labels are left out, or left out and replaced by wrong ones.", metavar="missing,flip")
    ] = "missing,flip",
    assignments: Set = None,
    seeds: Seeds = "0",
    labels: Labels = None,
    unknown_labels: Unknown = "count",
    only: Only = None,
    force: Force = False,
    keep_models: Keep = False,
    threads: Threads = None,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """How well models learn from wrong labels.

    Labels of 80 % of the training documents are made wrong at rising rates; the other 20 % stay as they are, to make
    choices on, and so does the test. Ends in a figure and the table behind it.
    """
    from xmtc import config
    from xmtc.experiments.studies import noise_suite

    suite = noise_suite(
        _files(train, test, None, labels, options, unknown_labels),
        models,
        rates=[_number(rate, "--rates") for rate in rates.split(",")],
        kinds=[kind.strip() for kind in kinds.split(",")],
        settings=config.parse_assignments(assignments or []),
        seeds=_seeds(seeds),
    )
    more = ["--rates", rates, "--kinds", kinds, *_reading(None, labels, options, unknown_labels)]
    command = _command("noise", train, test, models, assignments, seeds, more)
    runtime = make_runtime(threads, device=device, precision=precision)
    run_suite(suite, out, Path(), command, only or [], runtime, force=force, keep_models=keep_models)
    _write_figure(out)


@app.command()
@reads_documents
def ablation(
    train: Train,
    test: Test,
    options: Any,
    model: Annotated[str, typer.Option(help="A model, or a recipe for one.", metavar="NAME")],
    out: Out,
    valid: Valid = None,
    assignments: Set = None,
    seeds: Seeds = "0",
    labels: Labels = None,
    unknown_labels: Unknown = "count",
    only: Only = None,
    force: Force = False,
    keep_models: Keep = False,
    threads: Threads = None,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """What the parts of a model are worth.

    The model is trained as it is, and with each of its parts taken away or put back to what is published. Ends in a
    figure and the table behind it.
    """
    from xmtc import config
    from xmtc.experiments.studies import ablation_suite

    settings = config.parse_assignments(assignments or [])
    files = _files(train, test, valid, labels, options, unknown_labels)
    suite = ablation_suite(files, model, settings=settings, seeds=_seeds(seeds))
    more = _reading(valid, labels, options, unknown_labels)
    command = _command("ablation", train, test, [model], assignments, seeds, more)
    runtime = make_runtime(threads, device=device, precision=precision)
    run_suite(suite, out, Path(), command, only or [], runtime, force=force, keep_models=keep_models)
    _write_figure(out)


@app.command()
@reads_documents
def tail(
    train: Train,
    test: Test,
    options: Any,
    models: Models,
    out: Out,
    valid: Valid = None,
    assignments: Set = None,
    seeds: Seeds = "0",
    labels: Labels = None,
    unknown_labels: Unknown = "count",
    only: Only = None,
    force: Force = False,
    keep_models: Keep = False,
    threads: Threads = None,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """How well the rarest labels find their documents.

    Each of the ten rarest labels ranks all test documents: P@1, P@10 and P@20. Ends in a figure and the table behind
    it.
    """
    from xmtc import config
    from xmtc.experiments.studies import tail_suite

    settings = config.parse_assignments(assignments or [])
    suite = tail_suite(
        _files(train, test, valid, labels, options, unknown_labels), models, settings=settings, seeds=_seeds(seeds)
    )
    more = _reading(valid, labels, options, unknown_labels)
    command = _command("tail", train, test, models, assignments, seeds, more)
    runtime = make_runtime(threads, device=device, precision=precision)
    run_suite(suite, out, Path(), command, only or [], runtime, force=force, keep_models=keep_models)
    _write_figure(out)


def _files(
    train: Path, test: Path, valid: Path | None, labels: Path | None, options: ReadOptions, unknown_labels: str
) -> Files:
    from xmtc.errors import DataError
    from xmtc.experiments.studies import Files

    check_choice("--unknown-labels", unknown_labels, ("count", "drop"))
    if options.bad_lines.skip:
        raise ConfigError("a study reads its files many times. Mend the bad lines first: xmtc data convert skips them.")
    for path in (train, test, valid, labels):
        if path is not None and not path.is_file():
            raise DataError(f"{path}: no such file. Check the path.")
    given = {
        "format": options.file_format,
        "text_fields": None if options.text_fields is None else list(options.text_fields),
        "label_field": options.label_field,
        "id_field": options.id_field,
        "label_separator": options.label_separator,
        "unknown_labels": unknown_labels,
    }
    return Files(train, test, valid, labels, {key: value for key, value in given.items() if value})


def _reading(valid: Path | None, labels: Path | None, options: ReadOptions, unknown_labels: str) -> list[str]:
    """How files are read, as it was typed."""
    given = {
        "--valid": None if valid is None else valid.name,
        "--labels": None if labels is None else labels.name,
        "--format": options.file_format,
        "--text-field": ",".join(options.text_fields or []),
        "--label-field": options.label_field,
        "--id-field": options.id_field,
        "--label-separator": None if options.label_separator == ";" else options.label_separator,
        "--unknown-labels": unknown_labels,
    }
    return [word for option, value in given.items() if value for word in (option, value)]


def _number(words: str, option: str) -> float:
    try:
        return float(words)
    except ValueError:
        raise ConfigError(f"{option} must be numbers, such as 0,0.2,0.4. Got '{shown(words)}'.") from None


def _seeds(words: str) -> list[int]:
    if not all(each.strip().isdecimal() and len(each) < 20 for each in words.split(",")):
        raise ConfigError(f"--seeds must be integers ≥ 0, such as 0,1,2. Got '{shown(words)}'.")
    return [int(each) for each in words.split(",")]


def _command(
    kind: str,
    train: Path,
    test: Path,
    models: list[str],
    assignments: list[str] | None,
    seeds: str,
    more: list[str],
) -> str:
    """What was typed, with names of files in place of where they lie here."""
    words = ["xmtc", "experiment", kind, train.name, test.name]
    words += [word for model in models for word in ("--model", model)]
    words += [word for each in assignments or [] for word in ("--set", each)]
    return shlex.join([*words, *more, "--seeds", seeds])


def _write_figure(out: Path) -> None:
    from xmtc.experiments.markdown import markdown_table
    from xmtc.experiments.records import read_results
    from xmtc.experiments.studies import study_figure
    from xmtc.files import replace_file

    figure, table = study_figure(read_results(out))
    written = markdown_table(table)
    for name, content in (("figure.svg", figure), ("table.md", written)):
        with replace_file(out / name) as stream:
            stream.write(content.encode())
    say("\n" + written)
    tell(f"{out / 'figure.svg'}: the figure; {out / 'table.md'}: the table behind it")
