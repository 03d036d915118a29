"""The label graph and walks on it."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import chi2

from xmtc.core.errors import ConfigError, DataError
from xmtc.data.dataset import Csr
from xmtc.data.label_index import LabelIndex
from xmtc.data.reading import read
from xmtc.labels import graph as module
from xmtc.labels.graph import (
    DocumentGraph,
    Graph,
    GraphSettings,
    LabelGraph,
    build_graph,
    document_graph,
    hierarchy_graph,
    occurrence_graph,
    walks,
)


def held(documents: list[list[int]], labels: int) -> Csr:
    indptr = np.cumsum([0, *map(len, documents)])
    columns = np.array([label for document in documents for label in document], dtype=np.int32)
    return sp.csr_array((np.ones(len(columns), dtype=np.float32), columns, indptr), shape=(len(documents), labels))


def random_documents(count: int, labels: int, seed: int = 0) -> list[list[int]]:
    """Documents of none to seven labels, small numbers more often; the last three labels never stand beside another."""
    chance = np.random.default_rng(seed)
    drawn = [np.unique((labels - 3) * chance.random(size) ** 2).astype(int) for size in chance.integers(0, 8, count)]
    return [np.unique(document).tolist() for document in drawn] + [[labels - 1], [labels - 2]]


def together(labels: Csr) -> NDArray[np.float64]:
    """(L, L) by the definition, which no data set of size could afford."""
    dense = labels.toarray().astype(np.float64)
    counts = dense.T @ dense
    np.fill_diagonal(counts, 0)
    return counts


def as_dense(graph: LabelGraph) -> NDArray[np.float64]:
    weights = np.ones(len(graph.neighbours)) if graph.weights is None else graph.weights
    nodes = len(graph.indptr) - 1
    return sp.csr_array((weights, graph.neighbours, graph.indptr), shape=(nodes, nodes)).toarray()


def walked(graph: Graph, seed: int = 0, threads: int = 1, **settings: Any) -> NDArray[np.int32]:
    return np.concatenate(list(walks(graph, GraphSettings(**settings), seed=seed, threads=threads)))


def assert_steps_follow(found: NDArray[np.int32], expected: NDArray[np.float64]) -> None:
    """Steps are in proportion to `expected`, none where it is zero: a chi-square that chance fails once in 10⁶."""
    counts = np.zeros_like(expected)
    np.add.at(counts, (found[:, :-1].ravel(), found[:, 1:].ravel()), 1)
    assert not counts[expected == 0].any()
    shares = expected / np.maximum(expected.sum(axis=1, keepdims=True), 1e-300)
    hoped = shares * counts.sum(axis=1, keepdims=True)
    some = hoped > 5
    statistic = ((counts[some] - hoped[some]) ** 2 / hoped[some]).sum()
    assert some.sum() > 50
    assert statistic < chi2.ppf(1 - 1e-6, some.sum())


class TestOccurrences:
    def test_by_hand(self) -> None:
        graph = occurrence_graph(held([[0, 1], [0, 1, 2], [3], []], 5))
        assert graph.indptr.tolist() == [0, 2, 4, 6, 6, 6]
        assert graph.neighbours.tolist() == [1, 2, 0, 2, 0, 1]
        assert graph.weights is not None
        assert graph.weights.tolist() == [2, 1, 2, 1, 1, 1]
        assert graph.connected().tolist() == [0, 1, 2]
        assert str(graph) == "3 edges between labels of the same document"
        assert occurrence_graph(held([[0, 1], [0, 1, 2]], 3), weighted=False).weights is None

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("weighted", [True, False])
    def test_equals_the_definition(self, threads: int, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "COUNTED", 100)
        labels = held(random_documents(300, 60), 60)
        graph = occurrence_graph(labels, weighted=weighted, threads=threads)
        expected = together(labels)
        np.testing.assert_array_equal(as_dense(graph), expected if weighted else expected > 0)
        np.testing.assert_array_equal(graph.connected(), np.flatnonzero(expected.any(axis=1)))
        assert len(graph.connected()) <= 57
        for label in range(60):
            row = graph.neighbours[graph.indptr[label] : graph.indptr[label + 1]]
            assert (np.diff(row) > 0).all()

    def test_labels_stored_twice_or_as_zero(self) -> None:
        given = held([[1, 0, 1], [0, 2], [0, 2], [2, 2]], 3)
        given.data[-4:-2] = 0.0  # the third document holds nothing
        before = given.indices.tolist()
        for graph in (occurrence_graph(given), build_graph(given, LabelIndex.numbered(3), GraphSettings())):
            assert isinstance(graph, LabelGraph)
            np.testing.assert_array_equal(as_dense(graph), [[0, 1, 1], [1, 0, 0], [1, 0, 0]])
        assert given.indices.tolist() == before

    @pytest.mark.parametrize("documents", [[], [[]], [[1], [2]]])
    def test_nothing_together(self, documents: list[list[int]]) -> None:
        for edges in ("exact", "implicit"):
            graph = build_graph(held(documents, 3), LabelIndex.numbered(3), GraphSettings(edges=edges))
            assert not len(graph.connected())
            assert not list(walks(graph, GraphSettings()))


class TestSizes:
    def test_edges_are_held_while_they_are_few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        labels, index = held([[0, 1, 2], [1, 2]], 3), LabelIndex.numbered(3)
        monkeypatch.setattr(module, "EXACT_PAIRS", 8)  # 3 × 2 + 2 × 1
        assert isinstance(build_graph(labels, index, GraphSettings()), LabelGraph)
        assert isinstance(build_graph(labels, index, GraphSettings(edges="implicit")), DocumentGraph)
        monkeypatch.setattr(module, "EXACT_PAIRS", 7)
        found = build_graph(labels, index, GraphSettings())
        assert isinstance(found, DocumentGraph)
        assert str(found) == "implicit edges through 2 documents"
        assert isinstance(build_graph(labels, index, GraphSettings(edges="exact")), LabelGraph)

    def test_one_huge_document(self) -> None:
        """Sixty thousand labels in one document are 3.6 billion pairs; nothing of that kind is held."""
        size = 60_000
        labels, index = held([list(range(size)), [0, 1]], size + 1), LabelIndex.numbered(size + 1)
        settings = GraphSettings(walks=1, length=5)
        list(walks(build_graph(held([[0, 1]], 2), LabelIndex.numbered(2), GraphSettings(edges="implicit")), settings))
        tracemalloc.start()
        try:
            graph = build_graph(labels, index, settings)
            assert isinstance(graph, DocumentGraph)
            found = np.concatenate(list(walks(graph, settings)))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert found.shape == (size, 5)
        assert (found[:, 1:] != found[:, :-1]).all()
        assert peak < 200 * size  # bytes: a few numbers for each label of a document and the walks
        with pytest.raises(ConfigError, match=r"3,599,940,002 label pairs, too many for explicit edges. Use vectors"):
            build_graph(labels, index, GraphSettings(edges="exact"))

    def test_a_large_document_may_have_edges(self) -> None:
        graph = occurrence_graph(held([list(range(700)), [0, 1]], 700), threads=2)
        assert (np.diff(graph.indptr) == 699).all()
        assert graph.weights is not None
        assert graph.weights.sum() == 700 * 699 + 2


class TestWalks:
    labels = held(random_documents(200, 30, seed=1), 30)

    @pytest.mark.parametrize("weighted", [True, False])
    def test_steps_follow_the_edges(self, weighted: bool) -> None:
        found = walked(occurrence_graph(self.labels, weighted=weighted), walks=200)
        expected = together(self.labels)
        assert_steps_follow(found, expected if weighted else (expected > 0).astype(float))
        with pytest.raises(AssertionError):
            assert_steps_follow(found, (expected > 0).astype(float) if weighted else expected)

    def test_walks_through_documents_follow_weighted_edges(self) -> None:
        assert_steps_follow(walked(document_graph(self.labels), walks=200), together(self.labels))

    def test_walks_through_any_document_alike(self) -> None:
        """A document's labels share the chance of the document, however many they are."""
        dense = self.labels.toarray().astype(np.float64)
        expected = dense.T @ (dense / np.maximum(dense.sum(axis=1, keepdims=True) - 1, 1))
        np.fill_diagonal(expected, 0)
        found = walked(document_graph(self.labels, weighted=False), walks=200)
        assert_steps_follow(found, expected)
        with pytest.raises(AssertionError):
            assert_steps_follow(found, together(self.labels))
        pairs = held([document[:2] for document in random_documents(200, 30, seed=2)], 30)
        assert_steps_follow(walked(document_graph(pairs, weighted=False), walks=200), together(pairs))

    @pytest.mark.parametrize("edges", ["exact", "implicit"])
    def test_rounds(self, edges: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "WALKED", 35)
        graph = build_graph(self.labels, LabelIndex.numbered(30), GraphSettings(edges=edges))
        connected = np.flatnonzero(together(self.labels).any(axis=1))
        assert len(connected) < 30
        parts = list(walks(graph, GraphSettings(walks=4, length=7)))
        assert max(map(len, parts)) == 5
        starts = np.concatenate(parts)[:, 0].reshape(4, len(connected))
        np.testing.assert_array_equal(np.sort(starts, axis=1), np.tile(connected, (4, 1)))
        assert len(np.unique(starts, axis=0)) == 4  # another order each time
        assert len(np.unique(np.concatenate(parts), axis=0)) > 3.9 * len(connected)  # and other walks

    @pytest.mark.parametrize("edges", ["exact", "implicit"])
    def test_seed_and_nothing_else_decides(self, edges: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = build_graph(self.labels, LabelIndex.numbered(30), GraphSettings(edges=edges))
        first = walked(graph, seed=3, walks=3, length=9)
        monkeypatch.setattr(module, "WALKED", 40)
        for threads in (1, 2, 3):
            np.testing.assert_array_equal(walked(graph, seed=3, threads=threads, walks=3, length=9), first)
        assert (walked(graph, seed=-4, walks=3, length=9) != first).any()


FAMILY = LabelIndex.from_keys(
    ["animal", "dog", "cat", "oak", "elm", "iron", "copper", "odd"],
    parents=[["odd"], ["animal", "animal"], ["animal", "pet"], ["tree"], ["tree"], ["metal"], [], ["odd", "animal"]],
)


class TestHierarchy:
    def test_by_hand(self) -> None:
        """'pet' and 'metal' are no labels and have one child each; 'tree' joins its two; 'odd' is its own parent."""
        graph = hierarchy_graph(FAMILY)
        expected = np.zeros((len(graph.indptr) - 1,) * 2)
        tree = int(graph.neighbours[graph.indptr[3]])
        assert tree >= 8
        for one, other in ((0, 1), (0, 2), (0, 7), (3, tree), (4, tree)):
            expected[one, other] = expected[other, one] = 1
        np.testing.assert_array_equal(as_dense(graph), expected)
        assert graph.labels == 8
        assert graph.connected().tolist() == [0, 1, 2, 3, 4, 7]
        assert str(graph) == "5 edges between parents and children"

    def test_walks_leave_out_what_is_no_label(self) -> None:
        found = walked(hierarchy_graph(FAMILY), walks=30, length=9)
        trees = found[np.isin(found[:, 0], [3, 4])]
        assert (trees[:, 1::2] == -1).all()
        assert np.isin(trees[:, ::2], [3, 4]).all()
        assert set(trees[:, 2].tolist()) == {3, 4}
        animals = found[np.isin(found[:, 0], [0, 1, 2, 7])]
        assert np.isin(animals, [0, 1, 2, 7]).all()
        assert ((animals[:, 1:] == 0) != (animals[:, :-1] == 0)).all()  # every other step is the parent

    def test_parents_are_used_where_half_of_the_labels_have_some(self) -> None:
        labels = held([[0, 1], [2, 3]], 4)
        half = LabelIndex.from_keys(list("abcd"), parents=[["b"], ["c"], [], []])
        found = build_graph(labels, half, GraphSettings())
        assert isinstance(found, LabelGraph)
        assert found.hierarchy
        assert (
            str(build_graph(labels, half, GraphSettings(source="documents")))
            == "2 edges between labels of the same document"
        )
        few = LabelIndex.from_keys(list("abcd"), parents=[["b"], [], [], []])
        assert "document" in str(build_graph(labels, few, GraphSettings()))
        assert "parents" in str(build_graph(labels, few, GraphSettings(source="hierarchy")))

    def test_without_parents(self) -> None:
        message = "none of 4 labels has a parent. Pass a vocabulary with parents (--labels FILE), or use"
        with pytest.raises(DataError, match=re.escape(message)):
            build_graph(held([[0, 1]], 4), LabelIndex.numbered(4), GraphSettings(source="hierarchy"))

    @pytest.mark.long
    def test_eu_laws(self, shared_data: Path) -> None:
        folder = shared_data / "eurlex57k"
        train = read(folder / "train.jsonl.xz", vocabulary=folder / "labels.jsonl.gz").used_labels()
        graph = build_graph(train.labels, train.label_index, GraphSettings())
        assert isinstance(graph, LabelGraph)
        assert graph.hierarchy
        assert graph.labels - len(graph.connected()) == 131
        wine, still = (train.label_index.find(name) for name in ("wine", "still wine"))
        assert still in graph.neighbours[graph.indptr[wine] : graph.indptr[wine + 1]]


@pytest.mark.long
def test_a_library_catalogue(shared_data: Path) -> None:
    labels = read(shared_data / "tibkat-gnd" / "train.jsonl.xz").labels
    graph = occurrence_graph(labels, threads=2)
    expected = sp.csr_array(labels.T @ labels)
    expected.setdiag(0)
    expected.eliminate_zeros()
    expected.sort_indices()
    np.testing.assert_array_equal(graph.indptr, expected.indptr)
    np.testing.assert_array_equal(graph.neighbours, expected.indices)
    np.testing.assert_array_equal(graph.weights, expected.data)
    assert len(graph.neighbours) == 591_740
    assert graph.labels - len(graph.connected()) == 1_700


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"source": "words"}, "'source' of graph must be one of auto, documents, hierarchy. Got 'words'."),
        ({"edges": "none"}, "'edges' of graph must be one of auto, exact, implicit. Got 'none'."),
        ({"walks": 0}, "'walks' of graph must be an integer ≥ 1. Got 0."),
        ({"length": 1}, "'length' of graph must be an integer ≥ 2. Got 1."),
    ],
)
def test_bad_settings(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        GraphSettings(**bad)
