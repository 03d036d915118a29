"""The leaderboard of a preset as one self-contained HTML page without scripts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from xmtc.presets.leaderboard import Leaderboard, TriedModel
from xmtc.views import leaderboard_figures
from xmtc.views.leaderboard_figures import BoardFigure, cost_figure, text_width, time_figure
from xmtc.views.leaderboard_words import (
    NOTHING,
    amount,
    final_facts,
    limit_words,
    percent,
    setting_line,
    setting_words,
    time,
)
from xmtc.views.pages import render

_SYMBOL, _GAP = 9.0, 20.0  # pixels from a symbol of a legend to its words, and from these to the next symbol


class BoardRow(NamedTuple):
    """A row of the table of models."""

    entry: TriedModel
    scores: list[tuple[str, bool]]
    """Each score, and whether it is the best of its column."""
    time: str
    speed: str
    size: str
    role: str


def leaderboard_page(board: Leaderboard) -> str:
    """Render the page."""
    columns = score_columns(board)
    final = board.final
    return render(
        "leaderboard.html",
        board=board,
        took=_took(board),
        limits=limit_words(board.limits),
        final_facts=[] if final is None else final_facts(board, final),
        members=[entry for entry in board.members() if final is None or entry.name != final.name],
        gain=_gain(board),
        settings=[] if final is None else setting_words(final.settings),
        figures=[each for each in (time_figure(board), cost_figure(board)) if each is not None],
        columns=[f"{name} (%)" for name in columns],
        rows=_rows(board, columns),
        alone=final is not None and final.name in {entry.name for entry in board.entries},
        nothing=NOTHING,
        width=leaderboard_figures.WIDTH,
        left=leaderboard_figures.LEFT,
        right=leaderboard_figures.RIGHT,
        top=leaderboard_figures.TOP,
        legend=_legend,
        limit_box=leaderboard_figures.limit_box,
        amount=amount,
        percent=percent,
        setting_line=setting_line,
        time=time,
    )


def score_columns(board: Leaderboard) -> list[str]:
    """The metric of the leaderboard, then the further metrics of its models."""
    models = [*board.entries, *([] if board.final is None else [board.final])]
    return list(dict.fromkeys([board.metric, *(name for entry in models for name in entry.metrics)]))


def _took(board: Leaderboard) -> str:
    limit = "" if board.minutes is None else f" of {time(60 * board.minutes)}"
    return f"Time used: {time(board.seconds)}{limit}. Seed: {board.seed}."


def _gain(board: Leaderboard) -> str:
    """By how much the final model is better than its best member; '' if there is only one."""
    best = board.best_member()
    if best is None or board.final is None or not board.final.ranked or len(board.members()) < 2:
        return ""
    assert board.final.score is not None
    assert best.score is not None
    difference = round(100 * (board.final.score - best.score), 2)
    how = "better" if difference >= 0 else "worse"
    return f"The final model is {abs(difference):.2f} points {how} than its best member."


def _score(entry: TriedModel, metric: str, board: Leaderboard) -> float | None:
    return entry.score if metric == board.metric and entry.score is not None else entry.metrics.get(metric)


def _rows(board: Leaderboard, columns: list[str]) -> list[BoardRow]:
    """The final model, unless it is one of those tried, then these, best first."""
    final = board.final
    tried = board.ranking()
    best = {
        metric: max(
            (score for entry in tried if (score := _score(entry, metric, board)) is not None and math.isfinite(score)),
            default=None,
        )
        for metric in columns
    }
    alone = final is not None and final.name in {entry.name for entry in tried}
    shown = [final, *tried] if final is not None and not alone else tried
    rows = []
    for entry in shown:
        scores = [_score(entry, metric, board) for metric in columns]
        is_final = final is not None and entry.name == final.name
        bold = [
            score is not None and score == best[metric] and (entry is not final)
            for metric, score in zip(columns, scores, strict=True)
        ]
        rows.append(
            BoardRow(
                entry,
                list(zip(map(percent, scores), bold, strict=True)),
                time(entry.train_seconds),
                amount(entry.predict_ms),
                amount(entry.megabytes),
                "final model" if is_final else "member" if entry.member else "",
            )
        )
    return rows


def _legend(figure: BoardFigure) -> list[tuple[str, str, float]]:
    """Kind, words and place of the symbols in the legend of a figure, which ends at the right edge."""
    x = leaderboard_figures.RIGHT
    placed: list[Any] = []
    for kind, words in reversed(figure.legend):
        x -= 0.87 * text_width(words) + _SYMBOL
        placed.insert(0, (kind, words, x))
        x -= _GAP
    return placed
