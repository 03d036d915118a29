"""Cost of a model, extrapolated from samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models import planted_split
from xmtc.core.progress import silent
from xmtc.core.runtime import Runtime
from xmtc.models.base import Model
from xmtc.models.popularity import Popularity
from xmtc.presets import estimates
from xmtc.presets.candidates import Candidate
from xmtc.presets.clock import Clock, OutOfTime, TimedProgress
from xmtc.presets.estimates import available_megabytes, create, estimate, folder_megabytes


def test_size_is_extrapolated(tmp_path: Path) -> None:
    train, _, _ = planted_split(3000, 10, labels=60, seed=1)
    candidate = Candidate("knn", "knn", {}, "")
    found = estimate(candidate, train, Runtime(threads=1), silent)
    assert found.train_seconds > 0
    assert found.predict_ms > 0
    whole = create(candidate).fit(train)
    assert whole.config.neighbours == "auto"
    whole.save(tmp_path / "whole")
    assert found.megabytes == pytest.approx(folder_megabytes(tmp_path / "whole"), rel=0.5)


def test_memory_of_the_machine_is_known() -> None:
    assert available_megabytes() > 100


def test_memory_of_a_training_is_measured_even_if_more_was_in_use_before(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of memory can be reset on Linux only")
    before = np.ones(2**27, dtype=np.uint8)
    del before
    train, _, _ = planted_split(1200, 10, labels=20, seed=1)

    def created(candidate: Candidate) -> Model:
        class Large(Popularity):
            def fit(self, documents: Any, *rest: Any, **more: Any) -> Any:
                held = np.ones((len(documents), 2**16), dtype=np.uint8)
                found = super().fit(documents, *rest, **more)
                assert held.any()
                return found

        return Large()

    monkeypatch.setattr(estimates, "create", created)
    found = estimate(Candidate("large", "popularity", {}, ""), train, Runtime(threads=1), silent)
    assert found.memory_megabytes == pytest.approx(1200 * 2**16 / 2**20, rel=0.3)


def test_prediction_takes_longer_with_more_documents_to_search(monkeypatch: pytest.MonkeyPatch) -> None:
    train, _, _ = planted_split(3000, 10, labels=20, seed=1)
    monkeypatch.setattr(estimates, "predict_ms", lambda model, documents: 0.001 * model.training["documents"])
    found = {
        name: estimate(Candidate(name, name, {}, ""), train, Runtime(threads=1), silent).predict_ms
        for name in ("knn", "popularity")
    }
    assert found["knn"] == pytest.approx(3.0, rel=0.01)
    assert found["popularity"] == pytest.approx(0.6, rel=0.01)


def test_training_stops_when_its_time_is_used_up() -> None:
    class Shown:
        def advance(self, steps: int = 1) -> None:
            return

        def note(self, words: str) -> None:
            return

    train, _, _ = planted_split(400, 10, labels=20, seed=1)
    clock = Clock(100, before=50)
    assert clock.elapsed >= 50
    with pytest.raises(OutOfTime):
        create(Candidate("knn", "knn", {}, "")).fit(train, progress=TimedProgress(Shown(), "knn", clock, until=10))
