"""The margin ranking loss of Rank-AE, in time linear in the labels, with its gradient computed from the logits.

With p over a document's labels and q over all others, L_P = Σ_q max_p (m + s_q − s_p)₊ and L_N = Σ_p max_q (m + s_q −
s_p)₊. The maximum is attained at the lowest positive score a, or at the highest negative score z, so that L_P = Σ_q
(s_q − (a − m))₊ and L_N = Σ_p (m + z − s_p)₊: pairs are never formed. These two numbers depend on whole rows, but
logits are computed in chunks of labels; therefore there are two passes over the chunks. A document with no labels, or
with all of them, has a = ∞ or z = −∞, and all of its terms vanish. Unknown labels belong to neither p nor q.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from xmtc.core.config import Range, Settings
from xmtc.nn.training.losses import ChunkError, PartialBatch, ScoredLabels, chunk_places


@dataclass(frozen=True)
class RankingLoss(Settings):
    """Every label of a document should score higher, by a margin, than every other label."""

    of: ClassVar[str] = "the ranking loss"

    margin: Annotated[float, Range(0.1, 2, log=True)] = 1.0
    """Margin by which a label of the document should score higher than any other label."""
    score: Literal["logit", "sigmoid"] = "logit"
    """Compare logits, or their sigmoids, for which a margin above 1 has no effect."""
    reduction: Literal["violations", "sum"] = "violations"
    """Average the loss over violating labels and over the document's labels ('violations'), or sum it."""

    def check(self) -> None:
        """Check the values."""
        self.require_range("margin", 0)

    def errors(
        self, scored: ScoredLabels, positives: Tensor, partial: PartialBatch | None = None
    ) -> Iterator[ChunkError]:
        """The error of each chunk of labels; with several chunks, logits are computed twice."""
        if scored.chunk >= scored.labels:
            whole = scored.logits(0, scored.labels)
            survey = self.survey(positives, whole.gather(1, positives.clamp(min=0)), partial)
            survey.look(whole, 0)
            yield ChunkError(0, scored.labels, *survey.error(whole, 0))
            return
        survey = self.survey(positives, scored.given(positives), partial)
        for low, high in scored.chunks():
            survey.look(scored.logits(low, high), low)
        for low, high in scored.chunks():
            yield ChunkError(low, high, *survey.error(scored.logits(low, high), low))

    @torch.no_grad()
    def survey(self, positives: Tensor, positive_logits: Tensor, partial: PartialBatch | None = None) -> Survey:
        """Start a batch: `positives` (B, m) label numbers, −1 as padding, and their logits (B, m)."""
        return Survey(self, positives, positive_logits, partial)

    def scores(self, logits: Tensor) -> Tensor:
        """The scores to compare."""
        return torch.sigmoid(logits) if self.score == "sigmoid" else logits

    def slopes(self, scores: Tensor) -> Tensor:
        """Derivative of scores with respect to logits."""
        return scores * (1.0 - scores) if self.score == "sigmoid" else torch.ones_like(scores)


class _Pull(NamedTuple):
    """Contributions of single labels to the loss, and to the gradient beyond their own excess."""

    share: Tensor  # (B, 1) normalisation of L_P
    labels: Tensor  # (B, m + 1) the document's labels, then the highest of the others
    losses: Tensor  # (B, m + 1) terms of L_N, 0 for the last
    gradients: Tensor  # (B, m + 1)


class Survey:
    """Statistics of whole rows that are needed before the error of a chunk can be computed.

    Call `look` once with every chunk of labels, then `error` with every chunk. Nothing is read back from the device and
    all shapes are known in advance, so that both can be captured.
    """

    def __init__(
        self, loss: RankingLoss, positives: Tensor, positive_logits: Tensor, partial: PartialBatch | None
    ) -> None:
        rows, pads = len(positives), positives < 0
        self._loss = loss
        self._positives, self._partial = positives, partial
        self._scores = loss.scores(positive_logits).masked_fill(pads, torch.inf)  # (B, m)
        self._slopes = loss.slopes(self._scores).masked_fill_(pads, 0.0)
        lowest, self._lowest_at = self._scores.min(1, keepdim=True)  # (B, 1), its column among the positives
        self._floor = lowest - loss.margin  # negatives above it are violations
        self._highest = positive_logits.new_full((rows, 1), -torch.inf)
        self._highest_label = positives.new_full((rows, 1), -1)
        self._violations = positive_logits.new_zeros((rows, 1))

    @torch.no_grad()
    def look(self, logits: Tensor, low: int) -> None:
        """First pass over labels low … low + C − 1: record the highest negative and the number of violations."""
        negatives = self._negatives(self._loss.scores(logits).clone(), low)
        highest, place = negatives.max(1, keepdim=True)
        self._highest_label = torch.where(highest > self._highest, place + low, self._highest_label)
        self._highest = torch.maximum(highest, self._highest)
        self._violations += negatives.gt_(self._floor).sum(1, keepdim=True)

    @torch.no_grad()
    def error(self, logits: Tensor, low: int) -> tuple[Tensor, Tensor]:
        """Summed loss of the labels low … low + C − 1, and its gradient (B, C) in the logits."""
        pull, scores = self._pull, self._loss.scores(logits)
        excess = self._negatives(scores - self._floor, low).relu_()
        places, inside = chunk_places(pull.labels, low, logits.shape[1])
        loss = (excess.sum(1, keepdim=True) * pull.share).sum() + (pull.losses * inside).sum()
        torch.ops.aten.threshold_backward.grad_input(pull.share.expand_as(excess), excess, 0, grad_input=excess)
        if self._loss.score == "sigmoid":
            torch.ops.aten.sigmoid_backward.grad_input(excess, scores, grad_input=excess)
        return loss, excess.scatter_add_(1, places, pull.gradients * inside)

    def _negatives(self, values: Tensor, low: int) -> Tensor:
        """(B, C) the values of a chunk, overwritten by −∞ for positives and unknown labels."""
        places, inside = chunk_places(self._positives, low, values.shape[1])
        hidden = torch.zeros_like(places, dtype=values.dtype).masked_fill_(inside, -torch.inf)
        negatives = values.scatter_add_(1, places, hidden)
        if self._partial is None:
            return negatives
        known = self._partial.known(self._positives, low, values.shape[1], values.dtype)
        return negatives.masked_fill_(known == 0, -torch.inf)

    @cached_property
    def _pull(self) -> _Pull:
        """Available after the first pass."""
        share, positive_share = torch.ones_like(self._violations), torch.ones_like(self._violations)
        if self._loss.reduction == "violations":
            share = share / self._violations.clamp(min=1.0)
            positive_share = positive_share / (self._positives >= 0).sum(1, keepdim=True).clamp_(min=1)
        short = (self._highest + self._loss.margin - self._scores).relu_()  # (B, m) 0 at padding
        raised = torch.where(short > 0, positive_share, 0.0)
        pushed = raised.sum(1, keepdim=True)
        slope = torch.where(pushed > 0, self._loss.slopes(self._highest), 0.0)  # −∞ if there is no negative
        raised = raised.scatter_add(1, self._lowest_at, self._violations * share)
        return _Pull(
            share,
            torch.cat([self._positives, self._highest_label], 1),
            torch.nn.functional.pad(short * positive_share, (0, 1)),
            torch.cat([-raised * self._slopes, pushed * slope], 1),
        )
