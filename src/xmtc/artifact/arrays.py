"""Arrays in safetensors files: written one by one, read by memory mapping."""

from __future__ import annotations

import json
import math
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xmtc.core.errors import ModelFormatError, shown
from xmtc.core.parsing import parse_json

_TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
_CODES = {np.dtype(kind): code for code, kind in _TYPES.items()}
LONGEST_HEADER = 100_000_000
"""Maximum size of a header in bytes, as in the safetensors library."""
Shapes = Mapping[str, tuple[tuple[int, ...], DTypeLike]]
"""Shape and data type of each array, by name."""


@dataclass(frozen=True)
class Later:
    """An array that is created only when it is written, and released afterwards."""

    shape: tuple[int, ...]
    dtype: DTypeLike
    make: Callable[[], NDArray[Any]]

    def materialise(self) -> NDArray[Any]:
        """Create the array; raise `ValueError` if its shape or data type is not as announced."""
        array = self.make()
        if array.shape != tuple(self.shape) or array.dtype != np.dtype(self.dtype):
            raise ValueError(f"got {array.dtype}{list(array.shape)}, expected {np.dtype(self.dtype)}{list(self.shape)}")
        return array


def write_arrays(
    stream: IO[bytes], arrays: Mapping[str, NDArray[Any] | Later], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays in the safetensors format, one by one, without a second copy in memory."""
    start, entries = _header({name: (array.shape, array.dtype) for name, array in arrays.items()}, metadata)
    stream.write(start)
    for name in entries:
        _write_array(stream, arrays[name])


def _write_array(stream: IO[bytes], array: NDArray[Any] | Later) -> None:
    content = array.materialise() if isinstance(array, Later) else array
    stream.write(np.ascontiguousarray(content).reshape(-1).view(np.uint8).data)


@contextmanager
def new_arrays(
    stream: IO[bytes], shapes: Shapes, metadata: Mapping[str, str] | None = None
) -> Iterator[dict[str, NDArray[Any]]]:
    """Create zero arrays of these shapes and types in a safetensors file, writable through a mapping within the block.

    `stream` is a new named file. The dictionary is emptied at the end, since mappings keep the file open.
    """
    start, entries = _header(shapes, metadata)
    stream.write(start)
    _allocate(stream, max((entry["data_offsets"][1] for entry in entries.values()), default=0))
    mapped = np.memmap(stream.name, dtype=np.uint8, mode="r+")
    arrays = {name: _view(mapped, len(start), entry) for name, entry in entries.items()}
    try:
        yield arrays
        mapped.flush()
    finally:
        arrays.clear()


def _allocate(stream: IO[bytes], size: int) -> None:
    """Append zeros and allocate disk space now: writing to a mapping on a full disk would kill the process."""
    stream.flush()
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(stream.fileno(), stream.tell(), size)
        return
    block = bytes(min(size, 1 << 20))
    for first in range(0, size, 1 << 20):
        stream.write(block[: size - first])
    stream.flush()


def _header(shapes: Shapes, metadata: Mapping[str, str] | None) -> tuple[bytes, dict[str, dict[str, Any]]]:
    """Return the header of a safetensors file, and the entries of the arrays in file order."""
    kinds: dict[str, np.dtype[Any]] = {name: np.dtype(kind) for name, (_, kind) in shapes.items()}
    entries: dict[str, dict[str, Any]] = {}
    end = 0
    # Widest types first: every array then starts at a multiple of its item size.
    for name in sorted(shapes, key=lambda name: (-kinds[name].itemsize, name)):
        shape = [int(count) for count in shapes[name][0]]
        start, end = end, end + math.prod(shape) * kinds[name].itemsize
        entries[name] = {"dtype": _CODES[kinds[name]], "shape": shape, "data_offsets": [start, end]}
    header = {"__metadata__": dict(metadata), **entries} if metadata else entries
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, entries


def map_bytes(path: Path) -> tuple[NDArray[np.uint8], os.stat_result]:
    """Memory-map a file; return its bytes with the status of exactly this file."""
    try:
        # A pipe in place of a file would block until another process writes to it.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(path, flags), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("not a regular file")
            empty = not status.st_size
            return np.empty(0, np.uint8) if empty else np.memmap(stream, dtype=np.uint8, mode="r"), status
    except FileNotFoundError:
        raise ModelFormatError(f"{path}: missing, so the folder is damaged. Copy or train the model again.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFormatError(f"{path}: cannot be read ({reason}). Check its permissions.") from None


def release_pages(mapped: NDArray[np.uint8]) -> None:
    """Give the pages of a mapped file back to the system, which reads them again when they are used."""
    pages = getattr(mapped, "_mmap", None)
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def map_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Memory-map the arrays of a safetensors file; return them with the metadata."""
    return arrays_in(map_bytes(path)[0], path)


def arrays_in(mapped: NDArray[np.uint8], path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays in the bytes of a safetensors file, without a copy, and the metadata."""
    try:
        length = int.from_bytes(mapped[:8].tobytes(), "little")
        if length > len(mapped) - 8:
            raise ValueError("header longer than the file")
        if length > LONGEST_HEADER:
            raise ValueError(f"a header of {length:,} bytes")
        header = parse_json(mapped[8 : 8 + length].tobytes())
        metadata = header.pop("__metadata__", {})
        arrays = {name: _view(mapped, 8 + length, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFormatError(
            f"{path}: not a readable safetensors file ({shown(str(error))}). Copy or train the model again."
        ) from None
    return arrays, metadata


def _view(mapped: NDArray[np.uint8], start: int, entry: Mapping[str, Any]) -> NDArray[Any]:
    first, last = entry["data_offsets"]
    kind = np.dtype(_TYPES[entry["dtype"]])
    shape = tuple(int(count) for count in entry["shape"])
    if any(count < 0 for count in shape) or not 0 <= first <= last <= len(mapped) - start:
        raise ValueError("an array extends beyond the file")
    if last - first != kind.itemsize * math.prod(shape):
        raise ValueError("the size of an array does not match its shape")
    view = mapped[start + first : start + last].view(kind).reshape(shape).view(np.ndarray)
    return view if view.flags.aligned else view.copy()
