"""Damaged folders of a few models: one line or the same answers, and never a crash. `tests/long` does it to all."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.support.tampered_models import KINDS, build
from tests.support.tampering import array_damage, selected, text_damage, value_damage
from tests.support.tampering_runs import Campaign, Case, Folders, random_cases
from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.data.dataset import Dataset
from xmtc.models.base import Labels, Mask, Scores
from xmtc.models.context import FitContext
from xmtc.models.popularity import Popularity
from xmtc.models.registry import MODELS

MODELS_HERE = ("knn", "parabel", "leml", *(("rank_ae",) if MODELS.entries["rank_ae"].available else ()))


class Sloppy(Popularity):
    """A model that forgets the range of an array: its ranking is used as an index."""

    name = "sloppy"

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        super()._fit(train, valid, run)
        self._ranking = np.argsort(-self._shares, kind="stable").astype(np.int64)

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        best = self._ranking[:k]
        shape = (len(batch), len(best))
        return np.broadcast_to(best, shape), np.broadcast_to(self._shares[best], shape)

    def _state(self) -> State:
        state = super()._state()
        return State(arrays={**state.arrays, "ranking": self._ranking})

    def _restore(self, state: SavedState) -> None:
        super()._restore(state)
        self._ranking = state.array("ranking", np.int64, (None,))
        signal = self.facts.get("signal")
        if signal:
            os.kill(os.getpid(), signal)
        while signal == 0:
            pass


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    place = tmp_path_factory.mktemp("models")
    found = dict(build(place, MODELS_HERE))
    documents = next(iter(found.values()))[1]
    texts, labels = pickle.loads(documents.read_bytes())[1]
    Sloppy().fit(texts, labels).save(place / "sloppy")
    return {**found, "sloppy": (place / "sloppy", documents)}


@pytest.fixture(scope="module")
def campaign(folders: Folders) -> Iterator[Campaign]:
    with Campaign(folders, 1, [f"{__name__}:Sloppy"]) as made:
        yield made


def test_every_model_is_among_those_that_are_tampered_with() -> None:
    missing = set(MODELS.builtin) - {kind.model for kind in KINDS.values()}
    assert not missing, f"add {sorted(missing)} to KINDS in tests/support/tampered_models.py"


def test_every_array(campaign: Campaign, folders: Folders) -> None:
    cases = [Case(name, damage) for name in MODELS_HERE for damage in selected(folders[name][0], 1)]
    assert len(cases) > 150
    faults = [fault for case, outcome in campaign.run(cases) if (fault := campaign.fault(case, outcome))]
    assert not faults, "\n".join(faults)


def test_any_damage(campaign: Campaign, folders: Folders) -> None:
    known = {name: folders[name] for name in MODELS_HERE}
    faults = [
        fault
        for case, outcome in campaign.run(random_cases(known, 40, seed=1))
        if (fault := campaign.fault(case, outcome))
    ]
    assert not faults, "\n".join(faults)


def test_without_repaired_hashes_it_is_an_error(campaign: Campaign, folders: Folders) -> None:
    name = "arrays"
    cases = [
        Case("knn", array_damage(name, "model.index.values", "all bounded", 0, False)),
        Case("knn", value_damage(("state", "documents"), 1, False)),
        Case("parabel", value_damage(("settings", "beam_width"), 3, False)),
        Case("leml", text_damage("nested lists", 0)),
    ]
    outcomes = [outcome for _, outcome in campaign.run(cases)]
    assert [outcome.kind for outcome in outcomes] == ["error"] * 4
    assert "hash" in outcomes[0].detail
    assert "more than 64 nested levels" in outcomes[3].detail


def test_a_model_that_forgets_a_range_is_noticed(campaign: Campaign) -> None:
    case = Case("sloppy", array_damage("arrays", "model.ranking", "all maximum", 0, True))
    ((_, outcome),) = campaign.run([case])
    assert outcome.kind == "traceback"
    assert "IndexError" in outcome.detail
    assert "sloppy: arrays: model.ranking: all maximum" in str(campaign.fault(case, outcome))


@pytest.mark.parametrize(("signal", "expected"), [(11, "signal"), (6, "signal"), (0, "timeout")])
def test_crashes_and_hangs_are_noticed(campaign: Campaign, folders: Folders, signal: int, expected: str) -> None:
    """The model ends its own process, or loops."""
    case = Case("sloppy", value_damage(("training", "found"), {"signal": signal}, True), seconds=1)
    ((_, outcome),) = campaign.run([case])
    assert outcome.kind == expected
    assert campaign.fault(case, outcome) is not None


def test_changed_answers_are_noticed(campaign: Campaign) -> None:
    """Were the hashes not verified, another ranking would be used without a word."""
    damage = array_damage("arrays", "model.ranking", "backwards", 0, True)
    ((case, outcome),) = campaign.run([Case("sloppy", damage)])
    assert outcome.kind == "answers"
    assert campaign.fault(case, outcome) is None  # hashes are repaired: these are the answers of another model
    unrepaired = Case("sloppy", replace(damage, is_repaired=False))
    assert "other answers without an error" in str(campaign.fault(unrepaired, outcome))
