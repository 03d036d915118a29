"""Losses of documents with unknown labels: equal to those of the data without the unknown terms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from tests.support.attention import plain_logits, torch
from xmtc.nn.heads.autoencoder import AutoencoderSettings, LabelAutoencoder
from xmtc.nn.heads.base import Head, LinearHead
from xmtc.nn.heads.collaborative import CollaborativeHead, CollaborativeSettings
from xmtc.nn.heads.label_attention import LabelAttention
from xmtc.nn.heads.label_targets import TargetHead, TargetSettings
from xmtc.nn.training.losses import PartialBatch, ScoredLabels, dense_error
from xmtc.nn.training.ranking_loss import RankingLoss

F = torch.nn.functional
B, L, D = 4, 21, 6
POSITIVES = torch.tensor([[0, 20, -1], [5, -1, -1], [-1, -1, -1], [3, 4, 7]])
PARTIAL = PartialBatch(torch.tensor([True, False, True, True]), torch.tensor([[1, 19], [-1, -1], [8, -1], [-1, -1]]))
KNOWN = torch.zeros(B, L, dtype=torch.bool)
for row, labels in enumerate(([0, 20, 1, 19], range(L), [8], [3, 4, 7])):
    KNOWN[row, list(labels)] = True
TRUTH = torch.zeros(B, L, dtype=torch.float64)
for row, held in enumerate(([0, 20], [5], [], [3, 4, 7])):
    TRUTH[row, held] = 1.0
MASK = torch.empty(0)


def cross_entropy(logits: Tensor) -> Tensor:
    """Summed over the known labels only, one by one."""
    terms = [
        F.binary_cross_entropy_with_logits(logits[row, label], TRUTH[row, label])
        for row, label in KNOWN.nonzero().tolist()
    ]
    return torch.stack(terms).sum()


def close(left: Tensor, right: Tensor) -> bool:
    return bool((left - right).abs().max() <= 1e-9 * max(1.0, float(right.abs().max())))


@pytest.mark.parametrize("chunk", [L, 5])
def test_known_labels(chunk: int) -> None:
    found = [PARTIAL.known(POSITIVES, low, min(chunk, L - low), torch.float64) for low in range(0, L, chunk)]
    assert (torch.cat(found, dim=1) == KNOWN).all()


@pytest.mark.parametrize("chunk", [L, 4])
def test_cross_entropy_without_the_unknown(chunk: int) -> None:
    logits = torch.randn(B, L, dtype=torch.float64).requires_grad_()
    expected = cross_entropy(logits)
    (gradient,) = torch.autograd.grad(expected, logits)
    parts = [dense_error(logits.detach()[:, low : low + chunk], POSITIVES, low, PARTIAL) for low in range(0, L, chunk)]
    assert close(torch.stack([loss for loss, _ in parts]).sum(), expected.detach())
    assert close(torch.cat([error for _, error in parts], dim=1), gradient)


@pytest.mark.parametrize("chunk", [L, 4])
@pytest.mark.parametrize("reduction", ["violations", "sum"])
def test_ranking_of_known_pairs_alone(chunk: int, reduction: str) -> None:
    logits = torch.randn(B, L, dtype=torch.float64).requires_grad_()
    expected = logits.new_zeros(())
    for row in range(B):
        above = logits[row][TRUTH[row] > 0]
        below = logits[row][KNOWN[row] & (TRUTH[row] == 0)]
        if not len(above) or not len(below):
            continue
        pairs = (1.0 + below[None] - above[:, None]).relu()
        worst, short = pairs.max(0).values, pairs.max(1).values
        by_below, by_above = worst.sum(), short.sum()
        if reduction == "violations":
            by_below, by_above = by_below / max(1, int((worst > 0).sum())), by_above / len(above)
        expected = expected + by_below + by_above
    (gradient,) = torch.autograd.grad(expected, logits)
    values = logits.detach()
    scored = ScoredLabels(
        L, chunk, lambda low, high: values[:, low:high].clone(), lambda given: values.gather(1, given.clamp(min=0))
    )
    errors = list(RankingLoss(reduction=reduction).errors(scored, POSITIVES, PARTIAL))  # type: ignore[arg-type]
    assert float(expected.detach()) > 0
    assert close(torch.stack([part.loss for part in errors]).sum(), expected.detach())
    assert close(torch.cat([part.error for part in errors], dim=1), gradient)


# ---- heads: the loss, and the slope of it in a random direction of each parameter and of the encoding


def states() -> tuple[Tensor, Tensor]:
    mask = torch.arange(5)[None] >= 5 - torch.tensor([5, 3, 1, 4])[:, None]
    return torch.randn(B, 5, D, dtype=torch.float64), mask


def vectors() -> tuple[Tensor, Tensor]:
    return F.normalize(torch.randn(B, D, dtype=torch.float64), dim=1), MASK


def attention() -> Head:
    return LabelAttention(L, D, (7,))


def linear() -> Head:
    return LinearHead(L, D)


def targets() -> Head:
    return TargetHead(torch.randn(L, D, dtype=torch.float64), TargetSettings(robust=0.5, contrast=1.0, decode=0.1))


def autoencoder(**settings: object) -> Head:
    return LabelAutoencoder(L, D, AutoencoderSettings(hidden=8, **settings), "tanh")  # type: ignore[arg-type]


def pairs() -> Head:
    groups = torch.randint(-1, L, (L, 2))
    return CollaborativeHead(L, 2, D // 2, groups, CollaborativeSettings(hidden=5, dropout=0.0, negatives=0))


HEADS: dict[str, tuple[Callable[[], Head], Callable[[], tuple[Tensor, Tensor]]]] = {
    "attention": (attention, states),
    "linear": (linear, vectors),
    "targets": (targets, vectors),
    "autoencoder": (lambda: autoencoder(loss="bce"), vectors),
    "autoencoder, ranking": (lambda: autoencoder(feature_loss="ranking"), vectors),
    "pairs": (pairs, vectors),
}


def built(kind: str) -> tuple[Head, Tensor, Tensor]:
    torch.manual_seed(3)
    make, encode = HEADS[kind]
    head = make().double()
    with torch.no_grad():
        for part in head.parameters():
            part.copy_(0.5 * torch.randn(part.shape, dtype=torch.float64))
    return head, *encode()


@pytest.mark.parametrize("kind", HEADS)
def test_gradients_of_heads(kind: str) -> None:
    head, encoded, mask = built(kind)
    _, gradient = head.learn(encoded, mask, POSITIVES, 5, PARTIAL)
    parts = [encoded, *head.parameters()]
    gradients = [gradient, *(part.grad.clone() for part in head.parameters())]
    for part, found in zip(parts, gradients, strict=True):
        way = torch.randn(part.shape, dtype=torch.float64)
        ends = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                part.add_(step * way)
                head.zero_grad()
                ends.append(float(head.learn(encoded, mask, POSITIVES, 5, PARTIAL)[0]))
                part.sub_(step * way)
        slope = (ends[0] - ends[1]) / 2e-6
        assert abs(slope - float((found * way).sum())) <= 1e-5 * max(1.0, abs(slope))


@pytest.mark.parametrize("kind", ["attention", "linear", "pairs"])
def test_losses_of_heads(kind: str) -> None:
    head, encoded, mask = built(kind)
    if isinstance(head, LabelAttention):
        logits = plain_logits(head, encoded, mask, head.rows)
    else:
        logits = head.logits(encoded, mask, 0, L)
    found = head.learn(encoded, mask, POSITIVES, 5, PARTIAL)[0]
    assert close(found.detach(), cross_entropy(logits).detach() / (B * L))


@pytest.mark.parametrize("kind", HEADS)
def test_unknown_labels_have_no_gradient(kind: str) -> None:
    """Rows of labels that no document of the batch knows do not move; those of known ones do."""
    head, encoded, mask = built(kind)
    partial = PartialBatch(torch.ones(B, dtype=torch.bool), PARTIAL.rejected)
    head.learn(encoded, mask, POSITIVES, 5, partial)
    known = torch.zeros(L, dtype=torch.bool)
    known[torch.cat([POSITIVES, partial.rejected], dim=1).unique().clamp(min=0)] = True  # label 0 is known anyway
    for name in head.of_labels & {"bias", "output.bias"}:
        moved = head.get_parameter(name).grad != 0
        assert not moved[~known].any()
        assert moved[known].any()


def test_drawn_negatives_are_rejected_ones() -> None:
    torch.manual_seed(0)
    settings = CollaborativeSettings(hidden=5, dropout=0.0, negatives=12, hard=0.5)
    head = CollaborativeHead(L, 2, D // 2, torch.full((L, 1), -1), settings)
    partial = PartialBatch(torch.ones(B, dtype=torch.bool), PARTIAL.rejected)
    head.learn(torch.randn(B, D), MASK, POSITIVES, 5, partial)
    moved = head.bias.grad.nonzero().flatten().tolist()
    assert moved == [0, 1, 3, 4, 5, 7, 8, 19, 20]
    assert (head.bias.grad[[1, 8, 19]] > 0).all()


@pytest.mark.parametrize("kind", ["attention", "linear", "targets"])
def test_given_labels_with_targets_between(kind: str) -> None:
    head, encoded, mask = built(kind)
    candidates = torch.tensor([[0, 5, -1], [5, 5, 2], [-1, -1, -1], [20, 0, 1]])
    wanted = torch.rand(candidates.shape, dtype=torch.float64)
    logits = head.candidate_logits(encoded, mask, candidates, 2)
    terms = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none") * (candidates >= 0)
    loss, gradient = head.learn_candidates(encoded, mask, candidates, wanted, 2)
    assert close(loss.detach(), terms.sum() / candidates.numel())
    parts = [(encoded, gradient)]
    parts += [(head.get_parameter(name), head.get_parameter(name).grad.clone()) for name in head.of_labels]
    for part, found in parts:
        way = torch.randn(part.shape, dtype=torch.float64)
        ends = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                part.add_(step * way)
                ends.append(float(head.learn_candidates(encoded, mask, candidates, wanted, 2)[0]))
                part.sub_(step * way)
        slope = (ends[0] - ends[1]) / 2e-6
        assert abs(slope - float((found * way).sum())) <= 1e-5 * max(1.0, abs(slope))
