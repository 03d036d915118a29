"""xmtc: the right few labels for a text, out of hundreds to millions.

>>> import xmtc
>>> model = xmtc.load("my-model")
>>> model.predict(["some text"], k=5).names()

Every registered model is a class of this module, imported on first use; `create` makes one by its registered name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the models among these are those of the registry, which a test checks
    from pathlib import Path

    from xmtc import data, decisions, labels, metrics, models, text, workflows
    from xmtc.core.runtime import Runtime
    from xmtc.data.dataset import Dataset
    from xmtc.data.formats import write
    from xmtc.data.label_index import LabelIndex
    from xmtc.data.reading import read
    from xmtc.data.topk import TopK
    from xmtc.models.attention_lstm import AttentionLstmModel as AttentionLstmModel
    from xmtc.models.attention_xml import AttentionXml as AttentionXml
    from xmtc.models.base import Model
    from xmtc.models.bonsai import Bonsai
    from xmtc.models.consensus import Consensus
    from xmtc.models.dxml import Dxml as Dxml
    from xmtc.models.knn import Knn
    from xmtc.models.leml import Leml
    from xmtc.models.lexical import Lexical
    from xmtc.models.lsan import Lsan as Lsan
    from xmtc.models.maacf import Maacf as Maacf
    from xmtc.models.one_vs_all import OneVsAll
    from xmtc.models.parabel import Parabel
    from xmtc.models.popularity import Popularity
    from xmtc.models.rank_ae import RankAe as RankAe
    from xmtc.models.sleec import Sleec
    from xmtc.models.transformer import TransformerModel as TransformerModel
    from xmtc.models.xml_cnn import XmlCnn as XmlCnn
    from xmtc.models.xml_rnn import XmlRnn as XmlRnn

__version__ = "0.1.0"

_MODULES = {
    "Dataset": "xmtc.data.dataset",
    "LabelIndex": "xmtc.data.label_index",
    "Model": "xmtc.models.base",
    "Runtime": "xmtc.core.runtime",
    "TopK": "xmtc.data.topk",
    "read": "xmtc.data.reading",
    "write": "xmtc.data.formats",
}
_PACKAGES = ("data", "decisions", "labels", "metrics", "models", "text", "workflows")

__all__ = [  # `from xmtc import *` leaves out the models that need an extra
    "Bonsai",
    "Consensus",
    "Dataset",
    "Knn",
    "LabelIndex",
    "Leml",
    "Lexical",
    "Model",
    "OneVsAll",
    "Parabel",
    "Popularity",
    "Runtime",
    "Sleec",
    "TopK",
    "__version__",
    "auto",
    "create",
    "data",
    "decisions",
    "labels",
    "load",
    "metrics",
    "models",
    "read",
    "text",
    "workflows",
    "write",
]


def load(folder: str | Path, runtime: Runtime | None = None, *, verify: bool = False) -> Model:
    """A trained model from its folder; `verify` hashes all files, even if they were verified before."""
    from xmtc.models.base import Model

    return Model.load(folder, runtime, verify=verify)


def create(name: str, **settings: Any) -> Model:
    """An untrained model by its registered name: create("parabel", trees=3)."""
    from xmtc.models.registry import model_class

    model: Model = model_class(name)(**settings)
    return model


def auto(
    documents: Any, labels: Any = None, *, preset: str = "good", minutes: float | None = None, **options: Any
) -> Model:
    """The best model for these documents that is found in the time given; see `xmtc.workflows.auto.auto`."""
    from xmtc.workflows.auto import auto as train_best

    return train_best(documents, labels, preset=preset, minutes=minutes, **options)


def _model_names() -> dict[str, str]:
    """Class name → registered name of every model; a built-in class name cannot be taken by a plug-in."""
    from xmtc.models.registry import MODELS

    found: dict[str, str] = {}
    for name, entry in MODELS.entries.items():
        found.setdefault(entry.attribute, name)
    return found


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"xmtc.{name}")
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name[:1].isupper() and name in (models := _model_names()):
        return importlib.import_module("xmtc.models.registry").model_class(models[name])
    raise AttributeError(f"module 'xmtc' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*__all__, *_model_names()})
