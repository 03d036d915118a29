"""Compiled kernels."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import event

Function = TypeVar("Function", bound=Callable[..., Any])


def inlined(function: Function) -> Function:
    """A piece of a kernel, compiled into its callers."""
    return cast("Function", numba.njit(inline="always", error_model="numpy")(function))


def kernel(
    *, outputs: tuple[str, ...] = (), uses: tuple[ModuleType, ...] = (), **options: Any
) -> Callable[[Function], Function]:
    """numba's `njit` without the interpreter lock and cached on disk.

    Arrays go in contiguous and read-only, but for those named in `outputs`: whether they come from memory or from a
    mapped file, one compilation serves. The cache is keyed by the source file and those of the modules named in
    `uses`, so what a kernel calls lives in its own file or in one of these, and constants are passed as arguments: an
    edit never leaves a stale kernel behind.
    """
    settings = {"nogil": True, "cache": True, "error_model": "numpy", **options}

    def decorate(function: Function) -> Function:
        try:
            compiled = numba.njit(**settings)(function)
            watched = uses
        except RuntimeError:  # neither the package nor the user's cache folder is writable: compile in each process
            compiled = numba.njit(**{**settings, "cache": False})(function)
            watched = ()
        if watched:
            _watch(compiled, watched)
        names = list(inspect.signature(function).parameters)
        writable = {names.index(name) for name in outputs}

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return compiled(*(a if i in writable else frozen(a) for i, a in enumerate(arguments)))

        return cast("Function", call)

    return decorate


def _watch(compiled: Any, modules: tuple[ModuleType, ...]) -> None:
    """Let the cache of a kernel lapse when one of these modules changes."""
    index = compiled._cache._cache_file  # numba has no public place for this
    sources = [Path(str(module.__file__)).stat() for module in modules]
    index._source_stamp = (index._source_stamp, *((source.st_mtime, source.st_size) for source in sources))


def frozen(argument: Any) -> Any:
    """An array as kernels take it, contiguous and read-only; anything else as it is. For the members of a tuple."""
    if not isinstance(argument, np.ndarray):
        return argument
    if not argument.flags.c_contiguous:
        argument = np.ascontiguousarray(argument)
    if argument.flags.writeable:
        argument = argument.view()
        argument.flags.writeable = False
    return argument


@contextmanager
def timed_compilation() -> Iterator[Callable[[], float]]:
    """Within the block, and after it, tells the seconds for which kernels were compiled that the cache did not have."""
    events: Any = event
    with events.install_listener("numba:compile", events.TimingListener()) as timer:
        yield lambda: timer.duration if timer.done else 0.0


def on_first_compilation(tell: Callable[[], None]) -> None:
    """Call `tell` once, when a kernel is about to be compiled because the cache does not have it."""
    events: Any = event  # numba's part for watching compilation has no types

    class Listener(events.Listener):  # type: ignore[misc]
        def on_start(self, _: Any) -> None:
            events.unregister("numba:compile", self)
            tell()

        def on_end(self, _: Any) -> None:
            return

    events.register("numba:compile", Listener())
