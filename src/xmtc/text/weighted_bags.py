"""Documents as weighted bags of features for neural models."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset
from xmtc.text import sequences
from xmtc.text.feature_selection import WORD
from xmtc.text.features import DocumentFeatures, Weighing, column_idf, weighed
from xmtc.text.sequences import FIRST_WORD, UNKNOWN
from xmtc.text.tfidf import TextSettings
from xmtc.text.tokens import TokenBlock

COLUMNS = "columns"
"""Name of the column weights in a model's state."""


class Bags(NamedTuple):
    """Consecutive documents: document i has the features ids[indptr[i]:indptr[i + 1]] and the weights likewise."""

    indptr: NDArray[np.int64]
    ids: NDArray[np.int32]
    weights: NDArray[np.float32]

    def matrix(self, width: int) -> Csr:
        """(n, width) the weights as a matrix, with one column per id."""
        return sp.csr_array((self.weights, self.ids, self.indptr), shape=(len(self.indptr) - 1, width))

    def take(self, rows: NDArray[np.int64]) -> Bags:
        """Return these documents, in this order."""
        whole = sp.csr_array((self.weights, self.ids, self.indptr))[rows]
        return Bags(whole.indptr.astype(np.int64), whole.indices.astype(np.int32), whole.data)


Numbered = TokenBlock | Bags
"""Input of a network: sequences of word numbers, or bags."""


def taken(numbered: Numbered, rows: NDArray[np.int64]) -> Numbered:
    """Return these documents, in this order."""
    return numbered.take(rows) if isinstance(numbered, Bags) else sequences.taken(numbered, rows)


class BagReader:
    """Converts documents to bags: tf-idf of text, or the columns of a matrix, as given or weighted by idf."""

    def __init__(self, features: DocumentFeatures, columns: NDArray[np.float32] | None, most: int) -> None:
        self.features = features
        self.columns = columns  # (D,) weights of a matrix' columns
        self.most = most

    @property
    def size(self) -> int:
        """Number of ids in use: features, and those below FIRST_WORD."""
        return self.features.width + FIRST_WORD

    @property
    def words(self) -> list[str]:
        """Names of the features: none for columns of a matrix, empty strings for character n-grams."""
        tfidf = self.features.tfidf
        if tfidf is None:
            return []
        return [
            term if kind == WORD else ""
            for term, kind in zip(tfidf.terms.to_pylist(), tfidf.kinds.tolist(), strict=True)
        ]

    @classmethod
    def fit(
        cls,
        dataset: Dataset,
        settings: TextSettings,
        weighing: Weighing,
        most: int,
        runtime: Runtime,
        progress: Progress = silent,
    ) -> tuple[BagReader, Bags]:
        """Learn the features of the training documents; return the reader and their bags."""
        features, rows = DocumentFeatures.fit(dataset, settings, runtime, progress)
        columns = column_idf(rows) if weighing == "idf" and features.tfidf is None else None
        made = cls(features, columns, most)
        return made, made._bags(rows)

    def grown(self, dataset: Dataset, documents: int, runtime: Runtime) -> BagReader:
        """Add features of additional texts, `documents` in total; the weights of matrix columns stay the same."""
        return BagReader(self.features.grown(dataset, documents, runtime)[0], self.columns, self.most)

    def encode(self, dataset: Dataset, runtime: Runtime) -> Bags:
        """Convert new documents to bags; one without known features gets an unknown one with weight 0."""
        return self._bags(self.features.transform(dataset, runtime))

    def known_words(self, dataset: Dataset, runtime: Runtime) -> NDArray[np.bool_]:
        """Return which documents have a known feature."""
        return self.features.known_words(dataset, runtime)

    def _bags(self, rows: Csr) -> Bags:
        if not rows.data.all():  # explicit zeros would count as features of a bag
            rows = rows.copy()
            rows.eliminate_zeros()
        if self.columns is not None:
            rows = weighed(rows, self.columns)
        ids, weights, lengths = rows.indices.astype(np.int32) + np.int32(FIRST_WORD), rows.data, np.diff(rows.indptr)
        if len(lengths) and lengths.max() > self.most:
            kept = _heaviest(rows, self.most)
            ids, weights = ids[kept], weights[kept]
            lengths = np.minimum(lengths, self.most)
        empty = np.flatnonzero(lengths == 0)
        places = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)[empty]
        ids, weights = np.insert(ids, places, UNKNOWN), np.insert(weights, places, 0.0)
        indptr = np.concatenate([[0], np.cumsum(np.maximum(lengths, 1))]).astype(np.int64)
        return Bags(indptr, ids.astype(np.int32), weights.astype(np.float32))

    def state(self) -> State:
        """Return the state to save."""
        state = self.features.state()
        if self.columns is not None:
            state.arrays[COLUMNS] = self.columns
        return state

    @classmethod
    def from_state(cls, settings: TextSettings, most: int, state: SavedState) -> BagReader:
        """Restore from a saved state."""
        features = DocumentFeatures.from_state(settings, state)
        columns = state.array(COLUMNS, np.float32, (features.width,)) if state.has(COLUMNS) else None
        return cls(features, columns, most)


def _heaviest(rows: Csr, most: int) -> NDArray[np.bool_]:
    """Return a mask of the `most` heaviest entries of each row; on ties the first are kept."""
    kept = np.ones(len(rows.data), dtype=bool)
    for row in np.flatnonzero(np.diff(rows.indptr) > most):
        low, high = rows.indptr[row], rows.indptr[row + 1]
        order = np.argsort(-np.abs(rows.data[low:high]), kind="stable")
        kept[low + order[most:]] = False
    return kept
