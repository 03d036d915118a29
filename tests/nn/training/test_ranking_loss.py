"""The ranking loss in closed form against its definition over all pairs, by autograd and in double precision."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import Tensor

from xmtc.core.errors import ConfigError
from xmtc.nn.training.ranking_loss import RankingLoss

WAYS = [(score, reduction) for score in ("logit", "sigmoid") for reduction in ("violations", "sum")]
every_way = pytest.mark.parametrize(("score", "reduction"), WAYS)


def by_definition(loss: RankingLoss, truth: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Summed loss and its gradient from every pair of a positive and a negative label; truth (B, L) is boolean."""
    leaf = logits.detach().clone().requires_grad_()
    scores = torch.sigmoid(leaf) if loss.score == "sigmoid" else leaf
    pairs = (loss.margin + scores[:, None, :] - scores[:, :, None]).relu()  # (B, positive, negative)
    pairs = torch.where(truth[:, :, None] & ~truth[:, None, :], pairs, 0.0)
    over_negatives, over_positives = pairs.max(1).values, pairs.max(2).values  # terms of L_P and of L_N
    if loss.reduction == "violations":
        over_negatives = over_negatives / (over_negatives > 0).sum(1, keepdim=True).clamp(min=1)
        over_positives = over_positives / truth.sum(1, keepdim=True).clamp(min=1)
    total = over_negatives.sum() + over_positives.sum()
    total.backward()
    assert leaf.grad is not None
    return total.detach(), leaf.grad


