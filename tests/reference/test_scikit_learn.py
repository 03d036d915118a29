"""Models keep scikit-learn's manners: clone and GridSearchCV with a P@k scorer."""

from __future__ import annotations

import pytest

from xmtc.metrics import scorer
from xmtc.models.knn import Knn
from xmtc.models.one_vs_all import OneVsAll
from xmtc.text.tfidf import TextSettings

base = pytest.importorskip("sklearn.base")
model_selection = pytest.importorskip("sklearn.model_selection")


@pytest.mark.parametrize(
    "model",
    [Knn(neighbours=7, power=2), Knn(text=TextSettings(min_df=3)), Knn(text__min_df=3), OneVsAll(cost=2)],
    ids=repr,
)
def test_clone(model: Knn | OneVsAll) -> None:
    copy = base.clone(model)
    assert copy is not model
    assert type(copy) is type(model)
    assert copy.get_params() == model.get_params()


def test_grid_search_finds_the_better_setting(planted: tuple) -> None:
    train, test, _ = planted
    texts = train.text().to_pylist()
    names = train.label_index.names
    lists = [[names[label] for label in train.labels[[row]].indices] for row in range(len(train))]
    search = model_selection.GridSearchCV(
        Knn(neighbours=1, power=1),
        {"neighbours": [1, 15], "text__min_df": [2, 150]},  # of 400 documents: next to no word is left
        scoring=scorer("P@3"),
        cv=2,
    )
    search.fit(texts, lists)
    assert search.best_params_ == {"neighbours": 15, "text__min_df": 2}
    assert search.best_score_ > 0.4
    assert search.best_estimator_.predict(test.text().to_pylist(), k=1).labels.shape == (len(test), 1)


def test_cross_validation_scores_by_precision_at_1(planted: tuple) -> None:
    train, _, _ = planted
    texts, names = train.text().to_pylist(), train.label_index.names
    lists = [[names[label] for label in train.labels[[row]].indices] for row in range(len(train))]
    model = Knn(neighbours=15)
    own = model_selection.cross_val_score(model, texts, lists, cv=2)
    by_scorer = model_selection.cross_val_score(model, texts, lists, cv=2, scoring=scorer("P@1"))
    assert own.tolist() == by_scorer.tolist()
    assert own.min() > 0.4
