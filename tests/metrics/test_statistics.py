"""Statistics of rankings against values worked out by hand and slow references in plain Python."""

from __future__ import annotations

import itertools
import math
import time
import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.core.errors import DataError
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.metrics import (
    Interval,
    Parts,
    average_ranks,
    bootstrap,
    bootstrap_difference,
    coverage,
    document_parts,
    evaluate,
    evaluate_sets,
    frequency_groups,
    macro_f1,
    micro_f1,
    overlap,
    per_label,
    rarest_labels,
    tail_precision,
    wilcoxon,
)

Array = np.ndarray[Any, Any]


def matrix(rows: list[list[int]], labels: int) -> sp.csr_array:
    """The CSR matrix (n, labels) of these true labels, entry for entry: repeats stay repeats."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    numbers = np.array([label for row in rows for label in row], dtype=np.int64)
    return sp.csr_array((np.ones(len(numbers)), numbers, offsets), shape=(len(rows), labels))


def messy(seed: int, documents: int = 60) -> tuple[Array, list[list[int]], int]:
    """Predictions with pads, repeats and numbers beyond the truth; some documents have no labels or name them twice."""
    generator = np.random.default_rng(seed)
    labels = int(generator.integers(3, 25))
    predicted = generator.integers(-1, labels + 3, size=(documents, 7))
    truth = [generator.integers(0, labels, size).tolist() for size in generator.integers(0, 9, documents)]
    return predicted, truth, labels


# Three documents over labels 0 to 3: hits at ranks 1 and 3; no true labels; one hit, then pads.
PREDICTED = np.array([[2, 1, 0], [0, 1, 2], [3, -1, -1]])
TRUTH = matrix([[0, 2], [], [0, 1, 3]], labels=4)
INVERSE = np.array([1.0, 2.0, 3.0, 4.0])


# Parts and resampling


def test_parts_by_hand() -> None:
    parts = document_parts(PREDICTED, TRUTH, (2,), INVERSE)
    assert list(parts) == ["P@2", "nDCG@2", "PSP@2", "PSnDCG@2", "R@2"]
    assert parts["P@2"].numerator.tolist() == [1, 0, 1]
    assert parts["P@2"].denominator.tolist() == [2, 2, 2]
    assert parts["R@2"].numerator.tolist() == pytest.approx([1 / 2, 0, 1 / 3])
    assert parts["R@2"].denominator.tolist() == [1, 1, 1]
    assert parts["PSP@2"].numerator.tolist() == [3, 0, 4]
    assert parts["PSP@2"].denominator.tolist() == [3 + 1, 0, 4 + 2]


@pytest.mark.parametrize("seed", range(4))
def test_measures_are_ratios_of_the_parts(seed: int) -> None:
    predicted, truth, labels = messy(seed)
    inverse = 1 + np.random.default_rng(seed).random(labels)
    parts = document_parts(predicted, matrix(truth, labels), (1, 4, 9), inverse)
    values = {name: part.numerator.sum() / part.denominator.sum() for name, part in parts.items()}
    assert values == pytest.approx(evaluate(predicted, matrix(truth, labels), (1, 4, 9), inverse), abs=1e-12)
    assert {name: part.value for name, part in parts.items()} == pytest.approx(values, abs=1e-12)


def resampled(predicted: Array, truth: sp.csr_array, inverse: Array, samples: int, seed: int) -> dict[str, list[float]]:
    """Evaluate every resample from scratch, its documents picked one by one."""
    generator = np.random.default_rng(seed)
    values: dict[str, list[float]] = {}
    for _ in range(samples):
        drawn = generator.integers(len(predicted), size=len(predicted))
        for name, value in evaluate(predicted[drawn], truth[drawn], (1, 3), inverse).items():
            values.setdefault(name, []).append(value)
    return values


def test_bootstrap_agrees_with_evaluating_every_resample() -> None:
    predicted, rows, labels = messy(3, documents=25)
    truth, inverse = matrix(rows, labels), 1 + np.arange(labels) / 7
    intervals = bootstrap(document_parts(predicted, truth, (1, 3), inverse), samples=60, level=0.8, seed=5)
    values = evaluate(predicted, truth, (1, 3), inverse)
    for name, slow in resampled(predicted, truth, inverse, samples=60, seed=5).items():
        assert intervals[name].value == pytest.approx(values[name], abs=1e-12)
        assert intervals[name].low == pytest.approx(np.quantile(slow, 0.1), abs=1e-12)
        assert intervals[name].high == pytest.approx(np.quantile(slow, 0.9), abs=1e-12)
    assert list(intervals) == list(values)


def test_difference_agrees_with_evaluating_every_resample() -> None:
    predicted, rows, labels = messy(4, documents=25)
    other = np.random.default_rng(0).permuted(predicted, axis=1)
    truth, inverse = matrix(rows, labels), 1 + np.arange(labels) / 7
    first, second = (document_parts(answer, truth, (1, 3), inverse) for answer in (predicted, other))
    second = dict(reversed(second.items()))  # the order of names is of no importance
    intervals = bootstrap_difference(first, second, samples=60, level=0.8, seed=5)
    slow = [resampled(answer, truth, inverse, samples=60, seed=5) for answer in (predicted, other)]
    for name in first:
        differences = np.subtract(slow[0][name], slow[1][name])
        assert intervals[name].value == pytest.approx(first[name].value - second[name].value, abs=1e-12)
        assert intervals[name].low == pytest.approx(np.quantile(differences, 0.1), abs=1e-12)
        assert intervals[name].high == pytest.approx(np.quantile(differences, 0.9), abs=1e-12)


def test_interval_has_the_width_that_theory_gives() -> None:
    # Half of 400 answers are right: the standard error is √(0.25 / 400) = 0.025.
    parts = {"P@1": Parts(np.repeat([0.0, 1.0], 200), np.ones(400))}
    interval = bootstrap(parts, samples=4000)["P@1"]
    assert interval.value == 0.5
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * 0.025, rel=0.06)
    narrow = bootstrap(parts, samples=4000, level=0.5)["P@1"]
    assert narrow.high - narrow.low == pytest.approx(2 * 0.6745 * 0.025, rel=0.1)


def test_resamples_depend_on_the_seed_and_not_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = document_parts(*messy_case(1), ks=(1, 3))
    whole = bootstrap(parts, samples=50, seed=1)
    assert bootstrap(parts, samples=50, seed=2) != whole
    monkeypatch.setattr("xmtc.metrics.resampling.COUNTS_AT_ONCE", 150)  # two resamples of 60 documents
    for name, interval in bootstrap(parts, samples=50, seed=1).items():
        assert vars(interval) == pytest.approx(vars(whole[name]), abs=1e-12)


def messy_case(seed: int) -> tuple[Array, sp.csr_array]:
    predicted, rows, labels = messy(seed)
    return predicted, matrix(rows, labels)


def test_a_system_against_itself_and_against_a_worse_one() -> None:
    truth = matrix([[row % 9] for row in range(300)], 9)
    right = np.arange(300)[:, None] % 9
    worse = np.where(np.arange(300)[:, None] % 10 == 0, 8 - right, right)  # about a tenth is wrong
    good, poor = document_parts(right, truth, (1,)), document_parts(worse, truth, (1,))
    assert bootstrap_difference(good, good)["P@1"] == Interval(0.0, 0.0, 0.0)
    better = bootstrap_difference(good, poor)["P@1"]
    assert 0 < better.low < better.value < better.high
    turned = bootstrap_difference(poor, good)["P@1"]
    assert (turned.low, turned.high) == pytest.approx((-better.high, -better.low), abs=1e-12)


def test_pairing_cancels_what_both_find_hard() -> None:
    # Both fail on half of the documents; the second fails on four more.
    hits = np.repeat([0.0, 1.0], 200)
    first, second = {"P@1": Parts(hits, np.ones(400))}, {"P@1": Parts(hits - (np.arange(400) >= 396), np.ones(400))}
    paired = bootstrap_difference(first, second)["P@1"]
    alone = bootstrap(first)["P@1"]
    assert paired.value == pytest.approx(0.01)
    assert paired.high - paired.low < (alone.high - alone.low) / 4


def test_one_document_and_no_labels_resample() -> None:
    assert bootstrap(document_parts(np.array([[0]]), matrix([[0]], 1), (1,)))["P@1"] == Interval(1.0, 1.0, 1.0)
    nothing = document_parts(PREDICTED, matrix([[], [], []], 4), inverse_propensity=INVERSE)
    assert set(bootstrap(nothing, samples=20).values()) == {Interval(0.0, 0.0, 0.0)}


PARTS = document_parts(PREDICTED, TRUTH, (1,))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"parts": {}}, "no metrics"),
        ({"parts": {"P@1": Parts(np.empty(0), np.empty(0))}}, "no documents"),
        ({"parts": PARTS | {"x": Parts(np.ones(2), np.ones(2))}}, "2 to 3 documents"),
        ({"samples": 0}, "'samples' must be an integer ≥ 1. Got 0"),
        ({"seed": -1}, "'seed' must be an integer ≥ 0. Got -1"),
        ({"level": 1.0}, "'level' must be between 0 and 1"),
        ({"level": 95}, "'level' must be between 0 and 1"),
        ({"level": math.nan}, "'level' must be between 0 and 1"),
    ],
)
def test_bad_resampling_is_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError) as caught:
        bootstrap(**({"parts": PARTS} | arguments))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_systems_that_do_not_pair_are_refused() -> None:
    with pytest.raises(DataError, match=r"only one of the two systems has P@3"):
        bootstrap_difference(PARTS, document_parts(PREDICTED, TRUTH, (1, 3)))
    with pytest.raises(DataError, match="predictions for 3 and 2 documents"):
        bootstrap_difference(PARTS, document_parts(PREDICTED[:2], TRUTH[:2], (1,)))


# Sets of labels


def test_sets_by_hand() -> None:
    # At 2: document 0 suggests {2, 1} of {0, 2}, document 1 {0, 1} of {}, document 2 {3} of {0, 1, 3}.
    assert micro_f1(PREDICTED, TRUTH, 2) == pytest.approx(2 * 2 / (5 + 5))
    # Label 0: true twice, suggested once, no hit. 1: once, twice, no hit. 2 and 3: once, once, a hit each.
    assert macro_f1(PREDICTED, TRUTH, 2) == pytest.approx((0 + 0 + 1 + 1) / 4)
    assert coverage(PREDICTED, TRUTH, 2) == pytest.approx(2 / 4)
    assert coverage(PREDICTED, TRUTH, 3) == pytest.approx(3 / 4)
    counts = per_label(PREDICTED, TRUTH, 2)
    assert counts.support.tolist() == [2, 1, 1, 1]
    assert counts.suggested.tolist() == [1, 2, 1, 1]
    assert counts.hits.tolist() == [0, 0, 1, 1]


def test_evaluate_sets_names_in_order() -> None:
    values = evaluate_sets(PREDICTED, TRUTH, (1, 3))
    names = ["microF1@1", "microF1@3", "macroF1@1", "macroF1@3", "coverage@1", "coverage@3"]
    assert list(values) == names
    assert values["microF1@3"] == micro_f1(PREDICTED, TRUTH, 3)
    assert values["macroF1@3"] == macro_f1(PREDICTED, TRUTH, 3)
    assert values["coverage@3"] == coverage(PREDICTED, TRUTH, 3)


def test_label_beyond_the_truth_is_a_false_positive_without_a_row() -> None:
    predicted, truth = np.array([[0, 9]]), matrix([[0]], 2)
    assert micro_f1(predicted, truth, 2) == pytest.approx(2 * 1 / (1 + 2))
    assert macro_f1(predicted, truth, 2) == pytest.approx((1 + 0) / 2)
    assert per_label(predicted, truth, 2).suggested.tolist() == [1, 0]


def test_label_nobody_holds_or_gets_counts_as_zero() -> None:
    assert macro_f1(np.array([[0]]), matrix([[0]], 5), 1) == pytest.approx(1 / 5)


@pytest.mark.parametrize("seed", range(6))
def test_sets_agree_with_the_reference(seed: int) -> None:
    predicted, truth, labels = messy(seed)
    ks = (1, 2, 5, 12)
    values = evaluate_sets(predicted, matrix(truth, labels), ks)
    for k in ks:
        suggested = [set(row[:k].tolist()) - {-1} for row in predicted]
        pairs = list(zip(suggested, map(set, truth), strict=True))
        support = [sum(label in true for _, true in pairs) for label in range(labels)]
        offered = [sum(label in given for given, _ in pairs) for label in range(labels)]
        hits = [sum(label in given & true for given, true in pairs) for label in range(labels)]
        counts = per_label(predicted, matrix(truth, labels), k)
        assert (counts.support.tolist(), counts.suggested.tolist(), counts.hits.tolist()) == (support, offered, hits)
        size = sum(len(given) + len(true) for given, true in pairs)
        assert values[f"microF1@{k}"] == pytest.approx(2 * sum(hits) / size, abs=1e-12)
        each = [2 * h / max(s + o, 1) for h, s, o in zip(hits, support, offered, strict=True)]
        assert values[f"macroF1@{k}"] == pytest.approx(sum(each) / labels, abs=1e-12)
        share = sum(h > 0 for h in hits) / sum(s > 0 for s in support)
        assert values[f"coverage@{k}"] == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(
    ("predicted", "truth"),
    [
        (np.empty((3, 0), dtype=np.int64), TRUTH),
        (np.full((3, 2), -1), TRUTH),
        (np.full((3, 2), -1), matrix([[], [], []], 4)),
        (PREDICTED, matrix([[], [], []], 4)),
        (PREDICTED, matrix([[], [], []], 0)),
    ],
)
def test_sets_without_labels_are_zero(predicted: Array, truth: sp.csr_array) -> None:
    assert set(evaluate_sets(predicted, truth).values()) == {0.0}
    assert per_label(predicted, truth, 1).hits.tolist() == [0] * truth.shape[1]


def test_sets_refuse_what_evaluate_refuses() -> None:
    with pytest.raises(DataError, match="no documents"):
        evaluate_sets(PREDICTED[:0], TRUTH[:0])
    with pytest.raises(DataError, match="'k' must be an integer ≥ 1"):
        per_label(PREDICTED, TRUTH, 0)
    with pytest.raises(DataError, match="3 rows"):
        micro_f1(PREDICTED, TRUTH[:2], 1)


# Overlap


def answer(rows: list[list[int]], keys: str) -> TopK:
    labels = np.array(rows)
    return TopK(labels, np.where(labels < 0, -np.inf, 1.0), LabelIndex.from_keys(list(keys)))


def test_overlap_by_hand() -> None:
    first, second = answer([[0, 1, 2], [3, 2, -1]], "abcd"), answer([[1, 0, 3], [0, 1, -1]], "abcd")
    assert overlap(first, second, 1) == 0.0
    assert overlap(first, second, 2) == pytest.approx((2 / 2 + 0) / 2)
    assert overlap(first, second, 3) == pytest.approx((2 / 3 + 0) / 2)
    assert overlap(first, first, 3) == pytest.approx((3 / 3 + 2 / 3) / 2)  # pads have nothing in common
    assert overlap(first, first, 10) == pytest.approx((3 / 10 + 2 / 10) / 2)


def test_overlap_goes_by_key_where_numbers_differ() -> None:
    first, second = answer([[0, 1], [2, -1]], "abc"), answer([[1, 2], [0, -1]], "xbac")
    assert overlap(first, second, 2) == overlap(second, first, 2) == pytest.approx((2 / 2 + 0) / 2)


def test_overlap_counts_repeats_once() -> None:
    assert overlap(answer([[0, 0, 1]], "ab"), answer([[0, 0, 0]], "ab"), 3) == pytest.approx(1 / 3)


def test_overlap_refuses_other_documents() -> None:
    two = answer([[0], [1]], "ab")
    with pytest.raises(DataError, match="have 2 and 1 documents"):
        overlap(two, answer([[0]], "ab"), 1)
    with pytest.raises(DataError, match="'k' must be an integer ≥ 1"):
        overlap(two, two, 0)
    nothing = TopK(np.empty((0, 2)), np.empty((0, 2)), two.index)
    with pytest.raises(DataError, match="no documents to compare"):
        overlap(nothing, nothing, 1)


# Frequency groups


def scored(labels: Any, scores: Any) -> Any:
    return SimpleNamespace(labels=np.asarray(labels), scores=np.asarray(scores, dtype=np.float32))


def areas(scores: list[float | None], true: list[bool], ties: str) -> tuple[float, float]:
    """AUC and AUPR of one label, pair by pair and step by step; None is a document without a score."""
    values = [-math.inf if score is None else score for score in scores]
    tie = 0.5 if ties == "standard" else 0.0
    pairs = [(p, q) for p, a in zip(values, true, strict=True) if a for q, b in zip(values, true, strict=True) if not b]
    auc = sum(1.0 if p > q else tie if p == q else 0.0 for p, q in pairs) / len(pairs) if pairs else math.nan
    ranking = sorted(zip(values, true, strict=True), key=lambda pair: (-pair[0], pair[1]))
    total, hits, aupr = sum(true), 0, 0.0
    if ties == "pessimistic":
        for rank, (_, hit) in enumerate(ranking, start=1):
            hits += hit
            aupr += hit * hits / rank / total
        return auc, aupr
    rank = 0
    for _, run in itertools.groupby(ranking, key=lambda pair: pair[0]):
        members = [hit for _, hit in run]
        rank, hits = rank + len(members), hits + sum(members)
        aupr += sum(members) / total * hits / rank
    return auc, aupr


def test_areas_by_hand() -> None:
    # Label 0 is true in documents 0, 1, 2 of 5. It is returned in 0 (0.9), 1 (0.5), 3 (0.5); 2 and 4 have no score.
    predicted = scored([[0], [0], [-1], [0], [-1]], [[0.9], [0.5], [-np.inf], [0.5], [-np.inf]])
    truth = matrix([[0], [0], [0], [], []], 1)
    (cautious,) = frequency_groups(predicted, truth, groups=1, at_least=1)
    # Ranking: 0, then 3 before 1, then 4 before 2. Pairs won: 2 of 0, 1 of 1, none of 2.
    assert cautious.auc == pytest.approx((2 + 1 + 0) / 6)
    assert cautious.aupr == pytest.approx((1 / 1 + 2 / 3 + 3 / 5) / 3)
    (standard,) = frequency_groups(predicted, truth, groups=1, at_least=1, ties="standard")
    assert standard.auc == pytest.approx((2 + 1.5 + 0.5) / 6)
    assert standard.aupr == pytest.approx((1 / 1 + 2 / 3 + 3 / 5) / 3)
    assert (standard.least, standard.labels, standard.occurrences) == (3, 1, 3)


def test_groups_hold_near_equal_occurrences() -> None:
    # Labels 0 to 6 are true in 12, 6, 6, 4, 4, 4, 1 documents. 36 in groups of 12; the last label is too rare.
    counts = [12, 6, 6, 4, 4, 4, 1]
    truth = matrix([[label for label in range(7) if row < counts[label]] for row in range(20)], 7)
    nothing = scored(np.full((20, 1), -1), np.full((20, 1), -np.inf))
    groups = frequency_groups(nothing, truth, at_least=2)
    assert [(group.least, group.labels, group.occurrences) for group in groups] == [(12, 1, 12), (6, 2, 12), (4, 3, 12)]
    assert [group.auc for group in groups] == [0.0] * 3  # nothing returned: every true document comes last
    assert [group.auc for group in frequency_groups(nothing, truth, at_least=2, ties="standard")] == [0.5] * 3
    halves = frequency_groups(nothing, truth, groups=2, at_least=2)
    assert [group.least for group in halves] == [12, 4]  # 12 : 24 is as near as 24 : 12; the earlier cut it is
    assert [group.least for group in frequency_groups(nothing, truth, groups=9, at_least=1)] == [12, 6, 4, 1]


def test_every_group_gets_a_frequency() -> None:
    # One label outweighs all: both equal shares are nearest to its end, yet three groups come back.
    counts = [100, 7, 6, 5]
    truth = matrix([[label for label in range(4) if row < counts[label]] for row in range(120)], 4)
    nothing = scored(np.full((120, 1), -1), np.full((120, 1), -np.inf))
    assert [group.least for group in frequency_groups(nothing, truth)] == [100, 7, 5]


def test_label_of_every_document_has_no_auc() -> None:
    # Label 0 is everywhere; label 1 is in two of three documents, first and last of its ranking.
    truth = matrix([[0, 1], [0], [0, 1]], 2)
    predicted = scored([[1, 0], [1, 0], [1, 0]], [[0.9, 0.1], [0.8, 0.1], [0.7, 0.1]])
    (both,) = frequency_groups(predicted, truth, groups=1, at_least=1)
    assert both.auc == pytest.approx(1 / 2)  # of label 1 alone
    assert both.aupr == pytest.approx((1 + (1 + 2 / 3) / 2) / 2)
    head, tail = frequency_groups(predicted, truth, groups=2, at_least=1)
    assert math.isnan(head.auc)
    assert head.aupr == 1.0
    assert tail.auc == pytest.approx(1 / 2)


@pytest.mark.parametrize("ties", ["pessimistic", "standard"])
@pytest.mark.parametrize("seed", range(5))
def test_groups_agree_with_the_reference(seed: int, ties: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    predicted, rows, labels = messy(seed)
    generator = np.random.default_rng(seed)
    scores = -np.sort(-generator.integers(0, 6, predicted.shape).astype(float), axis=1)  # many ties
    truth = [set(row) for row in rows]
    support = [sum(label in row for row in truth) for label in range(labels)]
    expected = {}
    for label in range(labels):
        given = [
            next((float(score) for number, score in zip(row, line, strict=True) if number == label), None)
            for row, line in zip(predicted.tolist(), scores, strict=True)
        ]
        expected[label] = areas(given, [label in row for row in truth], ties)
    for together in (1 << 21, 40):  # all at once, and a few labels at a time
        monkeypatch.setattr("xmtc.metrics.groups.SCORES_AT_ONCE", together)
        groups = frequency_groups(scored(predicted, scores), matrix(rows, labels), at_least=5, ties=ties)
        most = math.inf
        for group in groups:
            members = [label for label in range(labels) if group.least <= support[label] < most]
            most = group.least
            assert group.labels == len(members)
            assert group.occurrences == sum(support[label] for label in members)
            assert group.auc == pytest.approx(np.mean([expected[label][0] for label in members]), abs=1e-12)
            assert group.aupr == pytest.approx(np.mean([expected[label][1] for label in members]), abs=1e-12)
        assert sum(group.labels for group in groups) == sum(count >= 5 for count in support)


@pytest.mark.parametrize(
    ("predicted", "options", "words"),
    [
        (PREDICTED, {}, "need scores"),
        (scored(PREDICTED, np.ones((3, 2))), {}, "must be (n, k) arrays"),
        (scored(PREDICTED, np.full((3, 3), np.nan)), {}, "is NaN"),
        (scored(PREDICTED, np.ones((3, 3))), {}, "no label has 5 test documents; the maximum is 2. Lower 'at_least'"),
        (scored(PREDICTED, np.ones((3, 3))), {"ties": "best"}, "'ties' must be"),
        (scored(PREDICTED, np.ones((3, 3))), {"groups": 0}, "'groups' must be an integer ≥ 1"),
        (scored(PREDICTED, np.ones((3, 3))), {"at_least": 0}, "'at_least' must be an integer ≥ 1"),
        (scored(PREDICTED[:2], np.ones((2, 3))), {}, "2 rows"),
    ],
)
def test_bad_groups_are_named(predicted: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError) as caught:
        frequency_groups(predicted, TRUTH, **options)
    assert words in str(caught.value)


# The tail


def test_tail_precision_by_hand() -> None:
    # Label 0 ranks documents 0, 2, 1, 3 and is true in 0 and 1; label 1 ranks 1, 3, 0, 2 and is true in 3.
    scores = np.array([[0.9, 0.3], [0.5, 0.8], [0.6, 0.1], [0.1, 0.7]])
    truth = matrix([[0], [0], [], [1]], 2)
    values = tail_precision(scores, truth, (1, 2, 3, 10))
    assert values["max"] == pytest.approx(
        {"P@1": 1 / (2 + 1), "P@2": 2 / (2 + 2), "P@3": 3 / (3 + 3), "P@10": 3 / (10 + 10)}
    )
    assert values["min"] == pytest.approx({"P@1": 1 / 2, "P@2": 2 / (2 + 1), "P@3": 1.0, "P@10": 1.0})


def test_equal_scores_find_nothing_in_the_tail() -> None:
    # Documents 0 and 1 hold the label, wherever they stand among four with one score.
    for order in itertools.permutations(range(4)):
        truth = matrix([[[0], [0], [], []][row] for row in order], 1)
        assert tail_precision(np.ones((4, 1)), truth, (2, 3))["min"] == {"P@2": 0.0, "P@3": 1 / 2}


def test_label_without_documents_adds_to_max_alone() -> None:
    truth = matrix([[0], []], 2)
    values = tail_precision(np.array([[2, 0], [1, 0]]), truth, (1,))
    assert values == {"max": {"P@1": 1 / 2}, "min": {"P@1": 1.0}}
    assert tail_precision(np.zeros((2, 1)), matrix([[], []], 1), (1,)) == {"max": {"P@1": 0.0}, "min": {"P@1": 0.0}}


def test_rarest_labels_have_training_and_test_documents() -> None:
    # Labels 0 to 5 with training counts 4, 1, 0, 1, 3, 2; label 5 has no test document, label 6 was never trained.
    truth = matrix([[0, 1, 2], [3, 4, 6], [3]], 7)
    assert rarest_labels([4, 1, 0, 1, 3, 2], truth, 3).tolist() == [1, 3, 4]
    assert rarest_labels([4, 1, 0, 1, 3, 2], truth).tolist() == [1, 3, 4, 0]
    assert rarest_labels([4, 1, 0, 1, 3, 2], truth, 3, at_least=0).tolist() == [2, 1, 3]
    assert rarest_labels([4, 1, 0, 1, 3, 2], truth, 1, at_least=2).tolist() == [4]


@pytest.mark.parametrize(
    ("scores", "truth", "ks", "words"),
    [
        (np.ones(3), TRUTH, (1,), "scores must be numbers (n, t)"),
        (np.ones((3, 0)), TRUTH[:, :0], (1,), "scores must be numbers (n, t)"),
        (np.ones((3, 3)), TRUTH, (1,), "3 columns of scores but 4"),
        (np.ones((2, 4)), TRUTH, (1,), "scores have 2 rows"),
        (np.ones((0, 4)), TRUTH[:0], (1,), "no documents"),
        (np.full((3, 4), np.nan), TRUTH, (1,), "is NaN"),
        (np.ones((3, 4)), TRUTH, (), "'ks' is empty"),
        (np.ones((3, 4)), TRUTH, (0,), "'k' must be an integer ≥ 1"),
        (np.ones((3, 4)), TRUTH.toarray(), (1,), "scipy CSR matrix"),
    ],
)
def test_bad_tail_is_named(scores: Array, truth: Any, ks: Any, words: str) -> None:
    with pytest.raises(DataError) as caught:
        tail_precision(scores, truth, ks)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("counts", "options", "words"),
    [
        ([0, 0, 0, 0], {}, "no label has both"),
        ([], {}, "no label has both"),
        ([[1, 2, 3, 4]], {}, "one number per label"),
        ([1, 1, 1, 1], {"count": 0}, "'count' must be an integer ≥ 1"),
        ([1, 1, 1, 1], {"at_least": -1}, "'at_least' must be an integer ≥ 0"),
    ],
)
def test_bad_training_counts_are_named(counts: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError) as caught:
        rarest_labels(counts, TRUTH, **options)
    assert words in str(caught.value)


# Tests and ranks


def enumerated(differences: list[int]) -> float:
    """The p-value from all 2ⁿ choices of signs, in whole numbers: twice the mid-ranks."""
    sizes = [abs(value) for value in differences if value]
    ranks = [2 * sum(other < size for other in sizes) + sum(other == size for other in sizes) + 1 for size in sizes]
    signs = [value > 0 for value in differences if value]

    def smaller(chosen: tuple[bool, ...] | list[bool]) -> int:
        positive = sum(rank for rank, sign in zip(ranks, chosen, strict=True) if sign)
        return min(positive, sum(ranks) - positive)

    seen = smaller(signs)
    return sum(smaller(chosen) <= seen for chosen in itertools.product([False, True], repeat=len(ranks))) / 2 ** len(
        ranks
    )


@pytest.mark.parametrize("seed", range(12))
def test_wilcoxon_agrees_with_all_signs(seed: int) -> None:
    generator = np.random.default_rng(seed)
    count = int(generator.integers(1, 11))
    differences = (generator.integers(-4, 6, count)).tolist()  # ties and zeros
    base = generator.integers(0, 50, count) / 10
    expected = enumerated(differences)
    assert wilcoxon(base + np.array(differences) / 10, base) == pytest.approx(expected, rel=1e-12)
    assert wilcoxon(base, base + np.array(differences) / 10) == pytest.approx(expected, rel=1e-12)


def test_wilcoxon_by_hand() -> None:
    assert wilcoxon([2, 3, 4, 5, 6], [1, 1, 1, 1, 1]) == pytest.approx(2 / 32)
    assert wilcoxon([1, 2], [2, 1]) == 1.0  # both of rank 1.5: as even as can be
    assert wilcoxon([0.5, 0.7], [0.5, 0.7]) == 1.0


def test_wilcoxon_sees_through_rounding() -> None:
    # 0.3, 0.2, 0.1 less 0.2, 0.1, 0.2 are 0.1, 0.1, −0.1 but for the last bits: equal sizes, chance 1/2 for 2 : 1.
    first, second = [0.3, 0.2, 0.1], [0.2, 0.1, 0.2]
    assert len({abs(a - b) for a, b in zip(first, second, strict=True)}) > 1
    assert wilcoxon(first, second) == 1.0
    # What is zero but for the last bits is dropped.
    assert 0.1 + 0.2 != 0.3
    assert wilcoxon([0.1 + 0.2, 2, 3], [0.3, 1, 1]) == pytest.approx(2 / 4)
    # A difference of a millionth is one.
    assert wilcoxon([0.5 + 1e-6, 2, 3], [0.5, 1, 1]) == pytest.approx(2 / 8)


def test_wilcoxon_of_many_pairs_nears_the_normal_distribution() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.normal(0.05, 1, 1000), np.zeros(1000)
    ranks = np.argsort(np.argsort(np.abs(first))) + 1
    away = abs(ranks[first > 0].sum() - 1000 * 1001 / 4) / math.sqrt(1000 * 1001 * 2001 / 24)
    assert wilcoxon(first, second) == pytest.approx(math.erfc(away / math.sqrt(2)), rel=0.01)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([], [], "non-empty"),
        ([1, 2], [1], "got 2 and 1 results"),
        ([1, math.nan], [1, 2], "finite"),
        ([[1, 2]], [[1, 2]], "shape (1, 2)"),
        (np.arange(1.0, 1002), np.zeros(1001), "1,001 differences are too many for the exact test (maximum 1,000)"),
    ],
)
def test_bad_pairs_are_named(first: Any, second: Any, words: str) -> None:
    with pytest.raises(DataError) as caught:
        wilcoxon(first, second)
    assert words in str(caught.value)


def test_average_ranks_by_hand() -> None:
    table = [[0.9, 0.8, 0.9, math.nan], [0.1, math.nan, 0.3, math.nan], [0.5, 0.5, 0.5, math.nan]]
    ranks = average_ranks(table)
    assert ranks[:3].tolist() == pytest.approx([(1 + 2 + 1) / 3, (3 + 1) / 2, (1 + 1 + 1) / 3])
    assert math.isnan(ranks[3])  # never run
    middle = average_ranks(table, ties="mid")
    assert middle[:3].tolist() == pytest.approx([(1.5 + 2 + 2) / 3, (3 + 2) / 2, (1.5 + 1 + 2) / 3])


def test_bad_tables_are_named() -> None:
    with pytest.raises(DataError, match=r"table \(rows, methods\)"):
        average_ranks([1, 2, 3])
    with pytest.raises(DataError, match=r"table \(rows, methods\)"):
        average_ranks(np.empty((0, 3)))
    with pytest.raises(DataError, match="'ties' must be 'min' or 'mid'"):
        average_ranks([[1, 2]], ties="max")  # type: ignore[arg-type]


# Scale


def test_a_million_labels_take_little_memory_and_time() -> None:
    generator = np.random.default_rng(0)
    documents, labels = 20_000, 1_000_000
    predicted = (labels ** generator.random((documents, 20))).astype(np.int64) - 1  # few frequent, many rare
    rows, numbers = np.repeat(np.arange(documents), 5), predicted[:, 3::4].ravel()
    truth = sp.csr_array((np.ones(len(rows)), (rows, numbers)), shape=(documents, labels))
    scores = -np.sort(-generator.random(predicted.shape), axis=1)
    start = time.process_time()
    tracemalloc.start()
    values = evaluate_sets(predicted, truth, (5, 20))
    groups = frequency_groups(scored(predicted, scores), truth)
    bootstrap(document_parts(predicted, truth), samples=100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - start < 5.0  # processor time: a busy machine does not fail the test
    assert peak < 200 * 2**20  # documents × labels would be 19 GiB of single bytes
    assert values["coverage@20"] == 1.0
    assert len(groups) == 3
