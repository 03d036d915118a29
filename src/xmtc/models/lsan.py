"""LSAN: a bidirectional LSTM, and two attentions of each label: by a learnt row, and by the words of its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.labels.name_documents import name_texts
from xmtc.models.attention_explain import LabelAttendingModel
from xmtc.models.neural import NeuralModel, NeuralSettings
from xmtc.nn.encoders.lstm import LstmSettings
from xmtc.nn.heads.base import Head
from xmtc.nn.heads.label_specific import LabelSpecificAttention, LabelSpecificSettings
from xmtc.nn.word_table import Table, name_vectors


@dataclass(frozen=True)
class LsanSettings(NeuralSettings):
    """Settings of lsan."""

    encoder: LstmSettings = field(default_factory=LstmSettings)
    """The LSTM."""
    head: LabelSpecificSettings = field(default_factory=LabelSpecificSettings)
    """The attentions of each label, and the perceptron."""

    of = "lsan"


class Lsan(LabelAttendingModel):
    """LSAN: bidirectional LSTM with attention by label names.

    Each label attends to the words twice: by a learnt row, as in AttentionXML, and by a vector that starts from the
    words of its name. A gate mixes both for each document and label. Labels without a name in known words start from a
    random vector.
    """

    name = "lsan"
    Config = LsanSettings
    capabilities = frozenset({"text", "explain", "score_labels", "update"})
    ablations: ClassVar = {
        **NeuralModel.ablations,
        "self-attention": {"head.attention": "self"},
        "name-attention": {"head.attention": "label"},
        "no-gate": {"head.gate": False},
        "random-labels": {"head.names": False},
        "plain-products": {"head.softmax": False},
    }
    _names: Table | None = None

    def _read_labels(self, labels: LabelIndex, table: Table, runtime: Runtime) -> None:
        """Initial label vectors from the words of their names."""
        if not self.config.head.names or self.config.head.attention == "self":
            return
        names = self._reader.encode(Dataset({"text": name_texts(labels)}), runtime)
        self._names, known = name_vectors(names, table, self.config.encoder.units, runtime.seed)
        self.facts["labels with a name in known words"] = f"{100 * known:.1f} %"

    def _head(self, labels: int, width: int) -> Head:
        names = None if self._names is None else torch.from_numpy(self._names)
        return LabelSpecificAttention(labels, width, self.config.head, names)
