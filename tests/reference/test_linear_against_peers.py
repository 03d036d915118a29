"""The linear models on real data sets, where they are at hand: what they must reach, and what is known of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.reading import read
from xmtc.models.base import Model
from xmtc.models.one_vs_all import OneVsAll
from xmtc.models.parabel import Parabel
from xmtc.workflows.evaluate import evaluate_model

Split = tuple[Dataset, Dataset]


@pytest.fixture(scope="module")
def cooking(shared_data: Path) -> Split:
    folder = shared_data / "cooking"
    return read(folder / "train.jsonl.xz"), read(folder / "test.jsonl.xz")


@pytest.fixture(scope="module")
def delicious(shared_data: Path) -> Split:
    folder = shared_data / "delicious"
    return read(folder / "train.txt.gz"), read(folder / "test.txt.gz")


def precision_at_1(model: Model, split: Split) -> float:
    model.fit(split[0], runtime=Runtime(threads=2, seed=0))
    return float(evaluate_model(model, split[1]).metrics["P@1"])


@pytest.fixture(scope="module")
def one_tree(cooking: Split) -> float:
    return precision_at_1(Parabel(trees=1), cooking)


@pytest.fixture(scope="module")
def single_labels(cooking: Split) -> float:
    return precision_at_1(OneVsAll(), cooking)


def test_cooking(one_tree: float, single_labels: float) -> None:
    assert one_tree > 0.69
    assert single_labels > 0.70


def test_half_the_bits_are_as_good(cooking: Split, one_tree: float, single_labels: float) -> None:
    assert precision_at_1(Parabel(trees=1, weights="float16"), cooking) == pytest.approx(one_tree, abs=0.002)
    assert precision_at_1(OneVsAll(weights="float16"), cooking) == pytest.approx(single_labels, abs=0.002)


def test_delicious(delicious: Split) -> None:
    assert precision_at_1(OneVsAll(), delicious) >= 0.66


def test_cooking_against_liblinear(cooking: Split) -> None:
    """The widespread labels: the same documents are told apart as by scikit-learn's classifiers, on the same words."""
    svm = pytest.importorskip("sklearn.svm")
    train, test = cooking
    model = OneVsAll(cost=1.0, tolerance=0.01, passes=200, prune=0.0, label_names=0).fit(
        train, runtime=Runtime(threads=2, seed=0)
    )
    rows, unseen = (model._features.transform(part, model.runtime) for part in (train, test))
    often = np.argsort(-model.label_counts, kind="stable")[:12]
    scores = model.score_labels(test, np.tile(often, (len(test), 1)))
    assert train.labels is not None
    for place, label in enumerate(often.tolist()):
        truth = np.asarray(train.labels[:, [label]].toarray()[:, 0] > 0)
        margins = svm.LinearSVC(C=1.0, tol=1e-4).fit(rows, truth).decision_function(unseen)
        np.testing.assert_allclose(scores[:, place], 1 / (1 + np.exp(-margins)), atol=5e-3)
