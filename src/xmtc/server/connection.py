"""HTTP as uvicorn reads it, with limits on what comes before the application hears of a request, and after."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from xmtc.server.errors import MEDIA_TYPE, Problem
from xmtc.server.limits import Limits

BODIES = (b"content-length", b"transfer-encoding")
"""Headers of a request that has a body."""


class Connection(HttpToolsProtocol):
    """Headers have a length, requests a time to arrive and answers one to be read; what is no HTTP gets a problem."""

    limits = Limits()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None  # for a request to arrive
        self._unread: asyncio.TimerHandle | None = None  # for an answer to be read
        self._in_header = True
        self._header = 0  # bytes of it
        self._is_all_header = True  # what has just arrived
        self._begun = False  # something of a request has arrived
        self._wasted = 0  # bytes of its body that came after its answer
        self._answering: Any = None  # of several requests sent together, the one that is answered

    # ---- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._unread is not None:
            self._unread.cancel()
        if self._answering is not None:  # uvicorn knows only of the last one
            self._answering.disconnected = True
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.limits.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._await_request()  # the next one on this connection, or blank lines that promise one
        self._begun = True
        before = self._header
        self._is_all_header = self._in_header
        super().data_received(data)
        if self._is_all_header and not self.transport.is_closing():  # the parser is silent on a line without an end
            self._count_header(max(0, before + len(data) - self._header))

    # ---- what the parser finds

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_header, self._header, self._wasted = True, 0, 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_header(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        self._in_header = self._is_all_header = False  # what comes now is the body, which the application counts
        if self.transport.is_closing():
            return
        if self.parser.should_upgrade() and any(name in BODIES for name, _ in self.headers):
            # The parser would take the body for the other protocol, and the application would miss it.
            self._refuse(Problem(400, "this service speaks HTTP/1.1 alone. Send no Upgrade header."))
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.transport.is_closing():
            return
        super().on_body(body)
        if self.cycle.response_complete:  # who is still sending shall be able to read why it was refused, for a while
            self._wasted += len(body)
            if self._wasted > self.limits.body:
                self.transport.abort()

    def on_message_complete(self) -> None:
        if self.transport.is_closing():
            return
        super().on_message_complete()
        self._in_header, self._header, self._begun = True, 0, False
        self._stop_waiting()

    def on_response_complete(self) -> None:
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()

    # ---- what is refused

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem(400, "this is no HTTP/1.1 request. See /openapi.json for what there is."))

    def _count_header(self, more: int) -> None:
        self._header += more
        if self._header > self.limits.header and not self.transport.is_closing():
            self._refuse(Problem(431, f"the headers have more than {self.limits.header:,} bytes. Send fewer."))

    def _late(self) -> None:
        """A request took too long to arrive."""
        self._timer = None
        if self.transport.is_closing():
            return
        if not self._in_header and self.cycle is not None and not self.cycle.response_complete:
            self._timer = self.loop.call_later(1.0, self._late)  # the application is about to say so
        elif self._begun and self._in_header:
            seconds = self.limits.seconds
            self._refuse(Problem(408, f"the request did not arrive within {seconds:g} s. Send it faster."))
        else:
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        if self.cycle is not None and not self.cycle.response_complete and self._in_header:
            self.cycle.keep_alive = False  # the request before is answered first, and is the last one here
            self.flow.pause_reading()
            return
        body = problem.body()
        told = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[problem.status] + told.encode() + body)
        self.transport.close()

    # ---- time

    def _await_request(self) -> None:
        self._timer = self.loop.call_later(self.limits.seconds, self._late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
