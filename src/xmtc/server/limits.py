"""What a service takes from strangers, at most."""

from __future__ import annotations

from dataclasses import dataclass

from xmtc.core.errors import ConfigError

KEY = "XMTC_API_KEY"
"""The variable that may hold the key of a service."""


@dataclass(frozen=True)
class Limits:
    """Beyond these a request is refused, with a line that says which."""

    body: int = 32 << 20
    """Bytes of a request."""
    texts: int = 1_000
    """Texts of a request."""
    characters: int = 1_000_000
    """Characters of a text."""
    k: int = 1_000
    """Labels of each text."""
    queue: int = 10_000
    """Texts that wait for a model."""
    seconds: float = 30.0
    """From the first byte of a request to its answer."""
    window: float = 0.002
    """Seconds for which a text waits for others to be tagged with it."""

    def __post_init__(self) -> None:
        for name in ("body", "texts", "characters", "k", "queue"):
            if getattr(self, name) < 1:
                raise ConfigError(f"the limit on '{name}' must be an integer ≥ 1. Got {getattr(self, name)}.")
        if not 0 < self.seconds < float("inf"):
            raise ConfigError(f"the time of a request must be more than 0 seconds. Got {self.seconds:g}.")
        if not 0 <= self.window < 1:
            raise ConfigError(f"the window must be from 0 to 1,000 ms. Got {self.window * 1000:g}.")

    @property
    def explained(self) -> int:
        """Characters of a text whose labels are explained, for which all that wait for the model wait."""
        return min(self.characters, 200_000)

    @property
    def labels(self) -> int:
        """Labels of all texts of a request."""
        return max(100_000, 50 * self.texts)

    @property
    def held(self) -> int:
        """Bytes of all requests that are at work."""
        return 8 * self.body

    @property
    def header(self) -> int:
        """Bytes of a request line and its headers."""
        return 1 << 16
