"""Whole vocabularies: which labels a model keeps, what it says about the others, and updates by a vocabulary."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.command_line import call, mistake
from tests.support.name_model import NameMatch
from xmtc import Consensus, Knn, Lexical, OneVsAll, Parabel, Popularity, load
from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import DataError, UnsupportedError
from xmtc.core.progress import silent
from xmtc.core.registry import Entry
from xmtc.core.runtime import Runtime
from xmtc.data import read
from xmtc.data.dataset import as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.vocabularies import read_vocabulary
from xmtc.experiments.runs import _measured
from xmtc.experiments.suites import DataSpec
from xmtc.labels.hierarchy import Hierarchy
from xmtc.labels.vocabulary_filter import VocabularyFilter
from xmtc.models.base import Model
from xmtc.models.registry import MODELS
from xmtc.workflows.compare import compare
from xmtc.workflows.evaluate import evaluate_model
from xmtc.workflows.label_details import LabelDetails
from xmtc.workflows.models import describe_folder
from xmtc.workflows.requests import CompareRequest, ComparisonOptions
from xmtc.workflows.train import _fingerprint

TEXTS = ["milk and cheese", "bread and butter", "cheese"]
LABELS = [["l1"], ["l2"], ["l1"]]
ROWS = [
    {"key": "l0", "name": "wine", "alternatives": ["vino"], "parents": ["l3"]},
    {"key": "l1", "name": "cheese", "related": ["l0"], "notes": ["of milk"]},
    {"key": "l2", "name": "bread"},
    {"key": "l3", "name": "drinks", "scheme": "kitchen"},
    {"key": "old", "replaced_by": "l2"},
]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.jsonl"
    rows = [{"text": text, "labels": labels} for text, labels in zip(TEXTS, LABELS, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS.builtin, "name_match", Entry("tests.support.name_model:NameMatch"))


class TestRead:
    def test_all_labels_are_kept(self, train: Path, vocabulary: Path) -> None:
        dataset = read(train, vocabulary=vocabulary)
        assert dataset.whole_vocabulary
        assert dataset.label_index is not None
        assert dataset.label_index.keys == ["l0", "l1", "l2", "l3"]
        assert dataset.labels is not None
        assert dataset.labels.toarray().tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]]
        assert dataset.take([0]).whole_vocabulary

    def test_only_labels_of_documents(self, train: Path, vocabulary: Path) -> None:
        for dataset in (
            read(train, vocabulary=vocabulary).used_labels(),
            read(train, vocabulary=vocabulary, whole_vocabulary=False),
        ):
            assert not dataset.whole_vocabulary
            assert dataset.label_index is not None
            assert dataset.label_index.names == ["cheese", "bread"]
            assert dataset.labels is not None
            assert dataset.labels.toarray().tolist() == [[1, 0], [0, 1], [1, 0]]

    def test_rejected_labels_are_used(self, tmp_path: Path, vocabulary: Path) -> None:
        path = tmp_path / "r.jsonl"
        path.write_text('{"text": "t", "labels": ["l1"], "rejected": ["l3"]}\n')
        used = read(path, vocabulary=vocabulary).used_labels()
        assert used.label_index is not None
        assert used.label_index.keys == ["l1", "l3"]
        assert used.rejected is not None
        assert used.rejected.toarray().tolist() == [[0, 1]]


class TestFit:
    def test_labels_without_documents(self, train: Path, vocabulary: Path) -> None:
        dataset = read(train, vocabulary=vocabulary)
        named = NameMatch().fit(dataset)
        assert named.labels == dataset.label_index
        assert named.label_counts.tolist() == [0, 2, 1, 0]
        assert named.predict(["a glass of vino"], 1).pairs() == [[("wine", 1.0)]]
        assert named.training["vocabulary"] == {"labels": 4, "without_documents": 2}
        for other in (NameMatch(by_name=False).fit(dataset), Popularity().fit(dataset)):
            assert other.labels == LabelIndex.from_keys(
                ["l1", "l2"], ["cheese", "bread"], related=[["l0"], []], notes=[["of milk"], []]
            )
            assert other.label_counts.tolist() == [2, 1]
            assert other.training["vocabulary"] == {"labels": 4, "without_documents": 2}

    @pytest.mark.parametrize("form", ["path", "index"])
    def test_lists_and_a_vocabulary(self, vocabulary: Path, train: Path, form: str) -> None:
        given = vocabulary if form == "path" else read(train, vocabulary=vocabulary).label_index
        model = NameMatch().fit(TEXTS, LABELS, vocabulary=given)
        assert model.labels == read(train, vocabulary=vocabulary).label_index
        assert model.label_counts.tolist() == [0, 2, 1, 0]
        with pytest.raises(DataError, match=r"^label 'l9' is not in .*\. Add it, or remove it from the documents\.$"):
            NameMatch().fit(["t"], [["l9"]], vocabulary=given)

    def test_deprecated_labels_are_replaced(self, vocabulary: Path) -> None:
        assert Popularity().fit(["t"], [["old"]], vocabulary=vocabulary).labels.keys == ["l2"]

    def test_a_rejected_label_of_the_vocabulary(self, vocabulary: Path) -> None:
        given = {"rejected": [["l3"]], "complete": False, "vocabulary": vocabulary}
        assert len(NameMatch().fit(["t"], [["l1"]], **given).labels) == 4
        assert Popularity().fit(["t"], [["l1"]], **given).labels.keys == ["l1"]

    def test_columns_of_a_matrix_stay(self) -> None:
        model = Popularity().fit(np.eye(2), np.array([[0, 1, 0], [0, 1, 0]]))
        assert model.labels.keys == ["0", "1", "2"]  # columns are not a vocabulary
        assert "vocabulary" not in model.training


class TestUpdate:
    NEW = LabelIndex.from_keys(
        ["l4", "l1", "l2", "l0", "l3"],
        ["honey", "kaas", "l2", "wine", "drinks"],
        parents=[[], ["l3"], [], ["l3"], []],
        types=[[], ["t"], [], [], []],
    )

    def test_every_model_gets_new_names(self, vocabulary: Path) -> None:
        model = Knn().fit(TEXTS, LABELS, vocabulary=vocabulary)
        before = model.predict(TEXTS, 2)
        model.update(vocabulary=self.NEW)
        assert model.labels == LabelIndex.from_keys(
            ["l1", "l2"],
            ["kaas", "bread"],  # l2 has no name in the new vocabulary
            parents=[["l3"], []],
            related=[["l0"], []],  # the new vocabulary has no related labels and no notes at all
            notes=[["of milk"], []],
            types=[["t"], []],
        )
        after = model.predict(TEXTS, 2)
        assert after.labels.tolist() == before.labels.tolist()
        assert after.scores.tolist() == before.scores.tolist()
        assert model.training["vocabulary"] == {"labels": 5, "without_documents": 3}
        assert (model.history[-1]["vocabulary"], model.history[-1]["labels added"]) == (5, 0)

    def test_new_names_need_no_documents_for_replay(self, vocabulary: Path) -> None:
        model = OneVsAll(keep_replay=2, text={"min_df": 1}).fit(TEXTS, LABELS).update(vocabulary=vocabulary)
        assert model.history[-1]["replayed"] == 0
        assert model.replay is not None
        assert len(model.replay) == 2  # still stored
        assert model.labels.names == ["cheese", "bread"]

    def test_new_labels_without_documents(self, vocabulary: Path) -> None:
        model = NameMatch().fit(TEXTS, LABELS, vocabulary=vocabulary)
        model.update(["honey", "more cheese"], [["l4"], ["l1"]], vocabulary=self.NEW)
        assert model.labels.keys == ["l0", "l1", "l2", "l3", "l4"]
        assert model.label_counts.tolist() == [0, 3, 1, 0, 1]
        fresh = NameMatch().fit(TEXTS, LABELS).update(vocabulary=self.NEW)
        assert fresh.labels.keys == ["l1", "l2", "l4", "l0", "l3"]
        assert fresh.label_counts.tolist() == [2, 1, 0, 0, 0]
        assert fresh.predict(["honey"], 1).pairs() == [[("honey", 1.0)]]
        assert fresh.history[-1]["labels added"] == 3

    def test_documents_with_a_vocabulary(self, train: Path, vocabulary: Path) -> None:
        dataset = read(train, vocabulary=vocabulary)
        plain = Popularity().fit(["t"], [["l1"]]).update(dataset)
        assert plain.labels.names == ["cheese", "bread"]  # and no label without documents
        assert NameMatch().fit(["t"], [["l1"]]).update(dataset).labels.keys == ["l1", "l2", "l0", "l3"]

    def test_facts_that_an_update_outdates_are_dropped(self, vocabulary: Path) -> None:
        model = Popularity().fit(TEXTS, LABELS, vocabulary=vocabulary).update(["w"], [["l0"]])
        assert "vocabulary" not in model.training

    def test_models_that_cannot_be_updated(self, vocabulary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Popularity, "capabilities", frozenset({"text"}))
        model = Popularity().fit(TEXTS, LABELS).update(vocabulary=vocabulary)  # names need no training
        assert model.labels.names == ["cheese", "bread"]
        with pytest.raises(UnsupportedError, match="popularity cannot be updated"):
            model.update(TEXTS, LABELS, vocabulary=vocabulary)
        with pytest.raises(DataError, match=r"^nothing to update: .* or a vocabulary\.$"):
            model.update()


class TestEvaluate:
    def test_labels_that_can_be_predicted_by_name_are_not_dropped(self, tmp_path: Path, vocabulary: Path) -> None:
        path = tmp_path / "test.jsonl"
        path.write_text('{"text": "wine", "labels": ["l0"]}\n{"text": "cheese", "labels": ["l1", "l9"]}\n')
        test = read(path)
        model = NameMatch().fit(TEXTS, LABELS, vocabulary=vocabulary)
        counted, dropped = (evaluate_model(model, test, unknown_labels=how) for how in ("count", "drop"))
        for result in (counted, dropped):
            assert (result.unknown_labels, result.unknown_pairs, result.predictable_labels) == (2, 2, 1)
        assert counted.truth.nnz == 3
        assert dropped.truth.nnz == 2  # l9 is not in the vocabulary
        assert dropped.metrics["P@1"] == 1.0
        other = evaluate_model(Popularity().fit(TEXTS, LABELS, vocabulary=vocabulary), test, unknown_labels="drop")
        assert (other.unknown_labels, other.predictable_labels, other.truth.nnz) == (2, 0, 1)
        assert (counted.dropped_labels, dropped.dropped_labels, other.dropped_labels) == (0, 1, 2)

    @pytest.mark.usefixtures("_registered")
    def test_compared_models_have_the_same_true_labels(self, tmp_path: Path, vocabulary: Path) -> None:
        path = tmp_path / "test.jsonl"
        path.write_text('{"text": "wine", "labels": ["l0"]}\n{"text": "cheese", "labels": ["l1", "l9"]}\n')
        for model in (Popularity(), NameMatch()):
            model.fit(TEXTS, LABELS, vocabulary=vocabulary).save(tmp_path / model.name)
        folders = tmp_path / "popularity", tmp_path / "name_match"
        drop = ComparisonOptions(unknown_labels="drop")
        popularity, by_name = compare(CompareRequest(folders=folders, test=path, options=drop)).values()
        assert popularity.truth.nnz == by_name.truth.nnz == 2  # without l9
        assert (popularity.truth_keys, popularity.predictable_labels, by_name.predictable_labels) == (["l0"], 0, 1)
        assert (popularity.metrics["R@5"], by_name.metrics["R@5"]) == (0.5, 1.0)
        said = " ".join(call("compare", *folders, path, "--unknown-labels", "drop").out.split())
        assert "not in the training set: 2 (2 occurrences), 1 of them dropped, the others counted as missed" in said
        assert "documents: 2 (2 occurrences), 1 of them predictable by name, the others dropped" in said
        (alone,) = compare(CompareRequest(folders=folders[:1], test=path, options=drop)).values()
        assert (alone.truth.nnz, alone.truth_keys) == (1, [])

    def test_models_of_a_suite_have_the_same_true_labels(self, tmp_path: Path, vocabulary: Path) -> None:
        path = tmp_path / "test.jsonl"
        path.write_text('{"text": "wine", "labels": ["l0"]}\n{"text": "cheese", "labels": ["l1", "l9"]}\n')
        spec = DataSpec(train="train.jsonl", test="test.jsonl", unknown_labels="drop")
        for model in (Popularity(), NameMatch()):
            found = _measured(model.fit(TEXTS, LABELS, vocabulary=vocabulary), read(path), spec, silent)[0]
            assert (found.truth.nnz, found.dropped_labels, found.predictable_labels) == (1, 2, 0)


class TestBroaderLabelsWithoutDocuments:
    """energy > renewable > wind, solar; energy > coal: only wind, solar and coal have documents."""

    TEXTS = ("windy mills", "sunny roofs", "deep mines") * 2
    WORDS = ("wind", "solar", "coal") * 2
    ENERGY = LabelIndex.from_keys(
        ["energy", "renewable", "wind", "solar", "coal"],
        ["Energy", "Renewable energy", "Wind power", "Solar power", "Coal"],
        parents=[[], ["energy"], ["renewable"], ["renewable"], ["energy"]],
    )

    def trained(self) -> Knn:
        return Knn(neighbours=1).fit(list(self.TEXTS), [[word] for word in self.WORDS], vocabulary=self.ENERGY)

    def under(self, model: Knn, label: str) -> list[str]:
        mask = VocabularyFilter(under=(label,)).mask(model.labels)
        return model.labels.strings("key", np.flatnonzero(mask))

    def test_link_the_others(self, tmp_path: Path) -> None:
        model = self.trained()
        model.save(tmp_path / "knn")
        updated = load(tmp_path / "knn").update(vocabulary=self.ENERGY)
        updated.save(tmp_path / "updated")
        for each in (model, load(tmp_path / "knn"), updated, load(tmp_path / "updated")):
            assert each.labels.keys == ["wind", "solar", "coal"]
            assert self.under(each, "renewable") == self.under(each, "renewable energy") == ["wind", "solar"]
            assert self.under(each, "energy") == ["wind", "solar", "coal"]
            details = LabelDetails(each.labels, each.label_counts)([0, 2])
            assert [found["broader"] for found in details] == [["Renewable energy"], ["Energy"]]
            assert Hierarchy(each.labels).steps([0, 0], [1, 2], 4).tolist() == [2, 3]

    def test_removed_labels_link_others(self) -> None:
        """A label that is retired still connects the labels below it with those above."""
        texts, labels = [*self.TEXTS, "heat"], [*([word] for word in self.WORDS), ["renewable"]]
        model = Knn(neighbours=1).fit(texts, labels, vocabulary=self.ENERGY).update(retire=["renewable"])
        assert "renewable" not in model.labels.keys
        assert self.under(model, "energy") == model.labels.keys
        assert self.under(model, "renewable") == ["wind", "solar"]

    def test_all_models_are_evaluated_with_the_same_hierarchy(self) -> None:
        test = as_dataset(["windy mills"], [["solar"]])
        models = [self.trained(), OneVsAll().fit(list(self.TEXTS), [[w] for w in self.WORDS], vocabulary=self.ENERGY)]
        assert [model.predict(test, 1).names() for model in models] == [[["Wind power"]]] * 2
        found = [evaluate_model(model, test, hierarchy=True).metrics for model in models]
        assert found[0]["graphP@1"] == found[1]["graphP@1"] == pytest.approx(1 / 3)
        assert found[0]["hP@1"] == found[1]["hP@1"] == pytest.approx(2 / 3)


@pytest.mark.usefixtures("_registered")
class TestCommands:
    def test_train_says_what_becomes_of_unused_labels(self, tmp_path: Path, train: Path, vocabulary: Path) -> None:
        done = call("train", train, "--labels", vocabulary, "--model", "name_match", "--out", tmp_path / "m")
        line = "2 of 4 labels have no training documents; name_match can predict them by name."
        assert line in done.err.splitlines()
        done = call("train", train, "--labels", vocabulary, "--model", "popularity", "--out", tmp_path / "p")
        line = (
            "2 of 4 labels have no training documents; popularity cannot predict them. Use lexical, a linear model with"
        )
        assert f"{line} label_names such as parabel, or a consensus with one of them." in done.err.splitlines()
        off = ("--set", "label_names=0", "--set", "text.min_df=1")
        done = call("train", train, "--labels", vocabulary, "--model", "parabel", *off, "--out", tmp_path / "o")
        assert "parabel cannot predict them with label_names = 0. Leave out this setting." in done.err
        assert "training documents" not in call("train", train, "--model", "knn", "--out", tmp_path / "k").err

    def test_the_folder(self, tmp_path: Path, train: Path, vocabulary: Path) -> None:
        call("train", train, "--labels", vocabulary, "--model", "name_match", "--out", tmp_path / "m")
        model = load(tmp_path / "m")
        assert model.labels == read(train, vocabulary=vocabulary).label_index
        found = describe_folder(tmp_path / "m")
        assert found["label_facts"] == {
            "without_documents": 2,
            "alternative_names": 1,
            "with_alternatives": 1,
            "with_broader": 1,
            "with_related": 1,
            "with_notes": 1,
        }
        shown = {tuple(line.split()) for line in call("models", tmp_path / "m").out.splitlines()}
        assert ("without", "training", "documents", "2") in shown
        assert ("with", "broader", "labels", "1") in shown
        call("train", train, "--labels", vocabulary, "--model", "popularity", "--out", tmp_path / "p")
        said = " ".join(call("models", tmp_path / "p").out.split())
        assert "labels of the vocabulary 4, 2 without training documents" in said

    def test_update_with_only_a_vocabulary(self, tmp_path: Path, train: Path, vocabulary: Path) -> None:
        for name, keys in (("name_match", ["l1", "l2", "l4"]), ("popularity", ["l1", "l2"])):
            out = tmp_path / name
            call("train", train, "--model", name, "--out", out)
            (tmp_path / "new.jsonl").write_text('{"key": "l1", "name": "Käse"}\n{"key": "l4", "name": "Honig"}\n')
            done = call("update", out, "--labels", tmp_path / "new.jsonl")
            parts = ["0 new documents", "1 new label", "1 label updated"]
            if name == "popularity":
                parts = ["0 new documents", "1 label updated", "1 label of the vocabulary left out"]
            assert f": {', '.join(parts)}, " in done.out
            unchecked = "the update was not checked: pass --valid FILE"
            assert (unchecked in done.err.splitlines()) == (name == "name_match")  # nothing to check otherwise
            (header,) = [line for line in call("models", out).out.splitlines() if "new labels" in line]
            assert "vocabulary" in header.split()
            model = load(out)
            assert model.labels.keys == keys
            assert model.labels.names == ["Käse", "l2", "Honig"][: len(keys)]
            assert f"1 of the model's {len(keys) - (name == 'name_match')} labels, such as 'l2'. They stay" in done.err
            assert "already used these files" in mistake("update", out, "--labels", tmp_path / "new.jsonl")
            call("update", out, "--labels", vocabulary)
            assert load(out).labels.names[:2] == ["cheese", "bread"]

    def test_the_same_documents_with_another_vocabulary(self, tmp_path: Path, train: Path, vocabulary: Path) -> None:
        call("train", train, "--model", "popularity", "--out", tmp_path / "m")
        call("update", tmp_path / "m", train, "--labels", vocabulary)
        (tmp_path / "new.jsonl").write_text(vocabulary.read_text().replace("cheese", "Käse"))
        said = mistake("update", tmp_path / "m", train, "--labels", tmp_path / "new.jsonl")
        assert "already used these documents. Pass --labels without documents, or --force" in said
        call("update", tmp_path / "m", "--labels", tmp_path / "new.jsonl")
        assert load(tmp_path / "m").labels.names == ["Käse", "bread"]

    def test_labels_that_this_update_removes_are_not_missing(
        self, tmp_path: Path, train: Path, vocabulary: Path
    ) -> None:
        call("train", train, "--model", "popularity", "--out", tmp_path / "m")
        (tmp_path / "new.jsonl").write_text('{"key": "l1", "name": "Käse"}\n')
        (tmp_path / "old.txt").write_text("l2\n")
        for options, is_noted in ((["--retire", tmp_path / "old.txt"], False), ([], True)):
            done = call("update", tmp_path / "m", "--labels", tmp_path / "new.jsonl", *options, "--out", tmp_path / "n")
            assert ("They stay in the model" in done.err) == is_noted
            assert load(tmp_path / "n").labels.keys == ["l1", "l2"][: 1 + is_noted]
            shutil.rmtree(tmp_path / "n")

    def test_a_vocabulary_of_another_model_is_refused(self, tmp_path: Path, train: Path) -> None:
        call("train", train, "--model", "name_match", "--out", tmp_path / "m")
        other = tmp_path / "other.jsonl"
        other.write_text('{"key": "x", "name": "X"}\n{"key": "y", "name": "Y"}\n')
        said = mistake("update", tmp_path / "m", "--labels", other)
        line = "none of its 2 labels is among the model's 2 labels. Check the keys, or use --force."
        assert said == f"{other}: {line}"
        call("update", tmp_path / "m", "--labels", other, "--force")
        assert load(tmp_path / "m").labels.keys == ["l1", "l2", "x", "y"]

    def test_unused_labels_of_a_feature_matrix_cannot_be_predicted(self, tmp_path: Path) -> None:
        (tmp_path / "train.svm").write_text("3 3 3\n0 0:1\n1 1:1\n0,1 2:1\n")
        rows = [{"key": str(key), "name": name} for key, name in enumerate(("one", "two", "three"))]
        (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
        given = ("--labels", tmp_path / "labels.jsonl", "--model", "one_vs_all", "--out", tmp_path / "m")
        done = call("train", tmp_path / "train.svm", *given)
        line = "1 of 3 labels has no training documents; one_vs_all cannot predict it from a feature matrix."
        assert f"{line} Train on texts." in done.err.splitlines()

    def test_unused_labels_of_a_consensus(self, tmp_path: Path, train: Path, vocabulary: Path) -> None:
        call("train", train, "--labels", vocabulary, "--model", "name_match", "--out", tmp_path / "m")
        members = ("--set", f'members=["{tmp_path / "m"}"]', "--set", "combine=noisy-or", "--set", "calibrate=none")
        done = call(
            "train", train, "--model", "consensus", *members, "--out", tmp_path / "c", "--json=" + str(tmp_path / "j")
        )
        assert "2 of 4 labels have no training documents; consensus can predict them by name." in done.err.splitlines()
        assert json.loads((tmp_path / "j").read_text())["labels_without_documents"] == 2

    def test_consensus(self, tmp_path: Path, vocabulary: Path) -> None:
        for model in (NameMatch(), Popularity()):
            model.fit(TEXTS, LABELS, vocabulary=vocabulary).save(tmp_path / model.name)
        members = [str(tmp_path / name) for name in ("name_match", "popularity")]
        settings = {"combine": "noisy-or", "calibrate": "none"}
        both = Consensus(members=members, **settings).fit(TEXTS, LABELS, vocabulary=vocabulary)
        assert both.uses_label_names
        assert both.labels.keys == ["l0", "l1", "l2", "l3"]
        assert both.training["vocabulary"] == {"labels": 4, "without_documents": 2}
        both.update(vocabulary=LabelIndex.from_keys(["l0", "l9"], ["wijn", "honig"]))
        both.save(tmp_path / "both")
        again = load(tmp_path / "both")
        assert again.labels.names == ["wijn", "cheese", "bread", "drinks", "honig"]
        assert [name for name, _ in again.tag("honig", 1)] == ["honig"]
        one = Consensus(members=members[1:], **settings).fit(TEXTS, LABELS)
        assert not one.uses_label_names
        assert one.update(vocabulary=vocabulary).labels.names == ["cheese", "bread"]

    def test_a_consensus_adds_only_labels_that_a_member_adds(self, tmp_path: Path) -> None:
        """A model with label_names=auto uses names, but not if its labels had none in training."""
        model = OneVsAll().fit(TEXTS, LABELS)
        assert model.uses_label_names
        assert not model.adds_unseen_labels
        model.save(tmp_path / "member")
        alone = Consensus(members=[str(tmp_path / "member")], combine="noisy-or", calibrate="none").fit(TEXTS, LABELS)
        alone.update(vocabulary=LabelIndex.from_keys(["l1", "l9"], ["cheese", "honey"]))
        assert alone.labels.names == ["cheese", "l2"]

    @pytest.mark.parametrize("kind", [Knn, OneVsAll])
    def test_an_update_exchanges_replaced_labels(self, tmp_path: Path, kind: type[Model]) -> None:
        """As training does. Labels outside the vocabulary are kept."""
        path = tmp_path / "now.jsonl"
        path.write_text(
            '{"key": "l1", "name": "cheese"}\n{"key": "l4", "name": "honey"}\n{"key": "old", "replaced_by": "l4"}\n'
            '{"key": "older", "replaced_by": "old"}\n{"key": "quark", "replaced_by": "l1"}\n'
        )
        model = kind().fit(TEXTS, LABELS)
        given = [["old", "l5"], ["older", "quark"]]
        model.update(["honey and jam", "honey and cheese"], given, vocabulary=path, force=True)
        assert model.labels.keys == ["l1", "l2", "l5", "l4"]
        assert model.labels.names == ["cheese", "l2", "l5", "honey"]
        assert model.label_counts.tolist() == [3, 1, 1, 2]
        assert [name for name, _ in model.tag("honey", 1)] == ["honey"]

    def test_describe(self, train: Path, vocabulary: Path) -> None:
        said = " ".join(call("data", "describe", train, "--labels", vocabulary).out.split())
        assert "labels in use 2" in said
        assert "labels without documents 2" in said
        assert "labels without documents" not in call("data", "describe", train).out

    def test_convert_writes_only_labels_of_documents(self, tmp_path: Path, train: Path, vocabulary: Path) -> None:
        call("data", "convert", train, tmp_path / "out.json", "--to", "lf", "--labels", vocabulary)
        rows = [json.loads(line) for line in (tmp_path / "lbl.json").read_text().splitlines()]
        assert [row["uid"] for row in rows] == ["l1", "l2"]


def test_lexical_says_that_its_scorer_learnt_nothing(train: Path, vocabulary: Path, tmp_path: Path) -> None:
    """Too few documents, or names that none of them contains."""
    done = call("train", train, "--model", "lexical", "--labels", vocabulary, "--out", tmp_path / "few")
    assert "they are scored by how much of the name is in the text. Use more documents" in done.err
    odd = tmp_path / "odd.tsv"
    odd.write_text("l1\tqqzz\nl2\txxjj\n")
    done = call("train", train, "--model", "lexical", "--labels", odd, "--out", tmp_path / "odd")
    assert "no label name occurs in or resembles the texts" in done.err
    assert "all matches have the same score" not in done.err


def test_members_of_a_consensus_do_not_add_what_it_has_removed(tmp_path: Path) -> None:
    """A member that never had the labels would take them for new ones."""
    words = ["river", "stone", "glass", "metal", "paper", "garden"]
    listed = LabelIndex.from_keys([f"k{number}" for number in range(len(words))], words)
    texts = [f"the {words[i % 3]} and the {words[(i + 1) % 3]}" for i in range(40)]
    labels = [[f"k{i % 3}", f"k{(i + 1) % 3}"] for i in range(40)]
    Lexical(documents=20).fit(texts, labels, vocabulary=listed).save(tmp_path / "names")
    Parabel(label_names=2.0, trees=1).fit(texts, labels).save(tmp_path / "tree")  # without k3 to k5
    members = [str(tmp_path / name) for name in ("names", "tree")]
    model = Consensus(members=members, calibrate="none", combine="noisy-or").fit(texts, labels)
    model.update(merge={"k5": "k4"}, retire=["k3"], vocabulary=listed, force=True)
    model.save(tmp_path / "both")
    for member in (load(tmp_path / "both").update(vocabulary=listed.take([0, 1, 2, 4, 5])), model):
        assert member.labels.keys == ["k0", "k1", "k2", "k4"]
        assert member.predict(["a paper garden"], 2).keys()[0][0] == "k4"


@pytest.mark.parametrize("wrong", [["x", "y"], {"x": "X"}, 5])
def test_what_is_no_vocabulary(wrong: Any) -> None:
    with pytest.raises(DataError, match=r"^'vocabulary' must be a LabelIndex, a LabelVocabulary or the path of a file"):
        Knn().fit(TEXTS, LABELS, vocabulary=wrong)


def test_a_vocabulary_that_was_read(vocabulary: Path) -> None:
    known = read_vocabulary(vocabulary)
    model = Knn().fit(TEXTS, [["l1"], ["old"], ["l1"]], vocabulary=known)
    assert model.labels.names == ["cheese", "bread"]
    assert model.update(vocabulary=known).labels.names == ["cheese", "bread"]


@pytest.mark.parametrize("model", [Lexical(), Parabel(), Knn()], ids=lambda model: model.name)
def test_an_update_by_names_alone_changes_nothing_else(model: Model, vocabulary: Path, tmp_path: Path) -> None:
    rows = [{**row, "labels": labels} for row, labels in zip([{"text": text} for text in TEXTS], LABELS, strict=True)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = model.fit(read(tmp_path / "t.jsonl", vocabulary=vocabulary))
    before = model.labels.table.to_pylist()
    names = tmp_path / "names.tsv"
    names.write_text("l1\tCheeses\nl2\tbread\n")
    model.update(vocabulary=names)
    expected = [{**row, "name": "Cheeses"} if row["key"] == "l1" else row for row in before]
    assert model.labels.table.to_pylist() == expected
    assert model.history[-1]["labels updated"] == 1  # bread is what it was


def test_names_are_input(train: Path, vocabulary: Path) -> None:
    """Unfinished training goes on only with the same names, of whatever model."""
    one = read(train, vocabulary=vocabulary)
    assert one.label_index is not None
    other = replace(one, label_index=LabelIndex.from_keys(one.label_index.keys, ["vin", "fromage", "pain", "boissons"]))
    for model in (Parabel(label_names=0, cluster_names=1.0), Lexical(), Knn()):
        first, second = (_fingerprint(model, documents, None, Runtime()) for documents in (one, other))
        assert first != second
        assert first == _fingerprint(model, read(train, vocabulary=vocabulary), None, Runtime())


def test_an_update_in_another_language_is_another_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unfinished parts of one may not go into the other: the file is the same, the names are not."""
    seen: list[dict[str, Any]] = []
    begin = Workspace.go_on_or_begin
    monkeypatch.setattr(Workspace, "go_on_or_begin", lambda self, given: (seen.append(given), begin(self, given))[1])
    Popularity().fit(TEXTS, LABELS).save(tmp_path / "m")
    (tmp_path / "v.csv").write_text("uri,label_en,label_fr\nl1,cheese,fromage\nl2,bread,pain\n")
    for language in ("en", "fr", "en"):
        command = ("update", tmp_path / "m", "--labels", tmp_path / "v.csv", "--language", language)
        call(*command, "--out", tmp_path / "new", "--force")
    english, french, again = seen
    assert english == again
    assert {name for name in english if english[name] != french[name]} == {"vocabulary"}
