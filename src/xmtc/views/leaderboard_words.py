"""The values of a leaderboard as people read them, on the page and in the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from xmtc.core import config
from xmtc.core.errors import shown
from xmtc.views.training_log import duration

NOTHING = "–"
"""In place of a value that is missing."""


def percent(score: float | None) -> str:
    """A score from 0 to 1 in percent, without the sign: 61.20."""
    return f"{100 * score:.2f}" if _finite(score) else NOTHING


def time(seconds: float | None) -> str:
    """A time: 12 s, 3 min 20 s."""
    return duration(round(seconds) if seconds >= 9.95 else seconds) if _finite(seconds) else NOTHING


def amount(value: float | None) -> str:
    """Milliseconds or megabytes with about three digits: 0.043, 3.2, 1,250."""
    if not _finite(value):
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{float(f'{value:.3g}'):.6g}"


def limit_words(minutes: float | None, limits: Mapping[str, float | None]) -> list[str]:
    """The limits that were given: 10 min 00 s of training, 5 ms per document."""
    slow, large = limits.get("max_ms"), limits.get("max_mb")
    words = [] if minutes is None else [f"{time(60 * minutes)} of training"]
    words += [] if slow is None else [f"{amount(slow)} ms per document"]
    return words + ([] if large is None else [f"{amount(large)} MB on disk"])


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
