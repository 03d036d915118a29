"""Split documents at random: into training, validation and test sets, or into stratified folds."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components

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

    With `together`, documents with the same text (or features and labels) go to the same part, so that no test document
    occurs in the training set; empty documents are split individually.
    """
    sizes = _sizes(len(dataset), test, valid)
    check_seed(seed)
    groups = document_groups(dataset, together)
    chooser = _Chooser(groups, dataset.labels)
    order = random_order(len(chooser.members), seed)
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


def check_seed(seed: object) -> None:
    """Refuse a seed that is not an integer ≥ 0."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigError(f"'seed' of a split must be an integer ≥ 0. Got {seed!r}.")


def random_order(count: int, seed: int) -> Rows:
    """A random permutation, the same on every machine."""
    # Rank raw bits: NumPy guarantees the same raw bits, but not the same permutations, in all versions.
    return np.argsort(np.random.PCG64(int(seed)).random_raw(count), kind="stable")


def document_groups(dataset: Dataset, together: bool = True, groups: ArrayLike | None = None) -> Rows:
    """(n,) group of each document, numbered by first row; documents of a group belong on the same side of a split.

    With `together`, documents with the same text (or features and labels) are in one group; so are documents with the
    same value in `groups`. Groups that share a text are merged.
    """
    count = len(dataset)
    leader = np.arange(count)
    if together:
        hashes, empty = document_hashes(dataset)
        filled = np.flatnonzero(~empty)
        first, same = np.unique(hashes[filled], return_index=True, return_inverse=True)[1:]
        leader[filled] = filled[first[same.reshape(-1)]]
    if groups is not None:
        given = np.asarray(groups)
        if given.shape != (count,):
            raise DataError(f"'groups' must have one value for each of the {count:,} documents.")
        first, same = np.unique(given, return_index=True, return_inverse=True)[1:]
        links = sp.csr_array(
            (np.ones(2 * count, dtype=np.int8), (np.tile(np.arange(count), 2), np.r_[leader, first[same.reshape(-1)]])),
            shape=(count, count),
        )
        part = connected_components(links, directed=False)[1]
        first, same = np.unique(part, return_index=True, return_inverse=True)[1:]
        leader = first[same.reshape(-1)]
    return np.unique(leader, return_inverse=True)[1].reshape(-1)


def folds(
    dataset: Dataset, count: int, seed: int = 0, *, together: bool = True, groups: ArrayLike | None = None
) -> NDArray[np.int64]:
    """Return the fold (n,) of each document, from 0 to `count` − 1, for cross-validation.

    Folds differ in size by at most one document, unless groups are too large for that. Each label is spread over the
    folds as evenly as possible, rare labels first: documents are visited from those with the rarest label to those
    without labels, and each goes to the fold that has the fewest documents with its rarest label, then with its second
    rarest, and so on; among these, to the smallest. The same seed gives the same folds on every machine.

    With `together`, documents with the same text (or features and labels) are in the same fold; so are documents with
    the same value in `groups`.
    """
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 2:
        raise ConfigError(f"'count' of folds must be an integer ≥ 2. Got {count!r}.")
    check_seed(seed)
    units = document_groups(dataset, together, groups)
    members = np.bincount(units)
    if len(members) < count:
        what = "documents" if len(members) == len(dataset) else "documents or groups of documents"
        raise DataError(f"{len(members):,} {what} are too few for {count} folds. Choose fewer folds.")
    labels = _rarest_first(_unit_labels(units, len(members), dataset.labels), seed)
    rarest = np.full(len(members), labels.shape[1])
    filled = np.flatnonzero(np.diff(labels.indptr))
    rarest[filled] = labels.indices[labels.indptr[filled]]
    # Label by label, from rare to frequent; large units before, by size, so that the others even out the folds.
    large = np.where(members * count > len(dataset) // 100, members, 1)
    order = random_order(len(members), seed)
    order = order[np.lexsort((rarest[order], -large[order]))]
    return _Folds(int(count), members, int(labels.shape[1])).fill(order, labels)[units]


def _unit_labels(units: Rows, count: int, labels: Csr | None) -> Csr:
    """(units, L) number of documents with each label, for `count` units of documents."""
    if labels is None:
        return sp.csr_array((count, 1), dtype=np.int32)
    counts = sp.csr_array((np.ones(labels.nnz, dtype=np.int32), labels.indices, labels.indptr), labels.shape)
    if count == len(units):
        return counts
    places = (np.ones(len(units), dtype=np.int32), (units, np.arange(len(units))))
    return sp.csr_array(places, (count, len(units))) @ counts


def _rarest_first(counts: Csr, seed: int) -> Csr:
    """Number labels from rare to frequent, those of the same frequency at random; sort the labels of each unit so.

    Labels of a single unit, which cannot be spread, are dropped.
    """
    units_with = np.bincount(counts.indices, minlength=counts.shape[1])
    several = np.flatnonzero(units_with > 1)
    several = several[random_order(len(several), seed)]
    several = several[np.argsort(units_with[several], kind="stable")]
    found = sp.csr_array(counts[:, several])
    found.sort_indices()
    return found


class _Folds:
    """The folds while documents are distributed: their sizes, and the documents of each label in each fold."""

    def __init__(self, count: int, members: Rows, width: int) -> None:
        self.count, self.members = count, members
        self._sizes = [0] * count
        self._held = array("i", bytes(4 * width * count))  # of a label in all folds, label by label
        self._quota, self._larger = divmod(int(members.sum()), count)

    def fill(self, order: Rows, labels: Csr) -> Rows:
        """(units,) the fold of each unit, visited in this order."""
        count, sizes, held = self.count, self._sizes, self._held
        fold_of = np.empty(len(self.members), dtype=np.int64)
        left = len(order)
        for start in range(0, len(order), _BLOCK):
            block = order[start : start + _BLOCK]
            rows = labels[block]
            firsts, times, members = (rows.indices * count).tolist(), rows.data.tolist(), self.members[block].tolist()
            found = []
            for size, (begin, end) in zip(members, pairwise(rows.indptr.tolist()), strict=True):
                folds = self._with_room(size, left)
                for at in range(begin, end):
                    if len(folds) == 1:
                        break
                    first = firsts[at]
                    has = [held[first + fold] for fold in folds]
                    least = min(has)
                    if max(has) > least:
                        folds = [fold for fold, number in zip(folds, has, strict=True) if number == least]
                chosen = folds[0] if len(folds) == 1 else min(folds, key=sizes.__getitem__)
                for at in range(begin, end):
                    held[firsts[at] + chosen] += times[at]
                self._grow(chosen, size)
                found.append(chosen)
                left -= 1
            fold_of[block] = found
        return fold_of

    def _with_room(self, size: int, left: int) -> list[int]:
        """The folds that a unit of this size may join, if `left` units are to be distributed; at least one."""
        sizes, room = self._sizes, self._quota - size + (self._larger > 0)
        folds = [fold for fold, filled in enumerate(sizes) if filled <= room]
        if left <= self.count:
            empty = [fold for fold, filled in enumerate(sizes) if not filled]
            folds = empty if left <= len(empty) else folds
        smallest = min(sizes)
        return folds or [fold for fold, filled in enumerate(sizes) if filled == smallest]

    def _grow(self, fold: int, size: int) -> None:
        before = self._sizes[fold]
        self._sizes[fold] = before + size
        if before <= self._quota < before + size:  # one of the folds that exceed the quota, of which there are few
            self._larger -= 1


class _Chooser:
    """Tracks how many training documents each label has left."""

    def __init__(self, groups: Rows, labels: Csr | None) -> None:
        self.members = np.bincount(groups)
        self._left: list[int] = [] if labels is None else np.bincount(labels.indices).tolist()
        self._counts = _unit_labels(groups, len(self.members), labels)

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
