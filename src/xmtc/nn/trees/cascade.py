"""A label tree on one pretrained encoder: each level of the tree reads some of the encoder's layers.

Levels that read the same last layers are LightXML; levels that read layers of increasing depth are CascadeXML. The
first level has a weight for every node, like a linear head. The rows of all other levels are in one table: a `RowTable`
in training, the parameter `deep` of the head in prediction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.config import Settings, as_written
from xmtc.core.errors import ConfigError
from xmtc.nn.encoders.base import AttentionPooling, initialise, linear
from xmtc.nn.encoders.transformer import PretrainedEncoder, TransformerSettings
from xmtc.nn.heads.base import LinearHead, wide_type
from xmtc.nn.trees.training import ShapedSpec, TreeShape

DEEP = "head.deep"
"""The parameter of a network that has the rows of all levels below the first."""
BIAS = 8
"""Columns behind a row: its bias, and zeros that keep the width a multiple of what matrix units need."""

Layers = tuple[int, ...]


@dataclass(frozen=True)
class CascadeTreeSettings(TreeShape):
    """A shallow and wide label tree whose levels are trained together on one encoder."""

    cluster_size: int = 64
    """Maximum number of labels below a node of the last level."""
    beam_width: int | tuple[int, ...] = 64
    """Nodes followed below each level, or a list with a number for each level above the labels."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Optimiser of the rows below the first level; 'sgd', without momentum, needs a third of the memory."""
    sgd_rate: float = 0.05
    """Learning rate of 'sgd' at the peak of `training.learning_rate`; losses are summed over labels."""

    def check(self) -> None:
        super().check()
        beams = self.beam_width if isinstance(self.beam_width, tuple) else (self.beam_width,)
        of_range = all(1 <= beam <= 1 << 16 for beam in beams) and bool(beams)
        self.require("beam_width", of_range, "an integer from 1 to 65,536, or a list of them")
        self.require_range("sgd_rate", 0, open_low=True)

    def beams(self, levels: int) -> list[int]:
        """Beam width below each of the levels but the last."""
        given = self.beam_width
        if isinstance(given, int):
            return [given] * (levels - 1)
        if len(given) != levels - 1:
            wanted = f"{levels - 1} number{'' if levels == 2 else 's'}, one for each level above the labels"
            raise ConfigError(f"'beam_width' of {self.of} must have {wanted}. Got {as_written(list(given))}.")
        return list(given)


