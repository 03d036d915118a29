"""Encoders against plain implementations: packed LSTMs, and loops over words."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn

from xmtc.nn.encoders.base import AttentionPooling
from xmtc.nn.encoders.cnn import Convolution, ConvolutionSettings
from xmtc.nn.encoders.lstm import (
    AttentionLstm,
    AttentionLstmSettings,
    BiLstm,
    LstmSettings,
    PooledLstm,
    PooledLstmSettings,
)

LENGTHS = (9, 1, 5, 9, 3)
WIDTH, UNITS = 7, 6


def left_padded(lengths: tuple[int, ...] = LENGTHS, total: int = 12) -> tuple[Tensor, Tensor]:
    """(T, B, e) words, other numbers than zero at padding, and their mask."""
    torch.manual_seed(5)
    words = torch.randn(total, len(lengths), WIDTH, dtype=torch.float64)
    return words, torch.arange(total)[None] >= total - torch.tensor(lengths)[:, None]


def packed_reference(encoder: BiLstm) -> nn.LSTM:
    """torch's own LSTM with the same weights."""
    reference = nn.LSTM(WIDTH, UNITS, bidirectional=True).double()
    with torch.no_grad():
        for ours, theirs in (("forward", "l0"), ("backward", "l0_reverse")):
            getattr(reference, f"weight_ih_{theirs}").copy_(getattr(encoder, f"{ours}_input"))
            getattr(reference, f"weight_hh_{theirs}").copy_(getattr(encoder, f"{ours}_state"))
            getattr(reference, f"bias_ih_{theirs}").copy_(getattr(encoder, f"{ours}_bias"))
            getattr(reference, f"bias_hh_{theirs}").zero_()
    return reference


def test_left_padding_equals_packing() -> None:
    settings = LstmSettings(units=UNITS, word_dropout=0.0, dropout=0.0)
    encoder = BiLstm(WIDTH, settings).double()
    reference = packed_reference(encoder)
    words, mask = left_padded()
    ours, theirs = words.clone().requires_grad_(), words.clone().requires_grad_()
    states = encoder(ours, mask)  # (B, T, 2n)
    pull = torch.randn(states.shape, dtype=torch.float64) * mask[..., None]
    states.backward(pull)
    rows = [theirs[len(words) - length :, row] for row, length in enumerate(LENGTHS)]
    packed = nn.utils.rnn.pack_sequence(rows, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(reference(packed)[0], batch_first=True)
    flipped = torch.cat([expected[row, :length] for row, length in enumerate(LENGTHS)])
    assert torch.allclose(states[mask], flipped, atol=1e-12)
    flipped.backward(pull[mask])
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-12)
    for direction, name in (("forward", "l0"), ("backward", "l0_reverse")):
        for part, other in (("input", "weight_ih"), ("state", "weight_hh"), ("bias", "bias_ih")):
            left = getattr(encoder, f"{direction}_{part}").grad
            assert torch.allclose(left, getattr(reference, f"{other}_{name}").grad, atol=1e-12), (direction, part)


@pytest.mark.parametrize("kind", ["states", "pooled", "attention", "convolution"])
def test_padding_and_company_do_not_matter(kind: str) -> None:
    """A document alone, without padding, gets what it gets in a padded batch."""
    if kind == "states":
        encoder: nn.Module = BiLstm(WIDTH, LstmSettings(units=UNITS))
    elif kind == "pooled":
        encoder = PooledLstm(WIDTH, PooledLstmSettings(units=UNITS, hidden=4))
    elif kind == "attention":
        encoder = AttentionLstm(WIDTH, AttentionLstmSettings(units=UNITS, hidden=4))
    else:
        encoder = Convolution(WIDTH, ConvolutionSettings(filters=5, pools=3, hidden=4))
    encoder = encoder.double().eval()
    words, mask = left_padded()
    together = encoder(words, mask)
    for row, length in enumerate(LENGTHS):
        alone = encoder(words[len(words) - length :, row : row + 1], torch.ones(1, length, dtype=torch.bool))
        found = together[row, -length:] if kind == "states" else together[row]
        assert torch.allclose(found, alone[0], atol=1e-12)


