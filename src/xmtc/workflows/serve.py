"""The parameters of `xmtc serve`."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from xmtc.core.errors import ConfigError, DataError, shown
from xmtc.core.request import Argument, BaseRequest, Option
from xmtc.core.runtime import Runtime, available_threads

if TYPE_CHECKING:
    from xmtc.workflows.feedback import FeedbackLimits

API_KEY_VARIABLE = "XMTC_API_KEY"
"""The environment variable with the API key."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
MIN_KEY_LENGTH = 8


@dataclass(frozen=True, kw_only=True)
class ServeRequest(BaseRequest):
    """Models to serve, the address, and limits on requests.

    These fields are the options of `xmtc serve` and the settings of the HTTP application and its worker processes.
    """

    folders: Annotated[tuple[Path, ...], Argument("DIR…")]
    """Model folders; the first is the default."""
    host: Annotated[str, Option("ADDRESS")] = "127.0.0.1"
    """Address to listen on; 0.0.0.0 accepts connections from other machines."""
    port: Annotated[int, Option("N")] = 8000
    """Port to listen on; 0 picks a free one."""
    workers: Annotated[int, Option("N")] = 1
    """Worker processes; they share the model files in memory."""
    api_key_file: Annotated[Path | None, Option("FILE")] = None
    """File with the API key that requests must send (default: the environment variable XMTC_API_KEY)."""
    hostname: Annotated[tuple[str, ...], Option("NAME")] = ()
    """Additional host name of the service, such as that of a proxy; can be repeated."""
    trusted_proxy: Annotated[tuple[str, ...], Option("ADDRESS")] = ()
    """Address or network of a reverse proxy whose X-Forwarded-For header names the clients; can be repeated."""
    feedback: Annotated[Path | None, Option("FOLDER")] = None
    """Folder for feedback (default: next to each model)."""
    max_feedback: Annotated[int, Option("N")] = 1_024
    """Maximum size of a feedback file in MiB."""
    max_daily_feedback: Annotated[int, Option("N")] = 10_000
    """Maximum number of feedback records per client address and day."""
    max_daily_feedback_size: Annotated[int, Option("N")] = 64
    """Maximum size of the feedback per client address and day in MiB."""
    max_body: Annotated[int, Option("N")] = 32
    """Maximum size of a request in MiB."""
    max_texts: Annotated[int, Option("N")] = 1_000
    """Maximum number of texts per request."""
    max_characters: Annotated[int, Option("N")] = 1_000_000
    """Maximum number of characters per text."""
    max_k: Annotated[int, Option("N")] = 1_000
    """Maximum number of labels per text."""
    max_connections: Annotated[int, Option("N")] = 2_000
    """Maximum number of connections per worker."""
    max_client_connections: Annotated[int | None, Option("N")] = None
    """Maximum number of connections per worker and client address (default: half of --max-connections)."""
    queue: Annotated[int, Option("N")] = 10_000
    """Maximum number of texts waiting for a model."""
    timeout: Annotated[float, Option("S")] = 30.0
    """Maximum time for a request in seconds."""
    window: Annotated[float, Option("MS")] = 2.0
    """Time in milliseconds that a text waits to be batched with others."""
    log: Annotated[bool, Option()] = False
    """Log each request to standard error."""
    threads: Annotated[int | None, Option("N")] = None
    """CPU threads per worker (default: all cores divided by the number of workers)."""
    device: Annotated[str, Option("auto|cpu|cuda|cuda:N")] = "auto"
    """Device for neural models; auto uses CUDA if available."""
    api_key: str | None = field(default=None, repr=False)
    """The API key itself. Not an option, because other users of the machine can read command lines."""

    def check(self) -> None:
        for name in (
            *("max_feedback", "max_daily_feedback", "max_daily_feedback_size"),
            *("max_body", "max_texts", "max_characters", "max_k", "queue"),
            *("max_connections", "max_client_connections"),
        ):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                option = "--" + name.replace("_", "-")
                raise ConfigError(f"{option} must be an integer ≥ 1. Got {getattr(self, name)}.")
        if not 0 < self.timeout < float("inf"):
            raise ConfigError(f"--timeout must be a number of seconds > 0. Got {self.timeout:g}.")
        if not 0 <= self.window < 1000:
            raise ConfigError(f"--window must be at least 0 and less than 1,000 ms. Got {self.window:g}.")
        if self.workers < 1:
            raise ConfigError(f"--workers must be an integer ≥ 1. Got {self.workers}.")
        if self.workers > 1 and not hasattr(socket, "SO_REUSEPORT"):
            raise ConfigError("this system does not support several workers on one port. Leave out --workers.")
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"--port must be from 0 to 65535. Got {self.port}.")
        for name in self.hostname:
            if "*" in name.removeprefix("*.") and name != "*":
                raise ConfigError(f"--hostname {name}: use a wildcard only as the first part, as in *.example.com.")
        for proxy in self.trusted_proxy:
            try:
                ip_network(proxy, strict=False)
            except ValueError:
                raise ConfigError(
                    f"--trusted-proxy must be an IP address or a network such as 10.0.0.0/8. Got '{shown(proxy)}'."
                ) from None
        if self.feedback is not None and not self.feedback.is_dir():
            raise DataError(f"{self.feedback}: no such folder. Create it first.")

    @property
    def is_local(self) -> bool:
        """Whether the service only accepts connections from this machine."""
        return self.host in LOCAL_HOSTS or self.host.startswith("127.")

    @property
    def allowed_hosts(self) -> tuple[str, ...] | None:
        """The host names that requests may use; None for any."""
        return (*LOCAL_HOSTS, self.host, *self.hostname) if self.is_local or self.hostname else None

    @property
    def max_body_bytes(self) -> int:
        """Maximum size of a request in bytes."""
        return self.max_body << 20

    @property
    def max_in_flight_bytes(self) -> int:
        """Maximum total size in bytes of all requests in progress."""
        return 8 * self.max_body_bytes

    @property
    def client_connections(self) -> int:
        """Maximum number of connections of one client to one worker."""
        return self.max_client_connections or max(1, self.max_connections // 2)

    @property
    def max_header_bytes(self) -> int:
        """Maximum size in bytes of a request line and its headers."""
        return 1 << 16

    @property
    def max_explain_characters(self) -> int:
        """Maximum number of characters of a text to explain, as other requests wait meanwhile."""
        return min(self.max_characters, 200_000)

    @property
    def max_labels(self) -> int:
        """Maximum total number of labels per request."""
        return max(100_000, 50 * self.max_texts)

    @property
    def feedback_limits(self) -> FeedbackLimits:
        """Limits of each feedback file."""
        from xmtc.workflows.feedback import FeedbackLimits

        return FeedbackLimits(self.max_feedback << 20, self.max_daily_feedback, self.max_daily_feedback_size << 20)

    def runtime(self) -> Runtime:
        """The runtime of one worker: an equal part of the cores unless `threads` is set."""
        share = max(1, available_threads() // self.workers)
        return Runtime(device=self.device, threads=self.threads or share)

    def to_json(self) -> str:
        """The request as JSON, for worker processes."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> ServeRequest:
        """The request that `to_json` wrote."""
        values = json.loads(text)
        paths = {name: Path(values[name]) for name in ("api_key_file", "feedback") if values[name] is not None}
        folders = tuple(Path(folder) for folder in values["folders"])
        names = {name: tuple(values[name]) for name in ("hostname", "trusted_proxy")}
        return cls(**{**values, **paths, **names, "folders": folders})


def read_api_key(path: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The API key from a file or the environment; None if there is none."""
    if path is None:
        key, source = environment.get(API_KEY_VARIABLE, "").strip(), API_KEY_VARIABLE
        if not key:
            return None
    else:
        try:
            key, source = path.read_text(encoding="utf-8").strip(), str(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise DataError(
                f"{path}: cannot read the API key ({reason}). Write it to the first line of the file."
            ) from None
        if not key:
            raise ConfigError(f"{path}: contains no API key. Write it to the first line of the file.")
    if not key.isascii() or not key.isprintable() or " " in key or len(key) < MIN_KEY_LENGTH:
        raise ConfigError(
            f"{source}: an API key must have at least {MIN_KEY_LENGTH} ASCII characters, no spaces. Choose another."
        )
    return key
