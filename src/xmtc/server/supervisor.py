"""Start a service: one worker in this process, or several worker processes that restart when they crash."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence

from xmtc.core.errors import ConfigError, XmtcError
from xmtc.server.metrics import DIRECTORY_VARIABLE, mark_process_dead
from xmtc.server.model_host import Log
from xmtc.server.worker import BACKLOG, GRACE_SECONDS, READY, Worker, exit_now
from xmtc.workflows.hosted_model import check_servable, folder_names
from xmtc.workflows.serve import API_KEY_VARIABLE, ServeRequest

RESTART_SECONDS = 1.0
"""Delay before a crashed worker restarts."""


def serve(settings: ServeRequest, *, announce: Log, log: Log) -> None:
    """Serve until a signal arrives; `announce` receives the address once the service is ready, `log` the log lines."""
    for folder in settings.folders:
        check_servable(folder)
    names = list(folder_names(settings.folders))
    listeners = _bind(settings)
    port = listeners[0].getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host

    def on_startup() -> None:
        announce(f"serving {', '.join(names)} at http://{host}:{port}/")

    if settings.workers == 1:
        Worker(settings, listeners[0], log=log, on_startup=on_startup).run()
        exit_now()
    else:
        with tempfile.TemporaryDirectory(prefix="xmtc-metrics-") as directory:
            Supervisor(settings, listeners, metrics_directory=directory, log=log).run(on_startup)


def _bind(settings: ServeRequest) -> list[socket.socket]:
    """One listening socket per worker, all at one address; the operating system distributes connections."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "invalid name"
        raise ConfigError(f"--host {settings.host}: no such host ({why}). Use 127.0.0.1 or 0.0.0.0.") from None

    def bound(shared: bool) -> socket.socket:
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            listener.bind(address)
        except OSError as error:
            listener.close()
            taken = error.errno == errno.EADDRINUSE
            why = "is already in use" if taken else f"cannot be bound ({error.strerror})"
            raise ConfigError(
                f"port {settings.port} on {settings.host} {why}. Choose another with --port, or 0 for any free port."
            ) from None
        return listener

    if settings.workers > 1 and settings.port:
        bound(shared=False).close()  # fail if another service already shares this address
    listeners: list[socket.socket] = []
    for _ in range(settings.workers):
        listeners.append(bound(shared=settings.workers > 1))
        listeners[-1].listen(BACKLOG)
        address = listeners[-1].getsockname()  # if the system chose the port, use it for the others too
    return listeners


class Supervisor:
    """Starts several workers and restarts those that crash."""

    def __init__(
        self, settings: ServeRequest, listeners: list[socket.socket], *, metrics_directory: str, log: Log
    ) -> None:
        self._settings, self._listeners, self._log = settings, listeners, log
        self._metrics_directory = metrics_directory
        self._stopping = threading.Event()
        self._ready = [threading.Event() for _ in listeners]

    def run(self, on_startup: Callable[[], None]) -> None:
        """Start the workers and restart crashed ones until a signal arrives."""
        for how in (signal.SIGTERM, signal.SIGINT):
            signal.signal(how, lambda *_: self._stopping.set())
        workers = [self._start(number) for number in range(len(self._listeners))]
        has_started = False
        try:
            while not self._stopping.wait(0.1):
                if not has_started and all(ready.is_set() for ready in self._ready):
                    has_started = True
                    on_startup()
                for number, worker in enumerate(workers):
                    if worker.poll() is None:
                        continue
                    place = f"worker {number + 1} of {len(workers)}"
                    if not has_started and not self._ready[number].is_set():  # it has printed the reason
                        raise XmtcError(f"{place} failed to start. See its message above.")
                    self._log(f"{place} crashed ({_exit_reason(worker)}), restarting")
                    mark_process_dead(worker.pid, self._metrics_directory)
                    self._ready[number].clear()
                    if not self._stopping.wait(RESTART_SECONDS):
                        workers[number] = self._start(number)
        finally:
            self._stop(workers)

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        listener = self._listeners[number].fileno()
        environment = {name: value for name, value in os.environ.items() if name != API_KEY_VARIABLE}
        worker = subprocess.Popen(
            [sys.executable, "-m", "xmtc.server.worker", str(number), str(listener)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(listener,),
            env={**environment, DIRECTORY_VARIABLE: self._metrics_directory},
            start_new_session=True,  # only the supervisor receives Ctrl-C, and forwards it
        )
        assert worker.stdin is not None
        # Sent through a pipe, so that the API key is neither in the environment nor in the arguments.
        worker.stdin.write(self._settings.to_json().encode() + b"\n")
        worker.stdin.flush()
        threading.Thread(target=self._wait_until_ready, args=(number, worker), daemon=True).start()
        return worker

    def _wait_until_ready(self, number: int, worker: subprocess.Popen[bytes]) -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            if line.strip() == READY:
                self._ready[number].set()

    def _stop(self, workers: Sequence[subprocess.Popen[bytes]]) -> None:
        for listener in self._listeners:  # accept no further connections
            listener.close()
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
        until = time.monotonic() + self._settings.timeout + 2 * GRACE_SECONDS
        for worker in workers:
            try:
                worker.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()


def _exit_reason(worker: subprocess.Popen[bytes]) -> str:
    code = worker.returncode
    return f"signal {-code}" if code < 0 else f"status {code}"
