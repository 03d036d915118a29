"""A label tree on one pretrained encoder as a member of a model: trained at once, updated, saved and restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.artifact.saved_state import SavedState
from xmtc.labels.tree import LabelTree, homes_of, shallow_sizes
from xmtc.metrics import ndcg
from xmtc.nn.device import chunk_memory
from xmtc.nn.members import Arrays, MemberRun, NeuralMember, TrainingData, UpdateBatch, network_arrays
from xmtc.nn.network import TABLE, Network
from xmtc.nn.tensors import as_array, checked_tensor, load_weights, written_later
from xmtc.nn.training.fine_tuning import absent_from, carried_rows, settle
from xmtc.nn.training.loop import Trainer, TrainingSettings, batch_size
from xmtc.nn.trees.cascade import (
    BIAS,
    DEEP,
    CascadeHead,
    CascadeSpec,
    LevelRows,
)
from xmtc.nn.trees.cascade_decisions import decide_in_cascade
from xmtc.nn.trees.cascade_objective import CascadeObjective, LevelLabels
from xmtc.nn.trees.cascade_plan import CascadePlan, described, placed, planned
from xmtc.nn.trees.device_tree import Levels
from xmtc.nn.trees.member import label_tree
from xmtc.nn.trees.memory_plan import free_memory, place_of
from xmtc.nn.trees.networks import Encoded, NodeHead, ScoredTree, best_in_trees, scores_in_trees
from xmtc.nn.trees.row_table import RowTable
from xmtc.nn.trees.training import KINDS

RARE_WORDS = 10_000
"""Number of training documents from which words of a single document are not used for clustering labels."""


class CascadeMember(ScoredTree, NeuralMember[CascadeSpec]):
    """A label tree and one network that scores the nodes of all its levels."""

    def __init__(self, levels: Levels, network: Network, beams: list[int]) -> None:
        super().__init__(levels, beams)
        self.network = network

    @property
    def head(self) -> CascadeHead:
        """The network's head."""
        assert isinstance(self.network.head, CascadeHead)
        return self.network.head

    @classmethod
    def fit(cls, spec: CascadeSpec, data: TrainingData, run: MemberRun) -> tuple[Self, float]:
        shape = spec.tree
        sizes = shallow_sizes(len(data.frequencies), shape.cluster_size, shape.arity, shape.height)
        spec = replace(spec, min_df=1 if len(data.labels.indptr) <= RARE_WORDS else 2).with_levels(len(sizes))
        plan = _plan(spec, data, sizes, run)
        for line in described(plan, spec.device) if run.number == 0 and run.group.leads else ():
            run.progress.say(line)
        levels = Levels(label_tree(spec, data.dataset, run), spec.device)
        member = cls(levels, _new_network(spec, data, levels, run), shape.beams(len(levels)))
        return member, member._train(spec, spec.training, data, plan, run)

    def _train(
        self,
        spec: CascadeSpec,
        settings: TrainingSettings,
        data: TrainingData,
        plan: CascadePlan,
        run: MemberRun,
        start: Callable[[int, int], Tensor] | None = None,
    ) -> float:
        """Train the network, resuming from the workspace if possible; returns its validation score.

        `start(low, high)` has the initial rows of the table, which are random by default.
        """
        done, begun = f"member-{run.number}", f"checkpoint-{run.number}"
        if not run.workspace.has(done):
            objective = self._objective(spec, settings, data, plan, run, start)
            trainer = Trainer(
                self.network,
                data.documents,
                settings,
                seed=run.seed,
                free=chunk_memory(data.documents.device),
                validate=None if data.validation is None else lambda: self._score(data),
                log=lambda line: run.workspace.log({"member": run.number, **line}),
                group=run.group,
                objective=objective,
                optimiser=spec.optimiser,
            )
            trainer.run(run.progress, run.workspace, begun)
            if not run.group.leads:
                return trainer.course.best_score
            weights = {name: written_later(part) for name, part in self.network.named_parameters()}
            run.workspace.save(done, weights, {"score": trainer.course.best_score})
            run.workspace.drop(begun)
        arrays, values = run.workspace.map(done)
        _load(self.network, arrays, self.levels, plan.place)
        self.network.eval()
        return float(values["score"])

    def _objective(
        self,
        spec: CascadeSpec,
        settings: TrainingSettings,
        data: TrainingData,
        plan: CascadePlan,
        run: MemberRun,
        start: Callable[[int, int], Tensor] | None,
    ) -> CascadeObjective:
        head, tree, levels = self.head, spec.tree, self.levels
        truths = [
            LevelLabels(data.documents, data.labels, data.unknown, levels, number) for number in range(len(levels))
        ]
        table, nodes = None, deep_nodes(levels)
        if nodes:
            table = RowTable(
                nodes,
                head.deep.shape[1],
                place=plan.place,
                kind=KINDS[tree.rows],
                averaged=settings.averaging != "none",
                moments=tree.optimiser == "adam",
            )
            table.draw(start or _random_rows(head.inner, data.labels, levels, self.beams, data.documents.device))
        return CascadeObjective(
            head,
            levels,
            truths,
            table,
            run.group,
            batch_size(settings, len(data.documents), run.group),
            beams=self.beams,
            weights=spec.head_settings.of_levels("weights", len(levels), 1.0),
            compute=self.network.compute,
            sgd=None if tree.optimiser == "adam" else tree.sgd_rate / spec.training.learning_rate,
        )

    def _score(self, data: TrainingData) -> float:
        """nDCG@5 on the validation set."""
        assert data.validation is not None
        documents, truth = data.validation
        return ndcg(best_in_trees([self], documents, min(5, truth.shape[1]))[0], truth, 5)

    # ---- updating

    @torch.no_grad()
    def updated(self, spec: CascadeSpec, batch: UpdateBatch, run: MemberRun) -> Self:
        tree, spec = self.levels.tree, spec.with_levels(len(self.levels))
        revision = tree.revised(batch.kept, homes_of(tree, batch.relatives))
        levels = Levels(revision.tree, spec.device)
        table = np.concatenate([as_array(self.network.table), batch.words])
        network, before = spec.network(table, levels.levels[0].nodes), dict(self.network.named_parameters())
        for name, part in network.named_parameters():
            if name not in (TABLE, DEEP, "head.rows", "head.bias"):
                part.copy_(before[name])
        member, rows = type(self)(levels, network, self.beams), []
        for number in range(len(levels)):
            own = self._rows_of(number)
            if number + 1 < len(levels):
                rows.append(own[torch.from_numpy(revision.nodes[number + 1]).to(own.device)])
            else:
                by_label = own[torch.from_numpy(tree.place_of()).to(own.device)]
                carried = carried_rows(by_label, batch.carried)
                rows.append(carried[torch.from_numpy(revision.tree.order)].to(own))
        member.head.rows.copy_(rows[0][:, :-1])
        member.head.bias.copy_(rows[0][:, -1])
        deep = torch.cat(rows[1:]) if rows[1:] else self.head.deep.detach()
        member.head.hold(deep)
        if batch.complete is not None:
            member._learn_update(spec, batch, run, np.flatnonzero(revision.places < 0))
        if batch.decisions is not None:
            decide_in_cascade(spec, levels, network, len(batch.kept), batch.decisions, run)
        network.eval()
        return member

    def _learn_update(self, spec: CascadeSpec, batch: UpdateBatch, run: MemberRun, fresh: NDArray[np.int64]) -> None:
        """Train on the complete documents of an update; labels at `fresh` positions are new."""
        assert batch.complete is not None
        documents, labels, unknown = batch.complete
        settings = spec.update.training(spec.training)
        data = TrainingData(None, as_array(self.network.table), documents, labels, None, batch.frequencies, unknown)
        sizes = [(level.nodes, level.parents, level.most) for level in self.levels.levels]
        plan = _plan(replace(spec, training=settings), data, sizes, run)
        start = {name: part.detach().clone() for name, part in self.network.named_parameters()}
        kind = KINDS[spec.tree.rows]
        torch.manual_seed(run.seed)
        with torch.enable_grad():
            self._train(spec, settings, data, plan, run, lambda low, high: start[DEEP][low:high].to(plan.place, kind))
        absent = [absent_from(self.levels.tree.node_labels(labels, number + 1)) for number in range(len(self.levels))]
        if len(self.levels) > 1:
            absent = [nodes + self.deep_start(number) for number, nodes in enumerate(absent) if number]
        fresh = fresh + self.deep_start(len(self.levels) - 1)
        settle(self.network, start, spec.update.retention, len(batch.words), fresh, np.concatenate(absent))

    def _rows_of(self, number: int) -> Tensor:
        """(nodes, d) the rows of a level, with their biases."""
        if number == 0:
            return torch.cat([self.head.rows, self.head.bias[:, None]], dim=1).detach()
        start = self.deep_start(number)
        return self.head.deep.detach()[start : start + self.levels.levels[number].nodes]

    # ---- scoring

    best_labels = staticmethod(best_in_trees)
    candidate_scores = staticmethod(scores_in_trees)

    @property
    def device(self) -> torch.device:
        return self.network.table.device

    def encoded(self, tokens: Tensor) -> Encoded:
        self.network.eval()
        encoded, mask = self.network.encode(tokens)
        with torch.no_grad():
            return [(part, mask) for part in self.head.level_vectors(encoded)]

    def head_of(self, level: int) -> NodeHead:
        if level == 0:
            return self.head
        start = self.deep_start(level)
        return LevelRows(self.head.deep, start, start + self.levels.levels[level].nodes)

    def chunk(self, level: int, batch: int, length: int, candidates: int, free: int) -> int:
        size = self.network.compute.itemsize
        if level == 0:
            return self.head.chunk(batch, length, size, free)
        return max(1, free // (batch * (self.head.inner + BIAS) * (size + self.head.deep.element_size())))

    def deep_start(self, level: int) -> int:
        """Number of a level's first node in the table of rows; 0 for the first level, which is not in it."""
        return sum(level.nodes for level in self.levels.levels[1:level])

    def network_of(self, label: int) -> tuple[Network, int]:
        return self.network, int(self.levels.tree.place_of()[label])

    # ---- saving

    def arrays(self) -> Arrays:
        arrays: Arrays = {f"tree.{name}": array for name, array in self.levels.tree.state().items()}
        weights = network_arrays(self.network)
        arrays[TABLE] = weights.pop(TABLE)  # which members may share
        return arrays | {f"network.{name}": array for name, array in weights.items()}

    @classmethod
    def restored(cls, spec: CascadeSpec, state: SavedState, labels: int, table: NDArray[Any] | None) -> Self:
        levels = Levels(LabelTree.from_state(state.part("tree."), labels), spec.device)
        words = state.array(TABLE, np.float32, (None, None)) if table is None else table
        arrays = state.part("network.").weights() | {TABLE: words}
        spec, nodes = spec.with_levels(len(levels)), levels.levels[0].nodes
        spec.check_saved(arrays, nodes, but=DEEP)
        network = spec.network(arrays[TABLE], nodes)
        _load(network, arrays, levels, place_of(arrays[DEEP].nbytes, spec.device))
        return cls(levels, network.eval(), spec.tree.beams(len(levels)))


def deep_nodes(levels: Levels) -> int:
    """Number of nodes of all levels below the first."""
    return sum(level.nodes for level in levels.levels[1:])


def _load(network: Network, arrays: Mapping[str, NDArray[Any]], levels: Levels, place: torch.device) -> None:
    """Load the weights of a trained network, with the rows below the first level on the given device."""
    head = network.head
    assert isinstance(head, CascadeHead)
    load_weights(network, arrays, but=DEEP)
    shape = (deep_nodes(levels), head.inner + BIAS)
    head.hold(checked_tensor(arrays, DEEP, shape, *KINDS.values()).to(place))


def _new_network(spec: CascadeSpec, data: TrainingData, levels: Levels, run: MemberRun) -> Network:
    """A network with random rows in the first level, whose biases are the frequencies of its nodes."""
    torch.manual_seed(run.seed)
    network = spec.network(data.table, levels.levels[0].nodes)
    truth = levels.tree.node_labels(data.labels, 1)
    shares = np.bincount(truth.indices, minlength=truth.shape[1]) / max(1, truth.shape[0])
    network.head.start_from(torch.from_numpy(shares).float())
    return network


def _random_rows(
    width: int, labels: Any, levels: Levels, beams: list[int], device: torch.device
) -> Callable[[int, int], Tensor]:
    """Random rows, and biases that give the mean number of labels among the children of a beam."""
    biases = []
    for number, level in enumerate(levels.levels[1:], start=1):
        held = levels.tree.node_labels(labels, number + 1).nnz / max(1, labels.shape[0])
        share = held / (min(beams[number - 1], level.parents) * level.most)
        biases.append(torch.full((level.nodes,), share))
    bias = torch.logit(torch.cat(biases), eps=1e-6).to(device)
    bound = (6.0 / (len(bias) + width)) ** 0.5

    def drawn(low: int, high: int) -> Tensor:
        rows = torch.zeros(high - low, width + BIAS, device=device)
        rows[:, :width].uniform_(-bound, bound)
        rows[:, width] = bias[low:high]
        return rows

    return drawn


def _plan(spec: CascadeSpec, data: TrainingData, sizes: list[tuple[int, int, int]], run: MemberRun) -> CascadePlan:
    """Memory of the training, and where the rows are stored; ConfigError if it cannot fit."""
    free, host = free_memory(data.documents.device)
    return placed(planned(spec, data, sizes, run), free, host)
