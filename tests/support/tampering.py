"""Damage to model folders: arrays, tables, bytes and model.json, with and without repaired hashes.

A repaired folder is what an attacker writes: files are named after their new content, and model.json lists and hashes
them. Everything is drawn from a random generator, so a case is known by its seed and number.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.artifact.arrays import arrays_in, map_bytes, write_arrays
from xmtc.artifact.dependencies import MANIFEST, content_of
from xmtc.artifact.store import sealed

Random = np.random.Generator
Array = NDArray[Any]
NUMBERS = (0, -1, 1, 2, 2**31 - 1, 2**31, 2**53, 2**63 - 1, -(2**63), 1e308, -1e308, 1e-320, 0.5, 1000, 100_000)
STRANGE = ("", "x", "auto", "\x00", "../..", "a" * 100_000, None, True, [], {}, [0], {"a": 1}, [[]], "é\u2028", "-1")
"""Values that take the place of another one in model.json."""


@dataclass(frozen=True)
class Damage:
    """A way to damage the folder of a model."""

    what: str
    apply: Callable[[Path], None]
    is_repaired: bool

    def __str__(self) -> str:
        return f"{self.what}, hashes {'repaired' if self.is_repaired else 'as they were'}"


# ---- reading and writing what a folder consists of


def manifest_of(folder: Path) -> dict[str, Any]:
    """The content of model.json."""
    found: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return found


def arrays_of(folder: Path, part: str) -> dict[str, Array]:
    """Copies of the arrays of a part."""
    path = folder / manifest_of(folder)["files"][part]["name"]
    return {name: np.array(array) for name, array in arrays_in(map_bytes(path)[0], path)[0].items()}


def table_of(folder: Path, part: str) -> pa.Table:
    """A table of a model."""
    with pa.memory_map(str(folder / manifest_of(folder)["files"][part]["name"])) as source:
        return pa.ipc.open_file(source.read_buffer()).read_all()


def put(path: Path, content: bytes) -> None:
    """Replace a file, which may be a hard link to that of the undamaged folder."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def put_manifest(folder: Path, manifest: dict[str, Any], repair: bool) -> None:
    """Replace model.json."""
    put(folder / MANIFEST, json.dumps(sealed(manifest) if repair else manifest).encode())


def put_part(folder: Path, part: str, content: bytes, repair: bool) -> None:
    """Replace a file of the model."""
    manifest = manifest_of(folder)
    entry = manifest["files"][part]
    if not repair:
        put(folder / entry["name"], content)
        return
    digest = hashlib.blake2b(content, digest_size=32).hexdigest()
    (folder / entry["name"]).unlink(missing_ok=True)
    name = f"{part}-{digest[:16]}{Path(entry['name']).suffix}"
    put(folder / name, content)
    manifest["files"][part] = {"name": name, "bytes": len(content), "blake2b": digest}
    put_manifest(folder, manifest, True)


def put_arrays(folder: Path, part: str, arrays: dict[str, Array], repair: bool) -> None:
    """Replace the arrays of a part."""
    stream = io.BytesIO()
    write_arrays(stream, arrays)
    put_part(folder, part, stream.getvalue(), repair)


