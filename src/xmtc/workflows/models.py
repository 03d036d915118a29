"""Describe and verify saved models, and list the registered ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmtc.artifact import store
from xmtc.artifact.dependencies import MANIFEST
from xmtc.artifact.dependencies import content_of as content_id
from xmtc.artifact.store import read_manifest
from xmtc.core import config
from xmtc.core.errors import XmtcError
from xmtc.labels.name_index import LabelSearch
from xmtc.models.base import Model
from xmtc.models.label_selection import allowed_labels
from xmtc.models.registry import MODELS, model_class, stored_class
from xmtc.workflows.saved_metrics import read_metrics

__all__ = [
    "MANIFEST",
    "LabelSearch",
    "Model",
    "ModelSettings",
    "allowed_labels",
    "content_id",
    "describe_folder",
    "describe_model",
    "describe_models",
    "is_model_name",
    "read_manifest",
    "verify",
]


def verify(folder: str | Path) -> list[tuple[str, int]]:
    """Check every file of a model folder against the hashes in model.json and load it; returns (file, bytes) pairs."""
    checked = store.verify_folder(Path(folder))
    _ = Model.load(folder).replay  # checks every array; documents for replay are read on first use
    return checked


def describe_folder(folder: str | Path) -> dict[str, Any]:
    """The contents of a saved model's model.json: name, settings, labels, training and updates."""
    manifest = store.read_manifest(Path(folder))
    kind = stored_class(manifest["model"])
    default = config.flat(config.to_mapping(kind.Config()))
    settings = config.flat(config.current_names(kind.Config, manifest["settings"]))
    size = sum(int(entry["bytes"]) for entry in manifest["files"].values())
    for entry in manifest.get("links", {}).values():
        if "copied" in entry:
            place = Path(folder) / entry["copied"]
            size += sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    return {
        "folder": str(folder),
        "model": manifest["model"],
        "trainable": manifest["model"] in MODELS,
        "labels": int(manifest["labels"]),
        "label_facts": dict(manifest.get("label_facts", {})),
        "bytes": size,
        "training": manifest["training"],
        "settings": {name: value for name, value in settings.items() if value != default.get(name)},
        "history": manifest.get("history", []),
        "metrics": read_metrics(Path(folder)),
    }


def is_model_name(name: str) -> bool:
    """Whether a model of this name is registered."""
    return name in MODELS


@dataclass(frozen=True)
class ModelSettings:
    """A registered model: its description, capabilities and settings."""

    description: str
    capabilities: tuple[str, ...]
    settings: list[config.SettingRow]


def describe_model(name: str) -> ModelSettings:
    """Description, capabilities and settings of a registered model."""
    kind = model_class(name)
    description = " ".join((kind.__doc__ or "").split())
    return ModelSettings(description, tuple(sorted(kind.capabilities)), config.table(kind.Config()))


def describe_models() -> list[tuple[str, str, str]]:
    """(name, capabilities, first line of the description or the missing extra) of every model."""
    rows = []
    for name in MODELS:
        try:
            kind = model_class(name)
        except XmtcError as error:  # an extra that is missing, or a broken plug-in
            rows.append((name, "–", str(error)))
        else:
            what = (kind.__doc__ or name).splitlines()[0]
            plugin = MODELS.plugins.get(name)
            rows.append((name, ", ".join(sorted(kind.capabilities)), f"{what} [{plugin.package}]" if plugin else what))
    return rows
