"""Measures that are kept beside a model, for whoever looks at it later; they are its own as long as it is the same."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from xmtc.artifact.dependencies import content_of
from xmtc.core.files import write_json
from xmtc.workflows.evaluation import Evaluation


def beside(folder: Path) -> Path:
    """Where they lie."""
    folder = Path(os.path.abspath(folder))  # beside a link and not beside what it leads to today
    return folder.with_name(f"{folder.name}.metrics.json")


def keep(folder: Path, test: Path, result: Evaluation) -> Path:
    """Keep what was measured on a test file."""
    place = beside(folder)
    measured = {
        "file": test.name,
        "documents": result.documents,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(place, {"model": content_of(folder), "metrics": result.metrics, "measured": measured})
    return place


def kept(folder: Path, content: str | None = None) -> dict[str, Any] | None:
    """What was measured of a model: each measure as a fraction, and on what; None where nothing was.

    The model is the one in the folder, or the one with this content that was loaded from there.
    """
    try:
        found = json.loads(beside(folder).read_text(encoding="utf-8"))
        if found["model"] != (content or content_of(folder)):
            return None
        metrics = {str(name): float(value) for name, value in found["metrics"].items()}
        return {**metrics, "measured": dict(found["measured"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # not there, or not ours
        return None
