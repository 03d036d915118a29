"""MAACF+'s scores of document–label pairs: the aspects of a document, and a label with its group of related labels.

For a document with aspects s_1 … s_n, and a label with embedding e and group g_1 … g_k:

    α_aj = softmax over j of (g_j · s_a)      each aspect attends to the labels of the group,
    h_a  = Σ_j α_aj g_j                        which gives one vector per aspect;
    β_a  = softmax over a of (w_a · h_a + b_a) these are weighted
    H    = A e + B Σ_a β_a h_a + b_f           and fused with the label's own embedding;
    γ_a  = softmax over a of (e · s_a)         the label attends to the aspects,
    S    = Σ_a γ_a s_a                         which gives a label-specific document vector;
    logit = v · relu(U_s S + U_h H + b_u) + c + the label's bias + (optionally) e · S.

Only the weights α, β, γ are computed for every pair: U_s s_a depends on the document only, U_h A e and U_h B g_j on the
labels only, and the input of the ReLU is a sum of these few vectors. This is exact for one and two layers; a third
layer has to be computed for every pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Choices, Range, Settings
from xmtc.nn.heads.base import Head, even_chunk, gradient_of, wide_type
from xmtc.nn.training.losses import PartialBatch, dense_error

TILE_BYTES = {"cpu": 4 << 20, "cuda": 256 << 20}
"""Memory for hidden values computed at once: small enough for a CPU cache, large enough to keep a GPU busy."""
BESIDE = 40
"""Values per pair besides the hidden ones: attention weights and their inputs."""
FEW, DRAWN = 10_000, 128
"""Defaults of `negatives`: up to 10,000 labels, every step uses all; above, this many are sampled."""
PASSED = 6
"""Copies of the hidden values in memory during training."""


@dataclass(frozen=True)
class CollaborativeSettings(Settings):
    """Scoring of document–label pairs, and the loss."""

    attention: Literal["cross", "self"] = "cross"
    """Attention: 'cross' between aspects and labels in both directions, or 'self' within each side."""
    layers: Annotated[int, Choices(1, 2)] = 2
    """Linear layers of the perceptron; a third one is computed for every pair and is much slower."""
    product: Annotated[bool, Choices()] = True
    """Add the inner product of label and document vector to the score; a perceptron learns it slowly."""
    hidden: Annotated[int, Range(128, 1024, log=True)] = 256
    """Units of the perceptron's hidden layers."""
    dropout: Annotated[float, Range(0, 0.6)] = 0.2
    """Dropout rate of the perceptron's hidden layers."""
    loss: Literal["bce", "bpr"] = "bce"
    """Loss: binary cross-entropy per label, or Bayesian personalised ranking (as published)."""
    negatives: int | Literal["auto"] = "auto"
    """Number of negative labels sampled per document and step; 0 uses all, which 'bpr' does not support.

    'auto' uses all with 'bce' and at most 10,000 labels, otherwise 128.
    """
    hard: Annotated[float, Range(0, 1)] = 0.5
    """Fraction of hard negatives: the highest-scoring labels of a random pool."""
    pool: int = 4096
    """Size of the random pool for hard negatives, redrawn at each step."""

    of = "head"

    def drawn(self, labels: int) -> int:
        """Number of negatives sampled per document; 0 if all labels are used."""
        if self.negatives == "auto":
            return 0 if self.loss == "bce" and labels <= FEW else min(DRAWN, labels)
        return min(self.negatives, labels)

    def check(self) -> None:
        self.require_range("layers", 1, 3)
        self.require_range("hidden", 1, 1 << 16)
        self.require("dropout", 0 <= self.dropout < 1, "a number ≥ 0 and < 1")
        if self.negatives != "auto":
            self.require("negatives", self.negatives >= 0, "an integer ≥ 0, or auto")
            self.require("negatives", self.negatives > 0 or self.loss == "bce", "≥ 1 with head.loss = 'bpr'")
        self.require_range("hard", 0, 1)
        self.require_range("pool", 1)


class Tables(NamedTuple):
    """Label-side values, which do not depend on the documents."""

    rows: Tensor  # (L, D) embeddings
    base: Tensor  # (L, h) U_h (A e + b_f) + b_u
    around: Tensor  # (L, h) U_h B g, for use in another label's group
    weighed: Tensor  # (L, n) w_a · g
    query_logits: Tensor  # (L, n) of the labels themselves; empty with cross attention


