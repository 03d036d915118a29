"""k-nearest neighbours: the labels of the most similar training documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Settings
from xmtc.core.explanation import Explanation
from xmtc.data.dataset import Csr, Dataset
from xmtc.linear.neighbours import InvertedIndex
from xmtc.linear.top_scores import best_of_rows, look_up_rows, only_allowed
from xmtc.metrics import ndcg
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.models.neighbour_vote import Ballots, Voters
from xmtc.models.update import Change
from xmtc.text.features import DocumentFeatures
from xmtc.text.tfidf import TextSettings

Nearest = tuple[NDArray[np.int32], NDArray[np.float32]]
"""(n, m) documents, −1 as padding, and their similarities."""
NEIGHBOURS = (5, 10, 20, 40, 80)
POWERS = (1.0, 2.0, 3.0, 5.0, 8.0)
INDEX_ARRAYS = ("indptr", "documents", "values")
HELD_OUT = 2000
"""Documents for choosing settings: enough to distinguish them."""


@dataclass(frozen=True)
class KnnSettings(Settings):
    """Settings of knn."""

    neighbours: int | Literal["auto"] = "auto"
    """Number of training documents that vote; 'auto' maximises nDCG@5 on held-out documents."""
    power: float | Literal["auto"] = "auto"
    """Exponent of the cosine similarity in the vote; larger values favour the nearest. 'auto' as for `neighbours`."""
    snippet: int = 120
    """Characters of each training text stored for explanations; 0 for none."""
    text: TextSettings = field(default_factory=lambda: TextSettings(idf="plain"))
    """Settings of the tf-idf features."""

    of = "knn"

    def check(self) -> None:
        if self.neighbours != "auto":
            self.require("neighbours", self.neighbours >= 1, "an integer ≥ 1, or auto")
        if self.power != "auto":
            self.require("power", self.power >= 0, "a number ≥ 0, or auto")
        self.require_range("snippet", 0)


class Knn(Model):
    """k-nearest neighbours by tf-idf cosine similarity.

    Exact search; votes are weighted by similarity. A score is the label's share of the vote. Documents with partial
    labels are searched separately: those at least as near as the last complete neighbour vote on their known labels.
    """

    name = "knn"
    Config = KnnSettings
    ablations: ClassVar = {"one-neighbour": {"neighbours": 1}, "equal-votes": {"power": 0.0}}
    capabilities = frozenset({"text", "features", "explain", "score_labels", "update"})
    _index: InvertedIndex
    """Documents with complete labels."""
    _partial: InvertedIndex | None
    """Documents with partial labels, in the same numbering; None if there are none."""

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        self._features, rows = DocumentFeatures.fit(train, self.config.text, run.runtime, run.progress)
        with run.progress.task("indexing", total=1) as task:
            self._index = InvertedIndex.build(rows if train.partial is None else _only(rows, ~train.partial))
            self._partial = None if train.partial is None else InvertedIndex.build(_only(rows, train.partial))
            task.advance()
        self._voters = Voters.of(train, self.config.snippet)
        self._choose(rows, train, valid, run)

    def _update(self, change: Change, run: FitContext) -> None:
        """Extend the index; the number of neighbours and the power are kept."""
        documents = change.documents_before + len(change.new)
        self._features, rows = self._features.grown(change.new, documents, run.runtime)
        before, partial = self._index, change.new.partial_rows()
        self._index = before.grown(rows if change.new.partial is None else _only(rows, ~partial))
        if self._partial is not None or change.new.partial is not None:
            self._partial = (self._partial or before.emptied()).grown(_only(rows, partial))
        self._voters = self._voters.joined(change.new, self.config.snippet, change.labels)

    def _choose(self, rows: Csr, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        """Choose the 'auto' settings on the validation set, or by leave-one-out on training documents."""
        neighbours = NEIGHBOURS if self.config.neighbours == "auto" else (self.config.neighbours,)
        powers = POWERS if self.config.power == "auto" else (self.config.power,)
        pairs = [(count, power) for count in neighbours for power in powers]
        if len(pairs) == 1:
            (self._neighbours, self._power), self.facts = pairs[0], {}
            return
        source = train if valid is None else valid
        complete = np.flatnonzero(~source.partial_rows())
        complete = complete if len(complete) else np.arange(len(source))
        chosen = np.sort(complete[np.random.default_rng(run.runtime.seed).permutation(len(complete))[:HELD_OUT]])
        queries = rows[chosen] if valid is None else self._features.transform(valid.take(chosen), run.runtime)
        assert source.labels is not None
        truth = source.labels[chosen]
        found, products = self._index.nearest(queries, max(neighbours) + 1, run.runtime.threads)
        if valid is None:
            itself = np.argsort(found == chosen[:, None], axis=1, kind="stable")  # the document itself comes last
            found = np.take_along_axis(found, itself, axis=1)[:, :-1]
            products = np.take_along_axis(products, itself, axis=1)[:, :-1]
        partial = None
        if self._partial is not None:
            partial = self._partial.nearest(queries, max(neighbours), run.runtime.threads)
        best = -1.0
        with run.progress.task("tuning neighbours and power", total=len(pairs)) as task:
            for count, power in pairs:
                voting = _with_partial(found[:, :count], products[:, :count], partial, count)
                ballots = self._ballots(*voting, power, len(self.label_counts))
                ranked, _ = best_of_rows(*ballots, 5)
                quality = ndcg(ranked, truth, 5)
                if quality > best:
                    best, self._neighbours, self._power = quality, count, power
                task.advance()
        found_out = {"neighbours": self._neighbours, "power": self._power}
        chosen_here = {name: value for name, value in found_out.items() if getattr(self.config, name) == "auto"}
        self.facts = {**chosen_here, "nDCG@5 held out": round(best, 4)}

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        ballots = self._votes(batch)
        return best_of_rows(*(ballots if allowed is None else only_allowed(*ballots, allowed)), k)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        return look_up_rows(*self._votes(batch), candidates)

    def _known_words(self, batch: Dataset) -> Mask | None:
        return self._features.known_words(batch, self.runtime)

    def _votes(self, batch: Dataset) -> Ballots:
        found, products = self._nearest(self._features.transform(batch, self.runtime))
        return self._ballots(found, products, self._power, len(self.labels))

    def _ballots(self, found: NDArray[np.int32], products: NDArray[np.float32], power: float, labels: int) -> Ballots:
        return self._voters.ballots(found, _weights(products, power), labels)

    def _nearest(self, rows: Csr) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        found, products = self._index.nearest(rows, self._neighbours, self.runtime.threads)
        if self._partial is None:
            return found, products
        partial = self._partial.nearest(rows, self._neighbours, self.runtime.threads)
        return _with_partial(found, products, partial, self._neighbours)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        rows = self._features.transform(Dataset(fields={"text": pa.chunked_array([[text]])}), self.runtime)
        found, similarities = self._nearest(rows)
        weights = _weights(similarities, self._power)
        evidence = self._voters.evidence(found[0], similarities[0], weights[0], label, self.labels)
        return Explanation("neighbours", text, self.labels.name(label), score, evidence)

    def _state(self) -> State:
        kept = self._features.state()
        kept.arrays.update(
            {
                "index.indptr": self._index.indptr,
                "index.documents": self._index.documents,
                "index.values": self._index.values,
            }
        )
        if self._partial is not None:
            kept.arrays.update({f"partial_index.{name}": getattr(self._partial, name) for name in INDEX_ARRAYS})
        kept.values.update(documents=self._index.size, neighbours=self._neighbours, power=self._power)
        voters = self._voters.state()
        kept.arrays.update(voters.arrays)
        kept.tables.update(voters.tables)
        return kept

    def _restore(self, state: SavedState) -> None:
        self._features = DocumentFeatures.from_state(self.config.text, state)
        self._voters = Voters.from_state(state, len(self.label_counts))
        size = state.value("documents", int, len(self._voters), len(self._voters) + 1)
        self._index = InvertedIndex.from_state(state.part("index."), self._features.width, size)
        partial = state.part("partial_index.")
        has_partial = partial.has("indptr")
        self._partial = InvertedIndex.from_state(partial, self._features.width, size) if has_partial else None
        self._neighbours, self._power = state.value("neighbours", int, 1), state.value("power", float, 0)


def _only(rows: Csr, chosen: NDArray[np.bool_]) -> Csr:
    """Rows in which only the chosen ones have entries."""
    counts = np.diff(rows.indptr)
    entries = np.repeat(chosen, counts)
    indptr = np.concatenate([[0], np.cumsum(np.where(chosen, counts, 0))])
    return sp.csr_array((rows.data[entries], rows.indices[entries], indptr), shape=rows.shape)


def _with_partial(
    found: NDArray[np.int32], products: NDArray[np.float32], partial: Nearest | None, count: int
) -> Nearest:
    """(n, 2m) neighbours and the partial ones that are at least as near as the last of them, nearest first."""
    if partial is None:
        return found, products
    others, theirs = partial[0][:, :count], partial[1][:, :count]
    near = (others >= 0) & (theirs >= products[:, -1:])  # 0 if there are fewer than m
    others, theirs = np.where(near, others, np.int32(-1)), np.where(near, theirs, np.float32(0.0))
    both, given = np.concatenate([found, others], axis=1), np.concatenate([products, theirs], axis=1)
    order = np.argsort(-given, axis=1, kind="stable")
    return np.take_along_axis(both, order, axis=1), np.take_along_axis(given, order, axis=1)


def _weights(products: NDArray[np.float32], power: float) -> NDArray[np.float32]:
    """(n, m) weights of neighbours: similarity to a power, relative to the nearest to avoid underflow."""
    nearest = np.maximum(products[:, :1], np.finfo(np.float32).tiny)
    shares: NDArray[np.float32] = (products / nearest).astype(np.float32)
    return shares ** np.float32(power)
