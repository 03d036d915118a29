"""Compare predictions with the true labels: the result of an evaluation and its computation."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc import metrics
from xmtc.core.errors import ConfigError, DataError
from xmtc.core.files import plain_cell, replace_file
from xmtc.data.dataset import Csr, Dataset, align_labels
from xmtc.data.label_index import LabelIndex
from xmtc.data.lf import read_filter
from xmtc.data.topk import TopK
from xmtc.decisions.decision_rules import counted_columns, score_sets
from xmtc.decisions.thresholds import Thresholds, fixed, select_labels
from xmtc.labels.hierarchy import Hierarchy
from xmtc.labels.propensity import inverse_propensities
from xmtc.metrics import FrequencyGroup, Interval, Parts, Reliability
from xmtc.metrics.groups import Ties
from xmtc.workflows.requests import EvaluationOptions

__all__ = [
    "DEEP",
    "KS",
    "LEAST",
    "Evaluation",
    "FrequencyGroup",
    "Interval",
    "Reliability",
    "Thresholds",
    "Training",
    "judge",
    "most_filtered",
    "prediction_depth",
    "write_per_label",
]

KS = (1, 3, 5)
DEEP = 100
"""Labels predicted per document for frequency groups; a label that is not among them counts as having no score."""
LEAST = 5
"""Minimum number of test documents of a label in a frequency group."""
TAIL_LABELS = 10
TAIL_KS = (1, 10, 20)


class Scorer(Protocol):
    """The method of a model that evaluating tail labels needs."""

    def score_labels(self, documents: Any, candidates: Any) -> NDArray[np.float32]:
        """Return (n, c) scores of the given candidate labels."""
        ...


@dataclass(frozen=True)
class Training:
    """Label counts of the training set."""

    index: LabelIndex
    counts: NDArray[np.int64]
    """(L,) training documents of each label."""
    documents: int
    """Number of training documents."""
    predicts_unused: bool = False
    """Whether labels without training documents can be predicted too, by their names."""

    @property
    def used_labels(self) -> LabelIndex:
        """The labels with training documents."""
        return self.index.take(np.flatnonzero(self.counts))

    @property
    def predictable_labels(self) -> LabelIndex:
        """The labels that can be predicted: all if names are used, otherwise those with training documents."""
        return self.index if self.predicts_unused else self.used_labels


@dataclass(frozen=True)
class Evaluation:
    """Metrics of one system on one test set, with the predictions and true labels they were computed from."""

    metrics: dict[str, float]
    documents: int
    seconds: float
    unknown_labels: int | None
    """Distinct test labels without training documents; None if the training set is unknown."""
    unknown_pairs: int
    """(document, label) pairs with such a label."""
    predictions: TopK = field(repr=False)
    truth: Csr = field(repr=False)
    """(n, L') label numbers as in the predictions; labels that are never predicted follow."""
    truth_keys: list[str] = field(repr=False)
    """Keys of the columns that follow those of the predictions."""
    intervals: dict[str, Interval] = field(default_factory=dict)
    groups: dict[str, list[FrequencyGroup]] = field(default_factory=dict)
    """By treatment of ties."""
    tail: dict[str, dict[str, float]] = field(default_factory=dict)
    """By denominator."""
    parts: dict[str, Parts] = field(default_factory=dict, repr=False)
    """Per-document terms of each metric, if intervals were computed."""
    reliability: Reliability | None = None
    """Reliability of the scores; None if they are not probabilities."""
    sets: dict[str, float] | None = None
    """F1, precision, recall and size of the label sets at a threshold."""
    threshold: Thresholds | float | None = None
    """The tuned rule or the given score."""
    predictable_labels: int = 0
    """Those of the `unknown_labels` that the model can predict by name and that were not dropped."""
    dropped_labels: int = 0
    """Distinct test labels that were dropped."""

    def to_json(self) -> dict[str, Any]:
        """Return the metrics and everything that was computed with them as a JSON object."""
        out: dict[str, Any] = {**self.metrics, "documents": self.documents, "seconds": round(self.seconds, 4)}
        if self.intervals:
            out["intervals"] = {name: [interval.low, interval.high] for name, interval in self.intervals.items()}
        if self.groups:
            out["groups"] = {
                ties: [{name: _json_number(value) for name, value in vars(group).items()} for group in groups]
                for ties, groups in self.groups.items()
            }
        if self.tail:
            out["tail"] = self.tail
        if (curve := self.reliability) is not None:
            out["reliability"] = {f"ECE@{curve.k}": curve.error, "bins": [dict(vars(each)) for each in curve.bins]}
        if (rule := self.threshold) is not None:
            out["threshold"] = rule.values() if isinstance(rule, Thresholds) else {"value": rule}
            out["threshold"]["scores"] = self.sets
        return out


def _json_number(value: float) -> float | None:
    """Replace NaN, which JSON cannot represent, by None; e.g. the AUC of a label that every document has is NaN."""
    return None if math.isnan(value) else value


def prediction_depth(options: EvaluationOptions) -> int:
    """Number of labels to predict per document."""
    return DEEP if options.groups else max(KS)


def judge(
    predictions: TopK,
    test: Dataset,
    options: EvaluationOptions,
    *,
    training: Training | None = None,
    scorer: Scorer | None = None,
    seconds: float = 0.0,
    threshold: Thresholds | float | None = None,
    set_depth: int | None = None,
    kept: LabelIndex | None = None,
) -> Evaluation:
    """Compute all metrics of predictions; row i of the predictions belongs to test document i.

    Propensities require `training`; tail metrics require `training` and `scorer`. With a `threshold`, label sets are
    selected among the first `set_depth` labels of each document, or among all. With `unknown_labels` "drop", the true
    labels that are not among `kept` are dropped; by default, those that the model cannot predict.
    """
    if test.labels is None:
        raise DataError("the test documents have no labels. Pass a Dataset with labels.")
    truth, extra = align_labels(test, predictions.index)
    counts = _training_counts(training, predictions.index, extra)
    unseen = None if counts is None else _labels_and_pairs(truth, counts == 0)
    dropped = by_name = 0
    if options.unknown_labels == "drop":
        kept = training.predictable_labels if kept is None and training is not None else kept
        if kept is not None:
            truth, columns, dropped = _restricted(truth, predictions.index, extra, kept)
            extra = [extra[column] for column in columns[len(predictions.index) :] - len(predictions.index)]
            counts = None if counts is None else counts[columns]
    if training is not None and counts is not None and training.predicts_unused:
        known = len(predictions.index)
        by_name = _labels_and_pairs(truth[:, :known], counts[:known] == 0)[0]
    if options.filter_file is not None:
        predictions, truth = _filtered(predictions, truth, extra, options.filter_file)
    sets = None if threshold is None else _sets(predictions.first(set_depth or predictions.k), threshold)
    predictions = predictions.first(prediction_depth(options))
    inverse = None
    if counts is not None and training is not None:
        inverse = inverse_propensities(counts, training.documents, options.propensity_a, options.propensity_b)
    values = metrics.evaluate(predictions, truth, KS, inverse)
    values |= metrics.evaluate_sets(*counted_columns(predictions.labels, truth, counts), KS)
    parts = metrics.document_parts(predictions, truth, KS, inverse) if options.bootstrap else {}
    if options.hierarchy:
        nearby = metrics.hierarchy_parts(predictions, truth, _hierarchy(predictions.index, extra, test), KS)
        values |= {name: part.value for name, part in nearby.items()}
        parts |= nearby if options.bootstrap else {}
    intervals = metrics.bootstrap(parts, samples=options.bootstrap, seed=options.seed) if options.bootstrap else {}
    return Evaluation(
        values,
        len(test),
        seconds,
        None if unseen is None else unseen[0],
        0 if unseen is None else unseen[1],
        predictions,
        truth,
        extra,
        intervals,
        _groups(predictions, truth) if options.groups else {},
        _tail(test, truth, counts, scorer) if options.tail else {},
        parts,
        metrics.reliability(predictions, truth, max(KS)),
        None if sets is None else score_sets(sets.labels, truth, counts),
        threshold,
        by_name,
        dropped,
    )


def _hierarchy(index: LabelIndex, extra: Sequence[str], test: Dataset) -> Hierarchy:
    """The hierarchy of the labels of the truth: the predicted ones, then `extra` labels of the test set.

    The other labels of the test set follow: they link others. A label has the broader labels that the vocabulary of the
    test set gives, or else those of the predicted labels.
    """
    assert test.label_index is not None
    others = np.flatnonzero(index.ids(test.label_index.table["key"].combine_chunks()) < 0)
    first = test.label_index.ids(list(extra))
    joined = index.joined(test.label_index.take(np.concatenate([first, np.setdiff1d(others, first)])))
    known = test.label_index.ids(joined.table["key"].combine_chunks())
    parents = np.asarray(pc.fill_null(pc.list_value_length(test.label_index.table["parents"]), 0))
    linked = (known >= 0) & (np.append(parents, 0)[known] > 0)
    rows = np.where(linked, known + len(joined), np.arange(len(joined)))
    table = pa.concat_tables([joined.table, test.label_index.table]).take(pa.array(rows))
    hierarchy = Hierarchy(LabelIndex(table, joined.ancestors))
    if not hierarchy:
        raise DataError(
            "no label has a broader label, so there is no hierarchy to evaluate with. "
            "Pass a vocabulary with broader labels (--labels FILE), or leave out --hierarchy."
        )
    return hierarchy


def _groups(predictions: TopK, truth: Csr) -> dict[str, list[FrequencyGroup]]:
    if (most := int(np.bincount(truth.indices).max(initial=0))) < LEAST:
        raise DataError(
            f"frequency groups need labels with at least {LEAST} test documents, but no label has more than {most}. "
            "Leave out --groups."
        )
    conventions: tuple[Ties, ...] = ("pessimistic", "standard")
    return {ties: metrics.frequency_groups(predictions, truth, at_least=LEAST, ties=ties) for ties in conventions}


def _sets(predictions: TopK, threshold: Thresholds | float) -> TopK:
    rule = threshold if isinstance(threshold, Thresholds) else fixed(threshold)
    return select_labels(predictions, rule.choose(predictions.labels, predictions.scores))


def _training_counts(training: Training | None, index: LabelIndex, extra: Sequence[str]) -> NDArray[np.int64] | None:
    """(L',) training documents of each column of the truth, 0 for labels that do not occur in training."""
    if training is None:
        return None
    if training.index is index:
        return np.concatenate([training.counts, np.zeros(len(extra), dtype=np.int64)])
    numbers = training.index.ids([*index.keys, *extra])
    return np.where(numbers >= 0, training.counts[numbers], 0) if len(training.counts) else np.zeros_like(numbers)


def _labels_and_pairs(truth: Csr, columns: NDArray[np.bool_]) -> tuple[int, int]:
    """Number of the given labels that occur, and of (document, label) pairs with them."""
    pairs = truth.indices[columns[truth.indices]]
    return len(np.unique(pairs)), len(pairs)


def _restricted(
    truth: Csr, index: LabelIndex, extra: Sequence[str], kept: LabelIndex
) -> tuple[Csr, NDArray[np.int64], int]:
    """The truth with the labels `kept` only, the numbers of its columns, and the number of dropped labels.

    Columns that follow those of the predictions are dropped with their labels: the macro mean is over the others.
    """
    occurring = np.unique(truth.indices).astype(np.int64)
    beyond = occurring[occurring >= len(index)]
    keys = [*index.strings("key", occurring[: -len(beyond) or None]), *(extra[at] for at in beyond - len(index))]
    stays = kept.ids(keys) >= 0
    remaining = truth.copy()
    remaining.data[np.isin(truth.indices, occurring[~stays])] = 0
    remaining.eliminate_zeros()
    columns = np.append(np.arange(len(index)), occurring[stays & (occurring >= len(index))])
    return remaining[:, columns], columns, int(np.count_nonzero(~stays))


def _filtered(predictions: TopK, truth: Csr, extra: Sequence[str], path: Path) -> tuple[TopK, Csr]:
    """Remove the pairs of a filter file from predictions and truth; later labels move up."""
    rows, keys = read_filter(path, len(predictions))
    if not keys:
        return predictions, truth
    numbers = predictions.index.ids(keys)
    beyond = {key: len(predictions.index) + at for at, key in enumerate(extra)}
    numbers = np.array([beyond.get(key, -1) if at < 0 else at for at, key in zip(numbers, keys, strict=True)], np.int64)
    rows, numbers = rows[numbers >= 0], numbers[numbers >= 0]
    if not len(rows):
        raise DataError(f"{path}: no pair matches a predicted or true label. Check the label numbers.")
    pairs = sp.csr_array((np.ones(len(rows), dtype=np.float32), (rows, numbers)), shape=truth.shape)
    held = sp.csr_array(truth.astype(bool).astype(np.float32))
    kept = sp.csr_array(held - held.multiply(pairs.astype(bool)))
    kept.eliminate_zeros()
    start = np.arange(len(predictions), dtype=np.int64)[:, None] * truth.shape[1]  # each pair as one number
    out = np.isin(start + predictions.labels, start[rows, 0] + numbers) & (predictions.labels >= 0)  # (n, k)
    order = np.argsort(out, axis=1, kind="stable")  # filtered labels last
    labels = np.take_along_axis(np.where(out, -1, predictions.labels), order, axis=1)
    scores = np.take_along_axis(np.where(out, -np.inf, predictions.scores), order, axis=1)
    return predictions.relabelled(labels, scores), kept


def most_filtered(options: EvaluationOptions, test: Dataset) -> int:
    """Most labels that the filter removes from one document; predict that many more."""
    if options.filter_file is None:
        return 0
    rows, _ = read_filter(options.filter_file, len(test))
    return int(np.bincount(rows).max(initial=0)) if len(rows) else 0


def _tail(
    test: Dataset, truth: Csr, counts: NDArray[np.int64] | None, scorer: Scorer | None
) -> dict[str, dict[str, float]]:
    if scorer is None or counts is None:
        raise ConfigError("tail metrics need a model that scores given labels. Pass a model folder.")
    rare = metrics.rarest_labels(counts, truth, TAIL_LABELS)
    if not len(rare):
        raise DataError("no label of the test file occurs in the training set, so there is no tail to evaluate.")
    scores = scorer.score_labels(test, np.broadcast_to(rare, (len(test), len(rare))).copy())
    return metrics.tail_precision(scores, truth[:, rare], TAIL_KS)


def write_per_label(evaluation: Evaluation, path: Path, k: int = max(KS)) -> None:
    """Write a CSV with one row per label: key, name, support in the test set, suggestions, hits, never suggested."""
    index = evaluation.predictions.index
    counts = metrics.per_label(evaluation.predictions, evaluation.truth, k)
    keys, names = [*index.keys, *evaluation.truth_keys], [*index.names, *evaluation.truth_keys]
    with replace_file(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["key", "name", "support", f"suggested@{k}", f"hits@{k}", "never_suggested"])
        rows = zip(keys, names, counts.support.tolist(), counts.suggested.tolist(), counts.hits.tolist(), strict=True)
        for key, name, support, suggested, hits in rows:
            if support or suggested:
                cells = map(plain_cell, (key, name))
                writer.writerow([*cells, support, suggested, hits, "no" if suggested else "yes"])
        text.detach()
