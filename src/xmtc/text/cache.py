"""Cache of tokens, tf-idf rows and vectors, keyed by content hash, so that tuning and studies process texts once.

An entry is a folder with safetensors and Arrow files, which are memory-mapped, and a list of their checksums. It is
written under a temporary name and renamed. An entry that is incomplete or does not match its checksums is deleted and
created again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc import __version__
from xmtc.artifact.arrays import map_arrays, write_arrays
from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State, map_table
from xmtc.core.checksum import checksum, file_checksum
from xmtc.core.config import to_mapping
from xmtc.core.errors import XmtcError
from xmtc.core.mapped_text import let_go, string_offsets
from xmtc.core.parsing import read_json
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr
from xmtc.text.tfidf import TextSettings, Tfidf
from xmtc.text.tokens import RULE, TokenBlock, Tokens, tokenise

LIMIT_BYTES = 4 << 30
WORTHWHILE_BYTES = 8 << 20
"""Minimum size of text to cache; smaller texts are tokenised as fast as the cache is read."""

WORTHWHILE_TEXTS = 256
"""Minimum number of texts whose vectors are cached."""
LATEST = 32
"""Number of entries with vectors, the latest ones, in which texts are looked up."""

_KEY_BYTES = 16
"""Size of the hash of a text."""
_TEXTS_AT_ONCE = 4096
"""Texts hashed at a time."""
_ENTRY = re.compile(r"[0-9a-f]{32}-[0-9.]+-(tokens|tfidf-[0-9a-f]{16}|vectors-[0-9a-f]{32})")
"""Names of cache entries; other files in the folder are never touched."""
_UNFINISHED = re.compile(rf"\.{_ENTRY.pattern}\.[0-9a-f]{{8}}\.part")
"""Names of entries that are being written, or were when their process was killed."""
_ENTRY_FILE = "entry.json"
_DAY = 86_400

Thing = TypeVar("Thing")


def content_hash(texts: pa.ChunkedArray) -> str:
    """Hash the texts and their lengths, independent of the chunks."""
    content, lengths = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
    for chunk in texts.chunks:
        if len(chunk):
            offsets = string_offsets(chunk)
            content.update(memoryview(chunk.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])])
            lengths.update(np.diff(offsets).tobytes())
            let_go(chunk)
    content.update(lengths.digest())
    return content.hexdigest()


def tokens_of(texts: pa.ChunkedArray, runtime: Runtime, progress: Progress = silent) -> Tokens:
    """Tokenise texts, or load their tokens from the cache."""

    def split() -> Tokens:
        with progress.task("tokenising", total=len(texts)) as task:
            return tokenise(texts, runtime.threads, task.advance)

    place = _place(texts, runtime, "tokens")
    return split() if place is None else _remembered(place, runtime.threads, split, _from_tokens, _to_tokens)


def tfidf_of(
    texts: pa.ChunkedArray, settings: TextSettings, runtime: Runtime, progress: Progress = silent
) -> tuple[Tfidf, Csr]:
    """Learn tf-idf features from texts and compute their rows, or load both from the cache."""

    def fit() -> tuple[Tfidf, Csr]:
        tokens = tokens_of(texts, runtime, progress)
        with progress.task("computing tf-idf", total=2) as task:
            tfidf = Tfidf.fit(tokens, settings, runtime.threads)
            task.advance()
            rows = tfidf.transform(tokens, runtime.threads)
            task.advance()
        return tfidf, rows

    def restored(state: State) -> tuple[Tfidf, Csr]:
        tfidf = Tfidf.from_state(settings, state.tables["terms"], SavedState(state))
        parts = tuple(state.arrays[f"rows.{part}"] for part in ("data", "indices", "indptr"))
        return tfidf, sp.csr_array(parts, shape=(len(parts[2]) - 1, len(tfidf)))

    wanted = hashlib.blake2b(json.dumps(to_mapping(settings), sort_keys=True).encode(), digest_size=8).hexdigest()
    place = _place(texts, runtime, f"tfidf-{wanted}")
    return fit() if place is None else _remembered(place, runtime.threads, fit, _from_tfidf, restored)


def vectors_of(
    texts: pa.ChunkedArray,
    encoder: Callable[[], str],
    embed: Callable[[pa.ChunkedArray], NDArray[np.float32]],
    runtime: Runtime,
) -> NDArray[np.float32]:
    """(n, d) vectors of texts; `embed` computes those that are not in the cache, `encoder` hashes what it does.

    Each text is looked up by itself, so that the folds and samples of a data set share their vectors. All vectors are
    rounded to 16 bits, so that they do not depend on the cache.
    """
    if runtime.cache is None or len(texts) < WORTHWHILE_TEXTS:
        return _rounded(embed(texts)).astype(np.float32)
    keys = _text_keys(texts)
    unique, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    kind = f"{__version__}.{RULE}-vectors-{encoder()}"
    found, missing = _known_vectors(runtime.cache, kind, unique, runtime.threads)
    if not len(missing):
        assert found is not None
        return found[numbers].astype(np.float32)
    wanted = texts.take(pa.array(first[missing]))
    made = _rounded(embed(wanted))
    whole = np.empty((len(unique), made.shape[1]), dtype=np.float16) if found is None else found
    whole[missing] = made
    if len(missing) >= WORTHWHILE_TEXTS:
        place = runtime.cache / f"{content_hash(wanted)}-{kind}"
        new: dict[str, NDArray[Any]] = {"keys": unique[missing].view(np.uint8).reshape(-1, _KEY_BYTES), "vectors": made}
        with contextlib.suppress(OSError, XmtcError):
            _write_entry(place, State(arrays=new), runtime.threads)
            _evict(place.parent, keep=place)
    return whole[numbers].astype(np.float32)


def _text_keys(texts: pa.ChunkedArray) -> NDArray[np.bytes_]:
    """(n,) hashes of single texts."""
    parts = (texts.slice(low, _TEXTS_AT_ONCE).to_pylist() for low in range(0, len(texts), _TEXTS_AT_ONCE))
    hashes = [hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest() for part in parts for text in part]
    return np.frombuffer(b"".join(hashes), dtype=f"S{_KEY_BYTES}")


def _rounded(vectors: NDArray[np.float32]) -> NDArray[np.float16]:
    return vectors.astype(np.float16)


def _known_vectors(
    folder: Path, kind: str, keys: NDArray[np.bytes_], threads: int
) -> tuple[NDArray[np.float16] | None, NDArray[np.int64]]:
    """(n, d) cached vectors of ascending keys, None if there are none, and the numbers of the keys without one."""
    found: NDArray[np.float16] | None = None
    missing = np.arange(len(keys))
    try:
        entries = sorted(folder.glob(f"*-{kind}"), key=lambda path: -path.stat().st_mtime)
    except OSError:  # another process has just removed one
        entries = []
    for place in entries[:LATEST]:
        if not len(missing):
            break
        try:
            arrays = _read_entry(place, threads).arrays
            held = np.ascontiguousarray(arrays["keys"]).view(keys.dtype)[:, 0]  # ascending
            at = np.minimum(np.searchsorted(held, keys[missing]), len(held) - 1)
            hits = held[at] == keys[missing]
            if found is None:
                found = np.empty((len(keys), arrays["vectors"].shape[1]), dtype=np.float16)
            found[missing[hits]] = arrays["vectors"][at[hits]]
            os.utime(place)
        except (OSError, XmtcError, KeyError, ValueError, TypeError, AttributeError, IndexError):
            _delete(place)
            continue
        missing = missing[~hits]
    return found, missing


def _place(texts: pa.ChunkedArray, runtime: Runtime, kind: str) -> Path | None:
    if runtime.cache is None or texts.nbytes < WORTHWHILE_BYTES:
        return None
    return runtime.cache / f"{content_hash(texts)}-{__version__}.{RULE}-{kind}"


def _remembered(
    place: Path,
    threads: int,
    make: Callable[[], Thing],
    keep: Callable[[Thing], State],
    restore: Callable[[State], Thing],
) -> Thing:
    if place.exists():
        try:
            os.utime(place)
            return restore(_read_entry(place, threads))
        except (OSError, XmtcError, KeyError, ValueError, TypeError, AttributeError):
            _delete(place)  # incomplete or damaged: create it again
    made = make()
    with contextlib.suppress(OSError, XmtcError):  # on a full or read-only disk, continue without the cache
        _write_entry(place, keep(made), threads)
        _evict(place.parent, keep=place)
    return made


def _delete(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(OSError):
        place.unlink(missing_ok=True)  # a file with the name of an entry


def _write_entry(place: Path, state: State, threads: int) -> None:
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
    try:
        temporary.mkdir(parents=True)
        with (temporary / "arrays.safetensors").open("wb") as stream:
            write_arrays(stream, state.arrays)
        for name, table in state.tables.items():
            with (temporary / f"{name}.arrow").open("wb") as stream, pa.ipc.new_file(stream, table.schema) as writer:
                writer.write_table(table)
        sums = {path.name: file_checksum(path, threads) for path in sorted(temporary.iterdir())}
        content = {"values": state.values, "checksums": sums}
        text = json.dumps({**content, "checksum": _own_checksum(content)}, indent=1)
        (temporary / _ENTRY_FILE).write_text(text, encoding="utf-8")
        temporary.rename(place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _read_entry(place: Path, threads: int) -> State:
    """Map an entry; raise an error unless every file matches its checksum."""
    content = read_json(place / _ENTRY_FILE)
    if content.pop("checksum") != _own_checksum(content):
        raise ValueError(f"{place}: damaged")
    state = State(content["values"])
    for name, expected in content["checksums"].items():
        path = place / name
        if file_checksum(path, threads) != expected:
            raise ValueError(f"{path}: damaged")
        if path.suffix == ".arrow":
            state.tables[path.stem] = map_table(path)
        else:
            state.arrays, _ = map_arrays(path)
    return state


def _own_checksum(content: dict[str, Any]) -> str:
    return checksum(json.dumps(content, sort_keys=True).encode())


def _from_tokens(tokens: Tokens) -> State:
    state = State({"blocks": len(tokens.blocks)}, tables={"types": pa.table({"type": tokens.types})})
    for number, (block, own) in enumerate(zip(tokens.blocks, tokens.types_of, strict=True)):
        state.arrays.update({f"{number}.indptr": block.indptr, f"{number}.ids": block.ids, f"{number}.types": own})
    return state


def _to_tokens(state: State) -> Tokens:
    arrays, numbers = state.arrays, range(state.values["blocks"])
    blocks = [TokenBlock(arrays[f"{number}.indptr"], arrays[f"{number}.ids"]) for number in numbers]
    types_of = [arrays[f"{number}.types"] for number in numbers]
    return Tokens(blocks, types_of, state.tables["types"]["type"].combine_chunks())


def _from_tfidf(fitted: tuple[Tfidf, Csr]) -> State:
    tfidf, rows = fitted
    arrays, terms = tfidf.state()
    parts = {"rows.data": rows.data, "rows.indices": rows.indices, "rows.indptr": rows.indptr}
    return State(arrays={**arrays, **parts}, tables={"terms": terms})


def _evict(folder: Path, keep: Path) -> None:
    """Delete the least recently used entries until the cache is within its size limit."""
    for path in folder.iterdir():  # remains of processes that were killed
        if _UNFINISHED.fullmatch(path.name) and path.stat().st_mtime < time.time() - _DAY:
            shutil.rmtree(path, ignore_errors=True)
    own = [path for path in folder.iterdir() if _ENTRY.fullmatch(path.name) and path != keep]
    entries = sorted(own, key=lambda path: path.stat().st_mtime)
    sizes = {path: sum(file.stat().st_size for file in path.iterdir()) for path in [*entries, keep]}
    total = sum(sizes.values())
    for path in entries:
        if total <= LIMIT_BYTES:
            break
        total -= sizes[path]
        shutil.rmtree(path, ignore_errors=True)
