"""Updates of a label tree on one encoder with documents that have unknown labels: the rows of decided labels alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from xmtc.nn.encoders.base import Encoder
from xmtc.nn.heads.base import LinearHead
from xmtc.nn.members import MemberRun, MemberSpec, UpdateDocuments, learn_decisions
from xmtc.nn.network import Network
from xmtc.nn.trees.cascade import CascadeHead
from xmtc.nn.trees.device_tree import Levels


class LastVector(Encoder):
    """The document vector (B, width) that the labels are read from."""

    captures = False

    def __init__(self, encoder: Encoder, head: CascadeHead, width: int) -> None:
        super().__init__()
        self.encoder, self.head, self.width = encoder, head, width

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        return self.head.level_vectors(self.encoder(words, mask))[-1][:, : self.width]


@torch.no_grad()
def decide_in_cascade(
    spec: MemberSpec, levels: Levels, network: Network, known: int, decisions: UpdateDocuments, run: MemberRun
) -> None:
    """Train the rows of decided labels, in place; labels below `known` are old ones, and all other rows are fixed."""
    head, decided = network.head, decisions.decided
    assert isinstance(head, CascadeHead)
    is_flat, labels = len(levels) == 1, levels.levels[-1].nodes
    rows = head.rows if is_flat else head.deep[len(head.deep) - labels :]
    width = rows.shape[1] if is_flat else head.inner
    positions = torch.from_numpy(levels.tree.place_of()[decided]).to(rows.device)
    small = LinearHead(len(decided), width)
    small.rows.copy_(rows[positions, :width])
    small.bias.copy_(head.bias[positions] if is_flat else rows[positions, width])
    encoder = LastVector(network.encoder, head, width)
    reader = Network(network.table.detach(), encoder, small, trained_words=False, compute=network.compute)
    places = np.full(len(levels.tree), -1, dtype=np.int64)
    places[decided] = np.arange(len(decided))
    learn_decisions(reader.to(spec.device), places, known, decisions, spec, spec.training, run)
    rows[positions, :width] = small.rows.to(rows)
