"""Metrics that use the hierarchy of labels: computed by hand, and against a slow reference on sets."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.hierarchies import PLANTS, drawn, slow_above
from xmtc import metrics
from xmtc.core.errors import DataError
from xmtc.labels.hierarchy import Hierarchy

PLANT, TREE, FRUIT, OAK, APPLE, ROCK = range(6)


def truth_of(rows: list[list[int]], width: int) -> sp.csr_array:
    matrix = np.zeros((len(rows), width), dtype=np.float32)
    for row, labels in enumerate(rows):
        matrix[row, labels] = 1
    return sp.csr_array(matrix)


def values(predicted: list[list[int]], true: list[list[int]], k: int) -> dict[str, float]:
    found = metrics.evaluate_hierarchy(np.array(predicted), truth_of(true, len(PLANTS)), Hierarchy(PLANTS), [k])
    return {name.partition("@")[0]: value for name, value in found.items()}


class TestByHand:
    def test_a_hit(self) -> None:
        assert values([[OAK]], [[OAK]], 1) == pytest.approx(dict.fromkeys(values([[OAK]], [[OAK]], 1), 1.0))

    def test_one_level_too_broad(self) -> None:
        """{tree, plant} and {oak, tree, plant} share two labels."""
        found = values([[TREE]], [[OAK]], 1)
        assert [found[name] for name in ("hP", "hR", "hF1")] == pytest.approx([1, 2 / 3, 4 / 5])
        assert [found[name] for name in ("nearP", "nearnDCG", "graphP", "graphnDCG")] == [0.5] * 4

    def test_a_sibling_and_a_stranger(self) -> None:
        found = values([[APPLE, ROCK]], [[OAK]], 2)
        assert found["hP"] == pytest.approx(2 / 6)  # {apple, tree, fruit, plant, rock, mineral}
        assert found["hR"] == pytest.approx(2 / 3)
        assert found["nearP"] == found["nearnDCG"] == 0
        assert found["graphP"] == pytest.approx((1 / 3) / 2)
        assert found["graphnDCG"] == pytest.approx(1 / 3)

    def test_a_true_label_counts_once(self) -> None:
        """The hit takes 'oak', so that its parent, ranked first, gains nothing."""
        found = values([[TREE, OAK]], [[OAK]], 2)
        assert found["nearP"] == found["graphP"] == 0.5
        assert found["nearnDCG"] == pytest.approx(1 / math.log2(3))
        found = values([[TREE, APPLE]], [[OAK, FRUIT]], 2)  # oak by one step up, fruit by one step down
        assert found["nearP"] == found["graphP"] == found["nearnDCG"] == 0.5

    def test_sums_over_documents(self) -> None:
        found = values([[TREE], [ROCK]], [[OAK], []], 1)
        assert found["hP"] == pytest.approx(2 / 4)  # {tree, plant} and {rock, mineral}
        assert found["hR"] == pytest.approx(2 / 3)
        assert found["nearP"] == found["nearnDCG"] == 0.25  # a mean, in which a document without labels counts

    def test_padding_and_repetitions(self) -> None:
        assert values([[OAK, OAK, -1]], [[OAK, TREE]], 3) == values([[OAK, -1, -1]], [[OAK, TREE]], 3)


@pytest.mark.parametrize("seed", range(4))
def test_equal_a_slow_computation(seed: int) -> None:
    labels = drawn(seed, acyclic=seed % 2 == 0)
    rng = np.random.default_rng(seed)
    predicted = np.stack([rng.permutation(len(labels))[:6] for _ in range(50)])
    true = [rng.permutation(len(labels))[: rng.integers(0, 6)].tolist() for _ in range(50)]
    above = [slow_above(labels, label) for label in range(len(labels))]

    def extended(some: list[int]) -> set[int]:
        return {label for each in some for label in above[each]}

    def steps(a: int, b: int) -> int:
        return min((above[a][c] + above[b][c] for c in above[a].keys() & above[b].keys()), default=99)

    def gains(row: int, k: int, most: int) -> list[float]:
        pairs = sorted((steps(int(predicted[row, r]), y), r, y) for r in range(k) for y in true[row])
        gained, used = [0.0] * k, set()
        for distance, rank, label in pairs:
            if distance <= most and not gained[rank] and label not in used:
                gained[rank] = 1 / (1 + distance)
                used.add(label)
        return gained

    truth = truth_of(true, len(labels))
    found = metrics.evaluate_hierarchy(predicted, truth, Hierarchy(labels), (1, 3, 5))
    exact = metrics.evaluate(predicted, truth, (1, 3, 5))
    for k in (1, 3, 5):
        sets = [(extended(row[:k].tolist()), extended(labels)) for row, labels in zip(predicted, true, strict=True)]
        shared, given, wanted = (sum(map(len, each)) for each in zip(*[(p & y, p, y) for p, y in sets], strict=True))
        assert found[f"hP@{k}"] == pytest.approx(shared / given)
        assert found[f"hR@{k}"] == pytest.approx(shared / wanted)
        assert found[f"hF1@{k}"] == pytest.approx(2 * shared / (given + wanted))
        for name, most in (("near", 1), ("graph", 3)):
            each = [gains(row, k, most) for row in range(len(true))]
            assert found[f"{name}P@{k}"] == pytest.approx(np.sum(each) / k / len(true))
            discounts = 1 / np.log2(np.arange(k) + 2)
            ideal = [discounts[: min(k, max(len(row), 1))].sum() for row in true]
            assert found[f"{name}nDCG@{k}"] == pytest.approx(np.mean((np.array(each) @ discounts) / ideal))
            assert exact[f"P@{k}"] <= found[f"{name}P@{k}"] + 1e-12


def test_labels_beyond_the_hierarchy() -> None:
    with pytest.raises(DataError, match="the hierarchy has 8 labels"):
        metrics.evaluate_hierarchy(np.array([[0]]), truth_of([[8]], 9), Hierarchy(PLANTS), [1])
