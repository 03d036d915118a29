"""A model folder: JSON, safetensors and Arrow. Nothing here runs code from a file.

`model.json` names content-hashed files beside it and is replaced last, in one step: it alone decides what the model
is, so a save that dies half-way leaves the old model whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from xmtc.errors import DataError, ModelFormatError
from xmtc.files import locked, replace_file, sync_folder

FORMAT = 1
MANIFEST = "model.json"
_OWN_FILE = re.compile(r"^(?:[a-z_]+-[0-9a-f]{16}\.(?:safetensors|arrow)|\.[^/\\]*\.part)$")
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
Shapes = Mapping[str, tuple[tuple[int, ...], DTypeLike]]
"""The shape and the type of each array, by its name."""


@dataclass
class State:
    """What a model hands over to be kept: plain values, arrays and tables."""

    values: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)


# ---- safetensors


@dataclass(frozen=True)
class Later:
    """An array that is made when its turn to be written comes, and let go after that."""

    shape: tuple[int, ...]
    dtype: DTypeLike
    make: Callable[[], NDArray[Any]]

    def made(self) -> NDArray[Any]:
        array = self.make()
        if array.shape != tuple(self.shape) or array.dtype != np.dtype(self.dtype):
            raise ValueError(
                f"{array.dtype}{list(array.shape)} made in place of {np.dtype(self.dtype)}{list(self.shape)}"
            )
        return array


def write_arrays(
    stream: IO[bytes], arrays: Mapping[str, NDArray[Any] | Later], metadata: Mapping[str, str] | None = None
) -> None:
    """Arrays in the safetensors format, written one by one so that nothing is held twice."""
    start, entries = _header({name: (array.shape, array.dtype) for name, array in arrays.items()}, metadata)
    stream.write(start)
    for name in entries:
        _write_array(stream, arrays[name])


def _write_array(stream: IO[bytes], array: NDArray[Any] | Later) -> None:
    content = array.made() if isinstance(array, Later) else array
    stream.write(np.ascontiguousarray(content).reshape(-1).view(np.uint8).data)


@contextmanager
def new_arrays(
    stream: IO[bytes], shapes: Shapes, metadata: Mapping[str, str] | None = None
) -> Iterator[dict[str, NDArray[Any]]]:
    """Zeros of these shapes and types in the safetensors format, mapped to be written to until the block ends.

    `stream` is a new file with a name. The arrays leave the dictionary at the end: a mapping holds the file open.
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
    """Add zeros, and take the room for them now: a disk that is full when a mapping is written to kills the process."""
    stream.flush()
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(stream.fileno(), stream.tell(), size)
        return
    block = bytes(min(size, 1 << 20))
    for first in range(0, size, 1 << 20):
        stream.write(block[: size - first])
    stream.flush()


def _header(shapes: Shapes, metadata: Mapping[str, str] | None) -> tuple[bytes, dict[str, dict[str, Any]]]:
    """What a safetensors file begins with, and the entry of each array in the order in which they follow."""
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


