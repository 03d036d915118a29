"""Adds the gradients of weighted sums of rows to the rows; on CPUs without an intermediate tensor of all words.

A batch costs one multiply-add for each word and column. Words are processed in the order of their numbers, so that each
row is fetched once while the few document gradients stay in the cache. Threads split the columns, so that the order of
summation does not depend on their number.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.core.jit import kernel
from xmtc.core.parallel import run_parallel

COLUMNS = 64
"""Minimum number of columns per thread."""


@torch.no_grad()
def add_to_rows(gradient: Tensor, tokens: Tensor, weights: Tensor | None, change: Tensor) -> None:
    """gradient[tokens[b, t]] += weights[b, t] · change[b] for all words (B, T) of a batch; change is (B, e)."""
    if gradient.is_cuda:
        spread = change[:, None, :].expand(-1, tokens.shape[1], -1)
        spread = spread if weights is None else spread * weights[..., None]
        gradient.index_add_(0, tokens.reshape(-1), spread.reshape(-1, gradient.shape[1]))
        return
    width = gradient.shape[1]
    given = tokens.new_ones(tokens.shape, dtype=change.dtype) if weights is None else weights
    numbers, weighed, rows = (part.contiguous().numpy() for part in (tokens, given.to(change.dtype), change))
    order, out = np.argsort(numbers, axis=None, kind="stable"), gradient.numpy()
    threads = max(1, min(torch.get_num_threads(), width // COLUMNS))
    edges = np.linspace(0, width, threads + 1).astype(int).tolist()

    def part(number: int) -> None:
        _add(order, numbers, weighed, rows, edges[number], edges[number + 1], out)

    for _ in run_parallel(part, range(threads), threads):
        pass


@kernel(outputs=("gradient",))
def _add(
    order: NDArray[np.int64],  # (B · T,) positions of words, sorted by word number
    tokens: NDArray[np.int32],
    weights: NDArray[np.float32],
    change: NDArray[np.float32],
    low: int,
    high: int,
    gradient: NDArray[np.float32],  # out
) -> None:
    length = tokens.shape[1]
    for at in order:
        document, place = at // length, at % length
        weight = weights[document, place]
        if weight != 0:
            row, into = change[document, low:high], gradient[tokens[document, place], low:high]
            for i in range(len(row)):
                into[i] += weight * row[i]
