"""How long work reports itself: a task has a title, a total and steps; who shows it is the caller's business."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Task(Protocol):
    """One bar: `advance` moves it, `note` puts a few words beside it."""

    def advance(self, steps: int = 1) -> None: ...

    def note(self, words: str) -> None: ...


class Progress(Protocol):
    """Opens tasks and passes on what is worth a line; `silent` below shows nothing, the command line's shows bars."""

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]: ...

    def say(self, line: str) -> None: ...


class _SilentTask:
    def advance(self, steps: int = 1) -> None:
        return

    def note(self, words: str) -> None:
        return


class Silent:
    """Progress that nobody sees."""

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        yield _SilentTask()

    def say(self, line: str) -> None:
        return


silent = Silent()
