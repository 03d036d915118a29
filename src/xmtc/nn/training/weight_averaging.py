"""Running averages of the weights, which generalise better than the weights themselves, and the best of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


def share_of(averaging: str, window: float, count: int) -> float:
    """Weight of the current values in the `count`-th average: over all so far, or over about the last `window`."""
    return 1.0 / min(max(1.0, window), count) if averaging == "window" else 1.0 / count


class Averages:
    """Averages of some weights, and the best weights so far; the weights themselves change in place."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._names, self._weights = list(weights), list(weights.values())
        self.averages: list[Tensor] = []
        self.best: list[Tensor] = []

    @torch.no_grad()
    def fold(self, share: float) -> None:
        """Move the averages towards the weights by this fraction; the first call copies the weights."""
        if self.averages:
            torch._foreach_lerp_(self.averages, self._weights, share)
        else:
            self.averages = [weight.detach().clone() for weight in self._weights]

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Swap the averages in for the weights, temporarily."""
        self._swap()
        yield
        self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        if self.averages:
            kept = [weight.detach().clone() for weight in self._weights]
            torch._foreach_copy_(self._weights, self.averages)
            torch._foreach_copy_(self.averages, kept)

    @torch.no_grad()
    def keep_best(self) -> None:
        """Store the current weights as the best so far."""
        if not self.best:
            self.best = [torch.empty_like(weight) for weight in self._weights]
        torch._foreach_copy_(self.best, self._weights)

    @torch.no_grad()
    def finish(self) -> None:
        """Leave the best weights in place, or the averages if no best weights were stored."""
        kept = self.best or self.averages
        if kept:
            torch._foreach_copy_(self._weights, kept)

    def state(self) -> dict[str, Tensor]:
        """Tensors to save in a checkpoint."""
        kept = {f"average.{name}": part for name, part in zip(self._names, self.averages, strict=False)}
        return kept | {f"best.{name}": part for name, part in zip(self._names, self.best, strict=False)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore from `state`; other tensors are ignored."""
        self.averages = [state[f"average.{name}"] for name in self._names if f"average.{name}" in state]
        self.best = [state[f"best.{name}"] for name in self._names if f"best.{name}" in state]
