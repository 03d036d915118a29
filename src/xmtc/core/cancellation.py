"""Stop work in another thread: loops check between units of work whether its result is still wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_thread = threading.local()  # `cancellation`: that of the work in progress


class Cancelled(Exception):
    """The work was stopped, because nobody waits for its result."""


class Cancellation:
    """Lets another thread stop a piece of work."""

    def __init__(self) -> None:
        self._is_cancelled = False

    def cancel(self) -> None:
        """Stop the work at its next check."""
        self._is_cancelled = True

    def check(self) -> None:
        """Raise `Cancelled` if the work was stopped."""
        if self._is_cancelled:
            raise Cancelled

    def run(self, work: Callable[[], Result]) -> Result:
        """Do the work in this thread, so that its checks notice `cancel`."""
        before = getattr(_thread, "cancellation", None)
        _thread.cancellation = self
        try:
            self.check()
            return work()
        finally:
            _thread.cancellation = before


def check() -> None:
    """Raise `Cancelled` if the work of this thread was stopped. It costs a fraction of a microsecond."""
    cancellation: Cancellation | None = getattr(_thread, "cancellation", None)
    if cancellation is not None:
        cancellation.check()


def cancellable(function: Callable[[Item], Result]) -> Callable[[Item], Result]:
    """Return the function for use in other threads: calls check whether the work of this thread was stopped."""
    cancellation: Cancellation | None = getattr(_thread, "cancellation", None)
    if cancellation is None:
        return function
    return lambda item: cancellation.run(lambda: function(item))
