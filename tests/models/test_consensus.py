"""Consensus of models and of files of predictions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import xmtc
from xmtc.artifact.dependencies import Link
from xmtc.artifact.store import verify_folder
from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ConfigError, DataError, ModelFormatError, UnsupportedError
from xmtc.data.dataset import Dataset, align_labels, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.metrics import ndcg
from xmtc.models.base import Model
from xmtc.models.consensus import Consensus
from xmtc.models.knn import Knn
from xmtc.models.parabel import Parabel
from xmtc.models.popularity import Popularity


def written(path: Path, documents: dict[str, dict[str, float]]) -> str:
    """A file of predictions."""
    rankings = [[(key, None, score) for key, score in labels.items()] for labels in documents.values()]
    TopK.from_rankings(list(documents), rankings).write(path)
    return str(path)


def named(ids: list[str], labels: list[list[str]]) -> Dataset:
    found = as_dataset(["a text"] * len(ids), labels)
    return Dataset(found.fields, None, found.labels, found.label_index, pa.chunked_array([ids]))


@pytest.fixture
def two_files(tmp_path: Path) -> list[str]:
    """Two members that number labels in another order; each knows a label that the other does not."""
    first = {"x": {"a": 0.6, "b": 0.2}, "y": {"b": 0.9, "only first": 0.4}}
    second = {"y": {"only second": 0.7, "b": 0.5, "a": 0.1}, "x": {"b": 0.5, "a": 0.5}}
    return [written(tmp_path / "first.jsonl", first), written(tmp_path / "second.jsonl", second)]


SPARSE = sp.csr_array(np.ones((400, 3), dtype=np.float32))
VALID = named(["x", "y"], [["a"], ["b", "only second"]])


def scores_of(model: Model, documents: Any) -> list[dict[str, float]]:
    answer = model.predict(documents, 9)
    pairs = zip(answer.keys(), answer.pairs(), strict=True)
    return [{key: pytest.approx(score) for key, (_, score) in zip(keys, row, strict=True)} for keys, row in pairs]


class TestByHand:
    def test_noisy_or_goes_by_key(self, two_files: list[str]) -> None:
        model = Consensus(members=two_files, combine="noisy-or", calibrate="none").fit(VALID)
        assert sorted(model.labels.keys) == ["a", "b", "only first", "only second"]
        assert scores_of(model, VALID) == [
            {"a": 0.8, "b": 0.6},  # 1 − 0.4 · 0.5, 1 − 0.8 · 0.5
            {"b": 0.95, "only second": 0.7, "only first": 0.4, "a": 0.1},
        ]

    def test_average_with_weights(self, two_files: list[str]) -> None:
        model = Consensus(members=two_files, combine="average", weights=[3, 1], calibrate="none").fit(VALID)
        assert scores_of(model, VALID)[0] == {"a": 0.575, "b": 0.275}

    def test_scores_are_those_of_predict(self, two_files: list[str]) -> None:
        model = Consensus(members=two_files, combine="noisy-or", calibrate="none").fit(VALID)
        given = model.score_labels(VALID, [["a", "only second"], ["only second", "b"]])
        np.testing.assert_allclose(given, [[0.8, 0.0], [0.7, 0.95]], atol=1e-6)

    def test_depth_cuts_what_members_put_forward(self, two_files: list[str]) -> None:
        model = Consensus(members=two_files, combine="noisy-or", calibrate="none", depth=1).fit(VALID)
        assert scores_of(model, VALID)[1] == {"b": 0.9, "only second": 0.7}

    def test_allow(self, two_files: list[str]) -> None:
        model = Consensus(members=two_files, combine="noisy-or", calibrate="none").fit(VALID)
        answer = model.predict(VALID, 3, allow=["only second"])
        assert answer.keys() == [[], ["only second"]]
        assert model.predict(VALID, 3, allow=["only second", "a"]).keys() == [["a"], ["only second", "a"]]

    def test_files_of_parts_and_parquet(self, two_files: list[str], tmp_path: Path) -> None:
        TopK.read(two_files[0]).write(tmp_path / "first.parquet")
        both = [Consensus(members=[first, two_files[1]], calibrate="none", combine="noisy-or").fit(VALID)
                for first in (two_files[0], str(tmp_path / "first.parquet"))]  # fmt: skip
        assert scores_of(both[0], VALID) == scores_of(both[1], VALID)


class TestFiles:
    def test_documents_that_the_file_lacks(self, two_files: list[str]) -> None:
        model = Consensus(members=two_files, combine="noisy-or", calibrate="none").fit(VALID)
        with pytest.raises(
            DataError, match=r"first.jsonl: no prediction for 1 of 2 documents, such as 'z'. This member is a file"
        ):
            model.predict(named(["x", "z"], [["a"], ["a"]]))

    def test_places_in_a_file_are_no_ids(self, tmp_path: Path) -> None:
        member = written(tmp_path / "numbered.jsonl", {"0": {"a": 0.5}, "1": {"a": 0.5}})
        with pytest.raises(
            DataError, match=r"numbered.jsonl: identifies documents only by their position .* Give the documents ids"
        ):
            Consensus(members=[member], combine="noisy-or", calibrate="none").fit(VALID)

    def test_a_document_twice(self, tmp_path: Path) -> None:
        member = Path(written(tmp_path / "twice.jsonl", {"x": {"a": 0.5}, "y": {"b": 0.5}}))
        member.write_text(member.read_text() + member.read_text().splitlines()[0])
        with pytest.raises(DataError, match=r"twice.jsonl: document 'x' occurs twice"):
            Consensus(members=[str(member)], combine="noisy-or", calibrate="none").fit(VALID)

    def test_scores_that_are_no_probabilities(self, tmp_path: Path, two_files: list[str]) -> None:
        member = written(tmp_path / "votes.jsonl", {"x": {"a": 7.5, "b": 3}, "y": {"b": 2}})
        with pytest.raises(DataError, match=r"votes.jsonl: score 7.5 is not a probability, .* Set calib"):
            Consensus(members=[*two_files, member], combine="noisy-or", calibrate="none").fit(VALID)

    def test_labels_in_other_words(self, two_files: list[str]) -> None:
        with pytest.raises(
            DataError,
            match=r"first.jsonl: the documents and the model have no label in common: 'Q1' .*, 'a' in the model",
        ):
            Consensus(members=two_files, combine="noisy-or", calibrate="none").fit(named(["x", "y"], [["Q1"], ["Q2"]]))

    def test_counts_of_training_are_not_known(self, two_files: list[str]) -> None:
        model = Consensus(members=two_files, combine="noisy-or", calibrate="none").fit(VALID)
        assert model.counted() is None

    def test_names_come_from_models(self, tmp_path: Path) -> None:
        index = LabelIndex.from_keys(["a", "b"], ["Apple", "Bee"])
        Popularity().fit(Dataset(VALID.fields, None, align_labels(VALID, index)[0][:, :2], index)).save(tmp_path / "m")
        file = written(tmp_path / "f.jsonl", {"x": {"b": 0.6, "c": 0.2}, "y": {"a": 0.9}})
        model = Consensus(members=[file, str(tmp_path / "m")], combine="noisy-or", calibrate="none").fit(VALID)
        assert dict(zip(model.labels.keys, model.labels.names, strict=True)) == {"a": "Apple", "b": "Bee", "c": "c"}


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"members": ["a", "b"], "weights": [1, 2]}, "'weights' of consensus must be empty"),
            ({"members": ["a", "b"], "combine": "average", "weights": [1]}, "one per member"),
            ({"members": ["a", "b"], "combine": "average", "weights": [0, 0]}, "at least one > 0"),
            ({"combine": "vote"}, "must be one of learnt, stacked, noisy-or, average"),
            ({"depth": 0}, "must be an integer ≥ 1"),
        ],
    )
    def test_refused(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            Consensus(**settings)

    def test_no_members(self) -> None:
        with pytest.raises(ConfigError, match=r"consensus has no members. Pass model folders"):
            Consensus().fit(VALID)

    def test_one_place_under_two_names(self, two_files: list[str]) -> None:
        folder, name = Path(two_files[0]).parent, Path(two_files[0]).name
        with pytest.raises(ConfigError, match=r"must be distinct. Got .*first.jsonl twice"):
            Consensus(members=[two_files[0], f"{folder}/./{name}"]).fit(VALID)

    def test_validation_documents_beside(self, two_files: list[str]) -> None:
        with pytest.raises(ConfigError, match="trained on the validation set only"):
            Consensus(members=two_files, combine="noisy-or", calibrate="none").fit(VALID, valid=VALID)

    def test_members_that_know_nothing(self, tmp_path: Path) -> None:
        member = written(tmp_path / "empty.jsonl", {"x": {}, "y": {}})
        with pytest.raises(DataError, match="no member has any labels"):
            Consensus(members=[member], combine="noisy-or", calibrate="none").fit(VALID)

    def test_too_few_documents_to_learn_from(self, two_files: list[str]) -> None:
        with pytest.raises(DataError, match=r"labels among the top predictions are too few .* or set combine=noisy-or"):
            Consensus(members=two_files, calibrate="none").fit(VALID)

    def test_a_folder_that_is_no_member(self, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        with pytest.raises(DataError, match="other: neither a model folder nor a folder of predictions"):
            Consensus(members=[str(tmp_path / "other")]).fit(VALID)

    def test_a_member_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="nowhere: no such file or folder"):
            Consensus(members=[str(tmp_path / "nowhere")]).fit(VALID)


@pytest.fixture(scope="module")
def members(planted: tuple[Dataset, Dataset, object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of two models that are good at different things: each was trained on other documents."""
    folder, train = tmp_path_factory.mktemp("members"), planted[0]
    Parabel(trees=1, label_names=0).fit(train.slice(0, 150)).save(folder / "tree")
    Knn(neighbours=10, power=2).fit(train.slice(150, 300)).save(folder / "near")
    Popularity().fit(train).save(folder / "often")
    return folder


