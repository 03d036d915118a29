"""The device that a run asks for, the arithmetic on it, and the memory that is free there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from xmtc.errors import ConfigError
from xmtc.runtime import Runtime

CHUNK_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}
"""Memory for what is held of a chunk of labels, where so much is free."""


def chosen_device(runtime: Runtime) -> torch.device:
    """CUDA where there is one, unless the run says otherwise; processes that train together take one each."""
    wanted = runtime.device
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and runtime.world_size > 1:
        wanted = f"cuda:{os.environ.get('LOCAL_RANK', runtime.rank)}"
    try:
        device: torch.device | None = torch.device(wanted)
    except RuntimeError:
        device = None
    if device is None or device.type not in CHUNK_BYTES:
        raise ConfigError(f"'device' must be 'auto', 'cpu', 'cuda' or 'cuda:N'. Got '{runtime.device}'.")
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
    """Bytes that a chunk of labels may take: an eighth of what is free, up to a limit.

    In powers of two, so that a run that is resumed under slightly other conditions goes on with equal chunks.
    """
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    elif "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:  # macOS and Windows do not say
        free = 1 << 30
    return min(CHUNK_BYTES[device.type], 1 << max(20, (free // 8).bit_length() - 1))
