"""Feedback on predicted labels: which ones people accepted or rejected, stored next to the model folder."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from xmtc.artifact import store
from xmtc.core.errors import DataError, shown
from xmtc.core.files import sync_folder
from xmtc.core.parsing import parse_json
from xmtc.data.label_index import LabelIndex
from xmtc.workflows.requests import FeedbackRequest

_APPLICATION = int.from_bytes(b"xmtc", "big")
_FORMAT = 1
_TABLE = """
CREATE TABLE feedback (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL, -- ISO 8601, UTC
    version TEXT NOT NULL, -- of the model
    text TEXT NOT NULL,
    accepted TEXT NOT NULL, -- a JSON list of keys
    rejected TEXT NOT NULL
)
"""
_PAGE = 256  # records per read, so that writers do not wait for long
_LOCK_TIMEOUT = 30.0  # seconds to wait for other writers


@dataclass(frozen=True)
class FeedbackRecord:
    """Feedback on one text."""

    id: int
    time: str
    """ISO 8601, UTC."""
    version: str
    """Version of the model."""
    text: str
    accepted: tuple[str, ...]
    """Keys of correct labels, including labels that a person added."""
    rejected: tuple[str, ...]
    """Keys of labels that were suggested and are wrong."""


def feedback_path(folder: str | Path) -> Path:
    """Path of the feedback file next to a model folder."""
    folder = Path(os.path.abspath(folder))
    return folder.with_name(f"{folder.name}.feedback.sqlite")


def latest(records: Iterable[FeedbackRecord]) -> list[FeedbackRecord]:
    """Keep the latest record of each text, in chronological order."""
    by_text: dict[str, FeedbackRecord] = {}
    for record in records:
        by_text.pop(record.text, None)
        by_text[record.text] = record
    return list(by_text.values())


class Feedback:
    """A file of feedback records that several threads and processes can append to concurrently.

    An added record survives a crash and a power failure: every transaction, including the removal of its journal, is
    synced before it returns (synchronous = EXTRA). The rollback journal keeps everything in one file, which can be on a
    shared disk and can be copied while nobody writes. Every call opens its own connection: nothing is shared between
    threads or inherited through a fork, and a file that was moved away is created again.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._one_at_a_time = threading.Lock()
        if not read_only and not (_writable(self.path.parent) and (not self.path.exists() or _writable(self.path))):
            raise DataError(f"{self.path}: cannot write feedback. Check the folder and its permissions.")
        if self.path.exists():
            with self._connected():
                pass

    def add(self, *, version: str, text: str, accepted: Sequence[str], rejected: Sequence[str]) -> int:
        """Store feedback on a text; returns the record's number once it is on disk."""
        if self.read_only:
            raise DataError(f"{self.path}: opened read-only. Open it with read_only=False to add feedback.")
        lists = (json.dumps([_clean(key) for key in keys], ensure_ascii=False) for keys in (accepted, rejected))
        values = (_clean(version), _clean(text), *lists)
        with self._one_at_a_time, self._connected(create=True) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time = datetime.now(UTC).isoformat(timespec="milliseconds")
            done = connection.execute(
                "INSERT INTO feedback (time, version, text, accepted, rejected) VALUES (?, ?, ?, ?, ?)", (time, *values)
            )
            connection.execute("COMMIT")
            return int(done.lastrowid or 0)

    def count(self) -> int:
        """Number of records."""
        if not self.path.exists():
            return 0
        with self._connected() as connection:
            return (
                0 if _is_empty(connection) else int(connection.execute("SELECT count(*) FROM feedback").fetchone()[0])
            )

    def records(self) -> Iterator[FeedbackRecord]:
        """Iterate over all records in the order they were added, including those added meanwhile."""
        last = 0
        while rows := self._page(last):
            for row in rows:
                yield self._record(row)
            last = rows[-1][0]

    def _page(self, last: int) -> list[tuple[int, str, str, str, str, str]]:
        if not self.path.exists():
            return []
        query = "SELECT id, time, version, text, accepted, rejected FROM feedback WHERE id > ? ORDER BY id LIMIT ?"
        with self._connected() as connection:
            return [] if _is_empty(connection) else connection.execute(query, (last, _PAGE)).fetchall()

    def _record(self, row: tuple[int, str, str, str, str, str]) -> FeedbackRecord:
        number, time, version, text, *lists = row
        try:
            accepted, rejected = (tuple(str(key) for key in parse_json(keys)) for keys in lists)
            datetime.fromisoformat(time)
        except (TypeError, ValueError):
            raise DataError(f"{self.path}: record {number} is damaged. Restore the file from a backup.") from None
        return FeedbackRecord(number, time, version, text, accepted, rejected)

    @contextmanager
    def _connected(self, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Open a connection to a feedback file; SQLite errors within the block are raised as DataError."""
        connection = None
        try:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={self._mode(create)}",
                timeout=_LOCK_TIMEOUT,
                isolation_level=None,
                uri=True,
            )
            connection.execute("PRAGMA synchronous = EXTRA")
            self._check(connection, create)
            yield connection
        except sqlite3.Error as error:
            raise DataError(f"{self.path}: {_explained(error)}") from None
        finally:
            if connection is not None:
                connection.close()  # rolls back uncommitted changes

    def _mode(self, create: bool) -> str:
        """Open for writing if possible, even to read: rolling back a crashed transaction requires write access."""
        if create:
            return "rwc"
        return "rw" if _writable(self.path) and _writable(self.path.parent) else "ro"

    def _check(self, connection: sqlite3.Connection, create: bool) -> None:
        """Refuse a file that is not a feedback file, and create the table in an empty one."""
        application, version = _stamp(connection)
        if (application, version) == (0, 0) and _is_empty(connection):
            if create:
                self._make(connection)
            return
        if application != _APPLICATION:
            raise DataError(
                f"{self.path}: is an SQLite database of another application. Move it or choose another file."
            )
        if version > _FORMAT:
            raise DataError(
                f"{self.path}: written by a newer xmtc (format {version}, this version reads up to {_FORMAT}). "
                "Update xmtc."
            )

    def _make(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        if _is_empty(connection):  # no other process has created it meanwhile
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")
        sync_folder(self.path.parent)  # makes the directory entry of the new file durable


def _stamp(connection: sqlite3.Connection) -> tuple[int, int]:
    pragmas = ("application_id", "user_version")
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
    return int(application), int(version)


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _explained(error: sqlite3.Error) -> str:
    """The SQLite error message with a remedy."""
    name, message = getattr(error, "sqlite_errorname", ""), shown(str(error), 120)
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return f"is damaged or not a feedback file ({message}). Restore it from a backup, or move it."
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"locked by other writers for {_LOCK_TIMEOUT:.0f} s ({message}). Try again."
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return f"cannot read or write feedback ({message}). Check the path, permissions and free disk space."
    return f"is not a feedback file ({message}). Move it or choose another file."


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


def _clean(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by question marks."""
    return text.encode("utf-8", "replace").decode()


# ---- commands


@dataclass(frozen=True)
class FeedbackSummary:
    """Counts of accepted and rejected labels."""

    path: Path
    texts: int
    superseded: int
    """Number of earlier records on the same texts."""
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
        accepted=Counter(key for record in current for key in record.accepted),
        rejected=rejected,
        first=records[0].time[:10],
        last=records[-1].time[:10],
        names=dict(zip(keys, names, strict=True)),
    )


def export_feedback(request: FeedbackRequest) -> FeedbackExport:
    """Export the latest record of each text as JSONL for training.

    A text whose labels were all rejected is included: the model learns that none of them is correct.
    """
    records = latest(_recent(request))
    unknown, empty, lost = _unknown_keys(records, _known_labels(request.folder)), 0, 0
    lines, learnable = [], False
    for record in records:
        accepted = [key for key in dict.fromkeys(record.accepted) if key not in unknown]
        rejected = [key for key in dict.fromkeys(record.rejected) if key not in unknown]
        if not record.accepted and not record.rejected:
            empty += 1
        elif not accepted and (record.accepted or not rejected):
            lost += 1
        else:
            row = {"id": f"feedback-{record.id}", "text": record.text, "labels": accepted, "rejected": rejected}
            lines.append(json.dumps(row, ensure_ascii=False))
            learnable |= bool(accepted)
    notes = [] if not unknown else [f"left out {_counted(len(unknown), 'label')} that the model does not have"]
    notes += [] if not lost else [f"left out {_counted(lost, 'text')}: the model has none of their labels"]
    notes += [] if not empty else [f"left out {_counted(empty, 'text')}: no label was accepted or rejected"]
    return FeedbackExport(lines if learnable else [], notes)


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
