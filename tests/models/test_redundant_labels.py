"""`Model.predict(hierarchy=…)`: equal to the definition applied to the full ranking, however deep it has to go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.hierarchies import all_above, irredundant
from tests.support.models import planted_split
from xmtc.core.errors import ConfigError, DataError
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.models.base import Model
from xmtc.models.one_vs_all import OneVsAll
from xmtc.models.popularity import Popularity

HOW = ("narrowest", "broadest")


@pytest.fixture(scope="module")
def split() -> tuple[Dataset, list[str]]:
    """Documents whose labels form a tree in which every label has three children, and texts."""
    train, test, *_ = planted_split(300, 40, labels=40, seed=2)
    assert train.label_index is not None
    keys = train.label_index.keys
    parents = [[keys[(number - 1) // 3]] if number else [] for number in range(len(keys))]
    return replace(train, label_index=LabelIndex.from_keys(keys, parents=parents)), list(test.text().to_pylist())


@pytest.fixture(scope="module")
def model(split: tuple[Dataset, list[str]]) -> Model:
    return OneVsAll().fit(split[0])


def expected(model: Model, texts: list[str], how: Any, k: int, **restriction: Any) -> list[list[str]]:
    full = model.predict(texts, len(model.labels), **restriction)
    return [model.labels.strings("key", found) for found in reduced(full, how, k)]


def reduced(top: TopK, how: Any, k: int) -> list[list[int]]:
    """The definition, applied to each document."""
    above, filled = all_above(top.index), top.labels >= 0
    rows = zip(top.labels, top.scores, filled, strict=True)
    return [irredundant(above, row[has].tolist(), scores[has].tolist(), how, k) for row, scores, has in rows]


@pytest.mark.parametrize("how", HOW)
def test_equals_the_filtered_ranking(model: Model, split: tuple[Dataset, list[str]], how: Any) -> None:
    texts = split[1]
    for k in (1, 5, 30):
        answer = model.predict(texts, k, hierarchy=how)
        assert answer.keys() == expected(model, texts, how, k)
        scores = model.score_labels(texts, answer.labels)
        assert np.array_equal(scores[answer.labels >= 0], answer.scores[answer.labels >= 0])
    allow = model.labels.keys[:20]
    assert model.predict(texts, 8, hierarchy=how, allow=allow).keys() == expected(model, texts, how, 8, allow=allow)
    given = [model.labels.keys[row % 10 : row % 10 + 12] for row in range(len(texts))]
    restricted = model.predict(texts, 4, hierarchy=how, candidates=given)
    assert restricted.keys() == expected(model, texts, how, 4, candidates=given)


@pytest.mark.parametrize("how", HOW)
def test_calibrated_scores_decide(split: tuple[Dataset, list[str]], how: Any) -> None:
    train, texts = split
    model = OneVsAll().fit(train).calibrate(train, threshold=None)
    assert model.predict(texts, 5, hierarchy=how).keys() == expected(model, texts, how, 5)


@pytest.mark.parametrize("how", HOW)
def test_sets(model: Model, split: tuple[Dataset, list[str]], how: Any) -> None:
    texts = split[1]
    sets = model.predict(texts, threshold=0.02)
    for k in (None, 2):
        wanted = reduced(sets, how, k or 99)
        found = model.predict(texts, k, threshold=0.02, hierarchy=how).labels
        assert [row[row >= 0].tolist() for row in found] == wanted


def test_only_the_documents_that_need_it_are_ranked_deeper(split: tuple[Dataset, list[str]]) -> None:
    """All labels are below the most frequent one: the broadest is one label, however deep the ranking."""
    train, texts = split
    assert train.labels is not None
    assert train.label_index is not None
    keys, first = train.label_index.keys, int(np.bincount(train.labels.indices).argmax())
    train = replace(train, label_index=LabelIndex.from_keys(keys, parents=[[keys[first]]] * len(keys)))
    asked: list[tuple[int, int]] = []

    class Watched(Popularity):
        def _predict(self, batch: Dataset, k: int, allowed: Any) -> Any:
            asked.append((len(batch), k))
            return super()._predict(batch, k, allowed)

    model = Watched().fit(train)
    assert model.predict(texts, 3, hierarchy="broadest").keys() == [[keys[first]]] * len(texts)
    assert asked == [(len(texts), depth) for depth in (6, 12, 24, 40)]
    asked.clear()
    model.predict(texts, 1, hierarchy="narrowest")
    assert asked == [(len(texts), 2)]


def test_mistakes(model: Model, split: tuple[Dataset, list[str]]) -> None:
    with pytest.raises(ConfigError, match=r"'hierarchy' must be keep, narrowest or broadest\. Got 'narrow'"):
        model.predict(["x"], hierarchy="narrow")  # type: ignore[arg-type]
    flat = Popularity().fit(["a", "b"], [["x"], ["y"]])
    with pytest.raises(DataError, match="no label of the model has a broader label"):
        flat.predict(["x"], hierarchy="narrowest")
