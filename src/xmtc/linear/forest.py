"""Forests of label trees with a linear classifier for every edge: training level by level, prediction, explanation.

The probability of a label is the product along its path, averaged over the trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.workspace import Workspace
from xmtc.core.jit import frozen, kernel
from xmtc.core.parallel import run_parallel
from xmtc.core.progress import Progress, silent
from xmtc.data.dataset import Csr
from xmtc.labels.tree import LabelTree, homes_of
from xmtc.linear.beam_search import FIRST_ROUND, SearchTree, score_rows, search_row, search_rows
from xmtc.linear.chunk_schema import restored_chunks
from xmtc.linear.node_documents import Members, PartialLabels
from xmtc.linear.node_training import LinearObjective, NodeTrainer, Rows
from xmtc.linear.simd import LANES
from xmtc.linear.tree_update import update_tree
from xmtc.linear.votes import Votes
from xmtc.linear.weight_chunks import ABSENT, Chunks

Result = TypeVar("Result")

Sparse = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]
"""Rows as the kernels take them: row starts, feature numbers inside the trees, values."""

_NOTHING = np.empty(0, dtype=bool)
ROWS_AT_ONCE = 16_384
"""Rows that a thread searches together."""
CELLS = 1 << 22
"""Probabilities in memory at once while the results of several trees are combined: 16 MiB."""
SHORTLIST = 8
"""Minimum number of labels that each of several trees proposes."""


class SearchParameters(NamedTuple):
    """How trees are searched and their edges scored."""

    beam: int
    """Nodes followed per level; 0 follows all."""
    link: int
    """See `beam_search.SIGMOID`."""
    path_weight: float = 1.0
    """Weight of the log-probabilities of inner edges relative to that of the last edge."""


class Step(NamedTuple):
    """An edge on the path to a label: child `column` of a node, its probability, and the labels below it."""

    node: int
    column: int
    probability: float
    below: NDArray[np.int64]
    is_certain: bool


class Reasons(NamedTuple):
    """Why a label was predicted: weights and bias of its last classifier, and the path without only children."""

    weights: dict[int, float]
    bias: float
    path: list[Step]


def train_tree(
    rows: Rows,
    width: int,
    labels: Csr,
    tree: LabelTree,
    objective: LinearObjective,
    *,
    seed: int,
    threads: int,
    workspace: Workspace | None = None,
    name: str = "tree",
    progress: Progress = silent,
    partial: PartialLabels | None = None,
    negatives: int = 0,
) -> Chunks:
    """Train the classifiers of all nodes, level by level; levels already in the workspace are loaded instead.

    A node is trained on the documents with a label below it and on those for which it is among the `negatives` nodes of
    its level that a search would try first. `partial` has rejected and unknown labels; None if all are complete.
    """
    workspace = workspace or Workspace()
    objective = objective.resolved(width)
    for level in range(tree.depth):
        part = f"{name}-level-{level}"
        if workspace.has(part):
            continue
        documents, undecided = None, None if partial is None else partial.undecided(tree, level)
        if level > 0:
            held = tree.node_labels(labels, level)
            if partial is not None:
                held = partial.reached(tree, level, held)
            if negatives:
                above = _saved_chunks(workspace, name, level)
                held = _either(held, _confused(rows, width, tree, level, above, negatives, threads))
            documents = Members.build(held)
        children = Members.build(tree.node_labels(labels, level + 1))
        starts, own = tree.starts[level], seed + 7919 * level
        trainer = NodeTrainer(rows, width, documents, children, starts, objective, own, undecided=undecided)
        with progress.task(f"training {name}, level {level + 1} of {tree.depth}", total=int(starts[-1])) as task:
            chunks = trainer.train(range(len(starts) - 1), threads, task.advance)
        workspace.save(part, chunks._asdict())
    return _saved_chunks(workspace, name, tree.depth)


def _saved_chunks(workspace: Workspace, name: str, levels: int) -> Chunks:
    """The chunks of the first levels of a tree."""
    return Chunks.joined([Chunks(**workspace.load(f"{name}-level-{level}")[0]) for level in range(levels)])


def _either(held: Csr, also: Csr) -> Csr:
    """(n, nodes) a 1 where either matrix has one."""
    both = sp.csr_array(held + also)
    both.data[:] = 1.0
    return both


def _confused(rows: Rows, width: int, tree: LabelTree, level: int, above: Chunks, count: int, threads: int) -> Csr:
    """(n, nodes) the nodes of a level that the classifiers above it rank first for each row, `count` of them."""
    top = LabelTree(np.arange(tree.nodes(level)), tree.starts[:level])
    forest = Forest([(top, above)], np.arange(width, dtype=np.int32), SearchParameters(beam=count, link=3))
    matrix = sp.csr_array((rows.values, rows.features, rows.indptr), shape=(len(rows.squares), width))
    found, _ = forest.predict(matrix, min(count, tree.nodes(level)), threads=threads)
    is_found = found >= 0
    ends = np.concatenate([[0], np.cumsum(is_found.sum(axis=1))])
    ones = np.ones(int(ends[-1]), dtype=np.float32)
    return sp.csr_array((ones, found[is_found].astype(np.int32), ends), shape=(len(found), tree.nodes(level)))


def train_flat(
    rows: Rows,
    width: int,
    labels: Csr,
    objective: LinearObjective,
    *,
    seed: int,
    threads: int,
    at_once: int = 256,
    workspace: Workspace | None = None,
    progress: Progress = silent,
    partial: PartialLabels | None = None,
) -> tuple[LabelTree, Chunks]:
    """Train a classifier for each label against all documents, stored as a tree whose root has certain edges.

    Labels are trained in groups of `at_once`; groups already in the workspace are loaded instead.
    """
    workspace = workspace or Workspace()
    objective, count = objective.resolved(width), int(labels.shape[1])
    starts = np.append(np.arange(0, count, at_once), count)
    tree = LabelTree(np.arange(count), (np.array([0, len(starts) - 1]), starts))
    undecided = None if partial is None else partial.undecided(tree, 1)
    trainer = NodeTrainer(rows, width, None, Members.build(labels), starts, objective, seed, undecided=undecided)
    with progress.task("training labels", total=count) as task:
        for group, first in enumerate(starts[:-1].tolist()):
            if workspace.has(f"labels-{first}"):
                task.advance(int(starts[group + 1]) - first)
                continue
            chunks = trainer.train(range(group, group + 1), threads, task.advance)
            workspace.save(f"labels-{first}", chunks._asdict())
    parts = [Chunks(**workspace.load(f"labels-{first}")[0]) for first in starts[:-1].tolist()]
    root = Chunks.certain(len(parts), objective.weights == "float16")
    return tree, Chunks.joined([root, *parts])


class Forest:
    """Trained trees, ready for search. `numbers` (D,) maps features to their numbers inside the trees."""

    def __init__(
        self, trees: Sequence[tuple[LabelTree, Chunks]], numbers: NDArray[np.int32], search: SearchParameters
    ) -> None:
        self._trees = list(trees)
        self._searched = [SearchTree.build(tree, chunks) for tree, chunks in trees]
        self._numbers = frozen(numbers)
        self._how = search

    def __len__(self) -> int:
        return len(self._trees)

    def predict(
        self, rows: Csr, k: int, allowed: NDArray[np.bool_] | None = None, threads: int = 1
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(n, k) labels and probabilities, best first; −1 and −∞ if the beam reached fewer than k."""
        masks = [_NOTHING if allowed is None else tree.allowed_nodes(allowed) for tree in self._searched]
        labels = _NOTHING if allowed is None else allowed

        def best(_: int, part: Sparse) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
            return self._best(part, k, masks, labels)

        size = max(k, SHORTLIST)
        most = ROWS_AT_ONCE if len(self._trees) == 1 else max(1, CELLS // (size * len(self._trees) ** 2))
        parts = list(self._by_block(rows, threads, best, most))
        found = np.concatenate([np.empty((0, k), np.int64), *(part[0] for part in parts)])
        return found, np.concatenate([np.empty((0, k), np.float32), *(part[1] for part in parts)])

    def updated(
        self,
        rows: Csr,
        labels: Csr,
        known: NDArray[np.bool_],
        relatives: Csr,
        relabelling: tuple[NDArray[np.int64], NDArray[np.int64]],
        objective: LinearObjective,
        *,
        sees_all: bool = False,
        seed: int,
        threads: int,
        workspace: Workspace | None = None,
        progress: Progress = silent,
        partial: PartialLabels | None = None,
        importance: NDArray[np.float32] | None = None,
    ) -> Forest:
        """The forest after an update with documents `rows`, `labels`; `known` (n,) marks those trained on before.

        `relabelling` has the new number of each old label, and the old labels that come first in the new numbering. New
        labels join the leaves of their `relatives` (added, L before). Rows may have additional features. `partial` has
        rejected and unknown labels, `importance` (n,) a weight for each row.
        """
        numbers, kept = relabelling
        width = int(rows.shape[1])
        own = np.concatenate([self._numbers, np.arange(len(self._numbers), width, dtype=np.int32)])
        numbered = Rows.build(rows, own, importance)
        trees = []
        for place, (tree, chunks) in enumerate(self._trees):
            revision = tree.revised(kept, homes_of(tree, relatives))
            found = update_tree(
                numbered,
                width,
                labels,
                known,
                (tree, chunks),
                revision,
                numbers,
                objective,
                sees_all=sees_all,
                seed=seed + 104_729 * place,
                threads=threads,
                workspace=workspace,
                name=f"tree-{place}",
                progress=progress,
                partial=partial,
            )
            trees.append((revision.tree, found))
        return Forest(trees, own, self._how)

    def predict_one(self, row: Csr, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """`predict` for one row, without padding and with little overhead."""
        part = row.indptr, self._numbers[row.indices], row.data
        found, given = self._best(part, k, [_NOTHING] * len(self._trees), _NOTHING)
        held = int(np.count_nonzero(found >= 0))
        return found[0, :held], given[0, :held]

    def score(self, rows: Csr, candidates: NDArray[np.int64], threads: int = 1) -> NDArray[np.float32]:
        """(n, c) probabilities of given labels; −∞ for pads."""

        def mean(first: int, part: Sparse) -> NDArray[np.float32]:
            here = candidates[first : first + len(part[0]) - 1]
            total = np.zeros(here.shape, dtype=np.float32)
            for tree in self._searched:
                total += _probabilities(self._score(tree, part, here))
            return total / np.float32(len(self._trees))

        parts = self._by_block(rows, threads, mean, ROWS_AT_ONCE)
        return np.concatenate([np.empty((0, candidates.shape[1]), np.float32), *parts])

    def reasons(self, row: Csr, label: int) -> Reasons:
        """Explain a label of one document, using the tree that gives it the highest probability."""
        paths = [self._path(tree, row, label) for tree in self._searched]
        best = max(range(len(paths)), key=lambda place: float(np.prod([step.probability for step in paths[place]])))
        chunks, path = self._searched[best].chunks, [step for step in paths[best] if not step.is_certain]
        if not path:
            return Reasons({}, 0.0, paths[best])
        names = np.argsort(self._numbers)
        weights = {int(names[number]): w for number, w in chunks.column(path[-1].node, path[-1].column).items()}
        return Reasons(weights, float(chunks.bias[chunks.bias_start[path[-1].node] + path[-1].column]), path)

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        arrays: dict[str, NDArray[Any]] = {"numbers": self._numbers}
        for place, (tree, chunks) in enumerate(self._trees):
            arrays.update({f"tree-{place}.{name}": array for name, array in tree.state().items()})
            arrays.update({f"tree-{place}.{name}": array for name, array in chunks._asdict().items()})
        return arrays

    @classmethod
    def from_state(
        cls, state: SavedState, search: SearchParameters, *, labels: int, width: int, threads: int = 1
    ) -> Forest:
        """Restore a forest over these numbers of labels and features."""
        numbers = state.array("numbers", np.int32, (width,), low=0, high=width)
        trees: list[tuple[LabelTree, Chunks]] = []
        places = {name.partition(".")[0] for name in state.names() if name.startswith("tree-")}
        for place in range(max(1, len(places))):
            part = state.part(f"tree-{place}.")
            tree = LabelTree.from_state(part, labels)
            children = np.concatenate([np.diff(starts) for starts in tree.starts])
            trees.append((tree, restored_chunks(part, children, width, threads)))
        return cls(trees, numbers, search)

    # ---- internals

    def _by_block(
        self, rows: Csr, threads: int, function: Callable[[int, Sparse], Result], most: int
    ) -> Iterator[Result]:
        """Apply `function` to (first row, rows as the kernels take them), at most `most` rows at a time."""
        count = int(rows.shape[0])
        step = min(most, max(1, -(-count // threads)))

        def block(first: int) -> Result:
            indptr = rows.indptr[first : min(first + step, count) + 1].astype(np.int64)
            start, stop = int(indptr[0]), int(indptr[-1])
            features = self._numbers[rows.indices[start:stop]]
            values = rows.data[start:stop].astype(np.float32, copy=False)
            return function(first, (indptr - start, features, values))

        yield from run_parallel(block, range(0, count, step), threads)

    def _best(
        self, rows: Sparse, k: int, masks: Sequence[NDArray[np.bool_]], labels: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(n, k) labels and probabilities; `masks` (nodes,) and `labels` (L,) are empty if all are allowed."""
        trees, size = len(self._trees), k if len(self._trees) == 1 else max(k, SHORTLIST)
        found = np.empty((trees, len(rows[0]) - 1, size), dtype=np.int64)
        logs = np.empty(found.shape, dtype=np.float32)
        for place, (tree, nodes) in enumerate(zip(self._searched, masks, strict=True)):
            self._search(tree, rows, nodes, labels, found[place], logs[place])
        if trees == 1:
            return found[0], _probabilities(logs[0])
        votes = Votes(found, logs, k)
        for place, missing in votes.missing():
            votes.add(place, missing, _probabilities(self._score(self._searched[place], rows, missing)))
        return votes.best()

    def _search(
        self,
        tree: SearchTree,
        rows: Sparse,
        nodes: NDArray[np.bool_],
        labels: NDArray[np.bool_],
        found: NDArray[np.int64],
        logs: NDArray[np.float32],
    ) -> None:
        """Write the best labels of one tree and their log-probabilities."""
        (beam, link, weight), width = self._how, len(self._numbers)
        beam = min(beam, len(tree.first)) or len(tree.first)
        if len(found) == 1:
            _, features, values = rows
            search_row(features, values, tree, beam, link, weight, nodes, labels, ABSENT, LANES, found[0], logs[0])
        else:
            search_rows(*rows, tree, beam, link, weight, nodes, labels, width, FIRST_ROUND, ABSENT, LANES, found, logs)

    def _score(
        self, tree: SearchTree, rows: Sparse, candidates: NDArray[np.int64], levels: int | None = None
    ) -> NDArray[np.float32]:
        """(n, c) log-probabilities of given labels, or of their ancestors that many levels below the root."""
        order = np.argsort(np.where(candidates >= 0, tree.place[candidates], -1), axis=1)
        depth = len(tree.levels) - 1 if levels is None else levels
        return score_rows(*rows, tree, self._how.link, self._how.path_weight, candidates, order, depth, ABSENT, LANES)

    def _path(self, tree: SearchTree, row: Csr, label: int) -> list[Step]:
        parts = row.indptr.astype(np.int64), self._numbers[row.indices], row.data.astype(np.float32)
        nodes = [int(tree.leaf[tree.place[label]])]
        while tree.parent[nodes[0]] >= 0:
            nodes.insert(0, int(tree.parent[nodes[0]]))
        steps, before = [], 0.0
        for level, node in enumerate(nodes):
            child = int(tree.place[label]) if level + 1 == len(nodes) else nodes[level + 1]
            below = np.array([label]) if level + 1 == len(nodes) else self._below(tree, child)
            column = child - int(tree.first[node])
            total = float(self._score(tree, parts, np.array([[label]]), level + 1)[0, 0])
            is_certain = bool(np.isposinf(tree.chunks.bias[tree.chunks.bias_start[node] + column]))
            steps.append(Step(node, column, float(np.exp(total - before)), below, is_certain))
            before = total
        return steps

    @staticmethod
    def _below(tree: SearchTree, node: int) -> NDArray[np.int64]:
        """Labels below a node, in tree order."""
        first, last = node, node
        while first < tree.levels[-2]:
            first, last = int(tree.first[first]), int(tree.first[last] + tree.children[last] - 1)
        return tree.order[tree.first[first] : tree.first[last] + tree.children[last]]


def _probabilities(logs: NDArray[np.float32]) -> NDArray[np.float32]:
    """e^x for each entry; −∞, which marks padding, is kept."""
    out = np.empty(logs.shape, np.float32)
    _exponentials(logs, out)
    return out


@kernel(outputs=("out",))
def _exponentials(logs: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    for row in range(logs.shape[0]):
        for column in range(logs.shape[1]):
            value = logs[row, column]
            out[row, column] = np.exp(np.float64(value)) if value > -np.inf else value
