"""HTTP as uvicorn reads it, with limits on what comes before the application hears of a request."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from xmtc.server.limits import Limits
from xmtc.server.problems import MEDIA_TYPE, Problem


class Connection(HttpToolsProtocol):
    """Headers have a length and requests a time in which they have to arrive; what is no HTTP gets a problem."""

    limits = Limits()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._arriving = True  # a request has not arrived whole
        self._begun = False  # a byte of it has
        self._header = 0  # bytes before its headers were complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.limits.seconds, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._begun = True
        if self._header >= 0:
            self._header += len(data)
        super().data_received(data)
        if self._header > self.limits.header and not self.transport.is_closing():
            self._refuse(Problem(431, f"the headers have more than {self.limits.header:,} bytes. Send fewer."))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._arriving, self._header = True, 0
        if self._timer is None:
            self._timer = self.loop.call_later(self.limits.seconds, self._late)

    def on_headers_complete(self) -> None:
        self._header = -1  # what comes now is the body, which the application counts
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._arriving, self._begun, self._header = False, False, 0
        self._stop_timer()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem(400, "this is no HTTP/1.1 request. See /openapi.json for what there is."))

    def _late(self) -> None:
        """A request took too long to arrive."""
        self._timer = None
        if not self._arriving or self.transport.is_closing():
            return
        if self.cycle is not None and self._header < 0 and not self.cycle.response_complete:
            self._timer = self.loop.call_later(1.0, self._late)  # the application is about to say so
            return
        if self._begun and self._header >= 0:
            seconds = self.limits.seconds
            self._refuse(Problem(408, f"the request did not arrive within {seconds:g} s. Send it faster."))
        else:
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        body = problem.body()
        told = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[problem.status] + told.encode() + body)
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
