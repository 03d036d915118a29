"""Training documents stored in a model for replay in updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.errors import ModelFormatError
from xmtc.data.dataset import Csr, Dataset, stacked
from xmtc.data.label_index import LabelIndex


def sample(train: Dataset, most: int, seed: int) -> Dataset | None:
    """A random sample of at most `most` training documents."""
    if not most:
        return None
    rows = np.random.default_rng([seed, 11]).permutation(len(train))[:most]
    return train.take(np.sort(rows))


def renewed(kept: Dataset | None, new: Dataset, documents: int, most: int, seed: int) -> Dataset | None:
    """The sample after an update: kept and new documents in proportion to their numbers."""
    if not most or kept is None or not len(kept):
        return sample(new, most, seed)
    random = np.random.default_rng([seed, 12, documents])
    fresh = min(len(new), max(round(most * len(new) / (documents + len(new))), most - len(kept)))
    old = min(len(kept), most - fresh)
    rows = [np.sort(random.permutation(len(part))[:count]) for part, count in ((kept, old), (new, fresh))]
    return stacked([kept.take(rows[0]), new.take(rows[1])])


def replay_state(documents: Dataset) -> State:
    """Documents with their labels, as a part of a model folder."""
    assert documents.labels is not None
    arrays: dict[str, NDArray[Any]] = {f"ids.{name}": a for name, a in _bytes(documents.document_ids()).items()}
    if documents.has_text:
        arrays |= {f"text.{name}": array for name, array in _bytes(documents.text().to_pylist()).items()}
    features = None if documents.has_text else documents.features
    for name, matrix in (("labels", documents.labels), ("rejected", documents.rejected), ("features", features)):
        if matrix is not None:
            arrays[f"{name}.indptr"] = matrix.indptr.astype(np.int64)
            arrays[f"{name}.indices"] = matrix.indices.astype(np.int32)
            arrays |= {f"{name}.data": matrix.data} if name == "features" else {}
    if documents.partial is not None:
        arrays["partial"] = documents.partial.astype(np.uint8)
    width = None if documents.has_text or documents.features is None else int(documents.features.shape[1])
    return State({"documents": len(documents), "features": width}, arrays)


def restored_replay(state: SavedState, index: LabelIndex) -> Dataset:
    """Restore the documents stored for a model with these labels."""
    try:
        return _restored(state, index)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        what = str(error).splitlines()[0].removesuffix(" Copy or train the model again.").rstrip(".")
        raise ModelFormatError(
            f"the documents stored for replay are damaged ({what}). Copy or train the model again."
        ) from None


def _restored(state: SavedState, index: LabelIndex) -> Dataset:
    count = state.value("documents", int, 0)
    labels = _label_matrix(state, "labels", (count, len(index)))
    rejected = _label_matrix(state, "rejected", (count, len(index))) if state.has("rejected.indptr") else None
    partial = state.array("partial", np.uint8, (count,), low=0, high=2).astype(bool) if state.has("partial") else None
    features = None
    if state.has("features.data"):
        width = state.value("features", int, 0, 1 << 31)
        indptr, indices = _rows(state, "features", count, width)
        values = state.array("features.data", np.float32, (len(indices),))
        features = sp.csr_array((values, indices, indptr), shape=(count, width))
    fields = {"text": _strings(state, "text", count)} if state.has("text.bytes") else {}
    return Dataset(fields, features, labels, index, _strings(state, "ids", count), rejected, partial)


def _label_matrix(state: SavedState, name: str, shape: tuple[int, int]) -> Csr:
    """The stored accepted or rejected labels."""
    indptr, indices = _rows(state, name, *shape)
    return sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=shape)


def _rows(state: SavedState, name: str, count: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Row starts and columns of a saved sparse matrix of this shape."""
    indices = state.array(f"{name}.indices", np.int32, (None,), low=0, high=width)
    return state.offsets(f"{name}.indptr", count, len(indices)), indices


def _bytes(values: Sequence[str]) -> dict[str, NDArray[Any]]:
    encoded = [value.encode() for value in values]
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in encoded], dtype=np.int64)]).astype(np.int64)
    return {"bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8), "offsets": offsets}


def _strings(state: SavedState, name: str, count: int) -> pa.ChunkedArray:
    data = state.array(f"{name}.bytes", np.uint8, (None,))
    offsets = state.offsets(f"{name}.offsets", count, len(data))
    whole = pa.LargeStringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))
    whole.validate(full=True)
    pieces = [whole.slice(at, 1 << 16).cast(pa.string()) for at in range(0, count, 1 << 16)]
    return pa.chunked_array(pieces, pa.string())
