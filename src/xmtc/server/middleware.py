"""ASGI middleware: metrics and response headers, host names, size and time limits."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xmtc.core.errors import shown
from xmtc.server.errors import Problem
from xmtc.server.metrics import Metrics
from xmtc.workflows.serve import ServeRequest

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
RESPONSE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class ObservabilityMiddleware:
    """Counts and logs every request, including refused ones, and adds security headers to every response."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        paths: Collection[str],
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = frozenset(paths)
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *RESPONSE_HEADERS]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.observe_request(self._route(scope["path"]), status, seconds)
            if self._log is not None:
                self._log(f"{scope['method']} {shown(scope['path'])} {status} {seconds * 1000:.1f} ms")

    def _route(self, path: str) -> str:
        """The route label of a path in the metrics; unknown paths share one."""
        if path.startswith("/page/"):
            return "/page"
        return path if path in self._paths else "other"


class HostMiddleware:
    """Refuses requests for other host names, which prevents DNS rebinding attacks by other web pages.

    Starlette's TrustedHostMiddleware decides whether a name is allowed. This class adds refusals as problem+json with
    status 421, support for HTTP/1.0 requests without a Host header, and the refusal of duplicate Host headers.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str] | None) -> None:
        self._app = app
        allowed = ["*"] if allowed_hosts is None else [f"[{host}]" if ":" in host else host for host in allowed_hosts]
        self._trusted = TrustedHostMiddleware(_accept, allowed, www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = await self._problem(scope, receive) if scope["type"] == "http" else None
        await (self._app if problem is None else problem.response())(scope, receive, send)

    async def _problem(self, scope: Scope, receive: Receive) -> Problem | None:
        if scope["http_version"] not in ("1.0", "1.1"):
            return Problem(400, "not a valid HTTP/1.1 request. See /openapi.json for the API.")
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1 or (not hosts and scope["http_version"] == "1.1"):
            return Problem(400, "a request must have exactly one Host header. Send one.")
        refusal: list[Message] = []

        async def collect(message: Message) -> None:
            refusal.append(message)

        if hosts:
            await self._trusted(scope, receive, collect)
        if not refusal:
            return None
        name = shown(re.sub(r":\d*$", "", hosts[0]))
        return Problem(421, f"host name '{name}' is not allowed. Start the service with --hostname {name}.")


async def _accept(scope: Scope, receive: Receive, send: Send) -> None:
    """The application behind the host check, which sends no response."""


class LimitsMiddleware:
    """Limits the size of each body, the total size of all bodies in flight, and the time per request."""

    def __init__(self, app: ASGIApp, settings: ServeRequest) -> None:
        self._app = app
        self._settings = settings
        self._in_flight = 0  # bytes of bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send)
        try:
            self._check_content_length(scope)
            async with asyncio.timeout(self._settings.timeout):
                await self._app(scope, lambda: self._receive(exchange), exchange.send)
        except Problem as problem:
            await exchange.refuse(scope, problem)
        except TimeoutError:
            await exchange.refuse(scope, self._timed_out(exchange.is_received))
        finally:
            self._in_flight -= exchange.body_bytes

    def _check_content_length(self, scope: Scope) -> None:
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and (len(length) > 18 or int(length) > self._settings.max_body_bytes):
            raise self._too_large()

    async def _receive(self, exchange: _Exchange) -> Message:
        message = await exchange.receive()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            exchange.body_bytes += size
            self._in_flight += size
            if size and self._in_flight > self._settings.max_in_flight_bytes:
                raise Problem(429, "too many requests in progress. Try again in a moment.", {"Retry-After": "1"})
            if exchange.body_bytes > self._settings.max_body_bytes:
                raise self._too_large()
            exchange.is_received = not message.get("more_body", False)
        return message

    def _too_large(self) -> Problem:
        most = self._settings.max_body_bytes
        return Problem(413, f"the body exceeds {most:,} bytes. Send fewer texts per request.")

    def _timed_out(self, is_received: bool) -> Problem:
        seconds = f"{self._settings.timeout:g} s"
        if is_received:
            words = f"timed out after {seconds}. Send fewer texts per request."
            return Problem(503, words, {"Retry-After": "5"})
        return Problem(408, f"the request did not arrive within {seconds}. Send it faster.", {"Connection": "close"})


class _Exchange:
    """The state of one request and its response."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.receive, self._send = receive, send
        self.body_bytes = 0
        self.is_received = False
        self._has_response = False

    async def send(self, message: Message) -> None:
        self._has_response = True
        await self._send(message)

    async def refuse(self, scope: Scope, problem: Problem) -> None:
        if not self._has_response:  # a response that has started cannot be replaced
            with suppress(OSError):
                await problem.response()(scope, self.receive, self._send)
