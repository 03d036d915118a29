"""The cache of compiled kernels on disk.

A kernel is found by the code that it consists of: its own, that of all functions it calls, and the constants it uses.
Changes elsewhere, and copies of the package, need no compilation. numba reads and writes the files; they are in a
folder that only the user may write to.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from filelock import FileLock, Timeout
from numba.core import caching as untyped
from numba.core import dispatcher, extending

from xmtc.core.caches import cache_folder

caching: Any = untyped  # numba's caching has no type annotations
_Intrinsic: Any = extending._Intrinsic

LIBRARIES = {"numba", "numpy", "llvmlite"} | sys.stdlib_module_names
"""Packages whose version is part of the key, instead of their code."""
LONGEST_WAIT = 120.0
"""Seconds to wait for another process that compiles the same kernel."""
UNUSED = 60 * 24 * 3600.0
"""Seconds after which a kernel compiled from former code is removed."""


def kernel_folder() -> Path | None:
    """Return NUMBA_CACHE_DIR, or else `kernels` in the user's cache folder or the package; None if none can be used.

    A folder that other users may write to is not used, because compiled code is run as it is.
    """
    given, parent = os.environ.get("NUMBA_CACHE_DIR"), cache_folder()
    if given:
        places = [Path(given).expanduser()]
    else:
        places = [*([] if parent is None else [parent]), Path(__file__).parents[1] / "__pycache__"]
        places = [place / "kernels" for place in places]
    return next((place for place in places if _is_usable(place)), None)


def _is_usable(folder: Path) -> bool:
    """Create the folder if necessary; only the user, or the administrator, may have access to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        state = folder.stat()
    except OSError:
        return False
    return not hasattr(os, "getuid") or (state.st_uid in (0, os.getuid()) and not state.st_mode & 0o002)


def _options(options: Mapping[str, Any]) -> str:
    """Compiler options as text that is the same in every process; the order of sets is not."""
    return repr(
        [
            (name, sorted(value) if isinstance(value, set | frozenset) else value)
            for name, value in sorted(options.items())
        ]
    )


def code_key(function: Callable[..., Any], options: Any) -> str:
    """Hash a function with all that it calls and all constants it uses, and the versions that compile it."""
    seen: dict[str, bytes] = {}
    _collect(function, seen)
    config: Any = numba.config
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag)
    parts = [repr((versions, platform.machine(), config.BOUNDSCHECK, config.OPT, _options(options))).encode()]
    parts += [b"%s:%s" % (name.encode(), seen[name]) for name in sorted(seen)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]


def _collect(function: Any, seen: dict[str, bytes]) -> None:
    """Add a function and what it refers to: name → code or value."""
    name = f"{function.__module__}.{function.__qualname__}"
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    own = _code(function.__code__) + repr([cell for cell in cells if _is_constant(cell)]).encode()
    if seen.get(name) == own:
        return
    seen[name if name not in seen else f"{name} {hashlib.sha256(own).hexdigest()}"] = own
    for cell in cells:
        _refer(name, cell, set(), seen)
    names = _names(function.__code__)
    for used in sorted(names & function.__globals__.keys()):
        _refer(f"{name} {used}", function.__globals__[used], names, seen)


def _refer(name: str, value: Any, names: set[str], seen: dict[str, bytes]) -> None:
    """Add a value that a function refers to by name; `names` are all names in its code."""
    if isinstance(value, dispatcher.Dispatcher):
        seen[f"{name} options"] = _options(value.targetoptions).encode()
        _collect(value.py_func, seen)
    elif isinstance(value, _Intrinsic):
        _collect(value._defn, seen)
    elif isinstance(value, types.FunctionType) and _is_ours(value.__module__):
        _collect(value, seen)
    elif isinstance(value, types.ModuleType) and _is_ours(value.__name__):
        for used in sorted(names & vars(value).keys()):
            _refer(f"{value.__name__}.{used}", vars(value)[used], names, seen)
    elif isinstance(value, type) and hasattr(value, "_fields"):
        seen[name] = f"{value.__module__}.{value.__qualname__}{value._fields}".encode()
    elif isinstance(value, np.ndarray):
        seen[name] = repr((value.dtype.str, value.shape)).encode() + value.tobytes()
    elif _is_constant(value):
        seen[name] = repr(value).encode()


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] not in LIBRARIES


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_constant(part) for part in value)
    return value is None or isinstance(value, bool | int | float | str | bytes | np.generic)


def _code(code: types.CodeType) -> bytes:
    """What a code object does, without line numbers and file names."""
    constants = [_code(c) if isinstance(c, types.CodeType) else _constant(c) for c in code.co_consts]
    facts = code.co_argcount, code.co_varnames, code.co_names, code.co_freevars, code.co_flags
    return repr((code.co_code, facts, constants)).encode()


