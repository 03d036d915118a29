"""The record of a preset: order, JSON, and damaged files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.support.leaderboards import board, full_board, tried
from xmtc.core.errors import DataError
from xmtc.presets.leaderboard import Leaderboard, Moment


def names(found: list[Any]) -> list[str]:
    return [entry.name for entry in found]


def test_the_best_model_comes_first_and_models_without_a_score_last() -> None:
    found = full_board()
    assert names(found.ranking()) == ["parabel", "knn", "lexical", "late", "broken"]
    assert names(found.members()) == ["parabel", "lexical"]
    best = found.best_member()
    assert best is not None
    assert best.name == "parabel"


def test_of_equal_scores_the_faster_model_comes_first() -> None:
    entries = (tried("unknown", 0.5), tried("slow", 0.5, 2.0), tried("fast", 0.5, 1.0), tried("nan", 0.5, math.nan))
    assert names(board(entries=entries).ranking()) == ["fast", "slow", "unknown", "nan"]


def test_a_score_counts_only_if_it_is_a_number_and_the_model_did_not_fail() -> None:
    entries = (
        tried("nan", math.nan, member=True),
        tried("failed", 0.9, state="failed", member=True),
        tried("skipped", None, state="skipped"),
        tried("stopped", 0.3, state="stopped"),
        tried("negative", -0.1, member=True),
    )
    found = board(entries=entries)
    assert names(found.ranking()) == ["stopped", "negative", "nan", "failed", "skipped"]
    best = found.best_member()
    assert best is not None
    assert best.name == "negative"


def test_without_members_there_is_no_best_one() -> None:
    assert board().best_member() is None
    assert board(entries=(tried("a", 0.5), tried("b", None, member=True))).best_member() is None


@pytest.mark.parametrize("found", [full_board(), board(), board(minutes=None, final=None)])
def test_a_saved_leaderboard_is_the_same_when_loaded(found: Leaderboard, tmp_path: Path) -> None:
    found.save(tmp_path / "board.json")
    assert Leaderboard.load(tmp_path / "board.json") == found
    assert [path.name for path in tmp_path.iterdir()] == ["board.json"]


def test_nan_is_written_as_null(tmp_path: Path) -> None:
    entry = tried("a", math.nan, math.inf, metrics={"P@1": math.nan, "P@3": 0.25})
    board(entries=(entry,), curve=(Moment(1.0, math.nan, "a"),)).save(tmp_path / "board.json")
    written = json.loads((tmp_path / "board.json").read_text(), parse_constant=pytest.fail)
    assert written["entries"][0]["score"] is None
    found = Leaderboard.load(tmp_path / "board.json")
    (loaded,) = found.entries
    assert (loaded.score, loaded.predict_ms) == (None, None)
    assert math.isnan(loaded.metrics["P@1"])
    assert loaded.metrics["P@3"] == 0.25
    assert math.isnan(found.curve[0].score)


def damaged(**changes: Any) -> dict[str, Any]:
    """The JSON of a leaderboard; `entry_score=1` changes the first model, and None for `del_…` deletes a field."""
    value = full_board().to_json()
    for name, each in changes.items():
        kind, _, field = name.partition("__")
        target = {"board": value, "entry": value["entries"][0], "plan": value["plan"][1], "final": value["final"]}[kind]
        if each is ...:
            del target[field]
        else:
            target[field] = each
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "The leaderboard must be an object, not []"),
        (damaged(board__labels=...), "'labels' of the leaderboard is missing"),
        (damaged(board__labels=-1), "'labels' of the leaderboard must be an integer ≥ 0, not -1"),
        (damaged(board__labels=True), "'labels' of the leaderboard must be an integer ≥ 0, not True"),
        (damaged(board__extra=1), "'extra' of the leaderboard is unknown"),
        (damaged(board__preset=None), "'preset' of the leaderboard must be a text, not None"),
        (damaged(board__seconds=None), "'seconds' of the leaderboard must be a number ≥ 0, not None"),
        (damaged(board__minutes="ten"), "'minutes' of the leaderboard must be a number ≥ 0, not ten"),
        (damaged(board__limits={"max_ms": []}), "'max_ms' of 'limits' of the leaderboard must be a number ≥ 0, not []"),
        (damaged(board__plan={}), "'plan' of the leaderboard must be a list, not {}"),
        (damaged(board__curve=[1]), "Moment 1 must be an object, not 1"),
        (damaged(entry__score="high"), "'score' of model 1 must be a number or null, not high"),
        (damaged(entry__state="done"), "'state' of model 1 must be complete or stopped or failed or skipped, not done"),
        (damaged(entry__state=[]), "'state' of model 1 must be complete or stopped or failed or skipped, not []"),
        (damaged(entry__metrics={"P@1": "x"}), "'P@1' of 'metrics' of model 1 must be a number or null, not x"),
        (damaged(entry__predict_ms=-1), "'predict_ms' of model 1 must be a number ≥ 0, not -1"),
        (damaged(entry__member="yes"), "'member' of model 1 must be true or false, not yes"),
        (damaged(plan__included=...), "'included' of planned model 2 is missing"),
        (damaged(plan__settings=[]), "'settings' of planned model 2 must be an object, not []"),
        (damaged(final__name=3), "'name' of the final model must be a text, not 3"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(value: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "board.json").write_text(json.dumps(value))
    with pytest.raises(DataError) as caught:
        Leaderboard.load(tmp_path / "board.json")
    assert str(caught.value) == f"{tmp_path / 'board.json'}: damaged. {message}. Copy the file again, or train again."


@pytest.mark.parametrize("content", [b'{"preset": "go', b"", b"\xff\xfe", b"[" * 5000, b'{"score": NaN}'])
def test_a_file_that_is_not_json_is_damaged(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "board.json").write_bytes(content)
    with pytest.raises(
        DataError, match=r"board\.json: damaged\. It is not valid JSON \(.*\)\. Copy the file again"
    ) as e:
        Leaderboard.load(tmp_path / "board.json")
    assert "\n" not in str(e.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.json: no such file\. Check the path\."):
        Leaderboard.load(tmp_path / "none.json")
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\)"):
        Leaderboard.load(tmp_path)
