"""Processes that train one network together, each on its share of every batch.

The processes are there already: torchrun or the caller started them, and nothing here starts one. A process group that
the caller initialised is used as it is; otherwise one is initialised from the environment that torchrun sets.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from xmtc.core.runtime import Runtime


class Group:
    """This process's rank in the process group of a training, and its collectives; one process alone needs no group."""

    def __init__(self, runtime: Runtime, device: torch.device) -> None:
        self.rank, self.size = runtime.rank, runtime.world_size
        if self.size > 1:
            _join(runtime, device)
        self.wait()

    @property
    def leads(self) -> bool:
        """Whether this process writes what is saved."""
        return self.rank == 0

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            dist.barrier()

    def share(self, rows: Tensor) -> Tensor:
        """This process's part of a batch."""
        return rows if self.size == 1 else rows[self.rank :: self.size]

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each by its mean over the processes."""
        if self.size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)
                tensor /= self.size

    def gathered(self, tensor: Tensor) -> Tensor:
        """Those of all processes, one after the other; all are of one shape."""
        if self.size == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    def agreed(self, number: float, device: torch.device) -> float:
        """The leader's number, so that all decide alike."""
        if self.size == 1:
            return number
        shared = torch.tensor(number, dtype=torch.float64, device=device)
        dist.broadcast(shared, 0)
        return float(shared)


def _join(runtime: Runtime, device: torch.device) -> None:
    """Initialise the process group, unless the caller has done so; NCCL on CUDA, gloo elsewhere."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if dist.is_initialized():
        return
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        rank=runtime.rank,
        world_size=runtime.world_size,
        device_id=device if device.type == "cuda" else None,
    )
    atexit.register(_leave)


def _leave() -> None:
    """End the threads that talk to the other processes, before the interpreter goes away under them.

    A thread of gloo's that wants the interpreter while it closes down is killed, and the process aborts with it.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
