"""The time limit of a search: elapsed time, also that of interrupted runs, and a progress display that enforces it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from xmtc.core.progress import Task


class OutOfTime(Exception):
    """A training was stopped because its time is used up."""


class Clock:
    """Seconds since the start of a search and until its end."""

    def __init__(self, limit: float | None, before: float = 0.0) -> None:
        self.limit = math.inf if limit is None else limit
        self._start = time.perf_counter() - before

    @property
    def elapsed(self) -> float:
        """Seconds since the start, including earlier runs that were interrupted."""
        return time.perf_counter() - self._start

    @property
    def left(self) -> float:
        """Seconds until the limit."""
        return self.limit - self.elapsed


class TimedProgress:
    """Progress of a step of a search, which raises `OutOfTime` when its time is used up."""

    def __init__(self, task: Task, name: str, clock: Clock, until: float) -> None:
        self._task, self._name, self._clock, self._until = task, name, clock, until

    def check(self) -> None:
        """Raise `OutOfTime` after the time of this step."""
        if self._clock.elapsed > self._until:
            raise OutOfTime

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """Show a part of the step as a note."""
        self.check()
        yield _TimedTask(self, self._task, f"{self._name}: {title}", total)

    def say(self, line: str) -> None:
        """Discard the message."""
        return


class _TimedTask:
    def __init__(self, progress: TimedProgress, task: Task, title: str, total: int | None) -> None:
        self._progress, self._task, self._title, self._total, self._done = progress, task, title, total, 0
        task.note(title)

    def advance(self, steps: int = 1) -> None:
        self._progress.check()
        self._done += steps
        if self._total:
            self._task.note(f"{self._title} {100 * self._done // self._total} %")

    def note(self, words: str) -> None:
        return
