"""What logits are learnt by, a chunk of labels at a time; binary cross-entropy, whose gradient is σ(x) − y.

Gradients are taken straight from the logits; no loss tensor is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class ScoredLabels(NamedTuple):
    """All labels as a head scores them for a batch, without ever holding all logits."""

    labels: int
    chunk: int
    """Labels to take at once."""
    logits: Callable[[int, int], Tensor]
    """(B, high − low) of the labels low … high − 1."""
    given: Callable[[Tensor], Tensor]
    """(B, m) of labels given for each document."""

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Neighbouring labels, from low to high."""
        for low in range(0, self.labels, self.chunk):
            yield low, min(low + self.chunk, self.labels)


class ChunkError(NamedTuple):
    """Summed loss of the labels low … high − 1, and its gradient (B, high − low) in their logits."""

    low: int
    high: int
    loss: Tensor
    error: Tensor


class LabelLoss(Protocol):
    """What logits of all labels are learnt by, a chunk of labels at a time."""

    def errors(self, scored: ScoredLabels, positives: Tensor) -> Iterator[ChunkError]:
        """The error of each chunk in turn; `positives` (B, m) are the labels of each document, −1 as pads."""


class CrossEntropy:
    """Every label by itself."""

    def errors(self, scored: ScoredLabels, positives: Tensor) -> Iterator[ChunkError]:
        for low, high in scored.chunks():
            yield ChunkError(low, high, *dense_error(scored.logits(low, high), positives, low))


def dense_error(logits: Tensor, positives: Tensor, low: int) -> tuple[Tensor, Tensor]:
    """Summed loss, and σ − y, of the labels low … low + C − 1.

    `logits` (B, C); `positives` (B, m) label numbers of each document among all labels, −1 as pads.
    """
    width = logits.shape[1]
    inside = ((positives >= low) & (positives < low + width)).to(logits.dtype)
    places = (positives - low).clamp(0, width - 1)
    loss = F.softplus(logits).sum() - (logits.gather(1, places) * inside).sum()
    error = torch.sigmoid(logits).scatter_add_(1, places, -inside)
    return loss, error


def candidate_error(logits: Tensor, targets: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Summed loss, and σ − y, of labels given for each document: all (B, K), `given` 0 where there is none."""
    loss = ((F.softplus(logits) - logits * targets) * given).sum()
    return loss, (torch.sigmoid(logits) - targets) * given
