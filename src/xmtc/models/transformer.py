"""A fine-tuned pretrained transformer with a linear layer over all labels."""

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
    capabilities = frozenset({"text", "explain", "score_labels", "update", "export"})
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
        """Words with the attention weights of their subwords, largest first."""
        return attended_words(self._reader, text, shares)
