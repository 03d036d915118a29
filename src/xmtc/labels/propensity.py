"""Label propensities after Jain, Prabhu and Varma (2016): the probability that a relevant label is annotated."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.core.constants import PROPENSITY_A, PROPENSITY_B
from xmtc.core.errors import DataError


def inverse_propensities(
    label_counts: ArrayLike, documents: int, a: float = PROPENSITY_A, b: float = PROPENSITY_B
) -> NDArray[np.float64]:
    """Compute 1/p_l = 1 + (ln N − 1)(B + 1)^A (N_l + B)^(−A); rare labels, which annotators often miss, weigh most.

    `label_counts` (L,) and `documents` are those of the TRAINING set. Labels that occur only in the test set have count
    0 and need an entry, too: `np.bincount(train.indices, minlength=test.shape[1])`.

    A and B are constants of the data set. Published tables use

    - 0.5 and 0.4 for Wiki-500K,
    - 0.6 and 2.6 for Amazon-670K and Amazon-3M,
    - 0.55 and 1.5 for all others, including AmazonCat-13K.

    With N ≤ 2 documents, ln N − 1 is negative and propensities would exceed 1; it is replaced by 0.
    """
    counts = np.asarray(label_counts, dtype=np.float64)  # (L,)
    if counts.ndim != 1 or not (np.isfinite(counts) & (counts >= 0)).all():
        raise DataError(f"'label_counts' must be one finite count ≥ 0 per label. Got shape {counts.shape}.")
    if documents < 1:
        raise DataError(f"'documents' must be the number of training documents, ≥ 1. Got {documents}.")
    if not (0 <= a < math.inf and 0 < b < math.inf):
        raise DataError(f"the propensity constants must be A ≥ 0 and B > 0. Got A = {a}, B = {b}.")
    scale = max(math.log(documents) - 1.0, 0.0) * (b + 1.0) ** a
    weights: NDArray[np.float64] = 1.0 + scale * (counts + b) ** -a  # (L,)
    return weights
