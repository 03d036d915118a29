"""Statistics against scikit-learn's, SciPy's and napkinXC's, which are given dense matrices or plain lists."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats

from xmtc.metrics import average_ranks, evaluate_sets, frequency_groups, macro_f1, micro_f1, per_label, wilcoxon

judge = pytest.importorskip("sklearn.metrics")

Array = np.ndarray[Any, Any]


def random_case(seed: int, documents: int = 150) -> tuple[Array, Array, Array]:
    """Rankings (n, 12) of different lengths with scores that tie, and dense true labels, some documents with none."""
    generator = np.random.default_rng(seed)
    labels = int(generator.integers(15, 40))
    dense = generator.random((documents, labels)) < generator.random(labels) * 0.4
    dense[generator.random(documents) < 0.1] = False
    ranking = np.argsort(-(dense * 0.5 + generator.random((documents, labels))), axis=1)[:, :12]
    scores = -np.sort(-generator.integers(0, 30, ranking.shape) / 10, axis=1)
    pads = np.arange(12) >= generator.integers(0, 13, (documents, 1))
    return np.where(pads, -1, ranking), np.where(pads, -np.inf, scores), dense


def binarised(predicted: Array, labels: int, k: int) -> Array:
    """The first k labels of each document as a dense 0/1 matrix."""
    given = np.zeros((len(predicted), labels), dtype=bool)
    for row, ranking in enumerate(predicted[:, :k]):
        given[row, ranking[ranking >= 0]] = True
    return given


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 5, 20])
def test_f1_agrees_with_scikit_learn(seed: int, k: int) -> None:
    predicted, _, dense = random_case(seed)
    given, truth = binarised(predicted, dense.shape[1], k), sp.csr_array(dense.astype(float))
    expected = {kind: judge.f1_score(dense, given, average=kind, zero_division=0) for kind in ("micro", "macro")}
    assert micro_f1(predicted, truth, k) == pytest.approx(expected["micro"], abs=1e-12)
    assert macro_f1(predicted, truth, k) == pytest.approx(expected["macro"], abs=1e-12)
    each = judge.f1_score(dense, given, average=None, zero_division=0)
    assert per_label(predicted, truth, k).f1.tolist() == pytest.approx(each.tolist(), abs=1e-12)
    assert per_label(predicted, truth, k).hits.tolist() == (dense & given).sum(axis=0).tolist()


def test_f1_agrees_where_labels_have_neither_support_nor_prediction() -> None:
    dense = np.array([[1, 0, 0, 0], [0, 1, 0, 0]])
    predicted = np.array([[0, 2], [0, -1]])
    expected = judge.f1_score(dense, binarised(predicted, 4, 2), average="macro", zero_division=0)
    assert macro_f1(predicted, sp.csr_array(dense), 2) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_sets_agree_with_napkinxc(seed: int) -> None:
    peer = pytest.importorskip("napkinxc.metrics")
    predicted, _, dense = random_case(seed)
    truth = sp.csr_matrix(dense.astype(float))
    rankings = [row[row >= 0].tolist() for row in predicted]
    values = evaluate_sets(predicted, truth, range(1, 9))
    covered = peer.coverage_at_k(truth, rankings, k=8)
    assert [values[f"coverage@{k}"] for k in range(1, 9)] == pytest.approx(covered.tolist(), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_areas_agree_with_scikit_learn(seed: int) -> None:
    predicted, scores, dense = random_case(seed)
    documents, labels = dense.shape
    known = np.full((documents, labels), -1.0)  # below every score
    for row in range(documents):
        held = predicted[row] >= 0
        known[row, predicted[row, held]] = np.float32(scores[row, held])
    support = dense.sum(axis=0)
    answer: Any = SimpleNamespace(labels=predicted, scores=scores.astype(np.float32))
    groups = frequency_groups(answer, sp.csr_array(dense.astype(float)), groups=99, at_least=5, ties="standard")
    assert len(groups) > 5
    for group in groups:  # a group of its own for every frequency
        members = np.flatnonzero(support == group.least)
        auc = [judge.roc_auc_score(dense[:, label], known[:, label]) for label in members]
        aupr = [judge.average_precision_score(dense[:, label], known[:, label]) for label in members]
        assert group.labels == len(members)
        assert group.auc == pytest.approx(np.mean(auc), abs=1e-12)
        assert group.aupr == pytest.approx(np.mean(aupr), abs=1e-12)


@pytest.mark.parametrize("count", [1, 2, 5, 15, 30, 50])
def test_wilcoxon_agrees_with_scipy_without_ties(count: int) -> None:
    generator = np.random.default_rng(count)
    for shift in (0.0, 0.3, 1.0):
        first, second = generator.normal(shift, 1, count), generator.normal(0, 1, count)
        expected = scipy.stats.wilcoxon(first, second, method="exact").pvalue
        assert wilcoxon(first, second) == pytest.approx(expected, rel=1e-9)


def test_wilcoxon_agrees_with_scipys_permutations_with_ties() -> None:
    generator = np.random.default_rng(0)
    for _ in range(3):
        differences = generator.integers(1, 4, 8) * generator.choice([-1, 1], 8)  # zeros SciPy permutes, we drop
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method = scipy.stats.PermutationMethod(n_resamples=np.inf)
            expected = scipy.stats.wilcoxon(differences, method=method).pvalue
        assert wilcoxon(differences, np.zeros(8)) == pytest.approx(expected, rel=1e-9)


def test_ranks_agree_with_scipy() -> None:
    table = np.random.default_rng(0).integers(0, 5, (40, 6)).astype(float)
    for ours, theirs in (("min", "min"), ("mid", "average")):
        expected = scipy.stats.rankdata(-table, method=theirs, axis=1).mean(axis=0)
        assert average_ranks(table, ties=ours).tolist() == pytest.approx(expected.tolist())  # type: ignore[arg-type]
