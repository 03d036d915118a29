"""Rank-AE's two branches against plain loops over non-zeros and plain autograd, in double precision."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn

from xmtc.nn.documents import Documents, lightened
from xmtc.nn.encoders.lstm import LstmSettings
from xmtc.nn.encoders.rank_ae_encoder import ChannelSettings, FeatureBranch
from xmtc.nn.heads import autoencoder
from xmtc.nn.heads.autoencoder import AutoencoderSettings, LabelAutoencoder
from xmtc.nn.network import Network
from xmtc.text.sequences import FIRST_WORD, PADDING, UNKNOWN
from xmtc.text.weighted_bags import Bags

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
WORDS, WIDTH, CODE, HIDDEN, LABELS = 23, 8, 6, 7, 37  # words with those below FIRST_WORD
LENGTHS = (5, 1, 9, 3, 1, 6)
DOCUMENTS = len(LENGTHS)


def bags(*, dense: bool = False) -> Bags:
    """Features in any order, weights of both signs and zeros; the document before the last has nothing but a zero."""
    random = np.random.default_rng(4)
    lengths = [WORDS - FIRST_WORD] * DOCUMENTS if dense else LENGTHS
    ids = np.concatenate([random.permutation(np.arange(FIRST_WORD, WORDS))[:length] for length in lengths])
    weights = random.normal(size=len(ids))
    weights[::7] = 0.0
    if not dense:
        ids[sum(LENGTHS[:4])], weights[sum(LENGTHS[:4])] = UNKNOWN, 0.0
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Bags(indptr, ids.astype(np.int32), weights.astype(np.float32))


def read(given: Bags, length: int | None = None) -> tuple[Tensor, Tensor]:
    """(B, T) tokens and weights of all documents."""
    documents, rows = Documents(given, None, CPU), torch.arange(len(given.indptr) - 1)
    length = length or int(documents.lengths.max())
    weights = documents.weights(rows, length)
    assert weights is not None
    return documents.tokens(rows, length), weights.double()


def randomised(module: nn.Module, seed: int = 0) -> Any:
    """In double precision, all parameters drawn: biases and norms are no longer what they start as."""
    torch.manual_seed(seed)
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, dtype=torch.float64))
    return module


def normalised(norm: nn.LayerNorm, values: Tensor) -> Tensor:
    middle, spread = values.mean(-1, keepdim=True), values.var(-1, correction=0, keepdim=True)
    return (values - middle) / (spread + 1e-5).sqrt() * norm.weight + norm.bias


ACTIVATIONS = {"sigmoid": torch.sigmoid, "relu": torch.relu, "tanh": torch.tanh, "none": lambda values: values}


def close(left: Tensor, right: Tensor, within: float = 1e-9) -> bool:
    left, right = left.detach(), right.detach()
    return left.shape == right.shape and bool((left - right).abs().max() <= within * max(1.0, float(right.abs().max())))


# ---- documents


class TestWeighedDocuments:
    def test_weights_stand_where_their_words_do(self) -> None:
        given = Bags(np.array([0, 3, 4, 6]), np.arange(5, 11, dtype=np.int32), np.arange(1, 7, dtype=np.float32) / 8)
        documents, rows = Documents(given, None, CPU), torch.tensor([2, 0, 1, 0])
        assert documents.tokens(rows, 4).tolist() == [[0, 0, 9, 10], [0, 5, 6, 7], [0, 0, 0, 8], [0, 5, 6, 7]]
        weights = documents.weights(rows, 4)
        assert weights is not None
        one, two = [0, 0.125, 0.25, 0.375], [0, 0, 0.625, 0.75]
        assert weights.tolist() == [two, one, [0, 0, 0, 0.5], one]
        assert weights.dtype == torch.float32

    def test_a_share_of_the_words_is_left_out_and_the_rest_weighs_more(self) -> None:
        torch.manual_seed(0)
        weights = torch.randn(40, 50)
        weights[:, :10] = 0.0
        assert torch.equal(lightened(weights, 0.0), weights)
        drawn = torch.stack([lightened(weights, 0.4) for _ in range(400)])
        kept = drawn != 0
        assert torch.allclose(drawn[kept], (weights.expand_as(drawn) / 0.6)[kept])
        assert not kept[:, :, :10].any()
        assert abs(float(kept[:, :, 10:].float().mean()) - 0.6) < 0.01
        assert float((drawn.mean(0) - weights).abs().max()) < 0.25 * float(weights.abs().max())
        assert abs(float((drawn.mean(0) - weights).mean())) < 2e-3


# ---- the feature branch


def plain_weights(branch: FeatureBranch, row: Tensor, count: int) -> Tensor:
    """The channel weights of a state, or of a word in a bag of so many: seen as if words weighed one on average."""
    seen = row if branch.states is not None else row * count**0.5
    narrow = torch.relu(branch.squeeze.weight @ seen + branch.squeeze.bias)
    return torch.sigmoid(branch.excite.weight @ narrow + branch.excite.bias)


def plain_code(branch: FeatureBranch, rows: Tensor) -> Tensor:
    """The code of a document out of its weighed words, or states, (n, channels), one at a time."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for row in rows:
        total = total + (row * plain_weights(branch, row, len(rows)) if branch.settings.attention else row)
    vector = normalised(branch.norm, total)
    if branch.settings.residual:
        vector = (
            vector
            + branch.narrow.weight @ torch.relu(branch.widen.weight @ vector + branch.widen.bias)
            + (branch.narrow.bias)
        )
    return ACTIVATIONS[branch.settings.activation](branch.project.weight @ vector + branch.project.bias)


