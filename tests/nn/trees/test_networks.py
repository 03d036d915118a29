"""Networks of a label tree: levels, rows, learning from candidates, the beam, lists of parents, and exact resume."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from torch import Tensor

from tests.support.attention import plain_logits
from tests.support.networks import copied, same, settings_of
from tests.support.tree_networks import CPU, RUNTIME, TEXTS, TRUTH, VALID, Stopping, torch, tree_model
from xmtc.artifact import store
from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ConfigError, ModelFormatError
from xmtc.core.progress import silent
from xmtc.data.dataset import as_dataset
from xmtc.labels.tree import LabelTree
from xmtc.metrics import ndcg
from xmtc.models.attention_xml import AttentionXml
from xmtc.models.base import Model
from xmtc.nn.documents import Documents, epoch_batches
from xmtc.nn.encoders.lstm import BiLstm, LstmSettings
from xmtc.nn.heads.label_attention import LabelAttention
from xmtc.nn.members import MemberSpec
from xmtc.nn.network import Network
from xmtc.nn.tensors import as_array
from xmtc.nn.training.loop import Trainer
from xmtc.nn.training.objectives import CandidateObjective, distinct, slots_for
from xmtc.nn.training.process_group import Group
from xmtc.nn.trees import member as tree_member
from xmtc.nn.trees import networks as tree_module
from xmtc.nn.trees import training
from xmtc.nn.trees.device_tree import Levels
from xmtc.nn.trees.networks import BeamNodes, TreeNetwork, best_in_trees, best_of, scores_in_trees
from xmtc.nn.trees.row_table import RowTable, narrowed
from xmtc.text.sequences import FIRST_WORD, PADDING
from xmtc.text.tokens import TokenBlock

WORDS = 20


pytestmark = pytest.mark.usefixtures("one_thread")


# ---- trees and texts


def random_tree(seed: int, depth: int = 3, most: int = 4) -> LabelTree:
    """Nodes of 1 to `most` children, the root of more than one; labels in any order."""
    random = np.random.default_rng(seed)
    nodes, starts = 1, []
    for level in range(depth):
        counts = random.integers(1 if level else 3, most + 1, nodes)
        starts.append(np.concatenate([[0], np.cumsum(counts)]))
        nodes = int(counts.sum())
    return LabelTree(random.permutation(nodes), tuple(starts))


def children_of(tree: LabelTree, level: int, node: int) -> list[int]:
    return list(range(tree.starts[level][node], tree.starts[level][node + 1]))


@functools.cache
def path_to(tree: LabelTree, label: int) -> list[int]:
    """The nodes on the way to a label, from the one below the root to the label's place."""
    found = tree.order.tolist().index(label)
    path = [found]
    for level in range(tree.depth - 1, 0, -1):
        found = next(node for node in range(tree.nodes(level)) if found in children_of(tree, level, node))
        path.insert(0, found)
    return path


def labels_below(tree: LabelTree, level: int, node: int) -> set[int]:
    """Of a node of the level below `level`, which is the level's own numbering here."""
    return {label for label in range(len(tree)) if path_to(tree, label)[level] == node}


def texts_of(count: int, seed: int = 0, labels: sp.csr_array | None = None) -> Documents:
    """Random texts of up to 14 words; without labels, the last has none."""
    random = np.random.default_rng([seed, 77])
    lengths = random.integers(1, 15, count)
    lengths[-1] *= labels is not None
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = random.integers(FIRST_WORD, WORDS, int(indptr[-1])).astype(np.int32)
    return Documents(TokenBlock(indptr, ids), labels, CPU)


def made(nodes: int, seed: int, kind: torch.dtype = torch.float32) -> Network:
    """A network whose answers are spread out."""
    torch.manual_seed(seed)
    table = torch.randn(WORDS, 5)
    table[PADDING] = 0.0
    encoder = BiLstm(5, LstmSettings(units=3, word_dropout=0.0, dropout=0.0))
    head = LabelAttention(nodes, 6, (4,))
    network = Network(table, encoder, head, trained_words=True, compute=kind).to(kind)
    with torch.no_grad():
        for part in encoder.parameters():
            part.mul_(3.0)
        for part in head.parameters():
            part.copy_(3.0 * torch.randn(part.shape))
    return network.eval()


def grown(seed: int, beam: int, depth: int = 3, tree: LabelTree | None = None) -> TreeNetwork:
    tree = tree or random_tree(seed, depth)
    levels = Levels(tree, CPU)
    return TreeNetwork(levels, [made(level.nodes, 31 * seed + i) for i, level in enumerate(levels.levels)], beam)


# ---- levels


class TestLevels:
    @pytest.mark.parametrize("seed", range(4))
    def test_children(self, seed: int) -> None:
        tree = random_tree(seed)
        for number, level in enumerate(Levels(tree, CPU).levels):
            parents = torch.from_numpy(np.random.default_rng(seed).integers(0, level.parents + 1, (5, 4)))
            found = level.children(parents)
            assert found.shape == (5, 4, level.most)
            assert (level.parents, level.nodes) == (tree.nodes(number), tree.nodes(number + 1))
            assert level.most == max(len(children_of(tree, number, node)) for node in range(level.parents))
            for row, column in itertools.product(range(5), range(4)):
                parent = int(parents[row, column])
                held = [] if parent == level.parents else children_of(tree, number, parent)
                assert found[row, column].tolist() == held + [-1] * (level.most - len(held))

    @pytest.mark.parametrize("seed", range(4))
    def test_places(self, seed: int) -> None:
        tree, random = random_tree(seed), np.random.default_rng(seed)
        for number, level in enumerate(Levels(tree, CPU).levels):
            given = min(3, level.parents)
            parents = np.stack([random.permutation(level.parents)[:given] for _ in range(6)])
            nodes = random.integers(-1, level.nodes, (6, 9))
            found = level.places(torch.from_numpy(parents), torch.from_numpy(nodes)).tolist()
            for row in range(6):
                spread = [children_of(tree, number, parent) for parent in parents[row]]
                slots = [node for held in spread for node in held + [None] * (level.most - len(held))]
                expected = [slots.index(node) if node in slots else -1 for node in nodes[row].tolist()]
                assert found[row] == expected

    @pytest.mark.parametrize("seed", range(3))
    def test_nodes_above_labels(self, seed: int) -> None:
        tree, random = random_tree(seed), np.random.default_rng(seed)
        levels = Levels(tree, CPU)
        assert len(levels) == 3
        assert levels.order.tolist() == tree.order.tolist()
        labels = random.integers(-1, len(tree), (4, 7))
        allowed = random.random(len(tree)) < 0.3
        for level in range(3):
            expected = [[-1 if label < 0 else path_to(tree, label)[level] for label in row] for row in labels.tolist()]
            assert levels.nodes_of(level, torch.from_numpy(labels)).tolist() == expected
            followed = [
                any(allowed[label] for label in labels_below(tree, level, node))
                for node in range(tree.nodes(level + 1))
            ]
            assert levels.allowed(level, allowed).tolist() == followed

    @pytest.mark.parametrize("kind", [torch.int32, torch.int64])
    def test_distinct_numbers(self, kind: torch.dtype) -> None:
        random = np.random.default_rng(0)
        for shape, below in (((1, 1), 1), ((4, 3), 5), ((6, 2), 100), ((3, 5), 15)):
            numbers = random.integers(0, below, shape)
            expected = np.unique(numbers).tolist()
            for most in (len(expected), len(expected) + 4):
                found = distinct(torch.from_numpy(numbers).to(kind), most, below)
                assert found.tolist() == expected + [below] * (most - len(expected))


