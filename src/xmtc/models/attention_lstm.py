"""A bidirectional LSTM with one attention over the words for all labels."""

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
    """How vectors are trained on the corpus; `width` holds for random ones too."""

    of = "attention_lstm"


class AttentionLstmModel(AttendingModel):
    """Words in order by a bidirectional LSTM, one attention over them for all labels, a linear output for each label.

    Between XML-RNN, which pools without attention, and AttentionXML, where every label has an attention of its own.
    """

    name = "attention_lstm"
    Config = AttentionLstmModelSettings
    capabilities = frozenset({"text", "explain", "score_labels", "update"})
