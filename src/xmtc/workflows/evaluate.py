"""Evaluate a saved model, a model in memory, or a file of predictions on a test set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from xmtc.core.errors import ConfigError, DataError, shown
from xmtc.core.kernel_cache import work_time
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data import lf
from xmtc.data.dataset import Dataset, check_known
from xmtc.data.formats import detected
from xmtc.data.label_index import LabelIndex
from xmtc.data.predictions import match_to, read_predictions
from xmtc.data.reading import read
from xmtc.data.records import ReadOptions
from xmtc.data.topk import TopK
from xmtc.data.vocabularies import read_vocabulary
from xmtc.decisions.thresholds import Thresholds
from xmtc.models.base import Model
from xmtc.workflows.evaluation import Evaluation, Training, judge, most_filtered, prediction_depth
from xmtc.workflows.loading import load_model
from xmtc.workflows.predict import check_tuned
from xmtc.workflows.requests import EvaluateRequest, EvaluationOptions
from xmtc.workflows.saved_metrics import save_metrics


def evaluate(request: EvaluateRequest, *, runtime: Runtime | None = None, progress: Progress = silent) -> Evaluation:
    """Compute all metrics of a model or of a file of predictions; with `keep`, save them next to the model folder."""
    options = request.options
    if request.folder is None:
        assert request.predictions is not None
        return evaluate_predictions(
            request.predictions,
            request.test,
            options,
            train_file=request.train,
            vocabulary=request.labels,
            predictions_format=request.predictions_format,
            reading=request.reading.options,
            progress=progress,
        )
    model = load_model(request.folder, runtime, "predict")
    check_tuned(model, request.folder, options.threshold)
    documents = read_test(
        request.test,
        request.reading.options,
        model=model,
        vocabulary=request.labels,
        unknown_labels="drop" if options.unknown_labels == "drop" else "refuse",
        whole_vocabulary=options.hierarchy,
        progress=progress,
    )
    result = evaluate_model(model, documents, options, progress=progress)
    if request.keep:
        saved = save_metrics(request.folder, request.test, result)
        progress.say(f"metrics saved to {saved}")
    return result


def evaluate_model(
    model: Model,
    test: Dataset,
    options: EvaluationOptions | None = None,
    *,
    kept: LabelIndex | None = None,
    progress: Progress = silent,
    **how: Any,
) -> Evaluation:
    """Compute all metrics of a model on a test set; `how` overrides options, for example unknown_labels="drop".

    That option drops the labels that the model cannot predict, or those that are not among `kept`.
    """
    options = replace(options or EvaluationOptions(), **how)
    if test.labels is None:
        raise DataError("the test documents have no labels. Pass a Dataset with labels.")
    threshold = _threshold(model, options)
    set_depth = model.set_depth("auto" if options.threshold is None else options.threshold)
    depth = prediction_depth(options) if threshold is None else max(prediction_depth(options), set_depth)
    started = work_time()
    predictions = model.predict(test, depth + most_filtered(options, test), progress=progress)
    seconds = work_time() - started
    check_known(model.labels, test)
    return judge(
        predictions,
        test,
        options,
        training=training_of(model),
        scorer=model,
        seconds=seconds,
        threshold=threshold,
        set_depth=set_depth,
        kept=kept,
    )


def training_of(model: Model) -> Training | None:
    """The label counts of a model's training set; None if the model does not store them."""
    counted = model.counted()
    return None if counted is None else Training(model.labels, *counted, model.uses_label_names)


def _threshold(model: Model, options: EvaluationOptions) -> Thresholds | float | None:
    """The rule that selects each document's label set; None if no sets are evaluated."""
    if options.threshold is None:
        return model.decisions.thresholds
    return model.rule("auto") if options.threshold == "auto" else float(options.threshold)


def read_test(
    path: str | Path,
    reading: ReadOptions | None = None,
    *,
    model: Model | None = None,
    vocabulary: str | Path | None = None,
    unknown_labels: str = "refuse",
    whole_vocabulary: bool = False,
    progress: Progress = silent,
) -> Dataset:
    """Read test documents with their labels; raises DataError if no document has a label.

    Labels missing from a given vocabulary raise too, or are left out with `unknown_labels="drop"`. Labels of the
    vocabulary that no document has are kept with `whole_vocabulary`.
    """
    if (Path(path) / "model.json").is_file():
        raise DataError(f"{path}: is a model folder. Pass the test file as the last argument.")
    reading = replace(reading or ReadOptions(), feature_count=None if model is None else model.feature_count)
    test = read(
        path,
        reading,
        vocabulary=vocabulary,
        unknown_labels=unknown_labels,
        whole_vocabulary=whole_vocabulary,
        progress=progress,
    )
    if test.labels is None or test.labels.nnz == 0:
        raise DataError(f"{path}: no document has a label, so there is nothing to evaluate. Check the label field.")
    if test.partial is not None:
        some = f"{int(test.partial.sum()):,} of {len(test):,} documents"
        reading.notes.append(f"{path}: {some} have unknown labels, which are evaluated as wrong.")
    return test


