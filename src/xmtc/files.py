"""Opening what a user names, compressed or plain, and writing what a user keeps, whole or not at all."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

from xmtc.errors import DataError

COMPRESSED = (".gz", ".xz", ".zst", ".bz2")
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst", b"BZh": ".bz2"}


def plain_name(path: str | Path) -> str:
    """The file name without a compression suffix, lower-cased: 'Train.jsonl.xz' → 'train.jsonl'."""
    name = Path(path).name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return name


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Decompressed bytes of a file, or of standard input for '-'; compression is told by content, not by name."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file. Check the path.")
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a file. Name a file in it.")
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror}). Check its permissions.") from None
    with raw:
        head = raw.read(6)
        raw.seek(0)
        kind = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), "")
        with _decompressor(raw, kind) as stream:
            yield stream


def first_bytes(path: str | Path, size: int = 1 << 16) -> bytes:
    """The start of a file; of standard input what has arrived, which stays to be read."""
    if str(path) == "-":
        return cast("io.BufferedReader", sys.stdin.buffer).peek(size)[:size]
    return next(iter(read_blocks(path, size)), b"")


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


def read_blocks(path: str | Path, size: int = 1 << 22) -> Iterator[bytes]:
    """Blocks of about `size` bytes that end at a line end (the last may not); a damaged archive is a `DataError`."""
    with open_bytes(path) as stream:
        rest = b""
        while True:
            # A pipe is answered as its lines come, not when a block is full.
            block = _read(stream.read1 if str(path) == "-" else stream.read, size, path)  # type: ignore[attr-defined]
            if not block:
                break
            cut = block.rfind(b"\n") + 1
            if cut == 0:
                rest += block
                continue
            yield rest + block[:cut] if rest else block[:cut]
            rest = block[cut:]
        if rest:
            yield rest


def _read(read: Callable[[int], bytes], size: int, path: str | Path) -> bytes:
    try:
        return read(size)
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise DataError(f"{path}: damaged or cut short ({reason}). Fetch or write the file again.") from None


@contextmanager
def replace_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A file under a temporary name that takes its real name when the block ends well, and vanishes otherwise."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        stream = temporary.open("wb")
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}). Choose another place.") from None
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
