"""Linear classifiers with L2-regularised squared hinge loss, one per label, by dual coordinate descent.

min_w ½‖w‖² + C Σ max(0, 1 − y_i w·x_i)². One label at a time: memory is one weight vector and one dual variable a
document for each thread. Documents whose dual variable stays at zero drop out of later passes (shrinking).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.dataset import Csr
from xmtc.jit import kernel
from xmtc.parallel import run_parallel

Result = TypeVar("Result")

BLOCK_CELLS = 1 << 20
"""Margins held at once by a thread: 4 MiB."""


class LabelWeights(NamedTuple):
    """Pruned weights of neighbouring labels, a CSR row a label; the last column of the features is the bias."""

    indptr: NDArray[np.int64]
    features: NDArray[np.int32]
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]


class Problem(NamedTuple):
    """Training rows that all labels share."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    width: int
    label_indptr: NDArray[np.int64]  # documents of each label, ascending
    label_documents: NDArray[np.int32]

    @classmethod
    def build(cls, rows: Csr, labels: Csr) -> Problem:
        by_label = labels.T.tocsr()
        by_label.sort_indices()
        return cls(
            rows.indptr.astype(np.int64, copy=False),
            rows.indices.astype(np.int32, copy=False),
            rows.data.astype(np.float32, copy=False),
            int(rows.shape[1]),
            by_label.indptr.astype(np.int64, copy=False),
            by_label.indices.astype(np.int32, copy=False),
        )


def train_labels(
    problem: Problem,
    labels: range,
    *,
    cost: float,
    tolerance: float,
    passes: int,
    prune: float,
    seed: int,
    threads: int,
    advance: Callable[[], None] = lambda: None,
) -> LabelWeights:
    """Classifiers of neighbouring labels; the result does not depend on `threads`."""
    squares = row_squares(problem.indptr, problem.values)

    def solve(label: int) -> tuple[NDArray[np.int32], NDArray[np.float32], np.float32]:
        positives = problem.label_documents[problem.label_indptr[label] : problem.label_indptr[label + 1]]
        weights = solve_label(
            problem.indptr,
            problem.indices,
            problem.values,
            problem.width,
            squares,
            positives,
            cost,
            tolerance,
            passes,
            seed + label,
        )
        kept = np.flatnonzero(np.abs(weights[:-1]) >= prune).astype(np.int32)
        return kept, weights[kept], weights[-1]

    solved = []
    for done in run_parallel(solve, labels, threads, ahead=32):
        solved.append(done)
        advance()
    return LabelWeights(
        np.concatenate([[0], np.cumsum([len(kept) for kept, _, _ in solved])]).astype(np.int64),
        np.concatenate([kept for kept, _, _ in solved]),
        np.concatenate([weights for _, weights, _ in solved]),
        np.array([bias for _, _, bias in solved], dtype=np.float32),
    )


