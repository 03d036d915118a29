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
    """The convolutions, their pooling and the bottleneck layer."""

    of = "xml_cnn"


class XmlCnn(NeuralModel):
    """XML-CNN: convolutions over words with dynamic max-pooling.

    Dynamic pooling keeps the maxima of each segment of the text, and a bottleneck layer precedes the output layer.
    """

    name = "xml_cnn"
    Config = XmlCnnSettings
    capabilities = frozenset({"text", "score_labels", "update", "export"})
    ablations: ClassVar = {
        **NeuralModel.ablations,
        "one-pool": {"encoder.pools": 1},
        "no-correlation": {"correlation.blocks": 0},
    }
