"""The labels of a model on a plane, as data: what a page draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

REGIONS = 7
"""Regions that labels are divided into, besides that of labels without a vector."""


@dataclass(frozen=True, eq=False)
class LabelMap:
    """Labels by row throughout."""

    title: str
    model: str
    names: Sequence[str]
    keys: Sequence[str]
    documents: NDArray[np.int64] | None
    """(L,) training documents, where they are known."""
    places: NDArray[np.float32]
    """(L, 2) on the plane."""
    regions: NDArray[np.int64]
    """(L,) from 0 to REGIONS − 1, or −1 where the model keeps no vector of a label."""
    near: NDArray[np.int64]
    """(L, k) the labels with the most similar vectors, most similar first."""
    cosines: NDArray[np.float32]
    """(L, k) how similar they are."""
    left_out: int = 0
    """Rarer labels of the model that are not drawn."""
