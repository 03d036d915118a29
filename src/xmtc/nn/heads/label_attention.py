"""Label-wise attention and a shared perceptron: one head for all labels and for candidates of each document.

The mixture of label j is m_j = Σ_t α_tj h_t with α = softmax over the real tokens of h_t · w_j; its logit is a
perceptron of m_j. The first layer is linear before its ReLU, so it is applied to the tokens once (W₁h_t + b₁) and the
results are mixed: fewer operations, and mixtures are only as wide as the layer. Labels are processed in chunks; the
gradient of a chunk is computed from its logits and propagated at once, so that only B × T × chunk is ever in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from xmtc.nn.heads.base import (
    ALIGNED,
    CandidateHead,
    ErrorOf,
    even_chunk,
    given_errors,
    gradient_of,
    learnt_in_chunks,
    wide_type,
)
from xmtc.nn.training.losses import PartialBatch, candidate_error

ONES = 8
"""Extra columns of the values: two of ones, whose mixture is the softmax denominator; the others align rows."""
ROW_BYTES = 4
"""Bytes per number in the gradient of rows."""
LARGEST_EXPONENT = 60.0
"""Scores are clipped here where no maximum is subtracted: sums of thousands of such exponentials stay in range."""


class _Forward(NamedTuple):
    """Intermediate results that the backward pass of a chunk needs."""

    weights: Tensor  # (B, T, C) exp of the scores, not normalised
    share: Tensor  # (B, C) 1 / their sum over the tokens
    layers: list[Tensor]  # (B, C, ·) activations of the perceptron's hidden layers
    logits: Tensor  # (B, C) float32 or float64


class LabelAttention(CandidateHead):
    """Attention rows of every label, and the perceptron shared by all labels."""

    def __init__(self, labels: int, width: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.labels = labels
        self.rows = nn.Parameter(torch.empty(labels, width))  # (L, d)
        nn.init.xavier_uniform_(self.rows)
        sizes = (width, *hidden, 1)
        self.layers = nn.ModuleList(nn.Linear(sizes[i], sizes[i + 1]) for i in range(len(sizes) - 1))
        for layer in self.perceptron:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    @property
    def of_labels(self) -> frozenset[str]:
        return frozenset({"rows"})

    @property
    def perceptron(self) -> list[nn.Linear]:
        """The layers, from the first to the output layer."""
        return cast("list[nn.Linear]", list(self.layers))

    @torch.no_grad()
    def start_from(self, shares: Tensor) -> None:
        """Initialise the common bias with the mean label frequency; `shares` (L,) are fractions of the documents."""
        self.perceptron[-1].bias.fill_(torch.logit(shares.mean(), eps=1e-6))

    def hold(self, rows: Tensor) -> None:
        """Replace the rows (L, d), which may be on any device and of any type."""
        self.labels = len(rows)
        self.rows.data = rows

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        """Number of labels to process at once so that scores, gradients and activations fit into `free` bytes."""
        return even_chunk(self.labels, free // (batch * held_bytes(length, self._units, size)))

    def candidate_chunk(self, batch: int, length: int, size: int, free: int, count: int) -> int:
        """Like `chunk`, for `count` candidates per document, whose rows and gradients take memory as well."""
        return even_chunk(count, free // (batch * held_bytes(length, self._units, size, self.rows.shape[1])))

    @property
    def _units(self) -> list[int]:
        """Output units of each layer."""
        return [layer.out_features for layer in self.perceptron]

    @torch.no_grad()
    def logits(self, states: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        """(B, high − low) logits of consecutive labels; states (B, T, d), mask (B, T) true at real tokens."""
        states, mask, _ = with_a_token(states, mask)
        values = self._values(states, mask)
        return self._forward(states, mask, values, self._rows(low, high, states)).logits[:, : high - low]

    @torch.no_grad()
    def candidate_logits(self, states: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        """(B, K) logits of labels given for each document; negative candidates are ignored."""
        states, mask, _ = with_a_token(states, mask)
        values = self._values(states, mask)
        parts = [
            self._forward(states, mask, values, self._candidate_rows(part).to(states)).logits
            for part in candidates.clamp(min=0).split(chunk, dim=1)
        ]
        return torch.cat(parts, dim=1) if parts else states.new_empty(candidates.shape, dtype=torch.float32)

    @torch.no_grad()
    def weights(self, states: Tensor, mask: Tensor, label: int) -> Tensor:
        """(B, T) attention weights of a label."""
        scores = (states @ self.rows[label].to(states)).float()
        return torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=1)

    @torch.no_grad()
    def learn(
        self, states: Tensor, mask: Tensor, positives: Tensor, chunk: int, partial: PartialBatch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss over documents and labels, and its gradient in the states; parameter gradients are accumulated.

        `positives` (B, m) are each document's labels, −1 as padding; `chunk` is the number of labels per chunk. Unknown
        labels of `partial` documents have no loss.
        """
        scale = 1.0 / (len(states) * self.labels)
        return learnt_in_chunks(
            lambda error: self._propagate_chunks(states, mask, error, chunk), states, positives, scale, partial
        )

    @torch.no_grad()
    def propagate(self, states: Tensor, mask: Tensor, error: Tensor, chunk: int) -> Tensor:
        """Gradient in the states of given errors (B, L) of the logits; parameter gradients are accumulated."""
        return self._propagate_chunks(states, mask, given_errors(error), chunk)

    def _propagate_chunks(self, states: Tensor, mask: Tensor, error_of: ErrorOf, chunk: int) -> Tensor:
        """Gradient in the states of the errors of each chunk."""
        states, mask, has_token = with_a_token(states, mask)
        values = self._values(states, mask)
        d_states, d_values = torch.zeros_like(states), torch.zeros_like(values)
        for low in range(0, self.labels, chunk):
            high = min(low + chunk, self.labels)
            rows = self._rows(low, high, states)
            done = self._forward(states, mask, values, rows)
            error = error_of(done.logits[:, : high - low], low)
            error = nn.functional.pad(error, (0, len(rows) - (high - low)))
            d_scores = self._backward(done, values, error, d_values)
            flat = d_scores.view(-1, len(rows))
            gradient_of(self.rows)[low:high] += (flat.t() @ states.view(-1, states.shape[2]))[: high - low]
            d_states.view(-1, states.shape[2]).addmm_(flat, rows)
        self._values_backward(states, mask, d_values, d_states)
        return d_states.mul_(has_token)

    @torch.no_grad()
    def learn_candidates(
        self, states: Tensor, mask: Tensor, candidates: Tensor, targets: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """Like `learn`, for given labels: `candidates` (B, K), −1 as padding, `targets` (B, K) 1 or 0."""
        states, mask, has_token = with_a_token(states, mask)
        values = self._values(states, mask)
        d_states, d_values = torch.zeros_like(states), torch.zeros_like(values)
        loss = states.new_zeros((), dtype=wide_type(states))
        table, given = self.rows.to(states.dtype), candidates >= 0
        scale = 1.0 / max(1, candidates.numel())
        for low in range(0, candidates.shape[1], chunk):
            part = slice(low, low + chunk)
            numbers = candidates[:, part].clamp(min=0)
            rows = table[numbers]  # (B, C, d)
            done = self._forward(states, mask, values, rows)
            wide = done.logits.dtype
            added, error = candidate_error(done.logits, targets[:, part].to(wide), given[:, part].to(wide))
            loss += added
            d_scores = self._backward(done, values, error.mul_(scale), d_values)
            d_rows = torch.bmm(d_scores.transpose(1, 2), states).to(self.rows.dtype)
            gradient_of(self.rows).index_add_(0, numbers.reshape(-1), d_rows.view(-1, d_rows.shape[2]))
            d_states.baddbmm_(d_scores, rows)
        self._values_backward(states, mask, d_values, d_states)
        return loss * scale, d_states.mul_(has_token)

    def _rows(self, low: int, high: int, states: Tensor) -> Tensor:
        """(C, d) rows of consecutive labels, padded with zeros to an aligned number."""
        rows = self.rows[low:high].to(states.dtype)
        return nn.functional.pad(rows, (0, 0, 0, -len(rows) % ALIGNED))

    def _candidate_rows(self, numbers: Tensor) -> Tensor:
        """(B, C, d) rows of candidates; the table may be in host memory."""
        return self.rows[numbers.to(self.rows.device)]

    def _values(self, states: Tensor, mask: Tensor) -> Tensor:
        """(B, T, b + ONES) first layer of every token, then ones; zero at padding."""
        first = self.perceptron[0]
        width = first.out_features
        values = states.new_zeros((*states.shape[:2], width + ONES))
        values[..., :width] = nn.functional.linear(states, first.weight.to(states.dtype), first.bias.to(states.dtype))
        values[..., width : width + 2] = 1.0
        return values.mul_(mask[..., None])

    def _values_backward(self, states: Tensor, mask: Tensor, d_values: Tensor, d_states: Tensor) -> None:
        first = self.perceptron[0]
        flat = d_values[..., : first.out_features].masked_fill(~mask[..., None], 0.0).view(-1, first.out_features)
        gradient_of(first.weight).add_(flat.t() @ states.view(-1, states.shape[2]))
        gradient_of(first.bias).add_(flat.sum(0, dtype=wide_type(states)))
        d_states.view(-1, states.shape[2]).addmm_(flat, first.weight.to(states.dtype))

    def _forward(self, states: Tensor, mask: Tensor, values: Tensor, rows: Tensor) -> _Forward:
        """Forward pass of a chunk; rows are shared by all documents (C, d), or different for each (B, C, d)."""
        perceptron = self.perceptron
        scores = torch.matmul(states, rows.t()) if rows.dim() == 2 else torch.bmm(states, rows.transpose(1, 2))
        weights = exponentials(scores, mask)
        width = perceptron[0].out_features
        mixed = torch.bmm(weights.transpose(1, 2), values)  # (B, C, b + ONES)
        share = mixed[..., width].to(wide_type(states)).reciprocal_()
        activation = mixed.relu_()[..., :width]  # ReLU commutes with a positive factor; sums are positive
        last = perceptron[-1]
        if len(perceptron) == 2:  # apply the factor to the logit, not to the whole activation
            logits = torch.matmul(activation, last.weight[0].to(mixed.dtype)).to(share.dtype) * share + last.bias
            return _Forward(weights, share, [activation], logits)
        layers = [activation * share[..., None].to(mixed.dtype)]
        for layer in perceptron[1:-1]:
            weight, bias = layer.weight.to(mixed.dtype), layer.bias.to(mixed.dtype)
            layers.append(nn.functional.linear(layers[-1], weight, bias).relu_())
        logits = torch.matmul(layers[-1], last.weight[0].to(mixed.dtype)).to(share.dtype) + last.bias
        return _Forward(weights, share, layers, logits)

    def _backward(self, done: _Forward, values: Tensor, error: Tensor, d_values: Tensor) -> Tensor:
        """Gradient of the chunk's scores (B, T, C) from the error (B, C) of its logits; accumulates `d_values`."""
        perceptron = self.perceptron
        last, narrow = perceptron[-1], error.to(values.dtype)
        shared = (error * done.share).to(values.dtype)
        one_layer = len(perceptron) == 2
        pulled = shared if one_layer else narrow
        gradient_of(last.weight).add_(torch.bmm(pulled[:, None], done.layers[-1]).sum(0, dtype=error.dtype))
        gradient_of(last.bias).add_(error.sum())
        width = perceptron[0].out_features
        d_mixed = values.new_empty((*error.shape, width + ONES))  # gradient of the unnormalised mixture
        if one_layer:  # the gradient from above is `shared` times a weight, which is applied later
            inner = error * (done.logits - last.bias)
            outer, above = shared[..., None].expand(done.layers[0].shape), last.weight[0].to(values.dtype)
        else:
            d_first = self._hidden_backward(done.layers, narrow[..., None] * last.weight[0].to(values.dtype))
            inner = (d_first * done.layers[0]).sum(-1, dtype=error.dtype)
            outer, above = d_first * done.share[..., None].to(values.dtype), values.new_ones(width)
        torch.ops.aten.threshold_backward.grad_input(outer, done.layers[0], 0, grad_input=d_mixed[..., :width])
        d_total = -inner * done.share  # split into two numbers of the narrow type, for the two columns of ones
        d_mixed[..., width] = d_total.to(values.dtype)
        d_mixed[..., width + 1] = (d_total - d_mixed[..., width].to(d_total.dtype)).to(values.dtype)
        d_mixed[..., width + 2 :] = 0.0
        above = nn.functional.pad(above, (0, ONES), value=1.0)
        d_values.add_(torch.bmm(done.weights, d_mixed).mul_(above))
        return torch.bmm(values * above, d_mixed.transpose(1, 2)).mul_(done.weights)

    def _hidden_backward(self, layers: list[Tensor], gradient: Tensor) -> Tensor:
        """Propagate the gradient of the last hidden activation to the first."""
        for place in range(len(layers) - 1, 0, -1):
            layer, before = self.perceptron[place], layers[place - 1]
            gradient = torch.ops.aten.threshold_backward(gradient, layers[place], 0)
            flat = gradient.view(-1, layer.out_features)
            gradient_of(layer.weight).add_(flat.t() @ before.view(-1, layer.in_features))
            gradient_of(layer.bias).add_(flat.sum(0, dtype=wide_type(flat)))
            gradient = gradient @ layer.weight.to(gradient.dtype)
        return gradient


def exponentials(scores: Tensor, mask: Tensor) -> Tensor:
    """exp of the scores (B, T, C) of each label, up to a factor, in place.

    In low precision padding is included, where states must be zero: that takes one pass over the scores less, and their
    precision rules out large values.
    """
    if scores.dtype in (torch.float32, torch.float64):
        scores = scores.masked_fill_(~mask[..., None], -torch.inf)
        largest = scores.amax(1, keepdim=True)
        return scores.sub_(largest.masked_fill_(largest == -torch.inf, 0.0)).exp_()
    return scores.clamp_(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp_()


def with_a_token(states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give empty documents one token with a zero state, so that their mixture is zero instead of 0/0.

    Returns states, mask, and (B, 1, 1) the factor for the gradient of the states.
    """
    none = ~mask.any(dim=1)
    mask = mask.clone()
    mask[:, -1] |= none
    real = (~none)[:, None, None].to(states.dtype)
    return states * real, mask, real


def held_bytes(length: int, units: Sequence[int], size: int, row: int = 0) -> int:
    """Bytes per label and document, in numbers of `size` bytes; `row` is the width of rows specific to a document."""
    return (2 * length + 6 * sum(units)) * size + row * (2 * size + ROW_BYTES)


def flops(documents: float, tokens: float, labels: int, width: int, hidden: int) -> float:
    """Operations of the forward and backward passes: scores and mixtures, and twice that for gradients."""
    return 3.0 * documents * (2.0 * labels * tokens * (width + hidden) + 2.0 * tokens * width * hidden)
