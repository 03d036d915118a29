"""Run a function on several threads, with results in order and bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

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
    with ThreadPoolExecutor(threads) as pool:
        waiting: list[Future[Result]] = []
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= threads + ahead:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()
