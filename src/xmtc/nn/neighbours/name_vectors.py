"""Semantic match of texts and label names: both as vectors of an encoder or of word vectors, nearest names first.

Importing this module does not load PyTorch: word vectors do not need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Settings
from xmtc.core.encoders import encoder_folder
from xmtc.core.errors import ConfigError, ModelFormatError
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.core.string_table import number_strings
from xmtc.data.dataset import text_column
from xmtc.data.label_index import LabelIndex
from xmtc.labels.layout import unit_rows
from xmtc.nn.neighbours.code_index import CodeIndex, concatenated
from xmtc.nn.neighbours.text_vectors import Embedder, embedded, sentence_encoder_class
from xmtc.nn.neighbours.word_means import WordMeans

PREFIX = "name_vectors."
"""Prefix of the arrays in a model's state."""
VALUES, CENTRES = "name_vectors", "text_centres"
"""Names of the values and of the means of texts in a model's state."""
SAMPLE = 512
"""Number of training texts that determine the mean."""
NAMES, TEXTS = 1 << 14, 1 << 10
"""Names and texts to embed at a time."""
START = 400
"""Maximum number of characters of the start of a text."""
_SENTENCE = re.compile(r"(?<=[^\W\d_]{3}[.!?])\s")
"""End of a sentence; shorter words before a full stop are abbreviations."""

Vectors = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class NameEncoderSettings(Settings):
    """A pretrained sentence encoder for names and texts; it is not trained further."""

    path: str = ""
    """Folder of the pretrained encoder: config.json, tokenizer.json and safetensors weights; '' for none."""
    max_tokens: int = 256
    """Maximum number of subwords per text; the rest is cut off."""

    of = "encoder"

    def check(self) -> None:
        self.require_range("max_tokens", 1, 1_000_000)


@dataclass(frozen=True)
class NameVectorSettings(Settings):
    """Vectors of label names and texts: from a file of word vectors, or from a pretrained encoder."""

    word_vectors: str = ""
    """File of word vectors (GloVe or word2vec text, word2vec binary, .npy with a vocabulary); '' for none."""
    encoder: NameEncoderSettings = field(default_factory=NameEncoderSettings)
    """Pretrained sentence encoder."""
    views: Literal["both", "start", "whole"] = "both"
    """Part of a text to compare: its first line or sentence, the whole, or both, of which the nearer counts."""
    common_components: int = 4
    """Number of components that names have in common, which are removed from all vectors; 0 removes none."""

    of = "name vectors"

    def check(self) -> None:
        self.require_range("common_components", 0, 1000)
        self.require("word_vectors", not (self.word_vectors and self.encoder.path), "'' with an encoder")

    @property
    def view_count(self) -> int:
        """Number of vectors per text."""
        return 2 if self.views == "both" else 1

    @property
    def is_used(self) -> bool:
        """Whether there is a source of vectors."""
        return bool(self.word_vectors or self.encoder.path)


