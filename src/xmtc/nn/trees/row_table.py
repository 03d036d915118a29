"""The rows of very many nodes, stored separately from the network that trains a few of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.nn.tensors import read_tensor

SLICE = 1 << 16
"""Rows that are drawn, averaged or rounded at once."""


class RowTable:
    """Rows (n, d) of all nodes of a level, their moments, their average and the best so far.

    A step works on the rows that its batch needs: `take` loads them and their moments, `put` writes them back, so that
    the cost of a step depends on the batch and not on n. The table is on the device, or in host memory if the GPU is
    too small. It is float32, or bfloat16 with stochastic rounding, so that changes below its resolution are not lost.
    One extra row, which belongs to no node, serves as padding. Without `moments`, only rows are loaded and stored.
    """

    def __init__(
        self, count: int, width: int, *, place: torch.device, kind: torch.dtype, averaged: bool, moments: bool = True
    ) -> None:
        def table() -> Tensor:
            return torch.zeros(count + 1, width, dtype=kind, device=place)

        self.count = count
        self.rows = table()
        self.first, self.second = (table(), table()) if moments else (self.rows[:0], self.rows[:0])
        self._trained: tuple[Tensor, ...] = (self.rows, self.first, self.second) if moments else (self.rows,)
        self._average = table() if averaged else None
        self._has_average = False
        self.best: Tensor | None = None  # (n + 1, d) in host memory: read only once, at the end
        self._passing: Tensor | None = None

    @property
    def on_host(self) -> bool:
        """Whether the table is in host memory."""
        return self.rows.device.type == "cpu"

    @torch.no_grad()
    def draw(self, drawn: Callable[[int, int], Tensor]) -> None:
        """Initialise with `drawn(low, high)`, the rows of consecutive nodes."""
        for low, high in _slices(self.count):
            self.rows[low:high] = drawn(low, high)

    # ---- a step

    @torch.no_grad()
    def take(self, numbers: Tensor, working: Sequence[Tensor]) -> None:
        """Copy rows and both moments, or as many of the three as given, of some nodes; number n is padding."""
        used = self._used(numbers)
        for kept, wanted in zip(self._trained, working, strict=False):
            if kept.device != wanted.device:
                passing = self._buffer(wanted)[: len(used)]
                torch.index_select(kept, 0, used, out=passing)
                wanted[: len(used)].copy_(passing)
            elif kept.dtype == wanted.dtype:
                torch.index_select(kept, 0, numbers, out=wanted)
            else:
                wanted.copy_(kept.index_select(0, numbers))

    @torch.no_grad()
    def put(self, numbers: Tensor, working: Sequence[Tensor], salt: Tensor) -> None:
        """Write back what `take` loaded, after the step; `salt` differs in each step."""
        used = self._used(numbers)
        for kept, changed in zip(self._trained, working, strict=True):
            if kept.device == changed.device:
                kept.index_copy_(0, numbers, narrowed(changed, kept.dtype, salt))
            else:
                passing = self._buffer(changed)[: len(used)]
                passing.copy_(narrowed(changed[: len(used)], kept.dtype, salt))
                kept.index_copy_(0, used, passing)

    def _used(self, numbers: Tensor) -> Tensor:
        """The numbers on the table's device; between host and device, without padding at the end."""
        if numbers.device == self.rows.device:
            return numbers
        here = numbers.to(self.rows.device)
        real = (here != self.count).nonzero()
        return here[: int(real[-1]) + 1 if len(real) else 0]

    def _buffer(self, like: Tensor) -> Tensor:
        """Pinned host memory for transfers."""
        if self._passing is None:
            self._passing = torch.empty(like.shape, dtype=self.rows.dtype, pin_memory=like.is_cuda)
        return self._passing

    # ---- averages, like those of all other weights

    @torch.no_grad()
    def fold(self, share: float, salt: int) -> None:
        """Move the average towards the rows by this fraction; the first call copies the rows."""
        assert self._average is not None
        if not self._has_average:
            self._average.copy_(self.rows)
            self._has_average = True
        elif self.rows.dtype == torch.float32:
            self._average.lerp_(self.rows, share)
        else:
            for low, high in _slices(self.count):
                moved = self._average[low:high].float().lerp_(self.rows[low:high].float(), share)
                self._average[low:high] = narrowed(moved, self.rows.dtype, salt)

    def _current(self) -> Tensor:
        return self._average if self._average is not None and self._has_average else self.rows

    @contextmanager
    def shown(self, parameter: Tensor) -> Iterator[None]:
        """Use all averaged rows in place of a step's working rows, temporarily."""
        working = parameter.data
        parameter.data = self._current()[: self.count]
        yield
        parameter.data = working

    @torch.no_grad()
    def keep_best(self) -> None:
        """Store the averaged rows as the best so far."""
        if self.best is None:
            self.best = torch.empty(self.rows.shape, dtype=self.rows.dtype)
        self.best.copy_(self._current())

    def finished(self) -> Tensor:
        """(n, d) the best rows; releases the rest of the table."""
        if self.best is not None:
            self.rows.copy_(self.best)
        else:
            self.rows = self._current()
        self.first = self.second = self.rows[:0]
        self._trained = ()
        self._average = self.best = self._passing = None
        return self.rows[: self.count]

    # ---- checkpoints

    def state(self) -> dict[str, Tensor]:
        """Tensors to save in a checkpoint."""
        kept = dict(zip(("rows", "first", "second"), self._trained, strict=False))
        if self._average is not None and self._has_average:
            kept["average"] = self._average
        if self.best is not None:
            kept["best"] = self.best
        return kept

    @torch.no_grad()
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore from `state`, given as arrays of a file; they are read one by one, since each may be large."""
        self._has_average = "average" in state
        if "best" in state:
            self.best = torch.empty(self.rows.shape, dtype=self.rows.dtype)
        for name, part in self.state().items():
            part.copy_(read_tensor(state[name]))


def narrowed(numbers: Tensor, kind: torch.dtype, salt: Tensor | int) -> Tensor:
    """Convert to a type; bfloat16 uses stochastic rounding, so that values are unbiased.

    The random bits are a hash of the number, its position and the `salt`, which differs each time: parallel processes,
    host and device, and resumed runs all round alike.
    """
    if kind != torch.bfloat16:
        return numbers.to(kind)
    bits = numbers.contiguous().view(torch.int32)
    places = torch.arange(bits.numel(), dtype=torch.int32, device=bits.device).view(bits.shape)
    drawn = (bits ^ (places + salt * -1640531527)) * -2048144789  # a hash; 32-bit products wrap around
    drawn = (drawn ^ (drawn >> 13)) * -1028477387
    drawn = (drawn ^ (drawn >> 16)) & 0xFFFF
    return ((bits + drawn) & -(1 << 16)).view(torch.float32).to(kind)


def _slices(count: int) -> Iterator[tuple[int, int]]:
    for low in range(0, count, SLICE):
        yield low, min(low + SLICE, count)
