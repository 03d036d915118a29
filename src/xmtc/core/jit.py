"""Compile numba kernels with on-disk caching."""

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
    """Compile a function inline into the kernels that call it."""
    return cast("Function", numba.njit(inline="always", error_model="numpy")(function))


def called(function: Function) -> Function:
    """Compile a function that kernels call. Kernels with long functions compile twice as fast as with `inlined`."""
    return cast("Function", numba.njit(error_model="numpy")(function))


def kernel(
    *, outputs: tuple[str, ...] = (), uses: tuple[ModuleType, ...] = (), **options: Any
) -> Callable[[Function], Function]:
    """Compile with numba's `njit`, without the interpreter lock and cached on disk.

    Arrays are passed as contiguous and read-only, except those named in `outputs`, so a single compilation serves
    arrays in memory and in mapped files. The cache key covers the kernel's source file and the modules in `uses`.
    To avoid stale kernels, define everything a kernel calls in one of these files, and pass constants as arguments.
    """
    settings = {"nogil": True, "cache": True, "error_model": "numpy", **options}

    def decorate(function: Function) -> Function:
        try:
            compiled = numba.njit(**settings)(function)
            watched = uses
            _survive_unreadable_cache(compiled)
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


def _survive_unreadable_cache(compiled: Any) -> None:
    """Compile again if the cache cannot be read, such as after an update that renamed the type of an argument."""
    cache = compiled._cache  # numba has no public interface for this
    load = cache.load_overload

    def load_or_nothing(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except Exception:  # of any kind, depending on what is unreadable
            cache.flush()
            return None

    cache.load_overload = load_or_nothing


def _watch(compiled: Any, modules: tuple[ModuleType, ...]) -> None:
    """Invalidate the kernel's cache when one of these modules changes."""
    index = compiled._cache._cache_file  # numba has no public interface for this
    sources = [Path(str(module.__file__)).stat() for module in modules]
    index._source_stamp = (index._source_stamp, *((source.st_mtime, source.st_size) for source in sources))


def frozen(argument: Any) -> Any:
    """Make an array contiguous and read-only for a kernel; return other values as they are. Use for tuple members."""
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
    """Yield a function that returns the seconds spent so far on compiling uncached kernels in this block."""
    events: Any = event
    with events.install_listener("numba:compile", events.TimingListener()) as timer:
        yield lambda: timer.duration if timer.done else 0.0


def on_first_compilation(notify: Callable[[], None]) -> None:
    """Call `notify` once, when the first uncached kernel is about to be compiled."""
    events: Any = event  # numba.core.event has no type annotations

    class Listener(events.Listener):  # type: ignore[misc]
        def on_start(self, _: Any) -> None:
            events.unregister("numba:compile", self)
            notify()

        def on_end(self, _: Any) -> None:
            return

    events.register("numba:compile", Listener())
