"""Label noise for robustness studies: missing labels, and wrong labels.

The protocol follows the study of Rank-AE. `missing` removes each label of a document with a given probability. `flip`
adds wrong labels as well. Switching on every absent label with that probability, as published for 28 labels, would
outnumber the true ones if there are thousands. Instead, a document gets as many wrong labels as it lost, drawn by
frequency from the labels it does not have, so that label frequencies are preserved.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError
from xmtc.data.dataset import Csr

Noise = Literal["missing", "flip"]


def corrupted(labels: Csr, kind: Noise, rate: float, seed: int) -> Csr:
    """Add noise to labels (n, L). With the same seed, a label removed at one rate is removed at all higher rates."""
    if not 0 <= rate <= 1:
        raise ConfigError(f"'rate' of noise must be a number from 0 to 1. Got {rate:g}.")
    if rate == 0 or labels.nnz == 0:
        return labels
    draws = np.random.default_rng([seed, 1]).random(labels.nnz)
    lost = draws < rate  # (nnz,)
    rows = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))
    kept_rows, kept = rows[~lost], labels.indices[~lost].astype(np.int64)
    if kind == "flip":
        wrong_rows, wrong = _wrong(labels, rows, lost, np.random.default_rng([seed, 2]))
        kept_rows, kept = np.concatenate([kept_rows, wrong_rows]), np.concatenate([kept, wrong])
    found = sp.csr_array((np.ones(len(kept), dtype=labels.dtype), (kept_rows, kept)), shape=labels.shape)
    found.sort_indices()
    return found


def _wrong(
    labels: Csr, rows: NDArray[np.int64], lost: NDArray[np.bool_], generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw as many wrong (document, label) pairs as were lost, without duplicates.

    Pairs are drawn for all labels, lost or not, so that a wrong label at one rate is also one at every higher rate. A
    document gets fewer if no other label is found after some attempts.
    """
    width = labels.shape[1]
    taken = rows * width + labels.indices  # each pair as one number
    drawn = np.full(len(rows), -1, dtype=np.int64)
    for _ in range(20):
        open_ = np.flatnonzero(drawn < 0)
        if not len(open_):
            break
        pairs = rows[open_] * width + labels.indices[generator.integers(0, len(rows), len(open_))]
        fresh = ~np.isin(pairs, taken)
        first = np.zeros(len(pairs), dtype=bool)
        first[np.unique(pairs, return_index=True)[1]] = True
        good = fresh & first
        drawn[open_[good]] = pairs[good]
        taken = np.concatenate([taken, pairs[good]])
    chosen = drawn[lost & (drawn >= 0)]
    return chosen // width, chosen % width
