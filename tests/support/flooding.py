"""Words that collide in a hash table without a key (FNV-1a, linear probing), and random ones of equal size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", dtype=np.uint8)
LENGTH = 7
"""Characters of a word."""
CROWD = 128
"""A flood has only words for the first slots, one in so many."""


def slots(words: NDArray[np.uint8], size: int) -> NDArray[np.int64]:
    """The slot of each word (n, LENGTH) in a table of this size."""
    hashed = np.full(len(words), 0xCBF29CE484222325, dtype=np.uint64)
    for column in words.T:
        hashed = (hashed ^ column.astype(np.uint64)) * np.uint64(0x100000001B3)
    return ((hashed ^ (hashed >> np.uint64(32))) & np.uint64(size - 1)).astype(np.int64)


def table_size(words: int) -> int:
    """Slots of the table for so many words."""
    return max(16, 1 << (2 * words - 1).bit_length())


def random_words(count: int, seed: int = 0) -> list[str]:
    """Distinct random words."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found |= dict.fromkeys(_strings(_drawn(rng, count)))
    return list(found)[:count]


def flooding_words(count: int, seed: int = 0) -> list[str]:
    """Distinct words that all belong into the first slots."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    size = table_size(count)
    while len(found) < count:
        words = _drawn(rng, 1 << 20)
        found |= dict.fromkeys(_strings(words[slots(words, size) < size // CROWD]))
    return list(found)[:count]


def probes(words: list[str]) -> int:
    """Slots that linear probing looks at to insert each word, counted one by one."""
    size = table_size(len(words))
    filled = bytearray(size)
    total = 0
    for slot in slots(np.frombuffer("".join(words).encode(), dtype=np.uint8).reshape(-1, LENGTH), size).tolist():
        at = slot
        while filled[at]:
            at = (at + 1) % size
            total += 1
        filled[at] = 1
        total += 1
    return total


def _drawn(rng: np.random.Generator, count: int) -> NDArray[np.uint8]:
    return LETTERS[rng.integers(len(LETTERS), size=(count, LENGTH))]


def _strings(words: NDArray[np.uint8]) -> list[str]:
    text = words.tobytes().decode()
    return [text[at : at + LENGTH] for at in range(0, len(text), LENGTH)]
