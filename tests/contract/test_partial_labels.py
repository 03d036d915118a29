"""Labels that are neither accepted nor rejected are unknown: no model may learn them as wrong."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.models import CORRELATION, QUICK, TREE, made, planted_split
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels
from xmtc.metrics import ndcg
from xmtc.models.base import Model
from xmtc.models.consensus import Consensus
from xmtc.models.knn import Knn
from xmtc.models.parabel import Parabel
from xmtc.models.registry import MODELS, available, model_class

SETTINGS: dict[str, tuple[str, dict[str, object]]] = {name: (name, QUICK.get(name, {})) for name in MODELS}
SETTINGS["parabel, deep"] = "parabel", {"leaf_size": 8, "fan_out": 4}
SETTINGS["parabel, logistic"] = "parabel", {"leaf_size": 8, "fan_out": 4, "loss": "logistic"}
SETTINGS["one_vs_all, logistic"] = "one_vs_all", {"loss": "logistic"}
SETTINGS["attention_xml, tree"] = "attention_xml", {**QUICK["attention_xml"], **TREE, "head.tree.beam_width": 16}
SETTINGS["xml_cnn, correlation"] = "xml_cnn", {**QUICK["xml_cnn"], **CORRELATION}
SETTINGS["leml"] = "leml", {"rank": 30, "sweeps": 4}
SETTINGS["sleec"] = "sleec", {"learners": 1, "width": 30, "rounds": 5}
LONG = ("attention_lstm", "attention_xml, tree", "lsan", "transformer", "xml_rnn")
"""Slow, and their like is among the others."""
LONG_FIT = (*LONG, "attention_xml", "maacf", "rank_ae", "xml_cnn", "xml_cnn, correlation")
"""Slow in three trainings; smaller ones of their kind are in tests/models/test_neural.py."""
LONGER: dict[str, dict[str, object]] = {
    "attention_lstm": {"training.epochs": 16},
    "attention_xml": {"training.epochs": 14},
    "attention_xml, tree": {"training.epochs": 14},
    "lsan": {"training.epochs": 14},
    "maacf": {"training.epochs": 16},
    "xml_rnn": {"training.epochs": 24},
}
"""So that a difference in quality is more than the noise of an unfinished training."""
PLACES = 20
DOCUMENTS = 400


def variants(capability: str, long: tuple[str, ...]) -> list[object]:
    """Every registered model with a capability, and variants of some."""
    params = []
    for title, (name, _) in sorted(SETTINGS.items()):
        if available(name) and capability in model_class(name).capabilities:
            marks = [pytest.mark.long] if title in long else []
            params.append(pytest.param(title, marks=marks))
    return params


@pytest.fixture(scope="module")
def documents() -> tuple[Dataset, Dataset]:
    return planted_split(DOCUMENTS, 100, labels=60, seed=7)[:2]


def fitted(title: str, train: Dataset, folder: Path, **more: object) -> Model:
    name, settings = SETTINGS[title]
    runtime = Runtime(threads=2, seed=3)
    if name != "consensus":
        return model_class(name)(**{**made(settings), **more}).fit(train, runtime=runtime)
    for member in (Parabel(trees=1), Knn(neighbours=10, power=2)):
        member.fit(train, runtime=runtime).save(folder / member.name)
    return Consensus(members=[str(folder / "parabel"), str(folder / "knn")], depth=60).fit(train, runtime=runtime)


class Case:
    """A model and the scores of the labels that it ranked first for two texts."""

    def __init__(self, model: Model, texts: list[str]) -> None:
        self.model, self.texts = model, texts
        self.ranked = model.predict(texts, PLACES).labels
        self.before = np.where(self.ranked >= 0, model.score_labels(texts, self.ranked), 0.0)

    def key(self, row: int, place: int) -> str:
        return self.model.labels.key(int(self.ranked[row, place]))

    def change(self, updated: Model, row: int, place: int) -> tuple[float, np.ndarray]:
        """How the scores of one text changed: of the label at this place, and of the others."""
        moved = (updated.score_labels(self.texts, self.ranked) - self.before)[row, self.ranked[row] >= 0]
        return float(moved[place]), np.delete(moved, place)


@pytest.fixture(scope="module", params=variants("update", LONG))
def case(
    request: pytest.FixtureRequest, documents: tuple[Dataset, Dataset], tmp_path_factory: pytest.TempPathFactory
) -> Case:
    train, test = documents
    return Case(fitted(request.param, train, tmp_path_factory.mktemp("members")), test.text().to_pylist()[:2])


class TestOneDecision:
    def test_an_accepted_label_rises_and_the_others_stay(self, case: Case) -> None:
        place = 3
        updated = copy.copy(case.model).update([case.texts[0]], [[case.key(0, place)]], complete=False)
        own, others = case.change(updated, 0, place)
        assert own > 0
        assert np.median(np.abs(others)) <= 0.02

    @pytest.mark.parametrize("place", [0, 1])
    def test_a_rejected_label_falls_and_the_others_stay(self, case: Case, place: int) -> None:
        updated = copy.copy(case.model).update([case.texts[1]], [[]], rejected=[[case.key(1, place)]])
        own, others = case.change(updated, 1, place)
        assert own < 0
        assert np.median(np.abs(others)) <= 0.02
        assert len(updated.labels) == len(case.model.labels)

    def test_decisions_follow_each_other_and_survive_saving(self, case: Case, tmp_path: Path) -> None:
        model = copy.copy(case.model)
        model.update([case.texts[0]], [[case.key(0, 3)]], complete=False)
        model.update([case.texts[1]], [[]], rejected=[[case.key(1, 0)]])
        model.save(tmp_path / "model")
        saved = type(model).load(tmp_path / "model")
        assert case.change(saved, 0, 3)[0] > 0
        assert case.change(saved, 1, 0)[0] < 0
        saved.update([case.texts[1]], [[]], rejected=[[case.key(1, 1)]])
        assert case.change(saved, 1, 1)[0] < 0


def half_decided(train: Dataset) -> Dataset:
    """Half of the documents have decisions on half of all labels, and thus lack half of their own ones."""
    random = np.random.default_rng(0)
    assert train.labels is not None
    partial, right = random.random(len(train)) < 0.5, train.labels.toarray() > 0
    decided = (random.random(right.shape) < 0.5) & partial[:, None]
    labels = sp.csr_array((right & (decided | ~partial[:, None])).astype(np.float32))
    rejected = sp.csr_array((~right & decided).astype(np.float32))
    return replace(train, labels=labels, rejected=rejected, partial=partial)


@pytest.mark.parametrize(
    "title", [param for param in variants("score_labels", LONG_FIT) if "consensus" not in str(param)]
)
def test_hidden_labels_are_not_learnt_as_wrong(title: str, documents: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    train, test = documents
    known = half_decided(train)
    scores, quality = [], []
    for given in (train, known, replace(known, rejected=None, partial=None)):
        model = fitted(title, given, tmp_path, **LONGER.get(title, {}))
        truth, _ = align_labels(test, model.labels)
        every = np.tile(np.arange(truth.shape[1]), (len(test), 1))
        right = np.maximum(model.score_labels(test, every)[truth.toarray() > 0], 0.0)
        scores.append(float(right.mean()))
        quality.append(ndcg(model.predict(test, 5), truth, 5))
    assert scores[1] - scores[2] > 0.3 * (scores[0] - scores[2]) > 0
    assert quality[1] > quality[2] - 0.02
