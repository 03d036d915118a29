"""The model folder: JSON, safetensors and Arrow files. Loading never executes code from a file.

`model.json` lists content-hashed files in the same folder and is replaced last, in one step, so an interrupted save
leaves the old model intact. It also has a hash of its own content. Loading verifies all hashes, each file once: what
was verified is recorded in the user's cache (`stamps`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.artifact.arrays import arrays_in, map_bytes, release_pages, write_arrays
from xmtc.artifact.dependencies import (
    DIGEST,
    MANIFEST,
    Link,
    check_entries,
    copies,
    manifest_digest,
    read_links,
    write_links,
)
from xmtc.artifact.stamps import Stamps, signature
from xmtc.core.errors import DataError, ModelFormatError, shown
from xmtc.core.files import locked, make_folder, sync_folder, write_json
from xmtc.core.parallel import run_parallel
from xmtc.core.parsing import read_json
from xmtc.core.runtime import available_threads

FORMAT = 2
"""Version of the layout. Version 1, which is still read, has no hash of model.json, and BLAKE2b hashes of files."""
OLDEST_FORMAT = 1
LONGEST_MANIFEST = 64 << 20
"""Maximum size of model.json in bytes."""
HASH, OLD_HASH = "sha256", "blake2b"
"""Keys of the hash of a file: SHA-256, for which processors have instructions, and BLAKE2b in version 1."""
DEEPEST_LINKS = 20
"""Maximum number of models of which each depends on the next."""
_PART_FILE = re.compile(r"^[a-z_]+-[0-9a-f]{16}\.(?:safetensors|arrow)$")
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
    mapped: list[NDArray[np.uint8]] = field(default_factory=list, repr=False)
    """The mapped files that arrays and tables are in."""

    def release(self) -> None:
        """Give the pages of the mapped files back to the system: checking the content has touched all of them."""
        for content in self.mapped:
            release_pages(content)


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
        whole = {**manifest, "state": state.values, "files": files, **more}
        write_json(folder / MANIFEST, sealed(whole))
        _clear(folder, {entry["name"] for entry in files.values()} | copies(links))


def remove_folder(folder: Path) -> None:
    """Delete a model; other files in its folder stay."""
    with locked(folder):
        (folder / MANIFEST).unlink(missing_ok=True)
        _clear(folder, ())
        with suppress(OSError):  # there are other files
            folder.rmdir()


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
        write_json(folder / MANIFEST, sealed(manifest))
        _clear(folder, {entry["name"] for entry in files.values()} | copies(manifest.get("links", {})))


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The content of model.json with format version and hash."""
    bare = {"format": FORMAT, **{name: value for name, value in manifest.items() if name not in ("format", DIGEST)}}
    plain = json.loads(json.dumps(bare), parse_constant=lambda _: None)  # a metric that is NaN or infinite is unknown
    return {**plain, DIGEST: manifest_digest(plain)}


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
        self.hash = hashlib.sha256()
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
    return {"name": final, "bytes": hashing.size, HASH: digest}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read model.json; check its hash and its structure."""
    path = folder / MANIFEST
    if not path.is_file():
        if folder.exists() and not folder.is_dir():
            raise ModelFormatError(f"{folder}: is a file, not a model folder. The model folder comes first.")
        what = "no such folder" if not folder.exists() else f"not a model folder: {MANIFEST} is missing"
        raise ModelFormatError(f"{folder}: {what}. Train a model with: xmtc train TRAIN --out {folder}")
    try:
        manifest = _parsed(path)
        version = manifest["format"]
        if version in range(OLDEST_FORMAT, FORMAT + 1):  # the layout of other versions is unknown
            if version > 1 and manifest[DIGEST] != manifest_digest(manifest):
                raise ValueError("its content does not match its hash")
            _check_manifest(manifest)
    except KeyError as error:
        raise ModelFormatError(f"{path}: damaged ({error} is missing). Copy or train the model again.") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelFormatError(f"{path}: damaged ({shown(str(error))}). Copy or train the model again.") from None
    if version not in range(OLDEST_FORMAT, FORMAT + 1):
        raise ModelFormatError(
            f"{path}: format {shown(str(version))}; this version of xmtc reads formats {OLDEST_FORMAT} to {FORMAT}. "
            "Use the version that wrote it."
        )
    return manifest


def _parsed(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a reasonable size."""
    if path.stat().st_size > LONGEST_MANIFEST:
        raise ValueError(f"{path.stat().st_size:,} bytes")
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _check_manifest(manifest: Mapping[str, Any]) -> None:
    for entry in manifest["files"].values():
        if not _PART_FILE.match(entry["name"]) or type(entry["bytes"]) is not int or type(_hash_of(entry)) is not str:
            raise ValueError(f"invalid file entry {entry['name']!r}")
    if not isinstance(manifest["model"], str) or not isinstance(manifest["settings"], dict):
        raise ValueError("no model name or settings")
    if not isinstance(manifest["state"], dict) or not isinstance(manifest.get("training", {}), dict):
        raise ValueError("no state or training facts")
    if type(manifest.get("labels", 0)) is not int:
        raise ValueError("no number of labels")
    for entry in manifest.get("history", []):
        _check_update(entry)
    check_entries(manifest.get("links", {}))
    for name, values in manifest.get("parts", {}).items():
        if not isinstance(values, dict) or name not in manifest["files"]:
            raise ValueError(f"invalid part {name!r}")


