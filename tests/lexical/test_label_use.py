"""How labels were used: counts of names, precision, and which candidates are right."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.decisions.thresholds import hits_among
from xmtc.lexical.label_use import NameUse, add_use, label_features, padded_rows
from xmtc.lexical.match_types import FEATURES, FREQUENCY, MATCH, PRECISION
from xmtc.lexical.matching import Candidates

LABELS = sp.csr_array(np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1]], dtype=np.float32))


def candidates() -> Candidates:
    labels = np.array([[0, 1, -1], [0, -1, -1], [3, 2, 1]], dtype=np.int32)
    features = np.zeros((3, 3, len(FEATURES)), dtype=np.float32)
    features[:, :, MATCH] = [[4, 1, 4], [2, 0, 0], [0, 3, 3]]  # label 3 is only similar
    return Candidates(labels, labels, features)


def test_hits() -> None:
    assert hits_among(candidates().labels, LABELS).tolist() == [[True, False, False], [False] * 3, [True, False, True]]
    assert hits_among(np.empty((3, 0), np.int32), LABELS).shape == (3, 0)


def test_padded_rows() -> None:
    assert padded_rows(LABELS).tolist() == [[0, 2], [-1, -1], [1, 3]]
    assert padded_rows(sp.csr_array((2, 5))).tolist() == [[-1], [-1]]


def test_counted_and_relabelled() -> None:
    use = NameUse.none(4).counted(candidates(), LABELS)
    assert use.matched.tolist() == [2, 2, 1, 0]
    assert use.confirmed.tolist() == [1, 1, 0, 0]
    twice = use.counted(candidates(), LABELS)
    assert twice.matched.tolist() == [4, 4, 2, 0]
    merged = use.relabelled(np.array([1, 1, -1, 0]), 3)
    assert merged.matched.tolist() == [0, 4, 0]
    assert merged.confirmed.tolist() == [0, 2, 0]


def test_features_of_labels() -> None:
    use = NameUse(np.array([8, 2, 5, 0]), np.array([6, 0, 0, 0]))
    found = label_features(np.array([7, 1, 0, 3]), use)
    average = 6 / 15
    assert found[:, 0] == pytest.approx(np.log1p([7, 1, 0, 3]))
    expected = [(6 + 2 * average) / 10, 2 * average / 4, np.nan, np.nan]
    assert found[:, 1] == pytest.approx(expected, nan_ok=True)
    rows = add_use(candidates(), found)
    assert rows[2, :, FREQUENCY] == pytest.approx(np.log1p([3, 0, 1]))
    assert rows[2, :, PRECISION] == pytest.approx([np.nan, np.nan, expected[1]], nan_ok=True)
    assert np.isnan(label_features(np.array([1]), NameUse.none(1))[0, 1])
