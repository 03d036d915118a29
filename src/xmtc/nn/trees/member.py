"""A label tree of networks as a member of a model: planning, training level by level, updating, saving, restoring."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.artifact.saved_state import SavedState
from xmtc.data.dataset import Csr, Dataset
from xmtc.labels.features import positive_features
from xmtc.labels.tree import LabelTree, TreeRevision, homes_of, shallow_sizes, shallow_tree
from xmtc.nn.device import arithmetic, chunk_memory
from xmtc.nn.members import Arrays, MemberRun, NeuralMember, TrainingData, UpdateBatch, network_arrays
from xmtc.nn.network import TABLE, Network
from xmtc.nn.tensors import as_array, read_tensor
from xmtc.nn.training.fine_tuning import absent_from, carried_rows, settle
from xmtc.nn.training.loop import batch_size
from xmtc.nn.training.objectives import ROWS
from xmtc.nn.trees.device_tree import Levels
from xmtc.nn.trees.memory_plan import (
    LevelPlan,
    Sizes,
    described,
    free_memory,
    level_plan,
    member_size,
    place_of,
    placed,
    product_rate,
)
from xmtc.nn.trees.networks import TreeNetwork, best_in_trees, scores_in_trees
from xmtc.nn.trees.partial_update import decide_in_tree
from xmtc.nn.trees.training import KINDS, ShapedSpec, TreeSpec, TreeTraining, load_level
from xmtc.text.features import DocumentFeatures
from xmtc.text.tfidf import TextSettings


class TreeMember(TreeNetwork, NeuralMember[TreeSpec]):
    """A label tree and the network of each of its levels."""

    @classmethod
    def fit(cls, spec: TreeSpec, data: TrainingData, run: MemberRun) -> tuple[Self, float]:
        tree = spec.tree
        sizes = shallow_sizes(len(data.frequencies), tree.cluster_size, tree.arity, tree.height)
        plans = _plans(spec, data, sizes, run)
        for line in described(plans, spec.device) if run.number == 0 and run.group.leads else ():
            run.progress.say(line)
        levels = Levels(label_tree(spec, data.dataset, run), spec.device)
        networks, score = TreeTraining(spec, levels, data, plans, run).run()
        return cls(levels, networks, tree.beam_width), score

    # ---- updating

    def updated(self, spec: TreeSpec, batch: UpdateBatch, run: MemberRun) -> Self:
        tree = self.levels.tree
        revision = tree.revised(batch.kept, homes_of(tree, batch.relatives))
        levels, starts = Levels(revision.tree, spec.device), []
        for level, network in enumerate(self.networks):
            weights = network_arrays(network)
            weights[TABLE] = np.concatenate([weights[TABLE], batch.words])
            weights[ROWS] = as_array(_revised_rows(network, tree, revision, level, batch.carried))
            starts.append(weights)
        fresh = np.flatnonzero(revision.places < 0)
        if batch.complete is None:
            networks = _restored_levels(spec, levels, starts)
        else:
            networks = _trained_from(spec, levels, starts, fresh, batch, run)
        if batch.decisions is not None:
            decide_in_tree(spec, levels, networks[-1], len(batch.kept), batch.decisions, run)
        return type(self)(levels, networks, spec.tree.beam_width)

    # ---- scoring

    best_labels = staticmethod(best_in_trees)
    candidate_scores = staticmethod(scores_in_trees)

    @property
    def word_table(self) -> Tensor:
        return self.networks[0].table

    # ---- saving

    def arrays(self) -> Arrays:
        arrays: Arrays = {f"tree.{name}": array for name, array in self.levels.tree.state().items()}
        for level, network in enumerate(self.networks):
            arrays |= {f"{level}.{name}": array for name, array in network_arrays(network).items()}
        if not self.networks[0].trained_words:  # all levels share the table
            arrays[TABLE] = arrays[f"0.{TABLE}"]
            arrays = {name: array for name, array in arrays.items() if not name.endswith(f".{TABLE}")}
        return arrays

    @classmethod
    def restored(cls, spec: TreeSpec, state: SavedState, labels: int, table: NDArray[Any] | None) -> Self:
        levels = Levels(LabelTree.from_state(state.part("tree."), labels), spec.device)
        if table is None and state.has(TABLE):
            table = state.array(TABLE, np.float32, (None, None))
        shared = {} if table is None else {TABLE: table}
        own = [state.part(f"{level}.").weights() | shared for level in range(len(levels))]
        for arrays in own:
            spec.check_saved(arrays, 1, but=ROWS)
        return cls(levels, _restored_levels(spec, levels, own), spec.tree.beam_width)


def _restored_levels(spec: TreeSpec, levels: Levels, arrays: Sequence[Arrays]) -> list[Network]:
    """The network of each level from its arrays; rows that do not fit on the device stay in host memory."""
    networks = []
    for level, own in zip(levels.levels, arrays, strict=True):
        network = spec.network(own[TABLE], 1)
        load_level(network, own, level.nodes, place_of(own[ROWS].nbytes, spec.device))
        networks.append(network.eval())
    return networks


# ---- training


def label_tree(spec: ShapedSpec, train: Dataset | None, run: MemberRun) -> LabelTree:
    """Build the label tree of a member from the words of the labels' documents; the tree depends on the seed."""
    name, settings, runtime = f"tree-{run.number}", spec.tree, spec.runtime
    if not run.workspace.has(name):
        assert train is not None
        assert train.labels is not None
        text = TextSettings(idf="plain", min_df=spec.min_df)
        _, rows = DocumentFeatures.fit(train, text, runtime, run.progress)
        features = positive_features(rows, train.labels, keep=settings.label_features, threads=runtime.threads)
        tree = shallow_tree(
            features,
            leaf_size=settings.cluster_size,
            fan_out=settings.arity,
            height=settings.height,
            seed=run.seed,
            threads=runtime.threads,
            progress=run.progress,
        )
        run.workspace.save(name, tree.state())
    return LabelTree.from_arrays(run.workspace.load(name)[0])


