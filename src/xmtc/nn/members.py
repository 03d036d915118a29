"""Members of a neural model: trained from one seed each, they can score, save, restore and update themselves.

A model averages the probabilities of its members. A member is one network over all labels (`FlatMember`), or a label
tree with a network for each level (`xmtc.nn.trees.member`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.workspace import Workspace
from xmtc.core.progress import Progress
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset
from xmtc.nn.device import arithmetic, chosen_device, chunk_memory, cpu_threads, memory_errors
from xmtc.nn.documents import Documents, Labelled, UnknownLabels
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.heads.base import Head
from xmtc.nn.network import TABLE, Network
from xmtc.nn.prediction import best_labels, candidate_scores, embeddings
from xmtc.nn.tensors import as_array, limited_parameters, load_weights
from xmtc.nn.training.fine_tuning import UpdateSettings, absent_from, carry_weights, only_label_rows, settle
from xmtc.nn.training.loop import Trainer, TrainingSettings
from xmtc.nn.training.objectives import GivenLabelsObjective, Objective
from xmtc.nn.training.optimisers import Adam, Optimiser
from xmtc.nn.training.process_group import Group

Arrays = dict[str, NDArray[Any]]
SPARE_PARAMETERS = 64
"""Parameters that a network may have beyond twice the number of saved arrays, such as those for training only."""


class TrainingData(NamedTuple):
    """The data that the members of a model are trained on."""

    dataset: Dataset | None
    """All training documents; None in an update."""
    table: NDArray[np.float32]  # (V, e) initial word vectors
    documents: Documents
    """The training documents, without the validation set."""
    labels: Csr
    validation: tuple[Documents, Csr] | None
    frequencies: NDArray[np.float64]  # (L,) fraction of the training documents with each label
    unknown: UnknownLabels | None = None
    """Unknown labels of the documents."""


class UpdateDocuments(NamedTuple):
    """Documents to train on in an update."""

    documents: Documents
    labels: Csr
    unknown: UnknownLabels | None

    @classmethod
    def of(cls, labelled: Labelled, device: torch.device) -> UpdateDocuments:
        """Copy documents and their labels to a device."""
        return cls(labelled.documents(device), labelled.labels, labelled.unknown)

    @property
    def decided(self) -> NDArray[np.int64]:
        """Labels that a document with unknown labels accepts or rejects, ascending."""
        if self.unknown is None:
            return np.empty(0, dtype=np.int64)
        accepted = self.labels[np.flatnonzero(self.unknown.partial)].indices
        return np.union1d(accepted, self.unknown.rejected.indices).astype(np.int64)

    def targets(self, known: int, most: int = 64) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(N, K) decided labels that each document trains, −1 as padding, and their targets; NaN keeps a score.

        A document with unknown labels trains those that it decides on. Complete documents train up to `most` of the
        labels that others decide on, their own ones first: labels below `known` keep their scores there.
        """
        assert self.unknown is not None
        decided, lists = self.decided, []
        for row, partial in enumerate(self.unknown.partial.tolist()):
            own = self.labels.indices[self.labels.indptr[row] : self.labels.indptr[row + 1]].astype(np.int64)
            if partial:
                wrong = self.unknown.rejected[[row]].indices
                lists.append((np.append(own, wrong), np.append(np.ones(len(own)), np.zeros(len(wrong)))))
                continue
            is_own = np.isin(decided, own)
            chosen = np.append(decided[is_own], decided[~is_own])[:most]
            lists.append((chosen, np.where(chosen < known, np.nan, np.isin(chosen, own))))
        width = max(1, *(len(labels) for labels, _ in lists))
        candidates = np.full((len(lists), width), -1, dtype=np.int64)
        targets = np.zeros(candidates.shape, dtype=np.float32)
        for row, (labels, wanted) in enumerate(lists):
            candidates[row, : len(labels)], targets[row, : len(labels)] = labels, wanted
        return candidates, targets

    @property
    def undecided(self) -> NDArray[np.int64]:
        """All other labels."""
        return np.setdiff1d(np.arange(self.labels.shape[1]), self.decided)


class UpdateBatch(NamedTuple):
    """The data that the members of a model are updated with."""

    kept: NDArray[np.int64]  # old labels that remain; they come first
    relatives: Csr  # (added, L before) old labels similar to each new one
    carried: Csr  # (L, L before) old labels that each label is initialised from
    frequencies: NDArray[np.float64]  # (L,)
    words: NDArray[np.float32]  # (new words, e) initial vectors
    complete: UpdateDocuments | None
    """New documents without unknown labels, and replayed ones; None if there are no such new ones."""
    decisions: UpdateDocuments | None
    """New documents with unknown labels, and complete ones to balance them; None if there are no such new ones."""


