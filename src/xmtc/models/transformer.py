"""A fine-tuned pretrained transformer with label attention, or with a linear layer over a document vector."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.core.config import Choices, Settings
from xmtc.core.explanation import Explanation, TokenEvidence
from xmtc.data.dataset import text_column
from xmtc.models.attention_explain import AttendingModel
from xmtc.models.neural import CORRELATION_ABLATIONS, NetworkSettings, UpdatableSettings
from xmtc.models.pretrained import PretrainedModel, attended_words
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.encoders.transformer import FirstStates, Transformer, TransformerSettings, TransformerStates
from xmtc.nn.heads.base import Head, LinearHead
from xmtc.nn.heads.correlation import CorrelationSettings
from xmtc.nn.heads.label_outputs import LabelOutputs
from xmtc.nn.neighbours.sentence_encoder import SentenceEncoder
from xmtc.nn.training.loop import TrainingSettings
from xmtc.text.sequences import FIRST_WORD
from xmtc.text.subwords import PieceReader, PieceSettings


@dataclass(frozen=True)
class TransformerHeadSettings(Settings):
    """The output layer."""

    kind: Literal["label_attention", "first_states", "pooled"] = "label_attention"
    """Attention and output of each label ('label_attention'), or a linear layer over the states of the first subword
    after the last layers ('first_states') or over a vector from attention pooling ('pooled')."""
    last_layers: Annotated[int, Choices(1, 5)] = 5
    """Number of layers whose first states are concatenated, with `kind = "first_states"`."""

    of = "head"

    def check(self) -> None:
        self.require_range("last_layers", 1)


@dataclass(frozen=True)
class TransformerModelSettings(UpdatableSettings, NetworkSettings):
    """Settings of transformer."""

    encoder: TransformerSettings = field(default_factory=TransformerSettings)
    """The pretrained encoder, and how it is fine-tuned."""
    head: TransformerHeadSettings = field(default_factory=TransformerHeadSettings)
    """The output layer."""
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

    correlation: CorrelationSettings = field(default_factory=CorrelationSettings)
    """Correlation blocks (CorNet)."""

    of = "transformer"


class TransformerModel(AttendingModel, PretrainedModel):
    """Pretrained Hugging Face encoder, fine-tuned, with attention and output vectors of each label.

    Encoders are read from a folder: BERT, RoBERTa, DistilBERT, MiniLM, MPNet, ELECTRA, DeBERTa, ModernBERT and similar.
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
        "pooled": {"head.kind": "pooled"},
        "first-states": {"head.kind": "first_states"},
        **CORRELATION_ABLATIONS,
        "no-correlation": {"correlation.blocks": 0},
    }

    _windows = 64

    @property
    def _pretrained(self) -> TransformerSettings:
        settings: TransformerSettings = self.config.encoder
        return settings

    def _encoder(self, width: int) -> Encoder:
        assert self._backbone is not None
        given = self._backbone.module(), self.config.encoder, self.config.text.max_tokens
        if self.config.head.kind == "label_attention":
            return TransformerStates(*given)
        if self.config.head.kind == "first_states":
            return FirstStates(*given, self.config.head.last_layers)
        return Transformer(*given)

    def _head(self, labels: int, width: int) -> Head:
        return (LabelOutputs if self.config.head.kind == "label_attention" else LinearHead)(labels, width)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        """The label's attention weights, averaged over the members; those of attention pooling are for all labels."""
        if self.config.head.kind != "label_attention":
            return super()._explain(text, label, score)
        _, tokens, _ = self._document(text)
        shares = []
        for member in self._members:
            network, row = member.network_of(label)
            shares.append(network.head.weights(*network.encode(tokens), row))
        evidence = self._attended(text, torch.stack(shares).mean(0)[0].tolist())
        return Explanation("tokens", text, self.labels.name(label), score, evidence, shares=True)

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
