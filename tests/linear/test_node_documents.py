"""Children of tree nodes that are right, wrong or unknown for documents, by hand and in whole trees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.data.dataset import Dataset, as_dataset
from xmtc.labels.tree import LabelTree
from xmtc.linear.forest import train_flat, train_tree
from xmtc.linear.node_documents import Members, PartialLabels, child_signs
from xmtc.linear.node_training import LinearObjective, Rows, numbers_by_frequency

TREE = LabelTree(np.arange(5), (np.array([0, 2]), np.array([0, 2, 5])))
"""Two leaves, with the labels 0, 1 and 2, 3, 4."""


def documents() -> Dataset:
    """Document 1 rejects a whole leaf; 2 rejects labels 1 and 3; 3 is complete and rejects label 2; 4 knows nothing."""
    labels = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
    rejected = np.array([[0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]])
    whole = as_dataset(np.eye(5), labels)
    return replace(
        whole,
        rejected=sp.csr_array(rejected.astype(np.float32)),
        partial=np.array([False, True, True, False, True]),
    )


def test_documents_of_each_node() -> None:
    dataset = documents()
    partial = PartialLabels.of(dataset)
    assert partial is not None
    assert dataset.labels is not None
    held = TREE.node_labels(dataset.labels, 1)
    assert held.toarray().tolist() == [[1, 1], [0, 1], [1, 0], [1, 0], [0, 0]]
    assert partial.reached(TREE, 1, held).toarray().tolist() == [[1, 1], [1, 1], [1, 1], [1, 1], [0, 0]]
    assert PartialLabels.of(replace(dataset, rejected=None, partial=None)) is None


def test_signs() -> None:
    dataset = documents()
    partial = PartialLabels.of(dataset)
    assert partial is not None
    assert dataset.labels is not None
    everyone = np.arange(5, dtype=np.int32)
    root = child_signs(
        everyone, Members.build(TREE.node_labels(dataset.labels, 1)), 0, 2, 2, partial.undecided(TREE, 0)
    )
    assert root.tolist() == [[1, 1], [-1, 1], [1, 0], [1, -1], [0, 0]]
    children = Members.build(TREE.node_labels(dataset.labels, 2))
    second = child_signs(everyone[:4], children, 2, 3, 4, partial.undecided(TREE, 1))
    assert second.tolist() == [[1, -1, -1, -1], [0, 0, 1, 0], [0, -1, 0, 0], [-1, -1, -1, -1]]


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_what_is_unknown_leaves_classifiers_as_they_are(loss: str) -> None:
    """Documents for which nothing is known change no tree; a decision changes only the classifiers on its path."""
    random = np.random.default_rng(0)
    features = sp.csr_array((random.random((60, 30)) < 0.3).astype(np.float32))
    labels = sp.csr_array((random.random((60, 5)) < 0.3).astype(np.float32))
    more = sp.csr_array(sp.vstack([labels, sp.csr_array((20, 5), dtype=np.float32)]))
    both = sp.csr_array(sp.vstack([features, features[:20]]))
    numbers = numbers_by_frequency(features)
    flags = np.arange(80) >= 60
    unknown = PartialLabels(sp.csr_array((80, 5), dtype=np.float32), flags)
    one = unknown.rejected.tolil()
    one[70, 3] = 1
    aim = LinearObjective(loss=loss, tolerance=1e-3, passes=3000, prune=0.0)  # type: ignore[arg-type]
    how = {"seed": 1, "threads": 1}

    def weights(chunks: object) -> list[np.ndarray]:
        columns = []
        for chunk in range(3):
            count = [2, 2, 3][chunk]
            dense = np.zeros((31, count))
            found, places, values = chunks.triplets(chunk)  # type: ignore[attr-defined]
            dense[found, places] = values
            first = chunks.bias_start[chunk]  # type: ignore[attr-defined]
            dense[30] = chunks.bias[first : first + count]  # type: ignore[attr-defined]
            columns += list(dense.T)
        return columns

    before = weights(train_tree(Rows.build(features, numbers), 30, labels, TREE, aim, **how))  # type: ignore[arg-type]
    rows = Rows.build(both, numbers)
    same = weights(train_tree(rows, 30, more, TREE, aim, partial=unknown, **how))  # type: ignore[arg-type]
    decided = PartialLabels(sp.csr_array(one.tocsr()), flags)
    other = weights(train_tree(rows, 30, more, TREE, aim, partial=decided, **how))  # type: ignore[arg-type]
    # The logistic loss weighs the errors of a leaf by the share of documents in it, which is another one now.
    compared = range(7) if loss == "squared_hinge" else range(2)
    assert all(np.abs(before[column] - same[column]).max() < 0.01 for column in compared)
    moved = [bool(np.abs(a - b).max() > 0.01) for a, b in zip(same, other, strict=True)]
    assert moved == [False, False, False, False, False, True, False]
    flat = train_flat(rows, 30, more, aim, partial=decided, **how)[1]  # type: ignore[arg-type]
    alone = train_flat(rows, 30, more, aim, partial=unknown, **how)[1]  # type: ignore[arg-type]
    finite = np.isfinite(alone.bias)
    assert (np.abs(flat.bias[finite] - alone.bias[finite]) > 1e-3).sum() == 1


def test_a_leaf_that_only_rejected_labels_reach() -> None:
    """Rows with an importance: no row has a label of the second leaf, and its classifiers stay finite."""
    labels = sp.csr_array(np.array([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 0, 0, 0]], dtype=np.float32))
    rejected = sp.csr_array(np.array([[0, 0, 1, 1, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=np.float32))
    features = sp.csr_array(np.eye(3, dtype=np.float32))
    importance = np.array([1, 1, 2], dtype=np.float32)
    rows = Rows.build(features, np.arange(3, dtype=np.int32), importance)
    partial = PartialLabels(rejected, np.array([True, True, False]))
    aim = LinearObjective(loss="logistic", prune=0.0)
    chunks = train_tree(rows, 3, labels, TREE, aim, seed=1, threads=1, partial=partial)
    assert np.isfinite(chunks.triplets(2)[2]).all()
    assert not np.isnan(chunks.bias).any()
    assert (chunks.bias[chunks.bias_start[2] :][:3] < 0).all()
