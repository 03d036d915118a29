"""The `xmtc` command: its subcommands, imported when they are used, and how errors are reported."""

from __future__ import annotations

import gc
import io
import os
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer

from xmtc import __version__
from xmtc.cli.command import HELP_NAMES, RootGroup
from xmtc.cli.completion import VARIABLE, install_completion, run_completion, show_completion
from xmtc.cli.failures import check_memory_limit, failure_line, watched
from xmtc.cli.output import echo_error
from xmtc.core.errors import XmtcError, XmtcWarning

COMMANDS = {
    "train": "xmtc.cli.train",
    "update": "xmtc.cli.update",
    "tune": "xmtc.cli.tune",
    "predict": "xmtc.cli.predict",
    "evaluate": "xmtc.cli.evaluate",
    "compare": "xmtc.cli.evaluate",
    "calibrate": "xmtc.cli.calibrate",
    "export": "xmtc.cli.export",
    "report": "xmtc.cli.report",
    "bench": "xmtc.cli.bench",
    "serve": "xmtc.cli.serve",
    "explain": "xmtc.cli.explain",
    "plot": "xmtc.cli.plot",
    "models": "xmtc.cli.models",
    "verify": "xmtc.cli.models",
    "doctor": "xmtc.cli.doctor",
    "demo": "xmtc.cli.demo",
    "data": "xmtc.cli.data",
    "labels": "xmtc.cli.labels",
    "feedback": "xmtc.cli.feedback",
    "experiment": "xmtc.cli.experiment",
}
"""Command or group of commands → the module that defines it, which is imported when it is used."""


class Xmtc(RootGroup):
    """The commands above."""

    modules = COMMANDS


app = typer.Typer(
    name="xmtc",
    help="Extreme multi-label text classification: the most relevant labels for a text, out of up to millions.",
    cls=Xmtc,
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
