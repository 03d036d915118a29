"""`xmtc serve`: everything that a service is started with, written once."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from xmtc.core.errors import ConfigError, DataError
from xmtc.core.request import Argument, BaseRequest, Option
from xmtc.core.runtime import Runtime, available_threads

API_KEY_VARIABLE = "XMTC_API_KEY"
"""The environment variable that may hold the API key of a service."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
MIN_KEY_LENGTH = 8


@dataclass(frozen=True, kw_only=True)
class ServeRequest(BaseRequest):
    """What to serve, where, and the limits beyond which a request is refused.

    The options of `xmtc serve`, the settings of the HTTP application and what a supervisor hands to its worker
    processes are these fields.
    """

    folders: Annotated[tuple[Path, ...], Argument("DIR…")]
    """Model folders; the first is the default."""
    host: Annotated[str, Option("ADDRESS")] = "127.0.0.1"
    """Address to listen at; 0.0.0.0 lets other machines in."""
    port: Annotated[int, Option("N")] = 8000
    """Port; 0 takes one that is free."""
    workers: Annotated[int, Option("N")] = 1
    """Processes that answer; models are mapped once."""
    api_key_file: Annotated[Path | None, Option("FILE")] = None
    """File with the key that requests must have (or the variable XMTC_API_KEY)."""
    hostname: Annotated[tuple[str, ...], Option("NAME")] = ()
    """Another name it is reached by, as behind a proxy; may be repeated."""
    feedback: Annotated[Path | None, Option("FOLDER")] = None
    """Folder for feedback (default: beside each model)."""
    max_body: Annotated[int, Option("N")] = 32
    """MiB of a request, at most."""
    max_texts: Annotated[int, Option("N")] = 1_000
    """Texts of a request, at most."""
    max_characters: Annotated[int, Option("N")] = 1_000_000
    """Characters of a text, at most."""
    max_k: Annotated[int, Option("N")] = 1_000
    """Labels of each text, at most."""
    queue: Annotated[int, Option("N")] = 10_000
    """Texts that wait for a model, at most."""
    timeout: Annotated[float, Option("S")] = 30.0
    """Seconds for a request."""
    window: Annotated[float, Option("MS")] = 2.0
    """Milliseconds that a text waits for others to be tagged with it."""
    log: Annotated[bool, Option()] = False
    """A line for each request on standard error."""
    threads: Annotated[int | None, Option("N")] = None
    """CPU threads of each process (default: its share)."""
    device: Annotated[str, Option("auto|cpu|cuda|cuda:N")] = "auto"
    """Where neural models run; auto takes CUDA where there is one."""
    api_key: str | None = field(default=None, repr=False)
    """The key itself: never an option, as others on the machine can read command lines."""

    def check(self) -> None:
        for name in ("max_body", "max_texts", "max_characters", "max_k", "queue"):
            if getattr(self, name) < 1:
                limit = name.removeprefix("max_")
                raise ConfigError(f"the limit on '{limit}' must be an integer ≥ 1. Got {getattr(self, name)}.")
        if not 0 < self.timeout < float("inf"):
            raise ConfigError(f"the time of a request must be more than 0 seconds. Got {self.timeout:g}.")
        if not 0 <= self.window < 1000:
            raise ConfigError(f"the window must be from 0 to 1,000 ms. Got {self.window:g}.")
        if self.workers < 1:
            raise ConfigError(f"'workers' must be an integer ≥ 1. Got {self.workers}.")
        if self.workers > 1 and not hasattr(socket, "SO_REUSEPORT"):
            raise ConfigError("this system has no sockets for several processes. Leave out --workers.")
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"'port' must be from 0 to 65535. Got {self.port}.")
        for name in self.hostname:
            if "*" in name.removeprefix("*.") and name != "*":
                raise ConfigError(f"--hostname {name}: a wildcard is the first part of a name, as in *.example.com.")
        if self.feedback is not None and not self.feedback.is_dir():
            raise DataError(f"{self.feedback}: no such folder. Make it first.")

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the service."""
        return self.host in LOCAL_HOSTS or self.host.startswith("127.")

    @property
    def allowed_hosts(self) -> tuple[str, ...] | None:
        """The names under which the service answers; None for any."""
        return (*LOCAL_HOSTS, self.host, *self.hostname) if self.is_local or self.hostname else None

    @property
    def max_body_bytes(self) -> int:
        return self.max_body << 20

    @property
    def max_in_flight_bytes(self) -> int:
        """Bytes of the bodies of all requests that are being processed."""
        return 8 * self.max_body_bytes

    @property
    def max_header_bytes(self) -> int:
        """Bytes of a request line and its headers."""
        return 1 << 16

    @property
    def max_explain_characters(self) -> int:
        """Characters of a text to explain: all requests that wait for the model wait for it."""
        return min(self.max_characters, 200_000)

    @property
    def max_labels(self) -> int:
        """Labels of all texts of a request together."""
        return max(100_000, 50 * self.max_texts)

    def runtime(self) -> Runtime:
        """The runtime of one worker: its share of the cores unless `threads` says otherwise."""
        share = max(1, available_threads() // self.workers)
        return Runtime(device=self.device, threads=self.threads or share)

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> ServeRequest:
        values = json.loads(text)
        paths = {name: Path(values[name]) for name in ("api_key_file", "feedback") if values[name] is not None}
        folders = tuple(Path(folder) for folder in values["folders"])
        return cls(**{**values, **paths, "folders": folders, "hostname": tuple(values["hostname"])})


def read_api_key(path: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The API key from a file, or else from the environment; None where there is none."""
    if path is None:
        key, source = environment.get(API_KEY_VARIABLE, "").strip(), API_KEY_VARIABLE
        if not key:
            return None
    else:
        try:
            key, source = path.read_text(encoding="utf-8").strip(), str(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise DataError(f"{path}: the key cannot be read ({reason}). Write it into a file of one line.") from None
        if not key:
            raise ConfigError(f"{path}: there is no key in it. Write one on its first line.")
    if not key.isascii() or not key.isprintable() or " " in key or len(key) < MIN_KEY_LENGTH:
        raise ConfigError(
            f"{source}: a key is at least {MIN_KEY_LENGTH} ASCII characters without spaces. Choose another."
        )
    return key
