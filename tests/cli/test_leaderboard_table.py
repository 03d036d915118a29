"""The leaderboard of a preset in the terminal."""

from __future__ import annotations

from tests.support.leaderboards import board, full_board, planned, tried
from xmtc.cli.leaderboard_table import leaderboard_lines, plan_lines


def test_the_plan_before_training() -> None:
    assert plan_lines(full_board()) == [
        "preset good: 12,000 documents, 3,000 labels; metric nDCG@5, within 10 min of",
        "  training, 5 ms per document",
        "3-fold cross-validation.",
        "",
        "model    why          estimated time",
        "------------------------------------",
        "parabel  why parabel            30 s",
        "knn      why knn                   –",
        "",
        "left out: slow (would need 14 min of 10)",
    ]


def test_a_plan_without_models() -> None:
    found = board(plan=(planned("slow", "needs PyTorch"),), minutes=None, documents=1, labels=1)
    assert plan_lines(found) == [
        "preset good: 1 document, 1 label; metric nDCG@5",
        "3-fold cross-validation.",
        "no model is planned",
        "left out: slow (needs PyTorch)",
    ]


def test_the_models_after_training() -> None:
    assert leaderboard_lines(full_board()) == [
        "model      nDCG@5    P@1  training  ms/doc  MiB  state",
        "----------------------------------------------------------------------",
        "parabel *   60.00  70.00     1 min       1   44  complete",
        "knn         50.00  70.00         –      10    –  complete",
        "lexical *   40.00  65.00         –     0.1    –  complete",
        "late            –      –         –       –    –  stopped: time limit",
        "broken          –      –         –       –    –  failed: out of memory",
        "",
        "scores in percent on the validation documents; * member of the final model",
        "final: consensus of 2 models: nDCG@5 65.00, 1.25 ms per document, 56.6 MiB, 4",
        "  min in total",
    ]


def test_a_metric_that_some_models_lack_is_left_out() -> None:
    found = board(entries=(tried("a", 0.5, metrics={"P@1": 0.6}), tried("b", 0.4)))
    assert leaderboard_lines(found)[0].split() == ["model", "nDCG@5", "training", "ms/doc", "MiB", "state"]


def test_boards_without_a_final_model() -> None:
    assert leaderboard_lines(board()) == ["no model was tried", "final: not trained yet"]
    failed = board(entries=(tried("a", None, state="failed"),), complete=True)
    assert leaderboard_lines(failed)[-2:] == [
        "scores in percent on the validation documents",
        "final: no model could be trained",
    ]


def test_names_stay_on_one_line_and_in_eighty_columns() -> None:
    odd = tried("a\nb\x1b[2J" + "x" * 90, 0.5, note="n " * 100, member=True)
    lines = leaderboard_lines(board(entries=(odd,), final=odd))
    assert any(line.startswith("a\\nb\\x1b[2J") for line in lines)
    assert not any("\x1b" in line for line in lines)
    assert max(map(len, lines)) <= 80
