"""`python -m xmtc.cli.run_worker`: the process in which `xmtc bench` runs one cell. It is not for people to call."""

from __future__ import annotations

import gc
import os
import sys
from types import TracebackType
from typing import Any


def main() -> None:
    """Run the cell that standard input names; an interrupt ends it without a word, as its caller has them."""
    sys.excepthook, sys.unraisablehook = _ended, _ended_within
    try:
        _serve()
    except KeyboardInterrupt:
        os._exit(130)


def _ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What nobody caught."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(130)
    sys.__excepthook__(kind, error, trace)


def _ended_within(found: Any) -> None:
    """What cannot be raised, as where a library that compiles kernels calls back."""
    if issubclass(found.exc_type, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(found)


def _serve() -> None:
    from xmtc.cli.common import make_runtime
    from xmtc.cli.progress import terminal_progress
    from xmtc.experiments.runs import serve

    gc.set_threshold(100_000)
    make_runtime()  # what the command line asks of the environment before torch and numba are loaded
    serve(terminal_progress())


if __name__ == "__main__":
    main()
