"""Label trees of linear classifiers: chunks, search and training against plain and slow ways to the same end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from tests.support.forest import Chance, Floats, chunk, unit_matrix
from tests.support.models import planted_split
from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State, read_manifest
from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ModelFormatError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset
from xmtc.data.planted_corpus import PlantedCorpus
from xmtc.labels.tree import LabelTree
from xmtc.linear.beam_search import SIGMOID
from xmtc.linear.forest import SHORTLIST, Forest, SearchParameters, train_flat, train_tree
from xmtc.linear.node_documents import Members
from xmtc.linear.node_training import LinearObjective, NodeTrainer, Rows, numbers_by_frequency
from xmtc.linear.simd import LANES
from xmtc.linear.solver import row_squares, solve
from xmtc.linear.weight_chunks import Chunks, pruned
from xmtc.models import linear_tree
from xmtc.models.base import Model
from xmtc.models.bonsai import Bonsai
from xmtc.models.linear_tree import ForestModel
from xmtc.models.one_vs_all import OneVsAll
from xmtc.models.parabel import Parabel
from xmtc.text.features import unit_rows

LINKS = (SIGMOID, 2, 3)


def log_probability(margins: Floats, link: int) -> Floats:
    return -np.logaddexp(0, -margins) if link == SIGMOID else -(np.maximum(0, 1 - margins) ** link)


def equal(left: Chunks, right: Chunks) -> bool:
    return all(
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        for one, other in zip(left._asdict().values(), right._asdict().values(), strict=True)
    )


# ---- chunks


class TestChunks:
    @pytest.mark.parametrize("children", [1, 5, 16, 17, 64, 100, 257])
    @pytest.mark.parametrize("density", [0.0, 0.001, 0.05, 0.3, 1.0])
    def test_scores_equal_a_product(self, children: int, density: float) -> None:
        chance = np.random.default_rng([children, int(1000 * density)])
        weights = chance.normal(size=(400, children)) * (chance.random((400, children)) < density)
        weights, bias = weights.astype(np.float32), chance.normal(size=children).astype(np.float32)
        rows, numbers, order = unit_matrix(60, 400, 0.1, chance), chance.permutation(400), chance.permutation(children)
        tree = LabelTree(order, (np.array([0, children]),))
        expected = np.empty((60, children))
        expected[:, order] = log_probability(
            rows.toarray()[:, np.argsort(numbers)] @ weights.astype(np.float64) + bias, 0
        )
        everything = np.tile(np.arange(children), (60, 1))
        for half, tolerance in ((False, 1e-6), (True, 1e-3)):
            made = chunk(weights, bias, half=half)
            forest = Forest([(tree, made)], numbers.astype(np.int32), SearchParameters(0, SIGMOID))
            found, given = forest.predict(rows, children)
            np.testing.assert_allclose(np.log(forest.score(rows, everything)), expected, rtol=tolerance, atol=tolerance)
            assert (np.sort(found, axis=1) == everything).all()
            np.testing.assert_allclose(
                np.log(given), np.take_along_axis(expected, found, axis=1), rtol=tolerance, atol=tolerance
            )
            for column in range(0, children, 7):
                kept = weights[:, column].astype(np.float16) if half else weights[:, column]
                own = {int(f): float(kept[f]) for f in np.flatnonzero(kept)}
                assert made.column(0, column) == own

    def test_joined_and_taken(self) -> None:
        chance = np.random.default_rng(0)
        parts: list[Chunks] = []
        matrices: list[Floats] = []
        for children, density in ((3, 0.2), (1, 0.0), (64, 0.02), (100, 0.5), (20, 0.3)):
            weights = chance.normal(size=(50, children)) * (chance.random((50, children)) < density)
            matrices.append(weights.astype(np.float32))
            parts.append(chunk(weights, chance.normal(size=children)))
        whole = Chunks.joined(parts)
        assert whole.nodes == 5
        for node, (part, matrix) in enumerate(zip(parts, matrices, strict=True)):
            assert equal(whole.taken(range(node, node + 1)), part)
            for column in (0, matrix.shape[1] - 1):
                own = {int(f): float(matrix[f, column]) for f in np.flatnonzero(matrix[:, column])}
                assert whole.column(node, column) == own
        middle = whole.taken(range(1, 4))
        assert equal(middle, Chunks.joined(parts[1:4]))
        assert equal(Chunks.joined([whole.taken(range(1)), middle, whole.taken(range(4, 5))]), whole)
        replaced = Chunks.joined([whole.taken(range(2)), parts[0], whole.taken(range(3, 5))])
        assert equal(replaced, Chunks.joined([*parts[:2], parts[0], *parts[3:]]))

    def test_pruned_to_large_weights(self) -> None:
        weights = np.random.default_rng(0).normal(size=(40, LANES)).astype(np.float32)
        weights[3, 2] = 0.5
        rows, columns, kept = pruned(weights, 0.5, 9, 32)
        expected = np.argwhere(np.abs(weights[:, :9]) >= 0.5)
        assert rows.tolist() == expected[:, 0].tolist()
        assert columns.tolist() == (expected[:, 1] + 32).tolist()
        assert (kept == weights[expected[:, 0], expected[:, 1]]).all()
        assert [3, 2] in expected.tolist()

    @pytest.mark.parametrize("link", LINKS)
    def test_certain(self, link: int) -> None:
        for children in (1, 16, 40):
            tree = LabelTree(np.arange(children), (np.array([0, children]),))
            sure = Chunks.joined([Chunks.certain(children, half=False)])
            forest = Forest([(tree, sure)], np.arange(9, dtype=np.int32), SearchParameters(0, link))
            found, given = forest.predict(sp.csr_array(np.ones((2, 9), dtype=np.float32)), children)
            assert (found == np.arange(children)).all()
            assert (given == 1).all()


# ---- search


class RandomTree(NamedTuple):
    tree: LabelTree
    weights: list[list[Floats]]
    """(D + 1, children) of each node, level by level; the bias is last."""
    chunks: Chunks


WORDS = 40


def random_tree(depth: int, labels: int, chance: Chance, *, ties: bool) -> RandomTree:
    """Any tree of this depth, only children among the nodes. For ties, weights are few values that add up exactly."""
    starts: list[NDArray[np.int64]] = []
    below = labels
    for level in range(depth - 1, -1, -1):
        nodes = 1 if level == 0 else int(chance.integers(1, max(2, min(below, labels // 2) + 1)))
        cuts = np.sort(chance.permutation(np.arange(1, below))[: nodes - 1])
        starts.insert(0, np.concatenate([[0], cuts, [below]]))
        below = nodes
    weights: list[list[Floats]] = []
    for bounds in starts:
        own = []
        for children in np.diff(bounds).tolist():
            drawn = (
                chance.integers(-4, 5, (WORDS + 1, children)) / 4 if ties else chance.normal(size=(WORDS + 1, children))
            )
            drawn[:-1] *= chance.random((WORDS, children)) < chance.choice([0.02, 0.3, 1.0])
            own.append(drawn.astype(np.float32).astype(np.float64))
        weights.append(own)
    chunks = Chunks.joined([chunk(node[:-1], node[-1]) for level in weights for node in level])
    return RandomTree(LabelTree(chance.permutation(labels), tuple(starts)), weights, chunks)


def some_rows(count: int, chance: Chance) -> Csr:
    """Values that add up exactly with the weights of trees with ties; the first row is empty."""
    rows = chance.choice([0, 0, 0, 0.5, 1], (count, WORDS)).astype(np.float32)
    rows[0] = 0
    return sp.csr_array(rows)


def edges(made: RandomTree, row: Floats, link: int, path_weight: float) -> list[list[Floats]]:
    """Log-probabilities of the children of each node, level by level, times the weight of their level."""
    factors = [path_weight] * (len(made.weights) - 1) + [1.0]
    return [
        [factor * log_probability(row @ node[:-1] + node[-1], link) for node in level]
        for factor, level in zip(factors, made.weights, strict=True)
    ]


def exhaustive(made: RandomTree, row: Floats, link: int, path_weight: float = 1.0) -> Floats:
    """(L,) score of every label: the sum along its path."""
    scores = np.zeros(1)
    for level in edges(made, row, link, path_weight):
        scores = np.concatenate([above + own for above, own in zip(scores, level, strict=True)])
    out = np.empty(len(made.tree))
    out[made.tree.order] = scores
    return out


def beam_search(
    made: RandomTree, row: Floats, link: int, path_weight: float, beam: int, k: int, allowed: NDArray[np.bool_]
) -> list[tuple[int, float]]:
    """Level by level, every child of every node of the beam; of equal scores the lower number first."""
    logs, order = edges(made, row, link, path_weight), made.tree.order
    followed = [(0, 0.0)]
    for level, starts in enumerate(made.tree.starts):
        is_last = level == made.tree.depth - 1
        bounds = None if is_last else made.tree.bounds(level + 1)
        children = []
        for node, score in followed:
            for place in range(starts[node], starts[node + 1]):
                below = order[place : place + 1] if bounds is None else order[bounds[place] : bounds[place + 1]]
                if allowed[below].any():
                    name = int(order[place]) if is_last else place
                    children.append((name, score + logs[level][node][place - starts[node]]))
        followed = sorted(children, key=lambda child: (-child[1], child[0]))[: k if is_last else beam]
    return followed


def masks(labels: int, chance: Chance) -> Iterator[NDArray[np.bool_] | None]:
    yield None
    yield chance.random(labels) < 0.5
    only = np.zeros(labels, dtype=bool)
    only[chance.integers(labels)] = True
    yield only


@pytest.fixture(scope="module", params=[1, 2, 3, 4], ids=lambda depth: f"depth {depth}")
def exact_trees(request: pytest.FixtureRequest) -> list[RandomTree]:
    """Trees in which ties are many and sums exact."""
    chance = np.random.default_rng(request.param)
    return [random_tree(request.param, labels, chance, ties=True) for labels in (2, 13, 40, 150)]


def forest_of(search: SearchParameters, *made: RandomTree) -> Forest:
    return Forest([(one.tree, one.chunks) for one in made], np.arange(WORDS, dtype=np.int32), search)


def may_be_best(lists: list[tuple[list[int], Floats]], k: int) -> set[int]:
    """The labels among the best k if a tree gives those that it does not list at most its last listed probability."""
    lower, upper = dict[int, float](), dict[int, float]()
    proposed = {label for labels, _ in lists for label in labels} - {-1}
    for label in proposed:
        own = [given[labels.index(label)] if label in labels else 0.0 for labels, given in lists]
        last = [0.0 if label in labels or -1 in labels else given[-1] for labels, given in lists]
        lower[label], upper[label] = float(np.sum(own)), float(np.sum(own) + np.sum(last))
    least = sorted(lower.values(), reverse=True)[:k][-1]
    return {label for label in proposed if upper[label] >= least - 1e-7}


class TestSearch:
    @pytest.mark.parametrize("path_weight", [1.0, 0.5])
    @pytest.mark.parametrize("link", LINKS)
    def test_without_a_beam_equal_exhaustive_search(
        self, exact_trees: list[RandomTree], link: int, path_weight: float
    ) -> None:
        chance = np.random.default_rng(5)
        rows = some_rows(25, chance)
        for made in exact_trees:
            count = len(made.tree)
            scores = np.array([exhaustive(made, row, link, path_weight) for row in rows.toarray().astype(np.float64)])
            forest = forest_of(SearchParameters(0, link, path_weight), made)
            for k, allowed in itertools.product((1, 5, count + 3), masks(count, chance)):
                found, given = forest.predict(rows, k, allowed)
                valid = np.flatnonzero(np.ones(count, dtype=bool) if allowed is None else allowed)
                kept = min(k, len(valid))
                expected = valid[np.argsort(-scores[:, valid], axis=1, kind="stable")[:, :kept]]
                assert (found[:, kept:] == -1).all()
                assert np.isneginf(given[:, kept:]).all()
                found, given = found[:, :kept], given[:, :kept]
                own, best = (np.take_along_axis(scores, labels, axis=1) for labels in (found, expected))
                np.testing.assert_allclose(given, np.exp(own), rtol=1e-4, atol=1e-37)
                if link == SIGMOID:  # logarithms are not exact, so that near-ties may change places
                    np.testing.assert_allclose(own, best, rtol=1e-5, atol=1e-6)
                    assert np.isin(found, valid).all()
                    assert all(len(set(row)) == kept for row in found.tolist())
                else:
                    assert (found == expected).all()

    @pytest.mark.parametrize(("link", "path_weight"), [(2, 1.0), (3, 1.0), (3, 0.5)])
    @pytest.mark.parametrize("beam", [1, 2, 4, 10])
    def test_equal_a_plain_beam_search(
        self, exact_trees: list[RandomTree], link: int, path_weight: float, beam: int
    ) -> None:
        chance = np.random.default_rng(beam)
        rows = some_rows(25, chance)
        for made in exact_trees[1:]:
            forest = forest_of(SearchParameters(beam, link, path_weight), made)
            for k, allowed in itertools.product((1, 3, 12), masks(len(made.tree), chance)):
                found, given = forest.predict(rows, k, allowed)
                mask = np.ones(len(made.tree), dtype=bool) if allowed is None else allowed
                for place, row in enumerate(rows.toarray().astype(np.float64)):
                    expected = beam_search(made, row, link, path_weight, beam, k, mask)
                    assert found[place].tolist() == [label for label, _ in expected] + [-1] * (k - len(expected))
                    np.testing.assert_allclose(
                        given[place, : len(expected)], np.exp([score for _, score in expected]), rtol=1e-6, atol=1e-37
                    )

    @pytest.mark.parametrize("link", LINKS)
    @pytest.mark.parametrize("beam", [0, 3])
    @pytest.mark.parametrize("trees", [1, 3])
    def test_the_same_bits_however_it_is_asked(self, link: int, beam: int, trees: int) -> None:
        chance = np.random.default_rng([link, beam, trees])
        for depth in (1, 2, 3):
            made = [random_tree(depth, 90, chance, ties=False) for _ in range(trees)]
            forest, rows = forest_of(SearchParameters(beam, link, 0.7), *made), unit_matrix(70, WORDS, 0.2, chance)
            found, given = forest.predict(rows, 7)
            assert (forest.score(rows, found) == given).all()
            assert (forest.score(rows, found[:, ::-1], threads=2) == given[:, ::-1]).all()
            for threads in (2, 3):
                labels, scores = forest.predict(rows, 7, threads=threads)
                assert (labels == found).all()
                assert (scores == given).all()
            for row in range(70):
                labels, scores = forest.predict(rows[[row]], 7)
                assert (labels[0] == found[row]).all()
                assert (scores[0] == given[row]).all()
                alone = forest.predict_one(rows[[row]], 7)
                assert alone[0].tolist() == found[row][found[row] >= 0].tolist()
                assert alone[1].tolist() == given[row][found[row] >= 0].tolist()
            fewer = forest.predict(rows, 2)
            if trees == 1:
                assert (fewer[0] == found[:, :2]).all()
                assert (fewer[1] == given[:, :2]).all()

    @pytest.mark.parametrize("beam", [0, 2])
    def test_several_trees_give_the_mean(self, beam: int) -> None:
        chance = np.random.default_rng(8)
        made = [random_tree(depth, 90, chance, ties=False) for depth in (1, 2, 3)]
        rows = unit_matrix(50, WORDS, 0.2, chance)
        singles = [forest_of(SearchParameters(beam, 3), one) for one in made]
        together = forest_of(SearchParameters(beam, 3), *made)
        everything = np.tile(np.arange(90), (50, 1))
        first, second, third = (single.score(rows, everything) for single in singles)
        mean = (first + second + third) / np.float32(3)  # in this precision, or what is a tie there would be none here
        np.testing.assert_allclose(together.score(rows, everything), mean, rtol=1e-6)
        for k, allowed in itertools.product((1, 5, 30, 80), masks(90, chance)):
            found, given = together.predict(rows, k, allowed)
            lists = [single.predict(rows, max(k, SHORTLIST), allowed) for single in singles]
            for row in range(50):
                considered = may_be_best([(labels[row].tolist(), chances[row]) for labels, chances in lists], k)
                expected = sorted(considered, key=lambda label: (-mean[row, label], label))[:k]
                assert found[row].tolist() == expected + [-1] * (k - len(expected))
                np.testing.assert_allclose(given[row, : len(expected)], mean[row, expected], rtol=1e-6)
                assert np.isneginf(given[row, len(expected) :]).all()

    def test_a_label_outside_a_beam_counts_at_most_as_the_last_listed(self) -> None:
        def constants(*probabilities: float) -> Chunks:
            bias = 1 - np.sqrt(-np.log(probabilities))
            return chunk(np.zeros((WORDS, len(bias))), bias)

        tree = LabelTree(np.arange(20), (np.array([0, 2]), np.array([0, 10, 20])))
        low, last = constants(*[0.5] * 9, 0.01), constants(*[0.1] * 9, 1.0)
        left = Chunks.joined([constants(1.0, 0.99), low, last])  # the beam goes left, the last label is on the right
        right = Chunks.joined([constants(0.1, 1.0), low, low])  # which names it, but last
        forest = Forest([(tree, left), (tree, right)], np.arange(WORDS, dtype=np.int32), SearchParameters(1, 2))
        found, given = forest.predict(sp.csr_array((1, WORDS), dtype=np.float32), 2)
        assert found.tolist() == [[10, 11]]
        np.testing.assert_allclose(given, [[(0.099 + 0.5) / 2] * 2], rtol=1e-5)

    def test_pads_among_the_candidates(self) -> None:
        chance = np.random.default_rng(9)
        made = [random_tree(2, 30, chance, ties=False) for _ in range(2)]
        rows = unit_matrix(10, WORDS, 0.2, chance)
        candidates = chance.integers(-1, 30, (10, 12))
        for trees in (made[:1], made):
            forest = forest_of(SearchParameters(1, 2), *trees)
            scores = forest.score(rows, candidates)
            everything = forest.score(rows, np.tile(np.arange(30), (10, 1)))
            expected = np.where(candidates < 0, -np.inf, np.take_along_axis(everything, candidates, axis=1))
            assert (scores == expected).all()

    def test_no_rows(self) -> None:
        made = random_tree(2, 30, np.random.default_rng(0), ties=False)
        rows = sp.csr_array((0, WORDS), dtype=np.float32)
        found, given = forest_of(SearchParameters(1, 2), made).predict(rows, 4)
        assert found.shape == given.shape == (0, 4)

    def test_reasons_add_up(self) -> None:
        """The probabilities of the path multiply to the score; weights and bias give the last of them."""
        chance = np.random.default_rng(10)
        made = [random_tree(depth, 60, chance, ties=False) for depth in (3, 2)]
        numbers = chance.permutation(WORDS).astype(np.int32)
        rows = unit_matrix(15, WORDS, 0.2, chance)
        for one in made:
            forest = Forest([(one.tree, one.chunks)], numbers, SearchParameters(0, 2))
            for row, label in itertools.product(range(15), (0, 17, 59)):
                reasons = forest.reasons(rows[[row]], label)
                assert len(reasons.path) == one.tree.depth
                product = np.prod([step.probability for step in reasons.path])
                assert product == pytest.approx(
                    forest.score(rows[[row]], np.array([[label]]))[0, 0], rel=1e-4, abs=1e-30
                )
                values = rows[[row]].toarray()[0]
                margin = reasons.bias + sum(weight * values[word] for word, weight in reasons.weights.items())
                last = np.exp(log_probability(np.array([margin]), 2)[0])
                assert last == pytest.approx(reasons.path[-1].probability, rel=1e-3, abs=1e-6)
                for level, step in enumerate(reasons.path[:-1], start=1):
                    nodes = one.tree.node_of(level)
                    assert sorted(step.below.tolist()) == np.flatnonzero(nodes == nodes[label]).tolist()
                assert reasons.path[-1].below.tolist() == [label]


# ---- training


class Problem(NamedTuple):
    matrix: Csr
    labels: Csr
    tree: LabelTree


def random_problem(documents: int, words: int, labels: int, depth: int, seed: int) -> Problem:
    """Labels that have words of their own, some of them with one document or none."""
    chance = np.random.default_rng(seed)
    held = chance.random((documents, labels)) < chance.uniform(0, 0.15, labels)
    held[:, 0], held[:, 1] = False, False
    held[chance.integers(documents), 1] = True
    own = chance.random((labels, words)) < 0.1
    rows = (held.astype(int) @ own) * (chance.random((documents, words)) < 0.6) + (
        chance.random((documents, words)) < 0.03
    )
    rows[:3] = 0  # documents without words
    made = random_tree(depth, labels, chance, ties=True)
    return Problem(unit_rows(sp.csr_array(rows.astype(np.float32))), sp.csr_array(held.astype(np.float32)), made.tree)


def trained(
    problem: Problem, objective: LinearObjective, *, seed: int = 3, threads: int = 1
) -> tuple[Chunks, NDArray[np.int32]]:
    numbers = numbers_by_frequency(problem.matrix)
    rows = Rows.build(problem.matrix, numbers)
    width = int(problem.matrix.shape[1])
    return train_tree(rows, width, problem.labels, problem.tree, objective, seed=seed, threads=threads), numbers


class TestTraining:
    @pytest.mark.parametrize("weights", ["float32", "float16"])
    def test_threads_do_not_matter(self, weights: str) -> None:
        problem = random_problem(400, 120, 90, 3, 0)
        objective = LinearObjective(weights=weights)  # type: ignore[arg-type]
        one, two, four = (trained(problem, objective, threads=threads)[0] for threads in (1, 2, 4))
        assert equal(one, two)
        assert equal(one, four)
        assert not equal(one, trained(problem, objective, seed=4)[0])

    def test_threads_do_not_matter_to_single_labels(self) -> None:
        problem = random_problem(400, 120, 90, 1, 1)
        rows = Rows.build(problem.matrix, numbers_by_frequency(problem.matrix))
        found = [
            train_flat(rows, 120, problem.labels, LinearObjective(), seed=1, threads=threads, at_once=32)
            for threads in (1, 2)
        ]
        assert equal(found[0][1], found[1][1])
        assert found[0][0].depth == 2
        assert found[0][0].nodes(1) == 3

    @pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
    def test_nodes_equal_classifiers_trained_alone(self, loss: str) -> None:
        """Each node on the whole rows of the documents that reach it, by a solver with another seed.

        The logistic loss costs more where fewer documents are left, in the same measure.
        """
        problem = random_problem(250, 80, 50, 3, 2)
        objective = LinearObjective(loss=loss, cost=2.0, tolerance=1e-4, passes=5000, prune=0.0)  # type: ignore[arg-type]
        chunks, numbers = trained(problem, objective)
        held, node, looked = problem.labels.toarray() > 0, 0, 0
        for level, starts in enumerate(problem.tree.starts):
            above, below = problem.tree.node_of(level), problem.tree.node_of(level + 1)
            for group in range(problem.tree.nodes(level)):
                reach = held[:, above == group].any(axis=1) if level else np.ones(len(held), dtype=bool)
                rows = problem.matrix[np.flatnonzero(reach)]
                children = range(starts[group], starts[group + 1])
                for first in range(0, len(children), LANES) if len(children) > 1 else ():
                    block = children[first : first + LANES]
                    signs = np.full((rows.shape[0], LANES), -1, dtype=np.int8)
                    for lane, child in enumerate(block):
                        signs[held[reach][:, below == child].any(axis=1), lane] = 1
                    indptr = rows.indptr.astype(np.int64)
                    weights, bias = solve(
                        indptr,
                        rows.indices.astype(np.int32),
                        rows.data,
                        80,
                        row_squares(indptr, rows.data),
                        signs,
                        loss=loss,
                        cost=2.0 if loss == "squared_hinge" else 2.0 * len(held) / max(1, rows.shape[0]),
                        tolerance=1e-4,
                        passes=5000,
                        seed=99,
                    )
                    for lane in range(len(block)):
                        own = np.zeros(80)
                        for number, weight in chunks.column(node, first + lane).items():
                            own[np.flatnonzero(numbers == number)[0]] = weight
                        np.testing.assert_allclose(own, weights[:, lane], atol=5e-3)
                        constant = chunks.bias[chunks.bias_start[node] + first + lane]
                        np.testing.assert_allclose(constant, bias[lane], atol=5e-3)
                        looked += 1
                node += 1
        assert node == chunks.nodes
        assert looked > 50

    @pytest.mark.parametrize("link", LINKS)
    def test_an_only_child_is_certain(self, link: int) -> None:
        problem = random_problem(200, 60, 12, 1, 3)
        starts = (np.array([0, 3]), np.array([0, 1, 2, 3]), np.array([0, 1, 6, 12]))
        problem = problem._replace(tree=LabelTree(np.arange(12), starts))
        chunks, numbers = trained(problem, LinearObjective())
        forest = Forest([(problem.tree, chunks)], numbers, SearchParameters(0, link))
        for label, nodes in ((0, [0]), (3, [0, 5]), (9, [0, 6])):  # an explanation leaves them out
            reasons = forest.reasons(problem.matrix[[7]], label)
            assert [step.node for step in reasons.path] == nodes
            probability = float(np.prod([step.probability for step in reasons.path]))
            assert probability == pytest.approx(float(forest.score(problem.matrix[[7]], np.array([[label]]))[0, 0]))
            assert np.isfinite(reasons.bias)

    @pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
    def test_nodes_and_labels_without_documents(self, loss: str) -> None:
        problem = random_problem(150, 60, 30, 1, 4)
        held = problem.labels.toarray()
        held[:, :10] = 0
        tree = LabelTree(np.arange(30), (np.array([0, 3]), np.array([0, 10, 20, 30])))  # nobody reaches the first node
        problem = Problem(problem.matrix, sp.csr_array(held), tree)
        chunks, numbers = trained(problem, LinearObjective(loss=loss))  # type: ignore[arg-type]
        assert all(chunks.column(1, child) == {} for child in range(10))
        for link in LINKS:
            found, given = Forest([(tree, chunks)], numbers, SearchParameters(0, link)).predict(problem.matrix, 30)
            assert (np.sort(found, axis=1) == np.arange(30)).all()
            assert np.isfinite(given).all()
            assert ((given >= 0) & (given <= 1)).all()
            if (link == SIGMOID) == (loss == "logistic"):
                assert (found[held.any(axis=1), 0] >= 10).all()

    def test_negatives_are_the_nodes_that_a_search_tries_first(self) -> None:
        """A node is also trained on the documents for which its parent's classifiers rank it among the first two."""
        problem = random_problem(150, 60, 40, 2, 6)
        numbers = numbers_by_frequency(problem.matrix)
        rows, width = Rows.build(problem.matrix, numbers), int(problem.matrix.shape[1])
        aim = LinearObjective(prune=0.0)
        chunks = train_tree(rows, width, problem.labels, problem.tree, aim, seed=1, threads=2, negatives=2)
        root, leaves = problem.tree.nodes(0), problem.tree.nodes(1)
        weights = np.zeros((width, leaves))
        for leaf in range(leaves):
            for feature, weight in chunks.column(0, leaf).items():
                weights[feature, leaf] = weight
        margins = problem.matrix.toarray()[:, np.argsort(numbers)] @ weights + chunks.bias[:leaves]
        lack = np.maximum(0, 1 - margins)
        first_two = np.argsort(lack, axis=1, kind="stable")[:, :2]
        reached = problem.tree.node_labels(problem.labels, 1).toarray() > 0
        own = reached.sum()
        reached[np.arange(len(reached))[:, None], first_two] = True
        assert reached.sum() > own
        documents = Members.build(sp.csr_array(reached.astype(np.float32)))
        children = Members.build(problem.tree.node_labels(problem.labels, 2))
        trainer = NodeTrainer(rows, width, documents, children, problem.tree.starts[1], aim, 1 + 7919)
        assert equal(chunks.taken(range(root, root + leaves)), trainer.train(range(leaves), 1))

    def test_automatic_cost(self) -> None:
        aim = LinearObjective(cost="auto")
        assert [aim.resolved(features).cost for features in (10, 500, 4201, 39_209, 200_000)] == [
            0.25,
            0.25,
            0.379,
            0.74,
            1,
        ]
        assert LinearObjective(cost="auto", loss="logistic").resolved(500).cost == 1
        assert LinearObjective(cost=3.0).resolved(500).cost == 3.0

    @pytest.mark.parametrize(("kind", "settings"), [(Parabel, {}), (Bonsai, {"trees": "auto"})])
    def test_automatic_number_of_trees(
        self, kind: type[Model], settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        problem = random_problem(150, 60, 40, 2, 6)
        for few, trees in ((40, 1), (39, 2)):
            monkeypatch.setattr(linear_tree, "FEW_LABELS", few)
            model = kind(leaf_size=8, **settings).fit(problem.matrix, problem.labels)
            assert isinstance(model, ForestModel)
            assert len(model._forest) == trees

    def test_folders_without_a_path_weight(self) -> None:
        """They were written when all edges of a path weighed the same."""
        problem = random_problem(150, 60, 40, 2, 6)
        model = Parabel(path_weight=1.0, leaf_size=8).fit(problem.matrix, problem.labels)
        state = model._state()
        del state.values["path_weight"]
        older = Parabel(leaf_size=8)
        older.label_counts, older.runtime = model.label_counts, model.runtime
        older._restore(SavedState(state))
        assert older.config.path_weight == 1.0
        rows = older._forest.predict(problem.matrix, 5)
        assert (rows[1] == model._forest.predict(problem.matrix, 5)[1]).all()

    def test_workspace_parts_are_taken_as_they_are(self, tmp_path: Path) -> None:
        problem = random_problem(150, 60, 30, 3, 5)
        rows = Rows.build(problem.matrix, numbers_by_frequency(problem.matrix))
        plain = train_tree(rows, 60, problem.labels, problem.tree, LinearObjective(), seed=1, threads=1)
        work = Workspace(tmp_path / "work")
        (tmp_path / "work").mkdir()
        for _ in range(2):
            again = train_tree(
                rows,
                60,
                problem.labels,
                problem.tree,
                LinearObjective(),
                seed=1,
                threads=2,
                workspace=work,
                name="some",
            )
            assert equal(again, plain)
        assert sorted(path.name for path in (tmp_path / "work").glob("*.safetensors")) == [
            f"some-level-{level}.safetensors" for level in range(3)
        ]


# ---- models


Planted = tuple[Dataset, Dataset, PlantedCorpus]


class TestModels:
    @pytest.mark.parametrize(
        "model", [Parabel(trees=2, leaf_size=4, fan_out=4), OneVsAll()], ids=["parabel", "one_vs_all"]
    )
    def test_goes_on_with_whatever_parts_are_left(self, model: Model, tmp_path: Path) -> None:
        train, test, _ = planted_split(400, 40, labels=450, seed=11)
        runtime = Runtime(threads=2, seed=5)

        def fit(workspace: Workspace | None, name: str) -> Model:
            fitted = type(model)(**model.get_params(deep=False)).fit(train, runtime=runtime, workspace=workspace)
            fitted.save(tmp_path / name, overwrite=True)
            return fitted

        reference = fit(None, "reference")
        answer = reference.predict(test, k=5)
        files = read_manifest(tmp_path / "reference")["files"]
        work = Workspace(tmp_path / "work")
        (tmp_path / "work").mkdir()
        fit(work, "first")
        parts = sorted((tmp_path / "work").glob("*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
        assert len(parts) == (2 if isinstance(model, OneVsAll) else 10)
        whole = {part: part.read_bytes() for part in parts}
        cuts = [*([part] for part in parts), *(parts[at:] for at in range(0, len(parts), 3))]
        for lost in cuts:
            for part in lost:
                part.unlink()
            kept = {part: part.stat().st_mtime_ns for part in parts if part not in lost}
            resumed = fit(work, "resumed")
            assert read_manifest(tmp_path / "resumed")["files"] == files
            assert {part: part.read_bytes() for part in parts} == whole
            assert {part: part.stat().st_mtime_ns for part in kept} == kept
        again = resumed.predict(test, k=5)
        assert (again.labels == answer.labels).all()
        assert (again.scores == answer.scores).all()

    @pytest.mark.parametrize("kind", [Parabel, Bonsai, OneVsAll])
    def test_documents_without_words(self, kind: type[Model], planted: Planted) -> None:
        model = kind().fit(planted[0])
        answer = model.predict(["", "qqqq zzzz", planted[1].text()[0].as_py()], k=60)
        assert np.isfinite(answer.scores).all()
        assert (np.diff(answer.scores, axis=1) <= 0).all()
        assert (answer.labels[0] == answer.labels[1]).all()
        assert (answer.labels[0] != answer.labels[2]).any()

    @pytest.mark.parametrize("kind", [Parabel, Bonsai, OneVsAll])
    @pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
    def test_dense_features(self, kind: type[Model], loss: str) -> None:
        """Documents around the middle of their label; the middles are far apart."""
        chance = np.random.default_rng(3)
        middles = chance.normal(size=(40, 24))
        truth = np.concatenate([np.arange(40), chance.integers(0, 39, 600)])  # the last label has one document
        documents = middles[truth] + 0.3 * chance.normal(size=(640, 24))
        model = kind(loss=loss, **({} if kind is OneVsAll else {"leaf_size": 5, "trees": 2}))
        model.fit(documents, [[int(label)] for label in truth])
        unseen = middles + 0.3 * chance.normal(size=(40, 24))
        answer = model.predict(unseen, k=2)
        assert np.isfinite(answer.scores).all()
        assert np.mean([int(row[0]) == label for label, row in enumerate(answer.keys())]) >= 0.85

    @pytest.mark.parametrize("kind", [Parabel, Bonsai, OneVsAll])
    def test_one_label_and_two(self, kind: type[Model]) -> None:
        alone = kind().fit(["a cat purrs", "the cat sleeps"], [["cat"], ["cat"]]).predict(["a cat", ""], k=1)
        assert (alone.labels == 0).all()
        assert np.isfinite(alone.scores).all()
        model = kind(text__min_df=1).fit(["a cat purrs", "a dog barks"], [["cat"], ["dog"]])
        assert model.predict(["my cat", "my dog"], k=1).names() == [["cat"], ["dog"]]


class TestFlat:
    @pytest.mark.parametrize("count", [1, 255, 256, 257, 513])
    def test_a_label_does_not_depend_on_its_group(self, count: int) -> None:
        """Groups of 256 labels are trained together; a last group of one label is no certainty."""
        problem = random_problem(120, 60, 513, 1, 3)
        labels = problem.labels[:, :count]
        numbers = numbers_by_frequency(problem.matrix)
        rows = Rows.build(problem.matrix, numbers)
        aim = LinearObjective(tolerance=1e-4, passes=1000, prune=0.0)
        width = int(problem.matrix.shape[1])
        flat = train_flat(rows, width, labels, aim, seed=0, threads=2)
        forest = Forest([flat], numbers, SearchParameters(0, SIGMOID))
        found, given = forest.predict(problem.matrix, count)
        assert (np.sort(found, axis=1) == np.arange(count)).all()
        assert (given[:, 0] < 1).all()
        last = np.full((problem.matrix.shape[0], 1), count - 1)
        one = train_flat(rows, width, labels[:, [count - 1]], aim, seed=3, threads=1)
        alone = Forest([one], numbers, SearchParameters(0, SIGMOID))
        np.testing.assert_allclose(
            forest.score(problem.matrix, last), alone.score(problem.matrix, np.zeros_like(last)), atol=1e-3
        )


class TestDamage:
    """A folder whose arrays do not hang together is refused before a kernel walks them."""

    @pytest.fixture
    def state(self) -> tuple[dict[str, np.ndarray], int, int]:
        problem = random_problem(100, 60, 30, 2, 4)
        chunks, numbers = trained(problem, LinearObjective(prune=0.4))
        forest = Forest([(problem.tree, chunks), (problem.tree, chunks)], numbers, SearchParameters(10, 3))
        assert all(len(array) for array in forest.state().values())
        return forest.state(), 30, 60

    def test_whole(self, state: tuple[dict[str, np.ndarray], int, int]) -> None:
        arrays, labels, width = state
        assert len(restored(arrays, labels, width)) == 2

    @pytest.mark.parametrize("name", [*Chunks._fields, "order", "starts-0"])
    def test_a_changed_array(self, name: str, state: tuple[dict[str, np.ndarray], int, int]) -> None:
        arrays, labels, width = state
        before = arrays[f"tree-1.{name}"]
        for after in (before[:-1], np.append(before, before[-1:]), before.astype(np.float64), before[None]):
            with pytest.raises(ModelFormatError, match=r"train (the model|it) again"):
                restored({**arrays, f"tree-1.{name}": after}, labels, width)
        if name.endswith("_start"):
            for after in (before * 1000, before + 1, np.zeros_like(before)):
                if before.any():
                    with pytest.raises(ModelFormatError, match=r"does not ascend|not a power of two|do not match"):
                        restored({**arrays, f"tree-1.{name}": after}, labels, width)

    @pytest.mark.parametrize(
        ("name", "value", "what"),
        [
            ("sparse_columns", 65535, "columns outside its node"),
            ("sparse_ends", 2**31 - 1, "ends of sparse rows"),
            ("sparse_ends", -1, "ends of sparse rows"),
            ("table", 0, "row twice|no empty slot|rows outside"),
            ("table", 2**31 - 1, "features outside the model"),
            ("table", -(2**31), "features outside the model"),
            ("bias", np.nan, "contains NaN"),
            ("order", 0, "labels are missing"),
            ("order", 2**62, "contains numbers"),
        ],
    )
    def test_values_that_kernels_must_not_see(
        self, name: str, value: float, what: str, state: tuple[dict[str, np.ndarray], int, int]
    ) -> None:
        """Each of these made a kernel read beyond its arrays, or search for an empty slot forever."""
        arrays, labels, width = state
        damaged = {**arrays, f"tree-1.{name}": np.full_like(arrays[f"tree-1.{name}"], value)}
        with pytest.raises(ModelFormatError, match=what):
            restored(damaged, labels, width)

    def test_a_single_value_anywhere(self, state: tuple[dict[str, np.ndarray], int, int]) -> None:
        """Every slot, row end and column is checked, not only those at the edges."""
        arrays, labels, width = state
        random = np.random.default_rng(5)
        for name, value in (("table", width), ("sparse_ends", 2**30), ("sparse_columns", 60_000)):
            whole = arrays[f"tree-1.{name}"]
            for place in random.integers(0, len(whole), 20).tolist():
                damaged = whole.copy()
                damaged[place - place % 2 if name == "table" else place] = value
                with pytest.raises(ModelFormatError, match="weights are damaged"):
                    restored({**arrays, f"tree-1.{name}": damaged}, labels, width)

    def test_a_row_that_two_features_share(self, state: tuple[dict[str, np.ndarray], int, int]) -> None:
        arrays, labels, width = state
        table = arrays["tree-1.table"].copy().reshape(-1, 2)
        start, stop = arrays["tree-1.table_start"][:2].tolist()
        used = np.flatnonzero(table[start:stop, 0] >= 0)[:2] + start
        table[used[1], 1] = table[used[0], 1]
        with pytest.raises(ModelFormatError, match="refers to a row twice"):
            restored({**arrays, "tree-1.table": table.ravel()}, labels, width)

    def test_a_row_that_no_feature_has(self, state: tuple[dict[str, np.ndarray], int, int]) -> None:
        arrays, labels, width = state
        table = arrays["tree-1.table"].copy().reshape(-1, 2)
        table[np.flatnonzero(table[:, 0] >= 0)[3]] = -1
        with pytest.raises(ModelFormatError, match="a row is not in the hash table"):
            restored({**arrays, "tree-1.table": table.ravel()}, labels, width)

    def test_weights_in_half_precision(self) -> None:
        problem = random_problem(100, 60, 30, 2, 4)
        chunks, numbers = trained(problem, LinearObjective(prune=0.4, weights="float16"))
        arrays = Forest([(problem.tree, chunks)], numbers, SearchParameters(10, 3)).state()
        assert len(restored(arrays, 30, 60)) == 1
        for name in ("dense", "sparse_weights"):
            wrong = arrays[f"tree-0.{name}"].copy()
            wrong[len(wrong) // 2] = 0x7C00  # infinity
            with pytest.raises(ModelFormatError, match="a weight is NaN or infinite"):
                restored({**arrays, f"tree-0.{name}": wrong}, 30, 60)

    def test_other_labels_or_features(self, state: tuple[dict[str, np.ndarray], int, int]) -> None:
        arrays, labels, width = state
        with pytest.raises(ModelFormatError, match=r"'tree-0\.order' has shape 30, expected 31"):
            restored(arrays, labels + 1, width)
        with pytest.raises(ModelFormatError, match="'numbers' has shape 60, expected 61"):
            restored(arrays, labels, width + 1)


def restored(arrays: dict[str, np.ndarray], labels: int, width: int) -> Forest:
    return Forest.from_state(SavedState(State(arrays=arrays)), SearchParameters(10, 3), labels=labels, width=width)
