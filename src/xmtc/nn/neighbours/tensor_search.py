"""Exact nearest-neighbour search on CUDA tensors."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

QUERIES, ROWS = 4096, 1 << 15
"""Block size: 512 MiB of products, and some gigabytes of keys during selection."""
AGAIN = 256
"""Queries whose products are recomputed at once."""
EXTRA = 16
"""Additional rows whose products are recomputed."""
NOTHING = -(1 << 63)
"""A key below all others."""

Array = NDArray[np.float32]
Numbers = NDArray[np.int32]


def search_tensor(
    vectors: Tensor,
    queries: Array,
    numbers: Numbers,
    barred: Numbers,
    slack: NDArray[np.float64],
    found: Numbers,
    products: Array,
) -> None:
    """Like the search on a CPU, with torch's own selection.

    The best `count` rows by approximate products, plus some more, are recomputed exactly. If the last of them is so
    close that other rows could rank before it, the query is repeated in double precision.
    """
    count = min(found.shape[1], len(numbers))
    if not count:
        return
    names = torch.from_numpy(np.array(numbers)).to(vectors.device).long()
    for first in range(0, len(queries), QUERIES):
        mine = slice(first, first + QUERIES)
        query_rows = torch.from_numpy(np.array(queries[mine])).to(vectors.device)
        left_out = torch.from_numpy(np.array(barred[mine])).to(vectors.device)
        rough = _best_keys(vectors, query_rows, names, left_out, min(count + EXTRA, len(names)))
        keys = _exact_keys(vectors, query_rows, rough).sort(dim=1, descending=True).values[:, :count]
        if rough.shape[1] < len(names):
            far = torch.from_numpy(slack[mine]).to(vectors.device)
            unsure = _products(rough[:, -1]) + far >= _products(keys[:, -1])
            if bool(unsure.any()):
                keys[unsure] = _best_keys(vectors, query_rows[unsure].double(), names, left_out[unsure], count)
        real = (keys > NOTHING).cpu().numpy()
        found[mine, :count] = np.where(real, _numbers(keys).cpu().numpy(), -1)
        products[mine, :count] = np.where(real, _products(keys).cpu().numpy(), 0)


def _keys(products: Tensor, numbers: Tensor) -> Tensor:
    """One integer per product that sorts by product, ties by the lower row number."""
    bits = (products.float() + 0.0).view(torch.int32).long()  # turns −0 into 0
    return (torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits) << 32) + (0xFFFFFFFF - numbers)


def _numbers(keys: Tensor) -> Tensor:
    return 0xFFFFFFFF - (keys & 0xFFFFFFFF)


def _products(keys: Tensor) -> Tensor:
    high = (keys >> 32).clamp(min=-0x7F800000)
    bits = torch.where(high < 0, -high - (1 << 31), high)
    return bits.int().view(torch.float32)


def _best_keys(vectors: Tensor, queries: Tensor, names: Tensor, barred: Tensor, count: int) -> Tensor:
    """(n, count) keys of the best rows, best first, with products in the precision of the queries."""
    best = torch.full((len(queries), 0), NOTHING, device=vectors.device)
    for low in range(0, len(names), ROWS):
        part = names[low : low + ROWS]
        keys = _keys(queries @ vectors[part].to(queries.dtype).T, part)
        keys.masked_fill_(part == barred[:, None], NOTHING)
        keys = keys.topk(min(count, len(part)), dim=1).values
        keys = torch.cat([best, keys], dim=1)
        best = keys.topk(min(count, keys.shape[1]), dim=1).values
    return best


def _exact_keys(vectors: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """Keys with recomputed products, a few queries at a time."""
    exact = keys.clone()
    for low in range(0, len(queries), AGAIN):
        part = slice(low, low + AGAIN)
        numbers = _numbers(keys[part])
        rows = vectors[numbers.clamp(max=len(vectors) - 1)].double()  # (n, c, d)
        products = (rows * queries[part, None, :].double()).sum(2)
        exact[part] = torch.where(keys[part] > NOTHING, _keys(products, numbers), NOTHING)
    return exact
