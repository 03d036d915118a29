"""Performance on frequent and rare labels: AUC and AUPR of each label over all documents, by frequency group.

This is Table 6 of AttentionXML's first version. A label ranks all test documents by its scores, but with only k
predicted labels per document, most documents have no score for it. These rank last, and `ties` determines how:

- "pessimistic": among equal scores, documents without the label rank first, so that a true document without a score
  ranks after all others. Published AUCs below one half indicate this variant.
- "standard": equal scores form one step. AUC counts a tied pair as half, AUPR is scikit-learn's average precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from xmtc.core.errors import DataError
from xmtc.metrics.matching import (
    NOT_RETURNED,
    FloatArray,
    IntegerArray,
    Match,
    Ranked,
    Truth,
    check_count,
    first_mentions,
    label_numbers,
    match,
)

Ties: TypeAlias = Literal["pessimistic", "standard"]

SCORES_AT_ONCE = 1 << 21
"""Scores to sort at a time, all scores of a label together: about 100 MiB."""


class Scored(Ranked, Protocol):
    """Predictions with label numbers and scores, such as a TopK."""

    @property
    def scores(self) -> NDArray[np.floating[Any]]:
        """Scores (n, k) of the labels."""
        ...


@dataclass(frozen=True)
class FrequencyGroup:
    """Labels of similar frequency: those with at least `least` test documents that are not in an earlier group."""

    least: int
    labels: int
    occurrences: int
    """Total number of test documents of the labels."""
    auc: float
    """Mean over the labels, without labels that every document has, whose AUC is undefined; NaN if none is left."""
    aupr: float


def frequency_groups(
    predicted: Scored, truth: Truth, groups: int = 3, at_least: int = 5, ties: Ties = "pessimistic"
) -> list[FrequencyGroup]:
    """Split labels with `at_least` test documents into groups of similar total occurrences, most frequent first.

    Labels of equal frequency stay together, so each group is defined by its lower bound. With fewer distinct
    frequencies than `groups`, the result has fewer groups.
    """
    check_count("groups", groups)
    check_count("at_least", at_least)
    if ties not in get_args(Ties):
        raise DataError(f"'ties' must be 'pessimistic' or 'standard'. Got {ties!r}.")
    returned, scores = _checked(predicted)
    found = match(returned, truth, [max(returned.shape[1], 1)])
    support = np.bincount(found.labels, minlength=truth.shape[1])  # (L',)
    frequent = np.flatnonzero(support >= at_least)
    if not len(frequent):
        most = int(support.max(initial=0))
        raise DataError(f"no label has {at_least} test documents; the maximum is {most}. Lower 'at_least'.")
    frequent = frequent[np.argsort(-support[frequent], kind="stable")]  # (m,)
    sizes = support[frequent]  # (m,)
    auc, aupr = _areas(found, returned, scores, frequent, ties)  # (m,) each
    bounds = [0, *_cuts(sizes, groups), len(sizes)]
    members = [slice(start, end) for start, end in pairwise(bounds)]
    return [
        FrequencyGroup(
            least=int(sizes[group][-1]),
            labels=len(sizes[group]),
            occurrences=int(sizes[group].sum()),
            auc=_mean(auc[group][~np.isnan(auc[group])]),
            aupr=_mean(aupr[group]),
        )
        for group in members
    ]


def _checked(predicted: Scored) -> tuple[IntegerArray, NDArray[np.floating[Any]]]:
    if not hasattr(predicted, "scores"):
        raise DataError(f"frequency groups need scores. Pass a TopK, not {type(predicted).__name__}.")
    returned, scores = label_numbers(predicted), np.asarray(predicted.scores)  # (n, k') each
    if returned.shape != scores.shape:
        raise DataError(f"labels and scores must be (n, k) arrays. Got the shapes {returned.shape} and {scores.shape}.")
    if np.isnan(scores[returned >= 0]).any():
        raise DataError("a score is NaN, so documents cannot be ranked. Replace it with a number.")
    return returned, scores


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _cuts(sizes: NDArray[np.int64], groups: int) -> list[int]:
    """Return where groups end: the boundaries between frequencies closest to equal total occurrences."""
    places = np.flatnonzero(np.diff(sizes)) + 1  # sizes are descending
    before = np.cumsum(sizes)[places - 1]  # (places,) occurrences up to there
    groups = min(groups, len(places) + 1)
    chosen: list[int] = []
    for number in range(1, groups):
        nearest = int(np.argmin(np.abs(before - sizes.sum() * number / groups)))
        earliest = chosen[-1] + 1 if chosen else 0
        chosen.append(min(max(nearest, earliest), len(places) - (groups - number)))  # leave one for each later group
    return [int(places[at]) for at in chosen]


@dataclass(frozen=True)
class _Entries:
    """Scored (document, label) pairs: sorted by label, then by descending score, false before true on ties."""

    label: NDArray[np.integer[Any]]  # (e,) position among the frequent labels
    score: NDArray[np.floating[Any]]  # (e,)
    true: NDArray[np.bool_]  # (e,) whether the document has the label


def _areas(
    found: Match, returned: IntegerArray, scores: NDArray[np.floating[Any]], frequent: NDArray[np.int64], ties: Ties
) -> tuple[FloatArray, FloatArray]:
    """Compute AUC and AUPR of the frequent labels; AUC is NaN if every document has the label."""
    count = len(frequent)
    place = np.full(int(frequent.max()) + 1, -1, dtype=np.int32)  # position of each label among the frequent ones
    place[frequent] = np.arange(count)
    positives = np.bincount(found.labels, minlength=len(place))[frequent]  # (m,)
    negatives = found.documents - positives  # (m,)
    below, precision = np.zeros(count), np.zeros(count)  # (m,) sums over the true documents of each label
    scored, hits = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)  # (m,) documents
    for entries in _blocks(found, returned, scores, place):
        label = entries.label[entries.true]
        passed, precisions = _curve(entries, ties)  # (len(label),) each
        below += np.bincount(label, negatives[label] - passed, minlength=count)
        precision += np.bincount(label, precisions, minlength=count)
        scored += np.bincount(entries.label, minlength=count)
        hits += np.bincount(label, minlength=count)
    missed = positives - hits  # (m,) true documents without a score
    if ties == "standard":
        below += missed * (negatives - (scored - hits)) / 2
        precision += missed * positives / found.documents
    else:
        which = np.repeat(np.arange(count), missed)  # (all missed,)
        nth = hits[which] + 1 + np.arange(len(which)) - (np.cumsum(missed) - missed)[which]  # true one of its label
        precision += np.bincount(which, nth / (negatives[which] + nth), minlength=count)
    pairs = (positives * negatives).astype(np.float64)  # (m,)
    auc = np.divide(below, pairs, out=np.full(count, np.nan), where=pairs > 0)
    return auc, precision / positives


def _curve(entries: _Entries, ties: Ties) -> tuple[FloatArray, FloatArray]:
    """Return, for each true document, the number of negatives ranked before it and the precision at its rank."""
    start = _starts(entries.label[1:] != entries.label[:-1])  # (e,) where the label's documents start
    true, false = _counts(entries.true, start), _counts(~entries.true, start)  # (e,) of its label up to it
    passed = false.astype(np.float64)
    if ties == "standard":
        step = (entries.label[1:] != entries.label[:-1]) | (entries.score[1:] != entries.score[:-1])
        first, last = _starts(step), len(step) - _starts(step[::-1])[::-1]  # (e,) of the entries with its score
        before = (false - ~entries.true)[first]
        true, false = true[last], false[last]
        passed = (before + false) / 2.0
    return passed[entries.true], (true / (true + false))[entries.true]


def _counts(kind: NDArray[np.bool_], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count entries of this kind from `start` up to and including each entry."""
    counts = np.cumsum(kind, dtype=np.int64)
    return counts - (counts - kind)[start]


