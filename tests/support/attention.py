"""Label attention written out formula by formula, to compare the head with."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor

from xmtc.nn.heads.label_attention import LabelAttention

torch = pytest.importorskip("torch")


def plain_logits(head: LabelAttention, states: Tensor, mask: Tensor, rows: Tensor) -> Tensor:
    """The formulas as they are written: scores, softmax over real tokens, mixture, perceptron."""
    scores = states @ rows.transpose(-1, -2)  # (B, T, C)
    scores = scores.masked_fill(~mask[..., None], -torch.inf)
    attention = torch.where(mask.any(1)[:, None, None], scores, 0.0).softmax(1) * mask[..., None]
    mixture = attention.transpose(1, 2) @ states  # (B, C, d)
    for layer in head.layers[:-1]:
        mixture = torch.relu(mixture @ layer.weight.T + layer.bias)
    return (mixture @ head.layers[-1].weight.T + head.layers[-1].bias)[..., 0]
