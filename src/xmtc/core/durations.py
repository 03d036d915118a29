"""Durations as people read them."""

from __future__ import annotations

import math


def duration(seconds: float) -> str:
    """Format seconds: 12 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02d} min"


def whole_seconds(seconds: float) -> str:
    """Format an estimate, at least a second if it is not 0."""
    return duration(math.ceil(max(seconds, 0.0)))
