"""Load a model for a command, whose kernels are compiled meanwhile if this is their first use."""

from __future__ import annotations

from pathlib import Path

from xmtc.artifact.store import read_manifest
from xmtc.core.compile_ahead import compile_ahead
from xmtc.core.runtime import Runtime
from xmtc.models.base import Model


def load_model(folder: Path, runtime: Runtime | None, *verbs: str) -> Model:
    """Load a model that is going to 'tag' a text or to 'predict' the labels of many."""
    runtime = runtime or Runtime()
    name = read_manifest(folder)["model"]
    compile_ahead(*(f"{verb} {name}" for verb in verbs), processes=runtime.threads)
    return Model.load(folder, runtime)
