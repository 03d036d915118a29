"""AttentionXML: a bidirectional LSTM, attention of each label over the words, and a perceptron that labels share."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from xmtc.config import Settings
from xmtc.dataset import as_dataset
from xmtc.explanation import Explanation, TokenEvidence
from xmtc.models.neural import NeuralModel, NeuralSettings
from xmtc.nn.attention import LabelAttention
from xmtc.nn.encoders import BiLstm, Encoder, LstmSettings
from xmtc.nn.heads import Head


@dataclass(frozen=True)
class AttentionSettings(Settings):
    """Attention of each label, and the shared perceptron."""

    hidden: tuple[int, ...] = (256,)
    """Units of the perceptron's hidden layers."""

    of = "head"

    def check(self) -> None:
        sizes = self.hidden or (0,)
        self.require("hidden", min(sizes) >= 1 and max(sizes) <= 1 << 16, "a list of integers from 1 to 65,536")


@dataclass(frozen=True)
class AttentionXmlSettings(NeuralSettings):
    """Settings of attention_xml."""

    encoder: LstmSettings = field(default_factory=LstmSettings)
    """The LSTM."""
    head: AttentionSettings = field(default_factory=AttentionSettings)
    """Attention and perceptron."""

    of = "attention_xml"


class AttentionXml(NeuralModel):
    """Words in order by a bidirectional LSTM; every label attends to the words that matter to it.

    AttentionXML without a label tree: for up to some tens of thousands of labels.
    """

    name = "attention_xml"
    Config = AttentionXmlSettings
    can = frozenset({"text", "explain", "score"})

    def _encoder(self, width: int) -> Encoder:
        return BiLstm(width, self.config.encoder)

    def _head(self, labels: int, width: int) -> Head:
        return LabelAttention(labels, width, self.config.head.hidden)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        documents = self._documents(as_dataset([text]))
        words = self._sequences.spans(text)
        length = int(documents.lengths[0])
        tokens = documents.tokens(torch.zeros(1, dtype=torch.int64, device=self._networks[0].table.device), length)
        shares = []
        for network in self._networks:
            assert isinstance(network.head, LabelAttention)
            shares.append(network.head.weights(*network.encode(tokens), label))
        weights = torch.stack(shares).mean(0)[0].tolist()
        evidence = [
            TokenEvidence(word.token, word.start, word.end, weight)
            for word, weight in zip(words, weights, strict=False)
        ]
        evidence.sort(key=lambda item: -item.weight)
        return Explanation("tokens", text, self.labels.name(label), score, tuple(evidence), shares=True)
