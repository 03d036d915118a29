"""Batches of texts of similar length, for networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xmtc.core.cancellation import check
from xmtc.text.sequences import PADDING
from xmtc.text.tokens import TokenBlock


class Batch(NamedTuple):
    """The rows of a batch and the length that they are padded to."""

    rows: NDArray[np.int64]
    length: int


def sorted_batches(lengths: NDArray[np.int64], tokens: int, most: int) -> Iterator[Batch]:
    """All documents once, shortest first; at most `tokens` words, including padding, and `most` documents per batch."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        check()
        ahead = lengths[order[start : start + most]]
        fitting = np.flatnonzero(rounded_length(ahead) * np.arange(1, len(ahead) + 1) <= tokens)
        count = int(fitting[-1]) + 1 if len(fitting) else 1
        rows = order[start : start + count]
        yield Batch(rows, int(rounded_length(lengths[rows[-1:]])[0]))
        start += count


def rounded_length(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Padded lengths: few distinct values, so that a text is padded the same way in most batches."""
    return -(-lengths // 8) * 8


def padded(texts: TokenBlock, batch: Batch) -> NDArray[np.int64]:
    """(B, T) word numbers of a batch; padding comes first, so that all texts end at the same position."""
    back = np.arange(batch.length, 0, -1)  # distance to the end
    ends, lengths = texts.indptr[batch.rows + 1][:, None], np.diff(texts.indptr)[batch.rows][:, None]
    places = np.maximum(ends - back, 0)
    return np.where(back <= lengths, texts.ids[places], PADDING).astype(np.int64)
