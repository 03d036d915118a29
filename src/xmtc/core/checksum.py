"""A 64-bit checksum against damaged files, at the speed of memory. It is no protection against deliberate changes.

Each block is a table of 64-bit words. The sums of its columns and of its rows, 1 % of the data, are hashed in order: a
change within one word is always noticed, and so are exchanged words, rows and blocks unless their sums are equal.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import kernel
from xmtc.core.parallel import run_parallel

ROWS, COLUMNS = 256, 256
BLOCK = 8 * ROWS * COLUMNS
"""Bytes of a block; it is still in the processor's cache when it is added up."""
_RANGE = 64 * BLOCK
COMPILED_FROM = 1 << 24
"""Minimum number of bytes for the compiled kernel; for less, compiling it would take longer than adding."""


def checksum(data: bytes | bytearray | memoryview) -> str:
    """The checksum of bytes in memory, as 16 hexadecimal digits."""
    view = memoryview(data).cast("B")
    compiled = len(view) >= COMPILED_FROM
    return _finished([_sums(view[start : start + BLOCK], compiled) for start in range(0, len(view), BLOCK)], len(view))


def file_checksum(path: Path, threads: int = 1) -> str:
    """The checksum of a file's bytes, as 16 hexadecimal digits."""
    size = path.stat().st_size

    def part(start: int) -> bytes:
        block, sums = memoryview(bytearray(BLOCK)), []
        with path.open("rb", buffering=0) as stream:
            stream.seek(start)
            for place in range(start, min(start + _RANGE, size), BLOCK):
                filled, wanted = 0, min(BLOCK, size - place)
                while filled < wanted and (count := stream.readinto(block[filled:wanted])):
                    filled += count
                sums.append(_sums(block[:filled], size >= COMPILED_FROM))
        return b"".join(sums)

    return _finished(list(run_parallel(part, range(0, size, _RANGE), threads)), size)


def _sums(block: memoryview, compiled: bool) -> bytes:
    """The sums of columns and rows modulo 2⁶⁴; a shorter block is filled with zeros."""
    words = np.frombuffer(block if len(block) == BLOCK else bytes(block).ljust(BLOCK, b"\0"), dtype="<u8")
    table = words.astype(np.uint64, copy=False).reshape(ROWS, COLUMNS)
    if compiled:
        columns, rows = np.zeros(COLUMNS, dtype=np.uint64), np.zeros(ROWS, dtype=np.uint64)
        _add_up(table, columns, rows)
    else:
        columns, rows = table.sum(axis=0), table.sum(axis=1)
    return np.concatenate([columns, rows]).astype("<u8", copy=False).tobytes()


@kernel(outputs=("columns", "rows"))
def _add_up(table: NDArray[np.uint64], columns: NDArray[np.uint64], rows: NDArray[np.uint64]) -> None:
    for row in range(table.shape[0]):
        total = np.uint64(0)
        for column in range(table.shape[1]):
            word = table[row, column]
            columns[column] += word
            total += word
        rows[row] = total


def _finished(sums: list[bytes], size: int) -> str:
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    for part in sums:
        digest.update(part)
    return digest.hexdigest()[:16]
