"""The user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Return XMTC_CACHE, or xmtc in the user's cache folder; None if XMTC_CACHE is 'off'."""
    place = os.environ.get("XMTC_CACHE") or str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "xmtc")
    if place == "off":
        return None
    try:
        return Path(place).expanduser()
    except RuntimeError:  # no home folder
        return None