class Attention(NamedTuple):
    """Attention weights of the pairs."""

    aspects: Tensor  # (B, n, C) γ
    products: Tensor  # (B, n, C) γ_a e · s_a
    group: Tensor  # (B, C, k) Σ_a β_a α_aj

    def part(self, documents: slice, labels: slice) -> Attention:
        """The weights of some documents and labels."""
        aspects, products = self.aspects[documents, :, labels], self.products[documents, :, labels]
        return Attention(aspects, products, self.group[documents, labels])


class Added(NamedTuple):
    """Contributions to one score: attention weights, and how much the score drops without each part."""

    aspects: list[tuple[float, float]]
    group: list[tuple[int, float, float]]
    """Label, attention, contribution."""


class CollaborativeHead(Head):
    """Scores concatenated aspects of documents (B, n·D) against labels.

    `groups` (L, k) has the related labels of each label, −1 as padding. Parameters and sums are in float32, whatever
    the type of the aspects.
    """

    groups: Tensor

    def __init__(self, labels: int, aspects: int, width: int, groups: Tensor, settings: CollaborativeSettings) -> None:
        super().__init__()
        self.labels, self.aspects, self.width, self.settings = labels, aspects, width, settings
        self.register_buffer("groups", groups.long(), persistent=False)
        hidden = settings.hidden if settings.layers > 1 else 1
        self.rows = nn.Parameter(torch.randn(labels, width) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(labels))
        self.fuse = nn.Linear(2 * width, width)
        self.first = nn.Linear(2 * width, hidden)
        self.second = nn.Linear(hidden, hidden) if settings.layers > 2 else None
        self.last = nn.Linear(hidden, 1) if settings.layers > 1 else None
        for layer in (self.fuse, self.first, self.second, self.last):
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.aspect_rows = nn.Parameter(torch.randn(aspects, width) * width**-0.5)  # w
        self.aspect_bias = nn.Parameter(torch.zeros(aspects))
        if settings.attention == "self":
            self.group_query = nn.Parameter(torch.randn(aspects, width) * width**-0.5)
            self.text_query = nn.Parameter(torch.randn(aspects, width) * width**-0.5)
        self._kept: Tables | None = None

    @property
    def of_labels(self) -> frozenset[str]:
        return frozenset({"rows", "bias"})

    @torch.no_grad()
    def start_from(self, shares: Tensor) -> None:
        self.bias.copy_(torch.logit(shares, eps=1e-6))

    def train(self, mode: bool = True) -> CollaborativeHead:
        """Discard the cached tables on entering training, since weights only change there."""
        if mode:
            self._kept = None
        super().train(mode)
        return self

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        held = BESIDE + (PASSED * self.first.out_features if self.training else 0)
        return even_chunk(self.labels, free // (batch * held * 4))

    # ---- scoring

    @torch.no_grad()
    def logits(self, encoded: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        tables, aspects = self._worked_out(), self._aspects(encoded)
        numbers = torch.arange(low, high, device=encoded.device)
        return self._shared(aspects, tables, numbers)

    @torch.no_grad()
    def candidate_logits(self, encoded: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        tables, aspects = self._worked_out(), self._aspects(encoded)
        held = (1 + self.groups.shape[1]) * (self.width + self.first.out_features)
        step = max(1, chunk * BESIDE // held)
        parts = [self._given(aspects, tables, part) for part in candidates.clamp(min=0).split(step, dim=1)]
        return torch.cat(parts, dim=1) if parts else aspects.new_empty(candidates.shape)

    def _worked_out(self) -> Tables:
        """The label-side tables; cached in evaluation mode."""
        if self.training:
            return self._tables()
        if self._kept is None or self._kept.rows.device != self.rows.device:
            self._kept = self._tables()
        return self._kept

    def _aspects(self, encoded: Tensor) -> Tensor:
        """The aspects (B, n, D), at least in float32."""
        return encoded.view(len(encoded), self.aspects, self.width).to(wide_type(encoded))

    def _tables(self) -> Tables:
        width = self.width
        labels_part = self.first.weight[:, width:]  # U_h
        base = F.linear(
            self.rows,
            labels_part @ self.fuse.weight[:, :width],
            labels_part @ self.fuse.bias + self.first.bias,
        )
        around = F.linear(self.rows, labels_part @ self.fuse.weight[:, width:])
        query_logits = self.rows[:, :0] if self.settings.attention == "cross" else F.linear(self.rows, self.group_query)
        return Tables(self.rows, base, around, F.linear(self.rows, self.aspect_rows), query_logits)

    def _shared(self, aspects: Tensor, tables: Tables, numbers: Tensor) -> Tensor:
        """(B, C) logits of the same labels for all documents."""
        groups = self.groups[numbers]  # (C, k)
        picked = groups.clamp(min=0).flatten()
        own = aspects @ tables.rows.index_select(0, numbers).t()  # (B, n, C)
        if self.settings.attention == "cross":
            query_logits = aspects @ tables.rows.index_select(0, picked).t()
        else:
            query_logits = tables.query_logits.index_select(0, picked).t()[None]
        query_logits = query_logits.unflatten(-1, groups.shape)  # (B or 1, n, C, k)
        weighed = tables.weighed.index_select(0, picked).t().unflatten(-1, groups.shape)
        attention = self._attention(aspects, own, query_logits, weighed, groups >= 0)
        base = tables.base.index_select(0, numbers)[None]
        around = tables.around.index_select(0, picked).unflatten(0, groups.shape)[None]
        queries = self._queries(aspects)
        if torch.is_grad_enabled():
            hidden = self._hidden(base, around, attention, queries)
            return self._predicted(hidden) + self._beside(attention, numbers)
        out = self._beside(attention, numbers).contiguous()
        for documents, labels in self._tiles(len(aspects), len(numbers), aspects.device.type):
            part = attention.part(documents, labels)
            hidden = self._hidden(base[:, labels], around[:, labels], part, queries[documents])
            out[documents, labels] += self._predicted(hidden)
        return out

    def _given(self, aspects: Tensor, tables: Tables, numbers: Tensor) -> Tensor:
        """(B, K) logits of labels given for each document; the document itself is never copied for them."""
        base, around, attention, queries = self._met(aspects, tables, numbers)
        return self._predicted(self._hidden(base, around, attention, queries)) + self._beside(attention, numbers)

    def _beside(self, attention: Attention, numbers: Tensor) -> Tensor:
        """(B, C) terms added to the output of the perceptron."""
        own = _of_each(self.bias, numbers).expand(len(attention.aspects), -1)
        return own + attention.products.sum(1) if self.settings.product else own

    def _met(self, aspects: Tensor, tables: Tables, numbers: Tensor) -> tuple[Tensor, Tensor, Attention, Tensor]:
        """The inputs of the hidden layer for given labels (B, K)."""
        groups = self.groups[numbers]  # (B, K, k)
        picked = groups.clamp(min=0).flatten(1)
        turned = aspects.transpose(1, 2)
        own = (_of_each(tables.rows, numbers) @ turned).transpose(1, 2)  # (B, n, K)
        if self.settings.attention == "cross":
            query_logits = _of_each(tables.rows, picked) @ turned
        else:
            query_logits = _of_each(tables.query_logits, picked)
        query_logits = query_logits.transpose(1, 2).unflatten(-1, groups.shape[1:])
        weighed = _of_each(tables.weighed, picked).transpose(1, 2).unflatten(-1, groups.shape[1:])
        attention = self._attention(aspects, own, query_logits, weighed, (groups >= 0)[:, None])
        around = _of_each(tables.around, picked).unflatten(1, groups.shape[1:])
        return _of_each(tables.base, numbers), around, attention, self._queries(aspects)

    def _attention(
        self, aspects: Tensor, own: Tensor, query_logits: Tensor, weighed: Tensor, held: Tensor
    ) -> Attention:
        """own (B, n, C), query_logits and weighed (B or 1, n, C, k), held (…, C, k) mask of real labels."""
        if self.settings.attention == "cross":
            gamma = own.softmax(1)
        else:
            gamma = torch.einsum("bnd,nd->bn", aspects, self.text_query).softmax(1)[..., None].expand_as(own)
        if not query_logits.shape[-1]:
            return Attention(gamma, gamma * own, own.new_zeros(len(own), own.shape[2], 0))
        alpha = query_logits.masked_fill(~held, torch.finfo(query_logits.dtype).min).softmax(-1) * held
        beta = ((alpha * weighed).sum(-1) + self.aspect_bias[:, None]).softmax(1)
        return Attention(gamma, gamma * own, (alpha * beta[..., None]).sum(1).expand(len(own), -1, -1))

    def _queries(self, aspects: Tensor) -> Tensor:
        """(B, n, h) U_s s_a."""
        return F.linear(aspects, self.first.weight[:, : self.width])

    def _hidden(self, base: Tensor, around: Tensor, attention: Attention, queries: Tensor) -> Tensor:
        """(B, C, h) input of the first ReLU; base (B or 1, C, h), around (B or 1, C, k, h)."""
        gamma = attention.aspects.transpose(1, 2)
        hidden = torch.baddbmm(base.expand(len(gamma), -1, -1), gamma, queries)
        for place in range(around.shape[2]):
            hidden = hidden.addcmul_(attention.group[:, :, place, None], around[:, :, place])
        return hidden

    def _predicted(self, hidden: Tensor) -> Tensor:
        """(B, C) output of the perceptron, given its first layer, which is overwritten."""
        if self.last is None:
            return hidden[..., 0]
        hidden = self._thinned(hidden.relu_())
        if self.second is not None:
            hidden = self._thinned(self.second(hidden).relu_())
        last: Tensor = self.last(hidden)
        return last[..., 0]

    def _thinned(self, hidden: Tensor) -> Tensor:
        """Apply dropout in training."""
        return F.dropout(hidden, self.settings.dropout, self.training and torch.is_grad_enabled())

    def _tiles(self, documents: int, labels: int, kind: str) -> list[tuple[slice, slice]]:
        """Split documents and labels into tiles whose hidden values fit into memory."""
        most = max(1, TILE_BYTES[kind] // (4 * self.first.out_features))  # pairs
        across = min(documents, max(1, int(most**0.5) // 4))
        along = max(1, most // across)
        return [
            (slice(top, top + across), slice(left, left + along))
            for left in range(0, labels, along)
            for top in range(0, documents, across)
        ]

    # ---- training

    def learn(
        self, encoded: Tensor, mask: Tensor, positives: Tensor, chunk: int, partial: PartialBatch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss of a batch, and its gradient in the aspects; parameter gradients are accumulated."""
        aspects = self._aspects(encoded.detach()).clone().requires_grad_()
        learn = self._learn_drawn if self.settings.drawn(self.labels) else self._learn_all
        loss, gradient = learn(aspects, positives, chunk, partial)
        return loss, gradient.flatten(1).to(encoded.dtype)

    def _learn_drawn(
        self, aspects: Tensor, positives: Tensor, chunk: int, partial: PartialBatch | None
    ) -> tuple[Tensor, Tensor]:
        """Train on the labels of each document and sampled negatives; partial documents have rejected labels only."""
        with torch.enable_grad():
            tables = self._tables()
            negatives = self._drawn(aspects, tables, positives, chunk)
            if partial is not None:
                drawn = negatives.masked_fill(partial.partial[:, None], -1)
                negatives = torch.cat([drawn, partial.rejected], dim=1)
            numbers = torch.cat([positives.clamp(min=0), negatives.clamp(min=0)], dim=1)
            logits = self._given(aspects, tables, numbers)
            above, below = logits.split([positives.shape[1], negatives.shape[1]], dim=1)
            loss = pair_loss if self.settings.loss == "bpr" else single_loss
            found = loss(above, below, positives >= 0, negatives >= 0)
        return found.detach(), self._take_back([(found, torch.ones_like(found))], aspects)

    def _learn_all(
        self, aspects: Tensor, positives: Tensor, chunk: int, partial: PartialBatch | None
    ) -> tuple[Tensor, Tensor]:
        """Train on all labels; the gradients of a chunk are propagated at once, those of the tables at the end."""
        scale = 1.0 / (len(aspects) * self.labels)
        with torch.enable_grad():
            tables = self._tables()
        leaves = Tables(*(part.detach().requires_grad_() for part in tables))
        loss, gradient = aspects.new_zeros(()), torch.zeros_like(aspects)
        for low in range(0, self.labels, chunk):
            numbers = torch.arange(low, min(low + chunk, self.labels), device=aspects.device)
            with torch.enable_grad():
                logits = self._shared(aspects, leaves, numbers)
            part, error = dense_error(logits.detach(), positives, low, partial)
            loss += part
            gradient += self._take_back([(logits, error * scale)], aspects, leaves)
        gradient_of(self.rows).add_(gradient_of(leaves.rows))
        ends = [(part, gradient_of(leaf)) for part, leaf in zip(tables[1:], leaves[1:], strict=True) if leaf.numel()]
        self._take_back(ends, aspects)
        return loss * scale, gradient

    def _take_back(self, ends: list[tuple[Tensor, Tensor]], aspects: Tensor, leaves: Tables | None = None) -> Tensor:
        """Accumulate gradients in the parameters and leaves; returns the gradient in the aspects."""
        more = [] if leaves is None else [leaf for leaf in leaves if leaf.numel()]
        wanted = [aspects, *self.parameters(), *more]
        found = torch.autograd.grad(
            [end for end, _ in ends], wanted, [gradient for _, gradient in ends], allow_unused=True
        )
        with torch.no_grad():
            for part, gradient in zip(wanted[1:], found[1:], strict=True):
                if gradient is not None:
                    gradient_of(part).add_(gradient)
        return torch.zeros_like(aspects) if found[0] is None else found[0]

    @torch.no_grad()
    def _drawn(self, aspects: Tensor, tables: Tables, positives: Tensor, chunk: int) -> Tensor:
        """(B, N) negative labels, −1 if a positive one was drawn: hard ones from a pool, and random ones."""
        settings, device = self.settings, aspects.device
        most = settings.drawn(self.labels)
        hard = min(round(settings.hard * most), settings.pool)
        numbers = torch.randint(self.labels, (len(aspects), most - hard), device=device)
        if hard:
            if settings.pool < self.labels:
                pool = torch.randint(self.labels, (settings.pool,), device=device)
            else:
                pool = torch.arange(self.labels, device=device)
            worked = Tables(*(part.detach() for part in tables))
            scores = torch.cat([self._shared(aspects, worked, part) for part in pool.split(chunk)], dim=1)
            scores = scores.masked_fill_(among(pool.expand(len(aspects), -1), positives, self.labels), -torch.inf)
            numbers = torch.cat([pool[scores.topk(hard, dim=1).indices], numbers], dim=1)
        return numbers.masked_fill(among(numbers, positives, self.labels), -1)

    # ---- explanation

    @torch.no_grad()
    def added(self, encoded: Tensor, label: int) -> Added:
        """Contributions to the score of a label for one document (1, n·D)."""
        number = torch.tensor([[label]], device=encoded.device)
        base, around, attention, queries = self._met(self._aspects(encoded), self._worked_out(), number)

        def score(aspect: int | None = None, member: int | None = None) -> float:
            aspects, products, group = (part.clone() for part in attention)
            if aspect is not None:
                aspects[:, aspect] = products[:, aspect] = 0.0
            if member is not None:
                group[..., member] = 0.0
            left = Attention(aspects, products, group)
            return float(self._predicted(self._hidden(base, around, left, queries)) + self._beside(left, number))

        whole = score()
        aspects = [(float(attention.aspects[0, a, 0]), whole - score(aspect=a)) for a in range(self.aspects)]
        members = [
            (number, float(attention.group[0, 0, place]), whole - score(member=place))
            for place, number in enumerate(self.groups[label].tolist())
            if number >= 0
        ]
        return Added(aspects, members)


def _of_each(table: Tensor, numbers: Tensor) -> Tensor:
    """(…, d) rows of a table; gradients are accumulated in the table."""
    picked: Tensor = table.index_select(0, numbers.flatten()).unflatten(0, numbers.shape)
    return picked


def among(numbers: Tensor, positives: Tensor, labels: int) -> Tensor:
    """(B, K) whether each label is one of the document's; positives (B, m), −1 as padding."""
    is_there = torch.zeros(len(numbers), labels + 1, dtype=torch.bool, device=numbers.device)
    is_there.scatter_(1, positives.masked_fill(positives < 0, labels), True)
    return is_there.gather(1, numbers)


def pair_loss(above: Tensor, below: Tensor, are_above: Tensor, are_below: Tensor) -> Tensor:
    """Bayesian personalised ranking: softplus(below − above), averaged over pairs of a document, then over documents.

    The published equation has the opposite sign, which would rank a document's labels last.
    """
    pairs = F.softplus(below[:, None, :] - above[:, :, None]) * (are_above[:, :, None] & are_below[:, None, :])
    count = are_above.sum(1) * are_below.sum(1)
    return (pairs.sum((1, 2)) / count.clamp(min=1)).mean()


def single_loss(above: Tensor, below: Tensor, are_above: Tensor, are_below: Tensor) -> Tensor:
    """Binary cross-entropy per label, averaged over the labels of a document, then over documents."""
    summed = (F.softplus(-above) * are_above).sum(1) + (F.softplus(below) * are_below).sum(1)
    return (summed / (are_above.sum(1) + are_below.sum(1)).clamp(min=1)).mean()
