"""Metrics saved beside a model folder; they count as long as the model is the one that was measured."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from xmtc.artifact.dependencies import content_of
from xmtc.core.files import write_json
from xmtc.workflows.evaluation import Evaluation


def metrics_path(folder: Path) -> Path:
    """The file of metrics beside a model folder."""
    folder = Path(os.path.abspath(folder))  # beside a link and not beside what it leads to today
    return folder.with_name(f"{folder.name}.metrics.json")


def save_metrics(folder: Path, test: Path, result: Evaluation) -> Path:
    """Save what was measured on a test file."""
    place = metrics_path(folder)
    measured = {
        "file": test.name,
        "documents": result.documents,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(place, {"model": content_of(folder), "metrics": result.metrics, "measured": measured})
    return place


def read_metrics(folder: Path, content: str | None = None) -> dict[str, Any] | None:
    """What was measured of a model: each measure as a fraction, and on what; None where nothing was.

    The model is the one in the folder, or the one with this content that was loaded from there.
    """
    try:
        found = json.loads(metrics_path(folder).read_text(encoding="utf-8"))
        if found["model"] != (content or content_of(folder)):
            return None
        metrics = {str(name): float(value) for name, value in found["metrics"].items()}
        return {**metrics, "measured": dict(found["measured"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # not there, or not ours
        return None
