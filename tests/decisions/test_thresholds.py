"""Sets of labels against exhaustive search: every cut, every set of cuts, every outcome."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any, get_args

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.errors import ConfigError, DataError, ModelFormatError
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.decisions.thresholds import (
    CONSIDERED,
    LEAST_HITS,
    Measure,
    Thresholds,
    fixed,
    hits_among,
    select_labels,
    tune,
)
from xmtc.metrics import macro_f1, micro_f1

MEASURES = get_args(Measure)
AVERAGES = {"micro": "micro", "macro": "macro", "document": "samples"}
Answer = tuple[NDArray[np.int64], NDArray[np.float32], sp.csr_array]


def f1(measure: str, labels: NDArray[np.int64], chosen: NDArray[np.bool_], truth: sp.csr_array) -> float:
    """The plain way: counts of each group, then a mean over all of them."""
    returned = np.zeros((truth.shape[0], max(truth.shape[1], int(labels.max()) + 1)), dtype=bool)
    returned[np.nonzero(chosen)[0], labels[chosen]] = True
    true = np.zeros_like(returned)
    true[:, : truth.shape[1]] = truth.toarray() != 0
    axis = {"micro": None, "macro": 0, "document": 1}[measure]
    hits, size = np.atleast_1d((true & returned).sum(axis)), np.atleast_1d(true.sum(axis) + returned.sum(axis))
    parts = np.divide(2 * hits, size, out=np.zeros(len(size)), where=size > 0)
    return float(parts.sum() / (truth.shape[1] if measure == "macro" else len(parts)))


def attained(thresholds: Thresholds, answer: Answer) -> float:
    labels, scores, truth = answer
    return f1(thresholds.measure, labels, thresholds.choose(labels, scores), truth)


def random_answer(
    seed: int, documents: int = 12, labels: int = 6, unseen: int = 2, k: int = 4, levels: int = 12
) -> Answer:
    """Rankings with ties and pads, and true labels, some of which the model does not know."""
    random = np.random.default_rng(seed)
    true = random.random((documents, labels + unseen)) < 0.3  # (n, L')
    marks = random.integers(0, levels, (documents, labels))
    raised = np.where(true[:, :labels], levels // 3, 0)
    scores = ((marks + raised) / 7 - 1).astype(np.float32)  # (n, L)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    ranked = np.take_along_axis(scores, order, axis=1)
    short = np.arange(k) >= random.integers(1, k + 1, documents)[:, None]
    order[short], ranked[short] = -1, -np.inf
    return order, ranked, sp.csr_array(true.astype(np.float64))


def has_hit(answer: Answer) -> bool:
    return bool(hits_among(answer[0], answer[2]).any())


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("seed", range(30))
def test_the_global_threshold_is_the_best_of_all_cuts(measure: Any, seed: int) -> None:
    answer = labels, scores, truth = random_answer(seed, levels=5 if seed % 2 else 40)
    thresholds = tune("global", measure, labels, scores, truth, label_count=6)
    cuts = np.unique(scores[labels >= 0])
    best = max(f1(measure, labels, (labels >= 0) & (scores >= cut), truth) for cut in cuts)
    assert attained(thresholds, answer) == pytest.approx(best, abs=1e-12)
    assert thresholds.value not in cuts[1:]  # it stands between scores, not on one


@settings(max_examples=60, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from(MEASURES), st.sampled_from(["global", "label"]))
def test_measures_are_those_of_scikit_learn_and_of_metrics(seed: int, measure: Any, kind: Any) -> None:
    labels, scores, truth = random_answer(seed)
    if not has_hit((labels, scores, truth)):
        return
    chosen = tune(kind, measure, labels, scores, truth, label_count=6).choose(labels, scores)
    returned = np.zeros(truth.shape, dtype=int)
    returned[np.nonzero(chosen)[0], labels[chosen]] = 1
    expected = f1_score(truth.toarray() != 0, returned, average=AVERAGES[measure], zero_division=0)
    value = f1(measure, labels, chosen, truth)
    assert value == pytest.approx(expected, abs=1e-12)
    sets = select_labels(TopK(labels, scores, LabelIndex.from_keys(list("abcdef"))), chosen)
    if measure != "document":
        assert {"micro": micro_f1, "macro": macro_f1}[measure](sets, truth, 4) == pytest.approx(value, abs=1e-12)


def cuts_of(answer: Answer, label: int) -> list[float]:
    """All thresholds that tell sets of one label apart, with one that takes nothing."""
    labels, scores, _ = answer
    return [*np.unique(scores[labels == label]).tolist(), np.inf]


def with_cuts(answer: Answer, cuts: NDArray[np.float64]) -> NDArray[np.bool_]:
    labels, scores, _ = answer
    return (labels >= 0) & (scores >= cuts[labels])


@pytest.mark.parametrize("seed", range(12))
def test_macro_thresholds_are_the_best_of_each_label(seed: int) -> None:
    answer = labels, scores, truth = random_answer(seed, documents=25)
    thresholds = tune("label", "macro", labels, scores, truth, label_count=6)
    hits = np.bincount(labels[hits_among(labels, truth)], minlength=6)
    assert (hits >= LEAST_HITS).any()
    for label in range(6):
        column, here = truth[:, [label]], np.where(labels == label, 0, -1)
        values = {cut: f1("micro", here, (here == 0) & (scores >= cut), column) for cut in cuts_of(answer, label)}
        chosen = (here == 0) & thresholds.choose(labels, scores)
        if hits[label] >= LEAST_HITS:
            assert f1("micro", here, chosen, column) == pytest.approx(max(values.values()), abs=1e-12)
        else:
            assert thresholds.by_label is not None
            assert thresholds.by_label[label] == np.float32(thresholds.value)


@pytest.mark.parametrize("seed", range(12))
def test_micro_thresholds_are_the_best_of_all_sets_of_cuts(seed: int) -> None:
    answer = labels, scores, truth = random_answer(seed, documents=25, labels=4, unseen=1, k=3, levels=6)
    thresholds = tune("label", "micro", labels, scores, truth, label_count=4)
    hits = np.bincount(labels[hits_among(labels, truth)], minlength=4)
    free = [cuts_of(answer, label) if hits[label] >= LEAST_HITS else [thresholds.value] for label in range(4)]
    assert sum(len(cuts) > 1 for cuts in free) >= 2
    best = max(f1("micro", labels, with_cuts(answer, np.array(cuts)), truth) for cuts in itertools.product(*free))
    assert attained(thresholds, answer) == pytest.approx(best, abs=1e-12)


def test_micro_thresholds_leave_out_a_label_that_costs_more_than_it_gives() -> None:
    """Label 0 is right in all of 10 documents; label 1 in 3 of 40, at no score that tells them apart."""
    labels = np.array([[0]] * 10 + [[1]] * 40)
    scores = np.full((50, 1), 0.5, dtype=np.float32)
    truth = sp.csr_array((np.ones(13), ([*range(10), 20, 30, 40], [0] * 10 + [1] * 3)), shape=(50, 2))
    chosen = tune("label", "micro", labels, scores, truth, label_count=2).choose(labels, scores)
    assert chosen[:10].all()
    assert not chosen[10:].any()


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("seed", range(20))
def test_thresholds_of_labels_are_never_worse_than_one(measure: Any, seed: int) -> None:
    answer = labels, scores, truth = random_answer(seed, documents=40, labels=8, k=5)
    own = tune("label", measure, labels, scores, truth, label_count=8)
    one = tune("global", measure, labels, scores, truth, label_count=8)
    assert own.value == one.value
    assert attained(own, answer) >= attained(one, answer) - 1e-12


def test_no_label_alone_can_raise_the_documents_f1_further() -> None:
    answer = labels, scores, truth = random_answer(3, documents=60, labels=8, k=5)
    thresholds = tune("label", "document", labels, scores, truth, label_count=8)
    one = tune("global", "document", labels, scores, truth, label_count=8)
    value = attained(thresholds, answer)
    assert value > attained(one, answer) + 0.001
    assert thresholds.by_label is not None
    hits = np.bincount(labels[hits_among(labels, truth)], minlength=8)
    for label in np.flatnonzero(hits >= LEAST_HITS):
        for cut in cuts_of(answer, label):
            cuts = thresholds.by_label.astype(np.float64)
            cuts[label] = cut
            assert f1("document", labels, with_cuts(answer, cuts), truth) <= value + 1e-12


def test_planted_offsets_of_labels_are_found() -> None:
    """Each label's scores part hits from misses at a place of its own: one threshold errs, its own never does."""
    random = np.random.default_rng(0)
    offsets = np.array([-2.0, 0.0, 3.0])
    labels = np.tile([0, 1, 2], (60, 1))
    true = random.random((60, 3)) < 0.4
    scores = (offsets + np.where(true, 0.5, -0.5) + random.uniform(-0.3, 0.3, (60, 3))).astype(np.float32)
    answer = labels, scores, sp.csr_array(true.astype(float))
    for measure in ("micro", "macro"):
        thresholds = tune("label", measure, *answer, label_count=5)  # type: ignore[arg-type]
        assert thresholds.by_label is not None
        assert thresholds.by_label[:3] == pytest.approx(offsets, abs=0.35)
        assert (thresholds.by_label[3:] == np.float32(thresholds.value)).all()  # labels that were never returned
        assert (thresholds.choose(labels, scores) == true).all()
    assert attained(tune("global", "micro", *answer, label_count=5), answer) < 0.9


