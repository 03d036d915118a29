"""A tagging service in a process of its own, on a small model, for tests that ask it from outside."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.models import planted_split
from xmtc.models.base import Model
from xmtc.models.parabel import Parabel

START = 60.0
"""Seconds that a service may take until it answers, on a machine that has other things to do."""


def train_model(folder: Path, seed: int = 7) -> tuple[Model, list[str]]:
    """A model of 60 labels saved in the folder, and texts that it did not learn from; another seed, other labels."""
    train, test, _ = planted_split(800, 200, labels=60, seed=seed)
    model = Parabel(trees=1).fit(train)
    model.save(folder, overwrite=True)
    return model, test.text().to_pylist()


def labels_of(model: Model, texts: list[str], k: int = 5) -> list[list[dict[str, Any]]]:
    """What the service is to answer for these texts."""
    return [row["labels"] for row in model.predict(texts, k).rows()]


@dataclass(frozen=True)
class Answer:
    """What came back for one request."""

    status: int
    headers: Mapping[str, str]  # names in small letters
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def labels(self) -> list[list[dict[str, Any]]]:
        """The labels of each text."""
        return [prediction["labels"] for prediction in self.json()["predictions"]]


class Service:
    """`xmtc serve` with these arguments on a free port; what it says is kept in files."""

    def __init__(self, *arguments: object, environment: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="xmtc-service-")
        self._out, self._errors = (Path(self._folder.name) / name for name in ("out", "errors"))
        self._out.touch()
        self._errors.touch()
        self.process = self._start(["serve", *map(str, arguments), "--port", "0"], environment)
        try:
            self.port = self._port()
        except BaseException:
            self.kill()
            raise

    def _start(self, arguments: list[str], environment: Mapping[str, str] | None) -> Any:
        command = [sys.executable, "-m", "xmtc.cli.main", *arguments]
        with self._out.open("w") as out, self._errors.open("w") as errors:
            return subprocess.Popen(command, stdout=out, stderr=errors, env=environment)

    def _port(self) -> int:
        until = time.monotonic() + START
        while self.process.poll() is None and time.monotonic() < until:
            found = re.search(r"^serving .* at http://127\.0\.0\.1:(\d+)/$", self._out.read_text(), re.MULTILINE)
            if found:
                return int(found[1])
            time.sleep(0.02)
        raise AssertionError(f"the service does not answer: {self._out.read_text()}{self.errors()}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def errors(self) -> str:
        """What it said on standard error so far."""
        return self._errors.read_text(errors="replace")

    def ask(
        self,
        method: str,
        path: str,
        content: Any = None,
        *,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> Answer:
        """One request on a connection of its own; `content` goes as JSON, `body` as it is."""
        sent = dict(headers or {})
        if content is not None:
            body = json.dumps(content).encode()
        if body is not None:
            sent = {"Content-Type": "application/json", **sent}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, named, answer.read())
        finally:
            connection.close()

    def predict(self, texts: list[str], **more: Any) -> Answer:
        return self.ask("POST", "/v1/predict", {"texts": texts, **more})

    def connect(self, timeout: float = 10) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def raw(self, sent: bytes, timeout: float = 10) -> bytes:
        """All that comes back for these bytes, until the service closes or says nothing for `timeout` seconds."""
        with self.connect(timeout) as connection:
            with suppress(OSError):  # it may close before it has heard all
                connection.sendall(sent)
            return everything(connection)

    def workers(self) -> list[int]:
        """Processes that the first one started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(process) for process in children.split()]

    def memory(self) -> float:
        """Megabytes that the service's processes have for themselves."""
        total = 0
        for process in [self.process.pid, *self.workers()]:
            with suppress(OSError):
                found = re.search(r"Private_Dirty: +(\d+)", Path(f"/proc/{process}/smaps_rollup").read_text())
                total += int(found[1]) if found else 0
        return total / 1024

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout: float = 30) -> int:
        """Ask it to end; the exit status."""
        self.process.send_signal(how)
        return self.process.wait(timeout)

    def kill(self) -> None:
        """End it and all that it started at once."""
        workers = self.workers() if self.process.poll() is None else []
        self.process.kill()
        self.process.wait()
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        self._folder.cleanup()


FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(
    ["xmtc.server.supervisor", "xmtc.cli.main", "uvicorn.loops.auto", "uvicorn.lifespan.on", "tests.support.service"]
)


class ForkedProcess:
    """A forked process, to be used as one of `subprocess`."""

    def __init__(self, target: Any, *arguments: Any) -> None:
        self._process = FORKING.Process(target=target, args=arguments)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        assert self._process.exitcode is not None, "it does not end"
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(int(self.pid or 0), number)


def run_command(arguments: list[str], out: Path, errors: Path, environment: dict[str, str]) -> None:
    """The command line in this process, which looks at model folders more often than others do."""
    os.environ.update(environment)
    from xmtc.cli.main import main
    from xmtc.server import model_host

    for number, path in ((1, out), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    model_host.POLL_SECONDS = 0.1
    sys.argv = ["xmtc", *arguments]
    main()


class ForkedService(Service):
    """The same from a process that has imported all that it takes: there in a fraction of the time."""

    def _start(self, arguments: list[str], environment: Mapping[str, str] | None) -> ForkedProcess:
        return ForkedProcess(run_command, arguments, self._out, self._errors, dict(environment or os.environ))


def everything(connection: socket.socket) -> bytes:
    """What comes until the other side closes, or falls silent for as long as the socket waits."""
    found = b""
    with suppress(OSError):
        while came := connection.recv(1 << 16):
            found += came
    return found


@contextmanager
def serving(
    *arguments: object, environment: Mapping[str, str] | None = None, kind: type[Service] = Service
) -> Iterator[Service]:
    """A service while the block runs. At the end it must stop when asked, and must not have failed in between."""
    service = kind(*arguments, environment=environment)
    try:
        yield service
        if service.process.poll() is None:
            assert service.stop() == 0, service.errors()
        assert "Traceback" not in service.errors(), service.errors()
    finally:
        service.kill()


@contextmanager
def background(*calls: Any) -> Iterator[list[BaseException]]:
    """Run each call again and again in a thread of its own until the block ends; what they raised."""
    raised: list[BaseException] = []
    end = threading.Event()

    def again(call: Any) -> None:
        try:
            while not end.is_set():
                call()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=again, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield raised
    finally:
        end.set()
        for thread in threads:
            thread.join(60)
