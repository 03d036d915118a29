"""Convolutions over windows of words with dynamic max-pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Range
from xmtc.nn.encoders.base import Encoder, EncoderSettings, initialise, linear


@dataclass(frozen=True)
class ConvolutionSettings(EncoderSettings):
    """Convolutions over windows of words with dynamic max-pooling, then a bottleneck layer."""

    windows: tuple[int, ...] = (2, 4, 8)
    """Window sizes of the convolution filters, in words."""
    filters: Annotated[int, Range(64, 512, log=True)] = 128
    """Number of filters for each window size."""
    pools: Annotated[int, Range(2, 32, log=True)] = 8
    """Number of segments of the text for dynamic max-pooling."""
    hidden: Annotated[int, Range(256, 1024, log=True)] = 512
    """Units of the bottleneck layer."""
    word_dropout: Annotated[float, Range(0, 0.5)] = 0.25
    """Dropout rate of the word embeddings."""
    dropout: Annotated[float, Range(0.2, 0.7)] = 0.5
    """Dropout rate of the bottleneck layer."""

    def check(self) -> None:
        self.require("windows", bool(self.windows) and min(self.windows) >= 1, "a list of integers ≥ 1")
        for name in ("filters", "pools", "hidden"):
            self.require_range(name, 1, 1 << 16)
        self.require_dropout("word_dropout", "dropout")

    def build(self, width: int) -> Encoder:
        return Convolution(width, self)


class Convolution(Encoder):
    """Document vectors (B, hidden) by convolutions with dynamic max-pooling: one maximum per filter and segment.

    Segments divide the real words of a text, so that the result does not depend on padding. The bottleneck layer is
    normalised before its ReLU: pooled values are all positive, and Adam's first steps would otherwise kill every unit.
    """

    def __init__(self, width: int, settings: ConvolutionSettings) -> None:
        super().__init__()
        self.word_dropout, self.dropout, self.pools = settings.word_dropout, settings.dropout, settings.pools
        self.convolutions = nn.ModuleList(nn.Conv1d(width, settings.filters, window) for window in settings.windows)
        self.layer = nn.Linear(len(settings.windows) * settings.filters * settings.pools, settings.hidden)
        for convolution in self._filters:
            initialise(convolution)
        initialise(self.layer)
        self.width = settings.hidden

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        words = F.dropout(words, self.word_dropout, self.training) * mask.t()[..., None].to(words.dtype)
        words = words.permute(1, 2, 0)  # (B, e, T)
        part = self._parts(mask)
        pooled = []
        for convolution in self._filters:
            window = convolution.kernel_size[0]
            assert convolution.bias is not None
            around = F.pad(words, (window // 2, (window - 1) // 2))
            maps = F.relu(F.conv1d(around, convolution.weight.to(words.dtype), convolution.bias.to(words.dtype)))
            for place in range(self.pools):
                pooled.append((maps * (part == place)[:, None].to(maps.dtype)).amax(2))
        vector = F.relu(F.layer_norm(linear(self.layer, torch.cat(pooled, dim=1)), [self.width]))
        return F.dropout(vector, self.dropout, self.training)

    @property
    def _filters(self) -> list[nn.Conv1d]:
        return cast("list[nn.Conv1d]", list(self.convolutions))

    def _parts(self, mask: Tensor) -> Tensor:
        """(B, T) the segment of each word; −1 at padding."""
        length = mask.sum(1, keepdim=True)
        place = torch.arange(mask.shape[1], device=mask.device)[None] - (mask.shape[1] - length)
        return torch.where(mask, place * self.pools // length.clamp(min=1), -1)
