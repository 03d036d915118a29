"""Training steps captured in CUDA graphs, one per length.

A recurrent network runs thousands of small kernels, and launching them one by one takes longer than running them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

WARM_UP = 2
"""Steps run before capture, in which libraries choose kernels and allocate workspaces."""


Step = Callable[[Tensor, int], None]


class Captured:
    """A step that is captured when a length first occurs, then replayed.

    `state` has the tensors that `rehearsal` changes: the step itself, or the part of it to run before capture.
    """

    def __init__(self, step: Step, state: Mapping[str, Tensor], rehearsal: Step | None = None) -> None:
        self._step, self._rehearsal = step, rehearsal or step
        self._state = state
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._rows: Tensor | None = None
        self._pool: Any = None

    def __call__(self, rows: Tensor, length: int) -> None:
        if self._rows is None:
            self._rows = rows.clone()
            self._pool = torch.cuda.graph_pool_handle()
        self._rows.copy_(rows)
        if length not in self._graphs:
            self._graphs[length] = self._capture(length)
        self._graphs[length].replay()

    def _capture(self, length: int) -> torch.cuda.CUDAGraph:
        """Capture one step; the changes of the warm-up, including random numbers, are undone."""
        assert self._rows is not None
        device = self._rows.device
        before = {name: part.detach().clone() for name, part in self._state.items()}  # no autograd graph may stay alive
        random = torch.cuda.get_rng_state(device)
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._rehearsal(self._rows, length)
        torch.cuda.current_stream(device).wait_stream(side)
        torch.cuda.empty_cache()  # a graph has its own memory pool
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(self._rows, length)
        with torch.no_grad():
            for name, part in self._state.items():
                part.copy_(before[name])
        torch.cuda.set_rng_state(random, device)
        return graph
