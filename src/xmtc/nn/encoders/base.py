"""Base classes of encoders: embedded words → a state for each word, or a vector for each document.

Words are padded on the left: (T, B, e), with a mask (B, T) that is true at real words. Each encoder is a module of this
package whose settings build it (`build`); a model uses it by having these settings as `encoder`.
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
    """Settings of an encoder, with a method to build it."""

    of = "encoder"

    @abstractmethod
    def build(self, width: int) -> Encoder:
        """Build an encoder for word vectors of this width."""

    def require_dropout(self, *names: str) -> None:
        """Check dropout rates."""
        for name in names:
            self.require(name, 0 <= getattr(self, name) < 1, "a number ≥ 0 and < 1")


class Encoder(nn.Module):
    """Maps words (T, B, e) and their mask (B, T) to states (B, T, width) or vectors (B, width)."""

    width: int
    sums: ClassVar[bool] = False
    """Whether it takes the weighted sum of the words (B, e) instead of the words, which are then never materialised."""
    captures: bool = True
    """Whether a step can be captured in a CUDA graph: the code never reads results back from the device."""


class AttentionPooling(nn.Module):
    """Mean of a text's states with additive attention: softmax of v · tanh(W x + b) over the real words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        initialise(self.layer)
        self.direction = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """States (B, T, d) and their mask (B, T) → vectors (B, d), zero for empty texts."""
        shares = self.shares(states, mask).to(states.dtype)
        return torch.bmm(shares[:, None], states)[:, 0]

    def shares(self, states: Tensor, mask: Tensor) -> Tensor:
        """(B, T) attention weights, summing to 1, 0 at padding; at least single precision."""
        seen = torch.tanh(linear(self.layer, states))
        scores = torch.mv(seen.flatten(0, 1), self.direction.to(states.dtype)).view(mask.shape)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # not −∞, which gives NaN for empty texts
        return torch.softmax(scores, dim=1).masked_fill(~mask, 0.0)


def initialise(layer: nn.Linear | nn.Conv1d) -> None:
    """Initialise with Xavier-uniform weights and zero bias."""
    nn.init.xavier_uniform_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)


def linear(layer: nn.Linear, inputs: Tensor) -> Tensor:
    """Apply a layer with its weights cast to the type of the inputs."""
    return F.linear(inputs, layer.weight.to(inputs.dtype), layer.bias.to(inputs.dtype))
