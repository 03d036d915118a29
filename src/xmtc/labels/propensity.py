"""Propensities after Jain, Prabhu and Varma (2016): how likely a label that applies is to be annotated."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.core.constants import PROPENSITY_A, PROPENSITY_B
from xmtc.core.errors import DataError


def inverse_propensities(
    label_counts: ArrayLike, documents: int, a: float = PROPENSITY_A, b: float = PROPENSITY_B
) -> NDArray[np.float64]:
    """1/p_l = 1 + (ln N − 1)(B + 1)^A (N_l + B)^(−A): annotators miss rare labels most, so these weigh most.

    `label_counts` (L,) and `documents` come from the TRAINING set. Labels seen only in the test set have
    count 0 and need an entry too: `np.bincount(train.indices, minlength=test.shape[1])`.

    A and B are constants of the data set. Published tables use

    - 0.5 and 0.4 for Wiki-500K,
    - 0.6 and 2.6 for Amazon-670K and Amazon-3M,
    - 0.55 and 1.5 for everything else, AmazonCat-13K included in spite of its name.

    With N ≤ 2 documents ln N − 1 is negative and would make propensities exceed 1; it is taken as 0 there.
    """
    counts = np.asarray(label_counts, dtype=np.float64)  # (L,)
    if counts.ndim != 1 or not (np.isfinite(counts) & (counts >= 0)).all():
        raise DataError(f"'label_counts' must be one count ≥ 0 for each label. Got shape {counts.shape}.")
    if documents < 1:
        raise DataError(f"'documents' must be the number of training documents, ≥ 1. Got {documents}.")
    if not (0 <= a < math.inf and 0 < b < math.inf):
        raise DataError(f"The propensity constants need A ≥ 0 and B > 0. Got A = {a}, B = {b}.")
    scale = max(math.log(documents) - 1.0, 0.0) * (b + 1.0) ** a
    weights: NDArray[np.float64] = 1.0 + scale * (counts + b) ** -a  # (L,)
    return weights
