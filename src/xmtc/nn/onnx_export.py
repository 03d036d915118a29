"""Networks as ONNX graphs: one graph from word numbers to the mean probabilities of all networks.

Heads score labels in chunks, with operations in place; here is the plain formula of each head that can be exported.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.core.errors import UnsupportedError, missing_extra
from xmtc.nn.encoders.base import AttentionPooling, Encoder
from xmtc.nn.encoders.cnn import Convolution
from xmtc.nn.encoders.lstm import AttentionLstm, BiLstm, PooledLstm
from xmtc.nn.encoders.transformer import PretrainedEncoder, Transformer, TransformerStates
from xmtc.nn.heads.base import Head, LinearHead
from xmtc.nn.heads.correlation import CorrelationBlock, CorrelationHead
from xmtc.nn.heads.label_attention import LabelAttention
from xmtc.nn.heads.label_outputs import LabelOutputs
from xmtc.nn.network import Network
from xmtc.onnx.graph import PROBABILITIES, TOKENS, OnnxGraph
from xmtc.text.sequences import PADDING, UNKNOWN

OPERATORS = 17
"""Version of the ONNX operators: the newest that PyTorch's tracing exporter writes in all supported versions."""


def export_networks(networks: Sequence[Network]) -> OnnxGraph:
    """The graph of the mean probabilities of networks."""
    try:
        import onnx  # noqa: F401  the exporter needs it
    except ImportError:
        raise missing_extra("ONNX models need onnx and onnxruntime", "onnx") from None
    scorer = Probabilities(networks).eval()
    sample = torch.tensor([[PADDING, UNKNOWN, UNKNOWN], [UNKNOWN, UNKNOWN, UNKNOWN]])  # (B, T)
    with (
        plain_attention([network.encoder for network in networks]),
        tempfile.TemporaryDirectory(prefix="xmtc-onnx-") as folder,
        torch.no_grad(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # the exporter has some on every operator
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            scorer,
            (sample,),
            str(path),
            input_names=[TOKENS],
            output_names=[PROBABILITIES],
            dynamic_axes={TOKENS: {0: "texts", 1: "words"}, PROBABILITIES: {0: "texts"}},
            opset_version=OPERATORS,
            dynamo=False,  # the other exporter fixes the number of texts of an LSTM, and takes ten times as long
        )
        return OnnxGraph.read(path)


@contextmanager
def plain_attention(encoders: Sequence[Encoder]) -> Iterator[None]:
    """Let pretrained encoders compute attention with matrix products, which onnxruntime fuses, within the block."""
    modules = [encoder.pretrained for encoder in encoders if isinstance(encoder, PretrainedEncoder)]
    modules = [module for module in modules if hasattr(module, "set_attn_implementation")]
    before = [module.config._attn_implementation for module in modules]
    try:
        for module in modules:
            module.set_attn_implementation("eager")
        yield
    finally:
        for module, how in zip(modules, before, strict=True):
            module.set_attn_implementation(how)


class Probabilities(nn.Module):
    """Word numbers (B, T), with padding on the left → (B, L) mean probabilities of several networks."""

    def __init__(self, networks: Sequence[Network]) -> None:
        super().__init__()
        for network in networks:
            check_exportable(network)
        self.networks = nn.ModuleList(networks)

    def forward(self, tokens: Tensor) -> Tensor:
        parts = [torch.sigmoid(logits(network, tokens)) for network in self.networks]  # type: ignore[arg-type]
        return parts[0] if len(parts) == 1 else torch.stack(parts).mean(0)


def logits(network: Network, tokens: Tensor) -> Tensor:
    """(B, L) logits of all labels, without operations in place or a loop over labels; tokens (B, T)."""
    encoded, mask = ENCODERS[type(network.encoder)](network.encoder, network.table, tokens)
    return HEADS[type(network.head)](network.head, encoded, mask)


def check_exportable(network: Network) -> None:
    """Raise `UnsupportedError` for kinds of encoders and heads that cannot be exported."""
    encoder, head = network.encoder, network.head
    if isinstance(encoder, PretrainedEncoder) and encoder.has_windows:
        raise UnsupportedError("encoders that read texts in windows cannot be exported to ONNX. Lower text.max_tokens.")
    inner = [head.base] if isinstance(head, CorrelationHead) else []
    known_parts: list[tuple[nn.Module, Mapping[type, Any]]] = [
        (encoder, ENCODERS),
        *((part, HEADS) for part in (head, *inner)),
    ]
    for part, known in known_parts:
        if type(part) not in known:
            raise UnsupportedError(f"networks with {type(part).__name__} cannot be exported to ONNX.")


def values_per_label(head: Head) -> int:
    """Values that a head computes for each label and document besides one for each word; 0 if it has no such."""
    return sum(layer.out_features for layer in head.perceptron) if isinstance(head, LabelAttention) else 0


# ---- encoders: word table and word numbers (B, T) → states (B, T, d) or vectors (B, d), and the mask (B, T)


def _words(encoder: Encoder, table: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Encoders of this package, as they are."""
    mask = tokens != PADDING
    encoded: Tensor = encoder(F.embedding(tokens.t(), table), mask)
    return encoded, mask


def _attention_lstm(encoder: AttentionLstm, table: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    states, mask = _words(encoder.states, table, tokens)
    return F.linear(_pooled(encoder.pooling, states, mask), encoder.layer.weight, encoder.layer.bias), mask


def _subword_states(encoder: PretrainedEncoder, table: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """States of a pretrained encoder, for texts whose padding is moved behind them."""
    tokens, mask = padded_behind(tokens)
    module: Any = encoder.pretrained
    states = module(inputs_embeds=F.embedding(tokens, table), attention_mask=mask.long())[0]  # (B, T, d)
    return states * mask[..., None], mask


def _subwords(encoder: Transformer, table: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """A pretrained encoder with pooling and a layer."""
    states, mask = _subword_states(encoder, table, tokens)
    return F.linear(_pooled(encoder.pooling, states, mask), encoder.layer.weight, encoder.layer.bias), mask


def padded_behind(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Texts (B, T) with padding on the right, and their mask (B, T)."""
    length = (tokens != PADDING).sum(1, keepdim=True)
    place = torch.arange(tokens.shape[1], device=tokens.device)[None]
    return tokens.gather(1, (place - length) % tokens.shape[1]), place < length


def _pooled(pooling: AttentionPooling, states: Tensor, mask: Tensor) -> Tensor:
    """(B, d) mean of the states with additive attention; no product with a vector, which cannot have 8-bit weights."""
    seen = torch.tanh(F.linear(states, pooling.layer.weight, pooling.layer.bias))
    scores = (seen * pooling.direction).sum(2).masked_fill(~mask, -torch.inf)  # (B, T)
    return (torch.softmax(scores, dim=1)[:, None] @ states)[:, 0]


ENCODERS: dict[type[Encoder], Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    AttentionLstm: _attention_lstm,
    BiLstm: _words,
    Convolution: _words,
    PooledLstm: _words,
    Transformer: _subwords,
    TransformerStates: _subword_states,
}


# ---- heads: states (B, T, d) or vectors (B, d), and the mask (B, T) → logits (B, L)


def _linear(head: LinearHead, vectors: Tensor, mask: Tensor) -> Tensor:
    return F.linear(vectors, head.rows, head.bias)


def _label_attention(head: LabelAttention, states: Tensor, mask: Tensor) -> Tensor:
    scores = (states @ head.rows.t()).masked_fill(~mask[..., None], -torch.inf)  # (B, T, L)
    first, *further = head.perceptron
    mixed = torch.softmax(scores, dim=1).transpose(1, 2) @ F.linear(states, first.weight, first.bias)  # (B, L, b)
    for layer in further:
        mixed = F.linear(F.relu(mixed), layer.weight, layer.bias)
    return mixed[..., 0]


def _label_outputs(head: LabelOutputs, states: Tensor, mask: Tensor) -> Tensor:
    scores = (states @ head.attention.t()).masked_fill(~mask[..., None], -torch.inf)  # (B, T, L)
    mixed = (torch.softmax(scores, dim=1) * (states @ head.outputs.t())).sum(1)
    mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
    return mixed + F.linear(mean, head.pooled, head.bias)


def _correlation(head: CorrelationHead, encoded: Tensor, mask: Tensor) -> Tensor:
    logits = HEADS[type(head.base)](head.base, encoded, mask)
    for block in head.blocks:
        assert isinstance(block, CorrelationBlock)
        logits = block(logits, logits.dtype)
    return logits


HEADS: dict[type[Head], Callable[[Any, Tensor, Tensor], Tensor]] = {
    CorrelationHead: _correlation,
    LabelAttention: _label_attention,
    LabelOutputs: _label_outputs,
    LinearHead: _linear,
}
