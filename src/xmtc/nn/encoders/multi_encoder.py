"""Aspects: several encoders of one kind, each with weights of its own, whose vectors stand side by side."""

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
    """Convolutions over windows of words with dynamic max-pooling, then a narrow layer."""

    hidden: int = 256
    """Units of the narrow layer, and numbers of a label's embedding."""

    of = "encoder.cnn"
    searched = False


@dataclass(frozen=True)
class AspectLstmSettings(AttentionLstmSettings):
    """A bidirectional LSTM whose states are averaged by attention."""

    of = "encoder.attention_lstm"
    searched = False


@dataclass(frozen=True)
class AspectTransformerSettings(TransformerSettings):
    """A pretrained transformer whose states are averaged by attention."""

    of = "encoder.transformer"
    searched = False


@dataclass(frozen=True)
class AspectSettings(Settings):
    """The encoders of a document: so many, of one kind."""

    kind: Literal["cnn", "attention_lstm", "transformer"] = "cnn"
    """Convolutions, an LSTM with attention, or a pretrained transformer."""
    aspects: Annotated[int, Choices(1, 2, 3, 4)] = 3
    """Encoders, each with weights of its own."""
    cnn: AspectConvolutionSettings = field(default_factory=AspectConvolutionSettings)
    """Convolutions, where these are the encoders."""
    attention_lstm: AspectLstmSettings = field(default_factory=AspectLstmSettings)
    """LSTMs, where these are the encoders."""
    transformer: AspectTransformerSettings = field(default_factory=AspectTransformerSettings)
    """Transformers, where these are the encoders."""

    of = "encoder"

    @property
    def chosen(self) -> EncoderSettings:
        """Settings of the kind that is asked for; a transformer is built from its folder instead."""
        settings: EncoderSettings = getattr(self, self.kind)
        return settings

    def check(self) -> None:
        self.require_range("aspects", 1, 100)


class Aspects(Encoder):
    """Vectors (B, n · D): what each of n encoders makes of a document."""

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
