"""The models by name. Nothing is imported until a model is asked for."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

from xmtc.core.errors import ConfigError, MissingExtraError, nearest


@dataclass(frozen=True)
class Entry:
    """Where a model lives, how much it is to be preferred when the user names none, and what it needs."""

    target: str
    preference: int
    extra: str | None = None


MODELS = {
    "attention_lstm": Entry("xmtc.models.attention_lstm:AttentionLstmModel", preference=5, extra="torch"),
    "attention_xml": Entry("xmtc.models.attention_xml:AttentionXml", preference=10, extra="torch"),
    "bonsai": Entry("xmtc.models.bonsai:Bonsai", preference=35),
    "consensus": Entry("xmtc.models.consensus:Consensus", preference=-1),
    "dxml": Entry("xmtc.models.dxml:Dxml", preference=7, extra="torch"),
    "knn": Entry("xmtc.models.knn:Knn", preference=20),
    "leml": Entry("xmtc.models.leml:Leml", preference=2),
    "maacf": Entry("xmtc.models.maacf:Maacf", preference=6, extra="torch"),
    "one_vs_all": Entry("xmtc.models.one_vs_all:OneVsAll", preference=30),
    "parabel": Entry("xmtc.models.parabel:Parabel", preference=40),
    "popularity": Entry("xmtc.models.popularity:Popularity", preference=0),
    "rank_ae": Entry("xmtc.models.rank_ae:RankAe", preference=8, extra="torch"),
    "sleec": Entry("xmtc.models.sleec:Sleec", preference=3),
    "transformer": Entry("xmtc.models.transformer:TransformerModel", preference=1, extra="transformers"),
    "xml_cnn": Entry("xmtc.models.xml_cnn:XmlCnn", preference=5, extra="torch"),
    "xml_rnn": Entry("xmtc.models.xml_rnn:XmlRnn", preference=5, extra="torch"),
}

_EXTRA_MODULES = {"torch": ("torch",), "transformers": ("torch", "transformers", "tokenizers")}
_EXTRA_TITLES = {"torch": "PyTorch", "transformers": "transformers and PyTorch"}


def available(name: str) -> bool:
    """Whether what the model needs is installed."""
    extra = MODELS[name].extra
    return extra is None or all(importlib.util.find_spec(module) for module in _EXTRA_MODULES[extra])


def preferred() -> str:
    """The best model that runs on this machine."""
    return max((name for name in MODELS if available(name)), key=lambda name: MODELS[name].preference)


def model_class(name: str) -> type[Any]:
    """The class of a model, imported now."""
    if name not in MODELS:
        hint = " A recipe is named by --config." if "/" in name else nearest(name, MODELS)
        raise ConfigError(f"no model '{name}'.{hint} Known: {', '.join(MODELS)}.")
    extra = MODELS[name].extra
    if extra is not None and not available(name):
        raise MissingExtraError(f'{name} needs {_EXTRA_TITLES[extra]}. Install it with: pip install "xmtc[{extra}]".')
    module, _, attribute = MODELS[name].target.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), attribute)
    return found
