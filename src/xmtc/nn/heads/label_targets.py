"""DXML's head: documents are embedded close to the mean of their labels' vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Choices, Range, Settings
from xmtc.nn.heads.base import Head, LinearHead, even_chunk, gradient_of, wide_type
from xmtc.nn.training.losses import CrossEntropy, PartialBatch

ALIKE = 0.999
"""Targets with at least this cosine count as equal."""


@dataclass(frozen=True)
class TargetSettings(Settings):
    """Weights of the three losses of the embeddings; the published form has the first only."""

    robust: Annotated[float, Choices(0.0, 1.0)] = 0.0
    """Weight of the smooth L1 distance between an embedding and its target, the mean of its labels' vectors."""
    contrast: Annotated[float, Choices(0.3, 1.0)] = 1.0
    """Weight of the contrastive loss that separates a document's target from those of the rest of the batch."""
    temperature: Annotated[float, Range(0.03, 0.3, log=True)] = 0.15
    """Temperature of the contrastive loss."""
    decode: Annotated[float, Choices(0.0, 0.03, 0.1, 0.3)] = 0.03
    """Weight of the binary cross-entropy, summed over labels, of a linear decoder from embeddings to labels."""
    scale: Annotated[float, Range(3, 30, log=True)] = 10.0
    """Initial scale of the cosines in the decoder."""
    sharpness: Annotated[float, Range(3, 30, log=True)] = 5.0
    """Without a decoder, a label's direct score is exp(sharpness · (cosine − largest cosine))."""
    unit: bool = True
    """Normalise the mean of a document's label vectors to unit length; false is the published form."""

    of = "head"

    def check(self) -> None:
        for name in ("robust", "contrast", "decode", "sharpness"):
            self.require_range(name, 0)
        self.require("contrast", self.robust + self.contrast + self.decode > 0, "> 0 if robust and decode are 0")
        for name in ("temperature", "scale"):
            self.require_range(name, 0, open_low=True)


class TargetHead(Head):
    """Trains embeddings towards the mean of a document's label vectors, which are fixed.

    With `decode`, labels also have trainable rows, initialised with their vectors, and logits come from these;
    otherwise a logit is the cosine between document and label.
    """

    vectors: Tensor

    def __init__(self, vectors: Tensor, settings: TargetSettings) -> None:
        super().__init__()
        self.labels, self.settings = len(vectors), settings
        self.register_buffer("vectors", vectors)  # (L, d)
        self.output: LinearHead | None = None
        if settings.decode:
            self.output = LinearHead(*vectors.shape)
            self.output.rows.data.copy_(vectors)
            self.scale = nn.Parameter(torch.tensor(math.log(settings.scale)))

    @property
    def of_labels(self) -> frozenset[str]:
        return frozenset() if self.output is None else frozenset({"output.rows", "output.bias"})

    def start_from(self, shares: Tensor) -> None:
        if self.output is not None:
            self.output.start_from(shares)

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        return even_chunk(self.labels, free // (batch * 4 * max(size, 4)))

    @torch.no_grad()
    def logits(self, encoded: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        if self.output is not None:
            return self.output.logits(encoded * self.scale.exp(), mask, low, high)
        return encoded @ F.normalize(self.vectors[low:high], dim=1).t()

    @torch.no_grad()
    def candidate_logits(self, encoded: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        rows = self.logits(encoded, mask, 0, self.labels)
        return rows.gather(1, candidates.clamp(min=0))

    def nearness(self, encoded: Tensor) -> Tensor:
        """(B, L) direct score of each label in [0, 1]: its probability, or its cosine relative to the nearest label."""
        logits = self.logits(encoded, encoded.new_empty(0), 0, self.labels)
        if self.output is not None:
            return torch.sigmoid(logits)
        return torch.exp(self.settings.sharpness * (logits - logits.amax(1, keepdim=True)))

    @torch.no_grad()
    def targets(self, positives: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """(B, d) mean of each document's label vectors, and (B, 1) whether it has any label."""
        held = (positives >= 0).to(kind)
        summed = F.embedding_bag(positives.clamp(min=0), self.vectors.to(kind), mode="sum", per_sample_weights=held)
        count = held.sum(1, keepdim=True)
        mean = summed / count.clamp(min=1)
        return F.normalize(mean, dim=1) if self.settings.unit else mean, (count > 0).to(kind)

    @torch.no_grad()
    def learn(
        self, encoded: Tensor, mask: Tensor, positives: Tensor, chunk: int, partial: PartialBatch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss of a batch, and its gradient in the embeddings; parameter gradients are accumulated.

        Documents with unknown labels are not contrasted with the targets of others, which may have these labels.
        """
        settings, kind = self.settings, wide_type(encoded)
        wide = encoded.to(kind)
        targets, counts = self.targets(positives, kind)
        loss, gradient = wide.new_zeros(()), torch.zeros_like(wide)
        if settings.robust:
            part, error = robust_error(wide, targets, counts)
            loss += settings.robust / len(wide) * part
            gradient += settings.robust / len(wide) * error
        if settings.contrast:
            asked = counts if partial is None else counts * (~partial.partial)[:, None]
            part, error = contrast_error(wide, targets, counts, settings.temperature, asked)
            loss += settings.contrast / len(wide) * part
            gradient += settings.contrast / len(wide) * error
        if self.output is not None:
            scale = self.scale.exp()
            scaled = wide * scale
            weight = settings.decode / len(wide)
            width = scaled.shape[1]
            part, error = self.output.learn_by(CrossEntropy(), scaled, positives, chunk, weight, width, partial)
            loss += part
            gradient += error * scale
            gradient_of(self.scale).add_((error * scaled).sum())
        return loss, gradient.to(encoded.dtype)

    @torch.no_grad()
    def learn_candidates(
        self, encoded: Tensor, mask: Tensor, candidates: Tensor, targets: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy of given labels, decoded from the embeddings; only the decoder is trained."""
        assert self.output is not None
        scale = self.scale.exp()
        loss, gradient = self.output.learn_candidates(encoded * scale, mask, candidates, targets, chunk)
        return loss, gradient * scale


def robust_error(encoded: Tensor, targets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Summed smooth L1 distance (quadratic up to 1, then linear) and its gradient."""
    apart = (encoded - targets) * counts
    size = apart.abs()
    loss = torch.where(size <= 1, 0.5 * apart * apart, size - 0.5).sum()
    return loss, apart.clamp(-1, 1)


def contrast_error(
    encoded: Tensor, targets: Tensor, counts: Tensor, temperature: float, asked: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy of each document's target among those of the batch, and its gradient.

    Equal targets share the probability mass; documents without labels (`counts` 0) neither have nor serve as targets.
    The loss is that of the documents `asked` (B, 1), by default all with labels.
    """
    asked = counts if asked is None else asked
    own = torch.eye(len(targets), device=targets.device, dtype=targets.dtype)
    unit = F.normalize(targets, dim=1)
    same = torch.maximum((unit @ unit.t() > ALIKE).to(targets.dtype), own)
    wanted = same / same.sum(1, keepdim=True)
    logits = encoded @ targets.t() / temperature
    logits = logits.masked_fill((counts.t() == 0) & (own == 0), -torch.inf)
    given = F.log_softmax(logits, dim=1)
    loss = -(wanted * given.masked_fill(wanted == 0, 0.0) * asked).sum()
    gradient = ((given.exp() - wanted) * asked) @ targets / temperature
    return loss, gradient
