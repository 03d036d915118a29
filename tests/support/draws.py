"""The random number generator of the word2vec kernel in plain Python."""

from __future__ import annotations

from xmtc.text.word2vec import (
    scrambled,
)


class Draws:
    """The kernel's random numbers, in Python's integers."""

    def __init__(self, seed: int) -> None:
        self.state = scrambled(seed)

    def __call__(self) -> int:
        mask = (1 << 64) - 1
        self.state ^= (self.state << 13) & mask
        self.state ^= self.state >> 7
        self.state ^= (self.state << 17) & mask
        return (self.state * 0x2545F4914F6CDD1D) & mask
