"""Files mapped into memory whose pages can be let go once they have been read through."""

from __future__ import annotations

import mmap
import weakref
from typing import IO

import numpy as np
import pyarrow as pa

_mappings: weakref.WeakKeyDictionary[mmap.mmap, int] = weakref.WeakKeyDictionary()  # → address of the first byte


def map_file(stream: IO[bytes]) -> pa.Buffer:
    """The bytes of an open file; the mapping lives as long as the buffer and what is cut from it."""
    mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    _mappings[mapped] = int(np.frombuffer(mapped, dtype=np.uint8).ctypes.data)
    return pa.py_buffer(mapped)


def let_go(text: pa.Array) -> None:
    """Drop the pages of a string array from this process where a mapped file can give them back."""
    data = text.buffers()[2]
    if data is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    for mapped, start in list(_mappings.items()):
        if start <= data.address < start + len(mapped):
            offsets = np.frombuffer(text.buffers()[1], dtype=np.int32)
            first = data.address - start + int(offsets[text.offset])
            last = data.address - start + int(offsets[text.offset + len(text)])
            aligned = first - first % mmap.PAGESIZE
            mapped.madvise(mmap.MADV_DONTNEED, aligned, last - aligned)
