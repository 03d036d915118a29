"""Buffers that are used again: fresh memory would cost as much as many kernels, since its pages are zeroed first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Buffers:
    """Arrays by name; for one thread at a time."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def get(self, name: str, size: int, kind: type, *, zero: bool = False) -> NDArray[Any]:
        """Return an array of this size with the content of its last use; `zero`: of zeros, if all uses restore them."""
        found = self._arrays.get(name)
        if found is None or len(found) < size:
            found = self._arrays[name] = (np.zeros if zero else np.empty)(size + size // 4, dtype=kind)
        return found[:size]
