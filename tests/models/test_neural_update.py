"""Networks that go on to learn: new labels are found, old ones stay, and the model of before is left alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")

import xmtc
from tests.support.models import QUICK, TREE
from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import RefusedError, UnsupportedError
from xmtc.core.progress import Task
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.models.base import Model
from xmtc.models.registry import model_class
from xmtc.nn.heads.base import LinearHead
from xmtc.nn.neighbours.clusters import Partition
from xmtc.nn.neighbours.embedded_documents import moved_embeddings, unique_places
from xmtc.nn.training.fine_tuning import UpdateSettings, absent_from, carry_weights, settle
from xmtc.nn.training.loop import TrainingSettings
from xmtc.text.sequences import SequenceSettings, WordSequences

OLD = [f"old{number}" for number in range(8)]
NEW = ["new0", "new1"]
RUNTIME = Runtime(threads=1, seed=1)
TREES = {**TREE, "head.tree.height": 1, "head.tree.cluster_size": 2, "head.tree.beam_width": 3}
SMALL = {"encoder.units": 24, "head.hidden": [24], "training.epochs": 8}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "attention_xml": ("attention_xml", SMALL),
    "attention_xml, tree": ("attention_xml", {**SMALL, **TREES}),
    "dxml": ("dxml", {"neighbours": 10, "sharpness": 10.0, "vectors.width": 12}),
    "xml_cnn": ("xml_cnn", {"encoder.filters": 16, "encoder.hidden": 32}),
}

LONG = ("attention_xml",)  # its like is among the others


def documents_of(labels: Sequence[str], count: int, seed: int) -> Dataset:
    """Texts with words that belong to their label, and words that all have."""
    random = np.random.default_rng(seed)
    texts, held = [], []
    for _ in range(count):
        label = labels[random.integers(len(labels))]
        own = [f"{label}word{random.integers(4)}" for _ in range(4)]
        texts.append(" ".join(random.permutation([*own, *(f"common{random.integers(9)}" for _ in range(3))])))
        held.append([label])
    dataset = as_dataset(texts, held)
    return replace(dataset, ids=pa.chunked_array([pa.array([f"s{seed}-{row}" for row in range(count)])]))


TRAIN, TEST = documents_of(OLD, 160, 1), documents_of(OLD, 64, 2)
MORE, NEWEST = documents_of([*NEW, "old0", "old1"], 100, 3), documents_of(NEW, 30, 4)


@pytest.fixture(scope="module")
def fitted() -> dict[str, Model]:
    return {}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in VARIANTS])
def model(request: pytest.FixtureRequest, fitted: dict[str, Model]) -> Model:
    """A copy of a trained model, trained once."""
    return trained(request.param, fitted)


def trained(variant: str, fitted: dict[str, Model]) -> Model:
    if variant not in fitted:
        name, settings = VARIANTS[variant]
        quick = {**QUICK[name], "training.validation_size": 0, "training.batch_size": 16, "keep_replay": 60}
        quick |= {"update.epochs": 10, "update.learning_rate": 1.5, "update.retention": 0.2}
        made = model_class(name)(**{key.replace(".", "__"): value for key, value in {**quick, **settings}.items()})
        fitted[variant] = made.fit(TRAIN, runtime=RUNTIME)
    return copy.copy(fitted[variant])


def right(model: Model, documents: Dataset) -> float:
    """Share of documents whose best label is theirs."""
    assert documents.label_index is not None
    assert documents.labels is not None
    keys = documents.label_index.keys
    best = model.predict(documents, 1).labels[:, 0]
    wanted = model.labels.ids([keys[label] for label in documents.labels.indices])
    return float((best == wanted).mean())


def arrays_of(model: Model) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in model._state().arrays.items()}


def same_arrays(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def same_answers(left: Model, right: Model) -> bool:
    ours, theirs = left.predict(TEST, 4), right.predict(TEST, 4)
    return np.array_equal(ours.labels, theirs.labels) and np.allclose(ours.scores, theirs.scores, atol=1e-6)


class Stopping:
    """Progress that interrupts a training after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        stopping = self

        class Bar:
            def advance(self, steps: int = 1) -> None:
                stopping.left -= title.startswith("training")
                if stopping.left < 0:
                    raise KeyboardInterrupt

            def note(self, words: str) -> None:
                return

        yield Bar()

    def say(self, line: str) -> None:
        return