@dataclass(frozen=True)
class MemberSpec:
    """How the networks of a model are built and trained."""

    encoder: Callable[[int], Encoder]
    """Builds an encoder for word vectors of this width."""
    head: Callable[[int, int], Head]
    """Builds a head for this many labels on states or vectors of this width."""
    words: int
    """Rows of the word table."""
    training: TrainingSettings
    validate: Callable[[Network, TrainingData], float]
    """Validation score of a network."""
    runtime: Runtime
    trained_words: bool = True
    bag_to_head: bool = False
    optimiser: Callable[[Mapping[str, Tensor], frozenset[str]], Optimiser] = Adam
    update: UpdateSettings = field(default_factory=UpdateSettings)

    @property
    def device(self) -> torch.device:
        """The device that the networks run on."""
        return chosen_device(self.runtime)

    def network(self, table: NDArray[Any], labels: int) -> Network:
        """A new network with these word vectors and a head for this many labels."""
        if table.ndim != 2 or len(table) != self.words:
            shape = " × ".join(map(str, table.shape))
            raise ValueError(f"word vectors have shape {shape}, but there are {self.words:,} words")
        encoder = self.encoder(table.shape[1])
        network = Network(
            torch.from_numpy(np.array(table)),
            encoder,
            self.head(labels, encoder.width),
            trained_words=self.trained_words,
            compute=arithmetic(self.runtime, self.device),
            bag_to_head=self.bag_to_head,
        )
        return network.to(self.device)

    def check_saved(self, arrays: Arrays, labels: int, but: str = "") -> None:
        """Raise ValueError unless the network that the settings describe has weights of the saved shapes, except `but`.

        The network is built without memory: the settings of a damaged folder may describe an enormous one.
        """
        with limited_parameters(2 * len(arrays) + SPARE_PARAMETERS), torch.device("meta"):
            encoder = self.encoder(arrays[TABLE].shape[1])
            head = self.head(labels, encoder.width)
        head.drop_training_parts()
        for prefix, module in (("encoder", encoder), ("head", head)):
            for name, part in module.named_parameters(prefix):
                if name != but and arrays[name].shape != part.shape:
                    raise ValueError(f"{name} has shape {arrays[name].shape}, expected {tuple(part.shape)}")


@dataclass(frozen=True)
class MemberRun:
    """The training run of one member: its number, process group, progress display and workspace."""

    number: int
    runtime: Runtime
    group: Group
    progress: Progress
    workspace: Workspace

    @property
    def seed(self) -> int:
        """The member's own random seed."""
        return self.runtime.seed + 104_729 * self.number

    @contextmanager
    def environment(self, less_memory: str) -> Iterator[None]:
        """Set the number of threads, isolate the random state, and turn out-of-memory errors into a hint."""
        device = chosen_device(self.runtime)
        with (
            cpu_threads(self.runtime.threads),
            memory_errors(less_memory),
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        ):
            yield


Spec = TypeVar("Spec", bound=MemberSpec)


class NeuralMember(ABC, Generic[Spec]):
    """One of the networks, or trees of networks, whose probabilities a model averages."""

    @classmethod
    @abstractmethod
    def fit(cls, spec: Spec, data: TrainingData, run: MemberRun) -> tuple[Self, float]:
        """Train a member, resuming from the workspace if possible; returns it with its validation score."""

    @abstractmethod
    def updated(self, spec: Spec, batch: UpdateBatch, run: MemberRun) -> Self:
        """A member for the new label set, trained on the new documents; this one is not changed."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """The arrays to save in the model folder."""

    @classmethod
    @abstractmethod
    def restored(cls, spec: Spec, state: SavedState, labels: int, table: NDArray[Any] | None) -> Self:
        """Restore a member from its arrays; `table` has the word vectors if all members share them."""

    best_labels: Callable[..., tuple[NDArray[np.int64], NDArray[np.float32]]]
    """(members, documents, k, allowed=None) → (n, k) labels and mean probabilities of all members, best first."""
    candidate_scores: Callable[..., NDArray[np.float32]]
    """(members, documents, candidates) → (n, c) mean probabilities of given labels; negative candidates are ignored."""

    @property
    def word_table(self) -> Tensor:
        """The word vectors (V, e)."""
        return self.network_of(0)[0].table

    @abstractmethod
    def network_of(self, label: int) -> tuple[Network, int]:
        """The network that scores a label, and the label's row in it."""

    def steps(self, documents: Documents, label: int) -> list[tuple[float, NDArray[np.int64]]]:
        """For a single document: the probability of each node on the path to a label, and the labels below the node."""
        return []


