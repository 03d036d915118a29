"""What a failure of the machine, not of the input, prints: memory, disks, standard output, libraries."""

from __future__ import annotations

import contextlib
import errno
import io
import shutil
import sys
import tempfile
from typing import Any

from xmtc.core.errors import XmtcError, reinstall_command, shown

_MEMORY = ("bad_alloc", "allocate memory", "unable to allocate", "out of memory", "failed to map segment")
_THREADS = "start new thread"
_LIBRARY = ("shared object", "DLL load failed", "dlopen", "image not found", ".so:", ".so.")
_LITTLE_BYTES = 1 << 20
_LEAST_MEMORY = 800 << 20


def failure_line(error: BaseException) -> str | None:
    """One line on an error that the machine caused; None for any other error, which is a bug."""
    words = str(error).lower()
    if (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, (RuntimeError, ImportError, OSError)) and any(word in words for word in _MEMORY))
        or (isinstance(error, SystemError) and "returned null" in words)  # libraries that fail without an exception
    ):
        return (
            "out of memory. Use fewer features (--set text.max_features=N), fewer threads (--threads 1), "
            "a higher memory limit (ulimit -v) or a machine with more memory."
        )
    if isinstance(error, RuntimeError) and _THREADS in words:
        return "no more threads can be started. Use --threads 1, or raise the limits on memory and processes (ulimit)."
    if isinstance(error, ImportError):
        name = (error.name or "").split(".")[0]
        what, remedy = (name, reinstall_command(name)) if name else ("a package", "xmtc doctor")
        return f"{what} cannot be loaded ({_reason(error)}). Repair the installation: {remedy}"
    if isinstance(error, OSError):
        return _system_line(error)
    return None


def check_memory_limit() -> None:
    """Refuse a limit on the address space with which libraries abort the process instead of raising an error."""
    with contextlib.suppress(ImportError):  # Windows has no such limit
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY and limit < _LEAST_MEMORY:
            raise MemoryLimitError(
                f"the memory limit of {limit >> 20:,} MiB (ulimit -v) is too low. Raise it to at least 1 GiB."
            )


class MemoryLimitError(XmtcError, MemoryError):
    """A limit on memory with which no command can work."""


def _system_line(error: OSError) -> str:
    check = "Check the path, permissions and free disk space."
    if error.filename is not None:
        return f"{error.filename}: {error.strerror or _reason(error)}. {check}"
    if _stdout_fails():
        return f"standard output: {error.strerror or _reason(error)}. {check}"
    if "temporary directory" in str(error):
        return "no folder for temporary files can be written. Free disk space, or set TMPDIR to another folder."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{_full_place()}. Free disk space, or set TMPDIR to another folder."
    if any(word in str(error) for word in _LIBRARY):
        return f"a shared library cannot be loaded ({_reason(error)}). Install it, or check with: xmtc doctor"
    return f"{error.strerror or _reason(error)}. Check permissions, free disk space and system limits."


class WatchedOutput(io.FileIO):
    """Standard output that remembers a failed write, since the error itself does not name its file."""

    failed = False

    def write(self, data: Any) -> int:
        if self.failed:  # what is left in the buffer when the process ends
            return len(data)
        try:
            return super().write(data)
        except OSError:
            self.failed = True
            raise


def watched(stdout: io.TextIOWrapper) -> io.TextIOWrapper:
    """Standard output with the same settings, whose failures `failure_line` recognises."""
    if not isinstance(_raw(stdout), io.FileIO):
        return stdout
    stdout.flush()
    raw = WatchedOutput(stdout.fileno(), "wb", closefd=False)
    buffer: Any = raw if isinstance(stdout.buffer, io.FileIO) else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffer, stdout.encoding, "replace", line_buffering=stdout.line_buffering, write_through=stdout.write_through
    )


def _raw(stream: Any) -> Any:
    buffer = getattr(stream, "buffer", None)  # unbuffered with PYTHONUNBUFFERED
    return getattr(buffer, "raw", buffer)


def _stdout_fails() -> bool:
    raw = _raw(sys.stdout)
    return isinstance(raw, WatchedOutput) and raw.failed


def _full_place() -> str:
    with contextlib.suppress(OSError):
        folder = tempfile.gettempdir()
        if shutil.disk_usage(folder).free < _LITTLE_BYTES:
            return f"{folder}: no space left for temporary files"
    return "no space left on a disk"


def _reason(error: BaseException) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return shown(lines[0], 160).rstrip(".")
