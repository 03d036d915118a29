"""Training of a label tree's networks, level by level.

The first level is a network over all its nodes. Every other level starts from the one above and is trained, for each
document, on the children of a fixed number of parents: those above a label of the document, or above one known to be
wrong, then the highest-scoring ones. Each trained level and the parents for the next one are parts of the workspace;
parents are computed in one pass and written as a stream. Training can resume after any part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from xmtc.core.config import Alias, Settings
from xmtc.data.dataset import Csr
from xmtc.metrics import ndcg
from xmtc.nn.device import chunk_memory
from xmtc.nn.documents import Documents
from xmtc.nn.heads.base import candidate_head
from xmtc.nn.members import MemberRun, MemberSpec, TrainingData
from xmtc.nn.network import Network
from xmtc.nn.prediction import DOCUMENTS, TOKENS
from xmtc.nn.tensors import checked_tensor, load_weights, read_tensor, written_later
from xmtc.nn.training.loop import Trainer, TrainingSettings, batch_size
from xmtc.nn.training.objectives import ROWS, AllLabelsObjective, CandidateObjective, Objective, slots_for
from xmtc.nn.trees.device_tree import Levels
from xmtc.nn.trees.memory_plan import LevelPlan
from xmtc.nn.trees.networks import BeamNodes, best_of, chunk_of, level_scores
from xmtc.nn.trees.row_table import RowTable
from xmtc.text.batches import sorted_batches

KINDS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
UPLOADED = 1 << 16
"""Documents whose parents are copied to the device at once."""


@dataclass(frozen=True)
class TreeShape(Settings):
    """The shape of a shallow and wide label tree, and the storage of its rows."""

    height: int = 0
    """Levels of nodes between the root and the labels; 0 for no tree: every label is scored."""
    arity: int = 8
    """Maximum number of children of a node, a power of two; the first level has as many nodes as needed."""
    cluster_size: int = 8
    """Maximum number of labels below a node of the last level."""
    rows: Literal["float32", "bfloat16"] = "float32"
    """Data type of the nodes' rows and their optimiser moments; 'bfloat16' halves the memory."""
    label_features: int = 256
    """Number of features, those with the largest weights, that represent a label in clustering; 0 keeps all."""

    of = "head.tree"

    def check(self) -> None:
        self.require_range("height", 0, 20)
        is_power = self.arity >= 2 and self.arity.bit_count() == 1
        self.require("arity", is_power and self.arity <= 1 << 15, "a power of two from 2 to 32,768")
        self.require_range("cluster_size", 1, 1 << 16)
        self.require_range("label_features", 0)


@dataclass(frozen=True)
class TreeSettings(TreeShape):
    """A shallow and wide label tree, for very many labels."""

    beam_width: Annotated[int, Alias("beam")] = 160
    """Beam width: nodes followed per level. In training, nodes above a label of the document come first."""
    epochs: int | Literal["same"] = "same"
    """Epochs of each level after the first; 'same' uses `training.epochs`."""
    average_from: float | Literal["same"] = "same"
    """Epochs before weight averaging starts on each level after the first; 'same' uses that of `training`."""
    learning_rate: float | Literal["same"] = "same"
    """Learning rate of each level after the first; 'same' uses that of `training`."""

    def check(self) -> None:
        super().check()
        self.require_range("beam_width", 1, 1 << 16)
        self.require("epochs", self.epochs == "same" or self.epochs >= 1, "an integer ≥ 1, or same")
        self.require("average_from", self.average_from == "same" or self.average_from >= 0, "a number ≥ 0, or same")
        self.require("learning_rate", self.learning_rate == "same" or self.learning_rate > 0, "a number > 0, or same")

    def training(self, settings: TrainingSettings, level: int) -> TrainingSettings:
        """Training settings of a level."""
        if level == 0:
            return settings
        own = {name: getattr(self, name) for name in ("epochs", "average_from", "learning_rate")}
        return dataclasses.replace(settings, **{name: value for name, value in own.items() if value != "same"})


@dataclass(frozen=True)
class ShapedSpec(MemberSpec):
    """How networks with a label tree are built and trained."""

    tree: TreeShape = field(default_factory=TreeShape)
    members: int = 1
    """Number of trees of the model; they stay on the device while others are trained."""
    min_df: int = 1
    """Minimum document frequency of words used for clustering labels."""


@dataclass(frozen=True)
class TreeSpec(ShapedSpec):
    """How a label tree and the networks of its levels are built and trained."""

    tree: TreeSettings = field(default_factory=TreeSettings)
    width: int = 0
    """Width of the encoder's states."""
    hidden: tuple[int, ...] = ()
    """Units of the head's hidden layers."""