def put_table(folder: Path, part: str, table: pa.Table, repair: bool, compression: str | None = None) -> None:
    """Replace a table."""
    stream = io.BytesIO()
    with pa.ipc.new_file(stream, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    put_part(folder, part, stream.getvalue(), repair)


def copied(folder: Path, target: Path) -> Path:
    """A copy of a folder by hard links: whatever damages it replaces files and never writes into them."""
    shutil.copytree(folder, target, copy_function=os.link, symlinks=True)
    return target


def parts_of(folder: Path, suffix: str) -> list[str]:
    """Names of the parts of a model with arrays (.safetensors) or tables (.arrow)."""
    return [part for part, entry in manifest_of(folder)["files"].items() if entry["name"].endswith(suffix)]


# ---- arrays


def _limits(array: Array) -> tuple[Any, Any]:
    if array.dtype == np.bool_:
        return False, True
    found: Any = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
    return found.min, found.max


def _filled(array: Array, value: Any) -> Array:
    with np.errstate(all="ignore"):
        return np.full(array.shape, np.array(value).astype(array.dtype), array.dtype)


def _noise(array: Array, random: Random) -> Array:
    return np.frombuffer(random.bytes(array.nbytes), np.uint8).view(array.dtype).reshape(array.shape)


def _bounded(array: Array, random: Random) -> Array:
    """Numbers that might have been meant."""
    if array.dtype.kind == "f":
        return random.normal(size=array.shape).astype(array.dtype)
    return random.integers(0, max(int(array.max(initial=0)), 1) + 1, array.shape).astype(array.dtype)


def _with_one(array: Array, random: Random, value: Any) -> Array:
    array = array.copy()
    if array.size:
        with np.errstate(all="ignore"):
            array.reshape(-1)[random.integers(array.size)] = np.array(value).astype(array.dtype)
    return array


def _longer(array: Array) -> Array:
    return np.concatenate([array, array[-1:]]) if len(array) else np.zeros((1, *array.shape[1:]), array.dtype)


def _other_type(array: Array, random: Random) -> Array:
    kinds = [np.int8, np.uint16, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.bool_]
    kind = [kind for kind in kinds if np.dtype(kind) != array.dtype][random.integers(len(kinds) - 1)]
    with np.errstate(all="ignore"):
        return array.astype(kind)


ARRAYS: dict[str, Callable[[Array, Random], Array]] = {
    "all 0": lambda array, random: _filled(array, 0),
    "all -1": lambda array, random: _filled(array, -1),
    "all maximum": lambda array, random: _filled(array, _limits(array)[1]),
    "all random": _noise,
    "one longer": lambda array, random: _longer(array),
    "one shorter": lambda array, random: array[:-1],
    "all minimum": lambda array, random: _filled(array, _limits(array)[0]),
    "all bounded": _bounded,
    "one maximum": lambda array, random: _with_one(array, random, _limits(array)[1]),
    "one minimum": lambda array, random: _with_one(array, random, _limits(array)[0]),
    "one -1": lambda array, random: _with_one(array, random, -1),
    "one off": lambda array, random: _with_one(array, random, array.max(initial=0) + 1),
    "one NaN": lambda array, random: _with_one(array, random, np.nan),
    "one infinite": lambda array, random: _with_one(array, random, np.inf),
    "all NaN": lambda array, random: _filled(array, np.nan),
    "backwards": lambda array, random: array[::-1],
    "shuffled": lambda array, random: random.permutation(array),
    "empty": lambda array, random: array[:0],
    "another type": _other_type,
    "another dimension": lambda array, random: array[None] if array.ndim == 1 else array.reshape(-1),
    "twice": lambda array, random: np.concatenate([array, array]),
}
"""What may be done to an array; the first six to every one."""
DIRECTED = tuple(ARRAYS)[:6]


def array_damage(part: str, name: str, how: str, seed: int, repair: bool) -> Damage:
    """Change one array."""

    def apply(folder: Path) -> None:
        arrays = arrays_of(folder, part)
        array = arrays[name] if arrays[name].ndim else arrays[name][None]
        changed = ARRAYS[how](array, np.random.default_rng(seed))
        put_arrays(folder, part, {**arrays, name: np.ascontiguousarray(changed)}, repair)

    return Damage(f"{part}: {name}: {how}", apply, repair)


def array_set_damage(part: str, name: str, how: str, repair: bool) -> Damage:
    """Remove an array, add one, or give it another name."""

    def apply(folder: Path) -> None:
        arrays = arrays_of(folder, part)
        array = arrays[name] if how == "added" else arrays.pop(name)
        if how != "removed":
            arrays[f"{name}.x"] = array
        put_arrays(folder, part, arrays, repair)

    return Damage(f"{part}: {name}: {how}", apply, repair)


def directed(folder: Path, repairs: Sequence[bool] = (True,)) -> Iterator[Damage]:
    """Every array: all values 0, −1, maximum and random; one element more and one less."""
    for part in parts_of(folder, ".safetensors"):
        for name in arrays_of(folder, part):
            for how in DIRECTED:
                for repair in repairs:
                    yield array_damage(part, name, how, 0, repair)


def selected(folder: Path, seed: int) -> Iterator[Damage]:
    """As `directed` for integers, which kernels use as indices; of weights one of the four values, and one length."""
    random = np.random.default_rng(seed)
    for part in parts_of(folder, ".safetensors"):
        for name, array in arrays_of(folder, part).items():
            two = str(random.choice(DIRECTED[:4])), str(random.choice(DIRECTED[4:]))
            for how in DIRECTED if array.dtype.kind in "iub" else two:
                yield array_damage(part, name, how, 0, True)


# ---- bytes of any file


def _flipped(content: bytes, random: Random) -> bytes:
    if not content:
        return b"x"
    changed = bytearray(content)
    for _ in range(int(random.integers(1, 4))):
        changed[int(random.integers(len(content)))] ^= 1 << int(random.integers(8))
    return bytes(changed)


def _flipped_near(content: bytes, random: Random, at_end: bool) -> bytes:
    """Flip a bit where safetensors has its header and Arrow its metadata."""
    near = min(len(content), 600)
    if at_end:
        return content[: len(content) - near] + _flipped(content[len(content) - near :], random)
    return _flipped(content[:near], random) + content[near:]


def _zeroed(content: bytes, random: Random) -> bytes:
    first = int(random.integers(len(content) + 1))
    last = min(len(content), first + int(random.integers(1, 4096)))
    return content[:first] + bytes(last - first) + content[last:]


BYTES: dict[str, Callable[[bytes, Random], bytes]] = {
    "bits flipped": _flipped,
    "bits flipped at the start": lambda content, random: _flipped_near(content, random, False),
    "bits flipped at the end": lambda content, random: _flipped_near(content, random, True),
    "cut off": lambda content, random: content[: int(random.integers(len(content) + 1))],
    "one byte cut off": lambda content, random: content[:-1],
    "longer": lambda content, random: content + random.bytes(int(random.integers(1, 100))),
    "zeroed": _zeroed,
    "all zero": lambda content, random: bytes(len(content)),
    "noise": lambda content, random: random.bytes(len(content)),
    "empty": lambda content, random: b"",
    "length of the header": lambda content, random: random.bytes(8) + content[8:],
    "huge header": lambda content, random: (2**63 - 1).to_bytes(8, "little") + content[8:],
    "nested header": lambda content, random: (100_000).to_bytes(8, "little") + b"[" * 100_000 + content,
}


def byte_damage(part: str, how: str, seed: int, repair: bool) -> Damage:
    """Change bytes of one file."""

    def apply(folder: Path) -> None:
        content = (folder / manifest_of(folder)["files"][part]["name"]).read_bytes()
        put_part(folder, part, BYTES[how](content, np.random.default_rng(seed)), repair)

    return Damage(f"{part}: bytes: {how} ({seed})", apply, repair)


def _exchanged(part: str, other: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        manifest = manifest_of(folder)
        files = manifest["files"]
        files[part], files[other] = files[other], files[part]
        put_manifest(folder, manifest, True)

    return apply


# ---- tables


def _other_strings(column: pa.ChunkedArray, random: Random) -> pa.Array:
    count = len(column)
    if not pa.types.is_string(column.type):
        return pa.array([None] * count, column.type)
    choices = [
        ["same"] * count,
        [""] * count,
        [f"a\x00{i}" for i in range(count)],
        ["\n\r\x1b[31m"] * count,
        ["x" * 10_000] * count,
        [f"{i}" for i in range(count)],
        random.permutation(np.array(column.to_pylist(), object)).tolist(),
    ]
    return pa.array(choices[random.integers(len(choices))], pa.string())


def _invalid_text(column: pa.ChunkedArray) -> pa.Array:
    """Strings that are not UTF-8: surrogates and stray bytes."""
    raw = pa.array([b"\xed\xa0\x80\xff"] * len(column), pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def _with_null(column: pa.ChunkedArray, random: Random) -> pa.Array:
    values = column.to_pylist()
    for at in random.integers(len(values), size=3) if values else ():
        values[at] = None
    return pa.array(values, column.type)


def _null_inside(column: pa.ChunkedArray, random: Random) -> pa.Array:
    if not pa.types.is_list(column.type):
        return _with_null(column, random)
    return pa.array([[None, *(row or [])] for row in column.to_pylist()], column.type)


def _cast(column: pa.ChunkedArray, random: Random) -> pa.Array:
    kinds = [pa.large_string(), pa.binary(), pa.int64(), pa.dictionary(pa.int32(), pa.string()), pa.null()]
    kinds += [pa.string(), pa.list_(pa.int8()), pa.float64(), pa.uint8()]
    kind = kinds[random.integers(len(kinds))]
    try:
        return column.cast(kind).combine_chunks()
    except (pa.ArrowException, NotImplementedError):
        return pa.nulls(len(column), kind)


COLUMNS: dict[str, Callable[[pa.ChunkedArray, Random], pa.Array]] = {
    "another type": _cast,
    "missing values": _with_null,
    "missing values inside": _null_inside,
    "other values": lambda column, random: (
        _other_strings(column, random)
        if pa.types.is_string(column.type)
        else pa.array(random.permutation(np.array(column.to_pylist(), object)).tolist(), column.type)
    ),
    "extreme values": lambda column, random: (
        pa.array([[-(2**63), 2**63 - 1, 0, -1][random.integers(4)]] * len(column), column.type)
        if pa.types.is_int64(column.type)
        else _other_strings(column, random)
    ),
    "invalid text": lambda column, random: _invalid_text(column),
}
TABLES: dict[str, Callable[[pa.Table, Random], pa.Table]] = {
    "one row less": lambda table, random: table.slice(0, max(table.num_rows - 1, 0)),
    "one row more": lambda table, random: pa.concat_tables([table, table.slice(0, 1)]),
    "no rows": lambda table, random: table.slice(0, 0),
    "in pieces": lambda table, random: pa.concat_tables([table.slice(0, 3), table.slice(3)]),
    "a column less": lambda table, random: table.drop_columns([table.column_names[0]]),
    "a column twice": lambda table, random: table.append_column(table.column_names[0], table[0]),
    "columns exchanged": lambda table, random: table.rename_columns(table.column_names[::-1]),
    "compressed": lambda table, random: table,
}


def table_damage(part: str, how: str, seed: int, repair: bool) -> Damage:
    """Change one table."""

    def apply(folder: Path) -> None:
        table, random = table_of(folder, part), np.random.default_rng(seed)
        if how in TABLES:
            changed = TABLES[how](table, random)
        else:
            at = int(random.integers(table.num_columns))
            changed = table.set_column(at, table.column_names[at], COLUMNS[how](table.column(at), random))
        put_table(folder, part, changed, repair, "zstd" if how == "compressed" else None)

    return Damage(f"{part}: table: {how} ({seed})", apply, repair)


# ---- model.json

Way = tuple[str | int, ...]
"""Keys on the way to a value in model.json."""


def ways(node: Any, before: Way = ()) -> Iterator[Way]:
    """The way to every value, containers included."""
    items: Any = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*before, key)
        yield from ways(value, (*before, key))


def _owner(manifest: dict[str, Any], way: Way) -> Any:
    node: Any = manifest
    for key in way[:-1]:
        node = node[key]
    return node


def value_damage(way: Way, value: Any, repair: bool) -> Damage:
    """Replace one value of model.json."""

    def apply(folder: Path) -> None:
        manifest = manifest_of(folder)
        _owner(manifest, way)[way[-1]] = value
        put_manifest(folder, manifest, repair)

    return Damage(f"model.json: {'.'.join(map(str, way))} = {value!r:.60}", apply, repair)


def removal(way: Way, repair: bool) -> Damage:
    """Remove one value of model.json."""

    def apply(folder: Path) -> None:
        manifest = manifest_of(folder)
        del _owner(manifest, way)[way[-1]]
        put_manifest(folder, manifest, repair)

    return Damage(f"model.json: {'.'.join(map(str, way))} removed", apply, repair)


def tokeniser_damage(part: str, seed: int, repair: bool) -> Damage:
    """Replace one value in the tokeniser of a pretrained encoder, which is JSON in a table."""

    def apply(folder: Path) -> None:
        table, random = table_of(folder, part), np.random.default_rng(seed)
        content = json.loads(table["tokeniser"][0].as_py())
        found = [way for way in ways(content) if "vocab" not in way or random.random() < 0.05]
        way, values = found[random.integers(len(found))], (*NUMBERS, *STRANGE)
        _owner(content, way)[way[-1]] = values[random.integers(len(values))]
        changed = pa.array([json.dumps(content)], pa.large_string())
        put_table(folder, part, table.set_column(0, "tokeniser", changed), repair)

    return Damage(f"{part}: tokeniser ({seed})", apply, repair)


TEXTS: dict[str, Callable[[bytes, Random], bytes]] = {
    "nested lists": lambda text, random: b'{"a":' * 100_000,
    "nested in state": lambda text, random: text.replace(b'"state": {', b'"state": {"x": ' + b"[" * 100_000, 1),
    "a surrogate": lambda text, random: text.replace(b'"state": {', b'"state": {"x": "\\ud800", ', 1),
    "not a number": lambda text, random: text.replace(b'"state": {', b'"state": {"x": NaN, ', 1),
    "a huge number": lambda text, random: text.replace(b'"state": {', b'"state": {"x": ' + b"9" * 5000 + b", ", 1),
    "an infinite number": lambda text, random: text.replace(b'"state": {', b'"state": {"x": 1e999, ', 1),
    "a list": lambda text, random: b"[" + text + b"]",
    "another encoding": lambda text, random: text.decode().encode("utf-16"),
    **{f"bytes {how}": BYTES[how] for how in ("bits flipped", "cut off", "longer", "zeroed", "empty", "noise")},
}


def text_damage(how: str, seed: int) -> Damage:
    """Change the text of model.json."""

    def apply(folder: Path) -> None:
        text = json.dumps(manifest_of(folder)).encode()
        put(folder / MANIFEST, TEXTS[how](text, np.random.default_rng(seed)))

    return Damage(f"model.json: {how} ({seed})", apply, False)


# ---- any of them


def in_member(place: str, inner: Damage) -> Damage:
    """Damage a member that is copied into the folder of an ensemble, and its hash in the ensemble with it."""

    def apply(folder: Path) -> None:
        inner.apply(folder / place)
        if inner.is_repaired:
            manifest = manifest_of(folder)
            for entry in manifest["links"].values():
                if entry.get("copied") == place:
                    entry["content"] = content_of(folder / place)
            put_manifest(folder, manifest, True)

    return Damage(f"{place}: {inner.what}", apply, inner.is_repaired)


def anything(folder: Path, random: Random) -> Damage:
    """Any damage to a folder."""
    repair, seed = bool(random.integers(2)), int(random.integers(1 << 30))
    manifest = manifest_of(folder)
    copies = [entry["copied"] for entry in manifest.get("links", {}).values() if "copied" in entry]
    if copies and random.random() < 0.5:
        place = copies[random.integers(len(copies))]
        return in_member(place, anything(folder / place, random))
    kind = ["array", "array", "array", "bytes", "table", "value", "value", "value", "removal", "text"][
        random.integers(10)
    ]
    arrays, tables = parts_of(folder, ".safetensors"), parts_of(folder, ".arrow")
    if kind == "array":
        # Small parts, such as the thresholds, are as likely as the one with the weights.
        part = arrays[random.integers(len(arrays))]
        names = list(arrays_of(folder, part))
        if names:
            name = names[random.integers(len(names))]
            if random.random() < 0.05:
                how = ("removed", "added", "renamed")[random.integers(3)]
                return array_set_damage(part, name, how, repair)
            return array_damage(part, name, tuple(ARRAYS)[random.integers(len(ARRAYS))], seed, repair)
    if kind == "bytes":
        part = list(manifest["files"])[random.integers(len(manifest["files"]))]
        if random.random() < 0.05:
            other = list(manifest["files"])[random.integers(len(manifest["files"]))]
            return Damage(f"{part} and {other} exchanged", _exchanged(part, other), True)
        return byte_damage(part, tuple(BYTES)[random.integers(len(BYTES))], seed, repair)
    if kind == "table" and "tokeniser" in tables and random.random() < 0.5:
        return tokeniser_damage("tokeniser", seed, repair)
    if kind == "table" and tables:
        how = (*TABLES, *COLUMNS)[random.integers(len(TABLES) + len(COLUMNS))]
        return table_damage(tables[random.integers(len(tables))], how, seed, repair)
    if kind == "text":
        return text_damage(tuple(TEXTS)[random.integers(len(TEXTS))], seed)
    # Entries of files are hashes and names: few of them suffice.
    found = [way for way in ways(manifest) if way[0] != "files" or random.random() < 0.1]
    way = found[random.integers(len(found))]
    if kind == "removal":
        return removal(way, repair)
    values = NUMBERS if random.random() < 0.7 else STRANGE
    return value_damage(way, values[random.integers(len(values))], repair)
