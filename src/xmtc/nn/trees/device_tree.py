"""A label tree as tensors: the children of each node, and the positions of nodes among candidates."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.labels.tree import LabelTree


class Level:
    """The nodes that one network scores, and their parents on the level above.

    The children of a parent are consecutive. `most` is the maximum number of children.
    """

    def __init__(self, starts: NDArray[np.int64], device: torch.device) -> None:
        starts = starts.astype(np.int64)  # files may have another integer type
        self.parents, self.nodes = len(starts) - 1, int(starts[-1])
        counts = np.diff(starts)
        self.most = int(counts.max())
        self._starts = torch.from_numpy(np.append(starts, starts[-1])).to(device)  # number `parents` has no children
        self._parent = torch.from_numpy(np.repeat(np.arange(self.parents), counts)).to(device)  # (nodes,)

    def children(self, parents: Tensor) -> Tensor:
        """(…, most) children of each parent, −1 as padding; the extra number `parents` has none."""
        nodes = self._starts[parents][..., None] + torch.arange(self.most, device=parents.device)
        return nodes.masked_fill_(nodes >= self._starts[parents + 1][..., None], -1)

    def places(self, parents: Tensor, nodes: Tensor) -> Tensor:
        """(B, m) positions of nodes (B, m) among the C × most children of parents (B, C); −1 if not among them."""
        held = nodes.clamp(min=0)
        above = self._parent[held]
        same = parents[:, None, :] == above[..., None]  # (B, m, C)
        places = same.to(torch.uint8).argmax(2) * self.most + held - self._starts[above]
        return places.masked_fill_(~same.any(2) | (nodes < 0), -1)

    def slots(self, parents: Tensor, nodes: Tensor) -> Tensor:
        """Positions of nodes (…) among the P × most children of ascending parents (P,); −1 if not among them."""
        held = nodes.clamp(0, self.nodes - 1)
        above = self._parent[held]
        blocks = torch.searchsorted(parents, above).clamp_(max=len(parents) - 1)
        there = (parents[blocks] == above) & (nodes == held)
        return (blocks * self.most + held - self._starts[above]).masked_fill_(~there, -1)


class Levels:
    """All levels of a tree, from the top; the nodes of the last level are the labels, leaf by leaf."""

    def __init__(self, tree: LabelTree, device: torch.device) -> None:
        self.tree = tree
        self.levels = [Level(starts, device) for starts in tree.starts]
        self.order = torch.from_numpy(tree.order.astype(np.int64)).to(device)  # (L,) the label at each position
        self._device = device
        self._above: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.levels)

    def nodes_of(self, level: int, labels: Tensor) -> Tensor:
        """The ancestors of given labels on a level; −1 is kept."""
        if level not in self._above:
            self._above[level] = torch.from_numpy(self.tree.node_of(level + 1)).to(self._device)  # (L,)
        return self._above[level][labels.clamp(min=0)].masked_fill_(labels < 0, -1)

    def allowed(self, level: int, labels: NDArray[np.bool_]) -> Tensor:
        """(nodes,) whether any label below each node is allowed."""
        nodes = np.zeros(self.levels[level].nodes, dtype=bool)
        nodes[self.tree.node_of(level + 1)[labels]] = True
        return torch.from_numpy(nodes).to(self._device)
