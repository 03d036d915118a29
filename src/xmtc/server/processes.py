"""The processes of a service: one, or several behind the same address, each started anew when it dies."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import uvicorn

from xmtc.core.errors import ConfigError, XmtcError
from xmtc.core.runtime import Runtime, available_threads
from xmtc.server.app import create_app
from xmtc.server.connection import Connection
from xmtc.server.limits import KEY, Limits
from xmtc.server.metrics import Tallies
from xmtc.server.middleware import LOCAL, Doors
from xmtc.server.model_host import Hosts, Tell, check_servable, named

BACKLOG = 2048
PATIENCE = 5.0
"""Seconds beyond the time of a request that an ending service waits for those at work."""
AGAIN = 1.0
"""Seconds before a process that died is started anew."""


@dataclass(frozen=True)
class ServeConfig:
    """What to serve, and how."""

    folders: Sequence[str]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int | None = None
    """For the model work of each process; None shares the cores among them."""
    device: str = "auto"
    limits: Limits = field(default_factory=Limits)
    key: str | None = None
    hostnames: Sequence[str] = ()
    feedback: str | None = None
    log: bool = False

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"'workers' must be an integer ≥ 1. Got {self.workers}.")
        if self.workers > 1 and not hasattr(socket, "SO_REUSEPORT"):
            raise ConfigError("this system has no sockets for several processes. Leave out --workers.")
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"'port' must be from 0 to 65535. Got {self.port}.")

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the service."""
        return self.host in LOCAL or self.host.startswith("127.")

    def runtime(self) -> Runtime:
        share = max(1, available_threads() // self.workers)
        return Runtime(device=self.device, threads=self.threads or share)

    @classmethod
    def from_json(cls, text: str) -> ServeConfig:
        values = json.loads(text)
        return cls(**{**values, "limits": Limits(**values["limits"])})


def serve(order: ServeConfig, say: Tell, tell: Tell) -> None:
    """Serve until a signal says otherwise; `say` is told the address, `tell` what an operator wants to know."""
    for folder in order.folders:
        check_servable(Path(folder))
    names = list(named([Path(folder) for folder in order.folders]))
    sockets = _bind(order)
    port = sockets[0].getsockname()[1]
    host = f"[{order.host}]" if ":" in order.host else order.host
    address = f"serving {', '.join(names)} at http://{host}:{port}/"
    tallies = Tallies(names, order.workers)
    if order.workers == 1:
        Worker(order, tallies, sockets[0], tell).run(lambda: say(address))
        _end_now()
    else:
        Workers(order, tallies, sockets, tell).run(lambda: say(address))


def _bind(order: ServeConfig) -> list[socket.socket]:
    """A listening socket for each process, all at one address: the system deals connections out among them."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(order.host, order.port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "not a name"
        raise ConfigError(f"--host {order.host}: no such host ({why}). Use 127.0.0.1 or 0.0.0.0.") from None

    def bound(shared: bool) -> socket.socket:
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            made.bind(place)
        except OSError as error:
            made.close()
            words = f"port {order.port} of {order.host} cannot be had ({error.strerror})"
            raise ConfigError(f"{words}. Choose another with --port, or 0 for any that is free.") from None
        return made

    if order.workers > 1 and order.port:
        bound(shared=False).close()  # another service that shares its address would let us in unnoticed
    sockets: list[socket.socket] = []
    for _ in range(order.workers):
        sockets.append(bound(shared=order.workers > 1))
        sockets[-1].listen(BACKLOG)
        place = sockets[-1].getsockname()  # where the system chose the port, the others take the same
    return sockets


class Worker:
    """One process that answers."""

    def __init__(
        self, order: ServeConfig, tallies: Tallies, listening: socket.socket, tell: Tell, announces: bool = True
    ) -> None:
        self._socket = listening
        folders = [Path(folder) for folder in order.folders]
        feedback = None if order.feedback is None else Path(order.feedback)
        hosts = Hosts(folders, order.runtime(), order.limits, tallies, feedback, tell, announces)
        app = Doors(
            create_app(hosts, lambda: not self.server.should_exit),
            order.limits,
            tallies,
            key=order.key,
            hosts={*LOCAL, order.host, *order.hostnames} if order.is_local or order.hostnames else None,
            log=tell if order.log else None,
        )
        limits = order.limits
        self.server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=type("Connection", (Connection,), {"limits": limits}),
                ws="none",
                lifespan="on",
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=round(limits.seconds + PATIENCE),
                backlog=BACKLOG,
            )
        )

    def run(self, begun: Callable[[], None]) -> None:
        """Answer until a signal says otherwise."""
        startup = self.server.startup

        async def started(sockets: list[socket.socket] | None = None) -> None:
            await startup(sockets)
            gc.collect()
            gc.freeze()  # what is here now stays: looking through it again and again would make requests wait
            begun()

        self.server.startup = started  # type: ignore[method-assign]
        # A signal before uvicorn listens to them is not lost, and the one that it raises once more at its end, as if
        # being asked to end were a failure, changes nothing.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self.server, "should_exit", True))
        self.server.run(sockets=[self._socket])


def _end_now() -> None:
    """End without waiting for the threads of models, whose work nobody waits for any more."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class Workers:
    """Several processes that answer, and this one, which looks after them."""

    def __init__(self, order: ServeConfig, tallies: Tallies, sockets: list[socket.socket], tell: Tell) -> None:
        self._order, self._tallies, self._sockets, self._tell = order, tallies, sockets, tell
        self._ending = threading.Event()
        self._ready = [threading.Event() for _ in sockets]

    def run(self, begun: Callable[[], None]) -> None:
        """Start them, and look after them until a signal says otherwise."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._ending.set())
        children = [self._start(row) for row in range(len(self._sockets))]
        told = False
        try:
            while not self._ending.wait(0.1):
                if not told and all(ready.is_set() for ready in self._ready):
                    told = True
                    begun()
                for row, child in enumerate(children):
                    if child.poll() is None:
                        continue
                    if not told and not self._ready[row].is_set():  # it has said why
                        raise XmtcError(f"process {row + 1} of {len(children)} could not begin.")
                    self._tell(f"process {row + 1} of {len(children)} ended ({_why(child)}) and is started anew")
                    self._ready[row].clear()
                    if not self._ending.wait(AGAIN):
                        children[row] = self._start(row)
        finally:
            self._end(children)

    def _start(self, row: int) -> subprocess.Popen[bytes]:
        passed = (self._sockets[row].fileno(), self._tallies.file)
        child = subprocess.Popen(
            [sys.executable, "-m", "xmtc.server.worker", str(row), *map(str, passed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=passed,
            env={name: value for name, value in os.environ.items() if name != KEY},
            start_new_session=True,  # an interrupt from the keyboard comes to us alone, and we pass it on
        )
        assert child.stdin is not None
        # The key is neither in its environment nor among its arguments.
        child.stdin.write(json.dumps(asdict(self._order)).encode() + b"\n")
        child.stdin.flush()
        threading.Thread(target=self._listen, args=(row, child), daemon=True).start()
        return child

    def _listen(self, row: int, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip() == b"ready":
                self._ready[row].set()

    def _end(self, children: Sequence[subprocess.Popen[bytes]]) -> None:
        for listening in self._sockets:  # from now on nobody is let in only to be left waiting
            listening.close()
        for child in children:
            if child.poll() is None:
                child.terminate()
        until = time.monotonic() + self._order.limits.seconds + 2 * PATIENCE
        for child in children:
            try:
                child.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()


def _why(child: subprocess.Popen[bytes]) -> str:
    code = child.returncode
    return f"signal {-code}" if code < 0 else f"status {code}"


def work(row: int, listening: int, tallied: int) -> None:
    """One of several processes: its order comes through standard input, and it ends when that closes."""
    order = ServeConfig.from_json(sys.stdin.buffer.readline().decode())
    names = list(named([Path(folder) for folder in order.folders]))
    tallies = Tallies(names, order.workers, row, tallied)

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def end_with_caller() -> None:
        os.read(0, 1)  # nothing more comes: this returns when whoever started us is gone
        os.kill(os.getpid(), signal.SIGTERM)

    # All processes see a new model at about the same time, and one of them says so.
    worker = Worker(order, tallies, socket.socket(fileno=listening), tell, announces=row == 0)
    threading.Thread(target=end_with_caller, daemon=True).start()
    worker.run(lambda: print("ready", flush=True))
    _end_now()