def test_new_labels_are_learnt_and_old_ones_stay(model: Model, tmp_path: Path) -> None:
    before, kept = copy.copy(model), arrays_of(model)
    was = right(model, TEST)
    assert was > 0.9
    model.update(MORE, runtime=RUNTIME)
    assert model.labels.keys == [*before.labels.keys, *NEW]
    assert right(model, NEWEST) > 0.9
    assert right(model, TEST) >= was - 0.05
    assert same_arrays(arrays_of(before), kept)
    model.save(tmp_path / "model")
    assert same_answers(xmtc.load(tmp_path / "model", RUNTIME), model)
    assert len(model.replay or ()) == 60


def test_a_refused_update_leaves_the_model(model: Model) -> None:
    kept, answers = arrays_of(model), model.predict(TEST, 3)
    with pytest.raises(RefusedError):
        model.update(MORE, valid=TEST, margin=-1.0, runtime=RUNTIME)
    assert same_arrays(arrays_of(model), kept)
    assert np.array_equal(model.predict(TEST, 3).scores, answers.scores)


def test_labels_go_and_become_one_without_documents(model: Model, tmp_path: Path) -> None:
    """Nothing is learnt: what stays is scored as before, and the merged label gets the documents of both."""
    before = model.predict(TEST, 8)
    model.remember(None)
    model.update(retire=["old3"], merge={"old5": "old4"}, runtime=RUNTIME)
    assert model.labels.keys == ["old0", "old1", "old2", "old4", "old6", "old7"]
    assert TEST.label_index is not None
    keys = np.array(TEST.label_index.keys)[TEST.labels.indices]
    stays = np.isin(keys, ["old0", "old1", "old2", "old6", "old7"])
    found = np.array(model.labels.keys)[model.predict(TEST, 1).labels[:, 0]]
    best = np.array(before.index.keys)[before.labels[:, 0]]
    if model.name == "dxml":  # votes for both are votes for one
        assert (found[keys == "old5"] == "old4").mean() > 0.9
    assert (found[stays] == best[stays]).mean() > 0.95
    model.save(tmp_path / "model")
    assert same_answers(xmtc.load(tmp_path / "model", RUNTIME), model)


def test_an_update_without_replay_keeps_labels_that_no_new_document_has(fitted: dict[str, Model]) -> None:
    for variant in ("dxml", "xml_cnn"):
        model = trained(variant, fitted)
        before = model._members[0].network
        rows = next(name for name in before.head.of_labels if name.endswith("rows"))
        wanted = before.get_parameter(f"head.{rows}").detach().clone()
        model.remember(None)
        model.update(MORE, runtime=RUNTIME)
        now = model._members[0].network.get_parameter(f"head.{rows}").detach()
        assert torch.equal(now[2:8], wanted[2:8])
        assert not torch.equal(now[:2], wanted[:2])


@pytest.mark.parametrize("variant", ["attention_xml, tree", "dxml"])
def test_an_interrupted_update_goes_on(variant: str, fitted: dict[str, Model], tmp_path: Path) -> None:
    whole = trained(variant, fitted).update(MORE, runtime=RUNTIME)
    with pytest.raises(KeyboardInterrupt):
        trained(variant, fitted).update(MORE, runtime=RUNTIME, progress=Stopping(5), workspace=Workspace(tmp_path))
    assert any(path.name.startswith("checkpoint-0") for path in tmp_path.iterdir())
    resumed = trained(variant, fitted).update(MORE, runtime=RUNTIME, workspace=Workspace(tmp_path))
    assert same_arrays(arrays_of(resumed), arrays_of(whole))


