"""Memory of the tensors that a piece of code creates, counted operation by operation, on any device."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class TensorMemory(TorchDispatchMode):
    """Counts the bytes of all tensors created while it is active: those alive `now`, and the most at any time.

    Views share their memory. Memory that a kernel allocates for itself, and gives back, is not seen.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._kind = device.type
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before = {id(part.untyped_storage()) for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)}
        result = func(*args, **(kwargs or {}))
        for part in tree_leaves(result):
            if isinstance(part, Tensor) and part.device.type == self._kind:
                storage = part.untyped_storage()
                if id(storage) not in self._known and id(storage) not in before:
                    self._add(storage)
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        name, size = id(storage), storage.nbytes()

        def freed(_: Any) -> None:
            self.now -= size
            self._known.pop(name, None)

        self._known[name] = weakref.ref(storage, freed)
        self.now += size
        self.peak = max(self.peak, self.now)
