"""Feedback on predicted labels: which ones people accepted or rejected, stored next to the model folder."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from xmtc.core.errors import DataError, shown
from xmtc.core.files import sync_folder
from xmtc.core.parsing import parse_json

_APPLICATION = int.from_bytes(b"xmtc", "big")
_FORMAT = 2  # format 1 has no column 'complete' and no table 'usage'
_TABLE = """
CREATE TABLE feedback (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL, -- ISO 8601, UTC
    version TEXT NOT NULL, -- of the model
    text TEXT NOT NULL,
    accepted TEXT NOT NULL, -- a JSON list of keys
    rejected TEXT NOT NULL,
    complete INTEGER NOT NULL DEFAULT 0 -- 1: the accepted labels are all labels of the text
)
"""
_USAGE = """
CREATE TABLE usage ( -- of the current day
    client TEXT PRIMARY KEY,
    day TEXT NOT NULL, -- ISO 8601, UTC
    records INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID
"""
_PAGE = 256  # records per read, so that writers do not wait for long
_LOCK_TIMEOUT = 30.0  # seconds to wait for other writers


class FeedbackFullError(DataError):
    """The feedback file has reached its maximum size."""


class FeedbackQuotaError(DataError):
    """A client has used up its quota of the day."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds until the next day."""


@dataclass(frozen=True)
class FeedbackLimits:
    """Limits of a feedback file. Days are in UTC."""

    file_bytes: int
    """Maximum size of the file."""
    daily_records: int
    """Maximum number of records per client and day."""
    daily_bytes: int
    """Maximum total size of texts and labels per client and day."""


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
    complete: bool = False
    """Whether the accepted labels are all labels of the text; otherwise labels without a decision are unknown."""


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

    def __init__(self, path: str | Path, *, read_only: bool = False, limits: FeedbackLimits | None = None) -> None:
        self.path = Path(path)
        self.limits = limits
        self.read_only = read_only
        self._one_at_a_time = threading.Lock()
        if not read_only and not (_writable(self.path.parent) and (not self.path.exists() or _writable(self.path))):
            raise DataError(f"{self.path}: cannot write feedback. Check the folder and its permissions.")
        if self.path.exists():
            with self._connected():
                pass

    def add(
        self,
        *,
        version: str,
        text: str,
        accepted: Sequence[str],
        rejected: Sequence[str],
        complete: bool = False,
        client: str = "",
    ) -> int:
        """Store feedback on a text; returns the record's number once it is on disk.

        A record without labels that is not complete withdraws earlier feedback on the text. The limits are counted in
        the file, so that they apply across processes and restarts; `client` is only stored there, until the next day.
        """
        if self.read_only:
            raise DataError(f"{self.path}: opened read-only. Open it with read_only=False to add feedback.")
        lists = tuple(json.dumps([_clean(key) for key in keys], ensure_ascii=False) for keys in (accepted, rejected))
        values = (_clean(version), _clean(text), *lists, int(complete))
        with self._one_at_a_time, self._connected(create=True) as connection:
            connection.execute("BEGIN IMMEDIATE")
            now = datetime.now(UTC)
            if self.limits is not None:
                _count_usage(connection, self.limits, _clean(client), now, size=_size(text, *lists))
            done = connection.execute(
                "INSERT INTO feedback (time, version, text, accepted, rejected, complete) VALUES (?, ?, ?, ?, ?, ?)",
                (now.isoformat(timespec="milliseconds"), *values),
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

    def _page(self, last: int) -> list[tuple[int, str, str, str, str, str, int]]:
        if not self.path.exists():
            return []
        with self._connected() as connection:
            if _is_empty(connection):
                return []
            complete = "complete" if _stamp(connection)[1] > 1 else "0"
            columns = f"id, time, version, text, accepted, rejected, {complete}"
            query = f"SELECT {columns} FROM feedback WHERE id > ? ORDER BY id LIMIT ?"
            return connection.execute(query, (last, _PAGE)).fetchall()

    def _record(self, row: tuple[int, str, str, str, str, str, int]) -> FeedbackRecord:
        number, time, version, text, *lists, complete = row
        try:
            accepted, rejected = (tuple(str(key) for key in parse_json(keys)) for keys in lists)
            datetime.fromisoformat(time)
        except (TypeError, ValueError):
            raise DataError(f"{self.path}: record {number} is damaged. Restore the file from a backup.") from None
        return FeedbackRecord(number, time, version, text, accepted, rejected, bool(complete))

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
        """Refuse a file that is not a feedback file; to write, create the table or migrate an old format."""
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
        if create and version < _FORMAT:
            self._migrate(connection)

    def _make(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        if _is_empty(connection):  # no other process has created it meanwhile
            connection.execute(_TABLE)
            connection.execute(_USAGE)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")
        sync_folder(self.path.parent)  # makes the directory entry of the new file durable

    def _migrate(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        if _stamp(connection)[1] < _FORMAT:  # no other process has migrated it meanwhile
            connection.execute("ALTER TABLE feedback ADD COLUMN complete INTEGER NOT NULL DEFAULT 0")
            connection.execute(_USAGE)
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")


def _count_usage(
    connection: sqlite3.Connection, limits: FeedbackLimits, client: str, now: datetime, *, size: int
) -> None:
    """Add a record of this size to the usage of a client; raises if it exceeds a limit."""
    pages, page_size = (int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "page_size"))
    if pages * page_size + size > limits.file_bytes:
        raise FeedbackFullError(
            f"the feedback file has reached its limit of {limits.file_bytes >> 20:,} MiB. "
            "Export and move it, or raise --max-feedback."
        )
    day = now.date().isoformat()
    query = "SELECT records, bytes FROM usage WHERE client = ? AND day = ?"
    found = connection.execute(query, (client, day)).fetchone()
    records, total = (found[0] + 1, found[1] + size) if found else (1, size)
    if records > limits.daily_records or total > limits.daily_bytes:
        midnight = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), UTC)
        reached, option = (
            (f"{limits.daily_records:,} records", "--max-daily-feedback")
            if records > limits.daily_records
            else (f"{limits.daily_bytes >> 20:,} MiB", "--max-daily-feedback-size")
        )
        raise FeedbackQuotaError(
            f"this client has reached its limit of {reached} of feedback per day. "
            f"Continue tomorrow (UTC), or raise {option}.",
            retry_after=int((midnight - now).total_seconds()) + 1,
        )
    if not found:
        connection.execute("DELETE FROM usage WHERE day != ?", (day,))
    connection.execute("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?)", (client, day, records, total))


def _size(*texts: str) -> int:
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


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
