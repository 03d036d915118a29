"""Who a client is: by address, behind a proxy by what the proxy says, and never by what the client says."""

from __future__ import annotations

import asyncio
import time

import pytest

from xmtc.server import clients
from xmtc.server.clients import ClientNames, RefusalLog


def request_from(address: str, *forwarded: str) -> dict[str, object]:
    headers = [(b"host", b"localhost"), *((b"x-forwarded-for", value.encode("latin-1")) for value in forwarded)]
    return {"type": "http", "client": (address, 1234), "headers": headers}


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("testclient", "testclient"),
        ("x" * 1000, "x" * 59 + "…"),
    ],
)
def test_names(address: str, name: str) -> None:
    assert ClientNames(()).of_address(address) == name


@pytest.mark.parametrize(
    ("address", "forwarded", "name"),
    [
        ("192.0.2.7", ["198.51.100.1"], "192.0.2.7"),  # anybody can send the header
        ("10.1.2.3", [], "10.1.2.3"),
        ("10.1.2.3", ["198.51.100.1"], "198.51.100.1"),
        ("10.1.2.3", ["203.0.113.9, 198.51.100.1"], "198.51.100.1"),  # what came before is the client's own word
        ("10.1.2.3", ["203.0.113.9", "198.51.100.1"], "198.51.100.1"),
        ("10.1.2.3", ["203.0.113.9, 198.51.100.1, 10.9.9.9"], "198.51.100.1"),  # through two proxies
        ("10.1.2.3", ["10.7.7.7, 10.9.9.9"], "10.7.7.7"),
        ("10.1.2.3", ["198.51.100.1, unknown"], "10.1.2.3"),
        ("10.1.2.3", ["2001:db8::1:2:3:4"], "2001:db8::/64"),
        ("10.1.2.3", ["198.51.100.1:4711"], "10.1.2.3"),
        ("10.1.2.3", ["\xff, \x00,,"], "10.1.2.3"),
        ("2001:db8:f::1", ["198.51.100.1"], "198.51.100.1"),
    ],
)
def test_behind_a_proxy(address: str, forwarded: list[str], name: str) -> None:
    names = ClientNames(("10.0.0.0/8", "2001:db8:f::1"))
    assert names.of_request(request_from(address, *forwarded)) == name


def test_a_header_without_end_is_cheap() -> None:
    names = ClientNames(("10.0.0.0/8",))
    assert names.of_request(request_from("10.1.1.1", "198.51.100.1, " + "10.0.0.1," * 6_000 + "10.0.0.1")) == "10.0.0.1"


def test_lines_name_the_client_and_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "FIRST_LOG_SECONDS", 0.02)
    monkeypatch.setattr(clients, "LOG_SECONDS", 0.15)
    lines: list[str] = []
    times: list[float] = []

    def log_line(line: str) -> None:
        lines.append(line)
        times.append(time.monotonic())

    async def events() -> None:
        async def until(count: int) -> None:
            while len(lines) < count:
                await asyncio.sleep(0.005)

        log = RefusalLog(log_line)
        for number in range(400):
            log.add("192.0.2.7" if number % 4 else f"198.51.100.{number % 8}", "slow connections dropped")
        assert not lines
        await asyncio.wait_for(until(1), 20)
        log.add("192.0.2.8", "connections refused")
        await asyncio.wait_for(until(2), 20)
        log.flush()  # nothing to add

    asyncio.run(events())
    assert lines == [
        "limits reached: slow connections dropped: 400, 300 of them from 192.0.2.7",
        "limits reached: connections refused: 1, all from 192.0.2.8",
    ]
    assert times[1] - times[0] > 0.14, "the second line came too soon"
