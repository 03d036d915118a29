"""Training with a preset, in Python and from files: the model, its record, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import xmtc
from tests.support.models import planted_split
from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ConfigError, DataError
from xmtc.data.dataset import Dataset, align_labels, as_dataset
from xmtc.metrics import ndcg
from xmtc.models.base import Model
from xmtc.models.parabel import Parabel
from xmtc.presets import candidates as candidate_list
from xmtc.presets import planning
from xmtc.presets.candidates import Candidate, DataFacts, candidates
from xmtc.presets.leaderboard import Leaderboard
from xmtc.presets.search import ModelSearch
from xmtc.workflows.auto import leaderboard_file, leaderboard_page_file

MINUTES = 2.0


@pytest.fixture(scope="module")
def corpus() -> tuple[Dataset, Dataset]:
    train, test, _ = planted_split(900, 200, labels=40, words_per_document=20, seed=2)
    return train, test


@pytest.fixture(autouse=True)
def _few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that train within a second."""

    def few(facts: DataFacts, weights: Any) -> Any:
        yield Candidate("knn", "knn", {"neighbours": 10}, "votes of similar documents")
        yield Candidate("popularity", "popularity", {}, "useless, to be left out")
        yield Candidate("broken", "one_vs_all", {"text.min_df": 10_000}, "fails")

    monkeypatch.setattr(candidate_list, "_of_texts", few)


def quality(model: Model, test: Dataset) -> float:
    truth, _ = align_labels(test, model.labels)
    return float(ndcg(model.predict(test, 5).labels, truth, 5))


