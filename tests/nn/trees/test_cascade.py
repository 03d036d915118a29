"""A label tree on one encoder: the joint loss and its gradients against plain loops, shortlists, rows, and updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")
from torch import Tensor

from xmtc.core.errors import ConfigError
from xmtc.core.runtime import Runtime
from xmtc.labels.tree import LabelTree
from xmtc.nn.documents import Documents, UnknownLabels
from xmtc.nn.training.optimisers import Adam
from xmtc.nn.training.process_group import Group
from xmtc.nn.trees import cascade_objective
from xmtc.nn.trees.cascade import BIAS, CascadeHead, CascadeSettings, CascadeTreeSettings
from xmtc.nn.trees.cascade_objective import CascadeObjective, LevelLabels, shortlist_sizes
from xmtc.nn.trees.device_tree import Level, Levels
from xmtc.nn.trees.row_table import RowTable
from xmtc.text.sequences import FIRST_WORD
from xmtc.text.tokens import TokenBlock

CPU = torch.device("cpu")
TREE = LabelTree(
    np.random.default_rng(3).permutation(19),
    (np.array([0, 3]), np.array([0, 2, 4, 6]), np.array([0, 3, 6, 9, 13, 15, 19])),
)
"""Levels of 3, 6 and 19 nodes."""
BATCH = 5
WEIGHTS = (1.0, 0.5, 2.0)
SHARED, APART = [(0, 4)] * 3, [(0, 6), (6, 10), (10, 14)]


def truth_of(count: int, seed: int, most: int = 5) -> sp.csr_array:
    random = np.random.default_rng([seed, 4])
    rows = [random.permutation(len(TREE))[: random.integers(1, most)] for _ in range(count)]
    indptr = np.cumsum([0, *map(len, rows)])
    matrix = sp.csr_array((np.ones(indptr[-1], np.float32), np.concatenate(rows), indptr), shape=(count, len(TREE)))
    matrix.sort_indices()
    return matrix


class Case:
    """A head, an objective in double precision, and encoded documents."""

    def __init__(
        self,
        seed: int,
        slices: list[tuple[int, int]],
        hidden: int,
        beams: tuple[int, int],
        *,
        sgd: float | None = None,
        unknown: UnknownLabels | None = None,
    ) -> None:
        torch.manual_seed(seed)
        self.truth, self.beams, self.levels = truth_of(12, seed), beams, Levels(TREE, CPU)
        texts = TokenBlock(np.arange(13), np.full(12, FIRST_WORD, np.int32))  # not read: their vectors are given
        self.documents = Documents(texts, self.truth, CPU)
        self.head = CascadeHead(3, slices, hidden).double()
        self.table = RowTable(
            25, self.head.inner + BIAS, place=CPU, kind=torch.float64, averaged=False, moments=not sgd
        )
        self.table.draw(lambda low, high: torch.randn(high - low, self.head.inner + BIAS, dtype=torch.float64))
        self.encoded = torch.randn(BATCH, max(high for _, high in slices), dtype=torch.float64)
        self.rows = torch.from_numpy(np.random.default_rng(seed).permutation(12)[:BATCH])
        truths = [LevelLabels(self.documents, self.truth, unknown, self.levels, number) for number in range(3)]
        self.objective = CascadeObjective(
            self.head,
            self.levels,
            truths,
            self.table,
            Group(Runtime(), CPU),
            BATCH,
            beams=beams,
            weights=WEIGHTS,
            compute=torch.float64,
            sgd=sgd,
        )
        self.optimiser = Adam({name: part for name, part in self.head.named_parameters() if name != "deep"})
        self.optimiser.rate.fill_(0.1)
        self.objective.bind(self.optimiser)

    def learn(self) -> tuple[Tensor, Tensor]:
        return self.objective.learn(self.rows, self.encoded, torch.empty(0), 2)


def shortlists(case: Case) -> list[list[list[int]]]:
    """For each document and level below the first, the parents: those above its labels, then the best scored."""
    table, lists = case.table.rows, []
    with torch.no_grad():
        vectors = case.head.level_vectors(case.encoded)
        first = torch.sigmoid(case.head.logits(vectors[0], torch.empty(0), 0, 3)).tolist()
    for row, document in enumerate(case.rows.tolist()):
        labels = case.truth.indices[case.truth.indptr[document] : case.truth.indptr[document + 1]]
        probability = dict(enumerate(first[row]))
        own = []
        for level in (1, 2):
            favoured = set(TREE.node_of(level)[labels].tolist())
            order = sorted(probability, key=lambda node: (node not in favoured, -np.float32(probability[node]), node))
            parents = sorted({*order[: case.beams[level - 1]], *favoured})
            own.append(parents)
            children = [child for parent in parents for child in children_of(level, parent)]
            start = 0 if level == 1 else 6
            above, own_rows = probability, table[start:]
            own_scores = torch.sigmoid(own_rows[list(children)] @ vectors[level][row]).tolist()
            probability = {
                child: above[parent_of(level, child)] * score for child, score in zip(children, own_scores, strict=True)
            }
        lists.append(own)
    return lists


def children_of(level: int, parent: int) -> range:
    return range(TREE.starts[level][parent], TREE.starts[level][parent + 1])


def parent_of(level: int, child: int) -> int:
    return int(np.searchsorted(TREE.starts[level], child, side="right")) - 1


def plain_loss(case: Case, rows: Tensor, encoded: Tensor, known: Any = lambda document, level, node: True) -> Tensor:
    """Cross-entropy of every level summed over nodes, one at a time; the mean of the documents."""
    head, total = case.head, torch.zeros((), dtype=torch.float64)
    vectors, lists = head.level_vectors(encoded), shortlists(case)
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    for row, document in enumerate(case.rows.tolist()):
        labels = case.truth.indices[case.truth.indptr[document] : case.truth.indptr[document + 1]]
        for level in range(3):
            held = set(TREE.node_of(level + 1)[labels].tolist())
            nodes = range(3)
            if level:
                nodes = [child for parent in lists[row][level - 1] for child in children_of(level, parent)]
            for node in nodes:
                if not known(document, level, node):
                    continue
                row_of = head.rows[node] if level == 0 else rows[(0, 0, 6)[level] + node]
                logit = vectors[level][row] @ row_of + (head.bias[node] if level == 0 else 0.0)
                target = torch.tensor(float(node in held), dtype=torch.float64)
                total = total + WEIGHTS[level] * cross_entropy(logit, target) / BATCH
    return total


@pytest.mark.parametrize("beams", [(1, 1), (2, 3), (9, 9)])
@pytest.mark.parametrize(("slices", "hidden"), [(SHARED, 0), (SHARED, 3), (APART, 0), (APART, 5)])
def test_loss_and_gradients_are_those_of_plain_loops(
    slices: list[tuple[int, int]], hidden: int, beams: tuple[int, int]
) -> None:
    case = Case(sum(beams) + hidden, slices, hidden, beams, sgd=1.0)
    rows = case.table.rows.clone().requires_grad_()
    encoded = case.encoded.clone().requires_grad_()
    parameters = {name: part for name, part in case.head.named_parameters() if name != "deep"}
    wanted = plain_loss(case, rows, encoded)
    expected = torch.autograd.grad(wanted, [encoded, rows, *parameters.values()])
    loss, gradient = case.learn()
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(gradient, expected[0])
    for (name, part), other in zip(parameters.items(), expected[2:], strict=True):
        torch.testing.assert_close(part.grad, other, msg=name)

    before = case.table.rows.clone()
    case.objective.put()
    change = (before - case.table.rows)[:25] / 0.1  # SGD
    torch.testing.assert_close(change, expected[1][:25])


def test_rows_follow_adam_and_others_stay() -> None:
    case = Case(4, APART, 0, (1, 1))
    case.rows, case.encoded = case.rows[:1].repeat(BATCH), case.encoded[:1].repeat(BATCH, 1)
    rows, first, second = case.table.rows.clone(), torch.zeros(26, 12).double(), torch.zeros(26, 12).double()
    for step in (1, 2, 3):
        rows.requires_grad_()
        gradient = torch.autograd.grad(plain_loss(case, rows, case.encoded), rows)[0]
        rows = rows.detach()
        used = gradient.abs().sum(1) > 0
        first[used] = 0.9 * first[used] + 0.1 * gradient[used]
        second[used] = 0.999 * second[used] + 0.001 * gradient[used] ** 2
        below = (second[used] / (1 - 0.999**step)).sqrt() + 1e-8
        rows[used] -= 0.1 / (1 - 0.9**step) * first[used] / below
        assert 0 < used.sum() < 20
        case.learn()
        case.optimiser.count += 1
        case.objective.put()
        torch.testing.assert_close(
            case.table.rows[:25], rows[:25], rtol=1e-3, atol=1e-6
        )  # the count and rate are of single precision


def test_slices_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for size in (1 << 14, 3):
        monkeypatch.setattr(cascade_objective, "SLICE", size)
        case = Case(8, APART, 0, (2, 2))
        case.learn()
        case.optimiser.count += 1
        case.objective.put()
        found.append(case.table.rows)
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("beams", [(1, 1), (2, 3), (9, 9)])
def test_shortlists_have_all_true_parents_and_the_best_others(beams: tuple[int, int]) -> None:
    case = Case(7, APART, 0, beams)
    seen: list[Any] = []
    inner = case.objective._shortlist

    def watched(*given: Any) -> Any:
        seen.append(inner(*given))
        return seen[-1]

    case.objective._shortlist = watched  # type: ignore[method-assign]
    case.learn()
    expected = shortlists(case)
    for level, shortlist in enumerate(seen, start=1):
        for row, document in enumerate(case.rows.tolist()):
            inside = set(shortlist.nodes[shortlist.inside[row]].tolist())
            assert inside == {child for parent in expected[row][level - 1] for child in children_of(level, parent)}
            labels = case.truth.indices[case.truth.indptr[document] : case.truth.indptr[document + 1]]
            assert set(TREE.node_of(level + 1)[labels].tolist()) <= inside


def test_unknown_nodes_have_no_loss() -> None:
    truth = truth_of(12, 6)
    rejected = sp.csr_array(truth_of(12, 60))
    rejected = sp.csr_array(((rejected - rejected.multiply(truth)) > 0).astype(np.float32))
    partial = np.arange(12) % 2 == 0
    rejected.data *= np.repeat(partial, np.diff(rejected.indptr))
    rejected.eliminate_zeros()
    unknown = UnknownLabels(partial, rejected)
    case = Case(6, APART, 0, (9, 9), sgd=1.0, unknown=unknown)

    def known(document: int, level: int, node: int) -> bool:
        below = np.flatnonzero(TREE.node_of(level + 1) == node)
        positive = case.truth[[document]].toarray()[0, below].any()
        return not partial[document] or bool(positive or rejected[[document]].toarray()[0, below].all())

    wanted = plain_loss(case, case.table.rows, case.encoded, known)
    torch.testing.assert_close(case.learn()[0], wanted.detach())
    assert wanted < plain_loss(case, case.table.rows, case.encoded)


def test_slots_of_nodes() -> None:
    level = Level(TREE.starts[2], CPU)
    parents = torch.tensor([1, 3, 6, 6])  # two real ones, and padding
    slots = level.slots(parents, torch.arange(-1, 20))
    children = level.children(parents).flatten().tolist()
    assert slots.tolist() == [children.index(node) if node in children and node >= 0 else -1 for node in range(-1, 20)]


def test_shortlists_are_longer_for_documents_with_many_labels() -> None:
    counts = np.array([1, 9, 4, 2, 7])
    assert shortlist_sizes([counts, counts], [1000, 10], [3, 3], 2) == [2 * 3 + (9 - 3) + (7 - 3), 10]


# ---- settings


def test_layers_of_levels() -> None:
    assert CascadeSettings().layers(4, 12) == [(6,), (8,), (10,), (12,)]
    assert CascadeSettings().layers(1, 1) == [(1,)]
    assert CascadeSettings(levels_from="last", last_layers=2).layers(2, 6) == [(5, 6), (5, 6)]
    assert CascadeSettings(levels_from="5+6, 8,12").layers(3, 12) == [(5, 6), (8,), (12,)]
    assert not CascadeSettings().reads_layers
    assert CascadeSettings(levels_from="last").reads_layers


@pytest.mark.parametrize(
    ("settings", "levels", "message"),
    [
        ({"levels_from": "last"}, 2, r"'last_layers' of head is 5, but the encoder has 4"),
        ({"levels_from": "2,4"}, 3, r"has 2 levels, but the label tree has 3"),
        ({"levels_from": "2,3"}, 2, r"must include the last layer, 4, and none above. Got '2,3'"),
        ({"levels_from": "2,5"}, 2, r"must include the last layer, 4"),
        ({"levels_from": "layers"}, 2, r"'levels_from' of head must be 'auto', 'last' or a list"),
        ({"levels_from": "0,4"}, 2, r"'levels_from' of head must be"),
        ({"weights": [0.0]}, 2, r"'weights' of head must be a list of numbers > 0"),
    ],
)
def test_wrong_layers_get_one_line(settings: dict[str, Any], levels: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as said:
        CascadeSettings(**settings).layers(levels, 4)
    assert "\n" not in str(said.value)


def test_wrong_lists_get_one_line() -> None:
    with pytest.raises(ConfigError, match=r"'beam_width' of head.tree must have 2 numbers, one for each level"):
        CascadeTreeSettings(beam_width=(3,)).beams(3)
    with pytest.raises(ConfigError, match=r"'dropouts' of head has 1 values, but the label tree has 3 levels"):
        CascadeSettings(dropouts=(0.5,)).of_levels("dropouts", 3, 0.0)
    with pytest.raises(ConfigError, match=r"'hidden' of head must be > 0 if levels below the first read different"):
        CascadeHead(3, [(0, 4), (4, 8), (8, 16)], 0)
