"""`xmtc …`: arguments in, one workflow call, words out. Everything heavy is imported inside the command."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from xmtc import __version__
from xmtc.errors import ConfigError, XmtcError

if TYPE_CHECKING:
    from xmtc.runtime import Runtime

app = typer.Typer(
    name="xmtc",
    help="Tag texts with the right few labels out of hundreds to millions.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

ModelFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Model folder.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads (default: all).", metavar="N")]
UnknownLabels = Annotated[
    str,
    typer.Option(
        metavar="count|drop",
        help="Test labels that training never saw: true labels nobody can return, or left out.",
    ),
]


def say(words: str) -> None:
    """To standard output."""
    print(words, flush=True)


def tell(words: str) -> None:
    """To standard error: what a person wants to know and a pipe does not."""
    print(words, file=sys.stderr, flush=True)


def make_runtime(threads: int | None = None, seed: int = 0) -> Runtime:
    """The machine as the command line sees it: all cores, and a cache for tokens unless XMTC_CACHE is 'off'."""
    from xmtc.runtime import Runtime, available_threads

    place = os.environ.get("XMTC_CACHE") or str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "xmtc")
    cache = None if place == "off" else Path(place).expanduser()
    return Runtime(threads=available_threads() if threads is None else threads, seed=seed, cache=cache)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"xmtc {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Tag texts with the right few labels out of hundreds to millions."""


@app.command()
def train(
    train_file: Annotated[Path, typer.Argument(metavar="TRAIN", help="Documents with labels: JSONL or XMLRepository.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.", metavar="DIR")],
    model: Annotated[str | None, typer.Option(help="Which model (default: the best here).", metavar="NAME")] = None,
    valid: Annotated[Path | None, typer.Option(help="Documents to make choices on.", metavar="FILE")] = None,
    recipe: Annotated[
        str | None, typer.Option("--config", help="Settings from a TOML recipe.", metavar="RECIPE")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="One setting; may be repeated.", metavar="KEY=VALUE")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.", metavar="N")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace a model or an unfinished training.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an unfinished training.")] = False,
    labels: Annotated[Path | None, typer.Option(help="Label names: JSONL, TSV or a list.", metavar="FILE")] = None,
    unknown_labels: Annotated[
        str, typer.Option(metavar="refuse|drop", help="Labels that are not in --labels.")
    ] = "refuse",
    threads: Threads = None,
) -> None:
    """Train a model on a file of labelled texts and save it in a folder."""
    from xmtc import config, workflows
    from xmtc.cli.progress import terminal_progress

    if unknown_labels not in ("refuse", "drop"):
        raise ConfigError(f"--unknown-labels must be refuse or drop. Got '{unknown_labels}'.")
    decided = workflows.plan(
        out,
        name=model,
        recipe=recipe,
        settings=config.parse_assignments(assignments or []),
        resume=resume,
        force=force,
    )
    tell(f"model: {decided.model.name}" + ("" if model or recipe else "  (the best that runs here; --model to choose)"))
    for name, value in flat_settings(config.to_mapping(decided.model.config)):
        tell(f"  {name} = {json.dumps(value)}")
    tell(f"  seed = {seed}")
    try:
        trained = workflows.train(
            decided,
            train_file,
            valid_file=valid,
            vocabulary=labels,
            unknown_labels=unknown_labels,
            runtime=make_runtime(threads, seed),
            progress=terminal_progress(),
        )
    except KeyboardInterrupt:
        tell(f"interrupted. Finished parts are kept: run the same command with --resume. ({out}.work)")
        raise
    for name, value in trained.facts.items():
        tell(f"found {name}: {value}")
    facts = trained.training
    say(
        f"{out}: {trained.name}, {facts['documents']:,} documents, {len(trained.labels):,} labels, {facts['seconds']} s"
    )