def network_of(
    settings: ChannelSettings | None = None, head: AutoencoderSettings | None = None, lstm: LstmSettings | None = None
) -> Network:
    settings, head = (
        settings or ChannelSettings(code=CODE, activation="sigmoid", dropout=0.0),
        head or AutoencoderSettings(hidden=HIDDEN),
    )
    straight = WORDS - FIRST_WORD if head.straight else 0
    network = Network(
        torch.zeros(WORDS, WIDTH),
        FeatureBranch(WIDTH, settings, lstm),
        LabelAutoencoder(LABELS, CODE, head, settings.activation, straight),
        trained_words=True,
        compute=torch.float64,
        bag_to_head=head.straight,
    )
    network = randomised(network).eval()
    with torch.no_grad():
        network.table[PADDING] = 0.0
    return network


def attention_of(network: Network, tokens: Tensor, weights: Tensor) -> Tensor:
    assert isinstance(network.encoder, FeatureBranch)
    return network.encoder.attention(network.embedded(tokens, weights), tokens != PADDING)


BRANCHES = {
    "plain": {},
    "no attention": {"attention": False},
    "residual": {"residual": True, "activation": "relu"},
    "narrow": {"reduction": 100, "activation": "tanh"},
    "neither": {"attention": False, "residual": True, "activation": "none"},
}


