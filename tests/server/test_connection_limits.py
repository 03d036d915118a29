"""Who is dropped where there is no room: the slowest of the client that takes most, and never one that is at work."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from xmtc.server.clients import RefusalLog
from xmtc.server.connection_limits import ConnectionLimits, stalest
from xmtc.server.errors import Problem
from xmtc.workflows.serve import ServeRequest


@dataclass(eq=False)
class Fake:
    """A connection that has made no progress for some seconds."""

    seconds: float
    dropped: list[Problem] = field(default_factory=list)

    def seconds_without_progress(self) -> float:
        return self.seconds

    def drop(self, problem: Problem) -> None:
        self.dropped.append(problem)


class Limited:
    """Limits with what they told."""

    def __init__(self, **settings: object) -> None:
        self.lines: list[str] = []
        self.drops = 0
        self.log = RefusalLog(self.lines.append)
        request = ServeRequest(folders=(Path("m"),), **settings)  # type: ignore[arg-type]
        self.limits = ConnectionLimits(request, log=self.log, on_drop=self.count)
        self.add = self.limits.add

    def count(self) -> None:
        self.drops += 1


def run(test: object) -> None:
    asyncio.run(test())  # type: ignore[operator]


def test_the_slowest_of_a_client_goes_first() -> None:
    async def test() -> None:
        limited = Limited(max_connections=100, max_client_connections=3)
        mine = [Fake(0.5), Fake(7.0), Fake(0.0)]
        other = Fake(99.0)
        assert limited.add(other, "192.0.2.1") is None
        assert [limited.add(one, "192.0.2.9") for one in mine] == [None] * 3
        assert limited.add(Fake(0.0), "192.0.2.9") is None
        assert [len(one.dropped) for one in (*mine, other)] == [0, 1, 0, 0]
        assert mine[1].dropped[0].status == 408
        assert limited.add(Fake(0.0), "192.0.2.9") is None
        assert len(mine[0].dropped) == 1
        refusal = limited.add(Fake(0.0), "192.0.2.9")  # all others are at work
        assert refusal is not None
        assert (refusal.status, refusal.headers) == (429, {"Retry-After": "1"})
        assert refusal.detail == "more than 3 connections from 192.0.2.9. Close some and try again."
        assert not mine[2].dropped
        limited.log.flush()
        whose = "all from 192.0.2.9"
        told = f"limits reached: slow connections dropped: 2, {whose}; connections refused: 1, {whose}"
        assert limited.lines == [told]
        assert limited.drops == 3

    run(test)


def test_where_all_is_full_the_client_with_most_gives_way() -> None:
    async def test() -> None:
        limited = Limited(max_connections=6)
        greedy = [Fake(seconds) for seconds in (1.0, 3.0, 2.0)]
        others = [Fake(50.0), Fake(60.0), Fake(0.0)]
        for number, one in enumerate(others):
            assert limited.add(one, f"198.51.100.{number}") is None
        for one in greedy:
            assert limited.add(one, "192.0.2.9") is None
        assert limited.add(Fake(0.0), "203.0.113.1") is None
        assert [len(one.dropped) for one in (*greedy, *others)] == [0, 1, 0, 0, 0, 0]
        for number in range(2, 6):
            assert limited.add(Fake(0.0), f"203.0.113.{number}") is None
        refusal = limited.add(Fake(0.0), "203.0.113.9")
        assert refusal is not None
        assert refusal.status == 503
        assert [len(one.dropped) for one in (*greedy, *others)] == [1, 1, 1, 1, 1, 0]

    run(test)


def test_the_addresses_of_one_network_are_one_client_and_a_trusted_proxy_is_none() -> None:
    async def test() -> None:
        limited = Limited(max_connections=50, max_client_connections=2, trusted_proxy=("192.0.2.0/24",))
        for number in range(10):
            assert limited.add(Fake(0.0), "192.0.2.5") is None, number
        assert limited.add(Fake(0.0), "2001:db8::1") is None
        assert limited.add(Fake(0.0), "2001:db8::2") is None
        assert limited.add(Fake(0.0), "2001:db8::3") is not None
        assert limited.add(Fake(0.0), "2001:db8:0:1::3") is None

    run(test)


def test_what_is_closed_makes_room() -> None:
    async def test() -> None:
        limited = Limited(max_connections=1)
        for _ in range(5):
            one = Fake(0.0)
            assert limited.add(one, "192.0.2.9") is None
            assert limited.add(Fake(0.0), "192.0.2.8") is not None
            limited.limits.remove(one)
            limited.limits.remove(one)  # twice does no harm

    run(test)


def test_nothing_is_dropped_that_has_just_made_progress() -> None:
    assert stalest([("a", "x", 0.5, 9), ("b", "y", 0.9, 1)], 1.0) is None
    assert stalest([("a", "x", 1.5, 9), ("b", "y", 9.0, 1), ("c", "y", 8.0, 7)], 1.0) == "a"
    assert stalest([("a", "x", 1.5, 9), ("b", "y", 9.0, 3), ("c", "y", 8.0, 7)], 1.0) == "b"


def test_the_limit_on_open_files_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (300, 400)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.update(now=pair))

    async def test() -> None:
        limited = Limited(max_connections=1_000, max_client_connections=1_000)
        assert limits["now"] == (400, 400)
        found = [limited.add(Fake(0.0), "192.0.2.9") for _ in range(145)]
        assert found[:144] == [None] * 144  # 400 − 256
        assert found[144] is not None

    run(test)
