"""Compile the kernels that most tests need and cache them: python -m tests.support.compile_kernels.

It runs while the type checker uses another core. Tests compile what is missing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import xmtc
from tests.support.models import planted_split
from xmtc.models.base import Model
from xmtc.models.registry import MODELS


def use(model: Model, train: xmtc.Dataset, test: xmtc.Dataset) -> None:
    """Do with a model what tests do."""
    model.fit(train)
    top = model.predict(test, 5)
    some = np.arange(len(model.labels)) < 5
    model.predict(test, 3, allow=some)
    model.score_labels(test, top.labels)
    text = str(test.text()[0])
    model.tag(text)
    if "explain" in model.capabilities:
        model.explain(text, 0)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        xmtc.load(Path(folder) / "model").predict(test, 5)
    model.calibrate(test)
    if "update" in model.capabilities:
        model.update(test, force=True)


def main() -> None:
    """Use every model that needs neither torch nor other models, on texts."""
    train, test, _ = planted_split(200, 50, labels=20, seed=7)
    for name in MODELS:
        if MODELS.builtin[name].extra or name == "consensus":
            continue
        model = xmtc.create(name)
        use(model, train, test)
        if "loss" in model.get_params():
            use(xmtc.create(name, loss="logistic"), train, test)


if __name__ == "__main__":
    main()
