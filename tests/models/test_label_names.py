"""Label names as training documents of linear models: labels without documents are found by their names."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import xmtc
from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ConfigError, UnsupportedError
from xmtc.core.progress import silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.labels.name_documents import LENGTH
from xmtc.linear.forest import Forest, train_tree
from xmtc.linear.node_training import Rows
from xmtc.models.base import Model
from xmtc.models.bonsai import Bonsai
from xmtc.models.context import FitContext
from xmtc.models.one_vs_all import OneVsAll
from xmtc.models.parabel import Parabel

TOPICS, LABELS, UNSEEN = 6, 36, 6
MODELS = {
    "parabel": lambda **more: Parabel(trees=2, leaf_size=8, fan_out=4, **more),
    "bonsai": lambda **more: Bonsai(trees=1, leaf_size=8, clusters=6, **more),
    "one_vs_all": OneVsAll,
}


def name(label: int) -> str:
    """A word of the label's own, and two that all labels of its topic share."""
    topic = label % TOPICS
    return f"own{label} first{topic} second{topic}"


INDEX = LabelIndex.from_keys([f"k{label}" for label in range(LABELS)], [name(label) for label in range(LABELS)])


def planted(labels: range, count: int, seed: int) -> Dataset:
    """Texts with the names of one label or two of a topic, among words that say nothing."""
    chance = np.random.default_rng(seed)
    texts, given = [], []
    for _ in range(count):
        first = int(chance.choice(labels))
        pair = {first, first + TOPICS if first + TOPICS in labels else first}
        noise = [f"noise{word}" for word in chance.integers(0, 60, 12)]
        texts.append(" ".join([*noise, *(name(label) for label in sorted(pair))]))
        given.append(sorted(pair))
    matrix = sp.lil_array((count, LABELS), dtype=np.float32)
    for row, own in enumerate(given):
        matrix[row, own] = 1
    return replace(as_dataset(texts), labels=sp.csr_array(matrix), label_index=INDEX)


SEEN, HIDDEN = range(LABELS - UNSEEN), range(LABELS - UNSEEN, LABELS)
TRAIN, TEST = planted(SEEN, 400, 1), planted(SEEN, 100, 2)
UNSEEN_TEST = planted(HIDDEN, 60, 3)


def found_first(model: Model, documents: Dataset, k: int = 1) -> float:
    """Share of documents one of whose labels is among the first k."""
    top = model.predict(documents, k)
    assert documents.labels is not None
    keys = documents.label_index.ids(model.labels.keys)[top.labels]  # type: ignore[union-attr]
    return float(np.mean([documents.labels[[row], own].any() for row, own in enumerate(keys)]))


def without_unseen(documents: Dataset) -> Dataset:
    assert documents.labels is not None
    kept = np.arange(LABELS - UNSEEN)
    return replace(documents, labels=sp.csr_array(documents.labels[:, kept]), label_index=INDEX.take(kept))


@pytest.mark.parametrize("kind", MODELS)
def test_labels_without_documents_are_found_by_their_names(kind: str, tmp_path: Path) -> None:
    model = MODELS[kind]().fit(TRAIN)
    assert model.uses_label_names
    assert model.label_counts[LABELS - UNSEEN :].tolist() == [0] * UNSEEN
    assert found_first(model, UNSEEN_TEST) > 0.8
    assert found_first(model, TEST) > 0.9
    model.save(tmp_path / "model")
    loaded = xmtc.load(tmp_path / "model")
    for documents in (TEST, UNSEEN_TEST):
        ours, again = model.predict(documents, 5), loaded.predict(documents, 5)
        np.testing.assert_array_equal(ours.labels, again.labels)
        np.testing.assert_array_equal(ours.scores, again.scores)
    assert loaded.name_weight == model.name_weight == 2.0
    off = MODELS[kind](label_names=0).fit(TRAIN)
    assert not off.uses_label_names
    assert off.name_weight == 0
    assert found_first(off, UNSEEN_TEST) < 0.2


def weights(model: Any) -> dict[str, Any]:
    return dict(model._state().arrays)


