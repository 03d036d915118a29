"""The device that a run asks for, the arithmetic on it, and the memory that is free there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from xmtc.core.errors import ConfigError
from xmtc.core.runtime import Runtime

CHUNK_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}
"""Memory for what is held of a chunk of labels, where so much is free."""


def chosen_device(runtime: Runtime) -> torch.device:
    """CUDA where there is one, unless the run says otherwise; processes that train together take one each."""
    wanted = runtime.device
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and runtime.world_size > 1:
        wanted = f"cuda:{os.environ.get('LOCAL_RANK', runtime.rank)}"
    device = torch.device(wanted)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        have = f"{torch.cuda.device_count()} here" if torch.cuda.is_available() else "none here"
        raise ConfigError(f"there is no '{wanted}': {have}. Use device 'auto' or 'cpu'.")
    return device


def arithmetic(runtime: Runtime, device: torch.device) -> torch.dtype:
    """bfloat16 on CUDA, float32 elsewhere, unless the run says otherwise."""
    if runtime.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[runtime.precision]


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Let torch work on so many threads, and afterwards on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def chunk_memory(device: torch.device) -> int:
    """Bytes that a chunk of labels may take: on CUDA an eighth of what is free, in powers of two, up to a limit.

    On a CPU it is always the same, so that the same seed gives the same sums whatever else the machine does.
    """
    if device.type == "cpu":
        return CHUNK_BYTES["cpu"]
    free = torch.cuda.mem_get_info(device)[0]
    return min(CHUNK_BYTES["cuda"], 1 << max(20, (free // 8).bit_length() - 1))


@contextmanager
def memory_told(remedy: str) -> Iterator[None]:
    """Running out of memory as one line, with what would take less."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, (MemoryError, torch.OutOfMemoryError)) and "alloc" not in str(error).lower():
            raise
        raise ConfigError(f"there is not enough memory for this network. {remedy}") from None
