"""Progress reporting for long-running work: a task has a title, a total and steps; the caller chooses the display."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Task(Protocol):
    """One progress bar."""

    def advance(self, steps: int = 1) -> None:
        """Advance the bar by `steps`."""

    def note(self, words: str) -> None:
        """Show a short note, such as the current loss, next to the bar."""


class Progress(Protocol):
    """Receiver of progress: `silent` discards it, the command line shows bars."""

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """Open a task that ends with the block; a `total` of None means its length is unknown."""
        ...

    def say(self, line: str) -> None:
        """Report a one-line message."""


class _SilentTask:
    def advance(self, steps: int = 1) -> None:
        return

    def note(self, words: str) -> None:
        return


class Silent:
    """Progress that displays nothing."""

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """Open a task without a display."""
        yield _SilentTask()

    def say(self, line: str) -> None:
        """Discard the message."""
        return


silent = Silent()
