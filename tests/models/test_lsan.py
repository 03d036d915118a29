"""LSAN: names of labels help, both attentions look at the words that tell, and updates read the names of new labels."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")

from xmtc.core.errors import ConfigError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.models.lsan import Lsan
from xmtc.nn.word_table import name_vectors
from xmtc.text.tokens import TokenBlock

RUNTIME = Runtime(threads=1, seed=1)
QUICK: dict[str, Any] = {
    "vectors": "random",
    "corpus.width": 16,
    "encoder.units": 16,
    "encoder.dropout": 0.1,
    "head.units": 16,
    "head.hidden": 16,
    "training.epochs": 10,
    "training.batch_size": 16,
    "training.learning_rate": 0.02,
    "training.validation_size": 0,
}
ANIMALS = ["fish", "bird", "snake", "horse", "mouse", "tiger"]


def documents_of(labels: list[str], count: int, seed: int) -> Dataset:
    """Texts with one word that tells each label, among noise."""
    chance = np.random.default_rng(seed)
    texts, held = [], []
    for _ in range(count):
        words = [f"noise{number}" for number in chance.integers(0, 30, chance.integers(5, 10))]
        own = sorted({str(label) for label in chance.choice(labels, 2)})
        for label in own:
            words.insert(int(chance.integers(0, len(words) + 1)), label)
        texts.append(" ".join(words))
        held.append(own)
    return as_dataset(texts, held)


def trained(**settings: Any) -> Lsan:
    return Lsan(**{**QUICK, **settings}).fit(documents_of(ANIMALS, 160, 0), runtime=RUNTIME)


@pytest.fixture(scope="module")
def model() -> Lsan:
    return trained(keep_replay=50)


def first(model: Lsan, documents: Dataset) -> float:
    """Share of documents whose best label is right."""
    assert documents.labels is not None
    assert documents.label_index is not None
    best = model.predict(documents, 1).names()
    right = [[documents.label_index.name(label) for label in row.indices] for row in documents.labels]
    return float(np.mean([found[0] in wanted for found, wanted in zip(best, right, strict=True)]))


def test_it_learns_and_looks_at_the_words_that_tell(model: Lsan) -> None:
    test = documents_of(ANIMALS, 40, 1)
    assert first(model, test) > 0.8
    looked = []
    for text in test.text().to_pylist()[:12]:
        for label in set(text.split()) & set(ANIMALS):
            reasons = model.explain(text, label)
            assert reasons.shares
            assert sum(item.weight for item in reasons.evidence) == pytest.approx(1, abs=1e-5)
            places = [place for place, word in enumerate(text.split()) if word == label]
            best = [place for place, word in enumerate(text.split()) if word == reasons.evidence[0].text]
            looked.append(min(abs(a - b) for a in places for b in best) <= 1)  # states tell of neighbours too
    assert np.mean(looked) > 0.6


@pytest.mark.parametrize("part", ["self-attention", "name-attention", "no-gate", "plain-products"])
def test_parts_learn_alone(part: str) -> None:
    model = trained(**Lsan.ablations[part])
    assert first(model, documents_of(ANIMALS, 40, 1)) > 0.7


def test_label_vectors_start_from_the_words_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[np.ndarray] = []
    monkeypatch.setattr(
        "xmtc.models.lsan.name_vectors", lambda *given: started.append(given[1]) or name_vectors(*given)
    )
    model = trained(**{"training.epochs": 1})
    assert model.facts["labels with a name in known words"] == "100.0 %"
    table, reader = started[0], model._reader
    words = [reader.words.index(name) + 2 for name in model.labels.keys]
    assert np.allclose(model._names, table[words])  # as wide as the states: nothing is projected
    assert trained(**{"training.epochs": 1, "head.names": False})._names is None
    assert len(started) == 1


def test_name_vectors() -> None:
    table = np.random.default_rng(0).normal(0, 0.5, (2000, 12)).astype(np.float32)
    names = TokenBlock(np.array([0, 2, 3, 5, 6]), np.array([5, 7, 1, 1, 9, 5], dtype=np.int32))  # 1 is unknown
    found, known = name_vectors(names, table, 12, seed=3)
    assert known == 0.75
    assert np.allclose(found[[0, 2, 3]], [(table[5] + table[7]) / 2, table[9], table[5]])
    assert 0.1 < found[1].std() < 1.0
    many = TokenBlock(np.arange(1001), np.arange(2, 1002, dtype=np.int32))
    near, _ = name_vectors(many, table, 400, seed=3)
    own = table[2:1002]
    assert np.corrcoef((near[:500] * near[500:]).sum(1), (own[:500] * own[500:]).sum(1))[0, 1] > 0.9
    assert name_vectors(TokenBlock(np.array([0, 1]), np.array([1], dtype=np.int32)), table, 12, seed=3)[1] == 0.0


def test_updates_read_the_names_of_new_labels(model: Lsan) -> None:
    updated = copy.copy(model).update(documents_of(["tiger", "wolf", "eagle"], 60, 5), force=True)
    assert updated._names is not None
    assert model._names is not None
    assert len(updated._names) == len(model._names) + 2
    assert first(updated, documents_of(["wolf", "eagle"], 30, 6)) > 0.7
    assert first(updated, documents_of(ANIMALS, 30, 7)) > 0.7


def test_names_are_those_of_the_label_file() -> None:
    """Labels with numbers as keys start from the words of their names."""
    train = documents_of(ANIMALS, 60, 0)
    assert train.label_index is not None
    keys = pa.array([str(number) for number in range(6)])
    index = LabelIndex(pa.table({"key": keys, "name": pa.array(train.label_index.keys)}))
    model = Lsan(**{**QUICK, "training.epochs": 1})
    named = model.fit(Dataset(train.fields, None, train.labels, index), runtime=RUNTIME)
    assert named.facts["labels with a name in known words"] == "100.0 %"


def test_settings() -> None:
    for wrong in ({"attention": "none"}, {"units": 0}, {"hidden": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Lsan(head=wrong)
