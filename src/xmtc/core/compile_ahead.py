"""Compile the kernels of a command in other processes before it needs them.

`kernels.json` lists which kernels a purpose such as "train parabel" uses, the slowest to compile first, and the types
of their arguments; tools/make_kernel_list.py derives it by running the commands. Where it is wrong or incomplete, the
process that needs a kernel compiles it. `python -m xmtc.core.compile_ahead PURPOSE …` compiles what is missing.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numba import types as untyped

from xmtc.core.kernel_cache import KernelCache, kernel_folder

types: Any = untyped  # the types of numba have no annotations

MOST_PROCESSES = 3
"""Processes that compile besides the one that runs the command."""
LIST = Path(__file__).with_name("kernels.json")


def encode_type(kind: Any) -> Any:
    """A numba type as JSON: 'float32', 'int64[2]' for a read-only array, 'int64[2]!' for another, lists for tuples."""
    if isinstance(kind, types.Array):
        return f"{kind.dtype}[{kind.ndim}]{'!' if kind.mutable else ''}"
    if isinstance(kind, types.BaseNamedTuple):
        of = kind.instance_class
        return {f"{of.__module__}:{of.__qualname__}": [encode_type(part) for part in kind.types]}
    if isinstance(kind, types.BaseTuple):
        return [encode_type(part) for part in kind.types]
    return str(kind)


def decode_type(given: Any) -> Any:
    """The numba type that `encode_type` has encoded."""
    if isinstance(given, dict):
        ((name, parts),) = given.items()
        kinds, of = tuple(map(decode_type, parts)), _attribute(name)
        if len(set(kinds)) == 1:
            return types.NamedUniTuple(kinds[0], len(kinds), of)
        return types.NamedTuple(kinds, of)
    if isinstance(given, list):
        return types.BaseTuple.from_types(tuple(map(decode_type, given)))
    element, is_array, rest = given.partition("[")
    kind = getattr(types, element)
    return types.Array(kind, int(rest[0]), "C", readonly=not rest.endswith("!")) if is_array else kind


@dataclass(frozen=True)
class Listed:
    """A kernel of the list, for arguments of certain types."""

    kernel: str
    types: Any

    @functools.cached_property
    def dispatcher(self) -> Any:
        """numba's dispatcher of the kernel."""
        return _attribute(self.kernel).compiled.dispatcher()

    @functools.cached_property
    def signature(self) -> tuple[Any, ...]:
        """The numba types of the arguments."""
        return tuple(map(decode_type, self.types))

    def is_missing(self) -> bool:
        """Whether the kernel is not in the cache."""
        cache: KernelCache = self.dispatcher._cache
        return cache.is_missing(self.signature, self.dispatcher.targetctx)

    def compile(self) -> None:
        """Compile the kernel unless it is in the cache or another process is compiling it."""
        cache: KernelCache = self.dispatcher._cache
        if not self.is_missing() or not cache.acquire(0):
            return
        try:
            self.dispatcher.compile(self.signature)
        finally:
            cache.release()


def _attribute(name: str) -> Any:
    module, _, path = name.partition(":")
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))


def purposes() -> list[str]:
    """Return all purposes of the list."""
    return sorted({purpose for entry in json.loads(LIST.read_text()) for purpose in entry["for"]})


def listed(wanted: Iterable[str]) -> list[Listed]:
    """Return the kernels that these purposes use, the slowest to compile first."""
    chosen = set(wanted)
    entries = json.loads(LIST.read_text(encoding="utf-8"))
    return [Listed(entry["kernel"], entry["types"]) for entry in entries if chosen.intersection(entry["for"])]


def missing(wanted: Iterable[str]) -> list[Listed]:
    """Return the kernels of these purposes that are not in the cache."""
    found = []
    for entry in listed(wanted):
        try:
            if entry.is_missing():
                found.append(entry)
        except (AttributeError, ImportError, TypeError, ValueError):  # a kernel that the list has wrong
            continue
    return found


def compile_all(processes: int, advance: Callable[[int], None] = lambda _: None) -> int:
    """Compile all kernels of the list that are not in the cache, in several processes; return how many these were.

    `advance` is called with the number of kernels finished since the last call.
    """
    wanted, done = purposes(), 0
    absent = missing(wanted)
    if kernel_folder() is None or not absent:
        return 0
    running = [start_process(wanted) for _ in range(min(processes, len(absent)))]
    while any(process.poll() is None for process in running):
        time.sleep(0.2)
        finished = sum(not entry.is_missing() for entry in absent)
        advance(finished - done)
        done = finished
    return sum(not entry.is_missing() for entry in absent)


class _Absent:
    """The kernels that were not in the cache when the command started, and the processes that compile them."""

    def __init__(self) -> None:
        self.kernels: list[Listed] = []
        self.processes: list[subprocess.Popen[bytes]] = []


_absent = _Absent()


def compile_ahead(*wanted: str, processes: int) -> None:
    """Let other processes, up to `processes` with this one, compile what is missing while this one continues."""
    _absent.kernels = missing(wanted)
    if kernel_folder() is None:  # other processes could not pass on what they compile
        return
    running = sum(process.poll() is None for process in _absent.processes)
    for _ in range(min(processes - 1, MOST_PROCESSES, len(_absent.kernels) - 1) - running):
        _absent.processes.append(start_process(wanted))


def compilation_state() -> str:
    """A line on how many kernels of the command are compiled."""
    done, total = sum(not entry.is_missing() for entry in _absent.kernels), len(_absent.kernels)
    count = f": {done} of {total} done" if done < total else ""
    return f"compiling kernels, once on this machine{count}"


def start_process(wanted: Iterable[str]) -> subprocess.Popen[bytes]:
    """Start a process that compiles the kernels of these purposes; it ends with this one if not before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "xmtc.core.compile_ahead", *wanted],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(_stop, process)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        process.wait()


def main(wanted: list[str]) -> None:
    """Compile the kernels of these purposes that no other process is compiling."""
    parent = os.getppid()
    for entry in missing(wanted):
        if os.getppid() != parent:
            return
        with suppress(Exception):  # types that the kernel no longer accepts
            entry.compile()


if __name__ == "__main__":
    main(sys.argv[1:])
