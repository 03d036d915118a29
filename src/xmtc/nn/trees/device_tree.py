"""A label tree on the device: what hangs below each node, and where nodes stand among candidates."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.labels.tree import LabelTree


class Level:
    """Nodes that one network tells apart, and how they hang below those of the level above.

    The children of a parent are neighbours. `most` is the largest number of them.
    """

    def __init__(self, starts: NDArray[np.int64], device: torch.device) -> None:
        starts = starts.astype(np.int64)  # a file may have them in another type
        self.parents, self.nodes = len(starts) - 1, int(starts[-1])
        counts = np.diff(starts)
        self.most = int(counts.max())
        self._starts = torch.from_numpy(np.append(starts, starts[-1])).to(device)  # number `parents` has no children
        self._parent = torch.from_numpy(np.repeat(np.arange(self.parents), counts)).to(device)  # (nodes,)

    def children(self, parents: Tensor) -> Tensor:
        """(…, most) the nodes below each parent, −1 where there are fewer; below number `parents` there are none."""
        nodes = self._starts[parents][..., None] + torch.arange(self.most, device=parents.device)
        return nodes.masked_fill_(nodes >= self._starts[parents + 1][..., None], -1)

    def places(self, parents: Tensor, nodes: Tensor) -> Tensor:
        """(B, m) where nodes (B, m) stand among the children of parents (B, C), C × most of them; −1 for elsewhere."""
        held = nodes.clamp(min=0)
        above = self._parent[held]
        same = parents[:, None, :] == above[..., None]  # (B, m, C)
        places = same.to(torch.uint8).argmax(2) * self.most + held - self._starts[above]
        return places.masked_fill_(~same.any(2) | (nodes < 0), -1)


class Levels:
    """All levels of a tree, from the top; the nodes of the last are the labels, leaf after leaf."""

    def __init__(self, tree: LabelTree, device: torch.device) -> None:
        self.tree = tree
        self.levels = [Level(starts, device) for starts in tree.starts]
        self.order = torch.from_numpy(tree.order.astype(np.int64)).to(device)  # (L,) labels by place
        self._device = device
        self._above: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.levels)

    def nodes_of(self, level: int, labels: Tensor) -> Tensor:
        """The nodes of a level above given labels; −1 stays."""
        if level not in self._above:
            self._above[level] = torch.from_numpy(self.tree.node_of(level + 1)).to(self._device)  # (L,)
        return self._above[level][labels.clamp(min=0)].masked_fill_(labels < 0, -1)

    def allowed(self, level: int, labels: NDArray[np.bool_]) -> Tensor:
        """(nodes,) whether any label below a node is allowed."""
        nodes = np.zeros(self.levels[level].nodes, dtype=bool)
        nodes[self.tree.node_of(level + 1)[labels]] = True
        return torch.from_numpy(nodes).to(self._device)
