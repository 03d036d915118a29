"""Rankings without redundant labels, against a slow reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.hierarchies import PLANTS, all_above, drawn, irredundant
from xmtc.data.label_index import LabelIndex
from xmtc.labels.hierarchy import Hierarchy
from xmtc.labels.redundancy import Keep, irredundant_places


def chosen(
    labels: LabelIndex, rankings: list[list[int]], keep: Keep, k: int, scores: list[list[float]] | None = None
) -> list[list[int]]:
    """The labels to return; all scores are 1 by default."""
    depth = max(map(len, rankings))
    padded = np.array([row + [-1] * (depth - len(row)) for row in rankings])
    given = np.full(padded.shape, -np.inf, dtype=np.float32)
    for row, ranking in enumerate(rankings):
        given[row, : len(ranking)] = 1.0 if scores is None else scores[row]
    places, full = irredundant_places(padded, given, Hierarchy(labels), keep, k)
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


def test_scores_by_hand() -> None:
    rank = lambda *keys: PLANTS.ids(list(keys)).tolist()  # noqa: E731

    def best(keep: Keep, *scored: tuple[str, float]) -> list[list[int]]:
        return chosen(PLANTS, [rank(*(key for key, _ in scored))], keep, 3, [[score for _, score in scored]])

    assert best("narrowest", ("plant", 0.9), ("rock", 0.5), ("oak", 0.44)) == [rank("plant", "rock", "oak")]
    assert best("narrowest", ("plant", 0.9), ("rock", 0.5), ("oak", 0.45)) == [rank("rock", "oak")]
    assert best("broadest", ("oak", 0.9), ("plant", 0.4)) == [rank("oak", "plant")]
    assert best("broadest", ("oak", 0.9), ("plant", 0.5)) == [rank("plant")]
    assert best("narrowest", ("oak", 0.1), ("plant", 0.0)) == [rank("oak")]  # displaced by higher ranks
    assert best("narrowest", ("plant", 0.0), ("oak", 0.0)) == [rank("plant", "oak")]
    assert best("narrowest", ("plant", -1.0), ("oak", -1.1), ("tree", -2.0)) == [rank("plant", "oak")]


@pytest.mark.parametrize("keep", ["narrowest", "broadest"])
@pytest.mark.parametrize("seed", range(4))
def test_equals_the_definition(keep: Keep, seed: int) -> None:
    labels = drawn(seed, acyclic=seed % 2 == 0)
    rng = np.random.default_rng(seed)
    rankings = [rng.permutation(len(labels))[: rng.integers(0, 16)].tolist() for _ in range(60)]
    low = -1.0 if seed < 2 else 0.0
    scores = [np.sort(rng.uniform(low, 1, len(row)).astype(np.float32))[::-1].tolist() for row in rankings]
    above = all_above(labels)
    for k in (1, 3, 8):
        wanted = [irredundant(above, row, given, keep, k) for row, given in zip(rankings, scores, strict=True)]
        assert chosen(labels, rankings, keep, k, scores) == wanted


def test_no_rankings() -> None:
    nothing = np.full((2, 4), -np.inf, dtype=np.float32)
    places, full = irredundant_places(np.full((2, 4), -1), nothing, Hierarchy(PLANTS), "narrowest", 3)
    assert (places == -1).all()
    assert not full.any()
    none = irredundant_places(np.zeros((0, 4), np.int64), nothing[:0], Hierarchy(PLANTS), "broadest", 2)[0]
    assert none.shape == (0, 2)
