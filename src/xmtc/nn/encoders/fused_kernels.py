"""Attention and the perceptron of a transformer's layer: plain operations, and on CUDA compiled ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

FAR_BELOW = -1e4
"""Attention score of padding; not −∞, which gives NaN for texts without words."""
ATTENTION = [SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Implementations of attention on CUDA, the fastest first; the first that supports the sizes is used."""
KINDS = 64
"""Maximum number of kinds of layers to compile in one process: sizes, precisions, frozen or not."""


def perceptron(
    mixed: Tensor,
    states: Tensor,
    mixed_weight: Tensor,
    mixed_bias: Tensor,
    inner_weight: Tensor,
    inner_bias: Tensor,
    outer_weight: Tensor,
    outer_bias: Tensor,
    first_scale: Tensor,
    first_shift: Tensor,
    scale: Tensor,
    shift: Tensor,
    dropout: float,
    epsilon: float,
) -> Tensor:
    """The rest of a layer behind attention; all (N, d). Norms are computed in single precision at least."""
    first = F.dropout(F.linear(mixed, mixed_weight, mixed_bias), dropout, dropout > 0)
    first = normalised(first + states, first_scale, first_shift, epsilon)
    inner = F.gelu(F.linear(first, inner_weight, inner_bias))
    last = F.dropout(F.linear(inner, outer_weight, outer_bias), dropout, dropout > 0)
    return normalised(last + first, scale, shift, epsilon)


def normalised(states: Tensor, scale: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """Layer norm in the type of its weights."""
    return F.layer_norm(states.to(scale.dtype), scale.shape, scale, shift, epsilon).to(states.dtype)


class Kernels(ABC):
    """How layers are computed on a kind of device."""

    @abstractmethod
    def mask(self, inside: Tensor, bias: Tensor | None, kind: torch.dtype) -> Any:
        """What `attention` needs, the same for all layers: real positions (B, S), bias (H, 2 S − 1) by distance."""

    @abstractmethod
    def attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Any) -> Tensor:
        """(B, H, S, d / H) values mixed by the attention of each position to the real ones."""

    def perceptron(self, *given: Any) -> Tensor:
        """The rest of a layer, as in the function `perceptron`."""
        return perceptron(*given)


class PlainKernels(Kernels):
    """The library's operations, one by one."""

    def mask(self, inside: Tensor, bias: Tensor | None, kind: torch.dtype) -> Tensor:
        padding = (~inside).to(kind)[:, None, None] * FAR_BELOW  # (B, 1, 1, S)
        if bias is None:
            return padding.expand(-1, 1, inside.shape[1], -1)
        return by_distance(bias).to(kind)[None] + padding

    def attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def by_distance(bias: Tensor) -> Tensor:
    """(H, S, S) bias of query i and key j from (H, 2 S − 1), by j − i."""
    length = (bias.shape[1] + 1) // 2
    places = torch.arange(length, device=bias.device)
    return bias[:, places[None, :] - places[:, None] + length - 1]


class CudaKernels(PlainKernels):
    """cuDNN's attention, which reads a bias about twice as fast as the alternatives, and in training a compiled rest.

    Compilation fuses biases, dropout, norms and activations. The number of subwords is dynamic, so that one compilation
    serves all lengths; predictions do without.
    """

    def __init__(self) -> None:
        self._compiled: Any = perceptron
        if can_compile():
            torch._dynamo.config.recompile_limit = max(KINDS, torch._dynamo.config.recompile_limit)
            self._compiled = torch.compile(perceptron)

    def attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        with sdpa_kernel(ATTENTION, set_priority=True):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    def perceptron(self, *given: Any) -> Tensor:
        if not torch.is_grad_enabled() or self._compiled is perceptron:
            return perceptron(*given)
        for states in given[:2]:
            torch._dynamo.mark_dynamic(states, 0)
        made: Tensor = self._compiled(*given)
        return made


@cache
def can_compile() -> bool:
    """Whether torch.compile works on this machine; it needs Triton and a C compiler."""
    try:
        doubled = torch.compile(lambda values: values * 2)(torch.ones(8, device="cuda"))
    except Exception:  # of many kinds
        return False
    return bool((doubled == 2).all())


@cache
def kernels_for(device: torch.device) -> Kernels:
    """The kernels of a device."""
    return CudaKernels() if device.type == "cuda" else PlainKernels()
