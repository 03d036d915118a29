"""Prediction with the networks of a label tree: beam search down the levels, and the path to given labels.

The probability of a node is the output of its network times the probability of its parent. Negative scores mark nodes
that do not exist or must not be returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.nn.device import chunk_memory
from xmtc.nn.documents import Documents
from xmtc.nn.heads.base import candidate_head
from xmtc.nn.network import Network
from xmtc.nn.prediction import DOCUMENTS, TOKENS, sortable
from xmtc.nn.trees.device_tree import Level, Levels
from xmtc.text.batches import sorted_batches

ABSENT = -1.0
SHORTLIST = 20
"""Minimum number of labels that each of several trees proposes."""


class BeamNodes(NamedTuple):
    """Nodes of a level for each document, and their probabilities: both (B, m)."""

    nodes: Tensor
    scores: Tensor


Encoded = list[tuple[Tensor, Tensor]]
"""Encoded documents and their mask, for each level."""


class NodeHead(Protocol):
    """The part of a head that scores nodes: all of a level, or given ones."""

    def logits(self, encoded: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        """(B, high − low) logits of consecutive nodes."""

    def candidate_logits(self, encoded: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        """(B, K) logits of nodes given for each document; negative candidates are ignored."""


class ScoredTree(ABC):
    """A label tree whose nodes are scored level by level, from the top; `beams` has the beam width below each level."""

    def __init__(self, levels: Levels, beams: Sequence[int]) -> None:
        self.levels, self.beams = levels, list(beams)

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device of the networks."""

    @abstractmethod
    def encoded(self, tokens: Tensor) -> Encoded:
        """Encode documents (B, T) for each level."""

    @abstractmethod
    def head_of(self, level: int) -> NodeHead:
        """The part of the networks that scores the nodes of a level."""

    @abstractmethod
    def chunk(self, level: int, batch: int, length: int, candidates: int, free: int) -> int:
        """Nodes of a level to score at once within `free` bytes, of as many candidates per document; 0 for all."""

    def widths(self, k: int, allowed: NDArray[np.bool_] | None = None) -> list[int]:
        """Beam widths to reach k labels: the configured ones, or more if leaves have too few allowed labels."""
        starts = self.levels.tree.starts[-1]
        held = np.diff(starts)
        if allowed is not None:
            held = np.add.reduceat(allowed[self.levels.tree.order].astype(np.int64), starts[:-1])
        least = -(-k // int(held[held > 0].min(initial=k)))
        return [max(beam, least) for beam in self.beams]

    def path(self, documents: Documents, label: int) -> list[float]:
        """For a single document, the probability given by each level on the path to a label."""
        labels = torch.tensor([[label]], device=self.device)
        tokens = documents.tokens(torch.zeros(1, dtype=torch.int64, device=self.device), int(documents.lengths[0]))
        answers = []
        for level, part in enumerate(self.encoded(tokens)):
            nodes = self.levels.nodes_of(level, labels)
            answers.append(float(torch.sigmoid(self.head_of(level).candidate_logits(*part, nodes, 1))[0, 0]))
        return answers

    def steps(self, documents: Documents, label: int) -> list[tuple[float, NDArray[np.int64]]]:
        """For a single document: the probability of each node on the path to a label, and the labels below the node."""
        steps = []
        for level, probability in enumerate(self.path(documents, label)):
            nodes = self.levels.tree.node_of(level + 1)
            steps.append((probability, np.flatnonzero(nodes == nodes[label])))
        return steps


class TreeNetwork(ScoredTree):
    """A label tree and the network of each of its levels, from the top."""

    def __init__(self, levels: Levels, networks: Sequence[Network], beam: int) -> None:
        super().__init__(levels, [beam] * (len(levels) - 1))
        self.networks = [network.eval() for network in networks]

    @property
    def device(self) -> torch.device:
        return self.networks[0].table.device

    def encoded(self, tokens: Tensor) -> Encoded:
        return [network.encode(tokens) for network in self.networks]

    def head_of(self, level: int) -> NodeHead:
        return self.networks[level].head

    def chunk(self, level: int, batch: int, length: int, candidates: int, free: int) -> int:
        return chunk_of(self.networks[level], batch, length, candidates, free)

    def network_of(self, label: int) -> tuple[Network, int]:
        """The network that scores a label, and the label's row in it."""
        return self.networks[-1], int(self.levels.tree.place_of()[label])


def level_scores(
    head: NodeHead, encoded: tuple[Tensor, Tensor], level: Level, above: BeamNodes | None, chunk: int
) -> BeamNodes:
    """Score all nodes of the top level, or the children of those above; ABSENT marks missing children."""
    if above is None:
        parts = [head.logits(*encoded, low, min(low + chunk, level.nodes)) for low in range(0, level.nodes, chunk)]
        logits = torch.cat(parts, dim=1)
        return BeamNodes(torch.arange(level.nodes, device=logits.device).expand(logits.shape), torch.sigmoid(logits))
    nodes = level.children(above.nodes).flatten(1)
    reached = above.scores.repeat_interleave(level.most, dim=1)
    own = torch.sigmoid(head.candidate_logits(*encoded, nodes, chunk))
    return BeamNodes(nodes, torch.where((nodes < 0) | (reached < 0), ABSENT, own * reached))


def best_of(found: BeamNodes, count: int, favoured: Tensor | None = None) -> BeamNodes:
    """The `count` best nodes, best first, `favoured` ones (B, m) before others; ties by the smaller number."""
    keys = sortable(found.scores, found.nodes)
    if favoured is not None:
        keys = keys + (favoured.long() << 62)
    order = keys.topk(count, dim=1).indices
    return BeamNodes(found.nodes.gather(1, order), found.scores.gather(1, order))


def chunk_of(network: Network, batch: int, length: int, candidates: int, free: int) -> int:
    """Number of nodes to score at once; `candidates` is the number per document, 0 for all nodes."""
    head, size = candidate_head(network.head), network.compute.itemsize
    if not candidates:
        return head.chunk(batch, length, size, free)
    return head.candidate_chunk(batch, length, size, free, candidates)


def best_in_trees(
    trees: Sequence[ScoredTree], documents: Documents, k: int, allowed: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(n, k) labels and probabilities, best first; `allowed` (L,) masks the labels that may be returned.

    With several trees, each proposes its best labels, and all trees score all of them.
    """
    found = np.full((len(documents), k), -1, dtype=np.int64)
    given = np.full((len(documents), k), -np.inf, dtype=np.float32)
    wanted = k if len(trees) == 1 else max(k, SHORTLIST)
    ways = [_Way(tree.widths(k, allowed), _masks(tree, allowed)) for tree in trees]
    for rows, length, encoded in _encoded(trees, documents):
        lists = [_search(tree, part, wanted, length, way) for tree, part, way in zip(trees, encoded, ways, strict=True)]
        answer = lists[0] if len(trees) == 1 else _scored_by_all(trees, encoded, lists, k, length)
        width = answer.nodes.shape[1]
        found[rows, :width], given[rows, :width] = answer.nodes.cpu().numpy(), answer.scores.cpu().numpy()
    found[given < 0] = -1
    given[given < 0] = -np.inf
    return found, given


def scores_in_trees(
    trees: Sequence[ScoredTree], documents: Documents, candidates: NDArray[np.int64]
) -> NDArray[np.float32]:
    """(n, c) probabilities of given labels; negative candidates are ignored."""
    scores = np.empty(candidates.shape, dtype=np.float32)
    for rows, length, encoded in _encoded(trees, documents):
        labels = torch.from_numpy(candidates[rows]).to(trees[0].device)
        scores[rows] = _path_scores(trees, encoded, labels, length).cpu().numpy()
    return scores


def _encoded(
    trees: Sequence[ScoredTree], documents: Documents
) -> Iterator[tuple[NDArray[np.int64], int, list[Encoded]]]:
    """Encode documents in batches: yields their rows, the padded length, and the encodings by all levels."""
    kind = trees[0].device.type
    for rows, length in sorted_batches(documents.lengths, TOKENS[kind], DOCUMENTS[kind]):
        tokens = documents.tokens(torch.from_numpy(rows).to(trees[0].device), length)
        yield rows, length, [tree.encoded(tokens) for tree in trees]


class _Way(NamedTuple):
    """How a tree is searched: the beam widths, and the allowed nodes (nodes,) of each level."""

    beams: list[int]
    masks: list[Tensor] | None


def _masks(tree: ScoredTree, allowed: NDArray[np.bool_] | None) -> list[Tensor] | None:
    """For each level, a mask (nodes,) of the nodes that may be followed."""
    return None if allowed is None else [tree.levels.allowed(level, allowed) for level in range(len(tree.levels))]


def _search(tree: ScoredTree, encoded: Encoded, k: int, length: int, way: _Way) -> BeamNodes:
    """(B, ≤ k) the best labels that the beam reaches."""
    above: BeamNodes | None = None
    free = chunk_memory(tree.device)
    last = len(tree.levels) - 1
    for number, (level, part) in enumerate(zip(tree.levels.levels, encoded, strict=True)):
        candidates = 0 if above is None else above.nodes.shape[1] * level.most
        chunk = tree.chunk(number, len(part[0]), length, candidates, free)
        found = level_scores(tree.head_of(number), part, level, above, chunk)
        if way.masks is not None:
            barred = ~way.masks[number][found.nodes.clamp(min=0)]
            found = found._replace(scores=found.scores.masked_fill(barred, ABSENT))
        if number == last:
            labels = tree.levels.order[found.nodes.clamp(min=0)]
            return best_of(BeamNodes(labels, found.scores), min(k, labels.shape[1]))
        above = best_of(found, min(way.beams[number], level.nodes, found.nodes.shape[1]))
        above = above._replace(nodes=above.nodes.clamp(min=0))
    raise AssertionError("a tree has at least one level")


def _path_scores(trees: Sequence[ScoredTree], encoded: list[Encoded], labels: Tensor, length: int) -> Tensor:
    """(B, c) probabilities of given labels: the product along the path, averaged over the trees."""
    free = chunk_memory(trees[0].device)
    total = torch.zeros(labels.shape, device=labels.device)
    for tree, parts in zip(trees, encoded, strict=True):
        product = torch.ones_like(total)
        for number, part in enumerate(parts):
            nodes = tree.levels.nodes_of(number, labels)
            chunk = tree.chunk(number, len(labels), length, max(1, labels.shape[1]), free)
            product *= torch.sigmoid(tree.head_of(number).candidate_logits(*part, nodes, chunk))
        total += product
    return total / len(trees)


def _scored_by_all(
    trees: Sequence[ScoredTree], encoded: list[Encoded], lists: list[BeamNodes], k: int, length: int
) -> BeamNodes:
    """The best k labels that any tree proposes, by the mean probability over all trees."""
    labels = torch.cat([found.nodes.masked_fill(found.scores < 0, -1) for found in lists], dim=1).sort(dim=1).values
    again = torch.zeros_like(labels, dtype=torch.bool)
    again[:, 1:] = labels[:, 1:] == labels[:, :-1]
    labels = labels.masked_fill(again, -1)
    scores = _path_scores(trees, encoded, labels, length).masked_fill(labels < 0, ABSENT)
    return best_of(BeamNodes(labels, scores), min(k, labels.shape[1]))
