"""The feature branch of Rank-AE: weighted words or LSTM states, channel attention, pooling, and a code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Choices, Range, Settings
from xmtc.nn.encoders.base import Encoder, initialise, linear
from xmtc.nn.encoders.lstm import BiLstm, LstmSettings

Activation = Literal["sigmoid", "relu", "tanh", "none"]


@dataclass(frozen=True)
class ChannelSettings(Settings):
    """Channel attention over the words, pooling, and the projection to a code."""

    attention: bool = True
    """Weight the channels of each word vector by a squeeze-and-excitation network."""
    reduction: int = 4
    """Reduction factor of the excitation network's hidden layer."""
    residual: Annotated[bool, Choices()] = False
    """Add a residual hidden layer, twice as wide as a word vector, after pooling."""
    code: Annotated[int, Range(64, 512, log=True)] = 200
    """Size of the common codes of documents and label sets."""
    activation: Annotated[Activation, Choices()] = "relu"
    """Activation function of the codes of documents and label sets."""
    dropout: Annotated[float, Range(0, 0.6)] = 0.2
    """Dropout rate of the pooled vector."""

    of = "encoder"

    def check(self) -> None:
        self.require_range("reduction", 1, 1 << 16)
        self.require_range("code", 1, 1 << 16)
        self.require("dropout", 0 <= self.dropout < 1, "a number ≥ 0 and < 1")


def activated(kind: Activation, values: Tensor) -> Tensor:
    """Apply an activation function."""
    if kind == "sigmoid":
        return torch.sigmoid(values)
    if kind == "relu":
        return F.relu(values)
    return torch.tanh(values) if kind == "tanh" else values


class FeatureBranch(Encoder):
    """Codes (B, code) of documents.

    Words are multiplied by their weights (the spatial attention) or read in order by an LSTM first. The mean of a bag
    of unit length is tiny, so words are summed and the sum is normalised, which gives the same result as for a mean.
    Only words that occur are ever read.
    """

    def __init__(self, width: int, settings: ChannelSettings, lstm: LstmSettings | None = None) -> None:
        super().__init__()
        self.settings = settings
        self.states = None if lstm is None else BiLstm(width, lstm)
        channels = width if self.states is None else self.states.width
        narrow = max(1, channels // settings.reduction)
        self.squeeze = nn.Linear(channels, narrow) if settings.attention else None
        self.excite = nn.Linear(narrow, channels) if settings.attention else None
        self.norm = nn.LayerNorm(channels)
        self.widen = nn.Linear(channels, 2 * channels) if settings.residual else None
        self.narrow = nn.Linear(2 * channels, channels) if settings.residual else None
        self.project = nn.Linear(channels, settings.code)
        for layer in (self.squeeze, self.excite, self.widen, self.narrow, self.project):
            if layer is not None:
                initialise(layer)
        self.width = settings.code

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        states, weights = self._attended(words, mask)
        if weights is not None:
            states = states * weights
        if self.states is not None:  # words are zero at padding, states are not
            states = states * mask[..., None].to(states.dtype)
        pooled = states.sum(1, dtype=self.norm.weight.dtype)
        vector = self.norm(pooled)
        if self.widen is not None and self.narrow is not None:
            hidden = F.dropout(F.relu(self.widen(vector)), self.settings.dropout, self.training)
            vector = vector + self.narrow(hidden)
        vector = F.dropout(vector, self.settings.dropout, self.training)
        return activated(self.settings.activation, self.project(vector)).to(words.dtype)

    def attention(self, words: Tensor, mask: Tensor) -> Tensor:
        """(B, T) sum of each word's channel weights; constant without attention."""
        weights = self._attended(words, mask)[1]
        if weights is None:
            return mask.float()
        return weights.float().sum(2) * mask

    def _attended(self, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """(B, T, c) words or states, and the weight of each of their channels."""
        states = words.transpose(0, 1) if self.states is None else self.states(words, mask)
        if self.squeeze is None or self.excite is None:
            return states, None
        if self.states is not None:
            return states, torch.sigmoid(linear(self.excite, F.relu(linear(self.squeeze, states))))
        # Scale the words of a bag of unit length to length one on average, whatever their number. Done here, where the
        # tensor is smaller.
        counts = mask.sum(1, dtype=self.norm.weight.dtype).clamp(min=1)
        seen = F.linear(states, self.squeeze.weight.to(states.dtype)) * counts.sqrt()[:, None, None].to(states.dtype)
        narrow = F.relu(seen + self.squeeze.bias.to(states.dtype))
        return states, torch.sigmoid(linear(self.excite, narrow))
