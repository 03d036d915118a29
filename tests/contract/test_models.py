"""The contract, held against every registered model. A new model is covered by its line in the registry alone."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import xmtc
from tests.support.models import QUICK, TREE, made, planted_split
from xmtc.artifact import store
from xmtc.core.config import to_mapping
from xmtc.core.errors import ConfigError, DataError, ModelFormatError, NotFittedError, RefusedError, UnsupportedError
from xmtc.core.explanation import Explanation
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels, as_dataset
from xmtc.data.topk import TopK
from xmtc.metrics import precision
from xmtc.models import base
from xmtc.models.base import Model
from xmtc.models.consensus import Consensus
from xmtc.models.knn import Knn
from xmtc.models.lexical import Lexical
from xmtc.models.parabel import Parabel
from xmtc.models.popularity import Popularity
from xmtc.models.registry import MODELS, available, model_class

NAMES = [name for name in MODELS if available(name)]
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {name: (name, QUICK.get(name, {})) for name in NAMES}
if "attention_xml" in NAMES:  # with a beam that holds every node, so that the answer is the whole ranking
    VARIANTS["attention_xml, tree"] = "attention_xml", {**QUICK["attention_xml"], **TREE, "head.tree.beam_width": 16}
VARIANTS["consensus"] = "consensus", {"depth": 100}
VARIANTS["consensus, noisy-or"] = "consensus", {"depth": 100, "combine": "noisy-or", "complete": True}
FOLDERS: list[Path] = []
SETTINGS: dict[str, dict[str, object]] = {}
"""Of the variant that is being tested, by the name of its model."""


LONG = ("attention_lstm", "attention_xml, tree", "consensus, noisy-or", "lsan", "transformer", "xml_rnn")
"""Slow, and their like is among the others."""
PARAMS = [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in VARIANTS]


@pytest.fixture(scope="module", params=PARAMS)
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Model]]:
    name, settings = VARIANTS[request.param]
    FOLDERS.append(tmp_path_factory.mktemp("members"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SETTINGS, name, made(settings))
        yield model_class(name)


def built(kind: type[Model], **settings: object) -> Model:
    """A new model: its defaults, or the settings with which it learns the planted texts in seconds."""
    return (WithMembers if kind is Consensus else kind)(**{**SETTINGS[kind.name], **settings})


class WithMembers(Consensus):
    """A consensus whose members are trained on the same documents first."""

    def fit(self, documents: object, labels: object = None, **how: object) -> Consensus:  # type: ignore[override]
        folder = Path(tempfile.mkdtemp(prefix="members-", dir=FOLDERS[-1]))
        for member in (Parabel(trees=1), Knn(neighbours=10, power=2)):
            member.fit(documents, labels, runtime=Runtime(threads=2, seed=3)).save(folder / member.name)
        self.set_params(members=[str(folder / "parabel"), str(folder / "knn")])
        if len(as_dataset(documents, labels)) < 10:  # too few to calibrate on and to learn from
            self.set_params(calibrate="none", combine="noisy-or")
        return super().fit(documents, labels, **how)  # type: ignore[arg-type]


def briefly(kind: type[Model]) -> dict[str, object]:
    """Settings for a training that need not learn anything."""
    return {"training.epochs": 1} if "training.epochs" in SETTINGS[kind.name] else {}


def tolerance_of(kind: type[Model]) -> float:
    """How far scores may differ where only batches or threads do: sums of matrix products follow the batch's shape."""
    if kind.name == "consensus":  # orders by what is not rounded yet, which candidates are not
        return 1e-7
    return 1e-5 if MODELS.entries[kind.name].extra in ("torch", "transformers") else 0.0


def as_features(dataset: Dataset, width: int = 3000) -> sp.csr_array:
    """A bag-of-words matrix from texts, by a route of its own (hashed words)."""
    rows, columns = [], []
    for row, text in enumerate(dataset.text().to_pylist()):
        for word in text.lower().replace(".", "").split():
            rows.append(row)
            columns.append(sum(ord(letter) * 31**i for i, letter in enumerate(word)) % width)
    return sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(dataset), width))


def documents_of(kind: type[Model], dataset: Dataset) -> object:
    """The documents in a form that the model takes."""
    return dataset if "text" in kind.capabilities else as_features(dataset)


@pytest.fixture(scope="module")
def fitted(kind: type[Model], planted: tuple[Dataset, Dataset, object]) -> Model:
    train, _, _ = planted
    documents = documents_of(kind, train)
    labels = None if documents is train else train.labels
    return built(kind).fit(documents, labels, runtime=Runtime(threads=2, seed=3))


def truth_for(model: Model, dataset: Dataset, train: Dataset) -> sp.csr_array:
    """The labels of test documents under the numbers of the training documents."""
    assert len(model.labels) == len(train.label_index or ())
    return align_labels(dataset, train.label_index)[0]


def same(left: TopK, right: TopK, tolerance: float = 0.0) -> bool:
    """Equal labels and scores; with a tolerance, labels may differ where their scores are that near to each other."""
    if tolerance == 0.0:
        return bool((left.labels == right.labels).all() and (left.scores == right.scores).all())
    if not np.allclose(left.scores, right.scores, atol=tolerance, rtol=0):
        return False
    for row in np.flatnonzero((left.labels != right.labels).any(axis=1)):  # in order of scores that are as near
        for ours, theirs in ((left, right), (right, left)):
            known = dict(zip(theirs.labels[row], theirs.scores[row], strict=True))
            for label, score in zip(ours.labels[row], ours.scores[row], strict=True):
                if abs(known.get(label, theirs.scores[row, -1]) - score) > tolerance:
                    return False
    return True


