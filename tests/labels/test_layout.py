"""Labels on a plane: near stay near, a seed decides everything, and odd vectors do no harm."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from xmtc.labels.layout import close_to, layout, nearest, regions, unit_rows


def planted(labels: int, clusters: int, width: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Vectors around random centres, and which centre each has."""
    random = np.random.default_rng(seed)
    members = random.integers(clusters, size=labels)
    vectors = random.normal(size=(clusters, width))[members] + 0.6 * random.normal(size=(labels, width))
    return vectors.astype(np.float32), members


def share_of_own(places: NDArray[np.float32], members: NDArray[np.int64], k: int = 8) -> float:
    """The share of each label's k nearest on the plane that are of its cluster."""
    distances = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    near = np.argsort(distances, axis=1)[:, :k]
    return float((members[near] == members[:, None]).mean())


def principal(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    rows = unit_rows(vectors)
    rows = rows - rows.mean(axis=0)
    return np.asarray(rows @ np.linalg.svd(rows, full_matrices=False)[2][:2].T)


def test_clusters_stay_together_where_two_directions_mix_them() -> None:
    vectors, members = planted(600, 25, 40)
    assert share_of_own(layout(vectors), members) >= 0.95
    assert share_of_own(principal(vectors), members) < 0.6


def test_a_circle_stays_a_circle() -> None:
    """Neighbours along a closed curve in many dimensions stay neighbours on the plane."""
    turn = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    curve = np.column_stack([np.cos(turn), np.sin(turn), 0.3 * np.cos(5 * turn), 0.3 * np.sin(5 * turn)])
    places = layout(curve)
    distances = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    near = np.argsort(distances, axis=1)[:, 1:5]
    apart = np.abs(near - np.arange(200)[:, None])
    assert (np.minimum(apart, 200 - apart) <= 8).mean() > 0.95


def test_a_seed_decides_and_threads_do_not() -> None:
    vectors, _ = planted(300, 6, 10)
    first = layout(vectors, seed=3, threads=1)
    assert first.dtype == np.float32
    assert np.array_equal(first, layout(vectors, seed=3, threads=2))
    assert not np.array_equal(first, layout(vectors, seed=4))
    assert np.array_equal(first, layout(vectors, seed=3, near=nearest(vectors, 15)))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_length_of_vectors_does_not_matter(scale: float) -> None:
    vectors, _ = planted(50, 3, 10)
    assert np.allclose(unit_rows(vectors), unit_rows(vectors * np.float32(scale)), atol=1e-6)


@pytest.mark.parametrize(
    "vectors",
    [
        np.zeros((0, 3)),
        np.zeros((1, 3)),
        np.ones((1, 3)),
        np.array([[1.0, 0], [0, 1]]),
        np.eye(3),
        np.ones((40, 3)),
        np.zeros((40, 3)),
        np.ones((5, 1)),
        np.vstack([np.eye(4), np.zeros((3, 4))]),
    ],
    ids=["none", "one zero", "one", "two", "three", "identical", "zero", "one wide", "some zero"],
)
def test_odd_vectors_get_places_of_their_own(vectors: NDArray[np.float64]) -> None:
    places = layout(vectors)
    assert places.shape == (len(vectors), 2)
    assert np.isfinite(places).all()
    assert len(np.unique(places.round(6), axis=0)) == len(vectors)
    assert len(regions(places, 7)) == len(vectors)


def test_labels_without_a_vector_stand_around_the_others() -> None:
    vectors, _ = planted(60, 3, 8)
    vectors[50:] = 0
    reach = np.hypot(*layout(vectors).T)
    assert reach[50:].min() > reach[:50].max()


def test_nearest_are_those_of_a_full_comparison() -> None:
    vectors = np.random.default_rng(0).normal(size=(400, 6)).astype(np.float32)
    vectors[7] = vectors[3]  # a tie for everybody: the lower number goes first
    found, cosines = nearest(vectors, 5, threads=2)
    rows = vectors.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    everything = rows @ rows.T
    np.fill_diagonal(everything, -np.inf)
    best = np.sort(everything, axis=1)[:, ::-1][:, :5]
    assert np.allclose(cosines, best, atol=1e-6)
    assert np.allclose(np.take_along_axis(everything, found, axis=1), best, atol=1e-6)
    assert all(len(set(row)) == 5 for row in found.tolist())
    for label in (0, 3, 7, 399):
        alone, similar = close_to(vectors, label, 5)
        assert np.allclose(similar, cosines[label], atol=1e-6)
        assert set(alone.tolist()) == set(found[label].tolist())


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, _ = planted(100, 5, 4)
    whole, _ = nearest(vectors, 3)
    monkeypatch.setattr("xmtc.labels.layout.PRODUCTS", 700)  # seven labels at a time
    assert np.array_equal(nearest(vectors, 3, threads=2)[0], whole)


def test_fewer_others_than_asked_for() -> None:
    found, cosines = nearest(np.eye(3), 10)
    assert found.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert not cosines.any()
    best, _ = close_to(np.eye(3), 1, 10)
    assert best.tolist() == [0, 2]


def test_regions_are_planted_groups_the_largest_first() -> None:
    random = np.random.default_rng(2)
    group = np.repeat([0, 1, 2], [100, 60, 20])
    places = np.array([[0, 0], [30, 0], [0, 30]])[group] + random.normal(size=(180, 2))
    assert np.array_equal(regions(places, 3), group)
