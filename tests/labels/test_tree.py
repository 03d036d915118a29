"""Label features, clusters and trees against brute force and against planted groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xmtc.core.errors import ConfigError, DataError, ModelFormatError
from xmtc.labels import clustering, tree
from xmtc.labels.clustering import balanced_halves, left_sizes, node_seeds, spherical_kmeans
from xmtc.labels.features import cooccurrence_features, even_ranges, joined, positive_features
from xmtc.labels.tree import (
    LabelTree,
    balanced_levels,
    balanced_tree,
    binary_tree,
    shallow_levels,
    shallow_sizes,
    shallow_tree,
    unbalanced_tree,
)


def random_rows(count: int, width: int, density: float, seed: int) -> sp.csr_array:
    matrix = sp.random_array((count, width), density=density, rng=np.random.default_rng(seed), format="csr")
    return sp.csr_array(matrix, dtype=np.float32)


def random_labels(count: int, width: int, density: float, seed: int) -> sp.csr_array:
    return sp.csr_array((random_rows(count, width, density, seed) > 0).astype(np.float32))


def planted_features(groups: int, each: int, seed: int = 0, noise: float = 0.1) -> tuple[sp.csr_array, np.ndarray]:
    """Unit rows and their groups, shuffled: a group has ten features of its own, and all share some noise."""
    random = np.random.default_rng(seed)
    truth = random.permutation(np.repeat(np.arange(groups), each))
    dense = (
        noise * random.random((len(truth), 10 * groups + 50)) * (random.random((len(truth), 10 * groups + 50)) < 0.2)
    )
    for row, group in enumerate(truth):
        dense[row, 10 * group : 10 * group + 10] += 0.5 + random.random(10)
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    return sp.csr_array(dense.astype(np.float32)), truth


def same_groups(found: np.ndarray, truth: np.ndarray) -> bool:
    pairs = set(zip(found.tolist(), truth.tolist(), strict=True))
    return len(pairs) == len(set(found.tolist())) == len(set(truth.tolist()))


def assert_equal_bits(one: sp.csr_array, other: sp.csr_array) -> None:
    assert one.shape == other.shape
    for name in ("indptr", "indices", "data"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


def assert_same_tree(one: LabelTree, other: LabelTree) -> None:
    assert one.state().keys() == other.state().keys()
    assert all((array == other.state()[name]).all() for name, array in one.state().items())


def cut_rows(sums: np.ndarray, keep: int) -> np.ndarray:
    """The `keep` largest of each row, smaller columns first among equals, scaled to unit length."""
    out = np.zeros_like(sums)
    for row, values in enumerate(sums):
        order = sorted(np.flatnonzero(values), key=lambda f: (-abs(values[f]), f))[: keep or None]
        out[row, order] = values[order] / np.linalg.norm(values[order]) if order else 0
    return out


class TestFeatures:
    @pytest.mark.parametrize("keep", [0, 1, 7, 100])
    def test_equal_brute_force(self, keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("xmtc.labels.features.SUMMED", 100)  # many small parts
        rows, labels = random_rows(120, 50, 0.1, 0), random_labels(120, 40, 0.04, 1)
        rows.data -= np.float32(0.3)  # negative entries too
        features = positive_features(rows, labels, keep=keep)
        expected = cut_rows((labels.T.astype(np.float64) @ rows.astype(np.float64)).toarray(), keep)
        np.testing.assert_allclose(features.toarray(), expected, atol=1e-6)
        assert features.dtype == np.float32
        assert features.nnz == np.count_nonzero(expected)
        assert features.has_canonical_format
        assert_equal_bits(features, positive_features(rows, labels, keep=keep, threads=2))

    def test_smaller_feature_wins_at_the_cut(self) -> None:
        rows = sp.csr_array(np.array([[1, 2, 1, 1, -1, 1]], dtype=np.float32))
        features = positive_features(rows, sp.csr_array(np.ones((1, 1), dtype=np.float32)), keep=3)
        assert features.indices.tolist() == [0, 1, 2]

    def test_what_cancels_is_no_feature(self) -> None:
        rows = sp.csr_array(np.array([[1, -2, 0], [-1, 2, 3], [1, 0, 0]], dtype=np.float32))
        labels = sp.csr_array(np.array([[1, 0], [1, 0], [0, 0]], dtype=np.float32))
        features = positive_features(rows, labels)
        assert features.toarray().tolist() == [[0, 0, 1], [0, 0, 0]]
        assert features.nnz == 1

    def test_labels_without_documents_are_empty_rows(self) -> None:
        labels = sp.csr_array(([1.0], ([0], [2])), shape=(5, 4), dtype=np.float32)
        features = positive_features(random_rows(5, 30, 0.5, 0), labels)
        assert np.diff(features.indptr).astype(bool).tolist() == [False, False, True, False]
        assert positive_features(random_rows(5, 30, 0.5, 0), labels[:, :0]).shape == (0, 30)

    def test_cooccurrence_is_the_product_of_labels(self) -> None:
        labels = random_labels(80, 30, 0.1, 2)
        for keep in (0, 4):
            expected = cut_rows((labels.T @ labels).toarray().astype(np.float64), keep)
            np.testing.assert_allclose(cooccurrence_features(labels, keep=keep).toarray(), expected, atol=1e-6)

    def test_joined_rows_have_unit_length(self) -> None:
        left = sp.csr_array(np.array([[1, 0], [0, 0], [0, 1]], dtype=np.float32))
        right = sp.csr_array(np.array([[0.6, 0.8], [0, 0], [0, 0]], dtype=np.float32))
        expected = [[0.5**0.5, 0, 0.6 * 0.5**0.5, 0.8 * 0.5**0.5], [0, 0, 0, 0], [0, 1, 0, 0]]
        np.testing.assert_allclose(joined(left, right).toarray(), expected, atol=1e-6)

    def test_unequal_row_counts_are_named(self) -> None:
        with pytest.raises(DataError, match="3 rows of features but 4 of labels"):
            positive_features(random_rows(3, 5, 0.5, 0), random_labels(4, 2, 0.5, 0))
        with pytest.raises(DataError, match="3 and 4"):
            joined(random_rows(3, 5, 0.5, 0), random_rows(4, 5, 0.5, 0))

    @given(st.lists(st.integers(0, 20)), st.integers(1, 50))
    def test_even_ranges_cover_all_once(self, work: list[int], share: int) -> None:
        ranges = list(even_ranges(np.array(work, dtype=np.int64), share))
        assert [item for part in ranges for item in part] == list(range(len(work)))
        assert all(sum(work[i] for i in part) >= share for part in ranges[:-1])


class TestHalves:
    @pytest.mark.parametrize("direct", [0, 1 << 40])  # never renumbered, always renumbered
    def test_planted_groups_are_recovered(self, direct: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clustering, "DIRECT", direct)
        features, truth = planted_features(2, 40)
        for seed in range(5):
            order, bounds = balanced_halves(features, np.arange(80), np.array([0, 80]), seed=seed)
            assert bounds.tolist() == [0, 40, 80]
            assert same_groups(np.repeat([0, 1], 40), truth[order])
            assert (np.diff(order[:40]) > 0).all()
            assert (np.diff(order[40:]) > 0).all()

    def test_groups_are_halved_apart(self) -> None:
        features, truth = planted_features(4, 20)
        members = np.concatenate([np.flatnonzero(truth < 2), np.flatnonzero(truth >= 2)])
        order, bounds = balanced_halves(features, members, np.array([0, 40, 80]), seed=3, threads=2)
        assert bounds.tolist() == [0, 20, 40, 60, 80]
        assert set(truth[order[:40]].tolist()) == {0, 1}
        assert same_groups(np.repeat(np.arange(4), 20), truth[order])

    def test_the_middle_is_split_where_groups_are_uneven(self) -> None:
        features, truth = planted_features(2, 40)
        members = np.concatenate([np.flatnonzero(truth == 0), np.flatnonzero(truth == 1)[:21]])
        order, bounds = balanced_halves(features, members, np.array([0, 61]), seed=0)
        assert np.diff(bounds).tolist() == [31, 30]
        assert 1 in {len(set(truth[half].tolist())) for half in (order[:31], order[31:])}

    @given(st.integers(1, 5000), st.sampled_from([1, 2, 16]))
    def test_sizes(self, count: int, align: int) -> None:
        size = int(left_sizes(np.array([count]), align)[0])
        half = -(-count // 2)
        assert half <= size < half + align
        assert size % align == 0 or count <= 4 * align
        assert size < count or count == 1
        assert left_sizes(np.array([count]), align, least=count // 2)[0] == half

    def test_seeds_differ_by_seed_level_and_node(self) -> None:
        seeds = [node_seeds(seed, level, 50).tolist() for seed in (-1, 0, 1, 2**70) for level in range(4)]
        assert len({value for row in seeds[:12] for value in row}) == 600
        assert node_seeds(5, 2, 10).tolist() == node_seeds(5, 2, 50)[:10].tolist()


class TestKmeans:
    def test_planted_groups_are_recovered(self) -> None:
        features, truth = planted_features(4, 30)
        best = max(
            (spherical_kmeans(features, np.arange(120), 4, 20, seed) for seed in range(8)), key=self.purity(truth)
        )
        assert same_groups(best, truth)

    def purity(self, truth: np.ndarray) -> Callable[[np.ndarray], int]:
        return lambda found: sum(np.bincount(truth[found == c]).max() for c in set(found.tolist()))

    def test_every_member_is_nearest_to_its_own_centre(self) -> None:
        features, truth = planted_features(6, 30, noise=0.4)
        members = np.flatnonzero(truth != 5)[::-1]
        found = spherical_kmeans(features, members, 10, 100, seed=2, tolerance=0.0)
        rows = features.toarray()[members].astype(np.float64)
        centres = np.stack([rows[found == c].sum(axis=0) for c in range(found.max() + 1)])
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
        similar = rows @ centres.T
        assert (similar.max(axis=1) - similar[np.arange(len(members)), found] < 1e-5).all()

    def test_neither_threads_nor_blocks_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        features = planted_features(8, 40, noise=0.5)[0]
        whole = spherical_kmeans(features, np.arange(320), 12, seed=4)
        monkeypatch.setattr(clustering, "MEMBERS", 17)
        assert (spherical_kmeans(features, np.arange(320), 12, seed=4, threads=2) == whole).all()
        assert (spherical_kmeans(features, np.arange(320), 12, seed=5) != whole).any()

    def test_labels_without_features_even_clusters_out(self) -> None:
        features = sp.csr_array(np.repeat(np.eye(2), [6, 2], axis=0).astype(np.float32))
        features = sp.csr_array(sp.vstack([features, sp.csr_array((4, 2), dtype=np.float32)]))
        seeds = (spherical_kmeans(features, np.arange(12), 2, seed=seed) for seed in range(20))
        found = next(found for found in seeds if found[0] != found[7])  # both directions were drawn
        assert len(set(found[:6].tolist())) == len(set(found[6:8].tolist())) == 1
        assert (found[8:] == found[7]).all()  # the smaller one

    def test_degenerate_members(self) -> None:
        empty = sp.csr_array((7, 3), dtype=np.float32)
        assert np.bincount(spherical_kmeans(empty, np.arange(7), 3)).tolist() == [3, 2, 2]
        same = sp.csr_array(np.ones((7, 3), dtype=np.float32))
        assert spherical_kmeans(same, np.arange(7), 3).tolist() == [0] * 7
        assert spherical_kmeans(same, np.array([4]), 3).tolist() == [0]


def chained_nodes(grown: LabelTree, level: int) -> np.ndarray:
    """Node of each label at a level, by walking down from the root."""
    nodes = np.full(len(grown), -1)

    def walk(at: int, node: int, above: int) -> None:
        above = node if at == level else above
        for child in range(grown.starts[at][node], grown.starts[at][node + 1]):
            if at + 1 == grown.depth:
                nodes[grown.order[child]] = child if level == grown.depth else above
            else:
                walk(at + 1, child, above)

    walk(0, 0, -1)
    return nodes


@pytest.fixture(scope="module")
def grown() -> LabelTree:
    return binary_tree(planted_features(8, 13, noise=0.5)[0], 4, seed=1)


class TestLabelTree:
    def test_nodes_and_parents(self, grown: LabelTree) -> None:
        assert grown.depth == 5
        assert [grown.nodes(level) for level in range(6)] == [1, 2, 4, 8, 16, 104]
        assert sorted(grown.order.tolist()) == list(range(104))
        assert (grown.order[grown.place_of()] == np.arange(104)).all()
        for level in range(6):
            assert (grown.node_of(level) == chained_nodes(grown, level)).all()
        for level in range(1, 6):
            assert (grown.parents(level)[grown.node_of(level)] == grown.node_of(level - 1)).all()
        with pytest.raises(ValueError, match="1 to 5"):
            grown.parents(0)

    @pytest.mark.parametrize("level", range(6))
    def test_node_labels_equal_brute_force(self, grown: LabelTree, level: int) -> None:
        labels = random_labels(50, 104, 0.05, 3)
        before = labels.copy()
        found = grown.node_labels(labels, level)
        expected = np.zeros((50, grown.nodes(level)))
        for document, label in zip(*labels.nonzero(), strict=True):
            expected[document, chained_nodes(grown, level)[label]] = 1
        assert (found.toarray() == expected).all()
        assert found.nnz == expected.sum()
        assert found.dtype == np.float32
        assert sp.csr_array((found.data, found.indices, found.indptr), shape=found.shape).has_canonical_format
        assert_equal_bits(labels, before)

    @pytest.mark.parametrize("levels", [[0], [0, 4], [0, 1, 3], [3, 0], [0, 1, 2, 3, 4]])
    def test_compressed_keeps_the_nodes(self, grown: LabelTree, levels: list[int]) -> None:
        short = grown.compressed(levels)
        short.check()
        assert short.depth == len(levels)
        for at, level in enumerate([*sorted(levels), 5]):
            assert (short.node_of(at) == grown.node_of(level)).all()

    @pytest.mark.parametrize("levels", [[], [1], [0, 5]])
    def test_compressed_needs_the_root_and_known_levels(self, grown: LabelTree, levels: list[int]) -> None:
        with pytest.raises(ValueError, match="the levels must include 0"):
            grown.compressed(levels)

    def test_state_comes_back(self, grown: LabelTree) -> None:
        assert_same_tree(LabelTree.from_arrays({**grown.state(), "weights": np.zeros(3)}), grown)

    @pytest.mark.parametrize(
        ("name", "array"),
        [
            ("order", [0, 1, 1]),
            ("order", [0, 1, 3]),
            ("order", [0, 1, -1]),
            ("order", [0, 1]),
            ("order", [0.0, 1.0, 2.0]),
            ("order", [[0, 1, 2]]),
            ("starts-0", [0, 1, 2]),
            ("starts-0", [0, 3]),
            ("starts-0", [0]),
            ("starts-1", [0, 3, 3]),
            ("starts-1", [1, 2, 3]),
            ("starts-1", [0, 4, 3]),
            ("order", None),
            ("starts-0", None),
            ("starts-1", None),
        ],
    )
    def test_damage_is_refused(self, name: str, array: list[int] | None) -> None:
        arrays = {"order": np.array([2, 0, 1]), "starts-0": np.array([0, 2]), "starts-1": np.array([0, 1, 3])}
        LabelTree.from_arrays(arrays)
        damaged = {key: value for key, value in arrays.items() if key != name}
        with pytest.raises(ModelFormatError, match="label tree is damaged"):
            LabelTree.from_arrays(damaged if array is None else {**damaged, name: np.array(array)})


class TestBuilders:
    def test_planted_groups_are_leaves(self) -> None:
        features, truth = planted_features(8, 12)
        found = [same_groups(binary_tree(features, 3, seed=seed).node_of(3), truth) for seed in range(5)]
        assert any(found)

    @pytest.mark.parametrize("grow", [lambda f, **k: binary_tree(f, 5, align=16, **k), balanced_tree, unbalanced_tree])
    def test_threads_do_not_matter_and_seeds_do(self, grow: Callable[..., LabelTree]) -> None:
        features = planted_features(30, 20, noise=0.6)[0]
        one = grow(features, seed=7, threads=1)
        assert_same_tree(one, grow(features, seed=7, threads=2))
        assert (one.order != grow(features, seed=8).order).any()
        assert (one.order[one.place_of()] == np.arange(600)).all()
        one.check()

    @settings(max_examples=30)
    @given(st.integers(1, 300), st.integers(0, 8), st.sampled_from([1, 16]))
    def test_every_leaf_has_labels(self, labels: int, depth: int, align: int) -> None:
        features = random_rows(labels, 20, 0.1, labels)
        depth = min(depth, labels.bit_length() - 1)
        grown = binary_tree(features, depth, align=align)
        grown.check()
        assert grown.nodes(depth) == 2**depth
        if align == 1:
            assert np.ptp(np.diff(grown.starts[-1])) <= 1

    def test_leaves_are_aligned(self) -> None:
        sizes = np.diff(binary_tree(random_rows(1000, 30, 0.2, 0), 3, align=16).starts[-1])
        assert (sizes[:-1] % 16 == 0).all()
        assert sizes.max() - sizes.min() < 48

    @pytest.mark.parametrize(
        ("labels", "leaf_size", "fan_out", "height", "sizes"),
        [
            (670_091, 8, 8, 3, [11, 14, 17]),  # Amazon-670K
            (501_008, 64, 64, 1, [13]),  # Wiki-500K
            (2_812_281, 8, 8, 3, [13, 16, 19]),  # Amazon-3M
            (1024, 8, 8, 2, [4, 7]),  # exactly a power of two
            (1025, 8, 8, 2, [5, 8]),
            (100, 8, 8, 9, [1, 4]),
            (8, 8, 8, 3, []),
            (3, 1, 2, 3, [1]),
        ],
    )
    def test_published_level_sizes(
        self, labels: int, leaf_size: int, fan_out: int, height: int, sizes: list[int]
    ) -> None:
        assert shallow_levels(labels, leaf_size, fan_out, height) == [0, *sizes]

    @pytest.mark.parametrize(
        ("bits", "fan_out", "levels"),
        [(0, 256, [0]), (8, 256, [0, 8]), (13, 256, [0, 7, 13]), (13, 300, [0, 7, 13]), (17, 256, [0, 6, 12, 17])],
    )
    def test_bits_are_shared_out_evenly(self, bits: int, fan_out: int, levels: list[int]) -> None:
        assert balanced_levels(128 << bits, 128, fan_out) == levels

    def test_shallow_tree_has_these_levels(self) -> None:
        grown = shallow_tree(random_rows(300, 40, 0.2, 0), leaf_size=4, fan_out=4, height=2, seed=0)
        assert [grown.nodes(level) for level in range(4)] == [1, 32, 128, 300]
        assert np.diff(grown.starts[-1]).max() <= 4
        assert (np.diff(grown.starts[1]) == 4).all()

    @pytest.mark.parametrize(
        ("labels", "leaf_size", "fan_out", "height", "nodes"),
        [
            (670_091, 8, 8, 3, [1, 2_048, 16_384, 131_072, 670_091]),  # Amazon-670K
            (501_008, 64, 64, 1, [1, 8_192, 501_008]),  # Wiki-500K
            (2_812_281, 8, 8, 3, [1, 8_192, 65_536, 524_288, 2_812_281]),  # Amazon-3M
        ],
    )
    def test_published_trees(self, labels: int, leaf_size: int, fan_out: int, height: int, nodes: list[int]) -> None:
        """Nodes of every level at full size, which follow from the number of labels alone."""
        nothing = sp.csr_array((labels, 0), dtype=np.float32)  # labels that cannot be told apart are halved at once
        grown = shallow_tree(nothing, leaf_size=leaf_size, fan_out=fan_out, height=height)
        assert [grown.nodes(level) for level in range(grown.depth + 1)] == nodes
        sizes = np.diff(grown.starts[-1])
        assert set(sizes.tolist()) <= {labels // nodes[-2], labels // nodes[-2] + 1}
        assert sizes.max() <= leaf_size
        assert all((np.diff(starts) == fan_out).all() for starts in grown.starts[1:-1])

    @pytest.mark.parametrize("labels", [65, 100, 129, 670])
    @pytest.mark.parametrize(("leaf_size", "fan_out", "height"), [(8, 8, 3), (4, 4, 2), (64, 64, 1), (3, 2, 5)])
    def test_shallow_clusters_are_even(self, labels: int, leaf_size: int, fan_out: int, height: int) -> None:
        features = random_rows(labels, 50, 0.2, labels)
        grown = shallow_tree(features, leaf_size=leaf_size, fan_out=fan_out, height=height, seed=1)
        grown.check()
        leaves = 1
        while leaves * leaf_size < labels:
            leaves *= 2
        expected = [labels, leaves]
        while len(expected) <= height and expected[-1] // fan_out > 1:
            expected.append(expected[-1] // fan_out)
        assert [grown.nodes(level) for level in range(grown.depth + 1)] == [1, *reversed(expected)]
        sizes = np.diff(grown.starts[-1])
        assert sizes.max() <= leaf_size
        assert np.ptp(sizes) <= 1

    def test_balanced_tree_keeps_to_its_fan_out(self) -> None:
        grown = balanced_tree(random_rows(1000, 40, 0.2, 0), leaf_size=16, fan_out=8, seed=0)
        assert [grown.nodes(level) for level in range(4)] == [1, 8, 64, 1000]

    def test_unbalanced_tree_has_one_depth(self) -> None:
        features, truth = planted_features(12, 10, noise=0.5)
        truth_first = np.concatenate([np.arange(120), np.flatnonzero(truth == 0).repeat(8)])  # one large group
        features = features[truth_first]
        grown = unbalanced_tree(features, clusters=4, leaf_size=30, depth=4, seed=0)
        grown.check()
        assert 2 <= grown.depth <= 4
        assert np.ptp(np.diff(grown.starts[-1])) > 1
        for level in range(grown.depth - 1):
            sizes, children = np.diff(grown.bounds(level)), np.diff(grown.starts[level])
            assert (children[sizes <= 30] == 1).all()
            assert children.max() > 1
            assert children.max() <= 4

    def test_small_unbalanced_trees_are_the_root(self) -> None:
        features = random_rows(50, 20, 0.2, 0)
        assert unbalanced_tree(features, leaf_size=50).depth == 1
        assert unbalanced_tree(features, leaf_size=5, depth=1).depth == 1
        assert unbalanced_tree(features, leaf_size=5, depth=2, clusters=7).nodes(1) == 7

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_few_labels(self, count: int) -> None:
        features = random_rows(count, 10, 0.5, 0)
        for grown in (
            binary_tree(features, 0),
            balanced_tree(features),
            shallow_tree(features, leaf_size=8, fan_out=8, height=3),
            unbalanced_tree(features),
        ):
            assert grown.order.tolist() == list(range(count))
            assert [starts.tolist() for starts in grown.starts] == [[0, count]]
        small = shallow_tree(features, leaf_size=1, fan_out=2, height=3)
        small.check()
        assert small.depth == (1 if count == 1 else 2)

    @pytest.mark.parametrize("features", [np.ones((40, 3)), np.zeros((40, 3)), np.zeros((40, 0))])
    def test_labels_that_cannot_be_told_apart(self, features: np.ndarray) -> None:
        rows = sp.csr_array(features.astype(np.float32))
        halved = binary_tree(rows, 3, seed=5)
        halved.check()
        assert np.diff(halved.starts[-1]).tolist() == [5] * 8
        assert halved.order.tolist() == list(range(40))
        unbalanced_tree(rows, clusters=3, leaf_size=4).check()

    def test_progress_reaches_its_total(self) -> None:
        class Counted:
            def __init__(self) -> None:
                self.left: int | None = None

            def task(self, title: str, total: int | None = None) -> Counted:
                assert title == "clustering labels"
                self.left = total
                return self

            def __enter__(self) -> Counted:
                return self

            def __exit__(self, *_: object) -> None:
                return

            def advance(self, steps: int = 1) -> None:
                assert self.left is not None
                self.left -= steps

        features = random_rows(200, 30, 0.2, 0)
        for grow in (
            lambda p: binary_tree(features, 4, progress=p),
            lambda p: unbalanced_tree(features, depth=5, progress=p),
        ):
            counted = Counted()
            grow(counted)
            assert counted.left == 0

    def test_wrong_settings_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        features = random_rows(40, 10, 0.5, 0)
        with pytest.raises(ConfigError, match=r"'depth' .* 0 to 5. Got 6"):
            binary_tree(features, 6)
        with pytest.raises(ConfigError, match=r"'fan_out' .* ≥ 2. Got 1"):
            balanced_tree(features, fan_out=1)
        with pytest.raises(ConfigError, match=r"'clusters' .* ≥ 2. Got 1"):
            unbalanced_tree(features, clusters=1)
        with pytest.raises(DataError, match="needs at least one label"):
            binary_tree(features[:0], 0)
        monkeypatch.setattr(tree, "MOST_CHILDREN", 9)
        with pytest.raises(ConfigError, match="a smaller 'leaf_size'"):
            balanced_tree(features, leaf_size=40)
        with pytest.raises(
            ConfigError, match=r"20 children; the maximum is 9. Set a smaller 'leaf_size', or a larger 'depth'"
        ):
            binary_tree(features, 1)
        with pytest.raises(ConfigError, match="or a larger 'depth'"):
            unbalanced_tree(features, depth=1)
        with pytest.raises(ConfigError, match="a larger 'height'"):
            shallow_tree(features, leaf_size=2, fan_out=2, height=1)


@pytest.mark.parametrize(
    ("labels", "leaf_size", "fan_out", "height"), [(300, 4, 4, 2), (97, 8, 8, 3), (5, 8, 2, 4), (1, 2, 2, 1)]
)
def test_a_shallow_tree_s_sizes_are_known_before_it_grows(
    labels: int, leaf_size: int, fan_out: int, height: int
) -> None:
    features = sp.random_array((labels, 30), density=0.2, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
    tree = shallow_tree(features, leaf_size=leaf_size, fan_out=fan_out, height=height)
    grown = [
        (tree.nodes(level + 1), tree.nodes(level), int(np.diff(starts).max()))
        for level, starts in enumerate(tree.starts)
    ]
    assert shallow_sizes(labels, leaf_size, fan_out, height) == grown
