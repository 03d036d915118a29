"""Planted label communities, and how well label vectors recover them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from xmtc.data.dataset import Csr


def communities(labels: int = 200, groups: int = 8, documents: int = 2000, own: float = 0.7, seed: int = 0) -> Csr:
    """Documents of two to five labels, each with chance `own` from the document's group and else from all labels.

    A label's group is its remainder by the number of groups.
    """
    chance = np.random.default_rng(seed)
    rows = []
    for size in chance.integers(2, 6, documents):
        inside = chance.integers(0, labels // groups, size) * groups + chance.integers(groups)
        rows.append(np.unique(np.where(chance.random(size) < own, inside, chance.integers(0, labels, size))))
    indptr = np.cumsum([0, *map(len, rows)])
    return sp.csr_array((np.ones(indptr[-1], dtype=np.float32), np.concatenate(rows), indptr), (documents, labels))


def agreement(vectors: NDArray[np.float32], groups: int = 8) -> float:
    """Normalised mutual information of the planted groups and those that k-means finds."""
    found = KMeans(groups, n_init=5, random_state=0).fit_predict(vectors)
    return float(normalized_mutual_info_score(np.arange(len(vectors)) % groups, found))
