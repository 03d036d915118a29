"""Text in memory or, if large, in a memory-mapped file whose pages can be released after use."""

from __future__ import annotations

import mmap
import tempfile
import weakref
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

LIMIT = 8 << 20
"""Bytes of text to keep in memory; larger texts go to an unnamed temporary file."""

_mappings: weakref.WeakKeyDictionary[mmap.mmap, int] = weakref.WeakKeyDictionary()  # → address of the first byte


def map_file(stream: IO[bytes]) -> pa.Buffer:
    """Memory-map an open file; the mapping lives as long as the buffer and its slices."""
    mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    _mappings[mapped] = int(np.frombuffer(mapped, dtype=np.uint8).ctypes.data)
    return pa.py_buffer(mapped)


def string_offsets(text: pa.Array) -> NDArray[np.int32]:
    """Return the byte offsets of the strings of an array, of shape (n + 1,)."""
    buffer = text.buffers()[1]
    if buffer is None:
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(buffer, dtype=np.int32)[text.offset : text.offset + len(text) + 1]


def cut_texts(texts: pa.ChunkedArray, size: int) -> Iterator[pa.Array]:
    """Yield slices of consecutive texts of up to about `size` bytes, at least one text each, without copying."""
    for chunk in texts.chunks:
        offsets = string_offsets(chunk)
        start = 0
        while start < len(chunk):
            stop = int(np.searchsorted(offsets, int(offsets[start]) + size, side="right")) - 1
            stop = max(start + 1, stop)
            yield chunk.slice(start, stop - start)
            start = stop


def let_go(text: pa.Array) -> None:
    """Release the memory pages of a string array if it is part of a mapped file."""
    data = text.buffers()[2]
    if data is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    for mapped, start in list(_mappings.items()):
        if start <= data.address < start + len(mapped):
            offsets = string_offsets(text)
            first, last = (data.address - start + int(edge) for edge in (offsets[0], offsets[-1]))
            aligned = first - first % mmap.PAGESIZE
            mapped.madvise(mmap.MADV_DONTNEED, aligned, last - aligned)


class TextSpool:
    """Collects record batches of text columns and spills them to a memory-mapped file if they are large."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = LIMIT if limit is None else limit
        self._batches: list[pa.RecordBatch] = []
        self._held = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchFileWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch; spill to disk above the memory limit."""
        self._batches.append(batch)
        self._held += batch.nbytes
        if self._held > self._limit or self._writer is not None:
            self._spill()

    def _spill(self) -> None:
        if self._writer is None:
            self._file = tempfile.TemporaryFile(prefix="xmtc-")  # noqa: SIM115 (lives as long as its mapping)
            self._writer = pa.ipc.new_file(self._file, self._batches[0].schema)
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches, self._held = [], 0

    def finish(self) -> pa.Table:
        """Return all batches as one table, in memory or memory-mapped."""
        if self._writer is None or self._file is None:
            return pa.Table.from_batches(self._batches) if self._batches else pa.table({})
        self._writer.close()
        self._file.flush()
        mapped = map_file(self._file)
        self._file.close()  # the mapping keeps the bytes
        pa.default_memory_pool().release_unused()
        return pa.ipc.open_file(mapped).read_all()