# ---- rows


KINDS = [torch.float32, torch.bfloat16]


def filled(kind: torch.dtype = torch.float32, *, averaged: bool = True, count: int = 7) -> RowTable:
    """Numbers that bfloat16 holds exactly; nobody's row is zero."""
    table = RowTable(count, 3, place=CPU, kind=kind, averaged=averaged)
    torch.manual_seed(1)
    drawn = torch.randint(-100, 100, (count, 3)) / 8
    table.draw(lambda low, high: drawn[low:high])
    for part in (table.first, table.second):
        part[:count] = torch.randint(0, 100, (count, 3)) / 16
    return table


def parts_of(table: RowTable) -> list[Tensor]:
    return [part[: table.count].clone() for part in (table.rows, table.first, table.second)]


class TestRowTable:
    @pytest.mark.parametrize("kind", KINDS)
    def test_what_is_taken_goes_back(self, kind: torch.dtype) -> None:
        table = filled(kind)
        numbers = torch.tensor([4, 7, 0, 2, 7, 7])  # seven are there: number 7 is nobody's
        before, working = parts_of(table), [torch.full((6, 3), 9.0) for _ in range(3)]
        table.take(numbers, working)
        for taken, kept in zip(working, before, strict=True):
            assert taken[[0, 2, 3]].tolist() == kept[[4, 0, 2]].float().tolist()
        for number, part in enumerate(working):
            part += 0.5 * (number + 1)
        table.put(numbers, working, torch.tensor(1))
        for number, (old, new) in enumerate(zip(before, parts_of(table), strict=True)):
            assert torch.equal(new[[1, 3, 5, 6]], old[[1, 3, 5, 6]])
            assert torch.equal(new[[4, 0, 2]], old[[4, 0, 2]] + 0.5 * (number + 1))
        again = [torch.empty(6, 3) for _ in range(3)]
        table.take(numbers, again)
        assert all(torch.equal(left[[0, 2, 3]], right[[0, 2, 3]]) for left, right in zip(again, working, strict=True))

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_average_moves_by_its_share(self, kind: torch.dtype) -> None:
        table = filled(kind)
        parameter = torch.nn.Parameter(torch.zeros(2, 3))
        with table.shown(parameter):
            assert torch.equal(parameter.data, table.rows[:7])  # nothing averaged yet
        expected = None
        for step, share in enumerate((0.3, 0.5, 0.25, 1.0, 0.1)):
            table.rows[:7] += torch.tensor(float(step))
            rows = table.rows[:7].double()
            expected = rows.clone() if expected is None else (1 - share) * expected + share * rows
            table.fold(share, 7)
        tolerance = 1e-5 if kind == torch.float32 else 5 * 16 / 256  # a step of bfloat16 at 16 for each time
        with table.shown(parameter):
            assert parameter.shape == (7, 3)
            assert (parameter.data.double() - expected).abs().max() < tolerance
            assert not torch.equal(parameter.data, table.rows[:7])
        assert parameter.shape == (2, 3)

    @pytest.mark.parametrize("kind", KINDS)
    def test_what_is_left_at_the_end(self, kind: torch.dtype) -> None:
        """The best, or else the average, or else the rows."""
        table = filled(kind, averaged=False)
        rows = table.rows[:7].clone()
        assert torch.equal(table.finished(), rows)
        table = filled(kind)
        table.fold(1.0, 7)
        table.rows += 1.0
        assert torch.equal(table.finished(), rows)
        table = filled(kind)
        table.fold(1.0, 7)
        table.keep_best()
        table.rows += 1.0
        table.fold(1.0, 7)
        assert table.finished().dtype == kind
        assert torch.equal(table.finished(), rows)
        table = filled(kind)
        table.keep_best()
        table.rows += 1.0
        table.keep_best()
        assert torch.equal(table.finished(), rows + 1.0)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("stage", ["new", "averaged", "best", "both"])
    def test_a_table_goes_on_from_its_state(self, kind: torch.dtype, stage: str) -> None:
        table = filled(kind)
        if stage in ("averaged", "both"):
            table.fold(1.0, 7)
        if stage in ("best", "both"):
            table.keep_best()
        table.rows += 2.0
        state = {name: as_array(part).copy() for name, part in table.state().items()}
        other = RowTable(7, 3, place=CPU, kind=kind, averaged=True)
        other.restore(state)
        ends = []
        for one in (table, other):
            torch.manual_seed(3)
            one.put(torch.tensor([1, 7]), [torch.full((2, 3), 1.1)] * 3, torch.tensor(5))
            one.fold(0.5, 7)
            ends.append([*parts_of(one), one.finished().clone()])
        assert all(torch.equal(left, right) for left, right in zip(*ends, strict=True))

    def test_a_state_is_read_part_by_part(self, tmp_path: Path) -> None:
        """Another copy of all parts at once might be more than there is room for."""
        table = RowTable(1000, 50, place=CPU, kind=torch.float32, averaged=True)
        table.draw(lambda low, high: torch.randn(high - low, 50))
        table.fold(1.0, 1)
        table.keep_best()
        Workspace(tmp_path).save("part", {name: as_array(part) for name, part in table.state().items()})
        other = RowTable(1000, 50, place=CPU, kind=torch.float32, averaged=True)
        arrays, _ = Workspace(tmp_path).map("part")
        tracemalloc.start()
        other.restore(arrays)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * table.rows.nbytes
        assert all(torch.equal(part, other.state()[name]) for name, part in table.state().items())

    def test_rounding_is_right_on_average(self) -> None:
        count = 20_000
        for number in (1.003, -1.003, 3.14159, -1e-3, 7.7e-20, 1.5e20, 1.0 + 2.0**-20):
            given = torch.tensor(number)
            found = narrowed(given.expand(count), torch.bfloat16, 3).double()
            steps = found.unique()
            assert 1 <= len(steps) <= 2
            gap = abs(number) / 64
            assert (steps - number).abs().max() < gap
            assert abs(float(found.mean()) - float(given)) < 5 * gap / 2 / count**0.5

    def test_numbers_of_the_type_stay(self) -> None:
        numbers = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 2.0**-30, -(2.0**40), 1.0078125, 65_280.0])
        for salt in range(50):
            assert torch.equal(narrowed(numbers, torch.bfloat16, salt).float(), numbers)
        assert torch.equal(narrowed(numbers + 1e-7, torch.float32, 0), numbers + 1e-7)

    def test_rounding_follows_from_number_place_and_salt(self) -> None:
        numbers = torch.full((4, 500), 1.003)
        first = narrowed(numbers, torch.bfloat16, 1)
        assert torch.equal(narrowed(numbers, torch.bfloat16, torch.tensor(1, dtype=torch.int32)), first)
        other = narrowed(numbers, torch.bfloat16, 2)
        up = [rounded.float() > 1.003 for rounded in (first, other)]
        share = float(up[0].double().mean())
        agree = float((up[0] == up[1]).double().mean())
        assert agree == pytest.approx(share**2 + (1 - share) ** 2, abs=0.05)  # as two independent draws do

    def test_small_changes_are_not_lost(self) -> None:
        """Steps of a thirty-second of what bfloat16 can tell apart at 1: plain rounding would never move."""
        table = RowTable(64, 64, place=CPU, kind=torch.bfloat16, averaged=False)
        table.draw(lambda low, high: torch.ones(high - low, 64))
        numbers, change = torch.arange(64), 2.0**-12
        assert torch.equal((table.rows[:64].float() + change).to(torch.bfloat16), table.rows[:64])
        working = [torch.zeros(64, 64) for _ in range(3)]
        for step in range(128):
            table.take(numbers, working)
            working[0] += change
            table.put(numbers, working, torch.tensor(step, dtype=torch.int32))
        moved = float(table.rows[:64].double().mean()) - 1.0
        assert moved == pytest.approx(128 * change, rel=0.05)


