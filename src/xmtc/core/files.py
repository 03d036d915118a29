"""Read files, plain or compressed, and write files atomically."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import secrets
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from filelock import FileLock, Timeout

from xmtc.core.errors import DataError, shown
from xmtc.core.parsing import parse_json

COMPRESSED = (".gz", ".xz", ".zst", ".bz2")
MOST_LINE = 1 << 30
"""Maximum bytes of a line; a compressed file of a few megabytes can expand beyond the available memory."""
_MOST_LOOKED_AT = 1 << 26
_MARK = b"\xef\xbb\xbf"
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}  # none of them is UTF-8
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")  # a text file may also start with "BZh"


def plain_name(path: str | Path) -> str:
    """Return the file name without a compression suffix, in lower case: 'Train.jsonl.xz' → 'train.jsonl'."""
    name = Path(path).name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return name


def has_surrogate(text: str) -> bool:
    """Whether a text contains an unpaired surrogate, which JSON and Python allow and UTF-8 does not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def is_compressed(start: bytes) -> bool:
    """Whether the bytes start with the signature of a compressed file."""
    return start.startswith(tuple(_MAGIC))


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file, or standard input for '-', as decompressed bytes; compression is detected by content, not name."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    path = Path(path)
    try:
        if not path.exists():
            raise DataError(f"{path}: no such file. Check the path.")
        if path.is_dir():
            raise DataError(f"{path}: is a folder, not a file. Pass a file in it.")
        if not path.is_file():  # a pipe cannot be read twice, once to detect the format and once for the data
            raise DataError(f"{path}: is not a regular file. Pass a file, or '-' for standard input.")
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror}). Check the path and its permissions.") from None
    with raw, unchanged(path):
        head = raw.read(10)
        raw.seek(0)
        kind = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), "")
        if _BZIP2.match(head) or (path.suffix.lower() == ".bz2" and head.startswith(b"BZh")):
            kind = ".bz2"
        with _decompressor(raw, kind) as stream:
            yield stream


@contextmanager
def unchanged(path: str | Path) -> Iterator[None]:
    """Raise `DataError` if the file was modified while the block ran."""

    def state() -> tuple[int, int, int] | None:
        try:
            status = os.stat(path)
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    before = state()
    yield
    if before != state():
        raise DataError(f"{path}: changed while it was being read. Try again when no other process is writing to it.")


def content_hash(path: str | Path) -> str:
    """Hash the bytes of a file as stored, or of all files in a folder."""
    digest = hashlib.blake2b(digest_size=32)
    path = Path(path)
    parts = sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]
    for part in parts:
        with open_bytes(part):  # raises its error message if the file cannot be read
            pass
        if path.is_dir():
            digest.update(f"{part.relative_to(path)}\0{part.stat().st_size}\0".encode())
        with part.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def first_bytes(path: str | Path, size: int = 1 << 16) -> bytes:
    """Return complete lines from the start of a file, at least one; standard input is peeked, not consumed.

    If the first `size` bytes are blank, the result starts with the first block that is not.
    """
    if str(path) == "-":
        return cast("io.BufferedReader", sys.stdin.buffer).peek(size)[:size]
    with open_bytes(path) as stream:
        start = block = _read(stream.read, size, path)
        mark = start[: len(_MARK)] if start.startswith(_MARK) else b""
        while block and not start[len(mark) :].strip():
            block = _read(stream.read, 1 << 20, path)
            start = mark + (block or start[len(mark) :])
        while block and b"\n" not in start.lstrip() and len(start) < _MOST_LOOKED_AT:
            block = _read(stream.read, len(start), path)
            start += block
    return start[: start.rfind(b"\n") + 1] or start


