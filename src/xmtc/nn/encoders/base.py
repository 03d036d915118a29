"""Encoders: embedded words → a state for each word, or a vector for each document.

Words come padded on the left: (T, B, e), and a mask (B, T) that is true at real words.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Range, Settings

SHUT = -100.0
"""Added to the input gate at padding: nothing enters, and the state stays zero until the text begins."""


@dataclass(frozen=True)
class LstmSettings(Settings):
    """A bidirectional LSTM over the words."""

    units: Annotated[int, Range(128, 512, log=True)] = 256
    """Units in each direction."""
    word_dropout: Annotated[float, Range(0, 0.5)] = 0.2
    """Share of the embedding's numbers that are left out in training."""
    dropout: Annotated[float, Range(0.2, 0.7)] = 0.5
    """Share of the states' numbers that are left out in training."""

    of = "encoder"

    def check(self) -> None:
        self.require_range("units", 1, 1 << 16)
        _check_dropout(self, "word_dropout", "dropout")


@dataclass(frozen=True)
class PooledLstmSettings(LstmSettings):
    """A bidirectional LSTM whose states are pooled: the largest value of each unit."""

    hidden: Annotated[int, Range(128, 1024, log=True)] = 256
    """Units of the layer after pooling."""

    def check(self) -> None:
        super().check()
        self.require_range("hidden", 1, 1 << 16)


@dataclass(frozen=True)
class AttentionLstmSettings(LstmSettings):
    """A bidirectional LSTM whose states are averaged by attention, then a layer."""

    units: Annotated[int, Range(64, 512, log=True)] = 128
    """Units in each direction."""
    hidden: Annotated[int, Range(128, 1024, log=True)] = 256
    """Units of the layer after attention."""
    dropout: Annotated[float, Range(0, 0.7)] = 0.5
    """Share of the layer's numbers that are left out in training."""

    def check(self) -> None:
        super().check()
        self.require_range("hidden", 1, 1 << 16)


@dataclass(frozen=True)
class ConvolutionSettings(Settings):
    """Convolutions over windows of words with dynamic max-pooling, then a narrow layer."""

    windows: tuple[int, ...] = (2, 4, 8)
    """Words that a filter sees; each width has filters of its own."""
    filters: Annotated[int, Range(64, 512, log=True)] = 128
    """Filters of each width."""
    pools: Annotated[int, Range(2, 32, log=True)] = 8
    """Parts of the text of which each filter keeps its largest value."""
    hidden: Annotated[int, Range(256, 1024, log=True)] = 512
    """Units of the narrow layer."""
    word_dropout: Annotated[float, Range(0, 0.5)] = 0.25
    """Share of the embedding's numbers that are left out in training."""
    dropout: Annotated[float, Range(0.2, 0.7)] = 0.5
    """Share of the narrow layer's numbers that are left out in training."""

    of = "encoder"

    def check(self) -> None:
        self.require("windows", bool(self.windows) and min(self.windows) >= 1, "a list of integers ≥ 1")
        for name in ("filters", "pools", "hidden"):
            self.require_range(name, 1, 1 << 16)
        _check_dropout(self, "word_dropout", "dropout")