def test_the_threshold_stands_halfway_and_still_parts_neighbours() -> None:
    labels = np.array([[0], [0]])
    truth = sp.csr_array(np.array([[1.0], [0.0]]))
    tuned = tune("global", "micro", labels, np.array([[0.75], [0.25]], dtype=np.float32), truth, label_count=1)
    assert tuned.value == 0.5
    for high in np.float32([1.0, 1.0000001, 0.3, 1e-40, -2.5, 3e38]):  # rounded, halfway is one or the other
        scores = np.array([[high], [np.nextafter(high, np.float32(-np.inf))]], dtype=np.float32)
        tuned = tune("global", "micro", labels, scores, truth, label_count=1)
        assert tuned.choose(labels, scores).ravel().tolist() == [True, False]


def test_beyond_the_scores_of_a_label_the_global_threshold_decides() -> None:
    """All of label 1 belongs in: its lowest score is above the global cut, which takes its place."""
    labels = np.array([[0], [0], [0], [0], [0], [1], [1], [1]])
    scores = np.array([0.9, 0.8, 0.7, 0.2, 0.1, 0.95, 0.9, 0.85], dtype=np.float32)[:, None]
    truth = sp.csr_array((np.ones(6), ([0, 1, 2, 5, 6, 7], [0, 0, 0, 1, 1, 1])), shape=(8, 2))
    thresholds = tune("label", "macro", labels, scores, truth, label_count=2)
    assert thresholds.value == pytest.approx(0.45)
    assert thresholds.by_label == pytest.approx([0.45, 0.45])