def test_the_ensemble_is_at_least_as_good_as_its_members(corpus: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    train, test = corpus
    out = tmp_path / "model"
    events: list[Any] = []
    model = xmtc.auto(train, preset="good", minutes=MINUTES, out=out, listener=events.append)
    board = Leaderboard.load(leaderboard_file(out))
    assert board.complete
    assert board.final is not None
    tried = {entry.name: entry for entry in board.entries}
    assert tried["popularity"].score is not None
    assert not tried["popularity"].member
    assert "broken" not in tried
    assert "min_df" in next(each.note for each in board.plan if each.name == "broken")
    best = max(entry.score or 0.0 for entry in board.entries)
    assert board.final.score is not None
    assert board.final.score >= best - 0.005
    assert quality(model, test) >= quality(xmtc.Parabel().fit(train), test) - 0.02
    assert quality(xmtc.load(out), test) == quality(model, test)
    assert model.training["documents"] == len(train)
    assert model.decisions.is_fitted
    assert [each["name"] for each in model.training["preset"]["models"]][:2] == ["fast", "knn"]
    assert not Workspace.beside(out).exists()
    assert "<svg" in leaderboard_page_file(out).read_text(encoding="utf-8")
    assert [event.complete for event in events if isinstance(event, Leaderboard)] == [False, True]


def test_without_a_folder_the_model_can_be_saved_later(corpus: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    train, test = corpus
    model = xmtc.auto(train, preset="good", minutes=MINUTES)
    before = model.predict(test, 3)
    model.save(tmp_path / "later")
    del model
    after = xmtc.load(tmp_path / "later").predict(test, 3)
    np.testing.assert_array_equal(before.labels, after.labels)


def test_given_validation_documents_are_measured_on(corpus: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    train, test = corpus
    xmtc.auto(train, valid=test, preset="good", minutes=MINUTES, out=tmp_path / "m")
    board = Leaderboard.load(leaderboard_file(tmp_path / "m"))
    assert board.validation == "200 documents given for validation"
    knn = next(entry for entry in board.entries if entry.name == "knn")
    assert knn.score == pytest.approx(quality(xmtc.Knn(neighbours=10).fit(train), test), abs=1e-6)


@pytest.mark.parametrize("minutes", [MINUTES, 0.001], ids=["measured", "no time to measure"])
def test_limits_of_prediction(corpus: tuple[Dataset, Dataset], tmp_path: Path, minutes: float) -> None:
    out = tmp_path / "m"
    message = r"keeps to --max-mb 1e-06\. Of those that were trained, the smallest has 1\.\d+ MiB.*\. Raise the limit\."
    with pytest.raises(ConfigError, match=message):
        xmtc.auto(corpus[0], preset="good", minutes=minutes, max_mb=1e-6, out=out)
    assert not out.exists()
    model = xmtc.auto(corpus[0], preset="good", minutes=minutes, max_mb=100, out=out, resume=True)
    assert quality(model, corpus[1]) > 0.5


def test_a_folder_with_a_model_is_not_overwritten(corpus: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    xmtc.Popularity().fit(corpus[0]).save(tmp_path / "m")
    with pytest.raises(DataError, match="already contains a model"):
        xmtc.auto(corpus[0], preset="fast", out=tmp_path / "m")
    assert xmtc.load(tmp_path / "m").name == "popularity"


def test_what_was_finished_counts_after_an_interruption(
    corpus: tuple[Dataset, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the time has been used up by then."""
    out = tmp_path / "m"

    def interrupted(search: ModelSearch) -> Model:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ModelSearch, "_finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            xmtc.auto(corpus[0], minutes=MINUTES, out=out)
    assert xmtc.load(out).predict(["a text"], 1).k == 1  # the first choice
    with pytest.raises(DataError, match=r"unfinished training run\. Continue with --resume"):
        xmtc.auto(corpus[0], minutes=MINUTES, out=out)
    xmtc.auto(corpus[0], minutes=0.001, out=out, resume=True)
    states = {entry.name: entry.state for entry in Leaderboard.load(leaderboard_file(out)).entries}
    assert states["fast"] == states["knn"] == states["popularity"] == "complete"


def test_candidates_are_tried_if_there_was_no_time_to_plan_them(
    corpus: tuple[Dataset, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "PLANNING", 0.0)
    xmtc.auto(corpus[0], minutes=MINUTES, out=tmp_path / "m")
    board = Leaderboard.load(leaderboard_file(tmp_path / "m"))
    assert {each.note for each in board.plan if each.name != "fast"} == {planning.NOT_MEASURED}
    assert {entry.name: entry.state for entry in board.entries if entry.name != "fast"} == {
        "knn": "complete",
        "popularity": "complete",
    }


def test_members_are_trained_again_with_other_seeds(
    corpus: tuple[Dataset, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If time is left, and if the model depends on the seed."""

    def complementary(facts: DataFacts, weights: Any) -> Any:
        yield Candidate("knn", "knn", {"neighbours": 10}, "votes of similar documents")
        yield Candidate("bonsai", "bonsai", {}, "shallow trees")

    def everything(found: ModelSearch, name: str) -> None:
        found._members.append(name)

    monkeypatch.setattr(candidate_list, "_of_texts", complementary)
    monkeypatch.setattr(ModelSearch, "_grow", everything)
    xmtc.auto(corpus[0], minutes=MINUTES, out=tmp_path / "m")
    scores = {each.name: each.score for each in Leaderboard.load(leaderboard_file(tmp_path / "m")).entries}
    assert {name for name in scores if name[-2] == "-"} == {"bonsai-1", "bonsai-2", "bonsai-3"}
    assert len({scores[name] for name in scores if name.startswith("bonsai")}) > 1


def test_an_update_of_the_ensemble(corpus: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    train, test = corpus
    model = xmtc.auto(train, preset="good", minutes=MINUTES, out=tmp_path / "m")
    model.update(["a quite new subject zyxw"] * 5, [["new label"]] * 5, force=True)
    assert model.predict(["zyxw subject"], 1).keys() == [["new label"]]
    assert quality(model, test) > 0.5


def test_distillation_saves_one_model(corpus: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    train, test = corpus
    unlabelled = test.text().to_pylist()
    model = xmtc.auto(train, minutes=MINUTES, distil="parabel", unlabelled=unlabelled, out=tmp_path / "m")
    assert model.name == "parabel"
    assert model.training["preset"]["distilled"] == "parabel"
    assert model.training["documents"] == len(train)
    assert quality(model, test) > 0.8 * quality(xmtc.Parabel().fit(train), test)


def test_fast_trains_one_model_and_says_why(corpus: tuple[Dataset, Dataset]) -> None:
    model = xmtc.auto(corpus[0], preset="fast")
    assert model.training["preset"]["name"] == "fast"
    assert model.training["preset"]["model"] == model.name


class TestOddData:
    """A search always ends with a model."""

    def trained(self, texts: list[str], labels: list[list[str]], out: Path) -> Model:
        model = xmtc.auto(texts, labels, minutes=MINUTES, out=out)
        assert xmtc.load(out).predict(texts[:2], 1).labels.shape == (2, 1)
        return model

    def test_labels_that_every_model_finds(self, tmp_path: Path) -> None:
        """No prediction is wrong, so that there is nothing to calibrate."""
        words = ["apple orchard", "steam engine", "violin sonata", "polar bear"]
        texts = [f"{words[number % 4]} {words[number % 4]} text{number}" for number in range(120)]
        model = self.trained(texts, [[f"topic{number % 4}"] for number in range(120)], tmp_path / "m")
        assert model.predict(texts[:4], 1).names() == [["topic0"], ["topic1"], ["topic2"], ["topic3"]]

    def test_labels_that_occur_once(self, tmp_path: Path) -> None:
        texts = [f"word{number} another{number % 7} third{number % 3}" for number in range(120)]
        self.trained(texts, [[f"topic{number}"] for number in range(120)], tmp_path / "m")

    @pytest.mark.parametrize("count", [2, 4, 9])
    def test_few_documents(self, tmp_path: Path, count: int) -> None:
        texts = [f"word{number} and more" for number in range(count)]
        self.trained(texts, [[f"topic{number % 2}"] for number in range(count)], tmp_path / "m")

    def test_fewer_groups_than_folds(self, corpus: tuple[Dataset, Dataset], tmp_path: Path) -> None:
        clinics = pa.chunked_array([pa.array([f"clinic {number % 3}" for number in range(len(corpus[0]))])])
        train = replace(corpus[0], split_values=clinics)
        xmtc.auto(train, minutes=MINUTES, split_by="clinic", out=tmp_path / "m")
        assert Leaderboard.load(leaderboard_file(tmp_path / "m")).validation.startswith("3 folds")


def test_a_resumed_distillation_has_another_student(
    corpus: tuple[Dataset, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first one has finished does not count for the other."""
    out = tmp_path / "m"

    def interrupted(*arguments: Any, **options: Any) -> Model:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Parabel, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            xmtc.auto(corpus[0], minutes=MINUTES, out=out, distil="parabel")
    assert any(Workspace.beside(out).glob("distillation/*/*.safetensors"))
    model = xmtc.auto(corpus[0], minutes=MINUTES, out=out, distil="bonsai", resume=True)
    assert model.name == "bonsai"
    assert quality(model, corpus[1]) >= quality(xmtc.Parabel().fit(corpus[0]), corpus[1]) - 0.03


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"preset": "fast", "minutes": 3}, r"--minutes can only be used with --preset good or best"),
            ({"minutes": -1}, r"--minutes must be a finite number > 0\. Got -1"),
            ({"minutes": float("nan")}, r"--minutes must be a finite number > 0"),
            ({"distil": "knn"}, r"--distil must be one of bonsai, one_vs_all, parabel\. Got 'knn'"),
            ({"metric": "accuracy"}, r"--metric must be one of"),
        ],
    )
    def test_options(self, corpus: tuple[Dataset, Dataset], options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            xmtc.auto(corpus[0], **options)

    @pytest.mark.parametrize("options", [{"distil": "parabel"}, {"split_by": "year"}])
    def test_options_that_validation_documents_exclude(
        self, corpus: tuple[Dataset, Dataset], options: dict[str, Any]
    ) -> None:
        with pytest.raises(ConfigError, match="cannot be used with --valid"):
            xmtc.auto(corpus[0], valid=corpus[1], minutes=MINUTES, **options)

    def test_documents_without_labels(self) -> None:
        with pytest.raises(DataError, match=r"no document has a label|training requires labels"):
            xmtc.auto(["a text", "another"], preset="good", minutes=1)


class TestCandidates:
    def facts(self, **changes: Any) -> DataFacts:
        return DataFacts(
            **{"documents": 1000, "labels": 50, "labels_per_document": 3.0, "words": 10.0, "has_names": True, **changes}
        )

    def names(self, facts: DataFacts, preset: Any = "good") -> list[str]:
        return [each.name for each in candidates(facts, preset, Candidate("fast", "parabel", {}, ""), False)]

    def test_names_are_unique_and_the_first_choice_is_not_repeated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        for words in (None, 8.0, 300.0):
            for preset in ("good", "best"):
                names = self.names(self.facts(words=words), preset)
                assert len(set(names)) == len(names)
                assert names[0] == "fast"
                assert "parabel" not in names

    def test_networks_for_many_labels_per_document(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        many = self.facts(words=None, labels_per_document=19.0)
        assert "dxml-means" in self.names(many)
        assert "dxml-means" not in self.names(self.facts(words=None))
        for each in candidates(many, "good", Candidate("fast", "parabel", {}, ""), False):
            assert each.plain_settings()  # all names of settings are known

    def test_features_are_weighted_if_that_was_better(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        for settings, expected in (({}, set()), ({"columns": "idf"}, {"sleec-idf", "dxml-idf"})):
            first = Candidate("fast", "parabel", settings, "")
            names = {each.name for each in candidates(self.facts(words=None), "good", first, False)}
            assert {name for name in names if name.endswith("-idf")} == expected

    def test_networks_come_early_if_there_is_a_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        first, encoder = Candidate("fast", "parabel", {}, ""), Path("minilm")

        def places(has_gpu: bool, **changes: Any) -> dict[str, int]:
            found = candidates(self.facts(words=200.0, **changes), "best", first, has_gpu, encoder)
            assert all(each.plain_settings() for each in found)
            return {each.name: place for place, each in enumerate(found)}

        early, late = places(True), places(False)
        assert early["transformer"] == 1 + candidate_list.LEADING
        assert early["attention_lstm"] < early["bonsai"]
        assert late["transformer"] > late["bonsai"]
        assert "attention_lstm" not in places(False, documents=100_000)
        assert "attention_xml" in places(True, labels=20_000)
        assert not {"transformer", "attention_lstm"} & set(self.names(self.facts(words=200.0), "good"))

    @pytest.mark.parametrize(
        "text", ["привет мир это длинный текст", "größe übung straße öl ärger", "ναι όχι ίσως ποτέ πάντα"]
    )
    def test_words_of_all_scripts_are_counted(self, text: str) -> None:
        documents = as_dataset([text] * 3, [["größe"], ["μέγεθος"], ["размер"]])
        facts = DataFacts.of(documents)
        assert facts.words == 5.0
        assert facts.has_names

    def test_names_of_labels_are_searched_in_texts_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        assert "lexical" in self.names(self.facts())
        assert "lexical" not in self.names(self.facts(has_names=False))
        assert "lexical" not in self.names(self.facts(words=None))

    def test_networks_need_a_gpu_for_many_documents(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        found = candidates(self.facts(documents=200_000), "good", Candidate("fast", "parabel", {}, ""), False)
        assert "needs a GPU" in next(each.needs for each in found if each.model == "dxml")
        assert not next(each.needs for each in found if each.model == "knn")
