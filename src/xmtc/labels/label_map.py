"""Label map: the labels of a model on a plane, as data for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

REGIONS = 7
"""Number of regions, not counting that of labels without a vector."""


@dataclass(frozen=True, eq=False)
class LabelMap:
    """The data of a label map; arrays have one row per label."""

    title: str
    model: str
    names: Sequence[str]
    keys: Sequence[str]
    documents: NDArray[np.int64] | None
    """(L,) number of training documents, if known."""
    places: NDArray[np.float32]
    """(L, 2) coordinates on the plane."""
    regions: NDArray[np.int64]
    """(L,) region from 0 to REGIONS − 1, or −1 if the model has no vector for the label."""
    near: NDArray[np.int64]
    """(L, k) labels with the most similar vectors, most similar first."""
    cosines: NDArray[np.float32]
    """(L, k) cosine similarity of these labels."""
    left_out: int = 0
    """Number of rarer labels that are not shown."""
