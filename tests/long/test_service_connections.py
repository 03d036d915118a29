"""Connections that are not used as they should be, and processes that do not begin."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.service import ForkedService, Service, everything, serving, train_model

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models") / "small"
    train_model(place)
    return place


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    with serving(folder, "--timeout", 2, kind=ForkedService) as running:
        yield running


def open_sockets(service: Service) -> int:
    links = (Path(f"/proc/{service.process.pid}/fd") / name for name in os.listdir(f"/proc/{service.process.pid}/fd"))
    return sum("socket" in str(os.readlink(link)) for link in links if link.is_symlink())


def closed_within(seconds: float, service: Service, most: int) -> None:
    until = time.monotonic() + seconds
    while open_sockets(service) > most:
        assert time.monotonic() < until, "a connection is still open"
        time.sleep(0.1)


def test_an_answer_that_is_not_read_is_given_up(service: Service) -> None:
    before = open_sockets(service)
    body = b'{"texts": [' + b",".join([b'"some text"'] * 1000) + b'], "k": 60}'
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    with service.connect() as one:
        one.sendall(head.encode() + b"\r\n\r\n" + body)
        assert one.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
        assert open_sockets(service) > before
        closed_within(10, service, before)


def test_blank_lines_do_not_keep_a_connection_open(service: Service) -> None:
    with service.connect() as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert one.recv(1 << 16).startswith(b"HTTP/1.1 200")
        one.sendall(b"\r\n")
        begun = time.monotonic()
        everything(one)
        assert time.monotonic() - begun < 8


@pytest.mark.parametrize("size", [70_000, 100_000, 200_000])
def test_headers_have_a_size(service: Service, size: int) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    for filler in (b"X: " + b"a" * size, b"\r\n".join(b"X%d: %s" % (i, b"a" * 1000) for i in range(size // 1000))):
        assert service.raw(head + filler + b"\r\n\r\n").startswith(b"HTTP/1.1 431")
    assert service.raw(b"GET /" + b"a" * size + b" HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 431")
    large = b'{"texts": ["' + b"a" * size + b'"]}'
    post = (
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    whole = post % len(large) + large
    last = whole.replace(b"Host:", b"Connection: close\r\nHost:", 1)
    assert service.raw(whole + last).count(b"HTTP/1.1 200") == 2, "bodies are no headers"


def test_an_offer_of_another_protocol_is_refused_where_it_would_cost_the_body(service: Service) -> None:
    body = b'{"texts": ["a"]}'
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n" + offer
    answer = service.raw(head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"only HTTP/1.1 is supported" in answer
    answer = service.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + offer + b"\r\n", timeout=0.5)
    assert answer.startswith(b"HTTP/1.1 200")


def test_rubbish_after_a_request_does_not_take_its_answer(service: Service) -> None:
    body = b'{"texts": ["a"]}'
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = service.raw(head + b"Content-Length: %d\r\n\r\n" % len(body) + body + b"\x16\x03\x01 what is this\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert service.predict(["a"]).status == 200


@pytest.fixture(scope="module")
def two_processes(folder: Path) -> Iterator[Service]:
    with serving(folder, "--workers", 2) as running:
        yield running


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_service_on_the_same_port_is_refused(folder: Path, two_processes: Service, workers: int) -> None:
    arguments = ["serve", folder, "--workers", workers, "--port", two_processes.port]
    command = [sys.executable, "-m", "xmtc.cli.main", *map(str, arguments)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert "is already in use" in second.stderr
    assert two_processes.predict(["a"]).status == 200


def test_a_process_that_dies_while_it_starts_again_is_started_again(two_processes: Service) -> None:
    for _ in range(2):  # once it served, and once it was about to
        before = set(two_processes.workers())
        os.kill(min(before), signal.SIGKILL)
        until = time.monotonic() + 30
        while len(set(two_processes.workers()) - before) == 0:
            assert time.monotonic() < until
            time.sleep(0.05)
    for _ in range(20):
        assert two_processes.ask("GET", "/healthz", timeout=30).status == 200


def test_a_model_that_cannot_be_loaded_ends_a_start_with_its_line(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    next(broken.glob("arrays-*")).write_bytes(b"")
    for more in ((), ("--workers", 2)):
        with pytest.raises(AssertionError, match=r"xmtc: .*0 bytes, expected") as failed:
            (Service if more else ForkedService)(broken, *more)
        assert "Traceback" not in str(failed.value)


HALF = (
    b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n"
)


def logged(service: Service, words: str) -> str:
    """The line with these words, which comes within seconds."""
    until = time.monotonic() + 15
    while words not in service.errors():
        assert time.monotonic() < until, service.errors()
        time.sleep(0.1)
    return next(line for line in service.errors().splitlines() if words in line)


@pytest.mark.parametrize("kind", ["headers", "small bodies", "large bodies"])
def test_half_sent_requests_keep_nobody_out(folder: Path, kind: str) -> None:
    """More of them than connections, or than bytes, that a service takes: others are served, and the log names who."""
    begun = {
        "headers": HALF[:70],
        "small bodies": HALF + b'{"texts": ["a',
        "large bodies": HALF + b'{"texts": ["' + b"a" * 700_000,
    }[kind]
    more = () if kind == "large bodies" else ("--max-connections", 200)
    with serving(folder, *more, kind=ForkedService) as running:
        held = [socket.create_connection(("127.0.0.1", running.port), 10, ("127.0.0.9", 0)) for _ in range(400)]
        try:
            for one in held:
                with suppress(OSError):
                    one.sendall(begun)
            time.sleep(1.2)
            started = time.monotonic()
            for _ in range(5):
                assert running.predict(["a" * 900_000]).status == 200
            assert time.monotonic() - started < 15  # 0.2 s, unless the machine is still busy with what was sent
            line = logged(running, "slow requests dropped" if kind == "large bodies" else "connections ")
            assert line.startswith("limits reached: ")
            assert "all from 127.0.0.9" in line
            answers = [came_back(one)[:12] for one in held]
            assert answers.count(b"HTTP/1.1 408") + answers.count(b"HTTP/1.1 429") > 10
            assert running.errors().count("\n") <= 3
        finally:
            for one in held:
                one.close()
        assert running.predict(["a"]).status == 200


def came_back(connection: socket.socket) -> bytes:
    """What has come back so far; nothing where the connection was reset."""
    connection.setblocking(False)
    with suppress(OSError):
        return connection.recv(1000)
    return b""


def test_a_client_that_takes_all_connections_does_not_take_those_of_others(folder: Path) -> None:
    """Its requests are all at work, so that none can be dropped; behind a proxy, the same by the forwarded address."""
    with serving(folder, "--max-connections", 20, "--trusted-proxy", "127.0.0.7", kind=ForkedService) as running:
        held = [socket.create_connection(("127.0.0.1", running.port), 10, ("127.0.0.9", 0)) for _ in range(30)]
        assert running.predict(["a"]).status == 200
        for one in held:
            one.close()
        closed_within(10, running, 3)
        proxied = [socket.create_connection(("127.0.0.1", running.port), 10, ("127.0.0.7", 0)) for _ in range(12)]
        for number, one in enumerate(proxied):
            client = b"X-Forwarded-For: 198.51.100.%d\r\n" % (7 if number < 11 else 8)
            one.sendall(HALF.replace(b"Host:", client + b"Host:") + b'{"texts": ["a')
        time.sleep(0.5)
        answers = [came_back(one)[:12] for one in proxied]
        assert answers == [b""] * 10 + [b"HTTP/1.1 429", b""]
        assert "requests refused: 1, all from 198.51.100.7" in logged(running, "requests refused")
        for one in proxied:
            one.close()
