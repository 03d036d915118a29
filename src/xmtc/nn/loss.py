"""Binary cross-entropy whose gradient, σ(x) − y, is taken straight from the logits; no loss tensor is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class ChunkError(NamedTuple):
    """Summed loss of the labels low … high − 1, and its gradient (B, high − low) in their logits."""

    low: int
    high: int
    loss: Tensor
    error: Tensor


class Objective(Protocol):
    """What logits of all labels are learnt by, a chunk of labels at a time."""

    def errors(
        self,
        logits: Callable[[int, int], Tensor],
        given: Callable[[Tensor], Tensor],
        positives: Tensor,
        chunk: int,
        labels: int,
    ) -> Iterator[ChunkError]:
        """The error of each chunk in turn.

        `logits` are those of neighbouring labels, `given` those of given ones (B, m). `positives` (B, m) are the label
        numbers of each document, −1 as pads.
        """


class CrossEntropy:
    """Every label by itself."""

    def errors(
        self,
        logits: Callable[[int, int], Tensor],
        given: Callable[[Tensor], Tensor],
        positives: Tensor,
        chunk: int,
        labels: int,
    ) -> Iterator[ChunkError]:
        for low, high in chunks(labels, chunk):
            yield ChunkError(low, high, *dense_error(logits(low, high), positives, low))


def chunks(labels: int, size: int) -> Iterator[tuple[int, int]]:
    """Neighbouring labels, low to high, at most `size` at once."""
    for low in range(0, labels, size):
        yield low, min(low + size, labels)


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
