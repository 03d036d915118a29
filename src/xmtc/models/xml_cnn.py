"""XML-CNN: convolutions over the words with dynamic max-pooling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from xmtc.models.neural import NeuralModel, NeuralSettings
from xmtc.nn.encoders.cnn import ConvolutionSettings


@dataclass(frozen=True)
class XmlCnnSettings(NeuralSettings):
    """Settings of xml_cnn."""

    encoder: ConvolutionSettings = field(default_factory=ConvolutionSettings)
    """The convolutions, their pooling and the narrow layer."""

    of = "xml_cnn"


class XmlCnn(NeuralModel):
    """Convolutions over windows of words, the largest values in each part of the text, a narrow layer, all labels.

    XML-CNN, whose dynamic pooling keeps where in the text a phrase stands.
    """

    name = "xml_cnn"
    Config = XmlCnnSettings
    capabilities = frozenset({"text", "score_labels", "update"})
    ablations: ClassVar = {**NeuralModel.ablations, "one-pool": {"encoder.pools": 1}}
