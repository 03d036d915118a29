"""A bidirectional LSTM with attention pooling shared by all labels."""

from __future__ import annotations

from dataclasses import dataclass, field

from xmtc.models.attention_explain import AttendingModel
from xmtc.models.neural import NeuralSettings
from xmtc.nn.encoders.lstm import AttentionLstmSettings
from xmtc.text.word2vec import CorpusVectorSettings


@dataclass(frozen=True)
class AttentionLstmModelSettings(NeuralSettings):
    """Settings of attention_lstm."""

    encoder: AttentionLstmSettings = field(default_factory=AttentionLstmSettings)
    """The LSTM, and the layer after attention."""
    corpus: CorpusVectorSettings = field(default_factory=lambda: CorpusVectorSettings(width=256))
    """Training of word vectors on the corpus; `width` also applies to random vectors."""

    of = "attention_lstm"


class AttentionLstmModel(AttendingModel):
    """Bidirectional LSTM with attention pooling shared by all labels.

    A linear output layer scores the labels. A compromise between XML-RNN, which has no attention, and AttentionXML,
    where every label has its own attention.
    """

    name = "attention_lstm"
    Config = AttentionLstmModelSettings
    capabilities = frozenset({"text", "explain", "score_labels", "update", "export"})
