"""The label side of Rank-AE: label sets are encoded into the code space of the documents and decoded from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Choices, Range, Settings
from xmtc.nn.encoders.base import initialise
from xmtc.nn.encoders.rank_ae_encoder import Activation, activated
from xmtc.nn.heads.base import Head, LinearHead, gradient_of, wide_type
from xmtc.nn.training.losses import CrossEntropy, LabelLoss, PartialBatch
from xmtc.nn.training.ranking_loss import RankingLoss

LossName = Literal["ranking", "bce"]
ROWS_AT_ONCE = 1 << 24
"""Values of label rows whose gradient is written at a time."""


@dataclass(frozen=True)
class AutoencoderSettings(Settings):
    """Encoding and decoding of label sets, and the loss."""

    hidden: Annotated[int, Range(128, 1024, log=True)] = 256
    """Units of the hidden layers of the label encoder and the decoder."""
    decode_from: Literal["label", "feature", "both"] = "both"
    """Codes to decode in training: those of label sets ('label', as published), of documents ('feature'), or both."""
    loss: LossName = "ranking"
    """Loss of labels decoded from label sets: margin ranking, or binary cross-entropy summed over labels."""
    feature_loss: LossName = "bce"
    """Loss of labels decoded from documents."""
    balance: Annotated[float, Range(0.03, 10, log=True)] = 1.0
    """Weight of the loss of labels decoded from label sets, relative to the mean squared distance of the codes."""
    feature_balance: Annotated[float, Range(0.03, 10, log=True)] = 6.0
    """Weight of the loss of labels decoded from documents."""
    dropout: Annotated[float, Range(0, 0.6)] = 0.0
    """Dropout rate of the decoder's hidden layer."""
    label_dropout: Annotated[float, Range(0, 0.5)] = 0.0
    """Fraction of a document's labels to hide from the label encoder; they must still be decoded."""
    straight: bool = False
    """Also score labels by a linear function of the bag; adds one weight for each pair of label and feature."""
    follow: Annotated[bool, Choices()] = True
    """Also move the codes of label sets towards those of documents, instead of only the reverse."""
    ranking: RankingLoss = field(default_factory=RankingLoss)
    """Settings of the margin ranking loss."""

    of = "head"

    def check(self) -> None:
        self.require_range("hidden", 1, 1 << 16)
        self.require_range("balance", 0)
        self.require_range("feature_balance", 0)
        for name in ("dropout", "label_dropout"):
            self.require(name, 0 <= getattr(self, name) < 1, "a number ≥ 0 and < 1")


