"""Label trees, and algorithms that build them from label features."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.errors import ConfigError, DataError, ModelFormatError
from xmtc.core.parallel import run_parallel
from xmtc.core.progress import Progress, silent
from xmtc.data.dataset import Csr
from xmtc.labels.clustering import balanced_halves, node_seeds, spherical_kmeans

INTEGERS = (np.int64, np.int32, np.uint16, np.uint32, np.uint64)
"""Data types of saved trees."""
MOST_CHILDREN = 65_535
"""Maximum number of children of a node, so that a child's number fits in two bytes."""


@dataclass(frozen=True, eq=False)
class LabelTree:
    """Nodes level by level, starting with the root; all labels are below the last level, at the same depth."""

    order: NDArray[np.int64]
    """(L,) labels, ordered by leaf."""
    starts: tuple[NDArray[np.int64], ...]
    """One array per level: the children of node g of level i are starts[i][g] … starts[i][g + 1] − 1, nodes of
    level i + 1; on the last level they are positions in `order`."""

    def __len__(self) -> int:
        return len(self.order)

    @property
    def depth(self) -> int:
        """Number of levels of nodes, including the root and excluding the labels."""
        return len(self.starts)

    def nodes(self, level: int) -> int:
        """Return the number of nodes of a level; level `depth` is that of the labels."""
        return len(self) if level == self.depth else len(self.starts[level]) - 1

    def bounds(self, level: int, below: int | None = None) -> NDArray[np.int64]:
        """Return where the descendants of each node of `level` start among the nodes of `below` (None: the labels)."""
        reached = self.starts[level]
        for starts in self.starts[level + 1 : below]:
            reached = starts[reached]
        return reached

    def place_of(self) -> NDArray[np.int64]:
        """Return the position (L,) of each label in `order`."""
        places = np.empty(len(self), dtype=np.int64)
        places[self.order] = np.arange(len(self))
        return places

    def node_of(self, level: int) -> NDArray[np.int64]:
        """Return the node (L,) of each label at a level; at level `depth`, its position in `order`."""
        if level == self.depth:
            return self.place_of()
        nodes = np.empty(len(self), dtype=np.int64)
        nodes[self.order] = np.repeat(np.arange(self.nodes(level)), np.diff(self.bounds(level)))
        return nodes

    def parents(self, level: int) -> NDArray[np.int64]:
        """Return the parent of each node of `level`; level `depth` gives the leaf of each position in `order`."""
        if not 0 < level <= self.depth:
            raise ValueError(f"only levels 1 to {self.depth} have parents. Got {level}.")
        return np.repeat(np.arange(self.nodes(level - 1)), np.diff(self.starts[level - 1]))

    def node_labels(self, labels: Csr, level: int) -> Csr:
        """Return a matrix (n, nodes) with a 1 if a document has a label below the node; columns ascend within a row."""
        columns = self.node_of(level).astype(np.int32)[labels.indices]
        ones = np.ones(len(columns), dtype=np.float32)
        shape = (int(labels.shape[0]), self.nodes(level))
        out = sp.csr_array((ones, columns, labels.indptr.copy()), shape=shape)
        out.sum_duplicates()
        out.data[:] = 1.0
        return out

    def compressed(self, levels: Sequence[int]) -> LabelTree:
        """Return a tree with only these levels, including the root (0); nodes adopt their descendants as children."""
        kept = sorted(set(levels))
        if not kept or kept[0] != 0 or kept[-1] >= self.depth:
            raise ValueError(f"the levels must include 0 and be below {self.depth}. Got {list(levels)}.")
        pairs = itertools.pairwise([*kept, self.depth])
        return LabelTree(self.order, tuple(self.bounds(level, below) for level, below in pairs))

    def revised(self, kept: NDArray[np.int64], homes: NDArray[np.int64]) -> TreeRevision:
        """Return a tree over the `kept` labels, renumbered 0, 1, … in this order, followed by new labels.

        `homes` are the leaves (nodes of the last level) of the new labels. Nodes without labels are removed.
        """
        numbers = np.full(len(self), -1, dtype=np.int64)
        numbers[kept] = np.arange(len(kept))
        there = np.flatnonzero(numbers[self.order] >= 0)
        leaves = np.concatenate([self.parents(self.depth)[there], homes])
        labels = np.concatenate([numbers[self.order[there]], len(kept) + np.arange(len(homes))])
        places = np.concatenate([there, np.full(len(homes), -1)])
        by_leaf = np.argsort(leaves, kind="stable")
        counts = np.bincount(leaves, minlength=self.nodes(self.depth - 1))
        starts: list[NDArray[np.int64]] = []
        nodes: list[NDArray[np.int64]] = []
        for level in reversed(range(self.depth)):
            nodes.insert(0, np.flatnonzero(counts))
            starts.insert(0, np.concatenate([[0], np.cumsum(counts[nodes[0]])]))
            if level:
                counts = np.bincount(self.parents(level)[nodes[0]], minlength=self.nodes(level - 1))
        tree = _limited(LabelTree(labels[by_leaf], tuple(starts)), "fewer new labels, or train a new model")
        return TreeRevision(tree, tuple(nodes), places[by_leaf])

    def check(self) -> None:
        """Raise ModelFormatError unless the arrays make a tree."""
        wrong = next(self._faults(), None)
        if wrong:
            raise ModelFormatError(f"the label tree is damaged: {wrong}. Copy or train the model again.")

    def _faults(self) -> Iterator[str]:
        if not self.starts:
            yield "it has no root"
        for array in (self.order, *self.starts):
            if array.ndim != 1 or array.dtype.kind not in "iu":
                yield f"{array.ndim}-d {array.dtype} instead of a list of integers"
        if len(self.starts[0]) != 2:
            yield "it has no single root"
        for level, starts in enumerate(self.starts):
            below = len(self) if level + 1 == self.depth else len(self.starts[level + 1]) - 1
            if len(starts) < 2 or starts[0] != 0 or starts[-1] != below or (starts[1:] <= starts[:-1]).any():
                yield f"the nodes of level {level} are inconsistent with the {below:,} nodes below them"
        if len(self) and (self.order.min() < 0 or self.order.max() >= len(self)):
            yield f"'order' contains labels outside 0 to {len(self) - 1:,}"
        if not np.bincount(self.order, minlength=len(self)).all():
            yield "labels are missing in 'order'"

    def state(self) -> dict[str, NDArray[np.int64]]:
        """Return the arrays to save, by name."""
        return {"order": self.order, **{f"starts-{level}": starts for level, starts in enumerate(self.starts)}}

    @classmethod
    def from_state(cls, state: SavedState, labels: int) -> LabelTree:
        """Restore and check a saved tree over this number of labels."""
        order = state.array("order", INTEGERS, (labels,), low=0, high=labels).astype(np.int64, copy=False)
        held = set(state.names())
        levels = itertools.takewhile(lambda name: name in held, (f"starts-{level}" for level in itertools.count()))
        starts = (state.array(name, INTEGERS, (None,), low=0, high=labels + 1) for name in levels)
        tree = cls(order, tuple(array.astype(np.int64, copy=False) for array in starts))
        tree.check()
        return tree

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.int64]]) -> LabelTree:
        """Restore and check a tree from the arrays of `state`; other arrays are ignored."""
        if "order" not in arrays:
            raise ModelFormatError("the label tree is damaged: 'order' is missing. Copy or train the model again.")
        levels = itertools.takewhile(lambda name: name in arrays, (f"starts-{level}" for level in itertools.count()))
        tree = cls(arrays["order"], tuple(arrays[name] for name in levels))
        tree.check()
        return tree