@pytest.mark.parametrize("kind", MODELS)
def test_keys_are_no_names(kind: str) -> None:
    """Without names, the default gives the model that ignores names, bit by bit; with a weight, keys are texts."""
    bare = replace(TRAIN, label_index=LabelIndex.from_keys([name(label) for label in range(LABELS)]))
    default, off = (MODELS[kind](**how).fit(bare) for how in ({}, {"label_names": 0}))
    expected = weights(off)
    for part, array in weights(default).items():
        np.testing.assert_array_equal(array, expected[part])
    on = MODELS[kind](label_names=1).fit(bare)
    top = on.predict(UNSEEN_TEST, 1).labels[:, 0]
    assert (top >= LABELS - UNSEEN).mean() > 0.8


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_a_name_is_a_document(loss: str) -> None:
    """Weight 2 is the model of names that are documents, each of them twice, up to the stopping tolerance."""
    how = {"loss": loss, "cost": 1, "tolerance": 1e-4, "passes": 500, "prune": 0, "negatives": 0, "text__min_df": 1}
    named = MODELS["parabel"](label_names=2, **how).fit(TRAIN)
    rows, names = named._fit_features(TRAIN, FitContext(Runtime(), silent, Workspace()))
    eye = sp.eye_array(LABELS, dtype=np.float32, format="csr")
    stacked = sp.csr_array(sp.vstack([rows, LENGTH * names.by_label(), LENGTH * names.by_label()]))
    labels = sp.csr_array(sp.vstack([TRAIN.labels, eye, eye]))
    numbers = np.arange(rows.shape[1], dtype=np.int32)
    trees = []
    for tree, _ in named._forest._trees:
        chunks = train_tree(Rows.build(stacked, numbers), len(numbers), labels, tree, named.config, seed=3, threads=1)
        trees.append((tree, chunks))
    twice = Forest(trees, numbers, named._search())
    queries = named._features.transform(UNSEEN_TEST, Runtime())
    candidates = np.tile(np.arange(LABELS), (len(UNSEEN_TEST), 1))
    expected = twice.score(queries, candidates)
    np.testing.assert_allclose(named._forest.score(queries, candidates), expected, atol=2e-3, rtol=2e-2)


@pytest.mark.parametrize("kind", MODELS)
def test_clusters_by_names(kind: str) -> None:
    """Labels without documents are placed next to those whose documents or names have the words of their names."""
    if kind == "one_vs_all":
        with pytest.raises(ConfigError, match="cluster_names"):
            OneVsAll(cluster_names=1)
        return
    for weight in (0.0, 1.0):
        model = MODELS[kind](cluster_names=weight).fit(TRAIN)
        tree = model._forest._trees[0][0]
        leaf = tree.node_of(tree.depth - 1)
        near = [[other for other in SEEN if leaf[other] == leaf[label]] for label in HIDDEN]
        same = [sum(other % TOPICS == label % TOPICS for other in own) for label, own in zip(HIDDEN, near, strict=True)]
        assert sum(same) > 0.5 * sum(map(len, near))  # by chance, one in six
        assert found_first(model, UNSEEN_TEST, 2) > 0.8


def added(model: Any, labels: range, documents: Dataset) -> tuple[Any, list[list[int]]]:
    """The model after an update, and the topics of the old labels in the leaf of each new one."""
    updated = copy.copy(model).update(documents, force=True)
    tree = updated._forest._trees[0][0]
    leaf = tree.node_of(tree.depth - 1)
    number = updated.labels.ids([f"k{label}" for label in labels])
    old = {place: int(key[1:]) % TOPICS for place, key in enumerate(updated.labels.keys) if int(key[1:]) in SEEN}
    return updated, [[topic for place, topic in old.items() if leaf[place] == leaf[new]] for new in number]


@pytest.mark.parametrize("kind", MODELS)
def test_a_new_label_starts_from_its_name(kind: str, tmp_path: Path) -> None:
    """One new document with words that say nothing: only the name tells what each new label is about."""
    known = without_unseen(TRAIN)
    chance = np.random.default_rng(5)
    texts = [" ".join(f"noise{word}" for word in chance.integers(0, 60, 12)) for _ in HIDDEN]
    eye = sp.eye_array(LABELS, dtype=np.float32, format="csr")[list(HIDDEN)]
    new = replace(as_dataset(texts), labels=sp.csr_array(eye), label_index=INDEX)
    model = MODELS[kind]().fit(known)
    model.save(tmp_path / "model")
    updated, beside = added(xmtc.load(tmp_path / "model"), HIDDEN, new)
    assert len(updated.labels) == LABELS
    assert found_first(updated, UNSEEN_TEST) > 0.8
    assert found_first(updated, TEST) > 0.9
    off, _ = added(MODELS[kind](label_names=0).fit(known), HIDDEN, new)
    assert off.name_weight == 0
    assert found_first(off, UNSEEN_TEST) < 0.3
    if kind == "parabel":
        shares = [topics.count(label % TOPICS) / len(topics) for label, topics in zip(HIDDEN, beside, strict=True)]
        assert np.mean(shares) > 0.5  # by chance, one in six
    retired = updated.update(retire=["k0"])
    assert found_first(retired, UNSEEN_TEST) > 0.8


