"""One training step of all levels of a label tree on one encoder.

The first level scores all its nodes. Every other level scores the children of a shortlist: the parents above the labels
of a document, then the parents that the levels above score best with their current weights. The rows of all shortlisted
children of a batch are copied from the table once, so that the logits of a level are one matrix product; a mask limits
the loss of a document to its own shortlist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.data.dataset import Csr
from xmtc.nn.documents import Documents, UnknownLabels
from xmtc.nn.heads.base import gradient_of, wide_type
from xmtc.nn.training.losses import CrossEntropy, PartialBatch, candidate_error
from xmtc.nn.training.objectives import Objective, distinct
from xmtc.nn.training.optimisers import BETA1, BETA2, EPSILON, Adam, Optimiser
from xmtc.nn.training.process_group import Group
from xmtc.nn.trees.cascade import CascadeHead
from xmtc.nn.trees.device_tree import Level, Levels
from xmtc.nn.trees.networks import ABSENT, BeamNodes, best_of
from xmtc.nn.trees.row_table import RowTable

SLICE = 1 << 14
"""Rows that are loaded, or updated, at once."""


class Shortlist(NamedTuple):
    """The nodes of a level that a batch is trained on; a slot is a place for a child of a shortlisted parent."""

    parents: Tensor
    """(P,) parents on any document's shortlist, ascending; then the extra number without children."""
    inside: Tensor
    """(B, P × most) which slots are nodes below a document's own shortlist."""
    nodes: Tensor
    """(P × most,) the node in each slot, −1 if there is none."""
    reached: Tensor
    """(B, P × most) probability of the parent of each slot."""


class LevelLabels:
    """The nodes of a level that each document has, and those that it decides on, rejected ones included."""

    def __init__(self, documents: Documents, labels: Csr, unknown: UnknownLabels | None, levels: Levels, number: int):
        tree = levels.tree
        truth = tree.node_labels(labels, number + 1)
        self.documents = documents.labelled(truth, None if unknown is None else unknown.of_nodes(tree, number + 1))
        decided = truth if unknown is None else tree.node_labels(labels + unknown.rejected, number + 1)
        self.counts = np.diff(decided.indptr).astype(np.int64)  # (N,)
        self.decided = self.documents if unknown is None else documents.labelled(decided)


def shortlist_sizes(
    counts: Sequence[NDArray[np.int64]], parents: Sequence[int], beams: Sequence[int], batch: int
) -> list[int]:
    """Maximum number of shortlisted parents of a batch, for each level below the first.

    The shortlist of a document is as long as the beam is wide, or longer if it has labels below more parents: `counts`
    (N,) has the number of these, for each level.
    """
    sizes = []
    for held, available, beam in zip(counts, parents, beams, strict=True):
        beyond = np.sort(np.maximum(held - beam, 0))[-batch:].sum()
        sizes.append(min(batch * beam + int(beyond), available))
    return sizes


