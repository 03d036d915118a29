"""Compile numba kernels with on-disk caching."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from xmtc.core.kernel_cache import KernelCache

Function = TypeVar("Function", bound=Callable[..., Any])


def inlined(function: Function) -> Function:
    """Compile a function inline into the kernels that call it."""
    return cast("Function", numba.njit(inline="always", error_model="numpy")(function))


def called(function: Function) -> Function:
    """Compile a function that kernels call. Kernels with long functions compile twice as fast as with `inlined`."""
    return cast("Function", numba.njit(error_model="numpy")(function))


class Compiled:
    """The compiled form of a kernel, made when it is first used: most commands use few of the kernels they import."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], cached: bool) -> None:
        self._function, self._options, self._cached = function, options, cached
        self._lock = threading.Lock()
        self.run: Any = None

    def dispatcher(self) -> Any:
        """numba's dispatcher, which compiles for the types of its arguments."""
        with self._lock:
            if self.run is None:
                dispatcher: Any = numba.njit(**self._options)(self._function)
                if self._cached:
                    dispatcher._cache = KernelCache(self._function, self._options)  # numba has no public way
                self.run = dispatcher
        return self.run


def kernel(*, outputs: tuple[str, ...] = (), cache: bool = True, **options: Any) -> Callable[[Function], Function]:
    """Compile with numba's `njit`, without the interpreter lock and cached on disk.

    Arrays are passed as contiguous and read-only, except those named in `outputs`, so a single compilation serves
    arrays in memory and in mapped files. The cache recognises changes of all functions that the kernel calls and of
    all constants it uses, provided that they are at the top level of modules of this package.
    """
    settings = {"nogil": True, "error_model": "numpy", **options}

    def decorate(function: Function) -> Function:
        compiled = Compiled(function, settings, cache)
        names = list(inspect.signature(function).parameters)
        inputs = [place for place, name in enumerate(names) if name not in outputs]

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            given = list(arguments)
            for place in inputs:
                if type(given[place]) is np.ndarray:
                    given[place] = frozen(given[place])
            try:
                return (compiled.run or compiled.dispatcher())(*given)
            except SystemError as error:  # numba returns a result although Ctrl-C was pressed
                if is_interrupt(error):
                    raise KeyboardInterrupt from None
                raise

        call.compiled = compiled  # type: ignore[attr-defined]
        return cast("Function", call)

    return decorate


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error was caused by Ctrl-C, directly or through other errors."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def frozen(argument: Any) -> Any:
    """Make an array contiguous and read-only for a kernel; return other values as they are. Use for tuple members."""
    if not isinstance(argument, np.ndarray):
        return argument
    flags = argument.flags
    if not flags.c_contiguous:
        argument = np.ascontiguousarray(argument)
    elif not flags.writeable:
        return argument
    argument = argument.view()
    argument.setflags(write=False)
    return argument
