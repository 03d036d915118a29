"""Boosted trees: known splits, another implementation as the judge, and what must not change the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.cancellation import Cancellation, Cancelled
from xmtc.core.errors import ConfigError, DataError, ModelFormatError
from xmtc.core.progress import Silent
from xmtc.lexical.boosted_trees import BoostedTrees, BoostingSettings
from xmtc.lexical.tree_training import bin_edges

NAN = float("nan")
FEW = BoostingSettings(trees=30, min_rows=5)


def planted(count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Eight features, of which five matter: a wave, a product, a step, whether the value is missing."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((count, 8)).astype(np.float32)
    rows[random.random(count) < 0.3, 4] = NAN
    rows[:, 5] = np.round(rows[:, 5])
    odds = 2 * np.sin(2 * rows[:, 0]) + rows[:, 1] * rows[:, 2] + 2 * (rows[:, 3] > 0.5) + 1.5 * np.isnan(rows[:, 4])
    return rows, random.random(count) < share(odds - 1.5)


def share(margins: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-margins.astype(np.float64))))


def restored(arrays: dict[str, NDArray[Any]], features: int) -> BoostedTrees:
    return BoostedTrees.restored(SavedState(State(arrays=arrays)), features)


ROWS, TARGETS = planted(8000, seed=1)
OTHER_ROWS, OTHER_TARGETS = planted(8000, seed=2)


@pytest.fixture(scope="module")
def trees() -> BoostedTrees:
    return BoostedTrees.fit(ROWS, TARGETS, settings=FEW)


def test_as_good_as_scikit_learn() -> None:
    """On rows that neither has seen, with the same settings."""
    settings = BoostingSettings(trees=60, max_leaves=16, l2=1.0)
    ours = share(BoostedTrees.fit(ROWS, TARGETS, settings=settings).margins(OTHER_ROWS))
    theirs = HistGradientBoostingClassifier(
        max_iter=60, max_leaf_nodes=16, l2_regularization=1.0, max_bins=63, early_stopping=False
    )
    theirs.fit(ROWS, TARGETS)
    expected = log_loss(OTHER_TARGETS, theirs.predict_proba(OTHER_ROWS)[:, 1])
    assert log_loss(OTHER_TARGETS, ours) < 1.02 * expected
    assert expected < 0.8 * log_loss(OTHER_TARGETS, np.full(8000, TARGETS.mean()))


def test_best_split_of_a_table() -> None:
    """One tree of two leaves: threshold, missing values, and Newton steps that can be computed by hand."""
    first = np.array([1, 2, 3, 4, 5, NAN, 7, 8], dtype=np.float32)
    second = np.array([1, 0, 1, 0, 1, 0, 1, 0], dtype=np.float32)
    rows, targets = np.stack([second, first], axis=1), np.array([0, 0, 0, 1, 1, 1, 1, 1])
    settings = BoostingSettings(trees=1, max_leaves=2, min_rows=1, l2=0.5, learning_rate=0.5)
    made = BoostedTrees.fit(rows, targets, settings=settings)
    assert made.splits.feature.tolist() == [1]
    assert made.edges[1, made.splits.threshold[0] - 1] == 3.5
    assert made.splits.missing_right.tolist() == [1]
    base, hessian = np.log(5 / 3), 5 / 8 * 3 / 8
    low = base + 0.5 * (-3 * 5 / 8) / (3 * hessian + 0.5)
    high = base + 0.5 * (5 * 3 / 8) / (5 * hessian + 0.5)
    given = np.array([[9, 3.4], [9, 3.6], [9, NAN], [NAN, -np.inf], [0, np.inf]], dtype=np.float32)
    np.testing.assert_allclose(made.margins(given), [low, high, high, low, high], atol=1e-4)


def test_missing_values_pass_to_the_better_side() -> None:
    values = np.array([0, 0, 1, 1, NAN, NAN] * 10, dtype=np.float32)[:, None]
    settings = BoostingSettings(trees=1, max_leaves=2, min_rows=1)
    for missing_as in (0, 1):
        targets = np.where(np.isnan(values[:, 0]), missing_as, values[:, 0])
        margins = BoostedTrees.fit(values, targets, settings=settings).margins(
            np.array([[0], [1], [NAN]], dtype=np.float32)
        )
        assert margins[2] == margins[missing_as] != margins[1 - missing_as]
    only_missing = BoostedTrees.fit(values, np.isnan(values[:, 0]), settings=settings)
    margins = only_missing.margins(np.array([[0], [1], [NAN]], dtype=np.float32))
    assert margins[2] > margins[0] == margins[1]


def test_unseen_missing_values_pass_with_most_rows() -> None:
    values = np.array([0] * 5 + [1] * 15, dtype=np.float32)[:, None]
    settings = BoostingSettings(trees=1, max_leaves=2, min_rows=1)
    margins = BoostedTrees.fit(values, values[:, 0], settings=settings).margins(
        np.array([[0], [1], [NAN]], dtype=np.float32)
    )
    assert margins[2] == margins[1] > margins[0]


def test_threads_do_not_change_the_trees(monkeypatch: pytest.MonkeyPatch, trees: BoostedTrees) -> None:
    """Pieces as small as those of a large data set in relation to its rows; other seeds give other trees."""
    monkeypatch.setattr("xmtc.lexical.tree_training.PIECE", 100)
    for threads in (2, 3):
        same = BoostedTrees.fit(ROWS, TARGETS, settings=FEW, threads=threads)
        for name, array in trees.state().items():
            np.testing.assert_array_equal(same.state()[name], array, err_msg=name)
        np.testing.assert_array_equal(same.margins(OTHER_ROWS, threads), trees.margins(OTHER_ROWS))
    other = BoostedTrees.fit(ROWS, TARGETS, settings=FEW, seed=1)
    assert (other.margins(OTHER_ROWS) != trees.margins(OTHER_ROWS)).any()


def test_rows_do_not_influence_each_other(trees: BoostedTrees) -> None:
    whole = trees.margins(OTHER_ROWS[:1500])
    for start, stop in ((0, 1), (3, 700), (511, 1025)):
        np.testing.assert_array_equal(trees.margins(OTHER_ROWS[start:stop]), whole[start:stop])
    assert len(trees.margins(OTHER_ROWS[:0])) == 0


def test_contributions_add_up(trees: BoostedTrees) -> None:
    found = np.array([trees.contributions(row) for row in OTHER_ROWS[:200]])
    np.testing.assert_allclose(found.sum(axis=1) + trees.bias, trees.margins(OTHER_ROWS[:200]), atol=1e-5)
    sizes = np.abs(found).mean(axis=0)
    assert sizes[[0, 1, 2, 3, 4]].min() > 3 * sizes[[5, 6, 7]].max()
    is_missing = np.isnan(OTHER_ROWS[:200, 4])
    assert found[is_missing, 4].min() > 0.1
    assert found[~is_missing, 4].mean() < -0.2


def test_weights_are_repetitions() -> None:
    """Up to the rounding of gradients; rows of weight 0 might as well be absent."""
    rows, weights = np.round(ROWS * 4) / 4, np.arange(len(ROWS)) % 4
    settings = BoostingSettings(trees=5, max_leaves=6, min_rows=1)
    weighted = BoostedTrees.fit(rows, TARGETS, weights, settings=settings)
    repeated = BoostedTrees.fit(rows.repeat(weights, 0), TARGETS.repeat(weights), settings=settings)
    plain = BoostedTrees.fit(rows, TARGETS, settings=settings)
    np.testing.assert_allclose(weighted.base, repeated.base, rtol=1e-6)
    ours, theirs, without = (each.margins(OTHER_ROWS) for each in (weighted, repeated, plain))
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
    assert np.abs(ours - without).mean() > 0.02
    kept = BoostedTrees.fit(rows[weights > 0], TARGETS[weights > 0], weights[weights > 0], settings=settings)
    np.testing.assert_array_equal(kept.margins(OTHER_ROWS), ours)


def test_early_stopping_keeps_the_best_trees() -> None:
    few_rows, few_targets = ROWS[:600], TARGETS[:600]
    settings = BoostingSettings(trees=200, min_rows=5, patience=5)
    stopped = BoostedTrees.fit(few_rows, few_targets, settings=settings, valid=(OTHER_ROWS, OTHER_TARGETS))
    assert 5 < stopped.trees < 100
    losses = {}
    for count in (stopped.trees - 3, stopped.trees, stopped.trees + 3):
        some = BoostedTrees.fit(few_rows, few_targets, settings=BoostingSettings(trees=count, min_rows=5))
        losses[count] = log_loss(OTHER_TARGETS, share(some.margins(OTHER_ROWS)))
        if count == stopped.trees:
            np.testing.assert_array_equal(some.margins(OTHER_ROWS), stopped.margins(OTHER_ROWS))
    assert min(losses, key=losses.__getitem__) == stopped.trees
    useless = BoostedTrees.fit(few_rows, few_targets, settings=settings, valid=(few_rows, ~few_targets))
    assert useless.trees == 0


def test_training_can_be_stopped() -> None:
    """Between two trees, on one thread too."""
    cancellation = Cancellation()
    trees_done = []

    class Bar(Silent):
        @contextmanager
        def task(self, title: str, total: int | None = None) -> Iterator[Any]:
            yield self

        def advance(self, steps: int = 1) -> None:
            trees_done.append(steps)
            cancellation.cancel()

    with pytest.raises(Cancelled):
        cancellation.run(lambda: BoostedTrees.fit(ROWS, TARGETS, settings=FEW, progress=Bar()))
    assert trees_done == [1]


@pytest.mark.parametrize("targets", [TARGETS[:100], np.zeros(100), np.ones(100)])
def test_nothing_to_split(targets: NDArray[Any]) -> None:
    """Constant and missing features, or one class: the margin is that of the mean."""
    rows = np.full((100, 2), 3, dtype=np.float32)
    rows[:, 1] = NAN
    if not 0 < targets.mean() < 1:
        rows = ROWS[:100, :2]
    made = BoostedTrees.fit(rows, targets, settings=BoostingSettings(trees=3, min_rows=1))
    mean = np.clip(targets.mean(), 1e-6, 1 - 1e-6)
    np.testing.assert_allclose(made.margins(rows), np.log(mean / (1 - mean)), rtol=1e-4)
    assert (made.contributions(rows[0]) == 0).all()
    again = restored(made.state(), 2)
    np.testing.assert_array_equal(again.margins(rows), made.margins(rows))


def test_limits_of_leaves() -> None:
    rows = np.arange(200, dtype=np.float32)[:, None]
    targets = rows[:, 0] < 7
    settings = {"trees": 1, "max_leaves": 32, "l2": 0.0}
    for least in (1, 10, 80):
        made = BoostedTrees.fit(rows, targets, settings=BoostingSettings(**settings, min_rows=least))
        _, counts = np.unique(made.margins(rows), return_counts=True)
        assert len(counts) > 1
        assert counts.min() >= least
    assert BoostedTrees.fit(rows, targets, settings=BoostingSettings(**settings, min_rows=101)).trees == 0
    total = targets.mean() * (1 - targets.mean()) * 200
    assert BoostedTrees.fit(rows, targets, settings=BoostingSettings(**settings, min_hessian=total)).trees == 0


def test_fraction_of_the_features() -> None:
    made = BoostedTrees.fit(ROWS, TARGETS, settings=BoostingSettings(trees=20, feature_fraction=0.25))
    bounds = zip(made.splits.tree_start[:-1], made.splits.tree_start[1:], strict=True)
    used = [set(made.splits.feature[first:last].tolist()) for first, last in bounds]
    assert max(map(len, used)) == 2
    assert set().union(*used) == set(range(8))


def test_bin_edges() -> None:
    """Few values: between any two. Many: equal counts, and a frequent value has its own bin."""
    random = np.random.default_rng(0)
    many = random.standard_normal(6300).astype(np.float32)
    mostly = np.where(random.random(6300) < 0.9, np.float32(0), many)
    close = np.where(np.arange(6300) % 2, np.nextafter(np.float32(1), np.float32(2)), np.float32(1))
    edges = bin_edges(np.stack([many, mostly, close, np.round(many)], axis=1).astype(np.float32), seed=0)
    counts = np.bincount(np.searchsorted(edges[0], many), minlength=63)
    assert 99 <= counts.min() <= counts.max() <= 101
    counts = np.bincount(np.searchsorted(edges[1], mostly), minlength=63)
    assert np.sort(counts)[1:-1].max() < 15  # 630 / 62 is 10
    assert counts.max() == np.count_nonzero(mostly == 0)
    assert edges[2, 0] == 1
    values = np.unique(np.round(many))
    np.testing.assert_array_equal(edges[3, : len(values) - 1], (values[1:] + values[:-1]) / 2)
    assert np.isinf(edges[3, len(values) - 1 :]).all()
    assert np.isinf(edges[:, -1]).all()


def test_saved_and_restored(trees: BoostedTrees) -> None:
    again = restored(trees.state(), 8)
    np.testing.assert_array_equal(again.margins(OTHER_ROWS), trees.margins(OTHER_ROWS))
    np.testing.assert_array_equal(again.contributions(OTHER_ROWS[0]), trees.contributions(OTHER_ROWS[0]))


def changed(name: str, place: int, value: float) -> Any:
    def change(arrays: dict[str, NDArray[Any]]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name].reshape(-1)[place] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("leaf", 0, 1), "'leaf' is not a sequence"),
        (changed("leaf", 29, 31), "'leaf' contains numbers"),
        (changed("feature", 3, 8), "'feature' contains"),
        (changed("feature", 3, -1), "'feature' contains"),
        (changed("threshold", 3, 0), "'threshold' contains"),
        (changed("threshold", 3, 64), "'threshold' contains"),
        (changed("missing_right", 3, 2), "'missing_right' contains"),
        (changed("left", 3, NAN), "'left' contains NaN"),
        (changed("right", 3, 2e6), "'right' contains"),
        (changed("edges", 3, NAN), "'edges' contains NaN"),
        (changed("base", 0, np.inf), "'base' contains"),
        (changed("tree_start", 1, -1), "'tree_start' does not ascend"),
        (changed("tree_start", 1, 0), "'leaf' is not a sequence"),
        (lambda arrays: arrays.pop("root"), "'root' is missing"),
        (lambda arrays: arrays.update(edges=arrays["edges"][1:]), "'edges' has shape"),
    ],
)
def test_damaged_arrays(trees: BoostedTrees, change: Any, message: str) -> None:
    arrays = trees.state()
    change(arrays)
    with pytest.raises(ModelFormatError, match=message):
        restored(arrays, 8)


def test_any_accepted_edges_are_safe(trees: BoostedTrees) -> None:
    """Edges in any order, with infinities: codes stay within their range."""
    arrays = trees.state()
    random = np.random.default_rng(0)
    arrays["edges"] = np.where(random.random((8, 62)) < 0.5, -np.inf, random.permuted(arrays["edges"], axis=1))
    arrays["edges"][0] = -np.inf
    made = restored({**arrays, "edges": arrays["edges"].astype(np.float32)}, 8)
    assert np.isfinite(made.margins(OTHER_ROWS)).all()
    np.testing.assert_allclose(
        made.contributions(OTHER_ROWS[5]).sum() + made.bias, made.margins(OTHER_ROWS[5:6])[0], atol=1e-5
    )


def test_wrong_arguments(trees: BoostedTrees) -> None:
    with pytest.raises(DataError, match="matrix with 8 features"):
        trees.margins(ROWS[:, :7])
    with pytest.raises(DataError, match="at least one feature"):
        BoostedTrees.fit(ROWS[:, :0], TARGETS)
    with pytest.raises(DataError, match="there are no rows"):
        BoostedTrees.fit(ROWS, TARGETS, valid=(ROWS[:0], TARGETS[:0]))
    with pytest.raises(DataError, match="as many targets"):
        BoostedTrees.fit(ROWS, TARGETS[1:])
    with pytest.raises(DataError, match="targets must be from 0 to 1"):
        BoostedTrees.fit(ROWS, TARGETS * 2)
    with pytest.raises(DataError, match="at least one of them positive"):
        BoostedTrees.fit(ROWS, TARGETS, TARGETS * 0)
    with pytest.raises(DataError, match="matrix with 8 features"):
        BoostedTrees.fit(ROWS, TARGETS, valid=(ROWS[:, 1:], TARGETS))
    with pytest.raises(ConfigError, match=r"'max_leaves' of boosted trees must be an integer from 2 to 32. Got 33"):
        BoostingSettings(max_leaves=33)
