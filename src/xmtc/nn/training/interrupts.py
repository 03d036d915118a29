"""Ctrl-C that waits for a moment at which a training can be left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_held_back() -> Iterator[Callable[[], bool]]:
    """Ctrl-C waits for the end of a step, where a checkpoint is exact; pressed again, it does not wait.

    Yields whether it was pressed. A caller's own handler, and threads that get no signals, are left alone.
    """
    pressed = False

    def press(*_: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt
