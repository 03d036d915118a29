"""Leaderboards with known models, scores and costs."""

from __future__ import annotations

from typing import Any

from xmtc.presets.leaderboard import Leaderboard, Moment, PlannedModel, TriedModel


def tried(name: str, score: float | None, milliseconds: float | None = None, **more: Any) -> TriedModel:
    """A model that was tried; complete unless `more` says otherwise."""
    values = {"model": name, "settings": {}, "state": "complete"} | more
    return TriedModel(name=name, score=score, predict_ms=milliseconds, **values)


def planned(name: str, note: str = "", **more: Any) -> PlannedModel:
    """A planned model; left out if there is a note."""
    values: dict[str, Any] = {"model": name, "settings": {}, "reason": f"why {name}", "seconds": 30.0, "megabytes": 100}
    return PlannedModel(name=name, included=not note, note=note, **(values | more))


def board(**changes: Any) -> Leaderboard:
    """An empty leaderboard but for `changes`."""
    values: dict[str, Any] = {
        "preset": "good",
        "metric": "nDCG@5",
        "minutes": 10.0,
        "documents": 12_000,
        "labels": 3_000,
        "validation": "3-fold cross-validation.",
    }
    return Leaderboard(**(values | changes))


def full_board() -> Leaderboard:
    """Three models with scores, two of them members of the final model, one stopped and one failed; one left out."""
    scores = {"P@1": 0.7, "P@5": 0.3}
    return board(
        plan=(planned("slow", "would need 14 min of 10"), planned("parabel"), planned("knn", seconds=None)),
        entries=(
            tried("knn", 0.5, 10.0, metrics=scores),
            tried("late", None, state="stopped", note="time limit"),
            tried("parabel", 0.6, 1.0, member=True, train_seconds=60.0, megabytes=44.0, metrics=scores),
            tried("broken", None, state="failed", note="out of memory"),
            tried("lexical", 0.4, 0.1, member=True, settings={"names": {"most": 3}}, metrics=scores | {"P@1": 0.65}),
        ),
        curve=(Moment(60.0, 0.4, "lexical"), Moment(120.0, 0.6, "parabel"), Moment(180.0, 0.5, "knn")),
        final=tried("consensus", 0.65, 1.25, megabytes=56.6, settings={"trees": 5, "gate": {"kind": "soft"}}),
        seconds=240.0,
        limits={"max_ms": 5.0, "max_mb": None},
        complete=True,
    )
