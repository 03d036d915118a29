"""Metrics saved next to a model folder; they are valid only for the exact model that was evaluated."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from xmtc.artifact.dependencies import content_of
from xmtc.core.files import write_json
from xmtc.core.parsing import read_json
from xmtc.workflows.evaluation import Evaluation


def metrics_path(folder: Path) -> Path:
    """Path of the metrics file next to a model folder."""
    folder = Path(os.path.abspath(folder))  # next to a symbolic link, not next to its target
    return folder.with_name(f"{folder.name}.metrics.json")


def save_metrics(folder: Path, test: Path, result: Evaluation) -> Path:
    """Save the metrics of an evaluation on a test file."""
    place = metrics_path(folder)
    measured = {
        "file": test.name,
        "documents": result.documents,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(place, {"model": content_of(folder), "metrics": result.metrics, "measured": measured})
    return place


def read_metrics(folder: Path, content: str | None = None) -> dict[str, Any] | None:
    """The saved metrics of a model as fractions, with the test file they were measured on; None if there are none.

    `content` identifies the model if it was loaded earlier; otherwise the model now in the folder counts.
    """
    try:
        saved = read_json(metrics_path(folder))
        if saved["model"] != (content or content_of(folder)):
            return None
        metrics = {str(name): float(value) for name, value in saved["metrics"].items()}
        return {**metrics, "measured": dict(saved["measured"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # missing, or not a metrics file
        return None