def _hash_of(entry: Mapping[str, Any]) -> str:
    """The hash in a file entry."""
    found: str = entry[HASH] if HASH in entry else entry[OLD_HASH]
    return found


def _check_update(entry: Mapping[str, Any]) -> None:
    """Check one entry of the history."""
    counts = [entry[name] for name in ("documents", "replayed", "labels added", "labels retired", "judged by")]
    scores = [entry[name] for name in ("nDCG@5 before", "nDCG@5 after") if entry[name] is not None]
    merged = entry["merged"]
    names = [entry["date"], *merged, *merged.values()]
    kinds = ((int, counts), (float | int, [*scores, entry["seconds"]]), (str, names))
    if not all(isinstance(value, kind) for kind, values in kinds for value in values):
        raise ValueError("invalid history")


def read_folder(folder: Path, verify: bool = False) -> tuple[dict[str, Any], State]:
    """Read a model's manifest and state; arrays and tables are memory-mapped, and their hashes are verified.

    Files that were verified before and have not changed since are hashed again only if `verify` is true.
    Dependencies are verified by hash: model.json of another model, all bytes of anything else.
    """
    manifest = read_manifest(folder)
    try:
        return manifest, _read_state(folder, manifest, verify)
    except ModelFormatError:
        again = read_manifest(folder)
        if again == manifest:
            raise
        return again, _read_state(folder, again, verify)  # another process saved a new model in the meantime


def _read_state(folder: Path, manifest: Mapping[str, Any], verify: bool) -> State:
    parts = {name: State(values=values) for name, values in manifest.get("parts", {}).items()}
    state = State(values=manifest["state"], parts=parts)
    for name, (path, mapped) in _mapped_files(folder, manifest, verify).items():
        state.mapped.append(mapped)
        if path.suffix == ".safetensors":
            (parts.get(name) or state).arrays, _ = arrays_in(mapped, path)
        else:
            state.tables[name] = _table_in(mapped, path)
    state.links = read_links(folder, manifest.get("links", {}))
    return state


def _mapped_files(folder: Path, manifest: Mapping[str, Any], verify: bool) -> dict[str, tuple[Path, NDArray[np.uint8]]]:
    """Map all files of a model, and compare the hash of what was mapped with model.json."""
    stamps = Stamps(folder)
    mapped: dict[str, tuple[Path, NDArray[np.uint8]]] = {}
    unknown = []
    for name, entry in manifest["files"].items():
        path = folder / entry["name"]
        content, status = map_bytes(path)
        mapped[name] = path, content
        if len(content) != entry["bytes"]:
            raise ModelFormatError(
                f"{path}: {len(content):,} bytes, expected {entry['bytes']:,}. Copy or train the model again."
            )
        held = signature(status)
        if verify or not stamps.covers(entry["name"], _hash_of(entry), held):
            unknown.append((path, entry, content, held))

    def matches(part: tuple[Path, Mapping[str, Any], NDArray[np.uint8], Any]) -> bool:
        fresh = hashlib.sha256() if HASH in part[1] else hashlib.blake2b(digest_size=32)
        fresh.update(part[2].data)
        release_pages(part[2])
        return fresh.hexdigest() == _hash_of(part[1])

    for (path, entry, _, held), fits in zip(unknown, run_parallel(matches, unknown, available_threads()), strict=True):
        if not fits:
            raise ModelFormatError(f"{path}: content does not match its hash. Copy or train the model again.")
        stamps.add(entry["name"], _hash_of(entry), held)
    stamps.save()
    return mapped


def map_table(path: Path) -> pa.Table:
    """Memory-map an Arrow file and check its content."""
    return _table_in(map_bytes(path)[0], path)


def _table_in(mapped: NDArray[np.uint8], path: Path) -> pa.Table:
    """The table in the bytes of an Arrow file, without a copy."""
    try:
        table = pa.ipc.open_file(pa.py_buffer(mapped)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        reason = shown(str(error).splitlines()[0]) if str(error) else type(error).__name__
        raise ModelFormatError(
            f"{path}: not a readable Arrow file ({reason}). Copy or train the model again."
        ) from None
    return table


def verify_folder(folder: Path) -> list[tuple[str, int]]:
    """Verify the hash of every file of a model against model.json; return their names and sizes.

    Other models that it depends on are verified too, each once.
    """
    return _verified(folder, {folder.resolve()}, 0)


def _verified(folder: Path, seen: set[Path], depth: int) -> list[tuple[str, int]]:
    if depth > DEEPEST_LINKS:
        raise ModelFormatError(f"{folder}: more than {DEEPEST_LINKS} models depend on each other. Train them again.")
    manifest, state = read_folder(folder, verify=True)
    checked = [(entry["name"], entry["bytes"]) for entry in manifest["files"].values()]
    for link in state.links.values():
        if not is_model(link.path):
            checked.append((link.path.name, _size(link.path)))
        elif link.path not in seen:
            seen.add(link.path)
            checked += [(f"{link.path.name}/{name}", size) for name, size in _verified(link.path, seen, depth + 1)]
    return checked


def _size(path: Path) -> int:
    return sum(part.stat().st_size for part in ([path] if path.is_file() else path.rglob("*")) if part.is_file())
