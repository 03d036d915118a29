"""Delays Ctrl-C until training can be interrupted safely."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_held_back() -> Iterator[Callable[[], bool]]:
    """Delay Ctrl-C until the end of a step, where a checkpoint is exact; pressed again, it takes effect at once.

    Yields a function that returns whether it was pressed. Does nothing if the caller has its own handler, or outside
    the main thread, which receives no signals.
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
