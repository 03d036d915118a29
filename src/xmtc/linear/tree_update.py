"""Updating trees of linear classifiers with new documents, new labels and removed labels.

Training resumes from the current weights as if the dual variables of all earlier documents were fixed: a pass over new
and replayed documents then finds the best weights given those. A new label starts as one without documents. Only nodes
that a new document reaches are trained; in all others, removed labels are only deleted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.workspace import Workspace
from xmtc.core.progress import Progress, silent
from xmtc.data.dataset import Csr
from xmtc.labels.tree import LabelTree, TreeRevision
from xmtc.linear.node_documents import Members, PartialLabels
from xmtc.linear.node_training import LinearObjective, NodeTrainer, Origin, Rows
from xmtc.linear.weight_chunks import Chunks

NOBODY = -1.0
"""Bias of a label without documents."""
CERTAIN = 1.0
"""Bias of a former only child that now has siblings."""


def update_tree(
    rows: Rows,
    width: int,
    labels: Csr,
    known: NDArray[np.bool_],
    before: tuple[LabelTree, Chunks],
    revision: TreeRevision,
    numbers: NDArray[np.int64],
    objective: LinearObjective,
    *,
    sees_all: bool = False,
    seed: int,
    threads: int,
    workspace: Workspace | None = None,
    name: str = "tree",
    progress: Progress = silent,
    partial: PartialLabels | None = None,
) -> Chunks:
    """Train the nodes of a revised tree, level by level; levels already in the workspace are loaded instead.

    `known` (n,) marks rows that were trained on before with the same labels; `numbers` (L before,) has the new number
    of each old label. With `sees_all`, every leaf is trained on all rows, not only on those of its labels. `partial`
    has rejected and unknown labels: a row moves only classifiers of labels that are known for it.
    """
    workspace, tree = workspace or Workspace(), revision.tree
    objective = replace(objective, passes=-(-2 * objective.passes // 3))  # the weights are already near the optimum
    parts = []
    for level in range(tree.depth):
        part = f"{name}-level-{level}"
        if not workspace.has(part):
            is_last = level + 1 == tree.depth
            everywhere = level == 0 or (sees_all and is_last)
            held = tree.node_labels(labels, level)
            held = held if partial is None else partial.reached(tree, level, held)
            touched = np.bincount(held[np.flatnonzero(~known)].indices, minlength=tree.nodes(level)) > 0
            if sees_all and not is_last:  # the edges are certain and stay so
                touched[:] = False
            origins = _Origins(before, revision, numbers, level, lone_certain=not everywhere)
            trainer = NodeTrainer(
                rows,
                width,
                None if everywhere else Members.build(held),
                Members.build(tree.node_labels(labels, level + 1)),
                tree.starts[level],
                objective,
                seed + 7919 * level,
                origin=origins.of,
                touched=touched,
                known=known,
                undecided=None if partial is None else partial.undecided(tree, level),
            )
            title = f"updating {name}, level {level + 1} of {tree.depth}"
            with progress.task(title, total=int(tree.starts[level][-1])) as task:
                chunks = trainer.train(range(tree.nodes(level)), threads, task.advance)
            workspace.save(part, chunks._asdict())
        parts.append(Chunks(**workspace.load(part)[0]))
    return Chunks.joined(parts)


class _Origins:
    """Maps the nodes of a level to their classifiers before the update."""

    def __init__(
        self,
        before: tuple[LabelTree, Chunks],
        revision: TreeRevision,
        numbers: NDArray[np.int64],
        level: int,
        *,
        lone_certain: bool,
    ) -> None:
        self._tree, self._chunks = before
        self._revision, self._level, self._lone_certain = revision, level, lone_certain
        self._first = sum(self._tree.nodes(above) for above in range(level))  # chunk number of the level's first node
        tree = revision.tree
        if level + 1 < tree.depth:  # (children before,) their new child numbers
            self._now = np.full(self._tree.nodes(level + 1), -1, dtype=np.int64)
            self._now[revision.nodes[level + 1]] = np.arange(tree.nodes(level + 1))
        else:
            became = numbers[self._tree.order]
            self._now = np.where(became >= 0, tree.place_of()[became], -1)

    def of(self, node: int) -> Origin:
        """Previous classifiers of a node; a merged child gets the sum of the weights and a bias for "any of them"."""
        old = int(self._revision.nodes[self._level][node])
        starts, start = self._tree.starts[self._level], int(self._revision.tree.starts[self._level][node])
        count = int(self._revision.tree.starts[self._level][node + 1]) - start
        now = self._now[starts[old] : starts[old + 1]] - start  # (children before,) their new columns
        now = np.where((now >= 0) & (now < count), now, -1)
        if count == 1 and self._lone_certain:  # every document of the node belongs to its only child
            nothing = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.float32)
            return Origin(*nothing, np.array([np.inf], np.float32), np.zeros(1, np.bool_))
        chunk = self._first + old
        bias = np.full(count, NOBODY, dtype=np.float32)
        features, columns, weights = self._chunks.triplets(chunk)
        first = int(self._chunks.bias_start[chunk])
        own = self._chunks.bias[first : first + len(now)]
        is_alone = len(now) == 1 and bool(np.isposinf(own[0]))
        if is_alone and count > 1:
            own = np.array([CERTAIN], dtype=np.float32)
        made_of = np.bincount(now[now >= 0], minlength=count)
        bias[made_of > 0] = 0.0
        np.add.at(bias, now[now >= 0], own[now >= 0])
        bias += np.maximum(made_of - 1, 0)  # max(a, b) of two values that are −1 or 1 is at most a + b + 1
        padding = int(self._chunks.bias_start[chunk + 1]) - first - len(now)
        wide = np.append(now, np.full(padding, -1))  # damaged files may have weights in the padding
        here = wide[columns]  # the new columns
        stay = here >= 0
        features, here, weights = features[stay], here[stay], weights[stay]
        if (made_of > 1).any():
            features, here, weights = _summed(features, here, weights, count)
        return Origin(features, here, weights, bias, made_of != 1)


def _summed(
    features: NDArray[np.int32], columns: NDArray[np.int64], weights: NDArray[np.float32], count: int
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float32]]:
    """Add up the weights of equal (feature, column) pairs."""
    keys, inverse = np.unique(features.astype(np.int64) * count + columns, return_inverse=True)
    sums = np.bincount(inverse, weights, len(keys)).astype(np.float32)
    return (keys // count).astype(np.int32), keys % count, sums
