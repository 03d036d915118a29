"""Feedback on a model's labels: which ones people accepted and rejected, stored beside the model folder."""

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
_PAGE = 256  # records read at a time, so that nobody who writes has to wait for long
_PATIENCE = 30.0  # seconds to wait for others who write


@dataclass(frozen=True)
class FeedbackRecord:
    """Feedback on one text."""

    id: int
    time: str
    """ISO 8601, UTC."""
    version: str
    """Of the model."""
    text: str
    accepted: tuple[str, ...]
    """Keys of labels that are right, those among them that a person added."""
    rejected: tuple[str, ...]
    """Keys of labels that were offered and are wrong."""


def feedback_path(folder: str | Path) -> Path:
    """The file of feedback beside a model folder."""
    folder = Path(os.path.abspath(folder))
    return folder.with_name(f"{folder.name}.feedback.sqlite")


def latest(records: Iterable[FeedbackRecord]) -> list[FeedbackRecord]:
    """The last word on each text, in the order in which they were given."""
    found: dict[str, FeedbackRecord] = {}
    for record in records:
        found.pop(record.text, None)
        found[record.text] = record
    return list(found.values())


class Feedback:
    """A file of records that several threads and processes may add to at once.

    A record that was added outlasts the process and a power failure: every transaction is synced before it is done, the
    removal of its journal too (synchronous = EXTRA). With a rollback journal one file is all there is, which may lie on
    a shared disk and be copied while nobody writes. Every call has a connection of its own: nothing is shared between
    threads, nothing is carried through a fork, and a file that was moved away is made anew.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._one_at_a_time = threading.Lock()
        if not read_only and not (_writable(self.path.parent) and (not self.path.exists() or _writable(self.path))):
            raise DataError(f"{self.path}: feedback cannot be written there. Check the folder and its permissions.")
        if self.path.exists():
            with self._connected():
                pass

    def add(self, *, version: str, text: str, accepted: Sequence[str], rejected: Sequence[str]) -> int:
        """Keep what a person said of a text; returns its number once it is on the disk."""
        if self.read_only:
            raise DataError(f"{self.path}: was opened for reading only. Open it for writing.")
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
        """How many records there are."""
        if not self.path.exists():
            return 0
        with self._connected() as connection:
            return (
                0 if _is_empty(connection) else int(connection.execute("SELECT count(*) FROM feedback").fetchone()[0])
            )

    def records(self) -> Iterator[FeedbackRecord]:
        """All records in the order in which they were added; those that come meanwhile too."""
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
            accepted, rejected = (tuple(str(key) for key in json.loads(keys)) for keys in lists)
            datetime.fromisoformat(time)
        except (TypeError, ValueError):
            raise DataError(f"{self.path}: record {number} is damaged. Restore a copy of the file.") from None
        return FeedbackRecord(number, time, version, text, accepted, rejected)

    @contextmanager
    def _connected(self, create: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection to a file that is ours; whatever goes wrong within the block is said in one line."""
        connection = None
        try:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={self._mode(create)}",
                timeout=_PATIENCE,
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
                connection.close()  # takes back what was not committed

    def _mode(self, create: bool) -> str:
        """What was left half done by a process that died is taken back by the next, which has to write for that."""
        if create:
            return "rwc"
        return "rw" if _writable(self.path) and _writable(self.path.parent) else "ro"

    def _check(self, connection: sqlite3.Connection, create: bool) -> None:
        """Refuse a file that is not ours, and make the table in one that is empty."""
        found, version = _stamp(connection)
        if (found, version) == (0, 0) and _is_empty(connection):
            if create:
                self._make(connection)
            return
        if found != _APPLICATION:
            raise DataError(f"{self.path}: is a database of something else. Move it away or choose another file.")
        if version > _FORMAT:
            raise DataError(
                f"{self.path}: written by a newer xmtc (format {version}, this one knows {_FORMAT}). Update xmtc."
            )

    def _make(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        if _is_empty(connection):  # no one else was faster
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")
        sync_folder(self.path.parent)  # the name of a new file is to last, too


def _stamp(connection: sqlite3.Connection) -> tuple[int, int]:
    found, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    return int(found), int(version)


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _explained(error: sqlite3.Error) -> str:
    """What SQLite says, and the remedy."""
    name, words = getattr(error, "sqlite_errorname", ""), shown(str(error), 120)
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return f"is damaged, or no file of feedback ({words}). Restore a copy of it, or move it away."
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"others have been writing to it for {_PATIENCE:.0f} s ({words}). Try again."
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return f"feedback cannot be read or written there ({words}). Check place, permissions and free space."
    return f"is no file of feedback ({words}). Move it away or choose another file."


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


def _clean(text: str) -> str:
    """Half a surrogate pair, which UTF-8 cannot hold, becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


# ---- verbs


@dataclass(frozen=True)
class FeedbackSummary:
    """What people accepted and rejected."""

    path: Path
    texts: int
    superseded: int
    """Earlier records on the same texts."""
    accepted: Counter[str]
    """By key of the label."""
    rejected: Counter[str]
    first: str
    last: str
    """Dates of the first and the last record."""
    names: Mapping[str, str]
    """Key → display name of the labels that were rejected; '–' for one that the model does not know any more."""


@dataclass(frozen=True)
class FeedbackExport:
    """Feedback as training data."""

    lines: list[str]
    """JSON, one text a line."""
    notes: list[str]
    """What was left out."""


def feedback_file(folder: Path) -> Path:
    """The file of feedback of a model folder, or the file itself."""
    if folder.is_dir():
        store.read_manifest(folder)  # else a folder that holds no model would only lack feedback
        return feedback_path(folder)
    if folder.suffix != ".sqlite" and folder.exists():
        raise DataError(f"{folder}: neither a model folder nor a .sqlite file of feedback. Name one of them.")
    return folder if folder.suffix == ".sqlite" else feedback_path(folder)


def summarise_feedback(request: FeedbackRequest) -> FeedbackSummary:
    """Count what people accepted and rejected."""
    records = _recent(request)
    words = latest(records)
    rejected = Counter(key for word in words for key in word.rejected)
    labels = _known_labels(request.folder) if rejected else None
    keys = list(rejected)
    names = keys
    if labels is not None:
        names = ["–" if number < 0 else labels.name(number) for number in labels.ids(keys).tolist()]
    return FeedbackSummary(
        path=feedback_file(request.folder),
        texts=len(words),
        superseded=len(records) - len(words),
        accepted=Counter(key for word in words for key in word.accepted),
        rejected=rejected,
        first=records[0].time[:10],
        last=records[-1].time[:10],
        names=dict(zip(keys, names, strict=True)),
    )


def export_feedback(request: FeedbackRequest) -> FeedbackExport:
    """The last record on each text as JSONL to train on.

    A text whose labels were all rejected stays: a model learns from it that none of them is right.
    """
    words = latest(_recent(request))
    gone, unsaid, lost = _gone(words, _known_labels(request.folder)), 0, 0
    lines, learnable = [], False
    for word in words:
        accepted = [key for key in dict.fromkeys(word.accepted) if key not in gone]
        rejected = [key for key in dict.fromkeys(word.rejected) if key not in gone]
        if not word.accepted and not word.rejected:
            unsaid += 1
        elif not accepted and (word.accepted or not rejected):
            lost += 1
        else:
            row = {"id": f"feedback-{word.id}", "text": word.text, "labels": accepted, "rejected": rejected}
            lines.append(json.dumps(row, ensure_ascii=False))
            learnable |= bool(accepted)
    notes = [] if not gone else [f"{_counted(len(gone), 'label')} that the model does not know (any more) left out"]
    notes += [] if not lost else [f"{_counted(lost, 'text')} left out: of their labels none is left"]
    notes += [] if not unsaid else [f"{_counted(unsaid, 'text')} left out: nothing was accepted or rejected"]
    return FeedbackExport(lines if learnable else [], notes)


def _recent(request: FeedbackRequest) -> list[FeedbackRecord]:
    """The records from the requested date on, or an error with the remedy where there are none."""
    folder, since = request.folder, request.start
    place = feedback_file(folder)
    remedy = f"Collect some with: xmtc serve {folder}" if folder.is_dir() else "Check the path."
    if not place.exists():
        raise DataError(f"{folder}: no feedback yet, {place.name} is not there. {remedy}")
    found = list(Feedback(place, read_only=True).records())
    if not found:
        raise DataError(f"{place}: no feedback in it yet. {remedy}")
    if since is None:
        return found
    recent = [record for record in found if datetime.fromisoformat(record.time) >= since]
    if not recent:
        raise DataError(
            f"{place}: no feedback since then, the last is of {found[-1].time[:10]}. Choose an earlier date."
        )
    return recent


def _known_labels(folder: Path) -> LabelIndex | None:
    """The labels of a model; None for a file, which does not tell."""
    return LabelIndex(store.read_folder(folder)[1].tables["labels"]) if folder.is_dir() else None


def _gone(words: Sequence[FeedbackRecord], labels: LabelIndex | None) -> set[str]:
    """Keys that are not among a model's labels."""
    keys = list(dict.fromkeys(key for word in words for key in (*word.accepted, *word.rejected)))
    if labels is None:
        return set()
    return {key for key, number in zip(keys, labels.ids(keys).tolist(), strict=True) if number < 0}


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