@pytest.fixture(scope="module")
def valid(planted: tuple[Dataset, Dataset, object]) -> Dataset:
    return planted[0].slice(400, 800)


def both(members: Path) -> list[str]:
    return [str(members / "tree"), str(members / "near")]


class TestModels:
    @pytest.mark.parametrize("combine", ["learnt", "noisy-or", "average"])
    def test_beats_its_members(
        self, members: Path, valid: Dataset, planted: tuple[Dataset, Dataset, object], combine: str
    ) -> None:
        test = planted[1]
        model = Consensus(members=both(members), combine=combine).fit(valid)
        ours = ndcg(model.predict(test), align_labels(test, model.labels)[0], 5)
        for name in ("tree", "near"):
            member = xmtc.load(members / name)
            assert ours > ndcg(member.predict(test), align_labels(test, member.labels)[0], 5) + 0.005

    def test_learnt_weights_are_calibrated(
        self, members: Path, valid: Dataset, planted: tuple[Dataset, Dataset, object]
    ) -> None:
        answer = Consensus(members=both(members)).fit(valid).predict(planted[1])
        truth = align_labels(planted[1], answer.index)[0]
        found = xmtc.metrics.reliability(answer, truth)
        assert found is not None
        assert found.error < 0.05

    def test_a_useless_member_does_no_harm_when_weights_are_learnt(
        self, members: Path, valid: Dataset, planted: tuple[Dataset, Dataset, object]
    ) -> None:
        test = planted[1]
        figures = []
        for places in (both(members), [*both(members), str(members / "often")]):
            model = Consensus(members=places).fit(valid)
            figures.append(ndcg(model.predict(test), align_labels(test, model.labels)[0], 5))
        assert figures[1] > figures[0] - 0.01

    def test_each_member_runs_once_a_document(
        self, members: Path, valid: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = Consensus(members=both(members)).fit(valid)
        asked: list[int] = []
        real = Model.predict

        def watched(self: Model, documents: Any, *args: Any, **how: Any) -> TopK:
            if self is not model:
                asked.append(len(documents))
            return real(self, documents, *args, **how)

        monkeypatch.setattr(Model, "predict", watched)
        model.predict(valid.slice(0, 30))
        assert asked == [30, 30]

    def test_complete_asks_members_about_what_others_found(self, members: Path, valid: Dataset) -> None:
        """With it, each label's noisy-or is that of the members' own scores, whoever put it forward."""
        settings = {"members": both(members), "combine": "noisy-or", "calibrate": "none", "depth": 3}
        answer = Consensus(**settings, complete=True).fit(valid).predict(valid, 6)
        incomplete = Consensus(**settings).fit(valid).predict(valid, 6)
        expected = np.ones(answer.labels.shape)
        for name in ("tree", "near"):
            member = xmtc.load(members / name)
            numbers = np.append(member.labels.ids(answer.index.keys), -1)[answer.labels]
            scores = member.score_labels(valid, numbers)
            expected *= 1 - np.where(scores > -np.inf, scores, 0)
        filled = answer.labels >= 0
        np.testing.assert_allclose(answer.scores[filled], (1 - expected)[filled], atol=1e-6)
        assert (incomplete.scores[filled] <= answer.scores[filled] + 1e-6).all()
        assert (incomplete.scores[filled] < answer.scores[filled] - 1e-6).any()

    def test_explain_names_each_share(self, members: Path, valid: Dataset) -> None:
        for combine in ("learnt", "noisy-or", "average"):
            model = Consensus(members=both(members), combine=combine).fit(valid)
            text = valid.text()[0].as_py()
            best = model.predict([text], 1).names()[0][0]
            found = model.explain(text, best)
            assert found.kind == "members"
            assert {item.model for item in found.evidence} == {"tree", "near"}
            assert sum(item.share for item in found.evidence) == pytest.approx(1)
            assert all(item.share >= 0 for item in found.evidence)
            assert all(0 <= item.score <= 1 for item in found.evidence)

    def test_explain_with_a_file(self, two_files: list[str]) -> None:
        model = Consensus(members=two_files, combine="noisy-or", calibrate="none").fit(VALID)
        with pytest.raises(DataError, match=r"first.jsonl: is a file of predictions that matches documents by id"):
            model.explain("a text", "a")
        with pytest.raises(DataError, match=r"matches documents by id, but these documents have none. Add ids"):
            model.predict(["a text", "another"])

    def test_counts_come_from_the_members(self, members: Path, valid: Dataset) -> None:
        model = Consensus(members=[str(members / "often"), str(members / "tree")]).fit(valid)
        counts, documents = model.counted() or (np.zeros(0), 0)
        assert documents == 800
        assert (counts == xmtc.load(members / "often").label_counts[: len(counts)]).all()

    def test_goes_on_with_answers_that_were_found(
        self, members: Path, valid: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        work = Workspace(tmp_path / "work")
        work.begin({}, resume=False)
        whole = Consensus(members=both(members)).fit(valid, workspace=work)

        def never(*_: Any, **__: Any) -> None:
            raise AssertionError("asked again")

        monkeypatch.setattr(Knn, "_predict", never)
        monkeypatch.setattr(Parabel, "_predict", never)
        again = Consensus(members=both(members)).fit(valid, workspace=work)
        monkeypatch.undo()
        assert (again.predict(valid).scores == whole.predict(valid).scores).all()

    @pytest.mark.parametrize("combine", ["learnt", "noisy-or", "average"])
    def test_candidates_rank_as_the_answer_does(self, members: Path, valid: Dataset, combine: str) -> None:
        """All labels as candidates give the answer first: what no member puts forward is behind it."""
        for places in (both(members), both(members)[:1]):
            model = Consensus(members=places, combine=combine, depth=5).fit(valid)
            everything = np.tile(np.arange(len(model.labels)), (len(valid), 1))
            free, asked = model.predict(valid, 3), model.predict(valid, 3, candidates=everything)
            np.testing.assert_allclose(free.scores, asked.scores, atol=1e-6)

    def test_a_member_that_changed_before_resuming(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        """Answers are numbered by the labels of all members, so those of one member are of no use with another."""
        for name in ("tree", "near"):
            shutil.copytree(members / name, tmp_path / name)
        work = Workspace(tmp_path / "work")
        work.begin({}, resume=False)
        Consensus(members=both(tmp_path)).fit(valid, workspace=work)
        Knn(neighbours=3, power=1).fit(valid.slice(0, 20)).save(tmp_path / "near", overwrite=True)
        places = both(tmp_path)[::-1]
        resumed = Consensus(members=places).fit(valid, workspace=work)
        assert resumed.facts == Consensus(members=places).fit(valid).facts

    def test_a_consensus_may_be_a_member(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        Consensus(members=both(members)).fit(valid).save(tmp_path / "inner")
        with pytest.raises(DataError, match=r"inner: itself depends on other folders. Train it with --set copy=tr"):
            Consensus(members=[str(tmp_path / "inner")], copy=True).fit(valid)
        Consensus(members=both(members), copy=True).fit(valid).save(tmp_path / "inner", overwrite=True)
        outer = Consensus(members=[str(tmp_path / "inner"), str(members / "often")], copy=True).fit(valid)
        outer.save(tmp_path / "outer")
        assert (xmtc.load(tmp_path / "outer").predict(valid).scores == outer.predict(valid).scores).all()

    def test_which_member_cannot_read_the_documents(self, members: Path, valid: Dataset) -> None:
        with pytest.raises(UnsupportedError, match="tree: this model was trained on text"):
            Consensus(members=both(members)).fit(Dataset({}, SPARSE, valid.labels, valid.label_index))

    def test_a_mistake_leaves_nothing_in_the_way(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        work = Workspace(tmp_path / "work")
        work.begin({}, resume=False)
        with pytest.raises(DataError, match="tree: 8 scored labels are too few"):
            Consensus(members=both(members), depth=2).fit(valid.slice(0, 4), workspace=work)
        assert not list((tmp_path / "work").glob("*.safetensors"))


class TestFolder:
    def test_training_a_member_again_in_the_same_way_changes_nothing(
        self, members: Path, valid: Dataset, planted: tuple[Dataset, Dataset, object], tmp_path: Path
    ) -> None:
        folder, answer = self.saved(members, valid, tmp_path)
        Parabel(trees=1, label_names=0).fit(planted[0].slice(0, 150)).save(folder.parent / "tree", overwrite=True)
        assert (xmtc.load(folder).predict(valid).scores == answer.scores).all()

    def saved(self, members: Path, valid: Dataset, tmp_path: Path, **settings: Any) -> tuple[Path, TopK]:
        """A consensus, and members of its own that can be harmed."""
        for name in ("tree", "near"):
            shutil.copytree(members / name, tmp_path / "all" / name)
        model = Consensus(members=both(tmp_path / "all"), **settings).fit(valid)
        model.save(tmp_path / "all" / "together")
        return tmp_path / "all" / "together", model.predict(valid)

    def test_small_when_members_stay_where_they_are(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        folder, answer = self.saved(members, valid, tmp_path)
        assert not any(path.is_dir() for path in folder.iterdir())
        assert (xmtc.load(folder).predict(valid).scores == answer.scores).all()

    def test_moved_together(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        folder, answer = self.saved(members, valid, tmp_path)
        folder.parent.rename(tmp_path / "elsewhere")
        assert (xmtc.load(tmp_path / "elsewhere" / "together").predict(valid).scores == answer.scores).all()

    def test_moved_alone(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        folder, answer = self.saved(members, valid, tmp_path)
        folder.rename(tmp_path / "alone")
        assert (xmtc.load(tmp_path / "alone").predict(valid).scores == answer.scores).all()

    def test_copied(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        folder, answer = self.saved(members, valid, tmp_path, copy=True)
        shutil.rmtree(folder.parent / "tree")
        Popularity().fit(valid).save(folder.parent / "near", overwrite=True)
        loaded = xmtc.load(folder)
        assert (loaded.predict(valid).scores == answer.scores).all()
        assert len(verify_folder(folder)) > 4
        loaded.save(tmp_path / "again")
        shutil.rmtree(folder)
        assert (xmtc.load(tmp_path / "again").predict(valid).scores == answer.scores).all()

    def test_a_member_that_changed_is_refused(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        folder, _ = self.saved(members, valid, tmp_path)
        Popularity().fit(valid).save(folder.parent / "near", overwrite=True)
        with pytest.raises(
            ModelFormatError, match=r"near: has changed since .*together, which depends on it, was trained; .* Restore"
        ):
            xmtc.load(folder)

    def test_a_calibrated_member_is_another_one(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        folder, _ = self.saved(members, valid, tmp_path)
        member = xmtc.load(folder.parent / "near").calibrate(valid)
        member.save(folder.parent / "near", overwrite=True)
        with pytest.raises(ModelFormatError, match="near: has changed"):
            xmtc.load(folder)

    def test_a_file_that_changed_is_refused(self, two_files: list[str], tmp_path: Path) -> None:
        Consensus(members=two_files, combine="noisy-or", calibrate="none").fit(VALID).save(tmp_path / "m")
        Path(two_files[1]).write_text(Path(two_files[1]).read_text().replace("0.7", "0.8"))
        with pytest.raises(ModelFormatError, match=r"second.jsonl: has changed since"):
            xmtc.load(tmp_path / "m")

    def test_a_member_that_is_gone_is_named(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        folder, _ = self.saved(members, valid, tmp_path)
        shutil.rmtree(folder.parent / "tree")
        with pytest.raises(ModelFormatError, match=r"tree: missing, .* or train again with --set copy=true"):
            xmtc.load(folder)

    def test_never_takes_the_place_of_a_member(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        folder, _ = self.saved(members, valid, tmp_path)
        with pytest.raises(DataError, match="near: would overwrite a folder that the model depends on"):
            xmtc.load(folder).save(folder.parent / "near", overwrite=True)
        assert isinstance(xmtc.load(folder.parent / "near"), Knn)

    def test_never_lies_above_a_member(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        folder, _ = self.saved(members, valid, tmp_path)
        with pytest.raises(DataError, match="all: contains other files"):
            xmtc.load(folder).save(tmp_path / "all", overwrite=True)
        (tmp_path / "all" / "model.json").write_text("{}")
        with pytest.raises(DataError, match="all: would overwrite a folder that the model depends on"):
            xmtc.load(folder).save(tmp_path / "all", overwrite=True)

    def test_a_member_that_changes_before_the_save(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        folder, _ = self.saved(members, valid, tmp_path)
        model = xmtc.load(folder)
        Popularity().fit(valid).save(folder.parent / "near", overwrite=True)
        with pytest.raises(DataError, match="near: has changed since it was read"):
            model.save(tmp_path / "late")

    def test_a_copy_that_was_harmed_is_made_anew(self, members: Path, valid: Dataset, tmp_path: Path) -> None:
        folder, answer = self.saved(members, valid, tmp_path, copy=True)
        harmed = next(folder.glob("linked-*/near"))
        Popularity().fit(valid).save(harmed, overwrite=True)
        with pytest.raises(ModelFormatError, match="near: has changed"):
            xmtc.load(folder)
        Consensus(members=both(tmp_path / "all"), copy=True).fit(valid).save(folder, overwrite=True)
        assert (xmtc.load(folder).predict(valid).scores == answer.scores).all()

    @pytest.mark.parametrize(
        "harm",
        [
            {"member 0": {"copied": "linked-0123456789abcdef/../..", "content": "x"}},
            {"member 0": {"copied": "../tree", "content": "x"}},
            {"member 0": {"path": 3, "content": "x"}},
            {"member 0": {"content": "x"}},
            ["tree"],
        ],
    )
    def test_a_damaged_list_of_members(self, members: Path, valid: Dataset, tmp_path: Path, harm: Any) -> None:
        folder, _ = self.saved(members, valid, tmp_path)
        manifest = json.loads((folder / "model.json").read_text())
        (folder / "model.json").write_text(json.dumps({**manifest, "links": harm}))
        with pytest.raises(ModelFormatError, match=r"model.json: damaged"):
            xmtc.load(folder)

    def test_links_know_what_they_lead_to(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("a")
        link = Link.to(tmp_path / "file")
        (tmp_path / "file").write_text("b")
        assert Link.to(tmp_path / "file").content != link.content


def test_joined_labels() -> None:
    first = LabelIndex.from_keys(["b", "a"], ["Bee", "Ay"])
    second = LabelIndex.from_keys(["c", "a", "d"], ["Sea", "other words", "Dee"])
    assert first.joined(second).keys == ["b", "a", "c", "d"]
    assert first.joined(second).names == ["Bee", "Ay", "Sea", "Dee"]
    assert first.joined(first) is first
