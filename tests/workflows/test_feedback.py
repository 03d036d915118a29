"""Feedback on disk: what is told is kept, by many at once, through kills; files that are not ours are refused."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from xmtc.core.errors import DataError
from xmtc.workflows import feedback as module
from xmtc.workflows.feedback import (
    Feedback,
    FeedbackFullError,
    FeedbackLimits,
    FeedbackQuotaError,
    FeedbackRecord,
    feedback_path,
    latest,
)

WRITER = """
import sys
from xmtc.workflows.feedback import Feedback
kept = Feedback(sys.argv[1])
for number in range(int(sys.argv[3])):
    text = f"{sys.argv[2]} {number}"
    print(kept.add(version="v", text=text, accepted=["a"], rejected=["b"]), text, sep="\\t", flush=True)
"""


def add(kept: Feedback, text: str, accepted: tuple[str, ...] = (), rejected: tuple[str, ...] = ()) -> int:
    return kept.add(version="v1", text=text, accepted=accepted, rejected=rejected)


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.feedback.sqlite"


def test_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert feedback_path(tmp_path / "model") == tmp_path / "model.feedback.sqlite"
    assert feedback_path(tmp_path / "model" / ".." / "other" / ".") == tmp_path / "other.feedback.sqlite"
    (tmp_path / "v1.2").mkdir()
    monkeypatch.chdir(tmp_path / "v1.2")
    assert feedback_path(".") == tmp_path / "v1.2.feedback.sqlite"


def test_what_is_added_is_there_in_order(path: Path) -> None:
    kept = Feedback(path)
    assert (kept.count(), list(kept.records()), path.exists()) == (0, [], False)
    before = datetime.now(UTC).isoformat(timespec="milliseconds")
    texts = ["one", "", "zwei \0 \n", "水 😀 'quoted' \"double\"", "x" * 100_000, "one"]
    numbers = [add(kept, text, (f"k{at}", "é;,"), ("r",)) for at, text in enumerate(texts)]
    records = list(Feedback(path, read_only=True).records())
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert [record.text for record in records] == texts
    assert records[3] == FeedbackRecord(4, records[3].time, "v1", texts[3], ("k3", "é;,"), ("r",))
    assert before <= records[0].time <= records[-1].time <= datetime.now(UTC).isoformat(timespec="milliseconds")
    assert all(datetime.fromisoformat(record.time).utcoffset() is not None for record in records)
    assert kept.count() == 6
    assert os.listdir(path.parent) == [path.name]


def test_halves_of_surrogate_pairs_do_not_get_in(path: Path) -> None:
    kept = Feedback(path)
    kept.add(version="\udc80", text="a\ud800b", accepted=["\udfff"], rejected=["x\udc80"])
    record = next(kept.records())
    assert (record.version, record.text, record.accepted, record.rejected) == ("?", "a?b", ("?",), ("x?",))


def test_more_than_a_page(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 3)
    kept = Feedback(path)
    for number in range(7):
        add(kept, str(number))
    reading = kept.records()
    first = next(reading)
    add(kept, "7")  # nobody who reads keeps others from writing
    assert [first.text, *(record.text for record in reading)] == [str(number) for number in range(8)]


def test_the_last_word_on_a_text(path: Path) -> None:
    kept = Feedback(path)
    for text, label in (("a", "x"), ("b", "y"), ("a", "z"), ("c", "x"), ("A", "x")):
        add(kept, text, (label,))
    assert [(each.id, each.text, each.accepted) for each in latest(kept.records())] == [
        (2, "b", ("y",)),
        (3, "a", ("z",)),
        (4, "c", ("x",)),
        (5, "A", ("x",)),
    ]


def test_threads_and_processes_write_at_once(path: Path) -> None:
    """They make the file at once, too."""
    others = [writer(path, name, 30) for name in ("p", "q")]
    kept = Feedback(path)
    with ThreadPoolExecutor(6) as pool:
        numbers = list(pool.map(lambda number: add(kept, f"t {number}"), range(60)))
    told = {}
    for other in others:
        out, _ = other.communicate(timeout=60)
        assert other.returncode == 0
        told |= {int(line.split("\t")[0]): line.split("\t")[1] for line in out.splitlines()}
    assert len(told) == 60
    told |= {number: f"t {at}" for at, number in enumerate(numbers)}
    assert {record.id: record.text for record in kept.records()} == told
    assert sorted(told) == list(range(1, 121))


def test_what_was_told_outlasts_a_kill(path: Path) -> None:
    for turn in range(3):
        process = writer(path, str(turn), 10_000)
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        told += process.stdout.read().splitlines(keepends=True)
        process.wait()
        process.stdout.close()
        there = {record.id: record.text for record in Feedback(path).records()}
        whole = [line.rstrip("\n").split("\t") for line in told if line.endswith("\n")]
        assert len(whole) >= 20
        for number, text in whole:
            assert there[int(number)] == text
    assert add(Feedback(path), "after") > 60


def test_every_commit_is_synced(path: Path) -> None:
    with Feedback(path)._connected(create=True) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_file_that_was_left_empty_is_used(path: Path) -> None:
    path.touch()
    kept = Feedback(path)
    assert (kept.count(), list(kept.records())) == (0, [])
    assert add(kept, "a") == 1


def test_a_file_that_was_moved_away_is_made_anew(path: Path) -> None:
    kept = Feedback(path)
    add(kept, "a")
    path.rename(path.with_suffix(".old"))
    assert kept.count() == 0
    add(kept, "b")
    assert [record.text for record in kept.records()] == ["b"]


class TestOldFormat:
    """Files of format 1 have no column 'complete'."""

    @pytest.fixture
    def old(self, path: Path) -> Path:
        with sqlite3.connect(path) as connection:
            columns = "time TEXT NOT NULL, version TEXT NOT NULL, text TEXT NOT NULL, accepted TEXT NOT NULL"
            connection.execute(
                f"CREATE TABLE feedback (id INTEGER PRIMARY KEY AUTOINCREMENT, {columns}, rejected TEXT NOT NULL)"
            )
            connection.execute(f"PRAGMA application_id = {module._APPLICATION}")
            connection.execute("PRAGMA user_version = 1")
            values = ("2026-01-31T23:59:59.999+00:00", "v", "old", '["a"]', '["b"]')
            connection.execute("INSERT INTO feedback VALUES (1, ?, ?, ?, ?, ?)", values)
        connection.close()
        return path

    def test_is_read_as_it_is(self, old: Path) -> None:
        before = old.read_bytes()
        kept = Feedback(old, read_only=True)
        expected = FeedbackRecord(1, "2026-01-31T23:59:59.999+00:00", "v", "old", ("a",), ("b",), complete=False)
        assert (list(kept.records()), kept.count()) == ([expected], 1)
        assert old.read_bytes() == before

    def test_is_migrated_by_the_first_of_several_writers(self, old: Path) -> None:
        others = [writer(old, name, 5) for name in ("p", "q")]
        Feedback(old).add(version="v", text="new", accepted=["a"], rejected=[], complete=True)
        assert [other.communicate(timeout=60) and other.returncode for other in others] == [0, 0]
        records = {record.text: record for record in Feedback(old).records()}
        assert (len(records), records["old"].complete, records["new"].complete) == (12, False, True)
        assert (records["old"].accepted, records["p 0"].complete) == (("a",), False)


class TestLimits:
    def test_are_counted_in_the_file(self, path: Path) -> None:
        """Through restarts and by several writers; what is refused leaves nothing behind."""
        limits = FeedbackLimits(file_bytes=1 << 20, daily_records=3, daily_bytes=1_000)
        for client in ("x", "y", "x", "x"):
            Feedback(path, limits=limits).add(version="v", text="t", accepted=["a"], rejected=[], client=client)
        size = path.stat().st_size
        with pytest.raises(
            FeedbackQuotaError, match=r"limit of 3 records of feedback per day\. Continue tomorrow"
        ) as no:
            Feedback(path, limits=limits).add(version="v", text="t", accepted=["a"], rejected=[], client="x")
        assert 0 < no.value.retry_after <= 86_401
        with pytest.raises(FeedbackQuotaError, match="--max-daily-feedback-size"):
            Feedback(path, limits=limits).add(version="v", text="é" * 500, accepted=[], rejected=[], client="y")
        with pytest.raises(FeedbackFullError, match=r"reached its limit of 1 MiB\. Export and move it"):
            Feedback(path, limits=limits).add(version="v", text="t" * (1 << 20), accepted=[], rejected=[], client="z")
        assert path.stat().st_size == size
        assert Feedback(path).count() == 4
        add(Feedback(path), "without limits")

    def test_a_new_day(self, path: Path) -> None:
        limits = FeedbackLimits(file_bytes=1 << 20, daily_records=1, daily_bytes=1_000)
        kept = Feedback(path, limits=limits)
        kept.add(version="v", text="t", accepted=["a"], rejected=[], client="x")
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE usage SET day = '2026-01-31'")
        connection.close()
        kept.add(version="v", text="t", accepted=["a"], rejected=[], client="y")
        kept.add(version="v", text="t", accepted=["a"], rejected=[], client="x")
        with sqlite3.connect(path) as connection:
            rows = connection.execute("SELECT client, records, bytes FROM usage ORDER BY client").fetchall()
        connection.close()
        assert rows == [("x", 1, 8), ("y", 1, 8)]  # a text of 1, and '["a"]' and '[]'


class TestRefused:
    def refused(self, path: Path) -> str:
        with pytest.raises(DataError) as caught:
            Feedback(path)
        said = str(caught.value)
        assert said.startswith(f"{path}: ")
        assert "\n" not in said
        return said

    def test_no_database(self, path: Path) -> None:
        path.write_text("my notes, which are longer than the head of a database. " * 20)
        assert "is damaged or not a feedback file" in self.refused(path)
        assert path.read_text().startswith("my notes")

    def test_a_database_of_something_else(self, path: Path) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE mine (x)")
        connection.close()
        before = path.read_bytes()
        assert "is an SQLite database of another application" in self.refused(path)
        assert path.read_bytes() == before

    def test_a_newer_format(self, path: Path) -> None:
        add(Feedback(path), "a")
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 3")
        connection.close()
        assert "written by a newer xmtc (format 3, this version reads up to 2). Update xmtc." in self.refused(path)

    def test_a_folder(self, path: Path) -> None:
        path.mkdir()
        assert "cannot read or write feedback" in self.refused(path)

    def test_no_folder(self, tmp_path: Path) -> None:
        assert "cannot write feedback" in self.refused(tmp_path / "nowhere" / "x.sqlite")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_no_permission(self, path: Path) -> None:
        add(Feedback(path), "a")
        path.parent.chmod(0o500)
        try:
            assert "cannot write feedback" in self.refused(path)
            assert [record.text for record in Feedback(path, read_only=True).records()] == ["a"]
        finally:
            path.parent.chmod(0o700)

    def test_damage_within(self, path: Path) -> None:
        kept = Feedback(path)
        for number in range(200):
            add(kept, f"{number} " * 50)
        content = bytearray(path.read_bytes())
        content[8192:-4096] = b"\xa5" * (len(content) - 12288)
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"is damaged|record \d+ is damaged"):
            list(kept.records())

    def test_a_damaged_record(self, path: Path) -> None:
        kept = Feedback(path)
        add(kept, "a")
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE feedback SET accepted = '[' ")
        connection.close()
        with pytest.raises(DataError, match="record 1 is damaged"):
            list(kept.records())

    def test_a_full_disk(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        kept = Feedback(path)
        add(kept, "a")
        check = Feedback._check

        def little_room(self: Feedback, connection: sqlite3.Connection, create: bool) -> None:
            check(self, connection, create)
            connection.execute("PRAGMA max_page_count = 4")

        monkeypatch.setattr(Feedback, "_check", little_room)
        with pytest.raises(DataError, match="is full"):
            add(kept, "x" * 100_000)
        monkeypatch.undo()
        assert [record.text for record in kept.records()] == ["a"]

    def test_others_who_write_for_long(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        kept = Feedback(path)
        add(kept, "a")
        monkeypatch.setattr(module, "_LOCK_TIMEOUT", 0.1)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DataError, match="locked by other writers"):
            add(kept, "b")
        other.close()
        assert add(kept, "b") == 2

    def test_for_reading_only(self, path: Path) -> None:
        with pytest.raises(DataError, match="opened read-only"):
            add(Feedback(path, read_only=True), "a")
        assert not path.exists()