class LabelAutoencoder(Head):
    """Decodes the codes (B, h) of documents; in training, label sets are encoded as well.

    The loss is the mean squared distance between the codes of a document and of its label set, plus the losses of the
    labels decoded from either. Codes and hidden layers are small and use autograd in float32; the output layer scores
    labels in chunks and propagates the gradient of each chunk at once. The first layer of the label encoder is a sum of
    rows, one for each label of the document.

    With `straight`, documents are codes followed by their bags (B, h + V), and labels decoded from documents are scored
    by both.
    """

    def __init__(
        self, labels: int, width: int, settings: AutoencoderSettings, activation: Activation, straight: int = 0
    ) -> None:
        super().__init__()
        self.labels, self.width, self.settings, self.activation = labels, width, settings, activation
        self.output = LinearHead(labels, settings.hidden + straight)
        nn.init.zeros_(self.output.rows[:, settings.hidden :])
        self.decode = nn.Linear(width, settings.hidden)
        self.decode_norm = nn.LayerNorm(settings.hidden)
        initialise(self.decode)
        self.encodes = settings.decode_from != "feature"
        if self.encodes:
            self.label_rows = nn.Parameter(torch.empty(labels, settings.hidden).uniform_(-0.2, 0.2))
            self.label_bias = nn.Parameter(torch.zeros(settings.hidden))
            self.label_norm = nn.LayerNorm(settings.hidden)
            self.encode = nn.Linear(settings.hidden, width)
            initialise(self.encode)

    @property
    def of_labels(self) -> frozenset[str]:
        return frozenset({"output.rows", "output.bias", *(("label_rows",) if self.encodes else ())})

    def start_from(self, shares: Tensor) -> None:
        self.output.start_from(shares)

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        return self.output.chunk(batch, length, size, free)

    @torch.no_grad()
    def logits(self, documents: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        return self.output.logits(self._read(documents), mask, low, high)

    @torch.no_grad()
    def candidate_logits(self, documents: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        return self.output.candidate_logits(self._read(documents), mask, candidates, chunk)

    def _read(self, documents: Tensor) -> Tensor:
        """The input of the output layer for documents."""
        hidden = self._hidden(documents[:, : self.width]).to(documents.dtype)
        return torch.cat([hidden, documents[:, self.width :]], dim=1)

    def learn(
        self, documents: Tensor, mask: Tensor, positives: Tensor, chunk: int, partial: PartialBatch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss of a batch, and its gradient with respect to the codes; parameter gradients are accumulated.

        The code of a document with unknown labels is not compared with that of its label set, which is incomplete.
        """
        settings, compute = self.settings, documents.dtype
        codes = documents[:, : self.width].detach().to(wide_type(documents)).requires_grad_()
        bag = documents[:, self.width :]
        loss = codes.new_zeros(())
        ends: list[tuple[Tensor, Tensor]] = []  # tensors to differentiate, with their incoming gradients
        if self.encodes:
            kept = self._kept(positives, codes.dtype)
            summed = self._summed(positives, kept)
            with torch.enable_grad():
                encoded = self._encoded(summed)
                wanted = encoded if settings.follow else encoded.detach()
                if partial is None:
                    apart = F.mse_loss(codes, wanted)
                else:
                    apart = ((codes - wanted).square() * (~partial.partial)[:, None]).mean()
            loss += apart.detach()
            ends.append((apart, torch.ones_like(apart)))
            given = positives, partial
            part, end = self._decoded(encoded, bag[:, :0], given, chunk, settings.loss, settings.balance)
            loss += part
            ends.append(end)
        if settings.decode_from != "label":
            weight = settings.feature_balance
            part, end = self._decoded(codes, bag, (positives, partial), chunk, settings.feature_loss, weight)
            loss += part
            ends.append(end)
        self._take_back([codes, *([summed] if self.encodes else [])], ends)
        if self.encodes:
            self._add_row_gradient(positives, kept, gradient_of(summed))
        return loss, gradient_of(codes).to(compute)

    def _decoded(
        self,
        codes: Tensor,
        bag: Tensor,
        given: tuple[Tensor, PartialBatch | None],
        chunk: int,
        loss: LossName,
        weight: float,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Weighted mean loss of the labels decoded from codes; the hidden layer, and the gradient of the loss in it."""
        with torch.enable_grad():
            hidden = F.dropout(self._hidden(codes), self.settings.dropout, self.training)
        objective: LabelLoss = self.settings.ranking if loss == "ranking" else CrossEntropy()
        vectors = torch.cat([hidden.detach().to(bag.dtype), bag], dim=1)
        scale, width = weight / len(codes), hidden.shape[1]
        positives, partial = given
        part, gradient = self.output.learn_by(objective, vectors, positives, chunk, scale, width, partial)
        return part, (hidden, gradient.to(hidden.dtype))

    def _hidden(self, codes: Tensor) -> Tensor:
        return F.relu(self.decode_norm(self.decode(codes.to(wide_type(codes)))))

    def _kept(self, positives: Tensor, kind: torch.dtype) -> Tensor:
        """(B, m) mask of the labels that a label set is encoded with."""
        kept = positives >= 0
        if self.settings.label_dropout and self.training:
            kept = kept & (torch.rand(positives.shape, device=positives.device) >= self.settings.label_dropout)
        return kept.to(kind)

    @torch.no_grad()
    def _summed(self, positives: Tensor, kept: Tensor) -> Tensor:
        """(B, hidden) sum of the rows of a document's labels, as a leaf of autograd."""
        numbers = positives.clamp(min=0)
        rows = F.embedding_bag(numbers, self.label_rows, mode="sum", per_sample_weights=kept)
        return rows.requires_grad_()

    def _encoded(self, summed: Tensor) -> Tensor:
        hidden = F.relu(self.label_norm(summed + self.label_bias))
        return activated(self.activation, self.encode(hidden))

    def _take_back(self, leaves: list[Tensor], ends: list[tuple[Tensor, Tensor]]) -> None:
        """Accumulate gradients in the small layers and in the leaves, which are not parameters."""
        wanted = [*leaves, *self._small()]
        computed, gradients = [end for end, _ in ends], [gradient for _, gradient in ends]
        found = torch.autograd.grad(computed, wanted, gradients, allow_unused=True)
        with torch.no_grad():
            for part, gradient in zip(wanted, found, strict=True):
                if gradient is not None:
                    gradient_of(part).add_(gradient)

    def _small(self) -> list[nn.Parameter]:
        layers: list[nn.Module] = [self.decode, self.decode_norm]
        if not self.encodes:
            return [part for layer in layers for part in layer.parameters()]
        layers += [self.label_norm, self.encode]
        return [self.label_bias, *(part for layer in layers for part in layer.parameters())]

    @torch.no_grad()
    def _add_row_gradient(self, positives: Tensor, kept: Tensor, gradient: Tensor) -> None:
        """Add the gradient of each sum to the rows that it consists of."""
        most = max(1, ROWS_AT_ONCE // gradient.numel())
        spread_out = torch.arange(positives.numel(), device=positives.device).view_as(positives) % self.labels
        places = torch.where(positives < 0, spread_out, positives)  # padding adds zero; spread over rows
        for numbers, parts in zip(places.split(most, 1), kept.split(most, 1), strict=True):
            spread = gradient[:, None, :] * parts[..., None]  # (B, labels of a document, hidden)
            gradient_of(self.label_rows).index_add_(0, numbers.flatten(), spread.flatten(0, 1))

    def is_training_only(self, name: str) -> bool:
        """Whether a parameter belongs to the label encoder."""
        return name.startswith(("label_", "encode."))

    def drop_training_parts(self) -> None:
        self.encodes = False
        for name in [name for name, _ in self.named_parameters() if self.is_training_only(name)]:
            self.get_submodule(name.rpartition(".")[0]).register_parameter(name.rpartition(".")[2], None)
