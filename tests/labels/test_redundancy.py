"""Rankings without redundant labels, against a slow reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.hierarchies import PLANTS, all_above, drawn, irredundant
from xmtc.data.label_index import LabelIndex
from xmtc.labels.hierarchy import Hierarchy
from xmtc.labels.redundancy import Keep, irredundant_places


def chosen(labels: LabelIndex, rankings: list[list[int]], keep: Keep, k: int) -> list[list[int]]:
    depth = max(map(len, rankings))
    padded = np.array([row + [-1] * (depth - len(row)) for row in rankings])
    places, full = irredundant_places(padded, Hierarchy(labels), keep, k)
    assert (full == ((places >= 0).sum(axis=1) == k)).all()
    return [padded[row][found[found >= 0]].tolist() for row, found in enumerate(places)]


def test_by_hand() -> None:
    rank = lambda *keys: PLANTS.ids(list(keys)).tolist()  # noqa: E731
    ranking = rank("plant", "rock", "tree", "oak", "apple", "fruit")
    assert chosen(PLANTS, [ranking], "narrowest", 2) == [rank("plant", "rock")]
    assert chosen(PLANTS, [ranking], "narrowest", 1) == [rank("plant")]  # nothing narrower is returned
    assert chosen(PLANTS, [ranking], "narrowest", 3) == [rank("rock", "oak", "apple")]
    assert chosen(PLANTS, [ranking], "broadest", 2) == [rank("plant", "rock")]
    assert chosen(PLANTS, [ranking], "broadest", 5) == [rank("plant", "rock")]  # all others are below 'plant'
    assert chosen(PLANTS, [rank("oak", "plant", "rock")], "broadest", 2) == [rank("plant", "rock")]


@pytest.mark.parametrize("keep", ["narrowest", "broadest"])
@pytest.mark.parametrize("seed", range(4))
def test_equals_the_definition(keep: Keep, seed: int) -> None:
    labels = drawn(seed, acyclic=seed % 2 == 0)
    rng = np.random.default_rng(seed)
    rankings = [rng.permutation(len(labels))[: rng.integers(0, 16)].tolist() for _ in range(60)]
    above = all_above(labels)
    for k in (1, 3, 8):
        assert chosen(labels, rankings, keep, k) == [irredundant(above, ranking, keep, k) for ranking in rankings]


def test_no_rankings() -> None:
    places, full = irredundant_places(np.full((2, 4), -1), Hierarchy(PLANTS), "narrowest", 3)
    assert (places == -1).all()
    assert not full.any()
    assert irredundant_places(np.zeros((0, 4), np.int64), Hierarchy(PLANTS), "broadest", 2)[0].shape == (0, 2)