@dataclass(frozen=True)
class CascadeSettings(Settings):
    """Which layers of the encoder the labels are read from, and the label tree."""

    levels_from: str = "auto"
    """Layers that each level of the tree reads: 'last' for the last layers, or a list such as '5+6, 8, 10, 12'.

    'auto' spaces the layers evenly; without a tree, it reads the states of the last layer.
    """
    last_layers: int = 5
    """Number of layers of 'last', whose states are concatenated."""
    pooling: Literal["first", "attention"] = "first"
    """The vector of a text in each of these layers: the state of its first subword, or attention over its states."""
    hidden: int = 0
    """Units of a linear layer before the rows of each level below the first; 0 for none."""
    dropouts: tuple[float, ...] = ()
    """Dropout rate of each level's document vector; an empty list uses `encoder.dropout`."""
    weights: tuple[float, ...] = ()
    """Weight of each level's loss; an empty list weighs all alike."""
    tree: CascadeTreeSettings = field(default_factory=CascadeTreeSettings)
    """The label tree; without one, every label is scored."""

    of = "head"

    def check(self) -> None:
        self.require(
            "levels_from",
            self.levels_from in ("auto", "last") or bool(self._listed),
            "'auto', 'last' or a list such as '5+6, 8, 10, 12'",
        )
        self.require_range("last_layers", 1)
        self.require_range("hidden", 0, 1 << 16)
        self.require("dropouts", all(0 <= rate < 1 for rate in self.dropouts), "a list of numbers ≥ 0 and < 1")
        self.require("weights", all(weight > 0 for weight in self.weights), "a list of numbers > 0")

    @property
    def _listed(self) -> list[Layers]:
        """The layers of a list; empty if it is not valid."""
        try:
            read = [tuple(int(part) for part in level.split("+")) for level in self.levels_from.split(",")]
        except ValueError:
            return []
        return read if min(min(layers) for layers in read) >= 1 else []

    @property
    def reads_layers(self) -> bool:
        """Whether documents are represented by vectors of chosen layers."""
        return self.tree.height > 0 or self.levels_from != "auto"

    def layers(self, levels: int, count: int) -> list[Layers]:
        """The layers, from 1 to `count`, that each level reads; ConfigError if the encoder does not have them."""
        if self.levels_from == "auto":
            apart = count / (levels + 2)
            return [(max(1, round(count - (levels - 1 - level) * apart)),) for level in range(levels)]
        if self.levels_from == "last":
            if self.last_layers > count:
                raise ConfigError(
                    f"'last_layers' of head is {self.last_layers}, but the encoder has {count}. Lower it."
                )
            return [tuple(range(count - self.last_layers + 1, count + 1))] * levels
        read = self._listed
        if len(read) != levels:
            remedy = "List as many, or set head.tree.height or head.tree.cluster_size."
            raise ConfigError(
                f"'levels_from' of head has {len(read)} levels, but the label tree has {levels}. {remedy}"
            )
        if max(max(layers) for layers in read) != count:
            given = as_written(self.levels_from)
            raise ConfigError(
                f"'levels_from' of head must include the last layer, {count}, and none above. Got {given}."
            )
        return read

    def of_levels(self, name: Literal["dropouts", "weights"], levels: int, default: float) -> list[float]:
        """The values of a list for each level."""
        given: tuple[float, ...] = getattr(self, name)
        if given and len(given) != levels:
            raise ConfigError(
                f"'{name}' of head has {len(given)} values, but the label tree has {levels} levels. List as many."
            )
        return list(given) or [default] * levels


class Reading(NamedTuple):
    """What is read from an encoder: vectors of some layers, with dropout, and the vector of each level."""

    vectors: list[tuple[Layers, float]]
    """Layers that are concatenated, and the dropout rate; levels that read alike share a vector."""
    slices: list[tuple[int, int]]
    """Columns of each level's vector in the concatenation of all."""

    @classmethod
    def of(cls, head: CascadeSettings, dropout: float, levels: int, count: int, width: int) -> Self:
        """What the levels read from an encoder of `count` layers; ConfigError if it does not have the layers."""
        ways = list(zip(head.layers(levels, count), head.of_levels("dropouts", levels, dropout), strict=True))
        vectors = list(dict.fromkeys(ways))
        ends = list(itertools.accumulate(width * len(layers) for layers, _ in vectors))
        slices = list(itertools.pairwise([0, *ends]))
        return cls(vectors, [slices[vectors.index(way)] for way in ways])


class LevelVectors(PretrainedEncoder):
    """Document vectors of all levels, concatenated: (B, width)."""

    def __init__(
        self, module: Any, settings: TransformerSettings, max_tokens: int, reading: Reading, pooling: str
    ) -> None:
        super().__init__(module, settings, max_tokens)
        self.read = reading.vectors
        self.width = max(high for _, high in reading.slices)
        self.poolings = nn.ModuleDict()
        if pooling == "attention":
            used = sorted({layer for layers, _ in self.read for layer in layers})
            self.poolings.update({str(layer): AttentionPooling(self.state_width) for layer in used})

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        states, inside, _ = self.layer_states(words, mask)
        vectors = []
        for layers, dropout in self.read:
            parts = [self._pooled(layer, states[layer - 1], inside) for layer in layers]
            vectors.append(F.dropout(torch.cat(parts, dim=1), dropout, self.training))
        return torch.cat(vectors, dim=1)

    def _pooled(self, layer: int, states: Tensor, inside: Tensor) -> Tensor:
        """(B, d) the vector of a layer."""
        if not self.poolings:
            return states[:, 0]
        vector: Tensor = self.poolings[str(layer)](states, inside)
        return vector

    @torch.enable_grad()
    def attention(self, words: Tensor, mask: Tensor) -> Tensor:
        """(B, T) share of each subword in the document vectors: the size of gradient times input, 0 at padding."""
        words = words.detach().requires_grad_()
        vectors = self(words, mask)
        gradient = torch.autograd.grad(vectors.square().sum(), words)[0]  # (T, B, e)
        effect = (gradient * words).sum(2).abs().t().detach() * mask
        return effect / effect.sum(1, keepdim=True).clamp(min=torch.finfo(effect.dtype).tiny)


