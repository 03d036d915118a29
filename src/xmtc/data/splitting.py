"""Split documents at random into training, validation and test sets; every label keeps a training document."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError, DataError
from xmtc.data.dataset import Csr, Dataset
from xmtc.data.description import document_hashes

Rows = NDArray[np.int64]

_BLOCK = 1 << 16  # groups whose labels are converted to Python lists at a time


def split(
    dataset: Dataset, test: float, valid: float = 0.0, seed: int = 0, *, together: bool = True
) -> dict[str, Rows]:
    """Return the row numbers, ascending, of the parts 'train', 'valid' (if its fraction is not 0) and 'test'.

    Documents are visited in random order. A document is held out unless a label would lose its last training document,
    until round(fraction × documents) are found, first for 'test', then for 'valid'. A part is smaller if no further
    document can be held out. The same seed gives the same parts on every machine.

    With `together`, documents with the same text (or features) go to the same part, so that no test document occurs
    in the training set; empty documents are split individually.
    """
    sizes = _sizes(len(dataset), test, valid)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigError(f"'seed' of a split must be an integer ≥ 0. Got {seed!r}.")
    groups = _groups(dataset, together)
    chooser = _Chooser(groups, dataset.labels)
    # Rank raw bits: NumPy guarantees the same raw bits, but not the same permutations, in all versions.
    order = np.argsort(np.random.PCG64(int(seed)).random_raw(len(chooser.members)), kind="stable")
    part = np.zeros(len(chooser.members), dtype=np.int8)
    for number, size in enumerate(sizes.values(), 1):
        part[chooser.hold_out(order[part[order] == 0], size)] = number
    rows = {name: np.flatnonzero(part[groups] == number) for number, name in enumerate(["train", *sizes])}
    for name in sizes:
        if not len(rows[name]):
            raise DataError(
                f"no document can be held out for '{name}': each has a label that no other training document has, or a "
                "text that is repeated too often. Provide more documents."
            )
    return {name: rows[name] for name in ("train", "valid", "test") if name in rows}


def _sizes(documents: int, test: float, valid: float) -> dict[str, int]:
    """Return the target size of each part, in the order in which they are drawn."""
    if not 0 < test < 1:
        raise ConfigError(f"'test' of a split must be a fraction between 0 and 1, such as 0.1. Got {test:g}.")
    if not 0 <= valid < 1:
        raise ConfigError(f"'valid' of a split must be 0 or a fraction between 0 and 1, such as 0.1. Got {valid:g}.")
    if test + valid >= 1:
        raise ConfigError(f"'test' + 'valid' of a split must be less than 1. Got {test:g} + {valid:g}.")
    shares = {"test": test, "valid": valid} if valid else {"test": test}
    sizes = {name: round(share * documents) for name, share in shares.items()}
    for name, size in sizes.items():
        if not size:
            raise DataError(
                f"{documents:,} documents are too few: a fraction of {shares[name]:g} leaves none for '{name}'. "
                "Provide more documents or a larger fraction."
            )
    if sum(sizes.values()) >= documents:
        raise DataError(f"{documents:,} documents are too few: none is left for training. Provide more documents.")
    return sizes


def _groups(dataset: Dataset, together: bool) -> Rows:
    """Return the group of each document, numbered by first row; documents of a group stay together."""
    if not together:
        return np.arange(len(dataset))
    hashes, empty = document_hashes(dataset)
    filled = np.flatnonzero(~empty)
    first, same = np.unique(hashes[filled], return_index=True, return_inverse=True)[1:]
    leader = np.arange(len(dataset))
    leader[filled] = filled[first[same.reshape(-1)]]
    return np.unique(leader, return_inverse=True)[1].reshape(-1)


class _Chooser:
    """Tracks how many training documents each label has left."""

    def __init__(self, groups: Rows, labels: Csr | None) -> None:
        self.members = np.bincount(groups)
        labels = sp.csr_array((len(groups), 1)) if labels is None else labels
        self._left: list[int] = np.bincount(labels.indices).tolist()
        self._counts = sp.csr_array((np.ones(labels.nnz, dtype=np.int32), labels.indices, labels.indptr), labels.shape)
        if len(self.members) < len(groups):
            places = (np.ones(len(groups), dtype=np.int32), (groups, np.arange(len(groups))))
            self._counts = sp.csr_array(places, (len(self.members), len(groups))) @ self._counts

    def hold_out(self, order: Rows, wanted: int) -> Rows:
        """Choose groups with `wanted` documents in total: the first in `order` that fit and leave every label one."""
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
