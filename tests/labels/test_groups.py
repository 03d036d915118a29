"""Groups of labels that occur together, against the definition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError
from xmtc.data.dataset import Csr
from xmtc.labels import groups as module
from xmtc.labels.groups import label_groups


def held(documents: list[list[int]], labels: int) -> Csr:
    indptr = np.cumsum([0, *map(len, documents)])
    columns = np.array([label for document in documents for label in document], dtype=np.int32)
    return sp.csr_array((np.ones(len(columns), dtype=np.float32), columns, indptr), shape=(len(documents), labels))


def random_labels(documents: int, labels: int, seed: int = 0) -> Csr:
    """None to nine labels a document, small numbers more often."""
    chance = np.random.default_rng(seed)
    rows = [np.unique((labels * chance.random(size) ** 2).astype(int)) for size in chance.integers(0, 10, documents)]
    return held([row.tolist() for row in rows], labels)


def by_definition(labels: Csr, size: int) -> NDArray[np.int32]:
    dense = labels.toarray().astype(np.int64)
    together, counts = dense.T @ dense, dense.sum(0)
    groups = np.full((dense.shape[1], size), -1, dtype=np.int32)
    for label in range(len(groups)):
        weighed = []
        for other in np.flatnonzero(together[label]).tolist():
            if other != label:
                weighed.append((-together[label, other] * np.log(len(dense) / counts[other]), other))
        best = [other for _, other in sorted(weighed)[:size]]
        groups[label, : len(best)] = best
    return groups


@pytest.mark.parametrize("size", [1, 2, 5, 70])
def test_groups_by_definition(size: int) -> None:
    labels = random_labels(300, 60, seed=size)
    found = label_groups(labels, size)
    assert found.dtype == np.int32
    assert found.shape == (60, size)
    assert found.tolist() == by_definition(labels, size).tolist()
    assert (found >= 0).any()


DOCUMENTS = st.lists(st.lists(st.integers(0, 6), unique=True, max_size=7).map(sorted), max_size=12)


@given(DOCUMENTS, st.integers(1, 8))
def test_groups_of_anything(documents: list[list[int]], size: int) -> None:
    """Few labels, of which many weigh the same, stand alone or are in every document."""
    labels = held(documents, 7)
    assert label_groups(labels, size).tolist() == by_definition(labels, size).tolist()


def test_parts_and_threads_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = random_labels(400, 80)
    whole = label_groups(labels, 3)
    for counted in (1, 37, 1000):
        monkeypatch.setattr(module, "COUNTED", counted)
        assert (label_groups(labels, 3, threads=2) == whole).all()


def test_rare_company_tells_more() -> None:
    """Label 0 stands twice beside 1, which four documents hold, and twice beside 2, which nobody else holds."""
    labels = held([[0, 1, 2], [0, 1, 2], [1], [1], [3], [3], [3], [3]], 4)
    assert label_groups(labels, 3).tolist() == [[2, 1, -1], [0, 2, -1], [0, 1, -1], [-1, -1, -1]]


def test_equals_go_by_number_and_what_all_hold_comes_last() -> None:
    """Labels 1 to 3 are alike to 4; 0 is in every document and weighs nothing."""
    labels = held([[0, 1, 2, 3, 4], [0, 4], [0]], 5)
    assert label_groups(labels, 4)[4].tolist() == [1, 2, 3, 0]
    assert label_groups(labels, 2)[4].tolist() == [1, 2]
    assert label_groups(held([[0, 1], [0]], 2), 1).tolist() == [[1], [0]]


def test_documents_of_one_label_count_in_the_rarity() -> None:
    """Beside 0, label 1 once and label 2 twice: documents of 2 alone make it common, and 1 goes first."""
    pair = [[0, 1], [0, 2], [0, 2]]
    assert label_groups(held([*pair, *[[3]] * 20], 4), 1)[0].tolist() == [2]
    assert label_groups(held([*pair, *[[2]] * 20], 4), 1)[0].tolist() == [1]


def test_labels_written_twice_or_as_zero() -> None:
    labels = sp.csr_array(
        (np.array([1, 1, 1, 0, 1, 1], dtype=np.float32), np.array([0, 1, 1, 2, 0, 2]), np.array([0, 4, 6])),
        shape=(2, 3),
    )
    assert label_groups(labels, 2).tolist() == [[1, 2], [0, -1], [0, -1]]
    assert labels.nnz == 6


def test_nothing_to_group() -> None:
    assert label_groups(random_labels(20, 7), 0).shape == (7, 0)
    assert (label_groups(held([[0], [], [2]], 3), 2) == -1).all()
    assert label_groups(sp.csr_array((0, 3), dtype=np.float32), 2).tolist() == [[-1, -1]] * 3
    with pytest.raises(ConfigError, match="Got -1"):
        label_groups(random_labels(20, 7), -1)