def _check_dropout(settings: Settings, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        settings.require(name, 0 <= value < 1, "a number from 0 to below 1")


class Encoder(nn.Module):
    """From words (T, B, e) and their mask (B, T) to states (B, T, width) or vectors (B, width)."""

    width: int
    sums: ClassVar[bool] = False
    """Whether it takes no words but their weighed sum (B, e), which is had without any word being written down."""
    captures: bool = True
    """Whether a step can be captured in a graph: nothing asks the device what it has computed."""


class BiLstm(Encoder):
    """States (B, T, 2n) of a one-layer bidirectional LSTM.

    One call over left-padded words, which suits captured graphs: a flag beside the words shuts the input gate at
    padding, so the forward direction enters the text with a state of zeros, and the backward direction meets padding
    only when it has read everything. States and gradients equal those of a packed LSTM. The bias is the weight of a
    further column of ones, so that there is one for each gate and not two.
    """

    flag: Tensor

    def __init__(self, width: int, settings: LstmSettings) -> None:
        super().__init__()
        self.width = 2 * settings.units
        self.units = settings.units
        self.word_dropout, self.dropout = settings.word_dropout, settings.dropout
        self.beside = -(-(width + 2) // 8) * 8 - width  # columns of the flag, of ones, and what aligns rows
        bound = settings.units**-0.5
        for direction in ("forward", "backward"):
            for name, shape in (("input", (width,)), ("state", (settings.units,)), ("bias", ())):
                weight = torch.empty(4 * settings.units, *shape)  # rows: input, forget, cell, output
                self.register_parameter(f"{direction}_{name}", nn.Parameter(weight.uniform_(-bound, bound)))
        flag = torch.zeros(4 * settings.units, 1)
        flag[: settings.units] = SHUT
        self.register_buffer("flag", flag, persistent=False)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        words = F.dropout(words, self.word_dropout, self.training)
        extra = words.new_zeros(*words.shape[:2], self.beside)
        extra[..., 0] = (~mask).t()
        extra[..., 1] = 1.0
        states = self._run(torch.cat([words, extra], dim=2))
        return F.dropout(states, self.dropout, self.training).transpose(0, 1).contiguous()

    def _run(self, inputs: Tensor) -> Tensor:
        """The LSTM of torch, on CUDA that of cuDNN, with weights in the type of its inputs."""
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
    """Document vectors (B, hidden): the largest value of each unit of a bidirectional LSTM, then a layer."""

    def __init__(self, width: int, settings: PooledLstmSettings) -> None:
        super().__init__()
        self.states = BiLstm(width, settings)
        self.layer = nn.Linear(self.states.width, settings.hidden)
        start(self.layer)
        self.width = settings.hidden

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        states = self.states(words, mask)
        pooled = states.masked_fill(~mask[..., None], -torch.inf).amax(1)
        pooled = torch.where(mask.any(1, keepdim=True), pooled, torch.zeros_like(pooled))
        return F.relu(linear(self.layer, pooled))


class AttentionPooling(nn.Module):
    """The mean of a text's states, weighed by additive attention: softmax of v · tanh(W x + b) over its real words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        start(self.layer)
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


class AttentionLstm(Encoder):
    """Document vectors (B, hidden): states of a bidirectional LSTM, averaged by attention, then a layer.

    The layer is linear: a head that takes products of these vectors with those of labels needs both signs. Dropout
    comes after it alone, since what is left out of single states evens out in their mean.
    """

    def __init__(self, width: int, settings: AttentionLstmSettings) -> None:
        super().__init__()
        self.states = BiLstm(width, replace(settings, dropout=0.0))
        self.pooling = AttentionPooling(self.states.width)
        self.layer = nn.Linear(self.states.width, settings.hidden)
        start(self.layer)
        self.dropout, self.width = settings.dropout, settings.hidden

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        vector = linear(self.layer, self.pooling(self.states(words, mask), mask))
        return F.dropout(vector, self.dropout, self.training)

    def attention(self, words: Tensor, mask: Tensor) -> Tensor:
        """(B, T) what each word has of the attention."""
        return self.pooling.shares(self.states(words, mask), mask)


class Convolution(Encoder):
    """Document vectors (B, hidden) of convolutions with dynamic pooling: each part of a text keeps its largest values.

    Parts are shares of the text's own words, so that an answer does not depend on the padding. The narrow layer is
    normalised before its ReLU: pooled values are all positive, and Adam's first steps would shut every unit for good.
    """

    def __init__(self, width: int, settings: ConvolutionSettings) -> None:
        super().__init__()
        self.word_dropout, self.dropout, self.pools = settings.word_dropout, settings.dropout, settings.pools
        self.convolutions = nn.ModuleList(nn.Conv1d(width, settings.filters, window) for window in settings.windows)
        self.layer = nn.Linear(len(settings.windows) * settings.filters * settings.pools, settings.hidden)
        for convolution in self._filters:
            start(convolution)
        start(self.layer)
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
        """(B, T) the part of its text that a word is in; −1 at padding."""
        length = mask.sum(1, keepdim=True)
        place = torch.arange(mask.shape[1], device=mask.device)[None] - (mask.shape[1] - length)
        return torch.where(mask, place * self.pools // length.clamp(min=1), -1)


def start(layer: nn.Linear | nn.Conv1d) -> None:
    nn.init.xavier_uniform_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)


def linear(layer: nn.Linear, inputs: Tensor) -> Tensor:
    return F.linear(inputs, layer.weight.to(inputs.dtype), layer.bias.to(inputs.dtype))
