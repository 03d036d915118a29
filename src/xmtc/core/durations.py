"""Durations as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Format seconds: 12 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02d} min"
