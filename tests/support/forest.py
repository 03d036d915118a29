"""Random sparse rows and weight chunks of a single node, for tests of label trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.data.dataset import Csr
from xmtc.linear.simd import LANES
from xmtc.linear.weight_chunks import Chunks, packed, pruned
from xmtc.text.features import unit_rows

Floats = NDArray[Any]


Chance = np.random.Generator


def unit_matrix(count: int, width: int, density: float, chance: Chance) -> Csr:
    matrix = sp.random_array((count, width), density=density, rng=chance, format="csr")
    return unit_rows(sp.csr_array(matrix, dtype=np.float32))


def chunk(weights: Floats, bias: Floats, *, half: bool = False, least: float = 0.0) -> Chunks:
    """The chunk of one node with these (D, children) weights; features without any are not even named."""
    children = weights.shape[1]
    known = np.flatnonzero((weights != 0).any(axis=1)).astype(np.int32)
    wide = np.zeros((len(known), -(-children // LANES) * LANES), dtype=np.float32)
    wide[:, :children] = weights[known]
    padded = np.zeros(wide.shape[1], dtype=np.float32)
    padded[:children] = bias
    blocks = [
        pruned(wide[:, first : first + LANES], least, min(LANES, children - first), first)
        for first in range(0, children, LANES)
    ]
    return Chunks.joined([packed(known, blocks, padded, children, half)])
