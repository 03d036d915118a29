"""Unpack untrusted archives: atomically, only inside the target folder, and with a size limit."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, BinaryIO, cast

from xmtc.core.errors import DataError, shown
from xmtc.core.files import open_bytes, sync_folder, writing
from xmtc.core.progress import Progress, Task, silent

MOST_FILES = 200_000
SPARE, RATIO = 100_000_000, 100
"""Limit of the unpacked size: `SPARE` bytes plus `RATIO` × the archive's size. Text compresses to about a tenth."""
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Unpacked:
    """Contents of an unpacked archive."""

    files: int
    size: int
    left_out: tuple[str, ...]
    """Links and devices, which are skipped."""


def unpack(archive: Path, folder: Path, progress: Progress = silent) -> Unpacked:
    """Unpack a tar or zip archive, detected by content, into `folder`; an existing folder is replaced.

    Top-level folders that contain everything else are stripped: 'xmc-base/eurlex-4k/X.txt' becomes 'X.txt'.
    """
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        with writing(folder):
            temporary.mkdir()
        with _reading(archive), bytes_task(progress, f"unpacking {archive.name}", None) as task:
            done = _write_members(archive, temporary, task)
        with writing(folder):
            _replace(_inner(temporary), folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return done


def sweep(folder: Path) -> None:
    """Delete incomplete files that a killed process left in `folder`: hidden names that end in .part."""
    for path in folder.glob(".*.part"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def _write_members(archive: Path, folder: Path, task: Kilobytes) -> Unpacked:
    limit = SPARE + RATIO * archive.stat().st_size
    files = size = 0
    left_out = []
    for name, stream in _members(archive, limit):
        parts = _safe_parts(name, archive)
        if parts[0] == "__MACOSX" or parts[-1] == ".DS_Store" or parts[-1].startswith("._"):
            continue
        if stream is None:
            left_out.append(shown(name))
            continue
        files += 1
        if files > MOST_FILES:
            raise DataError(f"{archive}: contains more than {MOST_FILES:,} files. Unpack it manually.")
        size += _copy(stream, folder.joinpath(*parts), archive, limit - size, task)
    if not files:
        raise DataError(f"{archive}: contains no files. Download it again from another source.")
    return Unpacked(files, size, tuple(left_out))


def _members(archive: Path, limit: int) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Yield names and contents in order, without folders; the content is None for a link or a device."""
    with archive.open("rb") as stream:
        start = stream.read(4)
    if start in (b"PK\x03\x04", b"PK\x05\x06"):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                kind = stat.S_IFMT(entry.external_attr >> 16) if entry.create_system == 3 else 0
                if entry.is_dir():
                    continue
                if kind not in (0, stat.S_IFREG):
                    yield entry.filename, None
                    continue
                with packed.open(entry) as content:
                    yield entry.filename, content
        return
    with open_bytes(archive) as plain:
        bounded = cast("IO[bytes]", _Bounded(plain, archive, limit))
        with tarfile.open(fileobj=bounded, mode="r|") as tar:
            for member in tar:
                if not member.isdir():
                    yield member.name, tar.extractfile(member) if member.isreg() else None


class _Bounded:
    """A stream that raises an error beyond the size limit; also guards against inflated headers."""

    def __init__(self, stream: BinaryIO, archive: Path, limit: int) -> None:
        self._stream, self._archive, self._left = stream, archive, limit + _BLOCK

    def read(self, size: int) -> bytes:
        block = self._stream.read(size)
        self._left -= len(block)
        if self._left < 0:
            raise _too_large(self._archive)
        return block


def _too_large(archive: Path) -> DataError:
    return DataError(
        f"{archive}: unpacks to more than {RATIO} times its size. If you trust the file, unpack it manually."
    )


def _safe_parts(name: str, archive: Path) -> tuple[str, ...]:
    """Split a member's path into folders and name; raise `DataError` if it leads outside the folder."""
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    outside = posix.is_absolute() or windows.drive or windows.root or ".." in (*posix.parts, *windows.parts)
    if outside or not posix.parts or "\0" in name:
        raise DataError(
            f"{archive}: contains '{shown(name)}', a path outside the target folder. Do not trust this file."
        )
    return posix.parts


def _copy(stream: IO[bytes], path: Path, archive: Path, left: int, task: Kilobytes) -> int:
    size = 0
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            target = path.open("xb")
        except (FileExistsError, NotADirectoryError):
            raise DataError(
                f"{archive}: contains two files named '{shown(path.name)}'. Do not trust this file."
            ) from None
    with target:
        while block := stream.read(_BLOCK):
            size += len(block)
            if size > left:
                raise _too_large(archive)
            with writing(path):
                target.write(block)
            task.add(len(block))
        with writing(path):
            target.flush()
            os.fsync(target.fileno())
    return size


def _inner(folder: Path) -> Path:
    """Descend while a folder contains nothing but one folder."""
    while len(inside := list(folder.iterdir())) == 1 and inside[0].is_dir():
        folder = inside[0]
    return folder


def _replace(new: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.old.{secrets.token_hex(4)}.part")
    with suppress(FileNotFoundError):
        folder.rename(old)
    new.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    """Convert errors about a damaged archive to a one-line `DataError`."""
    try:
        yield
    except (
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
        NotImplementedError,
        LZMAError,
        zlib.error,
        tarfile.TarError,
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
    ) as error:
        if isinstance(error, DataError):
            raise
        reason = shown(str(error) or type(error).__name__, 120).rstrip(".")
        message = f"{archive}: damaged, or not a tar or zip ({reason}). Delete it and download it again."
        raise DataError(message) from None


def begins_as(name: str, path: Path) -> bool:
    """Whether the first bytes of a file match its name, and are not an HTML error page."""
    starts = {".gz": b"\x1f\x8b", ".tgz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\x00", ".zip": b"PK"}
    with path.open("rb") as stream:
        start = stream.read(20)
    if start.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return False
    suffix = Path(name).suffix.lower()
    if suffix in (".zip", ".tgz") or ".tar." in name.lower():  # the kind of archive is detected by content
        return start.startswith(tuple(starts.values()))
    return start.startswith(starts.get(suffix, b""))


class Kilobytes:
    """Progress bar in kB for work counted in bytes."""

    def __init__(self, task: Task) -> None:
        self._task, self._bytes = task, 0

    def add(self, size: int) -> None:
        """Advance the bar by `size` bytes."""
        before, self._bytes = self._bytes // 1000, self._bytes + size
        self._task.advance(self._bytes // 1000 - before)


@contextmanager
def bytes_task(progress: Progress, title: str, total: int | None) -> Iterator[Kilobytes]:
    """Open a progress task whose steps are bytes, displayed in kB."""
    with progress.task(f"{title}, kB", None if total is None else total // 1000) as task:
        yield Kilobytes(task)
