"""LSAN's head: each label attends to the words by a learnt row and by a vector of its name, mixed by a gate.

Of the states h_t = (f_t, g_t) of both directions, label j forms two mixtures: s_j = Σ_t α_tj h_t by self-attention,
α = softmax of v_j · tanh(W h_t + b); and n_j = (Σ_t β_tj f_t, Σ_t γ_tj g_t) by its vector c_j, β = softmax of c_j · f_t
and γ of c_j · g_t. The gate is a / (a + b) with a = σ(s_j · u) and b = σ(n_j · w). The logit is a perceptron, shared by
all labels, of the gated mixture. Its first layer is linear before the ReLU, as are the products with u and w, so they
are applied to the states before mixing. Labels are processed in chunks; autograd computes the gradient of a chunk, and
only documents × words × chunk values are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Settings
from xmtc.nn.heads.base import (
    ErrorOf,
    Head,
    even_chunk,
    given_errors,
    gradient_of,
    learnt_in_chunks,
    wide_type,
)
from xmtc.nn.heads.label_attention import with_a_token
from xmtc.nn.training.losses import PartialBatch, candidate_error

PER_WORD, PER_UNIT = 9, 8
"""Numbers in memory per document and label: for each word, and for each unit of the perceptron."""


@dataclass(frozen=True)
class LabelSpecificSettings(Settings):
    """The two attentions of each label, and the shared perceptron."""

    attention: Literal["both", "self", "label"] = "both"
    """Attention by a learnt row of the label ('self'), by the vector of its name ('label'), or by both."""
    gate: bool = True
    """Mix both attentions by a gate that depends on document and label; false takes the mean."""
    names: bool = True
    """Start label vectors from the words of the label names; false starts with random vectors."""
    softmax: bool = True
    """Normalise the attention by names with a softmax; false uses the plain inner products, as published."""
    units: int = 200
    """Units of the layer before self-attention."""
    hidden: int = 256
    """Units of the perceptron's hidden layer."""

    of = "head"

    def check(self) -> None:
        for name in ("units", "hidden"):
            self.require_range(name, 1, 1 << 16)


class _Words(NamedTuple):
    """What the words of a batch contribute; the values are the perceptron's first layer and the logit of the gate."""

    mask: Tensor  # (B, T) true at real words
    states: Tensor  # (B, T, 2k)
    features: Tensor  # (B, T, units) what self-attention compares rows with
    own: Tensor  # (B, T, hidden + 1) values that self-attention mixes
    ahead: Tensor  # (B, T, hidden + 1) values that the attention by names mixes: of the forward states
    behind: Tensor  # (B, T, hidden + 1) and of the backward states

    def detached(self) -> _Words:
        """The same as new leaves, to collect gradients of."""
        return _Words(self.mask, *(part.detach().requires_grad_() for part in self[1:]))


Choice = slice | Tensor
"""Consecutive labels, or labels (B, C) of each document."""


