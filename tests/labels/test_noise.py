"""Labels made wrong on purpose: how many go, which come, and what stays the same at every rate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.core.errors import ConfigError
from xmtc.data.dataset import Csr
from xmtc.labels.noise import Noise, corrupted

RATES = (0.1, 0.3, 0.6, 1.0)
KINDS: tuple[Noise, ...] = ("missing", "flip")


def matrix(rows: list[list[int]], width: int) -> Csr:
    pairs = [(row, label) for row, labels in enumerate(rows) for label in labels]
    places = tuple(np.array(each, dtype=np.int64) for each in zip(*pairs, strict=True)) if pairs else ([], [])
    return sp.csr_array((np.ones(len(pairs), dtype=np.float32), places), shape=(len(rows), width))


@pytest.fixture(scope="module")
def labels() -> Csr:
    """2,000 documents with 1 to 8 of 400 labels, the first of them far more often than the last."""
    chance = np.random.default_rng(5)
    weights = 1 / np.arange(1, 401)
    rows = [
        chance.choice(400, size=chance.integers(1, 9), replace=False, p=weights / weights.sum()).tolist()
        for _ in range(2000)
    ]
    return matrix(rows, 400)


def held(labels: Csr) -> list[set[int]]:
    return [set(labels.indices[a:b].tolist()) for a, b in zip(labels.indptr, labels.indptr[1:], strict=False)]


def assert_sound(labels: Csr) -> None:
    """As every reader makes it: sorted, ones, no label twice."""
    assert (labels.data == 1).all()
    assert sum(map(len, held(labels))) == labels.nnz
    assert labels.has_sorted_indices
    assert all((np.diff(labels.indices[a:b]) > 0).all() for a, b in zip(labels.indptr, labels.indptr[1:], strict=False))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", RATES)
def test_as_many_go_as_the_rate_says(labels: Csr, kind: Noise, rate: float) -> None:
    noisy = corrupted(labels, kind, rate, 3)
    assert noisy.shape == labels.shape
    assert noisy.dtype == labels.dtype
    assert_sound(noisy)
    kept = sum(len(before & after) for before, after in zip(held(labels), held(noisy), strict=True))
    expected, deviation = labels.nnz * (1 - rate), np.sqrt(labels.nnz * rate * (1 - rate))
    assert abs(kept - expected) <= 4 * deviation
    if kind == "missing":
        assert noisy.nnz == kept
    else:  # as many wrong ones as were lost, in each document
        assert np.diff(noisy.indptr).tolist() == np.diff(labels.indptr).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_at_one_rate_is_wrong_at_every_higher_one(labels: Csr, kind: Noise) -> None:
    truth = held(labels)
    wrongs = [set[tuple[int, int]]()]
    losts = [set[tuple[int, int]]()]
    for rate in RATES:
        noisy = held(corrupted(labels, kind, rate, 3))
        pairs = list(enumerate(zip(truth, noisy, strict=True)))
        losts.append({(row, label) for row, (before, after) in pairs for label in before - after})
        wrongs.append({(row, label) for row, (before, after) in pairs for label in after - before})
    for smaller, larger in itertools.pairwise(losts):
        assert smaller < larger
    for smaller, larger in itertools.pairwise(wrongs):
        assert smaller < larger if kind == "flip" else not larger
    both = [held(corrupted(labels, each, 0.3, 3)) for each in KINDS]
    assert all(before & flipped == missing for before, missing, flipped in zip(truth, *both, strict=True)), (
        "both kinds lose the same labels"
    )


def test_wrong_labels_come_as_often_as_labels_do(labels: Csr) -> None:
    noisy = corrupted(labels, "flip", 0.6, 0)
    before, after = (np.bincount(each.indices, minlength=400) for each in (labels, noisy))
    for start, stop in ((0, 5), (5, 20), (20, 100), (100, 400)):
        ratio = after[start:stop].sum() / before[start:stop].sum()
        # Documents that hold a frequent label already cannot get it, so it comes a little less often.
        assert 0.75 < ratio < 1.35, (start, ratio)
    assert np.corrcoef(before, after)[0, 1] > 0.96


def test_seeds_differ_and_repeat(labels: Csr) -> None:
    first, again, other = (corrupted(labels, "flip", 0.4, seed) for seed in (1, 1, 2))
    assert (first.indices == again.indices).all()
    assert held(first) != held(other)


@pytest.mark.parametrize("kind", KINDS)
def test_the_ends(labels: Csr, kind: Noise) -> None:
    assert held(corrupted(labels, kind, 0.0, 0)) == held(labels)
    all_gone = held(corrupted(labels, kind, 1.0, 0))
    assert not any(before & after for before, after in zip(held(labels), all_gone, strict=True))
    nothing = matrix([[], [], []], 7)
    assert corrupted(nothing, kind, 0.5, 0).nnz == 0
    assert corrupted(nothing, kind, 0.5, 0).shape == (3, 7)
    assert corrupted(matrix([], 7), kind, 0.5, 0).shape == (0, 7)


@pytest.mark.parametrize("kind", KINDS)
def test_where_no_other_label_can_be_given(kind: Noise) -> None:
    one = matrix([[0]] * 50, 1)
    assert corrupted(one, kind, 1.0, 0).nnz == 0
    full = matrix([[0, 1, 2], [0]], 3)
    found = held(corrupted(full, kind, 1.0, 0))
    assert found[0] == set()
    assert found[1] <= {1, 2}
    assert len(found[1]) == (kind == "flip")


def test_worked_by_hand() -> None:
    """Each of two labels can only be taken for the other."""
    swapped = corrupted(matrix([[0], [1], [1], [0]], 2), "flip", 1.0, 4)
    assert held(swapped) == [{1}, {0}, {0}, {1}]


@pytest.mark.parametrize("rate", [-0.1, 1.01, float("nan")])
def test_rates_that_are_none(labels: Csr, rate: float) -> None:
    with pytest.raises(ConfigError, match="'rate' of noise must be a number from 0 to 1"):
        corrupted(labels, "missing", rate, 0)