class TestLearning:
    def test_learns_the_planted_answer(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        train, test, _ = planted
        if isinstance(fitted, Popularity):
            best = np.argmax(fitted.label_counts)
            answer = fitted.predict(documents_of(type(fitted), test), k=1)
            assert (answer.labels == best).all()
            return
        answer = fitted.predict(documents_of(type(fitted), test), k=5)
        assert precision(answer, truth_for(fitted, test, train), 1) > 0.9

    def test_beats_popularity(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        train, test, _ = planted
        if isinstance(fitted, Popularity):
            pytest.skip("this is the baseline itself")
        baseline = Popularity().fit(train)
        ours = precision(fitted.predict(documents_of(type(fitted), test), k=3), truth_for(fitted, test, train), 3)
        assert ours > precision(baseline.predict(test, k=3), align_labels(test, baseline.labels)[0], 3) + 0.1

    def test_a_few_documents_suffice(self, kind: type[Model]) -> None:
        texts = ["salt and pepper", "pepper and lemon", "iron and steel", "steel and copper"]
        labels = [["spice"], ["spice", "fruit"], ["metal"], ["metal"]]
        dataset = as_dataset(texts, labels)
        model = built(kind).fit(
            documents_of(kind, dataset), dataset.labels if "text" not in kind.capabilities else labels
        )
        assert len(model.labels) == 3
        assert model.predict(documents_of(kind, dataset), k=2).labels.shape == (4, 2)


class TestPredict:
    def test_rows_are_sorted_and_labels_distinct(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        answer = fitted.predict(documents_of(type(fitted), planted[1]), k=10)
        for labels, scores in zip(answer.labels, answer.scores, strict=True):
            count = int((labels >= 0).sum())
            assert (labels[:count] >= 0).all()
            assert (labels[count:] == -1).all()
            assert (np.diff(scores[:count]) <= 0).all()
            assert np.isfinite(scores[:count]).all()
            assert np.isneginf(scores[count:]).all()
            assert len(set(labels[:count].tolist())) == count
            assert (labels < len(fitted.labels)).all()

    def test_k_beyond_the_labels(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        documents = documents_of(type(fitted), planted[1].slice(0, 5))
        answer = fitted.predict(documents, k=10**12)  # a row of this length would not fit into memory
        assert answer.labels.shape == (5, len(fitted.labels))
        assert same(answer, fitted.predict(documents, k=len(fitted.labels)))
        assert (answer.first(3).labels == fitted.predict(documents, k=3).labels).all()
        allowed = np.arange(len(fitted.labels)) < 2
        for given in ({"allow": allowed}, {"candidates": answer.labels[:, :2]}, {"threshold": 0.0}):
            assert fitted.predict(documents, k=10**12, **given).labels.shape[1] <= len(fitted.labels)  # type: ignore[arg-type]

    def test_smaller_k_is_a_prefix(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        documents = documents_of(type(fitted), planted[1])
        assert same(fitted.predict(documents, k=7).first(4), fitted.predict(documents, k=4))

    def test_batch_size_does_not_matter(
        self, fitted: Model, planted: tuple[Dataset, Dataset, object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        documents = documents_of(type(fitted), planted[1])
        whole = fitted.predict(documents, k=5)
        monkeypatch.setattr(base, "BATCH", 7)
        tolerance = tolerance_of(type(fitted))
        assert same(fitted.predict(documents, k=5), whole, tolerance)
        one = as_dataset(documents).slice(11, 12)
        assert same(fitted.predict(one, k=5), TopK(whole.labels[11:12], whole.scores[11:12], whole.index), tolerance)

    def test_documents_without_anything_known(self, fitted: Model) -> None:
        documents = ["", "…", "zzzzqqq"] if "text" in fitted.capabilities else sp.csr_array((3, 3000), dtype=np.float32)
        answer = fitted.predict(documents, k=3)
        assert answer.labels.shape == (3, 3)
        assert not np.isnan(answer.scores).any()

    def test_no_known_word_no_label_in_sets(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        known = documents_of(type(fitted), planted[1].slice(0, 2))
        if isinstance(known, Dataset):
            documents: object = ["", *known.text().to_pylist(), "… ?"]
        else:
            empty = sp.csr_array((1, known.shape[1]), dtype=np.float32)
            documents = sp.vstack([empty, known, empty], format="csr")
        answer = fitted.predict(documents, k=3)
        sets = fitted.predict(documents, threshold=0.0)
        if fitted.name == "popularity":  # it uses no words, so that it knows none
            assert answer.known_words is None
            assert fitted.known_words(documents) is None
            assert (sets.labels[:, 0] >= 0).all()
            return
        expected = [False, True, True, fitted.name == "transformer"]  # which knows punctuation
        for found in (answer.known_words, sets.known_words, fitted.known_words(documents)):
            assert found is not None
            assert found.tolist() == expected
        assert (sets.labels >= 0).any(axis=1).tolist() == expected
        assert ["known_words" not in row for row in answer.rows()] == expected
        candidates = fitted.predict(documents, candidates=answer, threshold=0.0)
        assert (candidates.labels >= 0).any(axis=1).tolist() == expected
        if "explain" in fitted.capabilities:
            assert isinstance(documents, list)
            assert [fitted.explain(text, 0).known_words for text in documents] == expected

    def test_no_documents(self, fitted: Model) -> None:
        documents = [] if "text" in fitted.capabilities else sp.csr_array((0, 3000), dtype=np.float32)
        assert fitted.predict(documents, k=3).labels.shape == (0, 3)

    def test_ids_and_names_travel(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        batch = planted[1].slice(3, 6)
        if "text" not in fitted.capabilities:
            pytest.skip("has no names: trained on a matrix")
        answer = fitted.predict(batch, k=2)
        assert answer.ids == ["3", "4", "5"]
        assert all(name in fitted.labels.names for row in answer.names() for name in row)

    @pytest.mark.parametrize("k", [0, -1, 1.5, "3", True])
    def test_bad_k(self, fitted: Model, k: object) -> None:
        documents = ["a"] if "text" in fitted.capabilities else sp.csr_array((1, 3000), dtype=np.float32)
        with pytest.raises(ConfigError, match="'k' must be an integer ≥ 1"):
            fitted.predict(documents, k=k)  # type: ignore[arg-type]


class TestTag:
    """One document at a time against `predict`."""

    def test_equals_predict(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        texts = planted[1].text().to_pylist()[:10]
        whole = fitted.predict(texts, 4).pairs()
        for text, expected in zip(texts, whole, strict=True):
            found = fitted.tag(text, 4)
            assert [name for name, _ in found] == [name for name, _ in expected]
            scores = [score for _, score in expected]
            assert [score for _, score in found] == pytest.approx(scores, abs=tolerance_of(type(fitted)), rel=0)

    def test_rows_of_features(self, kind: type[Model], planted: tuple[Dataset, Dataset, object]) -> None:
        train, test, _ = planted
        if "features" not in kind.capabilities:
            pytest.skip("takes no features")
        model = built(kind).fit(as_features(train), train.labels, runtime=Runtime(threads=2, seed=3))
        rows = as_features(test)
        rows.sum_duplicates()
        rows.data *= np.float32(3.0)  # the length of a row does not matter
        tolerance = tolerance_of(kind)
        for number, expected in enumerate(model.predict(rows[:20], 5).pairs()):
            row = rows[[number]]
            for form in (row, sp.csc_array(row), row.toarray(), row.toarray()[0], sp.csr_matrix(row)):
                found = model.tag(form, 5)
                assert [name for name, _ in found] == [name for name, _ in expected]
                scores = [score for _, score in expected]
                assert [score for _, score in found] == pytest.approx(scores, abs=tolerance, rel=0)
        assert model.tag(rows[[0]], 10**6) == model.predict(rows[[0]], len(model.labels)).pairs()[0]
        assert model.tag(sp.csr_array((1, 3000), dtype=np.float32), 3) is not None
        with pytest.raises(DataError, match=r"'tag' takes one document. Got 2. Use predict for several."):
            model.tag(rows[:2])
        if not isinstance(model, Popularity):  # which reads nothing
            with pytest.raises(DataError, match="3,000 features"):
                model.tag(rows[[0]][:, :7])
        with pytest.raises(ConfigError, match="'k' must be an integer ≥ 1"):
            model.tag(rows[[0]], 0)
        for wrong in (None, 3, ["a"]):
            with pytest.raises(DataError, match=r"'tag' takes one text or one feature row. Got"):
                model.tag(wrong)
        beyond = sp.csr_array((np.ones(1, np.float32), np.array([1]), np.array([0, 1])), shape=(1, 3000))
        beyond.indices[0] = 3000
        with pytest.raises(DataError, match="a column index is out of range"):
            model.tag(beyond)


def only(answer: TopK, allowed: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The first k labels of a whole ranking that are allowed, and their scores."""
    labels = np.full((len(answer), k), -1)
    scores = np.full((len(answer), k), -np.inf, np.float32)
    for row, (found, given) in enumerate(zip(answer.labels, answer.scores, strict=True)):
        kept = np.flatnonzero((found >= 0) & allowed[found])[:k]
        labels[row, : len(kept)], scores[row, : len(kept)] = found[kept], given[kept]
    return labels, scores


class TestRestricted:
    """`allow` and `deny` against the whole ranking, filtered; `candidates` against their scores, sorted."""

    @pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
    @pytest.mark.parametrize("k", [1, 5, 100])
    def test_allow_equals_the_whole_ranking_filtered(
        self, fitted: Model, planted: tuple[Dataset, Dataset, object], share: float, k: int
    ) -> None:
        documents = documents_of(type(fitted), planted[1])
        whole = fitted.predict(documents, k=len(fitted.labels))
        chosen = np.random.default_rng(int(100 * share)).permutation(len(fitted.labels))
        chosen = chosen[: max(1, int(share * len(chosen)))]
        mask = np.zeros(len(fitted.labels), dtype=bool)
        mask[chosen] = True
        keys = fitted.labels.strings("key", chosen)
        count = min(k, len(fitted.labels))
        labels, scores = only(whole, mask, count)
        others = fitted.labels.strings("key", np.flatnonzero(~mask))
        for restricted in (
            fitted.predict(documents, k, allow=keys),
            fitted.predict(documents, k, allow=set(keys)),
            fitted.predict(documents, k, allow=chosen),
            fitted.predict(documents, k, allow=mask),
            fitted.predict(documents, k, deny=others),
            fitted.predict(documents, k, deny=~mask),
        ):
            assert restricted.labels.shape == (len(planted[1]), count)
            assert (restricted.labels == labels).all()
            assert (restricted.scores == scores).all()

    def test_allow_and_deny(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        documents, keys = documents_of(type(fitted), planted[1].slice(0, 30)), fitted.labels.keys
        both = fitted.predict(documents, 7, allow=keys[:20], deny=keys[5:40])
        assert same(both, fitted.predict(documents, 7, allow=keys[:5]))
        everything = fitted.predict(documents, 7)
        assert same(fitted.predict(documents, 7, allow=keys, deny=[]), everything)
        assert same(fitted.predict(documents, 7, allow=np.arange(len(keys))), everything)

    def test_batch_size_and_threads_do_not_matter(
        self, fitted: Model, planted: tuple[Dataset, Dataset, object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        documents = documents_of(type(fitted), planted[1])
        candidates = np.random.default_rng(0).integers(-1, len(fitted.labels), (len(planted[1]), 6))
        restrictions = (
            {"allow": np.arange(0, 60, 3)},
            {"candidates": candidates},
            {"candidates": candidates, "deny": np.array([0, 1])},
        )
        before = [fitted.predict(documents, 4, **way) for way in restrictions]
        monkeypatch.setattr(base, "BATCH", 7)
        monkeypatch.setattr(fitted, "runtime", Runtime(threads=1, seed=3))
        for way, answer in zip(restrictions, before, strict=True):
            assert same(fitted.predict(documents, 4, **way), answer, tolerance_of(type(fitted)))

    @pytest.mark.parametrize("k", [1, 4, 30])
    def test_candidates_are_scored_and_sorted(
        self, fitted: Model, planted: tuple[Dataset, Dataset, object], k: int
    ) -> None:
        if "score" not in fitted.capabilities:
            pytest.skip("cannot score given labels")
        count = len(planted[1])
        documents = documents_of(type(fitted), planted[1])
        candidates = np.random.default_rng(1).integers(-1, len(fitted.labels), (count, 12))  # pads and repeats
        candidates[3] = -1
        mask = np.arange(len(fitted.labels)) % 4 > 0
        scores, tolerance = fitted.score_labels(documents, candidates), tolerance_of(type(fitted))
        keys = [[fitted.labels.key(label) for label in row if label >= 0] for row in candidates]
        read_back = TopK(candidates, scores, fitted.labels.take(np.arange(len(fitted.labels))))
        for given in (candidates, keys, read_back):
            for allowed in (None, mask):
                answer = fitted.predict(documents, k, candidates=given, allow=allowed)
                assert answer.labels.shape == (count, k)
                for row in range(count):
                    pairs = dict(zip(candidates[row], scores[row], strict=True))
                    ranked = sorted((-score, label) for label, score in pairs.items() if label >= 0)
                    expected = [label for _, label in ranked if allowed is None or allowed[label]][:k]
                    assert answer.labels[row].tolist() == expected + [-1] * (k - len(expected))
                    given_scores = answer.scores[row, : len(expected)].tolist()
                    assert given_scores == pytest.approx([pairs[label] for label in expected], rel=tolerance, abs=0)
                    assert np.isneginf(answer.scores[row, len(expected) :]).all()

    def test_answers_of_another_numbering_as_candidates(
        self, fitted: Model, planted: tuple[Dataset, Dataset, object]
    ) -> None:
        """Labels go by key: an answer that numbers them otherwise means the same labels."""
        documents = documents_of(type(fitted), planted[1].slice(0, 20))
        answer = fitted.predict(documents, 3)
        order = np.arange(len(fitted.labels))[::-1]
        other = TopK(
            np.where(answer.labels < 0, -1, len(order) - 1 - answer.labels), answer.scores, fitted.labels.take(order)
        )
        assert other.keys() == answer.keys()
        assert same(fitted.predict(documents, 3, candidates=other), answer, tolerance_of(type(fitted)))
        assert (fitted.score_labels(documents, other) == fitted.score_labels(documents, answer)).all()

    def test_no_candidates(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        documents = documents_of(type(fitted), planted[1].slice(0, 2))
        for nothing in ([[], []], np.full((2, 3), -1), np.empty((2, 0), dtype=np.int64)):
            answer = fitted.predict(documents, 4, candidates=nothing)
            assert (answer.labels == -1).all()
            assert answer.labels.shape == (2, 4)
            assert np.isneginf(answer.scores).all()

    def test_nothing_left_is_refused(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        documents, keys = documents_of(type(fitted), planted[1].slice(0, 2)), fitted.labels.keys
        for way in ({"deny": keys}, {"allow": []}, {"allow": keys[:3], "deny": keys[:9]}):
            with pytest.raises(DataError, match=r"exclude all of the model's 60 labels. Allow more, or deny fewer."):
                fitted.predict(documents, **way)

    def test_unknown_labels_are_named(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        documents, keys = documents_of(type(fitted), planted[1].slice(0, 1)), fitted.labels.keys
        wrong = keys[7] + "x"
        for way, what in (("allow", "'allow': label"), ("deny", "'deny': label"), ("candidates", "candidate")):
            given = [keys[0], wrong] if way != "candidates" else [[keys[0], wrong]]
            with pytest.raises(DataError, match=f"{what} '{wrong}' is not among the model's 60 labels.") as caught:
                fitted.predict(documents, **{way: given})  # type: ignore[arg-type]
            assert f" Did you mean '{keys[7]}'?" in str(caught.value)
        for way, given, message in (
            ("allow", keys[0], "'allow' must be a list of label keys"),
            ("deny", 3, "'deny' must be a list of label keys"),
            ("allow", np.array([60]), "'allow': label number 60 is out of range: the model has 60 labels"),
            ("deny", np.array([-1]), "'deny': label number -1 is out of range"),
            ("allow", np.array([[1]]), "Got 2-d int64"),
            ("allow", np.array([0.5]), "Got 1-d float64"),
            ("allow", np.array([True]), "Got 1-d bool"),
            ("candidates", np.array([[60]]), "label number 60 is out of range: the model has 60 labels"),
            ("candidates", [[keys[0]], [keys[1]]], "candidates must be 1 rows of label numbers"),
        ):
            with pytest.raises(DataError, match=message):
                fitted.predict(documents, **{way: given})  # type: ignore[arg-type]


class TestScore:
    def test_agrees_with_predict(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        if "score" not in fitted.capabilities:
            pytest.skip("cannot score given labels")
        documents = documents_of(type(fitted), planted[1])
        answer = fitted.predict(documents, k=8)
        scores = fitted.score_labels(documents, answer)
        np.testing.assert_allclose(scores, answer.scores, atol=1e-6)
        shuffled = answer.labels[:, ::-1]
        np.testing.assert_allclose(fitted.score_labels(documents, shuffled), answer.scores[:, ::-1], atol=1e-6)

    def test_no_label_outside_the_answer_scores_higher(
        self, fitted: Model, planted: tuple[Dataset, Dataset, object]
    ) -> None:
        if "score" not in fitted.capabilities:
            pytest.skip("cannot score given labels")
        documents = documents_of(type(fitted), planted[1].slice(0, 20))
        answer = fitted.predict(documents, k=5)
        everything = np.tile(np.arange(len(fitted.labels)), (20, 1))
        scores = fitted.score_labels(documents, everything)
        floor = np.where(answer.labels[:, -1] >= 0, answer.scores[:, -1], 0.0)
        outside = scores.copy()
        for row, labels in enumerate(answer.labels):
            outside[row, labels[labels >= 0]] = -np.inf
        assert (outside.max(axis=1) <= floor + 1e-6).all()

    def test_candidates_by_key(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        documents = documents_of(type(fitted), planted[1].slice(0, 2))
        keys = fitted.labels.keys
        by_key = fitted.score_labels(documents, [[keys[3]], [keys[0], keys[5]]])
        by_number = fitted.score_labels(documents, np.array([[3, -1], [0, 5]]))
        assert (by_key == by_number).all()
        assert np.isneginf(by_key[0, 1])
        with pytest.raises(DataError, match="candidate 'nobody knows'"):
            fitted.score_labels(documents, [["nobody knows"], []])
        with pytest.raises(DataError, match="is out of range: the model has"):
            fitted.score_labels(documents, np.array([[len(keys)], [0]]))


class TestFit:
    def test_same_seed_same_answer(
        self, kind: type[Model], fitted: Model, planted: tuple[Dataset, Dataset, object]
    ) -> None:
        train, test, _ = planted
        documents, labels = documents_of(kind, train), train.labels if "text" not in kind.capabilities else None
        brief = briefly(kind)
        first = built(kind, **brief).fit(documents, labels, runtime=Runtime(threads=2, seed=3)) if brief else fitted
        again = built(kind, **brief).fit(documents, labels, runtime=Runtime(threads=2, seed=3))
        unseen = documents_of(kind, test)
        assert same(again.predict(unseen, k=5), first.predict(unseen, k=5))
        alone = built(kind, **brief).fit(documents, labels, runtime=Runtime(threads=1, seed=3))
        assert same(alone.predict(unseen, k=5), first.predict(unseen, k=5), tolerance=1e-5)

    def test_a_document_without_labels_is_kept(self, kind: type[Model]) -> None:
        dataset = as_dataset(["red apple", "green apple", "blue sky", "grey sky"], [["fruit"], [], ["air"], ["air"]])
        model = built(kind).fit(documents_of(kind, dataset), dataset.labels)
        assert model.training["documents"] == 4
        assert model.label_counts.sum() == 3

    def test_settings_stay_as_given(self, kind: type[Model], planted: tuple[Dataset, Dataset, object]) -> None:
        model = built(kind)
        before = to_mapping(model.config)
        train = planted[0].slice(0, 100)
        model.fit(documents_of(kind, train), train.labels)
        if kind is Consensus:
            model.set_params(members=[])  # which were trained just now
        assert to_mapping(model.config) == before == to_mapping(built(kind).config)

    def test_validation_documents(self, kind: type[Model], planted: tuple[Dataset, Dataset, object]) -> None:
        """They may be a Dataset or a pair, and hold labels that training never saw; they add no label."""
        if kind is Consensus:
            pytest.skip("is trained on the validation set only")
        train, test, _ = planted
        held = test.slice(0, 50)
        model, documents = built(kind, **briefly(kind)), documents_of(kind, train)
        model.fit(documents, train.labels, valid=(documents_of(kind, held), held.labels))
        assert len(model.labels) == train.labels.shape[1]
        if "text" in kind.capabilities:
            strange = (held.text().to_pylist(), [["nobody knows"]] * 50)
            assert len(model.fit(train, valid=strange).labels) == len(train.label_index)
        with pytest.raises(DataError, match=r"validation requires labels. Pass one list of labels per document."):
            model.fit(documents, train.labels, valid=documents_of(kind, Dataset(fields=held.fields)))

    def test_plain_lists(self, kind: type[Model]) -> None:
        if "text" not in kind.capabilities:
            pytest.skip("takes features")
        model = built(kind).fit(["a cat purrs", "a dog barks", "a cat and a dog"], [["cat"], ["dog"], ["cat", "dog"]])
        assert set(model.predict(["the cat"], k=2).names()[0]) <= {"cat", "dog"}

    def test_integer_labels(self, kind: type[Model]) -> None:
        dataset = as_dataset(["a cat purrs", "a dog barks", "cat and dog"], [[10], [9], [10, 9]])
        model = built(kind).fit(documents_of(kind, dataset), [[10], [9], [10, 9]])
        assert model.labels.keys == ["9", "10"]

    def test_refuses_what_it_cannot_learn_from(self, kind: type[Model]) -> None:
        texts = ["one text", "another text"]
        documents = documents_of(kind, as_dataset(texts))
        for labels, message in [
            (None, "training requires labels"),
            ([[], []], "no document has a label"),
            ([["a"]], "2 documents but 1 label rows"),
            (["a", "b"], "must be a list"),
            ([["a"], [None]], "must be a string or an integer"),
        ]:
            with pytest.raises(DataError, match=message):
                built(kind).fit(documents, labels)
        with pytest.raises(DataError, match="Got a single string"):
            built(kind).fit("one text", [["a"]])
        with pytest.raises(DataError, match="document 1 must be a string"):
            built(kind).fit(["text", 3], [["a"], ["b"]])

    def test_texts_and_matrices_are_taken_or_refused(
        self, kind: type[Model], planted: tuple[Dataset, Dataset, object]
    ) -> None:
        train, test, _ = planted
        for form, ability in ((lambda d: d.text().to_pylist(), "text"), (as_features, "features")):
            documents = form(train)
            if ability not in kind.capabilities:
                with pytest.raises(UnsupportedError, match=f"takes .*, not {ability}"):
                    built(kind).fit(documents, train.labels)
                continue
            brief = briefly(kind)
            model = built(kind, **brief).fit(documents, train.labels)
            quality = precision(model.predict(form(test), k=1), truth_for(model, test, train), 1)
            if kind is Lexical:  # the names of these labels are numbers, which no text has
                assert quality == 0
                continue
            assert quality > (0.05 if brief or kind is Popularity else 0.6)  # raw counts: function words weigh in
        if {"text", "features"} <= kind.capabilities and kind is not Popularity:
            with pytest.raises(UnsupportedError, match="trained on a feature matrix"):
                model.predict(["a text"])
            with pytest.raises(DataError, match=r"has 3,000 features. Got a matrix with 7 columns"):
                model.predict(np.ones((1, 7)))

    def test_matrix_with_impossible_numbers(self, kind: type[Model]) -> None:
        if "features" not in kind.capabilities:
            pytest.skip("takes text")
        for bad in (np.nan, np.inf):
            with pytest.raises(DataError, match="features of document 1 contain NaN or infinity"):
                built(kind).fit(np.array([[1.0, 0.0], [bad, 1.0]]), [["a"], ["b"]])

    def test_not_trained(self, kind: type[Model], tmp_path: Path) -> None:
        documents = ["a"] if "text" in kind.capabilities else np.ones((1, 3))
        for action in (
            lambda: kind().predict(documents),
            lambda: kind().score_labels(documents, np.array([[0]])),
            lambda: kind().labels,
        ):
            with pytest.raises(NotFittedError, match="is not trained yet"):
                action()
        with pytest.raises(NotFittedError, match="is not trained yet"):
            kind().save(tmp_path / "m")
        assert not (tmp_path / "m" / "model.json").exists()


class TestExplain:
    def test_explains_or_says_that_it_cannot(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        _, test, _corpus = planted
        text = test.text()[4].as_py()
        if "explain" not in fitted.capabilities:
            with pytest.raises(UnsupportedError, match="cannot explain"):
                fitted.explain(text, fitted.labels.names[0])
            return
        label = fitted.predict([text], k=1).names()[0][0]
        found = fitted.explain(text, label)
        assert isinstance(found, Explanation)
        assert found.label == label
        assert found.score == pytest.approx(float(fitted.predict([text], k=1).scores[0, 0]), abs=1e-6)
        assert found.evidence
        json.dumps(found.to_json())
        if found.shares:
            assert min(item.weight for item in found.evidence) >= 0
            assert sum(item.weight for item in found.evidence) == pytest.approx(1.0, abs=1e-4)
        elif found.kind == "tokens":  # what is shown adds up to what is scored
            margin = found.constant + sum(item.weight for item in found.evidence)
            if found.path:
                assert np.exp(-(max(0.0, 1 - margin) ** 3)) == pytest.approx(found.path[-1].probability, abs=1e-4)
                assert found.score <= np.prod([step.probability for step in found.path]) + 1e-4
            else:
                assert 1 / (1 + np.exp(-margin)) == pytest.approx(found.score, abs=1e-4)
        number = fitted.predict([text], k=1).labels[0, 0]
        assert fitted.explain(text, number) == found
        with pytest.raises(DataError, match="Did you mean"):
            fitted.explain(text, label[:-1] + "q")


class TestFolder:
    def test_save_and_load_give_the_same_answer(
        self, fitted: Model, planted: tuple[Dataset, Dataset, object], tmp_path: Path
    ) -> None:
        fitted.save(tmp_path / "model")
        loaded = xmtc.load(tmp_path / "model")
        documents = documents_of(type(fitted), planted[1])
        assert type(loaded) is model_class(fitted.name)
        assert to_mapping(loaded.config) == to_mapping(fitted.config)
        assert loaded.labels == fitted.labels
        assert loaded.training == fitted.training
        assert loaded.facts == fitted.facts
        assert (loaded.label_counts == fitted.label_counts).all()
        assert same(loaded.predict(documents, k=6), fitted.predict(documents, k=6))
        loaded.save(tmp_path / "copy")
        first, second = (json.loads((tmp_path / f / "model.json").read_text())["files"] for f in ("model", "copy"))
        assert first == second

    def test_only_plain_files(self, fitted: Model, tmp_path: Path) -> None:
        fitted.save(tmp_path / "model")
        kinds = {path.suffix for path in (tmp_path / "model").iterdir()}
        assert kinds <= {".json", ".safetensors", ".arrow"}

    def test_died_during_save_leaves_the_old_model(
        self,
        kind: type[Model],
        fitted: Model,
        planted: tuple[Dataset, Dataset, object],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Every rename is a moment at which the process may die: at each, the folder holds the old model whole."""
        folder = tmp_path / "model"
        fitted.save(folder)
        documents = documents_of(kind, planted[1].slice(0, 30))
        before = fitted.predict(documents, k=5)
        part = planted[0].slice(0, 300)
        other = built(kind, **briefly(kind)).fit(documents_of(kind, part), part.labels)
        real, survived, moment = os.replace, 0, 0
        while True:
            calls = 0

            def dying(source: object, target: object, at: int = moment) -> None:
                nonlocal calls
                if calls == at:
                    raise KeyboardInterrupt
                calls += 1
                real(source, target)  # type: ignore[arg-type]

            monkeypatch.setattr(os, "replace", dying)
            try:
                other.save(folder, overwrite=True)
            except KeyboardInterrupt:
                monkeypatch.setattr(os, "replace", real)
                assert same(xmtc.load(folder).predict(documents, k=5), before)
                store.verify_folder(folder)
                survived += 1
                moment += 1
                continue
            break
        monkeypatch.setattr(os, "replace", real)
        assert survived >= 2
        assert xmtc.load(folder).training == other.training

    def test_damage_is_named(self, fitted: Model, tmp_path: Path) -> None:
        folder = tmp_path / "model"
        fitted.save(folder)
        arrays = next(folder.glob("*.safetensors"))
        content = arrays.read_bytes()
        arrays.write_bytes(content[:-3])
        with pytest.raises(ModelFormatError, match="bytes, expected"):
            xmtc.load(folder)
        arrays.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(ModelFormatError, match="does not match its hash"):
            store.verify_folder(folder)
        arrays.unlink()
        with pytest.raises(ModelFormatError, match="missing"):
            xmtc.load(folder)


LONGER = {
    name: {"update.epochs": 20, "update.retention": 0.0} for name in ("dxml", "transformer", "xml_cnn", "xml_rnn")
}
"""With which networks this small learn a label from 40 documents."""
NEW = "zorbex", "quillam", "vantorp"
"""Words that speak of the new label and that no text has before the update."""


def speaking_of_it(text: str) -> str:
    """The text, and twice the words of the new label among its own."""
    words = text.split()
    return " ".join([*NEW, *words[: len(words) // 2], *NEW, *words[len(words) // 2 :]])


def with_new_label(documents: Dataset) -> Dataset:
    """The documents, of which every third speaks of a new label and has it."""
    assert documents.labels is not None
    assert documents.label_index is not None
    texts, rows = [], []
    for row, text in enumerate(documents.text().to_pylist()):
        is_new = row % 3 == 0
        keys = documents.label_index.strings("key", documents.labels[[row]].indices)
        texts.append(speaking_of_it(text) if is_new else text)
        rows.append([*keys[:2], "new label"] if is_new else keys)
    return as_dataset(texts, rows)


def needs_update(kind: type[Model]) -> None:
    if "update" not in kind.capabilities:
        pytest.skip("cannot be updated")


@pytest.fixture(scope="module")
def updated(kind: type[Model], fitted: Model, planted: tuple[Dataset, Dataset, object]) -> Model:
    """Of a copy; judged so strictly that only force keeps it."""
    needs_update(kind)
    train, test, _ = planted
    model = copy.copy(fitted)
    model.set_params(**LONGER.get(model.name, {}))
    return model.update(
        with_new_label(test.slice(0, 120)),
        valid=test.slice(120, 200),
        replay=train.slice(0, 200),
        margin=-1,
        force=True,
    )


class TestUpdate:
    def test_new_labels_are_answered_and_old_ones_still_right(
        self, fitted: Model, updated: Model, planted: tuple[Dataset, Dataset, object]
    ) -> None:
        unseen = planted[1].slice(120, 200)
        assert updated.labels.keys == [*fitted.labels.keys, "new label"]
        assert len(updated.label_counts) == 61
        assert updated.label_counts[60] == 40
        if isinstance(updated, Popularity):
            assert updated.score_labels(unseen, [["new label"]] * 80)[0, 0] == np.float32(40 / 920)
            return
        if isinstance(updated, Lexical):  # by its name, whatever else the documents say
            named = updated.predict([f"{text} New labels" for text in unseen.text().to_pylist()], 5)
            assert (named.labels == 60).any(axis=1).mean() > 0.9
            return
        speaking = updated.predict([speaking_of_it(text) for text in unseen.text().to_pylist()], 5)
        silent = updated.predict(unseen, 5)
        heard, imagined = (int((answer.labels == 60).any(axis=1).sum()) for answer in (speaking, silent))
        assert heard > 60
        assert imagined < heard - 15
        assert precision(silent, align_labels(unseen, updated.labels)[0], 1) > 0.85

    def test_a_new_label_is_one_like_others(self, updated: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        unseen = planted[1].slice(120, 140)
        if isinstance(updated, Lexical):
            unseen = as_dataset([f"{text} New labels" for text in unseen.text().to_pylist()])
        only_new = updated.predict(unseen, 2, allow=["new label"])
        found = only_new.labels[:, 0] == 60  # not where no neighbour has it
        assert found.mean() > 0.5
        assert (only_new.labels[~found] == -1).all()
        assert (only_new.labels[:, 1] == -1).all()
        scores = updated.score_labels(unseen, [["new label"]] * 20)
        np.testing.assert_allclose(only_new.scores[found, 0], scores[found, 0], atol=1e-5)
        if "explain" in updated.capabilities:
            text = speaking_of_it(unseen.text()[0].as_py())
            reasons = updated.explain(text, "new label")
            assert reasons.label == "new label"
            assert reasons.evidence
            assert reasons.score == pytest.approx(float(updated.score_labels([text], [["new label"]])[0, 0]), abs=1e-6)

    def test_history_grows(self, fitted: Model, updated: Model) -> None:
        assert updated.training["documents"] == fitted.training["documents"] + 120
        assert {**updated.training, "documents": 0, "found": 0} == {**fitted.training, "documents": 0, "found": 0}
        (entry,) = updated.history
        counts = [entry[name] for name in ("documents", "replayed", "labels added", "labels retired", "judged by")]
        assert counts == [120, 200, 1, 0, 80]
        assert entry["forced"]
        assert not entry["held out"]
        assert 0 < entry["nDCG@5 after"] <= 1
        assert entry["nDCG@5 after"] > entry["nDCG@5 before"] - 0.05
        assert fitted.history == []
        json.dumps(entry)

    def test_saved_and_loaded(self, updated: Model, planted: tuple[Dataset, Dataset, object], tmp_path: Path) -> None:
        updated.save(tmp_path / "m")
        loaded = xmtc.load(tmp_path / "m")
        assert loaded.history == updated.history
        assert loaded.training == updated.training
        assert loaded.labels == updated.labels
        assert same(loaded.predict(planted[1], 6), updated.predict(planted[1], 6))
        loaded.save(tmp_path / "copy")
        files = [json.loads((tmp_path / name / "model.json").read_text())["files"] for name in ("m", "copy")]
        assert files[0] == files[1]

    def test_a_refused_update_leaves_everything_as_it_was(
        self, fitted: Model, planted: tuple[Dataset, Dataset, object], tmp_path: Path
    ) -> None:
        needs_update(type(fitted))
        train, test, _ = planted
        model, new = copy.copy(fitted), with_new_label(test.slice(0, 30))
        before = dict(vars(model))
        model.save(tmp_path / "before")
        with pytest.raises(
            RefusedError, match=r"^the update would lower nDCG@5 from .* on 60 documents, by more"
        ) as said:
            model.update(new, valid=test.slice(100, 160), replay=train.slice(0, 30), margin=-1)
        assert "\n" not in str(said.value)
        assert vars(model).keys() == before.keys()
        assert all(vars(model)[name] is value for name, value in before.items())
        model.save(tmp_path / "after")
        manifests = [json.loads((tmp_path / name / "model.json").read_text()) for name in ("before", "after")]
        assert manifests[0] == manifests[1]

    def test_labels_go_and_become_another(self, fitted: Model, planted: tuple[Dataset, Dataset, object]) -> None:
        needs_update(type(fitted))
        often = fitted.labels.strings("key", np.argsort(-fitted.label_counts)[:3])
        model = copy.copy(fitted).update(
            planted[1].slice(0, 30), replay=planted[0].slice(0, 30), retire=often[:1], merge={often[1]: often[2]}
        )
        assert model.labels.keys == [key for key in fitted.labels.keys if key not in often[:2]]
        answer = model.predict(documents_of(type(fitted), planted[1]), len(model.labels))
        assert set().union(*answer.keys()) <= set(model.labels.keys)
        assert often[2] in set().union(*model.predict(documents_of(type(fitted), planted[1]), 5).keys())

    def test_mistakes_get_one_line(self, kind: type[Model], fitted: Model) -> None:
        if "update" not in kind.capabilities:
            with pytest.raises(UnsupportedError) as said:
                fitted.update(["a text"], [["a"]])
            able = "Models that can are marked 'update' in: xmtc models"
            assert str(said.value) == f"{kind.name} cannot be updated. {able}"
            return
        key = fitted.labels.key(0)
        before = fitted.history
        for error, message, action in (
            (NotFittedError, "is not trained yet", lambda: kind().update(["a text"], [["a"]])),
            (DataError, "^new documents require labels", lambda: fitted.update(["a text"])),
            (DataError, "^validation documents require labels", lambda: fitted.update(["a"], [["a"]], valid=["a"])),
            (DataError, "^replayed documents require labels", lambda: fitted.update(["a"], [["a"]], replay=["a"])),
            (DataError, "^nothing to update: pass new documents", lambda: fitted.update()),
            (DataError, "1 documents but 2 label rows", lambda: fitted.update(["a"], [["a"], ["b"]])),
            (DataError, "'nobody' cannot be retired: it is not among", lambda: fitted.update(retire=["nobody"])),
            (DataError, "'nobody' cannot be merged: it is not among", lambda: fitted.update(merge={"nobody": key})),
            (UnsupportedError, "text.*features", lambda: fitted.update(np.ones((2, 3)), [["a"], ["b"]])),
        ):
            with pytest.raises(error, match=message) as said:
                action()  # type: ignore[no-untyped-call]
            assert "\n" not in str(said.value)
        assert fitted.history is before

    def test_features(self, kind: type[Model], planted: tuple[Dataset, Dataset, object]) -> None:
        needs_update(kind)
        if "features" not in kind.capabilities:
            pytest.skip("takes no features")
        train, test, _ = planted
        rows, labels = as_features(train), train.labels
        assert labels is not None
        model = built(kind, **briefly(kind)).fit(rows[:200], labels[:200])
        with pytest.raises(DataError, match=r"the model was trained on 3,000 features. Got a matrix with 7 columns."):
            model.update(np.ones((2, 7)), [["1"], ["2"]])
        with pytest.raises(UnsupportedError, match=r"this model was trained on features. Got text for the update."):
            model.update(["a text"], [["1"]])
        model.update(rows[200:300], labels[200:300], replay=(rows[:50], labels[:50]))
        assert model.training["documents"] == 300
        assert len(model.labels) == 60
        assert model.predict(as_features(test), 3).labels.shape == (200, 3)


class TestSettings:
    def test_unknown_setting(self, kind: type[Model]) -> None:
        with pytest.raises(ConfigError, match="has no setting 'no_such_thing'"):
            kind(no_such_thing=1)

    def test_params_round_trip(self, kind: type[Model]) -> None:
        model = kind()
        assert repr(kind(**model.get_params(deep=False))) == repr(model)
        for key, value in model.get_params(deep=True).items():
            model.set_params(**{key: value})
        assert to_mapping(model.config) == to_mapping(kind().config)

    def test_every_setting_has_a_sentence(self, kind: type[Model]) -> None:
        from xmtc.core.config import table

        for row in table(kind.Config()):
            assert row.sentence.endswith("."), row.name


def test_registry_is_alphabetical() -> None:
    assert list(MODELS) == sorted(MODELS)


def test_a_larger_corpus_with_rare_labels() -> None:
    """Labels that occur once in training are learnt too: their own words are there."""
    train, test, _ = planted_split(1500, 300, labels=800, seed=2, noise=0.0)
    model = model_class("one_vs_all")(text__min_df=1).fit(train)  # their words occur once as well
    once = np.flatnonzero(model.label_counts == 1)
    assert len(once) > 20
    truth = align_labels(test, model.labels)[0][:, once]
    everything = model.predict(test, k=20)
    hits = sum(label in everything.labels[row] for row in range(len(test)) for label in once[truth[[row]].indices])
    assert hits / truth.nnz > 0.7
