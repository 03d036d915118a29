"""Names of clients, also behind a trusted proxy, and a log of clients that exceed limits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from starlette.types import Scope

from xmtc.core.errors import shown

CLIENT = "xmtc.client"
"""Key of the client's name in the ASGI scope of a request."""
MAX_FORWARDED = 50
"""Maximum number of addresses in X-Forwarded-For that are examined."""
FIRST_LOG_SECONDS, LOG_SECONDS = 1.0, 10.0
"""Delay of the first line about refused clients, and the minimum interval between lines."""


class ClientNames:
    """Names of clients: an IPv4 address, or the /64 network of an IPv6 address, which one client can have to itself."""

    def __init__(self, trusted_proxies: Sequence[str]) -> None:
        self._trusted = [ip_network(proxy, strict=False) for proxy in trusted_proxies]

    def is_proxy(self, address: str) -> bool:
        """Whether this is the address of a trusted proxy."""
        found = _parsed(address)
        return found is not None and any(found in network for network in self._trusted)

    def of_address(self, address: str) -> str:
        """The name of a client with this address."""
        found = _parsed(address)
        if isinstance(found, IPv6Address) and not found.is_loopback:
            return str(ip_network((int(found) >> 64 << 64, 64)))
        return shown(address, 60) if found is None else str(found)

    def of_request(self, scope: Scope) -> str:
        """The name of a request's client: the last address in X-Forwarded-For that is not a trusted proxy.

        The header counts only if the connection comes from a trusted proxy, because clients can send any header.
        """
        address = (scope.get("client") or ("unknown", 0))[0]
        if self._trusted and self.is_proxy(address):
            values = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
            for part in reversed(b",".join(values).decode("latin-1").split(",")[-MAX_FORWARDED:]):
                if _parsed(part.strip()) is None:
                    break
                address = part.strip()
                if not self.is_proxy(address):
                    break
        return self.of_address(address)


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(address.partition("%")[0])  # without the zone of a link-local address
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


class RefusalLog:
    """Counts dropped and refused clients, and writes a line about them at most every few seconds."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._counts: Counter[tuple[str, str]] = Counter()
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, client: str, what: str) -> None:
        """Count an event, such as 'slow connections dropped'; needs a running event loop."""
        self._counts[client, what] += 1
        if self._timer is None:
            delay = max(FIRST_LOG_SECONDS, self._next - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self.flush)

    def flush(self) -> None:
        """Write the line."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._counts:
            return
        totals: Counter[str] = Counter()
        for (_, what), count in self._counts.items():
            totals[what] += count
        parts = []
        for what, total in totals.items():
            client, count = max(((who, n) for (who, kind), n in self._counts.items() if kind == what), key=_by_count)
            whose = f"all from {client}" if count == total else f"{count:,} of them from {client}"
            parts.append(f"{what}: {total:,}, {whose}")
        self._counts.clear()
        self._next = time.monotonic() + LOG_SECONDS
        self._log(f"limits reached: {'; '.join(parts)}")


def _by_count(pair: tuple[str, int]) -> int:
    return pair[1]
