"""The plain formulas that are exported, against the heads and encoders themselves."""

from __future__ import annotations

import pytest
import torch

from xmtc.core.errors import UnsupportedError
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.encoders.cnn import Convolution, ConvolutionSettings
from xmtc.nn.encoders.lstm import (
    AttentionLstm,
    AttentionLstmSettings,
    BiLstm,
    LstmSettings,
    PooledLstm,
    PooledLstmSettings,
)
from xmtc.nn.encoders.sphere import EmbeddingSettings, SphereEncoder
from xmtc.nn.heads.base import Head, LinearHead
from xmtc.nn.heads.correlation import CorrelationHead, CorrelationSettings
from xmtc.nn.heads.label_attention import LabelAttention
from xmtc.nn.heads.label_outputs import LabelOutputs
from xmtc.nn.network import Network
from xmtc.nn.onnx_export import Probabilities, logits, padded_behind

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS, WIDTH, LABELS = 30, 12, 21
TOKENS = torch.tensor([[0, 0, 0, 5, 9, 2], [3, 4, 5, 6, 7, 8], [0, 0, 0, 0, 0, 1]])  # (B, T)

ENCODERS = {
    "bilstm": lambda: BiLstm(WIDTH, LstmSettings(units=5)),
    "pooled_lstm": lambda: PooledLstm(WIDTH, PooledLstmSettings(units=5, hidden=7)),
    "attention_lstm": lambda: AttentionLstm(WIDTH, AttentionLstmSettings(units=5, hidden=7)),
    "cnn": lambda: Convolution(WIDTH, ConvolutionSettings(filters=6, pools=2, hidden=7, windows=(2, 3))),
}


def network(encoder: Encoder, head: Head) -> Network:
    """A network whose parameters are all drawn at random, biases as well."""
    made = Network(torch.randn(WORDS, WIDTH), encoder, head, trained_words=True, compute=torch.float32)
    with torch.no_grad():
        for part in made.parameters():
            part.add_(0.3 * torch.randn_like(part))
        made.table[0] = 0.0
    return made.eval()


@pytest.mark.parametrize("hidden", [(6,), (6, 4), (6, 5, 4)])
def test_label_attention_gives_the_logits_of_the_head(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    made = network(ENCODERS["bilstm"](), LabelAttention(LABELS, 10, hidden))
    expected = made.head.logits(*made.encode(TOKENS), 0, LABELS)
    with torch.no_grad():
        torch.testing.assert_close(logits(made, TOKENS), expected)


@pytest.mark.parametrize("blocks", [0, 2])
def test_label_outputs_and_correlation_blocks(blocks: int) -> None:
    torch.manual_seed(4)
    head: Head = LabelOutputs(LABELS, 10)
    if blocks:
        head = CorrelationHead(head, CorrelationSettings(blocks=blocks, bottleneck=5))
    made = network(ENCODERS["bilstm"](), head)
    expected = made.head.logits(*made.encode(TOKENS), 0, LABELS)
    with torch.no_grad():
        torch.testing.assert_close(logits(made, TOKENS), expected)


@pytest.mark.parametrize("kind", ["pooled_lstm", "attention_lstm", "cnn"])
def test_vectors_with_a_linear_head_give_the_logits_of_the_network(kind: str) -> None:
    torch.manual_seed(2)
    made = network(ENCODERS[kind](), LinearHead(LABELS, 7))
    expected = made.head.logits(*made.encode(TOKENS), 0, LABELS)
    with torch.no_grad():
        torch.testing.assert_close(logits(made, TOKENS), expected)


def test_probabilities_of_members_are_averaged() -> None:
    torch.manual_seed(3)
    members = [network(ENCODERS["cnn"](), LinearHead(LABELS, 7)) for _ in range(3)]
    parts = [torch.sigmoid(each.head.logits(*each.encode(TOKENS), 0, LABELS)) for each in members]
    with torch.no_grad():
        torch.testing.assert_close(Probabilities(members)(TOKENS), sum(parts) / 3)


def test_padding_moves_behind_the_text() -> None:
    moved, mask = padded_behind(TOKENS)
    assert moved.tolist() == [[5, 9, 2, 0, 0, 0], [3, 4, 5, 6, 7, 8], [1, 0, 0, 0, 0, 0]]
    assert mask.sum(1).tolist() == [3, 6, 1]
    assert (moved != 0).equal(mask)


def test_other_networks_are_refused() -> None:
    made = network(SphereEncoder(4, EmbeddingSettings(hidden=8)), LinearHead(LABELS, 4))
    with pytest.raises(UnsupportedError, match="networks with SphereEncoder cannot be exported to ONNX"):
        Probabilities([made])
