"""Binary cross-entropy whose gradient, σ(x) − y, is taken straight from the logits; no loss tensor is kept."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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
