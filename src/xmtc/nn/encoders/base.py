"""Encoders: embedded words → a state for each word, or a vector for each document.

Words come padded on the left: (T, B, e), and a mask (B, T) that is true at real words. An encoder is a module of this
package with its settings, whose `build` makes it; a model takes it up by having those settings as `encoder`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Settings


@dataclass(frozen=True)
class EncoderSettings(Settings):
    """Settings of an encoder, which they build."""

    of = "encoder"

    @abstractmethod
    def build(self, width: int) -> Encoder:
        """A new encoder of words that are `width` wide."""

    def require_dropout(self, *names: str) -> None:
        """Check shares that are left out in training."""
        for name in names:
            self.require(name, 0 <= getattr(self, name) < 1, "a number from 0 to below 1")


class Encoder(nn.Module):
    """From words (T, B, e) and their mask (B, T) to states (B, T, width) or vectors (B, width)."""

    width: int
    sums: ClassVar[bool] = False
    """Whether it takes no words but their weighed sum (B, e), which is had without any word being written down."""
    captures: bool = True
    """Whether a step can be captured in a graph: nothing asks the device what it has computed."""


class AttentionPooling(nn.Module):
    """The mean of a text's states, weighed by additive attention: softmax of v · tanh(W x + b) over its real words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        initialise(self.layer)
        self.direction = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """States (B, T, d) and their mask (B, T) → vectors (B, d), zeros for a text without words."""
        shares = self.shares(states, mask).to(states.dtype)
        return torch.bmm(shares[:, None], states)[:, 0]

    def shares(self, states: Tensor, mask: Tensor) -> Tensor:
        """(B, T) what each word has of the attention: 1 in all, 0 at padding; at least single precision."""
        seen = torch.tanh(linear(self.layer, states))
        scores = torch.mv(seen.flatten(0, 1), self.direction.to(states.dtype)).view(mask.shape)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # not −∞, which makes NaN of empty texts
        return torch.softmax(scores, dim=1).masked_fill(~mask, 0.0)


def initialise(layer: nn.Linear | nn.Conv1d) -> None:
    """Xavier-uniform weights and no bias."""
    nn.init.xavier_uniform_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)


def linear(layer: nn.Linear, inputs: Tensor) -> Tensor:
    """A layer with its weights in the type of the inputs."""
    return F.linear(inputs, layer.weight.to(inputs.dtype), layer.bias.to(inputs.dtype))
