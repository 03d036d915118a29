"""Vectors of texts as dense columns of their feature rows: from a pretrained encoder, or means of word vectors.

Importing this module does not load PyTorch: word vectors do not need it.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Settings
from xmtc.core.errors import ModelFormatError, missing_extra, shown
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.nn.neighbours.word_means import WordMeans
from xmtc.text.cache import vectors_of

if TYPE_CHECKING:
    from xmtc.nn.neighbours.sentence_encoder import SentenceEncoder

Embedder: TypeAlias = "WordMeans | SentenceEncoder"
Vectors = NDArray[np.float32]
DENSE = "dense"
"""Name of the values in a model's state, and prefix of the arrays."""
WORDS, ENCODER = "words", "encoder"
"""Kinds of sources in a model's state."""
ENCODER_WEIGHT, WORD_WEIGHT = 0.7, 0.25
"""Default weights of vectors of an encoder and of word vectors."""
MOST_WEIGHT = 100.0


@dataclass(frozen=True)
class DenseSettings(Settings):
    """Vectors of texts as features in addition to tf-idf."""

    source: str = ""
    """Source of text vectors: folder of a pretrained encoder, of a transformer model, or word vectors; '' for none."""
    weight: float | Literal["auto"] = "auto"
    """Length of the text vector, where that of the tf-idf row is 1; 'auto' is 0.7, and 0.25 for word vectors."""
    max_tokens: int = 256
    """Maximum number of subwords per text that an encoder reads; the rest is cut off."""

    of = "dense"

    def check(self) -> None:
        if self.weight != "auto":
            self.require("weight", 0 < self.weight <= MOST_WEIGHT, f"a number > 0 and ≤ {MOST_WEIGHT:g}, or auto")
        self.require_range("max_tokens", 1, 1_000_000)


class TextVectors:
    """Vectors of texts of a given length; implements `DenseColumns`."""

    def __init__(self, embedder: Embedder, weight: float) -> None:
        self._embedder, self.weight = embedder, weight

    @classmethod
    def of_settings(cls, embedder: Embedder, settings: DenseSettings) -> TextVectors:
        """Vectors with the weight of the settings."""
        usual = WORD_WEIGHT if isinstance(embedder, WordMeans) else ENCODER_WEIGHT
        return cls(embedder, usual if settings.weight == "auto" else settings.weight)

    @property
    def width(self) -> int:
        """Dimension of the vectors."""
        return self._embedder.width

    def of(self, texts: pa.ChunkedArray, runtime: Runtime, progress: Progress = silent) -> Vectors:
        """(n, d) vectors of length `weight`; zero for texts without a known word. Those of an encoder are cached."""
        if isinstance(self._embedder, WordMeans):
            return self._embedder.embed(texts, runtime.threads) * np.float32(self.weight)
        encoder = self._embedder
        vectors = vectors_of(texts, lambda: self._fingerprint, lambda part: encoder.embed(part, progress), runtime)
        return vectors * np.float32(self.weight)

    @cached_property
    def _fingerprint(self) -> str:
        assert not isinstance(self._embedder, WordMeans)
        return self._embedder.fingerprint()

    def state(self) -> State:
        """The state to save: the encoder or the word vectors, so that the source is not needed any more."""
        own = self._embedder.state()
        kind = WORDS if isinstance(self._embedder, WordMeans) else ENCODER
        values = {DENSE: {**own.values, "kind": kind, "width": self.width, "weight": float(self.weight)}}
        return State(values, {f"{DENSE}.{name}": array for name, array in own.arrays.items()}, own.tables)

    @classmethod
    def restored(cls, state: SavedState, runtime: Runtime) -> TextVectors | None:
        """Restore from the state of a model; None if it has no text vectors."""
        if not state.has_value(DENSE):
            return None
        own = state.nested(state.value(DENSE, dict), f"{DENSE}.", "")
        width, kind = own.value("width", int, 1, 1 << 20), own.value("kind", str)
        weight = own.value("weight", float, 0, 2 * MOST_WEIGHT)
        if kind not in (WORDS, ENCODER):
            raise ModelFormatError(f"value 'kind' is '{shown(kind)}'. Copy or train the model again.")
        if kind == WORDS:
            return cls(WordMeans.from_state(own, width), weight)
        made = cls(sentence_encoder_class().from_state(own, runtime), weight)
        if made.width != width:
            raise ModelFormatError(f"value 'width' is {width:,}, expected {made.width:,}. Train the model again.")
        return made


def embedded(embedder: Embedder, texts: pa.ChunkedArray, runtime: Runtime) -> Vectors:
    """(n, d) unit vectors of texts."""
    return embedder.embed(texts, runtime.threads) if isinstance(embedder, WordMeans) else embedder.embed(texts)


def sentence_encoder_class() -> type[SentenceEncoder]:
    """The class of pretrained encoders, which needs PyTorch and transformers."""
    if importlib.util.find_spec("torch") is None:
        raise missing_extra("a pretrained encoder needs PyTorch and transformers", "transformers")
    from xmtc.nn.neighbours.sentence_encoder import SentenceEncoder

    return SentenceEncoder
