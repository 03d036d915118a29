"""LSAN's head against its formulas, written out word by word, in double precision."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor

from xmtc.nn.heads.label_specific import LabelSpecificAttention, LabelSpecificSettings
from xmtc.nn.training.losses import PartialBatch

B, T, K, L = 5, 9, 4, 21
LENGTHS = (9, 3, 0, 1, 6)  # one document is empty
POSITIVES = torch.tensor([[0, 20, -1], [5, -1, -1], [-1, -1, -1], [3, 4, 5], [20, 16, -1]])
FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "published": {"softmax": False},
    "self": {"attention": "self"},
    "label": {"attention": "label"},
    "label, published": {"attention": "label", "softmax": False},
    "no gate": {"gate": False},
}


def made(form: str, seed: int = 0) -> tuple[LabelSpecificAttention, Tensor, Tensor]:
    torch.manual_seed(seed)
    head = LabelSpecificAttention(L, 2 * K, LabelSpecificSettings(units=5, hidden=6, **FORMS[form])).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
    mask = torch.arange(T)[None] >= T - torch.tensor(LENGTHS)[:, None]
    return head, torch.randn(B, T, 2 * K, dtype=torch.float64), mask


def plain_logit(head: LabelSpecificAttention, states: Tensor, label: int) -> tuple[Tensor, Tensor]:
    """Logit and attention of a label for the states (T, 2k) of a document that has words."""
    settings, mixtures, weights = head.settings, [], []
    if settings.attention != "label":
        alpha = torch.softmax(torch.stack([head.first(state).tanh() @ head.rows[label] for state in states]), 0)
        mixtures.append(sum(share * state for share, state in zip(alpha, states, strict=True)))
        weights.append(alpha)
    if settings.attention != "self":
        sides = []
        for side in (states[:, :K], states[:, K:]):
            beta = side @ head.vectors[label]
            beta = torch.softmax(beta, 0) if settings.softmax else beta
            sides.append((beta, sum(share * state for share, state in zip(beta, side, strict=True))))
        mixtures.append(torch.cat([mixture for _, mixture in sides]))
        absolute = sides[0][0].abs() + sides[1][0].abs()
        weights.append(absolute / absolute.sum())
    share = 1.0
    if len(mixtures) == 2:
        share = 0.5
        if settings.gate:
            gates = torch.sigmoid(mixtures[0] @ head.own_gate), torch.sigmoid(mixtures[1] @ head.name_gate)
            share = gates[0] / (gates[0] + gates[1])
        mixtures = [share * mixtures[0] + (1 - share) * mixtures[1]]
        weights = [share * weights[0] + (1 - share) * weights[1]]
    return head.output(torch.relu(head.hidden(mixtures[0])))[0], weights[0]


def plain_logits(head: LabelSpecificAttention, states: Tensor) -> Tensor:
    rows = []
    for row, length in enumerate(LENGTHS):
        words = states[row, T - length :] if length else states[row, :1] * 0.0  # an empty text has one zero state
        rows.append(torch.stack([plain_logit(head, words, label)[0] for label in range(L)]))
    return torch.stack(rows)


def gradients(head: LabelSpecificAttention) -> dict[str, Tensor]:
    return {name: part.grad.clone() for name, part in head.named_parameters()}


def check_gradients(head: LabelSpecificAttention, expected: dict[str, Tensor], d_states: Tensor, plain: Tensor) -> None:
    assert torch.allclose(d_states, plain, atol=1e-9)
    for name, part in gradients(head).items():
        assert torch.allclose(part, expected[name], atol=1e-9), name


@pytest.mark.parametrize("form", FORMS)
def test_all_labels(form: str) -> None:
    head, states, mask = made(form)
    leaf = states.clone().requires_grad_()
    logits = plain_logits(head, leaf)
    truth = torch.zeros(B, L, dtype=torch.float64)
    for row, labels in enumerate(POSITIVES.tolist()):
        truth[row, [label for label in labels if label >= 0]] = 1.0
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth)
    loss.backward()
    expected = gradients(head)
    for chunk in (L, 8):
        found = torch.cat([head.logits(states, mask, low, min(low + chunk, L)) for low in range(0, L, chunk)], dim=1)
        assert torch.allclose(found, logits.detach(), atol=1e-9)
        head.zero_grad()
        ours, d_states = head.learn(states, mask, POSITIVES, chunk)
        assert float(ours) == pytest.approx(float(loss.detach()), abs=1e-10)
        check_gradients(head, expected, d_states, leaf.grad)
        head.zero_grad()
        error = (torch.sigmoid(logits.detach()) - truth) / truth.numel()
        check_gradients(head, expected, head.propagate(states, mask, error, chunk), leaf.grad)


@pytest.mark.parametrize("form", ["default", "self", "label, published"])
def test_candidates(form: str) -> None:
    head, states, mask = made(form, seed=1)
    candidates = torch.randint(-1, L, (B, 7))
    candidates[0, 1] = candidates[0, 0]  # a label given twice counts twice
    targets, given = torch.rand(B, 7).double(), (candidates >= 0).double()
    leaf = states.clone().requires_grad_()
    logits = plain_logits(head, leaf).gather(1, candidates.clamp(min=0))
    torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, weight=given).backward()
    expected = gradients(head)
    for chunk in (7, 3):
        found = head.candidate_logits(states, mask, candidates, chunk)
        assert torch.allclose(found * given, logits.detach() * given, atol=1e-9)
        head.zero_grad()
        _, d_states = head.learn_candidates(states, mask, candidates, targets, chunk)
        check_gradients(head, expected, d_states, leaf.grad)


@pytest.mark.parametrize("form", FORMS)
def test_attention_weights(form: str) -> None:
    head, states, mask = made(form, seed=2)
    found = head.weights(states, mask, 6)
    for row, length in enumerate(LENGTHS):
        assert not found[row, : T - length].any()
        if length:
            expected = plain_logit(head, states[row, T - length :], 6)[1].detach().float()
            assert torch.allclose(found[row, T - length :], expected, atol=1e-6)
            assert float(found[row].sum()) == pytest.approx(1.0, abs=1e-6)


def test_unknown_labels_do_not_move() -> None:
    head, states, mask = made("default")
    partial = PartialBatch(torch.ones(B, dtype=torch.bool), torch.tensor([[7], [-1], [-1], [7], [9]]))
    head.learn(states, mask, POSITIVES, 8, partial)
    known = torch.zeros(L, dtype=torch.bool)
    known[[0, 20, 5, 3, 4, 16, 7, 9]] = True
    for part in (head.rows, head.vectors):
        moved = part.grad.abs().sum(1) > 0
        assert not moved[~known].any()
        assert moved[known].sum() >= 4


def test_low_precision_is_near() -> None:
    head, states, mask = made("default")
    head, narrow = head.float(), states.to(torch.bfloat16)
    near = head.logits(narrow.float(), mask, 0, L)
    assert (head.logits(narrow, mask, 0, L) - near).abs().max() < 0.06 * near.abs().max()
    _, d_states = head.learn(narrow, mask, POSITIVES, 8)
    assert d_states.dtype == torch.bfloat16
    assert torch.isfinite(d_states).all()


def test_new_labels_start_from_their_names() -> None:
    names = torch.randn(L, K)
    head = LabelSpecificAttention(L, 2 * K, LabelSpecificSettings(units=5, hidden=6), names)
    assert torch.equal(head.vectors, names)
    with torch.no_grad():
        head.vectors.zero_()
    head.start_new_labels(torch.tensor([0.1, 0.2]))
    assert torch.equal(head.vectors[-2:], names[-2:])
    assert not head.vectors[:-2].any()
