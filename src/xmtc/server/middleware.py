"""ASGI middleware: metrics and response headers, host names, requests of other sites, size and time limits."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xmtc.core.errors import shown
from xmtc.server.clients import CLIENT, ClientNames, RefusalLog
from xmtc.server.connection_limits import PROGRESS_BYTES, STALE_BODY_SECONDS, stalest
from xmtc.server.errors import Problem
from xmtc.server.metrics import Metrics
from xmtc.workflows.serve import ServeRequest

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
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
        if hosts:
            await self._trusted(scope, receive, _collector(refusal))
        if not refusal:
            return None
        name = shown(re.sub(r":\d*$", "", hosts[0]))
        return Problem(421, f"host name '{name}' is not allowed. Start the service with --hostname {name}.")


async def _accept(scope: Scope, receive: Receive, send: Send) -> None:
    """The application behind the host check, which sends no response."""


def _collector(messages: list[Message]) -> Send:
    async def collect(message: Message) -> None:
        messages.append(message)

    return collect


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


class OriginMiddleware:
    """Refuses requests that a browser sends on behalf of other sites, except those that only read.

    Browsers say so in Sec-Fetch-Site. Where they do not send it (to plain HTTP on other machines), the Origin must have
    the host name and port that the request was sent to, or a name given by --hostname, for a proxy that changes Host.
    """

    def __init__(self, app: ASGIApp, hostnames: Sequence[str]) -> None:
        self._app = app
        self._trusted = TrustedHostMiddleware(_accept, list(hostnames), www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_refused = scope["type"] == "http" and scope["method"] not in SAFE_METHODS and await self._is_foreign(scope)
        problem = Problem(403, "requests from other web sites are not allowed. Use the API from a server instead.")
        await (problem.response() if is_refused else self._app)(scope, receive, send)

    async def _is_foreign(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        sites, origins = headers.getlist("sec-fetch-site"), headers.getlist("origin")
        if sites:
            return any(site.strip().lower() not in ("same-origin", "none") for site in sites)
        host = headers.get("host", "").strip().lower()
        return any([not await self._is_own(origin.strip().lower().partition("://")[2], host) for origin in origins])

    async def _is_own(self, origin: str, host: str) -> bool:
        """Whether an origin, given as NAME or NAME:PORT, is this service; `host` is the value of the Host header."""
        if not origin or origin == host:
            return bool(origin)
        if re.sub(r":\d+$", "", host) != host and re.sub(r":\d+$", "", origin) == re.sub(r":\d+$", "", host):
            return False  # another port
        messages: list[Message] = []
        scope = {"type": "http", "headers": [(b"host", origin.encode("latin-1"))]}
        await self._trusted(scope, _nothing, _collector(messages))
        return not messages


class LimitsMiddleware:
    """Limits the size of each body, the total size of all bodies in flight, and the time per request.

    If the total is reached, the slowest incomplete request is dropped. A client with more than half of it does not
    keep others out: one of its incomplete requests is dropped for a request of another client.
    """

    def __init__(self, app: ASGIApp, settings: ServeRequest, log: RefusalLog) -> None:
        self._app = app
        self._settings = settings
        self._log = log
        self._names = ClientNames(settings.trusted_proxy)
        self._exchanges: set[_Exchange] = set()
        self._in_flight = 0  # bytes of bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[CLIENT] = self._names.of_request(scope)
        exchange = _Exchange(receive, send, scope[CLIENT])
        try:
            self._check_request_count(exchange.client)
            self._exchanges.add(exchange)
            self._check_content_length(scope)
            async with asyncio.timeout(self._settings.timeout) as exchange.deadline:
                await self._app(scope, lambda: self._receive(exchange), exchange.send)
        except Problem as problem:
            await exchange.refuse(scope, problem)
        except TimeoutError:
            await exchange.refuse(scope, exchange.problem or self._timed_out(exchange.is_received))
        finally:
            self._exchanges.discard(exchange)
            self._in_flight -= exchange.body_bytes

    def _check_request_count(self, client: str) -> None:
        """Limit the requests of one client behind a proxy; direct clients are limited by their connections."""
        most = self._settings.client_connections
        if len(self._exchanges) >= most and sum(other.client == client for other in self._exchanges) >= most:
            self._log.add(client, "requests refused")
            raise Problem(429, f"more than {most:,} requests of {client} in progress. Try again.", {"Retry-After": "1"})

    def _check_content_length(self, scope: Scope) -> None:
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and (len(length) > 18 or int(length) > self._settings.max_body_bytes):
            raise self._too_large()

    async def _receive(self, exchange: _Exchange) -> Message:
        message = await exchange.receive()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            exchange.add(size)
            self._in_flight += size
            if size and self._in_flight > self._settings.max_in_flight_bytes:
                self._make_room(exchange)
            if exchange.body_bytes > self._settings.max_body_bytes:
                raise self._too_large()
            exchange.is_received = not message.get("more_body", False)
        return message

    def _make_room(self, newcomer: _Exchange) -> None:
        """Drop slow requests until the bodies in flight are within the limit; if none is slow, refuse the newcomer."""
        most = self._settings.max_in_flight_bytes
        incomplete = [other for other in self._exchanges if other is not newcomer and not other.is_received]
        incomplete = [other for other in incomplete if other.body_bytes]
        while self._in_flight > most:
            bodies = ((each, each.client, each.seconds_without_progress(), each.body_bytes) for each in incomplete)
            slowest = stalest(bodies, STALE_BODY_SECONDS) or self._of_largest_client(newcomer.client, incomplete)
            if slowest is None:
                self._log.add(newcomer.client, "requests refused")
                raise Problem(429, "too many requests in progress. Try again in a moment.", {"Retry-After": "1"})
            incomplete.remove(slowest)
            self._in_flight -= slowest.body_bytes
            self._log.add(slowest.client, "slow requests dropped")
            slowest.drop(Problem(408, "the request arrived too slowly while the service was busy. Try again."))

    def _of_largest_client(self, newcomer: str, incomplete: Sequence[_Exchange]) -> _Exchange | None:
        """The slowest incomplete request of another client that has more than half of all bytes."""
        totals = Counter[str]()
        for each in self._exchanges:
            totals[each.client] += each.body_bytes
        client, total = totals.most_common(1)[0]
        if client == newcomer or total <= self._settings.max_in_flight_bytes // 2:
            return None
        its_own = [each for each in incomplete if each.client == client]
        return max(its_own, key=_Exchange.seconds_without_progress, default=None)

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

    def __init__(self, receive: Receive, send: Send, client: str) -> None:
        self.receive, self._send = receive, send
        self.client = client
        self.deadline: asyncio.Timeout | None = None
        self.problem: Problem | None = None  # the reason for which it was dropped
        self._progress_time, self._new_bytes = time.monotonic(), 0
        self.body_bytes = 0
        self.is_received = False
        self._has_response = False

    async def send(self, message: Message) -> None:
        self._has_response = True
        await self._send(message)

    def add(self, size: int) -> None:
        """Count received bytes of the body."""
        self.body_bytes += size
        self._new_bytes += size
        if self._new_bytes >= PROGRESS_BYTES:
            self._progress_time, self._new_bytes = time.monotonic(), 0

    def seconds_without_progress(self) -> float:
        return time.monotonic() - self._progress_time

    def drop(self, problem: Problem) -> None:
        """Stop this request, and refuse it with the problem."""
        self.body_bytes = 0
        self.problem = problem
        problem.headers["Connection"] = "close"
        if self.deadline is not None:
            with suppress(RuntimeError):  # it has just ended
                self.deadline.reschedule(asyncio.get_running_loop().time())

    async def refuse(self, scope: Scope, problem: Problem) -> None:
        if not self._has_response:  # a response that has started cannot be replaced
            with suppress(OSError):
                await problem.response()(scope, self.receive, self._send)