def evaluate_predictions(
    path: str | Path,
    test_file: str | Path,
    options: EvaluationOptions | None = None,
    *,
    train_file: str | Path | None = None,
    vocabulary: str | Path | None = None,
    predictions_format: str | None = None,
    reading: ReadOptions | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Compute all metrics of a file of predictions; `train_file` provides the label counts for propensities."""
    named = None if vocabulary is None else read_vocabulary(vocabulary, numbered=True)
    applied = vocabulary if named is not None and not named.plain else None  # a plain list only maps numbers to keys
    unknown = "drop" if options is not None and options.unknown_labels == "drop" else "refuse"
    test = read_test(
        test_file,
        reading,
        vocabulary=applied,
        unknown_labels=unknown,
        whole_vocabulary=options is not None and options.hierarchy,
        progress=progress,
    )
    train = None
    if train_file is not None:
        train = read(
            train_file, reading, vocabulary=applied, unknown_labels=unknown, whole_vocabulary=False, progress=progress
        )
    labels = None if named is None else named.index
    if named is not None and named.plain:  # line n is the key of label n
        labels = LabelIndex.from_keys(named.index.names)
    elif named is not None and (named.replaced or named.deprecated):
        labels = None  # label numbers do not match the line numbers of the file
    if named is None and str(test_file) != "-" and _format_of(test_file, reading) == "lf":
        label_file = lf.labels_beside(test_file)
        labels = None if label_file is None else lf.read_label_texts(label_file)
    return judge_file(
        path, test, options or EvaluationOptions(), train=train, file_format=predictions_format, labels=labels
    )


def _format_of(path: str | Path, reading: ReadOptions | None) -> str:
    return (reading.file_format if reading else None) or detected(path)


def judge_file(
    path: str | Path,
    test: Dataset,
    options: EvaluationOptions,
    *,
    train: Dataset | None = None,
    file_format: str | None = None,
    labels: LabelIndex | None = None,
) -> Evaluation:
    """Evaluate predictions from a file; `labels` resolves labels that the file gives by number only.

    With `train`, its labels are numbered first, as in a model trained on it, so that means over labels agree.
    """
    if options.threshold == "auto":
        raise ConfigError("a file of predictions has no tuned threshold. Pass a number, or evaluate a model folder.")
    threshold = None if options.threshold is None else float(options.threshold)
    depth = prediction_depth(options) + most_filtered(options, test)
    predictions = read_predictions(path, file_format, depth if threshold is None else None)  # sets are of any size
    top = match_to(predictions, test, path)
    assert test.label_index is not None
    # If the test file also gives labels by number, names are not needed.
    if labels is not None and predictions.numbered and (labels.ids(test.label_index.keys) >= 0).any():
        numbers = np.array([int(key) for key in top.index.keys], dtype=np.int64)
        if numbers.max(initial=-1) >= len(labels):
            raise DataError(
                f"{path}: label number {numbers.max()} is out of range for {len(labels):,} labels. List all labels."
            )
        top = top.relabelled(np.where(top.labels >= 0, numbers[top.labels], -1), top.scores, labels)
    _check_same_keys(top, test, path)
    if train is None:
        return judge(top, test, options, threshold=threshold)
    if train.labels is None or train.label_index is None:
        raise DataError("the training documents have no labels. Pass a Dataset with labels.")
    counts = np.bincount(train.labels.indices, minlength=train.labels.shape[1]).astype(np.int64)
    top = _numbered_after(train.label_index, top)
    counts = np.concatenate([counts, np.zeros(len(top.index) - len(counts), dtype=np.int64)])
    return judge(top, test, options, training=Training(top.index, counts, len(train)), threshold=threshold)


def _numbered_after(known: LabelIndex, top: TopK) -> TopK:
    """Renumber predictions to the label numbers of `known`; predicted labels missing from it are appended."""
    returned = np.unique(top.labels[top.labels >= 0])
    numbers = np.full(len(top.index) + 1, -1, dtype=np.int64)  # a pad picks the last
    numbers[returned] = known.ids(top.index.strings("key", returned))
    others = returned[numbers[returned] < 0]
    numbers[others] = len(known) + np.arange(len(others))
    index = known if not len(others) else LabelIndex(pa.concat_tables([known.table, top.index.take(others).table]))
    return top.relabelled(numbers[top.labels], top.scores, index)


def _check_same_keys(top: TopK, test: Dataset, path: str | Path) -> None:
    """Raise DataError if predictions and test set have no label in common: they probably use different keys."""
    assert test.label_index is not None
    predicted = np.unique(top.labels[top.labels >= 0])
    keys = top.index.strings("key", predicted)
    if keys and (test.label_index.ids(keys) < 0).all():
        raise DataError(
            f"{path}: no predicted label occurs in the test file ('{shown(keys[0])}' predicted, "
            f"'{shown(test.label_index.key(0)) if len(test.label_index) else ''}' in the test file). "
            "Use the same label keys in both."
        )
