"""`xmtc experiment noise|ablation|tail`: the papers' studies on any files. Everything heavy is imported inside."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.bench import CellFailed, Keep, Only, run_suite
from xmtc.cli.common import Device, Precision, Threads, check_choice, make_runtime, say, tell
from xmtc.cli.reader_options import Labels, reads_documents, takes
from xmtc.core.errors import ConfigError, DataError, XmtcError, shown
from xmtc.views.theme import check_matplotlib

if TYPE_CHECKING:
    from xmtc.core.runtime import Runtime
    from xmtc.data.records import ReadOptions
    from xmtc.experiments.studies import StudyFiles
    from xmtc.experiments.suites import Suite

app = typer.Typer(
    name="experiment",
    help="Studies: noisy labels, ablations, the rarest labels.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@dataclass(frozen=True)
class Asked:
    """What every study is told."""

    train: Path
    test: Path
    valid: Path | None
    labels: Path | None
    unknown_labels: str
    assignments: list[str]
    seeds: str
    out: Path
    only: list[str]
    force: bool
    keep_models: bool
    runtime: Runtime

    def how(self) -> dict[str, Any]:
        """Settings and seeds, as suites take them."""
        from xmtc.core import config

        return {"settings": config.parse_assignments(self.assignments), "seeds": _seeds(self.seeds)}


def asked(
    *,
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="Documents to learn from.")],
    test: Annotated[Path, typer.Argument(metavar="TEST", help="Documents to measure on.")],
    out: Annotated[Path, typer.Option(help="Folder for cells, figure and table.", metavar="DIR")],
    valid: Annotated[Path | None, typer.Option(help="Documents to make choices on.", metavar="FILE")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="One setting of the models; may be repeated.", metavar="KEY=VALUE")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2.", metavar="N,…")] = "0",
    labels: Labels = None,
    unknown_labels: Annotated[
        str, typer.Option(help="Test labels unseen in training: missed, or left out.", metavar="count|drop")
    ] = "count",
    only: Only = None,
    force: Annotated[bool, typer.Option("--force", help="Run cells anew whose settings or data changed.")] = False,
    keep_models: Keep = False,
    threads: Threads = None,
    device: Device = "auto",
    precision: Precision = "auto",
) -> Asked:
    """The options of every study, written once."""
    check_matplotlib()
    check_choice("--unknown-labels", unknown_labels, ("count", "drop"))
    runtime = make_runtime(threads, device=device, precision=precision)
    return Asked(
        *(train, test, valid, labels, unknown_labels, assignments or [], seeds),
        *(out, only or [], force, keep_models, runtime),
    )


def study(command: Callable[..., None]) -> Callable[..., None]:
    """A command of its own, with the options of every study and of every command that reads documents."""
    return app.command()(reads_documents(takes("given", asked)(command)))


Models = Annotated[
    list[str], typer.Option("--model", help="A model, or a recipe for one; may be repeated.", metavar="NAME")
]


@study
def noise(
    given: Asked,
    options: Any,
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
    suite = noise_suite(_files(given, options), models, rates=numbers, kinds=named, **given.how())
    _run(suite, given, _command("noise", given, options, models, ["--rates", rates, "--kinds", kinds]))


@study
def ablation(
    given: Asked,
    options: Any,
    model: Annotated[str, typer.Option(help="A model, or a recipe for one.", metavar="NAME")],
) -> None:
    """What the parts of a model are worth.

    The model is trained as it is, and with each of its parts taken away or put back to what is published. Ends in a
    figure and the table behind it.
    """
    from xmtc.experiments.studies import ablation_suite

    suite = ablation_suite(_files(given, options), model, **given.how())
    _run(suite, given, _command("ablation", given, options, [model]))


@study
def tail(given: Asked, options: Any, models: Models) -> None:
    """How well the rarest labels find their documents.

    Each of the ten rarest labels ranks all test documents: P@1, P@10 and P@20. Ends in a figure and the table behind
    it.
    """
    from xmtc.experiments.studies import tail_suite

    suite = tail_suite(_files(given, options), models, **given.how())
    _run(suite, given, _command("tail", given, options, models))


def _run(suite: Suite, given: Asked, command: str) -> None:
    try:
        run_suite(
            *(suite, given.out, Path(), command, given.only, given.runtime),
            force=given.force,
            keep_models=given.keep_models,
        )
    except CellFailed:  # what others found is told all the same
        with suppress(XmtcError):
            _write_figure(given.out)
        raise
    _write_figure(given.out)


def _files(given: Asked, options: ReadOptions) -> StudyFiles:
    from xmtc.experiments.studies import StudyFiles

    if options.bad_lines.skip:
        raise ConfigError("a study reads its files many times. Mend the bad lines first: xmtc data convert skips them.")
    for path in (given.train, given.test, given.valid, given.labels):
        if path is not None and not path.is_file():
            raise DataError(f"{path}: no such file. Check the path.")
    reading = {
        "format": options.file_format,
        "text_fields": None if options.text_fields is None else list(options.text_fields),
        "label_field": options.label_field,
        "id_field": options.id_field,
        "label_separator": options.label_separator,
        "unknown_labels": given.unknown_labels,
    }
    kept = {key: value for key, value in reading.items() if value}
    return StudyFiles(given.train, given.test, given.valid, given.labels, kept)


def _number(words: str, option: str) -> float:
    try:
        return float(words)
    except ValueError:
        raise ConfigError(f"{option} must be numbers, such as 0,0.2,0.4. Got '{shown(words)}'.") from None


def _seeds(words: str) -> list[int]:
    if not all(each.strip().isdecimal() and len(each) < 20 for each in words.split(",")):
        raise ConfigError(f"--seeds must be integers ≥ 0, such as 0,1,2. Got '{shown(words)}'.")
    return [int(each) for each in words.split(",")]


def _command(kind: str, given: Asked, options: ReadOptions, models: list[str], more: Sequence[str] = ()) -> str:
    """What was typed, with names of files in place of where they lie here."""
    words = ["xmtc", "experiment", kind, given.train.name, given.test.name]
    words += [word for model in models for word in ("--model", model)]
    words += [word for each in given.assignments for word in ("--set", each)]
    named = {
        "--seeds": given.seeds,
        "--valid": None if given.valid is None else given.valid.name,
        "--labels": None if given.labels is None else given.labels.name,
        "--format": options.file_format,
        "--text-field": ",".join(options.text_fields or []),
        "--label-field": options.label_field,
        "--id-field": options.id_field,
        "--label-separator": None if options.label_separator == ";" else options.label_separator,
        "--unknown-labels": given.unknown_labels,
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
    say("\n" + written)
    tell(f"{out / 'figure.svg'}: the figure; {out / 'table.md'}: the table behind it")
