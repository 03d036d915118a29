"""Neighbours and the best of many scores, against brute force."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.linear.neighbours import InvertedIndex, partial_vote, vote
from xmtc.linear.top_scores import best_of_rows, look_up_rows, only_allowed
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
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        rows = sp.csr_array(scores + 1)  # nothing is zero: all entries are stored
        found, given = best_of_rows(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, k)
        assert (found == expected).all()
        assert (given == np.take_along_axis(scores + 1, expected, axis=1)).all()

    @pytest.mark.parametrize("k", [1, 4, 12])
    def test_some_columns_equal_a_sort_of_these(self, k: int) -> None:
        scores = np.random.default_rng(0).integers(0, 9, (50, 30)).astype(np.float32)  # many ties
        allowed = np.zeros(30, dtype=bool)
        allowed[np.random.default_rng(1).permutation(30)[:12]] = True
        columns = np.flatnonzero(allowed)
        expected = columns[np.argsort(-scores[:, columns], axis=1, kind="stable")[:, :k]]
        rows = sp.csr_array(scores + 1)  # nothing is zero: all entries are stored
        filtered = only_allowed(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, allowed)
        assert filtered[0].tolist() == (12 * np.arange(51)).tolist()
        found, given = best_of_rows(*filtered, k)
        assert (found == expected).all()
        assert (given == np.take_along_axis(scores + 1, expected, axis=1)).all()

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


def test_unit_rows() -> None:
    rows = unit_rows(sp.csr_array(np.array([[3, 4, 0], [0, 0, 0], [0, 0, 2], [0, 0, 0]], dtype=np.float32)))
    np.testing.assert_allclose(rows.toarray(), [[0.6, 0.8, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]], atol=1e-7)


class TestPartialVotes:
    def test_by_hand(self) -> None:
        """Two complete neighbours; a partial one accepts 1 and rejects 2, and does not know 0 and 3."""
        labels = sp.csr_array(np.array([[1, 0, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 1, 0, 1]]))
        rejected = sp.csr_array(np.array([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]))
        found = np.array([[0, 1, 2], [2, 3, -1], [0, 1, -1]], dtype=np.int32)
        weights = np.array([[1, 3, 4], [1, 3, 0], [1, 3, 0]], dtype=np.float32)
        matrices = [array for m in (labels, rejected) for array in (m.indptr.astype(np.int64), m.indices)]
        parts = partial_vote(found, weights, *matrices, np.array([False, False, True, True]), 4)
        votes = sp.csr_array((parts[2], parts[1], parts[0]), shape=(3, 4)).toarray()
        assert votes[0].tolist() == [(1 + 4 * 0.25) / 8, 4 / 8, 4 / 8, 0]
        assert votes[1].tolist() == [0, 1, 0, 3 / 4]  # no complete neighbour: an unknown label has no vote
        assert votes[2].tolist() == [0.25, 0, 1, 0]

    def test_complete_neighbours_vote_as_before(self) -> None:
        random = np.random.default_rng(0)
        labels = sp.csr_array(random.random((50, 30)) < 0.2)
        parts = labels.indptr.astype(np.int64), labels.indices.astype(np.int32)
        found = random.integers(-1, 50, (40, 8)).astype(np.int32)
        weights = random.random((40, 8)).astype(np.float32)
        none = np.zeros(51, dtype=np.int64), np.empty(0, dtype=np.int32)
        expected = vote(found, weights, *parts, 30)
        for one, other in zip(
            expected, partial_vote(found, weights, *parts, *none, np.zeros(50, bool), 30), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_votes_of_documents_with_many_labels() -> None:
    """Against a dense sum; sorting takes n log n steps, so that this ends at once."""
    random = np.random.default_rng(1)
    labels = sp.csr_array(random.random((5, 200_000)) < 0.2)
    found, weights = np.arange(5, dtype=np.int32)[None], random.random((1, 5)).astype(np.float32)
    started = time.perf_counter()
    indptr, columns, votes = vote(
        found, weights, labels.indptr.astype(np.int64), labels.indices.astype(np.int32), 200_000
    )
    assert time.perf_counter() - started < 5  # 20 s by insertion
    dense = (weights.astype(np.float64) @ labels.toarray() / weights.astype(np.float64).sum())[0]
    assert columns.tolist() == np.flatnonzero(dense).tolist()
    np.testing.assert_allclose(votes, dense[columns], rtol=1e-5)
    assert indptr.tolist() == [0, len(columns)]
