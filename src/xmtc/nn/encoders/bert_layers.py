"""The layers of BERT and its relatives, computed from the weights of the library's module.

BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, DistilBERT and MPNet have the same layers under different names:
attention, then a perceptron with one hidden layer, each added to its input and normalised. MPNet adds a bias to the
attention scores that depends on the distance of two subwords; it is not trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from xmtc.nn.encoders.fused_kernels import Kernels, kernels_for


class Names(NamedTuple):
    """Where the modules of a kind of encoder are; those of a layer are relative to the layer."""

    layers: str
    query: str
    key: str
    value: str
    mixed: str
    attention_norm: str
    inner: str
    outer: str
    norm: str


BERT = Names(
    layers="encoder.layer",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    mixed="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    inner="intermediate.dense",
    outer="output.dense",
    norm="output.LayerNorm",
)
MPNET = BERT._replace(
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    mixed="attention.attn.o",
    attention_norm="attention.LayerNorm",
)
DISTILBERT = Names(
    layers="transformer.layer",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    mixed="attention.out_lin",
    attention_norm="sa_layer_norm",
    inner="ffn.lin1",
    outer="ffn.lin2",
    norm="output_layer_norm",
)
LAYOUTS = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra"), BERT),
    "mpnet": MPNET,
    "distilbert": DISTILBERT,
}
DISTANCE_BIAS = "relative_attention_bias"
"""Name of MPNet's table of biases."""


@dataclass(frozen=True)
class Layer:
    """The modules of one layer."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    mixed: nn.Linear
    attention_norm: nn.LayerNorm
    inner: nn.Linear
    outer: nn.Linear
    norm: nn.LayerNorm


class BertLayers:
    """Embeddings and layers of a module; `checkpointing` computes each layer again in the backward pass."""

    def __init__(self, module: Any, checkpointing: bool = False) -> None:
        config = module.config
        names = LAYOUTS[config.model_type]
        self._embeddings = module.embeddings
        self._projection = getattr(module, "embeddings_project", None)  # of ELECTRA
        self._layers = [Layer(*(_part(layer, name) for name in names[1:])) for layer in _part(module, names.layers)]
        self._heads = int(config.num_attention_heads)
        self._distances = getattr(getattr(module, "encoder", None), DISTANCE_BIAS, None)
        if self._distances is not None:
            self._distances.requires_grad_(False)
        self._dropout = float(getattr(config, "hidden_dropout_prob", getattr(config, "dropout", 0.0)))
        padding = self._embeddings.position_embeddings.padding_idx
        self._first_position = 0 if padding is None else padding + 1
        self._checkpointing = checkpointing

    @staticmethod
    def supports(module: Any) -> bool:
        """Whether a module has these layers, without variations that are not implemented here."""
        config = module.config
        kind = getattr(config, "position_embedding_type", None) or "absolute"
        activation = getattr(config, "hidden_act", getattr(config, "activation", None))
        return config.model_type in LAYOUTS and kind == "absolute" and activation == "gelu"

    def __call__(self, words: Tensor, inside: Tensor, training: bool) -> Iterator[Tensor]:
        """(B, S, d) states after each layer; words (B, S, e) start at the first position, real ones `inside` (B, S)."""
        kernels = kernels_for(words.device)
        dropout = self._dropout if training else 0.0
        states = self._embedded(words, dropout, kernels)
        attended = kernels.mask(inside, self._distance_bias(words), states.dtype)
        for layer in self._layers:
            if self._checkpointing and training:
                again = checkpoint(self._layer, layer, states, attended, dropout, kernels, use_reentrant=False)
                assert isinstance(again, Tensor)
                states = again
            else:
                states = self._layer(layer, states, attended, dropout, kernels)
            yield states

    def _embedded(self, words: Tensor, dropout: float, kernels: Kernels) -> Tensor:
        embeddings, kind = self._embeddings, words.dtype
        low = self._first_position
        places = embeddings.position_embeddings.weight[low : low + words.shape[1]]
        if hasattr(embeddings, "token_type_embeddings"):
            places = places + embeddings.token_type_embeddings.weight[0]
        norm = embeddings.LayerNorm
        states = F.layer_norm(words.float() + places, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        states = F.dropout(states, dropout, dropout > 0).to(kind)
        if self._projection is not None:
            states = F.linear(states, self._projection.weight.to(kind), self._projection.bias.to(kind))
        return states

    def _layer(self, layer: Layer, states: Tensor, attended: Any, dropout: float, kernels: Kernels) -> Tensor:
        batch, length, width = states.shape
        kind, three = states.dtype, (layer.query, layer.key, layer.value)
        weight = torch.cat([part.weight for part in three]).to(kind)
        bias = torch.cat([part.bias for part in three]).to(kind)
        joined = F.linear(states, weight, bias).view(batch, length, 3, self._heads, -1)
        query, key, value = (part.transpose(1, 2) for part in joined.unbind(2))  # (B, H, S, d / H)
        mixed = kernels.attention(query, key, value, attended).transpose(1, 2).reshape(batch * length, width)
        weights = [part.to(kind) for own in (layer.mixed, layer.inner, layer.outer) for part in (own.weight, own.bias)]
        norms = [part for own in (layer.attention_norm, layer.norm) for part in (own.weight, own.bias)]
        flat = states.reshape(batch * length, width)
        return kernels.perceptron(mixed, flat, *weights, *norms, dropout, layer.norm.eps).view(states.shape)

    def _distance_bias(self, words: Tensor) -> Tensor | None:
        """(H, 2 S − 1) bias of the attention scores by the distance of key and query, from 1 − S to S − 1."""
        if self._distances is None:
            return None
        length, buckets = words.shape[1], self._distances.num_embeddings // 2
        distance = torch.arange(1 - length, length, device=words.device)
        size, exact = distance.abs(), buckets // 2  # the other half of the buckets is for keys behind the query
        scale = (buckets - exact) / math.log(128 / exact)
        far = exact + (torch.log(size.clamp(min=1).float() / exact) * scale).long()
        bucket = torch.where(size < exact, size, far.clamp(max=buckets - 1)) + (distance > 0) * buckets
        table: Tensor = self._distances.weight
        return table[bucket].t().contiguous()


def _part(module: Any, name: str) -> Any:
    return reduce(getattr, name.split("."), module)
