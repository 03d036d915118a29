"""The model folder: JSON, safetensors and Arrow files. Loading never executes code from a file.

`model.json` lists content-hashed files in the same folder and is replaced last, in one step, so an interrupted save
leaves the old model intact.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
from numpy.typing import NDArray

from xmtc.artifact.arrays import map_arrays, write_arrays
from xmtc.artifact.dependencies import MANIFEST, Link, check_entries, copies, read_links, write_links
from xmtc.core.errors import DataError, ModelFormatError
from xmtc.core.files import locked, make_folder, sync_folder, write_json

FORMAT = 1
_OWN_FILE = re.compile(r"^(?:[a-z_]+-[0-9a-f]{16}\.(?:safetensors|arrow)|linked-[0-9a-f]{16}|\.[^/\\]*\.part)$")


@dataclass
class State:
    """The state of a model to save."""

    values: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    parts: dict[str, State] = field(default_factory=dict)
    """Values and arrays that can be replaced separately."""
    links: dict[str, Link] = field(default_factory=dict)
    """Other models and files that the model depends on."""


def is_model(folder: Path) -> bool:
    """Whether a folder contains a saved model."""
    return (folder / MANIFEST).is_file()


def is_own(path: Path) -> bool:
    """Whether a file name is one that saving creates, such as the remains of an interrupted first save."""
    return _OWN_FILE.match(path.name) is not None


def write_folder(folder: Path, manifest: Mapping[str, Any], state: State) -> None:
    """Write or replace a model. Until the final rename, the folder contains the old model."""
    make_folder(folder)
    with locked(folder):
        links = write_links(folder, state.links)
        files = {"arrays": _write_arrays(folder, "arrays", state)}
        for name, content in state.tables.items():
            files[name] = _write_part(folder, name, "arrow", _arrow_writer(content))
        files |= {name: _write_arrays(folder, name, part) for name, part in state.parts.items()}
        parts = {name: part.values for name, part in state.parts.items()}
        more = {**({"parts": parts} if parts else {}), **({"links": links} if links else {})}
        sync_folder(folder)
        write_json(folder / MANIFEST, {"format": FORMAT, **manifest, "state": state.values, "files": files, **more})
        _clear(folder, {entry["name"] for entry in files.values()} | copies(links))


def replace_part(folder: Path, name: str, part: State | None, before: Mapping[str, Any]) -> None:
    """Replace one part of a model, or remove it if `part` is None; everything else stays unchanged.

    `before` is the manifest of the model that the part belongs to; raise `DataError` if another model was saved since.
    """
    with locked(folder):
        manifest = read_manifest(folder)
        if manifest != before:
            raise DataError(f"{folder}: another model was saved there in the meantime. Run the command again.")
        files, parts = dict(manifest["files"]), dict(manifest.get("parts", {}))
        files.pop(name, None)
        parts.pop(name, None)
        if part is not None:
            files[name], parts[name] = _write_arrays(folder, name, part), part.values
        manifest = {**manifest, "files": files, "parts": parts}
        if not parts:
            del manifest["parts"]  # as in a model without parts
        sync_folder(folder)
        write_json(folder / MANIFEST, manifest)
        _clear(folder, {entry["name"] for entry in files.values()} | copies(manifest.get("links", {})))


def _clear(folder: Path, kept: Collection[str]) -> None:
    """Delete files of the previous model and of interrupted saves."""
    for path in folder.iterdir():
        if is_own(path) and path.name not in kept:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _write_arrays(folder: Path, name: str, state: State) -> dict[str, Any]:
    return _write_part(folder, name, "safetensors", lambda stream: write_arrays(stream, state.arrays))


def _arrow_writer(content: pa.Table) -> Callable[[IO[bytes]], None]:
    def write(stream: IO[bytes]) -> None:
        with pa.ipc.new_file(stream, content.schema) as writer:
            writer.write_table(content)

    return write


class _HashingFile:
    """A binary file that hashes everything written to it."""

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
    """Write one file under a name derived from its content hash; return its manifest entry."""
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
            f"{folder}: cannot be written ({error.strerror}). Free disk space or choose another path."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return {"name": final, "bytes": hashing.size, "blake2b": digest}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read model.json and check its structure."""
    path = folder / MANIFEST
    if not path.is_file():
        if folder.exists() and not folder.is_dir():
            raise ModelFormatError(f"{folder}: is a file, not a model folder. The model folder comes first.")
        what = "no such folder" if not folder.exists() else f"not a model folder: {MANIFEST} is missing"
        raise ModelFormatError(f"{folder}: {what}. Train a model with: xmtc train TRAIN --out {folder}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version = manifest["format"]
        if version == FORMAT:  # the layout of other versions is unknown
            _check_manifest(manifest)
    except KeyError as error:
        raise ModelFormatError(f"{path}: damaged ({error} is missing). Copy or train the model again.") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelFormatError(f"{path}: damaged ({error}). Copy or train the model again.") from None
    if version != FORMAT:
        raise ModelFormatError(
            f"{path}: format {version}; this version of xmtc reads format {FORMAT}. Use the version that wrote it."
        )
    return cast("dict[str, Any]", manifest)


def _check_manifest(manifest: Mapping[str, Any]) -> None:
    for entry in manifest["files"].values():
        if not _OWN_FILE.match(entry["name"]) or not isinstance(entry["bytes"], int):
            raise ValueError(f"invalid file entry {entry['name']!r}")
    if not isinstance(manifest["model"], str) or not isinstance(manifest["settings"], dict):
        raise ValueError("no model name or settings")
    if not isinstance(manifest["state"], dict) or not isinstance(manifest.get("training", {}), dict):
        raise ValueError("no state or training facts")
    if not isinstance(manifest.get("labels", 0), int):
        raise ValueError("no number of labels")
    for entry in manifest.get("history", []):
        _check_update(entry)
    check_entries(manifest.get("links", {}))
    for name, values in manifest.get("parts", {}).items():
        if not isinstance(values, dict) or name not in manifest["files"]:
            raise ValueError(f"invalid part {name!r}")


def _check_update(entry: Mapping[str, Any]) -> None:
    """Check one entry of the history."""
    counts = [entry[name] for name in ("documents", "replayed", "labels added", "labels retired", "judged by")]
    scores = [entry[name] for name in ("nDCG@5 before", "nDCG@5 after") if entry[name] is not None]
    merged = entry["merged"]
    names = [entry["date"], *merged, *merged.values()]
    kinds = ((int, counts), (float | int, [*scores, entry["seconds"]]), (str, names))
    if not all(isinstance(value, kind) for kind, values in kinds for value in values):
        raise ValueError("invalid history")


def read_folder(folder: Path) -> tuple[dict[str, Any], State]:
    """Read a model's manifest and state; arrays and tables are memory-mapped. Only sizes and headers are checked.

    Dependencies are verified by hash: model.json of another model, all bytes of anything else.
    """
    manifest = read_manifest(folder)
    try:
        return manifest, _read_state(folder, manifest)
    except ModelFormatError:
        again = read_manifest(folder)
        if again == manifest:
            raise
        return again, _read_state(folder, again)  # another process saved a new model in the meantime


def _read_state(folder: Path, manifest: Mapping[str, Any]) -> State:
    parts = {name: State(values=values) for name, values in manifest.get("parts", {}).items()}
    state = State(values=manifest["state"], parts=parts)
    for name, entry in manifest["files"].items():
        path = folder / entry["name"]
        if not path.is_file():
            raise ModelFormatError(f"{path}: missing, so the folder is damaged. Copy or train the model again.")
        if path.stat().st_size != entry["bytes"]:
            raise ModelFormatError(
                f"{path}: {path.stat().st_size:,} bytes, expected {entry['bytes']:,}. Copy or train the model again."
            )
        if path.suffix == ".safetensors":
            (parts.get(name) or state).arrays, _ = map_arrays(path)
        else:
            state.tables[name] = map_table(path)
    state.links = read_links(folder, manifest.get("links", {}))
    return state


def map_table(path: Path) -> pa.Table:
    """Memory-map an Arrow file."""
    try:
        return pa.ipc.open_file(pa.memory_map(os.fsencode(path))).read_all()
    except (pa.ArrowException, OSError) as error:
        raise ModelFormatError(
            f"{path}: not a readable Arrow file ({str(error).splitlines()[0]}). Copy or train the model again."
        ) from None


def verify_folder(folder: Path) -> list[tuple[str, int]]:
    """Verify the hash of every file of a model against model.json; return their names and sizes."""
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
    for link in read_links(folder, manifest.get("links", {})).values():
        inner = verify_folder(link.path) if is_model(link.path) else [(link.path.name, _size(link.path))]
        checked += [(f"{link.path.name}/{name}" if is_model(link.path) else name, size) for name, size in inner]
    return checked


def _size(path: Path) -> int:
    return sum(part.stat().st_size for part in ([path] if path.is_file() else path.rglob("*")) if part.is_file())
