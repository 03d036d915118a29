"""The hierarchy of labels: against a slow reference, on trees, several parents and cycles."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.support.hierarchies import PLANTS, drawn, slow_above
from xmtc.data.label_index import LabelIndex
from xmtc.labels.hierarchy import Hierarchy, linked


class TestHierarchy:
    def test_by_hand(self) -> None:
        found = Hierarchy(PLANTS)
        names = lambda numbers: PLANTS.strings("key", numbers)  # noqa: E731
        assert names(found.ancestors(4)) == ["plant", "tree", "fruit"]
        assert names(found.descendants(0)) == ["tree", "fruit", "oak", "apple"]
        assert names(np.flatnonzero(found.under([2, 5]))) == ["fruit", "apple", "rock"]
        assert names(found.children[[1]].indices) == ["oak", "apple"]
        assert found.keys.take(found.ancestors(5)).to_pylist() == ["mineral"]  # not a label
        assert found.ancestors(6).tolist() == []
        assert (found.label_count, found.count, found.number("mineral"), found.number("moss")) == (7, 8, 7, -1)
        pairs = [("oak", "oak"), ("oak", "tree"), ("tree", "oak"), ("oak", "apple"), ("oak", "fruit"), ("oak", "rock")]
        left, right = (PLANTS.ids([pair[side] for pair in pairs]) for side in (0, 1))
        assert found.steps(left, right, 3).tolist() == [0, 1, 1, 2, 3, -1]
        assert found.steps(left, right, 1).tolist() == [0, 1, 1, -1, -1, -1]

    @pytest.mark.parametrize("seed", range(6))
    def test_equal_a_slow_search(self, seed: int) -> None:
        labels = drawn(seed, acyclic=seed % 2 == 0)
        found, above = Hierarchy(labels), [slow_above(labels, label) for label in range(len(labels))]
        for most in (None, 0, 2):
            matrix = found.above(np.arange(len(labels)), most)
            for label, steps in enumerate(above):
                row = matrix[[label]]
                wanted = {at: count for at, count in steps.items() if most is None or count <= most}
                assert dict(zip(row.indices.tolist(), (row.data - 1).tolist(), strict=True)) == wanted
        for label, steps in enumerate(above):
            assert found.ancestors(label).tolist() == sorted(set(steps) - {label})
            below = [other for other, others in enumerate(above) if label in others]
            assert np.flatnonzero(found.under([label])).tolist() == below
        left, right = (side.ravel() for side in np.indices((len(labels), len(labels))))
        fewest = [
            min((above[a][c] + above[b][c] for c in above[a].keys() & above[b].keys()), default=99)
            for a, b in zip(left, right, strict=True)
        ]
        assert found.steps(left, right, 4).tolist() == [steps if steps <= 4 else -1 for steps in fewest]

    def test_no_labels_and_no_links(self) -> None:
        none = Hierarchy(LabelIndex.from_keys([]))
        assert not none
        assert none.under([]).shape == (0,)
        assert none.steps([], [], 3).shape == (0,)
        assert not Hierarchy(LabelIndex.numbered(3))
        assert Hierarchy(PLANTS)

    def test_built_once_for_each_index(self) -> None:
        labels, other = drawn(1), drawn(2)
        first = Hierarchy.of(labels)
        assert Hierarchy.of(labels) is first
        assert Hierarchy.of(other) is not first
        before = id(labels)
        del labels, first
        gc.collect()
        from xmtc.labels import hierarchy

        assert before not in hierarchy._BUILT


class TestLinked:
    def test_by_hand(self) -> None:
        kept = linked(PLANTS.take([0, 3, 4, 5]), PLANTS)
        assert kept.keys == ["plant", "oak", "apple", "rock"]
        assert kept.ancestors is not None
        assert kept.ancestors.keys == ["tree", "fruit"]
        found = Hierarchy(kept)
        assert found.steps([1, 1, 3], [2, 0, 0], 3).tolist() == [2, 2, -1]
        assert np.flatnonzero(found.under([found.number("tree")]))[:2].tolist() == [1, 2]

    def test_nothing_to_add(self) -> None:
        assert linked(PLANTS, PLANTS).ancestors is None
        plain = LabelIndex.numbered(3)
        assert linked(plain, LabelIndex.numbered(5)) is plain

    @pytest.mark.parametrize("seed", range(6))
    def test_labels_are_as_near_as_in_the_vocabulary(self, seed: int) -> None:
        whole = drawn(seed, acyclic=seed % 2 == 0)
        numbers = np.random.default_rng(seed).permutation(len(whole))[:15]
        kept = linked(whole.take(numbers), whole)
        left, right = (side.ravel() for side in np.indices((len(numbers), len(numbers))))
        wanted = Hierarchy(whole).steps(numbers[left], numbers[right], 6)
        assert Hierarchy(kept).steps(left, right, 6).tolist() == wanted.tolist()
        again = linked(linked(kept, LabelIndex.numbered(2)), whole)  # also after another vocabulary
        assert again == kept
        assert again.ancestors == kept.ancestors

    def test_joined(self) -> None:
        """An ancestor of one side that is a label of the other is a label."""
        left, right = linked(PLANTS.take([3]), PLANTS), linked(PLANTS.take([2, 4]), PLANTS)
        both = left.joined(right)
        assert both.keys == ["oak", "fruit", "apple"]
        assert both.ancestors is not None
        assert sorted(both.ancestors.keys) == ["plant", "tree"]
        assert Hierarchy(both).steps([0], [2], 5).tolist() == [2]