class FlatMember(NeuralMember[MemberSpec]):
    """One network that scores every label."""

    def __init__(self, network: Network) -> None:
        self.network = network

    @classmethod
    def fit(cls, spec: MemberSpec, data: TrainingData, run: MemberRun) -> tuple[Self, float]:
        torch.manual_seed(run.seed)
        network = spec.network(data.table, len(data.frequencies))
        network.head.start_from(torch.from_numpy(data.frequencies).float())
        validate = None if data.validation is None else lambda: spec.validate(network, data)
        return cls(network), _train(network, data.documents, spec.training, validate, spec, run)

    def updated(self, spec: MemberSpec, batch: UpdateBatch, run: MemberRun) -> Self:
        torch.manual_seed(run.seed)
        table = np.concatenate([as_array(self.network.table), batch.words])
        network = spec.network(table, len(batch.frequencies))
        carry_weights(network, self.network, batch.carried, batch.relatives.shape[0], batch.frequencies)
        fresh = np.arange(len(batch.kept), len(batch.frequencies))
        if batch.complete is not None:
            start = {name: part.detach().clone() for name, part in network.named_parameters()}
            _train(network, batch.complete.documents, spec.update.training(spec.training), None, spec, run)
            settle(network, start, spec.update.retention, len(batch.words), fresh, absent_from(batch.complete.labels))
        if batch.decisions is not None and network.head.of_labels:
            every = np.arange(len(batch.frequencies))
            learn_decisions(network, every, len(batch.kept), batch.decisions, spec, spec.training, run)
        return type(self)(network.eval())

    def arrays(self) -> Arrays:
        is_left_out = self.network.head.is_training_only
        whole = network_arrays(self.network)
        return {name: array for name, array in whole.items() if not is_left_out(name.removeprefix("head."))}

    @classmethod
    def restored(cls, spec: MemberSpec, state: SavedState, labels: int, table: NDArray[Any] | None) -> Self:
        arrays = state.weights() | ({} if table is None else {TABLE: table})
        spec.check_saved(arrays, labels)
        network = spec.network(arrays[TABLE], labels)
        network.head.drop_training_parts()
        load_weights(network, arrays)
        return cls(network.eval())

    @staticmethod
    def best_labels(
        members: Sequence[FlatMember], documents: Documents, k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rank the labels by the mean probability of all members."""
        return best_labels([member.network for member in members], documents, k, allowed)

    @staticmethod
    def candidate_scores(
        members: Sequence[FlatMember], documents: Documents, candidates: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Score given labels by the mean probability of all members."""
        return candidate_scores([member.network for member in members], documents, candidates)

    def network_of(self, label: int) -> tuple[Network, int]:
        return self.network, label


def learn_decisions(
    network: Network,
    places: NDArray[np.int64],
    known: int,
    decisions: UpdateDocuments,
    spec: MemberSpec,
    settings: TrainingSettings,
    run: MemberRun,
) -> None:
    """Train the rows of decided labels, in place; `places` (L,) has the row of each label, −1 if it has none.

    The first `known` labels are old ones: they keep their scores on the complete documents, as far as possible.
    """
    candidates, targets = decisions.targets(known)
    device, rows = decisions.documents.device, np.where(candidates < 0, -1, places[candidates])
    before = candidate_scores([network], decisions.documents, rows)
    wanted = np.where(np.isnan(targets), before, targets)
    vectors = None
    if not network.head.takes_states:
        vectors = torch.from_numpy(embeddings([network], decisions.documents)).to(device)
    objective = GivenLabelsObjective(
        network.head, torch.from_numpy(rows).to(device), torch.from_numpy(wanted).to(device), vectors
    )
    start = {name: part.detach().clone() for name, part in network.named_parameters()}
    short = spec.update.decision_training(settings, len(wanted), bool(np.isnan(targets).any()))
    with only_label_rows(network):
        _train(network, decisions.documents, short, None, spec, run, "decisions", objective)
    fresh, kept = places[known:][places[known:] >= 0], places[decisions.undecided]
    settle(network, start, spec.update.retention, 0, fresh, kept[kept >= 0])


def network_arrays(network: Network) -> Arrays:
    """The parameters of a network by name."""
    return {name: as_array(part) for name, part in network.named_parameters()}


def _train(
    network: Network,
    documents: Documents,
    settings: TrainingSettings,
    validate: Callable[[], float] | None,
    spec: MemberSpec,
    run: MemberRun,
    part: str = "",
    objective: Objective | None = None,
) -> float:
    """Train a network, resuming from the workspace if possible; returns its validation score.

    `part` names a second training of the same member.
    """
    done, begun = f"{part or 'member'}-{run.number}", f"checkpoint-{part}{run.number}"
    if run.workspace.has(done):
        arrays, values = run.workspace.load(done)
        load_weights(network, arrays)
        network.eval()
        return float(values["score"])
    trainer = Trainer(
        network,
        documents,
        settings,
        seed=run.seed,
        free=chunk_memory(documents.device),
        validate=validate,
        log=lambda line: run.workspace.log({"member": run.number, **line}),
        group=run.group,
        objective=objective,
        optimiser=spec.optimiser,
    )
    trainer.run(run.progress, run.workspace, begun)
    if run.group.leads:
        run.workspace.save(done, network_arrays(network), {"score": trainer.course.best_score})
        run.workspace.drop(begun)
    return trainer.course.best_score
