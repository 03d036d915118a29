"""`xmtc feedback`: feedback as counts, and as training data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from xmtc.artifact import store
from xmtc.core.errors import DataError
from xmtc.core.files import plain_name
from xmtc.data.label_index import LabelIndex
from xmtc.workflows.feedback import Feedback, FeedbackRecord, feedback_path, latest
from xmtc.workflows.requests import FeedbackRequest


@dataclass(frozen=True)
class FeedbackSummary:
    """Counts of accepted and rejected labels."""

    path: Path
    texts: int
    superseded: int
    """Number of earlier records on the same texts."""
    complete: int
    """Number of texts whose accepted labels are all of their labels."""
    accepted: Counter[str]
    """Counts by label key."""
    rejected: Counter[str]
    first: str
    last: str
    """Dates of the first and the last record."""
    names: Mapping[str, str]
    """Key → display name of the rejected labels; '–' for labels that the model no longer has."""


@dataclass(frozen=True)
class FeedbackExport:
    """Feedback as training data."""

    lines: list[str]
    """JSON objects, one text per line."""
    notes: list[str]
    """Notes on what was left out."""


def feedback_file(folder: Path) -> Path:
    """Resolve a model folder, or the path of a feedback file, to the feedback file."""
    if folder.is_dir():
        store.read_manifest(folder)  # raises if the folder is not a model
        return feedback_path(folder)
    if folder.suffix != ".sqlite" and folder.exists():
        raise DataError(f"{folder}: neither a model folder nor a .sqlite feedback file. Pass one of them.")
    return folder if folder.suffix == ".sqlite" else feedback_path(folder)


def check_export_name(path: Path) -> None:
    """Refuse a file name of a format that cannot distinguish rejected labels from unknown ones."""
    if plain_name(path).endswith((".csv", ".tsv", ".parquet", ".npz")):
        raise DataError(
            f"{path}: feedback is exported as JSON Lines, because this format cannot store rejected labels. "
            "Choose a file name that ends in .jsonl."
        )


def summarise_feedback(request: FeedbackRequest) -> FeedbackSummary:
    """Count accepted and rejected labels."""
    records = _recent(request)
    current = latest(records)
    rejected = Counter(key for record in current for key in record.rejected)
    labels = _known_labels(request.folder) if rejected else None
    keys = list(rejected)
    names = keys
    if labels is not None:
        names = ["–" if number < 0 else labels.name(number) for number in labels.ids(keys).tolist()]
    return FeedbackSummary(
        path=feedback_file(request.folder),
        texts=len(current),
        superseded=len(records) - len(current),
        complete=sum(record.complete for record in current),
        accepted=Counter(key for record in current for key in record.accepted),
        rejected=rejected,
        first=records[0].time[:10],
        last=records[-1].time[:10],
        names=dict(zip(keys, names, strict=True)),
    )


def export_feedback(request: FeedbackRequest) -> FeedbackExport:
    """Export the latest record of each text as JSONL for training.

    Accepted labels are positive, rejected ones negative. Labels without a decision are unknown, unless the record is
    complete: then they are negative. A record that accepts a label the model does not have is exported as incomplete,
    because the model may have the label under another key.
    """
    records = latest(_recent(request))
    unknown, withdrawn, lost = _unknown_keys(records, _known_labels(request.folder)), 0, 0
    lines = []
    for record in records:
        accepted, rejected = (
            [key for key in dict.fromkeys(keys) if key not in unknown] for keys in (record.accepted, record.rejected)
        )
        complete = record.complete and unknown.isdisjoint(record.accepted)
        if accepted or rejected or complete:
            row = {"text": record.text, "labels": accepted, "rejected": rejected, "complete": complete}
            lines.append(json.dumps({"id": f"feedback-{record.id}", **row}, ensure_ascii=False))
        elif record.accepted or record.rejected:
            lost += 1
        else:
            withdrawn += 1
    notes = [] if not unknown else [f"left out {_counted(len(unknown), 'label')} that the model does not have"]
    notes += [] if not lost else [f"left out {_counted(lost, 'text')}: the model has none of their labels"]
    notes += [] if not withdrawn else [f"left out {_counted(withdrawn, 'text')}: no label was accepted or rejected"]
    return FeedbackExport(lines, notes)


def _recent(request: FeedbackRequest) -> list[FeedbackRecord]:
    """The records since the requested date; raises DataError if there are none."""
    folder, since = request.folder, request.start
    path = feedback_file(folder)
    remedy = f"Collect some with: xmtc serve {folder}" if folder.is_dir() else "Check the path."
    if not path.exists():
        raise DataError(f"{folder}: no feedback yet ({path.name} does not exist). {remedy}")
    records = list(Feedback(path, read_only=True).records())
    if not records:
        raise DataError(f"{path}: contains no feedback yet. {remedy}")
    if since is None:
        return records
    recent = [record for record in records if datetime.fromisoformat(record.time) >= since]
    if not recent:
        raise DataError(
            f"{path}: no feedback since that date; the latest is from {records[-1].time[:10]}. Choose an earlier date."
        )
    return recent


def _known_labels(folder: Path) -> LabelIndex | None:
    """The labels of a model; None for a feedback file, which does not list them."""
    return LabelIndex(store.read_folder(folder)[1].tables["labels"]) if folder.is_dir() else None


def _unknown_keys(records: Sequence[FeedbackRecord], labels: LabelIndex | None) -> set[str]:
    """Keys that are not labels of the model."""
    keys = list(dict.fromkeys(key for record in records for key in (*record.accepted, *record.rejected)))
    if labels is None:
        return set()
    return {key for key, number in zip(keys, labels.ids(keys).tolist(), strict=True) if number < 0}


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
