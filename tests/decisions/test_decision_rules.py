"""How a model's scores are read: probabilities and sets of labels, in memory and in its folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc import load
from xmtc.artifact import store
from xmtc.artifact.saved_state import SavedState
from xmtc.core.errors import ConfigError, DataError, ModelFormatError, NotFittedError
from xmtc.data.dataset import Dataset, align_labels, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.planted_corpus import PlantedCorpus
from xmtc.data.topk import TopK
from xmtc.decisions.calibration import Calibration
from xmtc.decisions.decision_rules import DEPTH, Decisions, counted_columns, decide, score_sets
from xmtc.decisions.thresholds import Thresholds, fixed, select_labels
from xmtc.metrics import reliability, set_scores
from xmtc.models.base import DECISIONS, Model
from xmtc.models.registry import model_class

LABELS = 30


@pytest.fixture(scope="module")
def sets() -> tuple[Dataset, Dataset, Dataset]:
    """Documents to train, to calibrate and to test on."""
    corpus = PlantedCorpus(documents=700, labels=LABELS, words_per_document=12, seed=6)
    texts, rows = [], []
    for batch in corpus.batches():
        texts += list(batch.texts)
        rows += [[corpus.label_name(label) for label in row] for row in batch.labels]
    train, valid, test = (
        as_dataset(texts[start:stop], rows[start:stop]) for start, stop in ((0, 300), (300, 500), (500, 700))
    )
    return train, valid, test


@pytest.fixture
def model(sets: tuple[Dataset, Dataset, Dataset]) -> Model:
    return model_class("knn")(neighbours=10).fit(sets[0])


def answer(labels: Any, scores: Any, known: int) -> TopK:
    return TopK(labels, scores, LabelIndex.from_keys([str(label) for label in range(known)]))


def truth_of(model: Model, documents: Dataset) -> Any:
    return align_labels(documents, model.labels)[0]


class TestDecide:
    """Twelve documents with two labels each: the first is right two times in three, the second never."""

    TOP = answer(np.tile([0, 1], (12, 1)), np.tile([0.9, 0.4], (12, 1)), known=3)
    TRUTH = sp.csr_array(np.array([[1, 0, 0]] * 8 + [[0, 0, 1]] * 4, dtype=np.float32))

    def test_by_hand(self) -> None:
        found = decide(self.TOP, self.TRUTH, method="isotonic", threshold="global")
        assert isinstance(found.calibration, Calibration)
        assert found.thresholds is not None
        low, high = found.calibration.apply([0.4, 0.9])
        assert low < found.thresholds.value <= high
        assert (found.depth, found.facts["documents"]) == (2, 12)
        assert found.facts["ECE@5 before"] == pytest.approx((12 * (0.9 - 8 / 12) + 12 * 0.4) / 24, abs=1e-6)
        assert found.facts["ECE@5"] < 0.05
        assert found.facts["F1"] == pytest.approx(
            {
                "micro": 2 * 8 / 24,
                "macro": 2 * 8 / 20 / 2,  # label 1 is neither true nor known of training
                "document": 8 / 12,
                "precision": 8 / 12,
                "recall": 8 / 12,
                "labels": 1,
            }
        )

    def test_labels_of_training_are_in_the_macro_mean(self) -> None:
        asked: dict[str, Any] = {"method": "isotonic", "threshold": "global"}
        found = decide(self.TOP, self.TRUTH, **asked, counts=np.array([5, 1, 0]))
        assert found.facts["F1"]["macro"] == pytest.approx(2 * 8 / 20 / 3)
        wide = sp.csr_array(sp.hstack([self.TRUTH, np.ones((12, 1), dtype=np.float32)]))  # a label the model lacks
        found = decide(self.TOP, wide, **asked, counts=np.array([5, 0, 0]))
        assert found.facts["F1"]["macro"] == pytest.approx(2 * 8 / 20 / 3)

    def test_either_can_be_left_out(self) -> None:
        found = decide(self.TOP, self.TRUTH, method=None, threshold="global")
        assert found.calibration is None
        assert set(found.facts) == {"documents", "ECE@5", "F1"}
        assert (
            found.facts["ECE@5"] == decide(self.TOP, self.TRUTH, method="platt", threshold=None).facts["ECE@5 before"]
        )
        found = decide(self.TOP, self.TRUTH, method="platt", threshold=None)
        assert found.thresholds is None
        assert set(found.facts) == {"documents", "ECE@5 before", "ECE@5"}
        found = decide(self.TOP, self.TRUTH, method=None, threshold=None)
        assert not found.is_fitted
        assert set(found.facts) == {"documents", "ECE@5"}

    def test_scores_that_are_no_probabilities(self) -> None:
        doubled = TopK(self.TOP.labels, self.TOP.scores * 2, self.TOP.index)
        found = decide(doubled, self.TRUTH, method="isotonic", threshold="document")
        assert "ECE@5 before" not in found.facts
        assert found.facts["ECE@5"] < 0.05
        assert found.thresholds == Thresholds("document", "document", 0.0)
        with pytest.raises(DataError, match="document thresholds need probabilities"):
            decide(doubled, self.TRUTH, method=None, threshold="document")

    def test_what_it_is_best_for(self) -> None:
        def measure(**how: Any) -> str:
            rule = decide(self.TOP, self.TRUTH, method="isotonic", **how).thresholds
            assert rule is not None
            return rule.measure

        assert measure(threshold="global") == "micro"
        assert measure(threshold="document") == "document"
        assert measure(threshold="label", measure="macro") == "macro"
        with pytest.raises(ConfigError, match="document thresholds optimise document-F1"):
            measure(threshold="document", measure="micro")

    def test_refused(self) -> None:
        with pytest.raises(ConfigError, match="calibration must be one of isotonic, platt"):
            decide(self.TOP, self.TRUTH, method="magic", threshold=None)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="thresholds must be one of global, document, label"):
            decide(self.TOP, self.TRUTH, method=None, threshold="each")  # type: ignore[arg-type]
        empty = answer(np.full((12, 2), -1), np.full((12, 2), -np.inf), known=3)
        with pytest.raises(DataError, match="no validation document has a predicted label"):
            decide(empty, self.TRUTH, method=None, threshold="global")

    @pytest.mark.parametrize("seed", range(3))
    def test_columns_that_count(self, seed: int) -> None:
        """Leaving out columns that nobody counts changes the macro mean alone."""
        drawn = np.random.default_rng(seed)
        labels = np.array([drawn.permutation(9)[:4] for _ in range(20)])
        labels[drawn.random((20, 4)) < 0.2] = -1
        truth = sp.csr_array((drawn.random((20, 12)) < 0.2).astype(np.float32))
        counts = drawn.integers(0, 2, 9)
        held = np.asarray(truth.sum(axis=0) > 0).ravel()
        counted = held | (np.concatenate([counts, np.zeros(3)]) > 0)
        numbers, columns = counted_columns(labels, truth, counts)
        assert columns.shape == (20, counted.sum())
        assert ((numbers < 0) == (labels < 0)).all()
        found, whole = score_sets(labels, truth, counts), set_scores(labels, truth)
        assert found["macro"] == pytest.approx(whole["macro"] * 12 / counted.sum())
        assert {**found, "macro": 0} == pytest.approx({**whole, "macro": 0})
        assert score_sets(labels, truth, None)["macro"] == pytest.approx(whole["macro"] * 12 / held.sum())


class TestKept:
    @pytest.mark.parametrize(
        "how",
        [
            {"method": "isotonic", "threshold": "global"},
            {"method": "platt", "threshold": None},
            {"method": None, "threshold": "label", "measure": "macro"},
            {"method": "platt", "threshold": "document"},
        ],
    )
    def test_round_trip(
        self, model: Model, sets: tuple[Dataset, Dataset, Dataset], tmp_path: Path, how: dict[str, Any]
    ) -> None:
        model.calibrate(sets[1], **how)
        model.save(tmp_path / "m")
        again = load(tmp_path / "m")
        assert again.decisions.facts == model.decisions.facts
        assert again.decisions.depth == model.decisions.depth == LABELS
        for threshold in (None, 0.3, *(["auto"] if how["threshold"] else [])):
            first, second = (each.predict(sets[2], threshold=threshold) for each in (model, again))
            np.testing.assert_array_equal(first.labels, second.labels)
            np.testing.assert_array_equal(first.scores, second.scores)

    def test_nothing_made_is_nothing_kept(
        self, model: Model, sets: tuple[Dataset, Dataset, Dataset], tmp_path: Path
    ) -> None:
        model.save(tmp_path / "a")
        model.calibrate(sets[1], method=None, threshold=None)
        model.save(tmp_path / "b")
        assert store.read_manifest(tmp_path / "a") == store.read_manifest(tmp_path / "b")
        assert load(tmp_path / "b").decisions == Decisions()

    @pytest.mark.parametrize(
        ("values", "arrays"),
        [
            ({"depth": 0}, {}),
            ({"depth": "5"}, {}),
            ({"facts": []}, {}),
            ({"calibration": {"method": "magic"}}, {}),
            ({"calibration": {"method": "isotonic"}}, {}),
            ({"calibration": []}, {}),
            ({"thresholds": {"kind": "label", "measure": "micro", "value": 0.5}}, {}),
            (
                {"thresholds": {"kind": "label", "measure": "micro", "value": 0.5}},
                {"thresholds.by_label": np.zeros(4, dtype=np.float32)},
            ),
        ],
    )
    def test_damage(self, values: dict[str, Any], arrays: dict[str, Any]) -> None:
        with pytest.raises((ValueError, KeyError, TypeError, ModelFormatError)):
            Decisions.restored(SavedState(store.State({"depth": 5, "facts": {}, **values}, arrays)), label_count=3)

    def test_thresholds_of_another_model(
        self, model: Model, sets: tuple[Dataset, Dataset, Dataset], tmp_path: Path
    ) -> None:
        model.save(tmp_path / "m")
        other = Decisions(None, Thresholds("label", "micro", 0.5, np.full(LABELS + 1, 0.5, dtype=np.float32)))
        store.replace_part(tmp_path / "m", DECISIONS, other.state(), store.read_manifest(tmp_path / "m"))
        with pytest.raises(ModelFormatError, match="31 thresholds for 30 labels"):
            load(tmp_path / "m")


class TestModel:
    def test_probabilities_and_the_same_ranking(self, model: Model, sets: tuple[Dataset, Dataset, Dataset]) -> None:
        before = model.predict(sets[2], 10)
        assert model.calibrate(sets[1]) is model
        after = model.predict(sets[2], 10)
        np.testing.assert_array_equal(after.labels, before.labels)
        filled = after.labels >= 0
        assert ((after.scores[filled] >= 0) & (after.scores[filled] <= 1)).all()
        assert np.isneginf(after.scores[~filled]).all()
        errors = [reliability(top, truth_of(model, sets[2])) for top in (before, after)]
        assert errors[0] is not None
        assert errors[1] is not None
        assert errors[1].error < 0.7 * errors[0].error

    def test_all_that_gives_scores_gives_probabilities(
        self, model: Model, sets: tuple[Dataset, Dataset, Dataset]
    ) -> None:
        model.calibrate(sets[1])
        top, text = model.predict(sets[2], 4), sets[2].text()[0].as_py()
        np.testing.assert_array_equal(model.score_labels(sets[2], top), top.scores)
        assert model.tag(text, 4) == top.pairs()[0]
        assert model.explain(text, int(top.labels[0, 0])).score == pytest.approx(float(top.scores[0, 0]))
        chosen = model.predict(sets[2], 4, candidates=top.labels)
        np.testing.assert_array_equal(chosen.scores, top.scores)

    def test_sets_are_what_was_measured(self, model: Model, sets: tuple[Dataset, Dataset, Dataset]) -> None:
        model.calibrate(sets[1], k=8, threshold="label", measure="macro")
        found = model.predict(sets[1], threshold="auto")
        assert found.k == 8
        expected = score_sets(found.labels, truth_of(model, sets[1]), model.label_counts)
        assert expected == model.decisions.facts["F1"]

    def test_a_number_needs_no_tuning(self, model: Model, sets: tuple[Dataset, Dataset, Dataset]) -> None:
        ranked = model.predict(sets[2], DEPTH)
        for value in (0.1, 0.5, np.float32(0.25), 1):
            found = model.predict(sets[2], threshold=value)
            expected = select_labels(ranked, fixed(float(value)).choose(ranked.labels, ranked.scores))
            np.testing.assert_array_equal(found.labels, expected.labels)
        assert model.predict(sets[2], 2, threshold=0.1).k == 2

    def test_more_labels_than_were_looked_at(self, model: Model, sets: tuple[Dataset, Dataset, Dataset]) -> None:
        model.calibrate(sets[1], k=3)
        assert model.decisions.depth == 3
        assert model.predict(sets[2], threshold="auto").k == 3
        wide = model.predict(sets[2], 9, threshold="auto")
        assert (wide.labels >= 0).sum(axis=1).max() > 3
        depth = min(DEPTH, len(model.labels))
        assert model.predict(sets[2], threshold=0.0).k == depth  # a score that is given was not tuned on anything

    def test_all_candidates_are_looked_at(self, model: Model, sets: tuple[Dataset, Dataset, Dataset]) -> None:
        wide = np.tile(np.arange(LABELS), (len(sets[2]), 3))
        found = model.predict(sets[2], threshold=0.0, candidates=wide)
        assert ((found.labels >= 0).sum(axis=1) == LABELS).all()

    def test_training_again_forgets(self, model: Model, sets: tuple[Dataset, Dataset, Dataset]) -> None:
        plain = model.predict(sets[2])
        model.calibrate(sets[1]).fit(sets[0])
        assert model.decisions == Decisions()
        np.testing.assert_array_equal(model.predict(sets[2]).scores, plain.scores)

    def test_calibrating_again_starts_from_plain_scores(
        self, model: Model, sets: tuple[Dataset, Dataset, Dataset]
    ) -> None:
        first = model.calibrate(sets[1]).decisions
        second = model.calibrate(sets[2], method="platt").calibrate(sets[1]).decisions
        assert json.dumps(first.facts) == json.dumps(second.facts)
        np.testing.assert_array_equal(
            first.probabilities(np.float32([0.1, 0.9])), second.probabilities(np.float32([0.1, 0.9]))
        )

    def test_a_mistake_changes_nothing(self, model: Model, sets: tuple[Dataset, Dataset, Dataset]) -> None:
        before = model.calibrate(sets[1]).decisions
        with pytest.raises(DataError, match="1 validation document: too few to calibrate"):
            model.calibrate(sets[1].slice(0, 1), k=2)
        assert model.decisions is before

    def test_refused(self, model: Model, sets: tuple[Dataset, Dataset, Dataset]) -> None:
        with pytest.raises(NotFittedError):
            model_class("knn")().calibrate(sets[1])
        with pytest.raises(DataError, match=r"calibration requires labels. Pass one list"):
            model.calibrate(replace(sets[1], labels=None, label_index=None))
        for bad in (0, -1, True, 2.5, "3"):
            with pytest.raises(ConfigError, match="'k' must be an integer ≥ 1"):
                model.calibrate(sets[1], k=bad)
        with pytest.raises(ConfigError, match="this model has no tuned threshold"):
            model.predict(sets[2], threshold="auto")
        for wrong in ("0.5", "x", True):
            with pytest.raises(ConfigError, match="'threshold' must be a number or 'auto'"):
                model.predict(sets[2], threshold=wrong)
        for strange in (float("nan"), float("inf"), 1e39):
            with pytest.raises(ConfigError, match="a threshold must be a number"):
                model.predict(sets[2], threshold=strange)

    def test_what_training_counted(self, model: Model, sets: tuple[Dataset, Dataset, Dataset]) -> None:
        found = model.counted()
        assert found is not None
        assert sets[0].labels is not None
        np.testing.assert_array_equal(found[0], np.bincount(sets[0].labels.indices, minlength=LABELS))
        assert found[1] == 300
