"""Where and how a model runs; handed in, never looked up inside a model."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from xmtc.core.errors import ConfigError, shown


def available_threads() -> int:
    """Cores this process may use, which a container or `taskset` can make fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Runtime:
    """The machine's side of a run. Nothing here changes what a model means, only how fast and where."""

    device: str = "auto"
    """Where neural models run: 'auto' (CUDA where there is one), 'cpu', 'cuda' or 'cuda:N'."""
    threads: int = field(default_factory=available_threads)
    """CPU threads for kernels."""
    precision: str = "auto"
    """Arithmetic of neural models: 'auto' (bfloat16 on CUDA, float32 elsewhere), 'float32' or 'bfloat16'."""
    rank: int = 0
    """This process's place in the process group that the caller made."""
    world_size: int = 1
    """How many processes share the work."""
    seed: int = 0
    """The one source of randomness."""
    cache: Path | None = None
    """Folder for tokenised texts, keyed by content; None keeps nothing on disk."""

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ConfigError(f"'threads' must be an integer ≥ 1. Got {self.threads}.")
        if not re.fullmatch(r"auto|cpu|cuda(:\d|:[1-9]\d)?", self.device):
            raise ConfigError(f"'device' must be 'auto', 'cpu', 'cuda' or 'cuda:N'. Got '{shown(self.device)}'.")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise ConfigError(f"'precision' must be 'auto', 'float32' or 'bfloat16'. Got '{shown(self.precision)}'.")
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(f"'rank' must be between 0 and world_size − 1. Got {self.rank} of {self.world_size}.")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"'seed' must be an integer from 0 to {2**32 - 1}. Got {self.seed}.")
