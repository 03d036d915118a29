"""`xmtc …`: the commands, and what becomes of errors. Everything heavy is imported inside the commands."""

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
from xmtc.cli.common import echo, echo_error
from xmtc.cli.demo import demo
from xmtc.cli.doctor import doctor
from xmtc.cli.evaluate import compare, evaluate
from xmtc.cli.explain import explain
from xmtc.cli.models import models, verify
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
    help="Tag texts with the right few labels out of hundreds to millions.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"xmtc {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Tag texts with the right few labels out of hundreds to millions."""


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
    app.command()(command)
for group in (data.app, label_commands.app, feedback.app, experiment.app):
    app.add_typer(group)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Our own warnings are one line, as errors are."""
    if issubclass(category, XmtcWarning):
        echo_error(f"xmtc: {message}")
    else:
        _python_warning(message, category, *place, **more)


_python_warning = warnings.showwarning


def _usage_errors() -> type[Exception]:
    """The base of typer's own complaints, whichever package it keeps them in."""
    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main() -> NoReturn:
    """Exit status 0; 2 with one line on standard error for a user's mistake; 130 when interrupted."""
    gc.set_threshold(100_000)  # loading libraries makes many objects and no garbage: a tenth of a short command's time
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to stop
    warnings.showwarning = _show_warning
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
        echo_error("xmtc: interrupted.")
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
    echo_error(f"xmtc: {' '.join(line.splitlines())}")
    sys.exit(2)


if __name__ == "__main__":
    main()
