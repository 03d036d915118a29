"""Documents with unknown labels: nodes of a tree, batches, candidates, and the validation set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")

from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.labels.tree import LabelTree
from xmtc.nn.documents import Documents, UnknownLabels, split_validation
from xmtc.nn.heads.label_attention import LabelAttention
from xmtc.nn.training.objectives import ROWS, CandidateObjective
from xmtc.nn.training.optimisers import Adam
from xmtc.nn.training.process_group import Group
from xmtc.nn.trees.device_tree import Levels
from xmtc.nn.trees.row_table import RowTable
from xmtc.text.sequences import SequenceSettings, WordSequences
from xmtc.text.tokens import TokenBlock

CPU = torch.device("cpu")
TREE = LabelTree(np.array([5, 0, 3, 1, 4, 2, 6]), (np.array([0, 3]), np.array([0, 2, 5, 7])))  # leaves 5 0, 3 1 4, 2 6
LABELS = sp.csr_array(np.array([[1, 0, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]], np.float32))
REJECTED = sp.csr_array(np.array([[0, 1, 0, 1, 1, 0, 1], [1, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 1]], np.float32))
PARTIAL = np.array([True, False, True])
UNKNOWN = UnknownLabels.of(
    Dataset({"text": as_dataset(["a", "b", "c"]).text()}, None, LABELS, None, None, REJECTED, PARTIAL)
)


def test_rejected_labels_of_partial_documents() -> None:
    assert UNKNOWN is not None
    assert UNKNOWN.rejected[[0]].indices.tolist() == [1, 3, 4, 6]
    assert UNKNOWN.rejected[[1]].nnz == 0  # complete
    assert UNKNOWN.take(np.array([1])) is None
    assert UnknownLabels.of(as_dataset(["a"], [["x"]])) is None


def test_a_node_is_rejected_with_all_its_labels() -> None:
    assert UNKNOWN is not None
    nodes = UNKNOWN.of_nodes(TREE, 1)
    assert nodes.rejected.toarray().tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 1]]
    places = TREE.place_of()
    leaves = UNKNOWN.of_nodes(TREE, 2)
    assert leaves.rejected[[2]].indices.tolist() == sorted(places[[2, 6]].tolist())


def documents() -> Documents:
    block = TokenBlock(np.array([0, 1, 2, 3]), np.array([2, 3, 4], dtype=np.int32))
    assert UNKNOWN is not None
    return Documents(block, TREE.node_labels(LABELS, 2), CPU, UNKNOWN.of_nodes(TREE, 2))


def test_batches() -> None:
    given = documents().partial(torch.tensor([2, 1]))
    assert given is not None
    assert given.partial.tolist() == [True, False]
    assert given.rejected.shape == (2, 4)
    assert sorted(given.rejected[0].tolist()) == [-1, -1, *sorted(TREE.place_of()[[2, 6]].tolist())]
    assert (given.rejected[1] == -1).all()
    assert documents().labelled(LABELS).partial(torch.tensor([0])) is None


def test_unknown_candidates_become_padding() -> None:
    """For each candidate of each document: its target, or None if it is padding."""
    level = Levels(TREE, CPU).levels[-1]
    head = LabelAttention(9, 4, (3,))
    parents = torch.tensor([[0, 1], [0, 2], [2, 1]])
    table = RowTable(7, 4, place=CPU, kind=torch.float32, averaged=False)
    objective = CandidateObjective(head, documents(), level, parents, table, Group(Runtime(), CPU), 3)
    objective.bind(Adam({ROWS: head.rows}))
    objective.take(torch.arange(3))
    slots, targets = objective._slots.tolist(), objective._targets.tolist()
    found = [[None if s < 0 else t for s, t in zip(*row, strict=True)] for row in zip(slots, targets, strict=True)]
    # children of leaf 0: labels 5, 0; of leaf 1: 3, 1, 4; of leaf 2: 2, 6
    assert found == [
        [None, 1.0, None, 0.0, 0.0, 0.0],
        [0.0, 0.0, None, 1.0, 0.0, None],
        [0.0, 0.0, None, None, None, None],
    ]


def test_validation_has_complete_documents() -> None:
    texts = [f"word{number}" for number in range(40)]
    train = as_dataset(texts, [["x"]] * 40)
    partial = np.arange(40) % 4 != 0
    reader, numbered = WordSequences.fit(train, SequenceSettings(), Runtime())
    learnt, held = split_validation(replace(train, partial=partial), numbered, None, reader, 1000, Runtime())
    assert held is not None
    assert held.unknown is None
    assert held.labels.shape[0] == 4
    assert learnt.unknown is not None
    assert learnt.unknown.partial.sum() == 30
    everything = replace(train, partial=np.ones(40, dtype=bool))
    assert split_validation(everything, numbered, None, reader, 1000, Runtime())[1] is not None
