"""Progress where nobody watches a terminal: lines that come seldom and say how far it is."""

from __future__ import annotations

import pytest

from xmtc.cli import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_a_minute(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress.terminal_progress().task("training", total=12_000) as task:
        for _ in range(12):
            clock[0] += 25.0
            task.note("loss 0.5")
            task.advance(1000)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [f"training: {done:,} of 12,000, loss 0.5" for done in (3000, 6000, 9000, 12_000)]


def test_what_is_soon_done_says_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(100):
        with progress.terminal_progress().task("reading") as task:
            clock[0] += 59.0
            task.advance()
    assert capsys.readouterr().err == ""
