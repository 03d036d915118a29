"""`python -m xmtc.cli.run_worker`: the process in which `xmtc bench` executes one run. Internal."""

from __future__ import annotations

import gc
import os
import sys
from types import TracebackType
from typing import Any


def main() -> None:
    """Execute the run described on standard input; exit silently on an interrupt, which the parent reports."""
    sys.excepthook, sys.unraisablehook = _ended, _ended_within
    try:
        _serve()
    except KeyboardInterrupt:
        os._exit(130)


def _ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Handle uncaught exceptions."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(130)
    sys.__excepthook__(kind, error, trace)


def _ended_within(found: Any) -> None:
    """Handle exceptions that cannot be raised, such as in callbacks of a library that compiles kernels."""
    if issubclass(found.exc_type, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(found)


def _serve() -> None:
    from xmtc.cli.common import make_runtime
    from xmtc.cli.output import output_mode
    from xmtc.cli.progress import terminal_progress
    from xmtc.experiments.runs import serve

    gc.set_threshold(100_000)
    make_runtime()  # sets up the environment before torch and numba are imported
    with output_mode(quiet="--quiet" in sys.argv, json_on_stdout=False):
        serve(terminal_progress())


if __name__ == "__main__":
    main()
