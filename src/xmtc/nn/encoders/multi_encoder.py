"""Aspects: several encoders of one kind with separate weights, whose vectors are concatenated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, cast

import torch
from torch import Tensor, nn

from xmtc.core.config import Choices, Settings
from xmtc.nn.encoders.base import Encoder, EncoderSettings
from xmtc.nn.encoders.cnn import ConvolutionSettings
from xmtc.nn.encoders.lstm import AttentionLstmSettings
from xmtc.nn.encoders.transformer import TransformerSettings


@dataclass(frozen=True)
class AspectConvolutionSettings(ConvolutionSettings):
    """Convolutions over windows of words with dynamic max-pooling, then a bottleneck layer."""

    hidden: int = 256
    """Units of the bottleneck layer; also the size of a label embedding."""

    of = "encoder.cnn"
    searched = False


@dataclass(frozen=True)
class AspectLstmSettings(AttentionLstmSettings):
    """A bidirectional LSTM with attention pooling."""

    of = "encoder.attention_lstm"
    searched = False


@dataclass(frozen=True)
class AspectTransformerSettings(TransformerSettings):
    """A pretrained transformer with attention pooling."""

    of = "encoder.transformer"
    searched = False


@dataclass(frozen=True)
class AspectSettings(Settings):
    """The document encoders: their number and kind."""

    kind: Literal["cnn", "attention_lstm", "transformer"] = "cnn"
    """Kind of encoder: convolutions, an LSTM with attention, or a pretrained transformer."""
    aspects: Annotated[int, Choices(1, 2, 3, 4)] = 3
    """Number of encoders, each with its own weights."""
    cnn: AspectConvolutionSettings = field(default_factory=AspectConvolutionSettings)
    """Settings of the convolutional encoders."""
    attention_lstm: AspectLstmSettings = field(default_factory=AspectLstmSettings)
    """Settings of the LSTM encoders."""
    transformer: AspectTransformerSettings = field(default_factory=AspectTransformerSettings)
    """Settings of the transformer encoders."""

    of = "encoder"

    @property
    def chosen(self) -> EncoderSettings:
        """Settings of the selected kind; transformers are built from their folder instead."""
        settings: EncoderSettings = getattr(self, self.kind)
        return settings

    def check(self) -> None:
        self.require_range("aspects", 1, 100)


class Aspects(Encoder):
    """Concatenated vectors (B, n · D) of n encoders."""

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.width = sum(encoder.width for encoder in encoders)
        self.captures = all(encoder.captures for encoder in encoders)

    def __len__(self) -> int:
        return len(self.encoders)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        encoders = cast("list[Encoder]", list(self.encoders))
        return torch.cat([encoder(words, mask) for encoder in encoders], dim=1)
