"""Models with a pretrained encoder: its tokeniser reads the text, and its subword embeddings are the word table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.encoders import encoder_folder
from xmtc.core.errors import ConfigError, DataError
from xmtc.core.explanation import TokenEvidence
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.models.context import FitContext
from xmtc.models.neural import NeuralModel
from xmtc.nn.documents import DocumentReader
from xmtc.nn.encoders.transformer import PRETRAINED, Backbone, Transformer, TransformerSettings, layer_rates
from xmtc.nn.members import MemberSpec, TrainingData
from xmtc.nn.network import TABLE
from xmtc.nn.training.optimisers import Adam
from xmtc.nn.word_table import Table
from xmtc.text.subwords import PieceReader
from xmtc.text.weighted_bags import Numbered

ENCODER = "encoder"
"""Name of the value in a model folder with the encoder's configuration."""


class PretrainedModel(NeuralModel):
    """Reads subwords if `_pretrained` specifies an encoder, otherwise words like its base classes.

    The saved model is self-contained: the encoder's folder is not needed for predictions and updates.
    """

    _backbone: Backbone | None = None
    _windows = 1
    """Maximum number of windows in which the encoder reads a text."""

    @property
    @abstractmethod
    def _pretrained(self) -> TransformerSettings | None:
        """Settings of the pretrained encoder; None if the model uses another kind of encoder."""

    def _transformer(self) -> Transformer:
        """A new encoder with the pretrained weights."""
        assert self._pretrained is not None
        assert self._backbone is not None
        return Transformer(self._backbone.module(), self._pretrained)

    def _fit_reader(self, train: Dataset, run: FitContext) -> tuple[DocumentReader, Numbered]:
        settings = self._pretrained
        if settings is None:
            return super()._fit_reader(train, run)
        if not settings.path:
            raise ConfigError(f"'path' of {settings.of} must be the folder of a pretrained encoder. Got ''.")
        folder, most = encoder_folder(settings.path), self.config.text.max_tokens
        with run.progress.task("loading the encoder", total=1) as task:
            self._backbone = Backbone.read(folder)
            task.advance()
        self._backbone.check(settings)
        positions = self._backbone.positions
        if positions is not None and most > positions * self._windows:
            limit = f"{positions * self._windows:,}, the limit of {folder}"
            raise ConfigError(f"'max_tokens' of text must be ≤ {limit}. Got {most:,}.")
        try:
            content = (folder / "tokenizer.json").read_text(encoding="utf-8")
        except (OSError, ValueError):
            raise DataError(f"{folder / 'tokenizer.json'}: cannot be read. Copy the folder again.") from None
        reader = PieceReader(content, most, self._backbone.pieces)
        return reader, reader.encode(train, run.runtime, run.progress)

    def _initial_table(self, numbered: Numbered, run: FitContext) -> tuple[Table, dict[str, Any]]:
        if self._pretrained is None:
            return super()._initial_table(numbered, run)
        assert self._backbone is not None
        return self._backbone.table(), {"encoder": self._backbone.words()}

    def _conclude(self, numbered: Numbered, data: TrainingData, run: FitContext) -> None:
        super()._conclude(numbered, data, run)
        if self._backbone is not None:
            self._backbone = self._backbone.without_weights()  # the members have them

    def _spec(self, runtime: Runtime) -> MemberSpec:
        """Pretrained weights have their own learning rate."""
        spec, settings = super()._spec(runtime), self._pretrained
        if settings is None:
            return spec

        def optimiser(parameters: Mapping[str, Tensor], rows: frozenset[str]) -> Adam:
            pretrained = [name for name in parameters if name == TABLE or PRETRAINED in name.split(".")]
            return Adam(parameters, rows, layer_rates(pretrained, settings))

        return replace(spec, optimiser=optimiser)

    def _state(self) -> State:
        state = super()._state()
        if self._backbone is not None:
            state.values[ENCODER] = self._backbone.config
        return state

    def _restored_reader(self, state: SavedState) -> DocumentReader:
        if self._pretrained is None:
            return super()._restored_reader(state)
        self._backbone = Backbone.restored(state.value(ENCODER, dict))
        return PieceReader.from_state(self.config.text.max_tokens, state)


def attended_words(reader: PieceReader, text: str, shares: Sequence[float]) -> tuple[TokenEvidence, ...]:
    """Words with the attention weights of their subwords, largest first.

    Start and end markers are not words: their weights are left out, and the others are rescaled to sum to 1.
    """
    found = reader.by_word(text, shares)
    total = sum(share for _, _, share in found) or 1.0
    evidence = [TokenEvidence(text[start:end], start, end, share / total) for start, end, share in found]
    return tuple(sorted(evidence, key=lambda item: (-item.weight, item.start)))
