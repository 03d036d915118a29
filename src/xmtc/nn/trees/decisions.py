"""Updates of a label tree with documents that have unknown labels: the rows of decided labels in the last level.

The nodes above keep their weights, since their scores count for all labels below them.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.nn.device import chunk_memory
from xmtc.nn.heads.base import candidate_head
from xmtc.nn.members import MemberRun, UpdateDocuments, network_arrays
from xmtc.nn.network import TABLE, Network
from xmtc.nn.tensors import load_weights, read_tensor
from xmtc.nn.training.fine_tuning import only_label_rows, settle
from xmtc.nn.training.loop import Trainer, batch_size
from xmtc.nn.training.objectives import ROWS, CandidateObjective, slots_for
from xmtc.nn.trees.device_tree import Levels
from xmtc.nn.trees.memory_plan import place_of
from xmtc.nn.trees.row_table import RowTable
from xmtc.nn.trees.training import KINDS, TreeSpec, load_level


def trained_on_decisions(
    spec: TreeSpec,
    levels: Levels,
    before: Network,
    fresh: NDArray[np.int64],
    decisions: UpdateDocuments,
    run: MemberRun,
) -> Network:
    """The network of the last level after a short training on decided labels; labels at `fresh` positions are new."""
    level, tree, done = levels.levels[-1], levels.tree, f"decisions-{run.number}"
    weights, settings = network_arrays(before), spec.update.decision_training(spec.tree.training(spec.training, 1))
    place = place_of(weights[ROWS].nbytes, spec.device)
    if run.workspace.has(done):
        network = spec.network(weights[TABLE], 1)
        load_level(network, run.workspace.map(done)[0], level.nodes, place)
    else:
        assert decisions.partial is not None
        partial = decisions.partial.of_nodes(tree, tree.depth)
        documents = decisions.documents.labelled(tree.node_labels(decisions.labels, tree.depth), partial)
        parents = torch.from_numpy(decided_parents(levels, decisions, spec.tree.beam_width)).to(spec.device)
        batch = batch_size(settings, len(documents), run.group)
        network = spec.network(weights[TABLE], slots_for(batch, parents.shape[1], level.parents + 1, level.most))
        head = candidate_head(network.head)
        load_weights(network, weights, but=ROWS)
        kind, averaged = KINDS[spec.tree.rows], settings.averaging != "none"
        table = RowTable(level.nodes, head.rows.shape[1], place=place, kind=kind, averaged=averaged)
        table.draw(lambda low, high: read_tensor(weights[ROWS][low:high]))
        with only_label_rows(network):
            trainer = Trainer(
                network,
                documents,
                settings,
                seed=run.seed,
                free=chunk_memory(documents.device),
                validate=None,
                log=lambda line: run.workspace.log({"member": run.number, **line}),
                group=run.group,
                objective=CandidateObjective(head, documents, level, parents, table, run.group, batch),
            )
            trainer.run(run.progress, run.workspace, f"checkpoint-{done}", "training on decisions")
        if run.group.leads:
            run.workspace.save(done, network_arrays(network), {})
            run.workspace.drop(f"checkpoint-{done}")
    start = {name: read_tensor(array) for name, array in weights.items()}
    settle(network, start, spec.update.retention, 0, fresh, tree.place_of()[decisions.undecided])
    return network.eval()


def decided_parents(levels: Levels, decisions: UpdateDocuments, most: int) -> NDArray[np.int64]:
    """(N, C) parents of the labels that each document trains, the number of parents as padding.

    A document with unknown labels trains those that it decides on; complete ones train labels that others decide on:
    those below parents of their own labels first, at most `most` parents in all.
    """
    assert decisions.partial is not None
    level, tree = levels.levels[-1], levels.tree
    parent_of = tree.parents(tree.depth)[tree.place_of()]  # (L,)
    wanted = np.unique(parent_of[decisions.decided])
    labels, rejected = decisions.labels, decisions.partial.rejected
    lists = []
    for row, partial in enumerate(decisions.partial.partial.tolist()):
        own = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
        if partial:
            own = np.append(own, rejected.indices[rejected.indptr[row] : rejected.indptr[row + 1]])
            lists.append(np.unique(parent_of[own]))
            continue
        above = np.intersect1d(wanted, parent_of[own])
        lists.append(np.append(above, np.setdiff1d(wanted, above)[: max(0, most - len(above))]))
    parents = np.full((len(lists), max(1, *map(len, lists))), level.parents, dtype=np.int64)
    for row, own in enumerate(lists):
        parents[row, : len(own)] = own
    return parents
