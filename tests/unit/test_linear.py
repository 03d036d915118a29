"""Kernels against brute force and against scikit-learn's solver."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.linear import svm
from xmtc.linear.neighbours import InvertedIndex, vote
from xmtc.linear.select import best_of_block, best_of_columns, best_of_rows, look_up_rows, only_allowed
from xmtc.linear.svm import FeatureWeights, Problem, train_labels
from xmtc.text.features import unit_rows


def random_rows(count: int, width: int, density: float, seed: int) -> sp.csr_array:
    matrix = sp.random_array((count, width), density=density, rng=np.random.default_rng(seed), format="csr")
    return sp.csr_array(matrix, dtype=np.float32)


class TestNeighbours:
    @pytest.mark.parametrize(("documents", "count"), [(50, 5), (600, 20), (3, 10), (700, 700)])
    def test_equal_brute_force(self, documents: int, count: int) -> None:
        rows, queries = random_rows(documents, 40, 0.1, 0), random_rows(300, 40, 0.1, 1)
        found, products = InvertedIndex.build(rows).nearest(queries, count, threads=2)
        exact = (queries @ rows.T).toarray()
        for query in range(300):
            order = sorted(range(documents), key=lambda d: (-exact[query, d], d))
            expected = [d for d in order if exact[query, d] > 0][:count]
            kept = found[query][found[query] >= 0]
            assert len(kept) == len(expected)
            np.testing.assert_allclose(products[query, : len(kept)], exact[query, expected], atol=1e-6)
            assert (np.diff(products[query, : len(kept)]) <= 0).all()

    def test_ties_by_document_number(self) -> None:
        rows = sp.csr_array(np.ones((9, 1), dtype=np.float32))
        found, _ = InvertedIndex.build(rows).nearest(sp.csr_array(np.ones((1, 1), dtype=np.float32)), 4)
        assert found.tolist() == [[0, 1, 2, 3]]

    def test_votes_by_hand(self) -> None:
        labels = sp.csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]]))
        found = np.array([[0, 1, 2], [2, -1, -1]], dtype=np.int32)
        weights = np.array([[0.5, 0.25, 0.25], [1, 0, 0]], dtype=np.float32)
        indptr, columns, votes = vote(
            found, weights, labels.indptr.astype(np.int64), labels.indices.astype(np.int32), 3
        )
        assert indptr.tolist() == [0, 2, 2]
        assert columns.tolist() == [0, 1]
        assert votes.tolist() == [0.5, 0.75]


class TestSelect:
    @pytest.mark.parametrize("k", [1, 4, 30])
    def test_equal_a_sort(self, k: int) -> None:
        scores = np.random.default_rng(0).integers(0, 9, (50, 30)).astype(np.float32)  # many ties
        found, given = best_of_block(scores, k)
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        assert (found == expected).all()
        assert (given == np.take_along_axis(scores, expected, axis=1)).all()
        rows = sp.csr_array(scores + 1)  # nothing is zero: all entries are stored
        found, _ = best_of_rows(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, k)
        assert (found == expected).all()

    @pytest.mark.parametrize("k", [1, 4, 12])
    def test_some_columns_equal_a_sort_of_these(self, k: int) -> None:
        scores = np.random.default_rng(0).integers(0, 9, (50, 30)).astype(np.float32)  # many ties
        allowed = np.zeros(30, dtype=bool)
        allowed[np.random.default_rng(1).permutation(30)[:12]] = True
        columns = np.flatnonzero(allowed)
        found, given = best_of_columns(scores, columns, k)
        expected = columns[np.argsort(-scores[:, columns], axis=1, kind="stable")[:, :k]]
        assert (found == expected).all()
        assert (given == np.take_along_axis(scores, expected, axis=1)).all()
        rows = sp.csr_array(scores + 1)  # nothing is zero: all entries are stored
        filtered = only_allowed(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, allowed)
        assert filtered[0].tolist() == (12 * np.arange(51)).tolist()
        assert (best_of_rows(*filtered, k)[0] == expected).all()

    def test_short_rows_are_padded(self) -> None:
        rows = sp.csr_array(np.array([[0, 2.0, 1.0], [0, 0, 0]], dtype=np.float32))
        found, given = best_of_rows(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, 3)
        assert found.tolist() == [[1, 2, -1], [-1, -1, -1]]
        assert np.isneginf(given[1]).all()

    def test_look_up(self) -> None:
        rows = sp.csr_array(np.array([[0, 2.0, 1.0], [0, 0, 0]], dtype=np.float32))
        candidates = np.array([[2, 0, -1, 1], [0, 1, 2, 2]])
        out = look_up_rows(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, candidates)
        assert out.tolist() == [[1, 0, 0, 2], [0, 0, 0, 0]]


class TestSvm:
    def objective(self, rows: sp.csr_array, signs: np.ndarray, weights: np.ndarray, cost: float) -> float:
        """½‖w‖² + C Σ max(0, 1 − y w·x)², the bias being a weight like any other."""
        margins = signs * (rows @ weights[:-1] + weights[-1])
        return 0.5 * float(weights @ weights) + cost * float((np.maximum(0, 1 - margins) ** 2).sum())

    @pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
    def test_reaches_liblinear_s_objective(self, cost: float) -> None:
        judge = pytest.importorskip("sklearn.svm")
        rows = unit_rows(random_rows(400, 80, 0.1, 3))
        truth = np.random.default_rng(4).normal(size=(80, 6))
        labels = sp.csr_array(((rows @ truth) > 0.5).astype(np.float32))
        problem = Problem.build(rows, labels)
        trained = train_labels(problem, range(6), cost=cost, tolerance=1e-4, passes=1000, prune=0.0, seed=0, threads=1)
        for label in range(6):
            signs = np.where(labels.toarray()[:, label] > 0, 1.0, -1.0)
            ours = np.zeros(81)
            part = slice(trained.indptr[label], trained.indptr[label + 1])
            ours[trained.features[part]] = trained.weights[part]
            ours[80] = trained.bias[label]
            liblinear = judge.LinearSVC(C=cost, tol=1e-6, max_iter=100_000).fit(rows, signs)
            theirs = np.append(liblinear.coef_[0], liblinear.intercept_)
            best = self.objective(rows, signs, theirs, cost)
            assert self.objective(rows, signs, ours, cost) <= best * 1.001

    def test_pruning_drops_small_weights_only(self) -> None:
        rows = unit_rows(random_rows(100, 30, 0.2, 3))
        labels = random_rows(100, 4, 0.3, 5)
        settings = {"cost": 1.0, "tolerance": 0.1, "passes": 20, "seed": 0, "threads": 1}
        full = train_labels(Problem.build(rows, labels), range(4), prune=0.0, **settings)
        cut = train_labels(Problem.build(rows, labels), range(4), prune=0.3, **settings)
        assert sorted(cut.weights.tolist()) == sorted(w for w in full.weights.tolist() if abs(w) >= 0.3)
        assert (cut.bias == full.bias).all()

    def test_margins_equal_a_product(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows, labels = unit_rows(random_rows(90, 30, 0.2, 3)), random_rows(90, 7, 0.3, 5)
        parts = [
            train_labels(
                Problem.build(rows, labels), part, cost=1.0, tolerance=0.1, passes=20, prune=0.05, seed=0, threads=2
            )
            for part in (range(4), range(4, 7))
        ]
        weights = FeatureWeights.assemble(parts, 30)
        dense = np.zeros((30, 7))
        for label in range(7):
            for feature, weight in weights.of_label(label).items():
                dense[feature, label] = weight
        monkeypatch.setattr(svm, "BLOCK_CELLS", 70)  # several blocks
        found = np.concatenate(list(weights.by_block(rows, 2, lambda _, margins: margins)))
        np.testing.assert_allclose(found, rows @ dense + weights.bias, atol=1e-5)

    def test_threads_do_not_matter(self) -> None:
        problem = Problem.build(unit_rows(random_rows(200, 50, 0.1, 3)), random_rows(200, 9, 0.2, 5))
        settings = {"cost": 1.0, "tolerance": 0.1, "passes": 20, "prune": 0.01, "seed": 5}
        one, two = (train_labels(problem, range(9), threads=threads, **settings) for threads in (1, 2))
        for left, right in zip(one, two, strict=True):
            assert (left == right).all()


def test_unit_rows() -> None:
    rows = unit_rows(sp.csr_array(np.array([[3, 4, 0], [0, 0, 0], [0, 0, 2], [0, 0, 0]], dtype=np.float32)))
    np.testing.assert_allclose(rows.toarray(), [[0.6, 0.8, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]], atol=1e-7)
