"""Neural models exported to ONNX: predictions without PyTorch."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Settings
from xmtc.core.errors import UnsupportedError
from xmtc.data.dataset import Dataset
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.onnx.graph import OnnxExport, OnnxGraph
from xmtc.onnx.session import OnnxSession
from xmtc.text.sequences import SequenceSettings, WordSequences
from xmtc.text.subwords import PieceReader, PieceSettings

VALUES_PER_LABEL = "values_per_label"
"""Name of a value in a model folder."""


@dataclass(frozen=True)
class OnnxSettings(Settings):
    """Settings of onnx: where the graph comes from, and how texts are read."""

    exported: str = ""
    """The model that was exported."""
    int8: bool = False
    """Whether the weights are 8-bit integers."""
    reads: Literal["words", "subwords"] = "words"
    """Read texts as words or as subwords."""
    words: SequenceSettings = field(default_factory=SequenceSettings)
    """Settings of the word sequences."""
    subwords: PieceSettings = field(default_factory=PieceSettings)
    """Settings of the subword sequences."""

    of = "onnx"


class OnnxModel(Model):
    """A neural model exported to ONNX.

    `xmtc export` writes it. It predicts with onnxruntime, without PyTorch, and has the labels, the calibration and the
    thresholds of the model that it was exported from.
    """

    name = "onnx"
    Config = OnnxSettings
    capabilities = frozenset({"text", "score_labels"})
    _reader: WordSequences | PieceReader
    _graph: OnnxGraph
    _values_per_label: int
    _session: OnnxSession

    @classmethod
    def of(cls, source: Model, export: OnnxExport) -> OnnxModel:
        """The exported `source`, without its calibration."""
        reader, how = export.reader, {"exported": source.name}
        if isinstance(reader, WordSequences):
            made = cls(**how, words=vars(reader.settings))
        else:
            made = cls(**how, reads="subwords", subwords={"max_tokens": reader.max_tokens})
        made.runtime, made._labels, made.label_counts = source.runtime, source.labels, source.label_counts
        made.training, made.facts, made.history = dict(source.training), dict(source.facts), list(source.history)
        made._reader, made._values_per_label = reader, export.values_per_label
        made._load(export.graph)
        return made

    def quantised(self) -> OnnxModel:
        """The same model with 8-bit weights."""
        made = copy.copy(self)
        made.config = replace(self.config, int8=True)
        made._load(self._graph.quantised())
        return made

    @property
    def graph(self) -> OnnxGraph:
        """The graph, with its weights."""
        return self._graph

    def _load(self, graph: OnnxGraph) -> None:
        labels, words = len(self.label_counts), self._reader.size
        self._graph = graph
        self._session = OnnxSession(graph, labels, words, self._values_per_label, self.runtime.threads)

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        raise UnsupportedError("onnx cannot be trained. Train a neural model, then: xmtc export DIR --onnx OUT")

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        found = np.full((len(batch), k), -1, dtype=np.int64)
        given = np.full((len(batch), k), -np.inf, dtype=np.float32)
        for rows, scores in self._session.scores(self._reader.encode(batch, self.runtime)):
            if allowed is not None:
                scores = np.where(allowed, scores, np.float32(-np.inf))
            found[rows], given[rows] = _best(scores, k)
        found[np.isneginf(given)] = -1
        return found, given

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        given = np.empty(candidates.shape, dtype=np.float32)
        for rows, scores in self._session.scores(self._reader.encode(batch, self.runtime)):
            given[rows] = np.take_along_axis(scores, np.maximum(candidates[rows], 0), axis=1)
        return given

    def _known_words(self, batch: Dataset) -> Mask | None:
        return self._reader.known_words(batch, self.runtime)

    def _state(self) -> State:
        state, graph = self._reader.state(), self._graph.state()
        state.arrays |= graph.arrays
        state.values[VALUES_PER_LABEL] = self._values_per_label
        return state

    def _restore(self, state: SavedState) -> None:
        if self.config.reads == "words":
            self._reader = WordSequences.from_state(self.config.words, state)
        else:
            self._reader = PieceReader.from_state(self.config.subwords.max_tokens, state)
        self._values_per_label = state.value(VALUES_PER_LABEL, int, low=0, high=1 << 20)
        self._load(OnnxGraph.from_state(state))


def _best(scores: Scores, k: int) -> tuple[Labels, Scores]:
    """(B, k) labels with the highest scores (B, L), best first; ties are ordered by label number.

    The bits of non-negative floats, read as integers, sort like the floats; −∞ comes last.
    """
    bits = np.where(scores < 0, -1, np.ascontiguousarray(scores).view(np.int32)).astype(np.int64)
    order = np.arange(scores.shape[1]) - (bits << 32)  # (B, L) ascending: best first
    best = np.argpartition(order, min(k, scores.shape[1]) - 1, axis=1)[:, :k]
    best = np.take_along_axis(best, np.argsort(np.take_along_axis(order, best, axis=1), axis=1), axis=1)
    return best.astype(np.int64), np.take_along_axis(scores, best, axis=1)