def flat_settings(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested settings under dotted names."""
    rows: list[tuple[str, Any]] = []
    for name, value in settings.items():
        rows += flat_settings(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return rows


@app.command()
def predict(
    folder: ModelFolder,
    source: Annotated[
        str | None,
        typer.Argument(metavar="[INPUT|-]", help="JSONL, XMLRepository or a text a line; - is stdin."),
    ] = None,
    text: Annotated[str | None, typer.Option(help="One text, instead of a file.")] = None,
    k: Annotated[int, typer.Option("-k", help="Labels for each document.", metavar="N")] = 5,
    output: Annotated[Path | None, typer.Option(help="Write here instead of to the screen.", metavar="FILE")] = None,
    output_format: Annotated[str | None, typer.Option(metavar="jsonl|tsv|parquet|table", help="Form.")] = None,
    threads: Threads = None,
) -> None:
    """Give documents their best labels, with scores."""
    from xmtc import load, workflows
    from xmtc.cli.output import chosen_format, write_answers

    if (source is None) == (text is None):
        raise ConfigError("predict needs either an INPUT file (or - for standard input) or --text TEXT.")
    form = chosen_format(output_format, output)
    if k < 1:
        raise ConfigError(f"'k' must be an integer ≥ 1. Got {k}.")
    model = load(folder, make_runtime(threads))
    answers = iter([model.predict([text], k)]) if text is not None else workflows.predict(model, source or "-", k)
    count = write_answers(answers, output, form)
    if output is not None:
        tell(f"{output}: {count:,} documents")


@app.command()
def evaluate(
    folder: ModelFolder,
    test: Annotated[Path, typer.Argument(metavar="TEST", help="Documents with labels.")],
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the metrics here too (fractions).", metavar="FILE")
    ] = None,
    unknown_labels: UnknownLabels = "count",
    propensity_a: Annotated[float, typer.Option(help="A of the propensity model.", metavar="A")] = 0.55,
    propensity_b: Annotated[float, typer.Option(help="B of the propensity model.", metavar="B")] = 1.5,
    threads: Threads = None,
) -> None:
    """Measure a model on a test file: P, nDCG, PSP, PSnDCG and R at 1, 3 and 5."""
    from xmtc import load, workflows
    from xmtc.cli.progress import terminal_progress
    from xmtc.cli.show import metrics_table
    from xmtc.store import write_json

    if unknown_labels not in ("count", "drop"):
        raise ConfigError(f"--unknown-labels must be count or drop. Got '{unknown_labels}'.")
    model, progress = load(folder, make_runtime(threads)), terminal_progress()
    result = workflows.evaluate(
        model,
        workflows.read_test(test, progress),
        unknown_labels=unknown_labels,
        propensity_a=propensity_a,
        propensity_b=propensity_b,
        progress=progress,
    )
    say(metrics_table({str(folder): result.metrics}))
    say(f"{result.documents:,} documents in {result.seconds:.2f} s")
    say(unknown_words(result.unknown_labels, result.unknown_pairs, unknown_labels))
    if json_file is not None:
        write_json(json_file, result.to_json())


def unknown_words(labels: int, pairs: int, treatment: str) -> str:
    """How many test labels training never saw, and what was made of them."""
    done = "left out" if treatment == "drop" else "counted as true labels that nobody can return"
    return f"test labels unseen in training: {labels:,} ({pairs:,} occurrences), {done}"


@app.command()
def compare(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR… TEST", help="Model folders, then a test file.")],
    unknown_labels: UnknownLabels = "count",
    threads: Threads = None,
) -> None:
    """Measure several models on one test file, side by side."""
    from xmtc import workflows
    from xmtc.cli.progress import terminal_progress
    from xmtc.cli.show import metrics_table

    if len(paths) < 2:
        raise ConfigError("compare needs one or more model folders and then a test file.")
    *folders, test = paths
    results = workflows.compare(
        folders,
        test,
        unknown_labels=unknown_labels,
        runtime=make_runtime(threads),
        progress=terminal_progress(),
    )
    say(metrics_table({name: result.metrics for name, result in results.items()}))
    for name, result in results.items():
        unseen = unknown_words(result.unknown_labels, result.unknown_pairs, unknown_labels)
        say(f"{name}: {result.documents:,} documents in {result.seconds:.2f} s; {unseen}")


@app.command()
def explain(
    folder: ModelFolder,
    text: Annotated[str, typer.Option(help="The text.")],
    label: Annotated[str, typer.Option(help="A label by name or key.", metavar="NAME")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell why a model gives a text a label."""
    from xmtc import workflows
    from xmtc.cli.show import explanation

    found = workflows.explain(folder, text, label, make_runtime())
    say(json.dumps(found.to_json(), ensure_ascii=False, indent=1) if as_json else explanation(found))


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show its settings.")] = None,
) -> None:
    """List the models, or the settings of one."""
    from xmtc import config, workflows
    from xmtc.cli.show import table
    from xmtc.registry import model_class

    if name is None:
        say(table(["model", "can", "what it is"], workflows.describe_models()))
        return
    kind = model_class(name)
    say(f"{name}: {' '.join((kind.__doc__ or '').split())}\ncan: {', '.join(sorted(kind.can))}\n")
    rows = [(row.name, json.dumps(row.default), row.kind, row.sentence) for row in config.table(kind.Config())]
    say(table(["setting", "default", "kind", "meaning"], rows) if rows else "It has no settings.")


@app.command()
def verify(folder: ModelFolder) -> None:
    """Check every byte of a model folder against its hashes."""
    from xmtc import workflows

    for name, size in workflows.verify(folder):
        say(f"ok  {size:>14,}  {name}")
    say(f"{folder}: whole")


@app.command()
def doctor() -> None:
    """Print versions, cores, memory, GPU and which extras are installed."""
    from xmtc.cli.doctor import report

    for what, found in report():
        say(f"{what:<16}{found}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the corpus and the model.", metavar="DIR")] = Path("xmtc-demo"),
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the corpus.")] = 0,
) -> None:
    """Run the main job on made-up texts: train, measure, tag."""
    from xmtc.cli.demo import run_demo
    from xmtc.cli.progress import terminal_progress

    run_demo(out, make_runtime(seed=seed), terminal_progress(), say)


def _usage_errors() -> type[Exception]:
    """The base of typer's own complaints, whichever package it keeps them in."""
    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main() -> NoReturn:
    """Exit status 0; 2 with one line on standard error for a user's mistake; 130 when interrupted."""
    try:
        status = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()
    except XmtcError as error:
        _fail(str(error))
    except _usage_errors() as error:
        _fail(_usage_line(error))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except MemoryError:
        _fail("out of memory. Use fewer features (--set text.max_features=N) or a larger machine.")
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}. Check place, permissions and free space.")
    sys.exit(status if isinstance(status, int) else 0)


def _usage_line(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "xmtc")
    words = " ".join(error.format_message().split()) if hasattr(error, "format_message") else str(error)
    return f"{words.rstrip('.')}. See: {path} --help"


def _fail(line: str) -> NoReturn:
    tell(f"xmtc: {line}")
    sys.exit(2)


if __name__ == "__main__":
    main()
