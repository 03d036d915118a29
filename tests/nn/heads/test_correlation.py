"""Correlation blocks against autograd through a plain implementation, on heads of every kind."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor

from tests.support.attention import plain_logits
from xmtc.nn.heads.base import Head, LinearHead
from xmtc.nn.heads.correlation import CorrelationHead, CorrelationSettings
from xmtc.nn.heads.label_attention import LabelAttention
from xmtc.nn.heads.label_specific import LabelSpecificAttention, LabelSpecificSettings
from xmtc.nn.training.losses import PartialBatch

B, T, D, L = 4, 6, 8, 19
POSITIVES = torch.tensor([[0, 18, -1], [5, -1, -1], [-1, -1, -1], [3, 4, 5]])
PARTIAL = PartialBatch(torch.tensor([False, True, False, True]), torch.tensor([[-1], [2], [-1], [9]]))
KINDS = ("linear", "attention", "label_specific")


def built(kind: str, blocks: int = 2) -> tuple[CorrelationHead, Tensor, Tensor]:
    torch.manual_seed(0)
    base: Head = LinearHead(L, D)
    if kind == "attention":
        base = LabelAttention(L, D, (5,))
    elif kind == "label_specific":
        base = LabelSpecificAttention(L, D, LabelSpecificSettings(units=5, hidden=6))
    head = CorrelationHead(base, CorrelationSettings(blocks=blocks, bottleneck=7)).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
    mask = torch.arange(T)[None] >= T - torch.tensor([6, 2, 1, 4])[:, None]
    encoded = torch.randn(B, T, D, dtype=torch.float64) if base.takes_states else torch.randn(B, D).double()
    return head, encoded, mask


def corrected(head: CorrelationHead, logits: Tensor) -> Tensor:
    """The formula of the blocks."""
    for block in head.blocks:
        hidden = torch.nn.functional.elu(torch.sigmoid(logits) @ block.inputs + block.context_bias)
        logits = logits + hidden @ block.outputs.T + block.bias
    return logits


def base_logits(head: CorrelationHead, encoded: Tensor, mask: Tensor) -> Tensor:
    base = head.base
    if isinstance(base, LabelAttention):
        return plain_logits(base, encoded, mask, base.rows)
    if isinstance(base, LinearHead):
        return encoded @ base.rows.T + base.bias
    raise AssertionError(base)


def loss_of(logits: Tensor) -> Tensor:
    truth, known = torch.zeros(B, L, dtype=torch.float64), torch.ones(B, L, dtype=torch.float64)
    for row, labels in enumerate(POSITIVES.tolist()):
        own = [label for label in labels if label >= 0]
        truth[row, own] = 1.0
        if PARTIAL.partial[row]:
            known[row] = 0.0
            known[row, [*own, *PARTIAL.rejected[row].tolist()]] = 1.0
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, truth, weight=known)


@pytest.mark.parametrize("kind", ["linear", "attention"])
@pytest.mark.parametrize("chunk", [L, 5])
def test_values_and_gradients(kind: str, chunk: int) -> None:
    head, encoded, mask = built(kind)
    leaf = encoded.clone().requires_grad_()
    logits = corrected(head, base_logits(head, leaf, mask))
    loss_of(logits).backward()
    expected = {name: part.grad.clone() for name, part in head.named_parameters()}
    parts = [head.logits(encoded, mask, low, min(low + chunk, L)) for low in range(0, L, chunk)]
    assert torch.allclose(torch.cat(parts, dim=1), logits, atol=1e-9)
    head.zero_grad()
    loss, gradient = head.learn(encoded, mask, POSITIVES, chunk, PARTIAL)
    assert float(loss) == pytest.approx(float(loss_of(logits.detach())), abs=1e-10)
    assert torch.allclose(gradient, leaf.grad, atol=1e-9)
    for name, part in head.named_parameters():
        assert torch.allclose(part.grad, expected[name], atol=1e-9), name


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_and_candidates_give_the_same_logits(kind: str) -> None:
    head, encoded, mask = built(kind)
    whole = head.logits(encoded, mask, 0, L)
    assert torch.allclose(whole, corrected(head, head.base.logits(encoded, mask, 0, L)), atol=1e-9)
    assert torch.allclose(head.logits(encoded, mask, 7, 11), whole[:, 7:11], atol=1e-9)
    candidates = torch.tensor([[3, -1, 18], [0, 0, 1], [5, 6, 7], [-1, -1, 2]])
    found = head.candidate_logits(encoded, mask, candidates, 4)
    assert torch.allclose(found[candidates >= 0], whole.gather(1, candidates.clamp(min=0))[candidates >= 0], atol=1e-9)
    other = encoded + 1.0  # another batch: the logits that were kept are not its own
    assert torch.allclose(head.logits(encoded, mask, 0, 4), whole[:, :4], atol=1e-9)
    ours = corrected(head, head.base.logits(other, mask, 0, L))
    assert torch.allclose(head.logits(other, mask, 4, 9), ours[:, 4:9], atol=1e-9)


def test_blocks_start_as_the_identity_or_as_published() -> None:
    base, encoded = LinearHead(L, D), torch.randn(B, D)
    mask = torch.ones(B, 1, dtype=torch.bool)
    plain = base.logits(encoded, mask, 0, L)
    ours = CorrelationHead(base, CorrelationSettings(blocks=2, bottleneck=7))
    assert torch.equal(ours.logits(encoded, mask, 0, L), plain)
    published = CorrelationHead(base, CorrelationSettings(blocks=2, bottleneck=7, identity=False))
    assert (published.logits(encoded, mask, 0, L) - plain).abs().max() > 0.01


def test_new_labels_leave_the_scores_of_others() -> None:
    head, encoded, mask = built("linear")
    before = head.logits(encoded, mask, 0, L - 2)
    smaller, _, _ = built("linear")
    for part in (
        smaller.base.rows,
        smaller.base.bias,
        *(getattr(b, n) for b in smaller.blocks for n in ("inputs", "outputs", "bias")),
    ):
        part.data = part.data[: L - 2]
    smaller.labels = smaller.base.labels = L - 2
    assert not torch.allclose(smaller.logits(encoded, mask, 0, L - 2), before, atol=1e-3)
    head.start_new_labels(torch.tensor([0.25, 0.5], dtype=torch.float64))
    assert torch.allclose(head.logits(encoded, mask, 0, L - 2), smaller.logits(encoded, mask, 0, L - 2), atol=1e-9)
    assert head.base.bias[-2:].tolist() == pytest.approx([torch.logit(torch.tensor(0.25)).item(), 0.0])


def test_given_labels_train_their_own_logits_only() -> None:
    head, encoded, mask = built("linear")
    candidates = torch.tensor([[3, -1], [3, 5], [3, 3], [-1, -1]])
    targets = torch.ones(B, 2, dtype=torch.float64)
    loss, gradient = head.learn_candidates(encoded, mask, candidates, targets, 4)
    logits = head.candidate_logits(encoded, mask, candidates, 4)
    given = (candidates >= 0).double()
    expected = torch.nn.functional.softplus(-logits) * given / candidates.numel()
    assert float(loss) == pytest.approx(float(expected.sum()), abs=1e-10)
    error = -torch.sigmoid(-logits) * given / candidates.numel()
    assert torch.allclose(
        gradient, torch.einsum("bk,bkd->bd", error, head.base.rows[candidates.clamp(min=0)]), atol=1e-9
    )
    moved = head.base.rows.grad.abs().sum(1) > 0
    assert moved.nonzero()[:, 0].tolist() == [3, 5]
    assert all(part.grad is None for part in head.blocks.parameters())
