"""Correlation blocks on top of a head: the logits of all labels correct each other (CorNet).

A block is x + W₂ ELU(W₁ σ(x) + b₁) + b₂ for the logits x (B, L) of all labels. They exist at once, unlike what heads
compute on the way to them: the head below processes its labels in chunks, twice in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Settings
from xmtc.core.errors import ConfigError
from xmtc.nn.heads.base import Head, gradient_of
from xmtc.nn.training.losses import PartialBatch, candidate_error, dense_error


@dataclass(frozen=True)
class CorrelationSettings(Settings):
    """Blocks that correct the logits of all labels by each other."""

    blocks: int = 0
    """Number of blocks (two in the publication); 0 for none. Each has 2 × labels × bottleneck weights."""
    bottleneck: int = 1000
    """Width of a block between its two layers."""
    identity: bool = True
    """Start with blocks that change nothing; false starts with random weights, as published."""

    of = "correlation"
    searched = False

    def check(self) -> None:
        self.require_range("blocks", 0, 100)
        self.require_range("bottleneck", 1, 1 << 20)

    def check_tree(self, model: str, height: int) -> None:
        """Raise ConfigError if there are blocks and a label tree of this height."""
        if self.blocks and height:
            raise ConfigError(
                f"'correlation.blocks' of {model} must be 0 with a label tree, which never scores all labels. "
                f"Got {self.blocks} with head.tree.height = {height}."
            )


class CorrelationBlock(nn.Module):
    """x + W₂ ELU(W₁ σ(x) + b₁) + b₂ for logits x (B, L)."""

    def __init__(self, labels: int, settings: CorrelationSettings) -> None:
        super().__init__()
        self.inputs = nn.Parameter(torch.empty(labels, settings.bottleneck))  # (L, n) W₁, transposed
        self.context_bias = nn.Parameter(torch.zeros(settings.bottleneck))
        self.outputs = nn.Parameter(torch.zeros(labels, settings.bottleneck))  # (L, n) W₂
        self.bias = nn.Parameter(torch.zeros(labels))
        nn.init.xavier_uniform_(self.inputs)
        if not settings.identity:
            nn.init.xavier_uniform_(self.outputs)

    def forward(self, logits: Tensor, kind: torch.dtype) -> Tensor:
        """(B, L) corrected logits; products are computed in the type `kind`."""
        context = F.elu(torch.sigmoid(logits).to(kind) @ self.inputs.to(kind) + self.context_bias.to(kind))  # (B, n)
        return logits + (context @ self.outputs.t().to(kind)).to(logits.dtype) + self.bias


class CorrelationHead(Head):
    """Another head, whose logits are corrected by correlation blocks."""

    def __init__(self, base: Head, settings: CorrelationSettings) -> None:
        super().__init__()
        self.labels, self.takes_states = base.labels, base.takes_states
        self.base = base
        self.blocks = nn.ModuleList(CorrelationBlock(base.labels, settings) for _ in range(settings.blocks))
        self._kept: tuple[Tensor, Tensor] | None = None

    @property
    def of_labels(self) -> frozenset[str]:
        of_base = {f"base.{name}" for name in self.base.of_labels}
        own = ("inputs", "outputs", "bias")
        return frozenset(of_base | {f"blocks.{number}.{name}" for number in range(len(self.blocks)) for name in own})

    def start_from(self, shares: Tensor) -> None:
        self.base.start_from(shares)

    @torch.no_grad()
    def start_new_labels(self, shares: Tensor) -> None:
        """New labels do not change the scores of others until they are trained: their input weights start at zero."""
        self.base.start_new_labels(shares)
        for block in self._blocks:
            block.inputs[-len(shares) :] = 0.0
            block.bias[-len(shares) :] = 0.0

    @property
    def _blocks(self) -> list[CorrelationBlock]:
        return cast("list[CorrelationBlock]", list(self.blocks))

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        """Number of labels that the head below processes at once, next to the logits of all labels."""
        held = batch * self.labels * 4 * (3 + 2 * len(self.blocks))
        return self.base.chunk(batch, length, size, max(free - held, free // 4))

    def candidate_chunk(self, batch: int, length: int, size: int, free: int, count: int) -> int:
        return self.chunk(batch, length, size, free)

    @torch.no_grad()
    def logits(self, encoded: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        """(B, high − low) logits of consecutive labels; those of all labels are kept until the last are returned."""
        if low == 0 or self._kept is None or self._kept[0] is not encoded:
            self._kept = encoded, self._corrected(self._base_logits(encoded, mask, high - low), encoded.dtype)
        logits = self._kept[1][:, low:high]
        if high == self.labels:
            self._kept = None
        return logits

    @torch.no_grad()
    def candidate_logits(self, encoded: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        logits = self._corrected(self._base_logits(encoded, mask, chunk), encoded.dtype)
        return logits.gather(1, candidates.clamp(min=0))

    def learn(
        self, encoded: Tensor, mask: Tensor, positives: Tensor, chunk: int, partial: PartialBatch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss over documents and labels, and its gradient in `encoded`; parameter gradients are accumulated."""
        logits = self._base_logits(encoded, mask, chunk).requires_grad_()
        with torch.enable_grad():
            corrected = self._corrected(logits, encoded.dtype)
        loss, error = dense_error(corrected.detach(), positives, 0, partial)
        scale = 1.0 / error.numel()
        parameters = list(self.blocks.parameters())
        d_logits, *gradients = torch.autograd.grad(corrected, [logits, *parameters], error.mul_(scale))
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                gradient_of(parameter).add_(gradient)
        return loss * scale, self.base.propagate(encoded, mask, d_logits, chunk)

    @torch.no_grad()
    def learn_candidates(
        self, encoded: Tensor, mask: Tensor, candidates: Tensor, targets: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """Like `learn`, for given labels; only the head below learns, and an error only changes the label's own logit.

        So the other labels keep their scores, except for what the blocks make of the changed logits.
        """
        logits = self.candidate_logits(encoded, mask, candidates, chunk)
        given = (candidates >= 0).to(logits.dtype)
        loss, error = candidate_error(logits, targets.to(logits.dtype), given)
        scale = 1.0 / max(1, candidates.numel())
        of_all = logits.new_zeros(len(logits), self.labels)
        of_all.scatter_add_(1, candidates.clamp(min=0), error.mul_(scale))
        return loss * scale, self.base.propagate(encoded, mask, of_all, chunk)

    def weights(self, states: Tensor, mask: Tensor, label: int) -> Tensor:
        return self.base.weights(states, mask, label)

    @torch.no_grad()
    def _base_logits(self, encoded: Tensor, mask: Tensor, chunk: int) -> Tensor:
        """(B, L) logits of the head below."""
        ends = [(low, min(low + chunk, self.labels)) for low in range(0, self.labels, chunk)]
        return torch.cat([self.base.logits(encoded, mask, low, high) for low, high in ends], dim=1)

    def _corrected(self, logits: Tensor, kind: torch.dtype) -> Tensor:
        """(B, L) logits after all blocks."""
        for block in self._blocks:
            logits = block(logits, kind)
        return logits
