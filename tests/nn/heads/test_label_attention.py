"""Label attention against a plain implementation by autograd, in double precision."""

from __future__ import annotations

import pytest
from torch import Tensor

from tests.support.attention import plain_logits, torch
from xmtc.nn.heads.base import LinearHead
from xmtc.nn.heads.label_attention import LabelAttention

DOCUMENTS, LENGTH, WIDTH, LABELS = 6, 11, 10, 37
LENGTHS = (11, 4, 7, 0, 1, 9)  # one document is empty


def made(hidden: tuple[int, ...], seed: int = 0) -> tuple[LabelAttention, Tensor, Tensor]:
    torch.manual_seed(seed)
    head = LabelAttention(LABELS, WIDTH, hidden).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
    states = torch.randn(DOCUMENTS, LENGTH, WIDTH, dtype=torch.float64)
    mask = torch.arange(LENGTH)[None] >= LENGTH - torch.tensor(LENGTHS)[:, None]
    return head, states, mask


def gradients(head: torch.nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in head.parameters()]


def close(left: Tensor, right: Tensor) -> bool:
    return bool((left - right).abs().max() <= 1e-8 * max(1.0, float(right.abs().max())))


@pytest.mark.parametrize("hidden", [(8,), (8, 5), (7, 6, 5)])
@pytest.mark.parametrize("chunk", [LABELS, 16, 5])
class TestDense:
    positives = torch.tensor([[0, 36, -1], [5, -1, -1], [-1, -1, -1], [3, 4, 5], [36, -1, -1], [0, 1, 2]])

    def reference(self, head: LabelAttention, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        leaf = states.clone().requires_grad_()
        logits = plain_logits(head, leaf, mask, head.rows)
        truth = torch.zeros(DOCUMENTS, LABELS, dtype=torch.float64)
        for row, labels in enumerate(self.positives.tolist()):
            truth[row, [label for label in labels if label >= 0]] = 1.0
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth)
        loss.backward()
        assert leaf.grad is not None
        return loss.detach(), leaf.grad, gradients(head)

    def test_values_and_gradients(self, hidden: tuple[int, ...], chunk: int) -> None:
        head, states, mask = made(hidden)
        loss, d_states, expected = self.reference(head, states, mask)
        logits = plain_logits(head, states, mask, head.rows).detach()
        found = torch.cat(
            [head.logits(states, mask, low, min(low + chunk, LABELS)) for low in range(0, LABELS, chunk)], 1
        )
        assert close(found, logits)
        head.zero_grad()
        ours, gradient = head.learn(states, mask, self.positives, chunk)
        assert abs(float(ours - loss.detach())) < 1e-8
        assert close(gradient, d_states)
        for name, left, right in zip(dict(head.named_parameters()), gradients(head), expected, strict=True):
            assert close(left, right), name

    def test_gradients_add_up(self, hidden: tuple[int, ...], chunk: int) -> None:
        head, states, mask = made(hidden)
        head.learn(states, mask, self.positives, chunk)
        once = gradients(head)
        head.learn(states, mask, self.positives, chunk)
        assert all(close(twice, 2 * part) for twice, part in zip(gradients(head), once, strict=True))


@pytest.mark.parametrize("hidden", [(8,), (8, 5)])
@pytest.mark.parametrize("chunk", [64, 4, 3])
class TestCandidates:
    def test_values_and_gradients(self, hidden: tuple[int, ...], chunk: int) -> None:
        head, states, mask = made(hidden, seed=1)
        candidates = torch.randint(-1, LABELS, (DOCUMENTS, 10))
        candidates[0, 1] = candidates[0, 0]  # a label given twice counts twice
        targets = (torch.rand(DOCUMENTS, 10) < 0.3).double()
        given = (candidates >= 0).double()
        leaf = states.clone().requires_grad_()
        logits = plain_logits(head, leaf, mask, head.rows[candidates.clamp(min=0)])
        plain = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, weight=given)
        plain.backward()
        expected = gradients(head)
        head.zero_grad()
        found = head.candidate_logits(states, mask, candidates, chunk)
        assert close(found * given, logits.detach() * given)
        loss, gradient = head.learn_candidates(states, mask, candidates, targets, chunk)
        assert abs(float(loss - plain.detach())) < 1e-8
        assert close(gradient, leaf.grad)
        for name, left, right in zip(dict(head.named_parameters()), gradients(head), expected, strict=True):
            assert close(left, right), name

    def test_all_labels_as_candidates_equal_dense(self, hidden: tuple[int, ...], chunk: int) -> None:
        head, states, mask = made(hidden, seed=2)
        everything = torch.arange(LABELS).repeat(DOCUMENTS, 1)
        assert close(head.candidate_logits(states, mask, everything, chunk), head.logits(states, mask, 0, LABELS))


class TestRange:
    def test_large_scores_do_not_overflow(self) -> None:
        head, states, mask = made((8,))
        for kind in (torch.float32, torch.bfloat16):
            large = (states * 400).to(kind)
            logits = head.float().logits(large, mask, 0, LABELS)
            assert torch.isfinite(logits).all()
            _, gradient = head.learn(large, mask, TestDense.positives, 16)
            assert torch.isfinite(gradient).all()
            assert all(torch.isfinite(part).all() for part in gradients(head))

    def test_bfloat16_is_near_float32(self) -> None:
        head, states, mask = made((8,))
        head = head.float()
        narrow = states.to(torch.bfloat16)
        near = head.logits(narrow.float(), mask, 0, LABELS)
        assert (head.logits(narrow, mask, 0, LABELS) - near).abs().max() < 0.05 * near.abs().max()

    def test_padding_does_not_matter(self) -> None:
        head, states, mask = made((8,))
        other = torch.where(mask[..., None], states, 1e3)
        assert close(head.logits(other, mask, 0, LABELS), head.logits(states, mask, 0, LABELS))

    def test_attention_is_the_softmax_over_real_tokens(self) -> None:
        head, states, mask = made((8,))
        weights = head.weights(states, mask, 7)
        full = [row for row, length in enumerate(LENGTHS) if length]
        assert torch.allclose(weights[full].sum(1), torch.ones(len(full)), atol=1e-6)
        assert (weights[full][~mask[full]] == 0).all()
        scores = states[1, -4:] @ head.rows[7]
        assert torch.allclose(weights[1, -4:], scores.softmax(0).float(), atol=1e-6)


@pytest.mark.parametrize("chunk", [LABELS, 16, 5])
def test_linear_head_against_autograd(chunk: int) -> None:
    torch.manual_seed(3)
    head = LinearHead(LABELS, WIDTH).double()
    vectors = torch.randn(DOCUMENTS, WIDTH, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(DOCUMENTS, 1, dtype=torch.bool)
    truth = torch.zeros(DOCUMENTS, LABELS, dtype=torch.float64)
    for row, labels in enumerate(TestDense.positives.tolist()):
        truth[row, [label for label in labels if label >= 0]] = 1.0
    logits = vectors @ head.rows.T + head.bias
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth)
    loss.backward()
    expected = gradients(head)
    head.zero_grad()
    ours, gradient = head.learn(vectors.detach(), mask, TestDense.positives, chunk)
    assert abs(float(ours - loss.detach())) < 1e-8
    assert close(gradient, vectors.grad)
    assert all(close(left, right) for left, right in zip(gradients(head), expected, strict=True))
    some = torch.tensor([[0, 5, -1]] * DOCUMENTS)
    assert close(head.candidate_logits(vectors.detach(), mask, some, chunk)[:, :2], logits.detach()[:, [0, 5]])