@pytest.mark.parametrize("name", BRANCHES)
class TestFeatureBranch:
    def test_bags_against_a_loop(self, name: str) -> None:
        network = network_of(ChannelSettings(code=CODE, **BRANCHES[name]))
        for given in (bags(), bags(dense=True)):
            codes, mask = network.encode(*read(given))
            assert mask.sum(1).tolist() == np.diff(given.indptr).tolist()
            for row, (low, high) in enumerate(itertools.pairwise(given.indptr)):
                weights = torch.from_numpy(given.weights[low:high]).double()
                words = network.table[torch.from_numpy(given.ids[low:high]).long()]
                assert close(codes[row], plain_code(network.encoder, words * weights[:, None]))

    def test_states_against_a_loop(self, name: str) -> None:
        """Words in order: the states of an LSTM take the place of the words."""
        branch = FeatureBranch(WIDTH, ChannelSettings(code=CODE, **BRANCHES[name]), LstmSettings(units=5))
        branch = randomised(branch).eval()
        words = torch.randn(12, DOCUMENTS, WIDTH, dtype=torch.float64)  # other numbers than zero at padding
        mask = torch.arange(12)[None] >= 12 - torch.tensor(LENGTHS)[:, None]
        codes = branch(words, mask)
        for row, length in enumerate(LENGTHS):
            alone = words[12 - length :, row : row + 1], torch.ones(1, length, dtype=torch.bool)
            assert close(codes[row], plain_code(branch, branch.states(*alone)[0]))
            assert close(codes[row], branch(*alone)[0])

    def test_padding_and_company_do_not_matter(self, name: str) -> None:
        network, given = network_of(ChannelSettings(code=CODE, **BRANCHES[name])), bags()
        together, _ = network.encode(*read(given, 14))
        looked = attention_of(network, *read(given, 14))
        for row, length in enumerate(LENGTHS):
            alone = given.take(np.array([row]))
            assert close(network.encode(*read(alone, length))[0][0], together[row])
            assert close(attention_of(network, *read(alone, length))[0], looked[row, -length:])
            assert not looked[row, :-length].any()

    def test_attention_is_the_sum_of_channel_weights(self, name: str) -> None:
        network, given = network_of(ChannelSettings(code=CODE, **BRANCHES[name])), bags()
        tokens, weights = read(given)
        found = attention_of(network, tokens, weights)
        if not network.encoder.settings.attention:
            assert torch.equal(found > 0, tokens != PADDING)
            assert found.unique().tolist() == [0, 1]
            return
        place = int(given.indptr[2])
        row = network.table[int(given.ids[place])] * float(given.weights[place])
        expected = plain_weights(network.encoder, row, LENGTHS[2]).sum()
        assert found[2, -LENGTHS[2]].item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_document_without_anything_has_a_code() -> None:
    network = network_of()
    codes, _ = network.encode(*read(bags()))
    assert close(codes[4], torch.sigmoid(network.encoder.project(network.encoder.norm.bias)))
    words, mask = torch.zeros(3, 2, WIDTH, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.bool)
    assert torch.isfinite(network.encoder(words, mask)).all()


# ---- the label branch


def truth_of(positives: Tensor) -> Tensor:
    truth = torch.zeros(len(positives), LABELS, dtype=torch.float64)
    for row, labels in enumerate(positives.tolist()):
        truth[row, [label for label in labels if label >= 0]] = 1.0
    return truth


def plain_objective(kind: str, settings: AutoencoderSettings, logits: Tensor, truth: Tensor) -> Tensor:
    """Summed over documents: cross-entropy, or every pair of a label that is there and one that is not."""
    if kind == "bce":
        return nn.functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum")
    total = logits.new_zeros(())
    for scores, held in zip(logits, truth.bool(), strict=True):
        if not held.any():
            continue
        pairs = (settings.ranking.margin + scores[~held][None, :] - scores[held][:, None]).relu()  # (p, q)
        over_negatives, over_positives = pairs.max(0).values, pairs.max(1).values
        if settings.ranking.reduction == "violations":
            over_negatives = over_negatives / max(1, int((over_negatives > 0).sum()))
            over_positives = over_positives / int(held.sum())
        total = total + over_negatives.sum() + over_positives.sum()
    return total


def plain_loss(head: LabelAutoencoder, documents: Tensor, truth: Tensor, encoded_truth: Tensor | None = None) -> Tensor:
    """The loss as it is written, over a dense 0/1 matrix of labels."""
    settings = head.settings
    codes, count = documents[:, :CODE], len(documents)

    def decoded(vectors: Tensor) -> Tensor:
        return torch.relu(normalised(head.decode_norm, vectors @ head.decode.weight.T + head.decode.bias))

    loss = documents.new_zeros(())
    if settings.decode_from != "feature":
        summed = (truth if encoded_truth is None else encoded_truth) @ head.label_rows + head.label_bias
        encoded = torch.relu(normalised(head.label_norm, summed)) @ head.encode.weight.T + head.encode.bias
        encoded = ACTIVATIONS[head.activation](encoded)
        target = encoded if settings.follow else encoded.detach()
        logits = decoded(encoded) @ head.output.rows[:, : settings.hidden].T + head.output.bias
        part = plain_objective(settings.loss, settings, logits, truth)
        loss = loss + ((codes - target) ** 2).mean() + settings.balance * part / count
    if settings.decode_from != "label":
        vectors = torch.cat([decoded(codes), documents[:, CODE:]], 1)
        part = plain_objective(settings.feature_loss, settings, vectors @ head.output.rows.T + head.output.bias, truth)
        loss = loss + settings.feature_balance * part / count
    return loss


