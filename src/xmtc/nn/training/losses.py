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


class PartialBatch(NamedTuple):
    """Which labels are known in a batch where documents have unknown ones, which are neither positive nor negative."""

    partial: Tensor
    """(B,) whether all labels of a document are unknown except for its positives and the rejected ones."""
    rejected: Tensor
    """(B, r) labels of these documents that are known to be wrong, −1 as padding."""

    def known(self, positives: Tensor, low: int, width: int, kind: torch.dtype) -> Tensor:
        """(B, width) 1 for each of the labels low … low + width − 1 that is known to be right or wrong, else 0."""
        places, inside = chunk_places(torch.cat([positives, self.rejected], dim=1), low, width)
        known = (~self.partial).to(kind)[:, None].repeat(1, width)
        return known.scatter_add_(1, places, inside.to(kind)).clamp_(max=1.0)


class LabelLoss(Protocol):
    """A loss over the logits of all labels, computed in chunks of labels."""

    def errors(
        self, scored: ScoredLabels, positives: Tensor, partial: PartialBatch | None = None
    ) -> Iterator[ChunkError]:
        """The error of each chunk in turn; `positives` (B, m) has the labels of each document, −1 as padding.

        Unknown labels of `partial` documents have no loss.
        """


class CrossEntropy:
    """Binary cross-entropy of each label."""

    def errors(
        self, scored: ScoredLabels, positives: Tensor, partial: PartialBatch | None = None
    ) -> Iterator[ChunkError]:
        """The error of each chunk in turn."""
        for low, high in scored.chunks():
            yield ChunkError(low, high, *dense_error(scored.logits(low, high), positives, low, partial))


def dense_error(
    logits: Tensor, positives: Tensor, low: int, partial: PartialBatch | None = None
) -> tuple[Tensor, Tensor]:
    """Summed loss, and its gradient σ − y, of the labels low … low + C − 1.

    `logits` (B, C); `positives` (B, m) has the label numbers of each document, −1 as padding. Unknown labels of
    `partial` documents have no loss.
    """
    width = logits.shape[1]
    inside = ((positives >= low) & (positives < low + width)).to(logits.dtype)
    places = (positives - low).clamp(0, width - 1)
    given = (logits.gather(1, places) * inside).sum()
    error = torch.sigmoid(logits).scatter_add_(1, places, -inside)
    if partial is None:
        return F.softplus(logits).sum() - given, error
    known = partial.known(positives, low, width, logits.dtype)
    return (F.softplus(logits) * known).sum() - given, error.mul_(known)


def chunk_places(labels: Tensor, low: int, width: int) -> tuple[Tensor, Tensor]:
    """Columns of labels in a chunk, and which of them are in it; the others get an arbitrary column."""
    return (labels - low).clamp(0, width - 1), (labels >= low) & (labels < low + width)


def candidate_error(logits: Tensor, targets: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Summed loss, and its gradient σ − y, of labels given for each document: all (B, K), `given` 0 at padding."""
    loss = ((F.softplus(logits) - logits * targets) * given).sum()
    return loss, (torch.sigmoid(logits) - targets) * given