def expected_f1(chances: NDArray[np.float64], size: int) -> float:
    """Over all 2^k outcomes."""
    total = 0.0
    for outcome in itertools.product([0, 1], repeat=len(chances)):
        weight = np.prod(np.where(outcome, chances, 1 - chances))
        total += float(weight) * 2 * sum(outcome[:size]) / (size + sum(outcome))
    return total


@settings(max_examples=60, derandomize=True)
@given(st.lists(st.sampled_from([0.0, 1.0, *np.linspace(0.02, 0.98, 25)]), min_size=1, max_size=8))
def test_the_document_rule_is_the_best_of_all_sizes(given_chances: list[float]) -> None:
    chances = np.sort(np.array(given_chances, dtype=np.float32))[::-1]
    width = 10
    labels, scores = np.full((2, width), -1), np.full((2, width), -np.inf, dtype=np.float32)  # the second has none
    labels[0, : len(chances)], scores[0, : len(chances)] = np.arange(len(chances)), chances
    chosen = Thresholds("document", "document", 0.0).choose(labels, scores)
    size = int(chosen[0].sum())
    assert chosen[0, :size].all()
    assert not chosen[1].any()
    assert size >= 1
    values = [expected_f1(chances.astype(np.float64), m) for m in range(1, len(chances) + 1)]
    assert values[size - 1] == pytest.approx(max(values), abs=1e-9)


