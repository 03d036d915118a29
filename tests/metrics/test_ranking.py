"""Measures and propensities against values worked out by hand and a slow reference in plain Python."""

from __future__ import annotations

import math
import pickle
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.core.errors import DataError
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.labels.propensity import inverse_propensities
from xmtc.metrics import (
    document_f1,
    evaluate,
    macro_f1,
    micro_f1,
    ndcg,
    precision,
    psndcg,
    psp,
    recall,
    scorer,
    set_scores,
)

SECOND = 1 / math.log2(3)  # the discount of rank 2; rank 1 has 1, rank 3 has 1/2


def matrix(rows: list[list[int]], labels: int) -> sp.csr_array:
    """The CSR matrix (n, labels) of these true labels, entry for entry: repeats stay repeats."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    numbers = np.array([label for row in rows for label in row], dtype=np.int64)
    return sp.csr_array((np.ones(len(numbers)), numbers, offsets), shape=(len(rows), labels))


# Three documents over labels 0 to 3: hits at ranks 1 and 3; no true labels; one hit, then pads.
PREDICTED = np.array([[2, 1, 0], [0, 1, 2], [3, -1, -1]])
TRUTH = matrix([[0, 2], [], [0, 1, 3]], labels=4)
INVERSE = np.array([1.0, 2.0, 3.0, 4.0])


def test_precision_divides_by_k() -> None:
    assert precision(PREDICTED, TRUTH, 1) == pytest.approx((1 + 0 + 1) / 3)
    assert precision(PREDICTED, TRUTH, 3) == pytest.approx((2 / 3 + 0 + 1 / 3) / 3)


def test_recall_divides_by_the_true_labels() -> None:
    assert recall(PREDICTED, TRUTH, 1) == pytest.approx((1 / 2 + 0 + 1 / 3) / 3)
    assert recall(PREDICTED, TRUTH, 3) == pytest.approx((1 + 0 + 1 / 3) / 3)


def test_ndcg_ideal_stops_at_the_true_labels() -> None:
    first = (1 + 1 / 2) / (1 + SECOND)  # hits at ranks 1 and 3; two true labels could fill ranks 1 and 2
    third = 1 / (1 + SECOND + 1 / 2)  # a hit at rank 1; three true labels
    assert ndcg(PREDICTED, TRUTH, 3) == pytest.approx((first + 0 + third) / 3)
    assert ndcg(PREDICTED, TRUTH, 2) == pytest.approx((1 / (1 + SECOND) + 0 + 1 / (1 + SECOND)) / 3)


def test_psp_divides_sums_over_the_test_set() -> None:
    # Hits weigh 3 + 1 and 4. Attainable: labels {0, 2} weigh 3 + 1, labels {0, 1, 3} weigh 4 + 2 + 1.
    assert psp(PREDICTED, TRUTH, 3, INVERSE) == pytest.approx(8 / 11)
    # At 2: hits 3 and 4, attainable 3 + 1 and 4 + 2. The mean of the two documents' ratios would be 17/24.
    assert psp(PREDICTED, TRUTH, 2, INVERSE) == pytest.approx(7 / 10)


def test_psndcg_is_psp_with_discounts() -> None:
    reached = (3 + 1 / 2) + 4
    attainable = (3 + 1 * SECOND) + (4 + 2 * SECOND + 1 / 2)
    assert psndcg(PREDICTED, TRUTH, 3, INVERSE) == pytest.approx(reached / attainable)


def test_document_f1_is_the_mean_over_documents() -> None:
    # At 3: two hits of two true and three returned, none, one hit of three true and one returned.
    assert document_f1(PREDICTED, TRUTH, 3) == pytest.approx((4 / 5 + 0 + 2 / 4) / 3)
    assert document_f1(PREDICTED, TRUTH, 1) == pytest.approx((2 / 3 + 0 + 2 / 4) / 3)
    assert document_f1(np.array([[-1], [0]]), matrix([[], [0]], 1), 1) == 0.5  # neither true nor returned: 0


def test_set_scores_take_whole_rows() -> None:
    values = set_scores(PREDICTED, TRUTH)
    assert list(values) == ["micro", "macro", "document", "precision", "recall", "labels"]
    assert values["micro"] == micro_f1(PREDICTED, TRUTH, 3) == pytest.approx(2 * 3 / (5 + 7))
    assert values["macro"] == macro_f1(PREDICTED, TRUTH, 3)
    assert values["document"] == document_f1(PREDICTED, TRUTH, 3)
    assert values["precision"] == pytest.approx(3 / 7)
    assert values["recall"] == pytest.approx(3 / 5)
    assert values["labels"] == pytest.approx(7 / 3)


def test_set_scores_without_predictions_or_truth_are_zero() -> None:
    for predicted in (np.empty((3, 0), dtype=np.int64), np.full((3, 2), -1)):
        assert set(set_scores(predicted, TRUTH).values()) == {0.0}
    values = set_scores(PREDICTED, matrix([[], [], []], 4))
    assert values.pop("labels") == pytest.approx(7 / 3)
    assert set(values.values()) == {0.0}


@pytest.mark.parametrize("seed", range(5))
def test_set_scores_agree_with_sklearn(seed: int) -> None:
    peer = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(seed)
    predicted = generator.integers(-1, 12, (80, 6))  # pads and repeats
    truth = generator.random((80, 12)) < generator.random((80, 1)) / 2
    predicted[:4], truth[2:6] = -1, False
    for k in (1, 3, 6):
        returned = np.zeros((80, 13), dtype=bool)
        np.put_along_axis(returned, predicted[:, :k], True, axis=1)  # a pad marks the last
        how = {"y_true": truth, "y_pred": returned[:, :-1], "zero_division": 0}
        expected = peer.f1_score(**how, average="samples")
        assert document_f1(predicted, sp.csr_array(truth.astype(float)), k) == pytest.approx(expected)
        values = set_scores(predicted[:, :k], sp.csr_array(truth.astype(float)))
        assert values["document"] == pytest.approx(expected)
        assert values["micro"] == pytest.approx(peer.f1_score(**how, average="micro"))
        assert values["macro"] == pytest.approx(peer.f1_score(**how, average="macro"))
        assert values["precision"] == pytest.approx(peer.precision_score(**how, average="micro"))
        assert values["recall"] == pytest.approx(peer.recall_score(**how, average="micro"))
        assert values["labels"] == pytest.approx(returned[:, :-1].sum() / 80)


def test_evaluate_names_in_order() -> None:
    values = evaluate(PREDICTED, TRUTH, ks=(1, 3), inverse_propensity=INVERSE)
    expected = ["P@1", "P@3", "nDCG@1", "nDCG@3", "PSP@1", "PSP@3", "PSnDCG@1", "PSnDCG@3", "R@1", "R@3"]
    assert list(values) == expected
    assert list(evaluate(PREDICTED, TRUTH, ks=(1,))) == ["P@1", "nDCG@1", "R@1"]
    assert values["P@3"] == precision(PREDICTED, TRUTH, 3)
    assert values["nDCG@3"] == ndcg(PREDICTED, TRUTH, 3)
    assert values["PSP@3"] == psp(PREDICTED, TRUTH, 3, INVERSE)
    assert values["PSnDCG@3"] == psndcg(PREDICTED, TRUTH, 3, INVERSE)
    assert values["R@3"] == recall(PREDICTED, TRUTH, 3)


def test_topk_is_read_like_its_label_numbers() -> None:
    scores = np.where(PREDICTED < 0, -np.inf, [3.0, 2.0, 1.0])
    topk = TopK(PREDICTED, scores, LabelIndex.from_keys(["a", "b", "c", "d"]))
    assert evaluate(topk, TRUTH) == evaluate(PREDICTED, TRUTH)


def test_k_beyond_predictions_and_labels() -> None:
    # Three labels exist and are all returned; ranks 4 to 10 are misses for P, while nDCG and R are perfect.
    values = evaluate(np.array([[2, 0, 1]]), matrix([[0, 1, 2]], 3), ks=(10,), inverse_propensity=INVERSE[:3])
    assert values["P@10"] == pytest.approx(3 / 10)
    assert values["nDCG@10"] == values["R@10"] == values["PSP@10"] == 1.0
    # Weights 3, 1, 2 at ranks 1, 2, 3 where 3, 2, 1 was attainable.
    assert values["PSnDCG@10"] == pytest.approx((3 + SECOND + 2 / 2) / (3 + 2 * SECOND + 1 / 2))


def test_repeated_prediction_counts_once_at_its_first_rank() -> None:
    # Label 5 at ranks 2 and 3: one hit, at rank 2.
    repeated, truth = np.array([[0, 5, 5]]), matrix([[5, 6]], 7)
    assert precision(repeated, truth, 3) == pytest.approx(1 / 3)
    assert recall(repeated, truth, 3) == pytest.approx(1 / 2)
    assert ndcg(repeated, truth, 3) == pytest.approx(SECOND / (1 + SECOND))
    assert psp(repeated, truth, 3, np.ones(7)) == pytest.approx(1 / 2)


def test_repeated_and_unsorted_true_labels_count_once() -> None:
    # Document 0 lists label 3 twice around label 1: two true labels, one returned.
    values = evaluate(np.array([[3, 0], [1, 0]]), matrix([[3, 1, 3], [1]], 4), ks=(2,))
    assert values["P@2"] == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert values["R@2"] == pytest.approx((1 / 2 + 1) / 2)
    assert values["nDCG@2"] == pytest.approx((1 / (1 + SECOND) + 1) / 2)


def test_opposite_duplicates_are_one_label() -> None:
    truth = sp.csr_array((np.array([1.0, -1.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    assert recall(np.array([[0]]), truth, 1) == 1.0


def test_explicit_zeros_are_no_labels_and_stay_in_place() -> None:
    truth = sp.csr_array((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert precision(np.array([[0]]), truth, 1) == 0.0
    assert recall(np.array([[1]]), truth, 1) == 1.0
    assert truth.data.tolist() == [0.0, 2.0]  # the caller's matrix is not cleaned up


def test_unseen_labels_count_as_missed() -> None:
    # The model knows labels 0 and 1; label 3 of the test set is beyond it, and pads must not match anything.
    predicted, truth = np.array([[0, 1, -1]]), matrix([[0, 3]], 4)
    assert recall(predicted, truth, 3) == pytest.approx(1 / 2)
    assert ndcg(predicted, truth, 3) == pytest.approx(1 / (1 + SECOND))
    assert psp(predicted, truth, 3, INVERSE) == pytest.approx(1 / (1 + 4))


def test_predicted_label_beyond_the_truth_is_a_miss() -> None:
    # A key row · L + label would take label 2 of document 0 for label 0 of document 1.
    predicted, truth = np.array([[2], [0]]), matrix([[], [0]], 2)
    assert precision(predicted, truth, 1) == pytest.approx(1 / 2)


def test_no_true_labels_anywhere_is_zero() -> None:
    values = evaluate(PREDICTED, matrix([[], [], []], 4), inverse_propensity=INVERSE)
    assert set(values.values()) == {0.0}


def test_no_predictions_at_all_is_zero() -> None:
    values = evaluate(np.empty((3, 0), dtype=np.int64), TRUTH, inverse_propensity=INVERSE)
    assert set(values.values()) == {0.0}


def test_label_numbers_need_no_dense_matrix() -> None:
    far = 2**40
    assert precision(np.array([[far, 7]]), matrix([[7, far]], far + 1), 2) == 1.0


def test_perfect_answer_is_never_above_one() -> None:
    generator = np.random.default_rng(3)
    inverse = 1 + generator.random(50) * 9
    perfect = np.stack([generator.permutation(50)[:20] for _ in range(400)])  # (400, 20)
    perfect = np.take_along_axis(perfect, np.argsort(-inverse[perfect], axis=1), axis=1)
    values = evaluate(perfect, matrix(perfect.tolist(), 50), range(1, 21), inverse)
    ceiling = {name: value for name, value in values.items() if not name.startswith("R@")}
    one_by_one = [ndcg(row[None], matrix([row.tolist()], 50), 20) for row in perfect]  # a mean could hide one
    assert max(*values.values(), *one_by_one) <= 1.0
    assert min(ceiling.values()) == pytest.approx(1.0, abs=1e-12)


def reference(predicted: list[list[int]], truth: list[set[int]], k: int, inverse: list[float]) -> dict[str, float]:
    """The definitions, one document and one rank at a time."""
    count = len(truth)
    sums = dict.fromkeys(("P", "nDCG", "R", "reached", "best", "reached DCG", "best DCG"), 0.0)
    for row, labels in zip(predicted, truth, strict=True):
        seen: set[int] = set()
        gain = 0.0
        for rank, label in enumerate(row[:k], start=1):
            if label in labels and label not in seen:
                seen.add(label)
                gain += 1 / math.log2(rank + 1)
                sums["reached"] += inverse[label]
                sums["reached DCG"] += inverse[label] / math.log2(rank + 1)
        for rank, weight in enumerate(sorted((inverse[label] for label in labels), reverse=True)[:k], start=1):
            sums["best"] += weight
            sums["best DCG"] += weight / math.log2(rank + 1)
        sums["P"] += len(seen) / k / count
        if labels:
            ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(labels)) + 1))
            sums["nDCG"] += gain / ideal / count
            sums["R"] += len(seen) / len(labels) / count
    return {
        f"P@{k}": sums["P"],
        f"nDCG@{k}": sums["nDCG"],
        f"PSP@{k}": sums["reached"] / sums["best"],
        f"PSnDCG@{k}": sums["reached DCG"] / sums["best DCG"],
        f"R@{k}": sums["R"],
    }


@pytest.mark.parametrize("seed", range(8))
def test_random_rankings_agree_with_the_reference(seed: int) -> None:
    generator = np.random.default_rng(seed)
    labels = int(generator.integers(3, 40))
    predicted = generator.integers(-1, labels + 3, size=(60, 9))  # pads, repeats and numbers beyond the truth
    truth = [generator.integers(0, labels, size).tolist() for size in generator.integers(0, 12, 60)]
    inverse = 1 + generator.random(labels)
    ks = (1, 2, 5, 9, 14)
    values = evaluate(predicted, matrix(truth, labels), ks, inverse)
    expected: dict[str, float] = {}
    for k in ks:
        expected |= reference(predicted.tolist(), [set(row) for row in truth], k, inverse.tolist())
    assert values == pytest.approx(expected, abs=1e-12)
    assert values["P@9"] > 0


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint16])
def test_blocks_of_comparisons_join(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate(np.maximum(PREDICTED, 0).astype(kind), TRUTH, inverse_propensity=INVERSE)
    monkeypatch.setattr("xmtc.metrics.matching.COMPARISONS_AT_ONCE", 2)  # less than one row
    assert evaluate(np.maximum(PREDICTED, 0).astype(kind), TRUTH, inverse_propensity=INVERSE) == whole
    assert whole["P@3"] == pytest.approx(4 / 9)  # the pads of document 2 now say label 0, a hit
    monkeypatch.setattr("xmtc.metrics.matching.FEW_LABELS", 0)  # a sorted search for all documents
    assert evaluate(np.maximum(PREDICTED, 0).astype(kind), TRUTH, inverse_propensity=INVERSE) == whole


def test_many_true_labels_and_repeated_predictions() -> None:
    random = np.random.default_rng(2)
    predicted = random.integers(-1, 200, (30, 90))
    true = [set(random.integers(0, 200, size).tolist()) for size in [0, 1, 40, 150, 31, 33] * 5]
    values = evaluate(predicted, matrix([sorted(row) for row in true], 200), (1, 50, 90), np.ones(200))
    expected: dict[str, float] = {}
    for k in (1, 50, 90):
        expected |= reference(predicted.tolist(), true, k, [1.0] * 200)
    assert values == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("predicted", "truth", "k", "words"),
    [
        (PREDICTED[:2], TRUTH, 1, "predictions have 2 rows"),
        (PREDICTED, TRUTH, 0, "'k' must be an integer ≥ 1. Got 0"),
        (PREDICTED, TRUTH, 2.0, "'k' must be an integer ≥ 1. Got 2.0"),
        (PREDICTED, TRUTH, True, "'k' must be an integer ≥ 1. Got True"),
        (PREDICTED.astype(float), TRUTH, 1, "of an integer type"),
        (PREDICTED[0], TRUTH, 1, "label numbers (n, k)"),
        (PREDICTED, TRUTH.toarray(), 1, "scipy CSR matrix"),
        (PREDICTED[:0], TRUTH[:0], 1, "no documents"),
    ],
)
def test_bad_input_is_named_on_one_line(predicted: Any, truth: Any, k: Any, words: str) -> None:
    with pytest.raises(DataError) as caught:
        precision(predicted, truth, k)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_cutoffs_is_an_error() -> None:
    with pytest.raises(DataError, match="'ks' is empty"):
        evaluate(PREDICTED, TRUTH, ks=())


@pytest.mark.parametrize("inverse", [[1.0, 1.0, 1.0], [[1.0] * 4], [1.0, 1.0, 1.0, math.nan], [0.0] * 4])
def test_bad_propensities_are_refused(inverse: Any) -> None:
    with pytest.raises(DataError, match="'inverse_propensity' must"):
        psp(PREDICTED, TRUTH, 1, inverse)


def test_150_000_documents_take_under_two_seconds() -> None:
    generator = np.random.default_rng(0)
    documents, width, labels = 150_000, 100, 500_000
    predicted = generator.integers(0, labels, (documents, width))
    sizes = generator.poisson(5, documents)
    rows = np.repeat(np.arange(documents), sizes)
    numbers = generator.integers(0, labels, len(rows))
    planted = generator.random(len(rows)) < 0.5
    numbers[planted] = predicted[rows[planted], generator.integers(0, width, planted.sum())]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    truth = sp.csr_array((np.ones(len(rows)), numbers, offsets), shape=(documents, labels))
    start = time.process_time()  # processor time: a busy machine does not fail the test
    values = evaluate(predicted, truth, (1, 3, 5, 100), 1 + generator.random(labels))
    assert time.process_time() - start < 2.0
    assert values["R@100"] == pytest.approx(0.5 * (1 - math.exp(-5)), abs=0.01)  # e⁻⁵ of them have no labels


def test_inverse_propensity_by_hand() -> None:
    # With A = B = 1 the formula is 1 + (ln N − 1) · 2 / (N_l + 1); ln 20 − 1 = 1.9957 times 2, 1, 1/2.
    values = inverse_propensities([0, 1, 3], 20, a=1.0, b=1.0)
    assert values == pytest.approx([4.9915, 2.9957, 1.9979], abs=1e-4)


def test_inverse_propensity_defaults() -> None:
    expected = 1 + (math.log(15_511) - 1) * 2.5**0.55 * (7 + 1.5) ** -0.55
    values = inverse_propensities(np.array([7]), 15_511)
    assert values.dtype == np.float64
    assert values[0] == pytest.approx(expected)


@pytest.mark.parametrize("documents", [1, 2])
def test_inverse_propensity_of_a_tiny_training_set_is_one(documents: int) -> None:
    assert inverse_propensities([0, 1], documents).tolist() == [1.0, 1.0]


def test_rarer_labels_weigh_more() -> None:
    assert (np.diff(inverse_propensities(np.arange(50), 100, a=0.6, b=2.6)) < 0).all()


@pytest.mark.parametrize(
    ("counts", "documents", "a", "b"),
    [([[1]], 9, 0.5, 1.0), ([-1], 9, 0.5, 1.0), ([1], 0, 0.5, 1.0), ([1], 9, -0.5, 1.0), ([0], 9, 0.5, 0.0)],
)
def test_bad_propensity_input_is_refused(counts: Any, documents: int, a: float, b: float) -> None:
    with pytest.raises(DataError):
        inverse_propensities(counts, documents, a, b)


class Constant:
    """Answers every document with the labels 1, 0, 2, each moved on by `shift`."""

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift
        self.labels = LabelIndex.from_keys(["a", "b", "c"])

    def fit(self, documents: Any, labels: Any) -> Constant:
        return self

    def predict(self, documents: list[str], k: int = 5) -> SimpleNamespace:
        self.asked = k
        order = (np.array([1, 0, 2]) + self.shift) % 3
        return SimpleNamespace(labels=np.tile(order[:k], (len(documents), 1)))


def test_scorer_counts_unknown_keys_as_missed() -> None:
    # Known a, b, c are 0, 1, 2; the answer is b, a. Document 1 has two unknown keys, one of them twice.
    labels = [["b"], ["x", "a", "y", "x"]]
    assert scorer("P@1")(Constant(), ["", ""], labels) == pytest.approx(1 / 2)
    assert scorer("R@2")(Constant(), ["", ""], labels) == pytest.approx((1 + 1 / 3) / 2)
    second = SECOND / (1 + SECOND)  # a hit at rank 2; three true labels, k = 2
    assert scorer("nDCG@2")(Constant(), ["", ""], labels) == pytest.approx((1 + second) / 2)


def test_scorer_takes_a_matrix_in_the_models_numbers() -> None:
    assert scorer("R@2")(Constant(), ["", ""], matrix([[1], [0, 2, 4]], 5)) == pytest.approx((1 + 1 / 3) / 2)


def test_scorer_asks_for_its_k_and_can_be_pickled() -> None:
    model = Constant()
    copy = pickle.loads(pickle.dumps(scorer("R@3")))
    assert copy(model, [""], [["c"]]) == 1.0
    assert model.asked == 3
    assert scorer("R@2")(Constant(), [""], [["c"]]) == 0.0


@pytest.mark.parametrize("name", ["P", "P@0", "P@-1", "PSP@1", "ndcg@5", "P@1.5", "P@1 "])
def test_unknown_scorers_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="such as 'P@1'"):
        scorer(name)


def test_grid_search_finds_the_better_setting() -> None:
    selection = pytest.importorskip("sklearn.model_selection")
    from sklearn.base import BaseEstimator

    class Searchable(Constant, BaseEstimator):  # type: ignore[misc]
        pass

    # Only shift 1 answers c first (1 + 1 = 2); a third of the documents carry c.
    search = selection.GridSearchCV(Searchable(), {"shift": [0, 1]}, scoring=scorer("P@1"), cv=3)
    search.fit(["", "", "", "", "", ""], [["c"], ["z"], ["c", "z"], [], ["z"], ["z"]])
    assert search.best_params_ == {"shift": 1}
    assert search.best_score_ == pytest.approx(1 / 3)
