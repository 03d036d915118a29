"""Stacked trees in a consensus: they learn which member to trust, and from which rank on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.stacking import LABELS, PARTS, split_knowledge
from xmtc import load
from xmtc.core.errors import DataError
from xmtc.data.dataset import Dataset, align_labels
from xmtc.data.topk import TopK
from xmtc.decisions import combining
from xmtc.decisions.calibration import logit
from xmtc.metrics import precision
from xmtc.models.consensus import Consensus
from xmtc.models.stacking import MISSING, OutOfFold, stacking_rows


class TestRows:
    def test_features_of_a_pair(self) -> None:
        first = (np.array([[2, 0]]), np.array([[0.8, 0.2]], dtype=np.float32))
        second = (np.array([[1, -1]]), np.array([[0.5, -np.inf]], dtype=np.float32))
        gathered = combining.gather([first, second], np.array([[0, 1, 2]]))
        rows = stacking_rows(gathered, np.array([[0.0, 1.0, 2.0]]), np.array([[True, True, True]]))
        assert rows.shape == (3, 10)
        assert rows[:, 0].tolist() == [0.0, 1.0, 2.0]  # frequency
        assert rows[:, 3].tolist() == [1, 1, 1]  # members with the label
        assert rows[0, 4] == pytest.approx(logit(0.2, 1e-4))
        assert rows[0, 5] == pytest.approx(logit(0.2, 1e-4) - logit(0.8, 1e-4))
        assert rows[:, 6].tolist() == [1, 2, 0]  # ranks of the first member; 2 if it does not propose the label
        assert rows[:, 7].tolist() == pytest.approx([MISSING, 0.0, MISSING])
        assert rows[:, 9].tolist() == [2, 0, 2]


class TestConsensus:
    def test_trusts_each_member_where_it_is_right(self, tmp_path: Path) -> None:
        members, valid, test = split_knowledge(tmp_path)
        stacked = Consensus(members=members, combine="stacked").fit(valid)
        truth, _ = align_labels(test, stacked.labels)
        found = precision(stacked.predict(test, 1), truth, 1)
        alone = [precision(load(member).predict(test, 1), truth, 1) for member in members]
        assert max(alone) < 0.7  # each knows half of the labels
        assert found > 0.9

    def test_saved_and_loaded_it_predicts_the_same(self, tmp_path: Path) -> None:
        members, valid, test = split_knowledge(tmp_path)
        stacked = Consensus(members=members, combine="stacked", copy=True).fit(valid)
        stacked.save(tmp_path / "both")
        before, after = stacked.predict(test, 5), load(tmp_path / "both").predict(test, 5)
        np.testing.assert_array_equal(before.labels, after.labels)
        np.testing.assert_array_equal(before.scores, after.scores)

    def test_explains_by_the_member_that_knows_the_label(self, tmp_path: Path) -> None:
        members, valid, test = split_knowledge(tmp_path)
        stacked = Consensus(members=members, combine="stacked").fit(valid)
        text = test.text()[0].as_py()
        label = stacked.predict([text], 1).labels[0, 0]
        explanation = stacked.explain(text, int(label))
        right = 0 if int(stacked.labels.key(int(label))[1:]) < LABELS // PARTS else 1
        assert explanation.evidence[0].model == Path(members[right]).name
        assert explanation.evidence[0].share > 0.5

    def test_too_few_documents_are_refused(self, tmp_path: Path) -> None:
        members, valid, _ = split_knowledge(tmp_path)
        with pytest.raises(DataError, match="too few to learn stacked trees"):
            Consensus(members=members, combine="stacked").fit(valid.take(np.arange(50)))


class TestOutOfFold:
    def out_of_fold(self, members: list[str], documents: Dataset) -> OutOfFold:
        answers = [load(member).predict(documents, 10) for member in members]
        index = documents.label_index
        assert index is not None
        assert documents.labels is not None
        folds = np.arange(len(documents)) % 2
        counts = np.stack([np.bincount(documents.labels[folds != f].indices, minlength=len(index)) for f in (0, 1)])
        return OutOfFold(answers, folds, counts, index)

    def test_equals_training_on_the_same_predictions(self, tmp_path: Path) -> None:
        """With the counts of the members themselves, it is the same as predicting the documents."""
        members, valid, test = split_knowledge(tmp_path)
        ordinary = Consensus(members=members, combine="learnt", depth=10).fit(valid)
        given = self.out_of_fold(members, valid)
        counts = np.zeros((2, len(given.index)), dtype=np.int64)
        numbers = ordinary.labels.ids(given.index.table["key"].combine_chunks())
        counts[:] = ordinary.label_counts[numbers]
        same = Consensus(members=members, combine="learnt", depth=10)
        same.fit_out_of_fold(valid, OutOfFold(given.answers, given.folds, counts, given.index))
        first, second = ordinary.predict(test, 5), same.predict(test, 5)
        np.testing.assert_array_equal(first.labels, second.labels)

    def test_returns_calibrated_predictions_and_tunes_a_threshold(self, tmp_path: Path) -> None:
        members, valid, test = split_knowledge(tmp_path)
        model = Consensus(members=members, combine="stacked", depth=10)
        answer = model.fit_out_of_fold(valid, self.out_of_fold(members, valid))
        assert isinstance(answer, TopK)
        truth, _ = align_labels(valid, model.labels)
        hit = np.asarray(truth[np.arange(len(valid)), answer.labels[:, 0]]).ravel() > 0
        assert abs(float(answer.scores[:, 0].mean()) - hit.mean()) < 0.05  # probabilities
        sets = model.predict(test, threshold="auto")
        assert ((sets.labels >= 0).sum(axis=1) <= 3).all()
