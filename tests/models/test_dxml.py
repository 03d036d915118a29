"""dxml: its losses against autograd, its network against plain layers, its votes against counting by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F

import xmtc
from tests.support.models import QUICK, planted_split
from xmtc.core.errors import ConfigError, NotFittedError, UnsupportedError
from xmtc.core.explanation import NeighbourEvidence
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.metrics import precision
from xmtc.models.dxml import Dxml
from xmtc.nn.device import cpu_threads
from xmtc.nn.encoders.sphere import EmbeddingSettings, SphereEncoder
from xmtc.nn.heads.base import gradient_of
from xmtc.nn.heads.label_targets import TargetHead, TargetSettings, contrast_error, robust_error
from xmtc.nn.network import Network
from xmtc.nn.training.optimisers import Momentum
from xmtc.nn.training.scatter_add import add_to_rows

LABELS = torch.tensor([[0, 2, -1], [1, -1, -1], [0, 2, -1], [-1, -1, -1], [3, 1, 2]])


def unit(count: int, width: int, seed: int = 0) -> torch.Tensor:
    return F.normalize(torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


def head(settings: TargetSettings, width: int = 6) -> TargetHead:
    return TargetHead(unit(4, width, 1), settings).double()


class TestLosses:
    def test_the_robust_distance_is_torchs(self) -> None:
        encoded, targets = (3 * unit(5, 6)).requires_grad_(), unit(5, 6, 2)
        wanted = F.smooth_l1_loss(encoded, targets, reduction="sum")
        (gradient,) = torch.autograd.grad(wanted, encoded)
        loss, error = robust_error(encoded.detach(), targets, torch.ones(5, 1, dtype=torch.float64))
        assert float(loss) == pytest.approx(float(wanted.detach()))
        assert torch.allclose(error, gradient)

    def test_contrast_is_cross_entropy_over_the_batch(self) -> None:
        """Written out document by document; equal targets share what is asked for."""
        encoded, targets = unit(5, 6).requires_grad_(), unit(5, 6, 2)
        targets[2] = targets[0]
        terms = []
        for row in range(5):
            given = F.log_softmax(targets @ encoded[row] / 0.2, dim=0)
            own = [other for other in range(5) if torch.equal(targets[other], targets[row])]
            terms.append(-given[own].mean())
        wanted = torch.stack(terms).sum()
        (gradient,) = torch.autograd.grad(wanted, encoded)
        loss, error = contrast_error(encoded.detach(), targets, torch.ones(5, 1, dtype=torch.float64), 0.2)
        assert float(loss) == pytest.approx(float(wanted.detach()))
        assert torch.allclose(error, gradient)

    @pytest.mark.parametrize("loss", ["robust", "contrast"])
    def test_documents_without_labels_teach_nothing(self, loss: str) -> None:
        settings = TargetSettings(**{"robust": 0.0, "contrast": 0.0, "decode": 0.0, loss: 1.0})
        encoded, mask = unit(5, 6), torch.empty(0)
        total, error = head(settings).learn(encoded, mask, LABELS, 16)
        assert torch.isfinite(total)
        assert (error[3] == 0).all()
        assert error[[0, 1, 2, 4]].abs().sum(1).min() > 0
        others = torch.tensor([0, 1, 2, 4])
        alone, _ = head(settings).learn(encoded[others], mask, LABELS[others], 16)
        assert float(total) * 5 == pytest.approx(float(alone) * 4)

    def test_all_losses_together_against_autograd(self) -> None:
        settings = TargetSettings(robust=0.7, contrast=0.5, decode=0.3, temperature=0.3, scale=4.0)
        ours = head(settings)
        ours.start_from(torch.tensor([0.4, 0.3, 0.5, 0.2], dtype=torch.float64))
        encoded = unit(5, 6).requires_grad_()
        loss, error = ours.learn(encoded.detach(), torch.empty(0), LABELS, 16)
        targets, counts = ours.targets(LABELS, torch.float64)
        truth = torch.zeros(5, 4, dtype=torch.float64)
        for row, labels in enumerate(LABELS.tolist()):
            truth[row, [label for label in labels if label >= 0]] = 1.0
        assert ours.output is not None
        logits = ours.scale.exp() * encoded @ ours.output.rows.t() + ours.output.bias
        wanted = 0.3 * F.binary_cross_entropy_with_logits(logits, truth, reduction="sum") / 5
        wanted = wanted + 0.7 * F.smooth_l1_loss(encoded * counts, targets * counts, reduction="sum") / 5
        parts = contrast_error(encoded.detach(), targets, counts, 0.3)
        found = torch.autograd.grad(wanted, [encoded, ours.output.rows, ours.output.bias, ours.scale])
        assert float(loss) == pytest.approx(float(wanted.detach() + 0.5 * parts[0] / 5))
        assert torch.allclose(error, found[0] + 0.5 * parts[1] / 5)
        for parameter, gradient in zip((ours.output.rows, ours.output.bias, ours.scale), found[1:], strict=True):
            assert torch.allclose(gradient_of(parameter), gradient)

    def test_targets(self) -> None:
        settings = TargetSettings(unit=False)
        plain, counts = head(settings).targets(LABELS, torch.float64)
        vectors = head(settings).vectors
        assert torch.allclose(plain[4], (vectors[3] + vectors[1] + vectors[2]) / 3)
        assert counts[:, 0].tolist() == [1, 1, 1, 0, 1]
        assert (plain[3] == 0).all()
        assert torch.allclose(head(TargetSettings()).targets(LABELS, torch.float64)[0], F.normalize(plain, dim=1))


class TestNetwork:
    @pytest.mark.parametrize("settings", [{"skip": False}, {"skip": True}, {"skip": False, "linear": True}])
    def test_against_plain_layers(self, settings: dict[str, bool]) -> None:
        """The published shape: a dense bag through two layers, with ReLU between and unit length at the end."""
        torch.manual_seed(0)
        made = EmbeddingSettings(hidden=5, dropout=0.0, **settings)
        table = torch.randn(9, SphereEncoder.row_width(3, made))
        table[0] = 0.0
        network = Network(
            table,
            SphereEncoder(3, made),
            TargetHead(unit(4, 3).float(), TargetSettings()),
            trained_words=True,
            compute=torch.float32,
        ).eval()
        tokens, weights = torch.tensor([[0, 2, 5], [8, 3, 2]]), torch.tensor([[0.0, 0.6, 0.8], [0.3, 0.5, 0.2]])
        bag = torch.zeros(2, 9).scatter_add_(1, tokens, weights)
        hidden = bag @ table[:, :5] + network.encoder.bias
        if not settings.get("linear"):
            hidden = F.relu(hidden)
        wanted = network.encoder.project(hidden) + (bag @ table[:, 5:] if settings["skip"] else 0.0)
        found, _ = network.encode(tokens, weights)
        assert torch.allclose(found, F.normalize(wanted, dim=1), atol=1e-6)

    def test_gradients_reach_the_words(self) -> None:
        torch.manual_seed(0)
        made = EmbeddingSettings(hidden=5, dropout=0.0)
        table = torch.randn(9, SphereEncoder.row_width(3, made), dtype=torch.float64)
        encoder, target = SphereEncoder(3, made).double(), TargetHead(unit(4, 3), TargetSettings(temperature=0.5))
        network = Network(table, encoder, target, trained_words=True, compute=torch.float64)
        tokens = torch.tensor([[0, 2, 5], [8, 3, 2]])
        weights = torch.tensor([[0.0, 0.6, 0.8], [0.3, 0.5, 0.2]], dtype=torch.float64)
        network.learn(tokens, lambda encoded, mask: target.learn(encoded, mask, LABELS[:2], 16), weights)

        def loss_at(changed: torch.Tensor) -> float:
            with torch.no_grad():
                network.table.copy_(changed)
            encoded, mask = network.encode(tokens, weights)
            return float(target.learn(encoded, mask, LABELS[:2], 16)[0])

        start = table.clone()
        for word, place in ((2, 1), (8, 6), (5, 0), (0, 2)):
            step = torch.zeros_like(table)
            step[word, place] = 1e-6
            slope = (loss_at(start + step) - loss_at(start - step)) / 2e-6
            assert float(gradient_of(network.table)[word, place]) == pytest.approx(
                0.0 if word == 0 else slope, abs=1e-7
            )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("weighed", [True, False])
def test_gradients_of_sums_are_added_to_their_rows(threads: int, weighed: bool) -> None:
    random = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 11, (6, 9), generator=random, dtype=torch.int32)
    weights = torch.randn(6, 9, generator=random) * (torch.rand(6, 9, generator=random) > 0.3) if weighed else None
    change, gradient = torch.randn(6, 150, generator=random), torch.randn(11, 150, generator=random)
    wanted = gradient.clone()
    for row in range(6):
        for place in range(9):
            wanted[tokens[row, place]] += change[row] * (1.0 if weights is None else weights[row, place])
    with cpu_threads(threads):
        add_to_rows(gradient, tokens, weights, change)
    assert torch.allclose(gradient, wanted, atol=1e-5)


class TestMomentum:
    def test_it_is_torchs(self) -> None:
        torch.manual_seed(0)
        ours, theirs = torch.randn(4, 3), torch.nn.Parameter(torch.empty(4, 3))
        theirs.data.copy_(ours)
        moved = Momentum({"weight": ours}, momentum=0.9, decay=5e-4)
        moved.rate.fill_(0.015)
        judge = torch.optim.SGD([theirs], lr=0.015, momentum=0.9, weight_decay=5e-4)
        for step in range(5):
            gradient = torch.randn(4, 3, generator=torch.Generator().manual_seed(step))
            gradient_of(ours).copy_(gradient)
            theirs.grad = gradient.clone()
            moved.step({})
            moved.zero({})
            judge.step()
        assert torch.allclose(ours, theirs.detach(), atol=1e-7)

    def test_rows_that_are_not_touched_stay(self) -> None:
        table = torch.ones(5, 2)
        moved = Momentum({"table": table}, frozenset({"table"}), momentum=0.5, decay=0.1)
        moved.rate.fill_(1.0)
        gradient_of(table)[1] = 1.0
        moved.step({"table": torch.tensor([1, 1])})  # named twice, and moved once
        assert torch.allclose(table[1], torch.full((2,), 1 - 1.1))
        assert (table[[0, 2, 3, 4]] == 1).all()


@pytest.fixture(scope="module")
def planted() -> tuple[Dataset, Dataset]:
    return planted_split(400, 60, seed=5)[:2]


def trained(train: Dataset, **settings: object) -> Dxml:
    chosen = {**QUICK["dxml"], "training.epochs": 3, **settings}
    return Dxml(**chosen).fit(train, runtime=Runtime(threads=2, seed=1))


class TestVotes:
    def test_the_plain_vote_is_counting(self, planted: tuple[Dataset, Dataset]) -> None:
        """Neighbours by brute force over embeddings that are asked for one by one; equal votes."""
        train, test = planted
        model = trained(train, neighbours=7, sharpness=0.0, direct=0.0)
        train_vectors, vectors = model._queries(train), model._queries(test.slice(0, 12))
        nearest = np.argsort(-(vectors @ train_vectors.T), axis=1, kind="stable")[:, :7]
        assert train.labels is not None
        votes = np.stack([train.labels[rows].toarray().mean(axis=0) for rows in nearest])
        labels = np.tile(np.arange(len(model.labels)), (12, 1))
        assert np.allclose(model.score_labels(test.slice(0, 12), labels), votes, atol=1e-6)
        answer = model.predict(test.slice(0, 12), k=3)
        assert np.allclose(answer.scores, np.sort(votes, axis=1)[:, ::-1][:, :3], atol=1e-6)

    def test_sharper_votes_listen_to_the_nearest(self, planted: tuple[Dataset, Dataset]) -> None:
        train, test = planted
        model = trained(train, neighbours=5, sharpness=1e6, direct=0.0)
        vectors = model._queries(test.slice(0, 9)) @ model._queries(train).T
        assert train.labels is not None
        for row, nearest in enumerate(vectors.argmax(axis=1)):
            held = set(train.labels[[nearest]].indices.tolist())
            first = model.predict(test.slice(row, row + 1), k=len(held))
            assert set(first.labels[0].tolist()) == held
            assert np.allclose(first.scores, 1.0, atol=1e-4)

    @pytest.mark.parametrize("direct", [0.0, 0.5])
    def test_an_explanation_adds_up_to_the_score(self, planted: tuple[Dataset, Dataset], direct: float) -> None:
        train, test = planted
        model = trained(train, neighbours=9, sharpness=8.0, direct=direct)
        text = str(test.text()[3])
        ((name, score), *_) = model.tag(text)
        found = model.explain(text, name)
        near = [item for item in found.evidence if isinstance(item, NeighbourEvidence)]
        assert len(near) == 9
        assert found.constant + sum(item.share for item in near) / (1 + direct) == pytest.approx(score, abs=1e-5)
        assert (found.constant > 0) == (direct > 0)
        assert all((name in item.labels) == item.holds == (item.share > 0) for item in near)
        assert [item.holds for item in near] == sorted((item.holds for item in near), reverse=True)
        voters = [item.similarity for item in near if item.holds]
        assert voters == sorted(voters, reverse=True)

    def test_a_members_vote_is_by_the_mean_of_cosines(self, planted: tuple[Dataset, Dataset]) -> None:
        train, test = planted
        model = trained(train, members=2, neighbours=5, sharpness=3.0, training__epochs=1)
        both = model._queries(test.slice(0, 4))
        first, second = np.split(both, 2, axis=1)
        assert np.allclose(np.linalg.norm(both, axis=1), 1.0, atol=1e-5)
        assert np.allclose(np.linalg.norm(first, axis=1), 0.5**0.5, atol=1e-5)
        assert not np.allclose(first, second)

    @pytest.mark.parametrize("decode", [0.0, 0.1])
    def test_direct_scores_are_blended_in(self, planted: tuple[Dataset, Dataset], decode: float) -> None:
        train, test = planted
        model = trained(train, neighbours=5, sharpness=3.0, direct=0.5, head__decode=decode, members=2)
        few, labels = test.slice(0, 6), np.tile(np.arange(len(model.labels)), (6, 1))
        scores = model.score_labels(few, labels)
        assert scores.min() >= 0
        assert scores.max() <= 1
        assert (scores > 0).all()  # labels that nobody voted for have a score of their own
        answer = model.predict(few, k=4)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :4]
        assert np.allclose(answer.scores, np.take_along_axis(scores, order, axis=1), atol=1e-6)
        own = np.concatenate([part.numpy() for _, part in model._direct.nearness(model._queries(few))])
        votes = model.set_params(direct=0.0).score_labels(few, labels)
        assert np.allclose(scores, (votes + 0.5 * own) / 1.5, atol=1e-5)


class TestSettings:
    def test_clusters_keep_the_vote_to_one_part(self, planted: tuple[Dataset, Dataset], tmp_path: Path) -> None:
        train, test = planted
        model = trained(train, neighbours=40, sharpness=0.0, search__clusters=8)
        model.save(tmp_path / "m")
        again = xmtc.load(tmp_path / "m")
        assert (again.predict(test, k=3).labels == model.predict(test, k=3).labels).all()
        whole = trained(train, neighbours=40, sharpness=0.0)
        assert not np.array_equal(model.predict(test, k=5).scores, whole.predict(test, k=5).scores)
        index, vectors = model._vote.embedded.index, model._queries(test)
        assert index.partition is not None
        found, _ = index.nearest(vectors, 40)
        for row in found:
            assert len(set(index.partition.clusters[row[row >= 0]].tolist())) == 1

    def test_faiss_finds_the_same(self, planted: tuple[Dataset, Dataset]) -> None:
        pytest.importorskip("faiss")
        train, test = planted
        exact, quick = trained(train, neighbours=5), trained(train, neighbours=5, search__kind="faiss")
        assert (exact.predict(test, k=3).labels == quick.predict(test, k=3).labels).all()

    def test_what_is_left_open_is_chosen_on_held_out_documents(self, planted: tuple[Dataset, Dataset]) -> None:
        model = trained(planted[0])
        assert model.facts["neighbours"] in (5, 10, 20, 40, 80)
        assert model.facts["sharpness"] in (0.0, 5.0, 10.0, 20.0, 40.0)
        assert 0 < model.facts["nDCG@5 held out"] <= 1
        assert "edges" in model.facts["label graph"]
        fixed = trained(planted[0], neighbours=3, sharpness=2.0, training__validation_size=0)
        assert not {"neighbours", "sharpness", "nDCG@5 held out"} & fixed.facts.keys()

    def test_the_published_form_learns(self, planted: tuple[Dataset, Dataset]) -> None:
        """Plain targets, robust distance, gradient descent with momentum, dropout at the end, equal votes, clusters."""
        train, test = planted
        published = {
            "encoder": {"skip": False, "dropout": 0.0, "output_dropout": 0.2, "hidden": 32},
            "head": {"robust": 1.0, "contrast": 0.0, "decode": 0.0, "unit": False},
            "vectors": {"whiten": False, "unit": False, "width": 16, "graph": {"weighted": False}},
            "training": {
                "optimiser": "sgd",
                "learning_rate": 0.3,
                "weight_decay": 5e-4,
                "batch_size": 16,
                "epochs": 30,
                "decay_from": 1.0,
                "averaging": "none",
                "skipped_words": 0.0,
            },
            "search": {"clusters": 2},
            "sharpness": 0.0,
            "direct": 0.0,
        }
        model = Dxml(**published).fit(train, runtime=Runtime(threads=2, seed=1))
        truth = align_labels(test, model.labels)[0]
        assert precision(model.predict(test, k=1), truth, 1) > 0.4

    def test_labels_with_parents_make_the_graph(self) -> None:
        texts = [f"{word} {word} and more" for word in ("salt", "pepper", "iron", "steel")] * 6
        names = ["salt", "pepper", "iron", "steel"]
        table = LabelIndex.from_keys(names).table
        parents = [["spice"], ["spice"], ["metal"], ["metal"]]
        index = LabelIndex(table.set_column(table.schema.get_field_index("parents"), "parents", [parents]))
        dataset = as_dataset(texts, [[name] for name in names] * 6)
        assert dataset.label_index is not None
        numbers = index.ids(dataset.label_index.keys)
        given = Dataset(fields=dataset.fields, labels=dataset.labels, label_index=index.take(numbers))
        model = trained(given, training__validation_size=0)
        assert "parent" in model.facts["label graph"]

    def test_label_vectors_start_from_names(self) -> None:
        """A new label with a document that says nothing gets a vector near labels whose documents have its words."""
        words, kinds = ["salt", "pepper", "sugar", "iron", "steel", "copper"], ["spice"] * 3 + ["metal"] * 3
        texts = [f"{word} {kind} and more" for word, kind in zip(words, kinds, strict=True)] * 8
        index = LabelIndex.from_keys(words, [f"{word} as {kind}" for word, kind in zip(words, kinds, strict=True)])
        dataset = as_dataset(texts, [[word] for word in words] * 8)
        assert dataset.label_index is not None
        index = index.take(index.ids(dataset.label_index.keys))
        given = Dataset(fields=dataset.fields, labels=dataset.labels, label_index=index)
        more = {"training__validation_size": 0, "vectors__kind": "random", "training__epochs": 2}
        plain, named = trained(given, **more), trained(given, **more, vectors__names=2.0)
        added = Dataset(
            fields=as_dataset(["and more"]).fields,
            labels=as_dataset(["x"], [["zinc"]]).labels,
            label_index=LabelIndex.from_keys(["zinc"], ["metal"]),
        )
        metals, spices = index.ids(words[3:]), index.ids(words[:3])

        def nearer(model: Dxml) -> tuple[float, float]:
            """How much nearer metals are to each other than to spices, and how much nearer the new label is to them."""
            assert model.update(added, force=True).labels.keys[-1] == "zinc"
            unit = model._vectors / np.linalg.norm(model._vectors, axis=1, keepdims=True)
            cosines = unit @ unit.T
            within = (cosines[np.ix_(metals, metals)].sum() - 3) / 6
            new = cosines[-1, metals].mean() - cosines[-1, spices].mean()
            return within - cosines[np.ix_(metals, spices)].mean(), new

        (apart, _), (near, new) = nearer(plain), nearer(named)
        assert near > apart + 0.3
        assert new > 0.3
        with pytest.raises(UnsupportedError, match=r"label names need texts"):
            trained(Dataset(features=given.labels, labels=given.labels, label_index=index), vectors__names=1.0)

    def test_label_vectors_are_near_where_labels_occur_together(self, planted: tuple[Dataset, Dataset]) -> None:
        """Of each label's most frequent companions, more are among its ten nearest than by chance, by far."""
        train, _ = planted
        model = trained(train, members=2, training__epochs=6)
        vectors = model.label_vectors()
        assert train.labels is not None
        assert vectors.shape == (len(model.labels), 32)
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = unit @ unit.T - 2 * np.eye(len(unit))
        together = (train.labels.T @ train.labels).toarray()
        np.fill_diagonal(together, 0)
        companions = together.argmax(axis=1)[together.max(axis=1) > 0]
        nearest = np.argsort(-cosines, axis=1)[together.max(axis=1) > 0, :10]
        found = (nearest == companions[:, None]).any(axis=1).mean()
        assert found > 10 * 10 / len(unit)

    def test_vectors_of_an_untrained_model(self) -> None:
        with pytest.raises(NotFittedError):
            Dxml().label_vectors()

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"neighbours": 0}, "'neighbours' of dxml must be an integer ≥ 1, or auto"),
            ({"sharpness": -1.0}, "'sharpness' of dxml must be a number ≥ 0, or auto"),
            ({"search.clusters": 4, "search.kind": "faiss"}, "'clusters' of search must be 1"),
            ({"head.contrast": 0.0, "head.decode": 0.0}, "'contrast' of head must be > 0"),
            ({"training.momentum": 1.0}, "'momentum' of training must be"),
            ({"training.optimiser": "adagrad"}, "'optimiser' of training must be"),
            ({"vectors.width": 0}, "'width' of vectors must be"),
        ],
    )
    def test_bad_settings(self, settings: dict[str, object], said: str) -> None:
        with pytest.raises(ConfigError, match="^" + said.replace("(", r"\(")):
            Dxml(**settings)
