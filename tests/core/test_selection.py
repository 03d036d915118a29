"""The best few of a row, in kernels: the same as sorting everything, for short rows and for long ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from xmtc.core.selection import SORTED
from xmtc.linear.top_scores import best_of_rows


@pytest.mark.parametrize("k", [1, 3, SORTED, SORTED + 1, 200, 499, 500, 700])
@pytest.mark.parametrize("ties", [3, 10**6])
def test_equals_sorting(k: int, ties: int) -> None:
    random = np.random.default_rng(k)
    indptr = np.array([0, 0, 1, 65, 565, 1065, 1130], dtype=np.int64)
    labels = np.concatenate([np.sort(random.permutation(2000)[: stop - start]) for start, stop in pairwise(indptr)])
    scores = random.integers(0, ties, len(labels)).astype(np.float32)
    scores[565:1065].sort()  # the worst order for insertion
    found, given = best_of_rows(indptr, labels.astype(np.int32), scores, k)
    for row, (start, stop) in enumerate(pairwise(indptr)):
        order = np.lexsort((labels[start:stop], -scores[start:stop]))[:k] + start
        assert found[row, : len(order)].tolist() == labels[order].tolist()
        assert given[row, : len(order)].tolist() == scores[order].tolist()
        assert (found[row, len(order) :] == -1).all()
        assert np.isneginf(given[row, len(order) :]).all()