@pytest.mark.parametrize("kind", MODELS)
def test_a_vocabulary_brings_labels_without_documents(kind: str) -> None:
    """In training and in updates; a model that ignores names does not take them."""
    known = without_unseen(TRAIN)
    whole = MODELS[kind]().fit(known, vocabulary=INDEX)
    assert len(whole.labels) == LABELS
    updated = MODELS[kind]().fit(known).update(vocabulary=INDEX)
    assert updated.label_counts[-UNSEEN:].tolist() == [0] * UNSEEN
    for model in (whole, updated):
        assert model.labels.keys == INDEX.keys
        assert found_first(model, UNSEEN_TEST) > 0.8
        assert found_first(model, TEST) > 0.9
    off = MODELS[kind](label_names=0).fit(known, vocabulary=INDEX)
    assert len(off.labels) == len(off.update(vocabulary=INDEX).labels) == LABELS - UNSEEN
    plain = LabelIndex.from_keys(INDEX.keys)
    assert MODELS[kind]().fit(known).name_weight == 2
    assert MODELS[kind]().fit(replace(known, label_index=plain.take(np.arange(LABELS - UNSEEN)))).name_weight == 0


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("documents", [None, TRAIN.slice(0, 50)], ids=["no documents", "documents"])
def test_new_names_of_old_labels_are_learnt(kind: str, documents: Dataset | None) -> None:
    """With and without new documents; the other names and the other labels are found as before."""
    chosen = np.arange(0, LABELS, 3)
    others = [[f"synonym{label}"] if label in chosen else [] for label in range(LABELS)]
    model = MODELS[kind]().fit(TRAIN)
    model.update(documents, vocabulary=LabelIndex.from_keys(INDEX.keys, INDEX.names, others), force=True)
    top = model.predict([f"noise1 noise2 noise3 synonym{label}" for label in chosen], 1)
    assert (top.labels[:, 0] == chosen).mean() > 0.9
    assert found_first(model, UNSEEN_TEST) > 0.8
    assert found_first(model, TEST) > 0.9


def test_names_are_replayed_with_the_documents() -> None:
    """An update with all documents replayed is as good as training on all of them, names included."""
    how = {"tolerance": 1e-3, "passes": 200, "prune": 0.0}
    before, after = TRAIN.slice(0, 300), TRAIN.slice(300, 400)
    model = OneVsAll(**how).fit(before).update(after, replay=before, force=True)
    whole = OneVsAll(**how).fit(TRAIN)
    expected = whole.predict(UNSEEN_TEST, 1)
    found = model.predict(UNSEEN_TEST, 1)
    assert (found.labels == expected.labels).mean() > 0.95


def test_names_need_texts() -> None:
    rows = sp.csr_array(np.eye(LABELS, dtype=np.float32))
    documents = Dataset(features=rows, labels=rows, label_index=INDEX)
    assert Parabel().fit(documents).name_weight == 0
    for how in ({"label_names": 1}, {"cluster_names": 1, "label_names": 0}):
        with pytest.raises(
            UnsupportedError, match=r"names need texts\. Train on texts, or set label_names and cluster"
        ):
            Parabel(**how).fit(documents)
    with pytest.raises(ConfigError, match=r"'label_names' of one_vs_all must be a number from 0 to 1000, or auto\."):
        OneVsAll(label_names=-1)


def test_rejected_labels_beside_names() -> None:
    """Names are complete documents also where others have unknown labels."""
    rejected = sp.lil_array((len(TRAIN), LABELS), dtype=np.float32)
    rejected[:, 0] = 1
    assert TRAIN.labels is not None
    wrong = sp.csr_array(rejected - rejected.multiply(TRAIN.labels))
    wrong.eliminate_zeros()
    partial = np.zeros(len(TRAIN), dtype=bool)
    partial[::2] = True
    model = OneVsAll().fit(replace(TRAIN, rejected=wrong, partial=partial))
    assert found_first(model, UNSEEN_TEST) > 0.8


@pytest.mark.parametrize("kind", MODELS)
def test_keys_of_words_are_names(kind: str) -> None:
    """A word that no training text has is found if it is part of the key; codes are not used."""
    texts = ["pears and plums", "pears and plums", "oak and elm", "oak and elm"]
    words = MODELS[kind]().fit(texts, [["orchard_pears"]] * 2 + [["forest-oak"]] * 2)
    assert words.name_weight > 0
    assert words.predict(["an orchard", "the forest"], 1).names() == [["orchard_pears"], ["forest-oak"]]
    assert MODELS[kind]().fit(texts, [["k1"]] * 2 + [["k2"]] * 2).name_weight == 0
