"""Cost of a model, extrapolated from samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models import planted_split
from xmtc.core.progress import silent
from xmtc.core.runtime import Runtime
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
