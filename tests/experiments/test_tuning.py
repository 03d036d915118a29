"""Searches over settings: planted optima are found, killed searches go on as if they had not been."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from unittest import mock

import numpy as np
import pytest

from tests.support.models import QUICK
from xmtc import load
from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State, read_manifest
from xmtc.core import config
from xmtc.core.config import Choices, Range, Settings
from xmtc.core.errors import ConfigError, DataError, MissingExtraError, XmtcError
from xmtc.core.registry import Entry
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.experiments import tuning
from xmtc.experiments.search_space import decide
from xmtc.experiments.trials import (
    COMPLETE,
    DRAWS,
    FAILED,
    PRUNED,
    Hopeless,
    Look,
    Trial,
    Watched,
    add_trial,
    best_of,
    check_installed,
    proposed,
    read_trials,
)
from xmtc.experiments.tuning import TuningOutcome, tune
from xmtc.models import registry
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.models.registry import available, model_class
from xmtc.views.charts import TrialMark, trial_plot
from xmtc.views.svg import gid

LABELS = 5


@dataclass(frozen=True)
class FakeSettings(Settings):
    of = "fake"
    x: Annotated[float, Range(0, 1)] = 0.9
    """The nearer to 0.3 the better."""
    kind: Annotated[Literal["a", "b"], Choices()] = "a"
    """Of which b is better."""
    size: Annotated[int, Range(1, 64, log=True)] = 8
    """What does not matter."""
    other: int = 1
    """What is not searched."""


def goodness(settings: FakeSettings) -> float:
    return 1 - 0.8 * abs(settings.x - 0.3) - (0.1 if settings.kind == "a" else 0)


class Fake(Model):
    """Right about as many documents as its settings are good, and tells on the way how it will be."""

    name = "fake"
    Config = FakeSettings
    capabilities = frozenset({"text"})
    before: Callable[[Fake, Dataset], None] = staticmethod(lambda model, train: None)
    seen: ClassVar[list[tuple[int, int | None, bool]]] = []
    """Of each training: documents to learn from, to make choices on, and whether a finished part was there."""

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        Fake.seen.append((len(train), None if valid is None else len(valid), run.workspace.has("part")))
        run.workspace.save("part", {"nothing": np.zeros(1)})
        Fake.before(self, train)
        for epoch in range(4):
            run.workspace.log({"member": 0, "epoch": epoch, "score": goodness(self.config) * (epoch + 1) / 4})

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        found = np.empty((len(batch), k), dtype=np.int64)
        for row, text in enumerate(batch.text().to_pylist()):
            number = int(text.split()[0])
            right = number % LABELS
            first = right if number * 7 % 100 < 100 * goodness(self.config) else (right + 1) % LABELS
            found[row] = [(first + place) % LABELS for place in range(k)]
        return found, np.tile(np.linspace(0.9, 0.1, k, dtype=np.float32), (len(batch), 1))

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        return np.zeros(candidates.shape, dtype=np.float32)

    def _state(self) -> State:
        return State(arrays={"nothing": np.zeros(1)})

    def _restore(self, state: SavedState) -> None:
        state.array("nothing", np.float64, (1,))


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.MODELS.builtin, "fake", Entry(f"{__name__}:Fake", preference=-1))
    Fake.seen.clear()


def documents(count: int = 900) -> tuple[Dataset, None]:
    texts = [f"{number} of {number % LABELS}" for number in range(count)]
    return as_dataset(texts, [[f"label {number % LABELS}"] for number in range(count)]), None


def search(out: Path, trials: int = 12, **more: Any) -> TuningOutcome:
    about = {key: more.pop(key) for key in ("search", "settings", "minutes", "measure") if key in more}
    decided = decide("fake", trials=trials, **{"measure": "P@1", **about})
    return tune(decided, out, more.pop("documents", documents), **more)


def lines(out: Path) -> list[dict[str, Any]]:
    """All that was written of the trials, but for how long they took."""
    found = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    assert all(line.pop("seconds") >= 0 for line in found)
    return found


def killed_at(count: int) -> Callable[[Fake, Dataset], None]:
    """Ctrl-C in the training of this number, from 0."""
    seen = iter(range(100))

    def before(model: Fake, train: Dataset) -> None:
        if next(seen) == count:
            raise KeyboardInterrupt

    return before


class TestSearch:
    def test_planted_optimum_is_found_from_a_bad_start(self, tmp_path: Path) -> None:
        found = search(tmp_path / "s", trials=30)
        first = found.trials[0]
        assert first.settings == {"x": 0.9, "kind": "a", "size": 8}
        assert first.score == pytest.approx(0.42, abs=0.06)
        assert found.best.score is not None
        assert found.best.score > 0.93
        assert found.best.settings["kind"] == "b"
        assert abs(found.best.settings["x"] - 0.3) < 0.09
        assert found.measured == 200
        assert found.split_off

    def test_killed_search_goes_on_as_if_it_had_not_stopped(self, tmp_path: Path) -> None:
        whole = search(tmp_path / "whole", refit=False)
        out = tmp_path / "s"
        for count in (5, 3):
            with mock.patch.object(Fake, "before", killed_at(count)), pytest.raises(KeyboardInterrupt):
                search(out, refit=False, resume=(out / "tuning.json").exists())
            with (out / "trials.jsonl").open("a") as stream:
                stream.write('{"number": 5, "sta')  # torn by a kill
        assert len(read_trials(out / "trials.jsonl")) == 8
        found = search(out, refit=False, resume=True)
        assert lines(out) == lines(tmp_path / "whole")
        assert found.best.settings == whole.best.settings
        assert (out / "recipe.toml").read_text() == (tmp_path / "whole" / "recipe.toml").read_text()

    def test_another_seed_tries_something_else(self, tmp_path: Path) -> None:
        one, other = (search(tmp_path / str(s), 3, refit=False, runtime=Runtime(seed=s)) for s in (0, 1))
        assert one.trials[0].settings == other.trials[0].settings
        assert one.trials[1].settings != other.trials[1].settings

    def test_trials_that_fall_behind_are_ended(self, tmp_path: Path) -> None:
        found = search(tmp_path / "s", trials=15, refit=False)
        ended = [trial for trial in found.trials if trial.state == PRUNED]
        assert ended
        complete = sorted(trial.looks[-1].score for trial in found.trials if trial.state == COMPLETE)
        for trial in ended:
            assert trial.score is None
            assert len(trial.looks) == 3  # two are waited for
            assert 4 / 3 * trial.looks[-1].score < complete[-2]
        assert found.count(PRUNED) + found.count(COMPLETE) == 15

    def test_failed_trials_are_told_and_the_search_goes_on(self, tmp_path: Path) -> None:
        def before(model: Fake, train: Dataset) -> None:
            if model.config.kind == "b":
                raise ConfigError("b does not go with this.")

        with mock.patch.object(Fake, "before", before):
            found = search(tmp_path / "s", refit=False)
        failed = [trial for trial in found.trials if trial.state == FAILED]
        assert failed
        assert all(trial.settings["kind"] == "b" and trial.error == "b does not go with this." for trial in failed)
        assert found.best.settings["kind"] == "a"
        table = (tmp_path / "s" / "trials.tsv").read_text().splitlines()
        assert table[0].split("\t") == ["trial", "state", "P@1", "seconds", "x", "kind", "size", "error"]
        assert sum(line.endswith("\tb does not go with this.") for line in table) == len(failed)

    def test_what_fails_from_the_start_leaves_nothing(self, tmp_path: Path) -> None:
        def before(model: Fake, train: Dataset) -> None:
            raise DataError("no good.")

        with mock.patch.object(Fake, "before", before), pytest.raises(DataError, match="no good"):
            search(tmp_path / "s")
        assert not (tmp_path / "s").exists()

    def test_it_ends_when_all_was_tried(self, tmp_path: Path) -> None:
        found = search(tmp_path / "s", search=["kind"], refit=False)
        assert found.exhausted
        assert [trial.settings for trial in found.trials] == [{"kind": "a"}, {"kind": "b"}]
        assert found.best.settings == {"kind": "b"}

    def test_time_is_that_of_all_runs(self, tmp_path: Path) -> None:
        out = tmp_path / "s"
        assert len(search(out, minutes=1e-9, refit=False).trials) == 1  # the start, whatever it takes
        assert len(search(out, minutes=1e-9, refit=False, resume=True).trials) == 1
        assert len(search(out, trials=3, minutes=10, refit=False, resume=True).trials) == 3
        first, *rest = (out / "trials.jsonl").read_text().splitlines()
        longer = json.dumps({**json.loads(first), "seconds": 600.0})
        (out / "trials.jsonl").write_text("\n".join([longer, *rest]) + "\n")
        assert len(search(out, trials=5, minutes=10, refit=False, resume=True).trials) == 3
        assert len(search(out, trials=5, minutes=11, refit=False, resume=True).trials) == 5

    def test_documents_that_are_given_are_measured_on(self, tmp_path: Path) -> None:
        given = as_dataset(["0 of 0", "1 of 1"], [["label 0"], ["label 1"]])
        found = search(tmp_path / "s", 2, documents=lambda: (documents()[0], given))
        assert found.measured == 2
        assert not found.split_off
        assert Fake.seen == [(900, 2, False)] * 3  # two trials and the model

    def test_documents_that_were_split_off_are_kept_from_the_model(self, tmp_path: Path) -> None:
        search(tmp_path / "s", 2)
        assert Fake.seen == [(700, None, False), (700, None, False), (900, None, False)]

    @pytest.mark.parametrize(("count", "size"), [(60, 20), (900, 200), (4000, 400), (2, 0)])
    def test_documents_that_are_split_off(self, tmp_path: Path, count: int, size: int) -> None:
        if not size:
            with pytest.raises(DataError, match="2 documents are too few to hold out a validation set"):
                search(tmp_path / "s", 1, documents=lambda: documents(count))
            return
        assert search(tmp_path / "s", 1, documents=lambda: documents(count), refit=False).measured == size


class TestFolder:
    def test_a_search_that_is_not_this_one_is_refused(self, tmp_path: Path) -> None:
        out = tmp_path / "s"
        search(out, 2, refit=False)
        for what, more in {
            "training data": {"documents": lambda: documents(901)},
            "seed": {"runtime": Runtime(seed=1)},
            "measure": {"measure": "P@3"},
            "search": {"search": ["x"]},
            "settings": {"settings": {"other": 2}},
        }.items():
            with pytest.raises(ConfigError, match=f"was started with different {what}"):
                search(out, 2, resume=True, **more)  # type: ignore[arg-type]
        with pytest.raises(DataError, match="already contains a search"):
            search(out, 2)
        assert len(search(out, 1, force=True, refit=False).trials) == 1

    def test_refused_places(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="no search to resume"):
            search(tmp_path / "s", resume=True)
        (tmp_path / "mine.txt").write_text("x")
        for force in (False, True):
            with pytest.raises(DataError, match="contains other files"):
                search(tmp_path, force=force)
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

    def test_damaged_trials_are_refused(self, tmp_path: Path) -> None:
        out = tmp_path / "s"
        search(out, 2, refit=False)
        good = (out / "trials.jsonl").read_text()
        for bad in ("{}\n", '{"number": 1\n', good.splitlines()[1] + "\n"):
            (out / "trials.jsonl").write_text(bad + good)
            with pytest.raises(DataError, match=r"trials\.jsonl:1: "):
                search(out, 2, refit=False, resume=True)

    def test_recipe_is_the_best_trial(self, tmp_path: Path) -> None:
        found = search(tmp_path / "s", settings={"other": 7})
        name, settings = config.read_recipe(tmp_path / "s" / "recipe.toml")
        assert name == "fake"
        assert config.to_mapping(model_class("fake")(**settings).config) == {**found.best.settings, "other": 7}
        assert read_manifest(tmp_path / "s" / "model")["settings"] == {**found.best.settings, "other": 7}
        assert load(tmp_path / "s" / "model").training["documents"] == 900


class TestRefit:
    def test_killed_while_it_trains_on_all(self, tmp_path: Path) -> None:
        out = tmp_path / "s"

        def before(model: Fake, train: Dataset) -> None:
            if len(train) == 900:
                raise KeyboardInterrupt

        with mock.patch.object(Fake, "before", before), pytest.raises(KeyboardInterrupt):
            search(out, 4)
        assert (out / "model.work").exists()
        before_resume = lines(out)
        Fake.seen.clear()
        found = search(out, 4, resume=True)
        assert Fake.seen == [(900, None, True)]  # went on with what was finished
        assert lines(out) == before_resume
        assert not (out / "model.work").exists()
        assert read_manifest(out / "model")["settings"] == {**found.best.settings, "other": 1}

    def test_a_longer_search_replaces_the_model_and_only_then(self, tmp_path: Path) -> None:
        out = tmp_path / "s"
        search(out, 1)
        stamp = (out / "model" / "model.json").stat().st_mtime_ns
        search(out, 1, resume=True)
        assert (out / "model" / "model.json").stat().st_mtime_ns == stamp
        found = search(out, 12, resume=True)
        assert found.best.number > 0
        assert read_manifest(out / "model")["settings"] == {**found.best.settings, "other": 1}


class TestDecided:
    @pytest.mark.parametrize(
        ("words", "space"),
        [
            (["x"], {"x": Range(0.0, 1.0)}),
            (["x=0..0.5", "kind"], {"x": Range(0.0, 0.5), "kind": Choices("a", "b")}),
            (["size=2..8"], {"size": Range(2, 8, log=True)}),
            (["other=1..9"], {"other": Range(1, 9)}),
            (["other=1..900"], {"other": Range(1, 900, log=True)}),
            (["other=[1, 5, 5]"], {"other": Choices(1, 5)}),
            (["kind=[b]"], {"kind": Choices("b")}),
            (["x=[0, 1]"], {"x": Choices(0.0, 1.0)}),
        ],
    )
    def test_what_the_user_names(self, words: list[str], space: dict[str, Any]) -> None:
        assert decide("fake", search=words).space == space

    def test_a_group_is_all_that_it_declares(self) -> None:
        assert set(decide("knn", search=["text"]).space) == {
            f"text.{name}" for name in ("min_df", "word_ngrams", "char_ngrams", "idf")
        }

    def test_what_is_fixed_is_not_searched(self) -> None:
        decided = decide("fake", settings={"x": 0.5})
        assert list(decided.space) == ["kind", "size"]
        assert decided.start_values() == {"kind": "a", "size": 8}
        assert decided.settings({"kind": "b"}) == FakeSettings(x=0.5, kind="b")

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"search": ["sise"]}, "fake has no setting 'sise'. Did you mean 'size'?"),
            ({"search": ["other"]}, "--search other: no default range."),
            ({"search": ["x=1..0"]}, "--search x=1..0: empty range."),
            ({"search": ["x=a..b"]}, "--search x=a..b: not a range."),
            ({"search": ["x="]}, "--search x=: not a range."),
            ({"search": ["size=1.5..9"]}, "'size' of fake must be an integer. Got 1.5."),
            ({"search": ["kind=[a, c]"]}, "'kind' of fake must be one of a, b. Got 'c'."),
            ({"search": ["x"], "settings": {"x": 0.1}}, "'x' is both fixed with --set and searched."),
            ({"settings": {"x": 0.1, "kind": "b", "size": 3}}, "fake has no settings left to search."),
            ({"measure": "nDCG@6"}, "unknown metric 'nDCG@6'. Did you mean 'nDCG@5'?"),
            ({"trials": 0}, "'trials' must be an integer ≥ 1. Got 0."),
            ({"minutes": float("nan")}, "'minutes' must be a number > 0. Got nan."),
            ({"recipe": "cooking/knn"}, "cooking/knn: is a recipe for knn, not for fake."),
        ],
    )
    def test_refused(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(message)):
            decide("fake", **given)

    def test_features_need_no_settings_of_text(self) -> None:
        assert set(decide("parabel").without_text().space) == {"cost", "leaf_size"}
        assert set(decide("knn", search=["text.min_df"]).without_text().space) == {"text.min_df"}
        with pytest.raises(ConfigError, match="the documents are precomputed features"):
            decide("knn").without_text()

    def test_without_optuna(self) -> None:
        with mock.patch("importlib.util.find_spec", return_value=None), pytest.raises(MissingExtraError) as caught:
            check_installed()
        assert str(caught.value) == 'tune requires Optuna. Install it with: pip install "xmtc[tune]"'


SPACE = {"x": Range(0.0, 1.0), "n": Range(1, 9), "c": Choices([], [3, 5])}


class TestProposals:
    def test_values_are_in_their_ranges_and_new(self) -> None:
        trials: list[Trial] = []
        for number in range(15):
            settings = proposed(SPACE, trials, seed=3)
            assert settings is not None
            assert 0 <= settings["x"] <= 1
            assert settings["n"] in range(1, 10)
            assert settings["c"] in ([], [3, 5])
            assert settings not in [trial.settings for trial in trials]
            trials.append(Trial(number, COMPLETE, settings, settings["x"], 1.0))

    def test_they_gather_where_scores_were_high(self) -> None:
        values = [round(x, 4) for x in np.random.default_rng(0).random(25)]
        trials = [Trial(n, COMPLETE, {"x": x}, 1 - abs(x - 0.3), 1.0) for n, x in enumerate(values)]
        found = [proposed({"x": SPACE["x"]}, trials, seed) for seed in range(12)]
        distances = [abs(settings["x"] - 0.3) for settings in found if settings is not None]
        assert np.mean(distances) < 0.12  # 0.29 at random

    def test_a_start_outside_its_range_does_no_harm(self) -> None:
        start = Trial(0, COMPLETE, {"x": "auto", "n": 50, "c": [1, 2]}, 0.5, 1.0)
        assert proposed(SPACE, [start], seed=0) is not None

    def test_nothing_left(self) -> None:
        trials = [Trial(n, COMPLETE, {"n": n + 1}, 0.1, 1.0) for n in range(2)]
        assert proposed({"n": Range(1, 2)}, trials, seed=0) is None
        assert DRAWS >= 20

    def test_the_best_is_the_earlier_of_two(self) -> None:
        trials = [Trial(0, COMPLETE, {}, 0.5, 1.0), Trial(1, PRUNED, {}, None, 1.0), Trial(2, COMPLETE, {}, 0.5, 1.0)]
        assert best_of(trials) is trials[0]
        assert best_of(trials[1:2]) is None

    def test_written_and_read(self, tmp_path: Path) -> None:
        trial = Trial(0, COMPLETE, {"x": 0.1, "c": [3, 5]}, 0.1 + 0.2, 1.0, [Look(0, 0, 1 / 3)])
        add_trial(tmp_path / "t.jsonl", trial)
        other = replace(trial, number=1, state=FAILED, score=None, error="bad\nline")
        add_trial(tmp_path / "t.jsonl", other)
        assert read_trials(tmp_path / "t.jsonl") == [trial, other]


def looked(*scores: float, level: int = 0) -> list[Look]:
    return [Look(level, place, score) for place, score in enumerate(scores)]


JUDGES = [
    Trial(number, COMPLETE, {}, 0.5, 1.0, [*looked(0.1, 0.3, end), *looked(0.2, 0.2, 0.1 * number, level=1)])
    for number, end in enumerate((0.4, 0.5, 0.6, 0.7))
]


class TestWatched:
    def watch(self, *scores: float, judges: list[Trial] | None = None, **more: Any) -> bool:
        """Whether it was ended, at the last of these scores."""
        watched = Watched(JUDGES if judges is None else judges)
        for score in scores[:-1]:
            watched.log({"score": score, **more})
        try:
            watched.log({"score": scores[-1], **more})
        except Hopeless:
            return True
        return False

    def test_below_the_half_of_the_others(self) -> None:
        assert self.watch(0.1, 0.1, 0.54)  # their median is 0.55
        assert not self.watch(0.1, 0.1, 0.56)

    def test_its_best_counts_not_its_last(self) -> None:
        assert not self.watch(0.1, 0.56, 0.2)

    def test_the_first_looks_and_few_judges_judge_nobody(self) -> None:
        assert not self.watch(0.0, 0.0)
        assert not self.watch(0.0, 0.0, 0.0, judges=JUDGES[:3])
        assert not self.watch(0.0, 0.0, 0.0, judges=[replace(trial, state=PRUNED) for trial in JUDGES])

    def test_levels_are_judged_apart(self) -> None:
        # On level 1 the others reached 0.2, 0.2, 0.2 and 0.3 by the third look.
        assert self.watch(0.1, 0.1, 0.19, level=1)
        assert not self.watch(0.1, 0.1, 0.2, level=1)
        watched = Watched(JUDGES)
        for score in (0.9, 0.9, 0.9):
            watched.log({"score": score})
        for score in (0.1, 0.1):
            watched.log({"score": score, "level": 1})
        with pytest.raises(Hopeless):
            watched.log({"score": 0.1, "level": 1})

    def test_other_members_and_losses_are_passed_over(self) -> None:
        assert not self.watch(0.0, 0.0, 0.0, member=1)
        watched = Watched(JUDGES)
        watched.log({"loss": 3.0})
        assert watched.looks == []

    @pytest.mark.skipif(not available("xml_rnn"), reason="needs torch")
    @pytest.mark.usefixtures("one_thread")
    def test_a_network_is_ended(self, planted: tuple[Dataset, Dataset, Any]) -> None:
        better = [Trial(n, COMPLETE, {}, 0.5, 1.0, looked(0.0, 0.0, 2.0)) for n in range(4)]
        watched = Watched(better)
        model = model_class("xml_rnn")(**{**QUICK["xml_rnn"], "training.validation_size": 100})
        with pytest.raises(Hopeless):
            model.fit(planted[0].slice(0, 200), workspace=watched, runtime=Runtime(threads=1, device="cpu"))
        assert [(look.level, look.place) for look in watched.looks] == [(0, 0), (0, 1), (0, 2)]


MARKS = [
    TrialMark(0.5, COMPLETE, False, "start"),
    TrialMark(0.4, COMPLETE, False, "a & b"),
    TrialMark(None, PRUNED, False, "ended"),
    TrialMark(0.7, COMPLETE, True, "top"),
    TrialMark(None, FAILED, False, "broke"),
    TrialMark(0.6, COMPLETE, False, "later"),
]


class TestPicture:
    def test_every_trial_is_there_once(self) -> None:
        plot = trial_plot(MARKS, "Trials of <x>", "P@1")
        root = ElementTree.fromstring(plot.svg())
        by_class: dict[str, list[ElementTree.Element]] = {}
        for element in root.iter():
            by_class.setdefault(element.get("class", ""), []).append(element)
        tips = [title.text for dot in by_class["trial"] for title in dot]
        assert tips == ["start", "a & b", "top", "later"]
        assert [[title.text for title in cross] for cross in by_class[PRUNED]] == [["ended"]]
        assert [[title.text for title in cross] for cross in by_class[FAILED]] == [["broke"]]
        words = ["".join(each.itertext()) for each in root.iter() if each.tag.endswith("text")]
        assert {"Trials of <x>", f"{PRUNED}: 1", f"{FAILED}: 1", "best so far: 70.00"} <= set(words)
        heights = [float(dot.get("cy", "0")) for dot in by_class["trial"]]
        assert heights[2] < heights[3] < heights[0] < heights[1]
        (axes,) = plot.figure.axes
        lines = {line.get_gid(): line.get_ydata() for line in axes.lines}
        assert set(lines[gid("start")]) == {50.0}
        assert list(dict.fromkeys(lines[gid("best")])) == [50.0, 70.0]  # one step, from the start to the top

    def test_one_trial_alone(self) -> None:
        root = ElementTree.fromstring(trial_plot(MARKS[:1], "t", "P@1").svg())
        assert len([node for node in root.iter() if node.tag.endswith("circle")]) >= 1


def test_errors_of_the_model_s_own_kind_only(tmp_path: Path) -> None:
    """What is no user's mistake is a bug, and is not hidden among failed trials."""

    def before(model: Fake, train: Dataset) -> None:
        if model.config.kind == "b":
            raise ZeroDivisionError

    assert not issubclass(ZeroDivisionError, XmtcError)
    with mock.patch.object(Fake, "before", before), pytest.raises(ZeroDivisionError):
        search(tmp_path / "s", refit=False)
    assert tuning.finished(tmp_path / "s") >= 1
