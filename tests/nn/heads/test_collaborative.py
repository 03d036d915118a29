"""MAACF+'s head: factorised scores and gradients against the network written out pair by pair."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from xmtc.core.errors import ConfigError
from xmtc.nn.heads.collaborative import CollaborativeHead, CollaborativeSettings, among, pair_loss, single_loss

LABELS, WIDTH = 23, 12
OPTIONS = list(itertools.product(("cross", "self"), (1, 2, 3), (1, 3), (0, 2, 5)))


def made(
    attention: str = "cross", layers: int = 2, aspects: int = 3, size: int = 2, seed: int = 0, **settings: Any
) -> CollaborativeHead:
    """A head with random weights and groups, some of which are not full."""
    torch.manual_seed(seed)
    order = torch.stack([torch.randperm(LABELS)[:size] for _ in range(LABELS)]).view(LABELS, size)
    held = torch.arange(size)[None] < torch.randint(0, size + 1, (LABELS, 1))
    options = CollaborativeSettings(attention=attention, layers=layers, hidden=16, **settings)
    head = CollaborativeHead(LABELS, aspects, WIDTH, torch.where(held, order, -1), options)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return head


def pairwise(head: CollaborativeHead, encoded: Tensor, document: int, label: int) -> Tensor:
    """The score of one pair as the equations have it."""
    aspects = encoded[document].view(head.aspects, WIDTH)
    embedding = head.rows[label]
    members = [head.rows[other] for other in head.groups[label].tolist() if other >= 0]
    group = torch.zeros_like(embedding)
    if members:
        gathered = torch.stack(members)  # (k, D)
        asking = aspects if head.settings.attention == "cross" else head.group_query
        seen = torch.softmax(asking @ gathered.t(), dim=1) @ gathered  # (n, D)
        beta = torch.softmax((head.aspect_rows * seen).sum(1) + head.aspect_bias, dim=0)
        group = beta @ seen
    fused = head.fuse(torch.cat([embedding, group]))
    if head.settings.attention == "cross":
        gamma = torch.softmax(aspects @ embedding, dim=0)
    else:
        gamma = torch.softmax((aspects * head.text_query).sum(1), dim=0)
    hidden = head.first(torch.cat([gamma @ aspects, fused]))
    for layer in (head.second, head.last):
        hidden = hidden if layer is None else layer(torch.relu(hidden))
    product = embedding @ (gamma @ aspects) if head.settings.product else 0.0
    return hidden[0] + head.bias[label] + product


def naive(head: CollaborativeHead, encoded: Tensor) -> Tensor:
    return torch.stack(
        [torch.stack([pairwise(head, encoded, b, label) for label in range(LABELS)]) for b in range(len(encoded))]
    )


@pytest.mark.parametrize(("attention", "layers", "aspects", "size"), OPTIONS)
class TestScores:
    def test_equal_the_pairwise_network(self, attention: str, layers: int, aspects: int, size: int) -> None:
        head = made(attention, layers, aspects, size).double().eval()
        encoded = torch.randn(4, aspects * WIDTH, dtype=torch.float64)
        wanted = naive(head, encoded)
        assert wanted.std() > 0.1
        mask = torch.empty(0)
        found = torch.cat([head.logits(encoded, mask, low, min(low + 9, LABELS)) for low in range(0, LABELS, 9)], dim=1)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
        candidates = torch.randint(-1, LABELS, (4, 7))
        given = head.candidate_logits(encoded, mask, candidates, 1)
        for row, column in zip(*torch.nonzero(candidates >= 0).t().tolist(), strict=True):
            assert abs(given[row, column] - wanted[row, candidates[row, column]]) < 1e-12

    def test_equal_it_in_single_precision(self, attention: str, layers: int, aspects: int, size: int) -> None:
        head = made(attention, layers, aspects, size).eval()
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.mul_(0.4)  # scores of about 1, of which float32 knows seven digits
        encoded = torch.randn(4, aspects * WIDTH)
        torch.testing.assert_close(
            head.logits(encoded, torch.empty(0), 0, LABELS), naive(head, encoded), rtol=0, atol=1e-6
        )

    def test_equal_it_as_published(self, attention: str, layers: int, aspects: int, size: int) -> None:
        head = made(attention, layers, aspects, size, product=False).double().eval()
        encoded = torch.randn(4, aspects * WIDTH, dtype=torch.float64)
        found = head.logits(encoded, torch.empty(0), 0, LABELS)
        torch.testing.assert_close(found, naive(head, encoded), rtol=0, atol=1e-12)

    def test_tiles_do_not_matter(
        self, attention: str, layers: int, aspects: int, size: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        head = made(attention, layers, aspects, size).double().eval()
        encoded = torch.randn(5, aspects * WIDTH, dtype=torch.float64)
        whole = head.logits(encoded, torch.empty(0), 0, LABELS)
        monkeypatch.setattr("xmtc.nn.heads.collaborative.TILE_BYTES", {"cpu": 1000})
        torch.testing.assert_close(head.logits(encoded, torch.empty(0), 0, LABELS), whole, rtol=0, atol=1e-12)


POSITIVES = torch.tensor([[3, 7, -1], [22, -1, -1], [-1, -1, -1], [0, 1, 2]])


def learnt(head: CollaborativeHead, encoded: Tensor, chunk: int = 10) -> tuple[Tensor, Tensor]:
    for parameter in head.parameters():
        parameter.grad = None
    return head.learn(encoded, torch.empty(0), POSITIVES, chunk)


def check_gradients(head: CollaborativeHead, encoded: Tensor, found: Tensor, wanted_loss: Tensor) -> None:
    wanted = torch.autograd.grad(wanted_loss, [encoded, *head.parameters()], allow_unused=True)
    torch.testing.assert_close(found, wanted[0], rtol=0, atol=1e-11)
    for (name, parameter), gradient in zip(head.named_parameters(), wanted[1:], strict=True):
        ours = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        theirs = torch.zeros_like(parameter) if gradient is None else gradient
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11, msg=name)


class TestLearning:
    @pytest.mark.parametrize(("attention", "layers", "aspects", "size"), OPTIONS)
    def test_all_labels_as_autograd_has_it(self, attention: str, layers: int, aspects: int, size: int) -> None:
        head = made(attention, layers, aspects, size, loss="bce", negatives=0, dropout=0.0).double()
        encoded = torch.randn(4, aspects * WIDTH, dtype=torch.float64, requires_grad=True)
        loss, gradient = learnt(head, encoded)
        truth = torch.zeros(4, LABELS, dtype=torch.float64)
        for row, column in zip(*torch.nonzero(POSITIVES >= 0).t().tolist(), strict=True):
            truth[row, POSITIVES[row, column]] = 1.0
        wanted = torch.nn.functional.binary_cross_entropy_with_logits(naive(head, encoded), truth)
        torch.testing.assert_close(loss, wanted.detach())
        check_gradients(head, encoded, gradient, wanted)

    @pytest.mark.parametrize("loss", ["bpr", "bce"])
    @pytest.mark.parametrize("attention", ["cross", "self"])
    def test_drawn_labels_as_autograd_has_it(self, loss: str, attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
        head = made(attention, loss=loss, negatives=6, dropout=0.0).double()
        drawn = torch.tensor([[5, 6, -1, 8], [0, 4, 4, 9], [1, 2, 3, 4], [20, 21, -1, -1]])
        monkeypatch.setattr(head, "_drawn", lambda *_: drawn)
        encoded = torch.randn(4, 3 * WIDTH, dtype=torch.float64, requires_grad=True)
        found, gradient = learnt(head, encoded)
        scores = naive(head, encoded)
        terms = []
        for row in range(4):
            above = [scores[row, label] for label in POSITIVES[row].tolist() if label >= 0]
            below = [scores[row, label] for label in drawn[row].tolist() if label >= 0]
            if loss == "bpr":
                each = [torch.log1p(torch.exp(low - high)) for high in above for low in below]
            else:
                each = [torch.log1p(torch.exp(-high)) for high in above] + [
                    torch.log1p(torch.exp(low)) for low in below
                ]
            terms.append(torch.stack(each).mean() if each else scores.new_zeros(()))
        wanted = torch.stack(terms).mean()
        torch.testing.assert_close(found, wanted.detach())
        check_gradients(head, encoded, gradient, wanted)

    def test_the_sign_puts_labels_above_others(self) -> None:
        """One step down the loss raises what a document has and lowers what it does not have."""
        above, below = torch.zeros(1, 1, requires_grad=True), torch.zeros(1, 1, requires_grad=True)
        there = torch.ones(1, 1, dtype=torch.bool)
        for loss in (pair_loss, single_loss):
            up, down = torch.autograd.grad(loss(above, below, there, there), [above, below])
            assert up < 0 < down

    def test_documents_without_labels_add_nothing(self) -> None:
        head = made(loss="bpr", negatives=6, dropout=0.0)
        encoded = torch.randn(2, 3 * WIDTH)
        loss, gradient = head.learn(encoded, torch.empty(0), torch.full((2, 3), -1), 10)
        assert loss == 0
        assert not gradient.any()

    def test_dropout_leaves_numbers_out_in_training_alone(self) -> None:
        head = made(dropout=0.5, loss="bce", negatives=0).double()
        encoded = torch.randn(4, 3 * WIDTH, dtype=torch.float64)
        first, second = learnt(head, encoded)[0], learnt(head, encoded)[0]
        assert first != second
        head.eval()
        assert torch.equal(*(head.logits(encoded, torch.empty(0), 0, LABELS) for _ in range(2)))


class TestNegatives:
    def test_are_none_of_the_documents_own(self) -> None:
        head = made(negatives=20, hard=0.5, pool=100)
        aspects = torch.randn(4, 3, WIDTH)
        drawn = head._drawn(aspects, head._tables(), POSITIVES, 7)
        assert drawn.shape == (4, 20)
        for row in range(4):
            assert not set(drawn[row].tolist()) - {-1} & set(POSITIVES[row].tolist())

    def test_hard_ones_score_highest(self) -> None:
        head = made(negatives=5, hard=1.0, pool=LABELS)
        encoded = torch.randn(4, 3 * WIDTH)
        drawn = head._drawn(encoded.view(4, 3, WIDTH), head._tables(), POSITIVES, 7)
        scores = naive(head, encoded)
        for row in range(4):
            own = set(POSITIVES[row].tolist())
            others = [label for label in scores[row].argsort(descending=True).tolist() if label not in own]
            assert drawn[row].tolist() == others[:5]

    def test_others_are_drawn_from_all_labels(self) -> None:
        torch.manual_seed(1)
        head = made(negatives=20, hard=0.0)
        seen = set()
        for _ in range(20):
            seen |= set(head._drawn(torch.randn(4, 3, WIDTH), head._tables(), POSITIVES, 7)[2].tolist())
        assert seen == set(range(LABELS))

    def test_among_knows_pads(self) -> None:
        numbers = torch.tensor([[0, 3, 22], [22, 0, 1]])
        assert among(numbers, POSITIVES[:2], LABELS).tolist() == [[False, True, False], [True, False, False]]


class TestExplaining:
    @pytest.mark.parametrize("attention", ["cross", "self"])
    def test_what_is_added_is_what_is_missing_without_it(self, attention: str) -> None:
        head = made(attention, size=5, seed=3).double().eval()
        encoded = torch.randn(1, 3 * WIDTH, dtype=torch.float64)
        label = int((head.groups >= 0).sum(1).argmax())
        found = head.added(encoded, label)
        assert sum(share for share, _ in found.aspects) == pytest.approx(1)
        assert sum(share for _, share, _ in found.group) == pytest.approx(1)
        assert [number for number, _, _ in found.group] == [n for n in head.groups[label].tolist() if n >= 0]
        # With one unit that is never shut, the score is linear in what is added.
        whole = head.logits(encoded, torch.empty(0), label, label + 1)[0, 0]
        assert any(abs(added) > 1e-3 for _, added in found.aspects)
        with torch.no_grad():
            head.first.bias.add_(100.0)
        head.train().eval()
        shifted = head.logits(encoded, torch.empty(0), label, label + 1)[0, 0]
        assert shifted != whole
        linear = head.added(encoded, label)
        rest = head.last.weight.detach()[0] @ (head.first.bias + head.first.weight[:, WIDTH:] @ _alone(head, label))
        total = sum(added for _, added in linear.aspects) + sum(added for _, _, added in linear.group)
        assert float((rest + head.last.bias[0] + head.bias[label]).detach()) + total == pytest.approx(float(shifted))


def _alone(head: CollaborativeHead, label: int) -> Tensor:
    """A label without its group."""
    return head.fuse.weight[:, :WIDTH] @ head.rows[label] + head.fuse.bias


class TestKeeping:
    def test_training_forgets_what_was_worked_out(self) -> None:
        head = made().eval()
        encoded = torch.randn(2, 3 * WIDTH)
        before = head.logits(encoded, torch.empty(0), 0, LABELS)
        head.train()
        with torch.no_grad():
            head.rows.mul_(2.0)
        after = head.eval().logits(encoded, torch.empty(0), 0, LABELS)
        assert not torch.allclose(before, after)
        torch.testing.assert_close(after, naive(head, encoded), rtol=1e-5, atol=1e-5)

    def test_bpr_takes_drawn_labels(self) -> None:
        with pytest.raises(ConfigError, match="negatives"):
            CollaborativeSettings(loss="bpr", negatives=0)

    def test_many_labels_are_drawn_from(self) -> None:
        assert CollaborativeSettings().drawn(10_000) == 0
        assert CollaborativeSettings().drawn(10_001) == 128
        assert CollaborativeSettings(loss="bpr").drawn(50) == 50
        assert CollaborativeSettings(negatives=7).drawn(50) == 7
