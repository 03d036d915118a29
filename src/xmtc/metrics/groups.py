"""How well frequent and rare labels are found: AUC and AUPR of each label over all documents, by frequency group.

This is Table 6 of AttentionXML's first version. A label ranks all test documents by its scores, but an answer of k
labels a document holds few of them: the documents that did not get the label have no score. They come after all
that have one, and `ties` says how:

- "pessimistic": of equal scores the documents that do not hold the label come first, so that one that holds it and
  did not get it comes after all of them. Published AUCs below one half show that this was done.
- "standard": equal scores are one step. AUC counts a tied pair half, AUPR is scikit-learn's average precision.
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
"""Scores that are sorted in one go, a label's being kept together: about 100 MiB."""


class Scored(Ranked, Protocol):
    """Anything that carries label numbers and their scores as TopK does."""

    @property
    def scores(self) -> NDArray[np.floating[Any]]: ...


@dataclass(frozen=True)
class FrequencyGroup:
    """Labels of like frequency: those with at least `least` test documents that no group before it holds."""

    least: int
    labels: int
    occurrences: int
    """Test documents of its labels, added up."""
    auc: float
    """The mean over its labels. A label that every document holds has no AUC and is left out; NaN if all are."""
    aupr: float


def frequency_groups(
    predicted: Scored, truth: Truth, groups: int = 3, at_least: int = 5, ties: Ties = "pessimistic"
) -> list[FrequencyGroup]:
    """Labels with `at_least` test documents in groups of near-equal total occurrences, the most frequent first.

    Labels of one frequency stay together, so a group is known by its lower cut; where there are fewer frequencies
    than groups, fewer groups come back.
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
        raise DataError(f"No label has {at_least} test documents, the most is {most}. Lower 'at_least'.")
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
        raise DataError(f"Frequency groups need scores. Give a TopK, not {type(predicted).__name__}.")
    returned, scores = label_numbers(predicted), np.asarray(predicted.scores)  # (n, k') each
    if returned.shape != scores.shape:
        raise DataError(f"Labels and scores must be two (n, k) arrays. Got {returned.shape} and {scores.shape}.")
    if np.isnan(scores[returned >= 0]).any():
        raise DataError("A score is not a number, so documents cannot be ranked by it. Replace it.")
    return returned, scores


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _cuts(sizes: NDArray[np.int64], groups: int) -> list[int]:
    """Where groups end: of the places between two frequencies, those nearest to equal shares of all occurrences."""
    places = np.flatnonzero(np.diff(sizes)) + 1  # sizes fall
    before = np.cumsum(sizes)[places - 1]  # (places,) occurrences up to there
    groups = min(groups, len(places) + 1)
    chosen: list[int] = []
    for number in range(1, groups):
        nearest = int(np.argmin(np.abs(before - sizes.sum() * number / groups)))
        earliest = chosen[-1] + 1 if chosen else 0
        chosen.append(min(max(nearest, earliest), len(places) - (groups - number)))  # leave a place to each to come
    return [int(places[at]) for at in chosen]


@dataclass(frozen=True)
class _Entries:
    """Documents that got one of some labels: by label, the largest score first, of equal scores the false first."""

    label: NDArray[np.integer[Any]]  # (e,) its place among the frequent ones
    score: NDArray[np.floating[Any]]  # (e,)
    true: NDArray[np.bool_]  # (e,) whether the document holds the label


def _areas(
    found: Match, returned: IntegerArray, scores: NDArray[np.floating[Any]], frequent: NDArray[np.int64], ties: Ties
) -> tuple[FloatArray, FloatArray]:
    """AUC and AUPR of the frequent labels; AUC is NaN where every document holds the label."""
    count = len(frequent)
    place = np.full(int(frequent.max()) + 1, -1, dtype=np.int32)  # of each label among the frequent ones
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
    """For each true document: the negatives ranked before it, and the precision of the ranking up to it."""
    start = _starts(entries.label[1:] != entries.label[:-1])  # (e,) where the label's documents begin
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
    """(e,) entries of this kind from the start of each up to it, itself included."""
    counts = np.cumsum(kind, dtype=np.int64)
    return counts - (counts - kind)[start]


def _starts(new: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each of len(new) + 1 entries, where its run begins; `new` says whether the next entry begins one."""
    at = np.arange(len(new) + 1)
    at[1:][~new] = 0
    return np.maximum.accumulate(at)


def _blocks(
    found: Match, returned: IntegerArray, scores: NDArray[np.floating[Any]], place: NDArray[np.int32]
) -> Iterator[_Entries]:
    """The scores of the frequent labels, some labels at a time."""
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
