"""Fit probabilities and thresholds of a saved model to validation documents."""

from __future__ import annotations

from xmtc.artifact import store
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import check_known
from xmtc.decisions.decision_rules import Decisions
from xmtc.models.base import DECISIONS, Model
from xmtc.workflows.evaluate import read_test
from xmtc.workflows.requests import CalibrateRequest

__all__ = ["Decisions", "calibrate"]


def calibrate(request: CalibrateRequest, *, runtime: Runtime | None = None, progress: Progress = silent) -> Model:
    """Learn from validation documents what a saved model's scores mean, and save that with it.

    Only this part of the folder is written. With neither method nor threshold it is removed, which needs no documents.
    """
    manifest = store.read_manifest(request.folder)
    model = Model.load(request.folder, runtime)
    if request.valid is None:
        model.decisions = Decisions()
    else:
        documents = read_test(
            request.valid,
            request.reading.options,
            model=model,
            vocabulary=request.labels,
            unknown_labels=request.unknown_labels,
            progress=progress,
        )
        check_known(model.labels, documents)
        model.calibrate(
            documents,
            method=None if request.method == "none" else request.method,
            threshold=None if request.threshold == "none" else request.threshold,
            measure=request.measure,
            k=request.k,
            progress=progress,
        )
    state = model.decisions.state() if model.decisions.is_fitted else None
    store.replace_part(request.folder, DECISIONS, state, before=manifest)
    return model
