"""Evaluate several models on the same test set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.metrics import Interval, bootstrap_difference, overlap
from xmtc.models.base import Model
from xmtc.workflows.evaluate import evaluate_model, read_test, training_of
from xmtc.workflows.evaluation import Evaluation
from xmtc.workflows.requests import CompareRequest, ComparisonOptions

__all__ = ["Interval", "compare", "differences", "overlap"]


def compare(
    request: CompareRequest, *, runtime: Runtime | None = None, progress: Progress = silent
) -> dict[str, Evaluation]:
    """Evaluate several models on one test file; returns the results by folder name.

    All models are evaluated with the same true labels: `unknown_labels` "drop" drops those that no model can predict.
    """
    models = {str(folder): Model.load(folder, runtime) for folder in request.folders}
    tests: dict[int | None, Dataset] = {}  # read once, unless the models expect different numbers of features
    for model in models.values():
        if model.feature_count not in tests:
            tests[model.feature_count] = read_test(
                request.test,
                request.reading.options,
                model=model,
                vocabulary=request.labels,
                unknown_labels="drop" if request.options.unknown_labels == "drop" else "refuse",
                whole_vocabulary=request.options.hierarchy,
                progress=progress,
            )
    kept = _predictable_labels(models.values()) if request.options.unknown_labels == "drop" else None
    return {
        name: evaluate_model(model, tests[model.feature_count], request.evaluation, kept=kept, progress=progress)
        for name, model in models.items()
    }


def _predictable_labels(models: Iterable[Model]) -> LabelIndex:
    """The labels that at least one of the models can predict."""
    indexes = [model.labels if (known := training_of(model)) is None else known.predictable_labels for model in models]
    return reduce(LabelIndex.joined, indexes)


def differences(results: Mapping[str, Evaluation], options: ComparisonOptions) -> dict[str, dict[str, Interval]]:
    """Difference of each system from the first with its interval, on the same bootstrap samples of the test set."""
    first, *others = results
    return {
        name: bootstrap_difference(results[name].parts, results[first].parts, options.bootstrap, seed=options.seed)
        for name in others
    }
