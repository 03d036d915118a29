"""Compiled kernels and the threads that run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])
Item = TypeVar("Item")
Result = TypeVar("Result")


def kernel(**options: Any) -> Callable[[Function], Function]:
    """numba's `njit` without the interpreter lock and cached on disk.

    The cache is keyed by the source file alone: kernels that call each other live in one file, and constants are
    passed as arguments, so that an edit never leaves a stale kernel behind.
    """
    settings = {"nogil": True, "cache": True, "error_model": "numpy", **options}
    return cast("Callable[[Function], Function]", numba.njit(**settings))


def run_parallel(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Results in the order of `items`; at most `threads` + 1 are in flight, so memory stays bounded."""
    if threads <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: list[Future[Result]] = []
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()
