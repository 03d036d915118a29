"""Run a function on several threads, with results in order and bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from queue import Empty, SimpleQueue
from threading import Thread, get_ident
from typing import TypeVar, cast

from xmtc.core.cancellation import cancellable

Item = TypeVar("Item")
Result = TypeVar("Result")

CLOSING = 1.0
"""Seconds to wait for an iterator to be closed by the thread that reads it."""


def run_parallel(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int = 1
) -> Iterator[Result]:
    """Yield results in the order of `items`; at most `threads` + `ahead` are in flight, so memory stays bounded.

    If items differ greatly in cost and results are small, a larger `ahead` keeps all threads busy. Between items, work
    under a `Cancellation` can be stopped.
    """
    function = cancellable(function)
    if threads <= 1:
        yield from map(function, items)
        return
    items = iter(items)
    start = list(islice(items, 2))
    if len(start) < 2:  # threads take longer to start than a short request
        yield from map(function, start)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: list[Future[Result]] = []
        try:
            for item in chain(start, items):
                waiting.append(pool.submit(function, item))
                if len(waiting) >= threads + ahead:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()


def in_background(items: Iterator[Item], ahead: int = 2) -> Iterator[Item]:
    """Yield items that another thread takes from an iterator, at most `ahead` of them before they are wanted.

    The end may come from the garbage collector, in any thread and while that holds locks. So it uses only queues that
    may be used there, joins no thread, and waits for the iterator to be closed for `CLOSING` seconds at most.
    """
    wanted: SimpleQueue[bool] = SimpleQueue()
    found: SimpleQueue[tuple[bool, Item | BaseException | None]] = SimpleQueue()  # (is an item, item or error)
    closed: SimpleQueue[None] = SimpleQueue()

    def produce() -> None:
        error: BaseException | None = None
        try:
            while wanted.get():
                found.put((True, next(items)))
        except StopIteration:
            pass
        except BaseException as failure:
            error = failure
        try:
            _close(items)
        finally:
            closed.put(None)
            found.put((False, error))

    thread = Thread(target=produce, daemon=True)
    thread.start()
    try:
        for _ in range(ahead):
            wanted.put(True)
        while True:
            is_item, value = found.get()
            if isinstance(value, BaseException) and not is_item:
                raise value
            if not is_item:
                return
            yield cast("Item", value)
            wanted.put(True)
    finally:
        wanted.put(False)
        if get_ident() != thread.ident:
            with suppress(Empty):
                closed.get(timeout=CLOSING)


def _close(items: Iterator[Item]) -> None:
    """Release what a generator holds open; other iterators hold nothing."""
    close = getattr(items, "close", None)
    if close is not None:
        close()