def test_the_index_has_all_documents_where_they_are_now(fitted: dict[str, Model]) -> None:
    model = trained("dxml", fitted)
    replay = model.replay
    assert replay is not None
    model.update(MORE, runtime=RUNTIME)
    assert len(model._vote.voters) == len(model._vote.embedded) == len(TRAIN) + len(MORE)
    assert np.allclose(model._vote.embedded.vectors[len(TRAIN) :], model._queries(MORE), atol=1e-6)
    rows = [int(name.removeprefix("s1-")) for name in replay.document_ids()]
    assert np.allclose(model._vote.embedded.vectors[rows], model._queries(replay), atol=1e-6)
    others = np.setdiff1d(np.arange(len(TRAIN)), rows)
    truth, stale = model._queries(TRAIN.take(others)), trained("dxml", fitted)._vote.embedded.vectors[others]
    near = np.einsum("nd,nd->n", model._vote.embedded.vectors[others], truth).mean()
    assert near > np.einsum("nd,nd->n", stale, truth).mean()
    assert np.allclose(np.linalg.norm(model._vote.embedded.vectors, axis=1), 1.0, atol=1e-5)


def test_ids_that_are_others_replace_nothing(fitted: dict[str, Model]) -> None:
    model = trained("dxml", fitted)
    ids, vectors = model._vote.voters.documents["id"].to_pylist(), model._vote.embedded.vectors
    rows, found = model._vote.embedded.rows_of(["s1-4", "s1-5", "s1-5", "x"], ids, vectors[[4, 5, 5, 0]])
    assert (rows.tolist(), found.tolist()) == ([4], [0])
    assert not len(model._vote.embedded.rows_of(["s1-4"], ids, -vectors[[4]])[0])


def test_clusters_take_new_documents(fitted: dict[str, Model]) -> None:
    model = trained("dxml", fitted)
    model._vote.embedded.partition = Partition.fit(model._vote.embedded.vectors, 3, seed=1)
    model.update(MORE, runtime=RUNTIME)
    partition = model._vote.embedded.partition
    apart = ((model._vote.embedded.vectors[:, None, :] - partition.centres[None]) ** 2).sum(2)
    assert len(partition.clusters) == len(TRAIN) + len(MORE)
    assert (apart[np.arange(len(apart)), partition.clusters] <= apart.min(1) + 1e-5).all()


def test_features_are_learnt_from_as_well() -> None:
    random = np.random.default_rng(0)
    held = random.integers(0, 4, 90)
    matrix = sp.csr_array(np.eye(6, dtype=np.float32)[held] + (random.random((90, 6)) < 0.1))
    keys = [[f"label{label}"] for label in held]
    quick = {key.replace(".", "__"): value for key, value in QUICK["dxml"].items()} | {"training__validation_size": 0}
    model = model_class("dxml")(**quick, neighbours=5).fit(matrix, keys, runtime=RUNTIME)
    more = sp.csr_array(np.tile(np.eye(6, dtype=np.float32)[5], (20, 1)))
    model.update(more, [["label5"]] * 20, runtime=RUNTIME)
    assert model.predict(more[:1], 1).names() == [["label5"]]


def test_rank_ae_has_no_updates() -> None:
    model = model_class("rank_ae")()
    assert not hasattr(model.config, "keep_replay")
    with pytest.raises(UnsupportedError, match="cannot be updated"):
        model.update(MORE)


# ---- parts


def test_mixtures() -> None:
    settings = UpdateSettings(replay_ratio=1.5)
    assert settings.mixture(4, 0, 1).tolist() == [0, 1, 2, 3]
    few = settings.mixture(100, 10, 1)
    assert np.bincount(few).tolist() == [1] * 100 + [4] * 10
    many = settings.mixture(10, 1000, 1)
    assert (np.bincount(many)[:10] == 1).all()
    assert len(np.unique(many)) == len(many) == 25
    some = np.bincount(settings.mixture(10, 10, 1))[10:]
    assert sorted(some.tolist()) == [1] * 5 + [2] * 5
    assert not len(settings.mixture(0, 50, 1))


def test_a_short_training_is_as_averaged_as_a_long_one() -> None:
    long = TrainingSettings(epochs=8, average_from=6.0, learning_rate=0.01)
    short = UpdateSettings(epochs=4, learning_rate=0.5).training(long)
    assert (short.epochs, short.average_from, short.learning_rate, short.decay_from) == (4, 3.0, 0.005, 0.0)


