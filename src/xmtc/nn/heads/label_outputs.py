"""Label-wise attention with an output vector for each label, and a linear layer over the mean state.

The logit of label j is Σ_t α_tj (h_t · o_j) + p_j · m + b_j with α = softmax over the real tokens of h_t · a_j, and m
the mean of the real states. The products h_t · o_j take as many operations as mixing the states, but no mixture, as
wide as the states, is ever stored. As in `label_attention`, labels are processed in chunks, and gradients are computed
at once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from xmtc.nn.heads.base import (
    ALIGNED,
    ErrorOf,
    Head,
    even_chunk,
    given_errors,
    gradient_of,
    learnt_in_chunks,
    wide_type,
)
from xmtc.nn.heads.label_attention import exponentials
from xmtc.nn.training.losses import PartialBatch, candidate_error

HELD = 4
"""Numbers per token and label that a chunk needs at most: weights, values, and temporary products."""
DEVIATION = 0.02
"""Standard deviation of initial weights."""


class _Scored(NamedTuple):
    """Intermediate results that the backward pass of a chunk needs."""

    weights: Tensor  # (B, T, C) exp of the scores, not normalised; 0 at padding
    values: Tensor  # (B, T, C) h_t · o_j
    share: Tensor  # (B, C) 1 / sum of the weights
    mixed: Tensor  # (B, C) Σ_t α_tj (h_t · o_j)
    logits: Tensor  # (B, C) float32 or float64


class _Rows(NamedTuple):
    """The vectors of some labels: (C, d) for all documents, or (B, C, d) for each; the biases (C,) or (B, C)."""

    attention: Tensor
    outputs: Tensor
    pooled: Tensor
    bias: Tensor


class LabelOutputs(Head):
    """Attention, output and pooling vectors, and a bias, for each label."""

    takes_states = True

    def __init__(self, labels: int, width: int) -> None:
        super().__init__()
        self.labels = labels
        self.attention = nn.Parameter(torch.randn(labels, width) * DEVIATION)  # (L, d)
        self.outputs = nn.Parameter(torch.randn(labels, width) * DEVIATION)
        self.pooled = nn.Parameter(torch.randn(labels, width) * DEVIATION)
        self.bias = nn.Parameter(torch.zeros(labels))

    @property
    def of_labels(self) -> frozenset[str]:
        return frozenset({"attention", "outputs", "pooled", "bias"})

    @torch.no_grad()
    def start_from(self, shares: Tensor) -> None:
        """Initialise the biases with the label frequencies (L,), as fractions of the documents."""
        self.bias.copy_(torch.logit(shares, eps=1e-6))

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        """Number of labels to process at once so that weights and values fit into `free` bytes."""
        return even_chunk(self.labels, free // (batch * HELD * (length * size + 8)))

    def candidate_chunk(self, batch: int, length: int, size: int, free: int, count: int) -> int:
        """Like `chunk`, for `count` candidates per document, whose vectors and gradients take memory as well."""
        row = 3 * self.outputs.shape[1] * (size + 4)
        return even_chunk(count, free // (batch * (HELD * (length * size + 8) + row)))

    @torch.no_grad()
    def logits(self, states: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        """(B, high − low) logits of consecutive labels; states (B, T, d), mask (B, T) true at real tokens."""
        done = self._forward(states, mask, mean_state(states, mask), self._rows(low, high, states.dtype))
        return done.logits[:, : high - low]

    @torch.no_grad()
    def candidate_logits(self, states: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        """(B, K) logits of labels given for each document; negative candidates are ignored."""
        mean = mean_state(states, mask)
        parts = [
            self._forward(states, mask, mean, self._rows_of(part, states.dtype)).logits
            for part in candidates.clamp(min=0).split(chunk, dim=1)
        ]
        return torch.cat(parts, dim=1) if parts else states.new_empty(candidates.shape, dtype=torch.float32)

    @torch.no_grad()
    def weights(self, states: Tensor, mask: Tensor, label: int) -> Tensor:
        """(B, T) attention weights of a label."""
        scores = (states @ self.attention[label].to(states)).float()
        return torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=1)

    @torch.no_grad()
    def learn(
        self, states: Tensor, mask: Tensor, positives: Tensor, chunk: int, partial: PartialBatch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Loss summed over labels, the mean of the documents, and its gradient in the states.

        Parameter gradients are accumulated. `positives` (B, m) are each document's labels, −1 as padding. Unknown
        labels of `partial` documents have no loss.
        """
        return learnt_in_chunks(
            lambda error: self._propagate_chunks(states, mask, error, chunk),
            states,
            positives,
            1.0 / len(states),
            partial,
        )

    @torch.no_grad()
    def propagate(self, states: Tensor, mask: Tensor, error: Tensor, chunk: int) -> Tensor:
        """Gradient in the states of given errors (B, L) of the logits; parameter gradients are accumulated."""
        return self._propagate_chunks(states, mask, given_errors(error), chunk)

    def _propagate_chunks(self, states: Tensor, mask: Tensor, error_of: ErrorOf, chunk: int) -> Tensor:
        """Gradient in the states of the errors of each chunk."""
        mean = mean_state(states, mask)
        d_states, d_mean = torch.zeros_like(states), torch.zeros_like(mean)
        for low in range(0, self.labels, chunk):
            high = min(low + chunk, self.labels)
            rows = self._rows(low, high, states.dtype)
            done = self._forward(states, mask, mean, rows)
            error = error_of(done.logits[:, : high - low], low)
            error = nn.functional.pad(error, (0, len(rows.bias) - (high - low)))
            self._backward(done, error, states, mean, rows, (low, high), d_states, d_mean)
        return _with_mean(d_states, d_mean, mask)

    @torch.no_grad()
    def learn_candidates(
        self, states: Tensor, mask: Tensor, candidates: Tensor, targets: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """Like `learn`, for given labels: `candidates` (B, K), −1 as padding, `targets` (B, K) from 0 to 1."""
        mean, kind = mean_state(states, mask), wide_type(states)
        d_states, d_mean = torch.zeros_like(states), torch.zeros_like(mean)
        loss, scale = states.new_zeros((), dtype=kind), 1.0 / len(states)
        for low in range(0, candidates.shape[1], chunk):
            part = slice(low, low + chunk)
            numbers, given = candidates[:, part].clamp(min=0), (candidates[:, part] >= 0).to(kind)
            rows = self._rows_of(numbers, states.dtype)
            done = self._forward(states, mask, mean, rows)
            added, error = candidate_error(done.logits, targets[:, part].to(kind), given)
            loss += added
            self._backward(done, error.mul_(scale), states, mean, rows, numbers, d_states, d_mean)
        return loss * scale, _with_mean(d_states, d_mean, mask)

    def _rows(self, low: int, high: int, kind: torch.dtype) -> _Rows:
        """The vectors of consecutive labels, padded with zeros to an aligned number."""
        padding = -(high - low) % ALIGNED

        def own(part: Tensor) -> Tensor:
            return nn.functional.pad(part[low:high].to(kind), (0, 0, 0, padding))

        bias = nn.functional.pad(self.bias[low:high], (0, padding))
        return _Rows(own(self.attention), own(self.outputs), own(self.pooled), bias)

    def _rows_of(self, numbers: Tensor, kind: torch.dtype) -> _Rows:
        """The vectors of the candidates (B, C) of each document."""
        own = [part[numbers].to(kind) for part in (self.attention, self.outputs, self.pooled)]
        return _Rows(own[0], own[1], own[2], self.bias[numbers])

    def _forward(self, states: Tensor, mask: Tensor, mean: Tensor, rows: _Rows) -> _Scored:
        kind = wide_type(states)
        if rows.attention.dim() == 2:
            scores, values = states @ rows.attention.t(), states @ rows.outputs.t()  # (B, T, C)
            pooled = mean @ rows.pooled.t()
        else:
            scores = torch.bmm(states, rows.attention.transpose(1, 2))
            values = torch.bmm(states, rows.outputs.transpose(1, 2))
            pooled = torch.bmm(rows.pooled, mean[..., None])[..., 0]
        weights = exponentials(scores, mask).mul_(mask[..., None])
        share = weights.sum(1, dtype=kind).clamp_(min=torch.finfo(kind).tiny).reciprocal_()
        mixed = (weights * values).sum(1, dtype=kind) * share
        return _Scored(weights, values, share, mixed, mixed + pooled.to(kind) + rows.bias)

    def _backward(
        self,
        done: _Scored,
        error: Tensor,  # (B, C) of the logits
        states: Tensor,
        mean: Tensor,
        rows: _Rows,
        place: tuple[int, int] | Tensor,
        d_states: Tensor,
        d_mean: Tensor,
    ) -> None:
        """Add the gradients of a chunk; `place` has its range of labels, or their numbers for each document."""
        narrow = error.to(states.dtype)
        d_values = done.weights.mul_((error * done.share).to(states.dtype)[:, None])  # (B, T, C), overwritten
        d_scores = done.values.sub_(done.mixed.to(states.dtype)[:, None]).mul_(d_values)
        if isinstance(place, tuple):
            low, high = place
            count, flat, width = high - low, states.flatten(0, 1), states.shape[2]
            gradient_of(self.outputs)[low:high] += (d_values.flatten(0, 1).t() @ flat)[:count]
            gradient_of(self.attention)[low:high] += (d_scores.flatten(0, 1).t() @ flat)[:count]
            gradient_of(self.pooled)[low:high] += (narrow.t() @ mean)[:count]
            gradient_of(self.bias)[low:high] += error.sum(0)[:count]
            d_states.view(-1, width).addmm_(d_values.flatten(0, 1), rows.outputs)
            d_states.view(-1, width).addmm_(d_scores.flatten(0, 1), rows.attention)
            d_mean.addmm_(narrow, rows.pooled)
            return
        numbers = place.reshape(-1)
        parts = (
            (self.outputs, torch.bmm(d_values.transpose(1, 2), states)),
            (self.attention, torch.bmm(d_scores.transpose(1, 2), states)),
            (self.pooled, narrow[..., None] * mean[:, None]),
        )
        for parameter, gradient in parts:
            gradient_of(parameter).index_add_(0, numbers, gradient.flatten(0, 1).to(parameter.dtype))
        gradient_of(self.bias).index_add_(0, numbers, error.reshape(-1).to(self.bias.dtype))
        d_states.baddbmm_(d_values, rows.outputs).baddbmm_(d_scores, rows.attention)
        d_mean += torch.bmm(narrow[:, None], rows.pooled)[:, 0]


def mean_state(states: Tensor, mask: Tensor) -> Tensor:
    """(B, d) mean of the real states; zero for empty texts."""
    return torch.bmm(_shares(mask, states.dtype)[:, None], states)[:, 0]


def _with_mean(d_states: Tensor, d_mean: Tensor, mask: Tensor) -> Tensor:
    """The gradient of the states, with that of their mean."""
    return d_states.add_(_shares(mask, d_states.dtype)[..., None] * d_mean[:, None]).mul_(mask[..., None])


def _shares(mask: Tensor, kind: torch.dtype) -> Tensor:
    """(B, T) the share of each real token in the mean."""
    return mask.to(kind) / mask.sum(1, keepdim=True).clamp(min=1).to(kind)
