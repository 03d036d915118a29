"""Linear classifiers that go on learning: the solver's start, trees whose labels come and go, and what stays."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from tests.support.forest import chunk, unit_matrix
from tests.support.models import planted_split
from tests.support.solver import above_the_optimum, planted_signs, solved, with_ones
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset, as_dataset
from xmtc.linear.simd import LANES, aligned_zeros
from xmtc.linear.solver import row_squares, solve
from xmtc.linear.weight_chunks import Chunks
from xmtc.metrics import precision
from xmtc.models.base import Model
from xmtc.models.bonsai import Bonsai
from xmtc.models.one_vs_all import OneVsAll
from xmtc.models.parabel import Parabel

Floats = NDArray[Any]
TREES = {
    "parabel": lambda **more: Parabel(trees=2, leaf_size=8, fan_out=4, **more),
    "one_vs_all": OneVsAll,
}


class TestTriplets:
    @pytest.mark.parametrize("children", [1, 3, 16, 40])
    @pytest.mark.parametrize("half", [False, True])
    def test_equal_what_each_column_says(self, children: int, half: bool) -> None:
        chance = np.random.default_rng(children)
        parts = []
        for density in (0.05, 0.6, 0.0):  # rows of all kinds, and a node without weights
            weights = chance.normal(size=(50, children)) * (chance.random((50, children)) < density)
            parts.append(chunk(weights.astype(np.float32), chance.normal(size=children), half=half))
        chunks = Chunks.joined(parts)
        for node in range(3):
            features, columns, weights = chunks.triplets(node)
            for column in range(children):
                here = columns == column
                assert len(set(features[here].tolist())) == int(here.sum())
                found = dict(zip(features[here].tolist(), weights[here].tolist(), strict=True))
                assert found == chunks.column(node, column)
            assert (columns < children).all()


def solve_block(
    rows: Csr, signs: NDArray[np.int8], loss: str, start: Floats | None = None, known: Any = None, **more: Any
) -> Floats:
    """(D + 1, LANES) weights and biases of one block of labels, from (D + 1, LANES) others."""
    indptr = rows.indptr.astype(np.int64)
    begun = None
    if start is not None:
        flat = aligned_zeros(rows.shape[1])
        flat[:] = start[:-1].ravel()
        begun = flat, start[-1].astype(np.float32)
    weights, bias = solve(
        indptr,
        rows.indices.astype(np.int32),
        rows.data,
        rows.shape[1],
        row_squares(indptr, rows.data),
        np.ascontiguousarray(signs),
        loss=loss,
        start=begun,
        known=known,
        **{"cost": 1.0, "tolerance": 1e-3, "passes": 3000, "seed": 0, **more},
    )
    return np.vstack([weights, bias]).astype(np.float64)


def plain_descent(rows: Csr, signs: Floats, cost: float, passes: int) -> Floats:
    """(D + 1, labels) dual coordinate descent on the squared hinge, document after document."""
    dense = with_ones(rows).toarray()
    alpha, weights = np.zeros(signs.shape), np.zeros((dense.shape[1], signs.shape[1]))
    for _ in range(passes):
        for row, sign in enumerate(signs):
            gradient = sign * (dense[row] @ weights) - 1 + alpha[row] / (2 * cost)
            step = np.maximum(alpha[row] - gradient / (dense[row] @ dense[row] + 1 / (2 * cost)), 0) - alpha[row]
            alpha[row] += step
            weights += np.outer(dense[row], step * sign)
    return weights


class TestSolver:
    def problem(self, count: int = 120) -> tuple[Csr, NDArray[np.int8]]:
        rows = unit_matrix(count, 30, 0.2, np.random.default_rng(5))
        return rows, planted_signs(rows, LANES, 6)

    def test_without_a_start_as_plain_descent(self) -> None:
        rows, signs = self.problem(60)
        found = solve_block(rows, signs, "squared_hinge")
        np.testing.assert_allclose(found, plain_descent(rows, signs, 1.0, 300), atol=5e-3)

    @pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
    def test_nothing_known_is_the_same_as_no_start(self, loss: str) -> None:
        rows, signs = self.problem()
        few = {"passes": 6, "tolerance": 0.1}
        plain = solve_block(rows, signs, loss, **few)
        nobody = np.zeros(rows.shape[0], dtype=bool)
        assert (solve_block(rows, signs, loss, known=nobody, **few) == plain).all()
        zeros = np.zeros((rows.shape[1] + 1, LANES))
        assert (solve_block(rows, signs, loss, zeros, nobody, **few) == plain).all()

    @pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
    def test_the_optimum_of_known_rows_stays(self, loss: str) -> None:
        rows, signs = self.problem()
        best = solve_block(rows, signs, loss, tolerance=1e-4)
        everything = np.ones(rows.shape[0], dtype=bool)
        again = solve_block(rows, signs, loss, best, everything, tolerance=1e-2, passes=6)
        assert (again == best.astype(np.float32)).all()
        away = solve_block(rows, signs, loss, best, None, tolerance=1e-2, passes=6)  # taken for others
        assert np.abs(away - best).max() > 0.1

    @pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
    def test_half_of_the_rows_first_and_then_all(self, loss: str) -> None:
        """Known rows and new ones from where the known ones led: the optimum of all of them."""
        rows, signs = self.problem()
        known = np.arange(rows.shape[0]) % 2 == 0
        half = sp.csr_array(rows[np.flatnonzero(known)])
        begun = solve_block(half, signs[known], loss)
        found = solve_block(rows, signs, loss, begun, known)
        whole = solved(rows, signs, loss, 1.0)
        np.testing.assert_allclose(found, whole, atol=0.02)
        assert above_the_optimum(rows, signs, found, loss, 1.0).max() < 1e-3
        assert above_the_optimum(rows, signs, begun, loss, 1.0).max() > 0.05

    def test_known_rows_that_lack_nothing_stay(self) -> None:
        rows = unit_matrix(40, 60, 0.2, np.random.default_rng(1))
        signs = np.full((40, LANES), -1, dtype=np.int8)
        start = np.zeros((61, LANES))
        start[-1] = -1.5
        everything = np.ones(40, dtype=bool)
        assert (solve_block(rows, signs, "squared_hinge", start, everything) == start).all()


@pytest.fixture(scope="module")
def corpus() -> tuple[Dataset, Dataset, Dataset]:
    """What is learnt first, without the last five labels; new documents with all labels; unseen ones."""
    train, test, _ = planted_split(1100, 200, labels=45, seed=9, noise=0.0)
    assert train.label_index is not None
    keys = train.label_index.keys
    rows = lists(train)
    old = [row for row in range(700) if not set(rows[row]) & set(keys[40:])]
    first = as_dataset([train.text()[row].as_py() for row in old], [rows[row] for row in old])
    return first, train.take(np.arange(700, 1100)), test


def lists(documents: Dataset) -> list[list[str]]:
    assert documents.labels is not None
    assert documents.label_index is not None
    return [documents.label_index.strings("key", documents.labels[[row]].indices) for row in range(len(documents))]


@pytest.fixture(scope="module", params=TREES)
def fitted(request: pytest.FixtureRequest, corpus: tuple[Dataset, Dataset, Dataset]) -> Model:
    return TREES[request.param](keep_replay=200, label_names=0).fit(corpus[0], runtime=Runtime(threads=2, seed=1))


def chunks_of(model: Any) -> list[tuple[Any, Chunks]]:
    return list(model._forest._trees)


def answers(model: Model, documents: Dataset, k: int = 10) -> list[list[tuple[str, float]]]:
    answer = model.predict(documents, k)
    return [list(zip(keys, row.tolist(), strict=False)) for keys, row in zip(answer.keys(), answer.scores, strict=True)]


class TestTrees:
    def test_new_labels_are_found_and_old_ones_kept(
        self, fitted: Model, corpus: tuple[Dataset, Dataset, Dataset]
    ) -> None:
        _, new, test = corpus
        before = answers(fitted, test)
        model = copy.copy(fitted).update(new, runtime=Runtime(threads=2, seed=1))
        assert len(model.labels) == 45
        truth = np.array([[key in row for key in model.labels.keys] for row in lists(test)], dtype=np.float32)
        found = model.predict(test, 5)
        assert precision(found, sp.csr_array(truth), 1) > 0.9
        fresh = np.flatnonzero(truth[:, len(fitted.labels) :].any(axis=1))
        hits = sum(
            label in found.labels[row]
            for row in fresh.tolist()
            for label in (len(fitted.labels) + np.flatnonzero(truth[row, len(fitted.labels) :])).tolist()
        )
        assert hits > 0.8 * truth[:, len(fitted.labels) :].sum()
        assert answers(fitted, test) == before  # which was not touched

    def test_threads_and_kept_parts_do_not_matter(
        self, fitted: Model, corpus: tuple[Dataset, Dataset, Dataset]
    ) -> None:
        _, new, test = corpus
        models = [copy.copy(fitted).update(new, runtime=Runtime(threads=threads, seed=1)) for threads in (1, 2)]
        assert answers(models[0], test) == answers(models[1], test)

    def test_nothing_violated_nothing_changed(self, fitted: Model, corpus: tuple[Dataset, Dataset, Dataset]) -> None:
        """Documents without words and labels say nothing; nor do labels that are given another key."""
        test, key = corpus[2], fitted.labels.key(0)
        model = copy.copy(fitted)
        model.config = type(model.config)(**{**vars(model.config), "keep_replay": 0})
        model._replay = None
        before = [(*tree.starts, tree.order, *chunks) for tree, chunks in chunks_of(model)]
        expected = answers(model, test)
        model.update(["", ""], [[], []]).update(merge={key: "renamed"})
        assert [[("renamed" if name == key else name, score) for name, score in row] for row in expected] == answers(
            model, test
        )
        after = [(*tree.starts, tree.order, *chunks) for tree, chunks in chunks_of(model)]
        assert [len(parts) for parts in before] == [len(parts) for parts in after]
        for (tree, chunks), (other, others) in zip(chunks_of(fitted), chunks_of(model), strict=True):
            assert_same_nodes(tree, chunks, other, others, range(chunks.nodes))

    def test_untouched_nodes_keep_their_weights(self, fitted: Model, corpus: tuple[Dataset, Dataset, Dataset]) -> None:
        first = corpus[0]
        model = copy.copy(fitted)
        model._replay = None
        key = fitted.labels.key(0)
        rows = [row for row, held in enumerate(lists(first)) if held == [key]][:5]
        assert rows
        model.update([first.text()[row].as_py() for row in rows], [[key, "new"]] * len(rows))
        untouched = 0
        for (tree, chunks), (other, others) in zip(chunks_of(fitted), chunks_of(model), strict=True):
            assert tree.depth == other.depth
            reached = other.node_of(other.depth - 1)[[0, len(fitted.labels)]]  # the leaves of both labels
            last = chunks.nodes - tree.nodes(tree.depth - 1)
            same = [last + leaf for leaf in range(tree.nodes(tree.depth - 1)) if leaf not in reached]
            untouched += len(same)
            assert_same_nodes(tree, chunks, other, others, same)
        assert untouched or isinstance(model, OneVsAll)

    def test_retired_labels_are_never_answered(self, fitted: Model, corpus: tuple[Dataset, Dataset, Dataset]) -> None:
        test = corpus[2]
        gone = np.argsort(-fitted.label_counts)[:6]
        keys = fitted.labels.strings("key", gone)
        model = copy.copy(fitted).update(retire=keys)
        assert len(model.labels) == len(fitted.labels) - 6
        assert len(model.label_counts) == len(model.labels)
        whole = fitted.predict(test, len(model.labels), deny=keys)
        found = model.predict(test, len(model.labels))
        assert not set(keys) & set(itertools.chain(*found.keys()))
        if isinstance(model, OneVsAll):  # the others' ways are as open as before
            assert found.keys() == whole.keys()
            assert (found.scores == whole.scores).all()
        truth = [[key for key in row if key not in keys] for row in lists(test)]
        first = [row for row in range(len(test)) if truth[row]]
        hits = sum(found.keys()[row][0] in truth[row] for row in first)
        assert hits > 0.85 * len(first)

    def test_merged_labels_are_answered_as_one(self, fitted: Model, corpus: tuple[Dataset, Dataset, Dataset]) -> None:
        """Documents of either get the one that is left, which the documents kept have shown."""
        test = corpus[2]
        one, two = fitted.labels.strings("key", np.argsort(-fitted.label_counts)[[0, 3]])
        model = copy.copy(fitted).update(merge={one: two})
        assert one not in model.labels.keys
        counts = dict(zip(fitted.labels.keys, fitted.label_counts.tolist(), strict=True))
        assert model.label_counts[model.labels.find(two)] == counts[one] + counts[two]
        for key in (one, two):
            rows = [row for row, held in enumerate(lists(test)) if key in held]
            found = model.predict(test.take(rows), 5).keys()
            assert sum(two in row for row in found) > 0.8 * len(rows)

    def test_saved_and_loaded(self, fitted: Model, corpus: tuple[Dataset, Dataset, Dataset], tmp_path: Any) -> None:
        _, new, test = corpus
        model = copy.copy(fitted).update(new.slice(0, 100), retire=[fitted.labels.key(3)])
        model.save(tmp_path / "m")
        loaded = Model.load(tmp_path / "m")
        assert answers(loaded, test) == answers(model, test)
        again = [one.update(new.slice(100, 200), runtime=Runtime(seed=2)) for one in (model, loaded)]
        assert answers(again[0], test) == answers(again[1], test)


def assert_same_nodes(tree: Any, chunks: Chunks, other: Any, others: Chunks, nodes: Any) -> None:
    """Nodes that have the same children have the same weights and biases, to the bit."""
    sizes, more = (np.concatenate([np.diff(starts) for starts in one.starts]) for one in (tree, other))
    for node in nodes:
        assert sizes[node] == more[node]
        count = int(sizes[node])
        for column in range(count):
            assert chunks.column(node, column) == others.column(node, column)
        bias, biases = (one.bias[one.bias_start[node] :][:count] for one in (chunks, others))
        assert (bias == biases).all()


@pytest.mark.parametrize("labels", [1, 257])
def test_the_only_label_of_a_leaf_keeps_words_that_are_not_seen_again(labels: int) -> None:
    """Classifiers that see all documents have weights even where they are alone in their leaf."""
    key, last = f"{labels - 1:03d}", f"other{labels - 1:03d}"
    texts = [f"word{number:03d} other{number:03d}" for number in range(labels)] + ["word000 nothing", "of it"]
    model = OneVsAll(text__min_df=1).fit(texts, [[f"{number:03d}"] for number in range(labels)] + [[], []])
    assert np.diff(chunks_of(model)[0][0].starts[-1])[-1] == 1

    def gained() -> float:
        """What its second word adds to the label's score."""
        return float(np.diff(model.score_labels(["", last], [[key], [key]])[:, 0])[0])

    before = gained()
    assert before > 0.05
    model.update([f"fresh word{labels - 1:03d}"], [[key]])
    assert gained() > 0.8 * before


def test_an_only_child_that_gets_a_sibling() -> None:
    """Whoever came to a leaf of one label had it; now there are two to choose from."""
    kinds = ["red", "green", "blue", "grey"]
    texts = [f"{kind} thing{number}" for kind in kinds for number in range(4)]
    model = Bonsai(trees=1, leaf_size=1, clusters=4, text__min_df=1).fit(texts, [[text.split()[0]] for text in texts])
    (tree, _) = chunks_of(model)[0]
    assert (np.diff(tree.starts[-1]) == 1).all()
    model.update(["crimson red thing"] * 3 + ["red dawn"] * 3, [["crimson"]] * 3 + [["red"]] * 3)
    found = model.predict(["crimson red", "red dawn", "red", "green thing", "blue thing", "grey thing"], 1).keys()
    assert found == [["crimson"], ["red"], ["red"], ["green"], ["blue"], ["grey"]]
