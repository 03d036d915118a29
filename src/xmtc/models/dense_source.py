"""Where the text vectors of linear models come from: an encoder, a trained transformer model, or word vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from xmtc.artifact import store
from xmtc.core.encoders import encoder_folder
from xmtc.core.errors import DataError, UnsupportedError
from xmtc.data.dataset import Dataset
from xmtc.models.context import FitContext
from xmtc.models.persistence import StoredModel
from xmtc.nn.neighbours.text_vectors import DenseSettings, TextVectors, sentence_encoder_class
from xmtc.nn.neighbours.word_means import WordMeans

if TYPE_CHECKING:
    from xmtc.nn.neighbours.sentence_encoder import SentenceEncoder


@runtime_checkable
class HasEncoder(Protocol):
    """A model that can hand over its encoder."""

    def sentence_encoder(self, max_tokens: int) -> SentenceEncoder:
        """Its encoder, which reads up to this number of subwords, as one for whole texts."""


def read_text_vectors(settings: DenseSettings, train: Dataset, run: FitContext) -> TextVectors | None:
    """The text vectors that the settings describe; None if they have no source."""
    if not settings.source:
        return None
    if not train.has_text:
        raise UnsupportedError("dense features need texts. Train on texts, or leave out dense.source.")
    place = encoder_folder(settings.source)
    if place.is_file():
        words = WordMeans.fit(train.text(), None, place, 0, run.runtime, run.progress)
        return TextVectors.of_settings(words, settings)
    if not place.is_dir():
        remedy = "Pass a folder or a file of word vectors, or the name of an encoder; list them with: xmtc doctor"
        raise DataError(f"{place}: does not exist. {remedy}")
    if store.is_model(place):
        return TextVectors.of_settings(_trained_encoder(place, settings.max_tokens, run), settings)
    encoder = sentence_encoder_class().read(place, settings.max_tokens, run.runtime, run.progress)
    return TextVectors.of_settings(encoder, settings)


def _trained_encoder(folder: Path, max_tokens: int, run: FitContext) -> SentenceEncoder:
    """The encoder of a trained model."""
    sentence_encoder_class()  # the hint to install it comes first
    with run.progress.task("loading the encoder", total=1) as task:
        model = StoredModel.load(folder, run.runtime)
        task.advance()
    if not isinstance(model, HasEncoder):
        raise UnsupportedError(f"{folder}: the model {model.name} has no encoder for texts. Use a transformer model.")
    return model.sentence_encoder(max_tokens)
