"""Convert ranked labels to label sets: thresholds tuned for F1, and sets with the best expected F1.

F1 is 2 · hits / (true + returned), 0 if nothing is true or returned:

- `micro`: over all (document, label) pairs,
- `macro`: mean over labels,
- `document`: mean over documents.

Three rules:

- `global`: one threshold for all labels, the exact optimum.
- `label`: one threshold per label. The exact optimum for micro and macro; for document, coordinate ascent from the
  global threshold. A label with few hits among the validation predictions keeps the global threshold, since an optimum
  on one or two documents does not generalise.
- `document`: for each document the number of labels with the best expected F1, assuming that scores are probabilities
  of independent labels. It needs no tuning.

True labels that are not predicted, because the model does not know them or ranks them lower, count as missed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.errors import ConfigError, DataError, shown
from xmtc.core.jit import inlined, kernel
from xmtc.data.topk import TopK
from xmtc.metrics.matching import Truth, check_truth, first_mentions, first_ranks, label_numbers, true_labels

Kind = Literal["global", "document", "label"]
Measure = Literal["micro", "macro", "document"]

LEAST_HITS = 3
"""Minimum number of hits for a label to get its own threshold."""

CONSIDERED = 50
"""Maximum number of candidate labels per document for the document rule."""

_PASSES = 5  # over all labels; the first one gains most


@dataclass(frozen=True)
class Thresholds:
    """A rule that selects the label set of a document from its ranked labels."""

    kind: Kind
    measure: Measure  # F1 variant that it optimises
    value: float  # minimum score of a label in the set; for `label`, of labels without their own threshold
    by_label: NDArray[np.float32] | None = None  # (L,) `label` only

    def choose(self, labels: NDArray[np.integer[Any]], scores: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
        """Return a mask (n, k) of the ranked labels in the sets; padding is never selected."""
        labels, given = _ranked(labels, scores)  # (n, k) each
        filled = labels >= 0
        if self.kind == "document":
            _check_chances(given[filled])
            return filled & (np.cumsum(filled, axis=1) <= _best_sizes(filled, given, CONSIDERED)[:, None])
        if self.by_label is None:
            return filled & (given >= np.float32(self.value))
        _check_labels(labels, len(self.by_label))
        least = np.append(self.by_label, np.float32(np.inf))[labels]  # (n, k); padding selects the last entry
        return filled & (given >= least)

    def values(self) -> dict[str, Any]:
        """Return the values to save as JSON."""
        return {"kind": self.kind, "measure": self.measure, "value": self.value}

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return the arrays to save."""
        return {} if self.by_label is None else {"by_label": self.by_label}

    @classmethod
    def restored(cls, values: Mapping[str, Any], state: SavedState) -> Thresholds:
        """Restore saved thresholds; raise ValueError, KeyError or TypeError if they are inconsistent."""
        kind, measure, value = values["kind"], values["measure"], float(values["value"])
        if kind not in get_args(Kind) or measure not in get_args(Measure) or not _is_score(value):
            raise ValueError("kind, measure or value of thresholds is invalid")
        if kind != "label":
            return cls(kind, measure, value)
        return cls(kind, measure, value, state.array("by_label", np.float32, (None,)))


