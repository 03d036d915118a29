"""Cut documents into parts to train, choose and test on, at random and without losing a label from training."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError, DataError
from xmtc.data.dataset import Csr, Dataset
from xmtc.data.description import document_hashes

Rows = NDArray[np.int64]

_BLOCK = 1 << 16  # groups whose labels are plain Python lists at a time


def split(
    dataset: Dataset, test: float, valid: float = 0.0, seed: int = 0, *, together: bool = True
) -> dict[str, Rows]:
    """Row numbers, ascending, of the parts 'train', 'valid' (if there is a share for it) and 'test'.

    Documents are gone through in random order. One is held out unless a label would lose its last document of
    'train' by it, until round(share × documents) are found: first for 'test', then for 'valid'. A part is smaller than
    that where no further document can be spared, and the same seed gives the same parts on every machine.

    With `together`, documents of equal text (or features) go to the same part, so that none is tested on that was
    learnt by heart; empty ones go their own ways. Without equal documents it changes nothing.
    """
    sizes = _sizes(len(dataset), test, valid)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigError(f"'seed' of a split must be an integer ≥ 0. Got {seed!r}.")
    groups = _groups(dataset, together)
    chooser = _Chooser(groups, dataset.labels)
    # Ranks of raw bits: NumPy keeps these the same over versions, which it does not promise of its permutations.
    order = np.argsort(np.random.PCG64(int(seed)).random_raw(len(chooser.members)), kind="stable")
    part = np.zeros(len(chooser.members), dtype=np.int8)
    for number, size in enumerate(sizes.values(), 1):
        part[chooser.hold_out(order[part[order] == 0], size)] = number
    rows = {name: np.flatnonzero(part[groups] == number) for number, name in enumerate(["train", *sizes])}
    for name in sizes:
        if not len(rows[name]):
            raise DataError(
                f"no document can be held out for '{name}': each has a label that no document left to train on has, or "
                "a text that is there too often. Give more documents."
            )
    return {name: rows[name] for name in ("train", "valid", "test") if name in rows}


def _sizes(documents: int, test: float, valid: float) -> dict[str, int]:
    """How many documents each part should hold, in the order in which they are chosen."""
    if not 0 < test < 1:
        raise ConfigError(f"'test' of a split must be a share between 0 and 1, such as 0.1. Got {test:g}.")
    if not 0 <= valid < 1:
        raise ConfigError(f"'valid' of a split must be 0 or a share between 0 and 1, such as 0.1. Got {valid:g}.")
    if test + valid >= 1:
        raise ConfigError(f"'test' and 'valid' of a split must leave something to train on. Got {test:g} + {valid:g}.")
    shares = {"test": test, "valid": valid} if valid else {"test": test}
    sizes = {name: round(share * documents) for name, share in shares.items()}
    for name, size in sizes.items():
        if not size:
            raise DataError(
                f"{documents:,} documents are too few: {shares[name]:g} of them is none for '{name}'. "
                "Give more documents or a larger share."
            )
    if sum(sizes.values()) >= documents:
        raise DataError(f"{documents:,} documents are too few: none is left to train on. Give more documents.")
    return sizes


def _groups(dataset: Dataset, together: bool) -> Rows:
    """(n,) the group of each document, numbered by first row; documents of a group stay together."""
    if not together:
        return np.arange(len(dataset))
    hashes, empty = document_hashes(dataset)
    filled = np.flatnonzero(~empty)
    first, same = np.unique(hashes[filled], return_index=True, return_inverse=True)[1:]
    leader = np.arange(len(dataset))
    leader[filled] = filled[first[same.reshape(-1)]]
    return np.unique(leader, return_inverse=True)[1].reshape(-1)


class _Chooser:
    """Remembers how many documents each label still has in 'train'."""

    def __init__(self, groups: Rows, labels: Csr | None) -> None:
        self.members = np.bincount(groups)
        labels = sp.csr_array((len(groups), 1)) if labels is None else labels
        self._left: list[int] = np.bincount(labels.indices).tolist()
        self._counts = sp.csr_array((np.ones(labels.nnz, dtype=np.int32), labels.indices, labels.indptr), labels.shape)
        if len(self.members) < len(groups):
            places = (np.ones(len(groups), dtype=np.int32), (groups, np.arange(len(groups))))
            self._counts = sp.csr_array(places, (len(self.members), len(groups))) @ self._counts

    def hold_out(self, order: Rows, wanted: int) -> Rows:
        """Groups of `wanted` documents in all, the first in `order` that fit in and take no label's last document."""
        left, chosen = self._left, []
        for start in range(0, len(order), _BLOCK):
            block = order[start : start + _BLOCK]
            counts = self._counts[block]
            labels, times, members = counts.indices.tolist(), counts.data.tolist(), self.members[block].tolist()
            for group, size, (begin, end) in zip(
                block.tolist(), members, pairwise(counts.indptr.tolist()), strict=True
            ):
                if size > wanted:
                    continue
                if all(left[labels[at]] > times[at] for at in range(begin, end)):
                    for at in range(begin, end):
                        left[labels[at]] -= times[at]
                    chosen.append(group)
                    wanted -= size
                    if not wanted:
                        return np.array(chosen, dtype=np.int64)
        return np.array(chosen, dtype=np.int64)
