"""Regressions through sparse products against dense solutions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.linear.low_rank import (
    Factors,
    Imputed,
    Penalty,
    TwoWays,
    best_products,
    feature_factors,
    known_objective,
    label_factors,
    likelihoods,
    multiply,
    objective,
    ridge,
    unit_length,
)


def sparse(rows: int, columns: int, seed: int, density: float = 0.2) -> sp.csr_array:
    random = np.random.default_rng(seed)
    dense = random.standard_normal((rows, columns)) * (random.random((rows, columns)) < density)
    return sp.csr_array(dense.astype(np.float32))


def binary(rows: int, columns: int, seed: int) -> sp.csr_array:
    return sp.csr_array((np.random.default_rng(seed).random((rows, columns)) < 0.1).astype(np.float32))


class TestProducts:
    def test_equals_the_dense_product(self) -> None:
        matrix, dense = sparse(2500, 40, 0), np.random.default_rng(1).standard_normal((40, 7)).astype(np.float32)
        np.testing.assert_allclose(multiply(matrix, dense), matrix.toarray() @ dense, atol=1e-5)

    def test_threads_and_parts_do_not_matter(self) -> None:
        matrix, dense = sparse(2500, 40, 0), np.random.default_rng(1).standard_normal((40, 7)).astype(np.float32)
        whole = multiply(matrix, dense)
        assert (multiply(matrix, dense, threads=2) == whole).all()
        assert (multiply(matrix[[1700]], dense) == whole[1700]).all()

    def test_unit_length(self) -> None:
        found = unit_length(np.array([[3, 4], [0, 0]], dtype=np.float32))
        np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0]], atol=1e-7)


class TestRidge:
    def test_equals_the_dense_solution(self) -> None:
        matrix, right = sparse(60, 25, 2), np.random.default_rng(3).standard_normal((25, 4)).astype(np.float32)
        scales = np.array([1.0, 0.1, 30.0, 0.0])
        found = ridge(TwoWays.of(matrix), right, 0.7, scales=scales, steps=60)
        dense = matrix.toarray().astype(np.float64)
        for column, scale in enumerate(scales):
            exact = np.linalg.solve(scale * dense.T @ dense + 0.7 * np.eye(25), right[:, column])
            np.testing.assert_allclose(found[:, column], exact, rtol=1e-3, atol=1e-4)

    def test_every_step_comes_nearer(self) -> None:
        """½ wᵀAw − bᵀw falls with the steps, from a start that is not zero."""
        matrix, random = sparse(60, 25, 2), np.random.default_rng(4)
        right, start = (random.standard_normal((25, 3)).astype(np.float32) for _ in range(2))
        dense = matrix.toarray().astype(np.float64)
        system = dense.T @ dense + 0.1 * np.eye(25)

        def value(found: np.ndarray) -> np.ndarray:
            return np.einsum("dr,dr->r", found, system @ found / 2 - right)

        values = [value(ridge(TwoWays.of(matrix), right, 0.1, start=start, steps=steps)) for steps in range(8)]
        assert (np.diff(values, axis=0) < 0).all()
        assert (ridge(TwoWays.of(matrix), right, 0.1, start=start, steps=0) == start).all()


@pytest.mark.parametrize("on_map", [False, True])
class TestAlternation:
    def test_label_factors_are_the_best(self, on_map: bool) -> None:
        """No gradient is left, and the objective is what a dense computation gives."""
        rows, labels, penalty = sparse(80, 30, 5), binary(80, 12, 6), Penalty(0.5, on_map)
        features = np.random.default_rng(7).standard_normal((30, 5)).astype(np.float32)
        embedded = multiply(rows, features)
        factors = label_factors(embedded, features, TwoWays.of(labels), penalty)
        dense, target = embedded.astype(np.float64), labels.toarray().astype(np.float64)
        inner = features.T.astype(np.float64) @ features if on_map else np.eye(5)
        left = (dense @ factors.labels.T - target).T @ dense + 0.5 * factors.labels @ inner
        assert np.abs(left).max() < 1e-3
        error = ((dense @ factors.labels.T - target) ** 2).sum()
        weights = features @ factors.labels.T if on_map else np.concatenate([*factors])
        expected = error + 0.5 * (weights.astype(np.float64) ** 2).sum()
        assert objective(embedded, factors, TwoWays.of(labels), penalty) == pytest.approx(expected, rel=1e-4)

    def test_feature_factors_are_the_best(self, on_map: bool) -> None:
        rows, labels = TwoWays.of(sparse(80, 30, 5)), TwoWays.of(binary(80, 12, 6))
        random = np.random.default_rng(8)
        start = Factors(
            random.standard_normal((30, 5)).astype(np.float32), random.standard_normal((12, 5)).astype(np.float32)
        )
        found = feature_factors(rows, labels, start, Penalty(0.5, on_map), 100)
        dense, target = rows.rows.toarray().astype(np.float64), labels.rows.toarray()
        held = found.labels.astype(np.float64)
        inner = held.T @ held if on_map else np.eye(5)
        left = dense.T @ (dense @ found.features @ held.T - target) @ held + 0.5 * found.features @ inner
        assert np.abs(left).max() < 2e-3
        gram = held.T @ held  # turned so that the columns are orthogonal; they span what they spanned before
        assert np.abs(gram - np.diag(gram.diagonal())).max() < 1e-4
        spanned = start.labels @ np.linalg.lstsq(start.labels, held, rcond=None)[0]
        np.testing.assert_allclose(spanned, held, atol=1e-4)

    def test_the_objective_never_rises(self, on_map: bool) -> None:
        rows, labels, penalty = TwoWays.of(sparse(300, 50, 9)), TwoWays.of(binary(300, 40, 10)), Penalty(0.3, on_map)
        random = np.random.default_rng(11)
        factors = Factors(np.zeros((50, 8), np.float32), random.standard_normal((40, 8)).astype(np.float32))
        values = []
        for _ in range(12):
            factors = feature_factors(rows, labels, factors, penalty, 2)
            embedded = multiply(rows.rows, factors.features)
            values.append(objective(embedded, factors, labels, penalty))
            factors = label_factors(embedded, factors.features, labels, penalty)
            values.append(objective(embedded, factors, labels, penalty))
        assert (np.diff(values) <= 1e-5 * values[0]).all()
        assert values[-1] < values[1]

    def test_a_planted_map_of_low_rank_is_found(self, on_map: bool) -> None:
        random = np.random.default_rng(12)
        rows = sparse(400, 20, 13, density=0.5)
        planted = random.standard_normal((20, 3)) @ random.standard_normal((3, 15))
        labels = TwoWays.of(sp.csr_array((rows.toarray() @ planted).astype(np.float32)))
        factors = Factors(np.zeros((20, 3), np.float32), random.standard_normal((15, 3)).astype(np.float32))
        both, penalty = TwoWays.of(rows), Penalty(1e-3, on_map)
        for _ in range(30):
            factors = feature_factors(both, labels, factors, penalty, 20)
            factors = label_factors(multiply(rows, factors.features), factors.features, labels, penalty)
        np.testing.assert_allclose(factors.features @ factors.labels.T, planted, atol=0.02)


class TestAnswers:
    def test_best_products(self) -> None:
        random = np.random.default_rng(14)
        documents, labels = random.standard_normal((130, 6)), random.standard_normal((6, 40))
        documents, labels = np.round(documents, 1).astype(np.float32), np.round(labels).astype(np.float32)
        labels[:, 20:] = labels[:, :20]  # ties
        found, given = best_products(documents, labels, 7)
        scores = (documents.astype(np.float64) @ labels).astype(np.float32)
        for row in range(130):
            np.testing.assert_allclose(given[row], np.sort(scores[row])[::-1][:7], atol=1e-5)
            same = given[row][1:] == given[row][:-1]
            assert (np.diff(found[row])[same] > 0).all()
        assert (found[:, 0] < 20).all()
        again = best_products(documents, labels, 7, threads=2)
        assert (again[0] == found).all()
        assert (again[1] == given).all()

    def test_allowed_and_pads(self) -> None:
        labels = np.array([[3.0, 2.0, 1.0]], dtype=np.float32)
        found, given = best_products(
            np.ones((1, 1), np.float32), labels, 3, np.array([False, True, True]), logistic=False
        )
        assert found.tolist() == [[1, 2, -1]]
        assert given.tolist() == [[2.0, 1.0, -np.inf]]

    def test_likelihoods_touch_the_estimate_at_one_half(self) -> None:
        documents, labels = np.ones((1, 1), np.float32), np.array([[0.5, 0.51, 0.0]], dtype=np.float32)
        found = likelihoods(documents, labels, np.array([[0, 1, 2, -1]]))
        np.testing.assert_allclose(found, [[0.5, 0.51, 1 / (1 + np.exp(2)), 0.0]], atol=1e-5)
        ranked, given = best_products(documents, labels, 3, logistic=True)
        assert ranked.tolist() == [[1, 0, 2]]
        assert (given[0] == found[0, ranked[0]]).all()


@pytest.mark.parametrize("on_map", [False, True])
def test_unknown_labels_have_no_influence(on_map: bool) -> None:
    """Estimates in place of unknown labels lead to the optimum over the known ones."""
    rows, truth, penalty = TwoWays.of(sparse(120, 20, 1)), binary(120, 15, 2), Penalty(0.3, on_map)
    random = np.random.default_rng(3)
    partial = random.random(120) < 0.6
    decided = sp.csr_array(((random.random((120, 15)) < 0.5) & partial[:, None]).astype(np.float32))
    labels = sp.csr_array(truth.multiply(np.where(partial[:, None], decided.toarray(), 1)).astype(np.float32))
    factors = Factors(np.zeros((20, 4), np.float32), random.standard_normal((15, 4)).astype(np.float32))
    values = []
    for _ in range(200):
        embedded = multiply(rows.rows, factors.features)
        target = Imputed.of(labels, decided, partial, embedded, factors.labels)
        factors = feature_factors(rows, target, factors, penalty, 5)
        embedded = multiply(rows.rows, factors.features)
        factors = label_factors(embedded, factors.features, target, penalty)
        values.append(known_objective(embedded, factors, labels, (partial, decided), penalty))
    assert (np.diff(values) <= 1e-5 * values[0]).all()
    known = np.where(partial[:, None], decided.toarray(), 1)
    estimate = (embedded @ factors.labels.T).astype(np.float64)
    error = (known * (labels.toarray() - estimate) ** 2).sum()
    assert values[-1] == pytest.approx(error + penalty.of(factors), rel=1e-4)
    inner = factors.features.T.astype(np.float64) @ factors.features if on_map else np.eye(4)
    left = (known * (estimate - labels.toarray())).T @ embedded + 0.3 * factors.labels @ inner
    assert np.abs(left).max() < 0.02
