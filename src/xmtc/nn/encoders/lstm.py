"""Bidirectional LSTMs: a state for each word, their maximum, or their mean weighted by attention."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Range
from xmtc.nn.encoders.base import AttentionPooling, Encoder, EncoderSettings, initialise, linear

CLOSED_GATE = -100.0
"""Added to the input gate at padding: nothing enters, and the state stays zero until the text begins."""


@dataclass(frozen=True)
class LstmSettings(EncoderSettings):
    """A bidirectional LSTM over the words."""

    units: Annotated[int, Range(128, 512, log=True)] = 256
    """LSTM units in each direction."""
    word_dropout: Annotated[float, Range(0, 0.5)] = 0.2
    """Dropout rate of the word embeddings."""
    dropout: Annotated[float, Range(0.2, 0.7)] = 0.5
    """Dropout rate of the LSTM states."""

    def check(self) -> None:
        self.require_range("units", 1, 1 << 16)
        self.require_dropout("word_dropout", "dropout")

    def build(self, width: int) -> Encoder:
        return BiLstm(width, self)


@dataclass(frozen=True)
class PooledLstmSettings(LstmSettings):
    """A bidirectional LSTM with max-pooling over its states."""

    hidden: Annotated[int, Range(128, 1024, log=True)] = 256
    """Units of the layer after pooling."""

    def check(self) -> None:
        super().check()
        self.require_range("hidden", 1, 1 << 16)

    def build(self, width: int) -> Encoder:
        return PooledLstm(width, self)


@dataclass(frozen=True)
class AttentionLstmSettings(LstmSettings):
    """A bidirectional LSTM with attention pooling, then a linear layer."""

    units: Annotated[int, Range(64, 512, log=True)] = 128
    """LSTM units in each direction."""
    hidden: Annotated[int, Range(128, 1024, log=True)] = 256
    """Units of the layer after attention."""
    dropout: Annotated[float, Range(0, 0.7)] = 0.5
    """Dropout rate of the layer after attention."""

    def check(self) -> None:
        super().check()
        self.require_range("hidden", 1, 1 << 16)

    def build(self, width: int) -> Encoder:
        return AttentionLstm(width, self)


class BiLstm(Encoder):
    """States (B, T, 2n) of a one-layer bidirectional LSTM.

    One call over left-padded words, which suits CUDA graphs: an extra input column closes the input gate at padding, so
    the forward direction enters the text with a zero state, and the backward direction reaches padding only after it
    has read the whole text. States and gradients equal those of a packed LSTM. The bias is the weight of another column
    of ones, so that each gate has one bias instead of two.
    """

    flag: Tensor

    def __init__(self, width: int, settings: LstmSettings) -> None:
        super().__init__()
        self.width = 2 * settings.units
        self.units = settings.units
        self.word_dropout, self.dropout = settings.word_dropout, settings.dropout
        self.beside = -(-(width + 2) // 8) * 8 - width  # columns of the flag, of ones, and alignment
        bound = settings.units**-0.5
        for direction in ("forward", "backward"):
            for name, shape in (("input", (width,)), ("state", (settings.units,)), ("bias", ())):
                weight = torch.empty(4 * settings.units, *shape)  # rows: input, forget, cell, output
                self.register_parameter(f"{direction}_{name}", nn.Parameter(weight.uniform_(-bound, bound)))
        flag = torch.zeros(4 * settings.units, 1)
        flag[: settings.units] = CLOSED_GATE
        self.register_buffer("flag", flag, persistent=False)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        words = F.dropout(words, self.word_dropout, self.training)
        extra = words.new_zeros(*words.shape[:2], self.beside)
        extra[..., 0] = (~mask).t()
        extra[..., 1] = 1.0
        states = self._run(torch.cat([words, extra], dim=2))
        return F.dropout(states, self.dropout, self.training).transpose(0, 1).contiguous()

    def _run(self, inputs: Tensor) -> Tensor:
        """Run torch's LSTM (cuDNN on CUDA) with weights cast to the type of the inputs."""
        weights = []
        for direction in ("forward", "backward"):
            words, state, bias = (getattr(self, f"{direction}_{name}") for name in ("input", "state", "bias"))
            rest = words.new_zeros(len(words), self.beside - 2)
            whole = torch.cat([words, self.flag.to(words.dtype), bias[:, None], rest], dim=1)
            weights += [whole.to(inputs.dtype), state.to(inputs.dtype)]
        start = inputs.new_zeros(2, inputs.shape[1], self.units)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous")
            return torch._VF.lstm(inputs, (start, start), weights, False, 1, 0.0, self.training, True, False)[0]


class PooledLstm(Encoder):
    """Document vectors (B, hidden): a bidirectional LSTM, max-pooling, then a layer."""

    def __init__(self, width: int, settings: PooledLstmSettings) -> None:
        super().__init__()
        self.states = BiLstm(width, settings)
        self.layer = nn.Linear(self.states.width, settings.hidden)
        initialise(self.layer)
        self.width = settings.hidden

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        states = self.states(words, mask)
        pooled = states.masked_fill(~mask[..., None], -torch.inf).amax(1)
        pooled = torch.where(mask.any(1, keepdim=True), pooled, torch.zeros_like(pooled))
        return F.relu(linear(self.layer, pooled))


class AttentionLstm(Encoder):
    """Document vectors (B, hidden): a bidirectional LSTM, attention pooling, then a linear layer.

    The layer is linear because a head that multiplies these vectors with label vectors needs both signs. Dropout is
    applied only after it, since dropout on single states averages out in their mean.
    """

    def __init__(self, width: int, settings: AttentionLstmSettings) -> None:
        super().__init__()
        self.states = BiLstm(width, replace(settings, dropout=0.0))
        self.pooling = AttentionPooling(self.states.width)
        self.layer = nn.Linear(self.states.width, settings.hidden)
        initialise(self.layer)
        self.dropout, self.width = settings.dropout, settings.hidden

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        vector = linear(self.layer, self.pooling(self.states(words, mask), mask))
        return F.dropout(vector, self.dropout, self.training)

    def attention(self, words: Tensor, mask: Tensor) -> Tensor:
        """(B, T) attention weight of each word."""
        return self.pooling.shares(self.states(words, mask), mask)
