"""Real data sets, where they are at hand: what the models must reach, and counts that are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xmtc.data.dataset import Dataset
from xmtc.data.reading import read
from xmtc.models.base import Model
from xmtc.models.consensus import Consensus
from xmtc.models.knn import Knn
from xmtc.models.one_vs_all import OneVsAll
from xmtc.models.parabel import Parabel
from xmtc.models.popularity import Popularity
from xmtc.workflows.evaluate import evaluate_model


@pytest.fixture(scope="module")
def cooking(shared_data: Path) -> tuple[Dataset, Dataset]:
    return read(shared_data / "cooking" / "train.jsonl.xz"), read(shared_data / "cooking" / "test.jsonl.xz")


@pytest.mark.parametrize(("model", "least"), [(Knn(), 0.67), (OneVsAll(), 0.70)], ids=["knn", "one_vs_all"])
def test_cooking(cooking: tuple[Dataset, Dataset], model: Model, least: float) -> None:
    train, test = cooking
    model.fit(train)
    dropped = evaluate_model(model, test, unknown_labels="drop")
    counted = evaluate_model(model, test, unknown_labels="count")
    assert dropped.metrics["P@1"] >= least
    assert counted.metrics["P@1"] == dropped.metrics["P@1"]  # nobody returns an unseen label
    assert counted.metrics["nDCG@5"] <= dropped.metrics["nDCG@5"]


PLAIN_TREE = {"trees": 1, "leaf_size": 256, "path_weight": 1.0, "negatives": 0, "cost": 1.0, "weights": "float32"}
"""A label tree as published but for its edges: the default is nearly as accurate as the consensus on cooking."""


def test_consensus_on_cooking(cooking: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    """Together they beat each of them on questions that nobody has seen, and calibrated scores are near the truth."""
    train, test = cooking
    rows = np.random.default_rng(0).permutation(len(train))
    fitted, held = train.take(np.sort(rows[2000:])), train.take(np.sort(rows[:2000]))
    members = []
    for model in (Knn(neighbours=80, power=2), Parabel(**PLAIN_TREE)):
        model.fit(fitted).save(tmp_path / model.name)
        members.append(evaluate_model(model, test, unknown_labels="drop").metrics)
    places = [str(tmp_path / name) for name in ("knn", "parabel")]
    for combine in ("learnt", "noisy-or"):
        together = Consensus(members=places, combine=combine).fit(held)
        result = evaluate_model(together, test, unknown_labels="drop")
        for metric in ("P@1", "P@3", "P@5", "nDCG@5"):
            assert result.metrics[metric] > max(member[metric] for member in members), metric
        calibrated = evaluate_model(together.calibrate(held), test, unknown_labels="drop")
        assert calibrated.reliability is not None
        assert calibrated.reliability.error < 0.03
        assert calibrated.sets is not None
        assert calibrated.sets["micro"] > result.metrics["microF1@3"]  # a set is better than any fixed number


def test_unseen_labels_are_told(shared_data: Path) -> None:
    """EURLEX57K's test documents hold labels that its training documents never do."""
    train = read(shared_data / "eurlex57k" / "dev.jsonl.xz")  # smaller than train, so more labels are unseen
    test = read(shared_data / "eurlex57k" / "test.jsonl.xz")
    result = evaluate_model(Popularity().fit(train), test)
    seen = set(np.asarray(train.label_index.keys)[np.unique(train.labels.indices)])
    keys = np.asarray(test.label_index.keys)
    pairs = [key for key in keys[test.labels.indices] if key not in seen]
    assert (result.unknown_labels, result.unknown_pairs) == (len(set(pairs)), len(pairs))
    assert result.unknown_labels > 100


def test_counts_of_the_feature_sets(shared_data: Path) -> None:
    delicious = read(shared_data / "delicious" / "train.txt.gz", vocabulary=shared_data / "delicious" / "labels.txt")
    assert delicious.features.shape == (12920, 500)
    assert delicious.labels.shape == (12920, 983)
    assert int((np.diff(delicious.labels.indptr) == 0).sum()) == 10
    assert delicious.label_index.names[0] == "TAG_.imported"
    bibtex = read(shared_data / "bibtex" / "test.txt.gz")
    assert bibtex.features.shape == (2515, 1836)
    assert bibtex.labels.shape[1] == 159


def test_vocabulary_of_eu_laws(shared_data: Path) -> None:
    folder = shared_data / "eurlex57k"
    train = read(folder / "train.jsonl.xz", vocabulary=folder / "labels.jsonl.gz")
    assert train.labels.shape == (45000, 7201)
    assert train.used_labels().labels.shape == (45000, 4108)
    assert train.label_index.name(train.label_index.find("international politics")) == "international affairs"