class Headed(torch.nn.Module):
    """As much of a network as carrying weights needs."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.table, self.head = torch.nn.Parameter(torch.zeros(2, 2)), LinearHead(labels, 2)


def test_labels_are_carried_over() -> None:
    """Of 0, 1 and 2, the first stays, the others become one by 3 : 1, and a new one is half 0 and half 1."""
    before, now = Headed(3), Headed(3)
    with torch.no_grad():
        before.head.rows.copy_(torch.tensor([[1.0, 0.0], [0.0, 4.0], [4.0, 0.0]]))
        before.head.bias.copy_(torch.tensor([-1.0, -4.0, 0.0]))
    carried = sp.csr_array(np.array([[1, 0, 0], [0, 0.75, 0.25], [0.5, 0.5, 0]], dtype=np.float32))
    carry_weights(now, before, carried, 1, np.array([0.5, 0.5, 0.2]))  # type: ignore[arg-type]
    assert now.head.rows.tolist() == [[1.0, 0.0], [1.0, 3.0], [0.5, 2.0]]
    assert now.head.bias.tolist() == pytest.approx([-1.0, -3.0, np.log(0.2 / 0.8)])
    start = {name: part.detach().clone() for name, part in now.named_parameters()}
    with torch.no_grad():
        for part in now.parameters():
            part.zero_()
    labels = sp.csr_array(np.array([[1, 0, 0], [1, 0, 1]], dtype=np.float32))
    assert absent_from(labels).tolist() == [1]
    start["table"] = torch.ones(2, 2)
    settle(now, start, 0.25, 1, np.array([2]), absent_from(labels))  # type: ignore[arg-type]
    assert now.head.rows.tolist() == [[0.25, 0.0], [1.0, 3.0], [0.0, 0.0]]
    assert now.head.bias.tolist() == pytest.approx([-0.25, -3.0, 0.0])
    assert now.table.tolist() == [[0.25, 0.25], [0.0, 0.0]]


def test_a_turn_is_found_out() -> None:
    """Two members whose spaces were turned, each its own way: documents that nobody saw again are turned as well."""
    random = np.random.default_rng(0)
    parts = random.standard_normal((2, 3000, 5))
    parts /= np.linalg.norm(parts, axis=2, keepdims=True) * np.sqrt(2)
    turned = [part @ np.linalg.qr(random.standard_normal((5, 5)))[0] for part in parts]
    old, now = np.hstack(list(parts)).astype(np.float32), np.hstack(turned).astype(np.float32)
    moved = moved_embeddings(old[2000:], old[:2000], now[:2000], 2)
    assert np.allclose(moved, now[2000:], atol=0.05)
    still = moved_embeddings(old, old[:0], now[:0], 2)
    assert np.allclose(still, old, atol=1e-6)


def test_ids_that_stand_twice_have_no_place() -> None:
    assert unique_places(["a", "b", "a", "c"]) == {"b": 1, "c": 3}


def test_words_keep_their_numbers() -> None:
    settings = SequenceSettings(min_df=2, max_words=4)
    reader, _ = WordSequences.fit(as_dataset(["red blue", "blue red", "blue rare"], [["a"]] * 3), settings, RUNTIME)
    more = as_dataset(["Green red once", "green blue grey", "grey green"], [["a"]] * 3)
    grown = reader.grown(more, 6, RUNTIME)
    assert reader.words == ["blue", "red"]
    assert grown.words == ["blue", "red", "green", "grey"]
    assert grown.vocabulary.frequencies.tolist() == [4, 3, 3, 2]
    full = grown.grown(as_dataset(["pink red", "pink"], [["a"]] * 2), 8, RUNTIME)
    assert full.words == grown.words
    assert grown.grown(more.slice(0, 0), 6, RUNTIME).words == grown.words
    assert grown.encode(as_dataset(["grey red rare"]), RUNTIME).ids.tolist() == [5, 3, 1]


# ---- documents with unknown labels


DECIDED = "old3word0 old3word1 old5word2 common0 old5word3"
"""A text about two labels."""


def scores_of(model: Model, texts: Sequence[str]) -> np.ndarray:
    return model.score_labels(list(texts), np.tile(np.arange(len(model.labels)), (len(texts), 1)))


@pytest.mark.parametrize("kept", [60, 0])
@pytest.mark.parametrize("variant", ["attention_xml, tree", "xml_cnn"])
def test_a_decision_moves_its_label_alone(variant: str, kept: int, fitted: dict[str, Model]) -> None:
    """Undecided labels keep their scores on all texts, the decided ones nearly so on those replayed."""
    model = trained(variant, fitted)
    texts = [DECIDED, *TEST.text().to_pylist()]
    before = scores_of(model, texts)
    if not kept:
        model.remember(None)
    right, wrong = model.labels.find("old5"), model.labels.find("old3")
    for label, sign in ((right, 1), (wrong, -1)):
        new = copy.copy(model)
        given = [["old5"], []] if sign > 0 else [[], ["old3"]]
        new.update([DECIDED], [given[0]], rejected=[given[1]], runtime=RUNTIME)
        moved = scores_of(new, texts) - before
        assert sign * moved[0, label] > 0
        assert not np.delete(moved, label, axis=1).any()
        if kept:
            assert np.abs(moved[1:, label]).mean() < 0.5 * abs(moved[0, label]) + 0.01
        assert (scores_of(model, texts) == before).all()


def test_decisions_and_complete_documents_together(fitted: dict[str, Model]) -> None:
    """Complete documents train the network as they do alone; then the decision is learnt."""
    model = trained("xml_cnn", fitted)
    words = [*MORE.text().to_pylist(), DECIDED]
    assert MORE.labels is not None
    keys = (MORE.label_index or model.labels).keys
    held = [[keys[label]] for label in MORE.labels.indices.tolist()]
    alone, both = copy.copy(model), copy.copy(model)
    alone.update(MORE, runtime=RUNTIME)
    complete = np.arange(len(words)) < len(MORE)
    both.update(words, [*held, []], rejected=[*[[]] * len(MORE), ["old3"]], complete=complete, runtime=RUNTIME)
    assert both.labels.keys == alone.labels.keys
    assert both._reader.size == alone._reader.size
    ours, theirs = scores_of(both, [DECIDED])[0], scores_of(alone, [DECIDED])[0]
    wrong = both.labels.find("old3")
    assert ours[wrong] < theirs[wrong]
    # the biases of new labels start from their frequencies, and there is one document more
    assert np.allclose(np.delete(ours, wrong), np.delete(theirs, wrong), atol=0.01)


@pytest.mark.parametrize("variant", ["attention_xml, tree", "xml_cnn"])
def test_a_new_label_from_decisions(variant: str, fitted: dict[str, Model], tmp_path: Path) -> None:
    """It is learnt from accepting texts and told apart from replayed ones."""
    model = trained(variant, fitted)
    size = model._reader.size
    about = [f"old2word{number % 4} old7word{number % 3} old2word1 old7word2 common{number}" for number in range(8)]
    model.update(about[:6], [["mixed"]] * 6, complete=False, runtime=RUNTIME)
    label = model.labels.find("mixed")
    others = [text for text in TEST.text().to_pylist() if "old2" not in text and "old7" not in text]
    assert model._reader.size == size  # new words come from complete documents
    assert scores_of(model, about[6:])[:, label].min() > scores_of(model, others)[:, label].mean()
    model.save(tmp_path / "model")
    assert same_answers(xmtc.load(tmp_path / "model", RUNTIME), model)


def test_a_text_without_a_decision(fitted: dict[str, Model]) -> None:
    model = trained("xml_cnn", fitted)
    before = scores_of(model, [DECIDED])
    model.update([DECIDED], [[]], complete=False, runtime=RUNTIME)
    assert (scores_of(model, [DECIDED]) == before).all()


def test_anchors() -> None:
    settings = UpdateSettings()
    has = np.arange(1000) < 500
    rows = settings.anchors(1, has, 0)
    assert len(rows) == 64
    assert has[rows].sum() == 32
    assert len(settings.anchors(200, has, 0)) == 200
    assert len(settings.anchors(1, has[:10], 0)) == 10
    assert not len(replace(settings, replay_ratio=0.0).anchors(1, has, 0))
