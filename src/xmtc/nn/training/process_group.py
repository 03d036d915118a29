"""Processes that train one network together, each on its share of every batch.

The processes are there already: torchrun or the caller made them. lightning's Fabric joins them, and nothing here
starts one. A process alone needs neither.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from xmtc.core.errors import MissingExtraError
from xmtc.core.runtime import Runtime


class Group:
    """This process's place among those of a run, and what they have to agree on."""

    def __init__(self, runtime: Runtime, device: torch.device) -> None:
        self.rank, self.size = runtime.rank, runtime.world_size
        self._fabric: Any = None if self.size == 1 else _joined(runtime, device)
        self.wait()

    @property
    def leads(self) -> bool:
        """Whether this process writes what is kept."""
        return self.rank == 0

    def wait(self) -> None:
        """Until all are here."""
        if self._fabric is not None:
            self._fabric.barrier()

    def share(self, rows: Tensor) -> Tensor:
        """This process's part of a batch."""
        return rows if self.size == 1 else rows[self.rank :: self.size]

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each by its mean over the processes."""
        if self._fabric is not None:
            for tensor in tensors:
                tensor.copy_(self._fabric.all_reduce(tensor, reduce_op="mean"))

    def gathered(self, tensor: Tensor) -> Tensor:
        """Everybody's, one after the other; all are of one shape."""
        if self._fabric is None:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        torch.distributed.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    def agreed(self, number: float, device: torch.device) -> float:
        """The leader's number, so that all decide alike."""
        if self._fabric is None:
            return number
        shared = torch.tensor(number, dtype=torch.float64, device=device)
        torch.distributed.broadcast(shared, 0)
        return float(shared)


def _joined(runtime: Runtime, device: torch.device) -> Any:
    """A Fabric over the processes that are there."""
    try:
        from lightning.fabric import Fabric
        from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
        from lightning.fabric.strategies.ddp import DDPStrategy
    except ImportError:
        raise MissingExtraError(
            'training on several devices needs lightning. Install it with: pip install "xmtc[torch]".'
        ) from None

    class Given(ClusterEnvironment):
        """The processes as the runtime describes them."""

        @property
        def creates_processes_externally(self) -> bool:
            return True

        @property
        def main_address(self) -> str:
            return os.environ.get("MASTER_ADDR", "127.0.0.1")

        @property
        def main_port(self) -> int:
            return int(os.environ.get("MASTER_PORT", "29500"))

        @staticmethod
        def detect() -> bool:
            return True

        def world_size(self) -> int:
            return runtime.world_size

        def set_world_size(self, size: int) -> None:
            return

        def global_rank(self) -> int:
            return runtime.rank

        def set_global_rank(self, rank: int) -> None:
            return

        def local_rank(self) -> int:
            return int(os.environ.get("LOCAL_RANK", runtime.rank))

        def node_rank(self) -> int:
            return int(os.environ.get("GROUP_RANK", 0))

    local = int(os.environ.get("LOCAL_WORLD_SIZE", runtime.world_size))
    fabric = Fabric(
        accelerator=device.type,
        devices=local,
        num_nodes=runtime.world_size // local,
        strategy=DDPStrategy(cluster_environment=Given()),
        precision="32-true",  # types of arithmetic are each network's own
    )
    ours = not torch.distributed.is_initialized()
    fabric.launch()
    if ours:
        atexit.register(_leave)
    return fabric


def _leave() -> None:
    """End the threads that talk to the other processes, before the interpreter goes away under them.

    A thread of gloo's that wants the interpreter while it closes down is killed, and the process aborts with it.
    """
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