def _starts(new: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the start of the run of each of len(new) + 1 entries; `new`: whether the next entry starts a run."""
    at = np.arange(len(new) + 1)
    at[1:][~new] = 0
    return np.maximum.accumulate(at)


def _blocks(
    found: Match, returned: IntegerArray, scores: NDArray[np.floating[Any]], place: NDArray[np.int32]
) -> Iterator[_Entries]:
    """Yield the scores of the frequent labels, some labels at a time."""
    hit = found.ranks < NOT_RETURNED
    true = np.zeros(returned.shape, dtype=bool)
    true[found.rows[hit], found.ranks[hit]] = True
    wanted = first_mentions(returned) & (returned < len(place))  # (n, k')
    wanted[wanted] = place[returned[wanted]] >= 0
    labels, scores, true = place[returned[wanted]], scores[wanted], true[wanted]  # (all entries,) each
    ends = np.cumsum(np.bincount(labels))  # (≤ m,) entries up to each label
    first = 0
    while first < len(ends):
        limit = (ends[first - 1] if first else 0) + SCORES_AT_ONCE
        after = max(int(np.searchsorted(ends, limit, side="right")), first + 1)
        inside = np.flatnonzero((labels >= first) & (labels < after))
        order = inside[np.lexsort((true[inside], -scores[inside], labels[inside]))]
        if len(order):
            yield _Entries(labels[order], scores[order], true[order])
        first = after
