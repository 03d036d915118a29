"""Compressed files written with other libraries than the ones under test."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pyarrow as pa

SUFFIXES = ["", ".gz", ".xz", ".bz2", ".zst"]


def pack(path: Path, content: bytes) -> Path:
    """Write `content` by another way than xmtc's own, compressed as the name says."""
    if path.suffix == ".zst":
        with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as stream:
            stream.write(content)
    else:
        encode = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
        path.write_bytes(encode(content))
    return path
