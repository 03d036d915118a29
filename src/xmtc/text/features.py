"""Document features: tf-idf of text, or the user's feature matrix, with the same interface."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.errors import DataError, UnsupportedError
from xmtc.core.explanation import TokenEvidence
from xmtc.core.jit import kernel
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset
from xmtc.text.cache import tfidf_of, tokens_of
from xmtc.text.known_words import KnownWords, filled_rows, rows_with_values
from xmtc.text.tfidf import TERMS, TextSettings, Tfidf

Weighing = Literal["given", "idf"]
"""Weighting of the columns of feature matrices: as given, or multiplied by idf."""
COLUMN_IDF = "column_idf"
"""Name of the column weights in a saved state."""


class DenseColumns(Protocol):
    """Vectors of texts as further columns of their feature rows."""

    weight: float
    """Length of the vectors."""

    @property
    def width(self) -> int:
        """Dimension of the vectors."""

    def of(self, texts: pa.ChunkedArray, runtime: Runtime, progress: Progress = silent) -> NDArray[np.float32]:
        """(n, width) vectors; zero for texts without a known word."""

    def state(self) -> State:
        """The state to save, with names that do not collide with those of words."""


class DocumentFeatures:
    """Feature rows of unit length. Accepts the kind of input it was fitted on, text or features.

    With `dense`, the rows of texts start with these columns, which do not count towards the unit length.
    """

    def __init__(
        self,
        tfidf: Tfidf | None,
        width: int,
        columns: NDArray[np.float32] | None = None,
        dense: DenseColumns | None = None,
    ) -> None:
        self.tfidf = tfidf
        self.width = width
        self.columns = columns  # (D,) weights of a matrix' columns; None: all 1
        self.dense = dense
        self._known = KnownWords()

    @classmethod
    def fit(
        cls,
        dataset: Dataset,
        settings: TextSettings,
        runtime: Runtime,
        progress: Progress = silent,
        weighing: Weighing = "given",
        dense: DenseColumns | None = None,
    ) -> tuple[DocumentFeatures, Csr]:
        """Learn the features of the training documents; return them and the training rows.

        `weighing` applies to the columns of feature matrices; text always uses tf-idf, and `dense` if given.
        """
        if not dataset.has_text:
            assert dataset.features is not None
            columns = column_idf(dataset.features) if weighing == "idf" else None
            features = cls(None, int(dataset.features.shape[1]), columns)
            return features, features.scaled(dataset.features)
        tfidf, rows = tfidf_of(dataset.text(), settings, runtime, progress)
        if not len(tfidf):
            raise DataError(
                f"no word occurs in {settings.min_df} or more training texts. "
                "Check the text field, or lower text.min_df."
            )
        features = cls._of_text(tfidf, dense)
        return features, features._with_vectors(dataset, rows, runtime, progress)

    @classmethod
    def _of_text(cls, tfidf: Tfidf, dense: DenseColumns | None) -> DocumentFeatures:
        return cls(tfidf, len(tfidf) + (0 if dense is None else dense.width), dense=dense)

    @property
    def dense_width(self) -> int:
        """Number of dense columns, which come first."""
        return 0 if self.dense is None else self.dense.width

    @property
    def only_words(self) -> DocumentFeatures:
        """The same features without the dense columns."""
        return self if self.dense is None else DocumentFeatures(self.tfidf, self.width - self.dense_width)

    def grown(
        self,
        dataset: Dataset,
        documents: int,
        runtime: Runtime,
        progress: Progress = silent,
        *,
        min_df: int | None = None,
    ) -> tuple[DocumentFeatures, Csr]:
        """Add features of additional documents, `documents` in total; return the features and the rows of `dataset`.

        With `min_df`, a new feature must occur in this many of them; by default, in as many as the settings say.
        """
        if self.tfidf is None or not len(dataset):
            return self, self.transform(dataset, runtime)
        if not dataset.has_text:
            raise UnsupportedError("this model was trained on text. Got a feature matrix: pass texts.")
        tokens = tokens_of(dataset.text(), runtime)
        tfidf = self.tfidf.grown(tokens, documents, runtime.threads, min_df=min_df)
        features = self._of_text(tfidf, self.dense)
        rows = tfidf.transform(tokens, runtime.threads)
        return features, features._with_vectors(dataset, rows, runtime, progress)

    def widened(self, dataset: Dataset, rows: Csr, runtime: Runtime) -> Csr:
        """The rows of documents, given their rows before words were added: their vectors stay the same."""
        words = self.only_words.transform(dataset, runtime)
        return words if self.dense is None else _side_by_side(sp.csr_array(rows[:, : self.dense_width]), words)

    def transform(self, dataset: Dataset, runtime: Runtime) -> Csr:
        """Compute the rows (n, width) of new documents."""
        rows = self._rows(dataset, runtime)
        self._known.remember(dataset, rows_with_values(rows) if self.tfidf is None else filled_rows(rows))
        return rows

    def known_words(self, dataset: Dataset, runtime: Runtime) -> NDArray[np.bool_]:
        """Return which documents have a feature (n,); free for the documents that were transformed last."""
        if self.tfidf is None and dataset.features is not None:
            return rows_with_values(dataset.features)
        known = self._known.get(dataset)
        return rows_with_values(self.transform(dataset, runtime)) if known is None else known

    def _rows(self, dataset: Dataset, runtime: Runtime) -> Csr:
        if self.tfidf is not None:
            if not dataset.has_text:
                raise UnsupportedError("this model was trained on text. Got a feature matrix: pass texts.")
            rows = self.tfidf.transform(tokens_of(dataset.text(), runtime), runtime.threads)
            return self._with_vectors(dataset, rows, runtime)
        if dataset.features is None:
            raise UnsupportedError("this model was trained on a feature matrix. Got text: pass features.")
        if dataset.features.shape[1] != self.width:
            raise DataError(
                f"the model has {self.width:,} features. Got a matrix with {dataset.features.shape[1]:,} columns. "
                "Pass the features it was trained on."
            )
        return self.scaled(dataset.features)

    def _with_vectors(self, dataset: Dataset, rows: Csr, runtime: Runtime, progress: Progress = silent) -> Csr:
        """Rows of words (n, D − d) completed by the dense columns (n, d) before them."""
        if self.dense is None:
            return rows
        return _side_by_side(filled_csr(self.dense.of(dataset.text(), runtime, progress)), rows)

    def scaled(self, matrix: Csr) -> Csr:
        """Weigh the columns of a feature matrix, and scale its rows to unit length."""
        return unit_rows(matrix) if self.columns is None else weighed(matrix, self.columns)

    def evidence(self, text: str, weights: Mapping[int, float]) -> list[TokenEvidence]:
        """Return text spans with their contribution to Σ value × weight over features, largest first."""
        if self.tfidf is None:
            raise UnsupportedError("this model was trained on features, so it has no words to show. Train on text.")
        first = self.dense_width
        return self.tfidf.evidence(text, {feature - first: w for feature, w in weights.items() if feature >= first})

    def dense_contribution(self, row: Csr, weights: Mapping[int, float]) -> float:
        """Return the part of Σ value × weight of one row that is due to the dense columns."""
        pairs = zip(row.indices.tolist(), row.data.tolist(), strict=True)
        return float(sum(value * weights.get(column, 0.0) for column, value in pairs if column < self.dense_width))

    def state(self) -> State:
        """Return the state to save."""
        if self.tfidf is None:
            return State({"width": self.width}, {} if self.columns is None else {COLUMN_IDF: self.columns})
        arrays, table = self.tfidf.state()
        own = State({"width": self.width}, {f"tfidf.{name}": part for name, part in arrays.items()}, {"terms": table})
        if self.dense is not None:
            dense = self.dense.state()
            own = State({**own.values, **dense.values}, {**own.arrays, **dense.arrays}, {**own.tables, **dense.tables})
        return own

    @classmethod
    def from_state(
        cls, settings: TextSettings, state: SavedState, dense: DenseColumns | None = None
    ) -> DocumentFeatures:
        """Restore from a saved state, with its dense columns if it has any."""
        width = state.value("width", int, 0, 1 << 31)
        if not state.has_table("terms"):
            columns = state.array(COLUMN_IDF, np.float32, (width,)) if state.has(COLUMN_IDF) else None
            return cls(None, width, columns)
        words = width - (0 if dense is None else dense.width)
        return cls._of_text(Tfidf.from_state(settings, state.table("terms", TERMS, words), state.part("tfidf.")), dense)


def filled_csr(vectors: NDArray[np.float32]) -> Csr:
    """A dense matrix (n, d) as CSR; all elements of a row are stored unless all are 0."""
    count, width = vectors.shape
    filled = vectors.any(axis=1)
    indptr = np.concatenate([[0], np.cumsum(filled * width)])
    columns = np.tile(np.arange(width, dtype=np.int32), int(filled.sum()))
    return sp.csr_array((vectors[filled].ravel(), columns, indptr), shape=(count, width))


def _side_by_side(left: Csr, right: Csr) -> Csr:
    """(n, d + D) rows of both matrices, whose indices are ascending."""
    return sp.csr_array(sp.hstack([left, right], format="csr", dtype=np.float32))


def column_idf(rows: Csr) -> NDArray[np.float32]:
    """Compute idf weights (D,) of the columns of a matrix."""
    held = np.bincount(rows.indices[rows.data != 0], minlength=rows.shape[1])
    idf: NDArray[np.float32] = (1.0 + np.log((1.0 + rows.shape[0]) / (1.0 + held))).astype(np.float32)
    return idf


def weighed(rows: Csr, weights: NDArray[np.float32]) -> Csr:
    """Multiply columns by weights and rescale rows to unit length."""
    return unit_rows(sp.csr_array((rows.data * weights[rows.indices], rows.indices, rows.indptr), shape=rows.shape))


def unit_rows(matrix: Csr) -> Csr:
    """Scale rows to unit length; empty rows and rows of unit length, up to rounding, stay unchanged."""
    scales = _row_scales(matrix.indptr, matrix.data)
    if (scales == 1.0).all():
        return matrix
    scaled = copy.copy(matrix)  # shares the arrays, and is ten times faster than a new matrix
    factors = scales[0] if len(scales) == 1 else np.repeat(scales, np.diff(matrix.indptr))
    scaled.data = (matrix.data * factors).astype(np.float32)
    return scaled


@kernel()
def _row_scales(indptr: NDArray[Any], values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the factor that scales each row to unit length, computed in double precision."""
    scales = np.ones(len(indptr) - 1, np.float64)
    for row in range(len(scales)):
        square = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            square += np.float64(values[i]) * np.float64(values[i])
        if square > 0.0 and abs(square - 1.0) > 1e-6:
            scales[row] = 1.0 / np.sqrt(square)
    return scales
