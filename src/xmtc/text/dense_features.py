"""Features for linear regression: weighted columns, rows of unit length, and a constant column at the end."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset
from xmtc.text.features import DocumentFeatures, Weighing, column_idf, weighed
from xmtc.text.tfidf import TextSettings
from xmtc.text.weighted_bags import COLUMNS


class ColumnFeatures:
    """Document features with an additional constant (bias) column.

    If `longer` is not 0, all features are duplicated, multiplied by √(number of features of the document) × `longer`:
    the weight of a word may depend on the length of the document, which unit rows hide.
    """

    def __init__(
        self, features: DocumentFeatures, weights: NDArray[np.float32] | None, bias: float, longer: float = 0.0
    ) -> None:
        if weights is not None and weights.shape != (features.width,):
            raise ValueError(f"column weights have shape {weights.shape}, expected {features.width:,} columns")
        self.features = features
        self.weights = weights  # (D,) of the columns of a matrix
        self.bias = bias
        self.longer = longer

    @property
    def width(self) -> int:
        """Number of columns, including the constant one."""
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
        """Learn the features of the training documents; return them and the training rows."""
        features, rows = DocumentFeatures.fit(dataset, text, runtime, progress)
        weights = column_idf(rows) if weighing == "idf" and features.tfidf is None else None
        made = cls(features, weights, bias, longer)
        return made, made.of(rows)

    def transform(self, dataset: Dataset, runtime: Runtime) -> Csr:
        """Compute the rows (n, width) of new documents."""
        return self.of(self.features.transform(dataset, runtime))

    def known_words(self, dataset: Dataset, runtime: Runtime) -> NDArray[np.bool_]:
        """Return which documents have a feature, the constant column aside."""
        return self.features.known_words(dataset, runtime)

    def of(self, rows: Csr) -> Csr:
        """Complete rows of plain features to (n, width)."""
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
        """Return the weight of each feature of one completed row, combining both copies of a feature."""
        count = (row.nnz - 1) // (2 if self.longer else 1)
        features, values, found = row.indices[:count], row.data[:count].astype(np.float64), weights[:count].copy()
        if self.longer:
            found += weights[count:-1] * row.data[count:-1] / np.where(values == 0.0, 1.0, values)
        return dict(zip(features.tolist(), found.tolist(), strict=True))

    def state(self) -> State:
        """Return the state to save."""
        state = self.features.state()
        if self.weights is not None:
            state.arrays[COLUMNS] = self.weights
        return state

    @classmethod
    def from_state(cls, text: TextSettings, bias: float, state: SavedState, longer: float = 0.0) -> ColumnFeatures:
        """Restore from a saved state."""
        features = DocumentFeatures.from_state(text, state)
        weights = state.array(COLUMNS, np.float32, (features.width,)) if state.has(COLUMNS) else None
        return cls(features, weights, bias, longer)
