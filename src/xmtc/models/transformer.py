"""A fine-tuned pretrained transformer with a linear layer over all labels."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xmtc.core.explanation import TokenEvidence
from xmtc.data.dataset import text_column
from xmtc.models.attention_explain import AttendingModel
from xmtc.models.neural import NetworkSettings, UpdatableSettings
from xmtc.models.pretrained import PretrainedModel, attended_words
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.encoders.transformer import TransformerSettings
from xmtc.nn.neighbours.sentence_encoder import SentenceEncoder
from xmtc.nn.training.loop import TrainingSettings
from xmtc.text.sequences import FIRST_WORD
from xmtc.text.subwords import PieceReader, PieceSettings


@dataclass(frozen=True)
class TransformerModelSettings(UpdatableSettings, NetworkSettings):
    """Settings of transformer."""

    encoder: TransformerSettings = field(default_factory=TransformerSettings)
    """The pretrained encoder, and how it is fine-tuned."""
    text: PieceSettings = field(default_factory=PieceSettings)
    """Settings of the subword sequences."""
    frozen: bool = True
    """Freeze the subword embeddings."""
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(
            epochs=10, batch_size=32, learning_rate=1e-3, warmup_steps=200, decay_from=0.0
        )
    )
    """Training of the network."""

    of = "transformer"


class TransformerModel(AttendingModel, PretrainedModel):
    """Pretrained Hugging Face encoder, fine-tuned, with a linear head.

    BERT, RoBERTa, DistilBERT, MiniLM, MPNet, ELECTRA and similar encoders, read from a folder, with attention pooling.
    Saved models are self-contained.
    """

    name = "transformer"
    Config = TransformerModelSettings
    capabilities = frozenset({"text", "explain", "score_labels", "update"})
    less_memory = "Lower training.batch_size or text.max_tokens, or set encoder.checkpointing = true."
    ablations: ClassVar = {
        "frozen-encoder": {"encoder.rate": 0.0},
        "trained-pieces": {"frozen": False},
        "no-dropout": {"encoder.dropout": 0.0},
        "no-averaging": {"training.averaging": "none"},
    }

    @property
    def _pretrained(self) -> TransformerSettings:
        settings: TransformerSettings = self.config.encoder
        return settings

    def _encoder(self, width: int) -> Encoder:
        return self._transformer()

    def sentence_encoder(self, max_tokens: int) -> SentenceEncoder:
        """Its encoder for whole texts of up to this number of subwords: the mean of the last states."""
        network, backbone, reader = self._members[0].network, self._backbone, self._reader
        assert backbone is not None
        own = PieceReader(reader.content, min(max_tokens, reader.max_tokens), reader.pieces)
        words = network.table.detach()[FIRST_WORD:].clone()
        return SentenceEncoder(backbone, deepcopy(network.encoder.pretrained), words, own, "mean", self.runtime)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, d) mean of the encoder's states over the subwords of each text, scaled to unit length."""
        return self.sentence_encoder(self.config.text.max_tokens).embed(text_column(texts))

    def _attended(self, text: str, shares: Sequence[float]) -> tuple[TokenEvidence, ...]:
        """Words with the attention weights of their subwords, largest first."""
        return attended_words(self._reader, text, shares)
