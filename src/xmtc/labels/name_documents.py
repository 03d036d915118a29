"""Names of labels as documents: one for each label, with its name and alternative names."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.labels.features import joined
from xmtc.text.features import DocumentFeatures, unit_rows

LENGTH = np.float32(0.5)
"""Length of the row of a name in training; documents have length 1. In a text, a name is one part among others: a
classifier has to find it there, and shorter rows give its words larger weights."""
_SEPARATORS = re.compile(r"[\W_]+")


def has_names(index: LabelIndex) -> bool:
    """Whether some label has a name other than its key, or alternative names."""
    table = index.table
    named = pc.or_(
        pc.not_equal(table["name"], table["key"]), pc.greater(pc.list_value_length(table["alternatives"]), 0)
    )
    return bool(pc.any(named).as_py())


def has_word_keys(index: LabelIndex, features: DocumentFeatures, runtime: Runtime) -> bool:
    """Whether at least half of the labels have a key with a word of the training texts, so that keys are names.

    Numbers, single letters, parts of codes such as p1265, and URIs are not words.
    """
    texts = pa.array([" ".join(_words(key)) for key in index.keys], pa.string())
    rows = features.only_words.transform(Dataset({"text": pa.chunked_array([texts])}), runtime)
    return bool(np.count_nonzero(np.diff(rows.indptr)) >= len(index) / 2)


def _words(key: str) -> list[str]:
    parts = [] if "://" in key else _SEPARATORS.split(key)
    return [part for part in parts if len(part) > 1 and part.isalpha()]


def name_texts(index: LabelIndex) -> pa.ChunkedArray:
    """(L,) the name and the alternative names of each label, separated by line ends; underscores become spaces."""
    others = pc.binary_join(index.table["alternatives"], "\n")
    return pc.replace_substring(pc.binary_join_element_wise(index.table["name"], others, "\n"), "_", " ")


class NameDocuments(NamedTuple):
    """Documents that consist of the names of a label each; labels whose names have no known word have none."""

    labels: NDArray[np.int64]  # (m,) the label of each document
    rows: Csr  # (m, D)
    width: int  # number of labels L

    @classmethod
    def of(
        cls,
        texts: pa.ChunkedArray,
        features: DocumentFeatures,
        documents: int,
        runtime: Runtime,
        progress: Progress = silent,
    ) -> tuple[NameDocuments, DocumentFeatures]:
        """The names of all labels, given by `name_texts`, and the features with all words that only occur in names.

        Existing features keep their idf, so that names do not change the weights of the words of `documents` texts.
        A word that occurs in names only gets the idf of a word that occurs in as many documents.
        """
        names, count = Dataset({"text": texts}), max(documents, len(texts))
        grown, rows = features.grown(names, count, runtime, progress, min_df=1)
        labels = np.flatnonzero(np.diff(rows.indptr))
        return cls(labels, sp.csr_array(rows[labels]), len(texts)), grown

    def matrix(self) -> Csr:
        """(m, L) the label of each document."""
        ends = np.arange(len(self.labels) + 1)
        ones = np.ones(len(self.labels), dtype=np.float32)
        return sp.csr_array((ones, self.labels, ends), shape=(len(self.labels), self.width))

    def by_label(self) -> Csr:
        """(L, D) the row of each label; empty if it has no document."""
        return sp.csr_array(self.matrix().T @ self.rows)


def with_names(features: Csr, names: Csr, weight: float, *, apart: bool = False) -> Csr:
    """(L, D) label features of unit length plus `weight` times the rows of names; empty features become names.

    With `apart`, names have columns of their own (L, D + E), because the features are not words.
    """
    factors = np.where(np.diff(features.indptr) > 0, np.float32(weight), np.float32(1.0))
    scaled = names.copy()
    scaled.data = names.data * np.repeat(factors, np.diff(names.indptr)).astype(np.float32)
    if apart:
        return joined(features, scaled)
    both = sp.csr_array(features + scaled, dtype=np.float32)
    both.eliminate_zeros()
    both.sort_indices()
    return unit_rows(both)
