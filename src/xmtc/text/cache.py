"""Tokens kept by content: tuning and studies read the same texts many times and split them once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa

from xmtc.mapping import let_go
from xmtc.progress import Progress, silent
from xmtc.runtime import Runtime
from xmtc.text.tokens import RULE, TokenBlock, Tokens, tokenise

LIMIT_BYTES = 4 << 30
WORTHWHILE_BYTES = 8 << 20
"""Less text than this is split again in the time that a look into the cache takes."""


def content_hash(texts: pa.ChunkedArray) -> str:
    """A hash of the texts and of where each ends, whatever the chunks."""
    content, lengths = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
    for chunk in texts.chunks:
        if len(chunk):
            offsets = np.frombuffer(chunk.buffers()[1], dtype=np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
            content.update(memoryview(chunk.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])])
            lengths.update(np.diff(offsets).tobytes())
            let_go(chunk)
    content.update(lengths.digest())
    return content.hexdigest()


def tokens_of(texts: pa.ChunkedArray, runtime: Runtime, progress: Progress = silent) -> Tokens:
    """The tokens of these texts, from the cache where it has them."""
    if runtime.cache is None or texts.nbytes < WORTHWHILE_BYTES:
        return _tokenised(texts, runtime, progress)
    folder = runtime.cache / "tokens" / f"{content_hash(texts)}-{RULE}"
    if folder.is_dir():
        try:
            os.utime(folder)
            return _load(folder)
        except (OSError, pa.ArrowException, KeyError):
            shutil.rmtree(folder, ignore_errors=True)  # half gone or damaged: split again
    tokens = _tokenised(texts, runtime, progress)
    with contextlib.suppress(OSError):  # a full or read-only disk costs the cache and nothing else
        _save(folder, tokens)
        _evict(folder.parent, keep=folder)
    return tokens


def _tokenised(texts: pa.ChunkedArray, runtime: Runtime, progress: Progress) -> Tokens:
    with progress.task("splitting into words", total=len(texts)) as task:
        return tokenise(texts, runtime.threads, task.advance)


def _save(folder: Path, tokens: Tokens) -> None:
    """Write beside, then rename."""
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        temporary.mkdir(parents=True)
        types = pa.table({"type": tokens.types})
        with pa.ipc.new_file(str(temporary / "types.arrow"), types.schema) as writer:
            writer.write_table(types)
        width = pa.uint16() if all(block.ids.dtype == np.uint16 for block in tokens.blocks) else pa.int32()
        schema = pa.schema([("ids", pa.list_(width)), ("types", pa.list_(pa.int32()))])
        with pa.ipc.new_file(str(temporary / "blocks.arrow"), schema) as writer:
            for block, own in zip(tokens.blocks, tokens.types_of, strict=True):
                lists = pa.ListArray.from_arrays(pa.array(block.indptr.astype(np.int32)), pa.array(block.ids, width))
                # One row a document; the block's own types ride with its first.
                edges = np.concatenate([[0], np.full(len(block.indptr) - 1, len(own))]).astype(np.int32)
                owned = pa.ListArray.from_arrays(pa.array(edges), pa.array(own, pa.int32()))
                writer.write_batch(pa.record_batch([lists, owned], schema=schema))
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _load(folder: Path) -> Tokens:
    types = pa.ipc.open_file(pa.memory_map(str(folder / "types.arrow"))).read_all()["type"].combine_chunks()
    reader = pa.ipc.open_file(pa.memory_map(str(folder / "blocks.arrow")))
    blocks, types_of = [], []
    for number in range(reader.num_record_batches):
        lists, own = reader.get_batch(number).columns
        blocks.append(TokenBlock(np.asarray(lists.offsets).astype(np.int64), np.asarray(lists.values)))
        types_of.append(np.asarray(own.values))
    return Tokens(blocks, types_of, types)


def _evict(folder: Path, keep: Path) -> None:
    """Remove what was used longest ago until the cache is within its limit."""
    entries = sorted((path for path in folder.iterdir() if path != keep), key=lambda path: path.stat().st_mtime)
    sizes = {path: sum(file.stat().st_size for file in path.iterdir()) for path in [*entries, keep]}
    total = sum(sizes.values())
    for path in entries:
        if total <= LIMIT_BYTES:
            break
        total -= sizes[path]
        shutil.rmtree(path, ignore_errors=True)
