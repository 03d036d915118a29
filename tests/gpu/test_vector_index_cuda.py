"""Nearest neighbours on CUDA: the same as on a CPU, number for number."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from xmtc.nn.neighbours.clusters import Partition
from xmtc.nn.neighbours.vector_index import VectorIndex

pytestmark = pytest.mark.gpu


def planted() -> tuple[np.ndarray, np.ndarray]:
    """Rows about a few hundred centres, many of them twice, and queries: some are rows, one is zero."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((300, 100)).astype(np.float32)
    rows = centres[random.integers(300, size=70_000)] + 0.8 * random.standard_normal((70_000, 100)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[30_000:40_000] = rows[:10_000]
    rows[50_000:50_200] = rows[3]
    return rows, np.concatenate([rows[:2000], rows[-4000:], np.zeros((1, 100), np.float32)])


def test_cuda_equals_a_cpu_whatever_the_precision_of_training():
    rows, queries = planted()
    own = np.concatenate([np.arange(2000), np.arange(len(rows) - 4000, len(rows)), [-1]])
    mask = np.arange(len(rows)) % 3 > 0
    here, there = VectorIndex(rows, threads=4), VectorIndex(torch.from_numpy(rows).cuda())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        for count, options in ((20, {}), (50, {"without": own}), (50, {"among": mask})):
            for one, other in zip(
                here.nearest(queries, count, **options), there.nearest(queries, count, **options), strict=True
            ):
                np.testing.assert_array_equal(one, other)
    finally:
        torch.set_float32_matmul_precision(before)
    few = there.nearest(torch.from_numpy(queries[:7]).cuda(), 20)[0]
    np.testing.assert_array_equal(few, here.nearest(queries[:7], 20)[0])


def test_clusters_on_cuda():
    rows, queries = planted()
    partition = Partition.fit(torch.from_numpy(rows).cuda(), 50, iterations=5)
    np.testing.assert_array_equal(partition.clusters, Partition.fit(rows, 50, iterations=5, threads=4).clusters)
    there = VectorIndex(torch.from_numpy(rows).cuda(), partition=partition).nearest(queries, 20)
    for one, other in zip(VectorIndex(rows, partition=partition, threads=4).nearest(queries, 20), there, strict=True):
        np.testing.assert_array_equal(one, other)