def test_the_document_rule_by_hand() -> None:
    rule = Thresholds("document", "document", 0.0)
    # The first alone promises 0.9 · (0.4 · 2/3 + 0.6 · 1) = 0.78, both 0.36 · 1 + (0.54 + 0.04) · 2/3 = 0.75.
    assert rule.choose(np.array([[4, 2]]), np.array([[0.9, 0.4]])).tolist() == [[True, False]]
    assert rule.choose(np.array([[4, 2]]), np.array([[0.9, 0.8]])).tolist() == [[True, True]]
    assert rule.choose(np.array([[4, 2]]), np.array([[0.1, 0.1]])).tolist() == [[True, True]]
    assert rule.choose(np.array([[4, 2]]), np.array([[0.0, 0.0]])).tolist() == [[True, False]]
    # A pad in the middle is passed over.
    assert rule.choose(np.array([[4, -1, 2]]), np.array([[0.9, -np.inf, 0.8]])).tolist() == [[True, False, True]]


def test_the_document_rule_looks_at_the_first_labels_only() -> None:
    labels = np.arange(CONSIDERED + 30)[None, :]
    scores = np.full(labels.shape, 1.0, dtype=np.float32)
    rule = Thresholds("document", "document", 0.0)
    assert rule.choose(labels, scores).sum() == CONSIDERED
    random = np.sort(np.random.default_rng(0).random(labels.shape) ** 4)[:, ::-1]
    chosen = rule.choose(labels, random)
    assert 1 < chosen.sum() < CONSIDERED
    assert (chosen[:, :CONSIDERED] == rule.choose(labels[:, :CONSIDERED], random[:, :CONSIDERED])).all()


def test_the_document_rule_beats_one_threshold_where_its_assumptions_hold() -> None:
    random = np.random.default_rng(5)
    chances = np.sort(random.random((4000, 8)) ** random.uniform(0.5, 6, (4000, 1)), axis=1)[:, ::-1]
    truth = sp.csr_array((random.random(chances.shape) < chances).astype(float))
    answer = np.tile(np.arange(8), (4000, 1)), chances.astype(np.float32), truth
    rule = tune("document", "document", *answer, label_count=8)
    assert attained(rule, answer) > attained(tune("global", "document", *answer, label_count=8), answer) + 0.01


def test_the_document_rule_needs_probabilities() -> None:
    labels, truth = np.array([[0, 1]]), sp.csr_array(np.array([[1.0, 0.0]]))
    for scores in ([[1.5, 0.5]], [[0.5, -0.1]], [[0.5, np.nan]]):
        with pytest.raises(DataError, match="Calibrate the model first"):
            Thresholds("document", "document", 0.0).choose(labels, np.array(scores, dtype=np.float32))
    with pytest.raises(DataError, match="Calibrate the model first"):
        tune("document", "document", labels, np.array([[2.0, 1.0]]), truth, label_count=2)
    for measure in ("micro", "macro"):
        with pytest.raises(ConfigError, match=f"not {measure}-F1"):
            tune("document", measure, labels, np.array([[0.2, 0.1]]), truth, label_count=2)  # type: ignore[arg-type]


