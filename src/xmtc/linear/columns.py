"""Features as linear regressions take them: weighed columns, rows of one length, and a constant at the end."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.dataset import Csr, Dataset
from xmtc.progress import Progress, silent
from xmtc.runtime import Runtime
from xmtc.store import State
from xmtc.text.bags import COLUMNS, Weighing
from xmtc.text.features import DocumentFeatures, unit_rows
from xmtc.text.tfidf import TextSettings


class ColumnFeatures:
    """Document features with one column more: the same number for every document, from which labels start."""

    def __init__(self, features: DocumentFeatures, weights: NDArray[np.float32] | None, bias: float) -> None:
        if weights is not None and weights.shape != (features.width,):
            raise ValueError(f"weights of {weights.shape} columns and not {features.width:,}")
        self.features = features
        self.weights = weights  # (D,) of a matrix' columns
        self.bias = bias

    @property
    def width(self) -> int:
        """Columns, the constant one among them."""
        return self.features.width + 1

    @classmethod
    def fit(
        cls,
        dataset: Dataset,
        text: TextSettings,
        weighing: Weighing,
        bias: float,
        runtime: Runtime,
        progress: Progress = silent,
    ) -> tuple[ColumnFeatures, Csr]:
        """Learn the features of the training documents; returns them with the training rows."""
        features, rows = DocumentFeatures.fit(dataset, text, runtime, progress)
        weights = None
        if weighing == "idf" and features.tfidf is None:
            held = np.bincount(rows.indices[rows.data != 0], minlength=rows.shape[1])
            weights = (1.0 + np.log((1.0 + rows.shape[0]) / (1.0 + held))).astype(np.float32)
        made = cls(features, weights, bias)
        return made, made.of(rows)

    def transform(self, dataset: Dataset, runtime: Runtime) -> Csr:
        """(n, width) rows of new documents."""
        return self.of(self.features.transform(dataset, runtime))

    def of(self, rows: Csr) -> Csr:
        """(n, width) rows of plain features, completed."""
        if self.weights is not None:
            weighed = rows.data * self.weights[rows.indices]
            rows = unit_rows(sp.csr_array((weighed, rows.indices, rows.indptr), shape=rows.shape))
        places = rows.indptr[1:]
        data = np.insert(rows.data, places, np.float32(self.bias)).astype(np.float32, copy=False)
        indices = np.insert(rows.indices, places, self.features.width).astype(np.int32, copy=False)
        indptr = rows.indptr.astype(np.int64) + np.arange(len(rows.indptr))
        return sp.csr_array((data, indices, indptr), shape=(rows.shape[0], self.width))

    def state(self) -> State:
        state = self.features.state()
        if self.weights is not None:
            state.arrays[COLUMNS] = self.weights
        return state

    @classmethod
    def from_state(cls, text: TextSettings, bias: float, state: State) -> ColumnFeatures:
        arrays = {name: array for name, array in state.arrays.items() if name.startswith("tfidf.")}
        features = DocumentFeatures.from_state(text, State(state.values, arrays, state.tables))
        return cls(features, state.arrays.get(COLUMNS), bias)
