"""Label vectors: communities they find, what they are made of, and labels of which nothing is known."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from tests.support.communities import agreement, communities
from tests.support.draws import Draws
from xmtc.core.errors import ConfigError
from xmtc.data.dataset import Csr
from xmtc.data.label_index import LabelIndex
from xmtc.labels import graph as graph_module
from xmtc.labels import label_vectors as module
from xmtc.labels.graph import GraphSettings, build_graph, walks
from xmtc.labels.label_vectors import (
    LabelVectorSettings,
    deepwalk,
    label_vectors,
    singular_vectors,
    whitened,
    with_name_vectors,
)
from xmtc.text.word2vec import initial_vectors, noise_table


def made(labels: Csr, *, index: LabelIndex | None = None, seed: int = 0, threads: int = 1, **settings: Any) -> Any:
    index = index or LabelIndex.numbered(int(labels.shape[1]))
    return label_vectors(labels, index, LabelVectorSettings(**settings), seed=seed, threads=threads)[0]


PLANTED = communities()
KINDS = pytest.mark.parametrize("kind", ["deepwalk", "svd", "random"])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"whiten": False, "unit": False},
        {"graph.edges": "implicit"},
        {"graph.edges": "implicit", "graph.weighted": False},
        {"graph.weighted": False, "graph.walks": 20},
        {"kind": "svd"},
    ],
    ids=str,
)
def test_communities_are_found(settings: dict[str, Any]) -> None:
    graph = {name.removeprefix("graph."): value for name, value in settings.items() if "." in name}
    rest = {name: value for name, value in settings.items() if "." not in name}
    assert agreement(made(PLANTED, width=24, graph=graph, **rest)) >= 0.95


def test_chance_finds_no_communities() -> None:
    assert agreement(made(PLANTED, width=24, kind="random")) < 0.3


def slow_deepwalk(found: NDArray[np.int32], count: int, settings: LabelVectorSettings, seed: int) -> Any:
    """Skip-gram by the book in double precision; all neighbours of a place share its random labels."""
    inputs = initial_vectors(count, settings.width, seed).astype(np.float64)
    outputs = np.zeros_like(inputs)
    noise = noise_table(np.bincount(found[found >= 0], minlength=count))
    draws = Draws(seed)
    total, done = settings.epochs * found.size, 0
    for _ in range(settings.epochs):
        for walk in found:
            kept = [(place, label) for place, label in enumerate(walk) if label >= 0]
            for at, (place, label) in enumerate(kept):
                rate = settings.learning_rate * (1 - (done + place) / total)
                reach = 1 + (draws() >> 33) % settings.window
                near = [other for _, other in kept[max(at - reach, 0) : at] + kept[at + 1 : at + reach + 1]]
                if not near:
                    continue
                targets = [int(label)]
                for _ in range(settings.negative):
                    bits = draws()
                    slot = ((bits >> 32) * count) >> 32
                    targets.append(slot if (bits & 0xFFFFFFFF) < noise[slot, 0] else int(noise[slot, 1]))
                for other in near:
                    gradient = np.zeros(settings.width)
                    for draw, target in enumerate(targets):
                        if draw and target == label:
                            continue
                        slope = 1 / (1 + np.exp(-inputs[other] @ outputs[target])) - (draw == 0)
                        gradient += slope * outputs[target]
                        outputs[target] -= rate * slope * inputs[other]
                    inputs[other] -= rate * gradient
            done += len(walk)
    return inputs


@pytest.mark.parametrize("parents", [False, True])
def test_deepwalk_equals_the_book(parents: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "WALKED", 100)
    labels = communities(24, 4, 60, seed=3)
    above = [[f"lost {number % 5}", str(number // 2)] for number in range(24)] if parents else None
    index = LabelIndex.from_keys([str(number) for number in range(24)], parents=above)
    settings = LabelVectorSettings(
        width=9, window=3, negative=4, epochs=2, learning_rate=0.4, graph=GraphSettings(walks=3, length=11)
    )
    graph = build_graph(labels, index, settings.graph)
    found = np.concatenate(list(walks(graph, settings.graph, seed=5)))
    assert (found < 0).any() == parents
    expected = slow_deepwalk(found, 24, settings, seed=5)
    learnt = deepwalk(graph, settings, seed=5, threads=2)
    np.testing.assert_allclose(learnt, expected, atol=5e-5)
    assert np.abs(learnt - initial_vectors(24, 9, 5)).max() > 0.05  # there was something to get wrong


def test_whitening_keeps_left_singular_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 7)
    vectors = (np.random.default_rng(0).normal(size=(50, 6)) * [9, 5, 3, 1, 0.3, 0.1] + 4).astype(np.float32)
    expected = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)[0]
    found = whitened(vectors)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-4)
    np.testing.assert_allclose(found.T @ found, np.eye(6), atol=1e-4)
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-4)


def test_whitening_of_few_labels() -> None:
    """Four labels span three directions about their mean; the others are zero and not noise blown up."""
    found = whitened(np.random.default_rng(0).normal(size=(4, 10)).astype(np.float32))
    np.testing.assert_allclose(found[:, :3].T @ found[:, :3], np.eye(3), atol=1e-5)
    np.testing.assert_array_equal(found[:, 3:], 0)
    np.testing.assert_array_equal(whitened(np.ones((3, 2), dtype=np.float32)), 0)
    assert whitened(np.empty((0, 2), dtype=np.float32)).shape == (0, 2)


def test_singular_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 300)
    labels = communities(own=0.95)
    dense = labels.toarray().astype(np.float64)
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    expected = np.linalg.svd(dense, full_matrices=False)[2][:8].T  # eight groups: a gap follows
    found = singular_vectors(labels, 8)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-3)
    strength = np.linalg.norm(dense @ found, axis=0)
    assert (np.diff(strength) <= 1e-3).all()  # the strongest first


def test_singular_vectors_beyond_the_rank() -> None:
    labels = sp.csr_array(np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0]], dtype=np.float32))
    found = singular_vectors(labels, 4)
    half = 0.5**0.5
    np.testing.assert_allclose(found, [[0, half, 0, 0], [0, half, 0, 0], [1, 0, 0, 0], [0] * 4, [0] * 4], atol=1e-6)


@KINDS
def test_seed_and_nothing_else_decides(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(PLANTED, kind=kind, width=16, seed=3)
    monkeypatch.setattr(graph_module, "WALKED", 1000)
    monkeypatch.setattr(graph_module, "COUNTED", 100)
    np.testing.assert_array_equal(made(PLANTED, kind=kind, width=16, seed=3, threads=2), first)
    assert np.abs(np.abs(made(PLANTED, kind=kind, width=16, seed=-4)) - np.abs(first)).max() > 1e-9


@pytest.mark.parametrize(("kind", "whiten"), [("deepwalk", True), ("deepwalk", False), ("svd", True), ("random", True)])
@pytest.mark.parametrize("count", [0, 1, 2, 12, 60])
def test_any_number_of_labels(kind: Any, count: int, whiten: bool) -> None:
    """Some are fewer than the numbers in a vector, and than the directions that documents give."""
    labels = communities(count, min(4, count), 30) if count > 1 else sp.csr_array(np.ones((3, count), np.float32))
    found = made(labels, kind=kind, width=50, whiten=whiten)
    assert found.shape == (count, 50)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    if kind != "svd" and count > 1:
        assert len(np.unique(found, axis=0)) == count


@pytest.mark.parametrize("kind", ["deepwalk", "svd"])
def test_labels_of_which_nothing_is_known(kind: Any) -> None:
    """They get random vectors and leave those of the others as they are."""
    size = int(PLANTED.shape[1])
    more = sp.csr_array((PLANTED.data, PLANTED.indices, PLANTED.indptr), shape=(PLANTED.shape[0], size + 50))
    if kind == "deepwalk":  # one label alone in a document: it has one, and no neighbour
        more = sp.csr_array(sp.vstack([more, sp.csr_array(([1.0], ([0], [size + 9])), shape=(1, size + 50))]))
    found = made(more, kind=kind, width=24)
    assert agreement(found[:size]) >= 0.95
    alone = found[size:]
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, atol=1e-5)
    assert np.abs(alone @ found.T - np.eye(50, size + 50, size)).max() < 0.9
    assert np.abs(alone.mean(axis=0)).max() < 0.12  # √(1 / 24 / 50) = 0.03
    if kind == "deepwalk":
        centred = found[:size] * np.linalg.norm(made(more, kind=kind, width=24, unit=False)[:size], axis=1)[:, None]
        np.testing.assert_allclose(centred.sum(axis=0), 0, atol=1e-3)  # their mean is that of the known ones alone


def test_vectors_as_walks_left_them() -> None:
    """Neither whitened nor of length one: what the skip-gram learnt, random vectors as long as these are."""
    labels = sp.csr_array((PLANTED.data, PLANTED.indices, PLANTED.indptr), shape=(PLANTED.shape[0], 210))
    settings = LabelVectorSettings(width=16, whiten=False, unit=False)
    index = LabelIndex.numbered(210)
    found, facts = label_vectors(labels, index, settings, seed=2)
    expected = deepwalk(build_graph(labels, index, settings.graph), settings, seed=2)
    np.testing.assert_array_equal(found[:200], expected[:200])
    usual = np.sqrt((np.linalg.norm(expected[:200], axis=1) ** 2).mean())
    np.testing.assert_allclose(np.linalg.norm(found[200:], axis=1), usual, rtol=1e-5)
    assert re.fullmatch(r"[\d,]+ edges between labels of the same document, 10 isolated labels", facts["label graph"])
    assert json.loads(json.dumps(facts)) == facts


def test_labels_of_a_parent_end_near_each_other() -> None:
    """Documents know nothing of these groups: the hierarchy alone does, and through parents that are no labels."""
    keys = [str(number) for number in range(60)]
    index = LabelIndex.from_keys(keys, parents=[[f"group {number % 6}"] for number in range(60)])
    labels = communities(60, 4, 100)
    assert agreement(made(labels, index=index, width=8), 6) >= 0.95
    _, facts = label_vectors(labels, index, LabelVectorSettings(width=8))
    assert facts == {"label graph": "60 edges between parents and children, 0 isolated labels"}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"kind": "glove"}, "'kind' of vectors must be one of deepwalk, svd, random. Got 'glove'."),
        ({"width": 0}, "'width' of vectors must be an integer ≥ 1. Got 0."),
        ({"window": 0}, "'window' of vectors must be an integer ≥ 1. Got 0."),
        ({"negative": 0}, "'negative' of vectors must be an integer ≥ 1. Got 0."),
        ({"epochs": 0}, "'epochs' of vectors must be an integer ≥ 1. Got 0."),
        ({"learning_rate": 0}, "'learning_rate' of vectors must be a number > 0. Got 0.0."),
        ({"graph": {"walks": 0}}, "'walks' of graph must be an integer ≥ 1. Got 0."),
    ],
)
def test_bad_settings(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        LabelVectorSettings(**bad)


def test_vectors_of_names() -> None:
    """Against loops: a word is the mean of its documents' targets, a name the mean of its words."""
    chance = np.random.default_rng(3)
    given, words_of = (chance.random((40, 8)) < 0.3).astype(np.float32), chance.random((8, 12)).astype(np.float32)
    given[:, 6:] = 0
    words_of[chance.random((8, 12)) > 0.3] = 0
    words_of[[2, 7]] = 0
    words_of[2, 5] = 0.7
    labels, names = sp.csr_array(given), sp.csr_array(words_of)
    rows = sp.csr_array(np.where(chance.random((40, 12)) < 0.3, chance.random((40, 12)), 0).astype(np.float32))
    vectors = (3 * chance.normal(size=(8, 5))).astype(np.float32)

    def unit(vector: NDArray[Any]) -> NDArray[Any]:
        length = float(np.linalg.norm(vector))
        return vector / length if length else vector

    targets = np.array([unit(row @ vectors) for row in labels.toarray()])
    targets = targets - targets.mean(axis=0)
    words = [targets[np.flatnonzero(rows.toarray()[:, word])].mean(axis=0) for word in range(12)]
    found = with_name_vectors(vectors, labels, rows, names, 0.4)
    for label in range(8):
        name = unit(sum((names[label, word] * words[word] for word in range(12)), np.zeros(5)))
        own = unit(vectors[label])
        expected = vectors[label] if not name.any() else unit(0.4 * name + own if label < 6 else name)
        scale = np.linalg.norm(vectors[label]) if name.any() else 1.0
        np.testing.assert_allclose(found[label], expected * scale, rtol=1e-4, atol=1e-5)
    assert not np.array_equal(found[6], vectors[6])
    np.testing.assert_array_equal(found[7], vectors[7])  # no words, no documents: as it was
