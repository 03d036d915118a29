"""Training of boosted trees: bin edges, growth leaf by leaf, early stopping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from xmtc.core.cancellation import check
from xmtc.core.config import Settings
from xmtc.core.jit import frozen
from xmtc.core.parallel import run_parallel
from xmtc.core.progress import Progress
from xmtc.lexical.tree_kernels import (
    CODES,
    EDGES,
    LEAVES,
    STEP,
    add_histogram,
    add_tree,
    best_split,
    encode,
    mark_leaves,
    partition,
    update_gradients,
)

Result = TypeVar("Result")

SAMPLE = 200_000
"""Rows from which bin edges are computed."""
MIN_GAIN = 1e-6
"""Splits that gain less are rounding errors."""
PIECE = 1 << 15
"""Rows for which a further thread pays."""
MAX_STEP = 10.0
"""Bound of the value of a node before the learning rate: Newton steps overshoot if the Hessian is small."""


@dataclass(frozen=True)
class BoostingSettings(Settings):
    """Settings of boosted trees."""

    of = "boosted trees"
    trees: int = 200
    """Number of trees, less if early stopping ends the training."""
    max_leaves: int = 31
    """Leaves of a tree, 32 at most."""
    learning_rate: float = 0.1
    """Shrinkage of each tree."""
    min_rows: int = 20
    """Minimum number of rows in a leaf."""
    min_hessian: float = 1e-3
    """Sum of the second derivatives of the loss in a leaf, at least."""
    l2: float = 1.0
    """L2 regularisation of the leaf values."""
    feature_fraction: float = 1.0
    """Fraction of the features that each tree may use, drawn at random."""
    patience: int = 20
    """Trees without a lower loss on the validation rows after which training stops."""

    def check(self) -> None:
        """Check the bounds."""
        self.require_range("trees", 1)
        self.require_range("max_leaves", 2, LEAVES)
        self.require_range("learning_rate", 0, 1, open_low=True)
        self.require_range("min_rows", 1)
        self.require_range("min_hessian", 0, open_low=True)
        self.require_range("l2", 0)
        self.require_range("feature_fraction", 0, 1, open_low=True)
        self.require_range("patience", 1)


SPLIT_TYPES: tuple[Any, ...] = (np.int64, np.uint8, np.int32, np.uint8, np.uint8, np.float32, np.float32, np.float32)
"""Types of the arrays of `Splits`."""
Split: TypeAlias = tuple[int, int, int, int, float, float]
"""Leaf, feature, threshold, missing_right, left and right value."""


class Splits(NamedTuple):
    """The splits of all trees, tree by tree; see `tree_kernels`."""

    tree_start: NDArray[np.int64]  # (T + 1,)
    leaf: NDArray[np.uint8]  # (S,)
    feature: NDArray[np.int32]  # (S,)
    threshold: NDArray[np.uint8]  # (S,), codes up to it pass to the left
    missing_right: NDArray[np.uint8]  # (S,)
    root: NDArray[np.float32]  # (T,), value of a tree before its first split
    left: NDArray[np.float32]  # (S,), value of the left part
    right: NDArray[np.float32]  # (S,)

    @classmethod
    def of_tree(cls, root: float, splits: list[Split]) -> Splits:
        """The splits of a single tree."""
        columns: list[Any] = list(zip(*splits, strict=True))
        values = np.array([0, len(splits)]), *columns[:4], [root], *columns[4:]
        return cls(*(np.array(column, kind) for column, kind in zip(values, SPLIT_TYPES, strict=True)))

    @classmethod
    def joined(cls, trees: list[Splits]) -> Splits:
        """The splits of several trees."""
        columns = [np.concatenate([np.empty(0, k), *(tree[i] for tree in trees)]) for i, k in enumerate(SPLIT_TYPES)]
        columns[0] = np.cumsum([0, *(len(tree.leaf) for tree in trees)], dtype=np.int64)
        return cls(*columns)


def bin_edges(rows: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """(f, EDGES) edges of bins that hold about the same number of rows each; frequent values have their own bin.

    Features with few values have an edge between any two of them. Unused edges are infinite.
    """
    if len(rows) > SAMPLE:
        rows = rows[np.sort(np.random.default_rng(seed).choice(len(rows), SAMPLE, replace=False))]
    edges = np.full((rows.shape[1], EDGES), np.inf, dtype=np.float32)
    for feature in range(rows.shape[1]):
        column = rows[:, feature]
        values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        cuts = _cuts(counts, EDGES)
        low, high = values[cuts], values[cuts + 1]
        with np.errstate(invalid="ignore"):  # −∞ + ∞
            middle = (low.astype(np.float64) / 2 + high.astype(np.float64) / 2).astype(np.float32)
        edges[feature, : len(cuts)] = np.where((middle > low) & (middle < high), middle, low)
    return edges


def _cuts(counts: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    """Places after which a bin ends, fewer than `bins`: all if there are few values, else by equal counts."""
    if len(counts) <= bins:
        return np.arange(len(counts) - 1)
    is_frequent = counts >= counts.sum() / bins
    frequent = np.flatnonzero(is_frequent)
    ends = np.cumsum(np.where(is_frequent, 0, counts))
    cuts: list[int] = []
    first = 0
    while len(cuts) < bins - 1 and first < len(counts) - 1:
        place = first
        if not is_frequent[first]:
            coming = frequent[np.searchsorted(frequent, first) :]
            free = max(bins - len(cuts) - len(coming), 1)
            done = ends[first] - counts[first]
            place = int(np.searchsorted(ends, done + (ends[-1] - done) / free))
            if len(coming):
                place = min(place, int(coming[0]) - 1)
        if place < len(counts) - 1:
            cuts.append(place)
        first = place + 1
    return np.array(cuts, dtype=np.int64)


def codes_of(rows: NDArray[np.float32], edges: NDArray[np.float32], threads: int) -> NDArray[np.uint8]:
    """(n, f) codes of the feature values."""
    codes = np.empty(rows.shape, dtype=np.uint8)
    in_pieces(lambda first, last: encode(rows, edges, first, last, codes), 0, len(rows), threads)
    return codes


def in_pieces(
    work: Callable[[int, int], Result], first: int, last: int, threads: int, cost: int = 1
) -> list[tuple[int, Result]]:
    """Run work(first, last) on about equal parts of a range: their starts and results, in order.

    If a row costs more than in training, fewer rows occupy a thread.
    """
    count = max(min(threads, (last - first) * cost // PIECE), 1)
    bounds = [first + (last - first) * i // count for i in range(count + 1)]
    if count == 1:
        check()
        return [(first, work(first, last))]
    return list(run_parallel(lambda i: (bounds[i], work(bounds[i], bounds[i + 1])), range(count), threads))


def leaf_values(splits: Splits) -> NDArray[np.float32]:
    """The values of the leaves of all trees, one more than splits in each."""
    values = np.empty(len(splits.leaf) + len(splits.root), dtype=np.float32)
    for tree, (first, last) in enumerate(zip(splits.tree_start[:-1], splits.tree_start[1:], strict=True)):
        here = values[first + tree : last + tree + 1]
        here[0] = splits.root[tree]
        for place in range(last - first):
            here[splits.leaf[first + place]] = splits.left[first + place]
            here[place + 1] = splits.right[first + place]
    return values


def log_loss(margins: NDArray[np.float32], targets: NDArray[np.float32]) -> float:
    """Mean logistic loss."""
    return float(np.mean(np.logaddexp(np.float32(0.0), margins) - targets * margins, dtype=np.float64))


class _Leaf(NamedTuple):
    """A leaf of the tree that grows: its rows in `order`, its histogram and its best split."""

    start: int
    stop: int
    histogram: NDArray[np.int64]
    gain: float
    split: tuple[int, int, int]  # feature, threshold, missing_right
    sums: tuple[float, float, float, float]


class Boosting:
    """Training in progress."""

    def __init__(
        self,
        codes: NDArray[np.uint8],
        targets: NDArray[np.float32],
        weights: NDArray[np.float32],
        settings: BoostingSettings,
        seed: int,
        threads: int,
    ) -> None:
        self.codes, self.targets, self.weights = frozen(codes), frozen(targets), frozen(weights)
        self.settings, self.threads, self.seed = settings, threads, seed
        self.random = np.random.default_rng([seed, 1])
        mean = float(np.average(targets.astype(np.float64), weights=weights))
        mean = min(max(mean, 1e-6), 1 - 1e-6)
        self.base = float(np.float32(np.log(mean / (1 - mean))))
        count = len(codes)
        self.columns = frozen(np.ascontiguousarray(codes.T))  # (f, n)
        self.leaf_of = np.zeros(count, dtype=np.uint8)
        self.order = np.arange(count, dtype=np.int32)
        self.left, self.right = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
        self.margins = np.full(count, self.base, dtype=np.float32)
        self.packed = np.empty(count, dtype=np.int64)
        self.steps = float(weights.max()) / STEP, float(weights.max()) / 4 / STEP  # of gradients and Hessians
        self.trees: list[Splits] = []

    def run(self, valid: tuple[NDArray[np.uint8], NDArray[np.float32]] | None, progress: Progress) -> Splits:
        """Grow trees until there are enough, no split is left, or the validation loss has stopped improving."""
        settings = self.settings
        self._update(np.zeros(1, np.float32))
        margins = np.full(len(valid[0]) if valid else 0, self.base, dtype=np.float32)
        best, best_loss = 0, log_loss(margins, valid[1]) if valid else 0.0
        with progress.task("boosted trees", settings.trees) as task:
            for _ in range(settings.trees):
                if not self._grow():
                    break
                if valid is not None:
                    self._add_last(valid[0], margins)
                    loss = log_loss(margins, valid[1])
                    task.note(f"validation loss {loss:.4f}")
                    if loss < best_loss:
                        best, best_loss = len(self.trees), loss
                    elif len(self.trees) - best >= settings.patience:
                        break
                task.advance()
        return Splits.joined(self.trees if valid is None else self.trees[:best])

    def _grow(self) -> bool:
        """Grow a tree and update the gradients; False if no split is worth it."""
        self.order[:] = np.arange(len(self.order), dtype=np.int32)  # ascending rows are close to each other in memory
        features = self.codes.shape[1]
        allowed = np.ones(features, dtype=np.bool_)
        if self.settings.feature_fraction < 1:
            count = max(round(features * self.settings.feature_fraction), 1)
            allowed[self.random.permutation(features)[count:]] = False
        root = self._leaf(0, len(self.order), self._histogram(0, len(self.order)), allowed)
        whole = root.histogram[0].sum(axis=0)
        root_value = self._value(whole[0] * self.steps[0], whole[1] * self.steps[1])
        leaves, values = [root], [root_value]
        splits: list[Split] = []
        while len(leaves) < self.settings.max_leaves:
            at = max(range(len(leaves)), key=lambda i: leaves[i].gain)
            if leaves[at].gain < MIN_GAIN:
                break
            leaf = leaves[at]
            left, right = self._value(*leaf.sums[:2]), self._value(*leaf.sums[2:])
            splits.append((at, *leaf.split, left, right))
            values[at] = left
            values.append(right)
            leaves[at], other = self._divided(leaf, allowed, is_last=len(leaves) + 1 == self.settings.max_leaves)
            leaves.append(other)
        if not splits:
            return False
        self.trees.append(Splits.of_tree(root_value, splits))
        stops = np.array([leaf.stop for leaf in leaves], dtype=np.int64)
        numbers = np.argsort(stops)
        mark_leaves(self.order, stops[numbers], numbers.astype(np.uint8), self.leaf_of)
        self._update(np.array(values, np.float32))
        return True

    def _divided(self, leaf: _Leaf, allowed: NDArray[np.bool_], is_last: bool) -> tuple[_Leaf, _Leaf]:
        """Divide the rows of a leaf by its best split. After the last split of a tree, histograms are not needed."""
        middle = self._partition(leaf)
        if is_last:
            return leaf._replace(stop=middle), leaf._replace(start=middle)
        is_left_small = middle - leaf.start <= leaf.stop - middle
        small = self._histogram(*((leaf.start, middle) if is_left_small else (middle, leaf.stop)))
        large = leaf.histogram - small
        left, right = (small, large) if is_left_small else (large, small)
        return self._leaf(leaf.start, middle, left, allowed), self._leaf(middle, leaf.stop, right, allowed)

    def _leaf(self, start: int, stop: int, histogram: NDArray[np.int64], allowed: NDArray[np.bool_]) -> _Leaf:
        settings = self.settings
        found = best_split(histogram, allowed, *self.steps, settings.l2, settings.min_rows, settings.min_hessian)
        return _Leaf(start, stop, histogram, found[0], found[1:4], found[4:])

    def _value(self, gradient: float, hessian: float) -> float:
        step = -gradient / max(hessian + self.settings.l2, 1e-12)
        return float(np.float32(self.settings.learning_rate * min(max(step, -MAX_STEP), MAX_STEP)))

    def _histogram(self, start: int, stop: int) -> NDArray[np.int64]:
        """(f, CODES, 3) gradient, Hessian and count of the rows order[start:stop]."""

        def add(first: int, last: int) -> NDArray[np.int64]:
            part = np.zeros((self.codes.shape[1], CODES, 3), dtype=np.int64)
            add_histogram(self.codes, self.packed, self.order, first, last, part)
            return part

        parts = [part for _, part in in_pieces(add, start, stop, self.threads)]
        return np.sum(parts, axis=0) if len(parts) > 1 else parts[0]

    def _partition(self, leaf: _Leaf) -> int:
        """Move the rows of a leaf that pass to the left before the others; returns where the latter start."""
        feature, threshold, missing_right = leaf.split

        def part(first: int, last: int) -> tuple[int, int]:
            split = threshold, missing_right
            count = partition(self.columns[feature], self.order, first, last, *split, self.left, self.right)
            return count, last - first - count

        parts = in_pieces(part, leaf.start, leaf.stop, self.threads)
        at = leaf.start
        for side, source in enumerate((self.left, self.right)):
            for first, counts in parts:
                self.order[at : at + counts[side]] = source[first : first + counts[side]]
                at += counts[side]
        return leaf.start + sum(count for _, (count, _) in parts)

    def _update(self, values: NDArray[np.float32]) -> None:
        """Add the leaf values to the margins, and set the gradients for the next tree."""
        data, seed = (self.targets, self.weights, *self.steps), self.seed + len(self.trees)

        def update(first: int, last: int) -> None:
            update_gradients(self.leaf_of, values, first, last, *data, seed, self.margins, self.packed)

        in_pieces(update, 0, len(self.order), self.threads)

    def _add_last(self, codes: NDArray[np.uint8], margins: NDArray[np.float32]) -> None:
        """Add the last tree to the margins of other rows."""
        tree = self.trees[-1]
        values = leaf_values(tree)
        in_pieces(
            lambda first, last: add_tree(codes, *tree[1:5], values, first, last, margins), 0, len(codes), self.threads
        )
