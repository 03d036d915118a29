"""What every request passes before the application sees it: host, key, size and time."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xmtc.core.errors import shown
from xmtc.server.errors import MEDIA_TYPE, Problem
from xmtc.server.limits import Limits
from xmtc.server.metrics import ROUTES, Tallies

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-resource-policy", b"same-origin"),
]
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN = frozenset({"/", "/healthz", "/readyz", "/openapi.json"})
"""What needs no key, beside the files of the page."""


class Doors:
    """An application around another. Where a request is refused here, the other never hears of it."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        tallies: Tallies,
        *,
        key: str | None = None,
        hosts: Collection[str] | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._app = app
        self._limits = limits
        self._tallies = tallies
        self._key = None if key is None else key.encode()
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._log = log
        self._held = 0  # bytes of requests that are at work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = _Visit(receive, send, self._limits, self.hold)
        try:
            self._check(scope)
            async with asyncio.timeout(self._limits.seconds):
                await self._app(scope, visit.receive, visit.send)
        except Problem as problem:
            await visit.refuse(problem)
        except TimeoutError:
            await visit.refuse(_too_late(visit.complete, self._limits.seconds))
        finally:
            self.hold(-visit.read)
            seconds = time.perf_counter() - visit.started
            self._tallies.request(_route(scope["path"]), visit.status, seconds)
            if self._log is not None:
                self._log(f"{scope['method']} {shown(scope['path'])} {visit.status} {seconds * 1000:.1f} ms")

    def hold(self, more: int) -> None:
        """Bytes that have arrived and are at work."""
        self._held += more
        if more > 0 and self._held > self._limits.held:
            raise Problem(429, "too many bytes of requests are at work already. Try again.", {"Retry-After": "1"})

    def _check(self, scope: Scope) -> None:
        """Refuse a request that may not pass."""
        headers = dict(scope["headers"])
        if scope["http_version"] not in ("1.0", "1.1"):
            raise Problem(400, "this is no HTTP/1.1 request. See /openapi.json for what there is.")
        named = [value for name, value in scope["headers"] if name == b"host"]
        if len(named) > 1 or (not named and scope["http_version"] == "1.1"):
            raise Problem(400, "a request names one host. Send one header Host.")
        if self._hosts is not None and named:
            host = _name(named[0].decode("latin-1"))
            if host.lower() not in self._hosts:
                raise Problem(421, f"this service is not '{shown(host)}'. Start it with --hostname {shown(host)}.")
        if self._key is not None and scope["path"] not in OPEN and not scope["path"].startswith("/page/"):
            given = headers.get(b"authorization", b"")
            kind, _, secret = given.partition(b" ")
            if kind.lower() != b"bearer" or not hmac.compare_digest(secret.strip(), self._key):
                words = "this service wants its key. Send the header Authorization: Bearer KEY."
                raise Problem(401, words, {"WWW-Authenticate": "Bearer"})
        told = headers.get(b"content-length", b"0")
        if told.isdigit() and (len(told) > 18 or int(told) > self._limits.body):
            raise _too_large(self._limits)


class _Visit:
    """One request on its way."""

    def __init__(self, receive: Receive, send: Send, limits: Limits, hold: Callable[[int], None]) -> None:
        self.started = time.perf_counter()
        self.status = 0
        self.read = 0
        """Bytes of its body so far."""
        self.complete = False
        """Whether all of it has arrived."""
        self._receive, self._send = receive, send
        self._limits, self._hold = limits, hold

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            more = len(message.get("body", b""))
            self.read += more
            self._hold(more)
            if self.read > self._limits.body:
                raise _too_large(self._limits)
            self.complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], *HEADERS]
        await self._send(message)

    async def refuse(self, problem: Problem) -> None:
        if self.status:  # an answer has begun: it cannot be taken back
            return
        body = problem.body()
        headers: list[Any] = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
        with suppress(OSError):
            await self.send({"type": "http.response.start", "status": problem.status, "headers": headers})
            await self._send({"type": "http.response.body", "body": body})


def _too_large(limits: Limits) -> Problem:
    return Problem(413, f"the body has more than {limits.body:,} bytes. Send fewer texts at once.")


def _too_late(complete: bool, seconds: float) -> Problem:
    if not complete:
        return Problem(
            408, f"the request did not arrive within {seconds:g} s. Send it faster.", {"Connection": "close"}
        )
    return Problem(503, f"there was no answer within {seconds:g} s. Send fewer texts at once.", {"Retry-After": "5"})


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _route(path: str) -> str:
    if path.startswith("/page/"):
        return "/page"
    return path if path in ROUTES else "other"