def _plans(
    spec: TreeSpec, data: TrainingData, levels: Sequence[tuple[int, int, int]], run: MemberRun
) -> list[LevelPlan]:
    """Memory and time that training takes on each level, and where its rows are stored; ConfigError if it cannot fit.

    `levels` has the number of nodes, of parents, and the maximum number of children for each level. Trained members
    stay on the device.
    """
    tree, training, documents = spec.tree, spec.training, data.documents
    compute, device = arithmetic(spec.runtime, documents.device), documents.device
    sizes = Sizes(
        documents=len(documents),
        tokens=int(documents.lengths.sum()),
        labels=data.labels.nnz,
        words=len(data.table),
        word_width=data.table.shape[1],
        trained_words=spec.trained_words,
        width=spec.width,
        hidden=spec.hidden,
        batch=batch_size(training, len(documents), run.group) // run.group.size,
        processes=run.group.size,
        length=int(documents.lengths.max()),
        kept=KINDS[tree.rows].itemsize,
        averaged=training.averaging != "none",
        compute=compute.itemsize,
        chunk=chunk_memory(device),
    )
    rate, plans = product_rate(device, compute), []
    for number, (nodes, parents, most) in enumerate(levels):
        epochs, followed = tree.training(training, number).epochs, min(tree.beam_width, parents)
        plans.append(level_plan(sizes, nodes, parents, most, followed, epochs, rate, device.type))
    free, host = free_memory(device)
    others = (spec.members - 1 - run.number) * member_size(sizes, [nodes for nodes, _, _ in levels])
    return placed(plans, max(0, free - others), host)


# ---- updates


def _trained_from(
    spec: TreeSpec,
    levels: Levels,
    starts: Sequence[Arrays],
    fresh: NDArray[np.int64],
    batch: UpdateBatch,
    run: MemberRun,
) -> list[Network]:
    """The networks of all levels after a short training from `starts`; labels at `fresh` positions are new."""
    assert batch.complete is not None
    documents, labels, unknown = batch.complete
    tree, update = spec.tree, spec.update
    rate = tree.learning_rate if tree.learning_rate == "same" else update.learning_rate * tree.learning_rate
    short = dataclasses.replace(
        spec,
        tree=dataclasses.replace(tree, epochs="same", average_from="same", learning_rate=rate),
        training=update.training(spec.training),
    )
    data = TrainingData(None, starts[0][TABLE], documents, labels, None, batch.frequencies, unknown)
    plans = _plans(short, data, [(level.nodes, level.parents, level.most) for level in levels.levels], run)
    networks, _ = TreeTraining(short, levels, data, plans, run, starts).run()
    for level, (network, start) in enumerate(zip(networks, starts, strict=True)):
        absent = absent_from(levels.tree.node_labels(labels, level + 1))
        own = fresh if level + 1 == levels.tree.depth else fresh[:0]
        before = {name: read_tensor(array) for name, array in start.items()}
        settle(network, before, update.retention, len(batch.words), own, absent)
    return networks


def _revised_rows(network: Network, tree: LabelTree, revision: TreeRevision, level: int, carried: Csr) -> Tensor:
    """Attention rows of a level's nodes after the tree was revised; labels are mixtures of old ones by `carried`."""
    rows = network.get_parameter(ROWS).detach()
    if level + 1 < tree.depth:
        return rows[torch.from_numpy(revision.nodes[level + 1]).to(rows.device)]
    by_label = rows[torch.from_numpy(tree.place_of()).to(rows.device)]
    return carried_rows(by_label, carried)[torch.from_numpy(revision.tree.order)].to(rows.dtype)
