"""Nearest neighbours among dense vectors: against brute force in double precision, and within planted clusters."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError, MissingExtraError
from xmtc.nn.neighbours import tensor_search, vector_index
from xmtc.nn.neighbours.clusters import Partition, _assign, _means
from xmtc.nn.neighbours.vector_index import VectorIndex

Array = NDArray[np.float32]
Found = tuple[NDArray[np.int32], Array]


def unit(rows: int, width: int, seed: int) -> Array:
    vectors = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def brute_force(
    vectors: Array, queries: Array, count: int, allowed: NDArray[np.bool_] | None = None, without: object = None
) -> Found:
    products = (queries.astype(np.float64) @ vectors.astype(np.float64).T).astype(np.float32)
    barred = np.zeros(products.shape, dtype=bool) if allowed is None else np.tile(~allowed, (len(queries), 1))
    if without is not None:
        barred[np.arange(len(queries)), without] = True
    order = np.argsort(np.where(barred, np.inf, -products), axis=1, kind="stable")[:, :count]
    gone = np.take_along_axis(barred, order, axis=1)
    found = np.full((len(queries), count), -1)
    given = np.zeros((len(queries), count), dtype=np.float32)
    found[:, : order.shape[1]] = np.where(gone, -1, order)
    given[:, : order.shape[1]] = np.where(gone, 0, np.take_along_axis(products, order, axis=1))
    return found.astype(np.int32), given


def assert_same(one: Found, other: Found) -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture(scope="module")
def vectors() -> Array:
    """With a row that is there a hundred times, one that is there twice, and zeros."""
    rows = unit(3000, 37, seed=0)
    rows[500:600] = rows[2000]
    rows[2900] = rows[7]
    rows[40:43] = 0.0
    return rows


@pytest.fixture(scope="module")
def queries(vectors: Array) -> Array:
    """Some of the rows, others, and one that is zero."""
    return np.concatenate([vectors[[7, 41, 550, 2000, 2900]], unit(60, 37, seed=1), np.zeros((1, 37), np.float32)])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, queries, rows in ((vector_index, 16, 130), (tensor_search, 16, 170)):
        monkeypatch.setattr(module, "QUERIES", queries)
        monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(tensor_search, "AGAIN", 5)


def by_tensor(vectors: Array, queries: Array, count: int, without: NDArray[np.int32] | None = None) -> Found:
    """What runs on CUDA, here on a CPU."""
    found = np.full((len(queries), count), -1, dtype=np.int32)
    products = np.zeros((len(queries), count), dtype=np.float32)
    barred = np.full(len(queries), -1, np.int32) if without is None else without
    numbers, slack = np.arange(len(vectors), dtype=np.int32), np.full(len(queries), 1e-5)
    tensor_search.search_tensor(torch.from_numpy(vectors), queries, numbers, barred, slack, found, products)
    return found, products


class TestExact:
    @pytest.mark.parametrize("count", [1, 20, 150])
    @pytest.mark.parametrize("threads", [1, 3])
    def test_equals_brute_force(self, vectors, queries, small_blocks, count, threads):
        expected = brute_force(vectors, queries, count)
        assert_same(VectorIndex(vectors, threads=threads).nearest(queries, count), expected)
        assert_same(by_tensor(vectors, queries, count), expected)

    def test_large_blocks_equal_small_ones(self, vectors, queries):
        expected = brute_force(vectors, queries, 20)
        assert_same(VectorIndex(vectors, threads=2).nearest(torch.from_numpy(queries), 20), expected)
        assert_same(VectorIndex(torch.from_numpy(vectors)).nearest(queries, 20), expected)

    def test_copies_come_in_the_order_of_their_numbers(self, vectors, queries):
        found, products = VectorIndex(vectors).nearest(queries, 30)
        assert found[2].tolist() == list(range(500, 530))
        assert len(set(products[2].tolist())) == 1
        assert found[0, :2].tolist() == found[4, :2].tolist() == [7, 2900]
        assert found[-1].tolist() == list(range(30))  # all products of zero are zero

    @pytest.mark.parametrize("search", ["exact", "faiss"])
    def test_one_at_a_time_equals_all_at_once(self, queries, search, monkeypatch):
        if search == "faiss":
            pytest.importorskip("faiss")
        monkeypatch.setattr(vector_index, "FEW", 1000)
        rows = unit(4000, 37, seed=3)
        rows += 1e-7 * np.random.default_rng(4).standard_normal(rows.shape).astype(np.float32)
        rows[1::2] = rows[::2] * (1 + 1e-7)  # as near as rounding in single precision can tell, or nearer
        index = VectorIndex(rows, threads=2, search=search, probes=3)
        together = index.nearest(queries, 15)
        for step in (1, 7):
            parts = [index.nearest(queries[low : low + step], 15) for low in range(0, len(queries), step)]
            assert_same((np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])), together)

    def test_fewer_rows_than_asked_for(self, queries):
        rows = unit(4, 37, seed=5)
        for found, products in (VectorIndex(rows).nearest(queries, 6), by_tensor(rows, queries, 6)):
            assert_same((found, products), brute_force(rows, queries, 6))
            assert (found[:, 4:] == -1).all()
            assert not products[:, 4:].any()

    def test_nothing_to_search(self, vectors, queries):
        index = VectorIndex(vectors)
        assert [part.shape for part in index.nearest(queries[:0], 5)] == [(0, 5)] * 2
        assert [part.shape for part in index.nearest(queries, 0)] == [(len(queries), 0)] * 2
        assert (VectorIndex(vectors[:0]).nearest(queries, 3)[0] == -1).all()
        assert (index.nearest(queries, 3, among=np.zeros(len(vectors), dtype=bool))[0] == -1).all()

    def test_leaves_out_the_row_itself(self, vectors, small_blocks):
        own = np.arange(480, 620, dtype=np.int32)
        expected = brute_force(vectors, vectors[own], 10, without=own)
        assert_same(VectorIndex(vectors).nearest(vectors[own], 10, without=own), expected)
        assert_same(by_tensor(vectors, vectors[own], 10, own), expected)
        few = VectorIndex(vectors[:3]).nearest(vectors[:3], 3, without=np.arange(3))[0]
        assert [set(row) for row in few.tolist()] == [{1, 2, -1}, {0, 2, -1}, {0, 1, -1}]

    def test_searches_among_given_rows(self, vectors, queries, small_blocks):
        mask = np.random.default_rng(6).random(len(vectors)) < 0.3
        expected = brute_force(vectors, queries, 20, allowed=mask)
        index = VectorIndex(vectors, threads=2)
        assert_same(index.nearest(queries, 20, among=mask), expected)
        assert_same(index.nearest(queries, 20, among=np.flatnonzero(mask)[::-1]), expected)

    def test_takes_mapped_rows_without_a_word(self, vectors, queries, tmp_path: Path):
        np.save(tmp_path / "rows.npy", vectors)
        mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
        asked = queries.view()
        asked.flags.writeable = False
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = VectorIndex(mapped, threads=2).nearest(asked, 9, without=np.zeros(len(asked), np.int64))
            Partition.fit(mapped, 3, iterations=2)
        assert_same(found, brute_force(vectors, queries, 9, without=np.zeros(len(asked), np.int64)))

    def test_longer_and_negative_rows(self):
        rows, asked = 1e3 * unit(300, 5, seed=8), -7 * unit(20, 5, seed=9)
        expected = brute_force(rows, asked, 300)
        assert (expected[1] < 0).any()
        assert_same(VectorIndex(rows).nearest(asked, 300), expected)
        assert_same(by_tensor(rows, asked, 300), expected)


class TestPartition:
    @pytest.fixture
    def planted(self) -> tuple[Array, NDArray[np.int64]]:
        """Rows about twelve centres that are far from each other, and which of them."""
        random = np.random.default_rng(0)
        own = random.integers(12, size=1500)
        rows = np.eye(12, 20, dtype=np.float32)[own] + 0.05 * random.standard_normal((1500, 20)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True), own

    @pytest.mark.parametrize("seed", [0, 1])
    def test_finds_planted_clusters(self, planted, seed):
        rows, own = planted
        partition = Partition.fit(rows, 12, seed=seed, threads=2)
        assert len(set(zip(partition.clusters.tolist(), own.tolist(), strict=True))) == 12
        for cluster in range(12):
            mean = rows[partition.clusters == cluster].astype(np.float64).mean(axis=0)
            np.testing.assert_allclose(partition.centres[cluster], mean, atol=1e-6)
        again = Partition.fit(rows, 12, seed=seed, threads=1)
        np.testing.assert_array_equal(again.centres, partition.centres)
        np.testing.assert_array_equal(again.clusters, partition.clusters)

    def test_searches_in_the_cluster_of_the_query_only(self, planted):
        rows, own = planted
        kept = Partition.fit(rows[50:], 12)
        index = VectorIndex(rows[50:], partition=Partition(kept.centres.copy(), kept.clusters.copy()), threads=2)
        found, products = index.nearest(rows[:50], 300)
        for query in range(50):
            members = own[50:] == own[query]
            expected = brute_force(rows[50:], rows[query : query + 1], 300, allowed=members)
            assert_same((found[query : query + 1], products[query : query + 1]), expected)
            assert (found[query] == -1).sum() == 300 - members.sum()

    def test_leaves_out_within_clusters(self, planted):
        rows, own = planted
        index = VectorIndex(rows, partition=Partition.fit(rows, 12))
        mask = np.arange(len(rows)) % 3 > 0
        found, _ = index.nearest(rows, 2, without=np.arange(len(rows)), among=mask)
        assert (found >= 0).all()
        assert (found != np.arange(len(rows))[:, None]).all()
        assert mask[found].all()
        assert (own[found] == own[:, None]).all()

    def test_one_cluster_is_everything(self, vectors, queries):
        partition = Partition.fit(vectors, 1)
        assert_same(VectorIndex(vectors, partition=partition).nearest(queries, 9), brute_force(vectors, queries, 9))

    def test_more_clusters_than_rows_or_different_rows(self):
        rows = unit(3, 4, seed=0)
        assert sorted(Partition.fit(rows, 10).clusters.tolist()) == [0, 1, 2]
        copies = np.repeat(rows, 5, axis=0)
        partition = Partition.fit(copies, 8)
        assert len(partition.centres) == len(set(partition.clusters.tolist())) == 3  # none is left without rows
        found, _ = VectorIndex(copies, partition=partition).nearest(rows, 6)
        assert found.tolist() == [[*range(low, low + 5), -1] for low in (0, 5, 10)]

    def test_an_empty_cluster_starts_anew_from_the_farthest_row(self):
        rows = np.array([[0, 1], [0.1, 1], [0.2, 1], [5, 1]], dtype=np.float32)
        centres = np.array([[0, 1], [-9, 1]], dtype=np.float32)
        clusters, nearness = _assign(rows, centres, threads=1)
        assert clusters.tolist() == [0, 0, 0, 0]
        assert _means(rows, clusters, nearness, centres)[1].tolist() == [5, 1]


class TestFaiss:
    @pytest.fixture(autouse=True)
    def _there(self, monkeypatch):
        pytest.importorskip("faiss")
        monkeypatch.setattr(vector_index, "FEW", 1000)

    def test_all_probes_equal_exact_search(self, capfd):
        rows, asked = unit(3000, 24, seed=1), unit(200, 24, seed=2)
        index = VectorIndex(rows, search="faiss", probes=10_000, threads=2)
        assert_same(index.nearest(asked, 20), brute_force(rows, asked, 20))
        own = np.arange(100)
        assert_same(index.nearest(rows[own], 5, without=own), brute_force(rows, rows[own], 5, without=own))
        mask = np.arange(len(rows)) % 2 == 0
        assert_same(index.nearest(asked, 5, among=mask), brute_force(rows, asked, 5, allowed=mask))
        assert capfd.readouterr() == ("", "")

    def test_few_probes_find_most_where_there_are_clusters(self):
        random = np.random.default_rng(0)
        rows = unit(40, 24, seed=3)[random.integers(40, size=3200)] + 0.02 * unit(3200, 24, seed=4)
        index = VectorIndex(rows[200:], search="faiss", probes=8, threads=1)
        found, _ = index.nearest(rows[:200], 10)
        expected, _ = brute_force(rows[200:], rows[:200], 10)
        hits = [len(set(one) & set(other)) for one, other in zip(found.tolist(), expected.tolist(), strict=True)]
        assert np.mean(hits) > 9
        again = VectorIndex(rows[200:], search="faiss", probes=8, threads=2)
        np.testing.assert_array_equal(again.nearest(rows[:200], 10)[0], found)

    def test_few_rows_are_searched_exactly(self, capfd):
        rows = unit(60, 5, seed=0)
        index = VectorIndex(rows, search="faiss", probes=1)
        assert_same(index.nearest(rows, 60), brute_force(rows, rows, 60))
        assert capfd.readouterr() == ("", "")

    def test_without_faiss_the_remedy_is_told(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "faiss", None)
        with pytest.raises(MissingExtraError, match=r'needs FAISS\. Install it with: pip install "xmtc\[ann\]"$'):
            VectorIndex(unit(5, 3, seed=0), search="faiss")


def test_settings_that_cannot_be():
    rows = unit(5, 3, seed=0)
    with pytest.raises(ConfigError, match="'search' must be 'exact' or 'faiss'"):
        VectorIndex(rows, search="fast")
    with pytest.raises(ConfigError, match="search 'faiss' does not support clusters"):
        VectorIndex(rows, search="faiss", partition=Partition.fit(rows, 2))
