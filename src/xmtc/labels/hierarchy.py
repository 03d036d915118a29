"""The hierarchy of labels: broader, narrower and related labels by number.

Labels come first, in the order of their index. They are followed by broader labels that are not in the index but link
its labels: its ancestors, and parents of which only the key is known. Vocabularies are not always trees: a label may
have several parents, and links may form cycles. Links of a label to itself and repeated links are ignored.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from xmtc.data.label_index import Csr, LabelIndex

Numbers = NDArray[np.int64]
PAIRS = 1 << 20
"""Pairs of labels whose steps are counted at once."""


class Hierarchy:
    """Links between labels, as sparse (N, N) matrices with a row for each label and each further broader label."""

    def __init__(self, labels: LabelIndex) -> None:
        self._labels = labels.table  # not the index itself, which `of` must not keep
        above = [] if labels.ancestors is None else [labels.ancestors.table]
        self._table = pa.concat_tables([labels.table, *above])
        keys, parents = self._table["key"], pc.list_flatten(self._table["parents"])
        others = pc.unique(parents.filter(pc.invert(pc.is_in(parents, keys.combine_chunks())))).drop_null()
        self.keys: pa.Array = pa.concat_arrays([*keys.chunks, others])
        self.label_count, self.count = len(labels), len(self.keys)
        self.parents: Csr = self._links("parents")
        """Broader labels, one step up."""

    @classmethod
    def of(cls, labels: LabelIndex) -> Hierarchy:
        """The hierarchy of these labels. It is built on the first call and kept as long as the labels are."""
        found = _BUILT.get(id(labels))
        if found is None or found._labels is not labels.table:
            found = _BUILT[id(labels)] = cls(labels)
            weakref.finalize(labels, _BUILT.pop, id(labels), None)
        return found

    def __bool__(self) -> bool:
        """Whether any label has a broader one."""
        return bool(self.parents.nnz)

    @cached_property
    def children(self) -> Csr:
        """Narrower labels, one step down."""
        return sp.csr_array(self.parents.T.tocsr())

    @cached_property
    def related(self) -> Csr:
        """Related labels; the relation is symmetric, even if the vocabulary gives only one direction."""
        links = self._links("related")
        return sp.csr_array(links + links.T)

    def number(self, key: str) -> int:
        """The number of the label with this key, −1 if there is none."""
        return int(pc.index(self.keys, key).as_py())

    def ancestors(self, label: int) -> Numbers:
        """The labels above a label at any number of steps, in ascending order; never the label itself."""
        reached = self.above_any([label])
        reached[label] = False
        return np.flatnonzero(reached)

    def descendants(self, label: int) -> Numbers:
        """The labels below a label at any number of steps, in ascending order; never the label itself."""
        reached = self.under([label])
        reached[label] = False
        return np.flatnonzero(reached)

    def under(self, labels: ArrayLike) -> NDArray[np.bool_]:
        """(N,) mask of these labels and of all labels below one of them."""
        return self._reached(self.children, labels)

    def above_any(self, labels: ArrayLike) -> NDArray[np.bool_]:
        """(N,) mask of these labels and of all labels above one of them."""
        return self._reached(self.parents, labels)

    def above(self, labels: ArrayLike, most: int | None = None) -> Csr:
        """(len(labels), N) the number of steps up to each label above, plus 1: a label itself is 1, its parents are 2.

        Only labels at most `most` steps up are included. The indices of each row are in ascending order.
        """
        starts = np.asarray(labels, dtype=np.int64)
        count = max(self.count, 1)
        front = np.arange(len(starts), dtype=np.int64) * count + starts  # each (row, label) as one number
        seen, found, steps = front, [front], 0
        while len(front) and (most is None or steps < most):
            reached = _next(self.parents, front, count)
            front = reached[~np.isin(reached, seen, assume_unique=True)]
            seen = np.concatenate([seen, front])
            found.append(front)
            steps += 1
        values = np.repeat(np.arange(1, len(found) + 1, dtype=np.int32), [len(part) for part in found])
        matrix = sp.csr_array((values, np.divmod(seen, count)), shape=(len(starts), self.count))
        matrix.sort_indices()
        return matrix

    def steps(self, left: ArrayLike, right: ArrayLike, most: int) -> Numbers:
        """The number of steps between the labels of each pair: up to a common broader label, then down again.

        0 for equal labels, 1 for a label and its parent, 2 for two children of one parent; −1 if they are more than
        `most` steps apart. In a tree, this is the length of the path between them.
        """
        a, b = np.asarray(left, dtype=np.int64), np.asarray(right, dtype=np.int64)
        used, places = np.unique(np.concatenate([a, b]), return_inverse=True)
        above = self.above(used, most)
        codes = np.repeat(np.arange(len(used)), np.diff(above.indptr)) * max(self.count, 1) + above.indices
        pairs = places.reshape(2, -1)
        parts = [
            _fewest_steps(above, codes, *pairs[:, start : start + PAIRS]) for start in range(0, pairs.shape[1], PAIRS)
        ]
        found = np.concatenate([np.empty(0, dtype=np.int64), *parts])
        return np.where(found <= most, found, -1)

    def _reached(self, links: Csr, labels: ArrayLike) -> NDArray[np.bool_]:
        """(N,) mask of these labels and of all that links lead to. One search starts at a node that links to them."""
        from scipy.sparse import csgraph  # a tenth of a second that most commands do not need

        starts = np.unique(np.asarray(labels, dtype=np.int64))
        indices = np.concatenate([links.indices, starts])
        ends = np.append(links.indptr, len(indices))
        graph = sp.csr_array((np.ones(len(indices)), indices, ends), shape=(self.count + 1, self.count + 1))
        order = csgraph.breadth_first_order(graph, self.count, return_predecessors=False)
        reached = np.zeros(self.count + 1, dtype=bool)
        reached[order] = True
        return reached[: self.count]

    def _links(self, column: str) -> Csr:
        """(N, N) links to the labels that a column of lists names by key."""
        lists = self._table[column].combine_chunks()
        rows = np.asarray(pc.list_parent_indices(lists), dtype=np.int64)
        found = pc.index_in(pc.list_flatten(lists), value_set=self.keys)
        numbers = np.asarray(pc.fill_null(found, -1), dtype=np.int64)
        kept = (numbers >= 0) & (numbers != rows)
        ones: NDArray[Any] = np.ones(int(kept.sum()), dtype=bool)
        return sp.csr_array((ones, (rows[kept], numbers[kept])), shape=(self.count, self.count))


_BUILT: dict[int, Hierarchy] = {}
"""Hierarchies by the identity of their labels."""


def linked(labels: LabelIndex, vocabulary: LabelIndex) -> LabelIndex:
    """Some labels of a vocabulary, with all broader labels that it has for them."""
    known = labels.joined(vocabulary)
    table = known.table if known.ancestors is None else pa.concat_tables([known.table, known.ancestors.table])
    hierarchy = Hierarchy(LabelIndex(table))
    if not hierarchy:
        return labels
    above = hierarchy.above_any(np.arange(len(labels)))[: len(table)]
    above[: len(labels)] = False
    return LabelIndex(labels.table, LabelIndex(table.filter(pa.array(above))) if above.any() else None)


def relinked(labels: LabelIndex, keys: Mapping[str, str]) -> LabelIndex:
    """The same labels and ancestors with links to the new keys of labels (old key → new key)."""
    if not keys:
        return labels
    old, own = pa.array(list(keys), pa.string()), labels.table["key"]
    for column in ("parents", "related"):
        lists = labels.table[column].combine_chunks()
        linking = pc.list_parent_indices(lists).filter(pc.is_in(pc.list_flatten(lists), old))
        rows = np.unique(np.asarray(linking, dtype=np.int64))
        found = lists.take(pa.array(rows)).to_pylist()
        new = {}
        for row, links in zip(rows.tolist(), found, strict=True):
            targets = dict.fromkeys(keys.get(key, key) for key in links)
            new[row] = [key for key in targets if key != own[row].as_py()]
        labels = labels.with_lists(column, new)
    above = labels.ancestors
    return labels if above is None else LabelIndex(labels.table, relinked(above, keys))


def _next(links: Csr, pairs: Numbers, count: int) -> Numbers:
    """The pairs (row, label), each as row · count + label, one link further; in ascending order."""
    rows, at = np.divmod(pairs, count)
    sizes = np.diff(links.indptr)[at]
    places = np.repeat(links.indptr[at] - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
    return np.unique(np.repeat(rows, sizes) * count + links.indices[places])


def _fewest_steps(above: Csr, codes: Numbers, left: Numbers, right: Numbers) -> Numbers:
    """Fewest steps over any common label of two rows of `above`, a large number if there is none."""
    width = max(above.shape[1], 1)
    sizes = np.diff(above.indptr)[left]
    places = np.repeat(above.indptr[left] - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
    wanted = np.repeat(right, sizes) * width + above.indices[places]  # the same label above the other one
    at = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
    far = np.iinfo(np.int64).max
    total = np.where(codes[at] == wanted, above.data[at].astype(np.int64) + above.data[places] - 2, far)
    starts = np.cumsum(sizes) - sizes
    return np.minimum.reduceat(total, starts) if len(starts) else np.empty(0, dtype=np.int64)