def _decompressor(raw: BinaryIO, kind: str) -> BinaryIO:
    if kind == ".gz":
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw))
    if kind == ".xz":
        return cast("BinaryIO", lzma.LZMAFile(raw))
    if kind == ".bz2":
        return cast("BinaryIO", bz2.BZ2File(raw))
    if kind == ".zst":
        import pyarrow as pa

        return cast("BinaryIO", io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")))
    return raw


def read_blocks(path: str | Path, size: int = 1 << 20) -> Iterator[bytes]:
    """Yield blocks of about `size` bytes that end at a line end (except perhaps the last)."""
    with open_bytes(path) as stream:
        rest: list[bytes] = []  # start of a line that is not complete yet
        held = 0  # bytes in `rest`
        while True:
            # Lines from a pipe are processed as they arrive, not when a block is full.
            block = _read(stream.read1 if str(path) == "-" else stream.read, size, path)  # type: ignore[attr-defined]
            if not block:
                break
            cut = block.rfind(b"\n") + 1
            if cut == 0:
                rest.append(block)
                held += len(block)
                if held > MOST_LINE:
                    raise DataError(
                        f"{path}: a line has more than {MOST_LINE:,} bytes. Check that this is the right file."
                    )
                continue
            yield b"".join([*rest, block[:cut]])
            rest = [block[cut:]] if cut < len(block) else []
            held = len(block) - cut
        if rest:
            yield b"".join(rest)


def _read(read: Callable[[int], bytes], size: int, path: str | Path) -> bytes:
    try:
        return read(size)
    except (EOFError, lzma.LZMAError, zlib.error, OSError, ValueError) as error:
        reason = shown(str(error) or type(error).__name__, 120).rstrip(".")
        raise DataError(f"{path}: damaged or truncated ({reason}). Download or create the file again.") from None


def decode_line(line: bytes, path: str | Path, number: int) -> str:
    """Decode a UTF-8 line; strip a byte order mark and a carriage return."""
    try:
        return line.decode("utf-8").removeprefix("\ufeff").rstrip("\r")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: not UTF-8 (byte {line[error.start]:#04x} at column {error.start + 1}). "
            "Convert the file to UTF-8."
        ) from None


def raise_error(error: DataError) -> None:
    """Raise the error; the default handler for invalid lines."""
    raise error from None


def parse_lines(
    block: bytes, path: str | Path, before: int, example: str, bad: Callable[[DataError], None] = raise_error
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for each non-blank line; `before` is the number of lines before this block.

    `bad` is called for a line that is not a JSON object; if it does not raise, the line is skipped.
    """
    for number, line in enumerate(block.split(b"\n"), start=before + 1):
        try:
            text = decode_line(line, path, number)
            value = None if not text or text.isspace() else _parsed(text, f"{path}:{number}", example)
        except DataError as error:
            bad(error)
            continue
        if value is not None:
            yield number, value


def _parsed(text: str, place: str, example: str) -> dict[str, Any]:
    try:
        value = parse_json(text, any_number=True)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at").rstrip(": ")
        raise DataError(
            f"{place}: invalid JSON ({what} at column {error.colno}). Write one object per line: {example}."
        ) from None
    except ValueError:
        raise DataError(f"{place}: JSON is nested too deeply, or a number is too long. Write {example}.") from None
    if not isinstance(value, dict):
        raise DataError(f"{place}: not a JSON object. Write one object per line: {example}.")
    return value


@contextmanager
def replace_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Write a file atomically: under a temporary name, renamed if the block succeeds and deleted otherwise.

    Output is compressed if the name ends in .gz, .xz, .zst or .bz2. Symbolic links are followed; pipes and devices
    are written directly.
    """
    path = Path(path)
    if path.is_symlink():
        path = path.resolve()
    if path.exists() and not path.is_file() and not path.is_dir():
        with writing(path), path.open("wb") as stream:
            yield stream
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with writing(path):
            with temporary.open("wb") as raw:
                with _compressor(raw, path.suffix.lower()) as stream:
                    yield stream
                raw.flush()
                os.fsync(raw.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert `OSError` to a `DataError` that names the path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or shown(str(error))
        raise DataError(f"{path}: cannot be written ({reason}). Free disk space or choose another path.") from None


@contextmanager
def locked(folder: Path, busy: str | None = None) -> Iterator[None]:
    """Lock a folder so that one process at a time uses it; the lock is released if its process dies.

    A second process waits, or fails with the message `busy`. The lock is a hidden file next to the folder, deleted on
    release. If the parent folder is read-only or its file system has no locks, the lock is in the temporary folder.
    """
    place = folder.resolve()
    digest = hashlib.blake2b(os.fsencode(place), digest_size=16).hexdigest()
    for path in (place.with_name(f".{place.name}.lock"), Path(tempfile.gettempdir(), f"xmtc-{digest}.lock")):
        lock = FileLock(path, fallback_to_soft=False)
        try:
            lock.acquire(blocking=busy is None)
        except Timeout:
            raise DataError(f"{folder}: {busy}") from None
        except OSError:
            continue
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes it when it is released
                path.unlink()
            lock.release()
        return
    yield


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    with replace_file(path) as stream:
        stream.write((json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def plain_cell(text: str) -> str:
    """A text cell of a table for people: an apostrophe in front if a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def check_output_folder(folder: Path, is_own: Callable[[Path], bool] = lambda path: False, use: str = "") -> None:
    """Raise `DataError` if an output path is a file, or a folder with files for which `is_own` is false.

    `use` completes the remedy "Pass a folder …".
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file. Pass a folder{use and ' ' + use}.")
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not is_own(path):
            raise DataError(f"{folder}: contains other files ('{shown(path.name)}'). Choose a new or empty folder.")


def make_folder(path: Path) -> None:
    """Create a folder and its parents unless it exists."""
    if path.exists() and not path.is_dir():
        raise DataError(f"{path}: is a file. Pass a folder.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be created ({error.strerror}). Choose another path.") from None


def sync_folder(folder: Path) -> None:
    """Flush renames in a folder to disk, so that they survive a power failure, if the system supports it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _compressor(raw: IO[bytes], kind: str) -> AbstractContextManager[IO[bytes]]:
    """Return a stream that compresses into `raw`, which stays open."""
    if kind == ".gz":
        return cast("IO[bytes]", gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
    if kind == ".xz":
        return lzma.LZMAFile(raw, mode="wb")
    if kind == ".bz2":
        return bz2.BZ2File(raw, mode="wb")
    if kind == ".zst":
        import pyarrow as pa

        own = open(os.dup(raw.fileno()), "wb")  # noqa: SIM115 (Arrow closes what it writes to)
        return cast("IO[bytes]", pa.CompressedOutputStream(pa.PythonFile(own, mode="w"), "zstd"))
    return nullcontext(raw)