class CascadeObjective(Objective):
    """Trains all levels of a tree; the rows below the first level have an optimiser of their own.

    Losses are summed over nodes: with their mean, gradients of a wide level would be smaller than Adam's ε. A step
    stores the errors of the logits and the document vectors, from which `put` computes the gradient and the update of a
    slice of rows at a time.
    """

    def __init__(
        self,
        head: CascadeHead,
        levels: Levels,
        truths: Sequence[LevelLabels],
        table: RowTable | None,
        group: Group,
        batch: int,
        *,
        beams: Sequence[int],
        weights: Sequence[float],
        compute: torch.dtype,
        sgd: float | None = None,
    ) -> None:
        self.head, self.levels, self.truths, self.table = head, levels, truths, table
        self.beams, self.weights = list(beams), list(weights)
        self.sgd = sgd
        """Learning rate of the rows relative to that of all other weights; None for Adam."""
        self.captures = table is None or not table.on_host
        self._group = group
        deep = levels.levels[1:]
        counts = [truth.counts for truth in truths[:-1]]
        self.sizes = shortlist_sizes(counts, [level.parents for level in deep], self.beams, batch)
        device = head.rows.device
        self.starts = [0]  # number of the first node of each level in the table
        self._slots = [0]  # number of the first slot of each level
        for level, size in zip(deep, self.sizes, strict=True):
            self.starts.append(self.starts[-1] + level.nodes)
            self._slots.append(self._slots[-1] + size * level.most)
        width = head.deep.shape[1]
        self._numbers = torch.zeros(self._slots[-1], dtype=torch.int64, device=device)  # row of each slot
        self._working = torch.zeros(self._slots[-1], width, dtype=compute, device=device)
        own = batch // group.size
        self._errors = torch.zeros(own, self._slots[-1], dtype=compute, device=device)
        self._vectors = torch.zeros(len(deep), own, width, dtype=compute, device=device)
        kind = wide_type(self._working)
        slice_size = min(SLICE, self._slots[-1])
        self._parts = [
            torch.zeros(slice_size, width, dtype=kind, device=device) for _ in range(3 if sgd is None else 1)
        ]
        self._optimiser: Adam | None = None

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        return self.head.chunk(batch, length, size, free)

    def bind(self, optimiser: Optimiser) -> None:
        assert isinstance(optimiser, Adam)
        self._optimiser = optimiser

    @torch.no_grad()
    def learn(self, rows: Tensor, encoded: Tensor, mask: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            given = encoded.detach().requires_grad_()
            parts = self.head.level_vectors(given)
        vectors = [part.detach() for part in parts]
        loss, gradient = self._learn_first(rows, vectors[0], chunk)
        gradients, shortlist = [gradient], None
        scores = self._first_scores(vectors[0], chunk) if len(vectors) > 1 else None
        for number in range(1, len(vectors)):
            assert scores is not None
            shortlist = self._shortlist(number, rows, scores, shortlist)
            part, gradient, scores = self._learn_deep(number, rows, vectors[number], shortlist)
            loss += part
            gradients.append(gradient)
        layers = [part for layer in self.head.layers for part in layer.parameters()]
        found = torch.autograd.grad(parts, [given, *layers], gradients)
        for parameter, change in zip(layers, found[1:], strict=True):
            gradient_of(parameter).add_(change)
        return loss, found[0]

    # ---- the first level

    def _learn_first(self, rows: Tensor, vectors: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        documents = self.truths[0].documents
        scale = self.weights[0] / len(vectors)
        positives, partial = documents.positives(rows), documents.partial(rows)
        return self.head.learn_by(CrossEntropy(), vectors, positives, chunk, scale, vectors.shape[1], partial)

    def _first_scores(self, vectors: Tensor, chunk: int) -> Tensor:
        """(B, nodes) probabilities."""
        nodes, empty = self.head.labels, vectors.new_empty(0)
        parts = [self.head.logits(vectors, empty, low, min(low + chunk, nodes)) for low in range(0, nodes, chunk)]
        return torch.sigmoid(torch.cat(parts, dim=1))

    # ---- the levels below

    def _shortlist(self, number: int, rows: Tensor, scores: Tensor, above: Shortlist | None) -> Shortlist:
        """The nodes to score on a level, by the scores (B, M) of the nodes above or of the slots there."""
        level, over = self.levels.levels[number], self.levels.levels[number - 1]
        beam, size = min(self.beams[number - 1], level.parents), self.sizes[number - 1]
        nodes = torch.arange(over.nodes, device=rows.device) if above is None else above.nodes
        wanted = self.truths[number - 1].decided.positives(rows)  # (B, m)
        columns = self._columns(over, above, wanted)
        favoured = torch.zeros(scores.shape, dtype=torch.int64, device=rows.device)
        favoured.scatter_add_(1, columns.clamp(min=0), (columns >= 0).long())
        best = best_of(BeamNodes(nodes.expand(scores.shape), scores), min(beam, scores.shape[1]), favoured > 0)
        missing = (best.nodes < 0) | ((best.scores < 0) & (best.nodes >= 0))
        listed = torch.cat([best.nodes.masked_fill(missing, -1), wanted], dim=1)
        listed = listed.masked_fill_(listed < 0, level.parents)
        parents = distinct(self._group.gathered(listed), size + 1, level.parents)[:size]
        places = torch.searchsorted(parents, listed).masked_fill_(listed == level.parents, size)
        chosen = torch.zeros(len(rows), size + 1, dtype=torch.bool, device=rows.device)
        chosen = chosen.scatter_(1, places, True)[:, :size]  # (B, P)
        children = level.children(parents)  # (P, most)
        reached = scores.index_select(1, self._columns(over, above, parents).clamp_(min=0))  # (B, P)
        return Shortlist(
            parents,
            (chosen[:, :, None] & (children >= 0)).flatten(1),
            children.flatten(),
            reached.clamp_(min=0.0).repeat_interleave(level.most, dim=1),
        )

    def _columns(self, level: Level, shortlist: Shortlist | None, nodes: Tensor) -> Tensor:
        """Columns of nodes among the scores of a level, −1 if there is none."""
        if shortlist is not None:
            return level.slots(shortlist.parents, nodes)
        return nodes.masked_fill((nodes < 0) | (nodes >= level.nodes), -1)

    def _learn_deep(
        self, number: int, rows: Tensor, vectors: Tensor, shortlist: Shortlist
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Loss of a level, its gradient in the vectors, and the probability of each slot along its path."""
        level, documents = self.levels.levels[number], self.truths[number].documents
        low, high = self._slots[number - 1], self._slots[number]
        working, numbers = self._working[low:high], self._numbers[low:high]
        nodes, start = shortlist.nodes, self.starts[number - 1]
        assert self.table is not None
        numbers.copy_(torch.where(nodes < 0, self.table.count, nodes + start))
        for at, end in _slices(0, high - low):
            self.table.take(numbers[at:end], [working[at:end]])
        logits = (vectors @ working.t()).to(wide_type(vectors))  # (B, P × most)
        places = level.slots(shortlist.parents, documents.positives(rows))
        targets = torch.zeros_like(logits).scatter_add_(1, places.clamp(min=0), (places >= 0).to(logits.dtype))
        known, partial = shortlist.inside.to(logits.dtype), documents.partial(rows)
        if partial is not None:
            rejected = level.slots(shortlist.parents, partial.rejected)
            known *= PartialBatch(partial.partial, rejected).known(places, 0, logits.shape[1], logits.dtype)
        loss, error = candidate_error(logits, targets, known)
        scale = self.weights[number] / len(rows)
        errors = self._errors[: len(rows), low:high].copy_(error.mul_(scale))
        self._vectors[number - 1, : len(rows)] = vectors
        scores = torch.where(shortlist.inside, torch.sigmoid(logits) * shortlist.reached, ABSENT)
        return loss * scale, errors @ working, scores

    # ---- the update of rows

    @torch.no_grad()
    def put(self) -> None:
        table, optimiser = self.table, self._optimiser
        if table is None:
            return
        assert optimiser is not None
        passed = 0
        slices = sum(-(-(high - low) // SLICE) for low, high in zip(self._slots, self._slots[1:], strict=False))
        for number in range(1, len(self._slots)):
            vectors = self._vectors[number - 1]
            for low, high in _slices(self._slots[number - 1], self._slots[number]):
                gradient = (self._errors[:, low:high].t() @ vectors).to(self._parts[0].dtype)
                self._group.average([gradient])
                parts = [part[: high - low] for part in self._parts]
                table.take(self._numbers[low:high], parts)
                if self.sgd is None:
                    _adam(parts, gradient, optimiser.rate, optimiser.count)
                else:
                    parts[0].sub_(gradient.mul_(self.sgd) * optimiser.rate)
                table.put(self._numbers[low:high], parts, optimiser.count.int() * slices + passed)
                passed += 1

    def averages_shown(self) -> AbstractContextManager[None]:
        return nullcontext() if self.table is None else self.table.shown(self.head.deep)

    def finish(self) -> None:
        if self.table is not None:
            self.head.hold(self.table.finished())


def _adam(parts: Sequence[Tensor], gradient: Tensor, rate: Tensor, count: Tensor) -> None:
    """One step of Adam, in place, on rows and their two moments."""
    rows, first, second = parts
    first.lerp_(gradient, 1 - BETA1)
    second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    below = second.sqrt().div_((1 - BETA2**count).sqrt()).add_(EPSILON)
    rows.sub_(first.div(below).mul_(rate / (1 - BETA1**count)))


def _slices(low: int, high: int) -> Iterator[tuple[int, int]]:
    for at in range(low, high, SLICE):
        yield at, min(at + SLICE, high)
