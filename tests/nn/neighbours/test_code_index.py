"""The index of names as 8-bit vectors, against a search that compares everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.errors import ModelFormatError
from xmtc.nn.neighbours.code_index import CodeIndex, CodeRows, concatenated

LABELS, WIDTH = 2000, 24


def unit(vectors: Any) -> Any:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def planted() -> tuple[Any, Any, Any]:
    """Three names for each label, near one of 60 themes; and queries, each near a name."""
    random = np.random.default_rng(5)
    themes = random.standard_normal((60, WIDTH))
    names = unit(themes[random.integers(60, size=3 * LABELS)] + 0.5 * random.standard_normal((3 * LABELS, WIDTH)))
    owners = np.repeat(np.arange(LABELS), 3).astype(np.int32)
    queries = unit(names[random.choice(len(names), 40)] + 0.1 * random.standard_normal((40, WIDTH)))
    return names, random.permutation(owners).astype(np.int32), queries[:, None]


NAMES, OWNERS, QUERIES = planted()


@pytest.fixture(scope="module")
def clustered() -> CodeIndex:
    return CodeIndex.build(CodeRows.of(NAMES), OWNERS, LABELS, few=0)


@pytest.fixture(scope="module")
def whole() -> CodeIndex:
    return CodeIndex.build(CodeRows.of(NAMES), OWNERS, LABELS)


def expected(names: Any, owners: Any, queries: Any, count: int, labels: int = LABELS) -> tuple[Any, Any]:
    """Every name compared with every query, in double precision."""
    rows = CodeRows.of(names)
    decoded = rows.codes.astype(np.float64) * rows.scales[:, None]
    cosines = np.full((len(queries), labels), -2.0)
    for view in range(queries.shape[1]):
        np.maximum.at(cosines.T, owners, decoded @ queries[:, view].T.astype(np.float64))
    best = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return best, np.take_along_axis(cosines, best, axis=1)


def test_rounding_keeps_directions() -> None:
    rows = CodeRows.of(3.0 * NAMES)
    decoded = rows.codes * rows.scales[:, None]
    assert np.abs(np.linalg.norm(decoded, axis=1) - 1.0).max() < 1e-6
    assert np.einsum("nd,nd->n", decoded, NAMES).min() > 0.9995
    assert CodeRows.of(np.zeros((2, 5), np.float32)).scales.tolist() == [0.0, 0.0]
    parts = concatenated((NAMES[low : low + 700] for low in range(0, len(NAMES), 700)), *NAMES.shape)
    assert np.array_equal(parts.codes, CodeRows.of(NAMES).codes)
    assert np.array_equal(parts.scales, CodeRows.of(NAMES).scales)


def test_few_names_are_all_compared(whole: CodeIndex) -> None:
    labels, cosines = expected(NAMES, OWNERS, QUERIES, 30)
    found, given = whole.nearest(QUERIES, 30)
    assert np.array_equal(found, labels)
    assert np.abs(given - cosines).max() < 1e-6


def test_clusters_hardly_miss_anything(clustered: CodeIndex) -> None:
    assert len(clustered.starts) > 200
    clustered.probes = 24
    labels, _ = expected(NAMES, OWNERS, QUERIES, 10)
    found, _ = clustered.nearest(QUERIES, 10)
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, labels, strict=True)]) >= 0.95
    clustered.probes = len(clustered.centres.codes)
    assert np.array_equal(clustered.nearest(QUERIES, 10)[0], labels)


def test_neither_batches_nor_threads_change_results(clustered: CodeIndex) -> None:
    clustered.probes = 5
    found, cosines = clustered.nearest(QUERIES, 10)
    single = [clustered.nearest(query[None], 10) for query in QUERIES]
    assert np.array_equal(found, np.concatenate([labels for labels, _ in single]))
    assert np.array_equal(cosines, np.concatenate([values for _, values in single]))
    other = CodeIndex.build(CodeRows.of(NAMES), OWNERS, LABELS, few=0, threads=2)
    assert all(np.array_equal(a, b) for a, b in zip(clustered.arrays().values(), other.arrays().values(), strict=True))


def test_only_allowed_labels(clustered: CodeIndex) -> None:
    """However few and far away they are."""
    clustered.probes = 2
    allowed = np.zeros(LABELS, dtype=bool)
    allowed[[7, 900, 1999]] = True
    labels, cosines = expected(NAMES, OWNERS, QUERIES, LABELS)
    found, given = clustered.nearest(QUERIES, 5, allowed)
    kept = np.array([row[allowed[row]] for row in labels])
    assert np.array_equal(found[:, :3], kept)
    assert (found[:, 3:] == -1).all()
    assert (given[:, 3:] == 0).all()
    places = np.array([np.flatnonzero(allowed[row]) for row in labels])
    assert np.abs(given[:, :3] - np.take_along_axis(cosines, places, axis=1)).max() < 1e-6
    nothing, _ = clustered.nearest(QUERIES, 5, np.zeros(LABELS, dtype=bool))
    assert (nothing == -1).all()


def test_the_nearest_of_several_views_counts(whole: CodeIndex) -> None:
    views = np.stack([QUERIES[:, 0], QUERIES[::-1, 0], np.zeros_like(QUERIES[:, 0])], axis=1)
    labels, cosines = expected(NAMES, OWNERS, views[:, :2], 20)
    found, given = whole.nearest(views, 20)
    assert np.array_equal(found, labels)
    assert np.abs(given - cosines).max() < 1e-6


def test_scores_are_those_of_the_search(clustered: CodeIndex) -> None:
    found, cosines = clustered.nearest(QUERIES, 10)
    assert np.array_equal(clustered.scores(QUERIES, found), cosines)
    gaps = np.where(np.arange(10) % 2 == 0, found, -1)
    assert (clustered.scores(QUERIES, gaps)[:, 1::2] == 0).all()


def test_ties_padding_and_empty_queries() -> None:
    names = unit(np.array([[1, 0], [1, 0], [0, 1], [1, 0], [-1, 0]], dtype=np.float32))
    index = CodeIndex.build(CodeRows.of(names), np.array([5, 2, 0, 3, 3], np.int32), 7)
    found, cosines = index.nearest(np.array([[[1.0, 0.0]], [[0.0, 0.0]]], np.float32), 6)
    assert found.tolist() == [[2, 3, 5, 0, -1, -1], [-1] * 6]
    assert cosines[0].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert index.scores(np.array([[[-1.0, 0.0]]], np.float32), np.array([[5, 3, 1]])).tolist() == [[-1.0, 1.0, 0.0]]


def test_no_names() -> None:
    index = CodeIndex.build(CodeRows.of(np.zeros((0, 4), np.float32)), np.zeros(0, np.int32), 3)
    assert index.nearest(np.ones((2, 1, 4), np.float32), 2)[0].tolist() == [[-1, -1], [-1, -1]]
    again = CodeIndex.from_state(SavedState(State(arrays=index.arrays())), 4, 3)
    assert again.scores(np.ones((1, 1, 4), np.float32), np.array([[0, 2]])).tolist() == [[0.0, 0.0]]


def test_saved_and_restored(clustered: CodeIndex) -> None:
    again = CodeIndex.from_state(SavedState(State(arrays=clustered.arrays())), WIDTH, LABELS)
    again.probes = clustered.probes
    for one, other in zip(clustered.nearest(QUERIES, 10), again.nearest(QUERIES, 10), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("owners", lambda array: array + LABELS),
        ("codes", lambda array: array[:-1]),
        ("scales", lambda array: array * 0),
        ("centre_scales", lambda array: array * np.nan),
        ("starts", lambda array: array[::-1].copy()),
    ],
)
def test_damaged_arrays(whole: CodeIndex, name: str, change: Any) -> None:
    arrays = whole.arrays()
    arrays[name] = change(arrays[name])
    with pytest.raises(ModelFormatError, match=f"array '{name}'"):
        CodeIndex.from_state(SavedState(State(arrays=arrays)), WIDTH, LABELS)
