"""Label-wise attention with outputs of each label: its own gradients against those of autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from xmtc.nn.heads.label_outputs import LabelOutputs
from xmtc.nn.training.losses import PartialBatch

LABELS, WIDTH, BATCH, LENGTH = 37, 6, 4, 5


def reference(head: LabelOutputs, states: Tensor, mask: Tensor) -> Tensor:
    """(B, L) logits, one document and label at a time."""
    logits = []
    for text, real in zip(states, mask, strict=True):
        tokens = text[real]
        if not len(tokens):
            logits.append(head.bias)
            continue
        shares = torch.softmax(tokens @ head.attention.t(), dim=0)  # (t, L)
        mixtures = shares.t() @ tokens  # (L, d)
        logits.append((mixtures * head.outputs).sum(1) + head.pooled @ tokens.mean(0) + head.bias)
    return torch.stack(logits)


@pytest.fixture
def given() -> dict[str, Any]:
    torch.manual_seed(2)
    head = LabelOutputs(LABELS, WIDTH).double()
    with torch.no_grad():
        for part in head.parameters():
            part.copy_(torch.randn_like(part))
    states = torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
    positives = torch.tensor([[3, 36, -1], [0, 1, 2], [-1, -1, -1], [17, -1, -1]])
    return {"head": head, "states": states * mask[..., None], "mask": mask, "positives": positives}


def targets(positives: Tensor) -> Tensor:
    dense = torch.zeros(len(positives), LABELS, dtype=torch.float64)
    for row, labels in enumerate(positives):
        dense[row, labels[labels >= 0]] = 1.0
    return dense


@pytest.mark.parametrize("chunk", [16, 48])
def test_loss_and_gradients(given: dict[str, Any], chunk: int) -> None:
    head, states, mask, positives = given["head"], given["states"].requires_grad_(), given["mask"], given["positives"]
    logits = reference(head, states, mask)
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets(positives), reduction="sum") / BATCH
    expected = torch.autograd.grad(wanted, [states, *head.parameters()])
    loss, d_states = head.learn(states.detach(), mask, positives, chunk)
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(d_states, expected[0])
    for (name, part), gradient in zip(head.named_parameters(), expected[1:], strict=True):
        torch.testing.assert_close(part.grad, gradient, msg=lambda text, name=name: f"{name}: {text}")
    parts = [head.logits(states.detach(), mask, low, min(low + chunk, LABELS)) for low in range(0, LABELS, chunk)]
    torch.testing.assert_close(torch.cat(parts, dim=1), logits.detach())


def test_given_errors(given: dict[str, Any]) -> None:
    head, states, mask = given["head"], given["states"].requires_grad_(), given["mask"]
    error = torch.randn(BATCH, LABELS, dtype=torch.float64)
    expected = torch.autograd.grad(reference(head, states, mask), [states, *head.parameters()], error)
    torch.testing.assert_close(head.propagate(states.detach(), mask, error, 16), expected[0])
    for part, gradient in zip(head.parameters(), expected[1:], strict=True):
        torch.testing.assert_close(part.grad, gradient)


def test_unknown_labels_have_no_loss(given: dict[str, Any]) -> None:
    head, states, mask, positives = given["head"], given["states"].requires_grad_(), given["mask"], given["positives"]
    partial = PartialBatch(
        torch.tensor([True, False, True, False]), torch.tensor([[5, 9], [-1, -1], [1, -1], [-1, -1]])
    )
    known = torch.ones(BATCH, LABELS, dtype=torch.float64)
    known[0], known[2] = 0, 0
    known[0, [3, 36, 5, 9]], known[2, 1] = 1, 1
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        reference(head, states, mask), targets(positives), reduction="none"
    )
    wanted = (losses * known).sum() / BATCH
    expected = torch.autograd.grad(wanted, states)[0]
    loss, d_states = head.learn(states.detach(), mask, positives, 16, partial)
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(d_states, expected)


@pytest.mark.parametrize("chunk", [2, 100])
def test_given_labels(given: dict[str, Any], chunk: int) -> None:
    head, states, mask = given["head"], given["states"].requires_grad_(), given["mask"]
    candidates = torch.tensor([[4, 9, 4], [0, 36, -1], [1, 2, 3], [7, -1, -1]])
    wishes = torch.tensor([[1.0, 0.0, 1.0], [0.3, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    logits = reference(head, states, mask).gather(1, candidates.clamp(min=0))
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, wishes, reduction="none")
    wanted = (losses * (candidates >= 0)).sum() / BATCH
    expected = torch.autograd.grad(wanted, [states, *head.parameters()])
    loss, d_states = head.learn_candidates(states.detach(), mask, candidates, wishes, chunk)
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(d_states, expected[0])
    for part, gradient in zip(head.parameters(), expected[1:], strict=True):
        torch.testing.assert_close(part.grad, gradient)
    torch.testing.assert_close(head.candidate_logits(states.detach(), mask, candidates, chunk), logits.detach())


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # of CPUs without it
def test_low_precision(given: dict[str, Any]) -> None:
    """The gradients of a step in bfloat16 point where those in float32 do."""
    head, states, mask, positives = given["head"].float(), given["states"].float(), given["mask"], given["positives"]
    exact_loss, exact = head.learn(states, mask, positives, 48)
    exact_rows = head.attention.grad.clone()
    head.zero_grad()
    loss, rough = head.learn(states.bfloat16(), mask, positives, 48)
    assert rough.dtype == torch.bfloat16
    assert float(loss) == pytest.approx(float(exact_loss), rel=0.02)
    for left, right in ((exact, rough.float()), (exact_rows, head.attention.grad)):
        assert torch.nn.functional.cosine_similarity(left.flatten(), right.flatten(), dim=0) > 0.99


def test_weights_of_a_label(given: dict[str, Any]) -> None:
    head, states, mask = given["head"], given["states"], given["mask"]
    shares = head.weights(states[:3], mask[:3], 5)
    assert not shares[~mask[:3]].any()
    expected = torch.softmax(states[1] @ head.attention[5], dim=0)
    torch.testing.assert_close(shares[1], expected.float())
