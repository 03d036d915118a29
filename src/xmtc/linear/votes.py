"""Labels that several trees propose for each document, and their mean probabilities.

A label that a tree does not list has there, until its probability is known, at least zero and at most the tree's last
listed one. Only labels that can be among the best by these bounds are looked up, two or three of a document.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import kernel
from xmtc.core.selection import keep_best, nth_largest, sort_best


class Votes:
    """The candidates of each row, from lists (trees, n, s) of labels and log-probabilities, best first."""

    def __init__(self, found: NDArray[np.int64], logs: NDArray[np.float32], k: int) -> None:
        trees, rows, size = found.shape
        self._best = k
        self._candidates = np.empty((rows, trees * size), dtype=np.int64)  # −1 as padding
        self._known = np.empty((rows, trees * size, trees), dtype=np.float32)  # −1 if not known
        slots = np.full(4 << (trees * size).bit_length(), -1, dtype=np.int64)
        self._lacks = _merge(found, logs, k, slots, self._candidates, self._known)

    def missing(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Each tree with the candidates (n, c) to look up in it, −1 elsewhere."""
        if self._lacks:
            for tree in range(self._known.shape[2]):
                lacks = np.isneginf(self._known[:, :, tree])
                if lacks.any():
                    yield tree, np.where(lacks, self._candidates, -1)

    def add(self, tree: int, candidates: NDArray[np.int64], given: NDArray[np.float32]) -> None:
        """Add the probabilities (n, c) of candidates in a tree that does not list them."""
        np.copyto(self._known[:, :, tree], given, where=candidates >= 0)

    def best(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(n, k) labels with the largest mean probabilities; on ties, lower numbers first; −1 and −∞ as padding."""
        found = np.full((len(self._candidates), self._best), -1, dtype=np.int64)
        given = np.full(found.shape, -np.inf, dtype=np.float32)
        _rank(self._candidates, self._known, found, given)
        return found, given


@kernel(outputs=("slots", "candidates", "known"))
def _merge(
    found: NDArray[np.int64],
    logs: NDArray[np.float32],
    k: int,
    slots: NDArray[np.int64],
    candidates: NDArray[np.int64],
    known: NDArray[np.float32],
) -> bool:
    """Number the distinct labels of each row; returns whether probabilities are to be looked up.

    `known` gets the probabilities, −∞ for those to look up, and −1 for those that do not matter: their label cannot be
    among the best k. `slots` is a hash table of −1, because lists may have thousands of labels.
    """
    trees, rows, size = found.shape
    mask, lacks = len(slots) - 1, False
    used, lower, floors = (
        np.empty(trees * size, np.int64),
        np.empty(trees * size, np.float32),
        np.empty(trees, np.float32),
    )
    for row in range(rows):
        count = 0
        for tree in range(trees):
            floors[tree] = 0.0
            for place in range(size):
                label = found[tree, row, place]
                if label < 0:
                    break
                slot = ((label * 0x9E3779B1) >> 7) & mask
                while slots[slot] >= 0 and candidates[row, slots[slot]] != label:
                    slot = (slot + 1) & mask
                if slots[slot] < 0:
                    slots[slot] = count
                    used[count] = slot
                    candidates[row, count] = label
                    lower[count] = 0.0
                    for other in range(trees):
                        known[row, count, other] = -1.0
                    count += 1
                chance = np.float32(np.exp(np.float64(logs[tree, row, place])))
                known[row, slots[slot], tree] = chance
                lower[slots[slot]] += chance
                if place == size - 1:
                    floors[tree] = chance
        for at in range(count):
            slots[used[at]] = -1
        for at in range(count, trees * size):
            candidates[row, at] = -1
        least = nth_largest(lower[:count], k) if k < count else np.float32(0.0)
        for at in range(count):
            upper = lower[at]
            for tree in range(trees):
                if known[row, at, tree] < 0.0:
                    upper += floors[tree]
            if upper >= least:
                for tree in range(trees):
                    if known[row, at, tree] < 0.0:
                        known[row, at, tree] = -np.inf
                        lacks = True
    return lacks


@kernel(outputs=("found", "given"))
def _rank(
    candidates: NDArray[np.int64],
    known: NDArray[np.float32],
    found: NDArray[np.int64],
    given: NDArray[np.float32],
) -> None:
    """Write the labels of each row with the largest means of their probabilities."""
    trees = np.float32(known.shape[2])
    for row in range(len(candidates)):
        held = 0
        for at in range(candidates.shape[1]):
            label = candidates[row, at]
            if label < 0:
                break
            total, is_known = np.float32(0.0), True
            for chance in known[row, at]:
                total += chance
                is_known &= chance >= 0.0
            if not is_known:
                continue
            held = keep_best(found[row], given[row], held, label, total / trees)
        sort_best(found[row], given[row], held)