def map_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays of a safetensors file, mapped and not read, and its metadata."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > size - 8:
                raise ValueError("header longer than the file")
            header = json.loads(stream.read(length))
        start = 8 + length
        metadata = header.pop("__metadata__", {})
        mapped = np.memmap(path, dtype=np.uint8, mode="r", offset=0) if size > start else np.empty(size, np.uint8)
        arrays = {name: _view(mapped, start, entry) for name, entry in header.items()}
    except FileNotFoundError:
        raise ModelFormatError(f"{path}: missing. The folder is damaged: copy or train it again.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFormatError(f"{path}: not a readable safetensors file ({error}).") from None
    return arrays, metadata


def _view(mapped: NDArray[np.uint8], start: int, entry: Mapping[str, Any]) -> NDArray[Any]:
    first, last = entry["data_offsets"]
    kind = np.dtype(_TYPES[entry["dtype"]])
    shape = tuple(int(count) for count in entry["shape"])
    if not 0 <= first <= last <= len(mapped) - start or last - first != kind.itemsize * int(np.prod(shape)):
        raise ValueError("an array lies outside the file")
    return mapped[start + first : start + last].view(kind).reshape(shape).view(np.ndarray)


# ---- the model folder


def is_model(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def is_own(path: Path) -> bool:
    """Whether a file's name is one that a save gives: what a killed first save leaves is no stranger's file."""
    return _OWN_FILE.match(path.name) is not None


def write_folder(folder: Path, manifest: Mapping[str, Any], state: State) -> None:
    """Write or replace a model. Until the last rename, the folder holds the old model."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made ({error.strerror}). Choose another place.") from None
    with locked(folder):
        files = {"arrays": _write_part(folder, "arrays", "safetensors", lambda s: write_arrays(s, state.arrays))}
        for name, content in state.tables.items():
            files[name] = _write_part(folder, name, "arrow", _arrow_writer(content))
        whole = {"format": FORMAT, **manifest, "state": state.values, "files": files}
        sync_folder(folder)
        write_json(folder / MANIFEST, whole)
        kept = {entry["name"] for entry in files.values()}
        for path in folder.iterdir():  # the model before, and what a save that died has left
            if is_own(path) and path.name not in kept:
                path.unlink(missing_ok=True)


def _arrow_writer(content: pa.Table) -> Callable[[IO[bytes]], None]:
    def write(stream: IO[bytes]) -> None:
        with pa.ipc.new_file(stream, content.schema) as writer:
            writer.write_table(content)

    return write


class _HashingFile:
    """A binary file that hashes what passes through."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.hash = hashlib.blake2b(digest_size=32)
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.hash.update(view)
        self.size += len(view)
        return self._stream.write(view)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _write_part(folder: Path, name: str, suffix: str, write: Callable[[IO[bytes]], None]) -> dict[str, Any]:
    """Write one file under the name of its content; an equal file that is there already is left alone."""
    temporary = folder / f".{name}.{secrets.token_hex(4)}.part"
    try:
        with temporary.open("wb") as stream:
            hashing = _HashingFile(stream)
            write(cast("IO[bytes]", hashing))
            stream.flush()
            os.fsync(stream.fileno())
        digest = hashing.hash.hexdigest()
        final = f"{name}-{digest[:16]}.{suffix}"
        os.replace(temporary, folder / final)
    except OSError as error:
        raise DataError(
            f"{folder}: cannot be written ({error.strerror}). Free space or choose another place."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return {"name": final, "bytes": hashing.size, "blake2b": digest}


def write_json(path: Path, value: Any) -> None:
    """JSON that appears whole or not at all."""
    with replace_file(path) as stream:
        stream.write((json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def read_manifest(folder: Path) -> dict[str, Any]:
    """model.json, checked as far as its own form goes."""
    path = folder / MANIFEST
    if not path.is_file():
        if folder.exists() and not folder.is_dir():
            raise ModelFormatError(f"{folder}: is a file. The model folder comes first.")
        what = "no such folder" if not folder.exists() else f"no {MANIFEST} in it, so not a model folder"
        raise ModelFormatError(f"{folder}: {what}. Train one with: xmtc train TRAIN --out {folder}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version = manifest["format"]
        if version == FORMAT:  # what another format looks like is not known here
            _check_manifest(manifest)
    except KeyError as error:
        raise ModelFormatError(f"{path}: damaged ({error} is missing). Copy or train the model again.") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelFormatError(f"{path}: damaged ({error}). Copy or train the model again.") from None
    if version != FORMAT:
        raise ModelFormatError(
            f"{path}: format {version}; this xmtc reads format {FORMAT}. Use the xmtc that wrote it."
        )
    return cast("dict[str, Any]", manifest)


def _check_manifest(manifest: Mapping[str, Any]) -> None:
    for entry in manifest["files"].values():
        if not _OWN_FILE.match(entry["name"]) or not isinstance(entry["bytes"], int):
            raise ValueError(f"strange file entry {entry['name']!r}")
    if not isinstance(manifest["model"], str) or not isinstance(manifest["settings"], dict):
        raise ValueError("no model name or settings")
    if not isinstance(manifest["state"], dict) or not isinstance(manifest.get("training", {}), dict):
        raise ValueError("no state or training facts")


def read_folder(folder: Path) -> tuple[dict[str, Any], State]:
    """A model's manifest and state; arrays and tables are mapped. Sizes and headers are checked, contents are not."""
    manifest = read_manifest(folder)
    try:
        return manifest, _read_state(folder, manifest)
    except ModelFormatError:
        again = read_manifest(folder)
        if again == manifest:
            raise
        return again, _read_state(folder, again)  # another process has just saved a new model here


def _read_state(folder: Path, manifest: Mapping[str, Any]) -> State:
    state = State(values=manifest["state"])
    for name, entry in manifest["files"].items():
        path = folder / entry["name"]
        if not path.is_file():
            raise ModelFormatError(f"{path}: missing. The folder is damaged: copy or train the model again.")
        if path.stat().st_size != entry["bytes"]:
            raise ModelFormatError(
                f"{path}: {path.stat().st_size:,} bytes in place of {entry['bytes']:,}. Copy or train the model again."
            )
        if path.suffix == ".safetensors":
            state.arrays, _ = map_arrays(path)
        else:
            state.tables[name] = map_table(path)
    return state


def map_table(path: Path) -> pa.Table:
    try:
        return pa.ipc.open_file(pa.memory_map(os.fsencode(path))).read_all()
    except (pa.ArrowException, OSError) as error:
        raise ModelFormatError(f"{path}: not a readable Arrow file ({str(error).splitlines()[0]}).") from None


def verify_folder(folder: Path) -> list[tuple[str, int]]:
    """Hash every file of a model against model.json; returns their names and sizes."""
    manifest = read_manifest(folder)
    checked = []
    for entry in manifest["files"].values():
        path = folder / entry["name"]
        if not path.is_file():
            raise ModelFormatError(f"{path}: missing. Copy or train the model again.")
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
        if digest != entry["blake2b"]:
            raise ModelFormatError(f"{path}: content does not match its hash. Copy or train the model again.")
        checked.append((entry["name"], entry["bytes"]))
    return checked
