"""The `xmtc` command: its subcommands and how errors are reported. Heavy imports are inside the subcommands."""

from __future__ import annotations

import gc
import io
import os
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer

from xmtc import __version__
from xmtc.cli import data, experiment, feedback
from xmtc.cli import labels as label_commands
from xmtc.cli.bench import bench
from xmtc.cli.calibrate import calibrate
from xmtc.cli.command import HELP_NAMES, Command, RootGroup
from xmtc.cli.completion import VARIABLE, install_completion, run_completion, show_completion
from xmtc.cli.demo import demo
from xmtc.cli.doctor import doctor
from xmtc.cli.evaluate import compare, evaluate
from xmtc.cli.explain import explain
from xmtc.cli.failures import check_memory_limit, failure_line, watched
from xmtc.cli.models import models, verify
from xmtc.cli.output import echo_error
from xmtc.cli.plot import plot
from xmtc.cli.predict import predict
from xmtc.cli.report import report
from xmtc.cli.serve import serve
from xmtc.cli.train import train
from xmtc.cli.tune import tune
from xmtc.cli.update import update
from xmtc.core.errors import XmtcError, XmtcWarning

app = typer.Typer(
    name="xmtc",
    help="Extreme multi-label text classification: the most relevant labels for a text, out of up to millions.",
    cls=RootGroup,
    context_settings=HELP_NAMES,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"xmtc {__version__}", flush=True)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    install: Annotated[
        str | None,
        typer.Option(
            "--install-completion",
            metavar="[SHELL]",
            callback=install_completion,
            help="Install completion for bash, zsh, fish or powershell (default: the current shell).",
        ),
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="[SHELL]",
            callback=show_completion,
            help="Print the completion script instead of installing it.",
        ),
    ] = None,
) -> None:
    """Extreme multi-label text classification: the most relevant labels for a text, out of up to millions."""


for command in (
    train,
    update,
    tune,
    predict,
    evaluate,
    compare,
    calibrate,
    report,
    bench,
    serve,
    explain,
    plot,
    models,
    verify,
    doctor,
    demo,
):
    app.command(cls=Command)(command)
for group in (data.app, label_commands.app, feedback.app, experiment.app):
    app.add_typer(group)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Print warnings of xmtc on one line, like errors."""
    if issubclass(category, XmtcWarning):
        echo_error(f"xmtc: {message}")
    else:
        _python_warning(message, category, *place, **more)


_python_warning = warnings.showwarning


def _usage_errors() -> type[Exception]:
    """The base class of usage errors, which is in another package in each version of typer."""
    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main() -> NoReturn:
    """Run a command. Exit status: 0; 2 for a user error, with one line on standard error; 130 if interrupted."""
    gc.set_threshold(100_000)  # imports create no garbage; collecting it takes a tenth of a short command
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # characters that the terminal does not support
        if sys.stdout is sys.__stdout__:
            sys.stdout = watched(sys.stdout)
    warnings.showwarning = _show_warning
    status = 0
    if VARIABLE in os.environ:
        run_completion(app)
    try:
        # Not `app()`, which handles interrupts and closed pipes differently.
        command = typer.main.get_command(app)
        with command.make_context("xmtc", sys.argv[1:] or ["--help"]) as context:
            check_memory_limit()
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as done:
        status = done.exit_code
    except XmtcError as error:
        _fail(str(error))
    except _usage_errors() as error:
        _fail(_usage_line(error))
    except (KeyboardInterrupt, typer.Abort):
        echo_error("xmtc: interrupted.")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        line = failure_line(error)
        if line is None:
            raise
        _fail(line)
    sys.exit(status)


def _usage_line(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "xmtc")
    words = " ".join(error.format_message().split()) if hasattr(error, "format_message") else str(error)
    return f"{words if words.endswith(('.', '?')) else words + '.'} See: {path} --help"


def _fail(line: str) -> NoReturn:
    echo_error(f"xmtc: {' '.join(line.splitlines())}")
    sys.exit(2)


if __name__ == "__main__":
    main()
