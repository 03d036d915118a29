"""Trains the classifiers of many tree nodes in parallel, each with its own documents and features.

A node uses only the documents that have a label below it, and only the features that occur in them. The largest nodes
come first and are split into blocks of sixteen children, so that no thread has to wait for another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from xmtc.core.config import Range, Settings
from xmtc.core.jit import kernel
from xmtc.core.parallel import run_parallel
from xmtc.data.dataset import Csr
from xmtc.linear.node_documents import Members, Undecided, child_signs
from xmtc.linear.simd import LANES, aligned_zeros
from xmtc.linear.solver import row_squares, solve
from xmtc.linear.weight_chunks import NO_WEIGHTS, Chunks, Triplets, packed, pruned

MOVED = np.float32(0.6)
"""In updates, how far existing classifiers move towards the optimum for new and replayed documents (1: all the way).
Stopping short protects what was learnt from the many documents that are not replayed."""


@dataclass(frozen=True)
class LinearObjective(Settings):
    """Loss, regularisation, stopping and pruning of linear classifiers. Models inherit these settings."""

    loss: Literal["squared_hinge", "logistic"] = "squared_hinge"
    """Loss of the linear classifiers: squared hinge (L2-SVM) or logistic."""
    cost: Annotated[float | Literal["auto"], Range(0.05, 10, log=True)] = 1.0
    """Inverse regularisation strength C of the linear classifiers; 'auto' is smaller if there are fewer features."""
    tolerance: float = 0.1
    """Stopping tolerance on the gradients of the dual problem; documents within it are skipped."""
    passes: int = 6
    """Maximum number of passes over the training set."""
    prune: float = 0.1
    """Prune weights with an absolute value below this, times the cost if it is less than 1."""
    weights: Literal["float32", "float16"] = "float32"
    """Precision of the saved weights; 'float16' halves their size."""

    def check(self) -> None:
        if self.cost != "auto":
            self.require_range("cost", 1e-6, 1e6)
        self.require_range("tolerance", 0, open_low=True)
        self.require_range("passes", 1)
        self.require_range("prune", 0)

    def resolved(self, features: int) -> Self:
        """With a number in place of the cost 'auto': 0.2 (features / 500)^0.3, from 0.25 to 1; 1 for the logistic loss.

        Few features separate fewer documents, so that errors should cost less.
        """
        if self.cost != "auto":
            return self
        cost = np.clip(0.2 * (features / 500) ** 0.3, 0.25, 1.0) if self.loss == "squared_hinge" else 1.0
        return replace(self, cost=round(float(cost), 3))


class Rows(NamedTuple):
    """Training rows with features renumbered."""

    indptr: NDArray[np.int64]
    features: NDArray[np.int32]
    values: NDArray[np.float32]
    squares: NDArray[np.float32]
    importance: NDArray[np.float32] | None = None  # (n,) factors of the cost; None: all 1

    @classmethod
    def build(cls, matrix: Csr, numbers: NDArray[np.int32], importance: NDArray[np.float32] | None = None) -> Rows:
        """Renumber the features of a matrix; `numbers` (D,) has the new numbers."""
        indptr = matrix.indptr.astype(np.int64, copy=False)
        values = matrix.data.astype(np.float32, copy=False)
        return cls(indptr, numbers[matrix.indices], values, row_squares(indptr, values), importance)


def numbers_by_frequency(matrix: Csr) -> NDArray[np.int32]:
    """(D,) new feature numbers, most frequent first, so that features used together are close in memory."""
    counts = np.bincount(matrix.indices, minlength=matrix.shape[1])
    numbers = np.empty(len(counts), dtype=np.int32)
    numbers[np.argsort(-counts, kind="stable")] = np.arange(len(counts), dtype=np.int32)
    return numbers


class _Local(NamedTuple):
    """The rows of a node's documents with the node's own feature numbering."""

    documents: NDArray[np.int32]
    indptr: NDArray[np.int64]
    features: NDArray[np.int32]
    values: NDArray[np.float32]
    squares: NDArray[np.float32]
    numbers: NDArray[np.int32]  # global number of each local feature
    begun: _Begun | None = None


class Origin(NamedTuple):
    """The classifiers of a node before an update, with the new column numbers of its children."""

    features: NDArray[np.int32]
    columns: NDArray[np.int64]
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]  # (children,)
    is_new: NDArray[np.bool_]  # (children,) new children, and those merged from several


class _Begun(NamedTuple):
    """The previous classifiers of a node, rearranged for the rows that it is trained on."""

    width: int  # local features
    ends: NDArray[np.int64]  # (blocks + 1,) first weight of each block
    places: NDArray[np.int64]  # of each weight in its block
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    is_new: NDArray[np.bool_]
    others: Triplets  # features that do not occur in the rows: global number, column, weight

    @classmethod
    def of(cls, origin: Origin, numbers: NDArray[np.int32], scratch: NDArray[np.int32]) -> _Begun:
        """`numbers` has the global numbers of the local features; `scratch` (D,) is −1 on entry and on exit."""
        blocks = -(-len(origin.bias) // LANES)
        ends, places, weights, others = _sorted_out(*origin[:3], numbers, scratch, blocks, LANES)
        rest = origin.features[others], origin.columns[others].astype(np.uint16), origin.weights[others]
        return cls(len(numbers), ends, places, weights, origin.bias, origin.is_new, rest)

    def start(self, block: int, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Initial weights and biases of a block of children; unused lanes start at the optimum."""
        weights, here = aligned_zeros(self.width), slice(self.ends[block], self.ends[block + 1])
        weights[self.places[here]] = self.weights[here]
        bias = np.full(LANES, -1.0, dtype=np.float32)
        bias[:count] = self.bias[block * LANES : block * LANES + count]
        return weights, bias

    def settle(self, block: int, count: int, weights: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
        """Pull the solved weights (width, LANES) and biases of existing children part of the way back."""
        here, own = slice(self.ends[block], self.ends[block + 1]), slice(block * LANES, block * LANES + count)
        moved = np.ones(LANES, dtype=np.float32)
        moved[:count] = np.where(self.is_new[own], np.float32(1.0), MOVED)
        _bring_back(self.places[here], self.weights[here], moved, LANES, weights)
        bias[:count] = moved[:count] * bias[:count] + (1 - moved[:count]) * self.bias[own]

    def beyond(self, numbers: NDArray[np.int32]) -> tuple[NDArray[np.int32], Triplets]:
        """The local features plus those that do not occur here, and the weights of the latter, which stay unchanged."""
        features, rows = np.unique(self.others[0], return_inverse=True)
        return np.concatenate([numbers, features]), ((len(numbers) + rows).astype(np.int32), *self.others[1:])


class NodeTrainer:
    """Trains the nodes of one level. If `documents` is None, every node uses all rows.

    With an `origin`, nodes resume from their previous classifiers, and only `touched` nodes are trained; `known` (n,)
    marks rows that they were trained on before. `undecided` has the children that rows with partial labels skip.
    """

    def __init__(
        self,
        rows: Rows,
        width: int,
        documents: Members | None,
        children: Members,
        starts: NDArray[np.int64],
        objective: LinearObjective,
        seed: int,
        *,
        origin: Callable[[int], Origin] | None = None,
        touched: NDArray[np.bool_] | None = None,
        known: NDArray[np.bool_] | None = None,
        undecided: Undecided | None = None,
    ) -> None:
        self._undecided = undecided
        self._rows, self._width = rows, width
        self._origin, self._touched, self._known = origin, touched, known
        self._documents, self._children, self._starts = documents, children, starts
        self._objective, self._seed = objective, seed
        self._scratch = threading.local()
        self._everything: _Local | None = None  # the rows, if all nodes use them
        if documents is None:
            self._everything = self._local(np.arange(len(rows.squares), dtype=np.int32))

    def train(self, nodes: range, threads: int, advance: Callable[[int], None] = lambda _: None) -> Chunks:
        """Train some nodes; the result does not depend on `threads`. `advance` gets the number of finished children."""
        costs = {node: self._cost(node) for node in nodes}
        heavy = sum(costs.values()) / (4 * threads)
        big = {node: self._local_of(node) for node in nodes if costs[node] > heavy and self._blocks(node) > 1}
        tasks = [
            (costs[node] / self._blocks(node), node, range(block, block + 1))
            for node in big
            for block in range(self._blocks(node))
        ]
        tasks += [(costs[node], node, range(self._blocks(node))) for node in nodes if node not in big]
        tasks.sort(key=lambda task: -task[0])
        pieces: dict[int, dict[int, _Piece]] = {node: {} for node in nodes}
        chunks: dict[int, Chunks] = {}
        for node, found in run_parallel(lambda task: self._work(task[1], task[2], big), tasks, threads, ahead=64):
            if isinstance(found, Chunks):
                chunks[node] = found
            else:
                pieces[node].update(found)
                if len(pieces[node]) == self._blocks(node):
                    chunks[node] = self._packed(node, big.pop(node), pieces.pop(node))
            if node in chunks:
                advance(self._count(node))
        return Chunks.joined([chunks[node] for node in nodes])

    def _work(self, node: int, blocks: range, big: dict[int, _Local]) -> tuple[int, Chunks | dict[int, _Piece]]:
        if node in big:
            local = big[node]
            return node, {block: self._piece(node, block, local) for block in blocks}
        if self._origin is not None and not self._is_touched(node):
            return node, self._carried(self._origin(node))
        local = self._local_of(node)
        return node, self._packed(node, local, {block: self._piece(node, block, local) for block in blocks})

    def _count(self, node: int) -> int:
        return int(self._starts[node + 1] - self._starts[node])

    def _blocks(self, node: int) -> int:
        return -(-self._count(node) // LANES)

    def _is_touched(self, node: int) -> bool:
        return self._touched is None or bool(self._touched[node])

    def _cost(self, node: int) -> float:
        if not self._is_touched(node):
            return 0.0
        rows = len(self._rows.squares) if self._documents is None else len(self._documents.of(node))
        return float(self._blocks(node) * (rows + 1))

    def _local_of(self, node: int) -> _Local:
        local = self._everything or self._local(self._documents.of(node))  # type: ignore[union-attr]
        if self._origin is None:
            return local
        return local._replace(begun=_Begun.of(self._origin(node), local.numbers, self._free_numbers()))

    def _free_numbers(self) -> NDArray[np.int32]:
        """(D,) this thread's scratch array, −1 everywhere."""
        if not hasattr(self._scratch, "numbers"):
            self._scratch.numbers = np.full(self._width, -1, dtype=np.int32)
        numbers: NDArray[np.int32] = self._scratch.numbers
        return numbers

    def _local(self, documents: NDArray[np.int32]) -> _Local:
        rows = self._rows
        found = _compacted(documents, rows.indptr, rows.features, rows.values, self._free_numbers())
        return _Local(documents, *found[:3], rows.squares[documents], found[3])

    def _carried(self, origin: Origin) -> Chunks:
        """The chunk of a node with nothing to train."""
        features, rows = np.unique(origin.features, return_inverse=True)
        weights = rows.astype(np.int32), origin.columns.astype(np.uint16), origin.weights
        count = len(origin.bias)
        bias = np.full(-(-count // LANES) * LANES, -np.inf, dtype=np.float32)
        bias[:count] = origin.bias
        return packed(features, [weights], bias, count, self._objective.weights == "float16")

    def _piece(self, node: int, block: int, local: _Local) -> _Piece:
        """Solve and prune one block of a node's children."""
        first = int(self._starts[node]) + block * LANES
        count = min(LANES, int(self._starts[node + 1]) - first)
        if self._documents is not None and self._count(node) == 1:  # every document here belongs to the only child
            return NO_WEIGHTS, np.full(LANES, np.inf, np.float32)
        if not len(local.documents):  # no documents here, hence no positives
            return NO_WEIGHTS, np.full(LANES, -1.0, np.float32)
        aim = self._objective
        # Logistic loss: C is scaled so that errors weigh as much in a node with few documents as at the root.
        scale = self._scale(node, local) if aim.loss == "logistic" else 1.0
        importance = self._rows.importance
        weights, bias = solve(
            local.indptr,
            local.features,
            local.values,
            len(local.numbers),
            local.squares,
            child_signs(local.documents, self._children, first, count, LANES, self._undecided),
            loss=aim.loss,
            cost=float(aim.cost) * scale,
            tolerance=aim.tolerance,
            passes=aim.passes,
            seed=(self._seed * 1_000_003 + first) % 2**31,
            start=None if local.begun is None else local.begun.start(block, count),
            known=None if self._known is None else self._known[local.documents],
            importance=None if importance is None else importance[local.documents],
        )
        if local.begun is not None:
            local.begun.settle(block, count, weights, bias)
        return pruned(weights, aim.prune * min(1.0, float(aim.cost)), count, block * LANES), bias

    def _scale(self, node: int, local: _Local) -> float:
        """All documents relative to those of a node, without those that are there because of rejected labels only."""
        reached = local.documents
        if self._documents is not None and self._undecided is not None:
            first, last = self._children.indptr[self._starts[node : node + 2]]
            reached = np.unique(self._children.documents[first:last])
        importance = self._rows.importance
        if importance is None:
            return len(self._rows.squares) / max(1, len(reached))
        return float(importance.sum(dtype=np.float64) / max(1.0, importance[reached].sum(dtype=np.float64)))

    def _packed(self, node: int, local: _Local, pieces: dict[int, _Piece]) -> Chunks:
        ordered = [pieces[block] for block in range(self._blocks(node))]
        numbers, weights = local.numbers, [part for part, _ in ordered]
        bias = np.concatenate([bias for _, bias in ordered])
        if local.begun is not None:
            numbers, others = local.begun.beyond(numbers)
            weights.append(others)
        return packed(numbers, weights, bias, self._count(node), self._objective.weights == "float16")


_Piece = tuple[Triplets, NDArray[np.float32]]


@kernel(outputs=("scratch",))
def _compacted(
    documents: NDArray[np.int32],
    indptr: NDArray[np.int64],
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    scratch: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """Rows of some documents with features renumbered in ascending order; `scratch` is −1 on entry and on exit."""
    entries, used = 0, 0
    for row in documents:
        entries += indptr[row + 1] - indptr[row]
        for i in range(indptr[row], indptr[row + 1]):
            if scratch[features[i]] < 0:
                scratch[features[i]] = 0
                used += 1
    numbers = np.empty(used, np.int32)
    used = 0
    for row in documents:
        for i in range(indptr[row], indptr[row + 1]):
            if scratch[features[i]] == 0:
                scratch[features[i]] = 1
                numbers[used] = features[i]
                used += 1
    numbers.sort()
    for local in range(used):
        scratch[numbers[local]] = local
    local_indptr = np.zeros(len(documents) + 1, np.int64)
    local_features, local_values = np.empty(entries, np.int32), np.empty(entries, np.float32)
    at = 0
    for place in range(len(documents)):
        first, last = indptr[documents[place]], indptr[documents[place] + 1]
        for i in range(first, last):
            local_features[at] = scratch[features[i]]
            local_values[at] = values[i]
            at += 1
        local_indptr[place + 1] = at
    for number in numbers:
        scratch[number] = -1
    return local_indptr, local_features, local_values, numbers


@kernel(outputs=("scratch",))
def _sorted_out(
    features: NDArray[np.int32],
    columns: NDArray[np.int64],
    weights: NDArray[np.float32],
    numbers: NDArray[np.int32],
    scratch: NDArray[np.int32],
    blocks: int,
    lanes: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Weights of local features by block: block starts, places in the block, weights; and the indices of all others."""
    for local in range(len(numbers)):
        scratch[numbers[local]] = local
    ends = np.zeros(blocks + 1, np.int64)
    for i in range(len(features)):
        if scratch[features[i]] >= 0:
            ends[columns[i] // lanes + 1] += 1
    for block in range(blocks):
        ends[block + 1] += ends[block]
    places, kept = np.empty(ends[blocks], np.int64), np.empty(ends[blocks], np.float32)
    others = np.empty(len(features) - ends[blocks], np.int64)
    at, left = ends[:-1].copy(), 0
    for i in range(len(features)):
        local = scratch[features[i]]
        if local < 0:
            others[left] = i
            left += 1
            continue
        block = columns[i] // lanes
        places[at[block]] = np.int64(local) * lanes + columns[i] % lanes
        kept[at[block]] = weights[i]
        at[block] += 1
    for number in numbers:
        scratch[number] = -1
    return ends, places, kept, others


@kernel(outputs=("weights",))
def _bring_back(
    places: NDArray[np.int64],
    before: NDArray[np.float32],
    moved: NDArray[np.float32],
    lanes: int,
    weights: NDArray[Any],
) -> None:
    """Interpolate weights (width, lanes) towards the previous ones, which are sparse; `moved` is per lane."""
    for row in range(len(weights)):
        for lane in range(lanes):
            weights[row, lane] *= moved[lane]
    for i in range(len(places)):
        row, lane = places[i] // lanes, places[i] % lanes
        weights[row, lane] += (np.float32(1.0) - moved[lane]) * before[i]
