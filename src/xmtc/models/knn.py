"""Nearest neighbours: a document gets the labels of the training documents most like it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.config import Settings
from xmtc.dataset import Csr, Dataset
from xmtc.explanation import Explanation, NeighbourEvidence
from xmtc.linear.neighbours import InvertedIndex, vote
from xmtc.linear.select import best_of_rows, look_up_rows
from xmtc.models.base import Labels, Model, Run, Scores
from xmtc.store import State
from xmtc.text.features import DocumentFeatures
from xmtc.text.tfidf import TextSettings


@dataclass(frozen=True)
class KnnSettings(Settings):
    """Settings of knn."""

    neighbours: int = 20
    """How many training documents vote."""
    power: float = 3.0
    """A neighbour's vote is its cosine similarity to this power: higher listens more to the nearest."""
    snippet: int = 120
    """Characters kept of each training text to show as evidence; 0 keeps none."""
    text: TextSettings = field(default_factory=TextSettings)
    """How text becomes features."""

    of = "knn"

    def check(self) -> None:
        self.require_range("neighbours", 1)
        self.require_range("power", 0)
        self.require_range("snippet", 0)


class Knn(Model):
    """tf-idf neighbours by exact cosine similarity, votes weighted by similarity; a score is a share of the vote."""

    name = "knn"
    Config = KnnSettings
    can = frozenset({"text", "features", "explain", "score"})

    def _fit(self, train: Dataset, valid: Dataset | None, run: Run) -> None:
        self._features, rows = DocumentFeatures.fit(train, self.config.text, run.runtime, run.progress)
        with run.progress.task("indexing", total=1) as task:
            self._index = InvertedIndex.build(rows)
            task.advance()
        assert train.labels is not None
        self._label_indptr = train.labels.indptr.astype(np.int64)
        self._label_indices = train.labels.indices.astype(np.int32)
        self._documents = self._document_table(train)

    def _document_table(self, train: Dataset) -> pa.Table:
        ids = pa.array(train.document_ids(), pa.string())
        if not train.has_text or self.config.snippet == 0:
            return pa.table({"id": ids, "snippet": pa.array([""] * len(train), pa.string())})
        starts = pc.utf8_slice_codeunits(train.text(), 0, self.config.snippet)
        return pa.table({"id": ids, "snippet": starts})

    def _predict(self, batch: Dataset, k: int) -> tuple[Labels, Scores]:
        return best_of_rows(*self._votes(batch), k)

    def _score(self, batch: Dataset, candidates: Labels) -> Scores:
        return look_up_rows(*self._votes(batch), candidates)

    def _votes(self, batch: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        found, similarities = self._nearest(self._features.transform(batch, self.runtime))
        weights = similarities ** np.float32(self.config.power)
        return vote(found, weights, self._label_indptr, self._label_indices, len(self.labels))

    def _nearest(self, rows: Csr) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        return self._index.nearest(rows, self.config.neighbours, self.runtime.threads)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        rows = self._features.transform(Dataset(fields={"text": pa.chunked_array([[text]])}), self.runtime)
        found, similarities = self._nearest(rows)
        evidence = []
        for document, similarity in zip(found[0].tolist(), similarities[0].tolist(), strict=True):
            if document < 0:
                continue
            held = self._label_indices[self._label_indptr[document] : self._label_indptr[document + 1]]
            row: dict[str, Any] = self._documents.slice(document, 1).to_pylist()[0]
            names = tuple(self.labels.strings("name", held))
            evidence.append(NeighbourEvidence(row["id"], row["snippet"], similarity, label in held, names))
        return Explanation("neighbours", text, self.labels.name(label), score, tuple(evidence))

    def _state(self) -> State:
        kept = self._features.state()
        kept.arrays.update(
            {
                "index.indptr": self._index.indptr,
                "index.documents": self._index.documents,
                "index.values": self._index.values,
                "label_indptr": self._label_indptr,
                "label_indices": self._label_indices,
            }
        )
        kept.values["documents"] = self._index.size
        kept.tables["documents"] = self._documents
        return kept

    def _restore(self, state: State) -> None:
        self._features = DocumentFeatures.from_state(self.config.text, state)
        arrays = state.arrays
        self._index = InvertedIndex(
            arrays["index.indptr"], arrays["index.documents"], arrays["index.values"], int(state.values["documents"])
        )
        self._label_indptr, self._label_indices = arrays["label_indptr"], arrays["label_indices"]
        self._documents = state.tables["documents"]
