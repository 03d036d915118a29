"""`xmtc …`: arguments in, one workflow call, words out. Everything heavy is imported inside the command."""

from __future__ import annotations

import gc
import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from xmtc import __version__
from xmtc.cli import data, experiment, feedback
from xmtc.cli import labels as label_commands
from xmtc.cli.bench import bench
from xmtc.cli.calibrate import calibrate
from xmtc.cli.common import (
    Device,
    ModelFolder,
    Precision,
    Threads,
    check_choice,
    check_writable,
    clean,
    make_runtime,
    say,
    tell,
)
from xmtc.cli.evaluate import compare, evaluate
from xmtc.cli.predict import predict
from xmtc.cli.reader_options import Labels, Language, NotInLabels, reads_documents
from xmtc.cli.report import report
from xmtc.cli.serve import serve
from xmtc.cli.tune import tune
from xmtc.cli.update import update
from xmtc.core.errors import ConfigError, XmtcError, shown

app = typer.Typer(
    name="xmtc",
    help="Tag texts with the right few labels out of hundreds to millions.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"xmtc {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Tag texts with the right few labels out of hundreds to millions."""


@app.command()
@reads_documents
def train(
    train_file: Annotated[Path, typer.Argument(metavar="TRAIN", help="Documents with labels, in any known format.")],
    options: Any,
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
    labels: Labels = None,
    language: Language = None,
    unknown_labels: NotInLabels = "refuse",
    threads: Threads = None,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Train a model on labelled texts and save it."""
    from xmtc import workflows
    from xmtc.artifact.workspace import Workspace
    from xmtc.cli.progress import terminal_progress
    from xmtc.core import config
    from xmtc.core.progress import silent

    check_choice("--unknown-labels", unknown_labels, ("refuse", "drop"))
    if language is not None and labels is None:
        raise ConfigError("--language chooses among the names in --labels FILE. Name that file too.")
    runtime = make_runtime(threads, seed, device=device, precision=precision)
    decided = workflows.plan(
        out,
        name=model,
        recipe=recipe,
        settings=config.parse_assignments(assignments or []),
        resume=resume,
        force=force,
        follows=runtime.rank > 0,
    )

    def tell_settings() -> None:
        if runtime.rank > 0:  # of several processes one speaks
            return
        hint = "" if model or recipe else "  (the best that runs here; --model to choose)"
        settings = {**config.to_mapping(decided.model.config), "seed": seed}
        lines = [f"  {name} = {json.dumps(value)}" for name, value in config.flat(settings).items()]
        tell("\n".join([f"model: {decided.model.name}{hint}", *lines]))

    try:
        trained = workflows.train(
            decided,
            train_file,
            valid_file=valid,
            options=options,
            vocabulary=labels,
            language=language,
            unknown_labels=unknown_labels,
            runtime=runtime,
            progress=terminal_progress() if runtime.rank == 0 else silent,
            begun=tell_settings,
        )
    except KeyboardInterrupt:
        work = Workspace.beside(out)
        parts = f"Finished parts are in {work}" if any(work.glob("*.safetensors")) else "Nothing was finished yet"
        tell(f"xmtc: interrupted. {parts}: go on with the same command and --resume.")
        raise typer.Exit(130) from None
    if runtime.rank > 0:
        return
    for name, value in trained.facts.items():
        tell(f"found: {name} = {value}")
    facts = trained.training
    say(
        f"saved {trained.name} in {out}: {facts['documents']:,} documents, {len(trained.labels):,} labels, "
        f"trained in {facts['seconds']:.1f} s"
    )


def in_colour() -> bool:
    """Whether standard output is a terminal that shows colours, and nobody asked for none (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


app.command()(update)
app.command()(tune)
app.command()(predict)


app.command()(evaluate)
app.command()(compare)
app.command()(calibrate)
app.command()(report)
app.command()(bench)
app.command()(serve)
app.add_typer(data.app)
app.add_typer(label_commands.app)
app.add_typer(feedback.app)
app.add_typer(experiment.app)


@app.command()
def explain(
    folder: ModelFolder,
    text: Annotated[str, typer.Option(help="The text.")],
    label: Annotated[str, typer.Option(help="A label by name or key.", metavar="NAME")],
    html: Annotated[Path | None, typer.Option(help="Write a page that shows why here.", metavar="FILE")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    device: Device = "auto",
) -> None:
    """Show why a model gives a text a label."""
    from xmtc import workflows
    from xmtc.cli.shading import shaded
    from xmtc.cli.show import explanation
    from xmtc.core.files import replace_file
    from xmtc.views.explanation_page import page

    check_writable(html)
    if html is not None and html.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{html}: pages are HTML. Let the name end in .html.")
    found = workflows.explain(folder, clean(text), clean(label), make_runtime(device=device))
    if html is not None:
        with replace_file(html) as stream:
            stream.write(page(found).encode())
    if as_json:
        say(json.dumps(found.to_json(), indent=1))
    else:
        say(shaded(found, shutil.get_terminal_size().columns) if in_colour() else explanation(found))
    if html is not None:
        tell(f"{html}: a page that shows why")


@app.command()
def plot(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG…", help="Training logs, or models with a log beside them.")
    ],
    out: Annotated[Path, typer.Option(help="Draw the curves into this file (SVG, PNG or PDF).", metavar="FILE")],
    against: Annotated[str, typer.Option(help="Along the axis: epoch, seconds or step.", metavar="WHAT")] = "epoch",
) -> None:
    """Draw loss and validation score from training logs."""
    from xmtc.cli.show import table
    from xmtc.views.plot import check_plot_file
    from xmtc.views.training_curves import training_plot
    from xmtc.views.training_log import AGAINST, read_curves, summary

    check_choice("--against", against, AGAINST)
    check_writable(out, *logs)
    check_plot_file(out)
    curves = read_curves(logs, against)
    training_plot(curves, against).save(out)
    say(table(["training", "how it went"], [[shown(curve.name), summary(curve, against)] for curve in curves]))
    tell(f"{out}: curves")


@app.command()
def models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME|DIR", help="Show its settings, or what a model folder holds.")
    ] = None,
) -> None:
    """List the models, or show one: its settings, or its folder."""
    from xmtc import workflows
    from xmtc.cli.history import model_folder
    from xmtc.cli.show import table
    from xmtc.core import config
    from xmtc.models.registry import MODELS, model_class

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if name is not None and name not in MODELS and Path(name).is_dir():
        say(model_folder(workflows.describe_folder(name), width))
        return
    if name is None:
        say(table(["model", "can", "what it is"], workflows.describe_models(), width=width))
        say("\nSettings of one of them: xmtc models NAME")
        return
    kind = model_class(name)
    say(f"{name}: {' '.join((kind.__doc__ or '').split())}\ncan: {', '.join(sorted(kind.capabilities))}\n")
    rows = []
    for row in config.table(kind.Config()):
        tried = "" if row.space is None else f" [tune tries {row.space}]"
        rows.append((row.name, json.dumps(row.default), row.kind, row.sentence + tried))
    if not rows:
        say("It has no settings.")
        return
    say(table(["setting", "default", "kind", "meaning"], rows, width=width))
    say(f"\nSet one with: xmtc train TRAIN --model {name} --out DIR --set {rows[0][0]}=VALUE")


@app.command()
def verify(folder: ModelFolder) -> None:
    """Check a model folder, every byte of it, against its hashes."""
    from xmtc import workflows

    for name, size in workflows.verify(folder):
        say(f"ok  {size:>14,}  {name}")
    say(f"{folder}: whole, every file matches its hash")


@app.command()
def doctor() -> None:
    """Print what this machine has: versions, memory, GPU."""
    from xmtc.cli.doctor import report

    for what, found in report():
        say(f"{what:<16}{found}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the corpus and the model.", metavar="DIR")] = Path("xmtc-demo"),
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the corpus.")] = 0,
) -> None:
    """Train, measure and tag on made-up texts."""
    from xmtc.cli.demo import run_demo
    from xmtc.cli.progress import terminal_progress

    run_demo(out, make_runtime(seed=seed), terminal_progress(), say)


def _usage_errors() -> type[Exception]:
    """The base of typer's own complaints, whichever package it keeps them in."""
    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main() -> NoReturn:
    """Exit status 0; 2 with one line on standard error for a user's mistake; 130 when interrupted."""
    gc.set_threshold(100_000)  # loading libraries makes many objects and no garbage: a tenth of a short command's time
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to stop
    status = 0
    try:
        # Not `app()`, which has answers of its own to interrupts and closed pipes.
        command = typer.main.get_command(app)
        with command.make_context("xmtc", sys.argv[1:] or ["--help"]) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as done:
        status = done.exit_code
    except XmtcError as error:
        _fail(str(error))
    except _usage_errors() as error:
        _fail(_usage_line(error))
    except (KeyboardInterrupt, typer.Abort):
        tell("xmtc: interrupted.")
        sys.exit(130)
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except MemoryError:
        _fail("out of memory. Use fewer features (--set text.max_features=N) or a larger machine.")
    except OSError as error:
        place = error.filename or "standard output"
        _fail(f"{place}: {error.strerror or error}. Check place, permissions and free space.")
    sys.exit(status)


def _usage_line(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "xmtc")
    words = " ".join(error.format_message().split()) if hasattr(error, "format_message") else str(error)
    return f"{words if words.endswith(('.', '?')) else words + '.'} See: {path} --help"


def _fail(line: str) -> NoReturn:
    tell(f"xmtc: {' '.join(line.splitlines())}")
    sys.exit(2)


if __name__ == "__main__":
    main()
