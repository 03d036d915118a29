"""The hierarchy of labels: against a slow reference, on trees, several parents and cycles."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.support.hierarchies import PLANTS, drawn, slow_above
from xmtc.data.label_index import LabelIndex
from xmtc.labels.hierarchy import Hierarchy, connected


class TestHierarchy:
    def test_by_hand(self) -> None:
        found = Hierarchy(PLANTS)
        names = lambda numbers: PLANTS.strings("key", numbers)  # noqa: E731
        assert names(found.ancestors(4)) == ["plant", "tree", "fruit"]
        assert names(found.descendants(0)) == ["tree", "fruit", "oak", "apple"]
        assert names(np.flatnonzero(found.under([2, 5]))) == ["fruit", "apple", "rock"]
        assert names(found.children[[1]].indices) == ["oak", "apple"]
        assert found.ancestors(5).tolist() == found.ancestors(6).tolist() == []
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


class TestConnected:
    def test_by_hand(self) -> None:
        """Without 'tree' and 'fruit', what was below them is below 'plant'."""
        kept = connected(PLANTS.take([0, 3, 4, 5]), PLANTS)
        assert kept.table["parents"].to_pylist() == [[], ["tree", "plant"], ["tree", "fruit", "plant"], ["mineral"]]
        assert connected(PLANTS, PLANTS) is PLANTS

    @pytest.mark.parametrize("seed", range(6))
    def test_ancestors_stay_ancestors(self, seed: int) -> None:
        whole = drawn(seed, acyclic=seed % 2 == 0)
        numbers = np.sort(np.random.default_rng(seed).permutation(len(whole))[:15])
        found = Hierarchy(connected(whole.take(numbers), whole))
        for row, label in enumerate(numbers.tolist()):
            wanted = [other for other in numbers.tolist() if other in slow_above(whole, label) and other != label]
            assert numbers[found.ancestors(row)].tolist() == wanted
