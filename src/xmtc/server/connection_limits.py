"""Limits on the number of connections of a worker, in total and per client; the slowest are dropped first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol, TypeVar

from xmtc.server.clients import ClientNames, RefusalLog
from xmtc.server.errors import Problem
from xmtc.workflows.serve import ServeRequest

RESERVED_FILES = 256
"""File descriptors that are not available to connections: model files, feedback, listening sockets."""
STALE_CONNECTION_SECONDS, STALE_BODY_SECONDS = 0.1, 1.0
"""A connection or a body that has made no progress for this long can be dropped if a limit is reached."""
PROGRESS_BYTES = 1 << 14
"""Bytes that count as progress of a request."""

Item = TypeVar("Item")


def stalest(items: Iterable[tuple[Item, str, float, int]], at_least: float) -> Item | None:
    """The item to drop: of the client with the largest total, the one that made no progress for the longest time.

    Items are (item, client, seconds without progress, size). Only those without progress for `at_least`
    seconds are dropped.
    """
    stale = [item for item in items if item[2] >= at_least]
    if not stale:
        return None
    totals: Counter[str] = Counter()
    for _, client, _, size in stale:
        totals[client] += size
    return max(stale, key=lambda item: (totals[item[1]], item[2]))[0]


class LimitedConnection(Protocol):
    """A connection as seen by the limits."""

    def seconds_without_progress(self) -> float:
        """Seconds since the last progress of an incomplete request or an idle connection; 0 for other connections."""

    def drop(self, problem: Problem) -> None:
        """Close the connection, with a response if a request has begun."""


class ConnectionLimits:
    """The open connections of one worker process."""

    def __init__(self, settings: ServeRequest, *, log: RefusalLog, on_drop: Callable[[], None]) -> None:
        self._names = ClientNames(settings.trusted_proxy)
        self._most = min(settings.max_connections, _available_files(settings.max_connections))
        self._most_per_client = min(self._most, settings.client_connections)
        self._log, self._on_drop = log, on_drop
        self._clients: dict[LimitedConnection, str] = {}
        self._counts: Counter[str] = Counter()

    def add(self, connection: LimitedConnection, address: str) -> Problem | None:
        """Add a new connection, dropping a slow one if necessary; a returned problem refuses it instead."""
        client = self._names.of_address(address)
        problem = None
        if self._counts[client] >= self._most_per_client and not self._names.is_proxy(address):
            detail = f"more than {self._most_per_client:,} connections from {client}. Close some and try again."
            problem = self._make_room(client, only=True, problem=Problem(429, detail, {"Retry-After": "1"}))
        elif len(self._clients) >= self._most:
            detail = "too many connections. Try again in a moment."
            problem = self._make_room(client, only=False, problem=Problem(503, detail, {"Retry-After": "1"}))
        if problem is None:
            self._clients[connection] = client
            self._counts[client] += 1
        return problem

    def remove(self, connection: LimitedConnection) -> None:
        """Remove a closed connection."""
        client = self._clients.pop(connection, None)
        if client is not None:
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]

    def _make_room(self, client: str, *, only: bool, problem: Problem) -> Problem | None:
        """Drop the slowest connection, of this client `only` or of any; returns the problem if there is none."""
        self._on_drop()
        candidates = (
            (connection, name, connection.seconds_without_progress(), 1)
            for connection, name in self._clients.items()
            if not only or name == client
        )
        slowest = stalest(candidates, STALE_CONNECTION_SECONDS)
        if slowest is None:
            self._log.add(client, "connections refused")
            return problem
        self._log.add(self._clients[slowest], "slow connections dropped")
        self.remove(slowest)
        slowest.drop(Problem(408, "the request arrived too slowly while the service was busy. Try again."))
        return None


def _available_files(wanted: int) -> int:
    """Number of connections that the limit on open files allows; raises the limit as far as the system permits."""
    try:
        import resource
    except ImportError:  # Windows
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        target = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            soft = target
    return wanted if soft == resource.RLIM_INFINITY else max(16, soft - RESERVED_FILES)
