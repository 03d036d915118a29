"""Runtime options: device, threads, precision, seed. Passed to a model, never looked up inside it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from xmtc.core.errors import ConfigError, shown


def available_threads() -> int:
    """Return the number of cores this process may use; a container or `taskset` can limit it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Runtime:
    """How and where to run a model, independent of the model's settings."""

    device: str = "auto"
    """Device for neural models: 'auto' (CUDA if available), 'cpu', 'cuda' or 'cuda:N'."""
    threads: int = field(default_factory=available_threads)
    """CPU threads for kernels."""
    precision: str = "auto"
    """Precision of neural models: 'auto' (bfloat16 on CUDA, else float32), 'float32' or 'bfloat16'."""
    rank: int = 0
    """Rank of this process in the process group created by the caller."""
    world_size: int = 1
    """Number of processes in the process group."""
    seed: int = 0
    """Random seed; the only source of randomness."""
    cache: Path | None = None
    """Folder for tokenised texts, keyed by content hash; None disables the cache."""

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ConfigError(f"'threads' must be an integer ≥ 1. Got {self.threads}.")
        if not re.fullmatch(r"auto|cpu|cuda(:\d|:[1-9]\d)?", self.device):
            raise ConfigError(f"'device' must be 'auto', 'cpu', 'cuda' or 'cuda:N'. Got '{shown(self.device)}'.")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise ConfigError(f"'precision' must be 'auto', 'float32' or 'bfloat16'. Got '{shown(self.precision)}'.")
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(f"'rank' must be from 0 to world_size − 1. Got {self.rank} of {self.world_size}.")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"'seed' must be an integer from 0 to {2**32 - 1}. Got {self.seed}.")