def by_chunks(loss: RankingLoss, positives: Tensor, logits: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    own = logits.gather(1, positives.clamp(min=0)).masked_fill(positives < 0, math.nan)  # nobody is to look at pads
    survey = loss.survey(positives, own)
    parts = [(logits[:, low : low + chunk], low) for low in range(0, logits.shape[1], chunk)]
    for part, low in parts:
        survey.look(part, low)
    found = [survey.error(part, low) for part, low in parts]
    return torch.stack([part for part, _ in found]).sum(), torch.cat([gradient for _, gradient in found], 1)


def numbers_of(truth: Tensor, pads: int) -> Tensor:
    """Labels of each row in any order, at least `pads` pads among them."""
    width = int(truth.sum(1).max()) + pads
    rows = []
    for row in truth:
        held = row.nonzero()[:, 0]
        padded = torch.cat([held, held.new_full((width - len(held),), -1)])
        rows.append(padded[torch.randperm(width)])
    return torch.stack(rows)


def drawn(seed: int, rows: int, labels: int, share: float, kind: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Truth (B, L), with a row that has no label, one that has all and one that has a single one; and logits."""
    torch.manual_seed(seed)
    truth = torch.rand(rows, labels) < share
    if rows > 3:
        truth[0], truth[1], truth[2] = False, True, False
        truth[2, torch.randint(labels, ())] = True
    return truth, 1.5 * torch.randn(rows, labels, dtype=kind)


def same(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], within: float = 1e-10) -> bool:
    (loss, gradient), (other, expected) = left, right
    near = abs(float(loss - other)) <= within * max(1.0, float(other))
    return near and bool(((gradient - expected).abs() <= within * max(1.0, float(expected.abs().max()))).all())


@every_way
class TestAgainstAllPairs:
    @settings(max_examples=40)
    @given(
        seed=st.integers(0, 2**31),
        rows=st.integers(1, 6),
        labels=st.integers(1, 17),
        share=st.floats(0, 1),
        pads=st.integers(1, 3),
        margin=st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0]),
    )
    def test_value_and_gradient(self, score, reduction, seed, rows, labels, share, pads, margin) -> None:
        loss = RankingLoss(margin, score, reduction)
        truth, logits = drawn(seed, rows, labels, share)
        expected = by_definition(loss, truth, logits)
        positives = numbers_of(truth, pads)
        for chunk in (labels, 3, 1):
            assert same(by_chunks(loss, positives, logits, chunk), expected), chunk

    def test_many_labels(self, score, reduction) -> None:
        loss = RankingLoss(0.3, score, reduction)
        truth, logits = drawn(1, 8, 301, 0.03)
        expected = by_definition(loss, truth, logits)
        assert float(expected[0]) > 1
        assert same(by_chunks(loss, numbers_of(truth, 0), logits, 64), expected)

    def test_single_precision_is_near(self, score, reduction) -> None:
        loss = RankingLoss(0.7, score, reduction)
        truth, logits = drawn(2, 8, 200, 0.05, torch.float32)
        found = by_chunks(loss, numbers_of(truth, 1), logits, 48)
        assert found[0].dtype == found[1].dtype == torch.float32
        assert same(found, by_definition(loss, truth, logits.double()), 1e-5)

    def test_rows_that_have_nothing_to_rank(self, score, reduction) -> None:
        truth = torch.tensor([[False] * 5, [True] * 5])
        for logits in (torch.randn(2, 5), torch.full((2, 5), 1e4), torch.full((2, 5), -1e4)):
            loss, gradient = by_chunks(RankingLoss(2.0, score, reduction), numbers_of(truth, 1), logits, 2)
            assert float(loss) == 0
            assert (gradient == 0).all()

    def test_equal_scores_without_margin_are_no_violation(self, score, reduction) -> None:
        logits = torch.full((1, 4), 0.3)
        loss, gradient = by_chunks(RankingLoss(0.0, score, reduction), torch.tensor([[2, 0]]), logits, 3)
        assert float(loss) == 0
        assert (gradient == 0).all()

    def test_chunks_do_not_matter_among_equal_scores(self, score, reduction) -> None:
        loss = RankingLoss(1.0, score, reduction)
        truth, logits = drawn(8, 12, 40, 0.1)
        positives, logits = numbers_of(truth, 1), logits.round()
        whole = by_chunks(loss, positives, logits, 40)
        assert all(same(by_chunks(loss, positives, logits, chunk), whole) for chunk in (1, 7))

    def test_large_logits_stay_finite(self, score, reduction) -> None:
        truth, logits = drawn(3, 6, 30, 0.2, torch.float32)
        loss, gradient = by_chunks(RankingLoss(1.0, score, reduction), numbers_of(truth, 1), 1e6 * logits, 7)
        assert torch.isfinite(loss)
        assert torch.isfinite(gradient).all()

    def test_logits_are_left_alone(self, score, reduction) -> None:
        truth, logits = drawn(4, 5, 20, 0.2)
        before = logits.clone()
        by_chunks(RankingLoss(1.0, score, reduction), numbers_of(truth, 1), logits, 20)
        assert torch.equal(logits, before)

    def test_descent_ends_in_the_right_order(self, score, reduction) -> None:
        loss = RankingLoss(0.5, score, reduction)
        truth, logits = drawn(5, 6, 25, 0.15)
        positives = numbers_of(truth, 1)
        first, gradient = by_chunks(loss, positives, logits, 10)
        step = 1e-4 * gradient / gradient.norm()
        assert float(by_chunks(loss, positives, logits - step, 10)[0]) < float(first)
        rate = 1.0 if score == "sigmoid" else 0.1  # a sigmoid is nearly flat where it is to move
        for _ in range(200):
            logits = logits - rate * by_chunks(loss, positives, logits, 25)[1]
        scores = loss.scores(logits)
        ranked = truth.any(1) & ~truth.all(1)
        lowest = scores.masked_fill(~truth, math.inf).amin(1)[ranked]
        highest = scores.masked_fill(truth, -math.inf).amax(1)[ranked]
        assert (lowest > highest + 0.4).all()

    def test_shapes_do_not_depend_on_values(self, score, reduction) -> None:
        """Tensors without values refuse whatever would have to be read back."""
        positives = torch.empty(4, 3, dtype=torch.int64, device="meta")
        survey = RankingLoss(1.0, score, reduction).survey(positives, torch.empty(4, 3, device="meta"))
        survey.look(torch.empty(4, 9, device="meta"), 5)
        loss, gradient = survey.error(torch.empty(4, 9, device="meta"), 5)
        assert loss.shape == ()
        assert gradient.shape == (4, 9)


class TestByHand:
    """Labels 0 and 1 score 2 and 0.5, the others 1, −1 and 1.8: the lowest positive is 1, the highest negative 4.

    L_P has 1 + 1 − 0.5 and 1 + 1.8 − 0.5, which is 3.8 in two violations; L_N has 1 + 1.8 − 2 and 1 + 1.8 − 0.5.
    """

    positives = torch.tensor([[-1, 1, -1, 0]])
    logits = torch.tensor([[2.0, 0.5, 1.0, -1.0, 1.8]], dtype=torch.float64)

    @pytest.mark.parametrize("chunk", [5, 2])
    def test_sum(self, chunk: int) -> None:
        expected = torch.tensor(6.9), torch.tensor([[-1.0, -1 - 2, 1, 0, 1 + 2]])
        assert same(by_chunks(RankingLoss(1.0, "logit", "sum"), self.positives, self.logits, chunk), expected, 1e-6)

    @pytest.mark.parametrize("chunk", [5, 2])
    def test_violations(self, chunk: int) -> None:
        expected = torch.tensor(3.8 / 2 + 3.1 / 2), torch.tensor([[-0.5, -0.5 - 1, 0.5, 0, 0.5 + 1]])
        assert same(by_chunks(RankingLoss(), self.positives, self.logits, chunk), expected, 1e-6)

    def test_each_chunk_tells_its_own_share(self) -> None:
        survey = RankingLoss(1.0, "logit", "sum").survey(torch.tensor([[0, 1]]), self.logits[:, :2])
        for low in (0, 2):
            survey.look(self.logits[:, low : low + 2], low)
        survey.look(self.logits[:, 4:], 4)
        found = [float(survey.error(self.logits[:, low : low + 2], low)[0]) for low in (0, 2, 4)]
        assert found == pytest.approx([3.1, 1.5, 2.3])


@pytest.mark.gpu
@every_way
def test_captured_steps_equal_those_of_a_cpu(score: str, reduction: str) -> None:
    loss = RankingLoss(0.5, score, reduction)
    batches = [drawn(seed, 6, 50, 0.2, torch.float32) for seed in (6, 7)]
    positives = [numbers_of(truth & (torch.arange(50) < 9), 10)[:, :10] for truth, _ in batches]
    held = positives[0].cuda(), batches[0][1].cuda()
    by_chunks(loss, *held, 16)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = by_chunks(loss, *held, 16)
    for labels, (_, logits) in zip(positives, batches, strict=True):
        held[0].copy_(labels)
        held[1].copy_(logits)
        graph.replay()
        assert same((found[0].cpu(), found[1].cpu()), by_chunks(loss, labels, logits, 50), 1e-5)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"margin": -0.5}, "'margin' of the ranking loss must be a number ≥ 0. Got -0.5."),
        ({"score": "softmax"}, "'score' of the ranking loss must be one of"),
        ({"reduction": "mean"}, "'reduction' of the ranking loss must be one of"),
    ],
)
def test_settings_that_no_run_could_use(given: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RankingLoss(**given)
    assert str(caught.value).startswith(what)
