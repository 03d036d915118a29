"""Device selection, arithmetic precision and available memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from xmtc.core.errors import ConfigError
from xmtc.core.runtime import Runtime

CHUNK_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}
"""Memory budget for the tensors of one chunk of labels, if that much is free."""


def chosen_device(runtime: Runtime) -> torch.device:
    """The device to use: CUDA if available, unless the runtime names another; parallel processes take one GPU each."""
    wanted = runtime.device
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and runtime.world_size > 1:
        wanted = f"cuda:{os.environ.get('LOCAL_RANK', runtime.rank)}"
    device = torch.device(wanted)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        have = f"CUDA devices found: {torch.cuda.device_count() if torch.cuda.is_available() else 0}"
        raise ConfigError(f"device '{wanted}' is not available ({have}). Use device 'auto' or 'cpu'.")
    return device


def arithmetic(runtime: Runtime, device: torch.device) -> torch.dtype:
    """bfloat16 on CUDA, float32 elsewhere, unless the runtime specifies a precision."""
    if runtime.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[runtime.precision]


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Run torch with this many threads, and restore the previous number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def chunk_memory(device: torch.device) -> int:
    """Bytes available for one chunk of labels: on CUDA an eighth of the free memory, rounded down to a power of two.

    On a CPU it is constant, so that the same seed gives the same sums regardless of other load on the machine.
    """
    if device.type == "cpu":
        return CHUNK_BYTES["cpu"]
    free = torch.cuda.mem_get_info(device)[0]
    return min(CHUNK_BYTES["cuda"], 1 << max(20, (free // 8).bit_length() - 1))


@contextmanager
def memory_errors(remedy: str) -> Iterator[None]:
    """Turn an out-of-memory error into a one-line message with a remedy."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, (MemoryError, torch.OutOfMemoryError)) and "alloc" not in str(error).lower():
            raise
        raise ConfigError(f"not enough memory for this network. {remedy}") from None
