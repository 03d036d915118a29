"""DXML's encoder: a bag of words becomes a point on the unit sphere of the label vectors."""

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
    """From a bag of words to a point on the sphere of the label vectors."""

    hidden: Annotated[int, Range(128, 1024, log=True)] = 512
    """Units of the hidden layer."""
    linear: bool = False
    """Leave the non-linearity of the hidden layer out."""
    skip: Annotated[bool, Choices()] = True
    """Add a linear map of the document to what comes out of the hidden layer."""
    dropout: Annotated[float, Range(0.2, 0.8)] = 0.6
    """Share of the hidden layer's numbers that are left out in training."""
    spread: Annotated[float, Range(0.05, 0.5, log=True)] = 0.3
    """Standard deviation of the numbers by which a word adds to the hidden layer, as training begins."""
    output_dropout: float = 0.0
    """Share of the embedding's numbers that are left out in training, before it gets its length."""

    of = "encoder"

    def check(self) -> None:
        self.require_range("hidden", 1, 1 << 16)
        self.require_range("spread", 0, open_low=True)
        for name in ("dropout", "output_dropout"):
            self.require(name, 0 <= getattr(self, name) < 1, "a number from 0 to below 1")


class SphereEncoder(Encoder):
    """Unit vectors (B, width) of documents.

    A word's row is what it adds to the hidden layer and, with `skip`, what it adds to the embedding itself, so that the
    first layer is a sum over the words that are there and nothing else of the vocabulary is touched.
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
        """Numbers of a word's row where embeddings have `width`."""
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