POSITIVES = torch.tensor([[0, 36, -1], [5, -1, -1], [-1, -1, -1], [3, 4, 5], [36, -1, -1], [0, 1, 2]])
"""The third document has no label."""
MASK = torch.ones(DOCUMENTS, 1, dtype=torch.bool)


def head_of(activation: Any = "sigmoid", **settings: Any) -> tuple[LabelAutoencoder, Tensor]:
    """A head and documents: codes, and bags behind them where it is `straight`."""
    chosen = AutoencoderSettings(**{"hidden": HIDDEN, "balance": 0.7, "feature_balance": 1.3, **settings})
    straight = 9 if chosen.straight else 0
    head = randomised(LabelAutoencoder(LABELS, CODE, chosen, activation, straight), seed=2)
    return head, torch.rand(DOCUMENTS, CODE + straight, dtype=torch.float64)


def assert_learns_as(head: LabelAutoencoder, documents: Tensor, chunk: int, loss: Tensor, leaf: Tensor) -> None:
    """`learn` gives this loss and its gradients, in the codes and in all parameters."""
    loss.backward()
    expected = {name: part.grad for name, part in head.named_parameters()}
    head.zero_grad()
    before = documents.clone()
    ours, gradient = head.learn(documents, MASK, POSITIVES, chunk)
    assert torch.equal(documents, before)
    assert float(ours) == pytest.approx(float(loss.detach()), rel=1e-10)
    assert close(gradient[:, :CODE], leaf.grad[:, :CODE])
    for name, part in head.named_parameters():
        wanted = expected[name]
        assert wanted is not None, name
        assert close(part.grad, wanted), name


SOURCES = [
    (source, loss, feature_loss)
    for source, losses, feature_losses in (
        ("label", ("ranking", "bce"), ("bce",)),
        ("feature", ("ranking",), ("ranking", "bce")),
        ("both", ("ranking", "bce"), ("ranking", "bce")),
    )
    for loss in losses
    for feature_loss in feature_losses
]


@pytest.mark.parametrize("chunk", [16, LABELS])
@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("straight", [False, True])
@pytest.mark.parametrize(("decode_from", "loss", "feature_loss"), SOURCES)
def test_learning_against_autograd(
    decode_from: str, loss: str, feature_loss: str, straight: bool, follow: bool, chunk: int
) -> None:
    ways = {"decode_from": decode_from, "loss": loss, "feature_loss": feature_loss}
    head, documents = head_of(**ways, straight=straight, follow=follow)
    leaf = documents.clone().requires_grad_()
    assert_learns_as(head, documents, chunk, plain_loss(head, leaf, truth_of(POSITIVES)), leaf)


@pytest.mark.parametrize("activation", ["relu", "tanh", "none"])
@pytest.mark.parametrize("reduction", ["violations", "sum"])
def test_other_codes_and_sums_against_autograd(activation: str, reduction: str) -> None:
    ranking = {"reduction": reduction, "margin": 0.4}
    head, documents = head_of(activation, decode_from="both", ranking=ranking)
    leaf = documents.clone().requires_grad_()
    assert_learns_as(head, documents, 16, plain_loss(head, leaf, truth_of(POSITIVES)), leaf)


def test_label_rows_learn_the_same_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoencoder, "ROWS_AT_ONCE", 1)  # one label of each document
    head, documents = head_of()
    leaf = documents.clone().requires_grad_()
    assert_learns_as(head, documents, LABELS, plain_loss(head, leaf, truth_of(POSITIVES)), leaf)


def test_answers_do_without_the_label_side() -> None:
    head, documents = head_of()
    before = head.logits(documents, documents[:0], 0, LABELS)
    head.drop_training_parts()
    assert {name.partition(".")[0] for name, _ in head.named_parameters()} == {"output", "decode", "decode_norm"}
    assert torch.equal(head.logits(documents, documents[:0], 0, LABELS), before)


