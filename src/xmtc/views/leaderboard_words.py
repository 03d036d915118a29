"""The values of a leaderboard as people read them, on the page and in the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from xmtc.core import config
from xmtc.core.durations import duration
from xmtc.core.errors import shown
from xmtc.presets.leaderboard import Leaderboard, TriedModel

NOTHING = "–"
"""In place of a value that is missing."""


def percent(score: float | None) -> str:
    """A score from 0 to 1 in percent, without the sign: 61.20."""
    return f"{100 * score:.2f}" if _finite(score) else NOTHING


def time(seconds: float | None) -> str:
    """A time: 12 s, 3 min 20 s, 10 min."""
    if not _finite(seconds):
        return NOTHING
    return duration(round(seconds) if seconds >= 9.95 else seconds).removesuffix(" 00 s").removesuffix(" 00 min")


def amount(value: float | None) -> str:
    """Milliseconds or MiB with about three digits: 0.043, 3.2, 1,250."""
    if not _finite(value):
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{float(f'{value:.3g}'):.6g}"


def limit_words(limits: Mapping[str, float | None]) -> list[str]:
    """The limits on the final model that were given: 5 ms per document, 200 MiB on disk."""
    slow, large = limits.get("max_ms"), limits.get("max_mb")
    words = [f"{amount(slow)} ms per document"] if _finite(slow) else []
    return words + ([f"{amount(large)} MiB on disk"] if _finite(large) else [])


def final_facts(board: Leaderboard, final: TriedModel) -> list[str]:
    """Score, speed and size of the final model, as far as they are known."""
    facts = [
        (percent(final.score), f"{board.metric} {percent(final.score)} % on the validation documents"),
        (amount(final.predict_ms), f"{amount(final.predict_ms)} ms per document"),
        (amount(final.megabytes), f"{amount(final.megabytes)} MiB on disk"),
        (time(final.train_seconds), f"trained in {time(final.train_seconds)}"),
    ]
    return [words for value, words in facts if value != NOTHING]


def setting_words(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings as (name, value), nested ones with a dot in their name; strings without quotes."""
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
        for name, value in config.flat(settings).items()
    ]


def setting_line(settings: Mapping[str, Any]) -> str:
    """Settings on one line: trees=5, beam_width=20."""
    return ", ".join(f"{shown(name, 40)}={shown(value, 40)}" for name, value in setting_words(settings))


def _finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
