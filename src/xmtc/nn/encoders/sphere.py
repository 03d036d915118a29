"""DXML's encoder: maps a bag of words to a point on the unit sphere of the label vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Choices, Range, Settings
from xmtc.nn.encoders.base import Encoder


@dataclass(frozen=True)
class EmbeddingSettings(Settings):
    """Maps a bag of words to a point on the unit sphere of the label vectors."""

    hidden: Annotated[int, Range(128, 1024, log=True)] = 512
    """Units of the hidden layer."""
    linear: bool = False
    """Omit the non-linearity of the hidden layer."""
    skip: Annotated[bool, Choices()] = True
    """Add a linear skip connection from the document to the embedding."""
    dropout: Annotated[float, Range(0.2, 0.8)] = 0.6
    """Dropout rate of the hidden layer."""
    spread: Annotated[float, Range(0.05, 0.5, log=True)] = 0.3
    """Standard deviation of the initial word weights of the hidden layer."""
    output_dropout: float = 0.0
    """Dropout rate of the embedding, before it is normalised."""

    of = "encoder"

    def check(self) -> None:
        self.require_range("hidden", 1, 1 << 16)
        self.require_range("spread", 0, open_low=True)
        for name in ("dropout", "output_dropout"):
            self.require(name, 0 <= getattr(self, name) < 1, "a number ≥ 0 and < 1")


class SphereEncoder(Encoder):
    """Unit vectors (B, width) of documents.

    The row of a word is its contribution to the hidden layer and, with `skip`, to the embedding itself. The first layer
    is therefore a sum over the words of the document; no other rows of the vocabulary are read.
    """

    sums = True

    def __init__(self, width: int, settings: EmbeddingSettings) -> None:
        super().__init__()
        self.settings, self.width = settings, width
        self.bias = nn.Parameter(torch.zeros(settings.hidden))
        self.project = nn.Linear(settings.hidden, width)
        nn.init.uniform_(self.project.weight, -(settings.hidden**-0.5), settings.hidden**-0.5)
        nn.init.zeros_(self.project.bias)

    @staticmethod
    def row_width(width: int, settings: EmbeddingSettings) -> int:
        """Width of a word's row for embeddings of this width."""
        return settings.hidden + (width if settings.skip else 0)

    def forward(self, summed: Tensor, mask: Tensor) -> Tensor:
        settings = self.settings  # summed: (B, hidden, or hidden + width)
        hidden = summed[:, : settings.hidden] + self.bias
        if not settings.linear:
            hidden = F.relu(hidden)
        hidden = F.dropout(hidden, settings.dropout, self.training)
        embedded = self.project(hidden)
        if settings.skip:
            embedded = embedded + summed[:, settings.hidden :]
        embedded = F.dropout(embedded, settings.output_dropout, self.training)
        return F.normalize(embedded, dim=1)
