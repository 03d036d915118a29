"""uvicorn's HTTP protocol with limits below the application level: connections, headers, slow requests, responses."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from xmtc.server.connection_limits import PROGRESS_BYTES, ConnectionLimits
from xmtc.server.errors import MEDIA_TYPE, Problem
from xmtc.workflows.serve import ServeRequest

BODY_HEADERS = (b"content-length", b"transfer-encoding")
"""Headers of requests with a body."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """Limits for which uvicorn has no setting, and problem+json responses to invalid HTTP.

    The number of connections is limited; headers have a maximum size; a request must arrive and a response must be read
    in time; a client that keeps sending after its response is disconnected; a protocol upgrade is refused if the
    request has a body, which would be lost.

    It relies on undocumented attributes of uvicorn's class, so the `server` extra bounds uvicorn's version: checked
    with uvicorn 0.30.0 to 0.54.0 by tests/long/test_service_connections.py.
    """

    def __init__(
        self, *arguments: Any, settings: ServeRequest, connection_limits: ConnectionLimits, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._settings = settings
        self._connection_limits = connection_limits
        self._progress_time = self.loop.time()  # when the connection was last idle or made progress
        self._new_bytes = 0  # received since then
        self._request_timer: asyncio.TimerHandle | None = None  # for a request to arrive
        self._response_timer: asyncio.TimerHandle | None = None  # for a response to be read
        self._in_header = True
        self._header_bytes = 0
        self._is_all_header = True  # whether the latest data contains only headers
        self._has_begun = False  # part of a request has arrived
        self._discarded_bytes = 0  # bytes of a body received after the response
        self._active_cycle: Any = None  # of pipelined requests, the one being answered

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        problem = self._connection_limits.add(self, self.client[0] if self.client else "unknown")
        if problem is not None:
            self._refuse(problem)
            return
        self._start_request_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection_limits.remove(self)
        self._stop_request_timer()
        if self._response_timer is not None:
            self._response_timer.cancel()
        if self._active_cycle is not None:  # uvicorn only tracks the last one
            self._active_cycle.disconnected = True
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._response_timer is None:
            self._response_timer = self.loop.call_later(self._settings.timeout, self.transport.abort)

    def resume_writing(self) -> None:
        if self._response_timer is not None:
            self._response_timer.cancel()
            self._response_timer = None
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._request_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._start_request_timer()  # the next request on this connection, or blank lines before it
        self._new_bytes += len(data)
        if not self._has_begun or self._new_bytes >= PROGRESS_BYTES:
            self._record_progress()
        self._has_begun = True
        before = self._header_bytes
        self._is_all_header = self._in_header
        super().data_received(data)
        if self._is_all_header and not self.transport.is_closing():  # the parser has no callback for an incomplete line
            self._add_header_bytes(max(0, before + len(data) - self._header_bytes))

    # ---- callbacks of the parser

    def on_message_begin(self) -> None:
        """Reset the counters for a new request."""
        super().on_message_begin()
        self._in_header, self._header_bytes, self._discarded_bytes = True, 0, 0

    def on_url(self, url: bytes) -> None:
        """Count the URL as header bytes."""
        super().on_url(url)
        self._add_header_bytes(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the bytes of a header."""
        super().on_header(name, value)
        self._add_header_bytes(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        """Refuse an upgrade of a request with a body; otherwise start processing the request."""
        self._in_header = self._is_all_header = False  # the application counts the bytes of the body
        if self.transport.is_closing():
            return
        if self.parser.should_upgrade() and any(name in BODY_HEADERS for name, _ in self.headers):
            # The parser would treat the body as data of the other protocol, and the application would not get it.
            self._refuse(Problem(400, "only HTTP/1.1 is supported. Send no Upgrade header."))
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on body data; disconnect a client that sends too much after its response."""
        if self.transport.is_closing():
            return
        super().on_body(body)
        if self.cycle.response_complete:  # keep reading for a while, so that the client can read the refusal
            self._discarded_bytes += len(body)
            if self._discarded_bytes > self._settings.max_body_bytes:
                self.transport.abort()

    def on_message_complete(self) -> None:
        """Stop the request timer."""
        if self.transport.is_closing():
            return
        super().on_message_complete()
        self._in_header, self._header_bytes, self._has_begun = True, 0, False
        self._stop_request_timer()

    def on_response_complete(self) -> None:
        """Switch to the next pipelined request."""
        self._record_progress()
        self._active_cycle = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()

    # ---- limits

    def seconds_without_progress(self) -> float:
        """Seconds since the last progress of an incomplete request or an idle connection; 0 for other connections."""
        receives_body = self._has_begun and not self._in_header
        is_answered = self.cycle is None or self.cycle.response_complete
        return self.loop.time() - self._progress_time if receives_body or is_answered else 0.0

    def drop(self, problem: Problem) -> None:
        """Close the connection, with a response if a request has begun."""
        if self.transport.is_closing():
            self.transport.abort()
        elif self._has_begun and (self.cycle is None or self._in_header or not self.cycle.response_started):
            self._refuse(problem)
        else:
            self.transport.close()
        if self.cycle is not None:
            self.cycle.disconnected = True

    def _record_progress(self) -> None:
        self._progress_time, self._new_bytes = self.loop.time(), 0

    # ---- refusals

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with a problem+json response."""
        self._refuse(Problem(400, "not a valid HTTP/1.1 request. See /openapi.json for the API."))

    def _add_header_bytes(self, more: int) -> None:
        self._header_bytes += more
        most = self._settings.max_header_bytes
        if self._header_bytes > most and not self.transport.is_closing():
            self._refuse(Problem(431, f"the headers exceed {most:,} bytes. Send fewer or shorter headers."))

    def _on_request_timeout(self) -> None:
        """Refuse a request that took too long to arrive."""
        self._request_timer = None
        if self.transport.is_closing():
            return
        if not self._in_header and self.cycle is not None and not self.cycle.response_complete:
            # The middleware will refuse it.
            self._request_timer = self.loop.call_later(1.0, self._on_request_timeout)
        elif self._has_begun and self._in_header:
            seconds = self._settings.timeout
            self._refuse(Problem(408, f"the request did not arrive within {seconds:g} s. Send it faster."))
        else:
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        if self.cycle is not None and not self.cycle.response_complete and self._in_header:
            self.cycle.keep_alive = False  # answer the previous request first and close the connection after it
            self.flow.pause_reading()
            return
        body = problem.body()
        headers = {"content-type": MEDIA_TYPE, "content-length": len(body), "connection": "close", **problem.headers}
        head = "".join(f"{name.lower()}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        self.transport.write(STATUS_LINE[problem.status] + head.encode() + body)
        self.transport.close()

    # ---- timers

    def _start_request_timer(self) -> None:
        self._request_timer = self.loop.call_later(self._settings.timeout, self._on_request_timeout)

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None
