"""The checksum of files: a slow reference, and damage that it must notice."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from xmtc.core import checksum as module
from xmtc.core.checksum import BLOCK, COLUMNS, ROWS, checksum, file_checksum

SIZES = (0, 1, 7, 8, 9, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 12_345)


def reference(data: bytes) -> str:
    digest = hashlib.sha256(len(data).to_bytes(8, "little"))
    for start in range(0, len(data), BLOCK):
        block = data[start : start + BLOCK].ljust(BLOCK, b"\0")
        words = [int.from_bytes(block[place : place + 8], "little") for place in range(0, BLOCK, 8)]
        columns = [sum(words[column::COLUMNS]) % 2**64 for column in range(COLUMNS)]
        rows = [sum(words[row * COLUMNS : (row + 1) * COLUMNS]) % 2**64 for row in range(ROWS)]
        digest.update(b"".join(total.to_bytes(8, "little") for total in [*columns, *rows]))
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_equals_the_reference(size: int, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPILED_FROM", 0 if compiled else 1 << 60)
    data = np.random.default_rng(size).bytes(size)
    path = tmp_path / "data"
    path.write_bytes(data)
    assert checksum(data) == file_checksum(path) == file_checksum(path, threads=2) == reference(data)


@pytest.mark.parametrize("content", ["random", "zeros", "ones"])
def test_notices_damage(content: str) -> None:
    rng = np.random.default_rng(5)
    size = 2 * BLOCK + 4321
    data = {"random": rng.bytes(size), "zeros": bytes(size), "ones": b"\xff" * size}[content]
    whole = checksum(data)
    for place in [*map(int, rng.integers(0, size, 60)), 0, size - 1, BLOCK - 1, BLOCK]:
        for damage in (1 << int(rng.integers(8)), 0x80, 0xFF):
            assert checksum(data[:place] + bytes([data[place] ^ damage]) + data[place + 1 :]) != whole, place
    top = bytearray(data)  # two flipped top bits, whose sum is 0 modulo 2⁶⁴
    for place in (7, 7 + 8 * COLUMNS, 7 + 16):
        top[7] ^= 0x80
        top[place] ^= 0x80
        assert (checksum(top) == whole) == (place == 7)
    for changed in (data[:-1], data + b"\0", data[8:] + data[:8] + b"\0", b""):
        assert checksum(changed) != whole


@pytest.mark.parametrize("length", [1, 8, 8 * COLUMNS, 4096, BLOCK])
def test_notices_exchanged_pieces(length: int) -> None:
    data = np.random.default_rng(length).bytes(3 * BLOCK)
    pieces = [data[start : start + length] for start in range(0, len(data), length)]
    for first, second in ((0, 1), (0, len(pieces) - 1), (1, len(pieces) // 2)):
        swapped = list(pieces)
        swapped[first], swapped[second] = pieces[second], pieces[first]
        changed = b"".join(swapped)
        assert (checksum(changed) == checksum(data)) == (changed == data)
