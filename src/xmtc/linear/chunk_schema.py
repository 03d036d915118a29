"""Schema of the weights of a label tree: types, sizes and ranges of the arrays that kernels index without checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState, is_finite_half
from xmtc.core.errors import ModelFormatError
from xmtc.core.jit import frozen, kernel
from xmtc.core.parallel import run_parallel
from xmtc.linear.simd import LANES
from xmtc.linear.weight_chunks import Chunks

NODES_AT_ONCE = 64
"""Nodes that a thread checks at a time."""
FAULTS = (
    "a hash table contains features outside the model",
    "a hash table has no empty slot",
    "a hash table refers to rows outside its node",
    "a hash table refers to a row twice",
    "the ends of sparse rows do not ascend to their number of entries",
    "a sparse row has columns outside its node",
    "a row is not in the hash table",
)
"""What `_fault` returns, numbered from 1."""


def restored_chunks(state: SavedState, children: NDArray[np.int64], width: int, threads: int = 1) -> Chunks:
    """Restore the weights of nodes with these numbers of children, over `width` features."""
    nodes = len(children)
    weights = (np.float32, np.uint16)  # float16 is stored as uint16
    dense = state.array("dense", weights, (None,))
    ends = state.array("sparse_ends", np.int32, (None,))
    columns = state.array("sparse_columns", np.uint16, (None,))
    table = state.array("table", np.int32, (None,))
    bias = state.array("bias", np.float32, (None,), infinite=True)
    chunks = Chunks(
        table_start=state.offsets("table_start", nodes, len(table) // 2),
        table=table,
        dense_start=state.offsets("dense_start", nodes, len(dense)),
        dense=dense,
        sparse_start=state.offsets("sparse_start", nodes, len(columns)),
        sparse_row_start=state.offsets("sparse_row_start", nodes, len(ends)),
        sparse_ends=ends,
        sparse_columns=columns,
        sparse_weights=state.array("sparse_weights", dense.dtype, (len(columns),)),
        bias_start=state.offsets("bias_start", nodes, len(bias)),
        bias=bias,
    )
    chunks = Chunks(**{name: frozen(array) for name, array in chunks._asdict().items()})
    wrong = next(_faults(chunks, children, width, threads), None)
    if wrong:
        raise ModelFormatError(f"the weights are damaged: {wrong}. Copy or train the model again.")
    return chunks


def _faults(chunks: Chunks, children: NDArray[np.int64], width: int, threads: int) -> Iterator[str]:
    slots, widths = np.diff(chunks.table_start), np.diff(chunks.bias_start)
    if len(chunks.table) % 2 or (slots < 1).any() or (slots & (slots - 1)).any():
        yield "the size of a hash table is not a power of two"
    if (widths != -(-children // LANES) * LANES).any() or (np.diff(chunks.dense_start) % np.maximum(widths, 1)).any():
        yield "the row widths do not match the number of children"
    rows = np.diff(chunks.sparse_row_start) + np.diff(chunks.dense_start) // np.maximum(widths, 1) * (widths > 0)
    for weights in (chunks.dense, chunks.sparse_weights):
        if weights.dtype == np.uint16 and not is_finite_half(weights, 0x7C00):
            yield "a weight is NaN or infinite"

    def checked(first: int) -> int:
        last = min(first + NODES_AT_ONCE, chunks.nodes)
        seen = np.full(int(rows[first:last].max()), -1, dtype=np.int64)
        return _fault(chunks, first, last, width, seen)

    for found in run_parallel(checked, range(0, chunks.nodes, NODES_AT_ONCE), threads):
        if found:
            yield FAULTS[found - 1]


@kernel(outputs=("seen",))
def _fault(chunks: Any, first_node: int, last_node: int, features: int, seen: NDArray[np.int64]) -> int:
    """Return the number of the first fault of some nodes, 0 if there is none; one pass over their arrays.

    `seen` has an entry for each row of the largest node, −1 at first.
    """
    for node in range(first_node, last_node):
        width = chunks.bias_start[node + 1] - chunks.bias_start[node]
        dense = 0
        if width > 0:
            dense = (chunks.dense_start[node + 1] - chunks.dense_start[node]) // width
        first_row = chunks.sparse_row_start[node]
        sparse = chunks.sparse_row_start[node + 1] - first_row
        empty, used = 0, 0
        for slot in range(chunks.table_start[node], chunks.table_start[node + 1]):
            feature = chunks.table[2 * slot]
            if feature < -1 or feature >= features:
                return 1
            if feature == -1:
                empty += 1
                continue
            row = int(chunks.table[2 * slot + 1])
            if row >= dense or -1 - row >= sparse:
                return 3
            at = row if row >= 0 else dense - 1 - row
            if seen[at] == node:
                return 4
            seen[at] = node
            used += 1
        if empty == 0:
            return 2
        if used != dense + sparse:
            return 7
        entries = chunks.sparse_start[node + 1] - chunks.sparse_start[node]
        before = 0
        for row in range(first_row, first_row + sparse):
            end = int(chunks.sparse_ends[row])
            if end < before or end > entries:
                return 5
            before = end
        if before != entries:
            return 5
        for i in range(chunks.sparse_start[node], chunks.sparse_start[node + 1]):
            if chunks.sparse_columns[i] >= width:
                return 6
    return 0