class TreeRevision(NamedTuple):
    """A tree after labels were removed and added, and its relation to the previous tree."""

    tree: LabelTree
    nodes: tuple[NDArray[np.int64], ...]
    """Previous numbers of the nodes of each level."""
    places: NDArray[np.int64]
    """(L,) previous position of each position in `order`, −1 for new labels."""


def homes_of(tree: LabelTree, relatives: Csr) -> NDArray[np.int64]:
    """Choose a leaf (added,) for each new label: that of its most similar labels, by their weights (added, L).

    A leaf that has reached twice the mean size is skipped for the next best; a label without similar labels goes to
    the leaf with the most room.
    """
    sizes = np.diff(tree.starts[-1])
    room = np.maximum(2 * len(tree) // len(sizes) + 1 - sizes, 0)
    leaves = tree.node_of(tree.depth - 1)
    near = sp.csr_array((relatives.data, leaves[relatives.indices], relatives.indptr), (relatives.shape[0], len(sizes)))
    near.sum_duplicates()
    labels = np.repeat(np.arange(len(near.indptr) - 1), np.diff(near.indptr))
    order = np.lexsort((near.indices, -near.data, labels))  # leaves of each label, nearest first
    liked, starts = near.indices[order].tolist(), near.indptr.tolist()
    homes = np.empty(len(starts) - 1, dtype=np.int64)
    left = room.tolist()
    for label in range(len(homes)):
        home = next((leaf for leaf in liked[starts[label] : starts[label + 1]] if left[leaf] > 0), -1)
        homes[label] = home if home >= 0 else int(np.argmax(left))
        left[homes[label]] -= 1
    return homes


class TreeGrowth(TypedDict, total=False):
    """Arguments of `binary_tree` other than the tree's shape."""

    passes: int
    tolerance: float
    seed: int
    threads: int
    progress: Progress


def binary_tree(
    features: Csr,
    depth: int,
    *,
    align: int = 1,
    passes: int = 20,
    tolerance: float = 1e-4,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = silent,
) -> LabelTree:
    """Build a binary tree with 2^depth leaves and depth + 1 levels of nodes by repeated `balanced_halves`."""
    labels = _label_count(features)
    if not 0 <= depth <= labels.bit_length() - 1:
        raise ConfigError(
            f"'depth' of a tree over {labels:,} labels must be from 0 to {labels.bit_length() - 1}. Got {depth}."
        )
    order, bounds = np.arange(labels), np.array([0, labels])
    with progress.task("clustering labels", total=labels * depth) as task:
        for level in range(depth):
            order, bounds = balanced_halves(
                features,
                order,
                bounds,
                align=align,
                least=1 << (depth - level - 1),
                passes=passes,
                tolerance=tolerance,
                seed=seed,
                level=level,
                threads=threads,
                advance=task.advance,
            )
    pairs = tuple(2 * np.arange((1 << level) + 1) for level in range(depth))
    return _limited(LabelTree(order, (*pairs, bounds)), "a smaller 'leaf_size', or a larger 'depth' of a binary tree")


def balanced_tree(
    features: Csr,
    *,
    leaf_size: int = 128,
    fan_out: int = 256,
    align: int = 16,
    **growth: Unpack[TreeGrowth],
) -> LabelTree:
    """Build a tree with few levels: leaves of about `leaf_size` labels, inner nodes of at most `fan_out` children."""
    levels = balanced_levels(_label_count(features), leaf_size, fan_out)
    tree = binary_tree(features, levels[-1], align=align, **growth)
    return _limited(tree.compressed(levels), "a smaller 'leaf_size' or 'fan_out'")


def balanced_levels(labels: int, leaf_size: int, fan_out: int) -> list[int]:
    """Return the levels of a binary tree to keep: as few as `fan_out` allows, evenly spaced, wider near the root."""
    _at_least("leaf_size", leaf_size, 1)
    bits = min(max(0, round(math.log2(labels / leaf_size))), labels.bit_length() - 1)
    steps = -(-bits // _bits(fan_out))
    narrow, wider = divmod(bits, steps) if steps else (0, 0)
    return list(itertools.accumulate((narrow + (step < wider) for step in range(steps)), initial=0))


def shallow_tree(
    features: Csr,
    *,
    leaf_size: int,
    fan_out: int,
    height: int,
    **growth: Unpack[TreeGrowth],
) -> LabelTree:
    """Build AttentionXML's shallow, wide tree: leaves of at most `leaf_size` labels, `height` levels below the root."""
    levels = shallow_levels(_label_count(features), leaf_size, fan_out, height)
    tree = binary_tree(features, levels[-1], **growth)
    return _limited(tree.compressed(levels), "a smaller 'leaf_size', or a larger 'height' or 'fan_out'")


def shallow_levels(labels: int, leaf_size: int, fan_out: int, height: int) -> list[int]:
    """Return the levels of a binary tree to keep: the last, log2(fan_out) above it, … (`height` of them), the root."""
    _at_least("leaf_size", leaf_size, 1)
    _at_least("height", height, 0)
    bits = min((-(-labels // leaf_size) - 1).bit_length(), labels.bit_length() - 1)
    return [0, *sorted(level for level in range(bits, 0, -_bits(fan_out))[:height])]


def shallow_sizes(labels: int, leaf_size: int, fan_out: int, height: int) -> list[tuple[int, int, int]]:
    """Predict the shape of `shallow_tree`: nodes, parents and maximum number of children, level by level."""
    counts = [1 << level for level in shallow_levels(labels, leaf_size, fan_out, height)] + [labels]
    return [(nodes, parents, -(-nodes // parents)) for parents, nodes in itertools.pairwise(counts)]


def unbalanced_tree(
    features: Csr,
    *,
    clusters: int = 100,
    leaf_size: int = 100,
    depth: int = 3,
    passes: int = 20,
    tolerance: float = 1e-4,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = silent,
) -> LabelTree:
    """Build Bonsai's tree: split nodes with more than `leaf_size` labels by k-means, up to `depth` levels of nodes.

    A node that is not split becomes its own only child, so that all labels are at the same depth.
    """
    labels = _label_count(features)
    for name, value, least in (("clusters", clusters, 2), ("leaf_size", leaf_size, 1), ("depth", depth, 1)):
        _at_least(name, value, least)

    def split(node: tuple[NDArray[np.int64], int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the labels of a node, ordered by cluster, and the sizes of the clusters."""
        members, drawn = node
        if len(members) <= leaf_size:
            return members, np.array([len(members)])
        share = threads if len(members) * threads > labels else 1  # a node too large for one thread
        found = spherical_kmeans(features, members, clusters, passes, drawn, tolerance=tolerance, threads=share)
        return members[np.argsort(found, kind="stable")], np.bincount(found)

    order, bounds = np.arange(labels), np.array([0, labels])
    starts: list[NDArray[np.int64]] = []
    with progress.task("clustering labels", total=labels * (depth - 1)) as task:
        for level in range(depth - 1):
            seeds = node_seeds(seed, level, len(bounds) - 1).tolist()
            parts = []
            for part in run_parallel(split, zip(np.split(order, bounds[1:-1]), seeds, strict=True), threads, ahead=8):
                parts.append(part)
                task.advance(len(part[0]))
            children = np.array([len(sizes) for _, sizes in parts])
            if children.max() == 1:
                task.advance(labels * (depth - 2 - level))
                break
            order = np.concatenate([members for members, _ in parts])
            bounds = np.concatenate([[0], np.cumsum(np.concatenate([sizes for _, sizes in parts]))])
            starts.append(np.concatenate([[0], np.cumsum(children)]))
    return _limited(LabelTree(order, (*starts, bounds)), "a smaller 'leaf_size', or a larger 'depth' or 'clusters'")


def _label_count(features: Csr) -> int:
    if not features.shape[0]:
        raise DataError("a label tree needs at least one label. Got none.")
    return int(features.shape[0])


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"'{name}' of a label tree must be an integer ≥ {least}. Got {value}.")


def _bits(fan_out: int) -> int:
    _at_least("fan_out", fan_out, 2)
    return fan_out.bit_length() - 1


def _limited(tree: LabelTree, remedy: str) -> LabelTree:
    most = max(int(np.diff(starts).max()) for starts in tree.starts)
    if most > MOST_CHILDREN:
        raise ConfigError(
            f"a node of the label tree has {most:,} children; the maximum is {MOST_CHILDREN:,}. Set {remedy}."
        )
    return tree
