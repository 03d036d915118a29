"""Process group for data-parallel training: each process handles its part of every batch.

Processes are started by torchrun or the caller, never here. A process group that the caller initialised is used as is;
otherwise one is initialised from the environment variables set by torchrun.
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
    """This process's rank in the group, and the collectives; a single process needs no group."""

    def __init__(self, runtime: Runtime, device: torch.device) -> None:
        self.rank, self.size = runtime.rank, runtime.world_size
        if self.size > 1:
            _join(runtime, device)
        self.wait()

    @property
    def leads(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()

    def share(self, rows: Tensor) -> Tensor:
        """This process's part of a batch."""
        return rows if self.size == 1 else rows[self.rank :: self.size]

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over the processes."""
        if self.size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)
                tensor /= self.size

    def gathered(self, tensor: Tensor) -> Tensor:
        """Concatenate the tensors of all processes; all have the same shape."""
        if self.size == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    def agreed(self, number: float, device: torch.device) -> float:
        """The leader's number, so that all processes decide alike."""
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
    """Shut down the communication threads before the interpreter exits.

    A gloo thread that needs the interpreter during shutdown is killed, and the process aborts with it.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