# ---- learning from candidates


def plain_adam(
    weight: Tensor, moments: tuple[Tensor, Tensor], gradient: Tensor, rate: float, count: int, rows: list[int] | None
) -> None:
    """Adam as it is written; of tables, only the touched rows and their moments."""
    part = slice(None) if rows is None else rows
    first, second = moments
    first[part] = 0.9 * first[part] + 0.1 * gradient[part]
    second[part] = 0.999 * second[part] + 0.001 * gradient[part] ** 2
    steps = torch.tensor(float(count))  # single precision, which 1 − 0.999ⁿ suffers from
    below = (second[part] / (1 - 0.999**steps)).sqrt() + 1e-8
    with torch.no_grad():
        weight[part] -= rate * (first[part] / (1 - 0.9**steps)) / below


class PlainLevel:
    """One matrix for all nodes, autograd, a document at a time, and moments of everything."""

    def __init__(self, network: Network, rows: Tensor) -> None:
        self.network = copy.deepcopy(network)
        self.rows = rows.clone().requires_grad_()
        named = {name: part for name, part in self.network.named_parameters() if name != "head.rows"}
        self.weights = {**named, "rows": self.rows}
        self.moments = {name: (torch.zeros_like(w), torch.zeros_like(w)) for name, w in self.weights.items()}
        self.count = 0

    def step(self, tokens: list[list[int]], candidates: list[list[int]], truth: list[set[int]], room: int) -> float:
        """`room` is what the loss of a document is divided by."""
        for weight in self.weights.values():
            weight.grad = None
        loss = torch.zeros((), dtype=torch.float64)
        for words, numbers, positive in zip(tokens, candidates, truth, strict=True):
            ids, target = torch.tensor([words]), torch.tensor([[float(node in positive) for node in numbers]])
            mask = torch.ones_like(ids, dtype=torch.bool)
            states = self.network.encoder(torch.nn.functional.embedding(ids.t(), self.network.table), mask)
            logits = plain_logits(self.network.head, states, mask, self.rows[torch.tensor([numbers])])
            loss = loss + torch.nn.functional.binary_cross_entropy_with_logits(
                logits, target.double(), reduction="sum"
            ) / (room * len(tokens))
        loss.backward()
        self.count += 1
        touched = {
            "table": sorted({word for words in tokens for word in words}),
            "rows": sorted({node for numbers in candidates for node in numbers}),
        }
        for name, weight in self.weights.items():
            gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
            plain_adam(weight.data, self.moments[name], gradient, 0.02, self.count, touched.get(name))
        return float(loss.detach())


@pytest.mark.parametrize("batch", [3, 8])
@pytest.mark.parametrize("followed", [1, 3, 100])
def test_steps_on_candidates_equal_a_plain_way(batch: int, followed: int) -> None:
    """Uneven clusters, parents that documents share, parents without a label, and labels of no parent given."""
    tree, random = random_tree(3, depth=3), np.random.default_rng(4)
    number, nodes, parents = 2, tree.nodes(3), tree.nodes(2)
    level = Levels(tree, CPU).levels[number]
    assert len({len(children_of(tree, number, node)) for node in range(parents)}) > 1
    followed = min(followed, parents)
    count = 16
    truth = sp.csr_array((random.random((count, nodes)) < 0.15).astype(np.float32))
    documents = texts_of(count, labels=truth)
    lists = np.stack([random.permutation(parents)[:followed] for _ in range(count)]).astype(np.int32)
    network = made(slots_for(batch, followed, level.parents, level.most), 8, torch.float64)
    assert network.head.labels == min(batch * followed, parents) * level.most
    rows = 2.0 * torch.randn(nodes, 6, dtype=torch.float64)
    table = RowTable(nodes, 6, place=CPU, kind=torch.float64, averaged=False)
    table.draw(lambda low, high: rows[low:high])
    plain = PlainLevel(network, rows)
    objective = CandidateObjective(
        network.head, documents, level, torch.from_numpy(lists), table, Group(RUNTIME, CPU), batch
    )
    settings = settings_of(batch_size=batch, clip=0.0, averaging="none", validate_every=1, learning_rate=0.02)
    lines: list[dict[str, Any]] = []
    trainer = Trainer(
        network, documents, settings, seed=3, free=1 << 12, validate=None, log=lines.append, objective=objective
    )
    trainer.run(silent, Workspace(), "x")
    positive = [set(truth[[row]].indices.tolist()) for row in range(count)]
    losses, repeated = [], False
    for epoch in range(2):
        for rows_of_batch, _ in epoch_batches(
            documents.lengths, trainer.steps, batch, np.random.default_rng([3, epoch])
        ):
            chosen = rows_of_batch.tolist()
            words = [documents.tokens(torch.tensor([row]), int(documents.lengths[row]))[0].tolist() for row in chosen]
            below = [[node for p in lists[row] for node in children_of(tree, number, p)] for row in chosen]
            together = [node for numbers in below for node in numbers]
            repeated |= len(together) > len(set(together))
            losses.append(plain.step(words, below, [positive[row] for row in chosen], followed * level.most))
    assert repeated
    assert [line["loss"] for line in lines] == pytest.approx(losses, rel=1e-5)
    found = dict(network.named_parameters())
    assert found["head.rows"].shape == (nodes, 6)
    for name, weight in plain.weights.items():
        ours = found["head.rows" if name == "rows" else name]
        assert torch.allclose(ours, weight, rtol=1e-5, atol=1e-6), name
        assert (weight - (rows if name == "rows" else weight * 0)).abs().max() > 1e-3


