"""The models by name. A model is imported on first use."""

from __future__ import annotations

from typing import Any

from xmtc.core.errors import ConfigError
from xmtc.core.registry import Entry, Registry

MODELS: Registry[type[Any]] = Registry(
    group="xmtc.models",
    noun="model",
    builtin={
        "attention_lstm": Entry("xmtc.models.attention_lstm:AttentionLstmModel", preference=5, extra="torch"),
        "attention_xml": Entry("xmtc.models.attention_xml:AttentionXml", preference=10, extra="torch"),
        "bonsai": Entry("xmtc.models.bonsai:Bonsai", preference=35),
        "consensus": Entry("xmtc.models.consensus:Consensus"),
        "dxml": Entry("xmtc.models.dxml:Dxml", preference=7, extra="torch"),
        "knn": Entry("xmtc.models.knn:Knn", preference=20),
        "leml": Entry("xmtc.models.leml:Leml", preference=2),
        "lexical": Entry("xmtc.models.lexical:Lexical", preference=4),
        "lsan": Entry("xmtc.models.lsan:Lsan", preference=5, extra="torch"),
        "maacf": Entry("xmtc.models.maacf:Maacf", preference=6, extra="torch"),
        "one_vs_all": Entry("xmtc.models.one_vs_all:OneVsAll", preference=30),
        "parabel": Entry("xmtc.models.parabel:Parabel", preference=40),
        "popularity": Entry("xmtc.models.popularity:Popularity", preference=0),
        "rank_ae": Entry("xmtc.models.rank_ae:RankAe", preference=8, extra="torch"),
        "sleec": Entry("xmtc.models.sleec:Sleec", preference=3),
        "transformer": Entry("xmtc.models.transformer:TransformerModel", preference=1, extra="transformers"),
        "xml_cnn": Entry("xmtc.models.xml_cnn:XmlCnn", preference=5, extra="torch"),
        "xml_rnn": Entry("xmtc.models.xml_rnn:XmlRnn", preference=5, extra="torch"),
    },
    required=("name", "Config", "capabilities", "fit", "predict"),
)

EXPORTED: Registry[type[Any]] = Registry(
    group="xmtc.exported_models",
    noun="exported model",
    builtin={"onnx": Entry("xmtc.models.onnx:OnnxModel", extra="onnx")},
    required=("name", "Config", "capabilities", "predict"),
)
"""Models that are not trained: other models are exported to them."""


def available(name: str) -> bool:
    """Whether the libraries that the model requires are installed."""
    return MODELS.entries[name].available


def preferred() -> str:
    """The default model: the best one whose requirements are installed."""
    usable = [(entry.preference, name) for name, entry in MODELS.builtin.items() if entry.available]
    return max(usable, key=lambda pair: pair[0])[1]


def model_class(name: str) -> type[Any]:
    """Import and return the class of a model."""
    if "/" in name and name not in MODELS:
        raise ConfigError(f"no model '{name}'. Pass a recipe with --config. Available: {', '.join(MODELS)}.")
    return MODELS[name]


def stored_class(name: str) -> type[Any]:
    """Import and return the class of the model in a folder."""
    return EXPORTED[name] if name in EXPORTED.builtin else model_class(name)
