"""Opening what a user names, compressed or plain, and writing what a user keeps, whole or not at all."""

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

COMPRESSED = (".gz", ".xz", ".zst", ".bz2")
MOST_LINE = 1 << 30
"""Bytes of a line; an archive of a few megabytes can hold more than memory does."""
_MOST_LOOKED_AT = 1 << 26
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}  # none of them is UTF-8
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")  # its first three letters alone may begin a text


def plain_name(path: str | Path) -> str:
    """The file name without a compression suffix, lower-cased: 'Train.jsonl.xz' → 'train.jsonl'."""
    name = Path(path).name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return name


def has_surrogate(text: str) -> bool:
    """Half a surrogate pair, which JSON and Python can hold and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def is_compressed(start: bytes) -> bool:
    """Whether bytes are the beginning of a compressed file."""
    return start.startswith(tuple(_MAGIC))


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Decompressed bytes of a file, or of standard input for '-'; compression is told by content, not by name."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    path = Path(path)
    try:
        if not path.exists():
            raise DataError(f"{path}: no such file. Check the path.")
        if path.is_dir():
            raise DataError(f"{path}: is a folder, not a file. Name a file in it.")
        if not path.is_file():  # a pipe cannot be read twice: once to tell the format, once for its lines
            raise DataError(f"{path}: is not a regular file. Write a file, or use standard input, '-'.")
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
    """Refuse a file that somebody wrote to between the beginning and the end of the block."""

    def state() -> tuple[int, int, int] | None:
        try:
            now = os.stat(path)
        except OSError:
            return None
        return now.st_ino, now.st_size, now.st_mtime_ns

    before = state()
    yield
    if before != state():
        raise DataError(f"{path}: changed while it was read. Read it again when nobody writes to it.")


def content_hash(path: str | Path) -> str:
    """A hash of a file's bytes as they stand, or of all files of a folder."""
    digest = hashlib.blake2b(digest_size=32)
    path = Path(path)
    parts = sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]
    for part in parts:
        with open_bytes(part):  # for its words on what cannot be read
            pass
        if path.is_dir():
            digest.update(f"{part.relative_to(path)}\0{part.stat().st_size}\0".encode())
        with part.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def first_bytes(path: str | Path, size: int = 1 << 16) -> bytes:
    """Whole lines from the start of a file, one at least; of standard input what has arrived, which stays there."""
    if str(path) == "-":
        return cast("io.BufferedReader", sys.stdin.buffer).peek(size)[:size]
    with open_bytes(path) as stream:
        start = block = _read(stream.read, size, path)
        while block and b"\n" not in start and len(start) < _MOST_LOOKED_AT:
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
    """Blocks of about `size` bytes that end at a line end (the last may not); a damaged archive is a `DataError`."""
    with open_bytes(path) as stream:
        rest: list[bytes] = []  # the beginning of a line whose end is still to come
        held = 0  # its bytes
        while True:
            # A pipe is answered as its lines come, not when a block is full.
            block = _read(stream.read1 if str(path) == "-" else stream.read, size, path)  # type: ignore[attr-defined]
            if not block:
                break
            cut = block.rfind(b"\n") + 1
            if cut == 0:
                rest.append(block)
                held += len(block)
                if held > MOST_LINE:
                    raise DataError(
                        f"{path}: a line of more than {MOST_LINE:,} bytes. Check that this is the right file."
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
        raise DataError(f"{path}: damaged or cut short ({reason}). Fetch or write the file again.") from None


def decode_line(line: bytes, path: str | Path, number: int) -> str:
    """A line as text, without a byte order mark and a carriage return."""
    try:
        return line.decode("utf-8").removeprefix("\ufeff").rstrip("\r")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: not UTF-8 (byte {line[error.start]:#04x} at column {error.start + 1}). "
            "Convert the file to UTF-8."
        ) from None


def raise_error(error: DataError) -> None:
    """What a bad line means unless a reader says otherwise."""
    raise error from None


def parse_lines(
    block: bytes, path: str | Path, before: int, example: str, bad: Callable[[DataError], None] = raise_error
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line that is not blank; `before` lines went before this block.

    `bad` is told of a line that is no object; if it raises nothing, the line is left out.
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
        value = json.loads(text)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at").rstrip(": ")
        raise DataError(
            f"{place}: not JSON ({what} at column {error.colno}). Write one object a line: {example}."
        ) from None
    except (RecursionError, ValueError):
        raise DataError(f"{place}: JSON nested or a number written too long. Write {example}.") from None
    if not isinstance(value, dict):
        raise DataError(f"{place}: not a JSON object. Write one object a line: {example}.")
    return value


@contextmanager
def replace_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A file under a temporary name that takes its real name when the block ends well, and vanishes otherwise.

    A name that ends in .gz, .xz, .zst or .bz2 compresses what is written. A link is followed; a pipe or a device, which
    has no content to lose, is written to directly.
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
    """What the system refuses, in words."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or shown(str(error))
        raise DataError(f"{path}: cannot be written ({reason}). Free space or choose another place.") from None


@contextmanager
def locked(folder: Path, busy: str | None = None) -> Iterator[None]:
    """One process at a time in a folder; the lock of a process that dies is released.

    A second one waits, or is refused with the words in `busy`. The lock is a hidden file beside the folder, which is
    gone when the lock is released; where the place beside is read-only, or its file system has no locks, it is a file
    among the temporary files of this machine.
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
    """JSON that appears whole or not at all."""
    with replace_file(path) as stream:
        stream.write((json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def check_output_folder(folder: Path, is_own: Callable[[Path], bool] = lambda path: False, use: str = "") -> None:
    """Refuse a place for results that is a file, or a folder that holds files that are not ours.

    `use` completes the remedy "Name a folder …".
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file. Name a folder{use and ' ' + use}.")
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not is_own(path):
            raise DataError(f"{folder}: holds other files ('{shown(path.name)}'). Choose a new or empty folder.")


def make_folder(path: Path) -> None:
    """A folder to write to, made with those above it where it is not there yet."""
    if path.exists() and not path.is_dir():
        raise DataError(f"{path}: is a file. Name a folder.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be made ({error.strerror}). Choose another place.") from None


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last through a power failure, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _compressor(raw: IO[bytes], kind: str) -> AbstractContextManager[IO[bytes]]:
    """Compresses into `raw`, which stays open."""
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
