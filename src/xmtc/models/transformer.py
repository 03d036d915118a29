"""A pretrained transformer, fine-tuned, with a linear layer over all labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from xmtc.core.explanation import TokenEvidence
from xmtc.models.attention_explain import AttendingModel
from xmtc.models.neural import NetworkSettings, UpdatableSettings
from xmtc.models.pretrained import PretrainedModel, attended_words
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.encoders.transformer import TransformerSettings
from xmtc.nn.training.loop import TrainingSettings
from xmtc.text.subwords import PieceSettings


@dataclass(frozen=True)
class TransformerModelSettings(UpdatableSettings, NetworkSettings):
    """Settings of transformer."""

    encoder: TransformerSettings = field(default_factory=TransformerSettings)
    """The pretrained encoder, and how it is tuned."""
    text: PieceSettings = field(default_factory=PieceSettings)
    """How text becomes a sequence of pieces of words."""
    frozen: bool = True
    """Keep the vectors of word pieces as they are."""
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(
            epochs=10, batch_size=32, learning_rate=1e-3, warmup_steps=200, decay_from=0.0
        )
    )
    """How the network is trained."""

    of = "transformer"


class TransformerModel(AttendingModel, PretrainedModel):
    """A pretrained encoder in the form of Hugging Face, its states averaged by attention, all labels.

    BERT, RoBERTa, DistilBERT, MiniLM, MPNet, ELECTRA and their like, from a folder, which a saved model needs no more.
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

    def _attended(self, text: str, shares: Sequence[float]) -> tuple[TokenEvidence, ...]:
        """Words, whose pieces are what is read."""
        return attended_words(self._reader, text, shares)
