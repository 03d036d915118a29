"""Gradient-boosted regression trees for yes-or-no questions (logistic loss), such as whether a candidate is right.

Trees grow leaf by leaf: the split with the largest gain comes first. Thresholds are bin edges, at most 62 per feature,
from the quantiles of a sample; missing values (NaN) pass to the side that fits better. The result depends on the seed,
never on the number of threads.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.errors import DataError, ModelFormatError
from xmtc.core.jit import frozen
from xmtc.core.progress import Progress, silent
from xmtc.lexical.tree_kernels import CODES, EDGES, LANES, LEAVES, UNROLLED, fill_tables, path_changes, sum_trees
from xmtc.lexical.tree_training import (
    Boosting,
    BoostingSettings,
    Splits,
    bin_edges,
    codes_of,
    in_pieces,
    leaf_values,
)

LARGEST = 1e6
"""Bound of the node values in a model folder."""


class BoostedTrees:
    """Trained trees; their values add up to the log-odds (margin) of a row."""

    def __init__(self, edges: NDArray[np.float32], base: float, splits: Splits) -> None:
        self.edges = edges  # (f, EDGES), ascending, filled up with infinity
        self.base = float(np.float32(base))
        self.splits = splits

    @classmethod
    def fit(
        cls,
        rows: NDArray[np.float32],
        targets: NDArray[Any],
        weights: NDArray[Any] | None = None,
        *,
        settings: BoostingSettings | None = None,
        valid: tuple[NDArray[np.float32], NDArray[Any]] | None = None,
        seed: int = 0,
        threads: int = 1,
        progress: Progress = silent,
    ) -> BoostedTrees:
        """Train on rows (n, f) with targets from 0 to 1.

        With validation rows and targets, training stops when their loss does not improve any more, and trees after
        the best one are dropped. Rows of the same document belong to the same side.
        """
        settings = settings or BoostingSettings()
        rows, target, weight = _checked(rows, targets, weights)
        edges = bin_edges(rows, seed)
        held = None
        if valid is not None:
            held_rows, held_targets, _ = _checked(valid[0], valid[1], None, rows.shape[1])
            held = codes_of(held_rows, edges, threads), held_targets
        training = Boosting(codes_of(rows, edges, threads), target, weight, settings, seed, threads)
        splits = training.run(held, progress)
        return cls(edges, training.base, splits)

    @property
    def features(self) -> int:
        """Number of features of a row."""
        return len(self.edges)

    @property
    def trees(self) -> int:
        """Number of trees."""
        return len(self.splits.root)

    @property
    def bias(self) -> float:
        """The margin without any feature: with the contributions, it adds up to the margin of a row."""
        return self.base + float(self.splits.root.sum(dtype=np.float64))

    @cached_property
    def _tables(self) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """What `sum_trees` needs."""
        blocks, wide = -(-self.trees // LANES), -(-self.features // UNROLLED) * UNROLLED
        masks = np.full((blocks, wide, CODES, LANES), 0xFFFFFFFF, dtype=np.uint32)
        values = np.zeros((blocks * LANES, LEAVES), dtype=np.float32)
        fill_tables(*self.splits[:5], leaf_values(self.splits), masks, values)
        return frozen(masks), frozen(values)

    def margins(self, rows: NDArray[np.float32], threads: int = 1) -> NDArray[np.float32]:
        """(n,) log-odds of the rows (n, f)."""
        rows = _as_rows(rows, self.features)
        out = np.empty(len(rows), dtype=np.float32)
        masks, values = self._tables

        def add(first: int, last: int) -> None:
            sum_trees(rows, self.edges, masks, values, self.base, first, last, out)

        in_pieces(add, 0, len(rows), threads, cost=8)
        return out

    def contributions(self, row: NDArray[np.float32]) -> NDArray[np.float64]:
        """(f,) contributions of the features to the margin of a row (f,).

        Each split on the path of the row changes the expected value; the change counts for the feature of the split.
        """
        row = _as_rows(np.asarray(row)[None], self.features)[0]
        return path_changes(row, self.edges, *self.splits)

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        return {
            "edges": np.ascontiguousarray(self.edges[:, : EDGES - 1]),
            "base": np.array([self.base], dtype=np.float32),
            **self.splits._asdict(),
        }

    @classmethod
    def restored(cls, state: SavedState, features: int) -> BoostedTrees:
        """Trees from checked arrays; kernels cannot leave the bounds of an array, whatever these contain."""
        edges = np.full((features, EDGES), np.inf, dtype=np.float32)
        edges[:, : EDGES - 1] = state.array("edges", np.float32, (features, EDGES - 1), infinite=True)
        base = float(state.array("base", np.float32, (1,), low=-LARGEST, high=LARGEST)[0])
        root = state.array("root", np.float32, (None,), low=-LARGEST, high=LARGEST)
        leaf = state.array("leaf", np.uint8, (None,), high=LEAVES - 1)
        count = (len(leaf),)
        splits = Splits(
            state.offsets("tree_start", len(root), len(leaf)),
            leaf,
            state.array("feature", np.int32, count, low=0, high=features),
            state.array("threshold", np.uint8, count, low=1, high=CODES),
            state.array("missing_right", np.uint8, count, high=2),
            root,
            state.array("left", np.float32, count, low=-LARGEST, high=LARGEST),
            state.array("right", np.float32, count, low=-LARGEST, high=LARGEST),
        )
        sizes = np.diff(splits.tree_start)
        places = np.arange(len(leaf)) - np.repeat(splits.tree_start[:-1], sizes)
        if (sizes >= LEAVES).any() or (leaf > places).any():
            raise ModelFormatError("array 'leaf' is not a sequence of splits. Copy or train the model again.")
        return cls(edges, base, splits)


def _as_rows(rows: NDArray[Any], features: int | None = None) -> NDArray[np.float32]:
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] < 1 or features not in (None, rows.shape[1]):
        wanted = "at least one feature" if features is None else f"{features} features"
        raise DataError(f"rows must be a matrix with {wanted}. Got shape {rows.shape}.")
    return rows


def _checked(
    rows: NDArray[Any], targets: NDArray[Any], weights: NDArray[Any] | None, features: int | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Rows, targets and weights of the rows with a positive weight."""
    rows = _as_rows(rows, features)
    if not len(rows):
        raise DataError("there are no rows. Give at least one, with its target.")
    target = np.ascontiguousarray(targets, dtype=np.float32)
    weight = np.ones(len(rows), np.float32) if weights is None else np.ascontiguousarray(weights, dtype=np.float32)
    if target.shape != (len(rows),) or weight.shape != (len(rows),):
        raise DataError(f"{len(rows):,} rows need as many targets and weights. Got {target.shape}, {weight.shape}.")
    if not ((target >= 0) & (target <= 1)).all():
        raise DataError("targets must be from 0 to 1.")
    if not ((weight >= 0) & np.isfinite(weight)).all() or not (weight > 0).any():
        raise DataError("weights must be finite numbers ≥ 0, at least one of them positive.")
    used = weight > 0
    return (rows, target, weight) if used.all() else (rows[used], target[used], weight[used])
