"""Wrong labels on purpose: how well a model learns from annotators who overlook labels, or give others.

The protocol of Rank-AE's study. `missing` leaves out each label of a document with a given chance. `flip` also gives
wrong ones. To turn every absent label on with that chance, as is published for 28 labels, would bury the true ones
where there are thousands; a document gets as many wrong labels as it lost, drawn from those it does not hold by how
often they occur, so that their frequencies stay what they were.
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
    """(n, L) labels with noise. A label that goes at one rate and seed goes at every higher rate too."""
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
    """As many (document, label) pairs as were lost, none of them true or there twice.

    Drawn for all labels, lost or not, so that a wrong label at one rate is a wrong label at every higher rate too. A
    document to which no other label can be given after some tries gets fewer.
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