def test_rows_of_no_candidate_stay_with_their_moments() -> None:
    tree = random_tree(3, depth=3)
    level, nodes = Levels(tree, CPU).levels[2], tree.nodes(3)
    truth = sp.csr_array((np.random.default_rng(0).random((12, nodes)) < 0.2).astype(np.float32))
    documents, group = texts_of(12, labels=truth), Group(RUNTIME, CPU)
    lists = torch.from_numpy(np.random.default_rng(1).integers(0, 3, (12, 1)).astype(np.int32))  # of the first three
    table = RowTable(nodes, 6, place=CPU, kind=torch.float32, averaged=False)
    start = torch.randn(nodes, 6)
    table.draw(lambda low, high: start[low:high])
    network = made(slots_for(4, 1, level.parents, level.most), 5)
    objective = CandidateObjective(network.head, documents, level, lists, table, group, 4)
    settings = settings_of(batch_size=4, averaging="none")
    trainer = Trainer(network, documents, settings, seed=3, free=1 << 20, validate=None, objective=objective)
    kept: list[list[Tensor]] = []
    finished = table.finished
    table.finished = lambda: kept.append(parts_of(table)) or finished()  # type: ignore[method-assign, func-returns-value]
    trainer.run(silent, Workspace(), "x")
    edge = int(tree.starts[2][3])
    rows, first, second = kept[0]
    assert torch.equal(rows[edge:], start[edge:])
    assert not first[edge:].any()
    assert not second[edge:].any()
    assert (rows[:edge] != start[:edge]).any(1).all()
    assert second[:edge].any(1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_averaged_rows_are_left(kind: torch.dtype) -> None:
    """What is validated, and kept, is the mean of all rows so far, also of those that a step has not touched."""
    tree = random_tree(3, depth=3)
    level, nodes = Levels(tree, CPU).levels[2], tree.nodes(3)
    truth = sp.csr_array((np.random.default_rng(0).random((12, nodes)) < 0.2).astype(np.float32))
    documents = texts_of(12, labels=truth)
    lists = torch.from_numpy(np.stack([np.random.default_rng(i).permutation(tree.nodes(2))[:2] for i in range(12)]))
    table = RowTable(nodes, 6, place=CPU, kind=kind, averaged=True)
    table.draw(lambda low, high: torch.randn(high - low, 6))
    network = made(slots_for(4, 2, level.parents, level.most), 5)
    objective = CandidateObjective(network.head, documents, level, lists.int(), table, Group(RUNTIME, CPU), 4)
    seen: list[Tensor] = []
    shown: list[dict[str, Tensor]] = []
    put, scores = objective.put, iter([0.1, 0.5, 0.3, 0.2])

    def watched() -> None:
        put()
        seen.append(table.rows[:nodes].double())

    def validate() -> float:
        shown.append(copied(network))
        return next(scores)

    objective.put = watched  # type: ignore[method-assign]
    settings = settings_of(batch_size=4, epochs=4, averaging="all", average_from=0.0, learning_rate=0.1)
    trainer = Trainer(network, documents, settings, seed=3, free=1 << 20, validate=validate, objective=objective)
    assert trainer.per_epoch == 3
    trainer.run(silent, Workspace(), "x")
    tolerance = 1e-5 if kind == torch.float32 else 0.1
    for count, weights in zip((3, 6, 9, 12), shown, strict=True):
        assert (weights["head.rows"].double() - torch.stack(seen[:count]).mean(0)).abs().max() < tolerance
    assert (seen[-1] - seen[5]).abs().max() > 0.2
    assert same(copied(network), shown[1])


# ---- the beam


def plain_probabilities(networks: list[Network], documents: Documents) -> list[list[np.ndarray]]:
    """For each document and level, the answers for all nodes: one text at a time, without padding, as written."""
    found = []
    for row, length in enumerate(documents.lengths.tolist()):
        tokens = documents.tokens(torch.tensor([row]), max(1, length))  # a text of no word is one of padding
        answers = []
        for network in networks:
            states, mask = network.encode(tokens)
            logits = plain_logits(network.head, states, mask, network.head.rows.to(states.dtype))
            answers.append(torch.sigmoid(logits)[0].detach().double().numpy())
        found.append(answers)
    return found


def path_products(tree: LabelTree, answers: list[np.ndarray]) -> np.ndarray:
    """(L,) for one document."""
    paths = [path_to(tree, label) for label in range(len(tree))]
    return np.array([np.prod([part[node] for part, node in zip(answers, path, strict=True)]) for path in paths])


def plain_search(
    tree: LabelTree, answers: list[np.ndarray], width: int, k: int, allowed: set[int] | None = None
) -> list[tuple[int, float]]:
    """Level by level, every child of every node that is followed; of equal scores the lower number first."""
    followed = [(0, 1.0)]
    for level in range(tree.depth):
        reached = []
        for parent, score in followed:
            for node in children_of(tree, level, parent):
                if allowed is None or labels_below(tree, level, node) & allowed:
                    reached.append((node, score * answers[level][node]))
        if level == tree.depth - 1:
            reached = [(int(tree.order[node]), score) for node, score in reached]
        reached.sort(key=lambda pair: (-pair[1], pair[0]))
        followed = reached[: k if level == tree.depth - 1 else width]
    return followed


def smallest_leaf(tree: LabelTree) -> int:
    return min(len(children_of(tree, tree.depth - 1, leaf)) for leaf in range(tree.nodes(tree.depth - 1)))


def check_rows(
    documents: Documents, found: np.ndarray, given: np.ndarray, expected: list[list[tuple[int, float]]]
) -> None:
    """Labels and scores of each document; pads behind.

    All labels of a text of a single word have the same score but for rounding, which differs between processors.
    """
    assert found.shape == given.shape
    assert (documents.lengths > 1).any()
    for length, labels, scores, pairs in zip(documents.lengths, found.tolist(), given, expected, strict=True):
        count = len(pairs)
        if length > 1:
            assert labels[:count] == [label for label, _ in pairs]
        assert len(set(labels[:count])) == count
        assert np.allclose(scores[:count], [score for _, score in pairs], atol=1e-5)
        assert labels[count:] == [-1] * (len(labels) - count)
        assert np.isneginf(scores[count:]).all()


def some_allowed(tree: LabelTree) -> list[np.ndarray | None]:
    count = len(tree)
    one_of_three = np.random.default_rng(9).random(count) < 0.33
    one_of_three[0] = True
    return [None, np.arange(count) == count // 2, one_of_three]


@pytest.mark.parametrize("free", [1, 1 << 30])
@pytest.mark.parametrize("depth", [1, 2, 3])
class TestBeam:
    def test_a_wide_beam_finds_the_best_of_all(self, monkeypatch: pytest.MonkeyPatch, depth: int, free: int) -> None:
        monkeypatch.setattr(tree_module, "chunk_memory", lambda device: free)
        network, documents = grown(depth, beam=1000, depth=depth), texts_of(9, depth)
        tree = network.levels.tree
        products = [path_products(tree, answers) for answers in plain_probabilities(network.networks, documents)]
        for mask, k in itertools.product(some_allowed(tree), (1, 4, len(tree))):
            allowed = range(len(tree)) if mask is None else np.flatnonzero(mask).tolist()
            found, given = best_in_trees([network], documents, k, mask)
            ranked = [sorted(((label, row[label]) for label in allowed), key=lambda p: -p[1])[:k] for row in products]
            check_rows(documents, found, given, ranked)

    @pytest.mark.parametrize("beam", [1, 2, 5])
    def test_a_narrow_beam_is_a_plain_search(
        self, monkeypatch: pytest.MonkeyPatch, depth: int, free: int, beam: int
    ) -> None:
        monkeypatch.setattr(tree_module, "chunk_memory", lambda device: free)
        network, documents = grown(depth + 10, beam=beam, depth=depth), texts_of(9, depth)
        tree = network.levels.tree
        answers = plain_probabilities(network.networks, documents)
        for mask, k in itertools.product(some_allowed(tree), (1, 3, 7)):
            allowed = None if mask is None else set(np.flatnonzero(mask).tolist())
            width = max(beam, -(-k // smallest_leaf(tree)))
            assert network.widths(k) == [width] * (len(network.levels) - 1)
            found, given = best_in_trees([network], documents, k, mask)
            check_rows(documents, found, given, [plain_search(tree, part, width, k, allowed) for part in answers])

    def test_given_labels_have_the_product_of_their_path(
        self, monkeypatch: pytest.MonkeyPatch, depth: int, free: int
    ) -> None:
        monkeypatch.setattr(tree_module, "chunk_memory", lambda device: free)
        trees, documents = [grown(depth, beam=2, depth=depth)], texts_of(9, depth)
        labels = len(trees[0].levels.tree)
        trees.append(grown(20 + depth, 2, tree=LabelTree(np.arange(labels)[::-1].copy(), trees[0].levels.tree.starts)))
        candidates = np.random.default_rng(0).integers(-1, labels, (9, 6))
        parts = [
            [path_products(tree.levels.tree, answers) for answers in plain_probabilities(tree.networks, documents)]
            for tree in trees
        ]
        for count in (1, 2):
            expected = np.mean(parts[:count], axis=0)
            found = scores_in_trees(trees[:count], documents, candidates)
            wanted = np.take_along_axis(expected, np.maximum(candidates, 0), axis=1)
            assert np.allclose(found[candidates >= 0], wanted[candidates >= 0], atol=1e-5)
            assert scores_in_trees(trees[:count], documents, candidates[:, :0]).shape == (9, 0)
            labels_found, given = best_in_trees(trees[:count], documents, 3)
            assert np.allclose(scores_in_trees(trees[:count], documents, labels_found), given, atol=1e-6)


class TestWhatTheBeamReaches:
    def test_k_labels_come_out_of_a_beam_of_one(self) -> None:
        for seed in range(3):
            network, documents = grown(seed, beam=1), texts_of(5, seed)
            count = len(network.levels.tree)
            for k in (1, 2, 5, count - 1, count):
                found, _ = best_in_trees([network], documents, k)
                assert (found >= 0).all()
                assert all(len(set(row)) == k for row in found.tolist())
            assert (best_in_trees([network], documents, count + 3)[0][:, count:] == -1).all()

    def test_any_single_label_that_is_allowed_comes_out(self) -> None:
        network, documents = grown(2, beam=1), texts_of(5)
        count = len(network.levels.tree)
        for label in range(count):
            found, given = best_in_trees([network], documents, 1, np.arange(count) == label)
            assert (found == label).all()
            assert (given > 0).all()

    def test_labels_of_whole_leaves_that_are_allowed_come_out(self) -> None:
        """However poor the leaf is: nodes without an allowed label are not followed, and the others hold enough."""
        network, documents = grown(2, beam=1), texts_of(5)
        tree = network.levels.tree
        for leaves in itertools.combinations(range(tree.nodes(2)), 2):
            allowed = set().union(*(labels_below(tree, 1, leaf) for leaf in leaves))
            mask = np.isin(np.arange(len(tree)), sorted(allowed))
            found, _ = best_in_trees([network], documents, 2, mask)
            assert (found >= 0).all()
            assert set(found.ravel().tolist()) <= allowed

    def test_one_label_of_each_leaf_may_be_returned(self) -> None:
        """A beam of one leaf holds one such label; k of them need k leaves."""
        order, leaves, texts = np.random.default_rng(3).permutation(16), np.arange(0, 17, 4), texts_of(5)
        network = grown(4, beam=1, tree=LabelTree(order, (np.array([0, 4]), leaves)))
        allowed = np.isin(np.arange(16), order[[1, 4, 11, 14]])
        products = [path_products(network.levels.tree, part) for part in plain_probabilities(network.networks, texts)]
        for k in (1, 2, 3, 4):
            found, given = best_in_trees([network], texts, k, allowed)
            assert allowed[found].all()
            assert all(len(set(row)) == k for row in found.tolist())
            if k == 4:
                best = [sorted(part[allowed], reverse=True) for part in products]
                assert np.allclose(given, best, atol=1e-5)

    def test_equal_scores_are_in_the_order_of_labels(self) -> None:
        for depth in (1, 2, 3):
            network, documents = grown(1, beam=1000, depth=depth), texts_of(3)
            for part in network.networks:
                part.head.perceptron[-1].weight.data.zero_()
            found, given = best_in_trees([network], documents, len(network.levels.tree))
            assert (found == np.arange(len(network.levels.tree))).all()
            assert (given == given[0, 0]).all()
            labels = len(network.levels.tree)
            twice = [network, TreeNetwork(network.levels, network.networks, 1000)]
            found, _ = best_in_trees(twice, documents, labels)
            assert (found == np.arange(labels)).all()

    def test_a_beam_among_equals_takes_the_first_nodes(self) -> None:
        network, documents = grown(1, beam=2), texts_of(3)
        for part in network.networks:
            part.head.perceptron[-1].weight.data.zero_()
        tree = network.levels.tree
        above = [node for parent in (0, 1) for node in children_of(tree, 1, parent)][:2]
        labels = sorted(int(tree.order[place]) for node in above for place in children_of(tree, 2, node))
        assert best_in_trees([network], documents, 1)[0].tolist() == [[labels[0]]] * 3

    @pytest.mark.parametrize("beam", [1, 3, 1000])
    def test_several_trees_are_asked_about_what_any_puts_forward(self, beam: int) -> None:
        first = grown(4, beam, depth=3, tree=random_tree(4, depth=3, most=5))
        count = len(first.levels.tree)
        second = grown(7, beam, tree=LabelTree(np.random.default_rng(1).permutation(count), (np.array([0, count]),)))
        third_starts = np.array([0, 2, count // 2, count])
        third = grown(
            8, beam, tree=LabelTree(np.random.default_rng(2).permutation(count), (np.array([0, 3]), third_starts))
        )
        trees, documents = [first, second, third], texts_of(7)
        answers = [plain_probabilities(tree.networks, documents) for tree in trees]
        assert count > 30
        for mask, k in itertools.product(some_allowed(first.levels.tree), (1, 5, 25)):
            allowed = None if mask is None else set(np.flatnonzero(mask).tolist())
            expected = []
            for row in range(7):
                forward, products = set(), np.zeros(count)
                for tree, part in zip(trees, answers, strict=True):
                    own, wanted = tree.levels.tree, max(k, 20)
                    width = max(beam, -(-wanted // smallest_leaf(own)))
                    forward |= {label for label, _ in plain_search(own, part[row], width, wanted, allowed)}
                    products += path_products(own, part[row]) / 3
                expected.append(sorted(((label, products[label]) for label in forward), key=lambda p: -p[1])[:k])
            check_rows(documents, *best_in_trees(trees, documents, k, mask), expected)

    def test_no_documents(self) -> None:
        documents = Documents(TokenBlock(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32)), None, CPU)
        found, given = best_in_trees([grown(1, 2)], documents, 3)
        assert found.shape == given.shape == (0, 3)
        assert scores_in_trees([grown(1, 2)], documents, np.empty((0, 2), dtype=np.int64)).shape == (0, 2)

    def test_answers_along_a_path(self) -> None:
        network, documents = grown(3, beam=2), texts_of(1, seed=5)
        documents = Documents(TokenBlock(np.array([0, 4]), np.array([3, 4, 9, 5], dtype=np.int32)), None, CPU)
        answers = plain_probabilities(network.networks, documents)[0]
        for label in (0, 5, len(network.levels.tree) - 1):
            path = path_to(network.levels.tree, label)
            expected = [part[node] for part, node in zip(answers, path, strict=True)]
            assert network.path(documents, label) == pytest.approx(expected, abs=1e-5)
            last, row = network.network_of(label)
            assert last is network.networks[-1]
            assert row == path[-1]


# ---- whole models


def level_weights(model: Any) -> list[dict[str, Tensor]]:
    return [copied(network) for member in model._members for network in member.networks]


@pytest.fixture
def _few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches of texts where parents are listed."""
    monkeypatch.setattr(training, "DOCUMENTS", {"cpu": 16})


@pytest.mark.usefixtures("_few_at_a_time")
class TestListsOfParents:
    def listed(self, beam: int, valid: Any, **changes: Any) -> tuple[int, int, float]:
        """Train, and hold the lists against a plain way: how often labels were cut off and filled up, and how far
        below the best that is left out a label stood."""
        workspace = Workspace()
        model = tree_model(head__tree__beam_width=beam, training__validation_size=20 if valid else 0, **changes)
        model.fit(TEXTS, TRUTH, valid=valid, runtime=RUNTIME, workspace=workspace)
        tree, networks = model._members[0].levels.tree, model._members[0].networks
        numbers = {name: number for number, name in enumerate(model.labels.names)}
        held = [{numbers[name] for name in names} for names in TRUTH]
        sets = [("parents", TEXTS, held)]
        sets += [] if valid is None else [("watched", valid[0], [set()] * len(valid[0]))]
        cut, filled_up, lifted = 0, 0, 0.0
        for name, texts, labels in sets:
            answers = plain_probabilities(networks, model._documents(as_dataset(texts)))
            above = [{0: 1.0} for _ in texts]  # the nodes that are followed, and their scores
            for level in (1, 2):
                arrays, _ = workspace.map(f"parents-0-level-{level}")
                count = min(beam, tree.nodes(level))
                assert set(arrays) == {part for key, _, _ in sets for part in (key, f"{key} scores")}
                assert arrays[name].shape == arrays[f"{name} scores"].shape == (len(texts), count)
                for row in range(len(texts)):
                    reached = {
                        node: score * answers[row][level - 1][node]
                        for parent, score in above[row].items()
                        for node in children_of(tree, level - 1, parent)
                    }
                    wanted = {path_to(tree, label)[level - 1] for label in labels[row]} & reached.keys()
                    found = arrays[name][row].tolist()
                    scores = [reached[node] for node in found]
                    assert len(set(found)) == count
                    assert np.allclose(arrays[f"{name} scores"][row], scores, atol=1e-5)
                    front = found[: min(len(wanted), count)]
                    assert set(front) <= wanted
                    for part, others in ((front, wanted), (found[len(front) :], reached.keys() - wanted)):
                        best = sorted((reached[node] for node in others), reverse=True)[: len(part)]
                        assert np.allclose([reached[node] for node in part], best, atol=1e-5)
                    cut += len(wanted) > count
                    filled_up += 0 < len(wanted) < count
                    left = [score for node, score in reached.items() if node not in found]
                    lifted = max([lifted, *(max(left) - reached[node] for node in front if left)])
                    above[row] = dict(zip(found, scores, strict=True))
        return cut, filled_up, lifted

    @pytest.mark.parametrize("rows", ["float32", "bfloat16"])
    @pytest.mark.parametrize(("beam", "valid"), [(2, None), (3, VALID), (5, VALID), (100, VALID)])
    def test_labels_first_and_then_the_best(self, beam: int, valid: Any, rows: str) -> None:
        cut, filled_up, _ = self.listed(beam, valid, head__tree__rows=rows)
        assert filled_up
        assert (cut > 0) == (beam == 2)

    def test_labels_come_before_what_seems_certain(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plain = MemberSpec.network

        def certain(*given: Any) -> Network:
            network = plain(*given)
            for part in network.parameters():
                part.data.copy_(3.0 * torch.randn(part.shape))
            return network

        monkeypatch.setattr(MemberSpec, "network", certain)
        _, filled_up, lifted = self.listed(3, None, training__learning_rate=1e-9)
        assert filled_up
        assert lifted > 0.9

    def test_labels_that_seem_impossible_are_in_order_too(self) -> None:
        scores = torch.tensor([[0.9, 1e-12, 1.0, 3e-9, 0.0, 2e-9, 5e-8, 1e-30]])
        favoured = torch.tensor([[False, True, False, True, True, True, False, False]])
        best = best_of(BeamNodes(torch.arange(8)[None], scores), 7, favoured)
        assert best.nodes.tolist() == [[3, 5, 1, 4, 2, 0, 6]]
        assert torch.equal(best.scores, scores.gather(1, best.nodes))

    def test_a_small_beam_is_scored_on_what_it_reaches(self) -> None:
        """Two leaves of up to two labels, where nDCG@5 has room for five."""
        workspace = Workspace()
        model = tree_model(head__tree__beam_width=2, training__validation_size=20)
        model.fit(TEXTS, TRUTH, valid=VALID, runtime=RUNTIME, workspace=workspace)
        tree, networks = model._members[0].levels.tree, model._members[0].networks
        lists = workspace.map("parents-0-level-2")[0]
        best = np.full((20, 5), -1)
        for row, answers in enumerate(plain_probabilities(networks, model._documents(as_dataset(VALID[0])))):
            reached = {
                node: score * answers[2][node]
                for parent, score in zip(lists["watched"][row], lists["watched scores"][row], strict=True)
                for node in children_of(tree, 2, parent)
            }
            assert len(reached) < 5
            best[row, : len(reached)] = [tree.order[node] for node in sorted(reached, key=lambda node: -reached[node])]
        truth = as_dataset(*VALID).labels
        assert as_dataset(*VALID).label_index.names == model.labels.names
        score = workspace.map("member-0-level-2")[1]["score"]
        assert score == pytest.approx(ndcg(best, truth, 5), abs=1e-6)

    def test_the_log_tells_levels(self, tmp_path: Path) -> None:
        workspace = Workspace(tmp_path)
        model = tree_model(head__tree__epochs=1, members=2)
        model.fit(TEXTS, TRUTH, valid=VALID, runtime=RUNTIME, workspace=workspace)
        lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        last = {(line["member"], line["level"]): line["epoch"] for line in lines}
        assert last == {(member, level): 1.0 if level else 2.0 for member in (0, 1) for level in (0, 1, 2)}
        assert list(last) == sorted(last)
        kept = {path.stem for path in tmp_path.glob("*.safetensors")}
        assert {f"member-{member}-level-{level}" for member in (0, 1) for level in (0, 1, 2)} <= kept
        assert not [name for name in kept if name.startswith("checkpoint")]

    @pytest.mark.parametrize("rows", ["float32", "bfloat16"])
    def test_a_level_starts_from_the_one_above(self, rows: str) -> None:
        """With next to no rate a level is the one above, but for its rows, which are drawn."""
        changes = {"head__tree__rows": rows, "head__tree__learning_rate": 1e-12, "training__epochs": 1}
        model = tree_model(**changes).fit(TEXTS, TRUTH, runtime=RUNTIME)
        networks = model._members[0].networks
        for above, below, nodes in zip(networks[:-1], networks[1:], (8, 13), strict=True):
            weights, expected = copied(below), copied(above)
            drawn, bound = weights.pop("head.rows").float(), (6 / (nodes + 8)) ** 0.5
            assert all(torch.allclose(weights[name], expected[name], atol=1e-6) for name in weights)
            assert drawn.shape == (nodes, 8)
            assert len(drawn.unique()) > 0.8 * drawn.numel()
            assert 0.8 * bound < drawn.abs().max() < 1.01 * bound
            assert abs(drawn.mean()) < 0.25 * bound


# ---- exact resume

PLACES: list[tuple[str, int, type[BaseException]]] = [
    ("training level 1 of 3", 3, KeyboardInterrupt),
    ("training level 1 of 3", 9, RuntimeError),
    ("candidates of level 2 of 3", 0, KeyboardInterrupt),  # the level is done, and its lists are not begun
    ("candidates of level 2 of 3", 2, RuntimeError),  # in the middle of the lists
    ("training level 2 of 3", 0, KeyboardInterrupt),
    ("training level 2 of 3", 5, KeyboardInterrupt),
    ("training level 2 of 3", 6, RuntimeError),  # counted from the checkpoint
    ("training level 2 of 3", 6, KeyboardInterrupt),
    ("candidates of level 3 of 3", 1, KeyboardInterrupt),
    ("training level 3 of 3", 9, KeyboardInterrupt),
    ("training level 3 of 3", 2, KeyboardInterrupt),
]


def stopped(model: Any, folder: Path, stopping: Stopping, **more: Any) -> None:
    with pytest.raises(stopping.error):
        model.fit(TEXTS, TRUTH, runtime=RUNTIME, progress=stopping, workspace=Workspace(folder), **more)


def assert_equal_models(left: Any, right: Any) -> None:
    assert all(same(ours, theirs) for ours, theirs in zip(level_weights(left), level_weights(right), strict=True))
    found, expected = left.predict(TEXTS, 6), right.predict(TEXTS, 6)
    assert np.array_equal(found.labels, expected.labels)
    assert np.array_equal(found.scores, expected.scores)
    assert left.facts == right.facts


@pytest.mark.usefixtures("_few_at_a_time")
class TestResume:
    @pytest.mark.parametrize("watched", [True, False])
    @pytest.mark.parametrize("averaging", ["window", "all", "none"])
    @pytest.mark.parametrize("rows", ["float32", "bfloat16"])
    def test_stopped_everywhere(self, tmp_path: Path, rows: str, averaging: str, watched: bool) -> None:
        changes = {
            "head__tree__rows": rows,
            "training__averaging": averaging,
            "training__average_from": 0.5,
            "training__validation_size": 20 if watched else 0,
            "frozen": averaging == "none",
        }
        valid = VALID if watched else None
        whole = tree_model(**changes).fit(TEXTS, TRUTH, valid=valid, runtime=RUNTIME)
        for title, at, error in PLACES:
            stopped(tree_model(**changes), tmp_path, Stopping(title, at, error), valid=valid)
        model = tree_model(**changes)
        model.fit(TEXTS, TRUTH, valid=valid, runtime=RUNTIME, workspace=Workspace(tmp_path))
        assert_equal_models(model, whole)
        assert model._members[0].networks[1].head.rows.dtype == getattr(torch, rows)

    @pytest.mark.parametrize("place", [PLACES[1], PLACES[2], PLACES[3], PLACES[5], PLACES[9]])
    def test_stopped_in_the_second_member(self, tmp_path: Path, place: tuple[str, int, type[BaseException]]) -> None:
        title, at, error = place
        whole = tree_model(members=2).fit(TEXTS, TRUTH, runtime=RUNTIME)
        stopped(tree_model(members=2), tmp_path, Stopping(title, at, error, which=1))
        before = (tmp_path / "member-0-level-2.safetensors").stat().st_mtime_ns
        model = tree_model(members=2).fit(TEXTS, TRUTH, runtime=RUNTIME, workspace=Workspace(tmp_path))
        assert (tmp_path / "member-0-level-2.safetensors").stat().st_mtime_ns == before
        assert_equal_models(model, whole)
        first, second = (member.levels.tree.order.tolist() for member in model._members)
        assert first != second

    def test_killed_after_checkpoints(self, tmp_path: Path) -> None:
        changes = {"training__checkpoint_minutes": 0.0, "head__tree__rows": "bfloat16"}
        whole = tree_model(**changes).fit(TEXTS, TRUTH, runtime=RUNTIME)
        for level in (1, 2, 3):
            stopped(tree_model(**changes), tmp_path, Stopping(f"training level {level} of 3", 11, RuntimeError))
            saved = Workspace(tmp_path).load(f"checkpoint-0-level-{level - 1}")[1]
            assert 8 <= saved["step"] < 11
        model = tree_model(**changes).fit(TEXTS, TRUTH, runtime=RUNTIME, workspace=Workspace(tmp_path))
        assert_equal_models(model, whole)

    def test_what_is_finished_is_not_done_again(self, tmp_path: Path) -> None:
        stopped(tree_model(), tmp_path, Stopping("training level 3 of 3", 1))
        progress = Stopping()
        tree_model().fit(TEXTS, TRUTH, runtime=RUNTIME, progress=progress, workspace=Workspace(tmp_path))
        titles = [title for title in progress.opened if title.startswith(("training", "candidates", "clustering"))]
        assert titles == ["training level 3 of 3"]


# ---- what is kept


def kept(folder: Path) -> dict[str, np.ndarray]:
    return dict(store.read_folder(folder)[1].arrays)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree") / "model"
    tree_model(training__epochs=1, frozen=True).fit(TEXTS, TRUTH, runtime=RUNTIME).save(folder)
    return folder


class TestFolder:
    @pytest.mark.parametrize("rows", ["float32", "bfloat16"])
    @pytest.mark.parametrize("frozen", [True, False])
    @pytest.mark.parametrize("members", [1, 2])
    def test_a_loaded_model_is_the_same(self, tmp_path: Path, rows: str, frozen: bool, members: int) -> None:
        changes = {"head__tree__rows": rows, "frozen": frozen, "members": members, "training__epochs": 1}
        model = tree_model(**changes).fit(TEXTS, TRUTH, runtime=RUNTIME)
        model.save(tmp_path / "model")
        loaded = Model.load(tmp_path / "model", RUNTIME)
        assert_equal_models(loaded, model)
        allowed = np.arange(13) % 3 == 0
        assert np.array_equal(
            loaded.predict(TEXTS, 4, allow=allowed).scores, model.predict(TEXTS, 4, allow=allowed).scores
        )
        arrays = kept(tmp_path / "model")
        tables = [name for name in arrays if name.endswith("table")]
        assert len(tables) == (1 if frozen else 3 * members)
        assert arrays["model.0.2.head.rows"].dtype == (np.float32 if rows == "float32" else np.uint16)
        assert [len(arrays[f"model.0.{level}.head.rows"]) for level in range(3)] == [4, 8, 13]

    @pytest.mark.parametrize(
        ("name", "damage", "message"),
        [
            ("0.2.head.rows", lambda rows: rows[:-1], r"head\.rows has shape \(12, 8\), expected \(13, 8\)"),
            ("0.1.head.rows", lambda rows: rows[:, :5], r"head\.rows has shape \(8, 5\), expected \(8, 8\)"),
            ("0.1.head.rows", lambda rows: rows.astype(np.float64), r"head\.rows' is of type float64, expected"),
            ("0.1.head.rows", lambda rows: None, r"'head\.rows' is missing"),
            (
                "0.0.head.layers.0.weight",
                lambda weight: weight[:2],
                r"head\.layers\.0\.weight has shape \(2, 8\), expected",
            ),
            ("0.table", lambda table: table[:-2], "word vectors have shape"),
            ("0.table", lambda table: None, "is missing"),
            ("0.tree.order", lambda order: order[:-1], "has shape 12, expected 13"),
            (
                "0.tree.order",
                lambda order: np.minimum(order, 5),
                "the label tree is damaged: labels are missing in 'order'",
            ),
            ("0.tree.starts-1", lambda starts: None, "the label tree is damaged"),
        ],
    )
    def test_damage_is_told_in_a_line(self, saved: Path, tmp_path: Path, name: str, damage: Any, message: str) -> None:
        manifest, state = store.read_folder(saved)
        changed = damage(state.arrays[f"model.{name}"])
        state.arrays = {key: array for key, array in state.arrays.items() if key != f"model.{name}"}
        if changed is not None:
            state.arrays[f"model.{name}"] = np.ascontiguousarray(changed)
        store.write_folder(tmp_path / "damaged", manifest, state)
        with pytest.raises(ModelFormatError, match=message) as caught:
            Model.load(tmp_path / "damaged", RUNTIME)
        assert str(caught.value).endswith("Copy or train the model again.")
        assert "\n" not in str(caught.value)

    def test_a_tree_over_other_labels_is_refused(self, saved: Path, tmp_path: Path) -> None:
        manifest, state = store.read_folder(saved)
        state.arrays = {**state.arrays, "label_counts": state.arrays["label_counts"][:-1]}
        store.write_folder(tmp_path / "damaged", manifest, state)
        with pytest.raises(ModelFormatError, match="'label_counts' has shape 12, expected 13"):
            Model.load(tmp_path / "damaged", RUNTIME)

    @pytest.mark.parametrize("kind", [np.uint16, np.int32, np.uint64])
    def test_whole_numbers_of_any_type_make_a_tree(self, saved: Path, tmp_path: Path, kind: type) -> None:
        manifest, state = store.read_folder(saved)
        state.arrays = {
            name: array.astype(kind) if ".tree." in name else np.array(array) for name, array in state.arrays.items()
        }
        store.write_folder(tmp_path / "other", manifest, state)
        answers = [Model.load(folder, RUNTIME).predict(TEXTS, 4).scores for folder in (saved, tmp_path / "other")]
        assert np.array_equal(*answers)

    def test_too_little_memory_is_no_damage(self, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*given: Any) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB.")

        monkeypatch.setattr(tree_member, "load_level", full)
        with pytest.raises(ConfigError, match=r"^not enough memory for this network\. Use device 'cpu'"):
            Model.load(saved, RUNTIME)

    def test_the_path_of_the_tree_that_finds_a_label_most_likely(self) -> None:
        model = tree_model(members=3, training__epochs=1).fit(TEXTS, TRUTH, runtime=RUNTIME)
        torch.manual_seed(2)
        for network in (network for tree in model._members for network in tree.networks):
            for part in network.parameters():
                part.data.copy_(torch.randn(part.shape))
        documents, chosen = model._documents(as_dataset(TEXTS[4:5])), set()
        for label in range(13):
            ways = [tree.path(documents, label) for tree in model._members]
            likely = max(range(3), key=lambda number: np.prod(ways[number]))
            chosen.add(likely)
            path = model.explain(TEXTS[4], label).path
            assert [step.probability for step in path] == pytest.approx(ways[likely])
            assert path[-1].labels == (model.labels.names[label],)
            node = path_to(model._members[likely].levels.tree, label)[0]
            below = labels_below(model._members[likely].levels.tree, 0, node)
            assert set(path[0].labels) <= {model.labels.names[other] for other in below}
        assert chosen - {0}

    def test_answers_of_a_model(self) -> None:
        """Through the public calls: a wide beam ranks all labels by the product along their paths."""
        model = tree_model(head__tree__beam_width=100).fit(TEXTS, TRUTH, runtime=RUNTIME)
        tree = model._members[0].levels.tree
        answers = plain_probabilities(model._members[0].networks, model._documents(as_dataset(TEXTS)))
        products = np.array([path_products(tree, part) for part in answers])
        found = model.predict(TEXTS, 13)
        assert np.allclose(found.scores, -np.sort(-products, axis=1), atol=1e-5)
        assert np.allclose(np.take_along_axis(products, found.labels, axis=1), found.scores, atol=1e-5)
        assert np.allclose(model.score_labels(TEXTS, found), found.scores, atol=1e-6)
        everything = np.tile(np.arange(13), (60, 1))
        assert np.allclose(model.score_labels(TEXTS, everything), products, atol=1e-5)
        for label in (0, 12):
            told = model.explain(TEXTS[4], label)
            assert np.prod([step.probability for step in told.path]) == pytest.approx(told.score, abs=1e-5)
            assert [step.depth for step in told.path] == [1, 2, 3]
            assert told.path[-1].labels == (model.labels.names[label],)


# ---- settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("arity", 3),
        ("arity", 1),
        ("arity", 1 << 16),
        ("height", -1),
        ("height", 21),
        ("beam_width", 0),
        ("beam_width", (1 << 16) + 1),
        ("cluster_size", 0),
        ("epochs", 0),
        ("epochs", "some"),
        ("average_from", -0.5),
        ("learning_rate", 0.0),
        ("rows", "int8"),
        ("label_features", -1),
    ],
)
def test_bad_settings_are_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' of head.tree must be ") as caught:
        AttentionXml(**{f"head__tree__{name}": value})
    assert str(caught.value).endswith(f"Got {value!r}." if isinstance(value, str) else f"Got {value}.")
    assert "\n" not in str(caught.value)


def test_the_largest_arity_is_told() -> None:
    with pytest.raises(ConfigError, match="a power of two from 2 to 32,768"):
        AttentionXml(head__tree__arity=1 << 16)
    assert AttentionXml(head__tree__arity=32_768).config.head.tree.arity == 32_768


def test_levels_have_settings_of_their_own() -> None:
    config = tree_model(head__tree__epochs=7, head__tree__learning_rate=0.5, head__tree__average_from=3.0).config
    first, second = (config.head.tree.training(config.training, level) for level in (0, 1))
    assert first == config.training
    assert (second.epochs, second.learning_rate, second.average_from) == (7, 0.5, 3.0)
    assert second.batch == first.batch
    same_again = tree_model().config
    assert same_again.head.tree.training(same_again.training, 2) == same_again.training


@pytest.mark.parametrize("height", [1, 3])
def test_few_labels_have_few_levels(height: int) -> None:
    for texts, truth in (
        (["one word", "one word"], [["a"], []]),
        (["", "word", "word"], [["a"], ["b"], []]),
        (["these words", "words"] * 9, [["a"], ["b", "c"]] * 9),
    ):
        model = tree_model(head__tree__height=height, training__batch_size="auto").fit(texts, truth, runtime=RUNTIME)
        answer = model.predict([*texts, "", "never seen"], 5)
        assert np.isfinite(answer.scores[:, : len(model.labels)]).all()
        assert (answer.labels[:, len(model.labels) :] == -1).all()
