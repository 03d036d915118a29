"""Calibrate a saved model and tune its decision thresholds on a validation set."""

from __future__ import annotations

from xmtc.artifact import store
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import check_known
from xmtc.decisions.decision_rules import Decisions
from xmtc.models.base import DECISIONS, Model
from xmtc.workflows.evaluate import read_test
from xmtc.workflows.loading import load_model
from xmtc.workflows.requests import CalibrateRequest

__all__ = ["Decisions", "calibrate"]


def calibrate(request: CalibrateRequest, *, runtime: Runtime | None = None, progress: Progress = silent) -> Model:
    """Fit calibration and thresholds of a saved model on a validation set and save them in the model folder.

    Only this part of the folder is rewritten. With neither a method nor a threshold the calibration is removed; that
    needs no documents.
    """
    manifest = store.read_manifest(request.folder)
    model = load_model(request.folder, runtime, "predict")
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
