"""Run a function on several threads, with results in order and bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar, cast

from xmtc.core.cancellation import cancellable

Item = TypeVar("Item")
Result = TypeVar("Result")


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
    """Yield items that another thread takes from an iterator, at most `ahead` of them before they are wanted."""
    end, pool = object(), ThreadPoolExecutor(1)
    waiting: list[Future[Item | object]] = []
    try:
        while True:
            while len(waiting) < ahead:
                waiting.append(pool.submit(next, items, end))
            item = waiting.pop(0).result()
            if item is end:
                return
            yield cast("Item", item)
    finally:  # may run in the garbage collector, where nothing more can be submitted
        pool.shutdown(cancel_futures=True)
        _close(items)


def _close(items: Iterator[Item]) -> None:
    """Release what a generator holds open; other iterators hold nothing."""
    close = getattr(items, "close", None)
    if close is not None:
        close()