def fixed(value: float) -> Thresholds:
    """Create a fixed threshold: labels with a score of at least `value` are in the set."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or not _is_score(float(value)):
        raise ConfigError(f"a threshold must be a number. Got {shown(value)}.")
    return Thresholds("global", "micro", float(value))


def tune(
    kind: Kind,
    measure: Measure,
    labels: NDArray[np.integer[Any]],
    scores: NDArray[np.floating[Any]],
    truth: Truth,
    *,
    label_count: int,
) -> Thresholds:
    """Tune a rule for the best F1 on validation documents, given ranked labels (n, k) and true labels (n, L').

    `label_count` is the number of labels of the model.
    """
    if kind not in get_args(Kind):
        raise ConfigError(f"thresholds must be one of {', '.join(get_args(Kind))}. Got '{shown(kind)}'.")
    if measure not in get_args(Measure):
        raise ConfigError(f"'measure' must be one of {', '.join(get_args(Measure))}. Got '{shown(measure)}'.")
    if kind == "document" and measure != "document":
        raise ConfigError(f"document thresholds optimise document-F1, not {measure}-F1. Use 'document'.")
    labels, given = _ranked(labels, scores)  # (n, k) each
    _check_labels(labels, label_count)
    pairs = _Pairs.of(labels, given, truth)
    if kind == "document":
        _check_chances(pairs.scores)
        return Thresholds("document", "document", 0.0)
    if not pairs.hits.any():
        raise DataError(
            f"none of the {len(pairs.hits):,} predicted labels is true, so thresholds cannot be tuned. "
            f"Provide more validation documents, or a larger k."
        )
    value = _global(measure, pairs, truth)
    if kind == "global":
        return Thresholds("global", measure, float(value))
    return Thresholds("label", measure, float(value), _by_label(measure, pairs, truth, value, label_count))


def select_labels(top: TopK, chosen: NDArray[np.bool_]) -> TopK:
    """Keep only the chosen labels, shifted to the left in their order and padded.

    The set of a document without a known word is empty: its scores do not depend on the document.
    """
    if chosen.shape != top.labels.shape:
        raise DataError(f"labels {top.labels.shape} and mask {chosen.shape} differ in shape. Pass one value per label.")
    chosen = chosen & (top.labels >= 0)  # (n, k)
    if top.known_words is not None:
        chosen &= top.known_words[:, None]
    order = np.argsort(~chosen, axis=1, kind="stable")
    stays = np.take_along_axis(chosen, order, axis=1)
    labels = np.where(stays, np.take_along_axis(top.labels, order, axis=1), -1)
    scores = np.where(stays, np.take_along_axis(top.scores, order, axis=1), np.float32(-np.inf))
    return top.relabelled(labels, scores)


def hits_among(labels: NDArray[np.integer[Any]], truth: Truth) -> NDArray[np.bool_]:
    """Return a mask (n, k) of the ranked labels that are true; a repeated label counts once, the first time."""
    labels = label_numbers(labels)  # (n, k)
    check_truth(truth, len(labels), "Predictions")
    rows, columns = true_labels(truth)  # (nnz,) each
    ranks = first_ranks(np.ascontiguousarray(labels), rows, columns)
    found = ranks < labels.shape[1]
    hits = np.zeros(labels.shape, dtype=bool)
    hits[rows[found], ranks[found]] = True
    return hits


@dataclass(frozen=True)
class _Pairs:
    """Predicted (document, label) pairs."""

    documents: NDArray[np.int64]  # (m,)
    labels: NDArray[np.int64]  # (m,)
    scores: NDArray[np.float32]  # (m,)
    hits: NDArray[np.bool_]  # (m,)

    @classmethod
    def of(cls, labels: NDArray[np.int64], scores: NDArray[np.float32], truth: Truth) -> _Pairs:
        chosen = first_mentions(labels)  # (n, k)
        pairs = cls(np.nonzero(chosen)[0], labels[chosen], scores[chosen], hits_among(labels, truth)[chosen])
        if len(pairs.scores) == 0:
            raise DataError(
                "the predictions to tune thresholds on contain no labels. Use documents with predicted labels."
            )
        if not np.isfinite(pairs.scores).all():
            raise DataError("a score to tune thresholds on is infinite or NaN. Remove labels with such scores.")
        return pairs

    def ordered(self, order: NDArray[np.int64]) -> _Pairs:
        return _Pairs(self.documents[order], self.labels[order], self.scores[order], self.hits[order])


def _global(measure: Measure, pairs: _Pairs, truth: Truth) -> np.float32:
    """Find the threshold with the best F1, halfway between the last included and the first excluded score."""
    pairs = pairs.ordered(np.argsort(-pairs.scores, kind="stable"))
    rows, columns = true_labels(truth)  # (nnz,) each
    if measure == "micro":
        groups, true = np.zeros_like(pairs.labels), np.array([len(rows)])
    elif measure == "macro":
        groups, true = pairs.labels, np.bincount(columns, minlength=int(pairs.labels.max()) + 1)
    else:
        groups, true = pairs.documents, np.bincount(rows, minlength=truth.shape[0])
    cut = _best_cut(pairs.scores, groups, pairs.hits, true)  # at least 1, as there is a hit
    if cut == len(pairs.scores):
        return np.float32(pairs.scores[-1])
    return np.float32(_between(pairs.scores[cut - 1 : cut], pairs.scores[cut : cut + 1])[0])


def _by_label(
    measure: Measure, pairs: _Pairs, truth: Truth, value: np.float32, label_count: int
) -> NDArray[np.float32]:
    """Find the threshold of each label; outside the range of a label's scores, the global threshold applies."""
    pairs = pairs.ordered(np.lexsort((-pairs.scores, pairs.labels)))
    counts = np.bincount(pairs.labels, minlength=label_count)  # (L,)
    starts = np.concatenate([[0], np.cumsum(counts)])  # (L + 1,)
    own = np.bincount(pairs.labels[pairs.hits], minlength=label_count) >= LEAST_HITS  # (L,)
    cuts = np.bincount(pairs.labels[pairs.scores >= value], minlength=label_count)  # (L,) number of included pairs
    rows, columns = true_labels(truth)  # (nnz,) each
    if measure == "macro":
        true = np.bincount(columns, minlength=label_count)  # (L,) or longer
        _best_cuts(starts, pairs.scores, pairs.hits, true, own, cuts)
    elif measure == "micro":
        cuts = _best_ratio(starts, pairs, len(rows), own, cuts)
    else:
        true = np.bincount(rows, minlength=truth.shape[0])  # (n,)
        _ascend(starts, pairs.documents, pairs.scores, pairs.hits, true, own, _PASSES, cuts)
    thresholds = np.full(label_count, value, dtype=np.float32)
    inner = own & (cuts > 0) & (cuts < counts)
    ends = (starts[:-1] + cuts)[inner]
    thresholds[inner] = _between(pairs.scores[ends - 1], pairs.scores[ends])
    all_taken, none_taken = own & (cuts == counts), own & (cuts == 0)
    thresholds[all_taken] = np.minimum(value, pairs.scores[starts[1:][all_taken] - 1])
    highest = pairs.scores[starts[:-1][none_taken]]
    thresholds[none_taken] = np.maximum(value, np.nextafter(highest, np.float32(np.inf)))
    return thresholds


def _best_ratio(
    starts: NDArray[np.int64], pairs: _Pairs, true: int, own: NDArray[np.bool_], cuts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Find the cuts with the best micro-F1 by Dinkelbach's iteration.

    With the current F1 = 2 · a / b, each label takes the cut with the largest b · hits − a · returned. The iteration
    continues while F1 increases; when it no longer does, the cuts are optimal.
    """
    before = np.concatenate([[0], np.cumsum(pairs.hits)])  # (m + 1,) hits before each pair

    def counted(cuts: NDArray[np.int64]) -> tuple[int, int]:
        return int((before[starts[:-1] + cuts] - before[starts[:-1]]).sum()), true + int(cuts.sum())

    hits, size = counted(cuts)
    while True:
        better = cuts.copy()
        _best_gains(starts, pairs.scores, pairs.hits, size, hits, own, better)
        new_hits, new_size = counted(better)
        if new_hits * size <= hits * new_size:
            return cuts
        cuts, hits, size = better, new_hits, new_size


def _between(above: NDArray[np.float32], below: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the midpoint of two scores, rounded such that the upper score is ≥ and the lower score < the result."""
    middle = ((above.astype(np.float64) + below) / 2).astype(np.float32)
    return np.where(middle > below, middle, above)


def _ranked(
    labels: NDArray[np.integer[Any]], scores: NDArray[np.floating[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    labels, given = label_numbers(labels), np.asarray(scores, dtype=np.float32)  # (n, k) each
    if labels.shape != given.shape:
        raise DataError(f"labels and scores must be (n, k) arrays. Got the shapes {labels.shape} and {given.shape}.")
    return labels.astype(np.int64, copy=False), given


def _check_labels(labels: NDArray[np.int64], label_count: int) -> None:
    if labels.size and labels.max() >= label_count:
        raise DataError(
            f"label {labels.max()} is out of range for the model's {label_count:,} labels. Pass its predictions."
        )


def _check_chances(scores: NDArray[np.float32]) -> None:
    if not ((scores >= 0) & (scores <= 1)).all():
        raise DataError(
            "document thresholds need probabilities, but scores are outside [0, 1]. Calibrate the model first."
        )


def _is_score(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= float(np.finfo(np.float32).max)


@inlined
def _f1(hits: int, true: int, returned: int) -> float:
    return 2.0 * hits / (true + returned) if true + returned > 0 else 0.0


@kernel()
def _best_cut(
    scores: NDArray[np.float32], groups: NDArray[np.int64], hits: NDArray[np.bool_], true: NDArray[np.int64]
) -> int:
    """Return how many pairs, by descending score, maximise the sum of the groups' F1; ties are not split."""
    found = np.zeros(len(true), np.int64)
    returned = np.zeros(len(true), np.int64)
    total, best, cut = 0.0, 0.0, 0
    for i in range(len(scores)):
        group = groups[i]
        total -= _f1(found[group], true[group], returned[group])
        found[group] += hits[i]
        returned[group] += 1
        total += _f1(found[group], true[group], returned[group])
        if (i + 1 == len(scores) or scores[i + 1] < scores[i]) and total > best:
            best, cut = total, i + 1
    return cut


@kernel(outputs=("cuts",))
def _best_cuts(
    starts: NDArray[np.int64],
    scores: NDArray[np.float32],
    hits: NDArray[np.bool_],
    true: NDArray[np.int64],
    own: NDArray[np.bool_],
    cuts: NDArray[np.int64],
) -> None:
    """Find the cut of each label with the largest F1, compared exactly in integers."""
    for label in range(len(own)):
        if not own[label]:
            continue
        found, best, size, cut = 0, 0, 1, 0
        for i in range(starts[label], starts[label + 1]):
            found += hits[i]
            returned = i + 1 - starts[label]
            last = i + 1 == starts[label + 1] or scores[i + 1] < scores[i]
            if last and found * size > best * (true[label] + returned):
                best, size, cut = found, true[label] + returned, returned
        cuts[label] = cut


@kernel(outputs=("cuts",))
def _best_gains(
    starts: NDArray[np.int64],
    scores: NDArray[np.float32],
    hits: NDArray[np.bool_],
    gain: int,
    cost: int,
    own: NDArray[np.bool_],
    cuts: NDArray[np.int64],
) -> None:
    """Find the cut of each label with the largest gain · hits − cost · returned."""
    for label in range(len(own)):
        if not own[label]:
            continue
        total, best, cut = 0, 0, 0
        for i in range(starts[label], starts[label + 1]):
            total += gain * hits[i] - cost
            last = i + 1 == starts[label + 1] or scores[i + 1] < scores[i]
            if last and total > best:
                best, cut = total, i + 1 - starts[label]
        cuts[label] = cut


@kernel(outputs=("cuts",))
def _ascend(
    starts: NDArray[np.int64],
    documents: NDArray[np.int64],
    scores: NDArray[np.float32],
    hits: NDArray[np.bool_],
    true: NDArray[np.int64],
    own: NDArray[np.bool_],
    passes: int,
    cuts: NDArray[np.int64],
) -> None:
    """Coordinate ascent: optimise the cut of one label at a time for document-F1 until it no longer increases."""
    found = np.zeros(len(true), np.int64)
    returned = np.zeros(len(true), np.int64)
    for label in range(len(own)):
        for i in range(starts[label], starts[label] + cuts[label]):
            found[documents[i]] += hits[i]
            returned[documents[i]] += 1
    for _ in range(passes):
        moved = False
        for label in range(len(own)):
            if not own[label]:
                continue
            start, before = starts[label], cuts[label]
            for i in range(start, start + before):
                found[documents[i]] -= hits[i]
                returned[documents[i]] -= 1
            total, held, best, cut = 0.0, 0.0, 0.0, 0
            for i in range(start, starts[label + 1]):
                document = documents[i]
                total += _f1(found[document] + hits[i], true[document], returned[document] + 1)
                total -= _f1(found[document], true[document], returned[document])
                if i + 1 - start == before:
                    held = total
                if (i + 1 == starts[label + 1] or scores[i + 1] < scores[i]) and total > best:
                    best, cut = total, i + 1 - start
            if best <= held + 1e-12:  # no gain beyond rounding
                cut = before
            for i in range(start, start + cut):
                found[documents[i]] += hits[i]
                returned[documents[i]] += 1
            moved |= cut != before
            cuts[label] = cut
        if not moved:
            break


@kernel()
def _best_sizes(filled: NDArray[np.bool_], scores: NDArray[np.float32], considered: int) -> NDArray[np.int64]:
    """Return the number of labels (n,), best first, with the largest expected F1 per document; 0 only without labels.

    Let i of the first m labels be true with probability P(i), and j of the others. With E(s) the mean of 1 / (s + j),
    the expected F1 is the sum of P(i) · 2 · i · E(m + i). Moving a label with probability p from the set to the others
    changes E(s) to (1 − p) · E(s) + p · E(s + 1): k² steps per document, without a sum over j.
    """
    width = min(filled.shape[1], considered)
    sizes = np.zeros(len(filled), np.int64)
    chances = np.empty(width, np.float64)
    first = np.zeros((width + 1, width + 1), np.float64)  # probability that i of the first m are true
    means = np.empty(2 * width + 1, np.float64)  # E(s)
    for row in range(len(filled)):
        count = 0
        for column in range(filled.shape[1]):
            if filled[row, column] and count < width:
                chances[count] = scores[row, column]
                count += 1
        first[0, 0] = 1.0
        for m in range(1, count + 1):
            chance = chances[m - 1]
            first[m, 0] = first[m - 1, 0] * (1.0 - chance)
            for i in range(1, m):
                first[m, i] = first[m - 1, i] * (1.0 - chance) + first[m - 1, i - 1] * chance
            first[m, m] = first[m - 1, m - 1] * chance
        for s in range(1, 2 * count + 1):
            means[s] = 1.0 / s
        best = -1.0
        for m in range(count, 0, -1):
            expected = 0.0
            for i in range(1, m + 1):
                expected += first[m, i] * 2.0 * i * means[m + i]
            if expected >= best:  # the smaller set on ties
                best, sizes[row] = expected, m
            for s in range(1, 2 * m):
                means[s] += chances[m - 1] * (means[s + 1] - means[s])
    return sizes
