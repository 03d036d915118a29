"""Progress bars on a terminal, or a line per minute in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from xmtc.cli.output import is_quiet
from xmtc.core.progress import Progress, Task, silent


def terminal_progress() -> Progress:
    """Progress bars if standard error is a terminal, otherwise lines for a log; nothing with --quiet."""
    if is_quiet():
        return silent
    if not sys.stderr.isatty():
        return LogProgress()
    from xmtc.core.kernel_cache import on_compilation

    on_compilation(_CompilationLines().show)
    return Bars()


class _CompilationLines:
    """Lines on the compilation of kernels, the next after a second at the earliest."""

    def __init__(self) -> None:
        self._printed = -1.0

    def show(self) -> None:
        """Print a line, unless the last one is recent."""
        from xmtc.core.compile_ahead import compilation_state

        if time.monotonic() - self._printed >= 1.0:
            print(compilation_state(), file=sys.stderr, flush=True)
            self._printed = time.monotonic()


class _BarTask:
    def __init__(self, bars: object, number: object) -> None:
        self._bars, self._number = bars, number

    def advance(self, steps: int = 1) -> None:
        self._bars.update(self._number, advance=steps)  # type: ignore[attr-defined]

    def note(self, words: str) -> None:
        self._bars.update(self._number, note=words)  # type: ignore[attr-defined]


WIDE = 130
"""Columns of a terminal that is wide enough for the bar; a narrower one shows only numbers."""


class ErrorLines:
    """Single lines on standard error."""

    def say(self, line: str) -> None:
        """Print a line."""
        print(line, file=sys.stderr, flush=True)


class Bars(ErrorLines):
    """One line per task: title, bar, count, time."""

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """Show a bar while the task runs."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        console = Console(stderr=True)
        wide = console.width >= WIDE
        columns = (
            TextColumn("{task.description:<30}" if wide else "{task.description}"),
            *([BarColumn(bar_width=30)] if wide else []),
            MofNCompleteColumn(),
            *([TimeElapsedColumn(), TextColumn("left")] if wide else []),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with RichProgress(*columns, console=console) as bars:
            yield _BarTask(bars, bars.add_task(title, total=total, note=""))


EVERY = 60.0
"""Seconds between two lines in a log."""


class _LineTask:
    def __init__(self, title: str, total: int | None) -> None:
        self._title, self._total = title, total
        self._done, self._note = 0, ""
        self._printed = time.monotonic()

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        now = time.monotonic()
        if now - self._printed >= EVERY:
            self._printed = now
            of = "" if self._total is None else f" of {self._total:,}"
            rest = f", {self._note}" if self._note else ""
            print(f"{self._title}: {self._done:,}{of}{rest}", file=sys.stderr, flush=True)

    def note(self, words: str) -> None:
        self._note = words


class LogProgress(ErrorLines):
    """One line per minute, which keeps logs short."""

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """Print a line per minute while the task runs."""
        yield _LineTask(title, total)
