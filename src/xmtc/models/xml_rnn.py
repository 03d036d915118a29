"""XML-RNN: a bidirectional LSTM with max-pooling over the words."""

from __future__ import annotations

from dataclasses import dataclass, field

from xmtc.models.neural import NeuralModel, NeuralSettings
from xmtc.nn.encoders.lstm import PooledLstmSettings


@dataclass(frozen=True)
class XmlRnnSettings(NeuralSettings):
    """Settings of xml_rnn."""

    encoder: PooledLstmSettings = field(default_factory=PooledLstmSettings)
    """The LSTM and the layer after pooling."""

    of = "xml_rnn"


class XmlRnn(NeuralModel):
    """XML-RNN: bidirectional LSTM with max-pooling.

    AttentionXML without the attention; the usual baseline for it.
    """

    name = "xml_rnn"
    Config = XmlRnnSettings
    capabilities = frozenset({"text", "score_labels", "update", "export"})