def test_a_fixed_threshold_takes_what_reaches_it() -> None:
    labels = np.array([[3, 1, 0], [2, -1, -1]])
    scores = np.array([[0.9, 0.7, 0.69], [0.7, -np.inf, -np.inf]], dtype=np.float32)  # float32's 0.7 is below 0.7
    assert fixed(0.7).choose(labels, scores).tolist() == [[True, True, False], [True, False, False]]
    assert (fixed(-1e9).choose(labels, scores) == (labels >= 0)).all()
    assert fixed(0.7).value == 0.7
    for bad in (float("nan"), float("inf"), 1e39, "0.5"):
        with pytest.raises(ConfigError, match="must be a number"):
            fixed(bad)  # type: ignore[arg-type]


def test_kept_labels_move_to_the_left() -> None:
    index = LabelIndex.from_keys(list("abcde"))
    scores = np.array([[5.0, 4.0, 3.0, 2.0], [9.0, 8.0, -np.inf, -np.inf], [4.0, 3.0, 2.0, 1.0]])
    top = TopK([[4, 2, 0, 1], [3, 1, -1, -1], [0, 1, 2, 3]], scores, index, ids=["x", "y", "z"])
    chosen = np.array([[False, True, False, True], [True, True, True, True], [False] * 4])
    sets = select_labels(top, chosen)
    assert sets.labels.tolist() == [[2, 1, -1, -1], [3, 1, -1, -1], [-1, -1, -1, -1]]
    pad = -np.inf
    assert sets.scores.tolist() == [[4, 2, pad, pad], [9, 8, pad, pad], [pad] * 4]
    assert sets.ids == ["x", "y", "z"]
    assert sets.keys() == [["c", "b"], ["d", "b"], []]
    assert top.labels[0].tolist() == [4, 2, 0, 1]  # the answer itself is left as it was
    with pytest.raises(DataError, match="differ in shape"):
        select_labels(top, chosen[:, :2])


def test_hits_are_found_once_and_not_at_pads() -> None:
    truth = sp.csr_array((np.array([1.0, 1.0, 0.0]), np.array([5, 1, 2]), np.array([0, 3, 3])), shape=(2, 6))
    hits = hits_among(np.array([[1, 2, 1, -1], [5, 1, -1, -1]]), truth)
    assert hits.tolist() == [[True, False, False, False], [False] * 4]


def test_a_label_that_is_there_twice_counts_once() -> None:
    """Were the second 0 of the first document a pair, the cut would stand between its score and 0.8."""
    truth = sp.csr_array(np.array([[1.0, 0.0], [0.0, 1.0]]))
    scores = np.array([[0.9, 0.5], [0.8, 0.4]], dtype=np.float32)
    thresholds = tune("global", "micro", np.array([[0, 0], [1, -1]]), scores, truth, label_count=2)
    assert thresholds.value == np.float32(0.8)


@pytest.mark.parametrize("kind", ["global", "label", "document"])
def test_what_is_kept_gives_the_same_sets(kind: Any) -> None:
    labels, scores, truth = random_answer(0, documents=40)
    scores = np.where(labels >= 0, (scores + 1) / 4, scores)
    thresholds = tune(kind, "document", labels, scores, truth, label_count=6)
    values = json.loads(json.dumps(thresholds.values()))
    again = Thresholds.restored(values, SavedState(State(arrays=thresholds.arrays())))
    assert (again.kind, again.measure, again.value) == (kind, "document", thresholds.value)
    assert (again.choose(labels, scores) == thresholds.choose(labels, scores)).all()
    assert (again.by_label is not None) == (kind == "label")


