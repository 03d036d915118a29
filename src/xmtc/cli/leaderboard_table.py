"""The leaderboard of a preset in the terminal: the plan before training, the models tried after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xmtc.cli.common import counted
from xmtc.cli.text_table import paragraph, table
from xmtc.core.errors import shown
from xmtc.views.leaderboard_words import NOTHING, amount, limit_words, percent, time

if TYPE_CHECKING:
    from xmtc.workflows.auto import Leaderboard


def plan_lines(board: Leaderboard) -> list[str]:
    """What is going to be trained, why and for how long, and what is left out."""
    limits = ([] if board.minutes is None else [f"{time(60 * board.minutes)} of training"]) + limit_words(board.limits)
    sizes = [counted(board.documents, "document"), counted(board.labels, "label")]
    within = f", within {', '.join(limits)}" if limits else ""
    lines = [*_wrapped(f"preset {board.preset}: {', '.join(sizes)}; metric {board.metric}{within}")]
    lines += paragraph(board.validation).splitlines()
    chosen = [each for each in board.plan if each.included]
    if chosen:
        rows = [[shown(each.name), shown(each.reason, 200), time(each.seconds)] for each in chosen]
        lines += ["", *table(["model", "why", "estimated time"], rows, right={2}).splitlines(), ""]
    else:
        lines += ["no model is planned"]
    for each in board.plan:
        if not each.included:
            lines += _wrapped(f"left out: {shown(each.name)}{f' ({shown(each.note, 200)})' if each.note else ''}")
    return lines if lines[-1] else lines[:-1]


def leaderboard_lines(board: Leaderboard) -> list[str]:
    """The models tried, best first, and the final model."""
    entries = board.ranking()
    lines: list[str] = []
    if entries:
        # A further metric is shown if every model with a score has it.
        scored = [entry for entry in entries if percent(entry.score) != NOTHING]
        more = [
            name
            for name in ("P@1",)
            if name != board.metric and scored and all(name in entry.metrics for entry in scored)
        ]
        header = ["model", board.metric, *more, "training", "ms/doc", "MiB", "state"]
        rows = [
            [
                shown(entry.name) + (" *" if entry.member else ""),
                percent(entry.score),
                *(percent(entry.metrics.get(name)) for name in more),
                time(entry.train_seconds),
                amount(entry.predict_ms),
                amount(entry.megabytes),
                entry.state + (f": {shown(entry.note, 200)}" if entry.note else ""),
            ]
            for entry in entries
        ]
        right = range(1, len(header) - 1)
        lines += [*table(header, rows, right=right).splitlines(), ""]
        members = "; * member of the final model" if any(entry.member for entry in entries) else ""
        lines += _wrapped(f"scores in percent on the validation documents{members}")
    else:
        lines.append("no model was tried")
    return [*lines, *_wrapped(final_line(board))]


def final_line(board: Leaderboard) -> str:
    """The final model with its score, speed, size and the time of the search."""
    if board.final is None:
        return "final: no model could be trained" if board.complete else "final: not trained yet"
    final = board.final
    names = [entry.name for entry in board.ranking() if entry.member and entry.name != final.name]
    of = f" of {counted(len(names), 'model')}" if names else ""
    facts: list[Any] = [
        (percent(final.score), f"{board.metric} {percent(final.score)}"),
        (amount(final.predict_ms), f"{amount(final.predict_ms)} ms per document"),
        (amount(final.megabytes), f"{amount(final.megabytes)} MiB"),
        (time(board.seconds), f"{time(board.seconds)} in total"),
    ]
    return f"final: {shown(final.name)}{of}: {', '.join(words for value, words in facts if value != NOTHING)}"


def _wrapped(text: str) -> list[str]:
    return paragraph(text, "  ").splitlines()