def test_pooling_keeps_the_largest_states() -> None:
    encoder = PooledLstm(WIDTH, PooledLstmSettings(units=UNITS, hidden=4)).double().eval()
    words, mask = left_padded()
    states = encoder.states(words, mask)
    for row, length in enumerate(LENGTHS):
        largest = states[row, -length:].max(0).values
        expected = torch.relu(encoder.layer.weight @ largest + encoder.layer.bias)
        assert torch.allclose(encoder(words, mask)[row], expected)


def test_convolutions_against_loops() -> None:
    settings = ConvolutionSettings(windows=(2, 3), filters=4, pools=3, hidden=5)
    encoder = Convolution(WIDTH, settings).double().eval()
    words, mask = left_padded()
    found = encoder(words, mask)
    for row, length in enumerate(LENGTHS):
        text = words[len(words) - length :, row]  # (length, e)
        pooled: list[Tensor] = []
        for convolution in encoder.convolutions:
            window = convolution.kernel_size[0]
            values = []
            for place in range(length):
                total = convolution.bias.clone()
                for offset in range(window):
                    at = place + offset - window // 2
                    if 0 <= at < length:
                        total = total + convolution.weight[:, :, offset] @ text[at]
                values.append(torch.relu(total))
            for part in range(settings.pools):
                inside = [value for at, value in enumerate(values) if at * settings.pools // length == part]
                pooled.append(torch.stack(inside).max(0).values if inside else torch.zeros(4, dtype=torch.float64))
        narrow = encoder.layer.weight @ torch.cat(pooled) + encoder.layer.bias
        narrow = (narrow - narrow.mean()) / (narrow.var(correction=0) + 1e-5).sqrt()
        assert torch.allclose(found[row], torch.relu(narrow))


def test_attention_against_loops() -> None:
    encoder = AttentionLstm(WIDTH, AttentionLstmSettings(units=UNITS, hidden=4)).double().eval()
    words, mask = left_padded()
    states, pooling = encoder.states(words, mask), encoder.pooling
    found, attention = encoder(words, mask), encoder.attention(words, mask)
    for row, length in enumerate(LENGTHS):
        weights = []
        for state in states[row, -length:]:
            weights.append(torch.exp(pooling.direction @ torch.tanh(pooling.layer.weight @ state + pooling.layer.bias)))
        shares = torch.stack(weights) / sum(weights)
        mean = sum(share * state for share, state in zip(shares, states[row, -length:], strict=True))
        assert torch.allclose(attention[row, -length:], shares)
        assert (attention[row, :-length] == 0).all()
        assert torch.allclose(found[row], encoder.layer.weight @ mean + encoder.layer.bias)
    assert (found < 0).any(), "signs are kept"


def test_gradients_of_attention() -> None:
    torch.manual_seed(3)
    pooling = AttentionPooling(4).double()
    states = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
    inputs = (states, *pooling.parameters())
    assert torch.autograd.gradcheck(lambda states, *_: pooling(states, mask), inputs)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_attention_without_words(kind: torch.dtype) -> None:
    """A text without words is zeros, and its gradient too; others do not notice it."""
    torch.manual_seed(3)
    pooling = AttentionPooling(4)
    states = torch.randn(2, 5, 4).to(kind).requires_grad_()
    mask = torch.tensor([[False] * 5, [False, True, True, True, True]])
    found = pooling(states, mask)
    assert found.dtype == kind
    assert (found[0] == 0).all()
    shares = pooling.shares(states, mask)
    assert shares.dtype == torch.float32
    assert torch.allclose(shares.sum(1), torch.tensor([0.0, 1.0]))
    found.float().square().sum().backward()
    assert (states.grad[0] == 0).all()
    assert states.grad[1, 1:].abs().sum() > 0
    assert all(torch.isfinite(parameter.grad).all() for parameter in pooling.parameters())