def test_gradients_add_up() -> None:
    head, documents = head_of(decode_from="both", straight=True)
    _, first = head.learn(documents, MASK, POSITIVES, 16)
    once = {name: part.grad.clone() for name, part in head.named_parameters()}
    _, second = head.learn(documents, MASK, POSITIVES, 16)
    assert torch.equal(first, second)
    for name, part in head.named_parameters():
        assert close(part.grad, 2 * once[name]), name


def test_documents_none_of_which_has_a_label() -> None:
    for decode_from in ("label", "feature", "both"):
        head, documents = head_of(decode_from=decode_from, feature_loss="ranking")
        loss, gradient = head.learn(documents, MASK, torch.full((DOCUMENTS, 1), -1), 16)
        expected = plain_loss(head, documents, torch.zeros(DOCUMENTS, LABELS, dtype=torch.float64))
        assert float(loss) == pytest.approx(expected.item(), abs=1e-12)
        assert torch.isfinite(gradient).all()


class TestLeftOut:
    def test_labels_are_encoded_without_some_and_decoded_with_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The draw leaves out the second place of every row; pads, though drawn to stay, stay pads."""
        head, documents = head_of(decode_from="both", label_dropout=0.4)
        draw = torch.full(POSITIVES.shape, 0.9)
        draw[:, 1] = 0.3
        monkeypatch.setattr(torch, "rand", lambda *shape, **more: draw.clone())
        truth = truth_of(POSITIVES)
        fewer = truth_of(POSITIVES[:, [0, 2]])
        assert (truth - fewer).sum() == 3
        head.train()
        leaf = documents.clone().requires_grad_()
        assert_learns_as(head, documents, 16, plain_loss(head, leaf, truth, fewer), leaf)
        head.eval()
        leaf = documents.clone().requires_grad_()
        head.zero_grad()
        assert_learns_as(head, documents, 16, plain_loss(head, leaf, truth), leaf)

    def test_hidden_numbers_in_training_alone(self) -> None:
        head, documents = head_of(decode_from="both", dropout=0.5)
        still = head.eval().learn(documents, MASK, POSITIVES, 16)[0]
        torch.manual_seed(0)
        drawn = torch.stack([head.train().learn(documents, MASK, POSITIVES, 16)[0] for _ in range(5)])
        assert len(drawn.unique()) == 5
        assert float(head.eval().learn(documents, MASK, POSITIVES, 16)[0]) == pytest.approx(float(still), rel=1e-12)


@pytest.mark.parametrize("straight", [False, True])
class TestAnswers:
    def test_logits_and_candidates(self, straight: bool) -> None:
        head, documents = head_of(decode_from="both", straight=straight)
        hidden = torch.relu(normalised(head.decode_norm, documents[:, :CODE] @ head.decode.weight.T + head.decode.bias))
        expected = torch.cat([hidden, documents[:, CODE:]], 1) @ head.output.rows.T + head.output.bias
        found = torch.cat([head.logits(documents, MASK, low, min(low + 16, LABELS)) for low in (0, 16, 32)], 1)
        assert close(found, expected.detach())
        torch.manual_seed(0)
        candidates = torch.randint(-1, LABELS, (DOCUMENTS, 30))
        for chunk in (16, 4, LABELS):
            given = head.candidate_logits(documents, MASK, candidates, chunk)
            picked = found.gather(1, candidates.clamp(min=0))
            assert close(given[candidates >= 0], picked[candidates >= 0])
        assert head.candidate_logits(documents, MASK, candidates[:, :0], 16).shape == (DOCUMENTS, 0)

    def test_the_label_encoder_is_not_asked(self, straight: bool) -> None:
        head, documents = head_of(decode_from="both", straight=straight)
        before = head.logits(documents, MASK, 0, LABELS)
        with torch.no_grad():
            for part in (head.label_rows, head.label_bias, *head.label_norm.parameters(), *head.encode.parameters()):
                part.fill_(torch.nan)
        assert torch.equal(head.logits(documents, MASK, 0, LABELS), before)
        candidates = torch.arange(LABELS).repeat(DOCUMENTS, 1)
        assert close(head.candidate_logits(documents, MASK, candidates, 16), before)
        assert all(part.grad is None for part in head.parameters())


def test_a_fresh_head_starts_at_the_shares_and_asks_nothing_of_the_bag() -> None:
    torch.manual_seed(0)
    settings = AutoencoderSettings(hidden=HIDDEN, decode_from="both", straight=True)
    head = LabelAutoencoder(LABELS, CODE, settings, "sigmoid", 9)
    shares = torch.rand(LABELS)
    head.start_from(shares)
    assert torch.allclose(torch.sigmoid(head.output.bias), shares, atol=1e-6)
    documents = torch.rand(DOCUMENTS, CODE + 9)
    other = torch.cat([documents[:, :CODE], torch.rand(DOCUMENTS, 9)], 1)
    assert torch.equal(head.logits(documents, MASK, 0, LABELS), head.logits(other, MASK, 0, LABELS))


# ---- the whole network


def plain_network_loss(network: Network, given: Bags) -> Tensor:
    """All words of all documents at once, (B, V, e), where those that are not there weigh nothing."""
    dense = torch.zeros(len(given.indptr) - 1, WORDS, dtype=torch.float64)
    for row, (low, high) in enumerate(itertools.pairwise(given.indptr)):
        dense[row, torch.from_numpy(given.ids[low:high]).long()] = torch.from_numpy(given.weights[low:high]).double()
    branch = network.encoder
    words = dense[..., None] * network.table
    counts = torch.tensor(LENGTHS, dtype=torch.float64)[:, None, None]
    attention = torch.sigmoid(branch.excite(torch.relu(branch.squeeze(words * counts.sqrt()))))
    codes = torch.sigmoid(branch.project(normalised(branch.norm, (words * attention).sum(1))))
    documents = torch.cat([codes, dense[:, FIRST_WORD:]], 1) if network.bag_to_head else codes
    return plain_loss(network.head, documents, truth_of(POSITIVES))


@pytest.mark.parametrize("straight", [False, True])
@pytest.mark.parametrize("length", [9, 16])
def test_a_network_against_autograd(straight: bool, length: int) -> None:
    settings = AutoencoderSettings(hidden=HIDDEN, decode_from="both", straight=straight)
    network, given = network_of(head=settings), bags()
    loss = plain_network_loss(network, given)
    loss.backward()
    expected = {name: part.grad for name, part in network.named_parameters()}
    network.zero_grad()
    tokens, weights = read(given, length)
    before = weights.clone()

    def taught(encoded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return network.head.learn(encoded, mask, POSITIVES, 16)

    ours = network.learn(tokens, taught, weights)
    assert torch.equal(weights, before)
    assert float(ours) == pytest.approx(float(loss.detach()), rel=1e-10)
    for name, part in network.named_parameters():
        assert close(part.grad, expected[name]), name
    assert not network.table.grad[PADDING].any()


def test_frozen_words_have_no_gradient() -> None:
    network, given = network_of(), bags()
    network.trained_words = False
    network.table.requires_grad_(False)
    tokens, weights = read(given)
    network.learn(tokens, lambda encoded, mask: network.head.learn(encoded, mask, POSITIVES, 16), weights)
    assert network.table.grad is None
    assert all(part.grad is not None for part in network.encoder.parameters())


@pytest.mark.parametrize("straight", [False, True])
def test_bfloat16_is_near(straight: bool) -> None:
    settings = AutoencoderSettings(hidden=HIDDEN, decode_from="both", straight=straight)
    network, given = network_of(head=settings).float(), bags()
    tokens, weights = read(given)
    found = {}
    for kind in (torch.float32, torch.bfloat16):
        network.compute = kind
        network.zero_grad()
        loss = network.learn(
            tokens, lambda encoded, mask: network.head.learn(encoded, mask, POSITIVES, 16), weights.float()
        )
        assert all(torch.isfinite(part.grad).all() for part in network.parameters())
        assert {part.grad.dtype for part in network.parameters()} == {torch.float32}
        codes, mask = network.encode(tokens, weights.float())
        found[kind] = float(loss), network.head.logits(codes, mask, 0, LABELS)
    (loss, logits), (near, others) = found.values()
    assert near == pytest.approx(loss, rel=0.03)
    assert (others - logits).abs().max() < 0.05 * logits.abs().max()