class NameVectors:
    """The names of labels as vectors, and what turns texts into vectors."""

    def __init__(
        self,
        embedder: Embedder,
        index: CodeIndex,
        settings: NameVectorSettings,
        runtime: Runtime,
        centres: Vectors | None = None,
    ) -> None:
        self._embedder, self.index, self._settings, self._runtime = embedder, index, settings, runtime
        self._centres = np.zeros((settings.view_count, embedder.width), np.float32) if centres is None else centres

    @classmethod
    def fit(
        cls,
        labels: LabelIndex,
        settings: NameVectorSettings,
        runtime: Runtime,
        progress: Progress = silent,
        texts: pa.ChunkedArray | None = None,
    ) -> NameVectors:
        """Embed the preferred and alternative names of all labels.

        Training texts improve the match considerably. With word vectors, their words get a vector and idf weights;
        without them, only words of names are known. With an encoder, the mean vector of a sample is subtracted from
        texts, so that names which are near to all texts do not come first.
        """
        strings, owners = label_names(labels)
        names = pa.chunked_array([strings.take(pa.array(number_strings(strings)[1]))])
        if settings.encoder.path:
            folder = encoder_folder(settings.encoder.path)
            encoder = sentence_encoder_class().read(folder, settings.encoder.max_tokens, runtime, progress)
            encoder.remove_common(names, settings.common_components)
            embedder: Embedder = encoder
        elif settings.word_vectors:
            given = Path(settings.word_vectors), settings.common_components
            embedder = WordMeans.fit(names, texts, *given, runtime, progress)
        else:
            raise ConfigError(f"{settings.of} need a source. Give word_vectors or encoder.path.")

        made = cls._indexed(embedder, strings, owners, len(labels), settings, runtime, progress)
        if settings.encoder.path and texts is not None and len(texts):
            chosen = np.linspace(0, len(texts) - 1, min(len(texts), SAMPLE)).astype(np.int64)
            with progress.task("embedding texts", 1) as task:
                made._centres = made.embed(texts.take(pa.array(chosen))).mean(axis=0)
                task.advance()
        return made

    @classmethod
    def _indexed(
        cls,
        embedder: Embedder,
        strings: pa.Array,
        owners: NDArray[np.int32],
        labels: int,
        settings: NameVectorSettings,
        runtime: Runtime,
        progress: Progress,
    ) -> NameVectors:
        """Embed names and index them by label."""
        numbers, first = number_strings(strings)  # a name of several labels is embedded once
        names = pa.chunked_array([strings.take(pa.array(first))])

        def parts() -> Iterator[Vectors]:
            with progress.task("embedding label names", len(names)) as task:
                for low in range(0, len(names), NAMES):
                    part = names.slice(low, NAMES)
                    yield embedded(embedder, part, runtime)
                    task.advance(len(part))

        rows = concatenated(parts(), len(names), embedder.width)
        known = np.flatnonzero(rows.scales[numbers] > 0)
        whole = rows.take(numbers[known])
        options: dict[str, Any] = {"seed": runtime.seed, "threads": runtime.threads, "progress": progress}
        return cls(embedder, CodeIndex.build(whole, owners[known], labels, **options), settings, runtime)

    def renewed(self, labels: LabelIndex, runtime: Runtime, progress: Progress = silent) -> NameVectors:
        """Index the names of other labels with the same encoder or word vectors."""
        made = self._indexed(self._embedder, *label_names(labels), len(labels), self._settings, runtime, progress)
        made._centres = self._centres
        return made

    def embed(self, texts: pa.ChunkedArray | Sequence[str]) -> Vectors:
        """(n, v, d) unit vectors of each text: of its start, of the whole, or both. Both searches accept them."""
        column = text_column(texts)
        views = [] if self._settings.views == "start" else [column]
        if self._settings.views != "whole":
            views.append(text_column([text_start(text) for text in column.to_pylist()]))
        vectors = np.stack([embedded(self._embedder, view, self._runtime) for view in views], axis=1)
        if self._centres.any():
            known = vectors.any(axis=2, keepdims=True)
            flat = np.where(known, vectors - self._centres, np.float32(0)).reshape(-1, vectors.shape[2])
            vectors = unit_rows(flat).reshape(vectors.shape)
        return vectors

    def search(
        self, texts: pa.ChunkedArray | Sequence[str] | Vectors, k: int, allowed: Mask | None = None
    ) -> tuple[NDArray[np.int64], Vectors]:
        """(n, k) labels whose names are nearest to each text, and the cosines, nearest first; −1 and 0 as padding.

        `allowed` (L,) restricts the labels. Texts without a known word match nothing.
        """
        queries = self._queries(texts)
        parts = [self.index.nearest(part, k, allowed) for part in queries]
        empty = np.zeros((0, k), dtype=np.int64), np.zeros((0, k), dtype=np.float32)
        labels, cosines = (np.concatenate(column) for column in zip(empty, *parts, strict=True))
        return labels, cosines

    def score(self, texts: pa.ChunkedArray | Sequence[str] | Vectors, candidates: NDArray[np.integer[Any]]) -> Vectors:
        """(n, c) cosine of each text with the nearest name of each candidate label; 0 for −1 and unknown names."""
        low, parts = 0, [np.zeros((0, candidates.shape[1]), dtype=np.float32)]
        for part in self._queries(texts):
            parts.append(self.index.scores(part, candidates[low : low + len(part)]))
            low += len(part)
        return np.concatenate(parts)

    def _queries(self, texts: pa.ChunkedArray | Sequence[str] | Vectors) -> Iterator[Vectors]:
        """Vectors of texts, a part at a time."""
        if isinstance(texts, np.ndarray):
            yield texts
            return
        column = text_column(texts)
        for low in range(0, len(column), TEXTS):
            yield self.embed(column.slice(low, TEXTS))

    def state(self) -> State:
        """The state to save; its names do not collide with those of other parts of a model."""
        state = self._embedder.state()
        own = {**state.arrays, **self.index.arrays(), CENTRES: self._centres}
        arrays = {PREFIX + name: part for name, part in own.items()}
        return State({VALUES: {**state.values, "width": self._embedder.width}}, arrays, state.tables)

    @classmethod
    def restored(cls, state: SavedState, labels: int, settings: NameVectorSettings, runtime: Runtime) -> NameVectors:
        """Restore from the state of a model with this number of labels."""
        own = state.nested(state.value(VALUES, dict), PREFIX, "")
        width = own.value("width", int, 1, 1 << 20)
        if settings.encoder.path:
            embedder: Embedder = sentence_encoder_class().from_state(own, runtime)
        else:
            embedder = WordMeans.from_state(own, width)
        if embedder.width != width:
            raise ModelFormatError(f"value 'width' is {width:,}, expected {embedder.width:,}. Train the model again.")
        centres = own.array(CENTRES, np.float32, (settings.view_count, width))
        index = CodeIndex.from_state(own, width, labels, runtime.threads)
        return cls(embedder, index, settings, runtime, centres)


def label_names(labels: LabelIndex) -> tuple[pa.Array, NDArray[np.int32]]:
    """The distinct preferred and alternative names of each label without empty ones, and the label of each."""
    alternatives = labels.table["alternatives"].combine_chunks()
    names = pa.concat_arrays([labels.table["name"].combine_chunks(), alternatives.flatten()])
    own = np.concatenate([np.arange(len(labels)), np.asarray(pc.list_parent_indices(alternatives), dtype=np.int64)])
    numbers, first = number_strings(names)
    keys = own * (len(first) + 1) + numbers
    _, places = np.unique(keys, return_index=True)
    places = places[np.asarray(pc.utf8_length(names))[places] > 0]
    return names.take(pa.array(places)), own[places].astype(np.int32)


def text_start(text: str) -> str:
    """The first line of a text, which often is its title; the first sentence of a text on a single line."""
    line, end, _ = text.lstrip()[:START].partition("\n")
    return line if end else _SENTENCE.split(line, maxsplit=1)[0]
