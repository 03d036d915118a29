"""A worker process of the service. The supervisor starts several with `python -m xmtc.server.worker`."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial

import uvicorn

from xmtc.core.errors import XmtcError
from xmtc.server.app import create_app
from xmtc.server.clients import RefusalLog
from xmtc.server.connection import LimitedHttpProtocol
from xmtc.server.connection_limits import ConnectionLimits
from xmtc.server.metrics import DIRECTORY_VARIABLE, Metrics
from xmtc.server.model_host import Log, ModelHost
from xmtc.workflows.hosted_model import folder_names
from xmtc.workflows.serve import ServeRequest

BACKLOG = 2048
GRACE_SECONDS = 5.0
"""Extra time for pending responses on shutdown, in addition to the request timeout."""
READY = b"ready"
"""Line that a worker prints for its supervisor once it is ready."""


class Worker:
    """An HTTP server on a listening socket, with its own models."""

    def __init__(
        self,
        settings: ServeRequest,
        listener: socket.socket,
        *,
        log: Log,
        on_startup: Callable[[], None],
        metrics_directory: str | None = None,
        announces_reloads: bool = True,
    ) -> None:
        metrics = Metrics(list(folder_names(settings.folders)), metrics_directory)
        host = ModelHost(settings, metrics, log=log, announces_reloads=announces_reloads)
        refusal_log = RefusalLog(log)
        limits = ConnectionLimits(settings, log=refusal_log, on_drop=metrics.dropped_connections.inc)
        self._listener = listener
        self._on_startup = on_startup
        app = create_app(
            host,
            is_ready=lambda: not self._server.should_exit,
            on_startup=self._announce,
            log=log if settings.log else None,
            refusal_log=refusal_log,
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=partial(LimitedHttpProtocol, settings=settings, connection_limits=limits),  # type: ignore[arg-type]
                ws="none",
                lifespan="on",
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,  # ClientNames reads them, of trusted proxies only
                timeout_keep_alive=75,
                timeout_graceful_shutdown=round(settings.timeout + GRACE_SECONDS),
                backlog=BACKLOG,
            )
        )

    def run(self) -> None:
        """Serve until a signal arrives."""
        # Handle signals that arrive before uvicorn installs its handlers, and the one it raises again on exit.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self._server, "should_exit", True))
        self._server.run(sockets=[self._listener])

    async def _announce(self) -> None:
        """Call `on_startup` once the server accepts connections."""
        while not self._server.started:
            await asyncio.sleep(0.005)
        gc.collect()
        gc.freeze()  # exempt existing objects from garbage collection, which would delay requests
        self._on_startup()


def exit_now() -> None:
    """Exit without waiting for model threads, whose results are no longer needed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main(number: int, listener: int) -> None:
    """Run one of several workers: it reads its settings from standard input and exits when that is closed."""
    settings = ServeRequest.from_json(sys.stdin.buffer.readline().decode())

    def end_with_supervisor() -> None:
        os.read(0, 1)  # returns when the other end is closed
        os.kill(os.getpid(), signal.SIGTERM)

    worker = Worker(
        settings,
        socket.socket(fileno=listener),
        log=partial(print, file=sys.stderr, flush=True),
        on_startup=lambda: print(READY.decode(), flush=True),
        metrics_directory=os.environ[DIRECTORY_VARIABLE],
        announces_reloads=number == 0,  # one log line is enough: all workers reload at about the same time
    )
    threading.Thread(target=end_with_supervisor, daemon=True).start()
    worker.run()
    exit_now()


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:3]))
    except XmtcError as error:
        print(f"xmtc: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
