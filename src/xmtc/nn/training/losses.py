"""Label losses computed in chunks of labels; binary cross-entropy, whose gradient is σ(x) − y.

Gradients are computed directly from the logits; no loss tensor is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class ScoredLabels(NamedTuple):
    """Access to the logits of all labels for a batch, without storing them all."""

    labels: int
    chunk: int
    """Labels per chunk."""
    logits: Callable[[int, int], Tensor]
    """(B, high − low) logits of the labels low … high − 1."""
    given: Callable[[Tensor], Tensor]
    """(B, m) logits of labels given for each document."""

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Ranges (low, high) of consecutive labels."""
        for low in range(0, self.labels, self.chunk):
            yield low, min(low + self.chunk, self.labels)


class ChunkError(NamedTuple):
    """Summed loss of the labels low … high − 1, and its gradient (B, high − low) in their logits."""

    low: int
    high: int
    loss: Tensor
    error: Tensor


class LabelLoss(Protocol):
    """A loss over the logits of all labels, computed in chunks of labels."""

    def errors(self, scored: ScoredLabels, positives: Tensor) -> Iterator[ChunkError]:
        """The error of each chunk in turn; `positives` (B, m) has the labels of each document, −1 as padding."""


class CrossEntropy:
    """Binary cross-entropy of each label."""

    def errors(self, scored: ScoredLabels, positives: Tensor) -> Iterator[ChunkError]:
        """The error of each chunk in turn."""
        for low, high in scored.chunks():
            yield ChunkError(low, high, *dense_error(scored.logits(low, high), positives, low))


def dense_error(logits: Tensor, positives: Tensor, low: int) -> tuple[Tensor, Tensor]:
    """Summed loss, and its gradient σ − y, of the labels low … low + C − 1.

    `logits` (B, C); `positives` (B, m) has the label numbers of each document, −1 as padding.
    """
    width = logits.shape[1]
    inside = ((positives >= low) & (positives < low + width)).to(logits.dtype)
    places = (positives - low).clamp(0, width - 1)
    loss = F.softplus(logits).sum() - (logits.gather(1, places) * inside).sum()
    error = torch.sigmoid(logits).scatter_add_(1, places, -inside)
    return loss, error


def candidate_error(logits: Tensor, targets: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Summed loss, and its gradient σ − y, of labels given for each document: all (B, K), `given` 0 at padding."""
    loss = ((F.softplus(logits) - logits * targets) * given).sum()
    return loss, (torch.sigmoid(logits) - targets) * given
