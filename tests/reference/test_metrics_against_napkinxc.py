"""Measures and propensities against napkinXC's, which loops over documents in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.labels.propensity import inverse_propensities
from xmtc.metrics import evaluate, psndcg

judge = pytest.importorskip("napkinxc.metrics")

DEPTH = 10
Case = tuple[np.ndarray[Any, Any], sp.csr_matrix, list[list[int]], np.ndarray[Any, Any]]


def random_case(seed: int, fewest: int = 0) -> Case:
    """Rankings that hit often, some shorter than others; documents have `fewest` to 11 labels."""
    generator = np.random.default_rng(seed)
    documents, labels = 120, int(generator.integers(15, 60))
    rankings = [generator.permutation(labels)[: generator.integers(0, 15)].tolist() for _ in range(documents)]
    predicted = np.full((documents, 15), -1)
    for row, ranking in enumerate(rankings):
        predicted[row, : len(ranking)] = ranking
    dense = np.zeros((documents, labels))
    for row in range(documents):
        dense[row, generator.permutation(labels)[: generator.integers(fewest, 12)]] = 1
    return predicted, sp.csr_matrix(dense), rankings, 1 + 5 * generator.random(labels)


@pytest.mark.parametrize("seed", range(6))
def test_all_measures_agree(seed: int) -> None:
    predicted, truth, rankings, inverse = random_case(seed)
    assert (np.diff(truth.indptr) == 0).any()  # documents without labels are part of the case
    ks = range(1, DEPTH + 1)
    values = evaluate(predicted, truth, ks, inverse)
    expected = {
        "P": judge.precision_at_k(truth, rankings, k=DEPTH),
        "nDCG": judge.ndcg_at_k(truth, rankings, k=DEPTH, zero_division=0),
        "PSP": judge.psprecision_at_k(truth, rankings, inverse, k=DEPTH, normalize=True),
        "PSnDCG": judge.psdcg_at_k(truth, rankings, inverse, k=DEPTH, normalize=True),
        "R": judge.recall_at_k(truth, rankings, k=DEPTH, zero_division=0),
    }
    for name, at_k in expected.items():
        assert [values[f"{name}@{k}"] for k in ks] == pytest.approx(at_k.tolist(), abs=1e-9, rel=0)


def test_psndcg_differs_from_napkinxc_by_its_weight_for_each_document() -> None:
    # Document 0 has one label, a hit; document 1 has two, both missed. All weigh 1; d discounts rank 2.
    # Attainable are 1 and 1 + d: ours is 1 / (2 + d). napkinXC first divides document 1 by its 1 + d: 1 / 2.
    truth = sp.csr_matrix(np.array([[1, 0, 0], [1, 1, 0]]))
    assert psndcg(np.array([[0], [2]]), truth, 2, np.ones(3)) == pytest.approx(1 / (2 + 1 / np.log2(3)))
    assert judge.psndcg_at_k(truth, [[0], [2]], np.ones(3), k=2)[1] == pytest.approx(1 / 2)


def test_psndcg_agrees_where_every_document_has_k_labels() -> None:
    predicted, truth, rankings, inverse = random_case(seed=0, fewest=5)
    theirs = judge.psndcg_at_k(truth, rankings, inverse, k=5)
    ours = [psndcg(predicted, truth, k, inverse) for k in range(1, 6)]
    assert ours == pytest.approx(theirs.tolist(), abs=1e-9, rel=0)


@pytest.mark.parametrize(("a", "b"), [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)])
def test_inverse_propensities_agree(a: float, b: float) -> None:
    _, train, _, _ = random_case(seed=9)
    counts = np.bincount(train.indices, minlength=train.shape[1])
    expected = judge.Jain_et_al_inverse_propensity(train, A=a, B=b)
    assert inverse_propensities(counts, train.shape[0], a, b) == pytest.approx(expected, abs=1e-9, rel=0)