@pytest.mark.parametrize(
    ("values", "arrays"),
    [
        ({}, {}),
        ({"kind": "global", "measure": "micro"}, {}),
        ({"kind": "rank", "measure": "micro", "value": 0.5}, {}),
        ({"kind": "global", "measure": "mean", "value": 0.5}, {}),
        ({"kind": "global", "measure": "micro", "value": None}, {}),
        ({"kind": "global", "measure": "micro", "value": float("nan")}, {}),
        ({"kind": "label", "measure": "micro", "value": 0.5}, {}),
        ({"kind": "label", "measure": "micro", "value": 0.5}, {"by_label": [[0.5]]}),
        ({"kind": "label", "measure": "micro", "value": 0.5}, {"by_label": [np.nan]}),
    ],
)
def test_parts_that_do_not_fit_are_refused(values: dict[str, Any], arrays: dict[str, Any]) -> None:
    given = {name: np.array(array) for name, array in arrays.items()}
    with pytest.raises((ValueError, KeyError, TypeError, ModelFormatError)):
        Thresholds.restored(values, SavedState(State(arrays=given)))


def test_what_cannot_be_tuned_on_is_refused() -> None:
    labels, scores, truth = random_answer(0)
    pads = np.full_like(labels, -1)
    with pytest.raises(DataError, match="contain no labels"):
        tune("global", "micro", pads, scores, truth, label_count=6)
    with pytest.raises(DataError, match="no documents"):
        tune("global", "micro", labels[:0], scores[:0], truth[:0], label_count=6)
    with pytest.raises(DataError, match=r"none of the .* is true"):
        tune("global", "micro", labels, scores, sp.csr_array(truth.shape), label_count=6)
    for bad in (np.inf, -np.inf, np.nan):
        with pytest.raises(DataError, match="infinite or NaN"):
            tune("global", "micro", np.array([[0]]), np.array([[bad]]), truth[:1], label_count=6)
    with pytest.raises(DataError, match="label 5 is out of range for the model's 5"):
        tune("global", "micro", labels, scores, truth, label_count=5)
    with pytest.raises(DataError, match=r"must be \(n, k\) arrays"):
        tune("global", "micro", labels, scores[:, 1:], truth, label_count=6)
    with pytest.raises(ConfigError, match="Got 'rank'"):
        tune("rank", "micro", labels, scores, truth, label_count=6)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Got 'mean'"):
        tune("global", "mean", labels, scores, truth, label_count=6)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="label 5 is out of range for the model's 2"):
        Thresholds("label", "micro", 0.5, np.zeros(2, dtype=np.float32)).choose(labels, scores)


def test_truth_may_have_fewer_columns_than_the_model_has_labels() -> None:
    labels = np.array([[0, 4], [0, 4], [0, 4]])
    scores = np.array([[0.9, 0.8], [0.7, 0.6], [0.5, 0.4]], dtype=np.float32)
    truth = sp.csr_array(np.ones((3, 1)))
    for kind, measure in itertools.product(("global", "label"), MEASURES):
        thresholds = tune(kind, measure, labels, scores, truth, label_count=6)  # type: ignore[arg-type]
        assert thresholds.choose(labels, scores)[:, 0].all()


def test_ten_thousand_documents_take_seconds() -> None:
    """A third of a second each; the bound leaves room for a busy machine and for compiling."""
    random = np.random.default_rng(0)
    labels = random.random((10_000, 200)).argsort(axis=1)[:, :50] * 20 + random.integers(0, 20, (10_000, 50))
    scores = np.sort(random.random((10_000, 50)) ** 3, axis=1)[:, ::-1].astype(np.float32)
    hit = random.random(scores.shape) < scores
    truth = sp.csr_array((np.ones(hit.sum()), (np.nonzero(hit)[0], labels[hit])), shape=(10_000, 4000))
    for kind, measure in [*itertools.product(("global", "label"), MEASURES), ("document", "document")]:
        begun = time.perf_counter()
        thresholds = tune(kind, measure, labels, scores, truth, label_count=4000)  # type: ignore[arg-type]
        chosen = thresholds.choose(labels, scores)
        took = time.perf_counter() - begun
        assert took < 20
        assert 0 < chosen.sum() < chosen.size
