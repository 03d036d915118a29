"""Encoders against plain implementations: packed LSTMs, and loops over words."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from xmtc.nn.encoders import (  # noqa: E402
    BiLstm,
    Convolution,
    ConvolutionSettings,
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


@pytest.mark.parametrize("kind", ["states", "pooled", "convolution"])
def test_padding_and_company_do_not_matter(kind: str) -> None:
    """A document alone, without padding, gets what it gets in a padded batch."""
    if kind == "states":
        encoder: nn.Module = BiLstm(WIDTH, LstmSettings(units=UNITS))
    elif kind == "pooled":
        encoder = PooledLstm(WIDTH, PooledLstmSettings(units=UNITS, hidden=4))
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
