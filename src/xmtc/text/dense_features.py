"""Features as linear regressions take them: weighed columns, rows of one length, and a constant at the end."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.store import State
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset
from xmtc.text.features import DocumentFeatures, column_idf, weighed
from xmtc.text.tfidf import TextSettings
from xmtc.text.weighted_bags import COLUMNS, Weighing


class ColumnFeatures:
    """Document features with one column more: the same number for every document, from which labels start.

    With `longer` all features stand there twice, the second time × √(how many the document has) × this: what a word
    says depends on how many others there are, and rows of one length hide that.
    """

    def __init__(
        self, features: DocumentFeatures, weights: NDArray[np.float32] | None, bias: float, longer: float = 0.0
    ) -> None:
        if weights is not None and weights.shape != (features.width,):
            raise ValueError(f"weights of {weights.shape} columns and not {features.width:,}")
        self.features = features
        self.weights = weights  # (D,) of a matrix' columns
        self.bias = bias
        self.longer = longer

    @property
    def width(self) -> int:
        """Columns, the constant one among them."""
        return self.features.width * (2 if self.longer else 1) + 1

    @classmethod
    def fit(
        cls,
        dataset: Dataset,
        text: TextSettings,
        weighing: Weighing,
        bias: float,
        runtime: Runtime,
        progress: Progress = silent,
        longer: float = 0.0,
    ) -> tuple[ColumnFeatures, Csr]:
        """Learn the features of the training documents; returns them with the training rows."""
        features, rows = DocumentFeatures.fit(dataset, text, runtime, progress)
        weights = column_idf(rows) if weighing == "idf" and features.tfidf is None else None
        made = cls(features, weights, bias, longer)
        return made, made.of(rows)

    def transform(self, dataset: Dataset, runtime: Runtime) -> Csr:
        """(n, width) rows of new documents."""
        return self.of(self.features.transform(dataset, runtime))

    def of(self, rows: Csr) -> Csr:
        """(n, width) rows of plain features, completed."""
        if self.weights is not None:
            rows = weighed(rows, self.weights)
        if self.longer:
            lengths = np.diff(rows.indptr)
            times = np.repeat((self.longer * np.sqrt(lengths)).astype(np.float32), lengths)
            again = sp.csr_array((rows.data * times, rows.indices, rows.indptr), shape=rows.shape)
            rows = sp.csr_array(sp.hstack([rows, again]))
        places = rows.indptr[1:]
        data = np.insert(rows.data, places, np.float32(self.bias)).astype(np.float32, copy=False)
        indices = np.insert(rows.indices, places, self.width - 1).astype(np.int32, copy=False)
        indptr = rows.indptr.astype(np.int64) + np.arange(len(rows.indptr))
        return sp.csr_array((data, indices, indptr), shape=(rows.shape[0], self.width))

    def weights_of(self, row: Csr, weights: NDArray[np.float64]) -> dict[int, float]:
        """Feature → weight of one completed row, from those of its entries; both places of a feature together."""
        count = (row.nnz - 1) // (2 if self.longer else 1)
        features, values, found = row.indices[:count], row.data[:count].astype(np.float64), weights[:count].copy()
        if self.longer:
            found += weights[count:-1] * row.data[count:-1] / np.where(values == 0.0, 1.0, values)
        return dict(zip(features.tolist(), found.tolist(), strict=True))

    def state(self) -> State:
        state = self.features.state()
        if self.weights is not None:
            state.arrays[COLUMNS] = self.weights
        return state

    @classmethod
    def from_state(cls, text: TextSettings, bias: float, state: State, longer: float = 0.0) -> ColumnFeatures:
        arrays = {name: array for name, array in state.arrays.items() if name.startswith("tfidf.")}
        features = DocumentFeatures.from_state(text, State(state.values, arrays, state.tables))
        return cls(features, state.arrays.get(COLUMNS), bias, longer)