class LabelSpecificAttention(Head):
    """The rows and vectors of all labels, and the layers that they share."""

    takes_states = True

    def __init__(self, labels: int, width: int, settings: LabelSpecificSettings, names: Tensor | None = None) -> None:
        """`names` (L, width / 2) are initial label vectors; without them, label vectors start at random."""
        super().__init__()
        self.labels, self.settings, self._names = labels, settings, names
        self.has_rows, self.has_vectors = settings.attention != "label", settings.attention != "self"
        self.is_gated = settings.gate and settings.attention == "both"
        if self.has_rows:
            self.first = nn.Linear(width, settings.units)
            self.rows = nn.Parameter(torch.empty(labels, settings.units))  # (L, units) v
            nn.init.xavier_uniform_(self.first.weight)
            nn.init.zeros_(self.first.bias)
            nn.init.xavier_uniform_(self.rows)
        if self.has_vectors:
            self.vectors = nn.Parameter(torch.empty(labels, width // 2))  # (L, k) c
            if names is None:
                nn.init.xavier_uniform_(self.vectors)
            else:
                self.vectors.data.copy_(names)
        if self.is_gated:
            self.own_gate = nn.Parameter(torch.zeros(width))  # u
            self.name_gate = nn.Parameter(torch.zeros(width))  # w
        self.hidden, self.output = nn.Linear(width, settings.hidden), nn.Linear(settings.hidden, 1)
        for layer in (self.hidden, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    @property
    def of_labels(self) -> frozenset[str]:
        return frozenset({"rows", "vectors"} & {name for name, _ in self.named_parameters()})

    @torch.no_grad()
    def start_from(self, shares: Tensor) -> None:
        """Initialise the common bias with the mean label frequency; `shares` (L,) are fractions of the documents."""
        self.output.bias.fill_(torch.logit(shares.mean(), eps=1e-6))

    @torch.no_grad()
    def start_new_labels(self, shares: Tensor) -> None:
        """The vectors of new labels start from their names."""
        if self.has_vectors and self._names is not None:
            self.vectors[-len(shares) :] = self._names[-len(shares) :].to(self.vectors)

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        return even_chunk(self.labels, free // (batch * size * self._held(length)))

    def candidate_chunk(self, batch: int, length: int, size: int, free: int, count: int) -> int:
        """Like `chunk`, for `count` candidates per document, whose rows and gradients take memory as well."""
        gathered = 3 * (self.settings.units + self.hidden.in_features // 2)
        return even_chunk(count, free // (batch * size * (self._held(length) + gathered)))

    def _held(self, length: int) -> int:
        return PER_WORD * length + PER_UNIT * (self.settings.hidden + 1)

    # ---- scoring

    @torch.no_grad()
    def logits(self, states: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        """(B, high − low) logits of consecutive labels; states (B, T, 2k), mask (B, T) true at real words."""
        words, _ = self._words(states, mask)
        return self._scores(words, *self._of_labels(slice(low, high), states.dtype))

    @torch.no_grad()
    def candidate_logits(self, states: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        """(B, K) logits of labels given for each document; negative candidates are ignored."""
        words, _ = self._words(states, mask)
        numbers = candidates.clamp(min=0)
        parts = [self._scores(words, *self._of_labels(part, states.dtype)) for part in numbers.split(chunk, dim=1)]
        return torch.cat(parts, dim=1) if parts else states.new_empty(candidates.shape, dtype=torch.float32)

    @torch.no_grad()
    def weights(self, states: Tensor, mask: Tensor, label: int) -> Tensor:
        """(B, T) attention weights of a label: those of both attentions, in the proportion of the gate."""
        words, real = self._words(states, mask)
        rows, vectors = self._of_labels(slice(label, label + 1), states.dtype)
        parts = []
        if rows is not None:
            parts.append(self._attention(words, words.features, rows, softmax=True))
        if vectors is not None:
            ahead, behind = (self._attention(words, side, vectors).abs() for side in words.states.chunk(2, dim=2))
            parts.append((ahead + behind) / (ahead + behind).sum(1, keepdim=True).clamp(min=1e-12))
        if len(parts) == 2:
            own, named = self._mixtures(words, rows, vectors)
            assert own is not None
            assert named is not None
            parts = [share[:, None] * part for share, part in zip(self._shares(own, named), parts, strict=True)]
        return (torch.stack(parts).sum(0) * real)[..., 0].float()

    def _of_labels(self, numbers: Choice, kind: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """Rows and vectors of labels, (C, ·), or (B, C, ·) if they differ between documents; None if there are none."""
        rows = self.rows[numbers].to(kind) if self.has_rows else None
        return rows, self.vectors[numbers].to(kind) if self.has_vectors else None

    def _words(self, states: Tensor, mask: Tensor) -> tuple[_Words, Tensor]:
        """The contributions of the words, and (B, 1, 1) 0 for empty documents, otherwise 1."""
        states, mask, real = with_a_token(states, mask)
        kind, half = states.dtype, states.shape[2] // 2
        weight = self.hidden.weight.to(kind)  # (hidden, 2k)
        features = own = ahead = behind = states[..., :0]
        if self.has_rows:
            below = torch.cat([weight, self.own_gate[None].to(kind)]) if self.is_gated else weight
            features = torch.tanh(F.linear(states, self.first.weight.to(kind), self.first.bias.to(kind)))
            own = F.linear(states, below)
        if self.has_vectors:
            below = torch.cat([weight, self.name_gate[None].to(kind)]) if self.is_gated else weight
            ahead, behind = F.linear(states[..., :half], below[:, :half]), F.linear(states[..., half:], below[:, half:])
        return _Words(mask, states, features, own, ahead, behind), real

    def _attention(self, words: _Words, compared: Tensor, rows: Tensor, softmax: bool | None = None) -> Tensor:
        """(B, T, C) weights of the words for labels with these rows."""
        scores = compared @ rows.transpose(-1, -2)
        if self.settings.softmax if softmax is None else softmax:
            return torch.softmax(scores.masked_fill(~words.mask[..., None], -torch.inf), dim=1)
        return scores * words.mask[..., None]

    def _mixtures(
        self, words: _Words, rows: Tensor | None, vectors: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """(B, C, hidden + 1) mixed values of both attentions; None for one that is switched off."""
        own = named = None
        if rows is not None:
            own = self._attention(words, words.features, rows, softmax=True).transpose(1, 2) @ words.own
        if vectors is not None:
            ahead, behind = (self._attention(words, side, vectors) for side in words.states.chunk(2, dim=2))
            named = ahead.transpose(1, 2) @ words.ahead + behind.transpose(1, 2) @ words.behind
        return own, named

    def _shares(self, own: Tensor, named: Tensor) -> tuple[Tensor, Tensor]:
        """Shares of two mixtures, each (B, C), or (1, 1) without a gate; they sum to 1."""
        if not self.is_gated:
            half = own.new_full((1, 1), 0.5)
            return half, half
        left, right = torch.sigmoid(own[..., -1]), torch.sigmoid(named[..., -1])
        share = left / (left + right)
        return share, 1.0 - share

    def _scores(self, words: _Words, rows: Tensor | None, vectors: Tensor | None) -> Tensor:
        """(B, C) logits of labels with these rows and vectors."""
        own, named = self._mixtures(words, rows, vectors)
        if own is not None and named is not None:
            left, right = self._shares(own, named)
            mixed = left[..., None] * own + right[..., None] * named
        else:
            found = own if named is None else named
            assert found is not None
            mixed = found
        active = torch.relu(mixed[..., : self.settings.hidden] + self.hidden.bias.to(mixed.dtype))
        return (active @ self.output.weight[0].to(mixed.dtype)).to(wide_type(mixed)) + self.output.bias

    # ---- training

    def learn(
        self, states: Tensor, mask: Tensor, positives: Tensor, chunk: int, partial: PartialBatch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss over documents and labels, and its gradient in the states; parameter gradients are accumulated."""
        scale = 1.0 / (len(states) * self.labels)
        return learnt_in_chunks(
            lambda error: self._propagate(states, mask, self._slices(chunk), error), states, positives, scale, partial
        )

    def propagate(self, states: Tensor, mask: Tensor, error: Tensor, chunk: int) -> Tensor:
        """Gradient in the states of given errors (B, L) of the logits; parameter gradients are accumulated."""
        return self._propagate(states, mask, self._slices(chunk), given_errors(error))

    def learn_candidates(
        self, states: Tensor, mask: Tensor, candidates: Tensor, targets: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """Like `learn`, for given labels: `candidates` (B, K), −1 as padding, and `targets` (B, K) from 0 to 1."""
        loss = states.new_zeros((), dtype=wide_type(states))
        scale = 1.0 / max(1, candidates.numel())
        given, wanted = (candidates >= 0).to(loss.dtype), targets.to(loss.dtype)

        def error(logits: Tensor, low: int) -> Tensor:
            part = slice(low, low + logits.shape[1])
            added, error = candidate_error(logits, wanted[:, part], given[:, part])
            loss.add_(added)
            return error.mul_(scale)

        d_states = self._propagate(states, mask, candidates.clamp(min=0).split(chunk, dim=1), error)
        return loss * scale, d_states

    def _slices(self, chunk: int) -> list[slice]:
        return [slice(low, min(low + chunk, self.labels)) for low in range(0, self.labels, chunk)]

    def _propagate(self, states: Tensor, mask: Tensor, chunks: Iterable[Choice], error_of: ErrorOf) -> Tensor:
        """Gradient in the states; `error_of` maps the logits (B, C) of a chunk, and its first place, to errors."""
        shared = [part for name, part in self.named_parameters() if name not in self.of_labels and part.requires_grad]
        of_labels = [part for name, part in self.named_parameters() if name in self.of_labels]  # rows, then vectors
        with torch.enable_grad():
            leaf = states.detach().requires_grad_()
            words, _ = self._words(leaf, mask)
        parts, low = words.detached(), 0
        sums = [torch.zeros_like(part) for part in parts[1:]]
        for numbers in chunks:
            with torch.no_grad():
                found = self._of_labels(numbers, states.dtype)
            rows, vectors = (None if part is None else part.detach().requires_grad_() for part in found)
            with torch.enable_grad():
                logits = self._scores(parts, rows, vectors)
            leaves = [part for part in (rows, vectors) if part is not None]
            wanted = [*parts[1:], *leaves, *shared]
            gradients = torch.autograd.grad(logits, wanted, error_of(logits.detach(), low), allow_unused=True)
            _add(sums, gradients[: len(sums)])
            for parameter, gradient in zip(of_labels, gradients[len(sums) :], strict=False):
                _add_rows(gradient_of(parameter), numbers, gradient)
            _add([gradient_of(part) for part in shared], gradients[len(sums) + len(leaves) :])
            low += logits.shape[1]
        d_states, *below = torch.autograd.grad(words[1:], [leaf, *shared], sums, allow_unused=True)
        _add([gradient_of(part) for part in shared], below)
        return d_states


@torch.no_grad()
def _add(sums: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    """Add gradients to their sums; None for those of unused tensors."""
    for total, gradient in zip(sums, gradients, strict=True):
        if gradient is not None:
            total.add_(gradient)


@torch.no_grad()
def _add_rows(total: Tensor, numbers: Choice, gradient: Tensor) -> None:
    """Add the gradient of chosen rows to that of all rows (L, d)."""
    if isinstance(numbers, slice):
        total[numbers] += gradient
    else:
        total.index_add_(0, numbers.reshape(-1), gradient.reshape(-1, total.shape[1]).to(total.dtype))
