"""xmtc: the right few labels for a text, out of hundreds to millions.

>>> import xmtc
>>> model = xmtc.load("my-model")
>>> model.predict(["some text"], k=5).names()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from xmtc.core.runtime import Runtime
    from xmtc.data.dataset import Dataset
    from xmtc.data.formats import write
    from xmtc.data.label_index import LabelIndex
    from xmtc.data.reading import read
    from xmtc.data.topk import TopK
    from xmtc.models.base import Model
    from xmtc.models.bonsai import Bonsai
    from xmtc.models.consensus import Consensus
    from xmtc.models.knn import Knn
    from xmtc.models.one_vs_all import OneVsAll
    from xmtc.models.parabel import Parabel
    from xmtc.models.popularity import Popularity

__version__ = "0.1.0"

_HOMES = {
    "Bonsai": "xmtc.models.bonsai",
    "Consensus": "xmtc.models.consensus",
    "Dataset": "xmtc.data.dataset",
    "Knn": "xmtc.models.knn",
    "LabelIndex": "xmtc.data.dataset",
    "Model": "xmtc.models.base",
    "OneVsAll": "xmtc.models.one_vs_all",
    "Parabel": "xmtc.models.parabel",
    "Popularity": "xmtc.models.popularity",
    "Runtime": "xmtc.core.runtime",
    "TopK": "xmtc.data.topk",
    "read": "xmtc.data.reading",
    "write": "xmtc.data.formats",
}

_NEURAL = {
    "AttentionXml": "attention_xml",
    "RankAe": "rank_ae",
    "XmlCnn": "xml_cnn",
    "XmlRnn": "xml_rnn",
}  # these need torch

__all__ = [
    "Bonsai",
    "Consensus",
    "Dataset",
    "Knn",
    "LabelIndex",
    "Model",
    "OneVsAll",
    "Parabel",
    "Popularity",
    "Runtime",
    "TopK",
    "__version__",
    "load",
    "read",
    "write",
]


def load(folder: str | Path, runtime: Runtime | None = None) -> Model:
    """A trained model from its folder."""
    from xmtc.models.base import Model

    return Model.load(folder, runtime)


def __getattr__(name: str) -> Any:
    if name in _NEURAL:
        return importlib.import_module("xmtc.models.registry").model_class(_NEURAL[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'xmtc' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, *_NEURAL]
