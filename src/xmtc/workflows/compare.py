"""Evaluate several models on the same test set."""

from __future__ import annotations

from collections.abc import Mapping

from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.metrics import Interval, bootstrap_difference, overlap
from xmtc.models.base import Model
from xmtc.workflows.evaluate import evaluate_model, read_test
from xmtc.workflows.evaluation import Evaluation
from xmtc.workflows.requests import CompareRequest, ComparisonOptions

__all__ = ["Interval", "compare", "differences", "overlap"]


def compare(
    request: CompareRequest, *, runtime: Runtime | None = None, progress: Progress = silent
) -> dict[str, Evaluation]:
    """Evaluate several models on one test file; returns the results by folder name."""
    models = {str(folder): Model.load(folder, runtime) for folder in request.folders}
    tests: dict[int | None, Dataset] = {}  # read once, unless the models expect different numbers of features
    for model in models.values():
        if model.feature_count not in tests:
            tests[model.feature_count] = read_test(
                request.test, request.reading.options, model=model, progress=progress
            )
    return {
        name: evaluate_model(model, tests[model.feature_count], request.evaluation, progress=progress)
        for name, model in models.items()
    }


def differences(results: Mapping[str, Evaluation], options: ComparisonOptions) -> dict[str, dict[str, Interval]]:
    """Difference of each system from the first with its interval, on the same bootstrap samples of the test set."""
    first, *others = results
    return {
        name: bootstrap_difference(results[name].parts, results[first].parts, options.bootstrap, seed=options.seed)
        for name in others
    }