@kernel()
def row_squares(indptr: NDArray[np.int64], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """‖x‖² + 1 of each row; the 1 is the bias feature."""
    out = np.ones(len(indptr) - 1, np.float32)
    for row in range(len(out)):
        for i in range(indptr[row], indptr[row + 1]):
            out[row] += values[i] * values[i]
    return out


@kernel(fastmath={"reassoc", "contract", "arcp", "nsz"})  # infinities keep their meaning
def solve_label(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    width: int,
    squares: NDArray[np.float32],
    positives: NDArray[np.int32],
    cost: float,
    tolerance: float,
    passes: int,
    seed: int,
) -> NDArray[np.float32]:
    """(width + 1,) weights of one label, the bias last."""
    rows = len(indptr) - 1
    weights = np.zeros(width + 1, np.float32)
    alpha = np.zeros(rows, np.float32)
    sign = np.full(rows, np.float32(-1.0), np.float32)
    sign[positives] = np.float32(1.0)
    order = np.arange(rows)
    active = rows
    diagonal = np.float32(0.5 / cost)
    highest = np.float32(np.inf)  # the largest projected gradient of the last pass bounds what may be dropped
    state = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    for _ in range(passes):
        for i in range(active - 1, 0, -1):  # shuffle by xorshift
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            j = np.int64((state >> np.uint64(33)) % np.uint64(i + 1))
            order[i], order[j] = order[j], order[i]
        largest = np.float32(-np.inf)
        smallest = np.float32(np.inf)
        at = 0
        while at < active:
            row = order[at]
            margin = weights[width]
            for i in range(indptr[row], indptr[row + 1]):
                margin += values[i] * weights[indices[i]]
            gradient = sign[row] * margin - np.float32(1.0) + alpha[row] * diagonal
            projected = gradient
            if alpha[row] == 0.0:
                if gradient > highest:
                    active -= 1
                    order[at], order[active] = order[active], order[at]
                    continue
                projected = min(gradient, np.float32(0.0))
            largest = max(largest, projected)
            smallest = min(smallest, projected)
            if abs(projected) > np.float32(1e-12):
                before = alpha[row]
                alpha[row] = max(before - gradient / (squares[row] + diagonal), np.float32(0.0))
                step = (alpha[row] - before) * sign[row]
                for i in range(indptr[row], indptr[row + 1]):
                    weights[indices[i]] += step * values[i]
                weights[width] += step
            at += 1
        if largest - smallest <= tolerance:
            if active == rows:
                break
            active = rows  # look once more at what was dropped
            highest = np.float32(np.inf)
        else:
            highest = largest if largest > 0.0 else np.float32(np.inf)
    return weights


class FeatureWeights(NamedTuple):
    """The same weights by feature, so that a document touches only the features it has."""

    indptr: NDArray[np.int64]  # (D + 1,)
    labels: NDArray[np.int32]  # ascending within a feature
    values: NDArray[np.float32]
    bias: NDArray[np.float32]  # (L,)

    @classmethod
    def assemble(cls, parts: Sequence[LabelWeights], width: int) -> FeatureWeights:
        counts = np.concatenate([np.diff(part.indptr) for part in parts])
        indptr = np.concatenate([[0], np.cumsum(counts)])
        weights = np.concatenate([part.weights for part in parts])
        features = np.concatenate([part.features for part in parts])
        by_label = sp.csr_array((weights, features, indptr), shape=(len(counts), width))
        by_feature = by_label.T.tocsr()
        by_feature.sort_indices()
        return cls(
            by_feature.indptr.astype(np.int64),
            by_feature.indices.astype(np.int32),
            by_feature.data.astype(np.float32),
            np.concatenate([part.bias for part in parts]),
        )

    def of_label(self, label: int) -> dict[int, float]:
        """Feature → weight of one label."""
        places = np.flatnonzero(self.labels == label)
        features = np.searchsorted(self.indptr, places, side="right") - 1
        return dict(zip(features.tolist(), self.values[places].tolist(), strict=True))

    def by_block(
        self, rows: Csr, threads: int, reduce: Callable[[int, NDArray[np.float32]], Result]
    ) -> Iterator[Result]:
        """What `reduce` makes of (first row, (m, L) margins): a few rows at a time, so that no n × L has to exist."""
        step = max(1, BLOCK_CELLS // len(self.bias))

        def block(start: int) -> Result:
            piece = rows[start : start + step]
            indices = piece.indices.astype(np.int32, copy=False)
            return reduce(start, _margins(piece.indptr.astype(np.int64, copy=False), indices, piece.data, *self))

        yield from run_parallel(block, range(0, int(rows.shape[0]), step), threads)


@kernel()
def _margins(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    weight_indptr: NDArray[np.int64],
    weight_labels: NDArray[np.int32],
    weights: NDArray[np.float32],
    bias: NDArray[np.float32],
) -> NDArray[np.float32]:
    """(m, L) scores of all labels."""
    out = np.empty((len(indptr) - 1, len(bias)), np.float32)
    for row in range(len(indptr) - 1):
        out[row] = bias
        for i in range(indptr[row], indptr[row + 1]):
            value = values[i]
            for j in range(weight_indptr[indices[i]], weight_indptr[indices[i] + 1]):
                out[row, weight_labels[j]] += value * weights[j]
    return out
