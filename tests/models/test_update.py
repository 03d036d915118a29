"""What an update is made of: what a system is told, what is kept to be seen again, when an update is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import xmtc
from tests.support.models import planted_split
from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.errors import DataError, ModelFormatError, RefusedError
from xmtc.data.dataset import Dataset, as_dataset, stacked
from xmtc.data.label_index import LabelIndex
from xmtc.decisions.decision_rules import Decisions
from xmtc.decisions.thresholds import Thresholds
from xmtc.models.base import Model
from xmtc.models.knn import Knn
from xmtc.models.neighbour_vote import Voters
from xmtc.models.parabel import Parabel
from xmtc.models.popularity import Popularity
from xmtc.models.relabelling import relabelled
from xmtc.models.replay import renewed, replay_state, restored_replay, sample
from xmtc.models.update import Change

BEFORE = LabelIndex.from_keys(["a", "b", "c"])
Rows = Sequence[Sequence[str]]


def change(
    new: Rows,
    replay: Rows | None = None,
    *,
    answers: Any = ((),),
    retire: Sequence[str] = (),
    merge: dict[str, str] | None = None,
) -> Change:
    """An update of a model of the labels a, b and c, which answers each document with (label, score) pairs."""
    documents = as_dataset(["x"] * len(new), new)
    assert documents.label_index is not None
    labels = relabelled(BEFORE, documents.label_index, retire, merge or {}, {})
    seen = None if replay is None else labels.taken_over(as_dataset(["y"] * len(replay), replay))

    def ask(asked: Dataset, k: int) -> tuple[np.ndarray, np.ndarray]:
        found = np.full((len(asked), k), -1)
        scores = np.full((len(asked), k), -np.inf, np.float32)
        for row in range(len(asked)):
            for place, (label, score) in enumerate(answers[row % len(answers)]):
                found[row, place], scores[row, place] = label, score
        return found, scores

    return Change(labels.taken_over(documents), seen, labels, 10, np.array([4, 3, 2]), ask)


class TestRelatives:
    def test_the_label_beside_it(self) -> None:
        found = change([["a", "new"], ["a", "new"], ["b", "new"], ["c"]]).relatives
        np.testing.assert_allclose(found.toarray(), [[2 / 3, 1 / 3, 0]], atol=1e-6)

    def test_without_neighbours_what_the_model_predicts(self) -> None:
        found = change([["new"], ["new"]], answers=[[(2, 3.0), (0, 1.0)], [(2, 0.5)]]).relatives
        np.testing.assert_allclose(found.toarray(), [[0.125, 0, 0.875]], atol=1e-6)

    def test_both_count_and_each_document_asks_once(self) -> None:
        found = change([["a", "new"], ["a", "other"]], answers=[[(1, 5.0)], [(2, 2.0), (1, 2.0)]]).relatives
        np.testing.assert_allclose(found.toarray(), [[0.5, 0.5, 0], [0.5, 0.25, 0.25]], atol=1e-6)

    def test_nothing_is_known(self) -> None:
        found = change([["new"], ["other", "b"]], answers=[[(1, -2.0)]]).relatives  # no score above zero
        assert found.toarray().tolist() == [[0, 0, 0], [0, 1, 0]]
        assert change([["a"]]).relatives.shape == (0, 3)

    def test_numbers_are_those_of_before(self) -> None:
        found = change([["c", "new"], ["a", "new"]], retire=["a"]).relatives
        assert found.toarray().tolist() == [[0, 0, 1]]
        merged = change([["a", "new"]], merge={"a": "c"}).relatives
        assert merged.toarray().tolist() == [[0, 0, 1]]

    def test_replayed_documents_count(self) -> None:
        found = change([["new"]], [["b", "new"], ["a"]])
        assert found.relatives.toarray().tolist() == [[0, 1, 0]]

    def test_planted(self) -> None:
        train, test, _ = planted_split(500, 100, labels=30, seed=4)
        model = Knn(neighbours=5, power=1).fit(train)
        assert test.labels is not None
        beside = int(np.argmax(np.bincount(test.labels.indices)))
        texts, rows = test.text().to_pylist(), [test.labels[[row]].indices for row in range(len(test))]
        chosen = [row for row in range(len(test)) if beside in rows[row]]
        assert test.label_index is not None
        key = test.label_index.key(beside)
        labelled = [[*test.label_index.strings("key", rows[row]), "new"] for row in chosen]
        seen: list[np.ndarray] = []

        class Watched(Knn):
            def _update(self, told: Change, run: Any) -> None:
                seen.append(told.relatives.toarray())
                super()._update(told, run)

        model.__class__ = Watched
        model.update([texts[row] for row in chosen], labelled)
        assert seen[0].shape == (1, 30)
        assert np.argmax(seen[0]) == model.labels.find(key)
        assert seen[0].max() > 0.25
        assert seen[0].sum() == pytest.approx(1)


class TestCarried:
    def test_merged_by_counts(self) -> None:
        found = change([["b", "new"]], merge={"a": "c"})
        assert found.labels.index.keys == ["b", "c", "new"]
        made = found.carried(found.counts_before).toarray()
        np.testing.assert_allclose(made, [[0, 1, 0], [4 / 6, 0, 2 / 6], [0, 1, 0]], atol=1e-6)

    def test_rows_add_up_to_one(self) -> None:
        chance = np.random.default_rng(0)
        rows = [[["a", "b", "c", "n", "m"][number] for number in chance.permutation(5)[:2]] for _ in range(20)]
        found = change([*rows, ["n", "m"]], answers=[[(0, 1.0), (1, 0.3)]], merge={"b": "z", "a": "z"})
        made = found.carried(np.array([0, 0, 7]))  # labels without documents count as much as each other
        assert made.shape == (4, 3)
        np.testing.assert_allclose(np.asarray(made.sum(axis=1)), 1, atol=1e-6)
        np.testing.assert_allclose(made.toarray()[:2], [[0.5, 0.5, 0], [0, 0, 1]], atol=1e-6)

    def test_retired(self) -> None:
        found = change([["b"]], retire=["a"])
        assert found.carried(found.counts_before).toarray().tolist() == [[0, 1, 0], [0, 0, 1]]


class TestKnown:
    def test_documents_seen_with_the_labels_that_they_have(self) -> None:
        assert change([["a"], ["b"]], [["a"], ["c"]]).known.tolist() == [False, False, True, True]
        assert change([["a"]]).known.tolist() == [False]
        assert change([["b"]], [["a"], ["b"], ["c"]], merge={"a": "c"}).known.tolist() == [False, False, True, False]
        assert change([["b"]], [["a", "b"], ["b"]], retire=["a"]).known.tolist() == [False, True, True]

    def test_one_with_a_new_label_was_not_learnt_with_it(self) -> None:
        assert change([["new"]], [["a", "new"], ["a"]]).known.tolist() == [False, False, True]

    def test_new_documents_come_first(self) -> None:
        found = change([["a"]], [["b"], ["c"]]).documents
        assert found.text().to_pylist() == ["x", "y", "y"]
        assert found.labels is not None
        assert found.labels.toarray().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def numbered(count: int, first: int = 0) -> Dataset:
    return as_dataset([f"text {first + number}" for number in range(count)], [["a"]] * count)


class TestReplay:
    def test_a_sample_is_bounded_and_seeded(self) -> None:
        train = numbered(100)
        assert sample(train, 0, 3) is None
        found = sample(train, 10, 3)
        assert found is not None
        texts = found.text().to_pylist()
        assert len(set(texts)) == 10
        assert found.document_ids() == [text.removeprefix("text ") for text in texts]
        assert found.document_ids() == sorted(found.document_ids(), key=int)
        again, other = sample(train, 10, 3), sample(train, 10, 4)
        assert again is not None
        assert other is not None
        assert again.text().to_pylist() == texts != other.text().to_pylist()
        whole = sample(train, 1000, 3)
        assert whole is not None
        assert len(whole) == 100

    def test_each_document_is_as_likely(self) -> None:
        counts, train = np.zeros(20), numbered(20)
        for seed in range(400):
            found = sample(train, 5, seed)
            assert found is not None
            counts[np.array(found.document_ids(), dtype=int)] += 1
        assert 60 <= counts.min() <= counts.max() <= 140  # 100 each, within more than four deviations

    def test_shares_after_updates(self) -> None:
        """A quarter of 400 documents is new, then a fifth of 500: what is kept is as mixed as what was seen."""
        kept = sample(numbered(300), 80, 0)
        kept = renewed(kept, numbered(100, 1000), 300, 80, 0)
        assert kept is not None
        kept = renewed(kept, numbered(100, 2000), 400, 80, 0)
        assert kept is not None
        places = np.array([int(text.removeprefix("text ")) for text in kept.text().to_pylist()]) // 1000
        counts = np.bincount(places)
        assert counts.sum() == 80
        assert counts[2] == 16
        assert 40 <= counts[0] <= 56
        assert 8 <= counts[1] <= 24

    def test_what_is_missing_is_filled_up(self) -> None:
        few = renewed(numbered(10), numbered(50, 100), 1000, 40, 0)
        assert few is not None
        assert len(few) == 40
        assert sum(int(text.removeprefix("text ")) < 100 for text in few.text().to_pylist()) == 10
        short = renewed(numbered(10), numbered(5, 100), 1000, 40, 0)
        assert short is not None
        assert len(short) == 15
        smaller = renewed(numbered(40), numbered(5, 100), 40, 8, 0)
        assert smaller is not None
        assert len(smaller) == 8
        fresh = renewed(None, numbered(5), 1000, 40, 0)
        assert fresh is not None
        assert len(fresh) == 5
        assert renewed(numbered(10), numbered(5), 10, 0, 0) is None

    @pytest.mark.parametrize("kind", ["text", "features"])
    def test_through_a_folder(self, kind: str, tmp_path: Path) -> None:
        texts = ["grüße aus köln", "", "日本語 text", "красный 🍎 apple", "grüße apple"]
        ids = ["ä", "ключ", "🍎", "", "five"]
        features = sp.csr_array(np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0], [1, 1, 1], [2, 0, 0]], np.float32))
        labels, index = sp.csr_array(np.array([[1, 0], [0, 0], [1, 1], [0, 1], [1, 0]], np.float32)), ["ö", "n"]
        given = Dataset(
            {"text": pa.chunked_array([texts[:2], texts[2:]])} if kind == "text" else {},
            None if kind == "text" else features,
            labels,
            LabelIndex.from_keys(index),
            pa.chunked_array([ids]),
        )
        Parabel(keep_replay=10, text__min_df=1).fit(given).save(tmp_path / "m")
        loaded = xmtc.load(tmp_path / "m")
        found = loaded.replay
        assert found is not None
        assert found.document_ids() == ids
        assert found.label_index == loaded.labels
        assert found.labels is not None
        assert found.labels.toarray().tolist() == labels.toarray().tolist()
        if kind == "text":
            assert found.text().to_pylist() == texts
            assert found.features is None
        else:
            assert not found.has_text
            assert found.features is not None
            assert found.features.toarray().tolist() == features.toarray().tolist()
        loaded.save(tmp_path / "again")
        files = [json.loads((tmp_path / name / "model.json").read_text())["files"] for name in ("m", "again")]
        assert files[0] == files[1]
        loaded.update([texts[0]] if kind == "text" else features[[0]], [["ö"]] if kind == "text" else labels[[0]])
        assert loaded.history[-1]["replayed"] == 5
        assert loaded.replay is not None
        assert len(loaded.replay) == 6

    @pytest.mark.parametrize("part", ["labels.indices", "labels.indptr", "text.bytes", "text.offsets", "ids.offsets"])
    def test_damage_is_named(self, part: str, tmp_path: Path) -> None:
        state = replay_state(numbered(5))
        assert len(restored_replay(SavedState(state), LabelIndex.from_keys(["a"]))) == 5
        wrong = state.arrays[part].copy()
        wrong[2] = 255 if part == "text.bytes" else 99
        arrays = {**state.arrays, part: wrong}
        model = Parabel(text__min_df=1).fit(numbered(5))
        model._replay = State(state.values, arrays)
        with pytest.raises(ModelFormatError, match=r"stored for replay .*damaged.* Copy or train the model again\."):
            model.update(["text"], [["a"]])
        with pytest.raises(ModelFormatError, match="stored for replay"):
            model.save(tmp_path / "m")


class TestStacked:
    def test_texts(self) -> None:
        first = Dataset(
            {"title": pa.chunked_array([["one", ""]]), "body": pa.chunked_array([["two", "three"]])},
            labels=sp.csr_array(np.eye(2, 3, dtype=np.float32)),
        )
        second = Dataset(
            {"text": pa.chunked_array([["four"], ["five"]])}, labels=sp.csr_array((2, 3), dtype=np.float32)
        )
        nobody = second.take([])
        found = stacked([first, nobody, second])
        assert found.text().to_pylist() == ["one\ntwo", "three", "four", "five"]
        assert found.document_ids() == ["0", "1", "0", "1"]
        assert found.labels is not None
        assert found.labels.toarray().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]]
        assert found.take([3, 1]).text().to_pylist() == ["five", "three"]

    def test_features(self) -> None:
        chance = np.random.default_rng(0)
        parts = [as_dataset(chance.random((count, 4)), [["a"]] * count) for count in (3, 2)]
        found = stacked(parts)
        assert not found.has_text
        assert found.features is not None
        assert found.features.format == "csr"
        np.testing.assert_array_equal(
            found.features.toarray(),
            np.vstack([part.features.toarray() for part in parts if part.features is not None]),
        )


def test_voters_with_the_labels_that_theirs_became() -> None:
    first = as_dataset(["one text", "two texts", "three"], [["a", "b"], ["b", "c"], []])
    labels = relabelled(BEFORE, LabelIndex.from_keys(["new", "c"]), ["c"], {"a": "b"}, {})
    assert labels.index.keys == ["b", "new"]
    second = labels.taken_over(as_dataset(["four", "five texts"], [["new", "c"], ["b"]]))
    found = Voters.of(first, 5).joined(second, 5, labels)
    rows = [found.labels[found.indptr[row] : found.indptr[row + 1]].tolist() for row in range(len(found))]
    assert rows == [[0], [0], [], [1], [0]]
    assert found.documents["snippet"].to_pylist() == ["one t", "two t", "three", "four", "five "]
    assert found.documents["id"].to_pylist() == ["0", "1", "2", "0", "1"]


def test_thresholds_follow_their_labels() -> None:
    rule = Thresholds("label", "micro", 0.5, np.array([0.1, 0.2, 0.3], np.float32))
    found = Decisions(thresholds=rule).relabelled(np.array([2, 0]), 4).thresholds
    assert found is not None
    assert found.by_label is not None
    np.testing.assert_array_equal(found.by_label, np.array([0.3, 0.1, 0.5, 0.5], np.float32))
    same = Decisions(thresholds=Thresholds("global", "micro", 0.5, None))
    assert same.relabelled(np.array([2, 0]), 4) is same


class TestJudged:
    """Popularity, whose answers are known: it is worth as much as its first five labels."""

    def model(self) -> Model:
        return Popularity().fit(["x"] * 60, [["a"]] * 40 + [["b"]] * 20)

    def test_by_validation_documents(self) -> None:
        valid = (["v"] * 50, [["a"]] * 50)
        model, new = self.model(), (["n"] * 100, [["b"]] * 100)
        before = dict(vars(model))
        with pytest.raises(RefusedError) as said:
            model.update(*new, valid=valid)
        assert str(said.value) == (
            "the update would lower nDCG@5 from 100.00 to 63.09 on 50 documents, by more than the margin of 2. "
            "Check the new documents, or use --force."
        )
        assert vars(model) == before
        model.update(*new, valid=valid, margin=0.37)
        assert model.predict(["v"], 1).keys() == [["b"]]
        entry = model.history[-1]
        assert (entry["judged by"], entry["held out"], entry["forced"]) == (50, False, False)
        assert (entry["nDCG@5 before"], entry["nDCG@5 after"]) == (1.0, 0.6309)
        assert self.model().update(*new, valid=valid, force=True).history[-1]["forced"]

    def test_by_a_tenth_of_many(self) -> None:
        model = self.model().update(["n"] * 500, [["a"]] * 400 + [["c"]] * 100)
        entry = model.history[-1]
        assert (entry["judged by"], entry["held out"], entry["documents"]) == (50, True, 450)
        assert model.training["documents"] == 510
        assert int(model.label_counts.sum()) == 510
        assert entry["nDCG@5 before"] <= entry["nDCG@5 after"]

    def test_by_nothing_where_there_is_little(self) -> None:
        model = self.model().update(["n"] * 499, [["b"]] * 499, valid=(["v"] * 49, [["a"]] * 49))
        entry = model.history[-1]
        assert (entry["judged by"], entry["nDCG@5 before"], entry["nDCG@5 after"]) == (0, None, None)
        assert entry["documents"] == 499

    def test_two_that_became_one_are_one_answer(self) -> None:
        model = self.model().update(merge={"b": "a"}, valid=(["v"] * 50, [["a"]] * 50))
        assert (model.history[-1]["nDCG@5 before"], model.history[-1]["nDCG@5 after"]) == (1.0, 1.0)

    def test_documents_that_had_both_count_once_at_most(self) -> None:
        model = Popularity().fit(["x"] * 4, [["a", "b"]] * 3 + [["a"]]).update(merge={"b": "a"})
        assert model.label_counts.tolist() == [4]
        assert model.predict(["x"], 1).scores.tolist() == [[1.0]]

    def test_nothing_to_learn_from(self) -> None:
        with pytest.raises(DataError, match=r"^nothing to update: pass new documents, labels to retire or merge, or"):
            self.model().update()


class TestPartialLabels:
    DECISIONS = as_dataset(["one text", "two texts", "three"], [["a"], [], ["b", "c"]], [["b"], ["c"], []], False)

    def test_voters(self) -> None:
        labels = relabelled(BEFORE, LabelIndex.from_keys(["new"]), ["c"], {"a": "b"}, {})
        second = labels.taken_over(as_dataset(["four"], [["new"]]))
        found = Voters.of(self.DECISIONS, 5).joined(second, 5, labels)
        assert found.partial is not None
        assert found.partial.flags.tolist() == [True, True, True, False]
        assert [found.partial.rejected_by(row).tolist() for row in range(4)] == [[], [], [], []]  # a became b
        kept = relabelled(BEFORE, LabelIndex.from_keys([]), ["a"], {}, {})
        again = Voters.of(self.DECISIONS, 5).joined(kept.taken_over(as_dataset(["x"], [["b"]])), 5, kept)
        assert again.partial is not None
        assert [again.partial.rejected_by(row).tolist() for row in range(4)] == [[0], [1], [], []]
        restored = Voters.from_state(SavedState(again.state()), 3).partial
        assert restored is not None
        for one, other in zip(restored, again.partial, strict=True):
            np.testing.assert_array_equal(one, other)
        assert "partial" not in Voters.of(as_dataset(["x"], [["b"]]), 5).state().arrays

    def test_replay(self) -> None:
        index = self.DECISIONS.label_index
        assert index is not None
        found = restored_replay(SavedState(replay_state(self.DECISIONS)), index)
        assert found.rejected is not None
        assert self.DECISIONS.rejected is not None
        assert (found.rejected != self.DECISIONS.rejected).nnz == 0
        assert found.partial_rows().tolist() == [True, True, True]
        complete = restored_replay(SavedState(replay_state(as_dataset(["x"], [["a"]]))), LabelIndex.from_keys(["a"]))
        assert complete.rejected is None
        assert complete.partial is None

    def test_only_complete_documents_validate(self) -> None:
        texts, labels = [f"word{number % 7} more" for number in range(1200)], [[f"l{n % 7}"] for n in range(1200)]
        model = Popularity().fit(texts[:20], labels[:20])
        some = [number % 2 == 0 for number in range(1200)]
        updated = copy.copy(model).update(texts, labels, complete=some, force=True)
        assert updated.history[-1]["judged by"] == 60
        assert copy.copy(model).update(texts, labels, complete=False).history[-1]["judged by"] == 0
        valid = as_dataset(texts[:100], labels[:100], complete=some[:100])
        assert copy.copy(model).update(texts[:5], labels[:5], valid=valid, force=True).history[-1]["judged by"] == 50
        with pytest.raises(
            DataError, match="calibration requires complete labels, but all 100 documents have unknown ones"
        ):
            model.calibrate(as_dataset(texts[:100], labels[:100], complete=False))
        with pytest.raises(DataError, match="validation requires complete labels"):
            Popularity().fit(texts, labels, valid=as_dataset(texts[:9], labels[:9], complete=False))

    def test_the_most_frequent_labels_by_hand(self) -> None:
        model = Popularity().fit(["x"] * 4, [["a"], ["a", "b"], ["b"], ["a", "c"]])
        model.update(["y", "z"], [["c"], []], rejected=[["a"], ["a"]])
        shares = model.score_labels(["x"], np.array([[0, 1, 2]]))[0]
        np.testing.assert_allclose(shares, [3 / 6, 2 / 4, (1 + 1 + 1 / 4) / 6], rtol=1e-6)
        model.update(["y"], [["b"]], rejected=[["new"]], retire=["a"])
        assert model.labels.keys == ["b", "c"]
        shares = model.score_labels(["x"], np.array([[0, 1]]))[0]
        np.testing.assert_allclose(shares, [(2 + 1 + 2 * 2 / 4) / 7, (1 + 1 + 2 * 1 / 4) / 7], rtol=1e-6)

    def test_partial_neighbours_do_not_replace_complete_ones(self) -> None:
        """Many decisions on one text: only the decided label changes, and the explanation adds up."""
        texts = [f"red wine stain number{number}" for number in range(30)]
        model = Knn(neighbours=10, power=1).fit(texts, [["a", "b"] if n % 2 else ["c"] for n in range(30)])
        before = dict(model.predict(["red wine stain"], 4).pairs()[0])
        model.update(["red wine stain"] * 25, [["b"]] * 25, complete=False)
        after = dict(model.predict(["red wine stain"], 4).pairs()[0])
        assert after["b"] > before["b"] + 0.2
        assert after["a"] == pytest.approx(before["a"], abs=1e-6)
        assert after["c"] == pytest.approx(before["c"], abs=1e-6)
        for label in ("a", "b", "c"):
            reasons = model.explain("red wine stain", label).evidence
            assert sum(each.share for each in reasons) == pytest.approx(after[label], abs=1e-5)
