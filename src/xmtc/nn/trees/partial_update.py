"""Updates of a label tree with documents that have unknown labels: the rows of decided labels in the last level.

The nodes above keep their weights, since their scores count for all labels below them.
"""

from __future__ import annotations

import numpy as np
import torch

from xmtc.nn.heads.base import candidate_head
from xmtc.nn.members import MemberRun, UpdateDocuments, learn_decisions, network_arrays
from xmtc.nn.network import TABLE, Network
from xmtc.nn.tensors import load_weights
from xmtc.nn.training.objectives import ROWS
from xmtc.nn.trees.device_tree import Levels
from xmtc.nn.trees.training import TreeSpec


@torch.no_grad()
def decide_in_tree(
    spec: TreeSpec, levels: Levels, last: Network, known: int, decisions: UpdateDocuments, run: MemberRun
) -> None:
    """Train the rows of decided labels of the `last` level; labels below `known` are old ones.

    The other rows, of which there may be very many, are not touched: a network with decided labels alone is trained.
    """
    decided, head, arrays = decisions.decided, candidate_head(last.head), network_arrays(last)
    network = spec.network(arrays[TABLE], len(decided))
    load_weights(network, arrays, but=ROWS)
    positions = torch.from_numpy(levels.tree.place_of()[decided]).to(head.rows.device)
    small = candidate_head(network.head)
    small.rows.copy_(head.rows[positions])
    places = np.full(len(levels.tree), -1, dtype=np.int64)
    places[decided] = np.arange(len(decided))
    learn_decisions(network, places, known, decisions, spec, spec.tree.training(spec.training, 1), run)
    rows = head.rows.detach().clone()  # the model before the update may share their memory
    rows[positions] = small.rows.to(rows)
    head.hold(rows)
