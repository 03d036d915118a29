"""Text that grows past a limit moves from memory to a memory-mapped file that has no name and leaves no trace."""

from __future__ import annotations

import tempfile
from typing import IO

import pyarrow as pa

from xmtc.mapping import map_file

LIMIT = 8 << 20


class TextSpool:
    """Collects record batches of text columns; `finish` gives them back as Arrow columns, mapped if they were many."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._batches: list[pa.RecordBatch] = []
        self._held = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchFileWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
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
        if self._writer is None or self._file is None:
            return pa.Table.from_batches(self._batches) if self._batches else pa.table({})
        self._writer.close()
        self._file.flush()
        mapped = map_file(self._file)
        self._file.close()  # the mapping keeps the bytes
        pa.default_memory_pool().release_unused()
        return pa.ipc.open_file(mapped).read_all()