class TreeTraining:
    """The training of one tree.

    `plans` determines where the rows of each level are stored. `starts` has initial weights for each level; without
    them, the first level starts from random weights, and every other from the level above.
    """

    def __init__(
        self,
        spec: TreeSpec,
        levels: Levels,
        data: TrainingData,
        plans: Sequence[LevelPlan],
        run: MemberRun,
        starts: Sequence[Mapping[str, NDArray[Any]]] | None = None,
    ) -> None:
        self.tree, self.training, self.levels, self.starts = spec.tree, spec.training, levels, starts
        self.documents, self.labels, self.validation = data.documents, data.labels, data.validation
        self.unknown = data.unknown
        self._spec, self._table = spec, data.table
        self.places = [torch.device("cpu") if plan.on_host else spec.device for plan in plans]
        self.seed, self.member, self.group = run.seed, run.number, run.group
        self.workspace, self.progress = run.workspace, run.progress

    def new_network(self, rows: int) -> Network:
        """A new network with a head of this many rows."""
        return self._spec.network(self._table, rows)

    def run(self) -> tuple[list[Network], float]:
        """Train all levels; returns their networks and the validation score of the last one."""
        score = -1.0
        for level in range(len(self.levels)):
            network = None
            if not self.workspace.has(self._done(level)):
                network = self._train(level)
                self._let_go()
            if level + 1 < len(self.levels) and not self.workspace.has(self._listed(level + 1)):
                self._list_parents(level, network or self._trained(level)[0])
            del network
            self._let_go()
        networks = []
        for level in range(len(self.levels)):
            network, score = self._trained(level)
            networks.append(network.eval())
        return networks, score

    def _let_go(self) -> None:
        """Free memory that captured steps had reserved."""
        if self.documents.device.type == "cuda":
            torch.cuda.empty_cache()

    # ---- parts of the workspace

    def _done(self, level: int) -> str:
        return f"member-{self.member}-level-{level}"

    def _listed(self, level: int) -> str:
        """Name of the part with the parents of each document, for training the level below, and their scores."""
        return f"parents-{self.member}-level-{level}"

    def _trained(self, level: int) -> tuple[Network, float]:
        arrays, values = self.workspace.map(self._done(level))
        network = self.new_network(1)
        load_level(network, arrays, self.levels.levels[level].nodes, self.places[level])
        return network, float(values["score"])

    # ---- one level

    def _train(self, level: int) -> Network:
        settings, name = self.tree.training(self.training, level), f"checkpoint-{self.member}-level-{level}"
        torch.manual_seed(self.seed + 7919 * level)
        truth = self.levels.tree.node_labels(self.labels, level + 1)
        unknown = None if self.unknown is None else self.unknown.of_nodes(self.levels.tree, level + 1)
        documents = self.documents.labelled(truth, unknown)
        network, objective = self._first(truth, documents) if level == 0 else self._next(level, settings, documents)
        trainer = Trainer(
            network,
            documents,
            settings,
            seed=self.seed + 7919 * level,
            free=chunk_memory(documents.device),
            validate=None if self.validation is None else lambda: self._score(level, network),
            log=lambda line: self.workspace.log({"member": self.member, "level": level, **line}),
            group=self.group,
            objective=objective,
        )
        trainer.run(self.progress, self.workspace, name, f"training level {level + 1} of {len(self.levels)}")
        kept = {name: written_later(part) for name, part in network.named_parameters()}
        self.workspace.save(self._done(level), kept, {"score": trainer.course.best_score})
        self.workspace.drop(name)
        return network

    def _first(self, truth: Csr, documents: Documents) -> tuple[Network, Objective]:
        network = self.new_network(self.levels.levels[0].nodes)
        if self.starts is not None:
            load_weights(network, self.starts[0])
            return network, AllLabelsObjective(network.head, documents)
        shares = np.bincount(truth.indices, minlength=truth.shape[1]) / max(1, len(documents))
        network.head.start_from(torch.from_numpy(shares).float())
        return network, AllLabelsObjective(network.head, documents)

    def _next(self, number: int, settings: TrainingSettings, documents: Documents) -> tuple[Network, Objective]:
        """A network with its initial weights, and a table of rows for all nodes."""
        level = self.levels.levels[number]
        batch = batch_size(settings, len(documents), self.group)
        parents = self._uploaded(number)
        network = self.new_network(slots_for(batch, parents.shape[1], level.parents, level.most))
        head = candidate_head(network.head)
        given = None if self.starts is None else self.starts[number]
        load_weights(network, given or self.workspace.map(self._done(number - 1))[0], but=ROWS)
        width = head.rows.shape[1]
        kind, averaged = KINDS[self.tree.rows], settings.averaging != "none"
        table = RowTable(level.nodes, width, place=self.places[number], kind=kind, averaged=averaged)
        bound = (6.0 / (level.nodes + width)) ** 0.5
        if given is None:
            device = documents.device
            table.draw(lambda low, high: torch.empty(high - low, width, device=device).uniform_(-bound, bound))
        else:
            table.draw(lambda low, high: read_tensor(given[ROWS][low:high]))
        return network, CandidateObjective(head, documents, level, parents, table, self.group, batch)

    def _uploaded(self, level: int) -> Tensor:
        """(N, C) the parents of each document, on the device."""
        mapped = self.workspace.map(self._listed(level))[0]["parents"]
        parents = torch.empty(mapped.shape, dtype=torch.int32, device=self.documents.device)
        for low in range(0, len(mapped), UPLOADED):
            parents[low : low + UPLOADED] = torch.from_numpy(np.array(mapped[low : low + UPLOADED]))
        return parents

    # ---- predictions of a level

    def _score(self, level: int, network: Network) -> float:
        """nDCG@5 of a level's nodes on the validation set."""
        assert self.validation is not None
        documents, labels = self.validation
        truth = self.levels.tree.node_labels(labels, level + 1)
        best = np.full((len(documents), 5), -1, dtype=np.int64)
        for rows, _, found in self._answers(level, network, documents, "watched"):
            nodes = best_of(found, min(5, found.nodes.shape[1])).nodes
            best[rows, : nodes.shape[1]] = nodes.cpu().numpy()
        return ndcg(best, truth, 5)

    def _answers(
        self, number: int, network: Network, documents: Documents, listed: str
    ) -> Iterator[tuple[NDArray[np.int64], BeamNodes | None, BeamNodes]]:
        """Score documents in batches: yields their rows, the listed parents, and the scores of the nodes below."""
        network.eval()
        device, level = documents.device, self.levels.levels[number]
        free, above = chunk_memory(device), None
        lists = self.workspace.map(self._listed(number))[0] if number else {}
        for rows, length in sorted_batches(documents.lengths, TOKENS[device.type], DOCUMENTS[device.type]):
            if number:
                parents = torch.from_numpy(lists[listed][rows]).to(device).long()
                above = BeamNodes(parents, torch.from_numpy(lists[f"{listed} scores"][rows]).to(device))
            encoded = network.encode(documents.tokens(torch.from_numpy(rows).to(device), length))
            candidates = 0 if above is None else above.nodes.shape[1] * level.most
            chunk = chunk_of(network, len(rows), length, candidates, free)
            yield rows, above, level_scores(network.head, encoded, level, above, chunk)

    def _list_parents(self, number: int, network: Network) -> None:
        """Write, for each document, the nodes of this level below which the next level is trained."""
        level = self.levels.levels[number]
        count = min(self.tree.beam_width, level.nodes)
        decided = self.labels if self.unknown is None else sp.csr_array(self.labels + self.unknown.rejected)
        sets = [("parents", self.documents.labelled(self.levels.tree.node_labels(decided, number + 1)))]
        sets += [] if self.validation is None else [("watched", self.validation[0])]
        shapes: dict[str, tuple[tuple[int, ...], DTypeLike]]
        shapes = {name: ((len(documents), count), np.int32) for name, documents in sets}
        shapes |= {f"{name} scores": ((len(documents), count), np.float32) for name, documents in sets}
        total = sum(len(documents) for _, documents in sets)
        title = f"candidates of level {number + 2} of {len(self.levels)}"
        with (
            self.progress.task(title, total=total) as task,
            self.workspace.stream(self._listed(number + 1), shapes) as arrays,
        ):
            for name, documents in sets:
                for rows, above, found in self._answers(number, network, documents, name):
                    favoured = self._favoured(number, documents, rows, above, found) if name == "parents" else None
                    best = best_of(found, count, favoured)
                    arrays[name][rows] = best.nodes.cpu().numpy()
                    arrays[f"{name} scores"][rows] = best.scores.cpu().numpy()
                    task.advance(len(rows))

    def _favoured(
        self, number: int, documents: Documents, rows: NDArray[np.int64], above: BeamNodes | None, found: BeamNodes
    ) -> Tensor:
        """(B, m) whether a label below the node is decided; such nodes come before all others."""
        positives = documents.positives(torch.from_numpy(rows).to(documents.device))
        places = positives if above is None else self.levels.levels[number].places(above.nodes, positives)
        held = torch.zeros(found.scores.shape, dtype=torch.int64, device=documents.device)
        return held.scatter_add_(1, places.clamp(min=0), (places >= 0).long()) > 0


def load_level(network: Network, arrays: Mapping[str, NDArray[Any]], nodes: int, place: torch.device) -> None:
    """Load the weights of a trained level, with the rows of its nodes on the given device."""
    head = candidate_head(network.head)
    load_weights(network, arrays, but=ROWS)
    head.hold(checked_tensor(arrays, ROWS, (nodes, head.rows.shape[1]), *KINDS.values()).to(place))