def _constant(value: Any) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _names(code: types.CodeType) -> set[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*inner)


class _Files(caching.IndexDataCacheFile):  # type: ignore[misc]
    """The files of a kernel; compiled code is followed by its checksum."""

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as stream:
            stream.write(content + hashlib.sha256(content).digest())

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        if hashlib.sha256(content[:-32]).digest() != content[-32:]:
            raise OSError(f"{name}: damaged")
        return super()._load_data(name)


class _Results(caching.CompileResultCacheImpl):  # type: ignore[misc]
    """Turns compiled kernels into what is saved; the folder exists."""

    def __init__(self, function: Any) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._locator = self
        self._py_file = function.__code__.co_filename

    def ensure_cache_path(self) -> None:
        """The folder exists already."""


@dataclass(frozen=True)
class Use:
    """A kernel that this process used with arguments of these numba types."""

    kernel: str
    types: tuple[Any, ...]
    seconds: float
    """Time to compile it, also in another process; 0 if it was in the cache."""


class _Log:
    """The kernels used so far, and who wants to know of compilations."""

    def __init__(self) -> None:
        self.uses: list[Use] = []
        self.notify: Callable[[], None] | None = None


_log = _Log()


def uses() -> list[Use]:
    """Return the kernels that this process has used so far, in order."""
    return list(_log.uses)


def work_time() -> float:
    """`time.perf_counter` without the time that this process has spent on compiling kernels: once per machine."""
    return time.perf_counter() - sum(use.seconds for use in _log.uses)


def on_compilation(notify: Callable[[], None] | None) -> None:
    """Call `notify`, and no longer what was given before, whenever a kernel is about to be compiled."""
    _log.notify = notify


class KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """The cache of one kernel, as numba's dispatchers use it.

    Only one process compiles a kernel at a time; others wait for it. Whatever cannot be read is compiled again, and
    without a folder, or on a full disk, kernels are compiled in every process.
    """

    def __init__(self, function: Any, options: Any) -> None:
        self._py_func = function
        self._name = f"{function.__module__}:{function.__qualname__}"
        self._impl = _Results(function)
        self._folder = kernel_folder()
        name = f"{function.__module__}.{function.__qualname__}-".removeprefix("xmtc.")
        self._base = name.replace("<", "").replace(">", "")
        self._cache_path = "" if self._folder is None else str(self._folder)
        self._cache_file = _Files(self._cache_path, self._base + code_key(function, options), "")
        self._lock: FileLock | None = None
        self._started = 0.0
        self.enable()

    def is_missing(self, types: tuple[Any, ...], target: Any) -> bool:
        """Whether the kernel would have to be compiled for these types."""
        if self._folder is None:
            return True
        try:
            return self._index_key(types, target.codegen()) not in self._cache_file._load_index()
        except Exception:  # unreadable
            return True

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel for these types; None if it must be compiled, which other processes wait for."""
        target_context.refresh()
        found = self._load(sig, target_context)
        if found is not None:
            _log.uses.append(Use(self._name, sig, 0.0))
            return found
        self._started = time.perf_counter()
        if _log.notify is not None:
            _log.notify()
        if self._lock is None and self.acquire(LONGEST_WAIT):
            found = self._load(sig, target_context)
            if found is not None:
                self.release()
                self._finished(sig)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the kernel compiled for these types."""
        try:
            if self._folder is not None:
                self._save_overload(sig, data)
                self._remove_former(self._folder)
        except Exception:  # a full disk, or numba cannot save it: the next process compiles again
            pass
        finally:
            self.release()
            self._finished(sig)

    def acquire(self, seconds: float) -> bool:
        """Try to become the one process that compiles this kernel."""
        if self._folder is None:
            return False
        lock = FileLock(f"{self._folder / self._cache_file._index_name}.lock", fallback_to_soft=False)
        try:
            lock.acquire(timeout=seconds)
        except (Timeout, OSError, NotImplementedError):
            return False
        self._lock = lock
        return True

    def release(self) -> None:
        """Let other processes use this kernel."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                Path(lock.lock_file).unlink()
            lock.release()

    def _load(self, sig: Any, target_context: Any) -> Any:
        if self._folder is None:
            return None
        try:
            return self._load_overload(sig, target_context)
        except Exception:  # of any kind, depending on what is unreadable
            with suppress(OSError):
                self.flush()
            return None

    def _finished(self, sig: Any) -> None:
        _log.uses.append(Use(self._name, sig, time.perf_counter() - self._started))

    def _remove_former(self, folder: Path) -> None:
        """Remove what was compiled long ago from other code of this kernel."""
        for path in folder.glob(f"{self._base}*.nb?"):
            if time.time() - path.stat().st_mtime > UNUSED and not path.name.startswith(
                self._cache_file._index_name[:-4]
            ):
                path.unlink(missing_ok=True)
