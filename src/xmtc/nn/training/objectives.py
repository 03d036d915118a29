"""Objectives: which labels a step trains the head on, all of them or candidates of each document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from xmtc.nn.documents import Documents
from xmtc.nn.heads.base import CandidateHead, Head
from xmtc.nn.training.losses import PartialBatch
from xmtc.nn.training.optimisers import Adam, Optimiser
from xmtc.nn.training.process_group import Group
from xmtc.nn.trees.device_tree import Level
from xmtc.nn.trees.row_table import RowTable

ROWS = "head.rows"
"""The parameter of a `CandidateHead` that is stored in a table."""


class Objective(ABC):
    """A step consists of `take`, `learn`, the optimiser step and `put`."""

    table: RowTable | None = None
    """Rows of which the head trains a few at a time."""
    table_parameters: frozenset[str] = frozenset()
    """Network parameters that have rows of the table during a step."""
    captures: bool = True
    """Whether `learn` can be captured in a CUDA graph: it never reads results back from the device."""

    @abstractmethod
    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        """Number of labels to process at once within `free` bytes, in numbers of `size` bytes."""

    @abstractmethod
    def learn(self, rows: Tensor, encoded: Tensor, mask: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        """Mean loss of these documents, and its gradient in the encoding; the head's gradients are accumulated."""

    def encoded(self, rows: Tensor) -> tuple[Tensor, Tensor] | None:
        """Encoded documents and their mask, if the encoder is not trained and they are known; otherwise None."""
        return None

    def bind(self, optimiser: Optimiser) -> None:
        """Register the optimiser, whose moments are stored with the rows."""
        return

    def take(self, rows: Tensor) -> None:
        """Load the rows that the head needs for these documents."""
        return

    def put(self) -> None:
        """Store the updated rows."""
        return

    def averages_shown(self) -> AbstractContextManager[None]:
        """Use the averaged rows of the table in the head, temporarily."""
        return nullcontext()

    def finish(self) -> None:
        """Leave the best rows of the table in the head."""
        return


class AllLabelsObjective(Objective):
    """Trains on all labels."""

    def __init__(self, head: Head, documents: Documents) -> None:
        self.head, self.documents = head, documents

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        return self.head.chunk(batch, length, size, free)

    def learn(self, rows: Tensor, encoded: Tensor, mask: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        positives, partial = self.documents.positives(rows), self.documents.partial(rows)
        if partial is None:
            return self.head.learn(encoded, mask, positives, chunk)
        return self.head.learn(encoded, mask, positives, chunk, partial)


class GivenLabelsObjective(Objective):
    """Trains on labels that are given for each document, with targets from 0 to 1.

    The encoder is not trained, and vectors of the documents may be given.
    """

    def __init__(
        self,
        head: Head,
        candidates: Tensor,  # (N, K), −1 as padding
        targets: Tensor,  # (N, K)
        vectors: Tensor | None = None,  # (N, d)
    ) -> None:
        self.head, self.candidates, self.targets, self.vectors = head, candidates, targets, vectors

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        return self.head.candidate_chunk(batch, length, size, free, self.candidates.shape[1])

    def encoded(self, rows: Tensor) -> tuple[Tensor, Tensor] | None:
        if self.vectors is None:
            return None
        return self.vectors.index_select(0, rows), self.vectors.new_empty(0)  # vectors need no mask

    def learn(self, rows: Tensor, encoded: Tensor, mask: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        candidates, targets = self.candidates.index_select(0, rows), self.targets.index_select(0, rows)
        return self.head.learn_candidates(encoded, mask, candidates, targets, chunk)


class CandidateObjective(Objective):
    """Trains on the children of parents that are given for each document; other nodes are ignored.

    The head has `slots_for` rows, which are loaded from the table for each batch and written back.
    """

    table_parameters = frozenset({ROWS})

    def __init__(
        self,
        head: CandidateHead,
        documents: Documents,
        level: Level,
        parents: Tensor,  # (N, C) candidate parents of each document
        table: RowTable,
        group: Group,
        batch: int,
    ) -> None:
        self.head, self.documents, self.level, self.parents = head, documents, level, parents
        self.table: RowTable = table
        self._group = group
        own, count = batch // group.size, parents.shape[1] * level.most
        device = parents.device
        self._numbers = torch.zeros(head.labels, dtype=torch.int64, device=device)  # row numbers in the table
        self._slots = torch.zeros(own, count, dtype=torch.int64, device=device)
        self._targets = torch.zeros(own, count, device=device)
        self._working: list[Tensor] = []
        self._step = torch.zeros((), device=device)

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        return self.head.candidate_chunk(batch, length, size, free, self._slots.shape[1])

    def bind(self, optimiser: Optimiser) -> None:
        assert isinstance(optimiser, Adam)
        self._working = [self.head.rows.data, optimiser.first[ROWS], optimiser.second[ROWS]]
        self._step = optimiser.count

    @torch.no_grad()
    def take(self, rows: Tensor) -> None:
        level, most = self.level, self.level.most
        parents = self.parents.index_select(0, rows).long()  # (B, C)
        numbers = distinct(self._group.gathered(parents), len(self._numbers) // most, level.parents)
        children = level.children(numbers).view(-1)
        self._numbers.copy_(children.masked_fill_(children < 0, level.nodes))
        slots = torch.searchsorted(numbers, parents)[..., None] * most + torch.arange(most, device=rows.device)
        self._slots.copy_(slots.masked_fill_(level.children(parents) < 0, -1).flatten(1))
        places = level.places(parents, self.documents.positives(rows))
        self._targets.zero_().scatter_add_(1, places.clamp(min=0), (places >= 0).to(self._targets.dtype))
        partial = self.documents.partial(rows)
        if partial is not None:  # unknown nodes become padding
            rejected = level.places(parents, partial.rejected)
            known = PartialBatch(partial.partial, rejected).known(places, 0, slots.shape[1] * most, torch.float32)
            self._slots.masked_fill_(known == 0, -1)
        self.table.take(self._numbers, self._working)

    def learn(self, rows: Tensor, encoded: Tensor, mask: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        return self.head.learn_candidates(encoded, mask, self._slots, self._targets, chunk)

    def put(self) -> None:
        self.table.put(self._numbers, self._working, self._step.int())

    def averages_shown(self) -> AbstractContextManager[None]:
        return self.table.shown(self.head.rows)

    def finish(self) -> None:
        self.head.hold(self.table.finished())


def slots_for(documents: int, followed: int, parents: int, most: int) -> int:
    """Maximum number of rows that a step needs: `most` below each of the parents in the beam."""
    return min(documents * followed, parents) * most


def distinct(numbers: Tensor, most: int, rest: int) -> Tensor:
    """(most,) the distinct values, ascending, then `rest`; there must be at most `most` of them.

    Nothing is read back from the device, so that it can be part of a captured step.
    """
    ordered = numbers.flatten().sort().values
    is_new = torch.ones_like(ordered)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return torch.full((most,), rest, dtype=ordered.dtype, device=ordered.device).scatter_(
        0, is_new.cumsum(0) - 1, ordered
    )
