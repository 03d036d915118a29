"""The solver against liblinear, against scikit-learn's logistic regression, and against the optimum itself."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.solver import above_the_optimum, objective, planted_signs, solved, with_ones
from xmtc.data.dataset import Csr
from xmtc.linear.solver import row_squares
from xmtc.text.features import unit_rows


def unit_matrix(count: int, width: int, density: float, seed: int) -> Csr:
    chance = np.random.default_rng(seed)
    matrix = sp.random_array(
        (count, width), density=density, rng=chance, format="csr", data_sampler=lambda size: chance.normal(size=size)
    )
    return unit_rows(sp.csr_array(matrix, dtype=np.float32))


class TestAgainstPeers:
    @pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
    def test_squared_hinge_reaches_liblinear_s_objective(self, cost: float) -> None:
        peer = pytest.importorskip("sklearn.svm")
        rows = unit_matrix(400, 80, 0.1, 3)
        signs = planted_signs(rows, 50, 4)
        ours = objective(rows, signs, solved(rows, signs, "squared_hinge", cost), "squared_hinge", cost)
        for label in range(50):
            fitted = peer.LinearSVC(C=cost, tol=1e-4, dual=True, intercept_scaling=1, max_iter=100_000)
            fitted.fit(rows, signs[:, label])
            theirs = np.append(fitted.coef_[0], fitted.intercept_)[:, None]
            best = objective(rows, signs[:, [label]], theirs, "squared_hinge", cost)[0]
            assert ours[label] == pytest.approx(best, rel=1e-3)

    @pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
    def test_logistic_reaches_the_objective_of_scikit_learn(self, cost: float) -> None:
        peer = pytest.importorskip("sklearn.linear_model")
        rows = unit_matrix(400, 80, 0.1, 5)
        signs = planted_signs(rows, 50, 6)
        ours = objective(rows, signs, solved(rows, signs, "logistic", cost), "logistic", cost)
        for label in range(50):
            fitted = peer.LogisticRegression(C=cost, fit_intercept=False, tol=1e-8, solver="newton-cholesky")
            fitted.fit(with_ones(rows), signs[:, label])
            best = objective(rows, signs[:, [label]], fitted.coef_.T, "logistic", cost)[0]
            assert ours[label] == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
class TestOptimum:
    @pytest.mark.parametrize("labels", [1, 3, 15, 16, 17])
    def test_any_number_of_labels(self, loss: str, labels: int) -> None:
        rows = unit_matrix(200, 60, 0.1, 7)
        signs = planted_signs(rows, labels, 8)
        for cost in (0.1, 10.0):
            assert above_the_optimum(rows, signs, solved(rows, signs, loss, cost), loss, cost).max() < 1e-3

    def test_labels_that_all_or_no_documents_have(self, loss: str) -> None:
        rows = unit_matrix(200, 60, 0.1, 9)
        signs = planted_signs(rows, 5, 10)
        signs[:, 1], signs[:, 3] = 1, -1
        weights = solved(rows, signs, loss, 1.0)
        assert above_the_optimum(rows, signs, weights, loss, 1.0).max() < 1e-3
        margins = with_ones(rows) @ weights
        assert (margins[:, 1] > 0.5).all()
        assert (margins[:, 3] < -0.5).all()

    def test_rows_without_features(self, loss: str) -> None:
        rows = unit_matrix(200, 60, 0.1, 11).toarray()
        rows[::3] = 0
        signs = planted_signs(sp.csr_array(rows), 20, 12)
        weights = solved(sp.csr_array(rows), signs, loss, 1.0)
        assert above_the_optimum(sp.csr_array(rows), signs, weights, loss, 1.0).max() < 1e-3

    def test_dense_rows(self, loss: str) -> None:
        rows = unit_matrix(150, 40, 1.0, 13)
        signs = planted_signs(rows, 20, 14)
        assert above_the_optimum(rows, signs, solved(rows, signs, loss, 1.0), loss, 1.0).max() < 1e-3

    def test_rows_that_are_not_unit_vectors(self, loss: str) -> None:
        rows = unit_matrix(150, 40, 0.2, 15)
        rows.data *= np.repeat(np.random.default_rng(0).uniform(0.1, 10, 150), np.diff(rows.indptr)).astype(np.float32)
        signs = planted_signs(rows, 20, 16)
        assert above_the_optimum(rows, signs, solved(rows, signs, loss, 1.0), loss, 1.0).max() < 1e-3

    def test_no_documents_no_features(self, loss: str) -> None:
        for shape in ((0, 5), (0, 0), (4, 0)):
            rows = sp.csr_array(shape, dtype=np.float32)
            signs = np.ones((shape[0], 2), dtype=np.int8)
            weights = solved(rows, signs, loss, 1.0)
            assert weights.shape == (shape[1] + 1, 2)
            assert np.isfinite(weights).all()
            assert (weights[:-1] == 0).all()
            assert (weights[-1] == 0).all() == (shape[0] == 0)

    def test_a_looser_tolerance_and_fewer_passes_stop_earlier(self, loss: str) -> None:
        rows = unit_matrix(300, 60, 0.1, 17)
        signs = planted_signs(rows, 16, 18)
        costs = [
            objective(rows, signs, solved(rows, signs, loss, 10.0, **settings), loss, 10.0).sum()
            for settings in ({}, {"tolerance": 1.0}, {"passes": 1})
        ]
        assert costs[0] < min(costs[1:])

    def test_the_same_seed_gives_the_same_bits(self, loss: str) -> None:
        rows = unit_matrix(300, 60, 0.1, 19)
        signs = planted_signs(rows, 16, 20)
        first, again, other = (solved(rows, signs, loss, 1.0, seed=seed, tolerance=0.1) for seed in (5, 5, 6))
        assert (first == again).all()
        assert (first != other).any()

    def test_repeated_labels_and_mirrored_ones(self, loss: str) -> None:
        """Lanes know nothing of each other: equal labels get equal weights, the opposite label the opposite weights."""
        rows = unit_matrix(200, 60, 0.1, 21)
        label = planted_signs(rows, 1, 22)
        weights = solved(rows, np.hstack([label, -label, label]), loss, 1.0, tolerance=0.1)
        assert (weights[:, 0] == weights[:, 2]).all()
        np.testing.assert_allclose(weights[:, 0], -weights[:, 1], atol=1e-6)


def by_plain_descent(rows: Csr, signs: np.ndarray, cost: float, passes: int) -> np.ndarray:
    """(D + 1, labels) weights by dual coordinate descent that visits every row in every pass, the bias last."""
    inputs = with_ones(rows).toarray()
    weights, alpha = np.zeros((inputs.shape[1], signs.shape[1])), np.zeros(signs.shape)
    chance = np.random.default_rng(0)
    for _ in range(passes):
        for row in chance.permutation(len(inputs)):
            gradient = signs[row] * (inputs[row] @ weights) - 1 + alpha[row] / (2 * cost)
            after = np.maximum(alpha[row] - gradient / (inputs[row] @ inputs[row] + 0.5 / cost), 0)
            weights += np.outer(inputs[row], (after - alpha[row]) * signs[row])
            alpha[row] = after
    return weights


def test_skipped_rows_do_not_move_the_optimum() -> None:
    """Rare labels, so that most rows are skipped most of the time: few passes come as close as many full ones."""
    rows = unit_matrix(2000, 150, 0.08, 31)
    chance = np.random.default_rng(32)
    margins = rows @ chance.normal(size=(150, 16))
    signs = np.where(margins > np.quantile(margins, 0.99, axis=0), 1, -1).astype(np.int8)
    best = objective(rows, signs, by_plain_descent(rows, signs, 1.0, 60), "squared_hinge", 1.0)
    found = objective(rows, signs, solved(rows, signs, "squared_hinge", 1.0), "squared_hinge", 1.0)
    np.testing.assert_allclose(found, best, rtol=1e-3)
    quick = solved(rows, signs, "squared_hinge", 1.0, tolerance=0.05, passes=12)
    assert (objective(rows, signs, quick, "squared_hinge", 1.0) < 1.1 * best).all()


def test_bias_by_hand() -> None:
    """Without features, ½b² + C (p (1 − b)² + q (1 + b)²) is least at b = 2C (p − q) / (1 + 2C (p + q))."""
    rows = sp.csr_array((10, 3), dtype=np.float32)
    signs = np.where(np.arange(10) < 7, 1, -1).astype(np.int8)[:, None]
    for cost in (0.1, 1.0, 10.0):
        weights = solved(rows, signs, "squared_hinge", cost, tolerance=1e-5)
        assert weights[-1, 0] == pytest.approx(2 * cost * 4 / (1 + 2 * cost * 10), abs=1e-4)


def test_squares_count_the_bias() -> None:
    rows = sp.csr_array(np.array([[3, 4, 0], [0, 0, 0], [0, 0, 2]], dtype=np.float32))
    assert row_squares(rows.indptr.astype(np.int64), rows.data).tolist() == [26, 1, 5]


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_a_row_has_no_influence_on_labels_that_are_unknown_for_it(loss: str) -> None:
    """Each label has the optimum over the rows for which it is known."""
    rows = unit_matrix(300, 40, 0.2, 7)
    signs = planted_signs(rows, 20, 8)
    hidden = np.random.default_rng(9).random(signs.shape) < 0.4
    found = solved(rows, np.where(hidden, 0, signs).astype(np.int8), loss, 1.0)
    for label in range(20):
        known = np.flatnonzero(~hidden[:, label])
        own = signs[known][:, [label]]
        best = objective(rows[known], own, solved(rows[known], own, loss, 1.0), loss, 1.0)
        assert objective(rows[known], own, found[:, [label]], loss, 1.0)[0] == pytest.approx(best[0], rel=1e-3)
    nothing = solved(rows, np.zeros_like(signs), loss, 1.0)
    np.testing.assert_array_equal(nothing, np.zeros_like(nothing))


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_a_row_of_importance_two_is_two_rows(loss: str) -> None:
    rows = unit_matrix(150, 40, 0.2, 17)
    signs = planted_signs(rows, 20, 18)
    importance = np.random.default_rng(19).integers(1, 4, len(signs)).astype(np.float32)
    again = np.repeat(np.arange(len(signs)), importance.astype(int))
    copied, own = rows[again], signs[again]
    found = solved(rows, signs, loss, 0.5, importance=importance)
    best = objective(copied, own, solved(copied, own, loss, 0.5), loss, 0.5)
    np.testing.assert_allclose(objective(copied, own, found, loss, 0.5), best, rtol=1e-3)
    plain = solved(rows, signs, loss, 0.5)
    assert (objective(copied, own, plain, loss, 0.5) > best * 1.01).all()
    np.testing.assert_array_equal(solved(rows, signs, loss, 0.5, importance=np.ones(150, np.float32)), plain)
