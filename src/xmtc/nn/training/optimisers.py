"""Adam, and SGD with momentum: every step can be captured in a CUDA graph.

Tables of which a batch uses few rows are updated lazily.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from xmtc.nn.heads.base import gradient_of

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
HISTORY = 5


class Optimiser(ABC):
    """Base class; `rows` names tables of which a step changes only the rows with a gradient, and their moments."""

    def __init__(self, parameters: Mapping[str, Tensor], rows: frozenset[str] = frozenset()) -> None:
        self.parameters = parameters
        self.rows = rows
        device = next(iter(parameters.values())).device
        self.rate = torch.zeros((), device=device)
        for parameter in parameters.values():
            gradient_of(parameter)

    @torch.no_grad()
    def zero(self, touched: Mapping[str, Tensor]) -> None:
        """Clear the gradients; in a table only those of the touched rows, since all others are zero."""
        dense = [gradient_of(parameter) for name, parameter in self.parameters.items() if name not in self.rows]
        torch._foreach_zero_(dense)
        for name in self.rows:
            gradient = gradient_of(self.parameters[name])
            if len(touched[name]) < len(gradient):
                gradient.index_fill_(0, touched[name], 0.0)
            else:
                gradient.zero_()

    @abstractmethod
    def step(self, touched: Mapping[str, Tensor]) -> None:
        """One update; `touched` has the rows of each table that have a gradient, possibly repeated."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything that a later step depends on, except the parameters."""


class Adam(Optimiser):
    """Adam; `shares` scales the learning rate of some parameters."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        rows: frozenset[str] = frozenset(),
        shares: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(parameters, rows)
        self.shares = shares or {}
        self.first = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
        self.second = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
        self.count = torch.zeros_like(self.rate)

    @torch.no_grad()
    def step(self, touched: Mapping[str, Tensor]) -> None:
        self.count += 1
        scale = self.rate / (1 - BETA1**self.count)
        root = (1 - BETA2**self.count).sqrt()
        names = [name for name in self.parameters if name not in self.rows]
        if self.rate.is_cuda:
            self._step_fused(names)
        else:
            self._step_plainly(names, scale, root)
        for name in self.rows:
            self._step_rows(name, touched[name], scale * self.shares.get(name, 1.0), root)

    def _step_fused(self, names: list[str]) -> None:
        """One kernel for all parameters with the same rate: a fifth of the memory traffic."""
        shares = {name: self.shares.get(name, 1.0) for name in names}
        for share in sorted(set(shares.values())):
            own = [name for name in names if shares[name] == share]
            torch._fused_adam_(
                [self.parameters[name] for name in own],
                [gradient_of(self.parameters[name]) for name in own],
                [self.first[name] for name in own],
                [self.second[name] for name in own],
                [],
                [self.count] * len(own),
                lr=self.rate * share,
                beta1=BETA1,
                beta2=BETA2,
                weight_decay=0.0,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
            )

    def _step_plainly(self, names: list[str], scale: Tensor, root: Tensor) -> None:
        """The same in single operations."""
        gradients = [gradient_of(self.parameters[name]) for name in names]
        first, second = [self.first[name] for name in names], [self.second[name] for name in names]
        torch._foreach_lerp_(first, gradients, 1 - BETA1)
        torch._foreach_mul_(second, BETA2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - BETA2)
        below = torch._foreach_sqrt(second)
        torch._foreach_div_(below, root)
        torch._foreach_add_(below, EPSILON)
        change = torch._foreach_div(first, below)
        torch._foreach_mul_(change, scale)
        if self.shares:
            torch._foreach_mul_(change, [self.shares.get(name, 1.0) for name in names])
        torch._foreach_sub_([self.parameters[name] for name in names], change)

    def _step_rows(self, name: str, rows: Tensor, scale: Tensor, root: Tensor) -> None:
        """Update some rows; repeated rows write equal values. With more rows than the table has, compute all."""
        parameter, gradient = self.parameters[name], gradient_of(self.parameters[name])
        first, second = self.first[name], self.second[name]
        if len(rows) < len(parameter):
            gradient = gradient.index_select(0, rows)
            moved = first.index_select(0, rows).lerp_(gradient, 1 - BETA1)
            spread = second.index_select(0, rows).mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
            change = moved / spread.sqrt().div_(root).add_(EPSILON) * scale
            parameter.index_copy_(0, rows, parameter.index_select(0, rows).sub_(change))
            first.index_copy_(0, rows, moved)
            second.index_copy_(0, rows, spread)
        else:
            is_touched = parameter.new_zeros(len(parameter), 1).index_fill_(0, rows, 1.0)
            first.lerp_(gradient, is_touched * (1 - BETA1))
            second.lerp_(gradient * gradient, is_touched * (1 - BETA2))
            change = (first / second.sqrt().div_(root).add_(EPSILON)).mul_(is_touched * scale)
            parameter.sub_(change)

    def state(self) -> dict[str, Tensor]:
        kept = {f"first.{name}": moment for name, moment in self.first.items()}
        kept |= {f"second.{name}": moment for name, moment in self.second.items()}
        return {**kept, "count": self.count}


class Momentum(Optimiser):
    """SGD with momentum and weight decay; untouched rows of a table do not decay."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        rows: frozenset[str] = frozenset(),
        *,
        momentum: float = 0.9,
        decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, rows)
        self.momentum, self.decay = momentum, decay
        self.speed = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}

    @torch.no_grad()
    def step(self, touched: Mapping[str, Tensor]) -> None:
        for name, parameter in self.parameters.items():
            gradient, speed = gradient_of(parameter), self.speed[name]
            rows = touched.get(name) if name in self.rows else None
            if rows is None:
                speed.mul_(self.momentum).add_(gradient).add_(parameter, alpha=self.decay)
                parameter.sub_(speed * self.rate)
                continue
            old = parameter.index_select(0, rows)
            new = speed.index_select(0, rows).mul_(self.momentum).add_(gradient.index_select(0, rows))
            new.add_(old, alpha=self.decay)
            speed.index_copy_(0, rows, new)
            parameter.index_copy_(0, rows, old - new * self.rate)

    def state(self) -> dict[str, Tensor]:
        return {f"speed.{name}": speed for name, speed in self.speed.items()}


class Clipping:
    """Clips gradients at a multiple of the largest of the last five norms.

    A recorded norm is at most 1 and at most twice the largest before; the first five steps are not clipped.
    """

    def __init__(self, factor: float, device: torch.device) -> None:
        self.factor = factor
        self.norms = torch.zeros(HISTORY, device=device)
        self.norms[-1] = torch.inf

    @torch.no_grad()
    def apply(self, gradients: list[Tensor]) -> None:
        """Scale the gradients down if their norm is too large."""
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        largest = self.norms.max()
        scale = (self.factor * largest / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, scale)
        recorded = torch.minimum(norm, 2.0 * largest).clamp(max=1.0)
        self.norms.copy_(torch.cat([self.norms[1:], recorded[None]]))