class CascadeHead(LinearHead):
    """The nodes of the first level as a linear head, and the rows of all levels below (N, hidden + BIAS).

    `slices` has the columns of each level's vector in the encoding.
    """

    def __init__(self, nodes: int, slices: Sequence[tuple[int, int]], hidden: int) -> None:
        widths = [high - low for low, high in slices]
        super().__init__(nodes, widths[0])
        self.slices = list(slices)
        if not hidden and len(set(widths[1:])) > 1:
            raise ConfigError(
                "'hidden' of head must be > 0 if levels below the first read different numbers of layers. Got 0."
            )
        self.layers = nn.ModuleList(nn.Linear(width, hidden) for width in widths[1:] if hidden)
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            initialise(layer)
        self.inner = hidden or widths[-1]
        """Columns of a row without those of the bias."""
        self.deep = nn.Parameter(torch.empty(0, self.inner + BIAS), requires_grad=False)

    @property
    def of_labels(self) -> frozenset[str]:
        return frozenset({"rows", "bias"} if len(self.slices) == 1 else {"deep"})

    def level_vectors(self, encoded: Tensor) -> list[Tensor]:
        """Vectors of the levels: (B, width) for the first, (B, inner + BIAS) for the others, with a 1 for the bias."""
        parts = [encoded[:, low:high] for low, high in self.slices]
        deep = parts[1:]
        if self.layers:
            deep = [linear(layer, part) for layer, part in zip(self.layers, deep, strict=True)]  # type: ignore[arg-type]
        return [parts[0], *(F.pad(F.pad(part, (0, 1), value=1.0), (0, BIAS - 1)) for part in deep)]

    def hold(self, rows: Tensor) -> None:
        """Replace the rows of the levels below the first, which may be on any device and of any type."""
        self.deep.data = rows


class LevelRows:
    """Scores nodes of a level below the first by rows `low` … `high` − 1 of a table (N, d)."""

    def __init__(self, rows: Tensor, low: int, high: int) -> None:
        self.rows = rows[low:high]

    @torch.no_grad()
    def logits(self, encoded: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        """(B, high − low) logits of consecutive nodes."""
        return (encoded @ self.rows[low:high].to(encoded).t()).to(wide_type(encoded))

    @torch.no_grad()
    def candidate_logits(self, encoded: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        """(B, K) logits of nodes given for each document, a chunk of them at a time; negative ones are ignored."""
        parts = []
        for numbers in candidates.clamp(min=0).split(chunk, dim=1):
            rows = self.rows[numbers.to(self.rows.device)].to(encoded)  # (B, C, d)
            parts.append(torch.bmm(rows, encoded[..., None])[..., 0].to(wide_type(encoded)))
        return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class CascadeSpec(ShapedSpec):
    """How a label tree on one encoder is built and trained; `with_levels` completes it."""

    tree: CascadeTreeSettings = field(default_factory=CascadeTreeSettings)
    head_settings: CascadeSettings = field(default_factory=CascadeSettings)
    reading: Callable[[int], Reading] | None = None
    """What this many levels read from the encoder."""
    vectors: Callable[[Reading], LevelVectors] | None = None
    """Builds the encoder."""

    def with_levels(self, levels: int) -> Self:
        """With an encoder and a head for this many levels; ConfigError if settings do not fit them."""
        assert self.reading is not None
        reading, build, hidden = self.reading(levels), self.vectors, self.head_settings.hidden
        assert build is not None
        self.tree.beams(levels)
        self.head_settings.of_levels("weights", levels, 1.0)
        return replace(
            self,
            encoder=lambda width: build(reading),
            head=lambda nodes, width: CascadeHead(nodes, reading.slices, hidden),
        )
